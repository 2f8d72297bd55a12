"""Posterior about counts against all rows one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.posterior import (
    Counted,
    Posterior,
    _count_posteriors,
    _draw_counts,
    count_posterior,
    posterior_under,
)


def _all_rows(groups: int, sizes: int) -> np.ndarray:
    return np.array([row for row in product(range(groups + 1), repeat=sizes) if list(row) == sorted(row, reverse=True)])


def _weights(rows: np.ndarray, counted: Counted, region: int, shape: np.ndarray) -> np.ndarray:
    """The posterior chance of every row, by its definition."""
    groups = counted.groups[region]
    odds = groups * shape / (1 + groups * shape)
    counts = rows - np.append(rows[:, 1:], np.zeros((len(rows), 1), dtype=int), axis=1)
    gaps = np.abs(rows - counted.values[region])
    costs = gaps**2 / (2 * counted.scale) if counted.gaussian else gaps / counted.scale
    weights = np.exp(-costs.sum(axis=1)) * odds[0] ** (groups - rows[:, 0]) * np.prod(odds[1:] ** counts, axis=1)
    return weights / weights.sum()


def _measured(rng: np.random.Generator, gaussian: bool) -> tuple[Counted, np.ndarray]:
    sizes, groups, scale = int(rng.integers(1, 5)), int(rng.integers(0, 8)), float(rng.uniform(0.2, 6))
    truth = np.sort(rng.integers(0, groups + 1, (1, sizes)))[:, ::-1]
    noise = rng.normal(size=(1, sizes)) * np.sqrt(scale) if gaussian else rng.laplace(size=(1, sizes)) * scale
    counted = Counted(np.round(truth + noise), np.array([groups]), scale, gaussian)
    return counted, rng.dirichlet(np.ones(sizes + 1))[None, :]


@pytest.mark.parametrize("gaussian", [False, True])
def test_means_and_variances_are_those_over_all_rows(gaussian: bool) -> None:
    rng = np.random.default_rng(17)
    for _ in range(150):
        counted, shapes = _measured(rng, gaussian)
        sizes = counted.values.shape[1]
        found = Posterior(np.zeros((1, sizes)), np.zeros((1, sizes)), np.zeros((1, sizes + 1)))
        _count_posteriors(counted, np.zeros(1, np.int64), shapes, found, 0, 1)
        rows = _all_rows(counted.groups[0], sizes)
        weights = _weights(rows, counted, 0, shapes[0])
        mean = weights @ rows
        np.testing.assert_allclose(found.mean[0], mean, atol=1e-9)
        np.testing.assert_allclose(found.variance[0], weights @ rows**2 - mean**2, atol=1e-8)
        np.testing.assert_allclose(found.counts[0].sum(), counted.groups[0], atol=1e-9)


def test_where_numbers_of_groups_are_guesses_nothing_bounds_the_counts() -> None:
    """Against all rows one by one, with so many groups that more would not show."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        sizes, scale, most = int(rng.integers(1, 4)), float(rng.uniform(0.2, 0.7)), 22
        shape, groups = rng.dirichlet(np.ones(sizes + 1)), int(rng.integers(1, 9))
        values = rng.integers(-2, 9, (1, sizes)).astype(float)
        found = posterior_under(shape, Counted(values, np.array([groups]), scale, False, certain=False))
        rows = _all_rows(most, sizes)
        odds = groups * shape / (1 + groups * shape)
        counts = rows - np.append(rows[:, 1:], np.zeros((len(rows), 1), dtype=int), axis=1)
        weights = np.exp(-np.abs(rows - values).sum(axis=1) / scale) * np.prod(odds[1:] ** counts, axis=1)
        weights /= weights.sum()
        np.testing.assert_allclose(found.mean[0], weights @ rows, atol=1e-6)
        np.testing.assert_allclose(found.variance[0], weights @ rows**2 - (weights @ rows) ** 2, atol=1e-5)


