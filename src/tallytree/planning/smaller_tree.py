"""A small tree that stands for a large one: enough of it to predict errors by simulation, and no more.

Every region keeps at most m children, spread evenly over their siblings by expected total, and m is as large as the
limit allows; where families are small all of them stay. Errors depend on a region's own noise and on its children's,
so what is lost is little: with m children a region's sum over them has variance m against the 1 of its own
measurement, so on the way from n children to m its variance moves by less than a part 1/m.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.hierarchy import Hierarchy


def smaller_tree(
    hierarchy: Hierarchy, leaf_totals: NDArray[np.float64], most_regions: int
) -> tuple[Hierarchy, Integers]:
    """A part of the hierarchy with all its levels and about `most_regions` regions at most; and which leaves it has."""
    first = int(hierarchy.level_starts[-2])
    if len(hierarchy) <= most_regions:
        return hierarchy, np.arange(hierarchy.leaf_count)
    family, rank = _ranks(hierarchy, leaf_totals)
    low, high = 1, int(family.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if _kept(hierarchy, family, rank, middle).sum() <= most_regions else (low, middle - 1)
        )
    kept = np.flatnonzero(_kept(hierarchy, family, rank, low))
    place = np.full(len(hierarchy), -1)
    place[kept] = np.arange(len(kept))
    parents = hierarchy.parents[kept]
    tree = Hierarchy.from_layout(
        hierarchy.levels,
        [hierarchy.names[region] for region in kept],
        [hierarchy.ids[region] for region in kept],
        [-1, *place[parents[1:]].tolist()],
        hierarchy.carried[kept].tolist(),
    )
    return tree, kept[kept >= first] - first


def _ranks(hierarchy: Hierarchy, leaf_totals: NDArray[np.float64]) -> tuple[Integers, Integers]:
    """For every region how many siblings there are, itself among them, and its place among them by expected total."""
    totals = np.zeros(len(hierarchy))
    totals[int(hierarchy.level_starts[-2]) :] = leaf_totals
    for level in range(hierarchy.depth - 1, 0, -1):
        regions = hierarchy.level_slice(level)
        np.add.at(totals, hierarchy.parents[regions], totals[regions])
    family, rank = np.ones(len(hierarchy), dtype=np.int64), np.zeros(len(hierarchy), dtype=np.int64)
    parents = hierarchy.parents[1:]
    family[1:] = np.diff(hierarchy.child_starts)[parents]
    order = np.lexsort((totals[1:], parents))  # parents never fall, so families stay where they are
    rank[1:][order] = np.arange(len(order)) - (hierarchy.child_starts[parents] - 1)
    return family, rank


def _kept(hierarchy: Hierarchy, family: Integers, rank: Integers, most: int) -> NDArray[np.bool_]:
    """Which regions stay if each family keeps `most`: those at whose rank another whole part of it is reached."""
    parts = np.minimum(family, most)
    kept = ((2 * rank + 2) * parts + family) // (2 * family) > (2 * rank * parts + family) // (2 * family)
    kept[0] = True
    for level in range(1, hierarchy.depth):
        regions = hierarchy.level_slice(level)
        kept[regions] &= kept[hierarchy.parents[regions]]
    return kept
