"""Guaranteed intervals: for any true counts, each holds its cell's with at least the stated probability.

True counts are those of the data as they were counted: of what was kept, where rows were dropped before.

Two bounds, each with a part of the error probability.

*Direct.* Least squares on the tree (`least_squares`) is unbiased and linear in the measurements, with an exact
variance (`variances`) and known tails (`noise_tails`). A cell is one column where counts were measured; where
`at_least` counts T were, it is T[s] − T[s + 1], or G − T[1] for size 0 under public totals G.

*Window*, for the upper end, where `at_least` counts were measured. Counts are not negative, so T never rises, and

    T[s] − T[s + 1]  ≤  mean(T[s − w + 1 … s]) − mean(T[s + 1 … s + w])

for every w: a mean over the w columns up to s is at least T[s], one over the w columns after s at most T[s + 1]. The
right side has the less noise the larger w is, and in a sparse tail it is hardly larger. T[s] = G for s ≤ 0 under public
totals and 0 for s > K are known exactly and enter without noise. Each of the windows has an equal part of the error
probability (Bonferroni), so the least of their bounds holds with all of it.

Where neither was measured of all sizes alike (lists of sizes, bands of sizes), bounds of T[s] and T[s + 1] are found
one by one (`at_least_bounds`), each with a quarter of the error probability.

An unbiased estimate can lie outside what is possible, below 0 or above a public total. It is moved to the nearest
possible number before its half-width is added. That makes intervals longer where it makes a difference, so they hold no
less often; without it, an estimate far below 0 would get the interval 0 … 0, which says most where least is known. For
the same reason no interval is a single number, unless no other is possible (a public total of 0).

The true count is whole, so the whole numbers between the two ends are all that is needed; and the released count itself
is always included. Bands for all sizes of a region at once divide the error probability by the number of sizes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import in_threads, kernel, part_of_kernels
from tallytree.core.progress import Tell, nobody, piece
from tallytree.estimate.intervals.at_least_bounds import at_least_bounds, cell_ends, half_widths
from tallytree.estimate.intervals.measured_view import MeasuredView, no_guarantee, no_linear
from tallytree.estimate.intervals.noise_tails import NORMAL, quantile
from tallytree.estimate.intervals.value import Intervals, checked_counts, checked_level, cover, most_groups
from tallytree.estimate.layout import row_blocks
from tallytree.estimate.tree.least_squares import tree_least_squares
from tallytree.privacy.measurements import Measurements

WINDOWS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
WINDOW_PART = 0.2  # of the error probability
FEWEST_SIZES = 16  # with fewer sizes windows gain nothing, and all of the error probability goes to the direct bound
CELLS_PER_BLOCK = 1 << 16
FITTED = 0.6  # so much of the work is done by then


def guaranteed(
    measurements: Measurements,
    counts: NDArray[Any],
    *,
    level: float = 0.95,
    simultaneous: bool = False,
    tell: Tell = nobody,
) -> Intervals | None:
    """Intervals for the true counts behind released ones; None where the measurements allow none.

    `no_guarantee` says why there are none. Each interval holds the true count of its cell with a probability of at
    least `level`, whatever the truth; with `simultaneous` those of all sizes of a region hold together. Everything is
    computed from public values, and the same values give the same intervals.
    """
    level, counts = checked_level(level), checked_counts(counts, measurements)
    if no_guarantee(measurements) is not None:
        return None
    if no_linear(measurements) is not None:
        return _by_bounds(measurements, counts, level, simultaneous=simultaneous)
    view = MeasuredView.of(measurements)
    cumulative = view.view == "at_least"
    error = (1 - level) / (counts.shape[1] if simultaneous else 1)
    window_error = error * WINDOW_PART if cumulative and measurements.max_size >= FEWEST_SIZES else 0.0
    single, pair = (half_widths(view, copies, (error - window_error) / 2) for copies in (1, 2))
    reaches, reach_of = _window_reaches(view, window_error)
    fitted = tree_least_squares(
        view.values, measurements.hierarchy, view.law.region_weights, tell=piece(tell, 0.2, FITTED)
    )
    lower, upper = np.empty_like(counts), np.empty_like(counts)
    most = most_groups(measurements)
    public = measurements.region_totals is not None
    deviations = np.sqrt(view.law.variance)

    def work(start: int, stop: int) -> None:
        if cumulative:
            _bound_differences(
                fitted, counts, most, public, single, pair, deviations, reaches, reach_of, lower, upper, start, stop
            )
        else:
            _bound_cells(fitted, counts, most, single, lower, upper, start, stop)

    in_threads(work, row_blocks(counts, CELLS_PER_BLOCK), piece(tell, FITTED, 1.0))
    return Intervals(lower, upper, level, "guaranteed", simultaneous)


def _by_bounds(measurements: Measurements, counts: Integers, level: float, *, simultaneous: bool) -> Intervals:
    """Intervals from bounds of `at_least` counts; a band for all sizes needs all 2 K of those to hold."""
    chance = (1 - level) / (2 * measurements.max_size if simultaneous else 4)
    lower, upper = cell_ends(at_least_bounds(measurements, chance), measurements)
    lower, upper = cover(lower, upper, counts, most_groups(measurements)[:, np.newaxis])
    return Intervals(lower, upper, level, "guaranteed", simultaneous)


def _window_reaches(view: MeasuredView, error: float) -> tuple[Floats, Integers]:
    """How far a sum of m columns may be off, in deviations of one, for m = 0, 1, …; one row per kind of noise.

    The columns of a region have independent errors of one law, which is a mixture of noises. The row taken is that of
    its leading measurement as if there were no other, the heaviest of tails, or the normal one if that is larger. An
    empty table means that no windows are used.
    """
    levels, _ = view.law.leading
    found = np.flatnonzero(np.bincount(levels))
    row_of: Integers = np.searchsorted(found, levels)
    if error == 0:
        return np.empty((len(found), 0)), row_of
    chance = error / len(WINDOWS)
    normal = NORMAL.inv_cdf(1 - chance)
    table = np.zeros((len(found), 2 * max(WINDOWS) + 1))
    for row, level in enumerate(found):
        for terms in range(1, table.shape[1]):
            largest = max(normal, quantile(*view.noise[int(level)], terms, 1.0, chance))
            table[row, terms] = largest * math.sqrt(terms)
    return table, row_of


@kernel
def _bound_cells(
    fitted: Floats,
    counts: Integers,
    most: Integers,
    half_widths: Floats,
    lower: Integers,
    upper: Integers,
    start: int,
    stop: int,
) -> None:
    for region in range(start, stop):
        for cell in range(counts.shape[1]):
            value, half = min(max(fitted[region, cell], 0.0), float(most[region])), half_widths[region]
            _put(lower, upper, counts, region, cell, value - half, value + half, most[region])


@kernel
def _bound_differences(
    fitted: Floats,
    counts: Integers,
    most: Integers,
    public: bool,
    single: Floats,
    pair: Floats,
    deviations: Floats,
    reaches: Floats,
    reach_of: Integers,
    lower: Integers,
    upper: Integers,
    start: int,
    stop: int,
) -> None:
    """Cells from least squares on `at_least` counts T[1] … T[K], column j - 1 for T[j].

    `sums[j]` is T[1] + … + T[j], so windows cost one subtraction each.
    """
    sizes = fitted.shape[1]
    shift = 0 if public else 1
    sums = np.empty(sizes + 1)
    for region in range(start, stop):
        sums[0] = 0.0
        for column in range(sizes):
            sums[column + 1] = sums[column] + fitted[region, column]
        total = float(most[region])
        for cell in range(counts.shape[1]):
            size = cell + shift
            here = fitted[region, size - 1] if size > 0 else total
            after = fitted[region, size] if size < sizes else 0.0
            half = pair[region] if 0 < size < sizes else single[region]
            value = min(max(here - after, 0.0), total)
            highest = value + half
            if reaches.shape[1]:
                for width in WINDOWS:
                    first = size - width  # the window T[first + 1] … T[size]
                    if first < 0 and not public:
                        break
                    known = max(0, -first)
                    last = min(sizes, size + width)
                    noisy = min(size, width) + last - size
                    before = sums[size] - sums[max(0, first)] + known * total
                    bound = max(before - (sums[last] - sums[size]), 0.0)  # T never rises, so the truth is not negative
                    bound += reaches[reach_of[region], noisy] * deviations[region]
                    highest = min(highest, bound / width)
            _put(lower, upper, counts, region, cell, value - half, highest, most[region])


@part_of_kernels
def _put(
    lower: Integers, upper: Integers, counts: Integers, region: int, cell: int, low: float, high: float, most: int
) -> None:
    """The whole numbers from `low` to `high` and from 0 to `most`, and the released count; as `value.cover` does."""
    slack = 1e-9 * (1.0 + abs(low) + abs(high))  # what rounding in floats may have cost
    limit = float(most)  # at most 2⁶², so that nothing beyond int64 is ever converted
    least = np.int64(min(max(np.ceil(low - slack), 0.0), limit))
    greatest = np.int64(min(max(np.floor(high + slack), 0.0), limit))
    lower[region, cell] = min(least, counts[region, cell])
    upper[region, cell] = max(greatest, counts[region, cell])
    if lower[region, cell] == upper[region, cell] and most > 0:
        lower[region, cell] -= lower[region, cell] > 0
        upper[region, cell] += upper[region, cell] < most
