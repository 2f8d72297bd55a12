"""One noise vector for all regions: that it is shared, that it says it is not private, and the paper's taxi table."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.named_files import load

from tallytree import Budget, SpecError, one_entity
from tallytree.domain.histogram import at_least
from tallytree.lab import Truth
from tallytree.lab.audit.planted import estimate_with_shared_noise, shared_noise_measurements
from tallytree.lab.results import level_errors
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tests.oracles.trees import even_tree
from tests.real_data import real

TAXI = "nyc_taxi_medallion_pickups.csv"
CUMULATIVE = MECHANISMS["coc-matching"].configured({"methods": ["cumulative"] * 3})
# Section 6.2.2 of the paper: mean earth mover's distance per region over 10 runs, total ε = 1, K = 100,000.
PUBLISHED = {
    "bottom-up": (MECHANISMS["bottom-up"], [20_731.0, 10_405.5, 772.8]),
    "Hc×Hc×Hc": (CUMULATIVE, [10_547.0, 5_431.5, 1_601.8]),
}


def small(seed=1):
    tree = even_tree(3, 12)
    return Truth("made up", tree, np.random.default_rng(seed).poisson(9, (12, 41)), public_totals=True)


def noise_of(truth, measurements):
    """What was added, for every region that was measured."""
    true = at_least(truth.all_levels(), truth.first_size)
    rows = [part.values - true[truth.hierarchy.level_slice(part.level)] for part in measurements.measured]
    return np.concatenate(rows)


def test_every_region_of_every_level_has_the_same_noise():
    truth = small()
    plan = CUMULATIVE.plan(truth.hierarchy, Budget(epsilon=1), one_entity())
    noise = noise_of(truth, shared_noise_measurements(truth, plan, 5))
    assert noise.shape == (16, 40)
    assert (noise == noise[0]).all()
    assert len(np.unique(noise[0])) > 5
    assert (noise_of(truth, shared_noise_measurements(truth, plan, 5)) == noise).all()
    assert (noise_of(truth, shared_noise_measurements(truth, plan, 6)) != noise).any()


def test_the_noise_in_one_region_is_that_of_the_scale_that_the_plan_gives():
    tree = even_tree(2)
    truth = Truth("one size", tree, np.full((2, 20_001), 1), public_totals=True)
    plan = MECHANISMS["bottom-up"].plan(tree, Budget(epsilon="0.5"), one_entity())
    measurements = shared_noise_measurements(truth, plan, 1)
    (part,) = measurements.measured
    noise = noise_of(truth, measurements)[0]
    # Five standard errors of a mean, and of a variance whose fourth moment is about 6 · variance².
    assert abs(noise.mean()) < 5 * np.sqrt(part.variance / 20_000)
    assert abs(noise.var() / part.variance - 1) < 5 * np.sqrt(5 / 20_000)


def test_seeded_measurements_do_not_share_theirs():
    truth = small()
    plan = CUMULATIVE.plan(truth.hierarchy, Budget(epsilon=1), one_entity())
    noise = noise_of(truth, seeded_measurements(truth, plan, 5))
    assert len(np.unique(noise, axis=0)) == 16


def test_measurements_and_estimates_say_that_they_are_not_private():
    truth = small()
    plan = CUMULATIVE.plan(truth.hierarchy, Budget(epsilon=1), one_entity())
    assert "NOT PRIVATE" in shared_noise_measurements(truth, plan, 1).noise_source
    estimate = estimate_with_shared_noise(truth, CUMULATIVE, Budget(epsilon=1), 1)
    assert estimate.certificate.startswith("NOT PRIVATE")
    assert (truth.hierarchy.aggregate(estimate.counts[4:]) == estimate.counts).all()


def test_views_of_other_lengths_are_refused():
    truth = small()
    lists = MECHANISMS["coc-matching"].configured({"methods": ["cumulative", "cumulative", "sorted-sizes"]})
    with pytest.raises(SpecError, match="at_least"):
        estimate_with_shared_noise(truth, lists, Budget(epsilon=1), 1)


def errors_of(truth, counts):
    """Earth mover's distance per region, level by level."""
    true, tree = truth.all_levels(), truth.hierarchy
    return np.array([level_errors(true, counts, tree, level, 0).emd.mean() for level in range(tree.depth)])


def test_shared_noise_adds_up_on_the_way_to_the_root_and_independent_noise_cancels(public_file):
    truth, budget = load(public_file(TAXI), max_size=6_000), Budget(epsilon=1)
    plan = MECHANISMS["bottom-up"].plan(truth.hierarchy, budget, one_entity())
    estimates = {
        "shared": [estimate_with_shared_noise(truth, MECHANISMS["bottom-up"], budget, run) for run in range(5)],
        "independent": [MECHANISMS["bottom-up"].estimate(seeded_measurements(truth, plan, run)) for run in range(5)],
    }
    mean = {name: np.mean([errors_of(truth, one.counts) for one in found], axis=0) for name, found in estimates.items()}
    grown = {name: errors[0] / errors[-1] for name, errors in mean.items()}  # from a leaf to the root
    assert grown["shared"] > 0.9 * truth.hierarchy.leaf_count
    assert grown["independent"] < 0.75 * grown["shared"]


@pytest.mark.real_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_with_shared_noise_the_papers_taxi_table_is_met_within_three_standard_errors(name):
    mechanism, published = PUBLISHED[name]
    truth = load(real(TAXI), max_size=100_000)
    true, tree = truth.all_levels(), truth.hierarchy
    assert (len(tree), int(true[0].sum())) == (31, 360_872)
    errors = []
    for run in range(10):
        counts = estimate_with_shared_noise(truth, mechanism, Budget(epsilon=1), 0, run).counts
        errors.append(errors_of(truth, counts))
    mean, error = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / np.sqrt(10)
    assert (error < 0.02 * mean).all()  # so that three of them are a demand
    assert (np.abs(mean - published) < 3 * error).all(), (mean, error)
    # Independent noise, which privacy needs, gives other figures: the table is not possible with it.
    plan = mechanism.plan(tree, Budget(epsilon=1), one_entity())
    counts = mechanism.estimate(seeded_measurements(truth, plan, 0)).counts
    assert (np.abs(errors_of(truth, counts) - published) > 5 * error).any()
