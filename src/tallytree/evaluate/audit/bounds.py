"""From the scores of a distinguisher on two neighbouring data sets to a lower confidence bound on ε.

If a mechanism is (ε, δ)-differentially private, each set S of outputs has P(S) ≤ e^ε Q(S) + δ for neighbours with
output distributions P and Q. So ε ≥ log((P(S) − δ) / Q(S)), and a set that a distinguisher picks out gives a bound:
P(S) is bounded from below and Q(S) from above by the exact binomial bounds of Clopper and Pearson. S is "the score is
at least t" or "at most t"; which, and t, is chosen on one half of the scores and the bound is computed on the other
half, so that the choice costs no confidence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, log1p

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError

CONFIDENCE = 0.999
THRESHOLDS = 400  # at most so many are tried
STEPS = 60  # of a bisection


@dataclass(frozen=True)
class Bound:
    """`epsilon` is at most the real ε, but for a chance of 1 − confidence; and what it was counted from."""

    epsilon: float
    likely: int  # scores in S where S is likely
    unlikely: int  # scores in S on the other data set
    runs: int  # on each of the two, in the half that was counted


def lower_bound(here: Floats, there: Floats, *, delta: float = 0.0, confidence: float = CONFIDENCE) -> Bound:
    """A bound on ε from independent scores on one data set and on its neighbour; scores may be infinite."""
    if min(len(here), len(there)) < 4 or not 0 < confidence < 1:
        raise SpecError("an audit needs at least 4 runs on each data set, and a confidence between 0 and 1")
    scores = np.asarray(here, float), np.asarray(there, float)
    place, sign, threshold = _chosen([some[::2] for some in scores], delta, confidence)
    likely, unlikely = (sign * scores[which][1::2] >= sign * threshold for which in (1 - place, place))
    # Both rates are bounded with half of the error each, so that both hold together with the confidence asked for.
    each = 1 - (1 - confidence) / 2
    low = rate_at_least(int(likely.sum()), len(likely), each) - delta
    high = rate_at_most(int(unlikely.sum()), len(unlikely), each)
    epsilon = log(low / high) if low > 0 else 0.0
    return Bound(max(0.0, epsilon), int(likely.sum()), int(unlikely.sum()), min(len(likely), len(unlikely)))


def rate_at_most(hits: int, runs: int, confidence: float) -> float:
    """The upper end for the rate behind `hits` of `runs`: a larger one would give as few with less than 1 − confidence.

    >>> round(rate_at_most(0, 1000, 0.999), 6)
    0.006884
    """
    if hits >= runs:
        return 1.0
    below = _log_binomials(runs)[: hits + 1], np.arange(hits + 1)
    return _bisected(lambda rate: _mass(*below, runs, rate) > 1 - confidence)


def rate_at_least(hits: int, runs: int, confidence: float) -> float:
    """The lower end, by symmetry: misses are at most so many."""
    return 1 - rate_at_most(runs - hits, runs, confidence)


def _bisected(is_low: Callable[[float], bool]) -> float:
    """The upper end of an interval that holds the place where `is_low` ends."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return high


def _log_binomials(runs: int) -> Floats:
    """log of "runs choose k" for k from 0."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, runs + 1)))])
    found: Floats = logs[-1] - logs - logs[::-1]
    return found


def _mass(binomials: Floats, hits: Integers, runs: int, rate: float) -> float:
    """The probability of any of these numbers of hits."""
    if rate <= 0 or rate >= 1:
        return float(rate <= 0 and hits[0] == 0)
    return float(np.exp(binomials + hits * log(rate) + (runs - hits) * log1p(-rate)).sum())


def _chosen(halves: list[Floats], delta: float, confidence: float) -> tuple[int, int, float]:
    """On which data set S is unlikely, the sign of the comparison, and the threshold, by approximate bounds."""
    together = np.concatenate(halves)
    ranks = np.unique(np.linspace(0, len(together) - 1, THRESHOLDS).astype(int))
    thresholds = np.unique(np.sort(together)[ranks])
    deviations = 1.5 + abs(log(1 - confidence)) ** 0.5 / 1.5  # rough: it only guides the choice
    best = (-inf, 0, 1, float(thresholds[0]))
    for place, sign in ((0, 1), (1, 1), (0, -1), (1, -1)):
        unlikely, likely = halves[place], halves[1 - place]
        low = _rough(_hits(likely, sign, thresholds), len(likely), -deviations) - delta
        high = _rough(_hits(unlikely, sign, thresholds), len(unlikely), deviations)
        values = np.log(np.maximum(low, 1e-300) / high)
        at = int(np.argmax(values))
        best = max(best, (float(values[at]), place, sign, float(thresholds[at])))
    return best[1:]


def _hits(scores: Floats, sign: int, thresholds: Floats) -> Integers:
    """For each threshold, how many scores are on its side."""
    rising = np.sort(scores)
    if sign > 0:
        return len(rising) - np.searchsorted(rising, thresholds, side="left")
    return np.searchsorted(rising, thresholds, side="right")


def _rough(hits: Integers, runs: int, deviations: float) -> Floats:
    """Wilson's end of the interval for a rate, upper or lower by the sign of `deviations`."""
    square = deviations**2
    middle = hits + square / 2
    reach = deviations * np.sqrt(hits * (1 - hits / runs) + square / 4)
    found: Floats = np.clip((middle + reach) / (runs + square), 1e-12, 1)
    return found
