"""The loss of a table of households that contain a person with given values, and its slopes, in compiled loops.

It is the one table that is no plain sum of products, and its gradient the one that costs a fit its time: for every
component, person and cell there is another chance. Here none of them is stored. The loops are compiled once
for all shapes. With p_j the chance of person j and c_m that of m persons,

    u = Σ_m c_m (1 − Π_{j≤m} (1 − p_j)) = Σ_m c_m − (1 − p_1) r_1,    r_j = c_j + (1 − p_{j+1}) r_{j+1},    r_M = c_M,

so that ∂u/∂p_j = r_j Π_{i<j} (1 − p_i): one pass from the last person to the first, and one back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.synthesis.models.products import Tables, outer, weighted_households

Floats = NDArray[np.float32]

COMPONENTS_PER_BLOCK = 64
CHANCES_FOR_THREADS = 1 << 19  # with fewer, the work takes less than the millisecond that threads need to start


def loss_and_slopes(tables: Tables, shares: Any, weights: Any) -> tuple[float, Tables]:
    """Σ weight · (answer − share)² of a table of households by person attributes, and its slopes by all chances."""
    own = Tables(_single(tables.weights), _single(tables.sizes), _all(tables.household), _all(tables.person))
    homes = weighted_households(own.weights, own.household)
    head, last = _halves(own.person)
    found = rates(own.sizes, own.person)

    apart = homes.T @ found - np.asarray(shares, dtype=np.float32).reshape(homes.shape[1], -1)
    pull = np.asarray(weights, dtype=np.float32).reshape(apart.shape) * apart
    loss = float((pull * apart).sum(dtype=np.float64))

    by_homes, by_rates = found @ (2 * pull.T), homes @ (2 * pull)
    by_sizes, by_head, by_last = np.zeros_like(own.sizes), np.zeros_like(head), np.zeros_like(last)
    _for_all(
        lambda start, stop: _slopes(own.sizes, head, last, by_rates, by_sizes, by_head, by_last, start, stop),
        len(homes),
        head.size * last.shape[2],
    )
    by_weights, *by_household = outer_slopes([own.weights[:, None], *own.household], by_homes)
    by_front = outer_slopes(own.person[:-1], by_head) if own.person[1:] else []
    return loss, Tables(by_weights[:, 0], by_sizes, tuple(by_household), (*by_front, by_last))


def rates(sizes: NDArray[Any], person: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """[components, person cells]: the chance that somebody of the household has a cell's values."""
    head, last = _halves(person)
    found = np.empty((len(sizes), head.shape[2] * last.shape[2]), dtype=last.dtype)
    _for_all(lambda start, stop: _rates(sizes, head, last, found, start, stop), len(sizes), head.size * last.shape[2])
    return found


def _for_all(task: Callable[[int, int], None], components: int, chances: int) -> None:
    """The task for all components: in threads, unless starting them would take longer than the task itself."""
    if chances < CHANCES_FOR_THREADS:
        task(0, components)
    else:
        in_threads(task, blocks(components, COMPONENTS_PER_BLOCK))


def _halves(person: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """All attributes but the last together, and the last."""
    *front, last = person
    return (outer(front) if front else np.ones((*last.shape[:2], 1), dtype=last.dtype)), last


def outer_slopes(tables: Sequence[Floats], slopes: Floats) -> list[Floats]:
    """The slopes by each table of something whose slopes by their `outer` product are known."""
    lead = tables[0].shape[:-1]
    found = []
    for place in range(len(tables)):
        before = int(np.prod([table.shape[-1] for table in tables[:place]], dtype=np.int64))
        part = slopes.reshape(*lead, before, tables[place].shape[-1], -1)
        part = (part @ outer(tables[place + 1 :])[..., None, :, None])[..., 0] if tables[place + 1 :] else part[..., 0]
        part = (outer(tables[:place])[..., None, :] @ part)[..., 0, :] if place else part[..., 0, :]
        found.append(part)
    return found


def _single(array: Any) -> Floats:
    return np.array(array, dtype=np.float32, order="C")


def _all(arrays: Sequence[Any]) -> tuple[Floats, ...]:
    return tuple(_single(array) for array in arrays)


@kernel
def _rates(sizes: Floats, head: Floats, last: Floats, rates: Floats, start: int, stop: int) -> None:
    persons, cells, codes = head.shape[1], head.shape[2], last.shape[2]
    for row in range(start, stop):
        somebody = sizes[row, 1:].sum()
        for cell in range(cells):
            found = rates[row, cell * codes : (cell + 1) * codes]
            found[:] = sizes[row, persons]
            for person in range(persons - 1, -1, -1):
                chance = head[row, person, cell]
                more = sizes[row, person] if person else sizes[row, 0] * 0
                for code in range(codes):
                    found[code] = more + (np.float32(1) - chance * last[row, person, code]) * found[code]
            for code in range(codes):
                found[code] = somebody - found[code]


@kernel
def _slopes(
    sizes: Floats,
    head: Floats,
    last: Floats,
    by_rates: Floats,
    by_sizes: Floats,
    by_head: Floats,
    by_last: Floats,
    start: int,
    stop: int,
) -> None:
    persons, cells, codes = head.shape[1], head.shape[2], last.shape[2]
    rest = np.empty((persons, codes), dtype=np.float32)  # r_j
    nobody = np.empty(codes, dtype=np.float32)  # Π_{i<j} (1 − p_i), times the slope by the rate
    for row in range(start, stop):
        for cell in range(cells):
            rest[persons - 1, :] = sizes[row, persons]
            for person in range(persons - 2, -1, -1):
                chance = head[row, person + 1, cell]
                for code in range(codes):
                    none = np.float32(1) - chance * last[row, person + 1, code]
                    rest[person, code] = sizes[row, person + 1] + none * rest[person + 1, code]
            all_slopes = np.float32(0)
            for code in range(codes):
                nobody[code] = by_rates[row, cell * codes + code]
                all_slopes += nobody[code]
            for person in range(persons):
                chance = head[row, person, cell]
                by_chance, left = np.float32(0), np.float32(0)
                for code in range(codes):
                    of_last = last[row, person, code]
                    slope = nobody[code] * rest[person, code]
                    by_chance += slope * of_last
                    by_last[row, person, code] += slope * chance
                    nobody[code] *= np.float32(1) - chance * of_last
                    left += nobody[code]
                by_head[row, person, cell] += by_chance
                by_sizes[row, person + 1] += all_slopes - left
