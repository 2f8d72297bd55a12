"""NOT PRIVATE: how often intervals hold the truth, by level and kind of cell, and clusters planted to break them.

Coverage differs by kind of cell (a zero beyond the largest group is easy, a lone cluster is hard), so it is told by
kind, and the average over all cells, most of which are easy, is not told at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.estimate.intervals.value import Intervals
from tallytree.evaluate.truth import Truth
from tallytree.hierarchy import Hierarchy

KINDS = ("zero beyond the support", "zero within the support", "1–9", "10–99", "100 or more", "planted cluster")


@dataclass(frozen=True)
class Stratum:
    """The cells of one kind on one level: how many, in how many the interval held, and the intervals' mean width."""

    level: str
    kind: str
    cells: int
    held: int
    widths: int

    @property
    def coverage(self) -> float:
        """The share of cells whose interval held the truth."""
        return self.held / self.cells

    @property
    def width(self) -> float:
        """The mean of upper − lower."""
        return self.widths / self.cells

    def __add__(self, other: Stratum) -> Stratum:
        """Two runs' cells taken together."""
        return replace(
            self, cells=self.cells + other.cells, held=self.held + other.held, widths=self.widths + other.widths
        )


def kinds_of(counts: Integers, planted: NDArray[np.bool_] | None = None) -> NDArray[np.int8]:
    """For every true cell `[regions, sizes]` its kind, as a place in `KINDS`."""
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1] == 0
    kinds = (1 + np.digitize(counts, [1, 10, 100])).astype(np.int8)
    kinds[beyond] = 0
    if planted is not None:
        kinds[planted] = len(KINDS) - 1
    return kinds


def strata(intervals: Intervals, truth: Integers, hierarchy: Hierarchy, kinds: NDArray[np.int8]) -> Iterator[Stratum]:
    """The strata that have cells, level by level from the top."""
    held = (intervals.lower <= truth) & (truth <= intervals.upper)
    widths = intervals.upper - intervals.lower
    for level, name in enumerate(hierarchy.levels):
        regions = hierarchy.level_slice(level)
        for kind, words in enumerate(KINDS):
            here = kinds[regions] == kind
            if cells := int(np.count_nonzero(here)):
                yield Stratum(name, words, cells, int(held[regions][here].sum()), int(widths[regions][here].sum()))


def with_clusters(truth: Truth, *, clusters: int, groups: int = 10, seed: int = 0) -> tuple[Truth, NDArray[np.bool_]]:
    """The same truth with so many clusters, each of `groups` groups of one odd size in one leaf; and where they are.

    A cluster lies at a size, beyond the first third of all, that no group of its leaf has. The mask
    is `[regions, sizes]` and marks the leaves' cells, and those above of whose groups at least half are planted.
    """
    rng = np.random.default_rng(seed)
    counts, sizes = truth.counts, truth.counts.shape[1]
    spots = rng.permutation(np.flatnonzero(counts[:, sizes // 3 :].ravel() == 0))[:clusters]
    leaf, size = np.divmod(spots, sizes - sizes // 3)
    size += sizes // 3
    planted = np.zeros_like(counts)
    planted[leaf, size] = groups
    changed = replace(truth, name=f"{truth.name} with clusters", counts=counts + planted)
    share = truth.hierarchy.aggregate(planted)
    return changed, (share > 0) & (2 * share >= changed.all_levels())
