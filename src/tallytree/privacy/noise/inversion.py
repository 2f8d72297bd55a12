"""Exact probabilities, and random outcomes by inversion: how many thresholds a uniform U in [0, 1) reaches.

`Thresholds` are the cumulative probabilities c₁ < c₂ < …, enclosed rigorously by Arb: c_i = P(outcome < i). An outcome
0, 1, 2, … is the number of thresholds at or below U. Outcomes are folded integers: 0, 1, 2, 3, 4, … stand for 0, −1, 1,
−2, 2, …: 2k means k and 2k + 1 means −1 − k.

U is never rounded. Its first word w says that it lies in [w, w + 1) · 2^−word_bits, and where that cell may hold a
threshold more words are drawn, as many as it takes. So draws have exactly the distribution of the thresholds; the
argument is in docs/noise.md. Words may be shorter than 64 bits, which tests use to make the rare path common.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count, islice
from threading import Lock
from typing import Any

import numpy as np
from flint import acb, arb, ctx, fmpq
from numpy.typing import NDArray

from tallytree.core.arrays import Integers, Words
from tallytree.core.kernels import kernel
from tallytree.privacy.noise.keystream import Source

WORD_BITS = 64
MOST_LEADING_BITS = 14
GUARD_BITS = 64
_PRECISION = Lock()  # Arb's working precision is one setting of the whole process


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Arb works with `bits` binary digits; one thread at a time."""
    with _PRECISION, ctx.workprec(bits):
        yield


def ball(number: Fraction) -> Any:
    """Return the fraction as an Arb ball of the working precision."""
    return arb(fmpq(number.numerator, number.denominator))


class Thresholds(ABC):
    """An ascending sequence, finite or not, of real numbers in (0, 1) that can be enclosed to any precision."""

    @abstractmethod
    def values(self) -> Iterator[Any]:
        """c₁, c₂, … as Arb balls of the working precision."""

    def enclosed(self, index: int, bits: int) -> tuple[int, int]:
        """Integers low ≤ c_index · 2^bits ≤ high, as a rule neighbours. After the last threshold come ones."""
        with working_precision(bits + GUARD_BITS):
            return enclosure(next(islice(self.values(), index - 1, None), arb(1)), bits)

    def cells(self, bits: int) -> list[int]:
        """For every threshold below 1 − 2^−bits the integer t with t ≤ c · 2^bits ≤ t + 1.

        Arb is asked for more digits until each ball lies in one cell. (A threshold equal to a multiple of 2^−bits
        never would; that is an error and not a wrong table.)
        """
        for guard_bits in (GUARD_BITS, 4 * GUARD_BITS, 16 * GUARD_BITS):
            with working_precision(bits + guard_bits):
                cells = _cells(self.values(), bits)
            if cells is not None:
                return cells
        raise ArithmeticError(f"a threshold of {self} is too near to a multiple of 2^-{bits} to be placed")


def _cells(thresholds: Iterator[Any], bits: int) -> list[int] | None:
    cells = []
    for threshold in thresholds:
        low, high = enclosure(threshold, bits)
        if low >= (1 << bits) - 1:
            break
        if high - low > 1:
            return None
        cells.append(low)
    return cells


def enclosure(threshold: Any, bits: int) -> tuple[int, int]:
    """Integers low ≤ threshold · 2^bits ≤ high."""
    scaled = threshold * (1 << bits)
    return int(scaled.lower().floor().unique_fmpz()), int(scaled.upper().ceil().unique_fmpz())


@dataclass(frozen=True)
class Laplace(Thresholds):
    """X, folded, with P(x) ∝ p^|x|, where p = exp(−1/scale).

    Outcomes weigh 1, p, p, p², p², …, so P(outcome ≥ 2k + 1) = 2 p^(k+1) / (1 + p), and P(outcome ≥ 2k) = p^k.
    When `doubled` they weigh 1, 1, p, p, …, so P(outcome ≥ 2k) = p^k, and P(outcome ≥ 2k + 1) = p^k (1 + p)/2.
    """

    scale: Fraction
    doubled: bool = False

    def values(self) -> Iterator[Any]:
        p = (-ball(1 / self.scale)).exp()
        at_least, odd = arb(1), (1 + p) / 2 if self.doubled else 2 * p / (1 + p)
        while True:
            yield 1 - at_least * odd
            at_least *= p
            yield 1 - at_least


@dataclass(frozen=True)
class Gaussian(Thresholds):
    """X, folded, with P(x) ∝ e(|x|), where e(k) = exp(−k² / (2 variance)).

    Outcomes weigh e(0), e(1), e(1), e(2), e(2), …, together θ = Σ e(n) over all integers n, a Jacobi theta function.
    When `doubled` they weigh e(0), e(0), e(1), e(1), …, together θ + 1: k and −1 − k are as likely as each other.
    """

    variance: Fraction
    doubled: bool = False

    def values(self) -> Iterator[Any]:
        rate = ball(-1 / (2 * self.variance))
        _, _, theta, _ = acb(0).modular_theta(acb(0, -rate / arb.pi()))
        total, whole = arb(0), theta.real + self.doubled
        for k in count():
            weight = (rate * k**2).exp()
            for _ in range(2 if k or self.doubled else 1):
                total += weight
                yield total / whole


