"""Compute guaranteed intervals: each contains its true count with at least the stated probability, for any true counts.

True counts are those of the data as they were counted: if rows were dropped before counting, those of the remaining
rows.

Two bounds are used, each with a part of the error probability.

*Direct.* Least squares on the tree (`least_squares`) is unbiased and linear in the measurements, with an exact variance
and known tails (`tails`). If counts were measured, a cell is one column, and with their total a sum of all columns. If
`at_least` counts T were measured, it is T[s] − T[s + 1], or G − T[1] for size 0 under public totals G.

*Window*, for the upper end, where `at_least` counts were measured. Counts are non-negative, so T never rises, and

    T[s] − T[s + 1]  ≤  mean(T[s − w + 1 … s]) − mean(T[s + 1 … s + w])

for every w: a mean over the w columns up to s is at least T[s], one over the w columns after s at most T[s + 1]. The
right side has less noise for larger w, and in a sparse tail it is hardly larger than the left side. T[s] = G for s ≤ 0
under public totals and 0 for s > K are known exactly and enter without noise. Each of the windows has an equal part of
the error probability (Bonferroni), so the least of their bounds holds with all of it.

If neither was measured for all sizes alike (lists of sizes, bands of sizes), the bounds of T[s] and T[s + 1] are found
separately (`one_sided_bounds`), each with a quarter of the error probability.

An unbiased estimate can lie outside the possible range, below 0 or above a public total. It is moved to the nearest
possible number before its half-width is added. This can only make intervals longer, so they hold at least as often.
Without it, an estimate far below 0 would get the interval 0 … 0, the narrowest one where least is known. For the same
reason no interval is a single number, unless no other number is possible (a public total of 0).

The true count is a non-negative integer, so an interval consists of the integers between the two ends, and it always
includes the released count. Bands for all sizes of a region at once divide the error probability by the number of
sizes.

*Sums* over regions or categories have the direct bound of the sum's own error (`MeasuredView.errors_of`). Without such
a bound, the sum is written with n signed rows (`unions`). Each row has an interval with the n-th part of the error
probability, and the sum lies between Σ₊ low − Σ₋ high and Σ₊ high − Σ₋ low. If sums over all categories were measured
themselves, they have the intervals of those measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import in_threads, kernel
from tallytree.core.names import briefly
from tallytree.core.progress import Tell, nobody, piece
from tallytree.domain.histogram import entities
from tallytree.estimate.intervals.interval import (
    Intervals,
    checked_counts,
    checked_level,
    cover,
    integers_within,
    most_groups,
)
from tallytree.estimate.intervals.linear import (
    MeasuredView,
    cell_columns,
    entity_weights,
    no_guarantee,
    no_linear,
    with_total,
)
from tallytree.estimate.intervals.one_sided_bounds import MOST, Ends, at_least_bounds, entity_bounds, run_ends
from tallytree.estimate.intervals.tails import NORMAL, Errors, quantile
from tallytree.estimate.intervals.unions import Unions
from tallytree.estimate.layout import row_blocks
from tallytree.privacy.measurements import Measurements

WINDOWS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WINDOW_PART = 0.2  # of the error probability
FEWEST_SIZES = 16  # with fewer sizes windows gain nothing, and all of the error probability goes to the direct bound
CELLS_PER_BLOCK = 1 << 16
FITTED = 0.6  # the part of the work that is done after fitting
EXACT_TERMS = 16  # sums of more intervals share those of the next power of √2


def guaranteed(
    measurements: Measurements,
    counts: NDArray[Any],
    *,
    level: float = 0.95,
    simultaneous: bool = False,
    tell: Tell = nobody,
) -> Intervals | None:
    """Return intervals for the true counts behind released ones; None if the measurements allow none.

    `no_guarantee` gives the reason for None. Each interval contains the true count of its cell with a probability of at
    least `level`, for any truth; with `simultaneous`, those of all sizes of a region hold together. Everything is
    computed from public values, and the same values give the same intervals.
    """
    level, counts = checked_level(level), checked_counts(counts, measurements)
    if no_guarantee(measurements) is not None:
        return None
    error = (1 - level) / (counts.shape[1] if simultaneous else 1)
    if simultaneous and no_linear(measurements) is not None:  # all 2 K bounds of `at_least` counts are to hold
        error = 2 * (1 - level) / measurements.max_size
    return Intervals(*_row_ends(measurements, counts, error, tell), level, "guaranteed", simultaneous)


def guaranteed_sums(measurements: Measurements, counts: Integers, unions: Unions, cells: Intervals) -> Intervals:
    """Return intervals `[unions, sizes]` for sums of counts over regions, given the intervals `cells` of single
    regions.

    They hold with the probability of `cells`: each alone or, if `cells` are simultaneous, for all sizes of a sum
    together.
    """
    if not len(unions):
        return replace(cells, lower=cells.lower[:0], upper=cells.upper[:0])
    released, most = unions.add_up(counts), unions.limits(most_groups(measurements))[:, np.newaxis]
    error = (1 - cells.level) / (counts.shape[1] if cells.simultaneous else 1)
    view = MeasuredView.of(measurements) if no_linear(measurements) is None else None
    errors = None if view is None else view.errors_of(unions)
    if view is not None and errors is not None:
        ends = _around(view, unions.add_up(view.fit()), _halves(view, errors, error / 2), most)
    else:
        each = partial(_bound_cells, measurements) if view is None else partial(_row_ends, measurements, counts)
        ends = _add_ends(each, unions, measurements, error)
    lower, upper = cover(*ends, released, most)
    alone = unions.sizes == 1
    rows = unions.rows[unions.starts[alone]]
    lower[alone], upper[alone] = cells.lower[rows], cells.upper[rows]
    if (over := _measured_sums(measurements)) is not None and unions.whole is not None:
        whole = measurements.hierarchy.over_categories(counts)
        found = guaranteed(over, whole, level=cells.level, simultaneous=cells.simultaneous)
        assert found is not None  # as there is a guarantee
        sums = guaranteed_sums(over, whole, unions.whole, found)
        lower[unions.places], upper[unions.places] = sums.lower, sums.upper
    return replace(cells, lower=lower, upper=upper)


@dataclass(frozen=True, eq=False)
class SumBounds:
    """Ends of sums over regions from any measurements; what several sums share is computed once."""

    measurements: Measurements

    __repr__ = briefly

    def of(self, by_size: Floats, unions: Unions, error: float) -> tuple[Floats, Floats] | None:
        """Return ends of Σ by_size · count in unions, each pair with a failure probability of at most `error`.

        `by_size` runs from 0 to K + 1 and ends in 0. Without unbiased estimates there are ends of numbers of groups
        and of entities alone; the result is None for other sums.
        """
        measurements = self.measurements

        def around(values: Floats, errors: Errors, part: float) -> tuple[Floats, Floats]:
            half = errors.reach(part / 2)
            return values - half, values + half

        if self._linear is not None:
            view, fitted = self._column(tuple(by_size.tolist()))
            if (errors := view.errors_of(unions)) is not None:
                return around(unions.add_up(fitted), errors, error)
            return _add_ends(partial(around, fitted, view.errors), unions, measurements, error)
        if np.array_equal(by_size, entity_weights(measurements)):
            low, high = _add_ends(lambda part: self._entities(part / 2), unions, measurements, error)
            return np.maximum(low, 0.0), high
        if not set(by_size.tolist()) <= {0.0, 1.0}:
            return None
        sizes = np.flatnonzero(by_size)
        runs = np.split(sizes, np.flatnonzero(np.diff(sizes) > 1) + 1)
        firsts, lasts = np.array([run[0] for run in runs]), np.array([run[-1] for run in runs])

        def ends_of(part: float) -> tuple[Floats, Floats]:  # a run is the difference of two, each with two bounds
            low, high = run_ends(self._at_least(part / (4 * len(runs))), measurements, firsts, lasts)
            return low.astype(np.float64).sum(axis=1), high.astype(np.float64).sum(axis=1)

        return _add_ends(ends_of, unions, measurements, error)

    def at_least(self, unions: Unions, chance: float) -> tuple[Floats, Floats]:
        """Return ends `[unions, sizes]` of how many groups have each size or more; each fails with this chance."""
        measurements = self.measurements
        most = unions.limits(most_groups(measurements))[:, np.newaxis].astype(np.float64)
        errors = None if self._linear is None else self._linear[0].errors_of(unions)
        if self._linear is None or errors is None:
            low, high = _add_ends(lambda part: self._at_least(part / 2), unions, measurements, 2 * chance)
        else:
            view, fitted = self._linear
            low, high = _around_at_least(view, unions.add_up(fitted), errors, chance, most=most)
        front = [] if measurements.region_totals is None else [most]
        return np.hstack([*front, np.clip(low, 0.0, most)]), np.hstack([*front, np.clip(high, 0.0, most)])

    @cached_property
    def _linear(self) -> tuple[MeasuredView, Floats] | None:
        if no_linear(self.measurements) is not None:
            return None
        view = MeasuredView.of(self.measurements)
        return view, view.fit()

    @cached_property
    def _column(self) -> Callable[[tuple[float, ...]], tuple[MeasuredView, Floats]]:
        """Return a view of Σ by_size · count, and its estimates of all regions; cached."""

        def estimate(by_size: tuple[float, ...]) -> tuple[MeasuredView, Floats]:
            view, of_total = MeasuredView.of_sum(self.measurements, np.array(by_size))
            totals = self.measurements.region_totals
            return view, view.fit()[:, 0] + (0.0 if totals is None else of_total * totals)

        return cache(estimate)

    @cached_property
    def _at_least(self) -> Callable[[float], tuple[Any, Any]]:
        if self._linear is None:
            return cache(partial(at_least_bounds, self.measurements))
        view, fitted = self._linear
        most = most_groups(self.measurements)[:, np.newaxis]
        return lambda chance: _around_at_least(view, fitted, view.errors, chance, most=most)

    @cached_property
    def _entities(self) -> Callable[[float], Ends]:
        return cache(partial(entity_ends, self.measurements))


def guaranteed_entities(
    measurements: Measurements, counts: NDArray[Any], unions: Unions | None = None, *, level: float = 0.95
) -> Intervals | None:
    """Return intervals for the true numbers of entities of regions, or of sums over them; None without a guarantee."""
    level, counts = checked_level(level), checked_counts(counts, measurements)
    if no_guarantee(measurements) is not None:
        return None
    released, most = entities(counts, measurements.first_size), most_entities(measurements)
    if unions is not None and not len(unions):
        return Intervals(released[:0], released[:0], level, "guaranteed")
    if unions is None:
        ends = entity_ends(measurements, (1 - level) / 2)
    else:
        released, most = unions.add_up(released), unions.limits(most)
        ends = _entity_sums(measurements, unions, 1 - level)
        if (over := _measured_sums(measurements)) is not None and unions.whole is not None:
            for ends_of, of_sum in zip(ends, _entity_sums(over, unions.whole, 1 - level), strict=True):
                ends_of[unions.places] = of_sum
    return Intervals(*cover(*ends, released, most), level, "guaranteed")


def entity_ends(measurements: Measurements, chance: float) -> Ends:
    """Return lower and upper ends `[regions]` of numbers of entities; each fails with at most this chance."""
    if no_linear(measurements) is not None:
        return entity_bounds(measurements, chance, most_entities(measurements))
    regions = np.arange(len(measurements.hierarchy))
    return _entity_sums(measurements, Unions(regions, regions, regions[:0]), 2 * chance)


def most_entities(measurements: Measurements) -> Integers:
    """Return an upper limit for each region: K for each of its groups if those are public, otherwise 2⁶²."""
    groups = most_groups(measurements)
    return np.where(groups < MOST // measurements.max_size, groups * measurements.max_size, MOST)


# -------------------------------------------------------------------- ends


def _measured_sums(measurements: Measurements) -> Measurements | None:
    """Return the measurements of sums over all categories, if they give bounds."""
    over = measurements.over_categories
    return over if over.measured and no_guarantee(over) is None else None


def _entity_sums(measurements: Measurements, unions: Unions, error: float) -> Ends:
    """Return ends of numbers of entities of sums over regions."""
    most, none = unions.limits(most_entities(measurements)), np.zeros(len(unions), np.int64)
    if no_linear(measurements) is None:
        view, _ = MeasuredView.of_sum(measurements, entity_weights(measurements))
        if (errors := view.errors_of(unions)) is not None:
            half, values = errors.reach(error / 2), np.clip(unions.add_up(view.fit()[:, 0]), 0, most)
            low, high = values - half, values + half
            return cover(low, high, np.clip(values.round().astype(np.int64), 0, most), most)
    low, high = _add_ends(lambda part: entity_ends(measurements, part / 2), unions, measurements, error)
    return np.maximum(low, none).astype(np.int64), np.minimum(high, MOST).astype(np.int64)


def _row_ends(measurements: Measurements, counts: Integers, error: float, tell: Tell = nobody) -> Ends:
    """Return lower and upper ends `[regions, sizes]`: each interval fails with a probability of at most `error`."""
    most = most_groups(measurements)
    if no_linear(measurements) is not None:
        return cover(*_bound_cells(measurements, error), counts, most[:, np.newaxis])
    view = MeasuredView.of(measurements)
    windows = error * WINDOW_PART if view.view == "at_least" and measurements.max_size >= FEWEST_SIZES else 0.0
    reaches = _window_reaches(view, windows)
    fitted = view.fit(piece(tell, 0.2, FITTED))
    halves = _halves(view, view.errors, (error - windows) / 2)
    lower, upper = np.empty_like(counts), np.empty_like(counts)
    deviations, public = np.sqrt(view.law.variance), measurements.region_totals is not None

    def work(start: int, stop: int) -> None:
        rows = slice(start, stop)
        low, high = _around(view, fitted[rows], halves[rows], most[rows, np.newaxis])
        if windows:
            reach = reaches[view.errors.lead[rows]] * deviations[rows, np.newaxis]
            _narrow(fitted[rows], most[rows], public, reach, high)
        lower[rows], upper[rows] = cover(low, high, counts[rows], most[rows, np.newaxis])

    in_threads(work, row_blocks(counts, CELLS_PER_BLOCK), piece(tell, FITTED, 1.0))
    return lower, upper


def _bound_cells(measurements: Measurements, error: float) -> Ends:
    """Return the same ends from bounds of `at_least` counts; an interval fails if one of its four bounds does."""
    sizes = np.arange(measurements.first_size, measurements.max_size + 1)
    return run_ends(at_least_bounds(measurements, error / 4), measurements, sizes, sizes)


def _halves(view: MeasuredView, errors: Errors, chance: float) -> Floats:
    """Half-widths `[rows, kinds]` of counts that are one column, and of differences of two columns."""
    kinds = cell_columns(view.view, view.measurements.max_size)
    return np.stack([errors.over_columns(columns).reach(chance) for columns in kinds], axis=1)


def _counts(view: MeasuredView, fitted: Floats) -> Floats:
    """Return columns as they are, and counts with their total as counts: each takes a part of the gap between them."""
    if view.view != "counts_total":
        return fitted
    counts: Floats = fitted[:, :-1] + (fitted[:, -1:] - fitted[:, :-1].sum(axis=1, keepdims=True)) / fitted.shape[1]
    return counts


def _around_at_least(
    view: MeasuredView, fitted: Floats, errors: Errors, chance: float, *, most: Any
) -> tuple[Floats, Floats]:
    """Return ends of T[1] … T[K] from estimates of a view's columns; each end fails with this chance."""
    sizes = view.measurements.max_size
    values, terms = fitted, np.ones(sizes, np.int64)
    if view.view != "at_least":
        values = np.cumsum(_counts(view, fitted)[:, ::-1], axis=1)[:, ::-1][:, -sizes:]
        terms = np.arange(sizes, 0, -1)
    each, places = np.unique(terms, return_inverse=True)
    weights = [np.ones(number) for number in each.tolist()]
    if view.view == "counts_total":
        weights = [with_total(np.append(ones, np.zeros(sizes - len(ones)))) for ones in weights]
    reaches = np.stack([errors.over_columns(one).reach(chance) for one in weights], axis=1)
    middle, half = np.clip(values, 0, most), reaches[:, places]
    low, high = integers_within(middle - half, middle + half)
    return low.astype(np.float64), high.astype(np.float64)


