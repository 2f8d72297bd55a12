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

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.estimate.tree.runs import GROUP_LIMIT, pairs, runs_by_size, share
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import blocks, in_threads, kernel

SUM_LIMIT = 1 << 62
CELLS_PER_BLOCK = 1 << 18
# Within this of a half counts as a half, so that the noise of floats does not decide between up and down.
HALF = 0.5 + 1e-9
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
    counts = _checked_counts(counts, hierarchy)
    scales = _checked_spreads(spreads, hierarchy)
    merged, weights = counts[:1].copy(), np.empty((0, 0))
    if weighted:
        weights = merged * (merged / scales[0])
    for level in range(1, hierarchy.depth):
        keep = weighted and level < hierarchy.depth - 1
        merged, weights = _next_level(counts, hierarchy, level, merged, weights, scales[level], weighted, keep)
    return hierarchy.aggregate(merged)


def matching(parent_counts: NDArray[Any], children_counts: NDArray[Any], *, first_size: int = 0) -> Integers:
    """Rows (parent's size, child, child's size, groups): so many groups of the parent are those of that child.

    `parent_counts` (sizes) and `children_counts` (children, sizes) have the same total. Every group is matched once,
    and Σ groups · |parent's size − child's size| is the least there is. Where a run of the parent is too short for all
    children's groups of a size, the children share it in proportion to their groups of that size that are left.

    Why it is the least. Matching in order of size crosses no two pairs, and uncrossing s ≤ s', t ≤ t' never costs:
    |s − t| + |s' − t'| ≤ |s − t'| + |s' − t|. Which of the equal groups are meant, and in which child, costs nothing.

    >>> matching(np.array([0, 300, 0]), np.array([[0, 200, 0], [0, 0, 60], [0, 0, 40]]))
    array([[  1,   0,   1, 200],
           [  1,   1,   2,  60],
           [  1,   2,   2,  40]])
    """
    parent, children = _whole(parent_counts, "parent_counts"), _whole(children_counts, "children_counts")
    if parent.ndim != 1 or children.ndim != 2 or children.shape[1] != len(parent):
        raise SpecError(
            f"parent_counts and children_counts have the shapes {parent.shape} and {children.shape}; "
            "expected (sizes) and (children, sizes)"
        )
    total, below = int(parent.sum()), int(children.sum())
    if total != below:
        raise SpecError(f"the parent has {total:,} groups, its children {below:,}; expected equal totals")
    _refuse_too_many(total)
    rows = _flows(parent, children)
    rows[:, [0, 2]] += first_size
    return rows


# -------------------------------------------------------------------- checking what is given


def _checked_counts(counts: Any, hierarchy: Hierarchy) -> Integers:
    whole = _whole(counts, "counts")
    if whole.ndim != 2 or len(whole) != len(hierarchy):
        raise SpecError(f"counts have the shape {whole.shape}; expected ({len(hierarchy)}, sizes), a row per region")
    totals = whole.sum(axis=1)
    _refuse_too_many(int(totals[0]))
    inner = int(hierarchy.level_starts[-2])
    sums = np.zeros(len(totals), dtype=np.int64)
    np.add.at(sums, hierarchy.parents[1:], totals[1:])
    wrong = np.flatnonzero(sums[:inner] != totals[:inner])
    if wrong.size:
        region = int(wrong[0])
        raise SpecError(
            f"region {hierarchy.ids[region]!r} has {totals[region]:,} groups, its children have {sums[region]:,}; "
            "make the totals of all regions consistent before matching their groups"
        )
    return whole


def _whole(counts: Any, name: str) -> Integers:
    """The counts as read-only 64-bit integers, none negative, and such that no sum of them overflows."""
    counts = np.asarray(counts)
    if not np.issubdtype(counts.dtype, np.integer):
        raise SpecError(f"{name} holds {counts.dtype}; expected integers")
    whole = np.ascontiguousarray(counts, dtype=np.int64).view()
    most = int(whole.view(np.uint64).max(initial=0))  # as unsigned integers negative ones are the largest
    if most >> 63:
        raise SpecError(f"{name} holds negative values; expected how many groups have each size")
    if whole.size * most > SUM_LIMIT:
        raise SpecError(f"sums of {whole.size:,} values this large could overflow 64-bit integers; use smaller values")
    whole.flags.writeable = False
    return whole


def _refuse_too_many(total: int) -> None:
    if total > GROUP_LIMIT:
        raise SpecError(f"there are {total:,} groups; at most {GROUP_LIMIT:,} can be matched exactly")


def _checked_spreads(spreads: Sequence[float], hierarchy: Hierarchy) -> list[float]:
    scales = [float(spread) for spread in spreads]
    if len(scales) != hierarchy.depth:
        raise SpecError(f"there are {len(scales)} spreads but {hierarchy.depth} levels; expected one per level")
    low, high = SPREAD_RANGE
    if not all(low <= scale <= high for scale in scales):
        raise SpecError(f"spreads are {scales}; expected variances from {low:g} to {high:g}")
    return scales


# -------------------------------------------------------------------- one level, one parent


def _next_level(
    counts: Integers,
    hierarchy: Hierarchy,
    level: int,
    upper: Integers,
    upper_weights: Floats,
    spread: float,
    weighted: bool,
    keep: bool,
) -> tuple[Integers, Floats]:
    """The merged counts of a level from those of the level above; with `keep` their weights for the one below.

    A cell's weight is the sum of its groups' precisions: its mean precision times its groups.
    """
    children = counts[hierarchy.level_slice(level)]
    merged = np.zeros(children.shape, dtype=np.int64)
    weights = np.zeros(children.shape if keep else (0, 0))
    above = hierarchy.level_slice(level - 1)
    child_starts = hierarchy.child_starts[above.start : above.stop + 1] - above.stop

    def merge(start: int, stop: int) -> None:
        _merge(upper, upper_weights, children, child_starts, spread, weighted, start, stop, merged, weights)

    cells_per_parent = max(1, children.size // len(upper))
    in_threads(merge, blocks(len(upper), max(1, CELLS_PER_BLOCK // cells_per_parent)))
    return merged, weights


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
                    new_size = size + np.int64(np.floor((child_size - size) * (precisions[run] / both) + HALF))
                else:
                    new_size = (size + child_size + 1) // 2
                merged[child, new_size] += parts[place]
                if keep:
                    weights[child, new_size] += parts[place] * both


@kernel
def _flows(parent: Integers, children: Integers) -> Integers:
    starts, owners, left, together = runs_by_size(children)
    steps = pairs(parent, together)
    most = 0
    for step in range(len(steps)):
        most += starts[steps[step, 1] + 1] - starts[steps[step, 1]]
    rows = np.empty((most, 4), dtype=np.int64)
    parts, scratch = np.empty(len(children), dtype=np.int64), np.empty((2, len(children)), dtype=np.int64)
    found, turn = 0, 0
    for size, child_size, groups in steps:
        here = slice(starts[child_size], starts[child_size + 1])
        turn = share(left[here], owners[here], together[child_size], groups, turn, parts, scratch)
        together[child_size] -= groups
        for place in range(starts[child_size + 1] - starts[child_size]):
            if parts[place] > 0:
                rows[found, 0], rows[found, 1] = size, owners[starts[child_size] + place]
                rows[found, 2], rows[found, 3] = child_size, parts[place]
                found += 1
    return rows[:found]
