"""What to measure and how the budget is divided: a public value, made before private data are touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

from tallytree.arguments import expect, instance, several, told
from tallytree.errors import BudgetError, SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.names import did_you_mean
from tallytree.notebook import briefly
from tallytree.privacy.budget import Budget, Number, exact
from tallytree.privacy.neighbours import PrivacyUnit, View

Shares = Mapping[str, Number] | Sequence[Number]
Priority = Literal["upper", "balanced", "leaves"]


@dataclass(frozen=True)
class Question:
    """One view of one level, with the share of the budget that it may spend."""

    view: View
    level: int
    share: Fraction


@dataclass(frozen=True)
class Plan:
    """Questions whose exact shares add up to the whole budget.

    Levels (and views) compose in sequence: their costs add up. Regions of one level hold disjoint groups, so one
    question about a level pays once for all its regions (but `chain` mixes them, and its sensitivity says so).
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
        whole = sum((question.share for question in self.questions), Fraction(0))
        if whole != 1:
            raise BudgetError(f"the shares of the budget must add up to exactly 1, not {whole}")
        asked = [(question.view, question.level) for question in self.questions]
        if len(set(asked)) != len(asked):
            raise SpecError("a plan asks the same question twice")

    def cost(self, question: Question) -> Fraction:
        """What a question may spend, in the budget's currency."""
        return question.share * self.budget.amount


def every_level(
    view: View, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None
) -> Plan:
    """Ask for `view` on every level; shares by level name or from the top down, equal if not given."""
    parts = level_shares(hierarchy, shares)
    return Plan(budget, unit, tuple(Question(view, level, share) for level, share in enumerate(parts)))


def level_shares(hierarchy: Hierarchy, shares: Shares | None) -> tuple[Fraction, ...]:
    """Exact shares from the top level down. Whole numbers and fractions of any sum are read as proportions.

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
    if any(part <= 0 for part in parts):
        raise BudgetError("every level's share must be positive: each level is published, so each must be measured")
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
