"""Multipliers: every child's answer is the nearest row, so all that is left to see is that the answers add up."""

from __future__ import annotations

import numpy as np
import pytest

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate import allocation
from tallytree.estimate.allocation import NEAR, NEAR_DEVIATIONS, Rows, allocate_rows, fit_monotone, multipliers


@kernel
def answers(rows: Rows, parent: Integers) -> tuple[Floats, Floats]:
    """The multipliers of a family and its rows: parts of kernels cannot be called otherwise."""
    return multipliers(rows, parent), allocation._relaxed(rows, parent)


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("noise", [0.1, 3.0, 100.0, 3000.0])
@pytest.mark.parametrize(("children", "sizes"), [(2, 300), (40, 1), (60, 20), (30, 400)])
def test_answers_add_up_whatever_the_noise(children: int, sizes: int, noise: float, public: bool) -> None:
    rng = np.random.default_rng(6)
    groups = 1 + rng.poisson(50 * rng.gamma(0.5, 2, children))
    truth = np.array([np.sort(rng.binomial(n, np.exp(-4 * np.arange(sizes) / sizes)))[::-1] for n in groups])
    parent, bounds = truth.sum(axis=0), groups if public else None
    deviation = noise * rng.uniform(0.5, 2, truth.shape)
    mean = truth + deviation * rng.standard_normal(truth.shape)
    found, relaxed = answers(allocation._rows(mean, deviation, bounds), parent)
    rows = fit_monotone(mean + deviation**2 * found, deviation, bounds)
    assert np.array_equal(rows, relaxed)
    gap = (parent - rows.sum(axis=0)) / (deviation**2).sum(axis=0)
    moves = np.abs(gap) * (deviation**2).max(axis=0)
    assert np.all(moves < 1.001 * np.maximum(NEAR, NEAR_DEVIATIONS * deviation.max(axis=0)))


def test_rows_above_leaves_are_the_same_without_leaves() -> None:
    rng = np.random.default_rng(7)
    tree = Hierarchy.from_levels({"a": list("xxyyyz"), "b": list("123456")}, ["a", "b"])
    totals = tree.aggregate(np.full((tree.leaf_count, 1), 30))[:, 0]
    mean, deviation = rng.normal(10, 9, (len(tree), 4)), np.ones((len(tree), 4))
    whole = allocate_rows(mean, deviation, tree, totals)
    upper = allocate_rows(mean, deviation, tree, totals, through=tree.depth - 2)
    assert np.array_equal(upper, whole[: tree.level_slice(2).start])
    assert np.array_equal(allocate_rows(mean, deviation, tree, totals, top=upper), whole)
