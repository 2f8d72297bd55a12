"""Where counts run out and the noise is small, leaves are read as beliefs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tallytree as tt
from tallytree.estimate.least_squares import subtree_estimates
from tallytree.lab import Truth
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.mechanisms.measured_leaves import noisy_values, sharpened
from tallytree.mechanisms.topdown_estimate import _weigh
from tallytree.privacy.neighbours import Neighbours

TREE = tt.Hierarchy.from_levels(
    {"state": [f"s{leaf // 10}" for leaf in range(60)], "county": [f"c{leaf}" for leaf in range(60)]},
    ["state", "county"],
)


def with_tails(public, seed=3):
    """Households of geometric sizes up to 30: few leaves have any beyond 15."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.geometric(0.4, (60, 400)), 30)
    counts = np.stack([np.bincount(row, minlength=31) for row in sizes])
    return Truth("tails", TREE, counts, public_totals=public)


def measured(truth, epsilon, run=0, shares=(0, 0, 1)):
    mechanism = MECHANISMS["tallytree"].configured({"leaves": "at_least"})
    plan = mechanism.plan(TREE, tt.Budget(epsilon=epsilon), tt.one_entity(), shares)
    return mechanism, seeded_measurements(truth, plan, "tails", run)


def known(measurements) -> tuple[np.ndarray, np.ndarray]:
    return subtree_estimates(*noisy_values(measurements), TREE)


@pytest.mark.parametrize("public", [True, False])
def test_errors_of_leaves_and_root_are_smaller_than_those_of_least_squares(public, monkeypatch):
    """Sums over 12 runs with the same noise; without beliefs errors are a tenth larger or more."""
    truth = with_tails(public)
    true, sharp, plain = truth.all_levels(), np.zeros(2), np.zeros(2)
    for run in range(12):
        mechanism, measurements = measured(truth, 2, run)
        for found, without in ((sharp, False), (plain, True)):
            with monkeypatch.context() as patch:
                if without:
                    patch.setattr("tallytree.mechanisms.topdown_estimate.sharpened", lambda *_: None)
                off = (mechanism.estimate(measurements).counts - true)[:, ::-1]  # from the largest size down
            errors = np.abs(np.cumsum(off, axis=1)).sum(axis=1)
            found += errors[0], errors[-60:].sum()
    assert np.all(sharp < plain / 1.1)


@pytest.mark.parametrize("public", [True, False])
def test_there_is_nothing_to_sharpen_with_much_noise_or_without_a_tail(public):
    truth = with_tails(public)
    _, noisy = measured(truth, "0.2")
    assert sharpened(noisy, *known(noisy), _weigh) is None
    _, quiet = measured(truth, 2)
    assert sharpened(quiet, *known(quiet), _weigh) is not None
    crowded = replace(truth, counts=truth.counts + 1000)
    _, full = measured(crowded, 2)
    assert sharpened(full, *known(full), _weigh) is None


def test_what_is_believed_lies_nearer_the_truth_than_its_variance_would_let_it_stray_far():
    """Of leaves: the mean squared error over the believed variance is near 1, so that the two can be weighed."""
    truth = with_tails(True)
    ratios = []
    for run in range(6):
        _, measurements = measured(truth, 2, run)
        mean, variance = sharpened(measurements, *known(measurements), _weigh)
        true = np.cumsum(truth.counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
        ratios.append(((mean[-60:] - true) ** 2).sum() / variance[-60:].sum())
    assert 0.5 < np.mean(ratios) < 2


def test_with_measured_totals_and_as_many_sizes_as_groups_counts_are_read_as_beliefs():
    """Private totals: 60 leaves of about 100 groups, 100 sizes. Errors are a quarter smaller or more."""
    rng = np.random.default_rng(8)
    sizes = np.minimum(rng.geometric(0.03, (60, 100)), 100)
    truth = Truth(
        "many", TREE, np.stack([np.bincount(row, minlength=101) for row in sizes])[:, 1:], public_totals=False
    )
    data = truth.group_sizes()
    errors = {}
    for leaves in (None, "at_least"):
        mechanism = MECHANISMS["tallytree"].configured({} if leaves is None else {"leaves": leaves})
        mechanism = mechanism.suited_to(Neighbours.of(data, tt.one_entity()), TREE, None)
        plan = mechanism.plan(TREE, tt.Budget(epsilon="0.5"), tt.one_entity())
        measurements = seeded_measurements(truth, plan, "many", derive_facts=mechanism.derive_facts)
        counts = mechanism.estimate(measurements).counts
        np.testing.assert_array_equal(TREE.aggregate(counts[-60:]), counts)
        assert counts.min() >= 0
        errors[leaves] = np.abs(np.cumsum((counts - truth.all_levels())[:, ::-1], axis=1))[-60:].sum()
    assert errors[None] < errors["at_least"] / 1.3
