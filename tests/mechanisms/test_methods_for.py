"""The choice of a method for each level: from public facts alone, and better than either method everywhere."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree import Budget, one_entity
from tallytree.lab import Truth
from tallytree.lab.results import level_errors
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS, prepare
from tallytree.mechanisms.count_of_counts import MATCHED, methods_for
from tallytree.privacy import Neighbours
from tests.oracles.trees import even_tree

TREE = even_tree(3, 12)


def made_up(sizes_of, groups, max_size, seed=1, leaves=12):
    """Leaves with `groups` groups each, whose sizes `sizes_of(generator, groups)` draws."""
    rng = np.random.default_rng(seed)
    rows = [np.bincount(np.minimum(sizes_of(rng, groups), max_size), minlength=max_size + 1) for _ in range(leaves)]
    return Truth("made up", even_tree(3, leaves), np.stack(rows), public_totals=True)


def test_it_is_given_nothing_but_public_facts():
    assert list(inspect.signature(methods_for).parameters) == ["hierarchy", "totals", "max_size"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 2_000))
def test_data_with_the_same_public_facts_get_the_same_methods(seed, groups, max_size):
    few = made_up(lambda rng, number: np.ones(number, int), groups, max_size, seed)
    many = made_up(lambda rng, number: rng.integers(0, max_size + 1, number), groups, max_size, seed)
    chosen = []
    for truth in (few, many):
        sizes = truth.group_sizes()
        mechanism, plan = prepare(
            "coc-matching",
            neighbours=Neighbours.of(sizes, one_entity()),
            hierarchy=truth.hierarchy,
            totals=sizes.region_totals,
            budget=Budget(epsilon=1),
        )
        chosen.append((mechanism.options, plan))
    assert chosen[0] == chosen[1]


@given(st.lists(st.integers(0, 5_000), min_size=12, max_size=12), st.integers(1, 100_000))
def test_each_level_has_a_method_and_lists_are_for_levels_with_few_groups(leaf_totals, max_size):
    totals = TREE.aggregate(np.array(leaf_totals))
    found = methods_for(TREE, totals, max_size)
    assert len(found) == TREE.depth
    assert set(found) <= set(MATCHED)
    for level, method in enumerate(found):
        average = totals[TREE.level_slice(level)].mean()
        assert method == ("sorted-sizes-l1" if 10 * average < max_size else "cumulative")
    # Regions get smaller from level to level, so once a list is taken it is taken further down too.
    assert list(found) == sorted(found)


def test_without_public_totals_every_level_is_cumulative():
    assert methods_for(TREE, None, 10) == methods_for(TREE, None, 10**6) == ("cumulative",) * 3


@pytest.mark.parametrize("epsilon", ["0.3", "3"])
@pytest.mark.parametrize(
    ("sizes_of", "groups", "max_size", "expected"),
    [
        (lambda rng, number: 1 + rng.poisson(2, number), 2_000, 20, "cumulative"),
        (lambda rng, number: rng.integers(0, 4_000, number), 40, 5_000, "sorted-sizes-l1"),
        (lambda rng, number: np.exp(rng.normal(5, 1, number)).astype(int), 30, 10_000, "sorted-sizes-l1"),
    ],
    ids=["crowded", "sparse", "skewed"],
)
def test_where_the_case_is_clear_the_better_method_is_taken(sizes_of, groups, max_size, expected, epsilon):
    truth = made_up(sizes_of, groups, max_size)
    tree, true = truth.hierarchy, truth.all_levels()
    assert methods_for(tree, true.sum(axis=1), max_size)[-1] == expected
    errors = {}
    for method in ("cumulative", "sorted-sizes-l1"):
        mechanism = MECHANISMS["bottom-up"].configured({"method": method})
        plan = mechanism.plan(tree, Budget(epsilon=epsilon), one_entity())
        counts = mechanism.estimate(seeded_measurements(truth, plan, 7)).counts
        errors[method] = level_errors(true, counts, tree, 2, 0).emd.sum()
    assert min(errors, key=errors.get) == expected
