"""Borrowing: much where leaves are alike and noisy; nothing where they differ, or where noise is next to nothing."""

from __future__ import annotations

import numpy as np
import pytest

from tallytree.estimate.shrinkage import MOST_SIZES, MeasuredRows, shrink_rows

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
    return noisy, shrink_rows(MeasuredRows(noisy, np.full(truth.shape[1], 2 * scale**2), size, above, size * leaves))


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
    found = shrink_rows(
        MeasuredRows(noisy, np.full(4, 25.0), np.array([0.0, 8.0, 0.0]), np.tile(8 * SHAPE, (3, 1)), np.full(3, 8.0))
    )
    assert found.mean[0].tolist() == [0.0] * 4
    wide = rng.normal(0, 5, (3, MOST_SIZES + 1))
    same = shrink_rows(
        MeasuredRows(wide, np.full(MOST_SIZES + 1, 25.0), np.full(3, 9.0), np.ones_like(wide), np.full(3, 27.0))
    )
    assert np.array_equal(same.mean, wide)
    assert same.part == 0


def by_kind(rng: np.random.Generator, kinds: int, each: int, groups: int, scale: float, differ: np.ndarray):
    """Rows of `kinds` with shapes of their own, in regions that all kinds of them differ in alike by `differ`."""
    truth = np.concatenate([groups * (SHAPE * (1 - 0.1 * kind) + differ) for kind in range(kinds)])
    noisy = truth + rng.laplace(0, scale, truth.shape)
    above = np.repeat([groups * each * SHAPE * (1 - 0.1 * kind) for kind in range(kinds)], each, axis=0)
    size = np.full(kinds * each, float(groups))
    return truth, (noisy, np.full(len(SHAPE), 2 * scale**2), size, above, size * each)


def test_kinds_with_many_regions_are_drawn_as_each_by_itself() -> None:
    rng = np.random.default_rng(5)
    _, facts = by_kind(rng, 3, 200, 300, 20.0, np.zeros((200, len(SHAPE))))
    found = shrink_rows(MeasuredRows(*facts, kinds=3), in_common=True)
    noisy, noise, *rest = facts
    for kind in range(3):
        some = slice(200 * kind, 200 * (kind + 1))
        alone = shrink_rows(MeasuredRows(noisy[some], noise, *(each[some] for each in rest)))
        assert np.allclose(found.mean[some], alone.mean, rtol=0, atol=1e-9)
        assert np.allclose(found.variance[some], alone.variance)


def test_few_regions_keep_what_their_kinds_have_in_common() -> None:
    rng = np.random.default_rng(6)
    differ = 0.1 * np.tile([[1.0], [-1.0]], (4, 1)) * np.array([0.5, 1.0, 1.0, 0.5])
    lost, kept, sums = [], [], []
    for _ in range(20):
        truth, facts = by_kind(rng, 6, 8, 300, 40.0, differ)
        right, noisy = (each.reshape(6, 8, -1).sum(axis=0) for each in (truth, facts[0]))
        for errors, in_common in ((lost, False), (kept, True)):
            found = shrink_rows(MeasuredRows(*facts, kinds=6), in_common=in_common).mean.reshape(6, 8, -1).sum(axis=0)
            errors.append(np.abs(found - right).mean())
        sums.append(np.abs(noisy - right).mean())
    assert np.mean(kept) < 1.1 * np.mean(sums)
    assert np.mean(kept) < 0.8 * np.mean(lost)


def test_noise_may_differ_from_region_to_region() -> None:
    rng = np.random.default_rng(7)
    truth, (noisy, noise, *rest) = by_kind(rng, 1, 100, 300, 20.0, np.zeros((100, len(SHAPE))))
    same = shrink_rows(MeasuredRows(noisy, np.tile(noise, (100, 1)), *rest))
    assert np.allclose(same.mean, shrink_rows(MeasuredRows(noisy, noise, *rest)).mean)
    known = np.tile(noise, (100, 1))
    known[50:] *= 1e-9  # as good as exact
    found = shrink_rows(MeasuredRows(np.concatenate([noisy[:50], truth[50:]]), known, *rest))
    assert np.all(found.variance[50:] <= 1e-5)
    assert np.allclose(found.mean[50:], truth[50:], rtol=0, atol=0.01)
    assert np.abs(found.mean[:50] - truth[:50]).mean() < 0.7 * np.abs(noisy[:50] - truth[:50]).mean()


@pytest.mark.parametrize("apart", [False, True])
def test_rows_are_finite_where_counts_exceed_the_noise_by_many_orders_of_magnitude(apart: bool) -> None:
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows, sizes = int(rng.integers(2, 90)), int(rng.choice([3, 10]))
        above = -np.sort(-np.floor(10 ** rng.uniform(0, 12, (rows, sizes))), axis=1)
        groups = np.floor(10 ** rng.uniform(0, 12, rows))
        noise, noisy = 10 ** rng.uniform(-16, 6, (rows, sizes)), rng.normal(0, 10 ** rng.uniform(0, 12), (rows, sizes))
        found = shrink_rows(
            MeasuredRows(noisy, noise, groups, above, np.maximum(above[:, 0], groups)), apart_as_true=apart
        )
        assert np.isfinite(found.mean).all()
        assert (found.variance > 0).all()
