"""Find changes between two releases: intervals, p-values and flags with a controlled error rate.

A change is the difference of two unbiased estimates with independent noise, so its interval is that of a linear
estimate (`tails`). A region is *flagged* if its p-value passes the test of its family: all regions of one level for one
question.

- *Benjamini–Hochberg* (1995): flag the R smallest p-values, R the largest number with p(R) ≤ RATE · R / m. If p-values
  are independent, on average at most RATE of the flags are false. Those of a tree are not quite independent. In the
  simulations of `experiments/changes.py` the share of false flags is at most RATE for them too.
- *Holm* (1979): the probability of any false flag is at most RATE, for any dependence of the p-values.

An interval at 1 − RATE is too short for regions that were selected because of a large change. Flagged regions also have
one at 1 − RATE · R / m (Benjamini and Yekutieli, 2005), and on average at most RATE of those fail.

The published change, after − before, has a smaller error than the unbiased one where counts are small. Intervals are
extended to contain it, and where the two differ in sign the region is not flagged: its p-value is 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.categories import ALL
from tallytree.estimate.intervals.linear import Estimates, fieller

RATE = 0.05  # of false flags, and of intervals that fail
FLAGS = {1: "increased", -1: "decreased", 0: "not shown to have changed"}
Flags = NDArray[np.bool_]
OldAndNew = tuple[Floats, Floats]


class Rule(NamedTuple):
    """When a region counts as changed: how the error rate is controlled, and the least relative change."""

    family_wise: bool = False
    more_than: float = 0.0


@dataclass(frozen=True)
class Family:
    """The regions of one level for one question: they are tested together."""

    level: str
    question: str
    values: tuple[str, ...]
    regions: int
    tested: int  # without those whose change is known exactly
    increased: int
    decreased: int
    method: str

    @property
    def flagged(self) -> int:
        """Return how many regions are flagged."""
        return self.increased + self.decreased

    @property
    def label(self) -> str:
        """Return the question with the values of categories."""
        named = [value for value in self.values if value != ALL]
        return f"{self.question} ({', '.join(named)})" if named else self.question


class Changes(NamedTuple):
    """Changes of several regions in one question; p-values and selected ends that do not exist are NaN."""

    lower: Floats
    upper: Floats
    p_value: Floats
    direction: Integers  # 1 increased, −1 decreased, 0 not shown to have changed
    selected_lower: Floats
    selected_upper: Floats
    tested: int  # regions in the family


def find_changes(old: Estimates, new: Estimates, published: Integers, rule: Rule) -> Changes:
    """Return the changes of a family from unbiased estimates; `published` are the changes of the released counts.

    A change without noise, as of public totals, is outside the family: its interval is the number itself.
    """
    change, sign = new.minus(old), np.sign(published)
    beyond = new.minus(
        old, 1 + sign * rule.more_than
    )  # has the sign of a change by more than that part of the old number
    changed = sign * beyond.values > 0
    p_value = np.where(changed, beyond.errors.p_values(beyond.values), 1.0)
    known = change.errors.variance == 0
    flagged = known & changed
    flagged[~known] = (holm if rule.family_wise else benjamini_hochberg)(p_value[~known], RATE)
    tested, found = int(np.count_nonzero(~known)), flagged & ~known
    lower, upper = _integers_around(change, change.errors.reach(RATE / 2), published)
    selected = np.full((2, len(p_value)), math.nan)
    if found.any():
        part = RATE * np.count_nonzero(found) / tested
        selected[:, found] = np.stack(_integers_around(change, change.errors.reach(part / 2), published))[:, found]
    p_value[known] = math.nan
    return Changes(lower, upper, p_value, np.where(flagged, sign, 0), selected[0], selected[1], tested)


def percent_changes(old: Estimates, new: Estimates, published: Floats) -> OldAndNew:
    """Return the ends of relative changes in percent (Fieller's theorem); infinite where the old number may be 0.

    They are extended to the published change in percent, which is NaN where the published old number is 0.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.nan_to_num(new.values / old.values, posinf=0.0, neginf=0.0)
    square = np.zeros(len(published))
    for each in (old, new, new.minus(old, rate)):
        variance = each.errors.variance
        wide = each.errors.reach(RATE / 2) ** 2 / np.where(variance > 0, variance, 1.0)
        square = np.maximum(square, np.where(variance > 0, wide, 0.0))
    ends = fieller(new.values, old.values, new.errors.variance, old.errors.variance, 0.0, square)
    lower, upper = (100 * (np.maximum(end, 0.0) - 1) for end in ends)
    unbounded = np.isinf(ends[1])
    return np.where(unbounded, -math.inf, np.fmin(lower, published)), np.fmax(upper, published)


def bound_changes(ends_of: Callable[[float], tuple[OldAndNew, OldAndNew]], published: Integers, rule: Rule) -> Changes:
    """Return the changes of a family where there are only bounds: `ends_of` gives those of the old and the new numbers.

    The ends of both numbers hold with half of the error probability each. So the change lies between the new lower end
    minus the old upper end and the new upper end minus the old lower end. A region is flagged if these ends exclude 0
    at RATE / m (Bonferroni).
    """

    def apart(error: float, more_than: float = 0.0) -> OldAndNew:
        (old_low, old_high), (new_low, new_high) = ends_of(error / 2)
        return new_low - (1 + more_than) * old_high, new_high - (1 - more_than) * old_low

    number, sign = len(published), np.sign(published)
    lower, upper = apart(RATE)
    strict = apart(RATE / max(number, 1))
    rises, falls = strict if not rule.more_than else apart(RATE / max(number, 1), rule.more_than)
    flagged = ((rises > 0) & (sign > 0)) | ((falls < 0) & (sign < 0))
    none = np.full(number, math.nan)
    selected = [
        np.where(flagged, end, none) for end in (np.minimum(strict[0], published), np.maximum(strict[1], published))
    ]
    ends = np.minimum(lower, published), np.maximum(upper, published)
    return Changes(*ends, none, np.where(flagged, sign, 0), selected[0], selected[1], number)


def _integers_around(change: Estimates, half: Floats, published: Integers) -> OldAndNew:
    """Return the least and greatest integer within the interval, up to rounding, extended to the published change."""
    low, high = change.values - half, change.values + half
    slack = 1e-9 * (1 + np.minimum(np.abs(low) + np.abs(high), 1e6))
    return np.minimum(np.ceil(low - slack), published), np.maximum(np.floor(high + slack), published)


# -------------------------------------------------------------------- families


def benjamini_hochberg(p_values: Floats, rate: float) -> Flags:
    """Return which p-values are flagged so that on average at most `rate` of the flags are false.

    >>> benjamini_hochberg(np.array([0.001, 0.04, 0.03, 0.5]), 0.1)
    array([ True,  True,  True, False])
    """
    number = len(p_values)
    ordered = np.sort(p_values)
    passed = np.flatnonzero(ordered <= rate * np.arange(1, number + 1) / max(number, 1))
    return p_values <= (ordered[passed[-1]] if len(passed) else -1.0)


def holm(p_values: Floats, rate: float) -> Flags:
    """Return which p-values are flagged so that any flag is false with a probability of at most `rate`.

    >>> holm(np.array([0.001, 0.04, 0.03, 0.5]), 0.1)
    array([ True, False,  True, False])
    """
    number = len(p_values)
    order = np.argsort(p_values, kind="stable")
    failed = p_values[order] > rate / np.arange(number, 0, -1)
    flags = np.zeros(number, np.bool_)
    flags[order[: int(np.argmax(failed)) if failed.any() else number]] = True
    return flags
