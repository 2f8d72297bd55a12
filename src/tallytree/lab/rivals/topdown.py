"""TopDown, BlueDown and InfTDA: from the top down, each parent's counts are allocated to its children.

TopDown is the U.S. Census Bureau's algorithm as the PGSR paper describes it (its Section 10): a least-squares program
over a level and the one below it, with non-negative counts that add up, and then a rounding that keeps the sums. Later
steps do not change what a step has fixed. So after the first step, in which both levels are free, a region's own counts
are given and only its children's are unknown. Each such program is a projection, which has a closed form (`pull`); no
solver is needed.

BlueDown (Ghazi, Kamath, Kumar, Manurangsi and Sealfon, arXiv 2603.10099) replaces the noisy numbers of TopDown by
estimates that use all measurements below a region too. Here one query measures each cell, its count, so each size is a
tree of numbers. Upwards, a region's own measurement and the sum of its children's estimates are weighed by their
precision: `subtree_estimates`, in time linear in the number of cells. From the top, with the parent whole and fixed,
its children are

    min Σ precision · (x − estimate)²   subject to   Σ x = parent, x ≥ 0,

rounded so that they keep the sum. Regions with more regions below them have more precise estimates, and are moved less.
Different here: the root's counts by size keep the public total, if any; the paper has other invariants.

InfTDA (Boninsegna and Silvestri, arXiv 2412.09256; for any hierarchy 2505.05347) moves children so that the largest
move is the least there can be. With a parent of c and its children measured
as y, the moves z are integers with

    min max |z|   subject to   Σ (y + z) = c,   y + z ≥ 0.

Many moves are equally good by this measure. The paper's choice (its Algorithm 3) is meant to keep false positives few:
all children are moved alike, by the mean move rounded up, or to zero if that is nearer; the remaining surplus is taken
from the children with the smallest measurements first, as far as the largest move allows. If that is not enough, the
largest move becomes the least one that is: all are moved by one less than it, and the smallest first by one more.

Different here: noise is that of the budget (the paper's is Gaussian); the root's counts by size keep the public total,
if any (the paper assumes that it is known), and otherwise are the measured ones, none negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import Weights, check_sums, fixed_total, integer_table, integer_weights, level_weights
from tallytree.estimate.layout import Tree, tiles, with_parents
from tallytree.estimate.least_squares import subtree_estimates
from tallytree.estimate.relaxation import integer_parts, integer_root, solve_relaxation


def top_down(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Return non-negative integer counts `[regions, sizes]` that add up, fixed level by level from the root.

    `total` fixes the sum of the root's counts; `weights` has one positive number per level (the inverse of its noise
    variance, say) and matters in the first step only, because children of one region lie on one level.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> top_down(np.array([[7, 1], [4, -2], [4, 2]]), tree, total=10)
    array([[8, 2],
           [4, 0],
           [4, 2]])
    """
    noisy = integer_table(noisy, len(hierarchy))
    total = fixed_total(total, noisy.shape[1])
    counts = np.empty(noisy.shape, dtype=np.int64)
    if counts.size == 0:
        return counts
    counts[0] = _root(noisy, hierarchy, total, weights)
    _allocate(counts, noisy.astype(np.float64), np.ones(len(hierarchy)), hierarchy)
    return counts


def _root(noisy: Integers, hierarchy: Hierarchy, total: int | None, weights: Weights) -> Integers:
    """Return the root's counts in the real optimum of the first two levels, rounded so that they keep the total."""
    both = min(2, hierarchy.depth)
    regions = int(hierarchy.level_starts[both])
    top = Hierarchy.from_layout(
        hierarchy.levels[:both],
        hierarchy.names[:regions],
        hierarchy.ids[:regions],
        hierarchy.parents[:regions].tolist(),
        hierarchy.carried[:regions].tolist(),
    )
    tree = Tree.of(top, integer_weights(weights, hierarchy.depth)[:both])
    _, amounts = solve_relaxation(*with_parents(noisy[:regions], tree), total)
    return integer_root(amounts, total)


# -------------------------------------------------------------------- BlueDown


def blue_down(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Return non-negative integer counts `[regions, sizes]` that add up, fixed level by level from the root.

    `total` fixes the sum of the root's counts; `weights` has one positive number per level (the inverse of its noise
    variance).

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> blue_down(np.array([[7, 1], [4, -2], [4, 2]]), tree, total=10)
    array([[8, 2],
           [4, 0],
           [4, 2]])
    """
    noisy = integer_table(noisy, len(hierarchy))
    total = fixed_total(total, noisy.shape[1])
    levels = 1 / np.array([float(weight) for weight in level_weights(weights, hierarchy.depth)])
    counts = np.empty(noisy.shape, dtype=np.int64)
    if counts.size == 0:
        return counts
    lower, _ = subtree_estimates(
        noisy.astype(np.float64), np.repeat(levels[:, None], noisy.shape[1], axis=1), hierarchy
    )
    # The variance of an estimate depends only on the tree and the levels, so one column is enough.
    _, column = subtree_estimates(np.zeros((len(hierarchy), 1)), levels[:, None], hierarchy)
    counts[0] = _blue_root(lower[0], total)
    _allocate(counts, lower, column.ravel(), hierarchy)
    return counts


def _blue_root(lower: Floats, total: int | None) -> Integers:
    """Return the root's counts, all of one variance: non-negative and adding up to the total, if any."""
    if total is None:
        return integer_root(np.maximum(lower, 0.0), None)
    alike = np.ones(len(lower))
    return integer_root(np.maximum(lower + pull(lower, alike, total), 0.0), total)


