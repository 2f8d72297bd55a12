"""Unions of regions that are no region: the fewest nodes of the tree that make one up, and intervals of its counts.

*Cover.* A set of leaves is written with signed nodes of the tree: a node adds all its leaves or takes them away, and a
leaf is inside if the signs of the nodes above and at it add up to 1, and outside if to 0. 49 of 50 states are the
nation minus one. With f(v, s) the fewest nodes below v that make its leaves right if the signs down to v add up to s,

    f(leaf, s) = 0 if the leaf is inside and s = 1 or outside and s = 0, else ∞
    f(v, s)    = Σ over children c of min(f(c, s), 1 + f(c, 1 − s))

and min(f(root, 0), 1 + f(root, 1)) is the least of all. Sums other than 0 and 1 gain nothing: let every sum on the way
down be cut off at 0 and 1; then signs stand at no other nodes than before, each of them again −1, 0 or +1, and the
leaves' sums, 0 or 1, are what they were.

*Guaranteed intervals.* Where least squares is linear, its estimate of a union does not depend on the cover: estimates
of children add up to those of their parents. Its variance is exact (`linear`), so it is one interval and not a sum of
many. Where there are only bounds of `at_least` counts (`at_least_bounds`), the counts of n nodes lie within their 4 n
bounds unless one of these fails, so each has the n-th part of the error probability, and the sum lies between

    Σ₊ low − Σ₋ high   and   Σ₊ high − Σ₋ low.

n is rounded up to a power of two, so that many unions share the same bounds; that only makes bounds wider. A union that
is a region has that region's own intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.at_least_bounds import at_least_bounds, cell_ends
from tallytree.estimate.intervals.linear import linear_estimate
from tallytree.estimate.intervals.measured_view import MeasuredView, no_linear
from tallytree.estimate.intervals.typical import Typical
from tallytree.estimate.intervals.value import Intervals, cover, most_groups
from tallytree.estimate.tree.least_squares import tree_least_squares
from tallytree.privacy.measurements import Measurements

Ends = Floats | Integers
Signed = tuple[tuple[int, ...], tuple[int, ...]]  # nodes that are added, nodes that are taken away
UNREACHABLE = 1 << 40  # more nodes than any tree has
NO_BOUND = 2.0**62  # what `most_groups` says where there is none


# -------------------------------------------------------------------- covers


def leaf_range(region: int, hierarchy: Hierarchy) -> range:
    """The leaves of a region, by their indices among all regions: they stand one after another."""
    start, stop = region, region + 1
    for _ in range(int(hierarchy.level_of[region]), hierarchy.depth - 1):
        start, stop = int(hierarchy.child_starts[start]), int(hierarchy.child_starts[stop])
    return range(start, stop)


def leaves_of(regions: Sequence[int], hierarchy: Hierarchy) -> Integers:
    """The leaves of several regions, as often as they are named."""
    return np.concatenate([np.asarray(leaf_range(region, hierarchy), dtype=np.int64) for region in regions])


def largest_regions(leaves: Integers, hierarchy: Hierarchy) -> tuple[int, ...]:
    """The fewest regions, none within another, that hold exactly these leaves (of which each is given once).

    >>> tree = Hierarchy.from_levels({"state": ["GA", "GA", "NY"], "county": ["1", "2", "3"]}, ["state", "county"])
    >>> [tree.ids[region] for region in largest_regions(np.array([3, 4]), tree)]
    ['GA']
    """
    nodes, found = np.sort(leaves), []
    while len(nodes) and hierarchy.parents[nodes[0]] >= 0:  # one level after the other, from the leaves up
        above = hierarchy.parents[nodes]
        parents, known = np.unique(above, return_counts=True)
        whole = parents[known == hierarchy.child_starts[parents + 1] - hierarchy.child_starts[parents]]
        found.append(nodes[~np.isin(above, whole)])
        nodes = whole
    return tuple(np.sort(np.concatenate([nodes, *found])).tolist())


def fewest_nodes(regions: Sequence[int], hierarchy: Hierarchy) -> Signed:
    """The signed nodes that make up a union of regions, as few as there can be; where it is a tie, none is taken away.

    Looked at are nodes with a leaf inside, and what stands right below them: elsewhere f is 0 for a sum of 0, and the
    node itself has to be taken away for a sum of 1.

    >>> tree = Hierarchy.from_levels({"state": ["GA"] * 4, "county": ["1", "2", "3", "4"]}, ["state", "county"])
    >>> fewest_nodes([1, 2, 3], tree), fewest_nodes([1, 2], tree)
    (((0,), (4,)), ((1, 2), ()))
    """
    nodes = np.unique(leaves_of(regions, hierarchy))
    union = largest_regions(nodes, hierarchy)
    below = np.stack([np.full(len(nodes), UNREACHABLE), np.zeros(len(nodes), np.int64)])  # f(v, 0) and f(v, 1)
    levels = [(nodes, below)]
    while hierarchy.parents[nodes[0]] >= 0:
        best = np.minimum(below, 1 + below[::-1])
        nodes, place, known = np.unique(hierarchy.parents[nodes], return_inverse=True, return_counts=True)
        below = np.stack([np.bincount(place, side, len(nodes)).astype(np.int64) for side in best])
        below[1] += hierarchy.child_starts[nodes + 1] - hierarchy.child_starts[nodes] - known  # all others
        levels.append((nodes, below))
    state, signs = {-1: 0}, {}
    for nodes, below in reversed(levels):
        for node, ends in zip(nodes.tolist(), below.T.tolist(), strict=True):
            before = state[int(hierarchy.parents[node])]
            state[node] = 1 - before if 1 + ends[1 - before] < ends[before] else before
            if state[node] != before:
                signs[node] = state[node] - before
    for nodes, _ in levels[1:]:
        for node in nodes.tolist():
            if state[node]:
                children = range(int(hierarchy.child_starts[node]), int(hierarchy.child_starts[node + 1]))
                signs |= {child: -1 for child in children if child not in state}
    plus, minus = (tuple(sorted(node for node in signs if signs[node] == sign)) for sign in (1, -1))
    return (union, ()) if len(union) <= len(signs) else (plus, minus)


# -------------------------------------------------------------------- sums and intervals


def sums_over(unions: Sequence[Sequence[int]], counts: Integers) -> Integers:
    """The counts `[unions, sizes]` of unions of regions, none of them empty and no region within another."""
    if not unions:
        return np.zeros((0, counts.shape[1]), dtype=np.int64)
    starts = np.cumsum([0, *(len(union) for union in unions[:-1])])
    sums: Integers = np.add.reduceat(counts[np.concatenate([np.asarray(union) for union in unions])], starts, axis=0)
    return sums


def chance_each(nodes: int, runs: int, level: float) -> float:
    """The chance with which each bound may fail so that a sum of runs of sizes over some nodes fails with 1 − level."""
    return (1 - level) / (4 * (1 << (nodes * runs - 1).bit_length()))


def guaranteed_unions(
    measurements: Measurements,
    counts: Integers,
    unions: Sequence[Sequence[int]],
    cells: Intervals,
) -> Intervals:
    """Intervals `[unions, sizes]` for unions of regions (none within another), given those of the table, `cells`.

    They hold with the probability of `cells`, each by itself or, if those do, for all sizes of a union together.
    """
    released = sums_over(unions, counts)
    if not len(unions):
        return Intervals(released, released, cells.level, "guaranteed", cells.simultaneous)
    error = (1 - cells.level) / (counts.shape[1] if cells.simultaneous else 1)
    ends_of = _by_linear if no_linear(measurements) is None else _by_bounds
    proper = [union if len(union) > 1 else () for union in unions]
    ends = ends_of(measurements, proper, error, counts.shape[1])
    lower, upper = within_possible(measurements, unions, released, *ends)
    _put_regions(lower, upper, unions, cells)
    return Intervals(lower, upper, cells.level, "guaranteed", cells.simultaneous)


def typical_unions(
    measurements: Measurements, unions: Sequence[Sequence[int]], found: Typical, deviations: Floats
) -> Intervals:
    """Typical intervals `[unions, sizes]`, from how far the unions' counts deviate in the replicates `found`."""
    released = sums_over(unions, found.counts)
    half: Floats = np.maximum(1.0, np.ceil(found.factor * deviations - 1e-9))
    lower, upper = within_possible(measurements, unions, released, released - half, released + half)
    _put_regions(lower, upper, unions, found.intervals)
    return Intervals(lower, upper, found.level, "typical")


