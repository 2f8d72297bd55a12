"""Counts with a known total, against one unit at a time, exact fractions and a solver."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.estimate.simplex import nearest_with_total
from tests.oracles.isotonic import cheapest_units, cost, rounded_projection


@settings(max_examples=300)
@given(row=st.lists(st.integers(-6, 9), min_size=1, max_size=7), total=st.integers(0, 25))
def test_it_is_the_rounded_projection_and_no_integers_are_nearer(row, total):
    found = nearest_with_total(np.array([row]), np.array([total]))[0].tolist()
    assert found == rounded_projection(row, total)
    assert min(found) >= 0
    assert sum(found) == total
    assert cost(found, row, 2) == cost(cheapest_units(row, total), row, 2)


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 20), cells=st.integers(1, 80))
def test_rows_of_any_number_and_kind_are_independent(seed, rows, cells):
    rng = np.random.default_rng(seed)
    noisy = rng.integers(-30, 60, (rows, cells)) * (rng.random((rows, cells)) < 0.3) + rng.integers(
        -9, 10, (rows, cells)
    )
    totals = rng.integers(0, 900, rows)
    found = nearest_with_total(noisy, totals)
    assert found.tolist() == [
        rounded_projection(row, total) for row, total in zip(noisy.tolist(), totals.tolist(), strict=True)
    ]
    assert np.array_equal(nearest_with_total(found, totals), found)


def test_a_solver_finds_a_point_nearer_by_the_rounding_only():
    clarabel = pytest.importorskip("clarabel")
    from scipy import sparse

    rng = np.random.default_rng(4)
    for _ in range(10):
        noisy, total = rng.integers(-20, 30, 12), int(rng.integers(1, 200))
        rows = sparse.vstack([np.ones((1, 12)), -sparse.eye(12)]).tocsc()
        right = np.concatenate([[total - noisy.sum()], noisy]).astype(float)  # the variables are x − noisy
        options = clarabel.DefaultSettings()
        options.verbose = False
        cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(12)]
        squares = (2 * sparse.eye(12)).tocsc()
        real = np.array(clarabel.DefaultSolver(squares, np.zeros(12), rows, right, cones, options).solve().x)
        found = nearest_with_total(noisy[None], np.array([total]))[0]
        assert np.abs(found - noisy - real).max() < 1 + 1e-2
        # Rounding k equal fractions f costs k f (1 − f) more, at most a quarter per cell.
        assert -1e-3 < ((found - noisy) ** 2).sum() - (real**2).sum() < 12 / 4 + 1e-3


def test_blocks_of_rows_do_not_mix():
    noisy = np.tile(np.array([[4, -2, 1, 1]]), (200_000, 1))
    found = nearest_with_total(noisy, np.arange(200_000))
    assert (found.sum(axis=1) == np.arange(200_000)).all()
    assert found[[0, 3, 4, 5]].tolist() == [[0, 0, 0, 0], [3, 0, 0, 0], [4, 0, 0, 0], [4, 0, 1, 0]]


def test_large_values_are_exact():
    big = 2**58
    assert nearest_with_total(np.array([[big, big, -big]]), np.array([1])).tolist() == [[1, 0, 0]]
    assert nearest_with_total(np.array([[-big, -big, 1 - big]]), np.array([big])).tolist() == [
        rounded_projection([-big, -big, 1 - big], big)
    ]
    with pytest.raises(SpecError, match="smaller"):
        nearest_with_total(np.full((1, 8), 2**58), np.array([0]))
    with pytest.raises(SpecError, match="smaller"):
        nearest_with_total(np.zeros((1, 8), dtype=np.int64), np.array([2**61]))


def test_empty_input_gives_empty_output():
    assert nearest_with_total(np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)).shape == (0, 3)
    assert nearest_with_total(np.zeros((3, 0), dtype=np.int64), np.zeros(3, dtype=np.int64)).shape == (3, 0)


def test_wrong_input_is_refused():
    fine = np.zeros((2, 2), dtype=np.int64)
    for noisy in (fine * 1.0, fine[0]):
        with pytest.raises(SpecError, match="noisy"):
            nearest_with_total(noisy, np.array([1, 1]))
    for totals in (np.array([1]), np.array([1.0, 1.0]), np.array([[1, 1]]), np.array([1, -1])):
        with pytest.raises(SpecError, match="totals"):
            nearest_with_total(fine, totals)
    with pytest.raises(SpecError, match="no cells"):
        nearest_with_total(fine[:, :0], np.array([0, 1]))
