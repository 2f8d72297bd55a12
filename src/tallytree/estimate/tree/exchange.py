"""Exchanges of one unit that make whole numbers exactly optimal, one size at a time or between sizes.

For every region, `add` is the least cost of one more unit in its subtree and `remove` that of one less (`NEVER` where
it is empty): a unit takes one path down to a leaf, so

    add    = w(2(x − y) + 1) + the least `add` of the children,
    remove = w(1 − 2(x − y)) + the least `remove` of the children.

The proof that no more is needed is in `nearest`. Everything here is in 64-bit integers whose range `nearest` has
checked.
"""

from __future__ import annotations

import numpy as np

from tallytree.arrays import Integers
from tallytree.estimate.layout import Tree
from tallytree.kernels import kernel

# Dearer than anything, and still no overflow when a cost, which is less than it either way, is added.
NEVER = 1 << 62


@kernel
def balance(noisy: Integers, values: Integers, tree: Tree, size: int, add: Integers, remove: Integers) -> None:
    """Make one size optimal for its root's value, from the leaves up, and fill `add` and `remove`."""
    first_leaf = len(noisy) - tree.leaf_counts[0]
    weight = tree.weights[first_leaf]
    for leaf in range(first_leaf, len(noisy)):
        gap = 2 * (values[leaf] - noisy[leaf])
        add[leaf] = weight * (gap + 1)
        remove[leaf] = weight * (1 - gap) if values[leaf] > 0 else NEVER
    for region in range(first_leaf - 1, -1, -1):
        first, last = tree.child_starts[region], tree.child_starts[region + 1]
        while _refresh(region, noisy, values, tree, add, remove) < 0:
            gainers, losers = paying_pairs(add[first:last], remove[first:last], (region + size) % (last - first))
            for pair in range(len(gainers)):
                move(first + gainers[pair], 1, noisy, values, tree, size, add, remove)
                move(first + losers[pair], -1, noisy, values, tree, size, add, remove)


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


@kernel
def move(
    top: int, unit: int, noisy: Integers, values: Integers, tree: Tree, size: int, add: Integers, remove: Integers
) -> None:
    """Put one unit into a subtree (`unit` 1) or take one out (-1) by the cheapest path, and refresh that path."""
    costs = add if unit > 0 else remove
    region = top
    while tree.child_starts[region] < tree.child_starts[region + 1]:
        first, last = tree.child_starts[region], tree.child_starts[region + 1]
        cheapest = first + (region + size) % (last - first)
        for child in range(cheapest + 1, last):
            if costs[child] < costs[cheapest]:
                cheapest = child
        for child in range(first, last):
            if costs[child] < costs[cheapest]:
                cheapest = child
        region = cheapest
    while True:
        values[region] += unit
        _refresh(region, noisy, values, tree, add, remove)
        if region == top:
            return
        region = tree.parents[region]


@kernel
def _refresh(region: int, noisy: Integers, values: Integers, tree: Tree, add: Integers, remove: Integers) -> int:
    """Bring a region's costs up to date with its children's; returns the cost of the children's best exchange."""
    weight, gap = tree.weights[region], 2 * (values[region] - noisy[region])
    first, last = tree.child_starts[region], tree.child_starts[region + 1]
    least_add, least_remove = 0, 0
    if first < last:
        least_add, least_remove = _least(add, first, last), _least(remove, first, last)
    add[region] = weight * (gap + 1) + least_add
    remove[region] = weight * (1 - gap) + least_remove if values[region] > 0 else NEVER
    return least_add + least_remove


@kernel
def _least(costs: Integers, first: int, last: int) -> int:
    least: int = costs[first]
    for child in range(first + 1, last):
        least = min(least, costs[child])
    return least
