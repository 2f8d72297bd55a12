"""Tails of sums of noise: against direct convolution, against the exact law of one noise, and against simulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tallytree.estimate.intervals.tails import _quantile, noise_tail, quantile
from tests.oracles import tails


def probabilities(kind, scale, reach):
    places = np.abs(np.arange(-reach, reach + 1))
    weights = (
        np.exp(-places / float(scale)) if kind == "discrete_laplace" else np.exp(-(places**2) / (2 * float(scale)))
    )
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("kind", "scale"),
    [("discrete_laplace", Fraction(1, 2)), ("discrete_laplace", Fraction(3)), ("discrete_gaussian", Fraction(5, 2))],
)
@pytest.mark.parametrize("copies", [1, 2, 5])
def test_a_sum_has_the_tail_of_the_convolution(kind, scale, copies):
    one = probabilities(kind, scale, 200)
    summed = one
    for _ in range(copies - 1):
        summed = np.convolve(summed, one)
    centre, tail = len(summed) // 2, noise_tail(kind, scale, copies)
    reaching = np.cumsum(summed[::-1])[::-1][centre:]
    kept = np.flatnonzero(reaching > 1e-12)
    assert np.allclose(tail.reaching[kept], reaching[kept], rtol=1e-3, atol=1e-13)
    deviation = math.sqrt(float(np.sum((np.arange(len(summed)) - centre) ** 2 * summed)))
    assert math.isclose(tail.step, 1 / deviation, rel_tol=1e-9)
    places = np.array([-2.0, -1.5, -0.5, 0.0, 0.5, 2.0, 3.5])
    beyond = [summed[np.arange(len(summed)) - centre > place].sum() for place in places]
    assert np.allclose(tails.beyond(tail, places * tail.step), beyond, atol=1e-12)


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2), Fraction(12)])
@pytest.mark.parametrize("chance", [0.05, 0.025, 0.001])
def test_of_one_noise_alone_it_is_the_exact_quantile(scale, chance):
    """P(N > t) = p^(t + 1) / (1 + p): the least whole t for which that is at most the chance."""
    p = math.exp(-1 / float(scale))
    exact = next(t for t in range(1000) if p ** (t + 1) / (1 + p) <= chance)
    deviation = math.sqrt(2 * p) / (1 - p)
    assert exact <= quantile("discrete_laplace", scale, 1, 1.0, chance) * deviation < exact + 0.01


def test_many_terms_or_gaussian_noise_come_to_the_normal_quantile():
    assert math.isclose(quantile("discrete_gaussian", Fraction(10**8), 3, 1.0, 0.025), 1.96, rel_tol=2e-3)
    assert math.isclose(quantile("discrete_laplace", Fraction(10**8), 1000, 1.0, 0.025), 1.96, rel_tol=2e-3)
    assert math.isclose(quantile("discrete_laplace", Fraction(10**8), 1, 1e-3, 0.025), 1.96, rel_tol=2e-2)


@pytest.mark.parametrize("scale", [Fraction(3, 10), Fraction(7, 10), Fraction(3, 2), Fraction(4), Fraction(40)])
def test_it_holds_for_weighted_sums_of_any_shape(scale):
    """Random weights, many like one term and many like a normal: never missed by half a point more than promised."""
    rng = np.random.default_rng(int(100 * scale))
    draws, stop = 100_000, 1 - math.exp(-1 / float(scale))
    deviation = math.sqrt(2 * (1 - stop)) / stop
    for _ in range(12):
        terms, copies = int(rng.integers(1, 8)), int(rng.integers(1, 3))
        weights = np.sqrt(rng.dirichlet(np.full(terms, rng.choice([0.3, 1, 5]))))
        noise = rng.geometric(stop, (copies, terms, draws)) - rng.geometric(stop, (copies, terms, draws))
        errors = np.abs(np.einsum("t,ctd->d", weights, noise))
        for level in (0.9, 0.95, 0.99):
            factor = quantile("discrete_laplace", scale, copies, float((weights**2).max()), (1 - level) / 2)
            missed = np.mean(errors > factor * deviation * math.sqrt(copies) + 1e-9)
            chance = 1 - level
            assert missed <= chance + 0.05 * chance + 4 * math.sqrt(chance / draws)


NOISES = [
    ("discrete_laplace", Fraction(1, 4)),
    ("discrete_laplace", Fraction(5, 3)),
    ("discrete_laplace", Fraction(50)),
    ("discrete_gaussian", Fraction(7, 10)),
    ("discrete_gaussian", Fraction(10**7)),
]


@pytest.mark.parametrize(("kind", "scale"), NOISES)
@pytest.mark.parametrize("copies", [1, 2, 7, 40])
def test_quantiles_are_those_of_the_definition(kind, scale, copies):
    for part in (1.0, 255 / 256, 0.5, 77 / 256, 1 / 16, 2**-4.5, 2**-11.5):
        for chance in (0.4, 0.025, 1e-3, 1e-7):
            found = _quantile(kind, scale, copies, part, chance)
            assert found == tails.quantile_at(kind, scale, copies, part, chance)
