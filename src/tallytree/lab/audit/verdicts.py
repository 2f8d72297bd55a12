"""NOT PRIVATE: the rows of an audit, each with its verdict, and how they are saved.

Bounds on ε between two neighbouring data sets: lower confidence bounds from outputs, and the exact loss.

From outputs: if a mechanism is (ε, δ)-differentially private, each set S of outputs has P(S) ≤ e^ε Q(S) + δ for
neighbours with output distributions P and Q. So ε ≥ log((P(S) − δ) / Q(S)), and a set that a distinguisher picks out
gives a bound: P(S) is bounded from below and Q(S) from above by the exact binomial bounds of Clopper and Pearson. S is
"the score is at least t" or "at most t"; which, and t, is chosen on one half of the scores and the bound is computed on
the other half, so that the choice costs no confidence.

`lower_bound` takes scores of a distinguisher that knows the noise. `bound_of_events` assumes nothing about the noise: S
is "this number has this value", "these two numbers differ by this" or "these two numbers have these values". It shows
defects that a score for the correct noise cannot see: a number without noise, or noise that two numbers share.

Exactly: independent integer noise is added to each number. Discrete Laplace noise of scale b has P(v) ∝ exp(−|v|/b): if
the true numbers differ by d, the log ratio of an output's probabilities is at most |d|/b, and outputs beyond both
attain it. So the worst log ratio is exactly Σ |d|/b, a fraction. Discrete Gaussian noise of parameter σ² costs Σ
d²/(2σ²) in ρ; the log ratio is a linear function of Σ d z, whose distribution is a convolution; from that follows the
least ε at a δ.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from math import ceil, inf, log, log1p, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.privacy.budget import Budget, epsilon_of
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.noise.samplers import checked_variance
from tallytree.version import VERSION

WARNING = "NOT PRIVATE: an audit compares outputs with the truth, on made-up data. Do not publish it with a release."
ROUNDING = 1e-9  # allows for floating point in a bound that equals the claim
Verdict = Literal["consistent", "VIOLATION"]


@dataclass(frozen=True)
class Row:
    """One claim, and the bounds found on the real ε at the same δ. A bound that was not computed is None."""

    part: Literal["release", "synthesis", "planted"]
    name: str  # the mechanism, the kind of round or the planted defect
    unit: str
    setting: str  # totals, rows and options
    budget: str
    neighbours: str  # what differs
    delta: float
    claimed: float
    exact: float | None = None  # worst over all neighbours of the small data set
    measurements: float | None = None  # from the published noisy measurements, by their likelihood ratio
    counts: float | None = None  # from the final counts alone
    command: float | None = None  # from the published measurements of a folder that the command wrote
    runs: int = 0  # outputs of each of the two data sets, the choice of thresholds included
    power: float | None = None  # of a planted defect: in which part of all tries it is caught

    @property
    def bound(self) -> float:
        """Return the largest of the lower bounds on the real ε."""
        found = (self.exact, self.measurements, self.counts, self.command)
        return max((value for value in found if value is not None), default=0.0)

    @property
    def verdict(self) -> Verdict:
        """Return whether the bounds are consistent with the claim."""
        return "consistent" if self.bound <= self.claimed * (1 + ROUNDING) else "VIOLATION"

    @property
    def sampled(self) -> float:
        """Return the largest bound that was found from outputs."""
        return max((v for v in (self.measurements, self.counts, self.command) if v is not None), default=0.0)

    def plain(self) -> dict[str, Any]:
        """Return plain values, the verdict included."""
        return {**asdict(self), "bound": self.bound, "verdict": self.verdict}


@dataclass(frozen=True)
class BorderRow:
    """Pairs of neighbouring tables that were compared at the border, and the result."""

    name: str  # the mechanism, the rounds of synthesis or the planted defect
    unit: str
    setting: str
    budget: str
    pairs: int
    published: int  # pairs whose releases were compared too, byte by byte
    queries: int  # compared, over all pairs
    change: float  # the largest change of a query, as a part of its sensitivity
    loss: float  # the largest loss of all queries of a pair, as a part of the budget
    flagged: int  # pairs
    flags: tuple[str, ...] = ()
    part: Literal["border", "planted"] = "border"

    @property
    def verdict(self) -> Verdict:
        """Return whether nothing was flagged."""
        return "VIOLATION" if self.flags else "consistent"

    def plain(self) -> dict[str, Any]:
        """Return plain values, the verdict included."""
        return {**asdict(self), "flags": "; ".join(self.flags), "verdict": self.verdict}


@dataclass(frozen=True)
class Audit:
    """All rows of an audit. All bounds from outputs hold together with the confidence."""

    rows: tuple[Row, ...]
    confidence: float
    border: tuple[BorderRow, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether every claim is consistent, and every planted defect was caught from outputs."""
        return not self.failures

    @property
    def failures(self) -> list[Row | BorderRow]:
        """Return claims that are violated, and planted defects that were not shown."""
        every: list[Row | BorderRow] = [*self.rows, *self.border]
        return [row for row in every if _failed(row)]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "privacy": WARNING,
            "version": VERSION,
            "confidence": self.confidence,
            "ok": self.ok,
            "rows": [row.plain() for row in self.rows],
            "border": [row.plain() for row in self.border],
        }

    def save(self, folder: Path) -> list[Path]:
        """Write `audit.json` and, for spreadsheets, `audit.csv` (bounds) and `audit-border.csv`; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        contents = {
            "audit.json": json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n",
            "audit.csv": _table(self.rows),
            "audit-border.csv": _table(self.border),
        }
        for name, content in contents.items():
            (folder / name).write_text(content, encoding="utf-8")
        return [folder / name for name in contents]


def _table(rows: Sequence[Row | BorderRow]) -> str:
    """Return rows as CSV, numbers in four decimals."""
    text = io.StringIO()
    plain = [{"version": VERSION, **row.plain()} for row in rows]
    writer = csv.DictWriter(text, list(plain[0]) if plain else ["version"], lineterminator="\n")
    writer.writeheader()
    for row in plain:
        writer.writerow({key: f"{v:.4f}" if isinstance(v, float) and key != "delta" else v for key, v in row.items()})
    return text.getvalue()


def stated(budget: Budget) -> tuple[float, float]:
    """Return the ε that a budget states, and the δ at which it holds."""
    if budget.rho is None or budget.delta is None:
        return float(budget.amount), 0.0
    return float(budget.epsilon or epsilon_of(budget.rho, budget.delta)), float(budget.delta)


def _failed(row: Row | BorderRow) -> bool:
    if row.part != "planted":
        return row.verdict != "consistent"
    return row.power != 1 if isinstance(row, Row) else not row.flagged


# -------------------------------------------------------------------- bounds


# -------------------------------------------------------------------- bounds from outputs


CONFIDENCE = 0.999
THRESHOLDS = 400  # at most so many are tried
EVENT_RUNS = 2000  # outputs on each data set from which an event is chosen
APART = (
    1 << 24
)  # a factor by which two numbers are kept apart in one; of few runs it may mix some up, which costs power
MOST_NUMBERS = 24  # of an output, that events are about
STEPS = 60  # of a bisection


@dataclass(frozen=True)
class Bound:
    """`epsilon` is at most the real ε, except with probability 1 − confidence; and the counts behind it."""

    epsilon: float
    likely: int  # scores in S where S is likely
    unlikely: int  # scores in S on the other data set
    runs: int  # on each of the two, in the half that was counted


def lower_bound(here: Floats, there: Floats, *, delta: float = 0.0, confidence: float = CONFIDENCE) -> Bound:
    """Return a bound on ε from independent scores on one data set and on its neighbour; scores may be infinite."""
    if min(len(here), len(there)) < 4 or not 0 < confidence < 1:
        raise SpecError("an audit needs at least 4 runs on each data set, and a confidence between 0 and 1")
    scores = np.asarray(here, float), np.asarray(there, float)
    place, sign, threshold = _chosen([some[::2] for some in scores], delta, confidence)
    likely, unlikely = (sign * scores[which][1::2] >= sign * threshold for which in (1 - place, place))
    return _bound(likely, unlikely, delta, confidence)


def _bound(likely: NDArray[np.bool_], unlikely: NDArray[np.bool_], delta: float, confidence: float) -> Bound:
    # Both rates are bounded with half of the error each, so that both hold together with the requested confidence.
    each = 1 - (1 - confidence) / 2
    low = rate_at_least(int(likely.sum()), len(likely), each) - delta
    high = rate_at_most(int(unlikely.sum()), len(unlikely), each)
    epsilon = log(low / high) if low > 0 else 0.0
    return Bound(max(0.0, epsilon), int(likely.sum()), int(unlikely.sum()), min(len(likely), len(unlikely)))


def bound_of_events(here: Integers, there: Integers, *, delta: float = 0.0, confidence: float = CONFIDENCE) -> Bound:
    """Return a bound on ε from independent outputs `[runs, numbers]` on each data set, by the most revealing event."""
    firsts = [numbers[::2][:EVENT_RUNS] for numbers in (here, there)]
    deviations = _deviations(confidence)
    best: tuple[float, int, tuple[int, int, int], int] = (-inf, 0, (0, 0, 0), 0)
    for feature in _features(here.shape[1]):
        columns = [_feature(numbers, feature) for numbers in firsts]
        values, which = np.unique(np.concatenate(columns), return_inverse=True)
        split = len(columns[0])
        hits = [np.bincount(part, minlength=len(values)) for part in (which[:split], which[split:])]
        for place in (0, 1):
            low = _rough(hits[1 - place], len(columns[1 - place]), -deviations) - delta
            high = _rough(hits[place], len(columns[place]), deviations)
            gains = np.log(np.maximum(low, 1e-300) / high)
            at = int(np.argmax(gains))
            best = max(best, (float(gains[at]), place, feature, int(values[at])))
    _, place, feature, value = best
    seen = [_feature(numbers[1::2], feature) == value for numbers in (here, there)]
    return _bound(seen[1 - place], seen[place], delta, confidence)


def _features(numbers: int) -> Iterator[tuple[int, int, int]]:
    """Yield each number, each difference of two, and each pair of two: (i, j, k) stands for number i + k · number j."""
    for one in range(min(numbers, MOST_NUMBERS)):
        yield one, one, 0
        for other in range(one):
            yield one, other, -1
            yield one, other, APART


def _feature(numbers: Integers, feature: tuple[int, int, int]) -> Integers:
    one, other, factor = feature
    found: Integers = numbers[:, one] + factor * numbers[:, other]
    return found


def rate_at_most(hits: int, runs: int, confidence: float) -> float:
    """Return the upper end for a rate: larger rates give at most `hits` of `runs` with less than 1 − confidence.

    >>> round(rate_at_most(0, 1000, 0.999), 6)
    0.006884
    """
    if hits >= runs:
        return 1.0
    below = _log_binomials(runs)[: hits + 1], np.arange(hits + 1)
    return _bisected(lambda rate: _mass(*below, runs, rate) > 1 - confidence)


def rate_at_least(hits: int, runs: int, confidence: float) -> float:
    """Return the lower end, by symmetry: misses are at most so many."""
    return 1 - rate_at_most(runs - hits, runs, confidence)


def _bisected(is_low: Callable[[float], bool]) -> float:
    """Return the upper end of an interval that contains the place where `is_low` ends."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_low(middle) else (low, middle)
    return high


