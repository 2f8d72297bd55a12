"""Sums over regions and sizes, straight from the measurements: unbiased estimates with exact variances.

Released counts are whole and not negative, which makes them a little biased; the least squares estimate of a sum is not
biased and its variance is known exactly. Errors of different columns are independent and of one law, so the estimate of
Σ_r Σ_j a_r d_j x[r, j] has the variance (Σ_j d_j²) · Var(Σ_r a_r x_r), and two such sums (a, d) and (b, e) have the
covariance (Σ_j d_j e_j) · Cov(Σ_r a_r x_r, Σ_r b_r x_r).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats
from tallytree.core.errors import SpecError
from tallytree.core.notebook import briefly
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.measured_view import MeasuredView
from tallytree.estimate.intervals.noise_tails import quantile
from tallytree.estimate.intervals.value import checked_level
from tallytree.privacy.accounting import NoiseKind
from tallytree.privacy.measurements import Measurements


@dataclass(frozen=True, eq=False)
class LinearSum:
    """constant + Σ_r Σ_j region_weights[r] · column_weights[j] · x[r, j], estimated by least squares."""

    view: MeasuredView
    region_weights: Floats
    column_weights: Floats
    estimate: float
    variance: float

    __repr__ = briefly

    def covariance_with(self, other: LinearSum) -> float:
        """The exact covariance of two estimates from the same measurements."""
        columns = float(self.column_weights @ other.column_weights)
        return columns * self.view.law.covariance_of(self.region_weights, other.region_weights) if columns else 0.0

    def half_width(self, level: float = 0.95) -> float:
        """No further from the truth is the estimate, with at least this probability."""
        return self.reach(1 - checked_level(level))

    def reach(self, chance: float) -> float:
        """Further from the truth is the estimate with at most this probability."""
        return _half_width([self], [1.0], self.variance, 1 - chance)

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The estimate ± its half-width."""
        half = self.half_width(level)
        return self.estimate - half, self.estimate + half


@dataclass(frozen=True)
class LinearDifference:
    """The difference of two sums: its unbiased estimate, exact variance and interval."""

    estimate: float
    variance: float
    lower: float
    upper: float


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums with its interval, both ends infinite where the denominator may be zero."""

    estimate: float  # not a number where the denominator's estimate is zero
    lower: float
    upper: float

    @property
    def bounded(self) -> bool:
        """Whether the measurements bound the ratio at all."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)


def linear_estimate(
    measurements: Measurements | MeasuredView, regions: Iterable[int], sizes: Iterable[int]
) -> LinearSum:
    """How many groups of the given sizes lie in the union of the given regions (indices of the hierarchy).

    A region within another one that is given too counts once. The last size stands for all larger ones. Unknown
    regions or sizes and empty sums are refused with a SpecError; measurements that allow no linear estimate with a
    ReleaseError. Who has many questions makes one `MeasuredView` and gives that in place of the measurements.
    """
    view = _viewed(measurements)
    facts = view.measurements
    wanted = _checked_sizes(sizes, range(facts.first_size, facts.max_size + 1))
    by_size = np.zeros(facts.max_size + 2)
    by_size[wanted] = 1.0
    return _summed(view, _union(regions, facts.hierarchy), by_size)


def entities(measurements: Measurements | MeasuredView, regions: Iterable[int]) -> LinearSum:
    """Σ size · count in the union of regions, the last size counted as itself: so truncated at the largest size."""
    view = _viewed(measurements)
    by_size = np.arange(view.measurements.max_size + 2, dtype=np.float64)
    by_size[-1] = 0.0
    return _summed(view, _union(regions, view.measurements.hierarchy), by_size)


def groups(measurements: Measurements | MeasuredView, regions: Iterable[int]) -> LinearSum:
    """How many groups there are in the union of regions; exact, with variance 0, where totals are public."""
    view, named = _viewed(measurements), list(regions)
    facts = view.measurements
    if facts.region_totals is None:
        return linear_estimate(view, named, range(facts.first_size, facts.max_size + 1))
    union = _union(named, facts.hierarchy)
    total = float(facts.region_totals[union].sum())
    return LinearSum(view, view.law.region_sum(union), np.zeros(view.values.shape[1]), total, 0.0)


def mean_size(measurements: Measurements | MeasuredView, regions: Iterable[int], *, level: float = 0.95) -> Ratio:
    """Entities per group in the union of regions, with its interval; sizes are truncated at the largest one.

    Groups of size 0 count where totals are public, and are not known of where they are private.
    """
    view, named = _viewed(measurements), list(regions)
    return ratio(entities(view, named), groups(view, named), level=level)


def difference(one: LinearSum, other: LinearSum, *, level: float = 0.95) -> LinearDifference:
    """one − other, with the exact variance of a difference of correlated estimates."""
    _same_measurements(one, other)
    variance = max(0.0, one.variance + other.variance - 2 * one.covariance_with(other))
    half = _half_width([one, other], [1.0, -1.0], variance, checked_level(level))
    value = one.estimate - other.estimate
    return LinearDifference(value, variance, value - half, value + half)