def _put_regions(lower: Integers, upper: Integers, unions: Sequence[Sequence[int]], cells: Intervals) -> None:
    """A union of one region has that region's intervals."""
    for row, union in enumerate(unions):
        if len(union) == 1:
            lower[row], upper[row] = cells.lower[union[0]], cells.upper[union[0]]


def within_possible(
    measurements: Measurements, unions: Sequence[Sequence[int]], released: Integers, lower: Ends, upper: Ends
) -> tuple[Integers, Integers]:
    """Ends from 0 to the public total, as whole numbers, with the released count between them."""
    return cover(lower, upper, released, _most(measurements, unions))


def _most(measurements: Measurements, unions: Sequence[Sequence[int]]) -> Integers:
    """No count of a union exceeds this, `[unions, 1]`."""
    most = [min(NO_BOUND, most_groups(measurements)[list(union)].astype(float).sum()) for union in unions]
    return np.array(most).astype(np.int64).reshape(-1, 1)


def _by_linear(
    measurements: Measurements, unions: Sequence[Sequence[int]], error: float, sizes: int
) -> tuple[Floats, Floats]:
    """Least squares ± a half-width, which depends on how many columns a cell is the difference of: one or two."""
    view = MeasuredView.of(measurements)
    fitted = tree_least_squares(view.values, measurements.hierarchy, view.law.region_weights)
    known = range(measurements.first_size, measurements.max_size + 1)
    columns = [1 if view.view == "counts" or size in (0, known[-1]) else 2 for size in known]
    estimates, halves = np.zeros((len(unions), sizes)), np.zeros((len(unions), sizes))
    for row, union in enumerate(unions):
        if union:
            estimates[row] = _counts_of(fitted[list(union)].sum(axis=0), view, union)
            half = {
                copies: linear_estimate(view, union, [known[columns.index(copies)]]).reach(error)
                for copies in set(columns)
            }
            halves[row] = [half[copies] for copies in columns]
    estimates = np.clip(estimates, 0, _most(measurements, unions))
    lower, upper = estimates - halves, estimates + halves
    slack = 1e-9 * (1 + np.abs(lower) + np.abs(upper))
    return np.ceil(lower - slack), np.floor(upper + slack)