def _around(view: MeasuredView, fitted: Floats, halves: Floats, most: Integers) -> tuple[Floats, Floats]:
    """Return counts by size, moved into the possible range, ± their half-widths."""
    values = _counts(view, fitted)
    columns = np.zeros(values.shape[1], np.int64)
    if view.view == "at_least":  # T[s] − T[s + 1], with T[0] the public total and T[K + 1] = 0
        front = [] if view.measurements.region_totals is None else [most.astype(np.float64)]
        at_least = np.hstack([*front, fitted, np.zeros((len(fitted), 1))])
        values = at_least[:, :-1] - at_least[:, 1:]
        columns = np.ones(values.shape[1], np.int64)
        columns[-1] = 0
        columns[: len(front)] = 0
    middle, half = np.clip(values, 0, most), halves[:, columns]
    return middle - half, middle + half


def _add_ends(
    ends_of: Callable[[float], tuple[NDArray[Any], NDArray[Any]]],
    unions: Unions,
    measurements: Measurements,
    error: float,
) -> tuple[Floats, Floats]:
    """Return ends of sums from those of their rows; each row has its part of the error probability.

    A sum of many rows uses the ends for the next power of √2 of their number, which are only wider.
    """
    covers, sizes = unions.covers(measurements.hierarchy), unions.sizes
    for place, (plus, minus) in covers.items():
        sizes[place] = len(plus) + len(minus)
    terms = np.where(sizes <= EXACT_TERMS, sizes, np.maximum(sizes, 2 ** (np.ceil(2 * np.log2(sizes)) / 2)))
    found: list[Floats] = []
    for number in np.unique(terms):
        ends = [end.astype(np.float64) for end in ends_of(error / number)]
        low, high = (unions.add_up(end) for end in ends)
        for place in (place for place in covers if terms[place] == number):
            nodes, taken_away = (list(some) for some in covers[place])
            for added, taken, sums in ((ends[0], ends[1], low), (ends[1], ends[0], high)):
                sums[place] = added[nodes].sum(axis=0) - taken[taken_away].sum(axis=0)
        found = found or [np.empty_like(low), np.empty_like(high)]
        for sums, some in zip(found, (low, high), strict=True):
            sums[terms == number] = some[terms == number]
    return found[0], found[1]


