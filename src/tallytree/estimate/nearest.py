"""Find the non-negative integers nearest to noisy counts that add up over the tree, and prove that they are nearest.

`nearest_consistent` solves Model 1 of the PGSR paper (Fioretto, Van Hentenryck, Zhu; the post-processing of M_H^dp)
exactly, as its Algorithm 1 does, but without cost tables, whose number of entries per region grows with the width of
the noise. Here the real relaxation is rounded (`relaxation`) and improved by exchanges of one unit.

For every region, `add` is the least cost of one more unit in its subtree and `remove` that of one less (`NEVER` where
it is empty): a unit takes one path down to a leaf, so

    add    = w(2(x − y) + 1) + the least `add` of the children,
    remove = w(1 − 2(x − y)) + the least `remove` of the children.

Both are stored for the regions above the leaves; a leaf's costs follow from its counts.

*Why the result is optimal*, whichever rounding errors the first two steps made. Let f_r(v) be the least cost of r's
subtree when r holds v units: w(v − y)² + the least Σ f_c(v_c) over children's values that add up to v. A leaf's is
convex, and so, by induction, is every f_r: a sum of a convex function and an infimal convolution of convex ones.

1. Children's values that add up to v have the least Σ f_c(v_c) exactly when no unit moved from one child to another
   lowers it (f_c convex).
2. So, given these values for v, one more unit belongs to the child where it costs least, and one less likewise, and the
   children's values stay optimal. By induction `add` and `remove` are f_r(v + 1) − f_r(v) and f_r(v − 1) − f_r(v), and
   a subtree that is optimal for v becomes optimal for v ± 1 along one path.
3. From the leaves up every region's children are exchanged until no pair pays (1.), each by the path of (2.); so each
   subtree is optimal for its value. Every exchange lowers an integer cost, so this ends.
4. The root: without a total, units are added or removed while that pays (f convex). With a total, the sizes are the
   children of one node on top, and (1.) applies once more.

`is_optimal` checks these conditions on any given counts: they are the optimality certificate.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel, part_of_kernels
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import (
    SUM_LIMIT,
    WEIGHT_BITS,
    Weights,
    fixed_total,
    integer_table,
    integer_weights,
    magnitude,
)
from tallytree.estimate.layout import Tree, wide_tiles, with_parents
from tallytree.estimate.relaxation import Lines, Problem, integer_root, put_integers, solve_relaxation


def nearest_consistent(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Return the non-negative integers `[regions, sizes]` nearest to `noisy` for which children add up to their parent.

    Nearest means the least Σ weight · (count − noisy)², exactly. `total` fixes the sum of the root's counts over all
    sizes. `weights` has one positive number per level (the inverse of its noise variance, say); their ratios are kept
    exactly if integers of at most 20 bits can express them; otherwise they are scaled so that the largest is 2²⁰ − 1,
    rounded, and at least 1. Where counts are so large that costs would not fit into 64 bits (from about 10¹² on),
    weights have fewer bits.

    The result is the same on every run. Among equally near results no region or size is favoured: ties are resolved in
    turn, from a child that depends on the region and the size.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> nearest_consistent(np.array([[7, 1], [4, -2], [4, 2]]), tree, total=10)
    array([[8, 2],
           [4, 0],
           [4, 2]])
    """
    noisy = integer_table(noisy, len(hierarchy))
    total = fixed_total(total, noisy.shape[1])
    if noisy.shape[1] == 0:
        return np.empty(noisy.shape, dtype=np.int64)
    level_weights, limit = _within_range(noisy, hierarchy, total, weights)

    noisy, tree = with_parents(noisy, Tree.of(hierarchy, level_weights))
    lines, amounts = solve_relaxation(noisy, tree, total)
    root = np.minimum(integer_root(amounts, total), limit)
    problem = Problem(noisy, np.empty(noisy.shape, dtype=np.int64), tree)
    costs = np.empty((2, len(root)), dtype=np.int64)  # cost of a unit more and a unit less in each size's root
    pieces = wide_tiles(len(root))
    in_threads(partial(_solve, problem, lines, root, total is None, costs), pieces)
    while total is not None:
        gainers, losers = paying_pairs(costs[0], costs[1], total % len(root))
        if len(gainers) == 0:
            break
        units = np.zeros(len(root), dtype=np.int64)
        units[gainers], units[losers] = 1, -1
        in_threads(partial(_move, problem, units, costs), [piece for piece in pieces if units[slice(*piece)].any()])
    return problem.values[-len(hierarchy) :]


