"""Make levels consistent by matching groups: Algorithm 1 of Kuo, Chiu, Kifer, Hay and Machanavajjhala (Section 5).

Every region's histogram is estimated separately, so a group has one estimated size per level, and these disagree. From
the top down, the parent's groups are matched with its children's at the least total difference in size (`pairs`), the
two estimates of a group's size are merged into one, and the child continues with the merged size. The leaves' merged
histograms are the result; the histograms above are their sums.

Two things differ from the paper. Groups are never listed: runs of equal sizes are matched, so the time depends on the
number of regions and sizes and not on the number of groups. And the variances are given, not approximated.

A run's groups are equally precise in the independent estimates. After merging they may differ: groups with the same
merged size may come from runs of different precision. They are pooled into one run with their mean precision (1 /
variance). The paper's Section 5.1 does the same at the start, where all groups of one size get one variance. It is the
mean of precisions, not of variances, because merging adds precisions and weights by them: a pooled run has exactly as
much weight on the next level as its parts together. So a region has at most as many runs as sizes, nothing is sorted,
and the order among equal sizes does not matter. On the paper's taxi data (three levels, 360,872 groups) letting every
group keep its own precision changed the earth mover's distance by 0.2 % or less on each level.

*Which of a parent's groups is which of its children's.* Algorithm 2 of the paper (Section 5.2): the parent's smallest
group is matched with the smallest of all children's groups, the next with the next, and so on. Groups of one size in
one region cannot be distinguished, so a run (a size, and how many groups have it) stands for all of them, and
everything here is counted in runs: `pairs` matches the parent's runs with those of all children together, `share`
divides a pair among the children. The kernels number sizes from zero, as columns.

This minimises Σ |parent's size − child's size| over all groups: matching in order of size crosses no two pairs, and
uncrossing s ≤ s', t ≤ t' never costs anything, |s − t| + |s' − t'| ≤ |s − t'| + |s' − t|. The choice among equal
groups, and among children that have them, does not change the cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import check_adding_up, check_sums, integer_table

CELLS_PER_BLOCK = 1 << 18
# Added before rounding down, so that halves go up even if rounding errors put them slightly below.
HALF_UP = 0.5 + 1e-9
# Beyond this, sums and quotients of precisions could leave the range of floats.
SPREAD_RANGE = (1e-100, 1e100)


def match_groups(
    counts: NDArray[Any], hierarchy: Hierarchy, *, spreads: Sequence[float], weighted: bool = True
) -> Integers:
    """Return consistent counts (regions, sizes) from independent estimates of every region's histogram.

    `counts` are non-negative integers in hierarchy order whose row totals add up. Whether their first column is size 0
    or 1 makes no difference: the average of shifted sizes is shifted as much. `spreads` has one positive number per
    level: a group in a run of n groups of equal estimated size has the variance spread / n (Section 5.1: the noise
    variance where sorted sizes were measured, twice that where cumulative counts were).

    A group matched at size s above (precision p) and t below (precision q) gets the size (p·s + q·t) / (p + q) and the
    precision p + q (Equations 5 and 6), or (s + t) / 2 if not `weighted`; rounded to an integer, halves up.

    The result has these properties: counts are non-negative integers; children add up to their parent for every size;
    every region keeps its total; estimates that are consistent already are returned unchanged; the same input gives the
    same result.

    >>> tree = Hierarchy.from_levels({"county": ["a", "b"]}, ["county"])
    >>> match_groups(np.array([[0, 2, 0, 2], [1, 0, 0, 1], [0, 1, 0, 1]]), tree, spreads=[1, 1])
    array([[0, 2, 0, 2],
           [0, 1, 0, 1],
           [0, 1, 0, 1]])
    """
    counts = integer_table(counts, len(hierarchy), name="counts")
    scales = _checked_spreads(spreads, hierarchy)
    _check(counts, hierarchy)
    merged, weights = np.zeros_like(counts), np.empty((0, 0))
    merged[0] = counts[0]
    if weighted:  # a cell's weight is the sum of its groups' precisions: its mean precision times its groups
        weights = merged[:1] * (merged[:1] / scales[0])
    for level in range(1, hierarchy.depth):
        above, below = hierarchy.level_slice(level - 1), hierarchy.level_slice(level)
        child_starts = hierarchy.child_starts[above.start : above.stop + 1] - above.stop
        families = _Families(merged[above], weights, counts[below], child_starts)
        weights = np.zeros(families.children.shape if weighted and level < hierarchy.depth - 1 else (0, 0))
        merge = partial(_merge, families, scales[level], weighted, merged[below], weights)
        cells_per_parent = max(1, families.children.size // len(families.upper))
        in_threads(merge, blocks(len(families.upper), max(1, CELLS_PER_BLOCK // cells_per_parent)))
    hierarchy.add_up(merged)
    return merged


def _check(counts: Integers, hierarchy: Hierarchy) -> None:
    """Refuse counts that cannot be matched, and say why."""
    if counts.min(initial=0) < 0:
        raise SpecError("counts holds negative values; expected how many groups have each size")
    check_sums(counts.max(initial=0, keepdims=True), counts.size)
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


class _Families(NamedTuple):
    """The merged rows of a level, the estimates of the one below, and where the children of each region begin."""

    upper: Integers
    upper_weights: Floats
    children: Integers
    child_starts: Integers


@kernel
def _merge(
    families: _Families, spread: float, weighted: bool, merged: Integers, weights: Floats, start: int, stop: int
) -> None:
    """Fill the rows of the children in `merged`, zeros so far, and their weights, if the next level needs them."""
    upper, upper_weights, children, child_starts = families
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


# -------------------------------------------------------------------- runs


GROUP_LIMIT = 1 << 50  # `share` is exact up to here


@kernel
def pairs(parent: Integers, together: Integers) -> Integers:
    """Return rows (parent's size, children's size, groups): the smallest with the smallest, until no group remains.

    `parent` and `together` are counts by size with equal sums. Each row uses up a run of one side or of both, so there
    are fewer rows than runs.
    """
    sizes = len(parent)
    rows = np.empty((np.count_nonzero(parent) + np.count_nonzero(together), 3), dtype=np.int64)
    found, above, below, size, child_size = 0, np.int64(0), np.int64(0), -1, -1
    while True:
        while above == 0 and size + 1 < sizes:
            size += 1
            above = parent[size]
        while below == 0 and child_size + 1 < sizes:
            child_size += 1
            below = together[child_size]
        groups = min(above, below)
        if groups == 0:
            return rows[:found]
        rows[found, 0], rows[found, 1], rows[found, 2] = size, child_size, groups
        found += 1
        above -= groups
        below -= groups


@kernel
def runs_by_size(children: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the runs of `children` (children, sizes), ordered by size and, within a size, by child.

    The result is where each size's runs start (and the last one's end), each run's child, each run's groups, and the
    groups of all children together by size.
    """
    count, sizes = children.shape
    starts, together = np.zeros(sizes + 1, dtype=np.int64), np.zeros(sizes, dtype=np.int64)
    runs = np.zeros(count, dtype=np.int64)  # of each child
    for child in range(count):
        row, found = children[child], 0
        for size in range(sizes):
            together[size] += row[size]
            starts[size + 1] += row[size] != 0
            found += row[size] != 0
        runs[child] = found
    for size in range(sizes):
        starts[size + 1] += starts[size]
    owners, groups = np.empty(starts[sizes], dtype=np.int64), np.empty(starts[sizes], dtype=np.int64)
    places = starts[:sizes].copy()
    for child in range(count):
        size = 0
        while runs[child] > 0:
            if children[child, size] != 0:
                owners[places[size]], groups[places[size]] = child, children[child, size]
                places[size] += 1
                runs[child] -= 1
            size += 1
    return starts, owners, groups, together


