"""The view of the measurements that least squares can use: one array, its noise, and which levels it covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import ReleaseError
from tallytree.estimate.tree.variances import TreeVariances
from tallytree.notebook import briefly
from tallytree.privacy.accounting import NoiseKind
from tallytree.privacy.measurements import Measurement, Measurements

LinearView = Literal["at_least", "counts"]
LINEAR_VIEWS: tuple[LinearView, ...] = ("at_least", "counts")


@dataclass(frozen=True, eq=False)
class MeasuredView:
    """Noisy `at_least` or `counts` of some levels, the last among them; zero rows where a level was not measured."""

    measurements: Measurements
    view: LinearView

    __repr__ = briefly

    @classmethod
    def of(cls, measurements: Measurements) -> MeasuredView:
        """The view to use, or a ReleaseError that says why there is none."""
        reason = no_guarantee(measurements)
        if reason is not None:
            raise ReleaseError(reason)
        return cls(measurements, next(view for view in LINEAR_VIEWS if _covers_leaves(measurements, view)))

    @cached_property
    def values(self) -> Integers:
        """`[regions, columns]`."""
        parts = {part.level: part.values for part in _whole(self.measurements, self.view)}
        tree = self.measurements.hierarchy
        columns = next(iter(parts.values())).shape[1]
        missing = {
            level: np.zeros((count, columns), np.int64) for level, count in enumerate(np.diff(tree.level_starts))
        }
        return np.concatenate([parts.get(level, missing[level]) for level in range(tree.depth)])

    @cached_property
    def noise(self) -> dict[int, tuple[NoiseKind, Fraction]]:
        """Kind and scale of the noise of every measured level."""
        return {part.level: (part.noise, part.scale) for part in _whole(self.measurements, self.view)}

    @cached_property
    def law(self) -> TreeVariances:
        """The variances of least squares from this view, one column at a time."""
        given = {part.level: part.variance for part in _whole(self.measurements, self.view)}
        tree = self.measurements.hierarchy
        return TreeVariances.of(tree, [given.get(level, math.inf) for level in range(tree.depth)])


def no_guarantee(measurements: Measurements) -> str | None:
    """Why no guaranteed interval follows from these measurements, in one sentence; None if one does.

    A view whose error is no weighted sum of independent noise (sorted sizes, say) needs a proved band of its own; this
    is where it would be let through.
    """
    if any(_covers_leaves(measurements, view) for view in LINEAR_VIEWS):
        return None
    last = measurements.hierarchy.depth - 1
    below = [part for part in measurements.measured if part.level == last]
    there = sorted({part.view + ("" if part.sizes is None else " in bands of sizes") for part in below})
    return (
        "Guaranteed intervals need noisy counts or at_least counts of the smallest regions, and this release measured "
        f"{', '.join(there) or 'nothing'} there: see the typical intervals."
    )


def _covers_leaves(measurements: Measurements, view: LinearView) -> bool:
    last = measurements.hierarchy.depth - 1
    return any(part.level == last for part in _whole(measurements, view))


def _whole(measurements: Measurements, view: LinearView) -> list[Measurement]:
    """What was measured of a view for all sizes at once; bands of sizes are not used yet."""
    return [part for part in measurements.measured if part.view == view and part.sizes is None]
