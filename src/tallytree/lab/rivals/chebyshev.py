"""InfTDA on counts by size: from the top down, children moved so that the largest move is the least there can be.

Boninsegna and Silvestri (arXiv 2412.09256; for any hierarchy 2505.05347). With a parent of c and its children measured
as y, the moves z are whole numbers with

    min max |z|   subject to   Σ (y + z) = c,   y + z ≥ 0.

Many moves are equally good by that measure. The paper's choice (its Algorithm 3) is meant to keep false positives few:
all children are moved alike, by the mean move rounded up, or to zero if that is not as far; what is then too much is
taken from the children that were measured smallest first, as far as the largest move allows. If that is not enough, the
largest move becomes the least one that is: all are moved by one less than it, and the smallest first by one more.

Different here: noise is that of the budget (the paper's is Gaussian); the root's counts by size keep the public total
where there is one (the paper takes it for known) and otherwise are the measured ones, none negative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.kernels import in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import Weights, check_sums, fixed_total, integer_table
from tallytree.estimate.layout import tiles


def chebyshev_down(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Whole, non-negative counts `[regions, sizes]` that add up, settled level by level from the root.

    `total` fixes the sum of the root's counts. With a level fixed when the next one is sought, `weights` of levels
    change nothing.

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
        lambda start, stop: _settle(counts, hierarchy.child_starts, first_leaf, start, stop), tiles(counts.shape[1])
    )
    return counts


@kernel
def _settle(counts: Integers, child_starts: Integers, first_leaf: int, start: int, stop: int) -> None:
    tile = np.ascontiguousarray(counts[:, start:stop].T)  # each column as a contiguous row
    for size in range(stop - start):
        column = tile[size]
        for region in range(first_leaf):
            move(column[child_starts[region] : child_starts[region + 1]], column[region])
    counts[:, start:stop] = tile.T


@kernel
def move(children: Integers, amount: int) -> None:
    """Move the children, in place, to non-negative whole numbers that add up to `amount`, none further than it must."""
    count = len(children)
    held: int = children.sum()
    level: int = -((held - amount) // count)  # the mean move, rounded up
    furthest = max(abs(level), -children.min())
    if _lowest(children, furthest) > amount:
        # Even with all of them lowered so far there is too much: the least move that is enough, by bisection.
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
    """What children hold at least if none is moved by more than this."""
    held = 0
    for child in range(len(children)):
        held += max(0, children[child] - furthest)
    return held
