from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Hierarchy, SpecError
from tallytree.lab.rivals.topdown import top_down
from tests.oracles.trees import is_feasible, least_cost, noisy_counts, random_tree


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1), levels=st.integers(1, 4), public=st.booleans(), scale=st.sampled_from([0.3, 3, 30])
)
def test_counts_are_whole_and_add_up(seed, levels, public, scale):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, levels, most_children=4)
    counts, noisy = noisy_counts(rng, tree, sizes=5, scale=scale, mean=6)
    total = int(counts[0].sum()) if public else None
    found = top_down(noisy, tree, total=total, weights=rng.integers(1, 9, tree.depth).tolist())
    assert is_feasible(found, tree, total)


def test_consistent_counts_come_back_as_they_are():
    rng = np.random.default_rng(2)
    tree = random_tree(rng, 4, most_children=3)
    counts, _ = noisy_counts(rng, tree, sizes=6, scale=1)
    assert np.array_equal(top_down(counts, tree, total=int(counts[0].sum())), counts)


def test_given_the_root_a_childs_share_is_the_nearest_there_is():
    """With two levels and the root's counts as they come out, no other children are nearer to the noisy ones."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        tree = random_tree(rng, 2, most_children=4, short=0)
        _, noisy = noisy_counts(rng, tree, sizes=1, scale=3, mean=4)
        found = top_down(noisy, tree)
        settled = noisy.copy()
        settled[0] = found[0]
        assert ((found - settled) ** 2).sum() == least_cost(settled, tree, total=int(found[0, 0]))


def test_the_first_step_is_least_squares_on_the_root_and_its_children():
    """The root's real optimum: projected by hand for two children far from zero."""
    tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    noisy = np.array([[130], [40], [60]])
    # min (x + y − 130)² + (x − 40)² + (y − 60)²: each child is raised by 10, and the root becomes 120.
    assert top_down(noisy, tree).ravel().tolist() == [120, 50, 70]
    # With the root ten times as precise: raised by 30 · 10 / 21 each, the root 128.57.
    root, *children = top_down(noisy, tree, weights=[10, 1]).ravel().tolist()
    assert root == sum(children) == 129
    assert sorted(child - seen for child, seen in zip(children, (40, 60), strict=True)) == [14, 15]


def test_wrong_input_is_refused():
    tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    with pytest.raises(SpecError, match="one row per region"):
        top_down(np.zeros((2, 2), dtype=np.int64), tree)
    with pytest.raises(SpecError, match="total"):
        top_down(np.zeros((3, 2), dtype=np.int64), tree, total=-3)
