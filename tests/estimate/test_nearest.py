from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate import is_optimal, nearest_consistent
from tallytree.estimate.nearest import integer_weights
from tests.oracles.trees import (
    cost,
    even_tree,
    is_feasible,
    least_cost,
    least_cost_by_enumeration,
    noisy_counts,
    proven_cost,
    random_tree,
)

PAIR = even_tree(2)


@pytest.mark.parametrize("levels", [2, 3, 4, 5])
def test_it_finds_the_optimum_of_exhaustive_search(levels):
    rng = np.random.default_rng(levels)
    for case in range(100):
        tree = random_tree(rng, levels, most_children=3 if levels < 4 else 2)
        sizes = int(rng.integers(1, 4))
        noisy = rng.integers(-9, 10, (len(tree), sizes)) // int(rng.integers(1, 5)) - int(rng.integers(0, 3))
        total = [None, 0, 1, 7, int(rng.integers(0, 25))][case % 5]
        weights = None if case % 3 else [int(weight) for weight in rng.integers(1, 9, tree.depth)]
        found = nearest_consistent(noisy, tree, total=total, weights=weights)
        assert is_feasible(found, tree, total)
        assert cost(noisy, found, tree, weights) == least_cost(noisy, tree, total, weights)
        assert is_optimal(noisy, found, tree, total=total, weights=weights)


def test_the_exhaustive_search_itself_agrees_with_plain_enumeration():
    rng = np.random.default_rng(1)
    for case in range(12):
        tree = random_tree(rng, 3, most_children=2, short=0.5)
        if tree.leaf_count > 3:
            continue
        noisy = rng.integers(-2, 3, (len(tree), 2))
        total = None if case % 2 else 3
        assert least_cost(noisy, tree, total) == least_cost_by_enumeration(noisy, tree, total, most=3)


@pytest.mark.parametrize("scale", [1, 5])
@pytest.mark.parametrize("shift", [None, 0, -10, 25])
def test_it_finds_the_optimum_that_cp_sat_proves(scale, shift):
    pytest.importorskip("ortools")
    rng = np.random.default_rng([scale, 0 if shift is None else shift + 11])
    tree = random_tree(rng, 4, most_children=3)
    counts, noisy = noisy_counts(rng, tree, sizes=2, scale=scale, mean=4)
    total = None if shift is None else max(0, int(counts[0].sum()) + shift)
    weights = [3, 1, 2, 1][: tree.depth] if scale == 1 else None
    found = nearest_consistent(noisy, tree, total=total, weights=weights)
    assert cost(noisy, found, tree, weights) == proven_cost(noisy, tree, total, weights)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    levels=st.integers(1, 6),
    sizes=st.integers(1, 9),
    magnitude=st.sampled_from([0, 1, 3, 50, 10**6, 10**9]),
    total=st.none() | st.integers(0, 10**7),
    weighted=st.booleans(),
)
def test_counts_are_whole_non_negative_and_add_up_and_are_certified(seed, levels, sizes, magnitude, total, weighted):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=4)
    noisy = rng.integers(-magnitude, magnitude + 1, (len(tree), sizes))
    weights = [int(weight) for weight in rng.integers(1, 50, tree.depth)] if weighted else None
    found = nearest_consistent(noisy, tree, total=total, weights=weights)
    assert found.dtype == np.int64
    assert is_feasible(found, tree, total)
    assert is_optimal(noisy, found, tree, total=total, weights=weights)
    assert np.array_equal(found, nearest_consistent(noisy, tree, total=total, weights=weights))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), with_total=st.booleans())
def test_counts_that_already_add_up_stay_as_they_are(seed, with_total):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, 4, most_children=3)
    counts = tree.aggregate(rng.integers(0, 9, (tree.leaf_count, 5)))
    total = int(counts[0].sum()) if with_total else None
    assert np.array_equal(nearest_consistent(counts, tree, total=total), counts)


@pytest.mark.parametrize("total", [None, 60])
def test_the_certificate_rejects_every_dearer_exchange_and_accepts_equal_ones(total):
    rng = np.random.default_rng(3)
    rejected = 0
    for _ in range(10):
        tree = random_tree(rng, 4, most_children=3)
        noisy = rng.integers(-5, 15, (len(tree), 3))
        best = nearest_consistent(noisy, tree, total=total)
        lowest = cost(noisy, best, tree)
        for _ in range(40):
            leaves = best[tree.level_slice(tree.depth - 1)].copy()
            gainer, loser = rng.integers(0, tree.leaf_count, 2)
            to_size, from_size = rng.integers(0, 3, 2)
            leaves[gainer, to_size] += 1
            if total is not None or rng.random() < 0.5:
                leaves[loser, from_size] -= 1
            if leaves.min() < 0:
                continue
            other = tree.aggregate(leaves)
            dearer = cost(noisy, other, tree) > lowest
            assert is_optimal(noisy, other, tree, total=total) is not dearer
            rejected += dearer
    assert rejected > 50


