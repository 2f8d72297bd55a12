"""`suggest`: shares of the budget that meet goals such as "county within 20 at 95%", or the budget that these need.

There are two kinds of goals:

- "county within 20 at 95%": the *reach*. 95 % of the level's published counts have a recommended interval, at 95 %,
  within count ± 20. It depends on the data, because published counts are smoothed and an interval always contains its
  count. So it is predicted by simulation, and holds for data like the prior's.
- "county half-width 20 at 95%": every guaranteed interval extends at most 20 to either side of an unbiased estimate.
  This follows from the noise alone, and holds for any data.

For half-widths, least squares gets no worse with a more precise measurement on any level. So no width grows with any
level's amount of the budget, and bisection finds the smallest amount that a level needs. A level with a goal starts
from what it would need if all others had only their `LEAST_SHARE`, and is then lowered as far as all goals allow. The
rest is divided equally among all levels. Widths are computed again for the resulting shares, so a goal reported as met
is met; with several goals another division might need slightly less. A goal about the reach is turned into one about
the half-width: first of the same size, then scaled by the reach of intervals in the simulation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fractions import Fraction
from typing import Any, Literal

from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.tails import NORMAL
from tallytree.mechanisms import choose
from tallytree.planning.prior import NO_PRIOR, ExpectedCounts
from tallytree.planning.simulation import CellErrors, Effort, PublicFacts, Scenario, simulate_releases
from tallytree.privacy.budget import Budget, epsilon_of

GOAL = re.compile(
    r"\s*(.+?)\s+(within|half-width)\s+(?:±|\+/-)?\s*([0-9]+(?:\.[0-9]+)?)\s+at\s+([0-9]+(?:\.[0-9]+)?)\s*%?\s*"
)
AT_LEAST: Mapping[str, str] = {"leaves": "at_least"}  # the same measurements for any data
LEAST_SHARE = Fraction(1, 4)  # of an equal share: the minimum of every level
SHARE_STEPS = 1000  # shares are multiples of a thousandth
MOST_ATTEMPTS = 12  # to find how many standard deviations wide an interval is
LARGEST_BUDGET = 10**6  # the upper limit of a budget
MOST_SIMULATED = 8  # limit for simulated allocations of the budget
A_LITTLE_LESS = 0.97  # so that the next allocation meets the goal
CLOSE = 0.85  # a reach of this part of the goal is near enough
EXPECTED = '"<level> within <number> at <percent>%" or "<level> half-width <number> at <percent>%"'


@dataclass(frozen=True)
class Goal:
    """A bound on the reach, or the half-width, of a level's intervals with the probability `confidence`."""

    level: str
    within: float
    confidence: float
    of: Literal["reach", "half-width"] = "reach"

    def __str__(self) -> str:
        number = f"within ± {self.within:g}" if self.of == "reach" else f"half-width {self.within:g}"
        return f"{self.level} {number} at {100 * self.confidence:g} %"

    @classmethod
    def parse(cls, text: str, hierarchy: Hierarchy) -> Goal:
        """Read "<level> within <number> at <percent>%", or the same with "half-width"."""
        found = GOAL.fullmatch(text)
        if found is None:
            raise SpecError(f"the goal {text!r} cannot be read; expected {EXPECTED}")
        level, within, percent = found[1], float(found[3]), float(found[4])
        if level not in hierarchy.levels:
            near = get_close_matches(level, hierarchy.levels, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise SpecError(f"the goal names the level {level!r}; there are {', '.join(hierarchy.levels)}{hint}")
        if within <= 0:
            raise SpecError(f"the goal {text!r} asks for no error at all, which no budget buys")
        if not 50 <= percent <= 99.99:
            raise SpecError(f"the goal {text!r} needs a percentage from 50 to 99.99")
        return cls(level, within, percent / 100, "reach" if found[2] == "within" else "half-width")


@dataclass(frozen=True)
class Suggestion:
    """Shares that meet the goals with `budget`, which exceeds the requested budget if that is too small."""

    goals: tuple[Goal, ...]
    asked: Budget
    budget: Budget
    levels: tuple[str, ...]
    shares: tuple[Fraction, ...]  # from the top level down
    half_widths: tuple[float, ...]  # at the first goal's confidence, for any data
    reach: tuple[float, ...] | None  # at the first goal's confidence, for data like the prior's; None without a prior
    mechanism: str
    options: Mapping[str, str]  # options of the mechanism that the widths depend on

    @property
    def enough(self) -> bool:
        """Return whether the requested budget meets the goals."""
        return self.budget == self.asked

    @property
    def toml(self) -> str:
        """Return the lines for the `[release]` section of a spec."""
        parts = ", ".join(f"{_key(level)} = {int(share * SHARE_STEPS)}" for level, share in self.by_level.items())
        told = ", ".join(f'{name} = "{value}"' for name, value in self.options.items())
        return f"shares = {{ {parts} }}" + (f"\noptions = {{ {told} }}" if told else "")

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "goals": [vars(goal) for goal in self.goals],
            "asked": self.asked.to_json(),
            "enough": self.enough,
            "budget": self.budget.to_json(),
            "shares": {level: str(share) for level, share in self.by_level.items()},
            "half_widths": dict(zip(self.levels, self.half_widths, strict=True)),
            "reach": None if self.reach is None else dict(zip(self.levels, self.reach, strict=True)),
            "mechanism": self.mechanism,
            "options": dict(self.options),
        }

    @property
    def by_level(self) -> dict[str, Fraction]:
        """Return the shares by level, as `release` takes them."""
        return dict(zip(self.levels, self.shares, strict=True))


