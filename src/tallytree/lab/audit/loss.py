"""The exact privacy loss between two known data sets, and the likelihood ratio that tells them apart best.

Independent integer noise is added to each number. Discrete Laplace noise of scale b has P(v) ∝ exp(−|v|/b): where the
true numbers differ by d, the log ratio of an output's probabilities is at most |d|/b, and outputs beyond both reach it.
So the worst log ratio is exactly Σ |d|/b, a fraction. Discrete Gaussian noise of parameter σ² costs Σ d²/(2σ²) in ρ;
the log ratio is a linear function of Σ d z, whose distribution is a convolution; from that follows the least ε at a δ.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, sqrt

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.noise.draws import checked_variance

REACH = 9  # standard deviations; beyond, less than 10^-18 of the mass
GRID = 1e-4  # in deviations of the whole loss: to this losses of several measurements are rounded down when added


def exact_loss(here: Sequence[Measurement], there: Sequence[Measurement]) -> Fraction:
    """What one output can at the most tell (ε, for Laplace noise), or ρ (for Gaussian): from numbers without noise."""
    total = Fraction(0)
    for one, two in zip(here, there, strict=True):
        apart = np.abs(one.values.astype(np.int64) - two.values)
        if one.noise == "discrete_laplace":
            total += int(apart.sum()) / one.scale
        else:
            total += int((apart**2).sum()) / (2 * one.scale)
    return total


def exact_epsilon(here: Sequence[Measurement], there: Sequence[Measurement], delta: float) -> float:
    """The least ε at which two data sets are (ε, δ)-indistinguishable, from their numbers without noise.

    For Laplace noise the least ε at δ = 0, whatever δ is. For Gaussian noise within rounding, from below.
    """
    if here[0].noise == "discrete_laplace":
        return float(exact_loss(here, there))
    grid = GRID * sqrt(2 * exact_loss(here, there)) or GRID
    place, chances = 0, np.ones(1)
    for one, two in zip(here, there, strict=True):
        apart = np.abs(one.values.astype(np.int64) - two.values).ravel()
        if apart.any():
            sums, masses = _sums(apart[apart > 0], one.scale)
            begin, mine = _binned((float((apart**2).sum()) + 2 * sums) / (2 * float(one.scale)) / grid, masses)
            place, chances = place + begin, _convolved(chances, mine)
    losses: Floats = np.arange(place, place + len(chances), dtype=np.float64) * grid
    return least_epsilon(losses, chances, delta)


def least_epsilon(losses: Floats, chances: Floats, delta: float) -> float:
    """The least ε ≥ 0 with Σ P max(0, 1 − e^(ε − loss)) ≤ δ: losses log(P/Q), and their chances under P."""
    low, high = 0.0, max(0.0, float(losses.max()))
    for _ in range(60):
        middle = (low + high) / 2
        above = losses > middle
        excess = float((chances[above] * -np.expm1(middle - losses[above])).sum())
        low, high = (middle, high) if excess > delta else (low, middle)
    return low


def log_ratios(measured: Measurement, here: Measurement, there: Measurement) -> Floats:
    """Number by number, log P(output | there) − log P(output | here): the optimal score of an output."""
    output = measured.values.astype(np.int64)
    from_here, from_there = np.abs(output - here.values), np.abs(output - there.values)
    if measured.noise == "discrete_laplace":
        found: Floats = (from_here - from_there) / float(measured.scale)
        return found
    squares: Floats = (from_here**2 - from_there**2) / (2 * float(measured.scale))
    return squares


def total_log_ratio(measured: Measurements, here: Measurements, there: Measurements) -> float:
    """The score of a whole release."""
    parts = zip(measured.measured, here.measured, there.measured, strict=True)
    return float(sum(log_ratios(*part).sum() for part in parts))


def _sums(apart: Integers, variance: Fraction) -> tuple[Floats, Floats]:
    """The distribution of Σ d z over independent discrete Gaussian z: values, and their chances."""
    parameter = float(checked_variance(variance))
    most = ceil(REACH * sqrt(parameter)) + 1
    noise = np.arange(-most, most + 1)
    bell = np.exp(-(noise**2) / (2 * parameter))
    bell /= bell.sum()
    chances, reach = np.ones(1), 0
    for by in apart.tolist():
        spread = np.zeros(2 * most * by + 1)
        spread[::by] = bell
        chances, reach = np.convolve(chances, spread), reach + most * by
        kept = np.flatnonzero(chances > 1e-30)
        cut = min(int(kept[0]), len(chances) - 1 - int(kept[-1]))
        chances, reach = chances[cut : len(chances) - cut], reach - cut
    return np.arange(-reach, reach + 1, dtype=float), chances


def _binned(losses: Floats, chances: Floats) -> tuple[int, Floats]:
    """The same distribution, losses rounded down to integers: the first loss, and chances from there."""
    places = np.floor(losses).astype(np.int64)
    return int(places.min()), np.bincount(places - places.min(), weights=chances).astype(np.float64)


def _convolved(one: Floats, two: Floats) -> Floats:
    """The distribution of the sum of two independent variables."""
    length = len(one) + len(two) - 1
    found: Floats = np.fft.irfft(np.fft.rfft(one, length) * np.fft.rfft(two, length), length)
    return np.maximum(found, 0.0)
