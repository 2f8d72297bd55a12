from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate import non_increasing
from tallytree.estimate.joint_tables import joint_cumulative
from tallytree.estimate.least_squares import tree_least_squares
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.mechanisms.pgsr import joint_cumulative as joint_cumulative_mechanism
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import one_entity
from tests.oracles.joint import (
    dense_least_squares,
    falling_rows,
    least_by_enumeration,
    proved_cumulative,
    squares,
)
from tests.oracles.trees import adds_up, even_tree, random_tree, two_sided_geometric


def made_up(rng, tree, sizes, scale, mean=6):
    """True `at_least` counts of a made-up tree, the same with noise, and the regions' totals."""
    leaves = rng.poisson(rng.gamma(0.5, mean, (tree.leaf_count, 1)) * 0.6 ** np.arange(sizes + 1))
    counts = tree.aggregate(leaves)
    truth = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return truth + two_sided_geometric(rng, truth.shape, scale), counts.sum(axis=1)


def check_promises(values, tree, totals):
    assert values.dtype == np.int64
    assert values.min() >= 0
    assert (np.diff(values, axis=1) <= 0).all()
    assert adds_up(values, tree)
    if totals is not None and np.ndim(totals) == 0:
        assert values[0, 0] == totals
    elif totals is not None:
        assert (values[:, 0] <= totals).all()


# ---------------------------------------------------------------- against the optimum


def test_bound_and_result_enclose_the_optimum_of_exhaustive_search():
    rng = np.random.default_rng(1)
    proved = 0
    for case in range(200):
        tree = random_tree(rng, 2 + case % 2, most_children=2)
        if tree.leaf_count > 3:
            continue
        sizes, leaf_totals = int(rng.integers(1, 4)), rng.integers(0, 4, tree.leaf_count)
        totals = tree.aggregate(leaf_totals)
        noisy = rng.integers(-2, 6, (len(tree), sizes))
        best = least_by_enumeration(noisy, tree, [list(falling_rows(sizes, int(most))) for most in leaf_totals])
        found = joint_cumulative(noisy, tree, totals=totals, tolerance=1e-7)
        check_promises(found.values, tree, totals)
        assert found.objective == squares(noisy, found.values, tree)
        assert found.lower_bound <= best <= found.objective
        proved += found.gap == 0
    assert proved >= 100


@pytest.mark.parametrize("kind", ["every region", "root", "private"])
def test_bound_and_result_enclose_the_optimum_that_scip_proves(kind, record_property):
    pytest.importorskip("pyscipopt")
    rng = np.random.default_rng({"every region": 1, "root": 2, "private": 3}[kind])
    excess, gaps, exact = [], [], 0
    for case in range(150):
        tree = random_tree(rng, 2 + case % 3, most_children=3 if case % 3 < 2 else 2)
        noisy, region_totals = made_up(rng, tree, int(rng.integers(1, 5)), scale=[0.5, 1, 2][case % 3], mean=2)
        totals = {"every region": region_totals, "root": int(region_totals[0]), "private": None}[kind]
        weights = None if case % 2 else [int(weight) for weight in rng.integers(1, 5, tree.depth)]
        found = joint_cumulative(noisy, tree, totals=totals, weights=weights, tolerance=1e-6)
        check_promises(found.values, tree, totals)
        best = proved_cumulative(noisy, tree, totals, weights)
        assert found.lower_bound <= best + 1e-5
        assert best <= found.objective + 1e-5
        excess.append(found.objective / best - 1 if best > 0.5 else found.objective)
        gaps.append(found.gap)
        exact += found.objective < best + 1e-5
    record_property("mean excess over the optimum", float(np.mean(excess)))
    record_property("mean gap to the bound", float(np.mean(gaps)))
    record_property("optimal of 150", exact)
    assert np.mean(excess) < 0.05


def test_an_instance_whose_relaxation_is_not_whole_is_solved_and_proved():
    """The piecewise linear relaxation costs 6.5 and the optimum 7: the bound is rounded up, because costs are whole."""
    tree = Hierarchy.from_edges([("root", ""), ("m", "root"), ("n", "root"), ("l", "m"), ("k", "m"), ("j", "n")])
    rows = {"l": "010", "k": "101", "j": "100", "m": "012", "n": "101", "root": "122"}
    noisy = np.array([[int(digit) for digit in reversed(rows[name])] for name in tree.names])
    found = joint_cumulative(noisy, tree, totals=2, tolerance=1e-9)
    assert least_by_enumeration(noisy, tree, [list(falling_rows(3, 2))] * 3, total=2) == 7
    assert found.objective == 7
    assert found.lower_bound == 7
    assert found.gap == 0


@pytest.mark.parametrize("scale", [3, 30])
def test_the_gap_is_below_one_percent_where_there_are_many_cells(scale):
    tree = even_tree(6, 120)
    noisy, totals = made_up(np.random.default_rng(scale), tree, 60, scale, mean=40)
    found = joint_cumulative(noisy, tree, totals=totals)
    check_promises(found.values, tree, totals)
    assert 0 <= found.gap < 0.01


# ---------------------------------------------------------------- promises


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    levels=st.integers(1, 5),
    sizes=st.integers(1, 12),
    magnitude=st.sampled_from([0, 1, 5, 300, 10**6]),
    kind=st.sampled_from(["every region", "root", "private"]),
    weighted=st.booleans(),
)
def test_every_promise_holds_on_any_input_and_twice_the_same(seed, levels, sizes, magnitude, kind, weighted):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=4, short=0.3)
    noisy = rng.integers(-magnitude, magnitude + 1, (len(tree), sizes))
    region_totals = tree.aggregate(rng.integers(0, magnitude + 2, tree.leaf_count))
    totals = {"every region": region_totals, "root": int(region_totals[0]), "private": None}[kind]
    weights = [float(weight) for weight in rng.uniform(0.1, 20, tree.depth)] if weighted else None
    found = joint_cumulative(noisy, tree, totals=totals, weights=weights)
    check_promises(found.values, tree, totals)
    assert found.lower_bound <= found.objective * (1 + 1e-9)
    assert 0 <= found.gap <= 1
    again = joint_cumulative(noisy, tree, totals=totals, weights=weights)
    assert np.array_equal(found.values, again.values)
    assert found.lower_bound == again.lower_bound


