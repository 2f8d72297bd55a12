"""Compute linear estimates straight from the measurements: unbiased, with exact variances and known tails.

*Views of the measurements that least squares can use* (`MeasuredView`): one array, its noise, and the levels that it
covers. If bands of sizes were measured separately, noise differs from size to size. Then each stretch of sizes with the
same measurement queries is a separate view, and no view covers all sizes.

*Sums over regions and sizes* (`LinearSum`). Released counts are non-negative integers, which makes them slightly
biased. The least squares estimate of a sum is unbiased, and its variance is known exactly. Errors of different columns
are independent and of one law, so the estimate of Σ_r Σ_j a_r d_j x[r, j] has the variance (Σ_j d_j²) · Var(Σ_r a_r
x_r), and two such sums (a, d) and (b, e) have the covariance (Σ_j d_j e_j) · Cov(Σ_r a_r x_r, Σ_r b_r x_r).

*Counts with their total* are K + 1 columns with independent errors. The total less all counts is 0, so any multiple of
it may be added to a sum: Σ_j (d_j − c) x_j + c x_total has the same expectation for every c. The variance is least for
c = Σ_j d_j / (K + 1).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.names import briefly
from tallytree.core.progress import Tell, nobody
from tallytree.estimate.intervals.interval import checked_level
from tallytree.estimate.intervals.tails import Errors, Noise
from tallytree.estimate.intervals.unions import Unions
from tallytree.estimate.least_squares import LEAST_VARIANCE, TreeVariances, tree_least_squares
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.plan import Band

LinearView = Literal["at_least", "counts", "counts_total"]
Numbers = Integers | Floats
MOST_WORK = 1 << 28  # the most dependent sums times regions
LINEAR_VIEWS: tuple[LinearView, ...] = ("at_least", "counts", "counts_total")


@dataclass(frozen=True, eq=False)
class MeasuredView:
    """Noisy columns of some levels, all columns of a level with the same noise; zero rows for levels without
    measurements.
    """

    measurements: Measurements
    view: LinearView | Literal["sum"]  # of columns
    values: Numbers  # `[regions, columns]`
    variances: dict[int, float]  # of the noise, by measured level
    noise: dict[int, Noise]

    __repr__ = briefly

    @classmethod
    def of(cls, measurements: Measurements) -> MeasuredView:
        """Return the view of all sizes; if there is no such view, raise a ReleaseError that gives the reason."""
        reason = no_linear(measurements)
        if reason is not None:
            raise ReleaseError(reason)
        view = next(view for view in LINEAR_VIEWS if _of_all_sizes(measurements, view))
        return cls._of_parts(measurements, view, Band(1, measurements.max_size))

    @classmethod
    def of_band(cls, measurements: Measurements, band: Band) -> MeasuredView:
        """Return the `at_least` counts of the sizes of a band; all sizes must be in the same measurements."""
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
    def of_sum(cls, measurements: Measurements, by_size: Floats) -> tuple[MeasuredView, float]:
        """Return one column, Σ by_size · count, and the weight of the public total that is to be added to it.

        `by_size` runs from 0 to K + 1 and ends in 0. A number of entities is combined with its own measurement, if any.
        """
        view = cls.of(measurements)
        weights, of_total = _column_weights(view, by_size)
        square = float(weights @ weights)
        largest = float(np.abs(weights).max())
        alike = int(np.count_nonzero(np.abs(weights) == largest))
        lead = alike * largest**2 / square
        values, variances, noise = view.values @ weights, {}, {}
        for level, given in view.noise.items():
            variances[level] = square * view.variances[level]
            noise[level] = given._replace(copies=alike, part=lead)
        found = cls(measurements, "sum", values[:, np.newaxis], variances, noise)
        return (found._with_entities() if np.array_equal(by_size, entity_weights(measurements)) else found), of_total

    def _with_entities(self) -> MeasuredView:
        """Return numbers of entities combined with their own measurements."""
        values, variances, noise = self.values[:, 0].astype(np.float64), dict(self.variances), dict(self.noise)
        for own in self.measurements.measured:
            if own.view != "entities":
                continue
            level, rows = own.level, self.measurements.hierarchy.level_slice(own.level)
            precise, derived = 1 / max(own.variance, LEAST_VARIANCE), variances.get(level, math.inf)
            derived = 1 / max(derived, LEAST_VARIANCE)
            part = precise / (precise + derived)  # the part of the variance that is due to the number's own measurement
            values[rows] = (1 - part) * values[rows] + part * own.values[:, 0]
            variances[level] = 1 / (precise + derived)
            given = noise.get(level)
            if given is None or part >= (1 - part) * given.part / given.copies:
                noise[level] = Noise(own.noise, own.scale, 1, part)
            else:
                noise[level] = given._replace(part=(1 - part) * given.part)
        return MeasuredView(self.measurements, "sum", values[:, np.newaxis], variances, noise)

    @cached_property
    def law(self) -> TreeVariances:
        """Return the variances of least squares from this view, one column at a time."""
        depth = self.measurements.hierarchy.depth
        return TreeVariances.of(
            self.measurements.hierarchy, [self.variances.get(level, math.inf) for level in range(depth)]
        )

    @cached_property
    def errors(self) -> Errors:
        """Return the laws of the errors of least squares, of all regions, one column at a time."""
        return Errors.of_regions(self.law, self.noise)

    def fit(self, tell: Tell = nobody) -> Floats:
        """Return least squares estimates `[regions, columns]`."""
        return tree_least_squares(self.values, self.measurements.hierarchy, self.law.region_weights, tell=tell)

    def errors_of(self, unions: Unions) -> Errors | None:
        """Return the laws of the errors of sums over regions, one column at a time.

        Sums of regions in different branches below a root that was not measured have independent terms. Other sums need
        a pass over all regions each; the result is None if that would take too long.
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
    """Return whether a measurement covers this size."""
    return part.sizes is None or part.sizes.first <= size <= part.sizes.last


