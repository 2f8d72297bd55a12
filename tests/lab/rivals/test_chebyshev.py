"""InfTDA on counts: constraints always, the least largest move by exhaustion, few false positives."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Hierarchy, SpecError
from tallytree.lab.rivals.topdown import chebyshev_down, move, top_down
from tests.oracles.trees import even_tree, is_feasible, noisy_counts, random_tree, two_sided_geometric


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1), levels=st.integers(1, 4), public=st.booleans(), scale=st.sampled_from([0.3, 3, 1e6])
)
def test_counts_are_whole_and_add_up(seed, levels, public, scale):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=5)
    counts, noisy = noisy_counts(rng, tree, sizes=5, scale=scale, mean=6)
    total = int(counts[0].sum()) if public else None
    assert is_feasible(chebyshev_down(noisy, tree, total=total), tree, total)


def least_move(children, amount):
    """The least largest move over all non-negative numbers that add up."""
    return min(
        max(abs(new - old) for new, old in zip(parts, children, strict=True))
        for parts in product(range(amount + 1), repeat=len(children))
        if sum(parts) == amount
    )


def test_the_largest_move_is_the_least_there_is():
    for children in product(range(-3, 5), repeat=3):
        for amount in range(7):
            moved = np.array(children, dtype=np.int64)
            move(moved, amount)
            assert moved.min() >= 0
            assert moved.sum() == amount
            assert np.abs(moved - children).max() == least_move(children, amount), (children, amount)


def slow_moves(children, amount):
    """The paper's Algorithm 3, step by step: lower the smallest first; if that is not enough, allow one more."""
    now = [max(0, y + -((sum(children) - amount) // len(children))) for y in children]
    furthest = max(abs(new - old) for new, old in zip(now, children, strict=True))
    while sum(now) > amount:
        for child in sorted(range(len(children)), key=lambda place: (children[place], place)):
            lowest = max(0, children[child] - furthest)
            now[child] -= min(now[child] - lowest, sum(now) - amount)
        furthest += 1
    return now


@settings(max_examples=300)
@given(st.lists(st.integers(-20, 60), min_size=1, max_size=7, unique=True), st.integers(0, 80))
def test_moves_are_those_of_the_papers_algorithm(children, amount):
    moved = np.array(children, dtype=np.int64)
    move(moved, amount)
    assert moved.tolist() == slow_moves(children, amount)


def test_fewer_regions_that_have_nothing_are_given_something_than_by_least_squares():
    rng = np.random.default_rng(5)
    tree = even_tree(4, 80)
    leaves = np.where(rng.random((80, 20)) < 0.2, rng.poisson(30, (80, 20)), 0)
    counts = tree.aggregate(leaves)
    noisy = counts + two_sided_geometric(rng, counts.shape, 4)
    false = [
        int(((made(noisy, tree)[tree.level_slice(2)] > 0) & (leaves == 0)).sum()) for made in (chebyshev_down, top_down)
    ]
    assert false[0] < 0.8 * false[1]


def test_wrong_input_is_refused():
    tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    with pytest.raises(SpecError, match="one row per region"):
        chebyshev_down(np.zeros((2, 2), dtype=np.int64), tree)
    with pytest.raises(SpecError, match="total"):
        chebyshev_down(np.zeros((3, 2), dtype=np.int64), tree, total=-3)
    with pytest.raises(SpecError, match="overflow"):
        chebyshev_down(np.full((3, 2), 1 << 60), tree)