def suggest(
    facts: PublicFacts,
    budget: Budget,
    goals: str | Sequence[str],
    *,
    mechanism: str = "auto",
    options: Mapping[str, Any] | None = None,
    expected: ExpectedCounts | None = None,
) -> Suggestion:
    """Find shares for goals, from public facts alone.

    `options` are the mechanism's. `expected` is a public prior's expectation, which goals about the reach of intervals
    need.
    """
    hierarchy, neighbours, totals = facts.hierarchy, facts.neighbours, facts.totals
    texts = [goals] if isinstance(goals, str) else list(goals)
    aims = tuple(Goal.parse(part, hierarchy) for text in texts for part in text.split(";") if part.strip())
    if not aims:
        raise SpecError('no goal given; expected one such as "county within 20 at 95%"')
    if expected is None and any(goal.of == "reach" for goal in aims):
        raise SpecError(f"{NO_PRIOR}; a goal such as {_without_prior(aims)!r} needs no prior")
    chosen = choose(mechanism, neighbours, options).suited_to(neighbours, hierarchy, totals)
    if chosen.divides_itself:
        raise SpecError("size bands already set shares for the levels; remove `bands` to get a suggestion")
    needed: Mapping[str, str] = {}
    if chosen.plan(hierarchy, budget, neighbours.unit).branch_rule is not None:
        # Widths that depend on what will be measured first are none that can be promised now.
        needed = AT_LEAST
        chosen = choose(mechanism, neighbours, {**(options or {}), **needed}).suited_to(neighbours, hierarchy, totals)
    if chosen.leaves_only or chosen.view not in ("counts", "at_least"):
        raise SpecError(f"shares cannot be suggested for {chosen.name}: it does not measure counts of every level")

    def errors(shares: Sequence[Fraction], amount: Fraction) -> CellErrors:
        plan = chosen.plan(hierarchy, _of_amount(budget, amount), neighbours.unit, list(shares))
        found = CellErrors.of(hierarchy, neighbours, plan)
        if found is None:
            raise SpecError(
                f"{chosen.name} measures no counts of the smallest regions here, so how wide its intervals will be "
                "cannot be said before; name a mechanism that does, such as joint-cumulative"
            )
        return found

    def division(targets: Sequence[float]) -> tuple[Budget, tuple[Fraction, ...]]:
        """Return the budget and shares with which half-widths meet the targets."""
        goals = tuple(replace(goal, within=target) for goal, target in zip(aims, targets, strict=True))
        search = _Search(hierarchy, goals, errors)
        shares = search.shares(budget.amount)
        return _larger(budget, search) if shares is None else (budget, shares)

    def reach(within: Budget, shares: Sequence[Fraction], confidence: float) -> tuple[float, ...] | None:
        if expected is None:
            return None
        scenario = Scenario(chosen, within, list(shares))
        found = simulate_releases(expected, neighbours, [scenario], Effort.usual(facts), confidence=confidence)
        return tuple(found.reach[0, : hierarchy.depth].tolist())

    within, shares, reached = _met(aims, budget, hierarchy, division, reach)
    shown = errors(shares, within.amount).half_widths(aims[0].confidence)
    return Suggestion(aims, budget, within, hierarchy.levels, shares, shown, reached, chosen.name, needed)


