"""How estimators lay out their work: blocks of sizes or regions for threads, the tree as plain arrays for kernels."""

from __future__ import annotations

from os import cpu_count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.kernels import blocks, kernel
from tallytree.domain.hierarchy import Hierarchy


def tiles(sizes: int) -> list[tuple[int, int]]:
    """Blocks of sizes to work on together: some cache lines of a row at a time, and several blocks per core."""
    return blocks(sizes, max(1, min(32, sizes // (4 * (cpu_count() or 1)))))


def wide_tiles(sizes: int) -> list[tuple[int, int]]:
    """Blocks of sizes for work that goes over whole rows: as wide as can be while every core has one."""
    return blocks(sizes, max(1, min(64, -(-sizes // (cpu_count() or 1)))))


def row_blocks(table: NDArray[Any], cells: int = 1 << 18) -> list[tuple[int, int]]:
    """Blocks of regions to work on together: about this many cells each."""
    return blocks(len(table), max(1, cells // max(1, table.shape[1])))


class Tree(NamedTuple):
    """A hierarchy and its levels' weights, as Numba reads them."""

    parents: Integers
    child_starts: Integers
    level_starts: Integers
    leaf_counts: Integers  # how many leaves lie below a region; 1 for a leaf
    weights: Integers  # each region's, which is its level's

    @classmethod
    def of(cls, hierarchy: Hierarchy, level_weights: list[int]) -> Tree:
        leaf_counts = hierarchy.aggregate(np.ones(hierarchy.leaf_count, dtype=np.int64))
        weights = np.array(level_weights, dtype=np.int64)[hierarchy.level_of]
        return cls(hierarchy.parents, hierarchy.child_starts, hierarchy.level_starts, leaf_counts, weights)


@kernel
def columns(table: Integers, start: int, stop: int) -> Integers:
    """The columns `start … stop - 1` of a table, each as a contiguous row."""
    rows = table.shape[0]
    copied = np.empty((stop - start, rows), dtype=np.int64)
    for row in range(rows):
        for column in range(start, stop):
            copied[column - start, row] = table[row, column]
    return copied


@kernel
def put_columns(table: Integers, start: int, copied: NDArray[np.int64]) -> None:
    """Write rows that `columns` made back to where they came from."""
    for row in range(table.shape[0]):
        for column in range(copied.shape[0]):
            table[row, start + column] = copied[column, row]
