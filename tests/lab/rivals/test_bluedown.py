"""BlueDown on counts: constraints always, the real optimum by a solver, the root by dense least squares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from tallytree import Hierarchy, SpecError
from tallytree.lab.rivals.topdown import blue_down, pull
from tests.oracles.least_squares import dense_weights
from tests.oracles.trees import is_feasible, noisy_counts, random_tree


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    levels=st.integers(1, 4),
    public=st.booleans(),
    scale=st.sampled_from([0.3, 3, 30, 1e6]),
)
def test_counts_are_whole_and_add_up(seed, levels, public, scale):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=5)
    counts, noisy = noisy_counts(rng, tree, sizes=5, scale=scale, mean=6)
    total = int(counts[0].sum()) if public else None
    found = blue_down(noisy, tree, total=total, weights=(10.0 ** rng.uniform(-9, 9, tree.depth)).tolist())
    assert is_feasible(found, tree, total)


def test_consistent_counts_come_back_as_they_are():
    rng = np.random.default_rng(2)
    tree = random_tree(rng, 4, most_children=3)
    counts, _ = noisy_counts(rng, tree, sizes=6, scale=1)
    assert np.array_equal(blue_down(counts, tree, weights=[1, 3, 2, 1], total=int(counts[0].sum())), counts)


def solved(lower, variance, amount):
    """min Σ (x − lower)² / variance with Σ x = amount and x ≥ 0, by an active-set solver; the sum by a large weight."""
    scale, heavy = 1 / np.sqrt(variance), 1e5
    rows = np.vstack([np.diag(scale), np.full(len(lower), heavy)])
    return nnls(rows, np.append(scale * lower, heavy * amount))[0]


def test_the_real_step_is_the_optimum_that_a_solver_finds():
    rng = np.random.default_rng(3)
    clipped = 0
    for _ in range(60):
        count = int(rng.integers(1, 8))
        lower, variance = rng.normal(2, 5, count), rng.uniform(0.2, 5, count)
        amount = int(rng.integers(0, 30))
        found = np.maximum(lower + variance * pull(lower, variance, amount), 0)
        assert found.sum() == pytest.approx(amount)
        assert found == pytest.approx(solved(lower, variance, amount), abs=1e-4)
        clipped += (found == 0).any()
    assert 10 < clipped < 60  # both kinds were met


def test_on_small_trees_the_root_is_dense_least_squares_and_children_round_what_a_solver_finds():
    rng = np.random.default_rng(4)
    for _ in range(20):
        tree = random_tree(rng, 3, most_children=4, short=0)
        variances = rng.uniform(0.5, 8, 3)
        _, noisy = noisy_counts(rng, tree, sizes=2, scale=4, mean=9)
        found = blue_down(noisy, tree, weights=(1 / variances).tolist())
        unbiased = dense_weights(tree, variances) @ noisy
        assert found[0] == pytest.approx(np.maximum(unbiased[0], 0), abs=0.5 + 1e-9)
        precision = 1 / variances
        for size in range(2):
            # Children of the root: what their own subtree says of them, by dense least squares on that subtree.
            lower, spread = [], []
            for child in tree.children_of(0):
                below = list(tree.children_of(child))
                design = np.vstack([np.ones(len(below)), np.eye(len(below))])
                weights = np.array([precision[1], *[precision[2]] * len(below)])
                normal = np.linalg.inv(design.T * weights @ design)
                leaves = normal @ (design.T * weights) @ noisy[[child, *below], size]
                lower.append(leaves.sum())
                spread.append(normal.sum())
            best = solved(np.array(lower), np.array(spread), found[0, size])
            assert np.abs(found[tree.children_of(0), size] - best).max() < 1 + 1e-3


def test_a_region_that_is_surer_of_itself_is_moved_less():
    table = {"state": ["A", "B", "B", "B", "B"], "county": ["a", "b", "c", "d", "e"]}
    tree = Hierarchy.from_levels(table, ["state", "county"])
    # State A is measured by its own number and one county's, B by its own and the sum of four: A is the surer one.
    counts = blue_down(np.array([[1000], [100], [100], [100], [25], [25], [25], [25]]), tree, weights=[1e6, 1, 1])
    assert counts[0, 0] == 1000
    assert counts[2, 0] - 100 > counts[1, 0] - 100 > 0


def test_wrong_input_is_refused():
    tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    noisy = np.zeros((3, 2), dtype=np.int64)
    with pytest.raises(SpecError, match="one row per region"):
        blue_down(noisy[:2], tree, weights=[1, 1])
    with pytest.raises(SpecError, match="weights"):
        blue_down(noisy, tree, weights=[1])
    with pytest.raises(SpecError, match="positive, finite"):
        blue_down(noisy, tree, weights=[1, 0])
    with pytest.raises(SpecError, match="total"):
        blue_down(noisy, tree, weights=[1, 1], total=-3)
