"""Bound a sum of independent noise: quantiles of linear combinations, without simulation.

Estimates by least squares are weighted sums of measurements, so their errors are weighted sums of independent noise.
Such a sum has lighter tails than its largest term and heavier tails than a normal variable, and if the noise is small,
it lies on a grid. Both matter: 95 % of a Laplace variable lie within 2.12 standard deviations, of a sum of two within
2.06, of a normal one within 1.96; and of a sum of two discrete ones of scale 1 within 4, but only 92.7 % within 3.94.

So the largest term enters exactly, on its grid. Of the other terms only the variance is used, with the shape that makes
the quantile largest: normal, or that of as few terms as possible (no term exceeds the largest). This is a choice among
extremes and not a theorem for every shape between them; the tests compare it with exact convolutions and simulated
noise.

*The laws of the errors of linear estimates* (`Errors`) say how far each error can reach. The error of a linear estimate
is a weighted sum of independent noise. Its law is described by its exact variance and by its largest terms: `copies`
draws of one kind of noise, each with the variance `term` once it is weighted. That is what `quantile` needs for a
quantile of the sum. One cell, a sum over sizes, categories or regions, a number of entities and a difference of two are
all described in this way, so one function, `reach`, serves all of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import kernel
from tallytree.core.names import briefly
from tallytree.estimate.least_squares import TreeVariances
from tallytree.privacy.noise import NoiseKind

CONTINUOUS_ABOVE = 32.0  # noise with a standard deviation of more grid steps is treated as continuous
LEAST_DEVIATION = 1e-150  # the standard deviation of noise that is practically always 0
COARSE_BELOW = 2.0  # with a standard deviation of fewer steps, half a step is added for the grid
MOST_COPIES = 256  # the sum of more terms of equal weight counts as normal
STEPS_OF_PART = 256  # parts of the variance are rounded to multiples of 1/256, or to powers of √2 below 1/16
LEAST_EVEN_PART, LEAST_PART = 1 / 16, 1e-12
SHAPE_MARGIN = 1.005  # for shapes between the extremes
NORMAL = NormalDist()


class Tail(NamedTuple):
    """P(S > x) for a sum S of some independent copies of a noise, in units of its standard deviation."""

    step: float  # of the grid, in standard deviations
    reaching: Floats  # P(S ≥ j steps), j = 0, 1, …
    continuous: bool


@lru_cache(maxsize=1024)
def noise_tail(kind: NoiseKind, scale: Fraction, copies: int) -> Tail:
    """Return the tail of a sum of `copies` independent draws, by the Fourier transform of the noise on its grid."""
    transform, deviation, continuous = _transform(kind, scale)
    probabilities = np.fft.irfft(transform**copies)
    half = len(probabilities) // 2
    reaching = np.cumsum(np.maximum(probabilities[half - 1 :: -1], 0.0))[::-1]
    return Tail(1 / (deviation * math.sqrt(copies)), np.append(reaching, 0.0), continuous)


@lru_cache(maxsize=16)
def _transform(kind: NoiseKind, scale: Fraction) -> tuple[Floats, float, bool]:
    """Return the noise's characteristic function on a circle that fits sums of up to MOST_COPIES; its deviation in
    steps.

    Noise of a large scale has the shape of noise of a moderate one, to within 1 / deviation².
    """
    most = Fraction(CONTINUOUS_ABOVE) / (2 if kind == "discrete_laplace" else 1)
    limit = most if kind == "discrete_laplace" else most**2
    continuous = scale > limit
    size = float(limit if continuous else scale)
    reach = 40 * size if kind == "discrete_laplace" else 10 * math.sqrt(size)
    places = np.arange(math.ceil(reach) + 2, dtype=np.float64)
    exponent = places / size if kind == "discrete_laplace" else places**2 / (2 * size)
    weights = np.exp(-exponent)
    total = 2 * weights.sum() - 1
    deviation = max(LEAST_DEVIATION, math.sqrt(2 * float(np.sum(places**2 * weights)) / total))
    widest = 12 * deviation * math.sqrt(MOST_COPIES) + 2 * len(places)
    length = 1 << math.ceil(math.log2(2 * widest))
    circle = np.zeros(length)
    circle[: len(places)] = weights / total
    circle[-1 : -len(places) : -1] = weights[1:] / total
    return np.fft.rfft(circle).real, deviation, continuous


def quantile(kind: NoiseKind, scale: Fraction, copies: int, part: float, chance: float) -> float:
    """Return t with P(Z > t) ≤ `chance`, in standard deviations of Z, a weighted sum of independent noise.

    Z consists of `copies` terms of equal weight, each noise of this kind and scale, which make up the given part of its
    variance, and of other terms that are not larger. Z is symmetric, so P(|Z| > t) ≤ 2 · `chance`.

    >>> round(quantile("discrete_gaussian", Fraction(10**6), 1, 1.0, 0.025), 2)
    1.96
    >>> round(quantile("discrete_laplace", Fraction(10**6), 2, 1.0, 0.025), 2)
    2.06
    """
    if copies > MOST_COPIES or part <= 0:
        return NORMAL.inv_cdf(1 - chance)
    # Between two parts of the grid the noise's own grid moves little and nearly straight: the worse end covers both.
    return max(_quantile(kind, scale, copies, near, chance) for near in _neighbours(part))


@lru_cache(maxsize=65536)
def _quantile(kind: NoiseKind, scale: Fraction, copies: int, part: float, chance: float) -> float:
    leading, shapes, margin, half_step = _shapes(kind, scale, copies, part)
    found = -math.inf
    for places, weights in shapes:
        found = float(_least_place(leading, part, places, weights, chance, found))
    return margin * found + half_step


def chances_beyond(kind: NoiseKind, scale: Fraction, copies: int, part: float, places: Floats) -> Floats:
    """Return the chances with which `quantile` is at most these places: its inverse, with the same shapes and margins.

    >>> round(float(chances_beyond("discrete_gaussian", Fraction(10**6), 1, 1.0, np.array([1.96]))[0]), 3)
    0.025
    """
    if copies > MOST_COPIES or part <= 0:
        return np.array([math.erfc(place / math.sqrt(2)) / 2 for place in places.tolist()])
    found = np.zeros(len(places))
    for near in _neighbours(part):
        leading, shapes, margin, half_step = _shapes(kind, scale, copies, near)
        for others, weights in shapes:
            found = np.maximum(found, _chances(leading, near, others, weights, (places - half_step) / margin))
        found[places < half_step] = 1.0  # no quantile is that near
    return np.minimum(found * (1 + 1e-9), 1.0)  # more than rounding errors, which decide on a grid


def _shapes(
    kind: NoiseKind, scale: Fraction, copies: int, part: float
) -> tuple[Tail, list[tuple[Floats, Floats]], float, float]:
    """Return the leading terms, the extreme shapes of the others (places and chances), the margin and the half step."""
    leading, rest = noise_tail(kind, scale, copies), 1 - part
    if rest == 0:
        return leading, [(np.zeros(1), np.ones(1))], 1.0, 0.0
    shapes, others = [], copies * max(1, math.floor(rest / part + 1e-9))
    if others <= MOST_COPIES:
        places, step, weights = _spread_out(kind, scale, others)
        shapes.append((places * (step * math.sqrt(rest)), weights))
    places, weights = _normal()
    shapes.append((places * math.sqrt(rest), weights))
    # If noise is about as small as its grid, the unknown grid of the other terms matters too: add half a step.
    small = leading.step * math.sqrt(copies) > 1 / COARSE_BELOW
    return leading, shapes, SHAPE_MARGIN, leading.step * math.sqrt(part) / 2 if small else 0.0


@lru_cache(maxsize=1)
def _normal() -> tuple[Floats, Floats]:
    """Return places and chances of a normal variable."""
    places: Floats = np.linspace(-7, 7, 281)
    weights: Floats = np.exp(-(places**2) / 2)
    return places, weights / weights.sum()


@lru_cache(maxsize=256)
def _spread_out(kind: NoiseKind, scale: Fraction, copies: int) -> tuple[Floats, float, Floats]:
    """Return places of a sum of noise in grid steps, the step in its standard deviations, and the places' chances."""
    tail = noise_tail(kind, scale, copies)
    weights = -np.diff(tail.reaching)
    length = max(1, int(np.count_nonzero(tail.reaching > 1e-14)))
    places = np.arange(length, dtype=np.float64)
    chances = np.concatenate([weights[length - 1 : 0 : -1], weights[:length]])
    return np.concatenate([-places[:0:-1], places]), tail.step, chances / chances.sum()


