"""The whole numbers nearest to noisy counts that are non-negative and add up over the tree, and a proof that they are.

`nearest_consistent` solves Model 1 of the PGSR paper (Fioretto, Van Hentenryck, Zhu; the post-processing of M_H^dp)
exactly, as its Algorithm 1 does, but without cost tables: those hold as many entries per region as the noise is wide.
Here the real relaxation (`relaxation`) is rounded (`whole`) and improved by exchanges of one unit (`exchange`).

Why the result is optimal, whatever the floats of the first two steps did. Let f_r(v) be the least cost of r's
subtree when r holds v units: w(v − y)² + the least Σ f_c(v_c) over children's values that add up to v. A leaf's is
convex, and so, by induction, is every f_r: a sum of a convex function and an infimal convolution of convex ones.

1. Children's values that add up to v have the least Σ f_c(v_c) exactly when no unit moved from one child to another
   lowers it (f_c convex).
2. So, given them for v, one more unit belongs to the child where it costs least, and one less likewise, and the
   children's values stay optimal. By induction `add` and `remove` of `exchange` are f_r(v + 1) − f_r(v) and
   f_r(v − 1) − f_r(v), and a subtree that is optimal for v becomes optimal for v ± 1 along one path.
3. From the leaves up every region's children are exchanged until no pair pays (1.), each by the path of (2.); so each
   subtree is optimal for its value. Every exchange lowers an integer cost, so this ends.
4. The root: without a total, units are added or removed while that pays (f convex). With a total, the sizes are the
   children of one node on top, and (1.) applies once more.

`is_optimal` checks the same conditions on any given counts: they are the certificate.
"""

from __future__ import annotations

from typing import Any

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
    magnitude,
    whole_weights,
)
from tallytree.estimate.layout import Tree, wide_tiles
from tallytree.estimate.tree.exchange import NEVER, Work, balance, move, paying_pairs
from tallytree.estimate.tree.relaxation import Lines, relaxed
from tallytree.estimate.tree.whole import whole_numbers, whole_root


def nearest_consistent(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """The non-negative integers `[regions, sizes]` nearest to `noisy` for which children add up to their parent.

    Nearest means the least Σ weight · (count − noisy)², exactly. `total` fixes the sum of the root's counts over all
    sizes. `weights` has one positive number per level (the inverse of its noise variance, say); their ratios are kept
    exactly where whole numbers of at most 20 bits can do so, otherwise they are scaled so that the largest is
    2²⁰ − 1, rounded, and at least 1. Where counts are so large that costs would not fit into 64 bits (from about 10¹²
    on), weights have fewer bits.

    The result is the same on every run. Among equally near results no region or size is favoured: ties are served in
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

    tree = Tree.of(hierarchy, level_weights)
    lines, amounts = relaxed(noisy, tree, total)
    root = np.minimum(whole_root(amounts, total), limit)
    values = np.empty(noisy.shape, dtype=np.int64)
    costs = np.empty((2, len(root)), dtype=np.int64)  # of a unit more and a unit less in each size's root
    pieces = wide_tiles(len(root))
    free = total is None

    def solve(start: int, stop: int) -> None:
        _solve(noisy, values, tree, lines, root, free, costs, start, stop)

    def exchange(start: int, stop: int) -> None:
        _move(noisy, values, tree, units, costs, start, stop)

    in_threads(solve, pieces)
    while total is not None:
        gainers, losers = paying_pairs(costs[0], costs[1], total % len(root))
        if len(gainers) == 0:
            break
        units = np.zeros(len(root), dtype=np.int64)
        units[gainers], units[losers] = 1, -1
        in_threads(exchange, [piece for piece in pieces if units[slice(*piece)].any()])
    return values


def is_optimal(
    noisy: NDArray[Any],
    consistent: NDArray[Any],
    hierarchy: Hierarchy,
    *,
    total: int | None = None,
    weights: Weights = None,
) -> bool:
    """Are these counts feasible and the nearest there are? A certificate that takes one pass, however they were made.

    They are if and only if they are non-negative, add up, and no exchange of one unit pays: between two children of a
    region, between two sizes at the top or, without a total, at the root itself (the module's docstring has the proof).
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
    """The levels' weights as whole numbers, and the most that a size's root can hold: no kernel overflows with these.

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
            level_weights = whole_weights(weights, hierarchy.depth, bits)
            if sum(weight * (2 * (largest + limit) + 1) for weight in level_weights) < SUM_LIMIT:
                return level_weights, limit
    raise SpecError(f"sums of {terms:,} counts up to {limit:,} would overflow 64-bit integers; use smaller values")


@kernel
def _solve(
    noisy: Integers,
    values: Integers,
    tree: Tree,
    lines: Lines,
    root: Integers,
    free: bool,
    costs: Integers,
    start: int,
    stop: int,
) -> None:
    """Solve the sizes `start … stop - 1` for their roots' values or, where these are free, for the best ones."""
    whole_numbers(noisy, values, tree, lines, root, start, stop)
    work = _balanced(noisy, values, tree, start, stop)
    for size in range(start, stop):
        while free and work.add[0, size - start] < 0:
            move(0, 1, size, work, tree)
        while free and work.remove[0, size - start] < 0:
            move(0, -1, size, work, tree)
    costs[0, start:stop], costs[1, start:stop] = work.add[0], work.remove[0]


@kernel
def _move(
    noisy: Integers, values: Integers, tree: Tree, units: Integers, costs: Integers, start: int, stop: int
) -> None:
    """Add the units (-1, 0 or 1) to the roots of solved sizes."""
    work = _balanced(noisy, values, tree, start, stop)
    for size in range(start, stop):
        if units[size] != 0:
            move(0, units[size], size, work, tree)
            costs[0, size], costs[1, size] = work.add[0, size - start], work.remove[0, size - start]


@part_of_kernels
def _balanced(noisy: Integers, values: Integers, tree: Tree, start: int, stop: int) -> Work:
    """The sizes `start … stop - 1`, optimal for their roots' values."""
    kept = max(1, noisy.shape[0] - tree.leaf_counts[0]), stop - start
    add, remove = np.empty(kept, dtype=np.int64), np.empty(kept, dtype=np.int64)
    work = Work(noisy, values, start, stop, add, remove)
    balance(work, tree)
    return work
