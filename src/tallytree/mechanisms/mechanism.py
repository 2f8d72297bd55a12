"""`Mechanism`: what to measure plus how to estimate from it, with its guarantees, its cost and its use.

Every estimator returns an `Estimate`; `terms` gives what most of them need besides the measured numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib.util import find_spec
from math import sqrt
from typing import Any, ClassVar, Self

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.alternating import VALUE_LIMIT
from tallytree.estimate.checks import SUM_LIMIT
from tallytree.estimate.least_squares import LEAST_VARIANCE
from tallytree.mechanisms.budget_allocation import Shares, choose_shares, every_level
from tallytree.privacy.budget import NOISE_FOR, Budget, exact, scale_for
from tallytree.privacy.measurements import FirstStageFacts, Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, View
from tallytree.privacy.plan import MeasurementQuery, Plan

PGSR = "Fioretto, Van Hentenryck, Zhu: Differential Privacy of Hierarchical Census Data (2021)"
GRAND_TOTAL = "regions add up; the grand total where it is public (other totals are estimates)"
ALL_TOTALS = "regions add up; every region's total where totals are public"
LARGEST_DRAW = 40  # scales
LARGEST_FLOAT = Fraction(10**300)  # larger noise counts as infinite
NOT_FOR_DESCRIPTION = ("estimate", "certified", "settings", "unplanned", "relation")


@dataclass(frozen=True, eq=False)
class Estimate:
    """`counts` is `[regions, sizes]` in hierarchy order; `certificate` says in words what was proved about them."""

    counts: Integers
    certificate: str

    __repr__ = briefly


@dataclass(frozen=True)
class Mechanism:
    """One row of the table of mechanisms."""

    name: str
    symbol: str  # the paper's
    paper: str
    view: View
    estimate: Callable[[Measurements], Estimate]
    cost: str
    use: str
    keeps: str = GRAND_TOTAL
    keeps_totals: bool = False  # the public total of every region, not of the root alone
    needs_public_totals: bool = False
    most_cells: int | None = None  # regions × sizes; more are refused
    refused: str = ""  # why it may not be released; `evaluate` may still run it
    needs: tuple[str, ...] = ()  # modules of the extra `solvers`
    unplanned: str = ""  # why a plan leaves it out unless it is named
    certified: Callable[..., bool] | None = None  # of measurements and counts: are these as good as the estimate

    keeps_listed: ClassVar[bool] = False  # public totals over all categories, where those by category are private
    leaves_only: ClassVar[bool] = False  # whether only the lowest level is measured: then the budget is not divided

    @property
    def divides_itself(self) -> bool:
        """Return whether its options divide the budget over the levels, instead of shares or priorities."""
        return False

    @property
    def measures(self) -> str:
        """Return what it measures, in words."""
        return f"{self.view}, on every level"

    def described(self) -> dict[str, Any]:
        """Return the row in plain values."""
        return {key: value for key, value in vars(self).items() if key not in NOT_FOR_DESCRIPTION}

    @property
    def options(self) -> dict[str, Any]:
        """Return the given options, in plain values."""
        return {}

    def configured(self, options: Mapping[str, Any]) -> Mechanism:
        """Return the mechanism with these options; most mechanisms take none."""
        if options:
            raise SpecError(f"{self.name} takes no options, but was given {', '.join(options)}")
        return self

    def suited_to(self, neighbours: Neighbours, hierarchy: Hierarchy, totals: Integers | None) -> Mechanism:
        """Return the mechanism with all open choices made from public facts; `totals` are the public ones."""
        return self

    def derive_facts(self, measurements: Measurements) -> FirstStageFacts:
        """Return what follows from measured totals and a measured largest size, if it measures them first."""
        return FirstStageFacts()

    def simulate_truths(self, measurements: Measurements, counts: Integers) -> Callable[[int], Integers]:
        """Return a function that gives, for each replicate, counts that serve as the truth in a simulation.

        These are the released counts, unless a mechanism supplies better ones.
        """
        return lambda replicate: counts

    def estimated(self, measurements: Measurements, tell: Tell = nobody) -> Estimate:
        """Run `estimate`; a mechanism that takes long reports its progress to `tell`."""
        return self.estimate(measurements)

    def divided(
        self, hierarchy: Hierarchy, shares: Shares | None, priority: str | None, budget: Budget
    ) -> Shares | None:
        """Return the given shares, or those of a priority; refuse both together."""
        return choose_shares(hierarchy, shares, priority)

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Plan its view on every level."""
        return every_level(self.view, hierarchy, budget, unit, shares)

    def check(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse a release that this mechanism cannot make, from public facts alone: before any budget is spent."""
        if self.refused:
            raise SpecError(f"{self.name} cannot be released: {self.refused}. It is for tallytree.lab only.")
        self.fits(neighbours, hierarchy, plan)

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse data and plans that the mechanism cannot handle, for a release or any other use."""
        if missing := [module for module in self.needs if find_spec(module) is None]:
            raise SpecError(f"{self.name} needs {', '.join(missing)}: pip install 'tallytree[solvers]'")
        if self.needs_public_totals and not neighbours.public_totals:
            raise SpecError(
                f"{self.name} needs the public number of groups in every region, and here totals are private; "
                "read with a groups table if there is a public one, or use pgsr-hierarchical-dp"
            )
        if neighbours.groups_listed and not self.keeps_listed:
            raise SpecError(
                f"{self.name} cannot keep numbers of groups that are public by region and not by category; use "
                "tallytree, or read without the groups table"
            )
        for query in _asked(plan) if plan is not None and hierarchy is not None else ():
            rows = hierarchy.level_slice(query.level)  # type: ignore[union-attr]
            neighbours.sensitivity(query.view, rows.stop - rows.start, summed=query.summed)  # may refuse the view
        if self.most_cells is not None and hierarchy is not None:
            cells = len(hierarchy) * sizes_of(neighbours)
            if cells > self.most_cells:
                raise SpecError(
                    f"{self.name} is for at most {self.most_cells:,} cells (regions × sizes), and these are {cells:,}; "
                    "use pgsr-hierarchical-dp, pgsr-cumulative-dp or auto"
                )


@dataclass(frozen=True)
class Optioned(Mechanism):
    """A mechanism with options: `settings`, a NamedTuple, holds their values, and `estimate` takes it first."""

    estimate: partial[Estimate]
    settings: Any = None
    takes: tuple[str, ...] = ()  # the names of its options

    @staticmethod
    def read_option(option: str, value: Any) -> Any:
        """Return an option's value as the settings hold it; refuse a wrong one with a SpecError."""
        raise NotImplementedError

    @property
    def options(self) -> dict[str, Any]:
        """Return the options in plain values, as `configured` takes them."""
        given = {name: _plain(getattr(self.settings, name)) for name in self.takes}
        return {name: value for name, value in given.items() if value is not None}

    def configured(self, options: Mapping[str, Any]) -> Mechanism:
        """Return the mechanism with these options; refuse wrong ones."""
        if unknown := [name for name in options if name not in self.takes]:
            raise SpecError(f"{self.name} has no option {unknown[0]!r}; it has {', '.join(self.takes)}")
        return self.set(**{name: self.read_option(name, value) for name, value in options.items() if value is not None})

    def set(self, **changed: Any) -> Self:
        """Return the mechanism with some of its settings changed."""
        settings = self.settings._replace(**changed)
        return replace(self, settings=settings, estimate=partial(self.estimate.func, settings))


def _plain(value: Any) -> Any:
    """Return a setting as JSON holds it."""
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, Fraction) else value