Divided = tuple[Budget, tuple[Fraction, ...]]
Reached = tuple[float, ...] | None


def _met(
    goals: tuple[Goal, ...],
    asked: Budget,
    hierarchy: Hierarchy,
    division: Callable[[Sequence[float]], Divided],
    reach: Callable[[Budget, Sequence[Fraction], float], Reached],
) -> tuple[Budget, tuple[Fraction, ...], Reached]:
    """Return the smallest budget that meets the goals, its shares, and the reach at the first goal's confidence."""
    targets, best = [goal.within for goal in goals], None
    for _ in range(MOST_SIMULATED):
        within, shares = division(targets)
        known = {level: reach(within, shares, level) for level in dict.fromkeys(goal.confidence for goal in goals)}
        ratios = []  # of each goal to its value with this allocation; half-widths are already met
        for goal in goals:
            reached = known[goal.confidence]
            place = hierarchy.levels.index(goal.level)
            ratios.append(
                1.0 if goal.of == "half-width" or reached is None else goal.within / max(reached[place], 1e-9)
            )
        if min(ratios) >= 1:
            if best is None or within.amount < best[0].amount:
                best = within, shares, known[goals[0].confidence]
            loose = min((ratio for ratio, goal in zip(ratios, goals, strict=True) if goal.of == "reach"), default=1.0)
            if within == asked or loose * CLOSE <= 1:
                return best
        elif best is not None:
            return best
        targets = [
            target * (A_LITTLE_LESS * ratio if ratio < 1 or min(ratios) >= 1 else 1.0) if goal.of == "reach" else target
            for target, ratio, goal in zip(targets, ratios, goals, strict=True)
        ]
    if best is None:
        raise SpecError("no allocation of any budget was found that meets the goals; use a goal with a larger reach")
    return best


def _without_prior(goals: Sequence[Goal]) -> str:
    first = goals[0]
    return f"{first.level} half-width {first.within:g} at {100 * first.confidence:g}%"