def stretches(measurements: Measurements) -> list[Band]:
    """Return the longest runs of sizes that have the same measurement queries at every size."""
    bands = [part.sizes for part in measurements.measured if part.sizes is not None]
    firsts = sorted({1} | {size for band in bands for size in (band.first, band.last + 1)})
    firsts = [first for first in firsts if first <= measurements.max_size]
    return [
        Band(first, after - 1) for first, after in zip(firsts, [*firsts[1:], measurements.max_size + 1], strict=True)
    ]


def no_guarantee(measurements: Measurements) -> str | None:
    """Return why no guaranteed interval follows from these measurements, in one sentence; None if one does.

    Each size of the leaves must be in a view with a proved bound: counts, `at_least` counts, or sorted lists. Lists
    bound nothing if their lengths are neither public nor measured on the lists' level.
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
    """Return why sums cannot be estimated straight from these measurements, in one sentence; None if they can."""
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


# -------------------------------------------------------------------- many sums, or their changes


class Estimates(NamedTuple):
    """Unbiased estimates of several sums, and the laws of their errors."""

    values: Floats
    errors: Errors

    def minus(self, other: Estimates, factor: float | Floats = 1.0) -> Estimates:
        """Return these estimates less a multiple of those of another release, whose noise is independent."""
        return Estimates(self.values - factor * other.values, self.errors.plus(other.errors.scaled(factor)))


def estimate_sums(measurements: Measurements, by_size: Floats, unions: Unions) -> Estimates | None:
    """Estimate Σ by_size · count in each union of regions; None if the errors would take too long to compute.

    `by_size` runs from 0 to K + 1 and ends in 0.
    """
    view, of_total = MeasuredView.of_sum(measurements, by_size)
    errors = view.errors_of(unions)
    if errors is None:
        return None
    values = unions.add_up(view.fit()[:, 0])
    if measurements.region_totals is not None:
        values = values + of_total * unions.add_up(measurements.region_totals)
    return Estimates(values, errors)


# -------------------------------------------------------------------- linear


class Term(NamedTuple):
    """Σ_r Σ_j regions[r] · columns[j] · x[r, j], where x is what a view measured."""

    view: MeasuredView
    regions: Floats
    columns: Floats


@dataclass(frozen=True, eq=False)
class LinearSum:
    """A linear functional of true counts: its unbiased estimate, and the noise of that estimate.

    Terms of the same measurements have their exact covariance. Terms of different ones, as of two releases, are
    independent.
    """

    terms: tuple[Term, ...]
    estimate: float

    __repr__ = briefly

    @cached_property
    def variance(self) -> float:
        """Return the exact variance of the estimate."""
        return max(0.0, self.covariance_with(self))

    def covariance_with(self, other: LinearSum) -> float:
        """Return the exact covariance of two estimates."""
        total = 0.0
        for one in self.terms:
            for two in other.terms:
                columns = float(one.columns @ two.columns) if one.view.measurements is two.view.measurements else 0.0
                total += columns * one.view.law.covariance_of(one.regions, two.regions) if columns else 0.0
        return total

    def minus(self, other: LinearSum, factor: float = 1.0) -> LinearSum:
        """Return this sum less a multiple of another one, of the same measurements or of another release's."""
        negated = tuple(term._replace(columns=-factor * term.columns) for term in other.terms)
        return LinearSum((*self.terms, *negated), self.estimate - factor * other.estimate)

    @cached_property
    def errors(self) -> Errors:
        """Return the law of the error: the largest terms on the columns where they have the same weight, and the
        variance.

        The measurement of region r and column j has the weight Σ k_r · d_j over terms, which depends on j through the d
        alone.
        """
        noise: list[Noise] = []
        best = (0.0, 0, 1)
        for measurements in {id(term.view.measurements): term.view.measurements for term in self.terms}.values():
            terms = [term for term in self.terms if term.view.measurements is measurements]
            view = terms[0].view
            weights = np.stack([view.law.measurement_weights(term.regions) for term in terms])
            spread = np.where(np.isfinite(view.law.noise), view.law.noise, 0.0)
            for column, alike in zip(*_distinct_columns(np.stack([term.columns for term in terms])), strict=True):
                squares = (column @ weights) ** 2 * spread
                lead = int(np.argmax(squares))
                if squares[lead] > best[0]:
                    best = (float(squares[lead]), len(noise), int(alike))
                    noise.append(view.noise[int(measurements.hierarchy.level_of[lead])])
        term, lead, copies = best
        return Errors(tuple(noise), np.array([lead]), np.array([copies]), np.array([term]), np.array([self.variance]))

    def reach(self, chance: float) -> float:
        """Return a distance that the error of the estimate exceeds with at most this probability, on each side."""
        return float(self.errors.reach(chance / 2)[0]) if self.variance > 0 else 0.0

    def half_width(self, level: float = 0.95) -> float:
        """Return a distance within which the truth lies with at least this probability."""
        return self.reach(1 - checked_level(level))


