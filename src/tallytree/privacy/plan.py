"""What to measure and how the budget is divided: a public value, made before private data are touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from tallytree.arguments import expect, instance, several, told
from tallytree.errors import BudgetError, SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.names import did_you_mean
from tallytree.notebook import briefly
from tallytree.privacy.budget import Budget, Number, exact
from tallytree.privacy.neighbours import PrivacyUnit, View

Shares = Mapping[str, Number] | Sequence[Number]
Priority = Literal["upper", "balanced", "leaves"]
BANDED: tuple[View, ...] = ("at_least", "sorted_sizes")  # views that can be asked for a band of sizes alone


class Band(NamedTuple):
    """The sizes from `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True)
class Question:
    """One view of one level, with the share of the budget that it may spend.

    With `sizes` it is about a band of sizes alone: `at_least` of these sizes, or the sorted list of what groups have
    within the band, min(size, last) − min(size, first − 1).
    """

    view: View
    level: int
    share: Fraction
    sizes: Band | None = None

    def __post_init__(self) -> None:
        if self.sizes is None:
            return
        if self.view not in BANDED:
            raise SpecError(f"{self.view} cannot be asked for a band of sizes; {' and '.join(BANDED)} can")
        if not 1 <= self.sizes.first <= self.sizes.last:
            raise SpecError(f"a band of sizes runs from 1 or more upwards, not from {self.sizes[0]} to {self.sizes[1]}")

    def covers(self, size: int) -> bool:
        """Is this size among those that it is about?"""
        return self.sizes is None or self.sizes.first <= size <= self.sizes.last


@dataclass(frozen=True)
class Plan:
    """Questions whose exact shares add up, at each size, to no more than the whole budget, and at some size to all.

    Levels (and views) compose in sequence: their costs add up. Regions of one level hold disjoint groups, so one
    question about a level pays once for all its regions (but `chain` mixes them, and its sensitivity says so).

    *What adds up is the shares at each size.* Write a group's size as units: its first, its second, and so on. Between
    neighbours at most U units come or go (U = b · m with the b rows and the bound m of `Neighbours.sensitivity`), each
    at one size. A question about a band sees those within it and no others: u units move `at_least` counts by u in L1,
    and a list's places by u in L1. Its noise is scaled to U whatever the band, so it loses at most share · u / U of the
    budget with Laplace noise. With Gaussian noise too: row j moves u_j units, by a vector of squared length at most u_j
    (`at_least`) or u_j² ≤ m · u_j (lists), the b rows together by at most b times the sum of these, and the noise is
    scaled to b² m or (b m)². Let f(s) be the part of the units that is at size s. A question without a band loses at
    most its share, one with a band its share times Σ f over its sizes. As f adds up to at most 1, all of them together
    lose at most the largest, over sizes s, of the sum of the shares of the questions that cover s. That is 1. (Under
    `one_group` U is K, so a band's noise is that of a question about all sizes: bands are private, but do not pay.)
    """

    budget: Budget
    unit: PrivacyUnit
    questions: tuple[Question, ...]

    __repr__ = briefly

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", Budget.of(self.budget))
        object.__setattr__(self, "unit", PrivacyUnit.of(self.unit))
        expect(self.questions, several(instance(Question)), "questions")
        if not self.questions:
            raise SpecError("a plan needs at least one question")
        if any(question.share <= 0 for question in self.questions):
            raise BudgetError("every share of the budget must be positive")
        at_each = {size: self.share_at(size) for size in self._steps()}
        size, whole = max(at_each.items(), key=lambda entry: entry[1])
        if whole != 1:
            where = "" if all(question.sizes is None for question in self.questions) else f" (at size {size})"
            raise BudgetError(f"the shares of the budget must add up to exactly 1, not {whole}{where}")
        for place, one in enumerate(self.questions):
            for other in self.questions[:place]:
                if (one.view, one.level) == (other.view, other.level) and _overlap(one, other):
                    raise SpecError("a plan asks the same question twice")

    def share_at(self, size: int) -> Fraction:
        """What is spent, of the whole, on an entity that makes a group reach this size."""
        return sum((question.share for question in self.questions if question.covers(size)), Fraction(0))

    def _steps(self) -> set[int]:
        """The sizes at which what is spent can change."""
        bands = [question.sizes for question in self.questions if question.sizes is not None]
        return {1} | {size for band in bands for size in (band.first, band.last + 1)}

    def cost(self, question: Question) -> Fraction:
        """What a question may spend, in the budget's currency."""
        return question.share * self.budget.amount


def _overlap(one: Question, other: Question) -> bool:
    if one.sizes is None or other.sizes is None:
        return True
    return one.sizes.first <= other.sizes.last and other.sizes.first <= one.sizes.last


def every_level(
    view: View, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None
) -> Plan:
    """Ask for `view` on every level; shares by level name or from the top down, equal if not given."""
    parts = level_shares(hierarchy, shares)
    return Plan(budget, unit, tuple(Question(view, level, share) for level, share in enumerate(parts)))


def level_shares(hierarchy: Hierarchy, shares: Shares | None, *, some_without: bool = False) -> tuple[Fraction, ...]:
    """Exact shares from the top level down. Whole numbers and fractions of any sum are read as proportions.

    With `some_without` a level may have none.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> level_shares(tree, {"total": 1, "state": 3})
    (Fraction(1, 4), Fraction(3, 4))
    """
    if shares is None:
        shares = [1] * hierarchy.depth
    if isinstance(shares, Mapping):
        unknown = [level for level in shares if level not in hierarchy.levels]
        missing = [level for level in hierarchy.levels if level not in shares]
        if unknown:
            hint = did_you_mean(unknown[0], hierarchy.levels)
            raise SpecError(f"shares name the level {unknown[0]!r}, which there is not; {hint}")
        if missing:
            raise SpecError(f"shares must name each level once: {', '.join(hierarchy.levels)}")
        shares = [shares[level] for level in hierarchy.levels]
    if not isinstance(shares, Sequence) or isinstance(shares, str | bytes):
        raise SpecError(f"shares is {told(shares)}; expected a number for each level, by name or from the top down")
    if len(shares) != hierarchy.depth:
        raise SpecError(f"expected {hierarchy.depth} shares ({', '.join(hierarchy.levels)}), not {len(shares)}")
    parts = [exact(share, f"the share of {level}") for share, level in zip(shares, hierarchy.levels, strict=True)]
    if some_without and min(parts) >= 0 < sum(parts):
        return tuple(part / sum(parts) for part in parts)
    if any(part <= 0 for part in parts):
        raise BudgetError(
            "no level's share may be negative, and one must be positive"
            if some_without
            else "every level's share must be positive: each level is published, so each must be measured"
        )
    return tuple(part / sum(parts) for part in parts)


def priority_shares(hierarchy: Hierarchy, priority: str) -> tuple[Fraction, ...]:
    """Shares by what matters most: `upper` gives each level twice the share of the next, `leaves` half of it.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> priority_shares(tree, "upper")
    (Fraction(2, 3), Fraction(1, 3))
    """
    if not isinstance(priority, str) or priority not in get_args(Priority):
        raise SpecError(f"unknown priority {told(priority)}; expected {', '.join(get_args(Priority))}")
    ratio = {"upper": Fraction(1, 2), "balanced": Fraction(1), "leaves": Fraction(2)}[priority]
    return level_shares(hierarchy, [ratio**level for level in range(hierarchy.depth)])


def divided(hierarchy: Hierarchy, shares: Shares | None, priority: str | None) -> Shares | None:
    """The shares that were given, or those of a priority; not both."""
    if priority is None:
        return shares
    if shares is not None:
        raise SpecError("shares and priority both divide the budget over the levels; give one of them")
    return priority_shares(hierarchy, priority)
