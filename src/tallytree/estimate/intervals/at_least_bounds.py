"""Bounds of every `at_least` count from whatever was measured: cumulative counts, lists of sizes, or both in bands.

Each bound fails with a probability of at most a given chance, for any truth. On a stretch of sizes with the same
questions (`measured_view.stretches`) a region's count T[s] has up to two sources:

- `at_least` counts: least squares over all levels where the leaves were measured, which is unbiased with a known law
  (`guaranteed`); otherwise the region's own measurement, where there is one;
- lists of sizes: the region's own, or those of its leaves added up (`list_bounds`).

With both, each has half of the chance, and the better of the two bounds fails no more often than both together.

A count of groups of sizes from a to b is T[a] − T[b + 1], so it lies between low[a] − high[b + 1] and
high[a] − low[b + 1] unless one of four bounds fails. T[0] is the public total and T[K + 1] = 0: these never do.
"""

from __future__ import annotations

import math

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.estimate.intervals.list_bounds import Ends, bounds_by_lists
from tallytree.estimate.intervals.measured_view import MeasuredView, covers, stretches
from tallytree.estimate.intervals.noise_tails import quantile, quantiles
from tallytree.estimate.intervals.value import most_groups
from tallytree.estimate.tree.least_squares import tree_least_squares
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.plan import Band


def at_least_bounds(measurements: Measurements, chance: float) -> Ends:
    """Lower and upper ends of T[1] … T[K] for all regions, `[regions, sizes]`; each fails with at most this chance."""
    tree, last = measurements.hierarchy, measurements.hierarchy.depth - 1
    most = most_groups(measurements)
    low = np.zeros((len(tree), measurements.max_size), np.int64)
    high = np.repeat(most[:, np.newaxis], measurements.max_size, axis=1)
    by_counts = _by_counts(measurements, chance)
    half = _by_counts(measurements, chance / 2)
    for level in range(tree.depth):
        rows = tree.level_slice(level)
        found: dict[tuple[int, float], Ends] = {}  # by the level of the lists, and the chance
        for band in stretches(measurements):
            columns = slice(band.first - 1, band.last)
            lists = next((some for on in (level, last) if (some := _lists(measurements, on, band))), [])
            counted = (band, level) in by_counts
            if counted:
                _narrow(low[rows, columns], high[rows, columns], (half if lists else by_counts)[band, level])
            if lists:
                key = lists[0].level, chance / 2 if counted else chance
                if key not in found:
                    found[key] = bounds_by_lists(measurements, level, lists, key[1])
                lower, upper = found[key]
                _narrow(low[rows, columns], high[rows, columns], (lower[:, columns], upper[:, columns]))
    return np.minimum(low, most[:, np.newaxis]), np.maximum(high, 0)


def between(ends: Ends, measurements: Measurements, region: int, first: int, last: int) -> tuple[int, int]:
    """Ends of the number of groups of the sizes `first` to `last` in a region, from bounds of `at_least` counts."""
    low, high = (end[region] for end in ends)
    total = most_groups(measurements)[region]
    from_low, from_high = (total, total) if first == 0 else (low[first - 1], high[first - 1])
    after_low, after_high = (0, 0) if last >= measurements.max_size else (low[last], high[last])
    return max(0, int(from_low - after_high)), max(0, int(from_high - after_low))


def cell_ends(ends: Ends, measurements: Measurements) -> Ends:
    """Ends of every count `[regions, sizes]`, from bounds of `at_least` counts."""
    low, high = ends
    none = np.zeros((len(low), 1), np.int64)
    if measurements.first_size == 0:
        total = most_groups(measurements)[:, np.newaxis]
        low, high = np.hstack([total, low]), np.hstack([total, high])
    after_low, after_high = np.hstack([low[:, 1:], none]), np.hstack([high[:, 1:], none])
    return np.maximum(low - after_high, 0), np.maximum(high - after_low, 0)


def _lists(measurements: Measurements, level: int, band: Band) -> list[Measurement]:
    """All lists of a level whose lengths are bounded, if one of them is about these sizes."""
    parts = [part for part in measurements.measured if part.level == level and not part.summed]
    if measurements.region_totals is None and all(part.view != "totals" for part in parts):
        return []
    lists = [part for part in parts if part.view == "sorted_sizes"]
    return lists if any(covers(part, band.first) for part in lists) else []


def _narrow(low: Integers, high: Integers, ends: Ends) -> None:
    np.maximum(low, ends[0], out=low)
    np.minimum(high, ends[1], out=high)


def _by_counts(measurements: Measurements, chance: float) -> dict[tuple[Band, int], Ends]:
    """What `at_least` counts say, by stretch of sizes and level."""
    tree, last = measurements.hierarchy, measurements.hierarchy.depth - 1
    found: dict[tuple[Band, int], Ends] = {}
    for band in stretches(measurements):
        view = MeasuredView(measurements, "at_least", band)
        if last in view.parts:
            fitted = tree_least_squares(view.values, tree, view.law.region_weights)
            fitted = _possible(fitted, measurements)
            half = half_widths(view, 1, chance)[:, np.newaxis]
            for level in range(tree.depth):
                rows = tree.level_slice(level)
                found[band, level] = _whole(fitted[rows], half[rows])
        else:
            for level, part in view.parts.items():
                values = _possible(view.values.astype(np.float64), measurements)[tree.level_slice(level)]
                found[band, level] = _whole(values, np.array(_half_width(part, chance)))
    return found


def _possible(values: Floats, measurements: Measurements) -> Floats:
    """Estimates moved to the nearest possible numbers: a bound below 0 would say too much (`guaranteed`)."""
    found: Floats = np.clip(values, 0, most_groups(measurements)[:, np.newaxis])
    return found


def half_widths(view: MeasuredView, copies: int, chance: float) -> Floats:
    """For every region: the error of a sum (or difference) of `copies` columns exceeds this only with `chance`."""
    levels, parts = view.law.leading
    found = np.empty(len(parts))
    for level in np.flatnonzero(np.bincount(levels)):
        rows = levels == level
        found[rows] = quantiles(*view.noise[int(level)], copies, parts[rows], chance)
    return found * np.sqrt(copies * view.law.variance)


def _half_width(part: Measurement, chance: float) -> float:
    return quantile(part.noise, part.scale, 1, 1.0, chance) * math.sqrt(part.variance)


def _whole(values: Floats, half: Floats) -> Ends:
    """The whole numbers within values ± half, a little rounding in floats allowed for."""
    slack = 1e-9 * (1 + np.abs(values) + half)
    return np.ceil(values - half - slack).astype(np.int64), np.floor(values + half + slack).astype(np.int64)
