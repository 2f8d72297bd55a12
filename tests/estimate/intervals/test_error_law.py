"""The laws of errors: quantiles of many at once, and sums of independent ones against convolutions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tallytree.estimate.intervals.tails import Errors, Noise, quantile
from tests.estimate.intervals.test_noise_tails import NOISES, probabilities


def alike(noise, copies, parts):
    number = len(parts)
    return Errors((noise,), np.zeros(number, np.int64), np.full(number, copies), parts / copies, np.ones(number))


@pytest.mark.parametrize(("kind", "scale"), NOISES)
def test_many_errors_at_once_have_the_reach_of_each(kind, scale):
    random = np.random.default_rng(5)
    edges = [*(np.arange(1, 257) / 256), *(2.0 ** -np.arange(0, 30, 0.5))]
    parts = np.concatenate([[0.0, 1.0, 1e-9], edges, random.random(300), random.random(100) / 16])
    for copies in (1, 2, 300):
        expected = [quantile(kind, scale, copies, float(part), 0.0125) for part in np.round(parts, 9)]
        assert alike(Noise(kind, scale), copies, parts).reach(0.0125).tolist() == expected


@pytest.mark.parametrize("chance", [0.05, 0.005])
@pytest.mark.parametrize("weights", [[1.0, -1.0], [1.0] * 5, [1.0, 2.0, 3.0]])
@pytest.mark.parametrize("kind", ["discrete_laplace", "discrete_gaussian"])
def test_a_sum_over_columns_fails_no_more_often_than_stated(kind, weights, chance):
    """Against the exact law of the sum, by convolution."""
    one = probabilities(kind, Fraction(3), 120)
    places = np.arange(-120, 121)
    variance = float(one @ places**2)
    summed = np.ones(1)
    for weight in weights:
        spread = np.zeros(240 * int(abs(weight)) + 1)
        spread[:: int(abs(weight))] = one
        summed = np.convolve(summed, spread)
    errors = Errors((Noise(kind, Fraction(3)),), *(np.array([value]) for value in (0, 1, variance, variance)))
    found = errors.over_columns(weights)
    assert math.isclose(found.variance[0], variance * float(np.square(weights).sum()))
    centre, reach = len(summed) // 2, found.reach(chance)[0]
    assert summed[centre + math.floor(reach + 1e-9) + 1 :].sum() <= chance * 1.0001
    assert summed[centre + math.floor(0.8 * reach) :].sum() > chance  # and it is not far too long


def test_largest_terms_of_a_sum_are_counted_where_they_are_of_the_same_noise():
    noise = (Noise("discrete_laplace", Fraction(2)), Noise("discrete_gaussian", Fraction(9)))
    errors = Errors(
        noise, np.array([0, 1, 0, 0]), np.array([1, 1, 2, 1]), np.array([8.0, 9.0, 8.0, 1.0]), np.arange(20.0, 24)
    )
    found = errors.add_up(np.array([0, 2, 3, 0, 1]), np.array([0, 3]))
    assert found.copies.tolist() == [3, 1]
    assert found.lead.tolist() == [0, 1]
    assert found.term.tolist() == [8.0, 9.0]
    assert found.variance.tolist() == [20 + 22 + 23, 20 + 21]
