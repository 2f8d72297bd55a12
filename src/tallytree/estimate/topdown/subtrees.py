"""What the measurements of a region and of all below it say together: unbiased, with exact variances.

From the leaves up, a region's own measurement and the sum of its children's estimates are weighed by their variances.
This is the upward pass of least squares on the tree (`tree.least_squares`), with noise that may differ from size to
size and levels that were not measured.
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.domain.hierarchy import Hierarchy


def subtree_estimates(values: Floats, noise: Floats, hierarchy: Hierarchy) -> tuple[Floats, Floats]:
    """Estimates `[regions, sizes]` and their variances, from `values` with noise of variance `noise` `[levels, sizes]`.

    The variance of what was not measured is infinite; on the last level none may be.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> mean, variance = subtree_estimates(np.array([[9.0], [2.0], [4.0]]), np.array([[2.0], [1.0]]), tree)
    >>> mean[:, 0], variance[:, 0]
    (array([7.5, 2. , 4. ]), array([1., 1., 1.]))
    """
    mean, variance = np.array(values, dtype=np.float64), np.empty(values.shape)
    last = hierarchy.level_slice(hierarchy.depth - 1)
    variance[last] = noise[-1]
    for level in range(hierarchy.depth - 2, -1, -1):
        regions, below = hierarchy.level_slice(level), hierarchy.level_slice(level + 1)
        starts = hierarchy.child_starts[regions] - below.start
        sums, spread = np.add.reduceat(mean[below], starts), np.add.reduceat(variance[below], starts)
        measured = np.isfinite(noise[level])
        finite = np.where(measured, noise[level], 1.0)
        rest = np.where(measured, finite / (spread + finite), 1.0)  # 1 − own would round to 0 where noise is small
        own = np.where(measured, spread / (spread + finite), 0.0)
        mean[regions] = own * np.where(measured, mean[regions], 0.0) + rest * sums
        variance[regions] = rest * spread
    return mean, variance


def added_up(leaves: Floats, hierarchy: Hierarchy) -> Floats:
    """Rows of all regions, `[regions, sizes]`, from those of the leaves."""
    rows = np.empty((len(hierarchy), leaves.shape[1]))
    rows[hierarchy.level_slice(hierarchy.depth - 1)] = leaves
    add_up(rows, hierarchy)
    return rows


def add_up(rows: Floats, hierarchy: Hierarchy) -> None:
    """Fill the rows of all upper regions, in place, from those of the leaves."""
    for level in range(hierarchy.depth - 2, -1, -1):
        regions, below = hierarchy.level_slice(level), hierarchy.level_slice(level + 1)
        rows[regions] = np.add.reduceat(rows[below], hierarchy.child_starts[regions] - below.start)
