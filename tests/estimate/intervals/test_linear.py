"""Sums over regions and sizes from the measurements: against dense matrices, and how often their intervals hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tallytree as tt
from tallytree.core.errors import ReleaseError
from tallytree.estimate.intervals.linear import MeasuredView, entity_weights, linear_sum, ratio
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.publish.release.queries import union_of
from tests.oracles.least_squares import dense_covariance, dense_weights
from tests.oracles.trees import random_tree

SIZES = 6


def measured(seed, *, public, view="at_least", epsilon=1, levels=3, shares=None, unit=None):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=4)
    counts = rng.poisson(rng.gamma(1, 20, (tree.leaf_count, 1)) * 0.6 ** np.arange(SIZES + public))
    truth = Truth("made up", tree, counts, public_totals=public)
    name = "pgsr-cumulative-dp" if view == "at_least" else "pgsr-hierarchical-dp"
    shares = rng.integers(1, 9, tree.depth).tolist() if shares is None else shares
    unit = tt.one_entity() if unit is None else unit
    plan = MECHANISMS[name].plan(tree, tt.Budget(epsilon=epsilon), unit, shares)
    return rng, truth, seeded_measurements(truth, plan, "linear", seed)


cases = st.tuples(st.integers(0, 10_000), st.booleans(), st.sampled_from(["at_least", "counts"]))


def dense(measurements, view):
    """Unbiased counts of all cells, from dense matrices; and the covariance of two sums of cells."""
    tree, variances = measurements.hierarchy, measurements.variances(view)
    fitted = dense_weights(tree, variances) @ measurements.stacked(view)
    if view == "counts":
        differences = np.eye(fitted.shape[1])
        known = np.zeros((len(tree), fitted.shape[1]))
    else:
        front = measurements.first_size == 0
        differences = np.eye(SIZES + front, SIZES, -1 * front) - np.eye(SIZES + front, SIZES, 1 - front)
        known = np.zeros((len(tree), SIZES + front))
        if front:
            known[:, 0] = measurements.region_totals
    return fitted @ differences.T + known, dense_covariance(tree, variances), differences


@settings(max_examples=60)
@given(cases)
def test_estimates_variances_and_covariances_are_those_of_dense_matrices(case):
    seed, public, view = case
    rng, _, measurements = measured(seed, public=public, view=view)
    cells, covariance, differences = dense(measurements, view)
    tree, found = measurements.hierarchy, []
    for _ in range(2):
        regions = rng.choice(len(tree), size=int(rng.integers(1, len(tree) + 1)), replace=False)
        sizes = rng.choice(np.arange(1 - public, SIZES + 1), size=int(rng.integers(1, SIZES)), replace=False)
        leaves = [leaf for leaf in range(int(tree.level_starts[-2]), len(tree)) if within(tree, leaf, set(regions))]
        by_leaf = np.isin(np.arange(len(tree)), leaves).astype(float)
        by_size = np.isin(np.arange(1 - public, SIZES + 1), sizes).astype(float)
        known = 0.0
        if public and view == "counts" and by_size.sum() > len(by_size) / 2:  # the total less the other sizes
            by_size, known = by_size - 1, by_leaf @ measurements.region_totals
        one = sum_of(MeasuredView.of(measurements), union_of(regions.tolist(), tree), sizes)
        found.append((one, by_leaf, by_size @ differences, by_leaf @ cells @ by_size + known))
    for each, by_leaf, columns, expected in found:
        assert math.isclose(each.estimate, expected, rel_tol=1e-9, abs_tol=1e-6)
        expected = (by_leaf @ covariance @ by_leaf) * (columns @ columns)
        assert math.isclose(each.variance, expected, rel_tol=1e-9, abs_tol=1e-9)
    (one, on_one, columns_one, _), (other, on_other, columns_other, _) = found
    expected = (on_one @ covariance @ on_other) * (columns_one @ columns_other)
    assert math.isclose(one.covariance_with(other), expected, rel_tol=1e-6, abs_tol=1e-6 * covariance.max())
    apart = one.minus(other)
    assert math.isclose(apart.variance, one.variance + other.variance - 2 * expected, rel_tol=1e-6, abs_tol=1e-6)


def sum_of(view, regions, sizes):
    """The groups of some sizes in disjoint regions."""
    by_size = np.zeros(view.measurements.max_size + 2)
    by_size[list(sizes)] = 1
    return linear_sum(view, regions, by_size)


def entities(view, regions):
    return linear_sum(view, regions, entity_weights(view.measurements))


def groups(view, regions):
    return sum_of(view, regions, range(view.measurements.first_size, view.measurements.max_size + 1))


def interval(found, level=0.95):
    half = found.half_width(level)
    return found.estimate - half, found.estimate + half


def within(tree, region, named):
    while region >= 0:
        if region in named:
            return True
        region = int(tree.parents[region])
    return False


@pytest.mark.parametrize("view", ["at_least", "counts"])
@pytest.mark.parametrize("public", [True, False])
def test_sums_of_sizes_and_of_groups_follow_from_the_cells(view, public):
    _, _, measurements = measured(3, public=public, view=view)
    cells, _, _ = dense(measurements, view)
    sizes = np.arange(1 - public, SIZES + 1)
    held = entities(MeasuredView.of(measurements), [1])
    assert math.isclose(held.estimate, cells[1] @ sizes, rel_tol=1e-9)
    counted = groups(MeasuredView.of(measurements), [1])
    if public:
        assert (counted.estimate, counted.variance) == (measurements.region_totals[1], 0.0)
        assert interval(counted) == (counted.estimate, counted.estimate)
    else:
        assert math.isclose(counted.estimate, cells[1].sum(), rel_tol=1e-9)
    assert math.isclose(ratio(held, counted).estimate, held.estimate / counted.estimate)


@pytest.mark.parametrize("public", [True, False])
def test_intervals_hold_as_often_as_they_say(public):
    """Small and large sums, differences, means and ratios over 150 runs: 90 % within 5 standard errors, or better."""
    runs, level, held = 150, 0.9, {}
    for run in range(runs):
        tree = random_tree(np.random.default_rng(8), 3, most_children=4)
        rng = np.random.default_rng(9)
        counts = rng.poisson(60 * 0.6 ** np.arange(SIZES + public), (tree.leaf_count, SIZES + public))
        truth = Truth("made up", tree, counts, public_totals=public)
        plan = MECHANISMS["pgsr-cumulative-dp"].plan(tree, tt.Budget(epsilon=2), tt.one_entity())
        view = MeasuredView.of(seeded_measurements(truth, plan, "linear", run))
        true = truth.all_levels()
        sizes = np.arange(1 - public, SIZES + 1)
        leaf = len(tree) - 1
        one, other = sum_of(view, [leaf], [2]), sum_of(view, [1, 2], [2, 3, 5])
        true_one, true_other = true[leaf][sizes == 2].sum(), true[[1, 2]][:, np.isin(sizes, [2, 3, 5])].sum()
        apart, share = interval(one.minus(other), level), ratio(one, other, level=level)
        mean = ratio(entities(view, [leaf]), groups(view, [leaf]), level=level)
        within_ends = {
            "one cell": (interval(one, level), true_one),
            "some cells": (interval(other, level), true_other),
            "difference": (apart, true_one - true_other),
            "ratio": ((share.lower, share.upper), true_one / true_other),
            "mean size": ((mean.lower, mean.upper), true[leaf] @ sizes / true[leaf].sum()),
        }
        for name, ((lower, upper), value) in within_ends.items():
            held[name] = held.get(name, 0) + (lower - 1e-9 <= value <= upper + 1e-9)
    for name, count in held.items():
        assert level - 5 * math.sqrt(0.09 / runs) < count / runs < level + 0.08, name


@pytest.mark.parametrize("budgets", [("1", "1"), ("4", "0.5")], ids=["alike", "unlike"])
def test_differences_of_two_releases_hold_as_often_as_they_say(budgets):
    """The same sum from two independent releases, of which the second has seen some groups come and go."""
    runs, level, held = 200, 0.9, 0
    for run in range(runs):
        tree = random_tree(np.random.default_rng(8), 3, most_children=4)
        sums, true = [], []
        for number, epsilon in enumerate(budgets):
            counts = np.random.default_rng(number).poisson(40, (tree.leaf_count, SIZES))
            truth = Truth("made up", tree, counts, public_totals=False)
            plan = MECHANISMS["pgsr-cumulative-dp"].plan(tree, tt.Budget(epsilon=epsilon), tt.one_entity())
            again = seeded_measurements(truth, plan, "two", number, run)
            sums.append(sum_of(MeasuredView.of(again), [1, 2], [2, 3, 5]))
            true.append(truth.all_levels()[[1, 2]][:, [1, 2, 4]].sum())
        apart = sums[1].minus(sums[0])
        assert math.isclose(apart.variance, sums[0].variance + sums[1].variance)
        lower, upper = interval(apart, level)
        held += lower - 1e-9 <= true[1] - true[0] <= upper + 1e-9
    assert level - 5 * math.sqrt(0.09 / runs) < held / runs < level + 0.08


def test_a_ratio_whose_denominator_may_be_zero_is_unbounded():
    _, _, measurements = measured(3, public=True, epsilon="0.01")
    found = ratio(
        sum_of(MeasuredView.of(measurements), [1], [2]),
        sum_of(MeasuredView.of(measurements), [2], [SIZES]),
    )
    assert not found.bounded
    assert (found.lower, found.upper) == (-math.inf, math.inf)


def test_measurements_without_a_linear_view_are_refused():
    _, truth, _ = measured(3, public=False)
    plan = MECHANISMS["pgsr-chain"].plan(truth.hierarchy, tt.Budget(epsilon=1), tt.one_entity())
    with pytest.raises(ReleaseError, match="Unbiased estimates of sums need"):
        MeasuredView.of(seeded_measurements(truth, plan, 1))