@dataclass(frozen=True)
class _Search:
    hierarchy: Hierarchy
    goals: tuple[Goal, ...]
    errors: Callable[[Sequence[Fraction], Fraction], CellErrors]

    def shares(self, amount: Fraction) -> tuple[Fraction, ...] | None:
        """Return shares with which this amount meets the goals, or None.

        The search assumes that intervals are a number of standard deviations wide: first the normal one, then a larger
        one if the interval itself turns out wider. Standard deviations take much less time than intervals.
        """
        reaches = [NORMAL.inv_cdf((1 + goal.confidence) / 2) for goal in self.goals]
        for _ in range(MOST_ATTEMPTS):
            found = self._least(amount, reaches)
            if found is None:
                return None
            errors = self.errors(found, amount)
            deviations, met = errors.deviations(), True
            for number, goal in enumerate(self.goals):
                at = self.hierarchy.levels.index(goal.level)
                width = errors.half_widths(goal.confidence)[at]
                if width > goal.within:
                    reaches[number], met = max(reaches[number] * 1.001, width / deviations[at]), False
            if met:
                return found
        return None

    def _least(self, amount: Fraction, reaches: Sequence[float]) -> tuple[Fraction, ...] | None:
        """Return the smallest amounts for the goals, with the rest divided among all levels; None if the amount is too
        small.
        """
        depth = self.hierarchy.depth
        least = max(1, math.ceil(LEAST_SHARE * SHARE_STEPS / depth))
        aimed = sorted({self.hierarchy.levels.index(goal.level) for goal in self.goals})
        alone = []
        for level in aimed:
            steps = [least] * depth
            if not self._lower(steps, level, SHARE_STEPS, amount, reaches, level):
                return None
            alone.append(steps[level])
        steps = [least] * depth
        for level, step in zip(aimed, alone, strict=True):
            steps[level] = step
        for level in aimed:
            self._lower(steps, level, steps[level], amount, reaches, None)
        spare = SHARE_STEPS - sum(steps)
        if spare < 0:
            return None
        return tuple(
            Fraction(step + spare // depth + (1 if level < spare % depth else 0), SHARE_STEPS)
            for level, step in enumerate(steps)
        )

    def _lower(
        self, steps: list[int], level: int, high: int, amount: Fraction, reaches: Sequence[float], of: int | None
    ) -> bool:
        """Lower one level's amount as far as the goals of a level, or of all, allow; return False if `high` fails."""
        low = max(1, math.ceil(LEAST_SHARE * SHARE_STEPS / self.hierarchy.depth))
        steps[level] = high = max(low, high)
        if not self._meets(steps, amount, reaches, of):
            return False
        while low < high:
            steps[level] = (low + high) // 2
            low, high = (low, steps[level]) if self._meets(steps, amount, reaches, of) else (steps[level] + 1, high)
        steps[level] = high
        return True

    def _meets(self, steps: Sequence[int], amount: Fraction, reaches: Sequence[float], of: int | None) -> bool:
        """Return whether these amounts, in thousandths, meet the goals. They need not add up to the total."""
        whole = sum(steps)
        shares = [Fraction(step, whole) for step in steps]
        found = self.errors(shares, amount * whole / SHARE_STEPS).deviations()
        places = [self.hierarchy.levels.index(goal.level) for goal in self.goals]
        return all(
            found[place] * reach <= goal.within
            for goal, place, reach in zip(self.goals, places, reaches, strict=True)
            if of in (None, place)
        )


def _larger(budget: Budget, search: _Search) -> tuple[Budget, tuple[Fraction, ...]]:
    """Return the smallest larger budget that meets the goals, rounded up to two digits, and its shares."""
    low, high = budget.amount, budget.amount
    found = None
    while found is None:
        low, high = high, high * 4
        if high > LARGEST_BUDGET:
            raise SpecError("no realistic budget meets the goals; use goals with wider intervals")
        found = search.shares(high)
    while high / low > Fraction(101, 100):
        middle = Fraction(math.sqrt(low * high)).limit_denominator(10**9)
        better = search.shares(middle)
        low, high = (low, middle) if better is not None else (middle, high)
    within = _rounded_up(budget, high)
    shares = search.shares(within.amount)
    while shares is None:  # the search is exact for one goal, and nearly so for several
        within = _rounded_up(budget, within.amount * Fraction(102, 100))
        shares = search.shares(within.amount)
    return within, shares


def _of_amount(budget: Budget, amount: Fraction) -> Budget:
    """Return a budget of the same kind with another amount."""
    return Budget(epsilon=amount) if budget.currency == "epsilon" else Budget(rho=amount, delta=budget.delta)


def _rounded_up(budget: Budget, amount: Fraction) -> Budget:
    """Return a budget of the same kind with at least this amount, rounded up to two digits of the user's unit."""
    if budget.epsilon is not None and budget.delta is not None:
        return Budget(epsilon=_two_digits(epsilon_of(amount, budget.delta)), delta=budget.delta)
    return _of_amount(budget, _two_digits(amount))


def _two_digits(amount: Fraction) -> Fraction:
    unit = Fraction(10) ** (math.floor(math.log10(float(amount))) - 1)
    return math.ceil(amount / unit) * unit


def in_words(suggestion: Suggestion) -> list[str]:
    """Return the result in sentences."""
    goals = " and ".join(map(str, suggestion.goals))
    if suggestion.enough:
        return [f"{suggestion.budget} is enough for {goals}, divided like this:"]
    return [
        f"{suggestion.asked} is too small for {goals}.",
        f"{suggestion.budget} would do, divided like this:",
    ]


def _key(level: str) -> str:
    return level if re.fullmatch(r"[A-Za-z0-9_-]+", level) else f'"{level}"'
