"""Quantiles and Gini coefficients: their definitions, and what bounds of cumulative counts say of them."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallytree import SpecError
from tallytree.estimate.intervals.size_distribution import Gini, Quantile, gini_ends
from tallytree.publish.release.queries import KINDS, Query, statistic_of

histograms = st.tuples(st.integers(0, 1), st.lists(st.integers(0, 6), min_size=2, max_size=6))
parts = st.fractions(0, 1, max_denominator=20)


def at_least(counts):
    return np.array(counts)[::-1].cumsum()[::-1]


@given(histograms, parts)
def test_a_quantile_is_the_least_size_that_so_many_groups_do_not_exceed(histogram, q):
    first, counts = histogram
    sizes, listed = range(first, first + len(counts)), np.repeat(np.arange(first, first + len(counts)), counts)
    found = Quantile(q).value(at_least(counts), sizes)
    if not len(listed):
        assert found is None
        return
    enough = [size for size in listed.tolist() if (listed <= size).sum() >= q * len(listed)]
    assert found == min(enough)
    if q == Fraction(1, 2) or (0 < q < 1 and q.denominator in (2, 4, 8, 16)):  # exact as floats
        assert found == np.quantile(listed, float(q), method="inverted_cdf")


def test_the_q_of_a_decimal_is_exact():
    """0.07 · 100 is more than 7 as floats, and would be the eighth group."""
    counts = np.array([7, 93])
    assert Quantile(Fraction("0.07")).value(at_least(counts), range(1, 3)) == 1
    assert statistic_of("quantile", 0.07) == statistic_of("quantile", "7/100") == Quantile(Fraction(7, 100))


@given(histograms)
def test_the_gini_coefficient_is_half_the_mean_difference_over_the_mean(histogram):
    first, counts = histogram
    listed = np.repeat(np.arange(first, first + len(counts)), counts)
    found = Gini().value(at_least(counts), range(first, first + len(counts)))
    if not listed.sum():
        assert found is None
        return
    differences = np.abs(listed[:, None] - listed).mean()
    assert found == pytest.approx(differences / (2 * listed.mean()), abs=1e-12)
    assert found + 1e-12 >= 0
    assert found < 1


@st.composite
def boxes(draw):
    """The first size, and bounds of T of up to four sizes; T itself never rises, but bounds may."""
    first = draw(st.integers(0, 1))
    low = draw(st.lists(st.integers(0, 4), min_size=2, max_size=4))
    return first, np.array(low, float), np.array([end + draw(st.integers(0, 3)) for end in low], float)


def truths(low, high):
    """All T that never rise, within their bounds."""
    ranges = [range(int(least), int(most) + 1) for least, most in zip(low, high, strict=True)]
    return [np.array(found) for found in itertools.product(*ranges) if list(found) == sorted(found, reverse=True)]


@given(boxes(), parts)
def test_ends_hold_every_truth_within_the_bounds(box, q):
    first, low, high = box
    sizes = range(first, first + len(low))
    for statistic in (Quantile(q), Gini()):
        lower, upper = statistic.ends(low, high, sizes)
        found = [statistic.value(truth, sizes) for truth in truths(low, high)]
        assert all(lower - 1e-9 <= value <= upper + 1e-9 for value in found if value is not None), statistic
        if low[0] < 1:
            assert (lower, upper) == statistic.possible(sizes)


@given(boxes(), parts)
def test_only_the_bounds_at_the_quantile_can_fail(box, q):
    """All other bounds may be as wrong as they like: four hold, and so does the interval."""
    first, low, high = box
    sizes, statistic = range(first, first + len(low)), Quantile(q)
    for truth in truths(low, high):
        if low[0] >= 1:
            place = statistic.value(truth, sizes) - first
            for wrong in (0.0, 99.0):
                some_low, some_high = np.full(len(low), wrong), np.full(len(low), wrong)
                some_low[0], some_high[0] = low[0], high[0]
                some_low[place + 1 : place + 2] = low[place + 1 : place + 2]
                some_high[place] = high[place]
                lower, upper = statistic.ends(some_low, some_high, sizes)
                assert lower <= first + place <= upper


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=4))
def test_gini_ends_are_those_of_the_box(pairs):
    """The least value is at a vertex of the box; the greatest is found on a fine grid, up to its step."""
    least, most = np.array([min(pair) for pair in pairs]), np.array([max(pair) for pair in pairs])
    lower, upper = gini_ends(least, most)

    def values(points):
        return [1 - float(np.square(p).sum() / np.sum(p)) for p in map(np.array, points) if np.sum(p) > 1e-6]

    vertices = values(itertools.product(*zip(least, most, strict=True)))
    grid = values(itertools.product(*(np.linspace(low, high, 9) for low, high in zip(least, most, strict=True))))
    if least.sum() > 1e-3:
        assert lower == pytest.approx(min(vertices), abs=1e-9)
        assert max(grid) - 1e-9 <= upper <= max(grid) + 0.05 + 0.1 * (most - least).max()
    assert all(lower - 1e-9 <= value <= upper + 1e-9 for value in [*vertices, *grid])


@pytest.mark.parametrize("q", [-0.1, 1.1, "2", None, "many", True, float("nan"), "1e999999999", [0.5]])
def test_a_quantile_outside_0_to_1_is_refused_before_anything_is_read(q):
    with pytest.raises(SpecError, match="expected a number from 0 to 1, such as"):
        Query("quantile", q=q)


def test_a_q_belongs_to_a_quantile():
    for kind in set(KINDS) - {"quantile"}:
        with pytest.raises(SpecError, match="q is for queries of the kind 'quantile'"):
            Query(kind, q=0.5)
    assert Query("quantile", q=0).q == 0