def test_the_certificate_rejects_what_is_infeasible():
    noisy = np.array([[4, 4], [2, 2], [2, 2]])
    assert is_optimal(noisy, noisy, PAIR)
    assert is_optimal(noisy, noisy, PAIR, total=8)
    assert not is_optimal(noisy, noisy, PAIR, total=9)
    assert not is_optimal(noisy, noisy + np.array([[1, 0], [0, 0], [0, 0]]), PAIR)
    assert not is_optimal(noisy, noisy + np.array([[0, 0], [3, 0], [-3, 0]]), PAIR)
    with pytest.raises(SpecError, match="sizes"):
        is_optimal(noisy, noisy[:, :1], PAIR)


def test_one_region_alone_keeps_its_positive_counts():
    tree = Hierarchy.from_levels({"city": ["Ithaca"]}, ["city"])
    noisy = np.array([[5, -3, 0, 2]])
    assert nearest_consistent(noisy, tree).tolist() == [[5, 0, 0, 2]]
    assert nearest_consistent(noisy, tree, total=9).sum() == 9
    assert nearest_consistent(noisy, tree, total=0).tolist() == [[0, 0, 0, 0]]


def test_large_values_are_exact():
    rng = np.random.default_rng(5)
    tree = even_tree(3, 9)
    noisy = rng.integers(-(2**50), 2**50, (len(tree), 4))
    for total in (None, 2**51 + 1):
        found = nearest_consistent(noisy, tree, total=total)
        assert is_feasible(found, tree, total)
        assert is_optimal(noisy, found, tree, total=total)


@pytest.mark.parametrize("share", [0.5, 0.999, 1.5])
def test_large_counts_that_add_up_reach_another_total_in_few_steps(share):
    """Many leaves become positive at the same price there; once, rounding at that price cost billions of exchanges."""
    rng = np.random.default_rng(12)
    for _ in range(10):
        tree = random_tree(rng, 6, most_children=3)
        noisy = tree.aggregate(np.maximum(rng.integers(-(10**9), 10**9, (tree.leaf_count, 9)), 0))
        weights = [int(weight) for weight in rng.integers(1, 9, tree.depth)]
        total = int(noisy[0].sum() * share)
        found = nearest_consistent(noisy, tree, total=total, weights=weights)
        assert is_feasible(found, tree, total)
        assert is_optimal(noisy, found, tree, total=total, weights=weights)


@pytest.mark.parametrize("shape", [(40,), (5, 40), (2, 6, 24, 40)])
def test_counts_of_very_different_magnitude_are_certified(shape):
    rng = np.random.default_rng(len(shape))
    tree = even_tree(*shape)
    noisy = 2 ** rng.integers(0, 40, (len(tree), 70)) * rng.choice([-1, 1], (len(tree), 70))
    for total in (None, 1, 10**6, 10**12):
        found = nearest_consistent(noisy, tree, total=total)
        assert is_feasible(found, tree, total)
        assert is_optimal(noisy, found, tree, total=total)


@pytest.mark.parametrize("total", [None, 5, 2**60])
def test_what_would_overflow_is_refused(total):
    with pytest.raises(SpecError, match="smaller"):
        nearest_consistent(np.full((len(PAIR), 1), np.iinfo(np.int64).min), PAIR, total=total)
    with pytest.raises(SpecError, match="smaller"):
        is_optimal(np.full((len(PAIR), 3), 2**60), np.full((len(PAIR), 3), 2**60), PAIR)


@pytest.mark.parametrize("total", [None, 5, 2**50])
def test_large_counts_with_precise_weights_are_certified_and_not_refused(total):
    rng = np.random.default_rng(3)
    noisy = rng.integers(-(2**42), 2**42, (len(PAIR), 3))
    found = nearest_consistent(noisy, PAIR, total=total, weights=[1 << 20, 1])
    assert is_feasible(found, PAIR, total)
    assert is_optimal(noisy, found, PAIR, total=total, weights=[1 << 20, 1])
    assert not is_optimal(noisy, np.full(noisy.shape, 2**62), PAIR, total=total, weights=[1 << 20, 1])


def test_many_leaves_do_not_make_ordinary_values_overflow():
    tree = even_tree(300_000)
    noisy = np.zeros((len(tree), 1), dtype=np.int64)
    noisy[0], noisy[1:] = 2**30, 2**30 // 300_000
    found = nearest_consistent(noisy, tree)
    assert is_optimal(noisy, found, tree)