def is_optimal(
    noisy: NDArray[Any],
    consistent: NDArray[Any],
    hierarchy: Hierarchy,
    *,
    total: int | None = None,
    weights: Weights = None,
) -> bool:
    """Return whether these counts are feasible and nearest to `noisy`: a certificate in one pass, for any counts.

    They are nearest if and only if they are non-negative, add up, and no exchange of one unit pays: between two
    children of a region, between two sizes at the top or, without a total, at the root itself (the module's docstring
    has the proof).
    """
    noisy = integer_table(noisy, len(hierarchy))
    counts = integer_table(consistent, len(hierarchy), name="consistent")
    if noisy.shape != counts.shape:
        raise SpecError(f"noisy has {noisy.shape[1]} sizes, consistent {counts.shape[1]}; expected the same")
    total = fixed_total(total, noisy.shape[1])
    if counts.size == 0:
        return True
    level_weights, limit = _within_range(noisy, hierarchy, total, weights)
    if counts.min() < 0 or counts.max() > limit or (total is not None and counts[0].sum() != total):
        return False
    add = remove = np.zeros(0, dtype=np.int64)
    for level in range(hierarchy.depth - 1, -1, -1):
        regions = hierarchy.level_slice(level)
        here, gap = counts[regions], counts[regions] - noisy[regions]
        more, less = level_weights[level] * (2 * gap + 1), level_weights[level] * (1 - 2 * gap)
        if level < hierarchy.depth - 1:
            below = hierarchy.level_slice(level + 1)
            starts = hierarchy.child_starts[regions] - below.start
            if not np.array_equal(np.add.reduceat(counts[below], starts, axis=0), here):
                return False
            add, remove = np.minimum.reduceat(add, starts, axis=0), np.minimum.reduceat(remove, starts, axis=0)
            if (add + remove < 0).any():
                return False
            more += add
            less += remove
        add, remove = more, np.where(here > 0, less, NEVER)
    if total is None:
        return bool(add.min() >= 0 and remove.min() >= 0)
    return bool(int(add.min()) + int(remove.min()) >= 0)


def _within_range(noisy: Integers, hierarchy: Hierarchy, total: int | None, weights: Weights) -> tuple[list[int], int]:
    """Return the levels' weights as integers, and an upper limit of a root's count, so that no kernel overflows.

    Without a total no optimal leaf exceeds M = max |noisy|: if one did, it and all above it, which hold at least as
    much, would lie above their noisy counts, and taking a unit off that path would pay. Likewise the root does not
    exceed U, where U is max(0, y) at a leaf and max(0, y, ΣU of the children) above: else some path has x > U ≥ y all
    the way down. The real optimum obeys the same limits, for the same reason.

    Counts lie in 0 … limit: one unit costs at most Σ w(2(limit + M) + 1), and no sum has more terms than there are
    regions or sizes. Weights take as many bits as that leaves to them.
    """
    largest, terms = magnitude(noisy), max(noisy.shape)
    limit = hierarchy.leaf_count * largest if total is None else total
    if total is None and (limit * terms >= SUM_LIMIT or limit >> WEIGHT_BITS):
        positive = np.maximum(noisy, 0).sum(axis=0, dtype=np.float64).max()  # at least U, in a single sum
        limit = min(limit, int(positive * 1.001) + 1)
    if terms * (limit + 1) < SUM_LIMIT:
        for bits in range(WEIGHT_BITS, 0, -1):
            level_weights = integer_weights(weights, hierarchy.depth, bits)
            if sum(weight * (2 * (largest + limit) + 1) for weight in level_weights) < SUM_LIMIT:
                return level_weights, limit
    raise SpecError(f"sums of {terms:,} counts up to {limit:,} would overflow 64-bit integers; use smaller values")


