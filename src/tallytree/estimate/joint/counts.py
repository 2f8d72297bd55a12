"""All regions' counts at once, where every region's total is public: whole, non-negative, adding up both ways.

M_H of the PGSR paper (Fioretto, Van Hentenryck, Zhu, Model 1) with the totals of all regions fixed, as a public list
of groups has them, and not the root's alone. The regions of each size form one tree and the leaves' totals another
family: a convex-cost flow, so the whole numbers' optimum is that of its piecewise linear relaxation and the bound of
`alternating`, which is taken over whole numbers row by row, has no gap of its own. The rounding keeps every constraint
but is not a flow algorithm; the gap that it leaves is part of the result.

A parent's row is shared out among its children, whose totals are fixed too. Each child takes the whole numbers nearest
to its target that have its total. The columns then miss the parent's row by a few units; a unit that is too much in one
size and wanted in another moves within the child where that costs least. Last, pairs of siblings exchange a unit of one
size for a unit of another, which keeps rows and columns alike, as long as that pays. Where many units are to be moved,
several go at once, so that the number of steps grows with the logarithm of the counts.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import Weights
from tallytree.estimate.joint.alternating import (
    LEAST_GAIN,
    MOST_PARTNERS,
    Proved,
    Relaxed,
    Target,
    exchange_rounds,
    put_target,
    region_totals,
    shared_out,
    sharp_table,
    solve,
)
from tallytree.estimate.regions.simplex import simplex_threshold, whole_simplex

STEPS_PER_CHILD = 8  # to move all units that may go the same way, at least
UNITS_PER_STEP = 16  # an exchange of which so many units pay, one after another, is made in steps
EXCHANGES_PER_SIZE = 64  # between two siblings, at most


def joint_counts(
    noisy: NDArray[Any],
    hierarchy: Hierarchy,
    *,
    totals: NDArray[Any] | None,
    weights: Weights = None,
    tolerance: float = 1e-3,
) -> Proved:
    """Non-negative whole numbers `[regions, sizes]` near `noisy`: children add up to their parent, rows to their total.

    Near means a small Σ weight · (value − noisy)², and the result says how much smaller it could be at most. `totals`
    is the public number of groups of every region; all groups are in a column, so size 0 is one of them. `weights` has
    one positive number per level, the inverse of its noise variance say. `tolerance` is the relative gap at which the
    relaxation stops; rounding to whole numbers adds its own.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> result = joint_counts(np.array([[7, 1], [4, -2], [4, 2]]), tree, totals=np.array([9, 4, 5]))
    >>> result.values
    array([[7, 2],
           [4, 0],
           [3, 2]])
    >>> result.gap
    0.0
    """
    noisy = sharp_table(noisy, hierarchy)
    if totals is None:
        raise SpecError(
            "joint-counts needs the public total of every region; where totals are private use "
            "pgsr-hierarchical-dp, or joint-cumulative"
        )
    fixed = region_totals(totals, hierarchy)
    thresholds = np.full(len(noisy), np.nan)  # those of the last projection, from which the next one starts

    def rounded(relaxed: Relaxed) -> Integers:
        def share(values: Integers, parent: int, first: int, last: int) -> None:
            _share_row(values, noisy, relaxed.prices, fixed, parent, first, last)

        root: Integers = whole_simplex(noisy[0] + relaxed.prices[0], fixed[0])
        return shared_out(root, hierarchy, share)

    return solve(noisy, hierarchy, weights, tolerance, partial(_project_rows, fixed, thresholds), rounded)


@kernel
def _project_rows(
    totals: Integers, thresholds: Floats, target: Target, whole: bool, nearest: Floats, start: int, stop: int
) -> None:
    """Non-negative numbers with each row's total; `thresholds` are those of the last time."""
    sizes = nearest.shape[1]
    row = np.empty(sizes)
    for region in range(start, stop):
        put_target(target, region, row)
        if whole:
            nearest[region] = whole_simplex(row, totals[region])
            continue
        threshold = simplex_threshold(row, totals[region], thresholds[region])
        thresholds[region] = threshold
        for size in range(sizes):
            nearest[region, size] = max(row[size] - threshold, 0.0)