def _counts_of(fitted: Floats, view: MeasuredView, union: Sequence[int]) -> Floats:
    """Counts by size from the estimates of a union's columns."""
    if view.view == "counts":
        return fitted
    totals = view.measurements.region_totals
    first = [] if totals is None else [float(totals[list(union)].sum())]
    at_least = np.array([*first, *fitted, 0.0])
    counts: Floats = at_least[:-1] - at_least[1:]
    return counts


def _by_bounds(
    measurements: Measurements, unions: Sequence[Sequence[int]], error: float, sizes: int
) -> tuple[Floats, Floats]:
    """Sums of the bounds of the fewest nodes; unions with about as many nodes share them."""
    lower, upper = np.zeros((len(unions), sizes)), np.zeros((len(unions), sizes))
    covers = [fewest_nodes(union, measurements.hierarchy) if union else ((), ()) for union in unions]
    chances = [chance_each(len(plus) + len(minus), 1, 1 - error) if plus else math.nan for plus, minus in covers]
    for chance in {chance for chance in chances if not math.isnan(chance)}:
        low, high = (end.astype(np.float64) for end in cell_ends(at_least_bounds(measurements, chance), measurements))
        for row, (plus, minus) in enumerate(covers):
            if chances[row] == chance:
                added, taken = list(plus), list(minus)
                lower[row] = low[added].sum(axis=0) - high[taken].sum(axis=0)
                upper[row] = high[added].sum(axis=0) - low[taken].sum(axis=0)
    return lower, upper
