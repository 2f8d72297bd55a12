"""The exact cumulative probabilities c₁ < c₂ < … that noise is inverted against, enclosed rigorously by Arb.

An outcome 0, 1, 2, … is the number of thresholds at or below a uniform U in [0, 1), so c_i = P(outcome < i).
Outcomes are folded integers: 0, 1, 2, 3, 4, … stand for 0, −1, 1, −2, 2, …: 2k means k and 2k + 1 means −1 − k.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import count, islice
from threading import Lock
from typing import Any

from flint import acb, arb, ctx, fmpq

GUARD_BITS = 64
_PRECISION = Lock()  # Arb's working precision is one setting of the whole process


@contextmanager
def working_precision(bits: int) -> Iterator[None]:
    """Arb works with `bits` binary digits; one thread at a time."""
    with _PRECISION, ctx.workprec(bits):
        yield


def ball(number: Fraction) -> Any:
    """The fraction as an Arb ball of the working precision."""
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
