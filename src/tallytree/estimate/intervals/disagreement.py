"""Find where a region's own measurements and its released counts disagree by more than noise explains.

A release may shrink a region towards the regions around it, and a region that is unlike them then moves away from its
true counts. Its own measurements are public and show this: if the released counts were the truth, the measurements
would differ from them by independent noise of a known law. Sums of these differences over 1, 2, 4, … or all
neighbouring columns (or places of a list) are compared with the quantiles of such sums (`tails`). Each of the N sums
has the chance `CHANCE` / N, so a region whose released counts are the truth is named with a probability of at most
`CHANCE`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.estimate.intervals.tails import MOST_COPIES, quantile
from tallytree.estimate.least_squares import LEAST_VARIANCE
from tallytree.privacy.measurements import Measurement, Measurements, list_starts
from tallytree.privacy.run import noisy_lists, view_of

CHANCE = 0.001  # of naming a region whose released counts are the truth
COMPARED = ("at_least", "counts", "counts_total", "sorted_sizes")


class Disagreement(NamedTuple):
    """The sum of differences that noise explains least well."""

    deviations: float  # the sum in standard deviations of its noise; positive if more was measured than released
    first: int  # the range of sizes; for lists, the released sizes of the places
    last: int


def disagreement(measurements: Measurements, counts: Integers, region: int) -> Disagreement | None:
    """Return what noise does not explain in a region's own measurements; None if it explains everything."""
    level = int(measurements.hierarchy.level_of[region])
    own = [part for part in measurements.measured if part.level == level and not part.summed]
    parts = [part for part in own if part.view in COMPARED]
    compared = [(part, *_differences(measurements, part, counts[region], region)) for part in parts]
    tests = sum(len(starts) for _, differences, _ in compared for _, starts in _windows(len(differences)))
    worst = None
    for part, differences, sizes in compared:
        deviation = math.sqrt(max(part.variance, LEAST_VARIANCE))
        summed = np.concatenate([np.zeros(1), np.cumsum(differences)])
        for width, starts in _windows(len(differences)):
            sums = (summed[starts + width] - summed[starts]) / (deviation * math.sqrt(width))
            limit = quantile(part.noise, part.scale, width, 1.0, CHANCE / tests / 2)
            at = int(np.argmax(np.abs(sums)))
            if abs(sums[at]) > limit and (worst is None or abs(sums[at]) > abs(worst.deviations)):
                worst = Disagreement(float(sums[at]), int(sizes[starts[at]]), int(sizes[starts[at] + width - 1]))
    return worst


def _windows(length: int) -> list[tuple[int, Integers]]:
    """Return widths 1, 2, 4, … and all, up to the largest with a known law, each with its starts half a width apart.

    >>> [(width, starts.tolist()) for width, starts in _windows(5)]
    [(1, [0, 1, 2, 3, 4]), (2, [0, 1, 2, 3]), (4, [0, 1]), (5, [0])]
    """
    if length == 0:
        return []
    most = min(length, MOST_COPIES)
    widths = sorted({most, *(1 << power for power in range(most.bit_length()))})
    return [(width, np.unique([*range(0, length - width, max(1, width // 2)), length - width])) for width in widths]


def _differences(
    measurements: Measurements, part: Measurement, counts: Integers, region: int
) -> tuple[Floats, Integers]:
    """Return measured less released, value by value, and the size of each value."""
    first = measurements.first_size
    row = region - measurements.hierarchy.level_slice(part.level).start
    if part.view == "sorted_sizes":
        lengths = measurements.lengths(part.level)
        begin, end = list_starts(lengths)[row : row + 2]
        listed = partial(noisy_lists, _no_noise, counts[np.newaxis], first, lengths[row : row + 1], small=False)
        sizes, released = listed(), listed(band=part.sizes)
        return part.values[begin:end].astype(np.float64) - released, sizes
    released = view_of(part.view, counts[np.newaxis], first, part.sizes)[0]
    sizes = np.array(measurements.sizes_of(part.view, part.sizes), np.int64)
    differences = part.values[row].astype(np.float64) - released
    return differences[: len(sizes)], sizes  # a total beside counts has no size


def _no_noise(number: int) -> Integers:
    return np.zeros(number, np.int64)