def _log_binomials(runs: int) -> Floats:
    """Return log of "runs choose k" for k from 0."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, runs + 1)))])
    found: Floats = logs[-1] - logs - logs[::-1]
    return found


def _mass(binomials: Floats, hits: Integers, runs: int, rate: float) -> float:
    """Return the probability of any of these numbers of hits."""
    if rate <= 0 or rate >= 1:
        return float(rate <= 0 and hits[0] == 0)
    return float(np.exp(binomials + hits * log(rate) + (runs - hits) * log1p(-rate)).sum())


def _chosen(halves: list[Floats], delta: float, confidence: float) -> tuple[int, int, float]:
    """Return the data set on which S is unlikely, the sign of the comparison, and an approximate threshold."""
    together = np.concatenate(halves)
    ranks = np.unique(np.linspace(0, len(together) - 1, THRESHOLDS).astype(int))
    thresholds = np.unique(np.sort(together)[ranks])
    deviations = _deviations(confidence)
    best = (-inf, 0, 1, float(thresholds[0]))
    for place, sign in ((0, 1), (1, 1), (0, -1), (1, -1)):
        unlikely, likely = halves[place], halves[1 - place]
        low = _rough(_hits(likely, sign, thresholds), len(likely), -deviations) - delta
        high = _rough(_hits(unlikely, sign, thresholds), len(unlikely), deviations)
        values = np.log(np.maximum(low, 1e-300) / high)
        at = int(np.argmax(values))
        best = max(best, (float(values[at]), place, sign, float(thresholds[at])))
    return best[1:]


def _deviations(confidence: float) -> float:
    """Return about how far a rate may be off; it is used only to choose an event."""
    return float(1.5 + abs(log(1 - confidence)) ** 0.5 / 1.5)


def _hits(scores: Floats, sign: int, thresholds: Floats) -> Integers:
    """Return for each threshold how many scores are on its side."""
    rising = np.sort(scores)
    if sign > 0:
        return len(rising) - np.searchsorted(rising, thresholds, side="left")
    return np.searchsorted(rising, thresholds, side="right")


def _rough(hits: Integers, runs: int, deviations: float) -> Floats:
    """Return Wilson's end of the interval for a rate, upper or lower by the sign of `deviations`."""
    square = deviations**2
    middle = hits + square / 2
    reach = deviations * np.sqrt(hits * (1 - hits / runs) + square / 4)
    found: Floats = np.clip((middle + reach) / (runs + square), 1e-12, 1)
    return found


