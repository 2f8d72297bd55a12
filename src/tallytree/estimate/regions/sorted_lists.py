"""Sorted lists of group sizes (the view H_g), all regions in one flat array: CoC, Section 4.2.

Noise puts such a list out of order; the nearest ascending list puts it right. There is one entry per group, a hundred
million and more, so everything happens in the list itself, with little memory beside it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel
from tallytree.estimate.checks import SUM_LIMIT, check_sums
from tallytree.estimate.regions.isotonic import check_power

SizeList: TypeAlias = NDArray[np.int32] | NDArray[np.int64]

CELLS_PER_BLOCK = 1 << 18
SCAN_BLOCK = 64  # cells that are summed at once before a closer look
LARGEST_SIZE = 1 << 40


def non_decreasing_in_place(values: SizeList, starts: Integers, *, lower: int, upper: int, power: int = 2) -> None:
    """Replace each region's noisy list by the nearest non-decreasing integers within lower … upper.

    Region r has values[starts[r] : starts[r + 1]]. Power 2 is the least-squares list rounded to ⌊z + ½⌋, the integer
    optimum; power 1 has the least absolute deviations and of several optima the midpoint of the least and the greatest,
    rounded down and clipped. With lower = 0 both are what `isotonic.non_increasing` gives for the reversed list; its
    docstring has the proofs.

    How: `_fit_ascending` halves the range of values again and again, which needs no heap and no pools and is as fast as
    pooling on long lists. So power 2 takes no memory beside the list, whatever it holds: the greatest integer optimum
    is ⌊z + ½⌋, because {z ≥ j − ½} is the longest best suffix for each threshold j. Power 1 keeps the least optimum of
    a region while it finds the greatest: at most the list once again.

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
    """How many entries of each region's list have each size, as `[regions, sizes]` from first_size to max_size.

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
    """The regions in order of falling length, and blocks of that order: long lists alone, short ones together."""
    lengths = np.diff(starts)
    order = np.argsort(-lengths, kind="stable")
    lengths = lengths[order]
    block = (np.cumsum(lengths) - lengths) // CELLS_PER_BLOCK
    edges = [0, *(np.flatnonzero(np.diff(block)) + 1).tolist(), len(order)]
    return order, list(pairwise(edges))


@kernel
def _fit_lists(values: SizeList, starts: Integers, regions: Integers, lower: int, upper: int, power: int) -> None:
    # The first of these regions is the longest, so all blocks together have no more scratch than the list is long.
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
    """The least or the greatest non-decreasing integers within lower … upper that are nearest to `values`.

    Divide and conquer over thresholds. For the threshold j the places with x ≥ j are a suffix, the one with the least
    Σ (|j − y|^power − |j − 1 − y|^power): the shortest such suffix for the least optimum, the longest for the greatest.
    The summands grow with j. So if the suffix B for j′ > j held more than the suffix A for j, B ∖ A would have a sum
    below zero (at most zero, when the longest are taken) for j′, hence for j, and A would not be best (not longest).
    Thus suffixes are nested: thresholds above j concern only the places in A, and those below j only the others.
    Each part has half the range of the one it was cut from, so n values take O(n log range) steps and the stack has at
    most 64 parts. What is decided is written at once and not read again: `nearest` may be `values` itself.

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
    """Where the suffix begins that is best raised from threshold − 1 to threshold.

    Blocks that cannot hold a better beginning, even if all their falls came first, are passed by: their sums are quick.
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
    """What raising the whole block from threshold − 1 to threshold changes, and the part of it that is a fall."""
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
