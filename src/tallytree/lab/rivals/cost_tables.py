"""The cost tables of the PGSR paper (Sections 6 and 7), for comparison: `nearest_consistent` needs no tables.

Every region has a table of the least cost of its subtree for each value of its domain, which is the noisy count ± a
reach, cut at zero (the paper's footnote: three times the noise variance 2λ², rounded up). A parent's entry is the
cheapest split of that value among its children. Algorithm 1 makes all entries of a table at once, by sorting the slopes
of the children's: upwards from their minima, and downwards in order of least increase (the printed text has an error
there). Before that, the paper calls a constraint solver for each entry; `per_entry` does so too, with CP-SAT. Open
details are decided in the paper's favour: only the slopes are sorted, costs are running sums, and the downward pass
finds its split by bisection.

A domain can be empty: a noisy count below minus its reach, or one that its children's domains cannot add up to. Then
the paper's program has no solution, and the functions here raise an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import kernel
from tallytree.core.registry import import_extra
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import SUM_LIMIT, Weights, integer_table, integer_weights

MOST_ENTRIES = 1 << 26  # in all tables together: half a gigabyte
ENTRY_SECONDS = 60.0  # CP-SAT's limit for one entry, which takes it milliseconds


def paper_reach(variance: float | Fraction) -> int:
    """Return how far from a noisy count its domain reaches: 3⌈2λ²⌉, where 2λ² is the paper's variance of the noise."""
    return 3 * ceil(variance)


def table_estimate(
    noisy: NDArray[Any],
    hierarchy: Hierarchy,
    reaches: Sequence[int],
    *,
    total: int | None = None,
    weights: Weights = None,
    per_entry: bool = False,
) -> Integers:
    """Return the paper's estimate of M_H^dp: counts `[regions, sizes]` nearest to `noisy` within the domains.

    `reaches` and `weights` have one entry per level, from the root down; `total` is the sum of the root's counts.
    With `per_entry` a constraint solver makes every entry of every table: for a few hundred entries, not more.
    """
    noisy = integer_table(noisy, len(hierarchy))
    level_weights = integer_weights(weights, hierarchy.depth)
    if len(reaches) != hierarchy.depth or min(reaches) < 0:
        raise SpecError(f"expected {hierarchy.depth} reaches of 0 or more, one per level from the root down")
    entries = table_entries(hierarchy, noisy.shape[1], reaches)
    if entries > MOST_ENTRIES:
        raise SpecError(too_large(entries))
    if len(hierarchy) * max(level_weights) * (max(reaches) + 1) ** 2 * noisy.shape[1] >= SUM_LIMIT:
        raise SpecError("costs of domains this wide would overflow 64-bit integers; use smaller weights or more budget")
    level_of = hierarchy.level_of
    reach, weight = np.array(reaches, dtype=np.int64)[level_of], np.array(level_weights, dtype=np.int64)[level_of]
    tables = [cost_tables(column, hierarchy, reach, weight, per_entry=per_entry) for column in noisy.T]
    values = _root_values(tables, total)
    found = np.empty(noisy.shape, dtype=np.int64)
    for size, table in enumerate(tables):
        found[:, size] = _walk_down(*table, hierarchy.child_starts, values[size], len(hierarchy))
    return found


def table_entries(hierarchy: Hierarchy, sizes: int, reaches: Sequence[int]) -> int:
    """Return the most entries that all tables together can have; known before anything is measured."""
    regions = np.diff(hierarchy.level_starts).tolist()
    return int(sizes * sum(count * (2 * reach + 1) for count, reach in zip(regions, reaches, strict=True)))


def too_large(entries: int) -> str:
    """Return why this many entries are refused, and what to do."""
    return (
        f"the paper's cost tables would have up to {entries:,} entries, more than {MOST_ENTRIES:,}; "
        "pgsr-hierarchical-dp finds the same optimum without tables"
    )


def cost_tables(
    column: NDArray[Any], hierarchy: Hierarchy, reach: Integers, weight: Integers, *, per_entry: bool = False
) -> tuple[Integers, Integers, Integers]:
    """Return the tables of one size: each region's lowest value, where its costs begin, and all costs in a row."""
    column = np.ascontiguousarray(column, dtype=np.int64)
    lows, highs = np.maximum(column - reach, 0), column + reach
    for region in range(int(hierarchy.level_starts[-2]) - 1, -1, -1):
        children = slice(*hierarchy.child_starts[region : region + 2])
        lows[region] = max(lows[region], lows[children].sum())
        highs[region] = min(highs[region], highs[children].sum())
    if empty := int((highs < lows).sum()):
        raise SpecError(
            f"the paper's domains are empty for {empty} of {len(lows)} regions of a size, so its tables have no "
            "solution for this noise. pgsr-hierarchical-dp solves the same problem without domains."
        )
    starts = np.concatenate([[0], np.cumsum(highs - lows + 1)])
    costs = np.empty(starts[-1], dtype=np.int64)
    if per_entry:
        _build_by_solver(column, hierarchy, lows, starts, costs, weight)
    else:
        _build(column, hierarchy.child_starts, lows, starts, costs, weight)
    return lows, starts, costs


