"""The views of the measurements that least squares can use: one array, its noise, and which levels it covers.

Where bands of sizes were asked for one by one, noise differs from size to size: each stretch of sizes with the same
questions is a view of its own, and there is none of all sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.notebook import briefly
from tallytree.core.progress import Tell, nobody
from tallytree.estimate.intervals.error_law import Errors, Noise
from tallytree.estimate.intervals.unions import Unions
from tallytree.estimate.tree.least_squares import tree_least_squares
from tallytree.estimate.tree.variances import LEAST_VARIANCE, TreeVariances
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.plan import Band

LinearView = Literal["at_least", "counts"]
Numbers = Integers | Floats
MOST_WORK = 1 << 28  # dependent sums times regions
LINEAR_VIEWS: tuple[LinearView, ...] = ("at_least", "counts")


@dataclass(frozen=True, eq=False)
class MeasuredView:
    """Noisy columns of some levels, all columns of a level with the same noise; zero rows where none was measured."""

    measurements: Measurements
    view: LinearView | Literal["entities"]
    values: Numbers  # `[regions, columns]`
    variances: dict[int, float]  # of every measured level's numbers
    noise: dict[int, Noise]

    __repr__ = briefly

    @classmethod
    def of(cls, measurements: Measurements) -> MeasuredView:
        """The view of all sizes, or a ReleaseError that says why there is none."""
        reason = no_linear(measurements)
        if reason is not None:
            raise ReleaseError(reason)
        view = next(view for view in LINEAR_VIEWS if _of_all_sizes(measurements, view))
        return cls._of_parts(measurements, view, Band(1, measurements.max_size))

    @classmethod
    def of_band(cls, measurements: Measurements, band: Band) -> MeasuredView:
        """`at_least` counts of the sizes of a band, each of which is in the same measurements."""
        return cls._of_parts(measurements, "at_least", band)

    @classmethod
    def _of_parts(cls, measurements: Measurements, view: LinearView, band: Band) -> MeasuredView:
        tree, parts = measurements.hierarchy, {}
        for part in measurements.measured:
            if part.view == view and not part.summed and covers(part, band.first):
                parts[part.level] = part
        columns = {}
        for level, part in parts.items():
            before = 1 if part.sizes is None else part.sizes.first
            wanted = slice(band.first - before, band.last - before + 1) if view == "at_least" else slice(None)
            columns[level] = part.values[:, wanted]
        width = next((found.shape[1] for found in columns.values()), 0)
        missing = {level: np.zeros((count, width), np.int64) for level, count in enumerate(np.diff(tree.level_starts))}
        return cls(
            measurements,
            view,
            np.concatenate([columns.get(level, missing[level]) for level in range(tree.depth)]),
            {level: part.variance for level, part in parts.items()},
            {level: Noise(part.noise, part.scale) for level, part in parts.items()},
        )

    @classmethod
    def of_entities(cls, measurements: Measurements) -> MeasuredView:
        """One column, the number of entities: Σ T[s] or Σ s · count[s], weighed with what was measured of it itself."""
        view, tree = cls.of(measurements), measurements.hierarchy
        weights = np.ones(view.values.shape[1])
        if view.view == "counts":
            weights = np.arange(measurements.first_size, measurements.max_size + 1, dtype=np.float64)
        square, alike = float(weights @ weights), int(np.count_nonzero(weights == weights.max()))
        lead = alike * float(weights.max()) ** 2 / square
        values, variances, noise = view.values @ weights, {}, {}
        for level, given in view.noise.items():
            variances[level] = square * view.variances[level]
            noise[level] = given._replace(copies=alike, part=lead)
        for own in measurements.measured:
            if own.view != "entities":
                continue
            level, rows = own.level, tree.level_slice(own.level)
            precise, derived = 1 / max(own.variance, LEAST_VARIANCE), variances.get(level, math.inf)
            derived = 1 / max(derived, LEAST_VARIANCE)
            part = precise / (precise + derived)  # of the variance that is due to the number as it was measured
            values[rows] = (1 - part) * values[rows] + part * own.values[:, 0]
            variances[level] = 1 / (precise + derived)
            if part >= (1 - part) * lead / alike:
                noise[level] = Noise(own.noise, own.scale, 1, part)
            else:
                noise[level] = noise[level]._replace(part=(1 - part) * lead)
        return cls(measurements, "entities", values[:, np.newaxis], variances, noise)

    @cached_property
    def law(self) -> TreeVariances:
        """The variances of least squares from this view, one column at a time."""
        depth = self.measurements.hierarchy.depth
        return TreeVariances.of(
            self.measurements.hierarchy, [self.variances.get(level, math.inf) for level in range(depth)]
        )

    @cached_property
    def errors(self) -> Errors:
        """The laws of the errors of least squares, of all regions, one column at a time."""
        return Errors.of_regions(self.law, self.noise)

    def fit(self, tell: Tell = nobody) -> Floats:
        """Least squares estimates `[regions, columns]`."""
        return tree_least_squares(self.values, self.measurements.hierarchy, self.law.region_weights, tell=tell)

    def errors_of(self, unions: Unions) -> Errors | None:
        """The laws of the errors of sums over regions, one column at a time.

        Sums of regions in different branches below a root that was not measured have independent terms. For others all
        regions are looked through one by one; None where that would take too long.
        """
        tree = self.measurements.hierarchy
        dependent = np.flatnonzero(unions.share_a_branch(tree) if 0 not in self.noise else unions.sizes > 1)
        if len(dependent) * len(tree) > MOST_WORK:
            return None
        found = self.errors.add_up(unions.rows, unions.starts)
        measured = sorted(self.noise)
        for place in dependent.tolist():
            weights = self.law.region_sum(unions.of(place))
            terms = self.law.measurement_weights(weights) ** 2 * np.where(
                np.isfinite(self.law.noise), self.law.noise, 0
            )
            largest = int(np.argmax(terms))
            level = int(tree.level_of[largest])
            found.lead[place], found.copies[place] = measured.index(level), self.noise[level].copies
            found.term[place] = terms[largest] * self.noise[level].part / self.noise[level].copies
            found.variance[place] = self.law.variance_of(weights)
        return found


def covers(part: Measurement, size: int) -> bool:
    """Is a measurement about this size, among others?"""
    return part.sizes is None or part.sizes.first <= size <= part.sizes.last


def stretches(measurements: Measurements) -> list[Band]:
    """The longest runs of sizes with the same questions about all of their sizes."""
    bands = [part.sizes for part in measurements.measured if part.sizes is not None]
    firsts = sorted({1} | {size for band in bands for size in (band.first, band.last + 1)})
    firsts = [first for first in firsts if first <= measurements.max_size]
    return [
        Band(first, after - 1) for first, after in zip(firsts, [*firsts[1:], measurements.max_size + 1], strict=True)
    ]


def no_guarantee(measurements: Measurements) -> str | None:
    """Why no guaranteed interval follows from these measurements, in one sentence; None if one does.

    Each size of the leaves must be in a view with a proved bound: counts, `at_least` counts, or sorted lists. Lists of
    lengths that are neither public nor measured on the lists' level bound nothing.
    """
    if no_linear(measurements) is None:
        return None
    last = measurements.hierarchy.depth - 1
    leaves = [part for part in measurements.measured if part.level == last and not part.summed]
    there = sorted({part.view for part in leaves})
    listed = measurements.region_totals is not None or "totals" in there
    bounding = [part for part in leaves if part.view == "at_least" or (part.view == "sorted_sizes" and listed)]
    if all(any(covers(part, band.first) for part in bounding) for band in stretches(measurements)):
        return None
    return (
        "Guaranteed intervals need noisy counts, at_least counts or sorted sizes of the smallest regions, and this "
        f"release measured {', '.join(there) or 'nothing'} there: see the typical intervals."
    )


def no_linear(measurements: Measurements) -> str | None:
    """Why sums cannot be estimated straight from these measurements, in one sentence; None if they can."""
    if any(_of_all_sizes(measurements, view) for view in LINEAR_VIEWS):
        return None
    return (
        "Unbiased estimates of sums need noisy counts or at_least counts of the smallest regions, of all sizes with "
        "the same noise, and this release has none."
    )


def _of_all_sizes(measurements: Measurements, view: LinearView) -> bool:
    last = measurements.hierarchy.depth - 1
    parts = [part for part in measurements.measured if part.view == view and not part.summed]
    return any(part.level == last for part in parts) and all(part.sizes is None for part in parts)
