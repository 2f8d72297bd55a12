from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import ReleaseError, SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.joint_tables import joint_counts
from tallytree.estimate.simplex import integer_simplex, simplex_threshold
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.mechanisms.pgsr import joint_counts as joint_counts_mechanism
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import one_group
from tests.oracles.joint import least_by_enumeration, proved_counts, rows_with_total, squares
from tests.oracles.trees import adds_up, even_tree, random_tree, two_sided_geometric


def made_up(rng, tree, sizes, scale, mean=6):
    leaves = rng.poisson(rng.gamma(0.5, mean, (tree.leaf_count, 1)) * 0.6 ** np.arange(sizes))
    counts = tree.aggregate(leaves)
    return counts + two_sided_geometric(rng, counts.shape, scale), counts.sum(axis=1)


def check_promises(values, tree, totals):
    assert values.dtype == np.int64
    assert values.min() >= 0
    assert np.array_equal(values.sum(axis=1), totals)
    assert adds_up(values, tree)


def test_bound_and_result_enclose_the_optimum_of_exhaustive_search():
    rng = np.random.default_rng(1)
    proved = 0
    for case in range(200):
        tree = random_tree(rng, 2 + case % 2, most_children=2)
        if tree.leaf_count > 3:
            continue
        sizes, leaf_totals = int(rng.integers(1, 4)), rng.integers(0, 4, tree.leaf_count)
        totals = tree.aggregate(leaf_totals)
        noisy = rng.integers(-3, 5, (len(tree), sizes))
        best = least_by_enumeration(noisy, tree, [list(rows_with_total(sizes, int(total))) for total in leaf_totals])
        found = joint_counts(noisy, tree, totals=totals, tolerance=1e-7)
        check_promises(found.values, tree, totals)
        assert found.objective == squares(noisy, found.values, tree)
        assert found.lower_bound <= best <= found.objective
        proved += found.gap == 0
    assert proved >= 100


def test_bound_and_result_enclose_the_optimum_that_scip_proves(record_property):
    pytest.importorskip("pyscipopt")
    rng = np.random.default_rng(2)
    excess, gaps, exact = [], [], 0
    for case in range(200):
        tree = random_tree(rng, 2 + case % 3, most_children=3 if case % 3 < 2 else 2)
        noisy, totals = made_up(rng, tree, int(rng.integers(2, 6)), scale=[0.5, 1, 2][case % 3], mean=2)
        weights = None if case % 2 else [int(weight) for weight in rng.integers(1, 5, tree.depth)]
        found = joint_counts(noisy, tree, totals=totals, weights=weights, tolerance=1e-6)
        check_promises(found.values, tree, totals)
        best = proved_counts(noisy, tree, totals, weights)
        assert found.lower_bound <= best + 1e-5
        assert best <= found.objective + 1e-5
        excess.append(found.objective / best - 1 if best > 0.5 else found.objective)
        gaps.append(found.gap)
        exact += found.objective < best + 1e-5
    record_property("mean excess over the optimum", float(np.mean(excess)))
    record_property("mean gap to the bound", float(np.mean(gaps)))
    record_property("optimal of 200", exact)
    assert np.mean(excess) < 0.05


@pytest.mark.parametrize("scale", [6, 60])
def test_the_gap_is_below_one_percent_where_there_are_many_cells(scale):
    tree = even_tree(6, 120)
    noisy, totals = made_up(np.random.default_rng(scale), tree, 60, scale, mean=40)
    found = joint_counts(noisy, tree, totals=totals)
    check_promises(found.values, tree, totals)
    assert 0 <= found.gap < 0.01


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    levels=st.integers(1, 5),
    sizes=st.integers(1, 12),
    magnitude=st.sampled_from([0, 1, 5, 300, 10**6]),
    weighted=st.booleans(),
)
def test_every_promise_holds_on_any_input_and_twice_the_same(seed, levels, sizes, magnitude, weighted):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=4, short=0.3)
    noisy = rng.integers(-magnitude, magnitude + 1, (len(tree), sizes))
    totals = tree.aggregate(rng.integers(0, magnitude + 2, tree.leaf_count))
    weights = [float(weight) for weight in rng.uniform(0.1, 20, tree.depth)] if weighted else None
    found = joint_counts(noisy, tree, totals=totals, weights=weights)
    check_promises(found.values, tree, totals)
    assert found.lower_bound <= found.objective * (1 + 1e-9)
    assert 0 <= found.gap <= 1
    again = joint_counts(noisy, tree, totals=totals, weights=weights)
    assert np.array_equal(found.values, again.values)
    assert found.lower_bound == again.lower_bound


