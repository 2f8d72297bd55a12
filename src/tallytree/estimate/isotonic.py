"""Find the monotone integers nearest to noisy ones: rows, sorted lists, and the chain of all levels.

*Rows* (`non_increasing`): the first step of M_c^dp (PGSR, Algorithm 2) and of H_c (CoC, 4.3). Survival counts (how many
groups have at least this size) cannot rise with the size, but their noisy measurements can. Nearest means least squares
or least absolute deviations; CoC finds the latter more accurate for cumulative counts.

*The chain of all levels* (`nearest_chain`): Model 3 of the PGSR paper (the post-processing of M_c^ch, Section 9.2) as
weighted isotonic regression. Every level's cells stand in one row, size by size and region by region within a size, and
each counts the groups in its own cell or a later one. A region's count then equals that of its first leaf, so all
levels collapse onto the leaves' row. There a place has the weights of all nodes that are tied to it, and the counts
must not rise. The paper solves this with a cost table per node and counts from the front. Here adjacent violators are
pooled, which takes one pass and no tables. Counts run from the back, because counts from the front all shift when a
group appears or vanishes.

*Sorted lists of group sizes* (the view H_g, CoC, Section 4.2), all regions in one flat array. Noise puts such a list
out of order; the nearest ascending list restores the order. A list has one entry per group, a hundred million and more,
so the fit works in place, with little extra memory.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import (
    SUM_LIMIT,
    Weights,
    check_sums,
    fixed_total,
    integer_table,
    level_weights,
    row_totals,
)
from tallytree.estimate.layout import row_blocks, tiles


def non_increasing(noisy: NDArray[Any], upper: NDArray[Any] | None = None, *, power: int = 2) -> Integers:
    """Return for each row of `noisy` the nearest non-increasing integers from 0 to `upper`: least Σ |x − y|^power.

    Power 2. Pool adjacent violators: neighbours that rise are replaced by their mean until nothing rises; then each
    mean z is rounded to ⌊z + ½⌋ and clipped to 0 … upper. Sums and counts of the pools are integers, so no precision is
    lost.

    Why that is the integer optimum. Up to a constant, (x − y)² is the sum over the thresholds j ≤ x of 2(j − ½ − y). So
    the problem is, for every j, to choose the set {x ≥ j} with the least Σ (j − ½ − y): a prefix of the row, because x
    does not increase. The real optimum z solves that for every real threshold: {z ≥ j − ½} is the longest best prefix.
    These prefixes shrink as j grows, so together they are a solution: x = the largest j with z ≥ j − ½, which is ⌊z +
    ½⌋. Bounds only fix the sets of the thresholds j ≤ 0 (all) and j > upper (none), and do not change the others: clip.

    Power 1. The same with |x − y|, the sum over j ≤ x of +1 where y < j and −1 elsewhere: again a best prefix for every
    threshold, and clipping for the bounds. Now ties occur: the shortest best prefixes make up the least optimum, the
    longest the greatest, and both are found exactly. The result is their midpoint, rounded down and clipped to 0 …
    upper, which favours neither side of the noise. It is an optimum too: halving a sum and rounding it up, or down,
    keeps the order along the row, and by convexity |x − y| at the two rounded midpoints adds up to no more than at the
    two ends; so both are optimal. Clipping comes last, so that a tail of zeros is not raised by the bound's asymmetry.

    >>> non_increasing(np.array([[9, 3, 6, -1]]), upper=np.array([8]))
    array([[8, 5, 5, 0]])
    >>> non_increasing(np.array([[9, 3, 6, -1]]), upper=np.array([8]), power=1)
    array([[8, 4, 4, 0]])
    """
    counts = integer_table(noisy)
    check_power(power)
    check_sums(counts, counts.shape[1])
    most = row_totals(
        np.full(len(counts), np.iinfo(np.int64).max) if upper is None else upper, len(counts), name="upper"
    )
    nearest = np.empty(counts.shape, dtype=np.int64)
    fit_rows = _pool_rows if power == 2 else _median_rows
    in_threads(lambda start, stop: fit_rows(counts, most, nearest, start, stop), row_blocks(counts))
    return nearest


def check_power(power: int) -> None:
    """Refuse a power other than 1 or 2 with a SpecError."""
    if power not in (1, 2):
        raise SpecError(f"power is {power!r}; expected 1 (least absolute deviations) or 2 (least squares)")


@kernel
def _pool_rows(noisy: Integers, upper: Integers, nearest: Integers, start: int, stop: int) -> None:
    sizes = noisy.shape[1]
    sums, counts = np.empty(sizes, dtype=np.int64), np.empty(sizes, dtype=np.int64)
    wholes, rests = np.empty(sizes, dtype=np.int64), np.empty(sizes, dtype=np.int64)  # sum = whole · count + rest
    for row in range(start, stop):
        pools = 0
        for size in range(sizes):
            total, count, whole, rest = noisy[row, size], 1, noisy[row, size], 0
            # Means are compared by whole part, then by fraction: products of at most sizes², never an overflow.
            while pools > 0 and (
                wholes[pools - 1] < whole
                or (wholes[pools - 1] == whole and rests[pools - 1] * count < rest * counts[pools - 1])
            ):
                pools -= 1
                total += sums[pools]
                count += counts[pools]
                whole = total // count
                rest = total - whole * count
            sums[pools], counts[pools], wholes[pools], rests[pools] = total, count, whole, rest
            pools += 1
        size = 0
        for pool in range(pools):
            value = wholes[pool] + (2 * rests[pool] >= counts[pool])
            value = min(max(value, 0), upper[row])
            nearest[row, size : size + counts[pool]] = value
            size += counts[pool]


@kernel
def _median_rows(noisy: Integers, upper: Integers, nearest: Integers, start: int, stop: int) -> None:
    """Write midpoints of the least and the greatest row with the least absolute deviations, in O(n log n) steps per
    row.

    From the last size to the first, x may only rise. Let f(x) be the least cost of the sizes so far whose latest value
    is at most x: convex, falling, then flat. A heap holds the values at which its slope grows by one, the largest on
    top; the least minimiser is the top. Adding |x − y| for the next size and cutting off the rising part leaves two
    cases. If y is at least the top, y is the only minimiser and joins the heap. Else y joins twice, the old top leaves,
    and the minimisers reach from the new top to the old one. So the least minimiser is always the new top, and the
    greatest is the larger of the new and the old. On the way back, each x is the least (greatest) minimiser or, if that
    is smaller, its neighbour's x: by induction the least (greatest) optimum.
    """
    sizes = noisy.shape[1]
    heap = np.empty(sizes, dtype=np.int64)
    for row in range(start, stop):
        for length in range(sizes):  # the heap's length
            size = sizes - 1 - length
            value = noisy[row, size]
            if length > 0 and value < heap[0]:
                _replace_top(heap, length, value)
            _push(heap, length, value)
            nearest[row, size] = heap[0]
        least = greatest = np.iinfo(np.int64).max
        for size in range(sizes):
            top = nearest[row, size]
            least = min(least, top)
            greatest = min(greatest, max(top, nearest[row, size + 1]) if size + 1 < sizes else top)
            nearest[row, size] = min(max((least + greatest) // 2, 0), upper[row])


@kernel
def _replace_top(heap: Integers, length: int, value: int) -> None:
    place, child = 0, 1
    while child < length:
        if child + 1 < length and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= value:
            break
        heap[place] = heap[child]
        place, child = child, 2 * child + 1
    heap[place] = value


@kernel
def _push(heap: Integers, length: int, value: int) -> None:
    place = length
    while place > 0 and heap[(place - 1) // 2] < value:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = value


# -------------------------------------------------------------------- chain


def nearest_chain(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Return the counts `[regions, sizes]` whose chains are nearest to `noisy`: least Σ weight · (chain − noisy)².

    `noisy` is `[regions, sizes]` too: the noisy chain of each level, back in the order of the hierarchy. `total` fixes
    the first place of the chain, where all groups are counted. `weights` has one positive number per level (the inverse
    of its noise variance, say); they are scaled to integers, as finely as 64-bit sums allow, and for these the optimum
    is exact.

    Pooling, rounding ⌊z + ½⌋ and clipping give the integer optimum for the reason given in `non_increasing`: with
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
    """Return integers in the ratio of the levels' weights, as large as sums of 64 bits allow."""
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
    """Write by how much each place of the chain exceeds the next: the counts of the sizes `start … stop - 1`."""
    leaves = counts.shape[0]
    for leaf in range(leaves):
        for size in range(start, stop):
            place = size * leaves + leaf
            counts[leaf, size] = chain[place] - chain[place + 1]


