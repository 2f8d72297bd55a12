"""Answers of a mixture of product distributions (HQR, Section 4.2, Equation 1): whole tables, and single cells.

A component draws the number of persons, each household attribute and each attribute of each person independently;
person j of a household is drawn from the component's j-th person. So, within a component,

- the household values of a cell have the product of their chances, one row of the `outer` product;
- person j has the person values of a cell with a chance p_j that is a product as well;
- Σ_m P(m persons) · (1 − Π_{j≤m} (1 − p_j)) is the chance that somebody has them (`rates` has it compiled);
- Σ_j P(at least j persons) · p_j is the expected number of persons who have them: `numbering`.

A table is then one matrix product over components. Only operators are used, so that the same code runs on NumPy
arrays (answers in double precision, nothing to compile) and inside JAX (gradients).

A table of households that contain a person with given values is the one table that is no plain sum of products, and its
gradient the one that costs a fit its time: for every
component, person and cell there is another chance. Here none of them is stored. The loops are compiled once
for all shapes. With p_j the chance of person j and c_m that of m persons,

    u = Σ_m c_m (1 − Π_{j≤m} (1 − p_j)) = Σ_m c_m − (1 − p_1) r_1,    r_j = c_j + (1 − p_{j+1}) r_{j+1},    r_M = c_M,

so that ∂u/∂p_j = r_j Π_{i<j} (1 − p_i): one pass from the last person to the first, and one back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.domain.schema import Counted

Array = Any  # of NumPy or of JAX


class Tables(NamedTuple):
    """The chances that a table needs: its own attributes only, in its order.

    `weights` [components], `sizes` [components, 0 … most persons], `household` of [components, codes] each, and
    `person` of [components, most persons, codes] each.
    """

    weights: Array
    sizes: Array
    household: tuple[Array, ...]
    person: tuple[Array, ...]


def answers(of: Counted, by_size: bool, tables: Tables) -> Array:
    """The expected counts per household, with the table's axes: size if asked for, household, person."""
    weights, sizes, household, person = tables
    if not person:
        if by_size:
            return _contracted(
                weights, [sizes if of == "households" else by_each_size(of, sizes, ())[:, :, 0], *household]
            )
        return _contracted(weights * by_component(of, sizes, ())[:, 0], household)
    if of == "persons" and not household and not by_size:
        return _contracted_over_persons(tables)
    homes = weighted_households(weights, household)
    shape = (*(table.shape[-1] for table in household), *(table.shape[-1] for table in person))
    if by_size:
        rates = by_each_size(of, sizes, person)
        joined = rates.__array_namespace__().stack([homes.T @ rates[:, size] for size in range(sizes.shape[1])])
        return joined.reshape(sizes.shape[1], *shape)
    return (homes.T @ by_component(of, sizes, person)).reshape(shape)


def weighted_households(weights: Array, household: Sequence[Array]) -> Array:
    """[components, household cells]: the component's weight times its chance of the cell."""
    return outer([weights[:, None], *household])


def by_component(of: Counted, sizes: Array, person: Sequence[Array]) -> Array:
    """[components, person cells]: the chance that somebody has a cell's values, or the number of persons expected to.

    Without person attributes there is one cell, which every person has.
    """
    if of == "persons":
        return numbering(sizes, _persons(sizes, person))
    return by_each_size(of, sizes, person).sum(axis=1) if person else sizes.sum(axis=1, keepdims=True)


def by_each_size(of: Counted, sizes: Array, person: Sequence[Array]) -> Array:
    """[components, sizes, person cells]: `by_component`, jointly with each number of persons."""
    chances = _persons(sizes, person)
    nothing = chances[:, 0] * 0
    rates, nobody = [nothing], nothing + 1
    for place in range(chances.shape[1]):
        if of == "persons":
            rates.append(rates[-1] + chances[:, place])
        else:
            nobody = nobody * (1 - chances[:, place])
            rates.append(1 - nobody)
    return rates[0].__array_namespace__().stack(rates, axis=1) * sizes[:, :, None]


def numbering(sizes: Array, chances: Array) -> Array:
    """Σ_j P(at least j persons) · p_j, from the chances p [components, persons, cells]."""
    there = present(sizes)
    total = there[:, 0, None] * chances[:, 0]
    for place in range(1, chances.shape[1]):
        total = total + there[:, place, None] * chances[:, place]
    return total


def present(sizes: Array) -> Array:
    """[components, persons]: P(at least j persons), j = 1 … most."""
    return sizes[:, :0:-1].cumsum(axis=1)[:, ::-1]


def outer(tables: Sequence[Array]) -> Array:
    """[…, cells]: products over all combinations of codes, the last table's codes running fastest."""
    product = tables[0]
    for table in tables[1:]:
        product = (product[..., :, None] * table[..., None, :]).reshape(*product.shape[:-1], -1)
    return product


def _persons(sizes: Array, person: Sequence[Array]) -> Array:
    if person:
        return outer(person)
    return (sizes[:, 1:] * 0 + 1)[:, :, None]


def _contracted_over_persons(tables: Tables) -> Array:
    """The number of persons by their own attributes: a sum over components and places, a row for each."""
    rows = (tables.weights[:, None] * present(tables.sizes)).reshape(-1)
    return _contracted(rows, [table.reshape(-1, table.shape[-1]) for table in tables.person])


def _contracted(weights: Array, tables: Sequence[Array]) -> Array:
    """Σ_rows weight · Π tables, as one matrix product of two halves: the whole outer product is never built."""
    shape = tuple(table.shape[1] for table in tables)
    cuts = range(len(tables) + 1)
    cut = min(cuts, key=lambda cut: prod(shape[:cut]) + prod(shape[cut:]))
    left = outer([weights[:, None], *tables[:cut]])
    right = outer([weights[:, None] * 0 + 1, *tables[cut:]])
    return (left.T @ right).reshape(shape)


# -------------------------------------------------------------------- households that contain somebody


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
        lambda start, stop: _slopes((own.sizes, head, last), by_rates, (by_sizes, by_head, by_last), start, stop),
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
    chances: tuple[Floats, Floats, Floats],
    by_rates: Floats,
    slopes: tuple[Floats, Floats, Floats],
    start: int,
    stop: int,
) -> None:
    """Add to the slopes by sizes, by the head table and by the last one, from those by rates."""
    sizes, head, last = chances
    by_sizes, by_head, by_last = slopes
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
