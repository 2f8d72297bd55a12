"""The views of the measurements that least squares can use: one array, its noise, and which levels it covers.

Where bands of sizes were asked for one by one, noise differs from size to size: each stretch of sizes with the same
questions is a view of its own, and there is none of all sizes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.notebook import briefly
from tallytree.estimate.tree.variances import TreeVariances
from tallytree.privacy.accounting import NoiseKind
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.plan import Band

LinearView = Literal["at_least", "counts"]
LINEAR_VIEWS: tuple[LinearView, ...] = ("at_least", "counts")


@dataclass(frozen=True, eq=False)
class MeasuredView:
    """Noisy `at_least` or `counts` of some levels, the last among them; zero rows where a level was not measured.

    With a `band` it is `at_least` of these sizes alone, each of them in the same measurements.
    """

    measurements: Measurements
    view: LinearView
    band: Band | None = None

    __repr__ = briefly

    @classmethod
    def of(cls, measurements: Measurements) -> MeasuredView:
        """The view of all sizes, or a ReleaseError that says why there is none."""
        reason = no_linear(measurements)
        if reason is not None:
            raise ReleaseError(reason)
        return cls(measurements, next(view for view in LINEAR_VIEWS if _of_all_sizes(measurements, view)))

    @cached_property
    def parts(self) -> dict[int, Measurement]:
        """What was measured, by level."""
        return {
            part.level: part
            for part in self.measurements.measured
            if part.view == self.view and not part.summed and (self.band is None or covers(part, self.band.first))
        }

    @cached_property
    def values(self) -> Integers:
        """`[regions, columns]`."""
        tree = self.measurements.hierarchy
        found = {level: self._columns(part) for level, part in self.parts.items()}
        columns = next(iter(found.values())).shape[1]
        missing = {
            level: np.zeros((count, columns), np.int64) for level, count in enumerate(np.diff(tree.level_starts))
        }
        return np.concatenate([found.get(level, missing[level]) for level in range(tree.depth)])

    def _columns(self, part: Measurement) -> Integers:
        if self.band is None:
            values: Integers = part.values
            return values
        before = 1 if part.sizes is None else part.sizes.first
        wanted: Integers = part.values[:, self.band.first - before : self.band.last - before + 1]
        return wanted

    @cached_property
    def noise(self) -> dict[int, tuple[NoiseKind, Fraction]]:
        """Kind and scale of the noise of every measured level."""
        return {level: (part.noise, part.scale) for level, part in self.parts.items()}

    @cached_property
    def law(self) -> TreeVariances:
        """The variances of least squares from this view, one column at a time."""
        tree = self.measurements.hierarchy
        given = {level: part.variance for level, part in self.parts.items()}
        return TreeVariances.of(tree, [given.get(level, math.inf) for level in range(tree.depth)])


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
