"""The oracle: equal to dense least squares on the cells that occur, unbiased, and never released."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tallytree import Budget, SpecError, one_entity, release
from tallytree.lab import Truth, compare
from tallytree.lab.oracle import flat_pieces, least_squares, oracle, pieces_of_counts
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS, choose
from tallytree.privacy import Neighbours
from tests.oracles.least_squares import sums_of_leaves
from tests.oracles.trees import even_tree, random_tree


def sparse(seed=1, *, public=True, levels=3, sizes=6):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=3)
    shape = tree.leaf_count, sizes + public
    return Truth("made up", tree, rng.poisson(6, shape) * (rng.random(shape) < 0.5), public)


def dense(columns, values, tree, precision):
    """Least squares by a matrix: `columns` are the leaf tables that one unknown stands for."""
    sums = sums_of_leaves(tree)
    design = np.stack([(sums @ column).ravel() for column in columns], axis=1)
    weights = np.repeat(np.sqrt(precision), values.shape[1])
    unknowns = np.linalg.lstsq(design * weights[:, None], values.ravel() * weights, rcond=None)[0]
    return (design @ unknowns).reshape(values.shape)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("view", ["counts", "at_least"])
def test_it_is_least_squares_on_the_cells_that_occur_and_no_others(seed, view):
    data = sparse(seed, public=False)
    tree, rng = data.hierarchy, np.random.default_rng(seed)
    values, precision = rng.normal(9, 4, (len(tree), 6)), rng.uniform(0.2, 3, tree.depth)[tree.level_of]
    occurs = data.counts > 0
    columns = []
    for leaf, size in np.argwhere(occurs):
        column = np.zeros(occurs.shape)
        column[leaf, size if view == "counts" else slice(0, size + 1)] = 1  # a group of a size is at least any smaller
        columns.append(column)
    pieces = pieces_of_counts(occurs) if view == "counts" else flat_pieces(occurs, None)
    assert pieces.count == occurs.sum()
    found = least_squares(values, tree, pieces, precision)
    assert found == pytest.approx(dense(columns, values, tree, precision), abs=1e-5)


def test_where_a_leafs_groups_are_all_as_large_its_public_total_is_known():
    occurs = np.array([[False, False, True, False, True], [True, False, True, False, False], [False] * 5])
    pieces = flat_pieces(occurs, np.array([7.0, 9.0, 0.0]))
    # Leaf 0: all 7 groups have 2 or more, then 3 and 4 are one piece. Leaf 1 has groups of size 0, so nothing is known.
    assert pieces.number.tolist() == [[-1, -1, 0, 0], [1, 1, -1, -1], [-1] * 4]
    assert pieces.known.tolist() == [[7, 7, 0, 0], [0] * 4, [0] * 4]
    assert pieces.count == 2


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("view", ["counts", "at_least"])
def test_almost_no_noise_gives_back_the_truth(public, view):
    for seed in range(5):
        data = sparse(seed, public=public, levels=1 + seed % 4)
        told = oracle(data, view)
        plan = told.plan(data.hierarchy, Budget(epsilon=5000), one_entity())
        assert np.array_equal(told.estimate(seeded_measurements(data, plan, 1)).counts, data.all_levels())


def test_it_has_no_bias_and_beats_those_that_are_not_told_on_sparse_data():
    rng = np.random.default_rng(7)
    counts = np.where(rng.random((30, 61)) < 0.05, rng.poisson(40, (30, 61)), 0)
    data = Truth("sparse", even_tree(5, 30), counts, public_totals=True)
    told, true = oracle(data), data.all_levels()
    plan = told.plan(data.hierarchy, Budget(epsilon="0.5"), one_entity())
    errors = [told.estimate(seeded_measurements(data, plan, run)).counts - true for run in range(60)]
    gaps = np.array([error[:, 1:].sum(axis=1)[0] for error in errors])  # of T[1] at the root
    assert abs(gaps.mean()) < 5 * gaps.std(ddof=1) / np.sqrt(60)
    others = MECHANISMS["joint-cumulative"]
    unaware = [others.estimate(seeded_measurements(data, plan, run)).counts - true for run in range(3)]
    assert np.mean([np.abs(error).sum() for error in errors]) < 0.5 * np.mean(
        [np.abs(error).sum() for error in unaware]
    )


def test_it_is_compared_as_a_mechanism_and_cannot_be_released():
    data = sparse(3)
    told = pickle.loads(pickle.dumps(oracle(data)))  # noqa: S301
    found = compare(data, [told, oracle(data, "counts")], [Budget(epsilon=1)], runs=1, jobs=1)
    assert not found.failures()
    assert {row["mechanism"] for row in found.summary().to_pylist()} == {"oracle", "oracle-counts"}
    assert not [name for name in MECHANISMS if "oracle" in name]
    with pytest.raises(SpecError, match="NOT PRIVATE"):
        choose(told, Neighbours.of(data.group_sizes(), one_entity()))
    with pytest.raises(SpecError, match="unknown mechanism"):
        release(data.group_sizes(), budget=Budget(epsilon=1), unit=one_entity(), mechanism="oracle")
    with pytest.raises(ValueError, match="sorted_sizes"):
        oracle(data, "sorted_sizes")
