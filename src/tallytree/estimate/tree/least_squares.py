"""Least squares on the tree: the consistent real numbers nearest to given ones, in closed form and in two passes.

Each size is a problem of its own: minimise Σ_r w_r (x_r − q_r)² over all x whose children add up. From the leaves up, a
region's subtree says what the region should hold (`a`) and how sure it is (the precision W); a leaf says (q, w) and a
parent combines its own value with its children's sum,

    1 / S = Σ_c 1 / W_c,   W = w + S,   a = (w q + S Σ_c a_c) / W.

From the root down, what a parent holds beyond its children's sum is shared among them in proportion to 1 / W_c. This is
the generalised least squares estimate of Hay et al. (2010) for any tree and any weights. The coefficients depend on the
tree alone and are shared by all sizes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel, part_of_kernels
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.layout import tiles


class Pulls(NamedTuple):
    """What the two passes need to know of a tree and its weights."""

    child_starts: Integers
    own: Floats  # the part of a region's estimate that is its own value, the rest being its children's sum
    share: Floats  # the part of its parent's surplus that a region takes

    @classmethod
    def of(cls, hierarchy: Hierarchy, region_weights: Floats) -> Pulls:
        own, share = np.ones(len(hierarchy)), np.ones(len(hierarchy))
        precision = region_weights.astype(np.float64).copy()
        for level in range(hierarchy.depth - 2, -1, -1):
            regions, below = hierarchy.level_slice(level), hierarchy.level_slice(level + 1)
            spread = 1 / precision[below]
            sums = np.add.reduceat(spread, hierarchy.child_starts[regions] - below.start)
            share[below] = spread / sums[hierarchy.parents[below] - regions.start]
            precision[regions] = region_weights[regions] + 1 / sums
            own[regions] = region_weights[regions] / precision[regions]
        return cls(hierarchy.child_starts, own, share)


def tree_least_squares(
    values: NDArray[Any], hierarchy: Hierarchy, region_weights: NDArray[Any] | None = None, *, tell: Tell = nobody
) -> Floats:
    """The real numbers `[regions, sizes]` nearest to `values` for which children add up to their parent.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> tree_least_squares(np.array([[9.0], [2.0], [4.0]]), tree)
    array([[8.],
           [3.],
           [5.]])
    """
    given = np.ascontiguousarray(values, dtype=np.float64)
    if given.ndim != 2 or len(given) != len(hierarchy):
        raise SpecError(f"values have shape {given.shape}; expected ({len(hierarchy)}, sizes), one row per region")
    weights = np.ones(len(hierarchy)) if region_weights is None else np.asarray(region_weights, dtype=np.float64)
    pulls = Pulls.of(hierarchy, weights)
    nearest = np.empty_like(given)

    def fit(start: int, stop: int) -> None:
        nearest[:, start:stop] = fit_tile(given, pulls, start, stop)

    in_threads(fit, tiles(given.shape[1]), tell)
    return nearest


@kernel
def fit_tile(values: Floats, pulls: Pulls, start: int, stop: int) -> Floats:
    """The least squares estimate of the sizes `start … stop - 1`."""
    regions, width = values.shape[0], stop - start
    fitted = np.empty((regions, width))
    sums = np.empty(width)
    for region in range(regions - 1, -1, -1):
        first, last = pulls.child_starts[region], pulls.child_starts[region + 1]
        if first == last:
            for size in range(width):
                fitted[region, size] = values[region, start + size]
            continue
        _add_rows(fitted, first, last, sums)
        own = pulls.own[region]
        for size in range(width):
            fitted[region, size] = own * values[region, start + size] + (1.0 - own) * sums[size]
    for region in range(regions):
        first, last = pulls.child_starts[region], pulls.child_starts[region + 1]
        if first == last:
            break  # leaves lie on the last level
        _add_rows(fitted, first, last, sums)
        for child in range(first, last):
            share = pulls.share[child]
            for size in range(width):
                fitted[child, size] += share * (fitted[region, size] - sums[size])
    return fitted


@part_of_kernels
def _add_rows(table: Floats, first: int, last: int, sums: Floats) -> None:
    sums[:] = 0.0
    for row in range(first, last):
        for size in range(len(sums)):
            sums[size] += table[row, size]
