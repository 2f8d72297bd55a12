"""The problem of `nearest` in real numbers instead of whole ones: where each leaf becomes positive, and what follows.

Write w and y for a region's weight and noisy count. Give a unit in a region the price λ; its subtree then holds

- a leaf:   S(λ) = max(0, y + λ / 2w);
- a region: S(λ) = C(u) with C = the sum of its children's S and λ = u + 2w(C(u) − y),

because at the optimum the last unit in a region costs 2w(x − y) there and u below, the same for every child that is
not empty. By induction S is convex, piecewise linear and zero on the left, with one breakpoint per leaf: the price at
which that leaf becomes positive. `breakpoints` merges the children's sorted breakpoints and moves them to the region's
own scale; all levels together cost the sorting of a size's leaves, whatever the noise and whatever the depth.
`price_for` finds the price at which all sizes together hold the total.

Floats are good enough here: whatever they get wrong is put right, exactly, in `exchange`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats, Integers
from tallytree.estimate.layout import Tree, columns, tiles
from tallytree.kernels import in_threads, kernel

RUN_LENGTH = 16  # leaves that are sorted by counting before merging begins


class Breakpoints(NamedTuple):
    """The root's S of every size, and which leaf each of its breakpoints belongs to."""

    prices: Floats  # [sizes, leaves], ascending
    amounts: Floats  # S at those prices
    leaves: NDArray[np.int32]  # counted from 0 on the last level
    last_slopes: Floats  # S's slope after a size's last breakpoint


class Sorted(NamedTuple):
    """Breakpoints in runs that are sorted by price, each with its leaf."""

    prices: Floats
    leaves: NDArray[np.int32]


def breakpoints(noisy: Integers, tree: Tree) -> Breakpoints:
    """The breakpoints of every size (a column of `noisy`)."""
    sizes, leaves = noisy.shape[1], int(tree.leaf_counts[0])
    points = Breakpoints(
        np.empty((sizes, leaves)),
        np.empty((sizes, leaves)),
        np.empty((sizes, leaves), dtype=np.int32),
        np.empty(sizes),
    )
    in_threads(lambda start, stop: _find(noisy, tree, points, start, stop), tiles(sizes))
    return points


def price_for(points: Breakpoints, total: int | None) -> float:
    """The price at which the sizes hold `total` together; 0, where nothing need be paid, without one.

    Newton's method on a convex, increasing function: wherever it starts, the first step leads to the right of the
    answer, and from there it only moves left until it stands still.
    """
    price = 0.0
    if total is None:
        return price
    amount, slope = _held(points, price)
    if slope == 0:
        price = float(np.nextafter(points.prices[:, -1].max(), np.inf))
        amount, slope = _held(points, price)
    for step in range(1000):
        following = price - (amount - total) / slope
        if step > 0 and following >= price:
            break
        price = following
        amount, slope = _held(points, price)
        if amount <= total or slope == 0:
            break
    return price


def amounts_at(points: Breakpoints, price: float) -> Floats:
    """What each size holds at a price."""
    amounts = np.empty(len(points.prices))
    _evaluate(points, price, amounts, np.empty_like(amounts))
    return amounts


def _held(points: Breakpoints, price: float) -> tuple[float, float]:
    amounts, slopes = np.empty(len(points.prices)), np.empty(len(points.prices))
    _evaluate(points, price, amounts, slopes)
    return float(amounts.sum()), float(slopes.sum())


@kernel
def _evaluate(points: Breakpoints, price: float, amounts: Floats, slopes: Floats) -> None:
    last = points.prices.shape[1] - 1
    for size in range(points.prices.shape[0]):
        prices = points.prices[size]
        passed = np.searchsorted(prices, price) - 1
        if passed < 0:
            amounts[size] = slopes[size] = 0.0
            continue
        if passed == last:
            slope = points.last_slopes[size]
        else:
            rise = points.amounts[size, passed + 1] - points.amounts[size, passed]
            slope = rise / (prices[passed + 1] - prices[passed])
        slopes[size] = slope
        amounts[size] = points.amounts[size, passed] + slope * (price - prices[passed])


@kernel
def _find(noisy: Integers, tree: Tree, points: Breakpoints, start: int, stop: int) -> None:
    leaves = tree.leaf_counts[0]
    spare = Sorted(np.empty(leaves), np.empty(leaves, dtype=np.int32))
    bounds = np.empty(leaves + 1, dtype=np.int64)
    rises = np.empty(leaves)  # by how much each leaf's breakpoint makes S steeper, on the scale of the current level
    depth = len(tree.level_starts) - 1
    first_leaf = tree.level_starts[depth - 1]
    tile = columns(noisy, start, stop)
    for size in range(start, stop):
        column = tile[size - start]
        prices, amounts, order = points.prices[size], points.amounts[size], points.leaves[size]
        doubled = 2.0 * tree.weights[first_leaf]
        slope = 1.0 / doubled
        for leaf in range(leaves):
            spare.prices[leaf] = -doubled * column[first_leaf + leaf]
        rises[:] = slope
        amounts[:] = 0.0
        _sort_runs(spare.prices, prices, order, tree)
        for level in range(depth - 2, -1, -1):
            position = 0
            for region in range(tree.level_starts[level], tree.level_starts[level + 1]):
                runs = 0
                bounds[0] = position
                if level == depth - 2:
                    runs = (tree.leaf_counts[region] + RUN_LENGTH - 1) // RUN_LENGTH
                    for run in range(1, runs):
                        bounds[run] = position + run * RUN_LENGTH
                    position += tree.leaf_counts[region]
                    bounds[runs] = position
                else:
                    for child in range(tree.child_starts[region], tree.child_starts[region + 1]):
                        position += tree.leaf_counts[child]
                        runs += 1
                        bounds[runs] = position
                _merge_runs(Sorted(prices, order), spare, bounds, runs)
                mine = slice(bounds[0], position)
                doubled = 2.0 * tree.weights[region]
                slope = _lift(prices[mine], amounts[mine], order[mine], rises, doubled, doubled * column[region])
        points.last_slopes[size] = slope


