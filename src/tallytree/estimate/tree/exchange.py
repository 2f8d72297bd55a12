"""Exchanges of one unit that make whole numbers exactly optimal, several sizes at once or between sizes.

For every region, `add` is the least cost of one more unit in its subtree and `remove` that of one less (`NEVER` where
it is empty): a unit takes one path down to a leaf, so

    add    = w(2(x − y) + 1) + the least `add` of the children,
    remove = w(1 − 2(x − y)) + the least `remove` of the children.

They are kept for the regions above the leaves; a leaf's follow from its counts. The proof that no more is
needed is in `nearest`. Everything here is in 64-bit integers whose range `nearest` has checked.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.kernels import kernel, part_of_kernels
from tallytree.estimate.layout import Tree

# Dearer than anything, and still no overflow when a cost, which is less than it either way, is added.
NEVER = 1 << 62


class Work(NamedTuple):
    """Some sizes that are being solved, and what a unit more or less costs there."""

    noisy: Integers  # [regions, sizes], all of them
    values: Integers
    start: int  # the first size that is being solved
    stop: int  # and the one after the last
    add: Integers  # [regions above the leaves, or the root; these sizes]
    remove: Integers


@part_of_kernels
def balance(work: Work, tree: Tree) -> None:
    """Make each size optimal for its root's value, from the leaves up, and fill `add` and `remove`."""
    inner, width = len(work.noisy) - tree.leaf_counts[0], work.stop - work.start
    least_add, least_remove = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    if inner == 0:
        _leaf_costs(work, 0, 1, tree.weights[0], work.add[0], work.remove[0])
    for region in range(inner - 1, -1, -1):
        first, last = tree.child_starts[region], tree.child_starts[region + 1]
        if first >= inner:
            _leaf_costs(work, first, last, tree.weights[first], least_add, least_remove)
        else:
            _least_rows(work.add[first:last], least_add)
            _least_rows(work.remove[first:last], least_remove)
        weight = tree.weights[region]
        noisy, values = work.noisy[region, work.start : work.stop], work.values[region, work.start : work.stop]
        add, remove = work.add[region], work.remove[region]
        for place in range(width):
            gap = 2 * (values[place] - noisy[place])
            add[place] = weight * (gap + 1) + least_add[place]
            remove[place] = weight * (1 - gap) + least_remove[place] if values[place] > 0 else NEVER
        for place in range(width):
            if least_add[place] + least_remove[place] < 0:
                _exchange_children(region, work.start + place, work, tree)


@part_of_kernels
def _leaf_costs(work: Work, first: int, last: int, weight: int, least_add: Integers, least_remove: Integers) -> None:
    """The least `add` and `remove` among the leaves `first … last - 1`, for each size."""
    least_add[:] = NEVER
    least_remove[:] = -NEVER
    for leaf in range(first, last):
        noisy, values = work.noisy[leaf, work.start : work.stop], work.values[leaf, work.start : work.stop]
        for place in range(len(noisy)):
            gap = values[place] - noisy[place]
            least_add[place] = min(least_add[place], gap)
            least_remove[place] = max(least_remove[place], gap if values[place] > 0 else -NEVER)
    for place in range(len(least_add)):
        least_add[place] = weight * (2 * least_add[place] + 1)
        most = least_remove[place]
        least_remove[place] = NEVER if most == -NEVER else weight * (1 - 2 * most)


@part_of_kernels
def _least_rows(costs: Integers, least: Integers) -> None:
    least[:] = costs[0]
    for child in range(1, len(costs)):
        row = costs[child]
        for place in range(len(least)):
            least[place] = min(least[place], row[place])


@part_of_kernels
def _exchange_children(region: int, size: int, work: Work, tree: Tree) -> None:
    """Move units between a region's children as long as that pays."""
    first, last = tree.child_starts[region], tree.child_starts[region + 1]
    add, remove = np.empty(last - first, dtype=np.int64), np.empty(last - first, dtype=np.int64)
    while _refresh(region, size, work, tree) < 0:
        for child in range(first, last):
            add[child - first] = _cost(child, 1, size, work, tree)
            remove[child - first] = _cost(child, -1, size, work, tree)
        gainers, losers = paying_pairs(add, remove, (region + size) % (last - first))
        for pair in range(len(gainers)):
            move(first + gainers[pair], 1, size, work, tree)
            move(first + losers[pair], -1, size, work, tree)


@kernel
def paying_pairs(add: Integers, remove: Integers, start: int) -> tuple[Integers, Integers]:
    """Who gains and who loses a unit: cheapest with cheapest while a pair lowers the cost, ties from `start` on.

    None is in both lists: if it were the i-th to gain and the j-th to lose, i ≤ j say, its own `add` would be no
    dearer than that of the j-th gainer, so its `add` + `remove` would be negative; costs are convex, so it is not.
    """
    count = len(add)
    turn = (np.arange(count) + start) % count
    gainers = turn[np.argsort(add[turn], kind="mergesort")]
    losers = turn[np.argsort(remove[turn], kind="mergesort")]
    pairs = 0
    while pairs < count and add[gainers[pairs]] + remove[losers[pairs]] < 0:
        pairs += 1
    return gainers[:pairs], losers[:pairs]


@part_of_kernels
def move(top: int, unit: int, size: int, work: Work, tree: Tree) -> None:
    """Put one unit into a subtree (`unit` 1) or take one out (-1) by the cheapest path, and refresh that path."""
    region = top
    while tree.child_starts[region] < tree.child_starts[region + 1]:
        first, last = tree.child_starts[region], tree.child_starts[region + 1]
        turn = first + (region + size) % (last - first)
        cheapest, least = turn, _cost(turn, unit, size, work, tree)
        for step in range(1, last - first):
            child = turn + step if turn + step < last else turn + step - (last - first)
            cost = _cost(child, unit, size, work, tree)
            if cost < least:
                cheapest, least = child, cost
        region = cheapest
    while True:
        work.values[region, size] += unit
        _refresh(region, size, work, tree)
        if region == top:
            return
        region = tree.parents[region]


@part_of_kernels
def _cost(region: int, unit: int, size: int, work: Work, tree: Tree) -> int:
    """What a unit more (1) or less (-1) costs in a region's subtree."""
    if tree.child_starts[region] < tree.child_starts[region + 1]:
        kept: int = work.add[region, size - work.start] if unit > 0 else work.remove[region, size - work.start]
        return kept
    value = work.values[region, size]
    if unit < 0 and value == 0:
        return NEVER
    cost: int = tree.weights[region] * (2 * unit * (value - work.noisy[region, size]) + 1)
    return cost


@part_of_kernels
def _refresh(region: int, size: int, work: Work, tree: Tree) -> int:
    """Bring a region's costs up to date with its children's; returns the cost of the children's best exchange."""
    first, last = tree.child_starts[region], tree.child_starts[region + 1]
    place = size - work.start
    if first == last:
        if region == 0:
            work.add[0, place], work.remove[0, place] = _cost(0, 1, size, work, tree), _cost(0, -1, size, work, tree)
        return 0
    least_add, least_remove = _cost(first, 1, size, work, tree), _cost(first, -1, size, work, tree)
    for child in range(first + 1, last):
        least_add = min(least_add, _cost(child, 1, size, work, tree))
        least_remove = min(least_remove, _cost(child, -1, size, work, tree))
    weight, value = tree.weights[region], work.values[region, size]
    gap = 2 * (value - work.noisy[region, size])
    work.add[region, place] = weight * (gap + 1) + least_add
    work.remove[region, place] = weight * (1 - gap) + least_remove if value > 0 else NEVER
    return least_add + least_remove
