"""Guaranteed intervals of sums over categories, beside those of single ones.

Where the sum over all categories was measured by itself, its intervals are those of that measurement. Otherwise least
squares gives each category an unbiased estimate; categories share no measurement but the root's, which is left out of
account where it was not measured, and have the same law on a level. So the error of a sum over n of them is a sum of n
independent errors of that law, and of 2 n where a count is the difference of two `at_least` counts. Where there is no
least squares (lists, bands of sizes), or the root was measured by itself, intervals of the n are added up, each with
its part of the error probability.
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.categories import margins
from tallytree.domain.category_trees import margin_sums, on_level, over_categories
from tallytree.domain.histogram import entities
from tallytree.estimate.intervals.at_least_bounds import at_least_bounds, cell_ends, half_widths
from tallytree.estimate.intervals.entities import MOST, entity_ends, entity_estimates, most_entities, within
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.measured_view import MeasuredView, no_guarantee, no_linear
from tallytree.estimate.intervals.value import Intervals, checked_counts, checked_level, cover, most_groups
from tallytree.estimate.tree.least_squares import tree_least_squares
from tallytree.privacy.measurements import Measurements

SUREST = 0.9999  # intervals of single cells are not asked for at a higher level


def guaranteed_sums(measurements: Measurements, counts: Integers, *, level: float = 0.95) -> Intervals | None:
    """Intervals `[margins × regions, sizes]` for sums over categories; None where the measurements allow none."""
    level, counts = checked_level(level), checked_counts(counts, measurements)
    if no_guarantee(measurements) is not None:
        return None
    tree, sums = measurements.hierarchy, margin_sums(counts, measurements.hierarchy)
    if tree.by is None:
        raise ValueError("expected measurements by category")
    root_apart = any(part.level == 0 for part in measurements.measured)
    most = np.minimum(margin_sums(most_groups(measurements).astype(np.float64), tree), 2.0**62)[:, np.newaxis]
    if no_linear(measurements) is None and not root_apart:
        low, high = _by_least_squares(measurements, 1 - level, most)
    else:
        low, high = _added_up(measurements, counts, 1 - level)
    slack = 1e-9 * (1 + np.abs(low) + np.abs(high))
    lower, upper = cover(np.ceil(low - slack), np.floor(high + slack), sums, most.astype(np.int64))
    over = measurements.over_categories
    if over.measured and no_guarantee(over) is None:
        found = guaranteed(over, over_categories(counts, tree), level=level)
        if found is not None:
            lower[: len(tree.regions)], upper[: len(tree.regions)] = found.lower, found.upper
    return Intervals(lower, upper, level, "guaranteed")


def guaranteed_entity_sums(measurements: Measurements, counts: Integers, *, level: float = 0.95) -> Intervals | None:
    """Intervals `[margins × regions]` for numbers of entities over categories; None where there is no guarantee.

    They come about as those of counts do: from the sums' own measurements, by least squares, or added up.
    """
    level, counts = checked_level(level), checked_counts(counts, measurements)
    if no_guarantee(measurements) is not None:
        return None
    tree, chance = measurements.hierarchy, (1 - level) / 2
    if tree.by is None:
        raise ValueError("expected measurements by category")
    ends = []
    most = np.minimum(margin_sums(most_entities(measurements).astype(np.float64), tree), MOST).astype(np.int64)
    root_apart = any(part.level == 0 for part in measurements.measured)
    estimates = entity_estimates(measurements) if no_linear(measurements) is None and not root_apart else None
    for place, margin in enumerate(margins(tree.by)):
        terms, rows = len(margin.cells), slice(place * len(tree.regions), (place + 1) * len(tree.regions))
        if estimates is not None:
            half = estimates.reach(chance, together=terms)
            of_regions = [on_level(half, tree, at)[0] for at in range(1, tree.depth)]  # alike in all categories
            ends.append(within(margin_sums(estimates.values, tree)[rows], np.concatenate(of_regions), most[rows]))
        else:
            each = (end.astype(np.float64) for end in entity_ends(measurements, chance / terms))
            low, high = (np.clip(margin_sums(end, tree)[rows], -MOST, MOST).astype(np.int64) for end in each)
            ends.append((low, high))
    low, high = (np.concatenate(side) for side in zip(*ends, strict=True))
    over = measurements.over_categories
    if over.measured and no_guarantee(over) is None:
        low[: len(tree.regions)], high[: len(tree.regions)] = entity_ends(over, chance)
    lower, upper = cover(low, high, margin_sums(entities(counts, measurements.first_size), tree), most)
    return Intervals(lower, upper, level, "guaranteed")


def _by_least_squares(measurements: Measurements, error: float, most: Floats) -> tuple[Floats, Floats]:
    tree, view = measurements.hierarchy, MeasuredView.of(measurements)
    assert tree.by is not None
    fitted = tree_least_squares(view.values, tree, view.law.region_weights)
    if view.view == "at_least":
        none = np.zeros((len(fitted), 1))
        front = [] if measurements.region_totals is None else [measurements.region_totals[:, np.newaxis]]
        at_least = np.hstack([*front, fitted, none])
        cells = at_least[:, :-1] - at_least[:, 1:]
        copies = np.full(cells.shape[1], 2)
        copies[-1] = 1
        if front:
            copies[0] = 1
    else:
        cells, copies = fitted, np.full(fitted.shape[1], 1)
    halves = []
    for margin in margins(tree.by):
        several = {times: half_widths(view, int(times) * len(margin.cells), error / 2) for times in np.unique(copies)}
        rows = np.stack([several[times] for times in copies], axis=1)
        halves += [on_level(rows, tree, level)[0] for level in range(1, tree.depth)]  # alike in all categories
    middle, half = np.clip(margin_sums(cells, tree), 0, most), np.concatenate(halves)
    return middle - half, middle + half


def _added_up(measurements: Measurements, counts: Integers, error: float) -> tuple[Floats, Floats]:
    """Ends of intervals of single categories, each with its part of the error probability, added up."""
    tree, linear = measurements.hierarchy, no_linear(measurements) is None
    assert tree.by is not None
    found: dict[int, tuple[Integers, Integers]] = {}
    lower: list[Integers] = []
    upper: list[Integers] = []
    for margin in margins(tree.by):
        terms = len(margin.cells)
        if terms not in found and linear:
            cells = guaranteed(measurements, counts, level=min(1 - error / terms, SUREST))
            assert cells is not None  # as there is a guarantee
            found[terms] = (cells.lower, cells.upper) if 1 - error / terms <= SUREST else _anything(counts)
        elif terms not in found:
            found[terms] = cell_ends(at_least_bounds(measurements, error / (4 * terms)), measurements)
        for ends, sums in zip(found[terms], (lower, upper), strict=True):
            below = np.minimum(ends, (1 << 62) // terms)
            sums += [on_level(below, tree, level)[list(margin.cells)].sum(axis=0) for level in range(1, tree.depth)]
    return np.concatenate(lower).astype(np.float64), np.concatenate(upper).astype(np.float64)


def _anything(counts: Integers) -> tuple[Integers, Integers]:
    return np.zeros_like(counts), np.full_like(counts, 1 << 62)
