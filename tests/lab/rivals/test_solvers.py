"""Models 1 and 2 by generic solvers: proven optima against exhaustive search, and what rounding a relaxation breaks."""

from __future__ import annotations

import sys
from functools import cache
from itertools import product

import numpy as np
import pytest

from tallytree import Hierarchy, ReleaseError, SpecError
from tallytree.domain.histogram import at_least
from tallytree.estimate import nearest_consistent
from tallytree.lab.rivals import solvers
from tallytree.lab.rivals.solvers import (
    MOST_CELLS,
    cumulative_exact,
    cumulative_relaxed,
    hierarchical_exact,
    hierarchical_relaxed,
)
from tests.oracles.trees import (
    cost,
    even_tree,
    is_feasible,
    least_cost,
    least_cost_by_enumeration,
    noisy_counts,
    random_tree,
)

pytest.importorskip("pyscipopt")
pytest.importorskip("clarabel")
US = Hierarchy.from_edges([("GA", "US"), ("NY", "US")], levels=["nation", "state"])


@cache
def all_survival_counts(tree, sizes, most):
    """Every choice of non-increasing rows for the leaves, summed up the tree: no idea of the structure at all."""
    rows = [row for row in product(range(most, -1, -1), repeat=sizes) if list(row) == sorted(row)[::-1]]
    return np.array([tree.aggregate(np.array(leaves)) for leaves in product(rows, repeat=tree.leaf_count)])


def least_cumulative_cost(noisy, tree, most, *, upper=None, weights=None):
    """The optimum of Model 2 over all of them."""
    counts = all_survival_counts(tree, noisy.shape[1], most)
    if upper is not None:
        counts = counts[(counts[:, :, 0] <= upper).all(axis=1)]
    of_region = np.array([1] * tree.depth if weights is None else weights)[tree.level_of]
    return int((((counts - noisy) ** 2).sum(axis=2) * of_region).sum(axis=1).min())


def test_model_1_is_solved_to_the_optimum_of_exhaustive_search():
    rng = np.random.default_rng(1)
    for _ in range(12):
        noisy = rng.integers(-2, 4, (3, 2))
        for total in (None, 3):
            found = hierarchical_exact(noisy, US, total=total)
            assert is_feasible(found, US, total)
            assert cost(noisy, found, US) == least_cost_by_enumeration(noisy, US, total, most=6)


def test_model_1_and_its_twin_without_a_solver_reach_the_same_cost():
    rng = np.random.default_rng(2)
    for case in range(300):
        tree = random_tree(rng, 1 + case % 4, most_children=3)
        counts, noisy = noisy_counts(rng, tree, sizes=1 + case % 3, scale=3, mean=4)
        total = int(counts[0].sum()) if case % 2 else None
        weights = rng.integers(1, 9, tree.depth).tolist() if case % 5 == 0 else None
        proven = hierarchical_exact(noisy, tree, total=total, weights=weights)
        nearest = nearest_consistent(noisy, tree, total=total, weights=weights)
        assert is_feasible(proven, tree, total)
        assert cost(noisy, proven, tree, weights) == cost(noisy, nearest, tree, weights)
        if case < 10:
            assert cost(noisy, proven, tree, weights) == least_cost(noisy, tree, total, weights)


def test_model_2_is_solved_to_the_optimum_of_exhaustive_search():
    rng = np.random.default_rng(3)
    three_levels = Hierarchy.from_levels({"state": ["A", "B"], "county": ["a", "b"]}, ["state", "county"])
    for case in range(200):
        tree = (US, three_levels)[case % 2]
        noisy = rng.integers(-1, 5, (len(tree), 2 + case % 2))
        upper = tree.aggregate(rng.integers(0, 4, tree.leaf_count)) if case % 3 == 1 else None
        weights = rng.integers(1, 5, tree.depth).tolist() if case % 4 == 0 else None
        found = cumulative_exact(noisy, tree, upper=upper, weights=weights)
        assert is_feasible(found, tree, None)
        assert (np.diff(found, axis=1) <= 0).all()
        assert upper is None or (found[:, 0] <= upper).all()
        least = least_cumulative_cost(noisy, tree, 5, upper=upper, weights=weights)
        assert cost(noisy, found, tree, weights) == least


def test_figure_5_and_example_3_come_back_without_noise():
    table_4 = np.array([[3, 1, 2, 0, 0], [2, 0, 1, 0, 0], [1, 1, 1, 0, 0]])  # US, GA, NY
    from_the_front = np.cumsum(table_4, axis=1)
    assert from_the_front.tolist() == [[3, 4, 6, 6, 6], [2, 2, 3, 3, 3], [1, 2, 3, 3, 3]]  # Figure 5
    survivors = at_least(table_4, first_size=1)
    assert np.array_equal(survivors[:, 1:], from_the_front[:, -1:] - from_the_front[:, :-1])
    for solve in (hierarchical_exact, hierarchical_relaxed):
        assert np.array_equal(solve(table_4, US, total=6), table_4)
    for solve_survivors in (cumulative_exact, cumulative_relaxed):
        assert np.array_equal(solve_survivors(survivors, US, upper=table_4.sum(axis=1)), survivors)


def test_no_relaxation_costs_more_than_the_proven_optimum_and_rounding_it_breaks_sums():
    rng = np.random.default_rng(5)
    tree = even_tree(4, 12)
    counts, noisy = noisy_counts(rng, tree, sizes=8, scale=6)
    total = int(counts[0].sum())
    proven = hierarchical_exact(noisy, tree, total=total)
    program = solvers._model_1(noisy, tree, total, None)
    real = solvers._relaxed(program)
    assert ((real - noisy) ** 2).sum() <= cost(noisy, proven, tree) + 1e-6
    assert np.abs(real[0].sum() - total) < 1e-6
    rounded = hierarchical_relaxed(noisy, tree, total=total)
    assert rounded.min() >= 0
    assert not is_feasible(rounded, tree, None)

    survivors = at_least(counts, 1)
    noisy = survivors + (noisy - counts)
    rounded = cumulative_relaxed(noisy, tree, upper=survivors[:, 0])
    assert (np.diff(rounded, axis=1) <= 0).all()
    assert rounded.min() >= 0
    assert not is_feasible(rounded, tree, None)
    assert is_feasible(cumulative_exact(noisy, tree, upper=survivors[:, 0]), tree, None)


def test_what_is_too_large_or_takes_too_long_is_an_error_that_says_what_to_do(monkeypatch):
    regions = even_tree(3)
    with pytest.raises(SpecError, match=rf"at most {MOST_CELLS:,} cells .* pgsr-hierarchical-dp"):
        hierarchical_exact(np.zeros((4, MOST_CELLS), dtype=np.int64), regions)
    _, noisy = noisy_counts(np.random.default_rng(7), even_tree(6, 30), sizes=10, scale=9)
    monkeypatch.setattr(solvers, "MOST_SECONDS", 0.0)
    with pytest.raises(ReleaseError, match="did not prove"):
        cumulative_exact(noisy, even_tree(6, 30))
    with pytest.raises(SpecError, match="one row per region"):
        hierarchical_relaxed(np.zeros((2, 2)), US)


def test_a_missing_solver_is_named_with_the_way_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    with pytest.raises(SpecError, match=r"exact program needs pyscipopt: pip install 'tallytree\[solvers\]'"):
        hierarchical_exact(np.zeros((3, 2), dtype=np.int64), US)
