"""Exact discrete Laplace and Gaussian noise, as fast as random bits can be read.

Every draw has exactly the stated distribution over all integers: no tail is cut off and no rounding decides anything.
docs/noise.md has the argument.

Integers are put together from tables: whole where the table is small, in blocks where not. Wide noise is proposed as a
block of integers and a uniform place in it, and rejected with the exact probability (as Canonne, Kamath and Steinke
2020, section 5, do from a Laplace proposal; from blocks it is a hundredth of the proposals and not a quarter). Almost
always one word gives the block, the place and the first digits of the number that decides. Outcomes of a table are
folded: 2k means k, and 2k + 1 means −1 − k.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Rational
from typing import Any

import numpy as np
from flint import arb

from tallytree.core.arrays import Integers, Words
from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.privacy.noise.inversion import (
    MOST_LEADING_BITS,
    WORD_BITS,
    Gaussian,
    Laplace,
    Rejection,
    Table,
    Uniform,
    ball,
    working_precision,
)
from tallytree.privacy.noise.keystream import Keystream, Source

NOISE_BITS = 62  # noise is below 2^62 in size, or an error, so a sum with a count below 2^62 fits into int64
WIDEST = 128  # the largest scale or standard deviation drawn from one table
MARGIN = 2.0**-40
LARGEST_BITS = 40  # a scale or a standard deviation is at most 2^40
KEY_BLOCK = 1 << 15  # draws under one key; their words fit into a core's cache
THREAD_BLOCK = 1 << 19
OPENDP_BLOCK = 1 << 14
NUMBER = re.compile(r"\s*\d{1,60}(\.\d{1,60}|/0*[1-9]\d{0,60})?\s*", re.ASCII)


@dataclass(frozen=True)
class NarrowSampler:
    """One table for all of X."""

    table: Table

    def draw(self, source: Source, count: int) -> Integers:
        """Return `count` independent draws."""
        outcomes = self.table.draw(source, count)
        return (outcomes >> 1) ^ -(outcomes & 1)


@dataclass(frozen=True)
class WideSampler:
    """A block of 2^bits integers and a sign from a table, a uniform place in the block, and rejection.

    With `start`, the least size in its block, the integer x is accepted with probability exp(−excess), where
    excess = (|x| − start) (slope + curve (|x| + start)) ≥ 0.
    """

    block: Table
    bits: int
    slope: Fraction
    curve: Fraction

    def draw(self, source: Source, count: int) -> Integers:
        """Return `count` independent draws: each place has proposals of its own, until one is accepted."""
        noise, rejected = self._proposals(source, count)
        while len(rejected):
            noise[rejected], again = self._proposals(source, len(rejected))
            rejected = rejected[again]
        return noise

    def _proposals(self, source: Source, count: int) -> tuple[Integers, Integers]:
        """Return `count` proposals, and the places of those that are rejected.

        The leading bits of a word choose the block. The next bits are the place in it, and the others are the first
        digits of the uniform number that decides. Where the table had to read more of a word than its leading bits,
        place and digits come from a new word.
        """
        words = source.words(count)
        outcomes, read = self.block.outcomes(words, source)
        if len(read):
            words[read] = source.words(len(read))
        proposals, unsure = np.empty(count, np.int64), np.empty(count, np.int64)
        rates = float(self.slope), float(self.curve)
        unsure = unsure[: _judge(words, outcomes, self.bits, self.digits, *rates, proposals, unsure)]
        doubtful = unsure[unsure >= 0]
        refused = [i for i in doubtful.tolist() if not self._accepts(source, int(words[i]), int(outcomes[i]))]
        return proposals, np.concatenate([~unsure[unsure < 0], np.array(refused, np.int64)])

    @property
    def digits(self) -> int:
        """Return how many binary digits of the deciding number are in a proposal's word."""
        return self.block.word_bits - self.block.leading_bits - self.bits

    def _accepts(self, source: Source, word: int, outcome: int) -> bool:
        """Return whether a proposal is accepted, exactly."""
        uniform = Uniform(word & ((1 << self.digits) - 1), self.block.word_bits, source, known=self.digits)
        place = (word >> self.digits) & ((1 << self.bits) - 1)
        return uniform.reaches(Rejection(self.excess(outcome, place)), 1)

    def excess(self, outcome: int, place: int) -> Fraction:
        """Return what a proposal is too likely by: it is accepted with probability exp(−excess)."""
        start, reach = outcome >> 1 << self.bits, place + (outcome & 1)
        return reach * (self.slope + self.curve * (2 * start + reach))


