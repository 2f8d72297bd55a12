"""Borrowing: much where leaves are alike and noisy; nothing where they differ, or where noise is next to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tallytree.estimate.settled.borrowed import MOST_SIZES, borrowed

SHAPE = np.array([0.9, 0.6, 0.3, 0.1])


def families(rng: np.random.Generator, leaves: int, groups: int, differ: float) -> np.ndarray:
    """`at_least` rows of leaves whose shapes differ by `differ` from one another (0: by chance alone)."""
    shapes = SHAPE * np.exp(differ * rng.standard_normal((leaves, 1)) * np.linspace(0, 1, len(SHAPE)))
    steps = np.clip(
        -np.diff(np.minimum.accumulate(np.clip(shapes, 0, 1), axis=1), prepend=1.0, append=0.0, axis=1), 0, 1
    )
    counts = np.array([rng.multinomial(groups, step / step.sum()) for step in steps])
    return np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:].astype(float)


def drawn(rng: np.random.Generator, truth: np.ndarray, groups: int, scale: float):
    leaves = len(truth)
    noisy = truth + rng.laplace(0, scale, truth.shape)
    above = np.tile(truth.sum(axis=0), (leaves, 1))
    size = np.full(leaves, float(groups))
    return noisy, borrowed(noisy, np.full(truth.shape[1], 2 * scale**2), size, above, size * leaves)


@pytest.mark.parametrize(("differ", "most"), [(0.0, 0.5), (0.05, 0.6)])
def test_alike_leaves_gain_much_where_noise_is_large(differ: float, most: float) -> None:
    rng = np.random.default_rng(1)
    truth = families(rng, 300, 400, differ)
    noisy, found = drawn(rng, truth, 400, 30.0)
    assert np.abs(found.mean - truth).mean() < most * np.abs(noisy - truth).mean()
    assert found.part > 0.4
    assert np.all(found.variance <= 2 * 30.0**2 + 1e-9)


def test_leaves_that_differ_keep_their_own_measurements() -> None:
    rng = np.random.default_rng(2)
    truth = families(rng, 300, 4000, 0.5)
    noisy, found = drawn(rng, truth, 4000, 1.0)
    assert np.abs(found.mean - truth).mean() < 1.02 * np.abs(noisy - truth).mean()
    assert found.part < 0.1


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
@pytest.mark.parametrize("leaves", [1, 2, 70])
def test_any_noise_and_any_number_of_leaves_give_finite_rows(scale: float, leaves: int) -> None:
    rng = np.random.default_rng(3)
    truth = families(rng, leaves, 50, 0.2)
    _, found = drawn(rng, truth, 50, scale)
    assert np.isfinite(found.mean).all()
    assert np.all(found.variance > 0)
    assert 0 <= found.part <= 1


def test_empty_leaves_hold_nothing_and_many_sizes_are_left_alone() -> None:
    rng = np.random.default_rng(4)
    noisy = rng.normal(0, 5, (3, 4))
    found = borrowed(noisy, np.full(4, 25.0), np.array([0.0, 8.0, 0.0]), np.tile(8 * SHAPE, (3, 1)), np.full(3, 8.0))
    assert found.mean[0].tolist() == [0.0] * 4
    wide = rng.normal(0, 5, (3, MOST_SIZES + 1))
    same = borrowed(wide, np.full(MOST_SIZES + 1, 25.0), np.full(3, 9.0), np.ones_like(wide), np.full(3, 27.0))
    assert np.array_equal(same.mean, wide)
    assert same.part == 0
