"""Bounds of numbers of entities, Σ_s s · count[s] = Σ_s T[s], where sizes were measured by lists or in bands.

*Lists of sizes* tell it: with public totals all groups are in the list, and a sorted list has the same sum. The
measurements of a region's leaves are added up, be they lists or `at_least` counts of bands, if together they are about
each size once; so are a region's own. With both each has half of the chance.

*Otherwise*, as with lists of lengths that were measured, the bounds of all T[s] are added up, each of which fails with
1/K of the chance.
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.estimate.intervals.at_least_bounds import at_least_bounds
from tallytree.estimate.intervals.error_law import Errors, Noise
from tallytree.estimate.intervals.list_bounds import Ends
from tallytree.estimate.intervals.measured_view import covers
from tallytree.estimate.intervals.value import integers_within
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.views import list_starts

MOST = 1 << 62


def entity_bounds(measurements: Measurements, chance: float, most: Integers) -> Ends:
    """Lower and upper ends `[regions]`; each fails with at most this chance. `most` no region exceeds."""
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


def _errors(parts: list[Measurement], terms: Integers) -> Errors:
    """The laws of sums of so many terms of each part, `[regions, parts]`."""
    of_one = np.array([part.variance for part in parts])
    lead = np.where(terms > 0, of_one, -1.0).argmax(axis=1)
    copies = np.take_along_axis(terms, lead[:, np.newaxis], 1)[:, 0]
    variance: Floats = terms @ of_one
    return Errors(
        tuple(Noise(part.noise, part.scale) for part in parts), lead, np.maximum(copies, 1), of_one[lead], variance
    )
