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

from tallytree.core.arrays import Integers
from tallytree.estimate.intervals.list_bounds import Ends, bounds_by_lists
from tallytree.estimate.intervals.measured_view import MeasuredView, covers, stretches
from tallytree.estimate.intervals.noise_tails import quantile
from tallytree.estimate.intervals.value import integers_within, most_groups
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


def run_ends(ends: Ends, measurements: Measurements, firsts: Integers, lasts: Integers) -> Ends:
    """Ends `[regions, runs]` of numbers of groups of sizes `first` to `last`, from bounds of `at_least` counts."""
    total, none = most_groups(measurements)[:, np.newaxis], np.zeros((len(ends[0]), 1), np.int64)
    low, high = (np.hstack([total, end, none]) for end in ends)
    return np.maximum(low[:, firsts] - high[:, lasts + 1], 0), np.maximum(high[:, firsts] - low[:, lasts + 1], 0)


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
    """What `at_least` counts say, by stretch of sizes and level: least squares, or each measurement by itself."""
    tree, most = measurements.hierarchy, most_groups(measurements)[:, np.newaxis]
    found: dict[tuple[Band, int], Ends] = {}
    for band in stretches(measurements):
        view = MeasuredView.of_band(measurements, band)
        fits = tree.depth - 1 in view.noise
        values = view.fit() if fits else view.values.astype(np.float64)
        for level in range(tree.depth) if fits else view.noise:
            rows, noise = tree.level_slice(level), view.noise.get(level)
            half = view.errors.reach(chance)[rows, np.newaxis] if fits else np.zeros(1)
            if not fits and noise is not None:
                half += quantile(noise.kind, noise.scale, 1, 1.0, chance) * math.sqrt(view.variances[level])
            middle = np.clip(values[rows], 0, most[rows])  # a bound below 0 would say too much (`guaranteed`)
            found[band, level] = integers_within(middle - half, middle + half)
    return found
