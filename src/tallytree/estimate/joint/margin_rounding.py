"""Whole counts with given margins: a parent's row is shared out among its children, whose totals are fixed too.

Each child takes the whole numbers nearest to its target that have its total. The columns then miss the parent's row by
a few units; a unit that is too much in one size and wanted in another moves within the child where that costs least.
Last, pairs of siblings exchange a unit of one size for a unit of another, which keeps rows and columns alike, as long
as that pays.
"""

from __future__ import annotations

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.estimate.layout import from_the_top_down
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import kernel

PAYS = 1e-6
PARTNERS = 64  # at most so many siblings are tried with each child
PASSES = 64  # and about so many passes are made per child, in at most SWEEPS rounds
SWEEPS = 8


def round_margins(noisy: Integers, prices: Floats, hierarchy: Hierarchy, totals: Integers) -> Integers:
    """Non-negative whole numbers with these totals, children adding up, near the targets noisy + prices."""
    values = np.empty(noisy.shape, dtype=np.int64)
    _nearest_with_total(noisy, prices, totals, values, 0)

    def share(parent: int, first: int, last: int) -> None:
        _share_row(values, noisy, prices, totals, parent, first, last)

    from_the_top_down(hierarchy, share)
    return values


@kernel
def simplex_threshold(target: Floats, total: int, guess: float) -> float:
    """The θ for which the numbers max(0, target − θ), the nearest non-negative ones to `target`, have this sum.

    Their sum is convex and falls with θ, so Newton's method comes from below after one step from any guess at which it
    is not yet zero; NaN stands for no guess.
    """
    if total == 0:
        return np.inf
    everything = (target.sum() - total) / len(target)
    threshold = guess if guess == guess else everything
    guessed = True
    while True:
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


@kernel
def whole_simplex(target: Floats, total: int) -> Integers:
    """The nearest non-negative whole numbers with this sum.

    Round the real solution z; if the sum is too large by e, at least 2e cells were rounded up, by at most ½ each, and
    the e of them that were rounded up most are taken back (too small: likewise). These are the cheapest units: the
    optimum of a separable convex cost over a fixed sum is reached when no unit moved from one cell to another pays.
    """
    threshold = simplex_threshold(target, total, np.nan)
    whole = np.floor(np.maximum(target - threshold, 0.0) + 0.5).astype(np.int64)
    surplus = whole.sum() - total
    if surplus == 0:
        return whole
    order = np.argsort(whole - (target - threshold), kind="mergesort")
    while surplus != 0:  # one round, unless floats misled the rounding
        for place in range(len(order)):
            cell = order[len(order) - 1 - place] if surplus > 0 else order[place]
            if surplus > 0 and whole[cell] > 0:
                whole[cell] -= 1
                surplus -= 1
            elif surplus < 0:
                whole[cell] += 1
                surplus += 1
            if surplus == 0:
                break
    return whole


@kernel
def _nearest_with_total(noisy: Integers, prices: Floats, totals: Integers, values: Integers, region: int) -> None:
    values[region] = whole_simplex(noisy[region] + prices[region], totals[region])


@kernel
def _share_row(
    values: Integers, noisy: Integers, prices: Floats, totals: Integers, parent: int, first: int, last: int
) -> None:
    """Share a parent's row out among the children `first … last - 1`."""
    sizes, children = values.shape[1], last - first
    if children == 1:
        values[first] = values[parent]
        return
    # Twice the distance to the target: a unit more costs 1 − pull, a unit less 1 + pull.
    pull = np.empty((children, sizes))
    surplus = -values[parent]
    for child in range(children):
        _nearest_with_total(noisy, prices, totals, values, first + child)
        for size in range(sizes):
            target = noisy[first + child, size] + prices[first + child, size]
            pull[child, size] = 2.0 * (target - values[first + child, size])
            surplus[size] += values[first + child, size]
    _mend_columns(values[first:last], pull, surplus)
    _exchange_units(values[first:last], pull)


@kernel
def _mend_columns(rows: Integers, pull: Floats, surplus: Integers) -> None:
    """Move units within rows from sizes that have too many to sizes that have too few, each by its cheapest move."""
    children, sizes = rows.shape
    wanted = np.full(children, -1, dtype=np.int64)  # where a row's next unit would go
    for size in range(sizes):
        while surplus[size] > 0:
            best, least = -1, np.inf
            for child in range(children):
                if rows[child, size] == 0:
                    continue
                if wanted[child] < 0 or surplus[wanted[child]] >= 0:
                    wanted[child] = _most_wanted(pull[child], surplus)
                cost = pull[child, size] - pull[child, wanted[child]]
                if cost < least:
                    best, least = child, cost
            other = wanted[best]
            rows[best, size] -= 1
            rows[best, other] += 1
            pull[best, size] += 2.0
            pull[best, other] -= 2.0
            surplus[size] -= 1
            surplus[other] += 1
            wanted[best] = -1


@kernel
def _most_wanted(pull: Floats, surplus: Integers) -> int:
    best = -1
    for size in range(len(pull)):
        if surplus[size] < 0 and (best < 0 or pull[size] > pull[best]):
            best = size
    return best


@kernel
def _exchange_units(rows: Integers, pull: Floats) -> None:
    """While it pays, for a bounded number of passes: one row gives a unit of one size for a unit of another size."""
    children = len(rows)
    partners = min(children // 2, PARTNERS)
    for _ in range(min(SWEEPS, max(1, PASSES // max(1, partners)))):
        paid = False
        for offset in range(1, partners + 1):
            for one in range(children):
                other = (one + offset) % children
                while _exchange(rows[one], rows[other], pull[one], pull[other]):
                    paid = True
        if not paid:
            break


@kernel
def _exchange(one: Integers, other: Integers, pull_one: Floats, pull_other: Floats) -> bool:
    """`one` takes a unit of size `taken` from `other` and gives one of size `given` for it, if the best choice pays."""
    taken, given = -1, -1
    best_taken, best_given = -np.inf, -np.inf
    for size in range(len(one)):
        gain = pull_one[size] - pull_other[size] - 2.0
        if gain > best_taken and other[size] > 0:
            taken, best_taken = size, gain
        if -4.0 - gain > best_given and one[size] > 0:
            given, best_given = size, -4.0 - gain
    if taken < 0 or given < 0 or best_taken + best_given <= PAYS:
        return False
    one[taken] += 1
    other[taken] -= 1
    one[given] -= 1
    other[given] += 1
    pull_one[taken] -= 2.0
    pull_other[taken] += 2.0
    pull_one[given] += 2.0
    pull_other[given] -= 2.0
    return True