@kernel
def _pool(sums: Integers, tied: Integers, most: int, start: int, chain: Integers) -> None:
    """Fill `chain[start:]` with the nearest non-increasing integers from 0 to `most`; place p belongs to leaf p %
    leaves.
    """
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
    """Return whether total / weight < next_total / next_weight; floats decide clear cases, integers the others."""
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
    """Return whether top / bottom < other_top / other_bottom, both in [0, 1), by continued fractions."""
    while True:
        if top == 0 or other_top == 0:
            return top == 0 and other_top > 0
        # a/b < c/d exactly when d/c < b/a; compare integer parts, then continue with the fractions.
        whole, other_whole = bottom // top, other_bottom // other_top
        if whole != other_whole:
            return other_whole < whole
        top, bottom, other_top, other_bottom = (
            other_bottom - other_whole * other_top,
            other_top,
            bottom - whole * top,
            top,
        )


# -------------------------------------------------------------------- sorted lists


SizeList: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

CELLS_PER_BLOCK = 1 << 18
SCAN_BLOCK = 64  # cells whose sum is checked before the single cells
LARGEST_SIZE = 1 << 40


def non_decreasing_in_place(values: SizeList, starts: Integers, *, lower: int, upper: int, power: int = 2) -> None:
    """Replace each region's noisy list by the nearest non-decreasing integers within lower … upper.

    Region r has values[starts[r] : starts[r + 1]]. Power 2 is the least-squares list rounded to ⌊z + ½⌋, the integer
    optimum; power 1 has the least absolute deviations and, among several optima, the midpoint of the least and the
    greatest, rounded down and clipped. With lower = 0 both equal the result of `non_increasing` for the reversed list;
    its docstring has the proofs.

    `_fit_ascending` halves the range of values repeatedly, which needs no heap and no pools and is as fast as pooling
    on long lists. So power 2 needs no extra memory for any list: the greatest integer optimum is ⌊z + ½⌋, because {z ≥
    j − ½} is the longest best suffix for each threshold j. Power 1 stores the least optimum of a region while it finds
    the greatest: at most one more list.

    >>> sizes = np.array([1, 5, 2, 9, 4, 1, -2], dtype=np.int32)
    >>> non_decreasing_in_place(sizes, np.array([0, 5, 7]), lower=0, upper=7)
    >>> sizes
    array([1, 4, 4, 7, 7, 0, 0], dtype=int32)
    """
    _check_lists(values, starts, changed=True)
    check_power(power)
    limits = np.iinfo(values.dtype)
    if not limits.min <= lower <= upper <= limits.max:
        raise SpecError(f"the bounds are {lower} … {upper}; expected lower ≤ upper, both {values.dtype} integers")
    check_sums(values, int(np.diff(starts).max(initial=0)))
    order, pieces = _longest_first(starts)
    in_threads(lambda first, last: _fit_lists(values, starts, order[first:last], lower, upper, power), pieces)


