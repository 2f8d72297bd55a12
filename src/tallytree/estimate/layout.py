"""Lay out the work of estimators: blocks of sizes or regions for threads, the tree as plain arrays for kernels."""

from __future__ import annotations

from os import cpu_count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.kernels import blocks
from tallytree.domain.hierarchy import Hierarchy


def tiles(sizes: int) -> list[tuple[int, int]]:
    """Return blocks of sizes to work on together: some cache lines of a row at a time, and several blocks per core."""
    return blocks(sizes, max(1, min(32, sizes // (4 * (cpu_count() or 1)))))


def wide_tiles(sizes: int) -> list[tuple[int, int]]:
    """Return blocks of sizes for work on whole rows: as wide as possible while every core has one."""
    return blocks(sizes, max(1, min(64, -(-sizes // (cpu_count() or 1)))))


def row_blocks(table: NDArray[Any], cells: int = 1 << 18) -> list[tuple[int, int]]:
    """Return blocks of regions to work on together: about this many cells each."""
    return blocks(len(table), max(1, cells // max(1, table.shape[1])))


class Tree(NamedTuple):
    """A hierarchy and its levels' weights, as Numba reads them."""

    parents: Integers
    child_starts: Integers
    level_starts: Integers
    leaf_counts: Integers  # how many leaves lie below a region; 1 for a leaf
    weights: Integers  # of each region: its level's weight

    @classmethod
    def of(cls, hierarchy: Hierarchy, level_weights: list[int]) -> Tree:
        leaf_counts = hierarchy.aggregate(np.ones(hierarchy.leaf_count, dtype=np.int64))
        weights = np.array(level_weights, dtype=np.int64)[hierarchy.level_of]
        return cls(hierarchy.parents, hierarchy.child_starts, hierarchy.level_starts, leaf_counts, weights)


def with_parents(noisy: Integers, tree: Tree) -> tuple[Integers, Tree]:
    """Return noisy counts and a tree in which leaves have parents; a lone region gets a parent of weight zero."""
    if len(noisy) > 1:
        return noisy, tree
    parents, child_starts, level_starts = (np.array(each, np.int64) for each in ([-1, 0], [1, 2, 2], [0, 1, 2]))
    weights = np.array([0, tree.weights[0]])
    return np.repeat(noisy, 2, axis=0), Tree(parents, child_starts, level_starts, np.ones(2, np.int64), weights)
