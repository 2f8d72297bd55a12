"""Intervals for the number of entities of every region, Σ_s s · count[s] = Σ_s T[s], where no group has more than K.

*One number for each region.* A row of `at_least` counts with the same noise at all sizes, or of `counts`, is a noisy
number of entities once it is added up, with weights 1 or s; where the number itself was measured too, the two are
weighed by their variances. Least squares on the tree then holds for these numbers as for those of one size, with an
exact variance (`tree.variances`), and the quantile is that of its largest terms (`noise_tails`).

*Lists of sizes* tell it as well: with public totals all groups are in the list, and a sorted list has the same sum. The
measurements of a region's leaves are added up, be they lists or `at_least` counts of bands, if together they are about
each size once; so are a region's own. With both each has half of the chance.

*Otherwise*, as with lists of lengths that were measured, the bounds of all T[s] are added up, each of which fails with
1/K of the chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.notebook import briefly
from tallytree.domain.histogram import entities
from tallytree.estimate.intervals.at_least_bounds import at_least_bounds
from tallytree.estimate.intervals.measured_view import MeasuredView, covers, no_guarantee, no_linear
from tallytree.estimate.intervals.noise_tails import quantile
from tallytree.estimate.intervals.typical import Typical
from tallytree.estimate.intervals.value import Intervals, checked_counts, checked_level, cover, most_groups
from tallytree.estimate.tree.least_squares import tree_least_squares
from tallytree.estimate.tree.variances import LEAST_VARIANCE, TreeVariances
from tallytree.privacy.accounting import NoiseKind
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.views import list_starts

Ends = tuple[Integers, Integers]
MOST = 1 << 62


def guaranteed_entities(measurements: Measurements, counts: Integers, *, level: float) -> Intervals | None:
    """Intervals `[regions]` for the true numbers of entities behind released counts; None if nothing is guaranteed."""
    level, counts = checked_level(level), checked_counts(counts, measurements)
    if no_guarantee(measurements) is not None:
        return None
    released, most = entities(counts, measurements.first_size), most_entities(measurements)
    lower, upper = cover(*entity_ends(measurements, (1 - level) / 2), released, most)
    return Intervals(lower, upper, level, "guaranteed")


def typical_entities(released: Integers, most: Integers, replicates: Typical, deviations: Floats) -> Intervals:
    """Intervals of `released` numbers from replicates in which they had these root mean square `deviations`."""
    half = np.maximum(1, np.ceil(replicates.factor * deviations - 1e-9)).astype(np.int64)
    lower, upper = cover(released - half, released + half, released, most)
    return Intervals(lower, upper, replicates.level, "typical")


def most_entities(measurements: Measurements) -> Integers:
    """No region has more: K for each of its groups where those are public, otherwise 2⁶²."""
    groups = most_groups(measurements)
    return np.where(groups < MOST // measurements.max_size, groups * measurements.max_size, MOST)


def entity_ends(measurements: Measurements, chance: float) -> Ends:
    """Lower and upper ends `[regions]`; each fails with at most this chance. Refused where nothing is guaranteed."""
    if no_linear(measurements) is None:
        estimates = entity_estimates(measurements)
        return within(estimates.values, estimates.reach(chance), most_entities(measurements))
    tree, last = measurements.hierarchy, measurements.hierarchy.depth - 1
    leaves = _each_size_once(measurements, last)
    if not leaves:
        low, high = at_least_bounds(measurements, chance / measurements.max_size)
        return low.sum(axis=1), np.minimum(high.sum(axis=1, dtype=np.float64), MOST).astype(np.int64)
    sums, terms = _added_up(measurements, leaves)
    sums, terms = np.clip(tree.aggregate(sums), 0, most_entities(measurements)), tree.aggregate(terms)
    low, high = np.full(len(tree), -MOST), np.full(len(tree), MOST)
    for level in range(tree.depth):
        rows = tree.level_slice(level)
        own = _each_size_once(measurements, level) if level < last else []
        part = chance / 2 if own else chance
        _narrow(low[rows], high[rows], sums[rows], _half_widths(leaves, terms[rows], part))
        if own:
            found, of_own = _added_up(measurements, own)
            found = np.clip(found, 0, most_entities(measurements)[rows])
            _narrow(low[rows], high[rows], found, _half_widths(own, of_own, part))
    return low, high


@dataclass(frozen=True, eq=False)
class EntityEstimates:
    """Unbiased numbers of entities `[regions]`, and how far they are off."""

    values: Floats
    law: TreeVariances
    leading: dict[int, tuple[NoiseKind, Fraction, int, float]]  # by level: its largest terms, and their part

    __repr__ = briefly

    def reach(self, chance: float, *, together: int = 1) -> Floats:
        """How far each is off, `[regions]`, with at most this chance on either side.

        With `together` it is a sum of so many independent ones of the same law: of as many times the variance, and with
        as many times the number of largest terms, which make up the same part of it.
        """
        levels, parts = self.law.leading
        shapes, shape_of = np.unique(np.stack([levels, np.round(parts, 9)]), axis=1, return_inverse=True)
        quantiles = []
        for level, part in shapes.T:
            noise, scale, copies, of_level = self.leading[int(level)]
            quantiles.append(quantile(noise, scale, together * copies, min(1.0, float(part) * of_level), chance))
        half: Floats = np.array(quantiles)[shape_of.ravel()] * np.sqrt(together * self.law.variance)
        return half


def entity_estimates(measurements: Measurements) -> EntityEstimates:
    """From rows with one law at all sizes, and from measured numbers of entities where there are any."""
    view, tree = MeasuredView.of(measurements), measurements.hierarchy
    columns = np.ones(view.values.shape[1])
    if view.view == "counts":
        columns = np.arange(measurements.first_size, measurements.max_size + 1, dtype=np.float64)
    square = float(columns @ columns)
    alike = int(np.count_nonzero(columns == columns.max()))  # columns that count most
    lead = float(columns.max()) ** 2 / square
    measured = {part.level: part for part in measurements.measured if part.view == "entities"}
    values, variances, leading = view.values @ columns, np.full(tree.depth, math.inf), {}
    for level in range(tree.depth):
        derived, own, rows = view.parts.get(level), measured.get(level), tree.level_slice(level)
        precision = [
            0.0 if derived is None else 1 / max(square * derived.variance, LEAST_VARIANCE),
            0.0 if own is None else 1 / max(own.variance, LEAST_VARIANCE),
        ]
        if not any(precision):
            continue
        variances[level] = 1 / sum(precision)
        part = precision[1] / sum(precision)  # of the variance that is due to the number of entities as measured
        if own is not None:
            values[rows] = (1 - part) * values[rows] + part * own.values[:, 0]
        if own is not None and (derived is None or part >= (1 - part) * lead):
            leading[level] = own.noise, own.scale, 1, part
        elif derived is not None:
            leading[level] = derived.noise, derived.scale, alike, (1 - part) * alike * lead
    law = TreeVariances.of(tree, list(variances))
    fitted = tree_least_squares(values[:, None], tree, law.region_weights)[:, 0]
    return EntityEstimates(fitted, law, leading)


def within(values: Floats, half: Floats, most: Integers) -> Ends:
    """The least and the greatest whole number within values ± half, the values moved into what is possible before."""
    low, high = np.full(len(values), -MOST), np.full(len(values), MOST)
    _narrow(low, high, np.clip(values, 0, most), half)
    return low, high


def _each_size_once(measurements: Measurements, level: int) -> list[Measurement]:
    """The measurements of a level that add up to its numbers of entities; none if they do not."""
    parts = [part for part in measurements.measured if part.level == level and not part.summed]
    parts = [part for part in parts if part.view in ("at_least", "sorted_sizes")]
    if measurements.region_totals is None and any(part.view == "sorted_sizes" for part in parts):
        return []  # groups may be missing in lists that are too short
    sizes = range(1, measurements.max_size + 1)
    return parts if all(sum(covers(part, size) for part in parts) == 1 for size in sizes) else []


def _added_up(measurements: Measurements, parts: list[Measurement]) -> tuple[Integers, Integers]:
    """Noisy numbers of entities of a level `[regions]`, and how many noisy numbers each part has in each of them."""
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


def _half_widths(parts: list[Measurement], terms: Integers, chance: float) -> Floats:
    """How far sums of so many terms of each part are off, `[regions]`, with at most this chance on either side."""
    of_one = np.array([part.variance for part in parts])
    variances = terms * of_one
    total = variances.sum(axis=1)
    largest = np.where(terms > 0, of_one, -1.0).argmax(axis=1)  # the part whose terms count most
    copies, lead = (np.take_along_axis(each, largest[:, None], 1)[:, 0] for each in (terms, variances))
    share = np.divide(lead, total, out=np.zeros(len(terms)), where=total > 0)
    shapes, shape_of = np.unique(np.stack([largest, copies, np.round(share, 6)]), axis=1, return_inverse=True)
    quantiles = [
        quantile(parts[int(place)].noise, parts[int(place)].scale, max(1, int(number)), float(part), chance)
        for place, number, part in shapes.T
    ]
    found: Floats = np.array(quantiles)[shape_of.ravel()] * np.sqrt(total)
    return found


def _narrow(low: Integers, high: Integers, values: Floats | Integers, half: Floats) -> None:
    """The whole numbers within values ± half, a little rounding in floats allowed for, in place."""
    slack = 1e-9 * (1 + np.abs(values) + half)
    bounded = np.clip(np.stack([np.ceil(values - half - slack), np.floor(values + half + slack)]), -MOST, MOST)
    np.maximum(low, bounded[0].astype(np.int64), out=low)
    np.minimum(high, bounded[1].astype(np.int64), out=high)
