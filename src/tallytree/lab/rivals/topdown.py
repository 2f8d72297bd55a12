"""TopDown, as the PGSR paper describes the U.S. Census Bureau's algorithm (its Section 10): two levels at a time.

From the top down, a least-squares program over a level and the one below it, with non-negative counts that add up, and
then a rounding that keeps the sums. What a step has settled stays: so after the first step, in which both levels are
free, a region's own counts are given and only its children's are sought. Each such program is the projection of the
children's noisy counts onto those that add up to their parent, which has a closed form; no solver is needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.kernels import in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import Weights, fixed_total, integer_table, whole_weights
from tallytree.estimate.layout import Tree, columns, put_columns, tiles
from tallytree.estimate.tree.relaxation import relaxed
from tallytree.estimate.tree.whole import whole_parts, whole_root


def top_down(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Whole, non-negative counts `[regions, sizes]` that add up, settled level by level from the root.

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
    counts = noisy.copy()
    if counts.size == 0:
        return counts
    counts[0] = _root(noisy, hierarchy, total, weights)
    tree = Tree.of(hierarchy, [1] * hierarchy.depth)
    in_threads(lambda start, stop: _settle(counts, tree, start, stop), tiles(counts.shape[1]))
    return counts


def _root(noisy: Integers, hierarchy: Hierarchy, total: int | None, weights: Weights) -> Integers:
    """The root's counts in the real optimum of the first two levels, rounded so that they keep the total."""
    both = min(2, hierarchy.depth)
    regions = int(hierarchy.level_starts[both])
    top = Hierarchy.from_layout(
        hierarchy.levels[:both],
        hierarchy.names[:regions],
        hierarchy.ids[:regions],
        hierarchy.parents[:regions].tolist(),
        hierarchy.carried[:regions].tolist(),
    )
    _, amounts = relaxed(noisy[:regions], Tree.of(top, whole_weights(weights, hierarchy.depth)[:both]), total)
    return whole_root(amounts, total)


@kernel
def _settle(counts: Integers, tree: Tree, start: int, stop: int) -> None:
    """Replace the noisy counts below the root, parent by parent, for the sizes `start … stop - 1`."""
    regions = counts.shape[0]
    first_leaf = regions - tree.leaf_counts[0]
    tile = columns(counts, start, stop)
    for size in range(start, stop):
        column = tile[size - start]
        for region in range(first_leaf):
            first, last = tree.child_starts[region], tree.child_starts[region + 1]
            children = column[first:last]
            shift = _shift(np.sort(children), column[region])
            turn = (region + size) % (last - first)
            whole_parts(np.maximum(children + shift, 0.0), column[region], turn, children)
    put_columns(counts, start, tile)


@kernel
def _shift(ascending: Integers, amount: int) -> float:
    """The t for which Σ max(0, y + t) = amount: the projection of y onto the numbers that add up to `amount`."""
    held, taken = 0, 0
    for place in range(len(ascending) - 1, -1, -1):
        # With the larger ones at t = −y, so that y itself is just zero: do they hold the amount already?
        if taken > 0 and held - taken * ascending[place] >= amount:
            break
        held += ascending[place]
        taken += 1
    return (amount - held) / taken