@dataclass(frozen=True)
class Rejection(Thresholds):
    """One threshold, 1 − exp(−excess): a uniform number reaches it with probability exp(−excess)."""

    excess: Fraction

    def values(self) -> Iterator[Any]:
        yield -(-ball(self.excess)).expm1()


# -------------------------------------------------------------------- from words to outcomes


class Uniform:
    """A uniform number in [0, 1) whose first binary digits are known; more are drawn when they matter."""

    def __init__(self, digits: int, word_bits: int, source: Source, known: int | None = None) -> None:
        self._digits, self._known = digits, word_bits if known is None else known
        self._word_bits, self._source = word_bits, source

    def reaches(self, thresholds: Thresholds, index: int) -> bool:
        """Return whether U ≥ c_index."""
        while True:
            low, high = thresholds.enclosed(index, self._known)
            if high <= self._digits:
                return True
            if low > self._digits:
                return False
            self._digits = (self._digits << self._word_bits) | int(self._source.words(1)[0])
            self._known += self._word_bits

    def outcome(self, thresholds: Thresholds, reached: int) -> int:
        """Return how many thresholds U reaches, when it is known to reach the first `reached`."""
        step = 1
        while self.reaches(thresholds, reached + step):
            reached, step = reached + step, 2 * step
        missed = reached + step
        while missed - reached > 1:
            middle = (reached + missed) // 2
            if self.reaches(thresholds, middle):
                reached = middle
            else:
                missed = middle
        return reached


@dataclass(frozen=True, eq=False)
class Table:
    """Thresholds cut to one word each, and a guide from a word's leading bits to the place to look for it.

    cells[i] = t where t ≤ c_{i+1} · 2^word_bits ≤ t + 1. The last entry, all ones, stands for all later thresholds.
    """

    thresholds: Thresholds
    limit: int  # an outcome of this or more is an error
    word_bits: int = WORD_BITS
    most_leading_bits: int = MOST_LEADING_BITS
    cells: Words = field(init=False)
    guide: NDArray[np.int32] = field(init=False)  # how many cells lie before each value of the leading bits
    leading_bits: int = field(init=False)

    def __post_init__(self) -> None:
        last = (1 << self.word_bits) - 1
        cells = np.array([*self.thresholds.cells(self.word_bits), last], np.uint64)
        leading_bits = min(self.most_leading_bits, self.word_bits, len(cells).bit_length() + 3)
        starts = np.arange(1 << leading_bits, dtype=np.uint64) << np.uint64(self.word_bits - leading_bits)
        guide = np.append(np.searchsorted(cells, starts), len(cells))
        object.__setattr__(self, "cells", cells)
        object.__setattr__(self, "guide", guide.astype(np.int32))
        object.__setattr__(self, "leading_bits", leading_bits)

    def draw(self, source: Source, count: int) -> Integers:
        """Return `count` independent outcomes."""
        return self.outcomes(source.words(count), source)[0]

    def outcomes(self, words: Words, source: Source) -> tuple[Integers, Integers]:
        """Return the outcome of each word (and of what follows it, where the word cannot tell), and which words were
        read.

        Of all other words only the leading bits were read. So, for all outcomes, the other bits of those
        words are uniform and independent.
        """
        outcomes, read = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
        shift = np.uint64(self.word_bits - self.leading_bits)
        read = read[: _look_up(words, self.cells, self.guide, shift, outcomes, read)]
        for place in read[outcomes[read] < 0]:
            uniform = Uniform(int(words[place]), self.word_bits, source)
            outcome = uniform.outcome(self.thresholds, reached=~int(outcomes[place]))
            if outcome >= self.limit:
                raise OverflowError("a draw of noise is 2^62 or more")
            outcomes[place] = outcome
        return outcomes, read


@kernel
def _look_up(
    words: Words, cells: Words, guide: NDArray[np.int32], shift: np.uint64, outcomes: Integers, read: Integers
) -> int:
    """outcomes[i] = n, the number of cells before words[i], or −1 − n if that word is a cell.

    The places of words that share their leading bits with a cell, and so are compared, go to `read`. How many are they?
    """
    compared = 0
    for i in range(words.size):
        word = words[i]
        leading = word >> shift
        low, high = guide[leading], guide[leading + np.uint64(1)]
        if low < high:
            read[compared] = i
            compared += 1
            while low < high:
                middle = (low + high) >> 1
                if cells[middle] < word:
                    low = middle + 1
                else:
                    high = middle
            if cells[low] == word:
                low = -1 - low
        outcomes[i] = low
    return compared
