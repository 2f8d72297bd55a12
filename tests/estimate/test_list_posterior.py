"""Posterior about lists: equal to summing over all lists there are, for any noise, with bands and without."""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import exp, prod

import numpy as np
import pytest

from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate import posterior
from tallytree.estimate.posterior import WIDTH, Lists, Posterior, fit_shapes, list_posterior, smooth_sizes


def some_lists(rng: np.random.Generator, lengths: list[int], top: int, banded: bool, gaussian: bool) -> Lists:
    starts = np.concatenate([[0], np.cumsum(lengths)])
    bands = [(0, 2), (2, top)] if banded else [(0, top)]
    return Lists(
        values=rng.integers(-2, top + 3, (len(bands), starts[-1])),
        starts=starts,
        below=np.array([below for below, _ in bands]),
        above=np.array([above for _, above in bands]),
        scales=rng.uniform(0.5, 4, len(bands)),
        gaussian=gaussian,
    )


def by_all_lists(lists: Lists, region: int, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means and variances of the `at_least` counts, and expected counts, by summing over every sorted list."""
    start, stop = lists.starts[region : region + 2]
    groups, top = stop - start, len(shape) - 1
    prior = groups * shape / (1 + groups * shape)
    weights, rows = [], []
    for sizes in combinations_with_replacement(range(top + 1), groups):
        log = 0.0
        for place, size in enumerate(sizes):
            for band, scale in enumerate(lists.scales):
                part = min(size, lists.above[band]) - min(size, lists.below[band])
                gap = abs(lists.values[band, start + place] - part)
                log -= gap**2 / (2 * scale) if lists.gaussian else gap / scale
        weights.append(exp(log) * prod(prior[size] for size in sizes))
        rows.append(np.bincount(sizes, minlength=top + 1))
    counts, chances = np.array(rows), np.array(weights) / sum(weights)
    at_least = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    mean = chances @ at_least
    return mean, chances @ at_least**2 - mean**2, chances @ counts


@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("gaussian", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_beliefs_are_the_exact_posterior(seed: int, gaussian: bool, banded: bool) -> None:
    rng = np.random.default_rng(seed)
    lengths, top = [3, 0, 5, 1], 5
    lists = some_lists(rng, lengths, top, banded, gaussian)
    shapes = rng.dirichlet(np.ones(top + 1), 2)
    of = np.array([0, 1, 1, 0])
    found = Posterior(np.zeros((4, top)), np.zeros((4, top)), np.zeros((4, top + 1)))
    posterior._list_posteriors(lists, of, shapes, found, 0, 4)
    for region in range(4):
        mean, variance, counts = by_all_lists(lists, region, shapes[of[region]])
        assert found.mean[region] == pytest.approx(mean, abs=1e-9)
        assert found.variance[region] == pytest.approx(variance, abs=1e-9)
        assert found.counts[region] == pytest.approx(counts, abs=1e-9)


@pytest.mark.parametrize("banded", [False, True])
@pytest.mark.parametrize("gaussian", [False, True])
def test_draws_have_the_law_of_the_beliefs(gaussian: bool, banded: bool) -> None:
    """Means of 4,000 draws within 6 standard errors of the exact ones, and so are the means of their squares.

    (Seeds are fixed. What is rarer than 1 in 4,000 may not show at all: its squares may miss by one group.)
    """
    rng = np.random.default_rng(7)
    lengths, top, runs = [3, 0, 5], 5, 4000
    lists = some_lists(rng, lengths, top, banded, gaussian)
    shapes, of = rng.dirichlet(np.ones(top + 1), 1), np.zeros(3, np.int64)
    at_least = np.zeros((runs, 3, top), np.int64)
    for run in range(runs):
        posterior._draw_lists(lists, of, shapes, rng.random(8), at_least[run], 0, 3)
    assert (np.diff(at_least, axis=2) <= 0).all()
    assert (at_least[:, :, 0] <= lengths).all()
    for region in range(3):
        mean, variance, _ = by_all_lists(lists, region, shapes[0])
        error = 6 * np.sqrt(variance / runs) + 1e-9
        assert np.all(np.abs(at_least[:, region].mean(axis=0) - mean) <= error)
        squares = (at_least[:, region] - mean) ** 2
        assert np.all(np.abs(squares.mean(axis=0) - variance) <= 6 * squares.std(axis=0) / runs**0.5 + 1 / runs)


def test_the_same_chances_draw_the_same_lists_and_the_ends_of_chance_are_no_trouble() -> None:
    rng = np.random.default_rng(8)
    tree = Hierarchy.from_levels({"leaf": ["a", "b"]}, ["leaf"])
    lists = some_lists(rng, [4, 3], 6, banded=False, gaussian=False)
    draw, chances = list_posterior(lists, tree, 6).draw, rng.random(7)
    assert np.array_equal(draw(chances), draw(chances))
    for end in (0.0, np.nextafter(1.0, 0.0)):
        drawn = draw(np.full(7, end))
        assert (np.diff(drawn, axis=1) <= 0).all()
        assert (drawn[:, 0] <= [4, 3]).all()
    certain = Lists(lists.values * 0 + 2, lists.starts, lists.below, lists.above, np.array([1e-3]), False)
    assert list_posterior(certain, tree, 6).draw(chances).tolist() == [[4, 4, 0, 0, 0, 0], [3, 3, 0, 0, 0, 0]]


def test_a_list_without_noise_is_believed() -> None:
    tree = Hierarchy.from_levels({"leaf": ["a", "b"]}, ["leaf"])
    lists = Lists(
        np.array([[0, 0, 4, 7, 1, 9]]), np.array([0, 4, 6]), np.array([0]), np.array([9]), np.array([1e-3]), False
    )
    found = list_posterior(lists, tree, 9).marginals
    assert np.rint(found.mean[0]).tolist() == [2, 2, 2, 2, 1, 1, 1, 0, 0]
    assert np.rint(found.counts[1]).tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert found.variance.max() < 1e-6


def test_measurements_that_contradict_one_another_leave_beliefs_finite() -> None:
    tree = Hierarchy.from_levels({"leaf": ["a"]}, ["leaf"])
    values = np.array([[10**9, -(10**9), 10**9, -(10**9)]])
    lists = Lists(values, np.array([0, 4]), np.array([0]), np.array([50]), np.array([1e-6]), False)
    found = list_posterior(lists, tree, 50).marginals
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.variance).all()
    assert np.all(np.diff(found.mean, axis=1) <= 1e-9)


def test_shapes_add_up_to_one_and_leave_nothing_out() -> None:
    tree = Hierarchy.from_levels({"a": ["x", "x", "y"], "b": ["p", "q", "r"]}, ["a", "b"])
    counts = np.zeros((3, 40))
    counts[:, 0], counts[0, 30] = 5, 2
    shapes = fit_shapes(counts, tree, 1)
    assert shapes.shape == (2, 40)
    assert shapes.sum(axis=1) == pytest.approx([1, 1])
    assert shapes.min() > 0
    assert shapes[0, 30] > shapes[1, 30] > shapes[1, 10]


def spread_exactly(groups: np.ndarray) -> np.ndarray:
    """Each size's groups spread normally over all sizes within three widths, size by size."""
    spread = np.zeros_like(groups)
    for size in np.flatnonzero(groups):
        width = WIDTH * size
        if width < 0.35:
            spread[size] += groups[size]
            continue
        near = np.arange(max(1, int(size - 3 * width)), min(len(groups) - 1, int(size + 3 * width) + 1) + 1)
        curve = np.exp(-0.5 * ((near - size) / width) ** 2)
        spread[near] += groups[size] * curve / curve.sum()
    return spread


@pytest.mark.parametrize("sizes", [1, 2, 40, 161, 2500])
def test_smoothing_keeps_the_groups_and_is_near_to_the_sum_over_all_sizes(sizes: int) -> None:
    rng = np.random.default_rng(sizes)
    groups = np.zeros((1, sizes))
    groups[0, rng.integers(0, sizes, 12)] += 1.0
    found, exact = smooth_sizes(groups)[0], spread_exactly(groups[0])
    assert found.sum() == pytest.approx(groups.sum())
    assert np.abs(found - exact).max() <= (1e-12 if sizes <= 161 else 0.012 * exact.max())
    assert np.abs(found - exact).sum() <= 0.003 * exact.sum()


def test_each_size_is_spread_within_the_stated_error() -> None:
    for size in np.random.default_rng(1).integers(160, 2400, 30):
        groups = np.zeros((1, 2500))
        groups[0, size] = 1.0
        found, exact = smooth_sizes(groups)[0], spread_exactly(groups[0])
        within = np.abs(np.arange(2500) - size) <= 2.8 * WIDTH * size
        assert np.abs(found - exact)[within].max() <= 0.005 * exact.max()
        assert np.abs(found - exact).max() <= 0.012 * exact.max()


def test_posteriors_of_long_lists_are_those_of_exact_smoothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    tree = Hierarchy.from_levels({"a": ["x", "x", "y"], "b": ["p", "q", "r"]}, ["a", "b"])
    lists = some_lists(rng, [8, 5, 9], 900, banded=False, gaussian=False)._replace(scales=np.array([150.0]))
    found = list_posterior(lists, tree, 900).marginals
    monkeypatch.setattr(posterior, "smooth_sizes", lambda sums: np.stack([spread_exactly(row) for row in sums]))
    exact = list_posterior(lists, tree, 900).marginals
    assert np.abs(found.mean - exact.mean).max() < 0.005
    assert np.abs(found.mean - exact.mean).sum() < 1e-3 * exact.mean.sum()


def test_contradictions_beyond_all_floats_lose_no_group() -> None:
    tree = Hierarchy.from_levels({"leaf": ["a"]}, ["leaf"])
    values = np.array([[1, 0, 700, -5, 3, 10**9, 0, -(10**9), 1]])
    lists = Lists(values, np.array([0, 9]), np.array([0]), np.array([700]), np.array([1e-12]), True)
    assert list_posterior(lists, tree, 700).marginals.counts.sum() == pytest.approx(9)
