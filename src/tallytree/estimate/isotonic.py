"""The non-increasing integers nearest to noisy ones, row by row: the first step of M_c^dp (PGSR, Algorithm 2, line 2).

Survival counts (how many groups have at least this size) cannot rise with the size, their noisy measurements can.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import SpecError
from tallytree.hierarchy import Integers
from tallytree.kernels import blocks, in_threads, kernel

SUM_LIMIT = 1 << 61
CELLS_PER_BLOCK = 1 << 18


def non_increasing(noisy: NDArray[Any], upper: NDArray[Any] | None = None) -> Integers:
    """For each row of `noisy` the nearest (least squares) non-increasing integers from 0 to the row's `upper`.

    Pool adjacent violators: neighbours that rise are replaced by their mean until nothing rises; then each mean z is
    rounded to ⌊z + ½⌋ and clipped to 0 … upper. Sums and counts of the pools are kept as integers, so nothing is lost.

    Why that is the integer optimum. Up to a constant, (x − y)² is the sum over the thresholds j ≤ x of 2(j − ½ − y).
    So the problem is, for every j, to choose the set {x ≥ j} with the least Σ (j − ½ − y): a prefix of the row, because
    x does not increase. The real optimum z solves that for every real threshold: {z ≥ j − ½} is the longest best
    prefix. These prefixes shrink as j grows, so together they are a solution: x = the largest j with z ≥ j − ½, which
    is ⌊z + ½⌋. Bounds only fix the sets of the thresholds j ≤ 0 (all) and j > upper (none), and leave the others as
    they are: clip.

    >>> non_increasing(np.array([[9, 3, 6, -1]]), upper=np.array([8]))
    array([[8, 5, 5, 0]])
    """
    noisy = np.asarray(noisy)
    if noisy.ndim != 2 or not np.issubdtype(noisy.dtype, np.integer):
        raise SpecError(f"noisy is {noisy.dtype} of shape {noisy.shape}; expected integers of shape (regions, sizes)")
    rows, sizes = noisy.shape
    if noisy.size and sizes * max(int(noisy.max()), -int(noisy.min())) >= SUM_LIMIT:
        raise SpecError(f"sums of {sizes:,} values this large would overflow 64-bit integers; use smaller values")
    most = np.full(rows, np.iinfo(np.int64).max) if upper is None else _checked_upper(upper, rows)
    counts = np.ascontiguousarray(noisy, dtype=np.int64).view()
    counts.flags.writeable = False
    nearest = np.empty((rows, sizes), dtype=np.int64)
    pieces = blocks(rows, max(1, CELLS_PER_BLOCK // max(1, sizes)))
    in_threads(lambda start, stop: _pool_rows(counts, most, nearest, start, stop), pieces)
    return nearest


def _checked_upper(upper: Any, rows: int) -> Integers:
    upper = np.asarray(upper)
    if upper.shape != (rows,) or not np.issubdtype(upper.dtype, np.integer):
        raise SpecError(f"upper is {upper.dtype} of shape {upper.shape}; expected {rows} integers, one per row")
    if rows and upper.min() < 0:
        raise SpecError("upper holds negative values; no counts lie between 0 and less than 0")
    return np.ascontiguousarray(upper, dtype=np.int64)


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
