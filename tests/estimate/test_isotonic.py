from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.estimate import non_increasing
from tests.oracles.isotonic import chosen_among_all, chosen_by_thresholds, cost, least_absolute_cost, optima
from tests.oracles.trees import least_monotone_cost

rows = st.lists(st.integers(-4, 8), min_size=1, max_size=5)
powers = st.sampled_from([1, 2])


@settings(max_examples=150, deadline=None)
@given(row=rows, upper=st.integers(0, 5))
def test_no_non_increasing_integers_within_bounds_are_nearer(row, upper):
    noisy = np.array([row])
    found = non_increasing(noisy, upper=np.array([upper]))[0]
    assert (np.diff(found) <= 0).all()
    assert found.min() >= 0
    assert found.max() <= upper
    assert ((found - row) ** 2).sum() == least_monotone_cost(noisy[0], upper)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.integers(1, 200))
def test_it_is_the_rounded_real_solution(seed, sizes):
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    noisy = np.sort(rng.integers(0, 50, (3, sizes)), axis=1)[:, ::-1] + rng.integers(-9, 10, (3, sizes))
    found = non_increasing(noisy)
    for row, target in zip(found, noisy, strict=True):
        real = optimize.isotonic_regression(target, increasing=False).x
        # The float solution may lie a hair below a half that is exact here.
        assert np.array_equal(row, np.maximum(np.floor(real + 0.5 + 1e-9), 0))


@settings(max_examples=150, deadline=None)
@given(row=rows, upper=st.integers(0, 5), power=powers)
def test_it_is_the_documented_optimum(row, upper, power):
    found = non_increasing(np.array([row]), upper=np.array([upper]), power=power)[0].tolist()
    assert tuple(found[::-1]) in optima(row[::-1], 0, upper, power)
    assert found[::-1] == chosen_among_all(row[::-1], 0, upper, power)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.integers(1, 150), noise=st.integers(0, 40), power=powers)
def test_long_rows_solve_every_threshold_by_itself(seed, sizes, noise, power):
    rng = np.random.default_rng(seed)
    survival = np.sort(rng.integers(0, 30, (3, sizes)) * (rng.random((3, sizes)) < 0.5), axis=1)[:, ::-1]
    noisy = survival + rng.integers(-noise, noise + 1, (3, sizes))
    upper = rng.integers(0, 40, 3)
    found = non_increasing(noisy, upper, power=power)
    for row, target, most in zip(found, noisy, upper, strict=True):
        assert np.array_equal(row[::-1], chosen_by_thresholds(target[::-1], 0, int(most), power))
    assert np.array_equal(non_increasing(found, upper, power=power), found)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.integers(1, 60), upper=st.integers(0, 60))
def test_no_real_numbers_deviate_less(seed, sizes, upper):
    pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    noisy = np.sort(rng.integers(0, 50, (1, sizes)), axis=1)[:, ::-1] + rng.integers(-20, 21, (1, sizes))
    found = non_increasing(noisy, np.array([upper]), power=1)[0]
    assert cost(found, noisy[0], 1) == pytest.approx(least_absolute_cost(noisy[0, ::-1], 0, upper), abs=1e-6)


def test_bounds_clip_the_midpoint_and_not_its_ends():
    noisy = np.array([[-6, 2]])  # every pair of equals from -6 to 2 is an optimum, and 0 … 2 within the bounds
    assert non_increasing(noisy, power=1).tolist() == [[0, 0]]
    assert non_increasing(np.array([[1, 4]]), power=1).tolist() == [[2, 2]]  # half a unit is rounded down


@pytest.mark.parametrize("power", [1, 2])
def test_rows_keep_their_own_bounds_in_any_number(power):
    noisy = np.tile(np.array([[9, 2, 4, -5]]), (100_000, 1))
    found = non_increasing(noisy, upper=np.arange(100_000), power=power)
    assert found[0].tolist() == [0, 0, 0, 0]
    assert found[2].tolist() == [2, 2, 2, 0]
    assert (found[9:] == [9, 3, 3, 0]).all()


def test_large_values_are_exact():
    big = 2**58
    found = non_increasing(np.array([[big, big + 2, big + 1, 0]]))
    assert found.tolist() == [[big + 1, big + 1, big + 1, 0]]
    assert non_increasing(np.array([[big, big + 1]])).tolist() == [[big + 1, big + 1]]
    assert non_increasing(np.array([[big, big + 5]]), power=1).tolist() == [[big + 2, big + 2]]
    assert non_increasing(np.array([[-(2**59), 2**59 + 1, 2**59]]), power=1).tolist() == [[2**59] * 3]


def test_what_would_overflow_is_refused():
    for power in (1, 2):
        with pytest.raises(SpecError, match="smaller"):
            non_increasing(np.full((1, 8), 2**60), power=power)
        with pytest.raises(SpecError, match="smaller"):
            non_increasing(np.array([[np.iinfo(np.int64).min]]), power=power)


@pytest.mark.parametrize("power", [1, 2])
def test_empty_input_gives_empty_output(power):
    assert non_increasing(np.zeros((0, 3), dtype=np.int64), power=power).shape == (0, 3)
    assert non_increasing(np.zeros((3, 0), dtype=np.int64), power=power).shape == (3, 0)


def test_wrong_input_is_refused():
    with pytest.raises(SpecError, match="integers"):
        non_increasing(np.zeros((2, 2)))
    with pytest.raises(SpecError, match="integers"):
        non_increasing(np.zeros(2, dtype=np.int64))
    for power in (0, 3, 1.5, "2"):
        with pytest.raises(SpecError, match="power"):
            non_increasing(np.zeros((2, 2), dtype=np.int64), power=power)
    for upper in (np.array([1]), np.array([1.0, 2.0]), np.array([1, -1])):
        with pytest.raises(SpecError, match="upper"):
            non_increasing(np.zeros((2, 2), dtype=np.int64), upper=upper)
