"""How Laplace and Gaussian integers are put together from tables: whole where the table is small, in parts where not.

The digits of a geometric number are independent, so a wide Laplace is drawn digit by digit. A wide Gaussian is proposed
as a coarse block and a uniform place in it, and rejected with the exact probability (as Canonne, Kamath and Steinke
2020, section 5, do from a Laplace proposal; from blocks it is a thousandth of the proposals and not a quarter).
Outcomes of a table are folded: 2k means k, and 2k + 1 means −1 − k. The proofs are in docs/noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.privacy.noise.inversion import WORD_BITS, Table, Uniform
from tallytree.privacy.noise.keystream import Source
from tallytree.privacy.noise.thresholds import Gaussian, GeometricDigit, LaplaceQuotient, Rejection

NOISE_BITS = 62  # noise is below 2^62 in size, or an error, so a sum with a count below 2^62 fits into int64
WIDEST_LAPLACE = 64  # the largest scale and standard deviation drawn from one table
WIDEST_GAUSSIAN = 1024
DIGIT_BITS = 9


@dataclass(frozen=True)
class LaplaceSampler:
    """⌊G / 2^bits⌋ with the sign, and the digits of G mod 2^bits, each from a table of its own."""

    quotient: Table
    digits: tuple[tuple[int, Table], ...]  # (shift, table): the digit is worth 2^shift
    bits: int

    def draw(self, source: Source, count: int) -> Integers:
        """`count` independent draws."""
        outcomes = self.quotient.draw(source, count)
        magnitudes = (outcomes >> 1) << self.bits
        for shift, table in self.digits:
            magnitudes += table.draw(source, count) << shift
        return _unfold(outcomes, magnitudes)


@dataclass(frozen=True)
class GaussianSampler:
    """One table for all of X."""

    table: Table

    def draw(self, source: Source, count: int) -> Integers:
        """`count` independent draws."""
        outcomes = self.table.draw(source, count)
        return _unfold(outcomes, outcomes >> 1)


@dataclass(frozen=True)
class WideGaussianSampler:
    """A block of 2^bits integers from a table, a uniform place in it, and rejection."""

    variance: Fraction
    block: Table
    bits: int

    def draw(self, source: Source, count: int) -> Integers:
        """`count` independent draws."""
        accepted = [self._accepted(source, count)]
        while missing := count - sum(map(len, accepted)):
            accepted.append(self._accepted(source, missing))
        return np.concatenate(accepted)

    def _accepted(self, source: Source, count: int) -> Integers:
        """Those of `count` proposals x that pass: each with probability exp(−(x² − start²) / (2 variance))."""
        outcomes = self.block.draw(source, count)
        starts = (outcomes >> 1) << self.bits
        places = (source.words(count) >> np.uint64(self.block.word_bits - self.bits)).astype(np.int64)
        proposals = _unfold(outcomes, starts + places)
        words = source.words(count)
        accepted = self._surely_accepted(proposals, starts, words)
        for doubtful in np.flatnonzero(~accepted):
            excess = (int(proposals[doubtful]) ** 2 - int(starts[doubtful]) ** 2) / (2 * self.variance)
            uniform = Uniform(int(words[doubtful]), self.block.word_bits, source)
            accepted[doubtful] = uniform.reaches(Rejection(excess), 1)
        return proposals[accepted]

    def _surely_accepted(self, proposals: Integers, starts: Integers, words: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Whether U ≥ excess, which is at least 1 − exp(−excess), beyond any doubt that rounding could cause.

        Fewer than ten operations on non-negative floats round here, each by a factor within 1 ± 2^−52; the margin is
        2^−40. Whatever is not sure is decided exactly by the caller.
        """
        sizes, begins = np.abs(proposals).astype(np.float64), starts.astype(np.float64)
        reach = (np.abs(proposals) - starts).astype(np.float64)
        excess = reach * (sizes + begins) / float(2 * self.variance)
        least = words.astype(np.float64) * 2.0**-self.block.word_bits
        return least > excess * (1 + 2.0**-40)


def _unfold(outcomes: Integers, magnitudes: Integers) -> Integers:
    """g where the outcome is even, −1 − g where it is odd (in two's complement: all bits of g flipped)."""
    return magnitudes ^ -(outcomes & 1)


@lru_cache(maxsize=64)
def laplace_sampler(
    scale: Fraction,
    word_bits: int = WORD_BITS,
    widest: int | Fraction = WIDEST_LAPLACE,
    digit_bits: int = DIGIT_BITS,
) -> LaplaceSampler:
    """The tables for this scale. They are public, so they are kept for the next call."""
    bits = _halvings(scale / widest)
    quotient = Table(LaplaceQuotient(scale, 1 << bits), 1 << (NOISE_BITS + 1 - bits), word_bits)
    digits = []
    for shift in range(0, bits, digit_bits):
        base = 1 << min(digit_bits, bits - shift)
        digits.append((shift, Table(GeometricDigit(scale, 1 << shift, base), base, word_bits)))
    return LaplaceSampler(quotient, tuple(digits), bits)


@lru_cache(maxsize=64)
def gaussian_sampler(
    variance: Fraction, word_bits: int = WORD_BITS, widest: int | Fraction = WIDEST_GAUSSIAN
) -> GaussianSampler | WideGaussianSampler:
    """The tables for this variance. They are public, so they are kept for the next call."""
    bits = (_halvings(variance / Fraction(widest) ** 2) + 1) // 2
    limit = 1 << (NOISE_BITS + 1 - bits)
    if bits == 0:
        return GaussianSampler(Table(Gaussian(variance), limit, word_bits))
    coarse = Gaussian(variance / (1 << 2 * bits), doubled=True)
    return WideGaussianSampler(variance, Table(coarse, limit, word_bits), bits)


def _halvings(number: Fraction) -> int:
    """How often `number` must be halved to be at most 1."""
    return max(0, (math.ceil(number) - 1).bit_length())
