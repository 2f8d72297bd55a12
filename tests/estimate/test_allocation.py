"""Whole numbers from the root down: every constraint on any beliefs, and the best allocation of a size by itself."""

from __future__ import annotations

import doctest
from itertools import product
from math import erf, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate import allocation, least_squares
from tallytree.estimate.allocation import Rows, allocate_rows, fit_monotone
from tallytree.estimate.least_squares import TreeVariances, subtree_estimates, tree_least_squares


@kernel
def relaxed(rows: Rows, parent: Integers) -> Floats:
    """A part of kernels cannot be called otherwise."""
    return allocation._relaxed(rows, parent)


def a_tree(rng: np.random.Generator) -> Hierarchy:
    paths = [(str(a), f"{a}.{b}") for a in range(rng.integers(1, 5)) for b in range(rng.integers(1, 5))]
    return Hierarchy.from_levels({"a": [a for a, _ in paths], "b": [b for _, b in paths]}, ["a", "b"])


@given(seed=st.integers(0, 2**32 - 1), public=st.booleans(), monotone_leaves=st.booleans())
def test_whatever_is_believed_the_numbers_keep_every_constraint(seed: int, public: bool, monotone_leaves: bool) -> None:
    rng = np.random.default_rng(seed)
    tree, sizes = a_tree(rng), int(rng.integers(1, 9))
    totals = tree.aggregate(rng.integers(0, 20, (tree.leaf_count, 1)))[:, 0]
    mean = rng.normal(0, 10.0 ** rng.uniform(-1, 6), (len(tree), sizes))
    deviation = 10.0 ** rng.uniform(-6, 4, mean.shape)
    found = allocate_rows(mean, deviation, tree, totals if public else None, monotone_leaves=monotone_leaves)
    assert found.min() >= 0
    assert np.all(np.diff(found, axis=1) <= 0)
    assert np.array_equal(tree.aggregate(found[tree.level_slice(tree.depth - 1)]), found)
    if public:
        assert np.all(found <= totals[:, None])


def test_what_is_settled_above_stays() -> None:
    rng = np.random.default_rng(5)
    tree = a_tree(rng)
    totals = tree.aggregate(np.full((tree.leaf_count, 1), 30))[:, 0]
    mean, deviation = rng.normal(10, 9, (len(tree), 4)), np.ones((len(tree), 4))
    whole = allocate_rows(mean, deviation, tree, totals)
    leaves = tree.level_slice(tree.depth - 1)
    mean[leaves] += rng.normal(0, 5, mean[leaves].shape)
    again = allocate_rows(mean, deviation, tree, totals, top=whole[: leaves.start])
    assert np.array_equal(again[: leaves.start], whole[: leaves.start])
    assert not np.array_equal(again[leaves], whole[leaves])


def expected_error(count: int, mean: float, deviation: float) -> float:
    """E |count − X| for a normal X, counted unit by unit: the j-th unit changes it by 1 − 2 P(X ≥ j − ½)."""
    chances = [0.5 * (1 + erf((mean - unit + 0.5) / deviation / sqrt(2))) for unit in range(1, count + 1)]
    return float(sum(1 - 2 * chance for chance in chances))


@pytest.mark.parametrize("seed", range(40))
def test_one_size_is_shared_out_with_the_least_expected_error(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = Hierarchy.from_levels({"a": list("xyz")}, ["a"])
    most = rng.integers(0, 6, 3)
    parent = int(rng.integers(0, most.sum() + 1))
    mean, deviation = rng.normal(2, 3, (4, 1)), rng.uniform(0.1, 4, (4, 1))
    mean[0], deviation[0] = parent, 1e-9
    found = allocate_rows(mean, deviation, tree, np.array([most.sum(), *most]), monotone_leaves=True)[:, 0]
    assert found[0] == parent
    costs = {
        counts: sum(expected_error(c, mean[1 + i, 0], deviation[1 + i, 0]) for i, c in enumerate(counts))
        for counts in product(*(range(bound + 1) for bound in most))
        if sum(counts) == parent
    }
    assert costs[tuple(found[1:].tolist())] == pytest.approx(min(costs.values()), abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_a_familys_real_rows_are_the_nearest_ones(seed: int) -> None:
    """Against SciPy's general solver on small families with unequal deviations."""
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    children, sizes = 3, 4
    mean, deviation = rng.normal(4, 4, (children, sizes)), rng.uniform(0.5, 3, (children, sizes))
    bounds = rng.integers(4, 12, children)
    parent = -np.sort(-rng.integers(0, bounds.sum() // 2, sizes))
    found = relaxed(allocation._rows(mean, deviation, bounds), parent)

    def cost(flat: np.ndarray) -> float:
        return float(np.sum(((flat.reshape(mean.shape) - mean) / deviation) ** 2))

    constraints = [
        {"type": "eq", "fun": lambda flat: flat.reshape(mean.shape).sum(axis=0) - parent},
        {"type": "ineq", "fun": lambda flat: -np.diff(flat.reshape(mean.shape), axis=1).ravel()},
    ]
    start = np.tile(parent / children, (children, 1)).ravel()
    limits = [(0, bound) for bound in bounds for _ in range(sizes)]
    best = optimize.minimize(cost, start, method="SLSQP", bounds=limits, constraints=constraints)
    assert best.success
    assert np.abs(found.sum(axis=0) - parent).max() < 0.1
    assert np.abs(found.ravel() - best.x).max() < 0.2


def test_orderly_rows_are_the_nearest_falling_ones_within_bounds() -> None:
    mean = np.array([[5.0, 7.0, -1.0]])
    assert fit_monotone(mean, np.array([[1.0, 1.0, 1.0]]), None).tolist() == [[6.0, 6.0, 0.0]]
    assert fit_monotone(mean, np.array([[1.0, 3.0, 1.0]]), np.array([5])).tolist() == [[5.0, 5.0, 0.0]]
    assert fit_monotone(mean, np.array([[1.0, 3.0, 1.0]]), None)[0, 0] == pytest.approx(5.2)


@pytest.mark.parametrize("seed", range(10))
def test_subtrees_say_what_least_squares_says_at_the_root(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = a_tree(rng)
    noise = rng.uniform(0.5, 9, tree.depth)
    noise[1] = np.inf if seed % 2 else noise[1]
    values = rng.normal(0, 10, (len(tree), 2))
    mean, variance = subtree_estimates(values, np.repeat(noise[:, None], 2, axis=1), tree)
    law = TreeVariances.of(tree, noise.tolist())
    fitted = tree_least_squares(values, tree, law.region_weights)
    assert mean[0] == pytest.approx(fitted[0])
    assert variance[0] == pytest.approx([law.variance[0]] * 2)


def test_the_examples_in_the_docstrings_hold() -> None:
    for module in (allocation, least_squares):
        assert doctest.testmod(module).failed == 0