def read_share(option: str, value: Any) -> Fraction:
    """Return a share of the budget that an option sets aside."""
    share = exact(value, option)
    if not 0 < share < 1:
        raise SpecError(f"{option} must lie between 0 and 1, not {value!r}")
    return share


def _asked(plan: Plan) -> Iterator[MeasurementQuery]:
    """Return all queries of a plan, with those of both branches."""
    return (query for branch in plan.branches for query in branch.queries)


def check_range(neighbours: Neighbours, hierarchy: Hierarchy, totals: Integers | None, plan: Plan) -> None:
    """Refuse public totals, and noise, so large that sums over regions and sizes may not fit into 64-bit integers.

    Estimators add up over the regions or the sizes of a level, and a sum of noise over a level is below its number of
    regions times the scale; single draws beyond 40 scales have a chance of less than 10⁻¹⁷.
    """
    groups = 0 if totals is None else int(totals[0])
    if groups >= VALUE_LIMIT:
        raise SpecError(f"public totals add up to {groups:,} groups; expected less than 2⁵². Nothing was spent.")
    for query, scale in noise_scales(neighbours, hierarchy, plan):
        regions = hierarchy.level_slice(query.level)
        count = regions.stop - regions.start
        most = max(count, len(hierarchy), LARGEST_DRAW * sizes_of(neighbours))
        if (groups + count * scale) * most >= SUM_LIMIT:
            raise SpecError(
                f"with this budget the noise of level {hierarchy.levels[query.level]!r} is so large that sums over "
                f"{count:,} regions may not fit into 64-bit integers; use a larger budget. Nothing was spent."
            )


def noise_scales(neighbours: Neighbours, hierarchy: Hierarchy, plan: Plan) -> Iterator[tuple[MeasurementQuery, float]]:
    """Yield each query of a plan with the scale of its Laplace noise, or the deviation of its Gaussian noise."""
    kind, regions = NOISE_FOR[plan.budget.currency], np.diff(hierarchy.level_starts).tolist()
    for query in _asked(plan):
        sensitivity = neighbours.sensitivity(query.view, regions[query.level], summed=query.summed)
        scale = float(min(scale_for(kind, sensitivity, plan.cost(query)), LARGEST_FLOAT))
        yield query, scale if kind == "discrete_laplace" else sqrt(scale)


def sizes_of(neighbours: Neighbours) -> int:
    """Return how many sizes are counted."""
    return neighbours.max_size + (1 if neighbours.public_totals else 0)


def terms(measurements: Measurements, view: View) -> dict[str, Any]:
    """Return what the nearest counts to a view depend on besides its numbers: `total` and `weights`, for estimators.

    `total` is the public number of all groups, if any.
    """
    totals = measurements.region_totals
    return {"total": None if totals is None else int(totals[0]), "weights": precisions(measurements, view)}


def precisions(measurements: Measurements, view: View) -> list[float] | None:
    """Return the levels' weights: the inverse of the noise's exact variance; None if all are equal."""
    variances = [max(variance, LEAST_VARIANCE) for variance in measurements.variances(view)]
    return None if len(set(variances)) == 1 else [1 / variance for variance in variances]
