"""Read noisy rows of all regions, combine them up the tree, and make integers of them: one way for every view of rows.

A row of a region holds its `at_least` counts, or its counts of single sizes. The privacy unit decides which: one entity
changes one `at_least` count (or as many as it may add), one group changes two counts. Only the noise and the
constraints of a row differ: `at_least` counts fall with the size and have independent noise. Counts of a region add up
to its total, and their noise is tied.

*Tied noise.* The total of the counts is known: it is public, or it was measured with them (view `counts_total`), at no
cost. With public totals k = K + 1 noisy counts add up to a known number. With private totals k = K + 1 numbers do
too: the K counts and minus the total add up to 0. A k-th of the gap is taken off each. By symmetry that is the best
linear estimate, and the noise that remains has the covariance σ² (I − 1 1ᵀ / k). It is the same on every level, up to
the factor σ². So the weights of the estimates up the tree are numbers, as for independent noise.

*Totals first.* Private totals are a tree with one column. They are made integers from the root down before any count
is. A total has the variance σ² K / (K + 1) there, and the counts of each family are then allocated within totals that
do not change: clipping counts at 0 moves no total.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.allocation import allocate_rows
from tallytree.estimate.transport import allocate_counts
from tallytree.mechanisms.measured_leaves import noisy_values, with_totals
from tallytree.privacy.measurements import Measurements


class NoisyRows(NamedTuple):
    """Noisy rows `[regions, sizes]`, their noise's variance `[levels, sizes]`, and how many numbers tie their noise."""

    values: Floats
    noise: Floats
    cells: int | None  # None for `at_least` counts


def noisy_rows(measurements: Measurements) -> NoisyRows:
    """Return what was measured of the rows: `at_least` counts, or counts with their known sum taken into account."""
    views = {part.view for part in measurements.measured if not part.summed}
    if not views & {"counts", "counts_total"}:
        return NoisyRows(*with_totals(measurements, *noisy_values(measurements)), None)
    cells = measurements.max_size + 1
    if "counts_total" in views:
        values, noise = noisy_values(measurements, "counts_total")
        values, noise, gap = values[:, :-1], noise[:, :-1], values[:, -1] - values[:, :-1].sum(axis=1)
    elif measurements.region_totals is not None:
        values, noise = noisy_values(measurements, "counts")
        gap = measurements.region_totals - values.sum(axis=1)
    else:
        raise ReleaseError("counts of single sizes need their total: measure counts_total")
    return NoisyRows(values + (gap / cells)[:, np.newaxis], noise, cells)


def add_up_sizes(mean: Floats, variance: Floats, cells: int) -> tuple[Floats, Floats]:
    """Return the totals `[regions, 1]` of rows of counts, and their variances."""
    sizes = mean.shape[1]
    return mean.sum(axis=1, keepdims=True), variance[:, :1] * (sizes * (1 - sizes / cells))


class Rows(NamedTuple):
    """Means and standard deviations `[regions, sizes]`, and what integers near them keep."""

    mean: Floats
    deviation: Floats
    tree: Hierarchy
    totals: Integers | None  # of each region; counts always have them
    cells: int | None

    @classmethod
    def of(cls, mean: Floats, deviation: Floats, tree: Hierarchy, totals: Integers | None, cells: int | None) -> Rows:
        """Return the rows; numbers of groups that are neither public nor known are made integers first."""
        if cells is not None and totals is None:
            sums, spread = add_up_sizes(mean, deviation**2, cells)
            totals = allocate_rows(sums, np.sqrt(spread), tree, None)[:, 0].copy()
        return cls(mean, deviation, tree, totals, cells)

    def allocate(self, *, top: Integers | None = None, through: int | None = None, tell: Tell = nobody) -> Integers:
        """Return integers from the top down, through a level, below rows that are already fixed."""
        if self.cells is None:
            return allocate_rows(self.mean, self.deviation, self.tree, self.totals, top=top, through=through, tell=tell)
        assert self.totals is not None
        return allocate_counts(self.mean, self.deviation, self.tree, self.totals, top=top, through=through, tell=tell)
