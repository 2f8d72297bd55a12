"""Bound `at_least` counts and numbers of entities from any measurements; the bounds hold for any truth.

*Lists of sizes* (`bounds_by_lists`), by what each place of a list can hold. A list of n places holds sizes x that never
fall from one place to the next, each measured with independent noise of a known law. T[s], how many groups have size s
or more, is k if and only if the k-th place from the end holds s or more and the one before it less.

*One place.* The means of w measured places from p upwards and of w places up to p, with r such that the mean of w
noises exceeds it with a probability of at most β / W, give for each of W widths

    x_p  ≤  mean(x_p … x_p+w−1)  ≤  mean(y_p … y_p+w−1) + r,       x_p  ≥  mean(y_p−w+1 … y_p) − r.

The least of the upper bounds, U_p, fails with a probability of at most β, and so does the greatest of the lower ones,
L_p.

*One count.* T[s] is at most n less the first place p with U_p ≥ s (counted from 0), and at least n − 1 less the last
place p with L_p ≤ s − 1 (n if no place has this). *Proof.* Let k = T[s] be the truth, which is a fixed number and not
random. If k > 0, the k-th place from the end holds s or more, so its U is at least s unless it fails, and the first
such place comes no later. If k < n, the place before it holds at most s − 1, so does its L unless it fails, and the
last such place comes no earlier. So each bound fails with the probability that one bound of one place fails, β, for a
list of any length. ∎

*Lists that were measured band by band* hold the parts of sizes within a band, which never fall either: for s in a band
that begins after b, a size is s or more if and only if its part is s − b or more.

*Lengths.* If totals are private, the first stage sets the length of a list: n places, the largest sizes at their end.
With more groups than places the k of the proof is capped at n, so the lower bound stays valid, and so does the upper
one unless it is n. In that case the number of groups is bounded by its own measurement instead, with half of β. With
fewer groups the first places hold 0, and nothing changes.

*Sums.* T[s] of m leaves together lies between the sums of their bounds if no bound fails: each has the chance β / m.

*Every `at_least` count* (`at_least_bounds`), from cumulative counts, lists of sizes, or both in bands. Each bound fails
with a probability of at most a given chance, for any truth. On a stretch of sizes with the same measurement queries
(`stretches`) a region's count T[s] has up to two sources:

- `at_least` counts: least squares over all levels if the leaves were measured, which is unbiased with a known law
  (`guaranteed`); otherwise the region's own measurement, if any;
- lists of sizes: the region's own, or those of its leaves added up (`bounds_by_lists`).

If both sources exist, each has half of the chance, and the better of the two bounds fails no more often than both
together.

A count of groups of sizes from a to b is T[a] − T[b + 1], so it lies between low[a] − high[b + 1] and
high[a] − low[b + 1] unless one of four bounds fails. T[0] is the public total and T[K + 1] = 0: these never do.

*Numbers of entities* (`entity_bounds`), Σ_s s · count[s] = Σ_s T[s], where sizes were measured by lists or in bands.
Lists of sizes contain it: with public totals all groups are in the list, and a sorted list has the same sum. The
measurements of a region's leaves (lists, or `at_least` counts of bands) are added up if together they cover each size
once; so are a region's own measurements. If both exist, each has half of the chance.

Otherwise, as for lists with measured lengths, the bounds of all T[s] are added up; each of them fails with 1/K of the
chance.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.interval import integers_within, most_groups
from tallytree.estimate.intervals.linear import MeasuredView, covers, stretches
from tallytree.estimate.intervals.tails import Errors, Noise, quantile
from tallytree.estimate.least_squares import LEAST_VARIANCE
from tallytree.privacy.measurements import Measurement, Measurements, list_starts
from tallytree.privacy.noise import NoiseKind
from tallytree.privacy.plan import Band

WIDTHS = (1, 2, 4, 8, 16, 32, 64)  # widths of the windows of places
REGIONS_AT_ONCE = 256
Ends = tuple[Integers, Integers]  # lower and upper ones
SLACK = 1e-9  # of a size: allows for rounding in floats


def bounds_by_lists(measurements: Measurements, level: int, parts: list[Measurement], chance: float) -> Ends:
    """Return bounds `[regions of the level, sizes]` of `at_least` counts for the sizes that lists were measured for.

    Each one is exceeded with a probability of at most `chance`. `parts` are the lists of one level: of the `level`
    itself, or of the leaves, which are then added up. Sizes that no list covers are bounded by 0 and the number of
    groups.
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
    """Return how many bounds can fail below each region of a level: those of leaves that may have groups."""
    lengths = measurements.lengths(on)
    uncertain = (lengths > 0) if measurements.region_totals is not None else np.ones(len(lengths), np.bool_)
    regions = tree.level_slice(level)
    return np.maximum(1, np.bincount(above[uncertain], minlength=regions.stop - regions.start)).astype(np.int64)


