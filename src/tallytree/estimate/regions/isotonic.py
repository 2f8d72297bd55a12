"""The monotone integers nearest to noisy ones: the first step of M_c^dp (PGSR, Algorithm 2) and of H_c (CoC, 4.3).

Survival counts (how many groups have at least this size) cannot rise with the size, their noisy measurements can.
Nearest means least squares or least absolute deviations; CoC finds the latter more accurate for cumulative counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel
from tallytree.estimate.checks import check_sums, integer_table, row_totals
from tallytree.estimate.layout import row_blocks


def non_increasing(noisy: NDArray[Any], upper: NDArray[Any] | None = None, *, power: int = 2) -> Integers:
    """For each row of `noisy` the nearest non-increasing integers from 0 to the row's `upper`: least Σ |x − y|^power.

    Power 2. Pool adjacent violators: neighbours that rise are replaced by their mean until nothing rises; then each
    mean z is rounded to ⌊z + ½⌋ and clipped to 0 … upper. Sums and counts of the pools are kept as integers, so nothing
    is lost.

    Why that is the integer optimum. Up to a constant, (x − y)² is the sum over the thresholds j ≤ x of 2(j − ½ − y).
    So the problem is, for every j, to choose the set {x ≥ j} with the least Σ (j − ½ − y): a prefix of the row, because
    x does not increase. The real optimum z solves that for every real threshold: {z ≥ j − ½} is the longest best
    prefix. These prefixes shrink as j grows, so together they are a solution: x = the largest j with z ≥ j − ½, which
    is ⌊z + ½⌋. Bounds only fix the sets of the thresholds j ≤ 0 (all) and j > upper (none), and leave the others as
    they are: clip.

    Power 1. The same with |x − y|, the sum over j ≤ x of +1 where y < j and −1 elsewhere: again a best prefix for every
    threshold, and clipping for the bounds. There are ties now: the shortest best prefixes make up the least optimum,
    the longest the greatest, and both are found exactly. Returned is their midpoint, rounded down, clipped to
    0 … upper, which favours neither side of the noise. It is an optimum too: halving a sum and rounding it up, or down,
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
    """Refuse, with a SpecError, what is neither 1 nor 2."""
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
    """Midpoints of the least and the greatest row with the least absolute deviations, in O(n log n) steps per row.

    From the last size to the first, x may only rise. Let f(x) be the least cost of the sizes so far whose latest value
    is at most x: convex, falling, then flat. The values at which its slope grows by one are kept in a heap, the largest
    on top; the least minimiser is the top. Adding |x − y| for the next size and cutting off what rises, there are two
    cases. If y is at least the top, y is the only minimiser and joins the heap. Else y joins twice, the old top leaves,
    and the minimisers reach from the new top to the old one. So the least minimiser is always the new top, and the
    greatest is the larger of the new and the old. On the way back, each x is the least (greatest) minimiser or, if that
    is smaller, its neighbour's x: by induction the least (greatest) optimum.
    """
    sizes = noisy.shape[1]
    heap = np.empty(sizes, dtype=np.int64)
    for row in range(start, stop):
        for length in range(sizes):  # of the heap
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