@kernel
def _least_place(tail: Tail, part: float, places: Floats, weights: Floats, chance: float, known: float) -> float:
    """Return the least t, to 1e-4, with Σ weight · P(√part · S > t − place) ≤ chance; or `known`, if that is larger.

    The search bisects and tries `known` first: the sum falls as t grows, so if `known` satisfies the bound, the search
    ends.
    """
    root = np.sqrt(part)
    low, high, middle, first = 0.0, 64.0, known, True
    while high - low > 1e-4 * max(1.0, low):
        total, index = 0.0, len(places)
        while index > 0 and total <= chance:  # the largest terms, of the highest places, first
            index -= 1
            total += weights[index] * _beyond(tail, (middle - places[index]) / root)
        if first and total <= chance:
            return known
        if total <= chance:
            high = middle
        elif not first:
            low = middle
        middle, first = (low + high) / 2, False
    return high


@kernel
def _chances(tail: Tail, part: float, places: Floats, weights: Floats, at: Floats) -> Floats:
    """Return Σ weight · P(√part · S > t − place) for each t."""
    root, found = np.sqrt(part), np.zeros(len(at))
    for number in range(len(at)):
        for index in range(len(places)):
            found[number] += weights[index] * _beyond(tail, (at[number] - places[index]) / root)
    return found


