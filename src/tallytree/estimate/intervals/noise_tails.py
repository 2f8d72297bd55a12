"""How far a sum of independent noise can be off: quantiles of linear combinations, without simulation.

Estimates by least squares are weighted sums of measurements, so their errors are weighted sums of independent noise.
Such a sum is less heavy in the tails than its largest term and heavier than a normal one, and where the noise is small
it lives on a grid. Both matter: 95 % of a Laplace variable lie within 2.12 standard deviations, of a sum of two within
2.06, of a normal one within 1.96; and of a sum of two discrete ones of scale 1 within 4, but only 92.7 % within 3.94.

So the largest term is taken as it is, on its grid, and of the rest only the variance is used: it is given the shape
that makes the quantile largest, a normal one or that of as few terms as there can be (none exceeds the largest). This
is a choice among extremes and not a theorem for every shape between them; the tests hold it against exact convolutions
and simulated noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tallytree.arrays import Floats
from tallytree.notebook import briefly
from tallytree.privacy.accounting import NoiseKind

CONTINUOUS_ABOVE = 32.0  # a standard deviation of more steps of the grid is taken as continuous
LEAST_DEVIATION = 1e-150  # of noise that is never seen
COARSE_BELOW = 2.0  # with a standard deviation of fewer steps, half a step is added for the grid
MOST_COPIES = 256  # more terms of equal weight than this are normal
STEPS_OF_PART = 256  # parts of the variance are rounded to multiples of 1/256, or to powers of √2 below 1/16
SHAPE_MARGIN = 1.005  # for shapes between the extremes
NORMAL = NormalDist()


@dataclass(frozen=True, eq=False)
class Tail:
    """P(S > x) for a sum S of some independent copies of a noise, in units of its standard deviation."""

    step: float  # of the grid, in standard deviations
    reaching: Floats  # P(S ≥ j steps), j = 0, 1, …
    continuous: bool

    __repr__ = briefly

    def beyond(self, places: Floats) -> Floats:
        """P(S > x) at every place; a place on the grid, to within rounding, counts as beyond (the safe side)."""
        steps = np.abs(places) / self.step
        if self.continuous:
            upper = np.interp(steps + 0.5, np.arange(len(self.reaching)), self.reaching, right=0.0)
            return np.where(places >= 0, upper, 1 - upper)
        # P(S > x) = P(S ≥ ⌊x⌋ + 1) for x ≥ 0, and 1 − P(S ≥ −⌊x⌋) for x < 0, by symmetry.
        last = len(self.reaching) - 1
        whole = np.floor(places / self.step + 1e-9).astype(np.int64)
        upper = self.reaching[np.clip(whole + 1, 0, last)]
        lower = 1 - self.reaching[np.clip(-whole, 0, last)]
        return np.where(whole >= 0, upper, lower)


@lru_cache(maxsize=1024)
def noise_tail(kind: NoiseKind, scale: Fraction, copies: int) -> Tail:
    """The tail of a sum of `copies` independent draws, by the Fourier transform of the noise on its grid."""
    transform, deviation, continuous = _transform(kind, scale)
    probabilities = np.fft.irfft(transform**copies)
    half = len(probabilities) // 2
    reaching = np.cumsum(np.maximum(probabilities[half - 1 :: -1], 0.0))[::-1]
    return Tail(1 / (deviation * math.sqrt(copies)), np.append(reaching, 0.0), continuous)


@lru_cache(maxsize=16)
def _transform(kind: NoiseKind, scale: Fraction) -> tuple[Floats, float, bool]:
    """The noise's characteristic function on a circle that sums of up to MOST_COPIES fit on; its deviation in steps.

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
    """t with P(Z > t) ≤ `chance`, in standard deviations of Z, a weighted sum of independent noise.

    Z consists of `copies` terms of equal weight, each noise of this kind and scale, which make up the given part of its
    variance, and of others, none of which is larger. Z is symmetric, so P(|Z| > t) ≤ 2 · `chance`.

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
    leading, rest = noise_tail(kind, scale, copies), 1 - part
    if rest == 0:
        return _solved(leading, 1.0, np.zeros(1), np.ones(1), chance)
    places: Floats = np.linspace(-7, 7, 281)
    weights: Floats = np.exp(-(places**2) / 2)
    found = _solved(leading, part, places * math.sqrt(rest), weights / weights.sum(), chance)
    others = copies * max(1, math.floor(rest / part + 1e-9))
    if others <= MOST_COPIES:
        tail = noise_tail(kind, scale, others)
        weights = -np.diff(tail.reaching)
        kept = max(1, int(np.count_nonzero(tail.reaching > 1e-14)))
        places = np.arange(kept, dtype=np.float64) * (tail.step * math.sqrt(rest))
        both = np.concatenate([-places[:0:-1], places])
        chances = np.concatenate([weights[kept - 1 : 0 : -1], weights[:kept]])
        found = max(found, _solved(leading, part, both, chances / chances.sum(), chance))
    # Of noise about as small as its grid, the rest's unknown grid matters as much as its shape: half a step for it.
    small = leading.step * math.sqrt(copies) > 1 / COARSE_BELOW
    return SHAPE_MARGIN * found + (leading.step * math.sqrt(part) / 2 if small else 0.0)


def _solved(tail: Tail, part: float, places: Floats, weights: Floats, chance: float) -> float:
    """The least t, to 1e-4, with Σ weight · P(√part · S > t − place) ≤ chance."""
    low, high = 0.0, 64.0
    while high - low > 1e-4 * max(1.0, low):
        middle = (low + high) / 2
        if float(weights @ tail.beyond((middle - places) / math.sqrt(part))) <= chance:
            high = middle
        else:
            low = middle
    return high


def _neighbours(part: float) -> set[float]:
    """The values below and above among a few hundred, so that like regions share their quantiles."""
    if part >= 1 / 16:
        steps = min(part, 1.0) * STEPS_OF_PART
        return {
            max(math.floor(steps + 1e-9), 1) / STEPS_OF_PART,
            min(math.ceil(steps - 1e-9), STEPS_OF_PART) / STEPS_OF_PART,
        }
    steps = 2 * math.log2(part)
    return {2.0 ** (math.floor(steps) / 2), 2.0 ** (math.ceil(steps) / 2)}