@pytest.mark.parametrize("upper", [None, 7])
def test_a_single_region_is_isotonic_regression(upper):
    tree = Hierarchy.from_levels({"nation": ["all"]}, ["nation"])
    rng = np.random.default_rng(4)
    for _ in range(50):
        noisy = rng.integers(-3, 15, (1, 8))
        totals = None if upper is None else np.array([upper])
        found = joint_cumulative(noisy, tree, totals=totals)
        assert np.array_equal(found.values, non_increasing(noisy, totals))
        assert found.gap == 0


def test_measurements_without_noise_come_back_as_they_are():
    tree = even_tree(3, 12)
    leaves = -np.sort(-np.random.default_rng(5).integers(0, 90, (12, 6)), axis=1)
    truth = tree.aggregate(leaves)
    found = joint_cumulative(truth, tree, totals=truth[:, 0])
    assert np.array_equal(found.values, truth)
    assert (found.objective, found.lower_bound, found.gap) == (0, 0, 0)


def test_a_level_of_large_weight_is_followed():
    tree = even_tree(2)
    noisy = np.array([[100], [30], [30]])
    of_root = joint_cumulative(noisy, tree, weights=[10**6, 1])
    of_leaves = joint_cumulative(noisy, tree, weights=[1, 10**6])
    assert of_root.values[:, 0].tolist() == [100, 50, 50]
    assert of_leaves.values[:, 0].tolist() == [60, 30, 30]


def test_a_total_of_zero_leaves_nothing():
    tree = even_tree(2, 4)
    noisy = np.full((len(tree), 3), 5)
    assert not joint_cumulative(noisy, tree, totals=np.zeros(len(tree), dtype=int)).values.any()
    assert not joint_cumulative(noisy, tree, totals=0).values.any()


def test_many_children_of_one_parent_are_no_obstacle():
    tree = even_tree(300)
    noisy, totals = made_up(np.random.default_rng(6), tree, 12, scale=2, mean=10)
    found = joint_cumulative(noisy, tree, totals=totals)
    check_promises(found.values, tree, totals)
    assert found.gap < 0.05


# ---------------------------------------------------------------- the mechanism


@pytest.mark.parametrize("public", [True, False])
def test_the_mechanism_keeps_totals_where_they_are_public_and_states_its_gap(public):
    tree = even_tree(3, 20)
    leaves = np.random.default_rng(8).poisson(30 * 0.5 ** np.arange(7), (20, 7))
    truth = Truth("made up", tree, leaves, public_totals=public)
    shares = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]
    plan = every_level("at_least", tree, Budget(epsilon=1), one_entity(), shares)
    estimate = joint_cumulative_mechanism(seeded_measurements(truth, plan, 1))
    assert estimate.counts.shape == (len(tree), 7)
    assert estimate.counts.min() >= 0
    assert adds_up(estimate.counts, tree)
    if public:
        assert np.array_equal(estimate.counts.sum(axis=1), tree.aggregate(leaves.sum(axis=1)))
    assert re.search(r"within 0\.\d\d % of a proved lower bound", estimate.certificate)


# ---------------------------------------------------------------- the parts


def test_least_squares_on_the_tree_is_that_of_the_dense_matrix():
    rng = np.random.default_rng(7)
    for levels in [1, 2, 3, 4, 5] * 4:
        tree = random_tree(rng, levels, most_children=4)
        values, weights = rng.normal(size=(len(tree), 7)), rng.uniform(0.1, 9, len(tree))
        found = tree_least_squares(values, tree, weights)
        assert np.allclose(found, dense_least_squares(values, tree, weights))


# ---------------------------------------------------------------- refusals

PAIR = even_tree(2)
FINE = np.zeros((3, 2), dtype=int)


@pytest.mark.parametrize(
    ("noisy", "options", "message"),
    [
        (
            np.zeros((2, 2), dtype=int),
            {},
            r"shape \(2, 2\); expected integers of shape \(3, sizes\), one row per region",
        ),
        (np.zeros((3, 0), dtype=int), {}, "no sizes"),
        (np.zeros((3, 2)), {}, "float64 of shape .* expected integers"),
        (np.full((3, 2), 2**52), {}, "may overflow"),
        (FINE, {"totals": np.array([3, 1])}, r"expected integers of shape \(3,\), one per region"),
        (FINE, {"totals": np.array([3, 1, 1])}, "the total of 'total' is 3 but its children's add up to 2"),
        (FINE, {"totals": np.array([0, 1, -1])}, "totals holds -1"),
        (FINE, {"totals": np.array([2**52, 2**52, 0])}, "less than 2⁵²"),
        (FINE, {"totals": -1}, "the root's total is -1"),
        (FINE, {"weights": [1]}, "1 weights for 2 levels"),
        (FINE, {"weights": [1, 0]}, "positive, finite"),
        (FINE, {"weights": [1, 1e12]}, "ratio of at most"),
        (FINE, {"tolerance": -1}, "tolerance is -1"),
    ],
)
def test_what_cannot_be_is_refused(noisy, options, message):
    with pytest.raises(SpecError, match=message):
        joint_cumulative(noisy, PAIR, **options)
