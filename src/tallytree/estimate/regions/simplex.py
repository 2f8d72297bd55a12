"""Non-negative integers with a known total that are nearest to noisy counts: the naive method of CoC, Section 4.1.

A baseline: noise stays in many of the empty cells, and errors add up along the sizes. The paper finds it worse by
orders of magnitude than the sorted list or the cumulative counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.kernels import blocks, in_threads, kernel

SUM_LIMIT = 1 << 61
CELLS_PER_BLOCK = 1 << 18


def nearest_with_total(noisy: NDArray[Any], totals: NDArray[Any]) -> Integers:
    """For each row y of `noisy` [rows, cells] the integers x ≥ 0 with the row's total and the least Σ (x − y)².

    The real optimum is max(0, y − t), where the k largest values stay positive and t = (their sum − total)/k, found by
    sorting; t is kept as two integers. Then x is rounded down and the missing units go to the cells with the largest
    fractional parts, the first of equal ones. As y is whole, all positive cells have the same fractional part, that of
    −t, so ties decide it alone: with m units missing the first m positive cells get one each. Where sizes rise along
    the row this favours the small ones, by less than one group per cell.

    It is the integer optimum, too. Let c = ⌈t⌉. A positive cell has x − y = −c or, if t is no integer, −c + 1; another
    has x = 0 and y ≤ t, hence x − y ≥ −c, so x − y ≥ −c for all cells and x − y ≤ −c + 1 for all with x ≥ 1. To move a
    unit from a cell i to a cell l costs 2((x − y) of l − (x − y) of i + 1) ≥ 0. If no such move helps, none of many do,
    for the costs are convex, cell by cell: every unit of a cell costs more than the one before.

    >>> nearest_with_total(np.array([[5, -3, 1, 4], [2, 2, 2, 0]]), np.array([8, 4]))
    array([[5, 0, 0, 3],
           [2, 1, 1, 0]])
    """
    noisy, totals = np.asarray(noisy), np.asarray(totals)
    if noisy.ndim != 2 or not np.issubdtype(noisy.dtype, np.integer):
        raise SpecError(f"noisy is {noisy.dtype} of shape {noisy.shape}; expected integers of shape (rows, cells)")
    rows, cells = noisy.shape
    if totals.shape != (rows,) or not np.issubdtype(totals.dtype, np.integer):
        raise SpecError(f"totals is {totals.dtype} of shape {totals.shape}; expected {rows} integers, one per row")
    if rows and totals.min() < 0:
        raise SpecError("totals holds negative values; counts cannot add up to less than 0")
    if rows and not cells and totals.max() > 0:
        raise SpecError("there are no cells to hold a total above 0")
    if noisy.size and cells * max(int(noisy.max()), -int(noisy.min())) + int(totals.max()) >= SUM_LIMIT:
        raise SpecError(f"sums of {cells:,} values and totals this large would overflow 64-bit integers; use smaller")
    counts, sums = np.ascontiguousarray(noisy, dtype=np.int64), totals.astype(np.int64)
    nearest = np.empty((rows, cells), dtype=np.int64)
    pieces = blocks(rows, max(1, CELLS_PER_BLOCK // max(1, cells)))
    in_threads(lambda start, stop: _project_rows(counts, sums, nearest, start, stop), pieces)
    return nearest


@kernel
def _project_rows(noisy: Integers, totals: Integers, nearest: Integers, start: int, stop: int) -> None:
    cells = noisy.shape[1]
    for row in range(start, stop):
        ascending = np.sort(noisy[row])
        excess, positive = -totals[row], 0  # t = excess / positive
        while positive < cells:
            value = ascending[cells - 1 - positive]
            if value * positive <= excess:  # not above the threshold, so no later one is
                break
            excess += value
            positive += 1
        if positive == 0:
            nearest[row, :] = 0
            continue
        floor = excess // positive
        rest = excess - floor * positive
        missing = positive - rest if rest > 0 else 0
        shift = floor + 1 if rest > 0 else floor
        for cell in range(cells):
            value = noisy[row, cell] - shift
            if noisy[row, cell] <= floor:
                value = 0
            elif missing > 0:
                value += 1
                missing -= 1
            nearest[row, cell] = value
