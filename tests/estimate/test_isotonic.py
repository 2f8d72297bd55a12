from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.errors import SpecError
from tallytree.estimate import non_increasing
from tests.oracles.trees import least_monotone_cost

rows = st.lists(st.integers(-4, 8), min_size=1, max_size=5)


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


def test_rows_keep_their_own_bounds_in_any_number():
    noisy = np.tile(np.array([[9, 2, 4, -5]]), (5000, 1))
    found = non_increasing(noisy, upper=np.arange(5000))
    assert found[0].tolist() == [0, 0, 0, 0]
    assert found[2].tolist() == [2, 2, 2, 0]
    assert (found[9:] == [9, 3, 3, 0]).all()


def test_large_values_are_exact():
    big = 2**58
    found = non_increasing(np.array([[big, big + 2, big + 1, 0]]))
    assert found.tolist() == [[big + 1, big + 1, big + 1, 0]]
    assert non_increasing(np.array([[big, big + 1]])).tolist() == [[big + 1, big + 1]]


def test_what_would_overflow_is_refused():
    with pytest.raises(SpecError, match="smaller"):
        non_increasing(np.full((1, 8), 2**60))
    with pytest.raises(SpecError, match="smaller"):
        non_increasing(np.array([[np.iinfo(np.int64).min]]))


def test_empty_input_gives_empty_output():
    assert non_increasing(np.zeros((0, 3), dtype=np.int64)).shape == (0, 3)
    assert non_increasing(np.zeros((3, 0), dtype=np.int64)).shape == (3, 0)


def test_wrong_input_is_refused():
    with pytest.raises(SpecError, match="integers"):
        non_increasing(np.zeros((2, 2)))
    with pytest.raises(SpecError, match="integers"):
        non_increasing(np.zeros(2, dtype=np.int64))
    for upper in (np.array([1]), np.array([1.0, 2.0]), np.array([1, -1])):
        with pytest.raises(SpecError, match="upper"):
            non_increasing(np.zeros((2, 2), dtype=np.int64), upper=upper)
