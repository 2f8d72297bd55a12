"""Quantiles of sums of noise as they are defined, one place after another and halving to the end."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.estimate.intervals.tails import COARSE_BELOW, MOST_COPIES, SHAPE_MARGIN, Tail, noise_tail
from tallytree.privacy.noise import NoiseKind


def beyond(tail: Tail, places: Floats) -> Floats:
    """P(S > x) at every place; a place on the grid, to within rounding, counts as beyond."""
    if tail.continuous:
        steps = np.abs(places) / tail.step + 0.5
        upper = np.interp(steps, np.arange(len(tail.reaching)), tail.reaching, right=0.0)
        return np.where(places >= 0, upper, 1 - upper)
    last = len(tail.reaching) - 1
    whole = np.floor(places / tail.step + 1e-9).astype(np.int64)
    upper = tail.reaching[np.clip(whole + 1, 0, last)]
    lower = 1 - tail.reaching[np.clip(-whole, 0, last)]
    return np.where(whole >= 0, upper, lower)


def quantile_at(kind: NoiseKind, scale: Fraction, copies: int, part: float, chance: float) -> float:
    """The quantile at a part of the grid: the larger of those with a normal rest and with one of few terms."""
    leading, rest = noise_tail(kind, scale, copies), 1 - part
    if rest == 0:
        return _halved(leading, 1.0, np.zeros(1), np.ones(1), chance)
    normal: Floats = np.linspace(-7, 7, 281)
    density: Floats = np.exp(-(normal**2) / 2)
    found = _halved(leading, part, normal * math.sqrt(rest), density / density.sum(), chance)
    others = copies * max(1, math.floor(rest / part + 1e-9))
    if others <= MOST_COPIES:
        tail = noise_tail(kind, scale, others)
        weights = -np.diff(tail.reaching)
        kept = max(1, int(np.count_nonzero(tail.reaching > 1e-14)))
        places = np.arange(kept, dtype=np.float64) * (tail.step * math.sqrt(rest))
        both = np.concatenate([-places[:0:-1], places])
        chances = np.concatenate([weights[kept - 1 : 0 : -1], weights[:kept]])
        found = max(found, _halved(leading, part, both, chances / chances.sum(), chance))
    small = leading.step * math.sqrt(copies) > 1 / COARSE_BELOW
    return SHAPE_MARGIN * found + (leading.step * math.sqrt(part) / 2 if small else 0.0)


def _halved(tail: Tail, part: float, places: Floats, weights: Floats, chance: float) -> float:
    low, high = 0.0, 64.0
    while high - low > 1e-4 * max(1.0, low):
        middle = (low + high) / 2
        if float(weights @ beyond(tail, (middle - places) / math.sqrt(part))) <= chance:
            high = middle
        else:
            low = middle
    return high