# -------------------------------------------------------------------- windows


def _window_reaches(view: MeasuredView, error: float) -> Floats:
    """Return how far a sum of m columns may be off, in deviations of one, for m = 0, 1, …; one row per kind of noise.

    The columns of a region have independent errors of one law, which is a mixture of noises. The row is that of its
    leading measurement alone, which has the heaviest tails, or the normal one if that is larger.
    """
    chance = error / len(WINDOWS)
    table = np.zeros((len(view.errors.noise), 2 * max(WINDOWS) + 1))
    for row, noise in enumerate(view.errors.noise if error else ()):
        for terms in range(1, table.shape[1]):
            largest = max(NORMAL.inv_cdf(1 - chance), quantile(noise.kind, noise.scale, terms, 1.0, chance))
            table[row, terms] = largest * math.sqrt(terms)
    return table


@kernel
def _narrow(fitted: Floats, most: Integers, public: bool, reach: Floats, high: Floats) -> None:
    """Lower the upper ends by windows of least squares estimates of T[1] … T[K], column j - 1 for T[j].

    `reach[region, m]` is how far a sum of m columns may be off. `sums[j]` is T[1] + … + T[j], so windows cost one
    subtraction each.
    """
    sizes = fitted.shape[1]
    sums = np.zeros(sizes + 1)
    for region in range(len(fitted)):
        for column in range(sizes):
            sums[column + 1] = sums[column] + fitted[region, column]
        for cell in range(high.shape[1]):
            size = cell if public else cell + 1
            for width in WINDOWS:
                first = size - width  # the window T[first + 1] … T[size]
                if first < 0 and not public:
                    break
                last = min(sizes, size + width)
                noisy = min(size, width) + last - size
                before = sums[size] - sums[max(0, first)] + max(0, -first) * float(most[region])
                bound = max(before - (sums[last] - sums[size]), 0.0)  # T never rises, so the truth is non-negative
                bound += reach[region, noisy]
                high[region, cell] = min(high[region, cell], bound / width)
