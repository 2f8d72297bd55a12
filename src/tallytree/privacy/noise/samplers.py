"""How Laplace and Gaussian integers are put together from tables: whole where the table is small, in blocks where not.

Wide noise is proposed as a block of integers and a uniform place in it, and rejected with the exact probability (as
Canonne, Kamath and Steinke 2020, section 5, do from a Laplace proposal; from blocks it is a hundredth of the proposals
and not a quarter). Almost always one word gives the block, the place and the first digits of the number that decides.
Outcomes of a table are folded: 2k means k, and 2k + 1 means −1 − k. The proofs are in docs/noise.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tallytree.core.arrays import Integers, Words
from tallytree.core.kernels import kernel
from tallytree.privacy.noise.inversion import MOST_LEADING_BITS, WORD_BITS, Table, Uniform
from tallytree.privacy.noise.keystream import Source
from tallytree.privacy.noise.thresholds import Gaussian, Laplace, Rejection

NOISE_BITS = 62  # noise is below 2^62 in size, or an error, so a sum with a count below 2^62 fits into int64
WIDEST = 128  # the largest scale or standard deviation drawn from one table
MARGIN = 2.0**-40


@dataclass(frozen=True)
class NarrowSampler:
    """One table for all of X."""

    table: Table

    def draw(self, source: Source, count: int) -> Integers:
        """`count` independent draws."""
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
        """`count` independent draws: each place has proposals of its own, until one is accepted."""
        noise, rejected = self._proposals(source, count)
        while len(rejected):
            noise[rejected], again = self._proposals(source, len(rejected))
            rejected = rejected[again]
        return noise

    def _proposals(self, source: Source, count: int) -> tuple[Integers, Integers]:
        """`count` proposals, and the places of those that are rejected.

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
        """How many binary digits of the deciding number are in a proposal's word."""
        return self.block.word_bits - self.block.leading_bits - self.bits

    def _accepts(self, source: Source, word: int, outcome: int) -> bool:
        """Whether a proposal is accepted, exactly."""
        uniform = Uniform(word & ((1 << self.digits) - 1), self.block.word_bits, source, known=self.digits)
        place = (word >> self.digits) & ((1 << self.bits) - 1)
        return uniform.reaches(Rejection(self.excess(outcome, place)), 1)

    def excess(self, outcome: int, place: int) -> Fraction:
        """What a proposal is too likely by: it is accepted with probability exp(−excess)."""
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
    """The proposals, and the places of those that are not surely accepted: i if in doubt, −1 − i if surely rejected.

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
    """The tables for this scale. They are public, so they are kept for the next call."""
    bits = _halvings(scale / widest)
    if bits == 0:
        return NarrowSampler(Table(Laplace(scale), _limit(0), word_bits))
    block = _blocks(Laplace(scale / (1 << bits), doubled=True), bits, word_bits)
    return WideSampler(block, bits, slope=1 / scale, curve=Fraction(0))


@lru_cache(maxsize=64)
def gaussian_sampler(
    variance: Fraction, word_bits: int = WORD_BITS, widest: int | Fraction = WIDEST
) -> NarrowSampler | WideSampler:
    """The tables for this variance. They are public, so they are kept for the next call."""
    bits = (_halvings(variance / Fraction(widest) ** 2) + 1) // 2
    if bits == 0:
        return NarrowSampler(Table(Gaussian(variance), _limit(0), word_bits))
    block = _blocks(Gaussian(variance / (1 << 2 * bits), doubled=True), bits, word_bits)
    return WideSampler(block, bits, slope=Fraction(0), curve=1 / (2 * variance))


def _blocks(thresholds: Laplace | Gaussian, bits: int, word_bits: int) -> Table:
    """A table of blocks that leaves room for the place in a word."""
    return Table(thresholds, _limit(bits), word_bits, min(MOST_LEADING_BITS, word_bits - bits))


def _limit(bits: int) -> int:
    """Outcomes below this one are sizes below 2^NOISE_BITS, in blocks of 2^bits."""
    return 1 << (NOISE_BITS + 1 - bits)


def _halvings(number: Fraction) -> int:
    """How often `number` must be halved to be at most 1."""
    return max(0, (math.ceil(number) - 1).bit_length())