@kernel
def share(
    left: Integers, owners: Integers, together: int, groups: int, turn: int, parts: Integers, scratch: Integers
) -> int:
    """Divide `groups` of the `together` groups of one size among runs that still hold `left`, in proportion to it.

    Write `parts`, subtract them from `left`, and return whose turn is next. Parts are the proportions rounded down, and
    one more for the largest remainders until they add up to `groups` (the paper's footnote 10). Among equal remainders
    the child whose turn it is comes first, then the children after it, cyclically. The next turn belongs to the child
    after the last one that got a group. So if the same children tie every time, no child is ever more than one group
    ahead.

    No part exceeds its run: if groups < together, the proportion of a run lies below its `left`, also rounded up, and
    only a remainder above zero is rounded up (remainders are below one, so more of them are positive than groups
    remain).

    Exact: up to GROUP_LIMIT the float proportion, rounded twice, is off by a relative 2⁻⁵² or hardly more, so by less
    than one in all, and `whole` is at most one off. The true remainder for it then lies within −together … 2·together,
    and 64-bit products that wrap around give it exactly.
    """
    count = len(left)
    if groups == together:
        parts[:count] = left
        left[:] = 0
        return turn
    ratio = groups / together
    missing = groups
    rests, ranked = scratch[0], scratch[1]
    for run in range(count):
        whole = np.int64(left[run] * ratio)
        rest = left[run] * groups - whole * together
        if rest < 0:
            whole, rest = whole - 1, rest + together
        elif rest >= together:
            whole, rest = whole + 1, rest - together
        parts[run], rests[run], ranked[run] = whole, rest, rest
        missing -= int(whole)
    if missing > 0:
        least = _largest(ranked, count, missing)
        first = count
        for run in range(count):
            if rests[run] > least:
                parts[run] += 1
                missing -= 1
            if owners[run] >= turn and first == count:
                first = run
        for step in range(count):
            if missing == 0:
                break
            run = first + step if first + step < count else first + step - count
            if rests[run] == least:
                parts[run] += 1
                missing -= 1
                turn = int(owners[run]) + 1
    for run in range(count):
        left[run] -= parts[run]
    return turn


@kernel
def _largest(values: Integers, count: int, rank: int) -> int:
    """Return the `rank`-th largest (1 is the largest) of the first `count` values; this reorders them (Hoare's
    selection).
    """
    place, low, high = rank - 1, 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        up, down = low, high
        while up <= down:
            while values[up] > pivot:
                up += 1
            while values[down] < pivot:
                down -= 1
            if up <= down:
                values[up], values[down] = values[down], values[up]
                up += 1
                down -= 1
        if place <= down:
            high = down
        elif place >= up:
            low = up
        else:
            break
    value: int = values[place]
    return value