def test_draws_have_the_means_that_are_believed_where_numbers_of_groups_are_guesses() -> None:
    runs, shape = 40_000, np.array([0.1, 0.5, 0.3, 0.1])
    counted = Counted(np.array([[6.0, 3.0, 1.0]]).repeat(runs, axis=0), np.full(runs, 5), 1.5, False, certain=False)
    drawn, chances = np.zeros((runs, 3), dtype=np.int64), np.random.default_rng(4).random(3 * runs)
    _draw_counts(counted, np.zeros(runs, np.int64), shape[None, :], chances, drawn, 0, runs)
    found = posterior_under(shape, counted)
    error = np.sqrt(found.variance[0] / runs)
    assert np.all(np.abs(drawn.mean(axis=0) - found.mean[0]) < 5 * error)


def test_rows_with_wide_gaps_between_sizes_are_read_as_exactly() -> None:
    """What lies between two windows is passed in one step: as good as all rows that are near the measured ones."""
    values, shape = np.array([[900.0, 40.0, 38.0, 0.0]]), np.array([0.1, 0.5, 0.2, 0.1, 0.1])
    found = posterior_under(shape, Counted(values, np.array([1000]), 0.5, False))
    near = np.array(list(product(range(880, 921), range(25, 56), range(25, 56), range(12))))
    near = near[(near[:, 1] >= near[:, 2]) & (near[:, 2] >= near[:, 3])]
    weights = _weights(near, Counted(values, np.array([1000]), 0.5, False), 0, shape)
    np.testing.assert_allclose(found.mean[0], weights @ near, atol=1e-6)


def test_draws_are_as_frequent_as_they_are_likely() -> None:
    runs = 40_000
    counted = Counted(np.array([[4.0, 3.0, 0.0]]).repeat(runs, axis=0), np.full(runs, 4), 1.5, False)
    shape = np.array([0.3, 0.3, 0.3, 0.1])
    drawn = np.zeros((runs, 3), dtype=np.int64)
    chances = np.random.default_rng(3).random(3 * runs)
    _draw_counts(counted, np.zeros(runs, np.int64), shape[None, :], chances, drawn, 0, runs)
    rows = _all_rows(4, 3)
    weights = _weights(rows, counted, 0, shape)
    for row, weight in zip(rows, weights, strict=True):
        share = float((drawn == row).all(axis=1).mean())
        assert abs(share - weight) <= 5.5 * np.sqrt(weight / runs) + 1 / runs, row


def test_measurements_that_contradict_one_another_are_no_error() -> None:
    values = np.array([[-500.0, 900.0, -900.0, 500.0], [3.0, 1e6, -1e6, 0.0]])
    tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    found = count_posterior(Counted(values, np.array([9, 0]), 0.01, False), tree).marginals
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.variance).all()
    assert (found.mean[:, 1:] <= found.mean[:, :-1] + 1e-9).all()
    assert (found.mean >= 0).all()
    assert (found.mean <= [[9], [0]]).all()
    drawn = count_posterior(Counted(values, np.array([9, 0]), 0.01, False), tree).draw(np.full(8, 0.5))
    assert (np.diff(drawn, axis=1) <= 0).all()
    assert (drawn >= 0).all()
    assert (drawn <= [[9], [0]]).all()


def test_what_is_believed_is_nearer_than_what_was_measured() -> None:
    rng = np.random.default_rng(8)
    tree = Hierarchy.from_levels({"zone": [str(place) for place in range(12)]}, ["zone"])
    sizes, groups = 200, 300
    shape = np.exp(-np.arange(sizes + 1) / 40)
    truth = np.stack([_row(rng, groups, shape / shape.sum()) for _ in range(12)])
    noisy = truth + np.round(rng.laplace(size=truth.shape) * 10)
    found = count_posterior(Counted(noisy, np.full(12, groups), 10.0, False), tree).marginals
    assert np.abs(found.mean - truth).mean() < 0.35 * np.abs(np.clip(noisy, 0, groups) - truth).mean()


def _row(rng: np.random.Generator, groups: int, shape: np.ndarray) -> np.ndarray:
    counts = rng.multinomial(groups, shape)
    return counts[::-1].cumsum()[::-1][1:]
