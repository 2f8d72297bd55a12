"""Beliefs about lists: equal to summing over all lists there are, for any noise, with bands and without."""

from __future__ import annotations

from itertools import combinations_with_replacement
from math import exp, prod

import numpy as np
import pytest

from tallytree.estimate.settled import lists as module
from tallytree.estimate.settled.lists import Beliefs, Lists, believed
from tallytree.hierarchy import Hierarchy


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
    found = Beliefs(np.zeros((4, top)), np.zeros((4, top)), np.zeros((4, top + 1)))
    module._posteriors(lists, of, shapes, found, 0, 4)
    for region in range(4):
        mean, variance, counts = by_all_lists(lists, region, shapes[of[region]])
        assert found.mean[region] == pytest.approx(mean, abs=1e-9)
        assert found.variance[region] == pytest.approx(variance, abs=1e-9)
        assert found.counts[region] == pytest.approx(counts, abs=1e-9)


def test_a_list_without_noise_is_believed() -> None:
    tree = Hierarchy.from_levels({"leaf": ["a", "b"]}, ["leaf"])
    lists = Lists(
        np.array([[0, 0, 4, 7, 1, 9]]), np.array([0, 4, 6]), np.array([0]), np.array([9]), np.array([1e-3]), False
    )
    found = believed(lists, tree, 9)
    assert np.rint(found.mean[0]).tolist() == [2, 2, 2, 2, 1, 1, 1, 0, 0]
    assert np.rint(found.counts[1]).tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert found.variance.max() < 1e-6


def test_measurements_that_contradict_one_another_leave_beliefs_finite() -> None:
    tree = Hierarchy.from_levels({"leaf": ["a"]}, ["leaf"])
    values = np.array([[10**9, -(10**9), 10**9, -(10**9)]])
    lists = Lists(values, np.array([0, 4]), np.array([0]), np.array([50]), np.array([1e-6]), False)
    found = believed(lists, tree, 50)
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.variance).all()
    assert np.all(np.diff(found.mean, axis=1) <= 1e-9)


def test_shapes_add_up_to_one_and_leave_nothing_out() -> None:
    tree = Hierarchy.from_levels({"a": ["x", "x", "y"], "b": ["p", "q", "r"]}, ["a", "b"])
    counts = np.zeros((3, 40))
    counts[:, 0], counts[0, 30] = 5, 2
    shapes = module._shapes(counts, tree, 1)
    assert shapes.shape == (2, 40)
    assert shapes.sum(axis=1) == pytest.approx([1, 1])
    assert shapes.min() > 0
    assert shapes[0, 30] > shapes[1, 30] > shapes[1, 10]
