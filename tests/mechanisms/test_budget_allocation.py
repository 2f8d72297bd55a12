"""How the budget is divided where nothing is said."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms.budget_allocation import (
    PARTS,
    POWER,
    _balanced,
    _noise,
    balanced_shares,
    hardly_noisy,
    level_errors,
)
from tallytree.privacy.budget import Budget

BUDGETS = (Budget(epsilon="0.1"), Budget(epsilon=1), Budget(epsilon=3), Budget(rho="0.5"))
SHAPES = ((1, 50), (1, 13, 27), (1, 7, 40, 2896), (1, 3, 9, 27))


def cost(regions, budget, shares):
    """How far behind its best rival each level is, to the fourth power: the definition."""
    depth, noise = len(regions), _noise(budget)
    alike = level_errors(regions, noise, [1 / depth] * depth)
    alone = level_errors(regions, noise, [0] * (depth - 1) + [1])
    errors = level_errors(regions, noise, [share / sum(shares) for share in shares])
    return sum((error / min(rivals)) ** POWER for error, *rivals in zip(errors, alike, alone, strict=True))


@pytest.mark.parametrize("budget", BUDGETS, ids=str)
@pytest.mark.parametrize("regions", SHAPES, ids=str)
def test_no_division_into_tenths_is_better(regions, budget):
    found = _balanced(regions, budget)
    assert sum(found) == PARTS
    assert found[-1] > 0
    upper = [shares for shares in product(range(10), repeat=len(regions) - 1) if sum(shares) < 10]
    best = min(cost(regions, budget, (*shares, 10 - sum(shares))) for shares in upper)
    assert cost(regions, budget, found) <= best * (1 + 1e-9)


def test_errors_are_those_of_simulated_noise():
    """Three states of four counties, Gaussian noise on each number, least squares by the textbook."""
    regions, shares, amount = (1, 3, 12), (0.3, 0.2, 0.5), 0.02
    noise = [1 / (2 * amount * share) for share in shares]
    sums = np.vstack([np.ones((1, 12)), np.kron(np.eye(3), np.ones((1, 4))), np.eye(12)])
    weights = np.repeat(1 / np.array(noise), regions)
    covariance = sums @ np.linalg.inv(sums.T @ (weights[:, None] * sums)) @ sums.T
    variances = np.diag(covariance)[[0, 1, 4]]
    found = level_errors(regions, _noise(Budget(rho="0.02")), shares)
    np.testing.assert_allclose(found, np.sqrt(variances / 2), rtol=1e-2)  # E|X| is near √(v / 2) where v ≫ 1


def test_large_budgets_go_to_the_leaves_and_a_single_level_has_all():
    assert _balanced((1, 51, 3143), Budget(epsilon=100)) == (0, 0, PARTS)
    assert balanced_shares(Hierarchy.from_levels({"here": ["a"]}, ["here"]), Budget(epsilon=1))[-1] > 0
    assert hardly_noisy(Budget(epsilon=3))
    assert not hardly_noisy(Budget(epsilon=1))


@pytest.mark.parametrize(
    "budget", [Budget(epsilon=10**6), Budget(rho=10**6), Budget(epsilon="1e-9"), Budget(epsilon="1e-50")], ids=str
)
def test_budgets_beyond_all_measure_are_divided_too(budget):
    assert sum(_balanced((1, 51, 3143), budget)) == PARTS


def test_very_deep_trees_are_divided_by_the_formula():
    table = {f"level {level}": ["a", "b"] for level in range(20)}
    tree = Hierarchy.from_levels(table, list(table))
    assert balanced_shares(tree, Budget(epsilon=1)) == [1] * (tree.depth - 1) + [tree.depth]