@dataclass(frozen=True)
class Ratio:
    """A ratio of two sums with its interval; both ends are infinite if the denominator may be zero."""

    estimate: float  # NaN if the denominator's estimate is zero
    lower: float
    upper: float

    @property
    def bounded(self) -> bool:
        """Return whether the measurements bound the ratio at all."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)


def linear_sum(view: MeasuredView, regions: Sequence[int], by_size: Floats) -> LinearSum:
    """Estimate Σ by_size · count over disjoint regions; it is exact where it follows from public totals.

    `by_size` runs from 0 to K + 1 and ends in 0. The last size K stands for all larger ones.
    """
    columns, of_total = _column_weights(view, by_size)
    totals = view.measurements.region_totals
    constant = 0.0 if totals is None else float(of_total * totals[list(regions)].sum())
    weights = view.law.region_sum(regions)
    used = np.flatnonzero(columns)
    estimate = constant + float(view.law.measurement_weights(weights) @ (view.values[:, used] @ columns[used]))
    return LinearSum((Term(view, weights, columns),), estimate)


def entity_weights(measurements: Measurements) -> Floats:
    """Return the weights of the sizes 0 … K + 1 in a number of entities."""
    by_size = np.arange(measurements.max_size + 2, dtype=np.float64)
    by_size[-1] = 0.0
    return by_size


def ratio(numerator: LinearSum, denominator: LinearSum, *, level: float = 0.95) -> Ratio:
    """Estimate numerator / denominator by Fieller's theorem: all R for which numerator − R · denominator may be 0.

    That difference is linear, so the interval has the coverage of a linear one. The quantile, in standard deviations,
    is the largest of three: of the two sums and of their difference at the estimated ratio. Where the denominator's own
    interval holds 0, no ratio can be ruled out on at least one side, and the interval is unbounded.
    """
    level = checked_level(level)
    top, bottom = numerator.estimate, denominator.estimate
    value = top / bottom if bottom else math.nan
    square = 0.0
    for each in (numerator, denominator, numerator.minus(denominator, value if bottom else 0.0)):
        if each.variance > 0:
            square = max(square, each.half_width(level) ** 2 / each.variance)
    variances = numerator.variance, denominator.variance, numerator.covariance_with(denominator)
    lower, upper = fieller(top, bottom, *variances, square)
    return Ratio(value, float(lower), float(upper))


def fieller(top: Any, bottom: Any, of_top: Any, of_bottom: Any, covariance: Any, square: Any) -> tuple[Any, Any]:
    """Return the ends of ratios from two estimates, their variances and covariance; infinite where they are unbounded.

    They solve (top − R bottom)² ≤ square · (Var top − 2 R Cov + R² Var bottom), a quadratic inequality in R.
    """
    leading = bottom**2 - square * of_bottom
    middle, last = top * bottom - square * covariance, top**2 - square * of_top
    spread = np.sqrt(np.maximum(0.0, middle**2 - leading * last))
    bounded, divisor = leading > 0, np.where(leading > 0, leading, 1.0)
    lower = np.where(bounded, (middle - spread) / divisor, -math.inf)
    return lower, np.where(bounded, (middle + spread) / divisor, math.inf)


# -------------------------------------------------------------------- how a sum is made


def _column_weights(view: MeasuredView, by_size: Floats) -> tuple[Floats, float]:
    """Return the weights of the measured columns, and that of the public total, in Σ by_size · count.

    With public totals the counts of all sizes add up to a known number. So the most frequent weight may be taken off
    all sizes, where that leaves less noise.
    """
    facts = view.measurements
    if view.view == "at_least":
        # Σ f(s) (T[s] − T[s + 1]) = f(0) T[0] + Σ (f(s) − f(s − 1)) T[s], and T[0] is the public total or not counted.
        return np.diff(by_size[:-1]), float(by_size[0])
    columns = by_size[facts.first_size : -1].copy()
    if view.view == "counts_total":
        return with_total(columns), 0.0
    each, times = np.unique(columns, return_counts=True)
    usual = float(each[np.argmax(times)])
    if facts.region_totals is None or np.sum((columns - usual) ** 2) >= np.sum(columns**2):
        return columns, 0.0
    return columns - usual, usual


def with_total(columns: Floats) -> Floats:
    """Return the weights of counts and their total in Σ columns · count: those with the least variance.

    >>> with_total(np.ones(3)).tolist()
    [0.25, 0.25, 0.25, 0.75]
    """
    part = float(columns.sum()) / (len(columns) + 1)
    return np.append(columns - part, part)


def cell_columns(view: str, max_size: int) -> list[Floats]:
    """Return the weights of the columns in a count that is one column, or a difference of two, of a view.

    >>> [each.tolist() for each in cell_columns("at_least", 3)]
    [[1.0], [1.0, -1.0]]
    """
    if view == "counts_total":
        return [with_total(np.eye(1, max_size)[0])]
    return [np.array([1.0]), *([np.array([1.0, -1.0])] if view == "at_least" else [])]


def _distinct_columns(on_columns: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Return the columns that differ by more than their sign, and the number of columns like each."""
    signs = np.sign(on_columns[np.argmax(on_columns != 0, axis=0), np.arange(on_columns.shape[1])])
    found, counts = np.unique((on_columns * signs).T, axis=0, return_counts=True)
    return found, counts.astype(np.int64)