# -------------------------------------------------------------------- the exact loss


REACH = 9  # standard deviations; beyond, less than 10^-18 of the mass
GRID = 1e-4  # in deviations of the whole loss: to this losses of several measurements are rounded down when added


def exact_loss(here: Sequence[Measurement], there: Sequence[Measurement]) -> Fraction:
    """Return the most that one output can reveal (ε for Laplace noise, ρ for Gaussian), from noiseless numbers."""
    total = Fraction(0)
    for one, two in zip(here, there, strict=True):
        apart = np.abs(one.values.astype(np.int64) - two.values)
        if one.noise == "discrete_laplace":
            total += int(apart.sum()) / one.scale
        else:
            total += int((apart**2).sum()) / (2 * one.scale)
    return total


def exact_epsilon(here: Sequence[Measurement], there: Sequence[Measurement], delta: float) -> float:
    """Return the least ε at which two data sets are (ε, δ)-indistinguishable, from their numbers without noise.

    For Laplace noise it is the least ε at δ = 0, for any δ. For Gaussian noise it is a bound from below, up to
    rounding.
    """
    if here[0].noise == "discrete_laplace":
        return float(exact_loss(here, there))
    grid = GRID * sqrt(2 * exact_loss(here, there)) or GRID
    place, chances = 0, np.ones(1)
    for one, two in zip(here, there, strict=True):
        apart = np.abs(one.values.astype(np.int64) - two.values).ravel()
        if apart.any():
            sums, masses = _sums(apart[apart > 0], one.scale)
            begin, mine = _binned((float((apart**2).sum()) + 2 * sums) / (2 * float(one.scale)) / grid, masses)
            place, chances = place + begin, _convolved(chances, mine)
    losses: Floats = np.arange(place, place + len(chances), dtype=np.float64) * grid
    return least_epsilon(losses, chances, delta)


