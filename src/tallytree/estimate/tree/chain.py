"""Model 3 of the PGSR paper (the post-processing of M_c^ch, Section 9.2) as weighted isotonic regression.

Every level's cells stand in one row, size by size and region by region within a size, and each counts the groups in
its own cell or a later one. A region's count then is that of its first leaf, so all levels collapse onto the leaves'
row, where a place has the weights of all nodes that are tied to it; there the counts must not rise. The paper solves
this with a cost table per node and counts from the front; here adjacent violators are pooled, which takes one pass and
no tables, and counts run from the back, because those from the front all shift when a group appears or vanishes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import SUM_LIMIT, Weights, fixed_total, integer_table, level_weights
from tallytree.estimate.layout import tiles


def nearest_chain(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """The counts `[regions, sizes]` whose chains are nearest to `noisy`: least Σ weight · (chain − noisy)².

    `noisy` is `[regions, sizes]` too: the noisy chain of each level, back in the order of the hierarchy. `total` fixes
    the first place of the chain, where all groups are counted. `weights` has one positive number per level (the inverse
    of its noise variance, say); they are scaled to whole numbers, as finely as 64-bit sums allow, and for those the
    optimum is exact.

    Pooling, rounding ⌊z + ½⌋ and clipping give the integer optimum for the reason that `non_increasing` has: with
    weights, the prefix for the threshold j has the least Σ w(j − ½ − y), and all else is the same.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> nearest_chain(np.array([[6, 2], [7, 3], [3, 1]]), tree, total=6)
    array([[3, 3],
           [3, 2],
           [0, 1]])
    """
    noisy = integer_table(noisy, len(hierarchy))
    total = fixed_total(total, noisy.shape[1])
    scaled = _scaled_weights(noisy, hierarchy, weights)
    leaves, sizes = hierarchy.leaf_count, noisy.shape[1]
    home = np.arange(len(hierarchy)) - hierarchy.level_starts[-2]  # each region's first leaf
    for level in range(hierarchy.depth - 2, -1, -1):
        home[hierarchy.level_slice(level)] = home[hierarchy.child_starts[hierarchy.level_slice(level)]]
    weight = np.array(scaled, dtype=np.int64)[hierarchy.level_of]
    tied = np.zeros(leaves, dtype=np.int64)
    np.add.at(tied, home, weight)
    sums = np.zeros((sizes, leaves), dtype=np.int64)
    in_threads(lambda start, stop: _collapse(noisy, home, weight, sums, start, stop), tiles(sizes))
    chain = np.empty(sizes * leaves + 1, dtype=np.int64)
    chain[-1] = 0
    start = 0
    if total is not None:
        chain[0], start = total, 1
    most = np.iinfo(np.int64).max if total is None else total
    _pool(sums.ravel(), tied, most, start, chain[:-1])
    counts = np.empty((leaves, sizes), dtype=np.int64)
    in_threads(lambda start, stop: _differences(chain, counts, start, stop), tiles(sizes))
    return hierarchy.aggregate(counts)


def _scaled_weights(noisy: Integers, hierarchy: Hierarchy, weights: Weights) -> list[int]:
    """Whole numbers in the ratio of the levels' weights, as large as sums of 64 bits allow."""
    given = [float(weight) for weight in level_weights(weights, hierarchy.depth)]
    levels = [noisy[hierarchy.level_slice(level)] for level in range(hierarchy.depth)]
    loads = [max(float(values.max(initial=1)), -float(values.min(initial=0))) * values.size for values in levels]
    relative = [weight / max(given) for weight in given]
    scale = 1.0
    if len(set(given)) > 1:
        load = sum(share * load for share, load in zip(relative, loads, strict=True))
        scale = min(SUM_LIMIT / (4 * load + 1), float(1 << 40))
    whole = [max(1, round(share * scale)) for share in relative]
    if sum(weight * load for weight, load in zip(whole, loads, strict=True)) >= SUM_LIMIT:
        raise SpecError("weighted sums of values this large would overflow 64-bit integers; use smaller values")
    return whole


@kernel
def _collapse(noisy: Integers, home: Integers, weight: Integers, sums: Integers, start: int, stop: int) -> None:
    """Add each region's weighted counts of the sizes `start … stop - 1` to the place of its first leaf."""
    for region in range(noisy.shape[0]):
        leaf = home[region]
        for size in range(start, stop):
            sums[size, leaf] += weight[region] * noisy[region, size]


@kernel
def _differences(chain: Integers, counts: Integers, start: int, stop: int) -> None:
    """What each place of the chain holds more than the next: the counts of the sizes `start … stop - 1`."""
    leaves = counts.shape[0]
    for leaf in range(leaves):
        for size in range(start, stop):
            place = size * leaves + leaf
            counts[leaf, size] = chain[place] - chain[place + 1]


@kernel
def _pool(sums: Integers, tied: Integers, most: int, start: int, chain: Integers) -> None:
    """Fill `chain[start:]` with the nearest non-increasing integers from 0 to `most`; place p is of leaf p % leaves."""
    places, leaves = len(chain), len(tied)
    totals, weights = np.empty(places, dtype=np.int64), np.empty(places, dtype=np.int64)
    ends = np.empty(places, dtype=np.int64)
    pools, leaf = 0, start
    for place in range(start, places):
        if leaf == leaves:
            leaf = 0
        total, weight = sums[place], tied[leaf]
        leaf += 1
        while pools > 0 and _rises(totals[pools - 1], weights[pools - 1], total, weight):
            pools -= 1
            total += totals[pools]
            weight += weights[pools]
        totals[pools], weights[pools], ends[pools] = total, weight, place + 1
        pools += 1
    place = start
    for pool in range(pools):
        whole = totals[pool] // weights[pool]
        rest = totals[pool] - whole * weights[pool]
        value = whole + (rest >= weights[pool] - rest)
        chain[place : ends[pool]] = min(max(value, 0), most)
        place = ends[pool]


@kernel
def _rises(total: int, weight: int, next_total: int, next_weight: int) -> bool:
    """Is total / weight < next_total / next_weight? Floats decide what is clear, whole numbers the rest."""
    if weight == next_weight:
        return total < next_total
    here, there = float(total) * float(next_weight), float(next_total) * float(weight)
    if abs(there - here) > 1e-12 * (abs(here) + abs(there)):
        return here < there
    whole, next_whole = total // weight, next_total // next_weight
    if whole != next_whole:
        return whole < next_whole
    return _is_less(total - whole * weight, weight, next_total - next_whole * next_weight, next_weight)


@kernel
def _is_less(top: int, bottom: int, other_top: int, other_bottom: int) -> bool:
    """Is top / bottom < other_top / other_bottom? Both lie in [0, 1); by continued fractions, so nothing overflows."""
    while True:
        if top == 0 or other_top == 0:
            return top == 0 and other_top > 0
        # a/b < c/d exactly when d/c < b/a; compare whole parts, then go on with the fractions.
        whole, other_whole = bottom // top, other_bottom // other_top
        if whole != other_whole:
            return other_whole < whole
        top, bottom, other_top, other_bottom = (
            other_bottom - other_whole * other_top,
            other_top,
            bottom - whole * top,
            top,
        )
