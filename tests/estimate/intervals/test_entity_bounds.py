"""Guaranteed intervals of numbers of entities: equal to linear estimates, and how often they hold for each view."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import tallytree as tt
from tallytree.domain.histogram import entities
from tallytree.estimate.intervals import linear
from tallytree.estimate.intervals.guaranteed import entity_ends, guaranteed_entities, most_entities
from tallytree.lab.truth import Truth, measured_without_noise, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.mechanisms.budget_allocation import every_level
from tests.estimate.intervals.test_at_least_bounds import banded, few, lists_plan, stairs
from tests.oracles.trees import even_tree

RUNS, CHANCE = 60, 0.1


def crowded(*, public_totals):
    counts = np.random.default_rng(3).poisson(30 * np.exp(-np.arange(7 + public_totals) / 2), (20, 7 + public_totals))
    return Truth("crowded", even_tree(4, 20), counts, public_totals)


def planned(name, options, truth, budget):
    chosen = MECHANISMS[name].configured(options)
    return chosen.plan(truth.hierarchy, budget, tt.one_entity())


CASES = {
    "at_least": lambda budget: (truth := crowded(public_totals=False), planned("tallytree", {}, truth, budget)),
    "counts": lambda budget: (truth := crowded(public_totals=True), planned("pgsr-hierarchical-dp", {}, truth, budget)),
    "entities": lambda budget: (
        truth := crowded(public_totals=True),
        planned("tallytree", {"entities_share": "1/3"}, truth, budget),
    ),
    "lists": lambda budget: (truth := few(), lists_plan(truth, budget)),
    "lists and at_least": lambda budget: (truth := few(), lists_plan(truth, budget, [1, 0, 3])),
    "bands": lambda budget: (truth := few(), banded(truth, budget)),
    "stairs": lambda budget: (truth := few(), stairs(truth, budget)),
    "lists of measured lengths": lambda budget: (
        truth := few(public_totals=False),
        planned("tallytree", {"leaves": "lists", "totals_share": "1/4"}, truth, budget),
    ),
}


SETTLE = MECHANISMS["tallytree"].configured({"leaves": "lists", "totals_share": "1/4"}).derive_facts


def measured(case, truth, plan, seed):
    return seeded_measurements(truth, plan, case, seed, derive_facts=SETTLE if "measured" in case else None)


@pytest.mark.parametrize("budget", [tt.Budget(epsilon="0.5"), tt.Budget(rho="0.2")], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_each_end_fails_no_more_often_than_stated(case, budget):
    """Errors of regions of a level are nearly independent; the bound is what chance makes of them once in a million."""
    truth, plan = CASES[case](budget)
    true = entities(truth.all_levels(), truth.first_size)
    missed = np.zeros(truth.hierarchy.depth)
    for seed in range(RUNS):
        low, high = entity_ends(measured(case, truth, plan, seed), CHANCE / 2)
        wrong = (true < low) | (true > high)
        missed += [wrong[truth.hierarchy.level_slice(level)].sum() for level in range(truth.hierarchy.depth)]
    regions = np.diff(truth.hierarchy.level_starts)
    assert np.all(missed <= binom.ppf(1 - 1e-7, RUNS * regions, CHANCE)), missed / regions / RUNS
    if "measured" not in case:  # where bounds of all sizes are added up, they hold far more often
        assert missed.sum() > 0


@pytest.mark.parametrize("case", ["at_least", "counts"])
def test_they_are_the_linear_estimates_of_every_region(case):
    truth, plan = CASES[case](tt.Budget(epsilon=1))
    measurements = seeded_measurements(truth, plan, "one")
    low, high = entity_ends(measurements, 0.025)
    for region in range(len(truth.hierarchy)):
        found = linear.linear_sum(linear.MeasuredView.of(measurements), [region], linear.entity_weights(measurements))
        value, half = max(found.estimate, 0.0), found.half_width(0.95)  # moved into what is possible
        ends = max(value - half, 0.0), value + half
        assert (low[region], high[region]) == pytest.approx((np.ceil(ends[0]), np.floor(ends[1])), abs=1)


def test_measuring_the_number_itself_makes_intervals_narrower_than_deriving_it_from_as_good_sizes():
    truth = crowded(public_totals=True)
    with_it = planned("tallytree", {"entities_share": "1/2"}, truth, tt.Budget(epsilon=2))
    measurements = seeded_measurements(truth, with_it, 1)
    sizes_alone = tuple(part for part in measurements.measured if part.view == "at_least")
    wide, narrow = (
        np.subtract(*entity_ends(some, 0.025)[::-1])
        for some in (replace(measurements, measured=sizes_alone), measurements)
    )
    assert np.all(narrow < 0.6 * wide)


def test_intervals_hold_the_released_number_and_stay_within_what_is_possible():
    for case in CASES:
        truth, plan = CASES[case](tt.Budget(epsilon=1))
        measurements = measured(case, truth, plan, 5)
        counts = np.zeros_like(truth.all_levels())
        counts[:, -1] = 2
        found = guaranteed_entities(measurements, counts, level=0.9)
        released = entities(counts, truth.first_size)
        assert np.all((found.lower >= 0) & (found.lower <= released) & (found.upper >= released))
        assert np.all(found.upper <= np.maximum(most_entities(measurements), released))


def test_where_nothing_is_guaranteed_there_are_none():
    truth = crowded(public_totals=False)
    chain = every_level("chain", truth.hierarchy, tt.Budget(epsilon=1), tt.one_entity())
    measurements = measured_without_noise(truth.group_sizes(), chain)
    assert guaranteed_entities(measurements, truth.all_levels(), level=0.9) is None
