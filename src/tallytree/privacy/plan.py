"""What to measure and how the budget is divided: a public value, made before private data are touched."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from tallytree.core.arguments import expect, instance, optional, several, told
from tallytree.core.errors import BudgetError, SpecError
from tallytree.core.names import briefly
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import PrivacyUnit, View

FIRST: tuple[View, ...] = ("totals", "largest")  # measured before the others
BANDED: tuple[View, ...] = ("at_least", "sorted_sizes")  # views that can be asked for a band of sizes alone


class Band(NamedTuple):
    """The sizes from `first` to `last`, both included."""

    first: int
    last: int

    def in_words(self) -> str:
        """Return the sizes in words."""
        return f"size {self.first}" if self.first == self.last else f"sizes {self.first} to {self.last}"


@dataclass(frozen=True)
class MeasurementQuery:
    """One view of one level, with the share of the budget that it may spend.

    With `sizes` it is about a band of sizes alone: `at_least` of these sizes, or the sorted list of what groups have
    within the band, min(size, last) − min(size, first − 1). If it is `summed`, it is about the regions of a level below
    the root of a tree by category, over all categories.
    """

    view: View
    level: int
    share: Fraction
    sizes: Band | None = None
    summed: bool = False  # over all categories, where regions are told apart by some

    def __post_init__(self) -> None:
        if self.sizes is None:
            return
        if self.view not in BANDED:
            raise SpecError(f"{self.view} cannot be asked for a band of sizes; {' and '.join(BANDED)} can")
        first, last = self.sizes
        if (
            not all(isinstance(size, int) and not isinstance(size, bool) for size in self.sizes)
            or not 1 <= first <= last
        ):
            raise SpecError(
                f"the ends of a band of sizes must be integers of at least 1, not {told(first)} and {told(last)}"
            )
        object.__setattr__(self, "sizes", Band(first, last))

    def covers(self, size: int) -> bool:
        """Return whether the query covers this size."""
        return self.sizes is None or self.sizes.first <= size <= self.sizes.last


@dataclass(frozen=True)
class BranchRule:
    """The rule of an adaptive plan: it reads noisy totals, and nothing else, and chooses one of two branches.

    If the noisy totals of the regions of `level` are below `fewer_than` on average, the plan measures the queries
    `below`. Otherwise it measures the queries `otherwise`.
    """

    level: int
    fewer_than: Fraction
    below: tuple[MeasurementQuery, ...]
    otherwise: tuple[MeasurementQuery, ...]

    def is_below(self, totals: Iterable[int]) -> bool:
        """Return whether the rule chooses `below` for these noisy totals of the level's regions. The result is exact.

        >>> rule = BranchRule(1, Fraction(5, 2), (), ())
        >>> rule.is_below([-1, 5]), rule.is_below([0, 5])
        (True, False)
        """
        found = [int(total) for total in totals]
        return sum(found) < self.fewer_than * len(found)


@dataclass(frozen=True)
class Plan:
    """The measurement queries of a release, with their shares of the budget.

    The exact shares add up, at each size, to no more than the whole budget, and at some size to all.

    Levels (and views) compose in sequence: their costs add up. Regions of one level hold disjoint groups, so one
    query of a level pays once for all its regions (but `chain` mixes them, and its sensitivity says so).

    *What adds up is the shares at each size.* A group of size a is made of a units, one at each size 1 … a. Neighbours
    are b changes apart, one after another (b rows; b = 1 under `one_group`), and change j takes one group from one size
    to another: u_j ≤ m units come, or u_j go, at sizes next to each other (m = min(z_max, K), or K under `one_group`).

    1. *A query of a band sees the units within it and no others.* Let u_jB of the u_j be within band B. Then
       change j moves u_jB of the band's `at_least` counts, by one each. What the group has within the band changes by
       u_jB, and so does the sorted list of it, in L1: `Neighbours.sensitivity` says why, for every length of the list.
    2. *So it loses at most share · Σ_j u_jB / (b m) of the budget.* Laplace: its noise is scaled to an L1 of b m,
       for every band, and it moves by at most Σ_j u_jB. Gaussian: change j moves it by a vector of squared length at
       most u_jB (`at_least`) or u_jB² ≤ m · u_jB (a list); all b together by one of at most b times the sum of these,
       by Cauchy and Schwarz; and the noise is scaled to a squared L2 of b² m or (b m)².
    3. *A query without a band loses at most its share*, for every view. Totals are such queries; what follows
       from them, the lengths of lists, changes nothing above, for step 1 holds for every length.
    4. *Together.* Let f(s) = (how many of all these units are at size s) / (b m), so Σ f ≤ 1. A band loses at most its
       share times Σ f over its sizes, so all queries lose at most W + Σ over s of f(s) · B(s), where W adds up the
       shares of those without a band, B(s) those of the bands that cover s. That is at most max over s of W + B(s): 1.

    Where m is 1 the bound can be reached. Where one change can touch many sizes (m > 1; K under `one_group`), a narrow
    band alone moves by less than its noise is scaled to: more is charged than it would need.

    *With a `branch_rule`* the queries are totals, with shares that add up to w. They are measured first, and then one
    of the rule's two branches. With either branch, shares add up to 1 as above (`branches`), so a branch alone has at
    most 1 − w at each size. The plan as a whole loses no more than the budget. *Proof.* Noisy totals y leave the
    border, and the answers z of the branch that the rule chose. The rule reads y and public facts, so for each y it
    chooses the same branch on either of two neighbours: the ratio of likelihoods of (y, z) is r(y) · r(z | y), of the
    totals and of a branch that depends on y alone. By steps 1 to 4 the totals lose at most a part w of the budget.
    Each branch loses at most 1 − w, for any lengths of its lists. Laplace: log r(y) + log r(z | y) ≤ w ε + (1 − w)
    ε. Gaussian: the expectation, on one of the two, of r(y)^a r(z | y)^a is that of r(y)^a times one over z given
        y, which is at most e^((a−1) a (1−w) ρ) for each y; the rest is at most e^((a−1) a w ρ), for
    every order a > 1. ∎

    Parameters
    ----------
    budget : Budget
        The budget.
    unit : PrivacyUnit
        Whom the measurements protect.
    queries : tuple of MeasurementQuery
        The measurement queries; with a `branch_rule`, the totals that are measured first.
    branch_rule : BranchRule, optional
        Which of two branches is measured next: a rule that reads the measured totals.
    """

    budget: Budget
    unit: PrivacyUnit
    queries: tuple[MeasurementQuery, ...]
    branch_rule: BranchRule | None = None

    __repr__ = briefly

    def __post_init__(self) -> None:
        object.__setattr__(self, "budget", Budget.of(self.budget))
        object.__setattr__(self, "unit", PrivacyUnit.of(self.unit))
        expect(self.queries, several(instance(MeasurementQuery)), "queries")
        expect(self.branch_rule, optional(instance(BranchRule)), "branch_rule")
        if not self.queries:
            raise SpecError("a plan needs at least one query")
        if self.branch_rule is not None:
            self._check_rule(self.branch_rule)
            return
        if any(query.share <= 0 for query in self.queries):
            raise BudgetError("every share of the budget must be positive")
        at_each = shares_at_sizes(self.queries)
        size = max(at_each, key=lambda size: at_each[size])
        if at_each[size] != 1:
            where = "" if len(at_each) == 1 else f" at size {size}, where they are largest"
            raise BudgetError(f"the shares of the budget must add up to exactly 1, not to {at_each[size]}{where}")
        for place, one in enumerate(self.queries):
            for other in self.queries[:place]:
                if (one.view, one.level, one.summed) == (other.view, other.level, other.summed) and _overlap(
                    one, other
                ):
                    raise SpecError(
                        f"a plan asks the same query twice: {one.view} of level {one.level}"
                        + ("" if one.sizes is None or other.sizes is None else ", in bands of sizes that overlap")
                    )

    def _check_rule(self, rule: BranchRule) -> None:
        """Refuse a rule that reads totals which the plan does not measure. Building the branches checks the shares."""
        if any(query.view != "totals" for query in self.queries):
            raise SpecError("an adaptive plan measures totals first, and nothing else")
        if all(query.level != rule.level for query in self.queries):
            raise SpecError(f"the branch rule reads totals of level {rule.level}, and the plan does not measure them")
        for later in (rule.below, rule.otherwise):
            if not later or any(query.view in FIRST for query in later):
                raise SpecError("the branches of a plan measure sizes; totals and the largest size come first")
            Plan(self.budget, self.unit, (*self.queries, *later))

    def branch(self, *, below: bool) -> Plan:
        """Return all queries of one branch as a plan without a rule; or this plan if it has no rule.

        Parameters
        ----------
        below : bool
            Whether the measured totals are below the rule's threshold on average.

        Returns
        -------
        Plan
            The plan.
        """
        if (rule := self.branch_rule) is None:
            return self
        return Plan(self.budget, self.unit, (*self.queries, *(rule.below if below else rule.otherwise)))

    @property
    def branches(self) -> tuple[Plan, ...]:
        """Return both branches, each as a plan without a rule; or this plan alone if it has no rule."""
        return (self,) if self.branch_rule is None else (self.branch(below=True), self.branch(below=False))

    def cost(self, query: MeasurementQuery) -> Fraction:
        """Return what a query may spend, in the budget's currency.

        Parameters
        ----------
        query : MeasurementQuery
            The measurement query.

        Returns
        -------
        Fraction
            The cost.
        """
        return query.share * self.budget.amount


def shares_at_sizes(queries: Iterable[MeasurementQuery]) -> dict[int, Fraction]:
    """Return the sum of shares at each size, from 1 on where it can change.

    >>> band = MeasurementQuery("at_least", 1, Fraction(1, 3), Band(2, 3))
    >>> shares_at_sizes([MeasurementQuery("counts", 0, Fraction(2, 3)), band])
    {1: Fraction(2, 3), 2: Fraction(1, 1), 4: Fraction(2, 3)}
    """
    asked = list(queries)
    ends = {end for one in asked if one.sizes is not None for end in (one.sizes.first, one.sizes.last + 1)}
    return {size: sum((one.share for one in asked if one.covers(size)), Fraction(0)) for size in sorted({1} | ends)}


def _overlap(one: MeasurementQuery, other: MeasurementQuery) -> bool:
    if one.sizes is None or other.sizes is None:
        return True
    return one.sizes.first <= other.sizes.last and other.sizes.first <= one.sizes.last
