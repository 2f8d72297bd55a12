"""Bounds from lists and bands of sizes: a slow twin, how often they hold by kind of cell, and exact ends by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from experiments.interval_coverage import with_clusters

import tallytree as tt
from tallytree.domain.histogram import at_least
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.linear import MeasuredView, no_guarantee, no_linear, stretches
from tallytree.estimate.intervals.one_sided_bounds import WIDTHS, at_least_bounds, run_ends
from tallytree.estimate.intervals.tails import quantile
from tallytree.lab.truth import Truth, measured_without_noise, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.privacy.measurements import FirstStageFacts
from tallytree.privacy.plan import Band, MeasurementQuery, Plan
from tests.estimate.intervals.test_guaranteed import check, covered, sparse, without_hull
from tests.oracles.trees import even_tree

LISTS = MECHANISMS["tallytree"].configured({"leaves": "lists"})
WITH_TOTALS = MECHANISMS["tallytree"].configured({"leaves": "lists", "totals_share": "1/4"})


def few(*, public_totals=True, sizes=60):
    """1 → 4 → 20 regions with few groups of many sizes, some regions without any."""
    rng = np.random.default_rng(8)
    rates = rng.gamma(0.5, 2, (20, 1)) * np.exp(-np.arange(sizes + public_totals) / 15) * 0.5
    counts = rng.poisson(rates)
    counts[3] = 0
    return Truth("few", even_tree(4, 20), counts, public_totals)


def lists_plan(truth, budget, shares=None):
    """Lists of the leaves alone, unless shares say otherwise."""
    return LISTS.plan(truth.hierarchy, budget, tt.one_entity(), shares or [0, 0, 1])


def banded(truth, budget=None):
    """`at_least` up to 5 on every level, lists of what lies above on the last one."""
    asks = [MeasurementQuery("at_least", level, Fraction(1, 3), Band(1, 5)) for level in range(3)]
    asks.append(MeasurementQuery("sorted_sizes", 2, Fraction(1), Band(6, truth.max_size)))
    return Plan(budget or tt.Budget(epsilon=1), tt.one_entity(), tuple(asks))


def stairs(truth, budget=None):
    """`at_least` everywhere; upper levels up to 9 alone, and what they leave goes to the last one."""
    asks = [MeasurementQuery("at_least", level, Fraction(1, 4), Band(1, 9)) for level in range(2)]
    asks.append(MeasurementQuery("at_least", 2, Fraction(1, 2), Band(1, 9)))
    asks.append(MeasurementQuery("at_least", 2, Fraction(1), Band(10, truth.max_size)))
    return Plan(budget or tt.Budget(epsilon=1), tt.one_entity(), tuple(asks))


def twin(values, kind, scale, variance, chance, size):
    """T[size] of one list, from the proof: every number of groups that no place speaks against."""
    n = len(values)
    widths = [width for width in WIDTHS if width <= n]
    reach = {
        width: quantile(kind, scale, width, 1.0, chance / len(widths)) * math.sqrt(variance / width) for width in widths
    }
    upper = [min(np.mean(values[p : p + w]) + reach[w] for w in widths if p + w <= n) for p in range(n)]
    lower = [max(np.mean(values[p + 1 - w : p + 1]) - reach[w] for w in widths if p + 1 >= w) for p in range(n)]
    most = max((k for k in range(1, n + 1) if upper[n - k] >= size - 1e-9), default=0)
    least = min((k for k in range(n) if lower[n - k - 1] <= size - 1 + 1e-9), default=n)
    return min(least, most), most


@pytest.mark.parametrize("budget", [tt.Budget(epsilon="0.3"), tt.Budget(epsilon=3), tt.Budget(rho="0.1")], ids=str)
def test_the_bounds_of_lists_are_those_of_the_proof(budget):
    truth = few(sizes=25)
    measurements = seeded_measurements(truth, lists_plan(truth, budget), "twin")
    low, high = at_least_bounds(measurements, 0.02)
    part, lengths = measurements.measured[0], measurements.lengths(2)
    assert (lengths == 0).any()
    places = np.split(part.values, np.cumsum(lengths)[:-1])
    for leaf, values in enumerate(places):
        for size in (1, 2, 7, 25):
            facts = part.noise, part.scale, part.variance
            expected = twin(values, *facts, 0.02, size) if len(values) else (0, 0)
            assert (low[5 + leaf, size - 1], high[5 + leaf, size - 1]) == expected
    # Above, bounds of leaves that may have groups share the chance: their number is rounded up to a power of √2.
    below = [leaf for leaf in range(20) if truth.hierarchy.parents[5 + leaf] == 1 and len(places[leaf])]
    chance = 0.02 / max(len(below), 2 ** (math.ceil(2 * math.log2(len(below)) - 1e-9) / 2))
    ends = [twin(places[leaf], part.noise, part.scale, part.variance, chance, 4) for leaf in below]
    assert (low[1, 3], high[1, 3]) == tuple(np.sum(ends, axis=0))


def failures(truth, plan, chance, runs, derive_facts=None):
    """How often each kind of bound fails over runs: the largest share over all regions and sizes, by side."""
    true = at_least(truth.all_levels(), 0 if truth.public_totals else 1)
    below, above = np.zeros(true.shape), np.zeros(true.shape)
    for run in range(runs):
        low, high = at_least_bounds(seeded_measurements(truth, plan, "bounds", run, derive_facts=derive_facts), chance)
        below += true < low
        above += true > high
    return below.max() / runs, above.max() / runs


@pytest.mark.parametrize("budget", [tt.Budget(epsilon="0.2"), tt.Budget(epsilon=2), tt.Budget(rho="0.05")], ids=str)
@pytest.mark.parametrize("kind", ["public totals", "private totals", "upper levels too", "split", "stairs"])
def test_no_bound_of_any_region_and_size_fails_more_often_than_it_may(kind, budget):
    truth, chance, runs = few(public_totals=kind != "private totals", sizes=24), 0.1, 200
    derive_facts, plan = None, lists_plan(truth, budget)
    if kind == "private totals":
        plan, derive_facts = WITH_TOTALS.plan(truth.hierarchy, budget, tt.one_entity()), WITH_TOTALS.derive_facts
    elif kind == "upper levels too":
        plan = lists_plan(truth, budget, [1, 0, 3])
    elif kind in ("split", "stairs"):
        plan = (banded if kind == "split" else stairs)(truth, budget)
    found = failures(truth, plan, chance, runs, derive_facts)
    # 25 × 24 bounds are looked at: the largest share may exceed the chance by 6 standard errors, in a fixed seed.
    assert max(found) <= chance + 6 * math.sqrt(chance * (1 - chance) / runs)
    assert max(found) > 0, "bounds that never fail are wider than they need to be"


@pytest.mark.parametrize("plan", [lambda truth: lists_plan(truth, tt.Budget(epsilon=1)), banded, stairs])
def test_intervals_hold_for_any_kind_of_cell(plan):
    truth, planted = with_clusters(few(), clusters=15)
    found = covered(truth, plan(truth), runs=25, planted=planted)
    check(found, 0.95)
    assert any(kind == "planted cluster" for _, kind in found)


def test_with_private_totals_a_list_that_is_too_short_is_no_bound_by_itself():
    truth = few(public_totals=False, sizes=10)
    plan = WITH_TOTALS.plan(truth.hierarchy, tt.Budget(epsilon=2), tt.one_entity())
    leaves = truth.hierarchy.level_slice(2)
    short = truth.hierarchy.aggregate(truth.counts.sum(axis=1) // 2)
    measurements = seeded_measurements(truth, plan, "short", derive_facts=lambda known: FirstStageFacts(places=short))
    too_short = measurements.lengths(2) < truth.counts.sum(axis=1)
    assert too_short.any()
    _, high = at_least_bounds(measurements, 1e-6)
    assert (high[leaves][:, 0] >= truth.counts.sum(axis=1)).all()


def test_bands_for_a_whole_region_hold_together():
    truth, held = few(sizes=20), []
    true = truth.all_levels()
    for run in range(60):
        measurements = seeded_measurements(truth, lists_plan(truth, tt.Budget(epsilon=1)), "together", run)
        found = without_hull(measurements, true.shape, level=0.8, simultaneous=True)
        held.extend(((found.lower <= true) & (true <= found.upper)).all(axis=1))
    assert np.mean(held) >= 0.8 - 5 * math.sqrt(0.16 / len(held))


@pytest.mark.parametrize("plan", [lists_plan, banded, stairs])
def test_without_noise_to_speak_of_only_the_truth_and_the_numbers_beside_it_are_left(plan):
    truth = few(sizes=12)
    measurements = seeded_measurements(truth, plan(truth, tt.Budget(epsilon=2000)), "sure")
    found = guaranteed(measurements, truth.all_levels())
    assert np.all(np.maximum(truth.all_levels() - 1, 0) <= found.lower)
    assert np.all(found.upper <= truth.all_levels() + 1)
    ends = at_least_bounds(measurements, 0.01)
    for region in (0, 2, 9):
        low, high = (end[region] for end in run_ends(ends, measurements, np.array([2, 0]), np.array([12, 3])))
        counts = truth.all_levels()[region]
        assert low.tolist() == high.tolist() == [counts[2:].sum(), counts[:4].sum()]


def test_sizes_are_measured_in_stretches_and_each_has_its_law():
    truth = sparse(sizes=30)
    quiet = measured_without_noise(truth.group_sizes(), stairs(truth))
    assert stretches(quiet) == [Band(1, 9), Band(10, 30)]
    assert no_guarantee(quiet) is None
    assert "of all sizes with the same noise" in no_linear(quiet)
    low, high = (MeasuredView.of_band(quiet, band) for band in stretches(quiet))
    true = at_least(truth.all_levels(), 0)
    assert np.array_equal(low.values, true[:, :9])
    assert np.array_equal(high.values[truth.hierarchy.level_slice(2)], true[truth.hierarchy.level_slice(2)][:, 9:])
    assert set(high.noise) == {2}
    assert low.variances[0] == low.variances[1] > low.variances[2] > high.variances[2]


def test_sizes_that_no_question_is_about_have_no_guarantee():
    truth = few(sizes=12)
    plan = Plan(tt.Budget(epsilon=1), tt.one_entity(), (MeasurementQuery("at_least", 2, Fraction(1), Band(1, 5)),))
    measurements = seeded_measurements(truth, plan, 1)
    assert "this release measured at_least there" in no_guarantee(measurements)
    assert guaranteed(measurements, truth.all_levels()) is None
    private = few(public_totals=False, sizes=12)
    plan = WITH_TOTALS.plan(private.hierarchy, tt.Budget(epsilon=1), tt.one_entity())
    known = seeded_measurements(private, plan, 1, derive_facts=WITH_TOTALS.derive_facts)
    assert no_guarantee(known) is None
    without = replace(known, measured=tuple(part for part in known.measured if part.view != "totals"))
    assert no_guarantee(without) is not None


def test_ends_of_cells_are_differences_of_bounds():
    truth = few(sizes=3)
    measurements = seeded_measurements(truth, lists_plan(truth, tt.Budget(epsilon=1)), 1)
    low, high = np.tile([[5, 3, 1]], (25, 1)), np.tile([[8, 6, 4]], (25, 1))
    total = measurements.region_totals
    sizes = np.arange(measurements.first_size, measurements.max_size + 1)
    lower, upper = run_ends((low, high), measurements, sizes, sizes)
    assert lower[0].tolist() == [max(0, total[0] - 8), 0, 0, 1]
    assert upper[0].tolist() == [total[0] - 5, 5, 5, 4]
