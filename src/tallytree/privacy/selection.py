"""The exponential mechanism, drawn exactly: one of many candidates, the likelier the higher its score.

P(i) ∝ exp(ε u_i / 2), where u_i is candidate i's score divided by how far one neighbour can move it. The choice is made
by inversion as the noise is: a uniform number is compared with cumulative weights that are enclosed rigorously, in
floating point if that decides, otherwise with more random digits and by Arb. No rounding decides anything.

Cost: ε²/8 in ρ. Let u and u' belong to neighbouring data, P and Q be the two distributions, and L = log(P/Q), which is
ε (u_i − u'_i) / 2 plus a constant. Since |u_i − u'_i| ≤ 1 for every i, L lies in an interval of length ε. Let
f(t) = log E_Q[exp(t L)], so that f(0) = f(1) = 0 and the Rényi divergence D_α(P‖Q) is f(α)/(α − 1). f'' is the variance
of L under a tilted Q, hence at most ε²/4, the most that a variable in an interval of length ε can have. So
f(t) − t(t − 1) ε²/8 is concave and 0 at 0 and 1, hence at most 0 for t = α > 1: D_α ≤ α ε²/8, which is ε²/8-zCDP. (The
result is Cesar and Rogers', 2021.) Other ways to a noisy maximum, with Laplace noise for one, have no such bound and
would cost ε²/2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import kernel
from tallytree.privacy.noise.inversion import (
    GUARD_BITS,
    WORD_BITS,
    Thresholds,
    Uniform,
    ball,
    enclosure,
    working_precision,
)
from tallytree.privacy.noise.keystream import Source

LARGEST_SCORE = 1 << 52  # of a score and of a penalty, so that their difference is exact in floating point
LOWEST = -690.0  # weights below exp of this are left out in floating point, and accounted for
LEFT_OUT = Fraction(1, 10**299)  # more than exp(LOWEST + 2^-20), the most that one of them can weigh
EXPONENTIAL_ERROR = Fraction(1, 1 << 44)

# ln 2 = LN2_HIGH + LN2_LOW within 2^-85; the first has 32 significant bits, so k times it is exact for k below 2^20.
LN2_HIGH = float.fromhex("0x1.62e42feep-1")
LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
INVERSE_FACTORIALS = np.array([1 / math.factorial(n) for n in range(15)])


def cost_of_selection(epsilon: Fraction) -> Fraction:
    """Return the cost of one selection, in ρ."""
    return epsilon**2 / 8


@dataclass(frozen=True, eq=False, repr=False)
class Candidates:
    """Exponents rate[kind_i] · score_i, exact: candidates of one kind share sensitivity and weight. Private."""

    scores: Integers
    kinds: Integers
    rates: tuple[Fraction, ...]

    def exponent(self, place: int) -> Fraction:
        """Return the exponent of one candidate."""
        return self.rates[int(self.kinds[place])] * int(self.scores[place])


def candidates(
    scores: Integers,
    sensitivities: Integers | int,
    epsilon: Fraction,
    penalties: Integers | None = None,
    weights: Sequence[Fraction] | None = None,
) -> Candidates:
    """Return checked candidates, where candidate i with P ∝ exp(ε w_i (score_i − penalty_i) / (2 Δ_i)).

    Scores are integers from private data, and no message holds one. Δ_i is the most that candidate i's score can
    differ between neighbours. `penalties` (integers) and `weights` w_i (above 0, at most 1) are public, the same
    for all neighbours: so u_i = w_i (score_i − penalty_i) / Δ_i differs by at most w_i ≤ 1, which is all that the cost
    rests on. Candidates whose sensitivity is 0 are refused: they are public and need no selecting, and no finite weight
    is theirs.
    """
    scores = np.asarray(scores)
    if scores.ndim != 1 or len(scores) == 0 or scores.dtype != np.int64:
        raise SpecError("selection needs a list of at least one candidate, each with an integer score (int64)")
    if not isinstance(epsilon, Fraction) or not 0 < epsilon <= 1 << 20:
        raise SpecError("the epsilon of a selection must be a Fraction above 0 (and at most 2^20)")
    bounds = np.broadcast_to(np.asarray(sensitivities), scores.shape)
    if bounds.dtype.kind not in "ui" or np.any(bounds < 1):
        raise SpecError(
            "every candidate needs an integer sensitivity of at least 1; one with 0 cannot differ between neighbours, "
            "is public and needs no selecting"
        )
    if penalties is not None:
        penalties = np.asarray(penalties)
        if penalties.shape != scores.shape or penalties.dtype != np.int64:
            raise SpecError("penalties must be integers (int64), one for each candidate")
        if np.any(penalties > LARGEST_SCORE) or np.any(penalties < -LARGEST_SCORE):
            raise SpecError("a penalty is out of range: the largest size is 2^52")
    if np.any(scores > LARGEST_SCORE) or np.any(scores < -LARGEST_SCORE):
        raise SpecError("a score is out of range: the largest size is 2^52")
    scores = scores if penalties is None else scores - penalties
    known, kinds = np.unique(bounds, return_inverse=True)
    rates = [epsilon / (2 * int(bound)) for bound in known]
    if weights is not None:
        if len(weights) != len(scores) or any(not isinstance(w, Fraction) or not 0 < w <= 1 for w in weights):
            raise SpecError("weights must be Fractions above 0 and at most 1, one for each candidate")
        pairs = list(zip(kinds.tolist(), weights, strict=True))
        place_of = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        kinds = np.array([place_of[pair] for pair in pairs])
        rates = [rates[kind] * weight for kind, weight in place_of]
    return Candidates(scores, kinds.astype(np.int64), tuple(rates))


def choose(offered: Candidates, source: Source, word_bits: int = WORD_BITS) -> int:
    """Return how many cumulative weights, as shares of the total, a uniform number reaches: the chosen candidate's
    place.
    """
    word = int(source.words(1)[0])
    exponents = _exponents(offered)
    reference = 0 if exponents is None else int(np.argmax(exponents))
    if exponents is not None and (place := _surely(exponents, reference, word, word_bits)) is not None:
        return place
    return Uniform(word, word_bits, source).outcome(CumulativeWeights(offered, reference), reached=0)


# -------------------------------------------------------------------- in floating point


def _exponents(offered: Candidates) -> Floats | None:
    """Return the exponents, each within a factor 1 ± 2^−51 of the true one; None where rates leave the safe range.

    A rate is rounded once (a factor within 1 ± 2^−53, since it is a normal number), a score is exact, and so their
    product is rounded once more.
    """
    if any(not 2.0**-900 < rate < 2.0**900 for rate in offered.rates):
        return None
    products: Floats = np.array([float(rate) for rate in offered.rates])[offered.kinds] * offered.scores
    return products


def _surely(exponents: Floats, reference: int, word: int, word_bits: int) -> int | None:
    """Return the place that the word decides, if no rounding can have moved it; the last steps are exact.

    Let e_i be the true exponents, each computed within |e_i| 2^−51, and a = 2^−48 max |e_i|. Differences d_i from the
    reference's are then computed within a: two errors of 2^−51 max |e|, and the subtraction's own 2^−53 · 2 max |e|.
    A weight exp(d_i) is so computed within a factor exp(±a)(1 ± 2^−44), see `_weigh`, or left out if d_i < −690, when
    it is less than LEFT_OUT. Adding n non-negative numbers in turn keeps every partial sum within a factor
    (1 ± 2^−53)^n. As long as a and n 2^−53 are at most 2^−20, all of it together is within a factor 1 ± s with
    s = 2a + 2^−43 + n 2^−52; and what is within 1 ± s of the truth has the truth within 1 ± 2s of it.
    """
    number = len(exponents)
    largest = float(np.max(np.abs(exponents)))
    if not largest <= 2.0**27 or number > 1 << 32:
        return None
    sums = np.empty(number)
    _weigh(exponents, exponents[reference], INVERSE_FACTORIALS, sums)
    off = Fraction(largest) / (1 << 48)
    slack = 2 * (2 * off + 2 * EXPONENTIAL_ERROR + Fraction(number, 1 << 52))
    left_out = number * LEFT_OUT
    total = Fraction(float(sums[-1]))
    low_total, high_total = total * (1 - slack), total * (1 + slack) + left_out
    low, high = Fraction(word, 1 << word_bits), Fraction(word + 1, 1 << word_bits)
    place = int(np.searchsorted(sums, float(low) * sums[-1], side="right"))
    if place >= number:
        return None
    reached = Fraction(float(sums[place - 1])) if place else Fraction(0)
    missed = Fraction(float(sums[place]))
    surely_reached = place == 0 or (reached * (1 + slack) + left_out) <= low * low_total
    surely_missed = place == number - 1 or missed * (1 - slack) >= high * high_total
    return place if surely_reached and surely_missed else None


@kernel
def _weigh(exponents: Floats, reference: float, inverse_factorials: Floats, sums: Floats) -> None:
    """sums[i] = the sum of exp(e_j − reference) over j ≤ i, those below exp(−690) left out.

    exp(d) = 2^k exp(r) with k the whole number next to d / ln 2, so |r| < 0.35 and |k| < 1000. r is within 2^−51 of
    d − k ln 2: k LN2_HIGH is exact and so is the first difference (its terms are within a factor 2 of each other, or
    k = 0); k LN2_LOW is below 2^−22 and rounded by far less, the second difference by at most 2^−54. Fourteen powers
    of r leave less than 2 · 0.35^15 / 15! < 2^−60. Horner's rule takes 15 rounded numbers and rounds 28 times, always
    by at most 2^−53 of values below 2, and its result is above 0.7: less than 2^−45 in all. Together the factor is
    within 1 ± 2^−44, EXPONENTIAL_ERROR. Scaling by 2^k is exact, for the result is a normal number.
    """
    total = 0.0
    for i in range(len(exponents)):
        difference = exponents[i] - reference
        if difference >= LOWEST:
            k = np.floor(difference * 1.4426950408889634 + 0.5)
            r = (difference - k * LN2_HIGH) - k * LN2_LOW
            value = inverse_factorials[14]
            for power in range(13, -1, -1):
                value = value * r + inverse_factorials[power]
            total += math.ldexp(value, int(k))
        sums[i] = total


# -------------------------------------------------------------------- to any precision


class CumulativeWeights(Thresholds):
    """c_i = the share of the first i candidates in the total weight. Exponents are exact, taken off the reference's."""

    def __init__(self, offered: Candidates, reference: int) -> None:
        pairs = np.stack([offered.kinds, offered.scores])
        _, first, self._which = np.unique(pairs, axis=1, return_index=True, return_inverse=True)
        self._which = self._which.reshape(-1)
        top = offered.exponent(reference)
        self._exponents = [offered.exponent(int(place)) - top for place in first]
        self._weights: dict[int, tuple[list[Any], Any]] = {}

    def __repr__(self) -> str:
        return "CumulativeWeights(private)"

    def values(self) -> Iterator[Any]:
        """c₁, c₂, … as Arb balls of the working precision; the last, which is 1, is left out."""
        weights = [ball(exponent).exp() for exponent in self._exponents]
        total = self._sum(weights, len(self._which))
        running = arb(0)
        for which in self._which[:-1]:
            running += weights[which]
            yield running / total

    def enclosed(self, index: int, bits: int) -> tuple[int, int]:
        """Integers low ≤ c_index · 2^bits ≤ high; candidates of the same weight are added at once."""
        if index >= len(self._which):
            return 1 << bits, 1 << bits
        with working_precision(bits + GUARD_BITS):
            if bits not in self._weights:
                weights = [ball(exponent).exp() for exponent in self._exponents]
                self._weights = {bits: (weights, self._sum(weights, len(self._which)))}
            weights, total = self._weights[bits]
            return enclosure(self._sum(weights, index) / total, bits)

    def _sum(self, weights: list[Any], first: int) -> Any:
        """Return the weight of the first `first` candidates."""
        counts = np.bincount(self._which[:first], minlength=len(weights))
        return sum((weight * int(count) for weight, count in zip(weights, counts, strict=True) if count), arb(0))
