"""Exact discrete Laplace and Gaussian noise, as fast as random bits can be read.

Every draw has exactly the stated distribution over all integers: no tail is cut off and no rounding decides anything.
docs/noise.md has the argument. Below this module, from the ground up: `keystream` (random words), `thresholds` (exact
probabilities), `inversion` (words to outcomes), `samplers` (outcomes to integers).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from numbers import Integral, Rational
from typing import Any

import numpy as np
from flint import arb

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads
from tallytree.privacy.noise.keystream import Keystream, Source
from tallytree.privacy.noise.samplers import gaussian_sampler, laplace_sampler
from tallytree.privacy.noise.thresholds import ball, working_precision

LARGEST_BITS = 40  # a scale or a standard deviation is at most 2^40
KEY_BLOCK = 1 << 15  # draws under one key; their words fit into a core's cache
THREAD_BLOCK = 1 << 19
NUMBER = re.compile(r"\s*\d{1,60}(\.\d{1,60}|/0*[1-9]\d{0,60})?\s*", re.ASCII)


def discrete_laplace(scale: Fraction | int | str, size: int) -> Integers:
    """`size` independent draws with P(x) ∝ exp(−|x| / scale), x any integer."""
    exact, count = checked_scale(scale), checked_size(size)
    return _in_blocks(laplace_sampler(exact).draw, count)


def discrete_gaussian(variance: Fraction | int | str, size: int) -> Integers:
    """`size` independent draws with P(x) ∝ exp(−x² / (2 variance)), x any integer."""
    exact, count = checked_variance(variance), checked_size(size)
    return _in_blocks(gaussian_sampler(exact).draw, count)


def _in_blocks(draw: Callable[[Source, int], Integers], count: int) -> Integers:
    """`count` draws on all cores; every block has a keystream, so a key, of its own."""
    noise = np.empty(count, np.int64)

    def fill(first: int, last: int) -> None:
        for start, stop in blocks(last - first, KEY_BLOCK):
            noise[first + start : first + stop] = draw(Keystream(), stop - start)

    in_threads(fill, blocks(count, THREAD_BLOCK))
    return noise


# ---------------------------------------------------------------- what is asked for


def checked_scale(scale: object) -> Fraction:
    """The scale as an exact fraction, or a SpecError."""
    return _checked(scale, "scale", LARGEST_BITS)


def checked_variance(variance: object) -> Fraction:
    """The variance as an exact fraction, or a SpecError."""
    return _checked(variance, "variance", 2 * LARGEST_BITS)


def checked_size(size: object) -> int:
    """The number of draws, or a SpecError."""
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
        raise SpecError(f"the number of draws is {size!r}; expected a whole number, 0 or more")
    return int(size)


def _checked(value: object, name: str, most_bits: int) -> Fraction:
    if isinstance(value, str) and NUMBER.fullmatch(value):
        exact = Fraction(value)
    elif isinstance(value, Rational) and not isinstance(value, bool):
        exact = Fraction(int(value.numerator), int(value.denominator))
    else:
        raise SpecError(
            f"the noise's {name} is {value!r}; expected a whole number, a Fraction or a string such as '0.1' or "
            "'7/3' (a float is refused, for it is seldom exactly the number that was meant)"
        )
    if exact <= 0:
        raise SpecError(f"the noise's {name} is {value}; expected a number above 0")
    if exact > 1 << most_bits:
        raise SpecError(f"the noise's {name} is more than 2^{most_bits}, the most that is supported")
    return exact


# ---------------------------------------------------------------- variances


def laplace_variance(scale: Fraction | int | str) -> float:
    """The variance of `discrete_laplace`, 2p/(1 − p)² = 1/(2 sinh²(1/(2 scale))) with p = exp(−1/scale).

    >>> laplace_variance(30)
    1799.8333425921844
    """
    half = 1 / (2 * checked_scale(scale))
    with working_precision(256):
        return float(1 / (2 * ball(half).sinh() ** 2))


def gaussian_variance(variance: Fraction | int | str) -> float:
    """The variance of `discrete_gaussian`, a little less than its parameter when that is small.

    By Poisson's summation formula Σ exp(−n²/(2v)) = √(2πv) Σ exp(−2π²v n²), and differentiation, the variance is
    v − (2πv)² Σ n² exp(−2π²v n²) / Σ exp(−2π²v n²). The sum over the faster falling terms is used.

    >>> gaussian_variance(1), gaussian_variance("0.1")
    (0.9999997887677281, 0.013296725173624157)
    """
    exact = checked_variance(variance)
    with working_precision(256):
        v = ball(exact)
        if 6 * exact < 1:
            return float(_mean_square(1 / (2 * v)))
        return float(v - (2 * arb.pi() * v) ** 2 * _mean_square(2 * arb.pi() ** 2 * v))


def _mean_square(rate: Any) -> Any:
    """Σ n² exp(−rate n²) / Σ exp(−rate n²) over all integers n, for rate ≥ 3; 20 terms leave less than 2^−1000."""
    weights = [(-rate * n**2).exp() for n in range(20)]
    return 2 * sum(n**2 * weight for n, weight in enumerate(weights)) / (2 * sum(weights) - 1)