@pytest.mark.parametrize("tree", [even_tree(7), even_tree(5, 35), even_tree(2, 6, 24)])
def test_ties_are_spread_over_sizes_and_regions(tree):
    noisy = np.zeros((len(tree), 11), dtype=np.int64)
    total = 11 * 3 + 4
    found = nearest_consistent(noisy, tree, total=total)
    assert found[0].max() - found[0].min() == 1
    for level in range(1, tree.depth):
        by_region = found[tree.level_slice(level)].sum(axis=1)
        assert by_region.max() - by_region.min() <= total / len(by_region) + 1
        assert np.count_nonzero(by_region) > len(by_region) / 2
    first_served = found[tree.level_slice(1)].argmax(axis=0)
    assert len(set(first_served.tolist())) > 1


@pytest.mark.parametrize("scale", [6, 60])
@pytest.mark.parametrize("shape", [(20, 600), (4, 12, 40, 120, 600), (600,), (599, 600), (1, 1, 1, 600)])
def test_large_random_cases_are_certified(scale, shape):
    rng = np.random.default_rng([scale, *shape])
    tree = even_tree(*shape)
    counts, noisy = noisy_counts(rng, tree, sizes=50, scale=scale)
    for total in (None, int(counts[0].sum()), 0, 10**8):
        found = nearest_consistent(noisy, tree, total=total)
        assert is_feasible(found, tree, total)
        assert is_optimal(noisy, found, tree, total=total)
    weights = [Fraction(1, 3), *[0.7] * (tree.depth - 1)]
    found = nearest_consistent(noisy, tree, total=int(counts[0].sum()), weights=weights)
    assert is_optimal(noisy, found, tree, total=int(counts[0].sum()), weights=weights)


def test_weights_pull_towards_the_heavier_level():
    noisy = np.array([[10], [0], [0]])
    assert nearest_consistent(noisy, PAIR, weights=[1000, 1])[0, 0] == 10
    assert nearest_consistent(noisy, PAIR, weights=[1, 1000])[0, 0] == 0


def test_weights_keep_their_ratios_where_twenty_bits_can():
    assert integer_weights(None, 3) == [1, 1, 1]
    assert integer_weights([4, 6], 2) == [2, 3]
    assert integer_weights([0.5, 1.0, 0.25], 3) == [2, 4, 1]
    assert integer_weights([Fraction(1, 3), Fraction(1, 2)], 2) == [2, 3]
    assert integer_weights(np.array([3, 1 << 20]), 2) == [3, 1 << 20]
    assert integer_weights([1e-12, 1.0], 2) == [1, (1 << 20) - 1]
    assert max(integer_weights([np.pi, np.e, 1.0], 3)) == (1 << 20) - 1


@pytest.mark.parametrize(
    "weights", [[1], [1, 2, 3], [0, 1], [-1, 1], [1, float("nan")], [1, float("inf")], [1, "2"], [True, 1]]
)
def test_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(SpecError, match="weight"):
        nearest_consistent(np.zeros((3, 2), dtype=np.int64), PAIR, weights=weights)


@pytest.mark.parametrize("total", [-1, 2.0, True, "5", Fraction(3)])
def test_totals_that_make_no_sense_are_refused(total):
    with pytest.raises(SpecError, match="total"):
        nearest_consistent(np.zeros((3, 2), dtype=np.int64), PAIR, total=total)


@pytest.mark.parametrize("shape", [(2, 4), (3,), (3, 1, 1), (0, 0)])
def test_a_wrong_shape_is_refused(shape):
    with pytest.raises(SpecError, match="one row per region"):
        nearest_consistent(np.zeros(shape, dtype=np.int64), PAIR)


def test_noisy_counts_that_are_not_integers_are_refused():
    with pytest.raises(SpecError, match="expected integers"):
        nearest_consistent(np.zeros((3, 2)), PAIR)
    with pytest.raises(SpecError, match="2⁶³"):
        nearest_consistent(np.full((3, 2), 2**63, dtype=np.uint64), PAIR)


def test_no_sizes_give_no_counts_and_can_hold_no_total():
    empty = np.zeros((3, 0), dtype=np.int64)
    assert nearest_consistent(empty, PAIR).shape == (3, 0)
    assert is_optimal(empty, empty, PAIR)
    with pytest.raises(SpecError, match="no sizes"):
        nearest_consistent(empty, PAIR, total=0)


def test_the_input_may_be_of_any_integer_type_and_order_and_is_left_alone():
    rng = np.random.default_rng(8)
    tree = even_tree(3, 8)
    noisy = rng.integers(-9, 30, (len(tree), 6))
    expected = nearest_consistent(noisy, tree, total=100)
    for other in (noisy.astype(np.int16), np.asfortranarray(noisy), np.repeat(noisy, 2, axis=1)[:, ::2]):
        before = other.copy()
        assert np.array_equal(nearest_consistent(other, tree, total=100), expected)
        assert np.array_equal(other, before)