@kernel
def _lift(
    prices: Floats, amounts: Floats, order: NDArray[np.int32], rises: Floats, doubled: float, offset: float
) -> float:
    """From C, whose breakpoints are sorted, to S: λ = u + 2wC(u) − 2wy; the slope σ becomes σ / (1 + 2wσ)."""
    slope, amount, lifted_slope, before, lifted = 0.0, 0.0, 0.0, prices[0], -np.inf
    for point in range(len(prices)):
        price, leaf = prices[point], order[point]
        amount += slope * (price - before)
        before = price
        slope += rises[leaf]
        steeper = slope / (1.0 + doubled * slope)
        rises[leaf] = steeper - lifted_slope
        lifted_slope = steeper
        lifted = max(lifted, price + (doubled * amount - offset))  # rounding must not undo the order
        prices[point] = lifted
        amounts[point] = amount
    return lifted_slope


@kernel
def _sort_runs(unsorted: Floats, prices: Floats, order: NDArray[np.int32], tree: Tree) -> None:
    """Sort each leaf-parent's leaves in runs of `RUN_LENGTH`, by counting how many of the run come before each."""
    bottom = max(len(tree.level_starts) - 3, 0)
    end = 0
    for region in range(tree.level_starts[bottom], tree.level_starts[bottom + 1]):
        begin, end = end, end + tree.leaf_counts[region]
        for low in range(begin, end, RUN_LENGTH):
            run = unsorted[low : min(low + RUN_LENGTH, end)]
            sorted_run, sorted_order = prices[low : low + len(run)], order[low : low + len(run)]
            for place in range(len(run)):
                price = run[place]
                rank = np.uint64(0)
                for other in range(place):
                    rank += np.uint64(run[other] <= price)
                for other in range(place + 1, len(run)):
                    rank += np.uint64(run[other] < price)
                sorted_run[rank], sorted_order[rank] = price, low + place


@kernel
def _merge_runs(found: Sorted, spare: Sorted, bounds: Integers, runs: int) -> None:
    """Merge adjacent sorted runs pair by pair until one is left; `bounds` (overwritten) tells where each begins."""
    begin, end = bounds[0], bounds[runs]
    here, there = found, spare
    swapped = False
    while runs > 1:
        pairs = (runs + 1) // 2
        for pair in range(pairs):
            low, middle, high = bounds[2 * pair], bounds[2 * pair + 1], bounds[min(2 * pair + 2, runs)]
            _merge(here, there, low, middle, high)
            bounds[pair] = low
        bounds[pairs] = end
        runs = pairs
        here, there = there, here
        swapped = not swapped
    if swapped:
        found.prices[begin:end] = spare.prices[begin:end]
        found.leaves[begin:end] = spare.leaves[begin:end]


@kernel
def _merge(source: Sorted, target: Sorted, low: int, middle: int, high: int) -> None:
    """Merge the sorted runs low … middle - 1 and middle … high - 1 from both ends at once.

    Two chains of steps that do not wait for each other, arithmetic in place of branches that no processor can predict,
    and unsigned indices, which Numba need not check for counting from the end: four times the obvious loop's speed.
    """
    here, here_order = source
    there, there_order = target
    both = min(middle - low, high - middle)
    one = np.uint64(1)
    left, right, put = np.uint64(low), np.uint64(middle), np.uint64(low)
    last_left, last_right, last_put = np.uint64(middle - 1), np.uint64(high - 1), np.uint64(high - 1)
    for _ in range(both):
        one_price, other_price = here[left], here[right]
        from_left = np.uint64(one_price <= other_price)
        from_right = one - from_left
        there[put] = min(one_price, other_price)
        there_order[put] = here_order[left] * np.int32(from_left) + here_order[right] * np.int32(from_right)
        left += from_left
        right += from_right
        put += one
        one_price, other_price = here[last_left], here[last_right]
        from_right = np.uint64(other_price >= one_price)
        from_left = one - from_right
        there[last_put] = max(one_price, other_price)
        there_order[last_put] = here_order[last_left] * np.int32(from_left) + here_order[last_right] * np.int32(
            from_right
        )
        last_left -= from_left
        last_right -= from_right
        last_put -= one
    left_stop, right_stop = np.int64(last_left) + 1, np.int64(last_right) + 1
    next_left, next_right = np.int64(left), np.int64(right)
    for place in range(low + both, high - both):
        if next_left < left_stop and (next_right >= right_stop or here[next_left] <= here[next_right]):
            there[place], there_order[place] = here[next_left], here_order[next_left]
            next_left += 1
        else:
            there[place], there_order[place] = here[next_right], here_order[next_right]
            next_right += 1