@kernel
def _judge(
    words: Words,
    outcomes: Integers,
    bits: int,
    digits: int,
    slope: float,
    curve: float,
    proposals: Integers,
    unsure: Integers,
) -> int:
    """Return the proposals, and the places of those that are not surely accepted: i if in doubt, −1 − i if surely
    rejected.

    A proposal is accepted if U ≥ c = 1 − exp(−excess), where U lies in [least, least + unit). For excess e in [0, 1]
    Taylor's alternating series gives e − e²/2 ≤ c ≤ e − e²/2 + e³/6 ≤ e, and all of these grow with e. Here they are
    floats: each sum is of numbers that are not negative, and each difference is 1 less a number below 1/2. So every
    operation adds a relative error of at most 2^−51 to its result, fewer than twenty do, and MARGIN covers more than
    those. What is sure is therefore true of the exact numbers, and the caller decides what is in doubt.
    """
    places, known, unit = np.uint64((1 << bits) - 1), np.uint64((1 << digits) - 1), 0.5**digits
    above, below = 1 + MARGIN, 1 - MARGIN
    found = 0
    for i in range(words.size):
        word, outcome = words[i], outcomes[i]
        start, odd = (outcome >> 1) << bits, outcome & 1
        place = np.int64((word >> np.uint64(digits)) & places)
        proposals[i] = (start + place) ^ -odd
        reach = float(place + odd)
        excess = reach * (slope + curve * (2.0 * float(start) + reach))
        least = float(np.int64(word & known)) * unit
        if least >= excess * above:
            continue
        doubtful = True
        if excess < 0.5:
            most = excess * (1 - excess / 2 * (1 - excess / 3))
            if least >= most * above:
                continue
            doubtful = least + unit > excess * (1 - excess / 2) * below
        unsure[found] = i if doubtful else -1 - i
        found += 1
    return found


@lru_cache(maxsize=64)
def laplace_sampler(
    scale: Fraction, word_bits: int = WORD_BITS, widest: int | Fraction = WIDEST
) -> NarrowSampler | WideSampler:
    """Return the tables for this scale. They are public, so they are kept for the next call."""
    bits = _halvings(scale / widest)
    if bits == 0:
        return NarrowSampler(Table(Laplace(scale), _limit(0), word_bits))
    block = _blocks(Laplace(scale / (1 << bits), doubled=True), bits, word_bits)
    return WideSampler(block, bits, slope=1 / scale, curve=Fraction(0))


@lru_cache(maxsize=64)
def gaussian_sampler(
    variance: Fraction, word_bits: int = WORD_BITS, widest: int | Fraction = WIDEST
) -> NarrowSampler | WideSampler:
    """Return the tables for this variance. They are public, so they are kept for the next call."""
    bits = (_halvings(variance / Fraction(widest) ** 2) + 1) // 2
    if bits == 0:
        return NarrowSampler(Table(Gaussian(variance), _limit(0), word_bits))
    block = _blocks(Gaussian(variance / (1 << 2 * bits), doubled=True), bits, word_bits)
    return WideSampler(block, bits, slope=Fraction(0), curve=1 / (2 * variance))


def _blocks(thresholds: Laplace | Gaussian, bits: int, word_bits: int) -> Table:
    """Return a table of blocks that leaves room for the place in a word."""
    return Table(thresholds, _limit(bits), word_bits, min(MOST_LEADING_BITS, word_bits - bits))


def _limit(bits: int) -> int:
    """Outcomes below this one are sizes below 2^NOISE_BITS, in blocks of 2^bits."""
    return 1 << (NOISE_BITS + 1 - bits)


def _halvings(number: Fraction) -> int:
    """Return how often `number` must be halved to be at most 1."""
    return max(0, (math.ceil(number) - 1).bit_length())


# ---------------------------------------------------------------- draws


def discrete_laplace(scale: Fraction | int | str, size: int) -> Integers:
    """Return `size` independent draws with P(x) ∝ exp(−|x| / scale), x any integer."""
    exact, count = checked_scale(scale), checked_size(size)
    return _in_blocks(laplace_sampler(exact).draw, count)


def discrete_gaussian(variance: Fraction | int | str, size: int) -> Integers:
    """Return `size` independent draws with P(x) ∝ exp(−x² / (2 variance)), x any integer."""
    exact, count = checked_variance(variance), checked_size(size)
    return _in_blocks(gaussian_sampler(exact).draw, count)


def _in_blocks(draw: Callable[[Source, int], Integers], count: int) -> Integers:
    """Return `count` draws on all cores; every block has a keystream, so a key, of its own."""
    noise = np.empty(count, np.int64)

    def fill(first: int, last: int) -> None:
        for start, stop in blocks(last - first, KEY_BLOCK):
            noise[first + start : first + stop] = draw(Keystream(), stop - start)

    in_threads(fill, blocks(count, THREAD_BLOCK))
    return noise


# ---------------------------------------------------------------- what is asked for