def counts_of(values: SizeList, starts: Integers, *, first_size: int, max_size: int) -> Integers:
    """Return how many entries of each region's list have each size, `[regions, sizes]` from first_size to max_size.

    >>> counts_of(np.array([1, 1, 3, 2]), np.array([0, 3, 4]), first_size=1, max_size=3)
    array([[2, 0, 1],
           [0, 1, 0]])
    """
    _check_lists(values, starts, changed=False)
    if not 0 <= first_size <= max_size <= LARGEST_SIZE:
        raise SpecError(f"sizes from {first_size} to {max_size}; expected 0 ≤ first ≤ last ≤ 2^40")
    counts = np.zeros((len(starts) - 1, max_size - first_size + 1), dtype=np.int64)
    order, pieces = _longest_first(starts)
    within = in_threads(lambda first, last: _count_lists(values, starts, order[first:last], first_size, counts), pieces)
    if not all(within):
        raise SpecError(f"the lists hold sizes outside {first_size} … {max_size}; clip them first")
    return counts


def _check_lists(values: Any, starts: Any, *, changed: bool) -> None:
    if not isinstance(values, np.ndarray) or values.dtype not in (np.dtype(np.int32), np.dtype(np.int64)):
        raise SpecError("the lists must be a NumPy array of int32 or int64")
    if values.ndim != 1 or not values.flags.c_contiguous or (changed and not values.flags.writeable):
        raise SpecError(f"the lists must be one flat, contiguous array{' that can be written to' if changed else ''}")
    if not isinstance(starts, np.ndarray) or starts.ndim != 1 or starts.dtype != np.int64 or len(starts) == 0:
        raise SpecError("starts must be a flat int64 array, one entry per region and one more")
    if starts[0] != 0 or starts[-1] != len(values) or (starts[1:] < starts[:-1]).any():
        raise SpecError(f"starts must rise from 0 to the number of values, {len(values):,}")


def _longest_first(starts: Integers) -> tuple[Integers, list[tuple[int, int]]]:
    """Return the regions by falling length, and blocks of that order: long lists alone, short ones together."""
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    block = (np.cumsum(lengths) - lengths) // CELLS_PER_BLOCK
    edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(order)]
    return order, list(pairwise(edges))