@kernel
def _beyond(tail: Tail, place: float) -> float:
    """Return P(S > x) at a place; a place on the grid, up to rounding, counts as beyond (the safe side)."""
    step, reaching, continuous = tail
    last = len(reaching) - 1
    if continuous:
        steps = abs(place) / step + 0.5
        below = int(min(np.floor(steps), float(last)))
        upper = 0.0
        if below < last:
            upper = (reaching[below + 1] - reaching[below]) * (steps - below) + reaching[below]
        return upper if place >= 0.0 else 1.0 - upper
    # P(S > x) = P(S ≥ ⌊x⌋ + 1) for x ≥ 0, and 1 − P(S ≥ −⌊x⌋) for x < 0, by symmetry.
    whole = np.floor(place / step + 1e-9)
    reached: float = reaching[int(min(whole + 1.0 if whole >= 0.0 else -whole, float(last)))]
    return reached if whole >= 0.0 else 1.0 - reached


def _neighbours(part: float) -> set[float]:
    """Return the values below and above among a few hundred, so that similar regions share their quantiles."""
    if part >= LEAST_EVEN_PART:
        steps = min(part, 1.0) * STEPS_OF_PART
        return {
            max(math.floor(steps + 1e-9), 1) / STEPS_OF_PART,
            min(math.ceil(steps - 1e-9), STEPS_OF_PART) / STEPS_OF_PART,
        }
    steps = 2 * math.log2(part)
    return {2.0 ** (math.floor(steps) / 2), 2.0 ** (math.ceil(steps) / 2)}


# -------------------------------------------------------------------- error law


ALIKE = 1 - 1e-9  # terms whose variances have at least this ratio count as equal
STEPS_OF_DISTANCE, MOST_DEVIATIONS = 256, 64  # distances are rounded to these parts of a standard deviation
ROUNDING = 2e-4  # more than the search for a quantile is off
LEAST_P_VALUE = 1e-9  # stands for any smaller one, which rounding errors would spoil
LOWEST_STEP = 81  # below every half-power of two that a part of the variance is rounded to


class Noise(NamedTuple):
    """The largest terms of one measured number: draws of one noise, and their part of the number's variance."""

    kind: NoiseKind
    scale: Fraction
    copies: int = 1
    part: float = 1.0