@kernel
def _solve(problem: Problem, lines: Lines, root: Integers, free: bool, costs: Integers, start: int, stop: int) -> None:
    """Solve the sizes `start … stop - 1` for their roots' values or, if these are free, for the best ones."""
    put_integers(problem, lines, root, start, stop)
    work = _balanced(problem, start, stop)
    for size in range(start, stop):
        while free and work.add[0, size - start] < 0:
            move(0, 1, size, work, problem.tree)
        while free and work.remove[0, size - start] < 0:
            move(0, -1, size, work, problem.tree)
    costs[0, start:stop], costs[1, start:stop] = work.add[0], work.remove[0]


@kernel
def _move(problem: Problem, units: Integers, costs: Integers, start: int, stop: int) -> None:
    """Add the units (-1, 0 or 1) to the roots of solved sizes."""
    work = _balanced(problem, start, stop)
    for size in range(start, stop):
        if units[size] != 0:
            move(0, units[size], size, work, problem.tree)
            costs[0, size], costs[1, size] = work.add[0, size - start], work.remove[0, size - start]


@part_of_kernels
def _balanced(problem: Problem, start: int, stop: int) -> Work:
    """Return the sizes `start … stop - 1`, optimal for their roots' values."""
    noisy, values, tree = problem
    shape = noisy.shape[0] - tree.leaf_counts[0], stop - start
    work = Work(noisy, values, start, stop, np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64))
    balance(work, tree)
    return work


# -------------------------------------------------------------------- exchange


# More than any cost; adding a cost, whose absolute value is smaller, does not overflow.
NEVER = 1 << 62


class Work(NamedTuple):
    """The sizes that are being solved, and the cost of a unit more or less there."""

    noisy: Integers  # [regions, sizes], all of them
    values: Integers
    start: int  # the first size that is being solved
    stop: int  # and the one after the last
    add: Integers  # [regions above the leaves, these sizes]
    remove: Integers


@part_of_kernels
def balance(work: Work, tree: Tree) -> None:
    """Make each size optimal for its root's value, from the leaves up, and fill `add` and `remove`."""
    inner, width = len(work.noisy) - tree.leaf_counts[0], work.stop - work.start
    least_add, least_remove = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
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
    """Write the least `add` and `remove` among the leaves `first … last - 1`, for each size."""
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
    """Return which children gain and which lose a unit: cheapest with cheapest while a pair lowers the cost, ties from
    `start` on.

    No child is in both lists. If one were the i-th to gain and the j-th to lose, with i ≤ j say, its own `add` would be
    at most that of the j-th gainer, so its `add` + `remove` would be negative. Costs are convex, so that is impossible.
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
    """Add one unit to a subtree (`unit` 1) or remove one (-1) by the cheapest path, and refresh that path."""
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
    """Return the cost of a unit more (1) or less (-1) in a region's subtree."""
    if tree.child_starts[region] < tree.child_starts[region + 1]:
        least: int = work.add[region, size - work.start] if unit > 0 else work.remove[region, size - work.start]
        return least
    value = work.values[region, size]
    if unit < 0 and value == 0:
        return NEVER
    cost: int = tree.weights[region] * (2 * unit * (value - work.noisy[region, size]) + 1)
    return cost


@part_of_kernels
def _refresh(region: int, size: int, work: Work, tree: Tree) -> int:
    """Update a region's costs from its children's, and return the cost of the children's best exchange."""
    first, last = tree.child_starts[region], tree.child_starts[region + 1]
    place = size - work.start
    if first == last:
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