def ratio(numerator: LinearSum, denominator: LinearSum, *, level: float = 0.95) -> Ratio:
    """numerator / denominator by Fieller's theorem: all R for which numerator − R · denominator may be 0.

    That difference is linear, so the interval has the coverage of a linear one. The quantile, in standard deviations,
    is the largest of three: of the two sums and of their difference at the estimated ratio. Where the denominator's own
    interval holds 0, no ratio can be ruled out on at least one side, and the interval is unbounded.
    """
    _same_measurements(numerator, denominator)
    level = checked_level(level)
    top, bottom = numerator.estimate, denominator.estimate
    value = top / bottom if bottom else math.nan
    both, covariance = [numerator, denominator], numerator.covariance_with(denominator)
    square = 0.0
    for signs in ([1.0, 0.0], [0.0, 1.0], [1.0, -value if bottom else 0.0]):
        variance = signs[0] ** 2 * numerator.variance + signs[1] ** 2 * denominator.variance
        variance += 2 * signs[0] * signs[1] * covariance
        if variance > 0:
            square = max(square, _half_width(both, signs, variance, level) ** 2 / variance)
    # (top − R bottom)² ≤ square · (Var top − 2 R Cov + R² Var bottom): a quadratic inequality in R.
    leading = bottom**2 - square * denominator.variance
    if leading <= 0:
        return Ratio(value, -math.inf, math.inf)
    middle = top * bottom - square * covariance
    last = top**2 - square * numerator.variance
    spread = math.sqrt(max(0.0, middle**2 - leading * last))
    return Ratio(value, (middle - spread) / leading, (middle + spread) / leading)


# -------------------------------------------------------------------- how a sum is made


def _viewed(measurements: Measurements | MeasuredView) -> MeasuredView:
    return measurements if isinstance(measurements, MeasuredView) else MeasuredView.of(measurements)


def _summed(view: MeasuredView, union: list[int], by_size: Floats) -> LinearSum:
    """Σ by_size[s] · count[s] over regions; `by_size` runs from 0 to K + 1 and ends in 0."""
    measurements = view.measurements
    constant = 0.0
    if view.view == "counts":
        columns = by_size[measurements.first_size : -1].copy()
    else:
        # Σ f(s) (T[s] − T[s + 1]) = f(0) T[0] + Σ (f(s) − f(s − 1)) T[s], and T[0] is the public total or not counted.
        by_size = by_size.copy()
        columns = np.diff(by_size[:-1])
        if measurements.region_totals is not None:
            constant = float(by_size[0] * measurements.region_totals[union].sum())
    weights = view.law.region_sum(union)
    used = np.flatnonzero(columns)
    estimate = constant + float(view.law.measurement_weights(weights) @ (view.values[:, used] @ columns[used]))
    return LinearSum(view, weights, columns, estimate, float(columns @ columns) * view.law.variance_of(weights))


def _half_width(sums: list[LinearSum], signs: list[float], variance: float, level: float) -> float:
    """The quantile of a signed total of sums: its largest terms as they are, the rest by its variance (`quantile`)."""
    if variance <= 0:
        return 0.0
    kind, scale, copies, part = _leading_terms(sums, signs, variance)
    return quantile(kind, scale, copies, part, (1 - level) / 2) * math.sqrt(variance)


def _leading_terms(
    sums: list[LinearSum], signs: list[float], variance: float
) -> tuple[NoiseKind, Fraction, int, float]:
    """The noise that counts most: its law, on how many columns it has the same weight, and their part of the variance.

    The measurement of region r and column j has the weight Σ sign · k_r · d_j, which depends on j through the d alone.
    """
    view = sums[0].view
    on_regions = [
        sign * each.view.law.measurement_weights(each.region_weights) for sign, each in zip(signs, sums, strict=True)
    ]
    on_columns = np.stack([each.column_weights for each in sums])
    noise = np.where(np.isfinite(view.law.noise), view.law.noise, 0.0)
    best = (0.0, 0, 1)
    for column, count in zip(*_distinct_columns(on_columns), strict=True):
        terms = sum(weight * on_region for weight, on_region in zip(column, on_regions, strict=True)) ** 2 * noise
        lead = int(np.argmax(terms))
        best = max(best, (float(terms[lead]), lead, int(count)))
    largest, region, count = best
    kind, scale = view.noise[int(view.measurements.hierarchy.level_of[region])]
    return kind, scale, count, min(1.0, count * largest / variance)


def _distinct_columns(on_columns: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """The columns that differ by more than their sign, and how many there are of each."""
    signs = np.sign(on_columns[np.argmax(on_columns != 0, axis=0), np.arange(on_columns.shape[1])])
    found, counts = np.unique((on_columns * signs).T, axis=0, return_counts=True)
    return found, counts.astype(np.int64)


def _union(regions: Iterable[int], hierarchy: Hierarchy) -> list[int]:
    """The regions without those that lie within another of them; refused if there are none or one is not there."""
    named = set(regions)
    if not named:
        raise SpecError("the sum is empty: no region was given; name at least one")
    for region in named:
        if isinstance(region, bool) or not isinstance(region, int | np.integer) or not 0 <= region < len(hierarchy):
            raise SpecError(f"there is no region {region!r}; expected an index from 0 to {len(hierarchy) - 1}")
    kept = []
    for region in sorted(int(each) for each in named):
        above = int(hierarchy.parents[region])
        while above >= 0 and above not in named:
            above = int(hierarchy.parents[above])
        if above < 0:
            kept.append(region)
    return kept


def _checked_sizes(sizes: Iterable[int], known: range) -> list[int]:
    wanted = sorted(set(sizes))
    if not wanted:
        raise SpecError("the sum is empty: no size was given; name at least one")
    for size in wanted:
        if isinstance(size, bool) or size not in known:
            raise SpecError(f"there is no size {size!r}; sizes run from {known[0]} to {known[-1]}, the last or more")
    return [int(size) for size in wanted]


def _same_measurements(one: LinearSum, other: LinearSum) -> None:
    if one.view.measurements is not other.view.measurements:
        raise SpecError("the two sums come from different measurements; their errors cannot be set against each other")
