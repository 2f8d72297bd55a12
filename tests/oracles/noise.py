"""Exact references for the noise: probabilities as intervals of fractions (no Arb), and all words tried one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from itertools import count

import numpy as np

from tallytree.core.arrays import Words
from tallytree.privacy.noise.keystream import Keystream

ACCURACY = 120  # intervals are about 2^-ACCURACY wide


@dataclass(frozen=True)
class Interval:
    """A non-negative number between two fractions, kept short by rounding outwards."""

    low: Fraction
    high: Fraction

    @classmethod
    def around(cls, low: Fraction, high: Fraction) -> Interval:
        grid = 1 << ACCURACY
        return cls(
            Fraction(low.numerator * grid // low.denominator, grid),
            Fraction(-(-high.numerator * grid // high.denominator), grid),
        )

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __mul__(self, other: Interval) -> Interval:
        return Interval.around(self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Interval) -> Interval:
        return Interval.around(self.low / other.high, self.high / other.low)


@cache
def exp_minus(number: Fraction) -> Interval:
    """exp(−number) for number ≥ 0: the alternating series of a number at most 1, squared as often as it was halved."""
    halvings = 0
    while number > 1:
        number, halvings = number / 2, halvings + 1
    term = below = above = Fraction(1)
    for n in count(1):
        term = term * number / n
        if n % 2:
            below = above - term
        else:
            above = below + term
        if term < Fraction(1, 1 << (ACCURACY + 8)):
            break
    result = Interval.around(below, above)
    for _ in range(halvings):
        result = result * result
    return result


def laplace_probability(scale: Fraction, x: int) -> Interval:
    """(1 − p)/(1 + p) p^|x| with p = exp(−1/scale)."""
    p = exp_minus(1 / scale)
    return Interval((1 - p.high) / (1 + p.high), (1 - p.low) / (1 + p.low)) * exp_minus(abs(x) / scale)


@cache
def gaussian_sum(variance: Fraction) -> Interval:
    """Σ exp(−n² / (2 variance)) over all integers: terms added until the rest, at most a geometric series, is tiny."""
    total = Interval(Fraction(1), Fraction(1))
    for n in count(1):
        term, ratio = exp_minus(n**2 / (2 * variance)), exp_minus((2 * n + 1) / (2 * variance))
        total = total + term + term
        if term.high < Fraction(1, 1 << (ACCURACY - 20)):
            rest = 2 * term.high * ratio.high / (1 - ratio.high)
            return Interval.around(total.low, total.high + rest)
    raise AssertionError


def gaussian_probability(variance: Fraction, x: int) -> Interval:
    """exp(−x² / (2 variance)) over their sum."""
    return exp_minus(x**2 / (2 * variance)) / gaussian_sum(variance)


class WordsRanOut(Exception):
    """The draw asked for more words than the script has."""


class Script:
    """A source that gives the words it was told to give."""

    def __init__(self, *script: int) -> None:
        self.script = list(script)

    def words(self, count: int) -> Words:
        if count > len(self.script):
            raise WordsRanOut
        given, self.script = self.script[:count], self.script[count:]
        return np.array(given, np.uint64)


class ShortWords:
    """A keystream cut into short words, and how many times it was asked."""

    def __init__(self, word_bits: int) -> None:
        self._stream, self._shift = Keystream(), np.uint64(64 - word_bits)
        self.calls = 0

    def words(self, count: int) -> Words:
        self.calls += 1
        return self._stream.words(count) >> self._shift


@dataclass
class Tried:
    """What came of all sequences of words: probability by result, by the number of words it took, and the rest."""

    decided: dict[Hashable, Fraction] = field(default_factory=lambda: defaultdict(Fraction))
    undecided: Fraction = Fraction(0)
    by_words: dict[int, Fraction] = field(default_factory=lambda: defaultdict(Fraction))


def try_all_words(draw: Callable[[Script], Hashable], word_bits: int, most: int) -> Tried:
    """Run `draw` on every sequence of at most `most` words that no shorter sequence has decided."""
    tried, open_sequences = Tried(), [()]
    while open_sequences:
        words = open_sequences.pop()
        weight = Fraction(1, 1 << (word_bits * len(words)))
        script = Script(*words)
        try:
            result = draw(script)
        except WordsRanOut:
            if len(words) == most:
                tried.undecided += weight
            else:
                open_sequences.extend((*words, word) for word in range(1 << word_bits))
            continue
        assert not script.script, "a sequence was decided by fewer words than its parent"
        tried.decided[result] += weight
        tried.by_words[len(words)] += weight
    return tried