def _allocate(counts: Integers, wanted: Floats, variance: Floats, hierarchy: Hierarchy) -> None:
    """Fill in the counts below the root, parent by parent: integers nearest to each child's wanted value."""
    first_leaf = int(hierarchy.level_starts[-2])
    in_threads(
        lambda start, stop: _allocate_tile(counts, wanted, variance, hierarchy.child_starts, first_leaf, start, stop),
        tiles(counts.shape[1]),
    )


@kernel
def pull(lower: Floats, variance: Floats, amount: int) -> float:
    """Return the t for which Σ max(0, lower + variance · t) = amount: then these are the nearest numbers with that sum.

    By the conditions of Karush, Kuhn and Tucker: x − lower = variance · t where x > 0, and lower + variance · t ≤ 0
    where x = 0. A place becomes positive when t passes −lower / variance, so the places are taken in that order.
    """
    order = np.argsort(-lower / variance)
    held, slope = 0.0, 0.0
    for place in order:
        start = -lower[place] / variance[place]
        if slope > 0.0 and held + slope * start >= amount:
            break
        held += lower[place]
        slope += variance[place]
    return (amount - held) / slope


@kernel
def _allocate_tile(
    counts: Integers, lower: Floats, variance: Floats, child_starts: Integers, first_leaf: int, start: int, stop: int
) -> None:
    """Allocate every region's counts to its children, from the root down, for the sizes `start … stop - 1`."""
    for size in range(start, stop):
        for region in range(first_leaf):
            first, last = child_starts[region], child_starts[region + 1]
            amount = counts[region, size]
            if amount == 0:
                counts[first:last, size] = 0
                continue
            children = lower[first:last, size].copy()
            spread = variance[first:last]
            near = np.maximum(children + spread * pull(children, spread, amount), 0.0)
            parts = np.empty(last - first, dtype=np.int64)
            integer_parts(near, amount, (region + size) % (last - first), parts)
            counts[first:last, size] = parts


def chebyshev_down(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Return non-negative integer counts `[regions, sizes]` that add up, fixed level by level from the root.

    `total` fixes the sum of the root's counts. Each level is fixed before the next one, so `weights` of levels change
    nothing.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY", "VT"]}, ["state"])
    >>> chebyshev_down(np.array([[9], [8], [5], [1]]), tree)[:, 0]
    array([9, 6, 3, 0])
    """
    noisy = integer_table(noisy, len(hierarchy))
    total = fixed_total(total, noisy.shape[1])
    check_sums(noisy, 2 * max(noisy.shape, default=0), total or 0)
    counts = noisy.copy()
    if counts.size == 0:
        return counts
    if total is None:
        counts[0] = np.maximum(counts[0], 0)
    else:
        move(counts[0], total)
    first_leaf = int(hierarchy.level_starts[-2])
    in_threads(
        lambda start, stop: _move_all(counts, hierarchy.child_starts, first_leaf, start, stop), tiles(counts.shape[1])
    )
    return counts


@kernel
def _move_all(counts: Integers, child_starts: Integers, first_leaf: int, start: int, stop: int) -> None:
    tile = np.ascontiguousarray(counts[:, start:stop].T)  # each column as a contiguous row
    for size in range(stop - start):
        column = tile[size]
        for region in range(first_leaf):
            move(column[child_starts[region] : child_starts[region + 1]], column[region])
    counts[:, start:stop] = tile.T


@kernel
def move(children: Integers, amount: int) -> None:
    """Move the children, in place, to non-negative integers that add up to `amount`, with the least largest move."""
    count = len(children)
    held: int = children.sum()
    level: int = -((held - amount) // count)  # the mean move, rounded up
    furthest = max(abs(level), -children.min())
    if _lowest(children, furthest) > amount:
        # Even with all of them lowered so far, a surplus remains: find the least sufficient move by bisection.
        below, furthest = furthest, max(furthest, children.max())
        while furthest - below > 1:
            middle = (below + furthest) // 2
            if _lowest(children, middle) > amount:
                below = middle
            else:
                furthest = middle
        level = 1 - furthest
    order = np.argsort(children)
    extra = -amount
    for child in range(count):
        extra += max(0, children[child] + level)
    for child in order:
        now = max(0, children[child] + level)
        taken = min(extra, now - max(0, children[child] - furthest))
        children[child] = now - taken
        extra -= taken


@kernel
def _lowest(children: Integers, furthest: int) -> int:
    """Return the least sum of the children if no child moves by more than this."""
    held = 0
    for child in range(len(children)):
        held += max(0, children[child] - furthest)
    return held