@kernel
def _fit_lists(values: SizeList, starts: Integers, regions: Integers, lower: int, upper: int, power: int) -> None:
    # The first of these regions is the longest, so the scratch of all blocks together is at most as long as the list.
    longest = starts[regions[0] + 1] - starts[regions[0]] if power == 1 and len(regions) > 0 else 0
    scratch = np.empty(longest, dtype=values.dtype)
    for region in regions:
        noisy = values[starts[region] : starts[region + 1]]
        if power == 2:
            _fit_ascending(noisy, noisy, lower, upper, 2, True)
            continue
        least = scratch[: len(noisy)]
        _fit_ascending(noisy, least, -SUM_LIMIT, SUM_LIMIT, 1, False)
        _fit_ascending(noisy, noisy, -SUM_LIMIT, SUM_LIMIT, 1, True)
        for place in range(len(noisy)):
            middle: Any = (np.int64(least[place]) + np.int64(noisy[place])) // 2
            noisy[place] = min(max(middle, lower), upper)


@kernel
def _fit_ascending(values: SizeList, nearest: SizeList, lower: int, upper: int, power: int, greatest: bool) -> None:
    """Write the least or the greatest non-decreasing integers within lower … upper that are nearest to `values`.

    Divide and conquer over thresholds. For the threshold j the places with x ≥ j are a suffix, the one with the least Σ
    (|j − y|^power − |j − 1 − y|^power): the shortest such suffix for the least optimum, the longest for the greatest.
    The summands grow with j. So if the suffix B for j′ > j held more than the suffix A for j, B ∖ A would have a sum
    below zero (at most zero, when the longest are taken) for j′, hence for j, and A would not be best (not longest).
    Thus suffixes are nested: thresholds above j concern only the places in A, and those below j only the others. Each
    part has half the range of the part it was cut from, so n values take O(n log range) steps, and the stack has at
    most 64 parts. Decided values are written at once and not read again: `nearest` may be `values` itself.

    No sum overflows if n · max |y| < 2^61: within a part min y < j ≤ max y, so a summand is below 4 · max |y|.
    """
    parts = np.empty((80, 4), dtype=np.int64)
    parts[0, 0], parts[0, 1], parts[0, 2], parts[0, 3] = 0, len(values), lower, upper
    waiting = 1
    while waiting > 0:
        waiting -= 1
        start, stop, low, high = parts[waiting, 0], parts[waiting, 1], parts[waiting, 2], parts[waiting, 3]
        if start == stop:
            continue
        smallest, largest = _extremes(values[start:stop])
        # The optimum without bounds lies between these two; with bounds it is clipped.
        low, high = min(max(smallest, low), high), max(min(largest, high), low)
        if low == high:
            nearest[start:stop] = low
            continue
        threshold = low + (high - low + 1) // 2
        split = start + _best_suffix(values[start:stop], threshold, power, greatest)
        parts[waiting, 0], parts[waiting, 1], parts[waiting, 2], parts[waiting, 3] = start, split, low, threshold - 1
        waiting += 1
        parts[waiting, 0], parts[waiting, 1], parts[waiting, 2], parts[waiting, 3] = split, stop, threshold, high
        waiting += 1


@kernel
def _extremes(values: SizeList) -> Any:
    smallest = largest = values[0]
    for place in range(len(values)):
        smallest, largest = min(smallest, values[place]), max(largest, values[place])
    return smallest, largest


@kernel
def _best_suffix(values: SizeList, threshold: int, power: int, longest: bool) -> int:
    """Return where the suffix begins that is best raised from threshold − 1 to threshold.

    Blocks that cannot contain a better start, even if all their falls came first, are skipped: their sums are quick to
    compute.
    """
    tie = 1 if longest else 0
    total, enough, split, stop = 0, tie, len(values), len(values)
    while stop > 0:
        start = max(0, stop - SCAN_BLOCK)
        block = values[start:stop]
        change, fall = _steps(block, threshold, power)
        if total - fall >= enough:
            total += change
        else:
            for place in range(len(block) - 1, -1, -1):
                if power == 1:
                    total += 1 - 2 * (block[place] >= threshold)
                else:
                    total += 2 * (threshold - block[place]) - 1
                if total < enough:
                    enough, split = total + tie, start + place
        stop = start
    return split


@kernel
def _steps(block: SizeList, threshold: int, power: int) -> tuple[int, int]:
    """Return the change from raising the whole block from threshold − 1 to threshold, and the part that is a fall."""
    change, fall = 0, 0
    if power == 1:
        same_type = block.dtype.type(threshold)
        for place in range(len(block)):
            fall += block[place] >= same_type
        return len(block) - 2 * fall, fall
    for place in range(len(block)):
        step = 2 * (threshold - block[place]) - 1
        change += step
        fall -= min(step, 0)
    return change, fall


@kernel
def _count_lists(values: SizeList, starts: Integers, regions: Integers, first_size: int, counts: Integers) -> bool:
    sizes = counts.shape[1]
    for region in regions:
        for place in range(starts[region], starts[region + 1]):
            size = np.int64(values[place])
            if not first_size <= size < first_size + sizes:
                return False
            counts[region, size - first_size] += 1
    return True