@kernel
def _share_row(
    values: Integers, noisy: Integers, prices: Floats, totals: Integers, parent: int, first: int, last: int
) -> None:
    """Share a parent's row out among the children `first … last - 1`."""
    sizes, children = values.shape[1], last - first
    # Twice the distance to the target: a unit more costs 1 − pull, a unit less 1 + pull.
    pull = np.empty((children, sizes))
    surplus = -values[parent]
    for child in range(children):
        region = first + child
        values[region] = whole_simplex(noisy[region] + prices[region], totals[region])
        for size in range(sizes):
            target = noisy[region, size] + prices[region, size]
            pull[child, size] = 2.0 * (target - values[region, size])
            surplus[size] += values[region, size]
    _fix_columns(values[first:last], pull, surplus)
    _exchange_units(values[first:last], pull)


@kernel
def _fix_columns(rows: Integers, pull: Floats, surplus: Integers) -> None:
    """Move units within rows from sizes that have too many to sizes that have too few, each by its cheapest move."""
    children, sizes = rows.shape
    wanted = np.full(children, -1, dtype=np.int64)  # where a row's next unit would go
    for size in range(sizes):
        while surplus[size] > 0:
            best, least = -1, np.inf
            for child in range(children):
                if rows[child, size] == 0:
                    continue
                if wanted[child] < 0 or surplus[wanted[child]] >= 0:
                    wanted[child] = _most_wanted(pull[child], surplus)
                cost = pull[child, size] - pull[child, wanted[child]]
                if cost < least:
                    best, least = child, cost
            other = wanted[best]
            most = min(surplus[size], -surplus[other], rows[best, size])
            moved = max(1, most // (STEPS_PER_CHILD * children))
            rows[best, size] -= moved
            rows[best, other] += moved
            pull[best, size] += 2.0 * moved
            pull[best, other] -= 2.0 * moved
            surplus[size] -= moved
            surplus[other] += moved
            wanted[best] = -1


@kernel
def _most_wanted(pull: Floats, surplus: Integers) -> int:
    best = -1
    for size in range(len(pull)):
        if surplus[size] < 0 and (best < 0 or pull[size] > pull[best]):
            best = size
    return best


@kernel
def _exchange_units(rows: Integers, pull: Floats) -> None:
    """While it pays, for a bounded number of passes: one row gives a unit of one size for a unit of another size."""
    children, sizes = rows.shape
    partners = min(children // 2, MOST_PARTNERS)
    for _ in range(exchange_rounds(partners)):
        paid = False
        for offset in range(1, partners + 1):
            for one in range(children):
                other = (one + offset) % children
                for _ in range(EXCHANGES_PER_SIZE * sizes):
                    if not _exchange(rows[one], rows[other], pull[one], pull[other]):
                        break
                    paid = True
        if not paid:
            break


@kernel
def _exchange(one: Integers, other: Integers, pull_one: Floats, pull_other: Floats) -> bool:
    """`one` takes units of size `taken` from `other` and gives as many of size `given`, if the best choice pays.

    Each unit gains 8 less than the one before it: one unit is exchanged, or half of those that gain if they are many.
    """
    taken, given = -1, -1
    best_taken, best_given = -np.inf, -np.inf
    for size in range(len(one)):
        gain = pull_one[size] - pull_other[size] - 2.0
        if gain > best_taken and other[size] > 0:
            taken, best_taken = size, gain
        if -4.0 - gain > best_given and one[size] > 0:
            given, best_given = size, -4.0 - gain
    if taken < 0 or given < 0 or best_taken + best_given <= LEAST_GAIN:
        return False
    gain = min((best_taken + best_given) / 8.0, float(min(other[taken], one[given])))
    units = np.int64(gain / 2.0) if gain > UNITS_PER_STEP else 1
    one[taken] += units
    other[taken] -= units
    one[given] -= units
    other[given] += units
    pull_one[taken] -= 2.0 * units
    pull_other[taken] += 2.0 * units
    pull_one[given] += 2.0 * units
    pull_other[given] -= 2.0 * units
    return True
