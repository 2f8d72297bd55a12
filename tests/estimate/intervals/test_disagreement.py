"""Regions whose measurements disagree with their counts: odd ones are named, and few others are."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from tallytree.estimate.intervals.disagreement import CHANCE, disagreement
from tallytree.lab.truth import Truth, measured_without_noise, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tests.estimate.intervals.test_at_least_bounds import WITH_TOTALS, banded, few, lists_plan, stairs
from tests.oracles.trees import even_tree

PLANS = {
    "at_least": lambda truth, budget: MECHANISMS["tallytree"].plan(truth.hierarchy, budget, tt.one_entity()),
    "counts": lambda truth, budget: MECHANISMS["joint-counts"].plan(truth.hierarchy, budget, tt.one_entity()),
    "lists": lists_plan,
    "split": banded,
    "stairs": stairs,
}


@pytest.mark.parametrize("budget", [tt.Budget(epsilon="0.3"), tt.Budget(rho="0.1")], ids=str)
@pytest.mark.parametrize("kind", PLANS)
def test_true_counts_are_named_no_more_often_than_stated(kind, budget):
    truth, named, looked = few(sizes=20), 0, 0
    for run in range(40):
        measurements = seeded_measurements(truth, PLANS[kind](truth, budget), "agree", run)
        counts = truth.all_levels()
        named += sum(disagreement(measurements, counts, region) is not None for region in range(25))
        looked += 25
    assert looked == 1000
    assert named <= 9  # by chance 1 at most is expected: 10 or more are less likely than one in a million


@pytest.mark.parametrize("kind", PLANS)
def test_without_noise_the_difference_is_named_where_it_is(kind):
    truth = few(sizes=20)
    measurements = measured_without_noise(truth.group_sizes(), PLANS[kind](truth, tt.Budget(epsilon=100)))
    counts = truth.all_levels()
    assert all(disagreement(measurements, counts, region) is None for region in range(25))
    region = 5 + int(np.argmax(truth.counts[:, 1:].sum(axis=1)))
    size = int(np.flatnonzero(counts[region])[-1])
    other = counts.copy()
    other[region, [size, 0]] += [-1, 1]  # its largest group is emptied
    found = disagreement(measurements, other, region)
    assert found is not None
    assert found.deviations > 0 or kind == "counts"
    assert found.first <= size
    assert all(disagreement(measurements, other, each) is None for each in range(25) if each != region)


def test_an_area_that_is_drawn_towards_its_neighbours_is_named():
    rng = np.random.default_rng(5)
    counts = rng.poisson(np.tile(40 * np.exp(-np.arange(12) / 2), (60, 1)))
    counts[17] = 0
    counts[17, -1] = 60  # an area of large groups alone
    truth = Truth("odd", even_tree(4, 60), counts, True)
    chosen = MECHANISMS["tallytree"].configured({"leaves": "at_least"})
    plan = chosen.plan(truth.hierarchy, tt.Budget(epsilon="0.1"), tt.one_entity(), [1, 1, 3])
    measurements = seeded_measurements(truth, plan, "odd")
    drawn = chosen.estimate(measurements)
    assert "shrunk" in drawn.certificate
    odd = 5 + 17
    named = [region for region in range(65) if disagreement(measurements, drawn.counts, region)]
    assert named == [odd]


def test_lists_of_settled_lengths_are_compared_too():
    truth = few(public_totals=False, sizes=12)
    plan = WITH_TOTALS.plan(truth.hierarchy, tt.Budget(epsilon=1), tt.one_entity())
    measurements = seeded_measurements(truth, plan, "settled", derive_facts=WITH_TOTALS.derive_facts)
    counts = truth.all_levels()
    assert sum(disagreement(measurements, counts, region) is not None for region in range(25)) == 0
    assert CHANCE == 0.001