def checked_scale(scale: object) -> Fraction:
    """Return the scale as an exact fraction, or a SpecError."""
    return _checked(scale, "scale", LARGEST_BITS)


def checked_variance(variance: object) -> Fraction:
    """Return the variance as an exact fraction, or a SpecError."""
    return _checked(variance, "variance", 2 * LARGEST_BITS)


def checked_size(size: object) -> int:
    """Return the number of draws, or a SpecError."""
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 0:
        raise SpecError(f"the number of draws is {size!r}; expected an integer of at least 0")
    return int(size)


def _checked(value: object, name: str, most_bits: int) -> Fraction:
    if isinstance(value, str) and NUMBER.fullmatch(value):
        exact = Fraction(value)
    elif isinstance(value, Rational) and not isinstance(value, bool):
        exact = Fraction(int(value.numerator), int(value.denominator))
    else:
        raise SpecError(
            f"the noise's {name} is {value!r}; expected an integer, a Fraction or a string such as '0.1' or "
            "'7/3' (a float is refused, for it is seldom exactly the number that was meant)"
        )
    if exact <= 0:
        raise SpecError(f"the noise's {name} is {value}; expected a number above 0")
    if exact > 1 << most_bits:
        raise SpecError(f"the noise's {name} is more than 2^{most_bits}, the most that is supported")
    return exact


# ---------------------------------------------------------------- variances


def laplace_variance(scale: Fraction | int | str) -> float:
    """Return the variance of `discrete_laplace`, 2p/(1 − p)² = 1/(2 sinh²(1/(2 scale))) with p = exp(−1/scale).

    >>> laplace_variance(30)
    1799.8333425921844
    """
    half = 1 / (2 * checked_scale(scale))
    with working_precision(256):
        return float(1 / (2 * ball(half).sinh() ** 2))


def gaussian_variance(variance: Fraction | int | str) -> float:
    """Return the variance of `discrete_gaussian`, a little less than its parameter when that is small.

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


# ---------------------------------------------------------------- draws by OpenDP
#
# OpenDP takes a float as its scale and draws exactly for that float, so a scale that is no float is rounded up to the
# next one: never less noise than asked. The tests use it as the independent reference.


def usable_scale(scale: Fraction | int | str) -> Fraction:
    """Return the smallest float at or above `scale`: what `opendp_laplace` really uses.

    >>> usable_scale(30), usable_scale("1/3") - Fraction(1, 3)
    (Fraction(30, 1), Fraction(1, 27021597764222976))
    """
    exact = checked_scale(scale)
    nearest = float(exact)
    return Fraction(nearest if nearest >= exact else math.nextafter(nearest, math.inf))


def usable_variance(variance: Fraction | int | str) -> Fraction:
    """Return the square of the smallest float whose square is at least `variance`: what `opendp_gaussian` really uses.

    >>> usable_variance(900), float(usable_variance(2))
    (Fraction(900, 1), 2.0000000000000004)
    """
    exact = checked_variance(variance)
    deviation = math.sqrt(exact)
    while Fraction(deviation) ** 2 >= exact:
        deviation = math.nextafter(deviation, 0)
    while Fraction(deviation) ** 2 < exact:
        deviation = math.nextafter(deviation, math.inf)
    return Fraction(deviation) ** 2


def opendp_laplace(scale: Fraction | int | str, size: int) -> Integers:
    """Return `size` draws with P(x) ∝ exp(−|x| / usable_scale(scale))."""
    usable, count = float(usable_scale(scale)), checked_size(size)
    dp = opendp_library()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    return _draw_by_opendp(dp.m.make_laplace(*space, scale=usable), count)


def opendp_gaussian(variance: Fraction | int | str, size: int) -> Integers:
    """Return `size` draws with P(x) ∝ exp(−x² / (2 usable_variance(variance)))."""
    usable, count = math.sqrt(usable_variance(variance)), checked_size(size)
    dp = opendp_library()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return _draw_by_opendp(dp.m.make_gaussian(*space, scale=usable), count)


def opendp_library() -> Any:
    """Return OpenDP, imported when first needed; it asks to have its samplers enabled."""
    try:
        import opendp.prelude as dp
    except ModuleNotFoundError:
        raise SpecError(
            "noise_source = 'opendp' needs OpenDP, which is not installed. Nothing was spent. Leave noise_source out, "
            "or install it: pip install 'tallytree[opendp]'"
        ) from None
    dp.enable_features("contrib")
    return dp


def _draw_by_opendp(measurement: Callable[[list[int]], list[int]], count: int) -> Integers:
    """Return OpenDP's measurement of `count` zeros."""
    noise = np.empty(count, np.int64)

    def fill(start: int, stop: int) -> None:
        noise[start:stop] = measurement([0] * (stop - start))

    in_threads(fill, blocks(count, OPENDP_BLOCK))
    return noise