def _next_step(numbers: Integers) -> Floats:
    """Return the next power of √2, which gives only a few different chances, none too large."""
    steps: Floats = 2.0 ** (np.ceil(2 * np.log2(numbers) - 1e-9) / 2)
    return np.maximum(steps, numbers)


def _of_lists(measurements: Measurements, parts: list[Measurement], chances: Floats) -> Ends:
    """Return bounds for every region of the lists' level, each region's with its own chance."""
    level, private = parts[0].level, measurements.region_totals is None
    lengths = measurements.lengths(level)
    starts, sizes = list_starts(lengths), measurements.max_size
    low = np.zeros((len(lengths), sizes), np.int64)
    most = _most_groups(measurements, level, chances / 2) if private else lengths
    high = np.repeat(most[:, np.newaxis], sizes, axis=1)
    for part in parts:
        below, last = (0, sizes) if part.sizes is None else (part.sizes.first - 1, part.sizes.last)
        reaches, reach_of = _reaches(part, lengths, chances / 2 if private else chances)
        lists = _Lists(part.values, starts, most, reaches, reach_of)
        in_threads(partial(_bound, lists, below, last, low, high), blocks(len(lengths), REGIONS_AT_ONCE))
    return low, high


def _most_groups(measurements: Measurements, level: int, chances: Floats) -> Integers:
    """Return a bound of each region's groups that fails with its chance, from totals measured on its own level."""
    measured = next(part for part in measurements.measured if part.view == "totals" and part.level == level)
    deviation = math.sqrt(max(measured.variance, LEAST_VARIANCE))
    known, which = np.unique(chances, return_inverse=True)
    half = np.array([quantile(measured.noise, measured.scale, 1, 1.0, float(chance)) for chance in known]) * deviation
    most = np.floor(measured.values[:, 0] + half[which.ravel()] + SLACK)
    return np.maximum(0, most).astype(np.int64)


