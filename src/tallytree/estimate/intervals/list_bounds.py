"""Bounds of `at_least` counts from noisy sorted lists of sizes, by what each place of a list can hold.

A list of n places holds sizes x that never fall from one place to the next, each measured with independent noise of a
known law. T[s], how many groups have size s or more, is k if and only if the k-th place from the end holds s or more
and the one before it less.

*One place.* The means of w measured places from p upwards and of w places up to p, with r such that the mean of w
noises exceeds it with a probability of at most β / W, give for each of W widths

    x_p  ≤  mean(x_p … x_p+w−1)  ≤  mean(y_p … y_p+w−1) + r,       x_p  ≥  mean(y_p−w+1 … y_p) − r.

The least of the upper bounds, U_p, fails with a probability of at most β, and so does the greatest of the lower ones,
L_p.

*One count.* T[s] is at most n less the first place p with U_p ≥ s (counted from 0), and at least n − 1 less the last
place p with L_p ≤ s − 1 (n if there is none). *Proof.* Let k = T[s] be the truth, which is a fixed number and not
random. If k > 0, the k-th place from the end holds s or more, so its U is at least s unless it fails, and the first
such place comes no later. If k < n, the place before it holds at most s − 1, so does its L unless it fails, and the
last such place comes no earlier. Each bound thus fails with the probability that one bound of one place does, β,
however long the list is. ∎

*Lists that were measured band by band* hold what sizes have within a band, which never falls either: for s in a band
that begins after b, a size is s or more if and only if its part is s − b or more.

*Lengths.* Where totals are private, a list is as long as measured totals were settled on: n places, the largest sizes
at their end. With more groups than places the k of the proof is capped at n, so that the lower bound stands, and the
upper one unless it is n: there the number of groups is bounded by its own measurement instead, with half of β. With
fewer groups the first places hold 0, and nothing changes.

*Sums.* T[s] of m leaves together lies between the sums of their bounds if none fails: each has β / m.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.noise_tails import quantile
from tallytree.estimate.tree.variances import LEAST_VARIANCE
from tallytree.privacy.accounting import NoiseKind
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.views import list_starts

WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # of the windows of places
REGIONS_AT_ONCE = 256
Ends = tuple[Integers, Integers]  # lower and upper ones
SLACK = 1e-9  # of a size: what rounding in floats may have cost


def bounds_by_lists(measurements: Measurements, level: int, parts: list[Measurement], chance: float) -> Ends:
    """Bounds `[regions of the level, sizes]` of `at_least` counts for the sizes that lists were measured for.

    Each one is exceeded with a probability of at most `chance`. `parts` are the lists of one level; those of other
    levels than the `level` that is asked about are lists of the leaves, which are added up. Sizes that none is about
    are bounded by 0 and the number of groups.
    """
    tree = measurements.hierarchy
    on = parts[0].level
    if on == level:
        return _of_lists(measurements, parts, np.full(len(measurements.lengths(on)), chance))
    above = tree.above_leaves(level)
    sharing = _counted(measurements, on, above, tree, level)
    low, high = _of_lists(measurements, parts, chance / _next_step(sharing)[above])
    starts = np.flatnonzero(np.diff(above, prepend=-1))
    return np.add.reduceat(low, starts), np.add.reduceat(high, starts)


def _counted(measurements: Measurements, on: int, above: Integers, tree: Hierarchy, level: int) -> Integers:
    """How many bounds can fail below each region of a level: those of leaves that may have groups."""
    lengths = measurements.lengths(on)
    uncertain = (lengths > 0) if measurements.region_totals is not None else np.ones(len(lengths), np.bool_)
    regions = tree.level_slice(level)
    return np.maximum(1, np.bincount(above[uncertain], minlength=regions.stop - regions.start)).astype(np.int64)


def _next_step(numbers: Integers) -> Floats:
    """The next power of √2: chances of a few kinds only, none larger than it may be."""
    steps: Floats = 2.0 ** (np.ceil(2 * np.log2(numbers) - 1e-9) / 2)
    return np.maximum(steps, numbers)


def _of_lists(measurements: Measurements, parts: list[Measurement], chances: Floats) -> Ends:
    """Bounds for every region of the lists' level, each region's with its own chance."""
    level, private = parts[0].level, measurements.region_totals is None
    lengths = measurements.lengths(level)
    starts, sizes = list_starts(lengths), measurements.max_size
    low = np.zeros((len(lengths), sizes), np.int64)
    most = _most_groups(measurements, level, chances / 2) if private else lengths
    high = np.repeat(most[:, np.newaxis], sizes, axis=1)
    for part in parts:
        below, last = (0, sizes) if part.sizes is None else (part.sizes.first - 1, part.sizes.last)
        reaches, reach_of = _reaches(part, lengths, chances / 2 if private else chances)
        work = partial(_bound, part.values, starts, most, reaches, reach_of, below, last, low, high)
        in_threads(work, blocks(len(lengths), REGIONS_AT_ONCE))
    return low, high


def _most_groups(measurements: Measurements, level: int, chances: Floats) -> Integers:
    """No region has more groups, but with its chance: from what was measured of totals on its own level."""
    measured = next(part for part in measurements.measured if part.view == "totals" and part.level == level)
    deviation = math.sqrt(max(measured.variance, LEAST_VARIANCE))
    known, which = np.unique(chances, return_inverse=True)
    half = np.array([quantile(measured.noise, measured.scale, 1, 1.0, float(chance)) for chance in known]) * deviation
    most = np.floor(measured.values[:, 0] + half[which.ravel()] + SLACK)
    return np.maximum(0, most).astype(np.int64)


def _reaches(part: Measurement, lengths: Integers, chances: Floats) -> tuple[Floats, Integers]:
    """How far means of places may be off, `[kinds of regions, widths]`, and the kind of each region.

    A kind is a chance and how many widths fit into the list; a width that does not fit has an infinite reach.
    """
    fitting = np.maximum(1, np.searchsorted(WIDTHS, lengths, side="right"))
    kinds, kind_of = np.unique(np.stack([chances, fitting]), axis=1, return_inverse=True)
    table = np.full((kinds.shape[1], len(WIDTHS)), math.inf)
    deviation = math.sqrt(max(part.variance, LEAST_VARIANCE))
    for row, (chance, number) in enumerate(kinds.T):
        for column, width in enumerate(WIDTHS[: int(number)]):
            table[row, column] = _reach(part.noise, part.scale, width, float(chance) / number) * deviation
    return table, kind_of.ravel().astype(np.int64)


def _reach(kind: NoiseKind, scale: Fraction, width: int, chance: float) -> float:
    """How far the mean of independent noises may be off, in standard deviations of one."""
    return quantile(kind, scale, width, 1.0, chance) / math.sqrt(width)


@kernel
def _bound(
    values: NDArray[np.int64],
    starts: Integers,
    most: Integers,
    reaches: Floats,
    reach_of: Integers,
    below: int,
    last: int,
    low: Integers,
    high: Integers,
    start: int,
    stop: int,
) -> None:
    for region in range(start, stop):
        begin, n = starts[region], starts[region + 1] - starts[region]
        if n == 0:
            continue
        reach = reaches[reach_of[region]]
        sums = np.zeros(n + 1)
        for place in range(n):
            sums[place + 1] = sums[place] + values[begin + place]
        # The first place with U ≥ s, and the last with L ≤ s − 1: for rising s both move to the right alone.
        highest, lowest = np.empty(n), np.empty(n)
        for place in range(n):
            upper, lower = np.inf, -np.inf
            for column in range(len(WIDTHS)):
                width = WIDTHS[column]
                if place + width <= n:
                    upper = min(upper, (sums[place + width] - sums[place]) / width + reach[column])
                if place + 1 >= width:
                    lower = max(lower, (sums[place + 1] - sums[place + 1 - width]) / width - reach[column])
            highest[place], lowest[place] = upper, lower
        first, after = 0, 0  # `after` is one more than that last place
        least_after = np.empty(n + 1)
        least_after[n] = np.inf
        for place in range(n - 1, -1, -1):
            least_after[place] = min(least_after[place + 1], lowest[place])
        for size in range(below + 1, last + 1):
            part = float(size - below)
            while first < n and highest[first] < part - SLACK:
                first += 1
            while after < n and least_after[after] <= part - 1 + SLACK:
                after += 1
            high[region, size - 1] = min(n - first, most[region]) if first > 0 else most[region]
            low[region, size - 1] = min(n - after, high[region, size - 1])
