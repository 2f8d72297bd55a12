"""The nearest ascending lists in place, and the way from lists to counts and back."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.estimate.isotonic import counts_of, non_decreasing_in_place, non_increasing
from tests.oracles.isotonic import (
    chosen_among_all,
    chosen_by_thresholds,
    cost,
    least_absolute_cost,
    optima,
)

powers = st.sampled_from([1, 2])
types = st.sampled_from([np.int32, np.int64])
short_lists = st.lists(st.lists(st.integers(-4, 8), max_size=5), min_size=1, max_size=4)


def flat(lists, dtype):
    """One array and its offsets."""
    starts = np.cumsum([0, *map(len, lists)], dtype=np.int64)
    return np.concatenate([np.array(part, dtype=dtype) for part in lists]), starts


def fitted(lists, dtype=np.int64, **options):
    values, starts = flat(lists, dtype)
    non_decreasing_in_place(values, starts, **options)
    assert values.dtype == dtype
    return [values[start:stop] for start, stop in pairwise(starts)]


@settings(max_examples=200)
@given(lists=short_lists, lower=st.integers(-2, 3), width=st.integers(0, 4), power=powers, dtype=types)
def test_each_list_is_the_documented_optimum(lists, lower, width, power, dtype):
    upper = lower + width
    for noisy, found in zip(lists, fitted(lists, dtype, lower=lower, upper=upper, power=power), strict=True):
        if noisy:
            assert tuple(found.tolist()) in optima(noisy, lower, upper, power)
            assert found.tolist() == chosen_among_all(noisy, lower, upper, power)


@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.integers(0, 400), min_size=1, max_size=4),
    noise=st.integers(0, 60),
    power=powers,
    dtype=types,
)
def test_long_lists_solve_every_threshold_by_itself(seed, lengths, noise, power, dtype):
    rng = np.random.default_rng(seed)
    lists = [np.sort(rng.geometric(0.4, n)) + rng.integers(-noise, noise + 1, n) for n in lengths]
    results = fitted(lists, dtype, lower=1, upper=20, power=power)
    for noisy, found in zip(lists, results, strict=True):
        assert (np.diff(found) >= 0).all()
        if len(noisy):
            assert np.array_equal(found, chosen_by_thresholds(noisy, 1, 20, power))
    again = fitted(results, dtype, lower=1, upper=20, power=power)
    assert all(np.array_equal(one, other) for one, other in zip(results, again, strict=True))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 3000), scale=st.integers(1, 10**6), power=powers)
def test_it_equals_the_fit_of_rows(seed, length, scale, power):
    rng = np.random.default_rng(seed)
    noisy = np.sort(rng.integers(0, 1000, length)) + np.rint(rng.laplace(0, scale, length)).astype(np.int64)
    row = non_increasing(noisy[None, ::-1], np.array([700]), power=power)[0, ::-1]
    for dtype in (np.int32, np.int64):
        assert np.array_equal(fitted([noisy], dtype, lower=0, upper=700, power=power)[0], row)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 60))
def test_solvers_find_nothing_nearer(seed, length):
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(seed)
    noisy = np.sort(rng.integers(0, 30, length)) + rng.integers(-15, 16, length)
    absolute = fitted([noisy], lower=2, upper=25, power=1)[0]
    assert cost(absolute, noisy, 1) == pytest.approx(least_absolute_cost(noisy, 2, 25), abs=1e-6)
    squares = fitted([noisy], lower=2, upper=25, power=2)[0]
    real = optimize.isotonic_regression(noisy).x
    # The float solution may lie a hair below a half that is exact here.
    assert np.array_equal(squares, np.clip(np.floor(real + 0.5 + 1e-9), 2, 25))


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_many_lists_of_all_lengths_share_the_threads(power, dtype):
    rng = np.random.default_rng(5)
    lengths = [0, 300_000, 1, *rng.integers(0, 40, 20_000).tolist(), 270_000, 0]
    lists = [rng.integers(-50, 60, n) + np.arange(n) * 100 // max(n, 1) for n in lengths]
    found = fitted(lists, dtype, lower=0, upper=90, power=power)
    for place in [1, 2, *range(3, 20_003, 500), 20_003]:
        row = non_increasing(lists[place][None, ::-1], np.array([90]), power=power)[0, ::-1]
        assert np.array_equal(found[place], row)


@pytest.mark.parametrize("power", [1, 2])
def test_the_ends_of_the_types_are_exact(power):
    low, high = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    whole = {"lower": low, "upper": high, "power": power}
    assert fitted([[low, high]], np.int32, **whole)[0].tolist() == [low, high]
    assert fitted([[high, low]], np.int32, **whole)[0].tolist() == [-1 if power == 1 else 0] * 2
    assert fitted([[high, high, low]], np.int32, **whole)[0].tolist() == (
        [high] * 3 if power == 1 else [(2 * high + low + 1) // 3] * 3
    )
    big = 2**59
    assert fitted([[big, -big, big]], lower=-big, upper=big, power=power)[0].tolist() == [0, 0, big]
    assert fitted([[big + 5, big]], lower=0, upper=2 * big, power=power)[0].tolist() == [big + 1 + power] * 2
    assert fitted([[2 * big - 1, -big]], lower=5, upper=7, power=2)[0].tolist() == [7, 7]


def test_what_would_overflow_is_refused_and_left_alone():
    values = np.array([2**60, 3, 2], dtype=np.int64)
    for power in (1, 2):
        with pytest.raises(SpecError, match="smaller"):
            non_decreasing_in_place(values, np.array([0, 1, 3]), lower=0, upper=9, power=power)
    assert values.tolist() == [2**60, 3, 2]
    with pytest.raises(SpecError, match="smaller"):
        fitted([[np.iinfo(np.int64).min]], lower=0, upper=9)


def test_empty_lists_stay_empty():
    for lists in ([[]], [[], []]):
        for power in (1, 2):
            assert all(len(found) == 0 for found in fitted(lists, lower=0, upper=3, power=power))
    nothing, start = np.empty(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
    non_decreasing_in_place(nothing, start, lower=0, upper=1)
    assert counts_of(nothing, start, first_size=1, max_size=3).shape == (0, 3)


@settings(max_examples=100)
@given(
    lists=st.lists(st.lists(st.integers(2, 6), max_size=8), min_size=1, max_size=5),
    dtype=types,
    above=st.integers(0, 2),
)
def test_counts_are_histograms(lists, dtype, above):
    values, starts = flat(lists, dtype)
    counts = counts_of(values, starts, first_size=2, max_size=6 + above)
    assert counts.dtype == np.int64
    assert counts.tolist() == [[part.count(size) for size in range(2, 7 + above)] for part in lists]


def test_wrong_lists_are_refused():
    starts = np.array([0, 2])
    for values in (np.zeros(2), np.zeros(2, np.int16), np.zeros(4, np.int64)[::2], np.zeros((2, 1), np.int64), [1, 2]):
        with pytest.raises(SpecError, match="lists"):
            non_decreasing_in_place(values, starts, lower=0, upper=1)
    frozen = np.zeros(2, np.int64)
    frozen.flags.writeable = False
    with pytest.raises(SpecError, match="written"):
        non_decreasing_in_place(frozen, starts, lower=0, upper=1)
    assert counts_of(frozen, starts, first_size=0, max_size=1).tolist() == [[2, 0]]
    for wrong in ([0, 1], [1, 2], [0, 3], [0, 2, 1, 2], [], [0.0, 2.0]):
        with pytest.raises(SpecError, match="starts"):
            non_decreasing_in_place(np.zeros(2, np.int64), np.array(wrong), lower=0, upper=1)


def test_wrong_options_are_refused():
    values, starts = np.zeros(2, np.int32), np.array([0, 2])
    for lower, upper in ((1, 0), (0, 2**31), (-(2**31) - 1, 0)):
        with pytest.raises(SpecError, match="bounds"):
            non_decreasing_in_place(values, starts, lower=lower, upper=upper)
    with pytest.raises(SpecError, match="power"):
        non_decreasing_in_place(values, starts, lower=0, upper=1, power=3)
    for first_size, max_size in ((-1, 3), (3, 2), (0, 2**41)):
        with pytest.raises(SpecError, match="sizes from"):
            counts_of(values, starts, first_size=first_size, max_size=max_size)
    for first_size, max_size in ((1, 3), (0, 0)):
        with pytest.raises(SpecError, match="outside"):
            counts_of(values + np.int32([0, 1 - first_size]), starts, first_size=first_size, max_size=max_size)
