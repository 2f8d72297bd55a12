"""Answers of a mixture of product distributions (HQR, Section 4.2, Equation 1), and the gradient of a misfit.

A component draws the number of persons, each household attribute and each attribute of each person independently;
person j of a household is drawn from the component's j-th person. So, within a component,

- the household values of a cell have the product of their chances, one row of the `outer` product;
- person j has the person values of a cell with a chance p_j that is a product as well;
- Σ_m P(m persons) · (1 − Π_{j≤m} (1 − p_j)) is the chance that somebody has them (`rates` has it compiled);
- Σ_j P(at least j persons) · p_j is the expected number of persons who have them.

*Sums of products.* A table of persons is a sum over components and places of persons, any other table without person
attributes a sum over components: each such row adds a product of its chances. So the table is one matrix product
L'R of two halves of the axes, and the slopes by these are R P' and L P, where P are the slopes by the table.

*Households that contain somebody.* A table of households that contain a person with given values is the only table that
is not a plain sum of products, and its gradient is what costs a fit its time: for every component, person and cell
there is another chance. Here none of them is stored. The loops are compiled once for all shapes. With p_j the chance of
person j and c_m that of m persons,

    u = Σ_m c_m (1 − Π_{j≤m} (1 − p_j)) = Σ_m c_m − (1 − p_1) r_1,    r_j = c_j + (1 − p_{j+1}) r_{j+1},    r_M = c_M,

so that ∂u/∂p_j = r_j Π_{i<j} (1 − p_i): one pass from the last person to the first, and one back. By size it is as many
tables as there are sizes, each with the chances of one size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.domain.schema import Counted

Array = NDArray[Any]  # of single precision in a fit, of double precision elsewhere
Floats = NDArray[np.float32]

COMPONENTS_PER_BLOCK = 64
CHANCES_FOR_THREADS = 1 << 19  # with fewer, the work takes less than the millisecond that threads need to start


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
    """Return the expected counts per household, with the table's axes: size if asked for, household, person."""
    lengths = [part.shape[-1] for part in (*tables.household, *tables.person)]
    if of == "households" and tables.person:
        homes = weighted_households(tables.weights, tables.household)
        parts = _parts(by_size, tables.sizes)
        found = np.stack([homes.T @ rates(tables.sizes * part, tables.person) for part in parts])
    else:
        left, right = map(outer, _halves(_rows(of, by_size, tables)))
        found = left.T @ right
    return found.reshape([tables.sizes.shape[1], *lengths] if by_size else lengths)


def loss_and_slopes(of: Counted, by_size: bool, tables: Tables, shares: Array, weights: Array) -> tuple[float, Tables]:
    """Σ weight · (answer − share)² of a table, and its slopes by all chances."""
    if of == "households" and tables.person:
        return _of_containing(by_size, tables, shares, weights)
    rows = _rows(of, by_size, tables)
    first, second = _halves(rows)
    left, right = outer(first), outer(second)
    apart = left.T @ right - shares.reshape(left.shape[1], -1)
    pull = weights.reshape(apart.shape) * apart
    loss = float((pull * apart).sum(dtype=np.float64))
    slopes = outer_slopes(first, right @ (2 * pull.T)) + outer_slopes(second, left @ (2 * pull))
    return loss, _slopes_by_chances(of, tables, slopes[: len(rows)])


def weighted_households(weights: Array, household: Sequence[Array]) -> Array:
    """[components, household cells]: the component's weight times its chance of the cell."""
    return outer([weights[:, None], *household])


def expected_persons(sizes: Array, person: Sequence[Array]) -> Array:
    """[components, person cells]: Σ_j P(at least j persons) · p_j."""
    found: Array = np.einsum("cj,cjp->cp", sizes[:, :0:-1].cumsum(axis=1)[:, ::-1], outer(person))
    return found


def outer(tables: Sequence[Array]) -> Array:
    """[…, cells]: products over all combinations of codes, the last table's codes running fastest."""
    product = tables[0]
    for table in tables[1:]:
        product = (product[..., :, None] * table[..., None, :]).reshape(*product.shape[:-1], -1)
    return product


def outer_slopes(tables: Sequence[Array], slopes: Array) -> list[Array]:
    """Return the slopes by each table of something whose slopes by their `outer` product are known."""
    if len(tables) == 1:
        return [slopes]
    *front, last = tables
    before, part = outer(front), slopes.reshape(*last.shape[:-1], -1, last.shape[-1])
    by_front = np.einsum("...ab,...b->...a", part, last)
    return [*outer_slopes(front, by_front), np.einsum("...ab,...a->...b", part, before)]


# -------------------------------------------------------------------- sums of products


