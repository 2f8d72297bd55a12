"""What the two joint estimators share: the checks of what they are given, and what is known of what they return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy

VALUE_LIMIT = 1 << 45  # beyond it, sums over a thousand sizes are no longer sharp in float64
SUM_LIMIT = 1 << 61


@dataclass(frozen=True, eq=False, kw_only=True)
class Proved:
    """How good an estimate is, and how much of that is proved."""

    objective: float  # Σ weight · (value − noisy)²
    lower_bound: float  # no feasible whole numbers have a smaller objective
    iterations: int  # of the relaxation

    @property
    def gap(self) -> float:
        """The part of the objective that is not proved necessary: 0 means optimal, 0.01 at most 1 % too much."""
        return 0.0 if self.objective <= self.lower_bound else 1 - self.lower_bound / self.objective


def checked_noisy(noisy: Any, hierarchy: Hierarchy) -> Integers:
    """A read-only contiguous int64 array `[regions, columns]`, small enough to be computed with."""
    given = np.asarray(noisy)
    if not np.issubdtype(given.dtype, np.integer):
        raise SpecError(f"noisy holds {given.dtype}; expected integers")
    if given.ndim != 2 or given.shape[0] != len(hierarchy) or given.shape[1] == 0:
        raise SpecError(
            f"noisy has shape {given.shape}; expected ({len(hierarchy)}, sizes): a row per region, some sizes"
        )
    largest = max(int(given.max()), -int(given.min()))
    if largest >= VALUE_LIMIT or largest * max(given.shape) >= SUM_LIMIT:
        raise SpecError(f"noisy holds values up to {largest:,}: their sums may overflow; expected less than 2⁴⁵")
    checked = np.ascontiguousarray(given, dtype=np.int64).view()
    checked.flags.writeable = False
    return checked


def checked_totals(totals: Any, hierarchy: Hierarchy) -> Integers:
    """One non-negative whole number per region, children adding up to their parent."""
    given = np.asarray(totals)
    if given.shape != (len(hierarchy),) or not np.issubdtype(given.dtype, np.integer):
        found = f"{given.dtype} of shape {given.shape}"
        raise SpecError(f"totals are {found}; expected {len(hierarchy)} integers, one per region")
    if int(given.min()) < 0:
        region = int(given.argmin())
        raise SpecError(f"the total of {hierarchy.ids[region]!r} is {int(given[region])}; expected 0 or more")
    if int(given.max()) >= VALUE_LIMIT:
        raise SpecError(f"totals reach {int(given.max()):,}; expected less than 2⁴⁵")
    checked = np.ascontiguousarray(given, dtype=np.int64)
    sums = hierarchy.aggregate(checked[hierarchy.level_slice(hierarchy.depth - 1)])
    if (wrong := np.flatnonzero(sums != checked)).size:
        region = int(wrong[-1])  # the lowest one: those above it may be wrong only because it is
        raise SpecError(
            f"the total of {hierarchy.ids[region]!r} is {checked[region]:,} but its leaf regions' add up to "
            f"{sums[region]:,} ({wrong.size} regions do not add up); give totals that do"
        )
    return checked


def checked_weights(weights: Sequence[Any] | None, hierarchy: Hierarchy) -> Floats:
    """Each region's weight, which is its level's."""
    given = [1.0] * hierarchy.depth if weights is None else [float(weight) for weight in weights]
    if len(given) != hierarchy.depth:
        raise SpecError(
            f"{len(given)} weights for {hierarchy.depth} levels; expected one per level, from the root down"
        )
    if not all(isfinite(weight) and weight > 0 for weight in given):
        raise SpecError(f"weights are {given}; expected positive, finite numbers")
    if max(given) > 1e9 * min(given):
        raise SpecError(f"weights range from {min(given):g} to {max(given):g}; expected a ratio of at most 10⁹")
    return np.array(given)[hierarchy.level_of]


def checked_tolerance(tolerance: float) -> float:
    """A relative gap at which to stop."""
    if not (isfinite(tolerance) and tolerance >= 0):
        raise SpecError(f"tolerance is {tolerance}; expected a relative gap such as 1e-3")
    return float(tolerance)
