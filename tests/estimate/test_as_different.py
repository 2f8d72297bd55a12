"""Rows that are as far apart as the truth: their covariance is what was put in, and drawn rows lie closer together."""

from __future__ import annotations

import numpy as np
import pytest

import tallytree as tt
from tallytree.estimate.shrinkage import MeasuredRows, _Alike, _noise_beside, _root_of_gain, _variance_left, shrink_rows
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tests.oracles.trees import even_tree


def test_the_root_of_the_gain_gives_rows_the_covariance_of_the_truth():
    rng = np.random.default_rng(2)
    for sizes in (1, 3, 7):
        some = rng.normal(size=(sizes, sizes))
        signal, noise = some @ some.T, rng.gamma(2, 1, sizes)
        for tied in (0.0, 1 / (sizes + 1)):
            root, both = _root_of_gain(signal, noise, tied), signal + _noise_beside(signal, noise, tied)
            assert np.allclose(root.T @ both @ root, signal)
            assert np.allclose(root @ root, np.linalg.solve(both, signal))


def test_tied_noise_has_the_covariance_of_numbers_with_a_known_sum():
    """What is left of a row's noise, by the textbook: N − N (V + N)⁻¹ N, relative to N."""
    rng, sizes = np.random.default_rng(5), 5
    some = rng.normal(size=(sizes, sizes))
    signal, noise, tied = some @ some.T, np.full(sizes, 3.0), 1 / (sizes + 1)
    own = _noise_beside(signal, noise, tied)
    assert np.allclose(own, 3 * (np.eye(sizes) - 1 / (sizes + 1)))
    gain = np.linalg.solve(signal + own, signal)
    left = np.diagonal(own - own @ np.linalg.solve(signal + own, own)) / np.diagonal(own)
    assert np.allclose(_variance_left(gain, _Alike(np.arange(1), signal, noise, tied)), left)


def test_rows_as_far_apart_as_true_ones_are_neither_noisy_nor_alike():
    rng = np.random.default_rng(3)
    groups, shape = np.full(400, 1000.0), np.linspace(0.9, 0.1, 5)
    true = groups[:, None] * shape + 30 * rng.normal(size=(400, 5))
    noisy = true + 30 * rng.normal(size=(400, 5))
    above = np.tile(400 * 1000 * shape, (400, 1))
    facts = noisy, np.full(5, 900.0), groups, above, np.full(400, 400_000.0)
    drawn, apart = shrink_rows(MeasuredRows(*facts)), shrink_rows(MeasuredRows(*facts), apart_as_true=True)
    spread = [np.mean((rows - groups[:, None] * shape) ** 2) for rows in (drawn.mean, true, apart.mean, noisy)]
    assert spread[0] < 0.8 * spread[1]
    assert abs(spread[2] - spread[1]) < 0.2 * spread[1] < spread[3] - spread[1]
    assert apart.part == drawn.part


def test_what_plays_the_truth_keeps_every_promise_and_is_the_released_where_nothing_is_borrowed():
    rng = np.random.default_rng(4)
    counts = rng.poisson(np.tile(40 * np.exp(-np.arange(8) / 2), (60, 1)))
    truth = Truth("played", even_tree(4, 60), counts, True)
    chosen = MECHANISMS["tallytree"].configured({"leaves": "at_least"})
    plan = chosen.plan(truth.hierarchy, tt.Budget(epsilon="0.3"), tt.one_entity())
    measurements = seeded_measurements(truth, plan, 1)
    released = chosen.estimate(measurements).counts
    play = chosen.simulate_truths(measurements, released)
    played = play(0)
    assert play(1) is played
    assert not np.array_equal(played, released)
    assert played.min() >= 0
    assert np.array_equal(played.sum(axis=1), measurements.region_totals)
    assert np.array_equal(truth.hierarchy.aggregate(played[truth.hierarchy.level_slice(2)]), played)
    alone = chosen.configured({"borrow": False})
    assert alone.simulate_truths(measurements, released)(0) is released
    assert MECHANISMS["joint-cumulative"].simulate_truths(measurements, released)(0) is released


BANDS = [{"to": 2, "shares": [1, 1, 3], "leaves": "at_least"}, {"to": 8, "shares": [1, 0, 9], "leaves": "lists"}]


@pytest.mark.parametrize("options", [{}, {"borrow": False}, {"bands": BANDS}], ids=["", "alone", "bands"])
@pytest.mark.parametrize("public", [True, False])
def test_draws_of_lists_play_the_truth_and_keep_every_promise(options, public):
    rng = np.random.default_rng(5)
    counts = rng.poisson(np.tile(4 * np.exp(-np.arange(8 + public) / 2), (40, 1)))
    truth = Truth("played", even_tree(4, 40), counts, public)
    aside = {} if public else {"totals_share": "1/10"}
    chosen = MECHANISMS["tallytree"].configured({"leaves": "lists", **options, **aside})
    plan = chosen.plan(truth.hierarchy, tt.Budget(epsilon="0.5"), tt.one_entity())
    measurements = seeded_measurements(truth, plan, 1, derive_facts=chosen.derive_facts)
    play = chosen.simulate_truths(measurements, chosen.estimate(measurements).counts)
    first, second = play(0), play(1)
    assert not np.array_equal(first, second)
    assert np.array_equal(first, play(0))
    for played in (first, second):
        assert played.min() >= 0
        if public:
            assert np.array_equal(played.sum(axis=1), measurements.known_totals)
        assert np.array_equal(truth.hierarchy.aggregate(played[truth.hierarchy.level_slice(2)]), played)