def _reaches(part: Measurement, lengths: Integers, chances: Floats) -> tuple[Floats, Integers]:
    """Return how far means of places may be off, `[kinds of regions, widths]`, and the kind of each region.

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
    """Return how far the mean of independent noises may be off, in standard deviations of one."""
    return quantile(kind, scale, width, 1.0, chance) / math.sqrt(width)


class _Lists(NamedTuple):
    """Noisy lists, the most groups of each region, and how far means of their places may be off."""

    values: NDArray[np.int64]
    starts: Integers
    most: Integers
    reaches: Floats  # `[kinds of regions, widths]`
    reach_of: Integers


@kernel
def _bound(lists: _Lists, below: int, last: int, low: Integers, high: Integers, start: int, stop: int) -> None:
    values, starts, most, reaches, reach_of = lists
    for region in range(start, stop):
        begin, n = starts[region], starts[region + 1] - starts[region]
        if n == 0:
            continue
        reach = reaches[reach_of[region]]
        sums = np.zeros(n + 1)
        for place in range(n):
            sums[place + 1] = sums[place] + values[begin + place]
        # The first place with U ≥ s, and the last with L ≤ s − 1: for rising s both move only to the right.
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


# -------------------------------------------------------------------- at least bounds


def at_least_bounds(measurements: Measurements, chance: float) -> Ends:
    """Return lower and upper ends of T[1] … T[K], `[regions, sizes]`; each fails with at most this chance."""
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
    """Return ends `[regions, runs]` of numbers of groups of sizes `first` to `last`, from `at_least` bounds."""
    total, none = most_groups(measurements)[:, np.newaxis], np.zeros((len(ends[0]), 1), np.int64)
    low, high = (np.hstack([total, end, none]) for end in ends)
    return np.maximum(low[:, firsts] - high[:, lasts + 1], 0), np.maximum(high[:, firsts] - low[:, lasts + 1], 0)


def _lists(measurements: Measurements, level: int, band: Band) -> list[Measurement]:
    """Return all lists of a level whose lengths are bounded, if one of them covers these sizes."""
    parts = [part for part in measurements.measured if part.level == level and not part.summed]
    if measurements.region_totals is None and all(part.view != "totals" for part in parts):
        return []
    lists = [part for part in parts if part.view == "sorted_sizes"]
    return lists if any(covers(part, band.first) for part in lists) else []


def _narrow(low: Integers, high: Integers, ends: Ends) -> None:
    np.maximum(low, ends[0], out=low)
    np.minimum(high, ends[1], out=high)


def _by_counts(measurements: Measurements, chance: float) -> dict[tuple[Band, int], Ends]:
    """Return bounds from `at_least` counts, by stretch of sizes and level: least squares, or single measurements."""
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
            middle = np.clip(values[rows], 0, most[rows])  # a bound below 0 would be too narrow (`guaranteed`)
            found[band, level] = integers_within(middle - half, middle + half)
    return found


# -------------------------------------------------------------------- entity bounds


MOST = 1 << 62


def entity_bounds(measurements: Measurements, chance: float, most: Integers) -> Ends:
    """Return lower and upper ends `[regions]`; each fails with at most this chance. No region exceeds `most`."""
    tree, last = measurements.hierarchy, measurements.hierarchy.depth - 1
    leaves = _each_size_once(measurements, last)
    if not leaves:
        low, high = at_least_bounds(measurements, chance / measurements.max_size)
        return low.sum(axis=1), np.minimum(high.sum(axis=1, dtype=np.float64), MOST).astype(np.int64)
    sums, terms = _added_up(measurements, leaves)
    sums, terms = tree.aggregate(sums), tree.aggregate(terms)
    low, high = np.full(len(tree), -MOST), np.full(len(tree), MOST)
    for level in range(tree.depth):
        rows = tree.level_slice(level)
        sources = [(leaves, sums[rows], terms[rows])]
        if level < last and (own := _each_size_once(measurements, level)):
            sources.append((own, *_added_up(measurements, own)))
        for parts, values, copies in sources:
            half = _errors(parts, copies).reach(chance / len(sources))
            values = np.clip(values, 0, most[rows])
            lower, upper = integers_within(values - half, values + half)
            np.maximum(low[rows], lower, out=low[rows])
            np.minimum(high[rows], upper, out=high[rows])
    return low, high


def _each_size_once(measurements: Measurements, level: int) -> list[Measurement]:
    """Return the measurements of a level that add up to its numbers of entities; an empty list if they do not."""
    parts = [part for part in measurements.measured if part.level == level and not part.summed]
    parts = [part for part in parts if part.view in ("at_least", "sorted_sizes")]
    if measurements.region_totals is None and any(part.view == "sorted_sizes" for part in parts):
        return []  # groups may be missing in lists that are too short
    sizes = range(1, measurements.max_size + 1)
    return parts if all(sum(covers(part, size) for part in parts) == 1 for size in sizes) else []


def _added_up(measurements: Measurements, parts: list[Measurement]) -> tuple[Integers, Integers]:
    """Return noisy numbers of entities of a level `[regions]`, and how many noisy numbers of each part they add up."""
    tree, level = measurements.hierarchy, parts[0].level
    regions = tree.level_slice(level)
    count = regions.stop - regions.start
    sums, terms = np.zeros(count, np.int64), np.zeros((count, len(parts)), np.int64)
    for place, part in enumerate(parts):
        if part.view == "sorted_sizes":
            lengths = measurements.lengths(level)
            through = np.concatenate([[0], np.cumsum(part.values, dtype=np.int64)])
            starts = list_starts(lengths)
            sums += through[starts[1:]] - through[starts[:-1]]
            terms[:, place] = lengths
        else:
            sums += part.values.sum(axis=1)
            terms[:, place] = part.values.shape[1]
    return sums, terms


def _errors(parts: list[Measurement], terms: Integers) -> Errors:
    """Return the laws of sums of so many terms of each part, `[regions, parts]`."""
    of_one = np.array([part.variance for part in parts])
    lead = np.where(terms > 0, of_one, -1.0).argmax(axis=1)
    copies = np.take_along_axis(terms, lead[:, np.newaxis], 1)[:, 0]
    variance: Floats = terms @ of_one
    return Errors(
        tuple(Noise(part.noise, part.scale) for part in parts), lead, np.maximum(copies, 1), of_one[lead], variance
    )