def _rows(of: Counted, by_size: bool, tables: Tables) -> list[Array]:
    """Return weights, chances of the size and of all attributes, each [rows, codes]; a row is a component, in a table
    of persons one place of it.
    """
    there = tables.sizes[:, None] * _counted(of, tables.sizes)
    places = there.shape[1]
    homes = [np.repeat(table, places, axis=0) for table in (tables.weights[:, None], *tables.household)]
    size = there.reshape(-1, there.shape[2])
    people = [table.reshape(-1, table.shape[2]) for table in tables.person]
    return [homes[0], size if by_size else size.sum(axis=1, keepdims=True), *homes[1:], *people]


def _slopes_by_chances(of: Counted, tables: Tables, slopes: Sequence[Array]) -> Tables:
    """Return the slopes by chances from those by `_rows`."""
    counted, components = _counted(of, tables.sizes), len(tables.weights)
    by_place = [slope.reshape(components, len(counted), -1) for slope in slopes]
    homes = [slope.sum(axis=1) for slope in (by_place[0], *by_place[2 : 2 + len(tables.household)])]
    by_sizes = (by_place[1] * counted).sum(axis=1)
    return Tables(homes[0][:, 0], by_sizes, tuple(homes[1:]), tuple(by_place[2 + len(tables.household) :]))


def _counted(of: Counted, sizes: Array) -> Array:
    """[places, sizes]: 1 where a household of that size has a person at that place; one row for whole households."""
    if of == "households":
        return np.ones((1, sizes.shape[1]), sizes.dtype)
    return np.tri(sizes.shape[1], dtype=sizes.dtype).T[1:]


def _halves(rows: Sequence[Array]) -> tuple[Sequence[Array], Sequence[Array]]:
    """Return the axes in two parts with few cells each: the outer product of all of them is never built."""
    lengths = [table.shape[1] for table in rows]
    cut = min(range(1, len(rows) + 1), key=lambda cut: prod(lengths[:cut]) + prod(lengths[cut:]))
    return rows[:cut], rows[cut:] or [np.ones((len(rows[0]), 1), rows[0].dtype)]


# -------------------------------------------------------------------- households that contain somebody


def _parts(by_size: bool, sizes: Array) -> Array:
    """[tables, sizes]: 1 where a table of the parts by size has a size; without sizes one row for all of them."""
    return np.eye(sizes.shape[1], dtype=sizes.dtype) if by_size else np.ones((1, sizes.shape[1]), sizes.dtype)


def _of_containing(by_size: bool, tables: Tables, shares: Array, weights: Array) -> tuple[float, Tables]:
    """Return `loss_and_slopes` of a table of households by person attributes."""
    homes = weighted_households(tables.weights, tables.household)
    head, last = _front_and_last(tables.person)
    loss, by_homes = 0.0, np.zeros_like(homes)
    by_sizes, by_head, by_last = np.zeros_like(tables.sizes), np.zeros_like(head), np.zeros_like(last)
    parts = _parts(by_size, tables.sizes)
    cells = len(parts), homes.shape[1], -1
    for part, share, weight in zip(parts, shares.reshape(cells), weights.reshape(cells), strict=True):
        sizes = tables.sizes * part
        found = rates(sizes, tables.person)
        apart = homes.T @ found - share
        pull = weight * apart
        loss += float((pull * apart).sum(dtype=np.float64))
        by_homes += found @ (2 * pull.T)
        by_rates, mine = homes @ (2 * pull), np.zeros_like(sizes)
        chances, slopes = (sizes, head, last), (mine, by_head, by_last)
        _for_all(partial(_slopes, chances, by_rates, slopes), len(homes), head.size * last.shape[2])
        by_sizes += mine * part
    by_weights, *by_household = outer_slopes([tables.weights[:, None], *tables.household], by_homes)
    by_front = outer_slopes(tables.person[:-1], by_head) if tables.person[1:] else []
    return loss, Tables(by_weights[:, 0], by_sizes, tuple(by_household), (*by_front, by_last))


def rates(sizes: Array, person: Sequence[Array]) -> Array:
    """[components, person cells]: the chance that somebody of the household has a cell's values."""
    head, last = _front_and_last(person)
    found = np.empty((len(sizes), head.shape[2] * last.shape[2]), dtype=last.dtype)
    _for_all(partial(_rates, sizes, head, last, found), len(sizes), head.size * last.shape[2])
    return found


def _for_all(task: Callable[[int, int], None], components: int, chances: int) -> None:
    """Run the task for all components: in threads, unless starting them would take longer than the task itself."""
    if chances < CHANCES_FOR_THREADS:
        task(0, components)
    else:
        in_threads(task, blocks(components, COMPONENTS_PER_BLOCK))


def _front_and_last(person: Sequence[Array]) -> tuple[Array, Array]:
    """Return all attributes but the last together, and the last."""
    *front, last = person
    return outer(front) if front else np.ones((*last.shape[:2], 1), last.dtype), np.ascontiguousarray(last)


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