def least_epsilon(losses: Floats, chances: Floats, delta: float) -> float:
    """Return the least ε ≥ 0 with Σ P max(0, 1 − e^(ε − loss)) ≤ δ: losses log(P/Q), and their chances under P."""
    low, high = 0.0, max(0.0, float(losses.max()))
    for _ in range(60):
        middle = (low + high) / 2
        above = losses > middle
        excess = float((chances[above] * -np.expm1(middle - losses[above])).sum())
        low, high = (middle, high) if excess > delta else (low, middle)
    return low


def log_ratios(measured: Measurement, here: Measurement, there: Measurement) -> Floats:
    """Return, number by number, log P(output | there) − log P(output | here): the optimal score of an output."""
    output = measured.values.astype(np.int64)
    from_here, from_there = np.abs(output - here.values), np.abs(output - there.values)
    if measured.noise == "discrete_laplace":
        found: Floats = (from_here - from_there) / float(measured.scale)
        return found
    squares: Floats = (from_here**2 - from_there**2) / (2 * float(measured.scale))
    return squares


def total_log_ratio(measured: Measurements, here: Measurements, there: Measurements) -> float:
    """Return the score of an entire release."""
    parts = zip(measured.measured, here.measured, there.measured, strict=True)
    return float(sum(log_ratios(*part).sum() for part in parts))


def _sums(apart: Integers, variance: Fraction) -> tuple[Floats, Floats]:
    """Return the distribution of Σ d z over independent discrete Gaussian z: values, and their chances."""
    parameter = float(checked_variance(variance))
    most = ceil(REACH * sqrt(parameter)) + 1
    noise = np.arange(-most, most + 1)
    bell = np.exp(-(noise**2) / (2 * parameter))
    bell /= bell.sum()
    chances, reach = np.ones(1), 0
    for by in apart.tolist():
        spread = np.zeros(2 * most * by + 1)
        spread[::by] = bell
        chances, reach = np.convolve(chances, spread), reach + most * by
        kept = np.flatnonzero(chances > 1e-30)
        cut = min(int(kept[0]), len(chances) - 1 - int(kept[-1]))
        chances, reach = chances[cut : len(chances) - cut], reach - cut
    return np.arange(-reach, reach + 1, dtype=float), chances


def _binned(losses: Floats, chances: Floats) -> tuple[int, Floats]:
    """Return the same distribution, losses rounded down to integers: the first loss, and chances from there."""
    places = np.floor(losses).astype(np.int64)
    return int(places.min()), np.bincount(places - places.min(), weights=chances).astype(np.float64)


def _convolved(one: Floats, two: Floats) -> Floats:
    """Return the distribution of the sum of two independent variables."""
    length = len(one) + len(two) - 1
    found: Floats = np.fft.irfft(np.fft.rfft(one, length) * np.fft.rfft(two, length), length)
    return np.maximum(found, 0.0)