@dataclass(frozen=True, eq=False)
class Errors:
    """The laws of several errors; all arrays have one entry for each."""

    noise: tuple[Noise, ...]
    lead: Integers  # which noise the largest terms have
    copies: Integers  # how many largest terms there are, all of the same weight
    term: Floats  # the variance of one of them
    variance: Floats

    __repr__ = briefly

    @classmethod
    def none(cls, number: int) -> Errors:
        """Return the errors of numbers that are known exactly."""
        none = np.zeros(number)
        return cls(
            (Noise("discrete_laplace", Fraction(1)),), none.astype(np.int64), np.ones(number, np.int64), none, none
        )

    @classmethod
    def of_regions(cls, law: TreeVariances, noise: dict[int, Noise]) -> Errors:
        """Return the errors of least squares for one column, for all regions; `noise` holds that of every measured
        level.
        """
        levels, parts = law.leading
        measured = sorted(noise)
        lead = np.searchsorted(measured, levels)
        copies, part = (np.array([noise[level][field] for level in measured])[lead] for field in (2, 3))
        return cls(
            tuple(noise[level] for level in measured), lead, copies, parts * part * law.variance / copies, law.variance
        )

    def over_columns(self, weights: Floats | list[float]) -> Errors:
        """Return the errors of Σ weight · column over columns with independent errors of these laws."""
        squares = np.square(np.asarray(weights, dtype=np.float64))
        largest = squares.max()
        alike = int(np.count_nonzero(squares == largest))
        return replace(
            self, copies=self.copies * alike, term=self.term * largest, variance=self.variance * float(squares.sum())
        )

    def add_up(self, rows: Integers, starts: Integers) -> Errors:
        """Return the errors of sums of independent errors: of those of `rows` from each start to the next."""
        lead, copies, term = self.lead[rows], self.copies[rows], self.term[rows]
        times = np.diff(starts, append=len(rows))
        largest = np.maximum.reduceat(term, starts)
        alike = term >= ALIKE * np.repeat(largest, times)
        leading = np.maximum.reduceat(np.where(alike, lead, -1), starts)
        alike &= lead == np.repeat(leading, times)
        counted = np.add.reduceat(np.where(alike, copies, 0), starts)
        return Errors(self.noise, leading, counted, largest, np.add.reduceat(self.variance[rows], starts))

    def scaled(self, factor: float | Floats) -> Errors:
        """Return the errors of the estimates times a factor."""
        square = np.square(factor)
        return replace(self, term=self.term * square, variance=self.variance * square)

    def plus(self, other: Errors) -> Errors:
        """Return the errors of sums of two independent estimates each, as of two releases; the order is irrelevant."""
        noise = tuple(sorted({one._replace(copies=1, part=1.0) for one in (*self.noise, *other.noise)}))
        each = [
            np.array([noise.index(one._replace(copies=1, part=1.0)) for one in errors.noise], np.int64)[errors.lead]
            for errors in (self, other)
        ]
        joined = (np.concatenate([getattr(self, of), getattr(other, of)]) for of in ("copies", "term", "variance"))
        both, number = Errors(noise, np.concatenate(each), *joined), len(self.variance)
        return both.add_up(np.arange(2 * number).reshape(2, -1).T.ravel(), 2 * np.arange(number))

    def reach(self, chance: float) -> Floats:
        """Return how far each estimate can be off: beyond it to either side only with a probability of at most
        `chance`.

        Errors with the same noise, number of terms and rounded part of the variance share their quantile.
        """
        laws, law_of = self._laws()
        found = np.array([quantile(*law, chance) for law in laws])
        half: Floats = found[law_of] * np.sqrt(self.variance)
        return half

    def p_values(self, estimates: Floats) -> Floats:
        """Return for each estimate the least `c` for which `reach(c / 2)` is below its distance from 0; 1 if exact.

        Distances are rounded down by less than 0.02 standard deviations, so that many share their value. For each
        distance, the interval with the error probability of its p-value excludes 0.
        """
        distances = np.abs(estimates) / np.sqrt(np.where(self.variance > 0, self.variance, math.inf))
        steps = np.floor((distances - ROUNDING * np.maximum(distances, 1)) * STEPS_OF_DISTANCE)
        most = MOST_DEVIATIONS * STEPS_OF_DISTANCE
        laws, law_of = self._laws()
        each, place = np.unique(law_of * (most + 2) + np.minimum(steps, most).astype(np.int64) + 1, return_inverse=True)
        of, step = np.divmod(each, most + 2)
        found = np.ones(len(each))
        for number, law in enumerate(laws):
            some = of == number
            found[some] = 2 * chances_beyond(*law, (step[some] - 1) / STEPS_OF_DISTANCE)
        chances: Floats = np.clip(found, LEAST_P_VALUE, 1.0)[place]
        return chances

    def _laws(self) -> tuple[list[tuple[NoiseKind, Fraction, int, float]], Integers]:
        """Return the different laws of the errors, in standard deviations, and which of them each error has."""
        whole = np.where(self.variance > 0, self.variance, 1.0)
        parts = np.round(np.minimum(self.copies * self.term / whole, 1.0), 9)
        copies = np.minimum(self.copies, MOST_COPIES + 1)  # more are normal
        steps, halves = parts * STEPS_OF_PART, 2 * np.log2(np.maximum(parts, LEAST_PART))
        fine = parts < LEAST_EVEN_PART
        below = np.where(fine, np.floor(halves), np.floor(steps + 1e-9))
        above = np.where(fine, np.ceil(halves), np.ceil(steps - 1e-9))
        cells = (2 * (below + LOWEST_STEP) + (above > below)).astype(np.int64)
        keys = (self.lead * (MOST_COPIES + 2) + copies) * (2 * (STEPS_OF_PART + LOWEST_STEP + 1)) + cells
        first = np.full(int(keys.max(initial=0)) + 1, -1)
        first[keys] = np.arange(len(keys))  # any error of a key will do
        known = np.flatnonzero(first >= 0)
        laws = [
            (self.noise[self.lead[at]].kind, self.noise[self.lead[at]].scale, int(copies[at]), float(parts[at]))
            for at in first[known].tolist()
        ]
        law_of = np.zeros(len(first), np.int64)
        law_of[known] = np.arange(len(known))
        return laws, law_of[keys]