def _root_values(tables: list[tuple[Integers, Integers, Integers]], total: int | None) -> Integers:
    """Return what each size's root holds: its cheapest value or, with a total, the cheapest split of it."""
    roots = [(lows[0], costs[starts[0] : starts[1]]) for lows, starts, costs in tables]
    if total is None:
        return np.array([low + np.argmin(table) for low, table in roots], dtype=np.int64)
    least, most = sum(int(low) for low, _ in roots), sum(int(low) + len(table) - 1 for low, table in roots)
    if not least <= total <= most:
        raise SpecError(
            f"the paper's domains let the sizes add up to {least:,} … {most:,}, which leaves out the public total "
            f"{total:,}. pgsr-hierarchical-dp solves the same problem without domains."
        )
    lows = np.array([low for low, _ in roots])
    starts = np.cumsum([0, *(len(table) for _, table in roots)])
    values = np.empty(len(roots), dtype=np.int64)
    _split(lows, starts, np.concatenate([table for _, table in roots]), 0, len(roots), total, values)
    return values


def _build_by_solver(
    noisy: Integers, hierarchy: Hierarchy, lows: Integers, starts: Integers, costs: Integers, weight: Integers
) -> None:
    """Fill every entry of every table by a constraint program: (4b) to (4d), with table constraints."""
    for region in range(len(noisy) - 1, -1, -1):
        values = np.arange(lows[region], lows[region] + starts[region + 1] - starts[region])
        table = weight[region] * (values - noisy[region]) ** 2
        children = hierarchy.children_of(region)
        if children:
            pairs = [
                [(int(lows[child]) + place, int(cost)) for place, cost in enumerate(_table(costs, starts, child))]
                for child in children
            ]
            table += [cheapest_split(pairs, int(value)) for value in values]
        costs[starts[region] : starts[region + 1]] = table


def _table(costs: Integers, starts: Integers, region: int) -> Integers:
    return costs[starts[region] : starts[region + 1]]


def cheapest_split(tables: Sequence[Sequence[tuple[int, int]]], value: int) -> int:
    """Return φ(value): the least sum of costs over one (value, cost) pair per table whose values add up."""
    cp_model = import_extra("ortools.sat.python.cp_model", "this", "tallytree[solvers]")
    model = cp_model.CpModel()
    parts, charges = [], []
    for table in tables:
        part = model.new_int_var(table[0][0], table[-1][0], "")
        charge = model.new_int_var(min(cost for _, cost in table), max(cost for _, cost in table), "")
        model.add_allowed_assignments([part, charge], table)
        parts.append(part)
        charges.append(charge)
    model.add(sum(parts) == value)
    model.minimize(sum(charges))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = ENTRY_SECONDS
    if solver.solve(model) != cp_model.OPTIMAL:
        raise SpecError(f"the constraint solver did not prove an entry of a cost table in {ENTRY_SECONDS:.0f} seconds")
    least: int = round(solver.objective_value)
    return least


@kernel
def _build(
    noisy: Integers, child_starts: Integers, lows: Integers, starts: Integers, costs: Integers, weight: Integers
) -> None:
    for region in range(len(noisy) - 1, -1, -1):
        table, low = costs[starts[region] : starts[region + 1]], lows[region]
        first, last = child_starts[region], child_starts[region + 1]
        if first < last:
            _merge_tables(lows, starts, costs, first, last, table, low)
        else:
            table[:] = 0
        for place in range(len(table)):
            table[place] += weight[region] * (low + place - noisy[region]) ** 2


@kernel
def _merge_tables(
    lows: Integers, starts: Integers, costs: Integers, first: int, last: int, table: Integers, low: int
) -> None:
    entries = starts[last] - starts[first]
    rising, falling = np.empty(entries, dtype=np.int64), np.empty(entries, dtype=np.int64)
    up, down, least, value = 0, 0, 0, 0
    for child in range(first, last):
        below = costs[starts[child] : starts[child + 1]]
        best = np.argmin(below)
        least += below[best]
        value += lows[child] + best
        for place in range(best + 1, len(below)):
            rising[up] = below[place] - below[place - 1]
            up += 1
        for place in range(best, 0, -1):
            falling[down] = below[place - 1] - below[place]
            down += 1
    for steps, direction in ((np.sort(rising[:up]), 1), (np.sort(falling[:down]), -1)):
        cost, at = least, value
        if 0 <= at - low < len(table):
            table[at - low] = cost
        for step in steps:
            cost += step
            at += direction
            if 0 <= at - low < len(table):
                table[at - low] = cost


@kernel
def _walk_down(
    lows: Integers, starts: Integers, costs: Integers, child_starts: Integers, root: int, regions: int
) -> Integers:
    values = np.empty(regions, dtype=np.int64)
    values[0] = root
    for region in range(regions):
        first, last = child_starts[region], child_starts[region + 1]
        if first < last:
            _split(lows, starts, costs, first, last, values[region], values[first:last])
    return values


@kernel
def _split(
    lows: Integers, starts: Integers, costs: Integers, first: int, last: int, amount: int, values: Integers
) -> None:
    """Divide an amount: take every step of slope at most the threshold that just fits, then some of the next slope."""
    below, above = -(1 << 61), 1 << 61
    while above - below > 1:
        middle = (below + above) // 2
        taken = 0
        for child in range(first, last):
            taken += lows[child] + _steps(costs[starts[child] : starts[child + 1]], middle)
        if taken <= amount:
            below = middle
        else:
            above = middle
    left = amount
    for child in range(first, last):
        values[child - first] = lows[child] + _steps(costs[starts[child] : starts[child + 1]], below)
        left -= values[child - first]
    for child in range(first, last):
        spare = lows[child] + _steps(costs[starts[child] : starts[child + 1]], above) - values[child - first]
        given = min(spare, left)
        values[child - first] += given
        left -= given


@kernel
def _steps(table: Any, threshold: int) -> int:
    """Return how many steps of a convex table have at most this slope."""
    low, high = 0, len(table) - 1
    while low < high:
        middle = (low + high) // 2
        if table[middle + 1] - table[middle] <= threshold:
            low = middle + 1
        else:
            high = middle
    return low
