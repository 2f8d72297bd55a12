"""The variances of least squares on the tree, against dense matrices and against simulated noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Hierarchy, SpecError
from tallytree.estimate.least_squares import TreeVariances, tree_least_squares
from tests.oracles.least_squares import dense_covariance, dense_weights
from tests.oracles.trees import random_tree

trees = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 5))


def some_law(seed, levels, *, all_measured=False):
    """A random tree with carried regions, and noise that differs by level; some levels may not be measured."""
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=4, short=0.3)
    variances = np.exp(rng.normal(0, 1.5, tree.depth))
    if not all_measured:
        variances[:-1][rng.random(tree.depth - 1) < 0.3] = math.inf
    return rng, tree, variances.tolist()


@settings(max_examples=80)
@given(trees)
def test_variances_are_those_of_the_dense_formula(case):
    _, tree, variances = some_law(*case)
    found = TreeVariances.of(tree, variances).variance
    assert np.allclose(found, np.diag(dense_covariance(tree, variances)), rtol=1e-9, atol=0)


@settings(max_examples=80)
@given(trees)
def test_any_two_weighted_sums_have_the_covariance_of_the_dense_formula(case):
    """Nested and disjoint regions alike: weights of every sign on every level."""
    rng, tree, variances = some_law(*case)
    law, dense = TreeVariances.of(tree, variances), dense_covariance(tree, variances)
    one, other = rng.integers(-2, 3, (2, len(tree)))
    size = math.sqrt((one @ dense @ one) * (other @ dense @ other))
    assert math.isclose(law.covariance_of(one, other), one @ dense @ other, rel_tol=1e-9, abs_tol=1e-9 * size)
    assert math.isclose(law.variance_of(one), one @ dense @ one, rel_tol=1e-9, abs_tol=1e-9 * np.abs(dense).max())
    assert law.variance_of(one) >= 0


@settings(max_examples=60)
@given(trees)
def test_measurement_weights_and_estimates_are_those_of_the_dense_formula(case):
    rng, tree, variances = some_law(*case)
    law, dense = TreeVariances.of(tree, variances), dense_weights(tree, variances)
    weights = rng.integers(-2, 3, len(tree))
    assert np.allclose(law.measurement_weights(weights), weights @ dense, rtol=0, atol=1e-9 * len(tree))
    values = rng.integers(-50, 50, (len(tree), 3))
    fitted = tree_least_squares(values, tree, law.region_weights)
    assert np.allclose(fitted, dense @ values, rtol=0, atol=1e-6)


@settings(max_examples=60)
@given(trees)
def test_the_leading_measurement_has_the_part_of_the_variance_that_is_said(case):
    _, tree, variances = some_law(*case)
    law = TreeVariances.of(tree, variances)
    noise = np.array(variances)[tree.level_of]
    noise[np.isinf(noise)] = 0
    contributions = dense_weights(tree, variances) ** 2 * noise
    parts = contributions / contributions.sum(axis=1, keepdims=True)
    levels, leading = law.leading
    for region in range(len(tree)):
        on_the_way = [region]
        while tree.parents[on_the_way[-1]] >= 0:
            on_the_way.append(int(tree.parents[on_the_way[-1]]))
        below = [place for place in range(len(tree)) if region in _ancestors(tree, place)]
        looked_through = {*on_the_way, *below}
        best = max(parts[region, place] for place in looked_through)
        there = max(parts[region, place] for place in looked_through if tree.level_of[place] == levels[region])
        assert math.isclose(leading[region], best, rel_tol=1e-6, abs_tol=1e-9)
        assert math.isclose(leading[region], there, rel_tol=1e-6, abs_tol=1e-9)


def _ancestors(tree, region):
    while region >= 0:
        yield region
        region = int(tree.parents[region])


def test_simulated_noise_has_these_variances():
    """20,000 columns of normal noise: the mean square of an error is within 6 of its standard errors."""
    rng, tree, variances = some_law(5, 4, all_measured=True)
    law = TreeVariances.of(tree, variances)
    noise = rng.normal(0, 1, (len(tree), 20_000)) * np.sqrt(np.array(variances))[tree.level_of][:, np.newaxis]
    fitted = tree_least_squares(noise, tree, law.region_weights)
    ratio = (fitted**2).mean(axis=1) / law.variance
    assert np.abs(ratio - 1).max() < 6 * math.sqrt(2 / 20_000)
    siblings = law.region_sum(tree.children_of(0)) - law.region_sum([0])
    assert law.variance_of(siblings) < 1e-12 * law.variance.max()  # children add up, so nothing is left to vary


def test_a_difference_between_two_regions():
    tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    law = TreeVariances.of(tree, [1.0, 1.0])
    # x_GA = (2 GA − NY + total) / 3, so GA − NY is estimated by the difference of its own measurements.
    assert math.isclose(law.variance_of(law.region_sum([1]) - law.region_sum([2])), 2.0)


def test_a_measurement_far_better_than_all_others_keeps_its_variance():
    tree = Hierarchy.from_levels({"state": ["GA", "NY"], "county": ["Fulton", "Kings"]}, ["state", "county"])
    law = TreeVariances.of(tree, [1e-30, 1.0, 1e9])
    assert math.isclose(law.variance[0], 1e-30, rel_tol=1e-9)
    assert np.all(law.variance[1:] > 0.1)
    assert np.all(TreeVariances.of(tree, [0.0, 0.0, 0.0]).variance >= 0)


def test_bad_variances_are_refused():
    tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    with pytest.raises(SpecError, match="2 variances"):
        TreeVariances.of(tree, [1.0])
    with pytest.raises(SpecError, match="last level"):
        TreeVariances.of(tree, [1.0, math.inf])
    with pytest.raises(SpecError, match="one per region"):
        TreeVariances.of(tree, [1.0, 1.0]).variance_of(np.ones(2))
