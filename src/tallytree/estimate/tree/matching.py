"""Consistency by matching groups across levels: Algorithm 1 of Kuo, Chiu, Kifer, Hay and Machanavajjhala (Section 5).

Every region's histogram has been estimated by itself, so a group has one estimated size per level, and they disagree.
From the top down, the parent's groups are matched with its children's at the least total difference in size
(`runs`), the two estimates of a group's size are merged into one, and the child goes on with that.
The leaves' merged histograms are the result; those above are their sums.

Different from the paper: groups are never listed. Runs of equal sizes are matched, so the time depends on the number of
regions and sizes and not on the number of groups; and the variances are given, not approximated.

A run's groups are equally precise in the independent estimates. After merging they need not be: groups that end up with
one size may have come from runs of different precision. They are pooled into one run with their mean precision
(1 / variance). The paper's Section 5.1 does the same at the start, where all groups of one size get one variance. It is
the mean of precisions, not of variances, because precisions are what merging adds and weighs with: a pooled run brings
exactly as much weight to the next level as its parts would. So a region has at most as many runs as sizes, nothing is
sorted, and the result does not depend on an order among equal sizes. On the paper's taxi data (three levels, 360,872
groups) letting every group keep its own precision changed the earth mover's distance by 0.2 % or less on each level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import SUM_LIMIT, check_adding_up, check_sums, integer_table
from tallytree.estimate.tree.runs import GROUP_LIMIT, pairs, runs_by_size, share

CELLS_PER_BLOCK = 1 << 18
# Added before rounding down: halves go up, also those that floats miss, whose noise must not decide.
HALF_UP = 0.5 + 1e-9
# Beyond this, sums and quotients of precisions could leave the range of floats.
SPREAD_RANGE = (1e-100, 1e100)


def matched(counts: NDArray[Any], hierarchy: Hierarchy, *, spreads: Sequence[float], weighted: bool = True) -> Integers:
    """Consistent counts (regions, sizes) from independent estimates of every region's histogram.

    `counts` are non-negative integers in hierarchy order whose row totals add up. Whether their first column is size 0
    or 1 makes no difference: the average of shifted sizes is shifted as much. `spreads` has one positive number per
    level: a group in a run of n groups of equal estimated size has the variance spread / n (Section 5.1: the noise
    variance where sorted sizes were measured, twice that where cumulative counts were).

    A group matched at size s above (precision p) and t below (precision q) gets the size (p·s + q·t) / (p + q) and the
    precision p + q (Equations 5 and 6), or (s + t) / 2 if not `weighted`; rounded to an integer, halves up.

    Promises: counts are non-negative integers; children add up to their parent for every size; every region keeps its
    total; estimates that are consistent already are returned unchanged; the same input gives the same result.

    >>> tree = Hierarchy.from_levels({"county": ["a", "b"]}, ["county"])
    >>> matched(np.array([[0, 2, 0, 2], [1, 0, 0, 1], [0, 1, 0, 1]]), tree, spreads=[1, 1])
    array([[0, 2, 0, 2],
           [0, 1, 0, 1],
           [0, 1, 0, 1]])
    """
    counts = integer_table(counts, len(hierarchy), name="counts")
    scales = _checked_spreads(spreads, hierarchy)
    most = (SUM_LIMIT - 1) // max(1, counts.size)  # of a value, so that no sum can overflow
    top = counts[0]
    if hierarchy.depth == 1 or top.min(initial=0) < 0 or top.max(initial=0) > most or top.sum() > GROUP_LIMIT:
        _check(counts, hierarchy)
    merged, weights = np.zeros_like(counts), np.empty((0, 0))
    merged[0] = counts[0]
    if weighted:
        weights = merged[:1] * (merged[:1] / scales[0])
    for level in range(1, hierarchy.depth):
        last = level == hierarchy.depth - 1
        weights = _merge_level(counts, hierarchy, level, merged, weights, scales[level], weighted, most, last)
    hierarchy.add_up(merged, above=max(0, hierarchy.depth - 2))
    return merged


def _check(counts: Integers, hierarchy: Hierarchy) -> None:
    """Refuse what cannot be matched, and say why. Families are looked over where they are merged, in the same pass."""
    if counts.min(initial=0) < 0:
        raise SpecError("counts holds negative values; expected how many groups have each size")
    check_sums(counts, counts.size)
    totals = counts.sum(axis=1)
    if totals[0] > GROUP_LIMIT:
        raise SpecError(f"there are {totals[0]:,} groups; at most {GROUP_LIMIT:,} can be matched exactly")
    check_adding_up(totals, hierarchy)


def _checked_spreads(spreads: Sequence[float], hierarchy: Hierarchy) -> list[float]:
    scales = [float(spread) for spread in spreads]
    if len(scales) != hierarchy.depth:
        raise SpecError(f"there are {len(scales)} spreads but {hierarchy.depth} levels; expected one per level")
    low, high = SPREAD_RANGE
    if not all(low <= scale <= high for scale in scales):
        raise SpecError(f"spreads are {scales}; expected variances from {low:g} to {high:g}")
    return scales


def _merge_level(
    counts: Integers,
    hierarchy: Hierarchy,
    level: int,
    merged: Integers,
    upper_weights: Floats,
    spread: float,
    weighted: bool,
    most: int,
    last: bool,
) -> Floats:
    """Fill the rows of a level in `merged`, zeros so far, from the level above; their weights if it is not the last.

    A cell's weight is the sum of its groups' precisions: its mean precision times its groups. From the last level the
    one above is summed up at once, while its rows are in the cache.
    """
    children, found = counts[hierarchy.level_slice(level)], merged[hierarchy.level_slice(level)]
    upper = merged[hierarchy.level_slice(level - 1)]
    weights = np.zeros(children.shape if weighted and not last else (0, 0))
    above = hierarchy.level_slice(level - 1)
    child_starts = hierarchy.child_starts[above.start : above.stop + 1] - above.stop

    def merge(start: int, stop: int) -> bool:
        if not _fit(upper, children, child_starts, most, start, stop):
            return False
        _merge(upper, upper_weights, children, child_starts, spread, weighted, start, stop, found, weights)
        if last:
            _sum_up(upper, found, child_starts, start, stop)
        return True

    cells_per_parent = max(1, children.size // len(upper))
    if not all(in_threads(merge, blocks(len(upper), max(1, CELLS_PER_BLOCK // cells_per_parent)))):
        _check(counts, hierarchy)
    return weights


@kernel
def _fit(upper: Integers, children: Integers, child_starts: Integers, most: int, start: int, stop: int) -> bool:
    """Are the children's values from 0 to `most`, and do their totals add up to their parent's?"""
    for parent in range(start, stop):
        total = upper[parent].sum()
        for child in range(child_starts[parent], child_starts[parent + 1]):
            least = largest = held = 0
            for value in children[child]:
                held += value
                least, largest = min(least, value), max(largest, value)
            if least < 0 or largest > most:
                return False
            total -= held
        if total != 0:
            return False
    return True


@kernel
def _sum_up(upper: Integers, merged: Integers, child_starts: Integers, start: int, stop: int) -> None:
    for parent in range(start, stop):
        row = upper[parent]
        row[:] = 0
        for child in range(child_starts[parent], child_starts[parent + 1]):
            row += merged[child]


@kernel
def _merge(
    upper: Integers,
    upper_weights: Floats,
    children: Integers,
    child_starts: Integers,
    spread: float,
    weighted: bool,
    start: int,
    stop: int,
    merged: Integers,
    weights: Floats,
) -> None:
    keep = weights.size > 0
    for parent in range(start, stop):
        first, last = child_starts[parent], child_starts[parent + 1]
        starts, owners, left, together = runs_by_size(children[first:last])
        precisions = left / spread
        parts, scratch = np.empty(last - first, dtype=np.int64), np.empty((2, last - first), dtype=np.int64)
        turn = 0
        for size, child_size, groups in pairs(upper[parent], together):
            here = slice(starts[child_size], starts[child_size + 1])
            turn = share(left[here], owners[here], together[child_size], groups, turn, parts, scratch)
            together[child_size] -= groups
            precision = upper_weights[parent, size] / upper[parent, size] if weighted else 0.0
            for place in range(starts[child_size + 1] - starts[child_size]):
                if parts[place] == 0:
                    continue
                run = starts[child_size] + place
                child, both = first + owners[run], precision + precisions[run]
                if weighted:
                    new_size = size + np.int64(np.floor((child_size - size) * (precisions[run] / both) + HALF_UP))
                else:
                    new_size = (size + child_size + 1) // 2
                merged[child, new_size] += parts[place]
                if keep:
                    weights[child, new_size] += parts[place] * both
