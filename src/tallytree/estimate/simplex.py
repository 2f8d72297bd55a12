"""Find the non-negative numbers with a known total that are nearest to given ones.

`nearest_with_total` is the naive method of CoC (Section 4.1), a baseline: noise stays in many of the empty cells, and
errors add up along the sizes. The paper finds it worse by orders of magnitude than the sorted list or the cumulative
counts. The method is exact, on integers. The two kernels below take one row of real targets and serve the joint
estimators.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel
from tallytree.estimate.checks import check_sums, integer_table, row_totals
from tallytree.estimate.layout import row_blocks


def nearest_with_total(noisy: NDArray[Any], totals: NDArray[Any]) -> Integers:
    """Return for each row y of `noisy` [rows, cells] the integers x ≥ 0 with the row's total and the least Σ (x − y)².

    The real optimum is max(0, y − t), where the k largest values stay positive and t = (their sum − total)/k, found by
    sorting; t is stored as two integers. Then x is rounded down, and the missing units go to the cells with the largest
    fractional parts, the first cell among equal ones. Because y is an integer, all positive cells have the fractional
    part of −t, so only ties matter: if m units are missing, the first m positive cells get one each. If sizes rise
    along the row, this favours small sizes, by less than one group per cell.

    The result is also the integer optimum. Let c = ⌈t⌉. A positive cell has x − y = −c or, if t is no integer, −c + 1;
    another has x = 0 and y ≤ t, hence x − y ≥ −c, so x − y ≥ −c for all cells and x − y ≤ −c + 1 for all with x ≥ 1.
    Moving a unit from a cell i to a cell l costs 2((x − y) of l − (x − y) of i + 1) ≥ 0. If no single move helps, no
    set of moves helps, because the costs are convex in each cell: every unit of a cell costs more than the one before.

    >>> nearest_with_total(np.array([[5, -3, 1, 4], [2, 2, 2, 0]]), np.array([8, 4]))
    array([[5, 0, 0, 3],
           [2, 1, 1, 0]])
    """
    counts = integer_table(noisy)
    sums = row_totals(totals, len(counts))
    most = int(sums.max(initial=0))
    if not counts.shape[1] and most > 0:
        raise SpecError("noisy has no cells, but a total is above 0; expected at least one column")
    check_sums(counts, counts.shape[1], most)
    nearest = np.empty(counts.shape, dtype=np.int64)
    in_threads(lambda start, stop: _project_rows(counts, sums, nearest, start, stop), row_blocks(counts))
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


@kernel
def simplex_threshold(target: Floats, total: int, guess: float) -> float:
    """Return the θ for which the numbers max(0, target − θ), the nearest non-negative ones to `target`, have this sum.

    Their sum is convex and falls with θ, so Newton's method comes from below after one step from any guess at which it
    is not yet zero; NaN stands for no guess.
    """
    if total == 0:
        return np.inf
    everything = (target.sum() - total) / len(target)
    threshold = guess if guess == guess else everything
    guessed = True
    for _ in range(len(target) + 4):  # after a guess that is too high and one that is too low, each turn drops a cell
        above, count = 0.0, 0
        for size in range(len(target)):
            if target[size] > threshold:
                above += target[size]
                count += 1
        moved = (above - total) / count if count > 0 else everything
        if moved <= threshold and not guessed:
            return threshold
        guessed = count == 0 and moved < threshold
        threshold = moved
    return threshold


@kernel
def integer_simplex(target: Floats, total: int) -> Integers:
    """Return the nearest non-negative integers with this sum.

    Round the real solution z. If the sum is too large by e, at least 2e cells were rounded up, by at most ½ each; the e
    cells that were rounded up most are lowered by one (likewise if the sum is too small). These are the cheapest units:
    a separable convex cost over a fixed sum is optimal when moving a unit from one cell to another never pays.
    """
    threshold = simplex_threshold(target, total, np.nan)
    whole = np.floor(np.maximum(target - threshold, 0.0) + 0.5).astype(np.int64)
    surplus = whole.sum() - total
    if surplus == 0:
        return whole
    order = np.argsort(whole - (target - threshold), kind="mergesort")
    while surplus != 0:  # one round of single units, unless rounding errors require more
        each = max(1, abs(surplus) // len(order))
        for place in range(len(order)):
            cell = order[len(order) - 1 - place] if surplus > 0 else order[place]
            moved = min(each, surplus, whole[cell]) if surplus > 0 else max(-each, surplus)
            whole[cell] -= moved
            surplus -= moved
            if surplus == 0:
                break
    return whole
