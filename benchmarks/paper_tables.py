"""Algorithm 1 of the PGSR paper (TableMerge) with its cost tables, compiled, to measure `nearest_consistent` against.

Every region has a table of the least cost of its subtree for each value of its domain, the noisy count ± 3⌈2λ²⌉ cut at
zero. A parent's table is made by sorting the slopes of its children's: upwards from their minima, and downwards in
order of least increase (the printed text has that side wrong). What the paper leaves open is done in its favour: only
the slopes are sorted, costs are summed as they go, and the way down finds its split by bisection, not by sorting again.
"""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.hierarchy import Hierarchy
from tallytree.kernels import kernel

Integers = NDArray[np.int64]


def paper_estimate(noisy: Integers, hierarchy: Hierarchy, total: int, noise_scale: float) -> Integers:
    """The paper's estimate of M_H^dp for every size and a total over all of them."""
    reach = 3 * ceil(2 * noise_scale**2)
    tables = [_tables(np.ascontiguousarray(column), hierarchy, reach) for column in noisy.T]
    roots = [(lows[0], costs[starts[0] : starts[1]]) for lows, starts, costs in tables]
    lows = np.array([low for low, _ in roots])
    starts = np.cumsum([0, *(len(table) for _, table in roots)])
    values = np.empty(len(roots), dtype=np.int64)
    _split(lows, starts, np.concatenate([table for _, table in roots]), 0, len(roots), total, values)
    found = np.empty(noisy.shape, dtype=np.int64)
    for size, table in enumerate(tables):
        found[:, size] = _walk_down(*table, hierarchy.child_starts, values[size], len(hierarchy))
    return found


def _tables(column: Integers, hierarchy: Hierarchy, reach: int) -> tuple[Integers, Integers, Integers]:
    """For each region the lowest value that can be reached, and where its costs begin in one long table."""
    lows, highs = np.maximum(column - reach, 0), np.maximum(column + reach, 0)
    for region in range(int(hierarchy.level_starts[-2]) - 1, -1, -1):
        children = slice(*hierarchy.child_starts[region : region + 2])
        lows[region] = max(lows[region], lows[children].sum())
        highs[region] = min(highs[region], highs[children].sum())
    if (highs < lows).any():
        raise ValueError("a region's domain is empty: the paper's tables have no solution here")
    starts = np.concatenate([[0], np.cumsum(highs - lows + 1)])
    costs = np.empty(starts[-1], dtype=np.int64)
    _build(column, hierarchy.child_starts, lows, starts, costs)
    return lows, starts, costs


@kernel
def _build(noisy: Integers, child_starts: Integers, lows: Integers, starts: Integers, costs: Integers) -> None:
    for region in range(len(noisy) - 1, -1, -1):
        table, low = costs[starts[region] : starts[region + 1]], lows[region]
        first, last = child_starts[region], child_starts[region + 1]
        if first < last:
            _merge_tables(lows, starts, costs, first, last, table, low)
        else:
            table[:] = 0
        for place in range(len(table)):
            table[place] += (low + place - noisy[region]) ** 2


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
    """Share an amount: every step of slope at most the threshold that just fits, then some of the next slope."""
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
    """How many steps of a convex table have at most this slope."""
    low, high = 0, len(table) - 1
    while low < high:
        middle = (low + high) // 2
        if table[middle + 1] - table[middle] <= threshold:
            low = middle + 1
        else:
            high = middle
    return low