def test_the_mechanism_keeps_every_total_states_its_gap_and_needs_public_totals():
    tree = even_tree(3, 20)
    leaves = np.random.default_rng(8).poisson(30 * 0.5 ** np.arange(7), (20, 7))
    plan = every_level("counts", tree, Budget(epsilon=1), one_group())
    measured = seeded_measurements(Truth("made up", tree, leaves, public_totals=True), plan, 1)
    estimate = joint_counts_mechanism(measured)
    check_promises(estimate.counts, tree, tree.aggregate(leaves.sum(axis=1)))
    assert re.search(r"within 0\.\d\d % of a proved lower bound|proved to be the nearest", estimate.certificate)
    private = seeded_measurements(Truth("made up", tree, leaves, public_totals=False), plan, 1)
    with pytest.raises(ReleaseError, match="totals are private"):
        joint_counts_mechanism(private)


def test_measurements_without_noise_come_back_as_they_are():
    tree = even_tree(3, 12)
    truth = tree.aggregate(np.random.default_rng(5).integers(0, 90, (12, 6)))
    found = joint_counts(truth, tree, totals=truth.sum(axis=1))
    assert np.array_equal(found.values, truth)
    assert (found.objective, found.lower_bound, found.gap) == (0, 0, 0)


def test_a_single_region_takes_the_nearest_counts_with_its_total():
    tree = Hierarchy.from_levels({"nation": ["all"]}, ["nation"])
    rng = np.random.default_rng(3)
    for _ in range(50):
        noisy, total = rng.integers(-4, 5, (1, 3)), int(rng.integers(0, 6))
        best = min(((np.array(row) - noisy) ** 2).sum() for row in rows_with_total(3, total))
        found = joint_counts(noisy, tree, totals=np.array([total]))
        assert found.objective == found.lower_bound == best


def test_whole_numbers_with_a_total_are_the_nearest_to_any_real_target():
    rng = np.random.default_rng(4)
    for _ in range(200):
        target, total = rng.normal(1, 2, 4), int(rng.integers(0, 6))
        guesses = [np.nan, *rng.normal(0, 5, 3), 100.0, -100.0]
        thresholds = [simplex_threshold(target, total, guess) for guess in guesses]
        assert np.allclose(thresholds, thresholds[0])
        real, whole = np.maximum(target - thresholds[0], 0), integer_simplex(target, total)
        assert real.sum() == pytest.approx(total)
        best = min(((np.array(row) - target) ** 2).sum() for row in rows_with_total(4, total))
        assert ((whole - target) ** 2).sum() == pytest.approx(best)
        assert ((real - target) ** 2).sum() <= best + 1e-9


@pytest.mark.parametrize(
    ("totals", "message"),
    [
        (None, "needs the public total of every region"),
        (np.array([3, 1, 1]), "the total of 'total' is 3 but its children's add up to 2"),
        (np.array([3.0, 1, 2]), r"expected integers of shape \(3,\)"),
        (np.array([0, 1, -1]), "totals holds -1; expected 0 or more"),
    ],
)
def test_totals_that_cannot_be_are_refused(totals, message):
    with pytest.raises(SpecError, match=message):
        joint_counts(np.zeros((3, 2), dtype=int), even_tree(2), totals=totals)
