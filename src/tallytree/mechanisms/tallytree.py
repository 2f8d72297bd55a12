"""`tallytree`: the default mechanism, estimated from the top down, with leaves shrunk towards the shapes around them.

The neighbour relation decides the view. If an entity is protected, mostly `at_least` counts have less noise. If a whole
group is protected, counts of single sizes have less, and they are measured with their total on every level that has a
share. The estimate is the same for both views (`measured_rows`). What follows is about `at_least` counts and lists.

*Dense* regions (many groups, few sizes) are measured by `at_least` counts on every level that has a share. Estimates
are unbiased from below (`subtree_estimates`) and become integers from the root down (`allocation`). Leaves are shrunk
towards their parents' shapes if that lowers the error (`shrinkage`). *Sparse* regions (fewer groups than sizes) are
measured by sorted lists of the leaves. The posterior of each leaf, given the shapes around it (`posterior`), is added
up, combined with measurements of upper levels, if any, and also rounded from the root down. *In between*, with about as
many sizes as groups, leaves are measured by `at_least` counts and estimated by their posterior, like lists
(`posterior`). The choice follows from public facts or, without them, from numbers of groups that are measured first.
With `bands`, each band of sizes has its own shares, and may measure leaves in its own way. For regions with many small
groups and a long sparse tail, that can be `at_least` up to a size and lists of the parts of sizes above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import sqrt
from typing import ClassVar

from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, SpecError
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms.budget_allocation import (
    EitherWay,
    Shares,
    balanced_shares,
    capped_shares,
    choose_shares,
    hardly_noisy,
    level_shares,
    priority_shares,
)
from tallytree.mechanisms.measured_leaves import measured_totals, places_for
from tallytree.mechanisms.mechanism import ALL_TOTALS, Estimate, Mechanism, Optioned
from tallytree.mechanisms.settings import (
    AT_LEAST,
    BELIEFS,
    COUNTS,
    COUNTS_TOTAL,
    FEWEST_SIZES,
    LISTS,
    MOST_COUNTED,
    MOST_STATES,
    SIZES_PER_GROUP,
    Division,
    Leaves,
    Settings,
    choose_leaves,
    divisions,
    estimates_counts,
    read_option,
    up_to,
)
from tallytree.mechanisms.topdown_estimate import estimate_top_down, simulate_truths
from tallytree.privacy.budget import Budget, Number
from tallytree.privacy.measurements import FirstStageFacts, Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, Sensitivity, View
from tallytree.privacy.plan import BranchRule, MeasurementQuery, Plan

ALL_SHARE = Fraction(3, 10)  # of the budget, for the sums over categories that members decide
USUAL = Settings()
MOST_LOST = 1.05  # of counts with public totals: an upper level's error, relative to that of equal shares
FIRST_SHARE = Fraction(1, 50)  # of the budget, for private totals that choose between lists and at_least


@dataclass(frozen=True)
class Tallytree(Optioned):
    """The default mechanism: measures what is worth measuring and estimates from the top down."""

    keeps_listed: ClassVar[bool] = True

    settings: Settings = USUAL
    relation: Neighbours | None = None  # of the data that it was suited to
    read_option = staticmethod(read_option)

    @property
    def divides_itself(self) -> bool:
        """Return whether bands divide the budget over the levels."""
        return self.settings.bands is not None

    @property
    def measures(self) -> str:
        """Return what it measures, in words."""
        if self.settings.leaves is None:
            return (
                "at_least, on every level; or sorted sizes of the lowest level, with at_least at the top, where groups "
                "are few; totals of the lowest level before that, if the choice depends on them and they are private; "
                "counts with their total, on every level that has a share, where they have less noise than at_least"
            )
        if self.settings.leaves in (COUNTS, COUNTS_TOTAL):
            return f"{self.settings.leaves}, on every level that has a share"
        if self.settings.leaves == LISTS:
            return "sorted sizes of the lowest level; at_least on upper levels that have a share"
        return "at_least, on every level that has a share"

    def suited_to(self, neighbours: Neighbours, hierarchy: Hierarchy, totals: Integers | None) -> Tallytree:
        """Return the mechanism with the leaves' measurement chosen: lists if a leaf has less than 1/4 group per size.

        A list errs where groups have equal sizes, and cumulative counts over the sizes that no group has. Posteriors of
        lists gain more from the shapes around them than `at_least` counts do. (On race by block, with 31 blocks to a
        leaf, lists had 0.5–0.8 of the error with a largest size of 200, and were even with one of 60.) With about as
        many sizes as groups, `at_least` counts are measured and estimated by their posterior, like lists. Without
        public totals, no public fact decides. If sizes are few, lists would not pay, so `at_least` counts are measured.
        Otherwise totals are measured first, and the same rule uses them.

        Where counts of single sizes have less noise than `at_least` counts (`estimates_counts`), all levels measure
        counts, with their total where it is private.
        """
        self = replace(self, relation=neighbours)
        if self.settings.bands is not None:
            self = self.set(bands=up_to(self.settings.bands, neighbours.max_size))
        if neighbours.categories.members_decide:
            share, way = self.settings.all_share or ALL_SHARE, self.settings.leaves or AT_LEAST
            return self.set(leaves=way, all_share=share)
        if self.settings.leaves == BELIEFS and totals is not None:
            most = int(totals[hierarchy.level_slice(hierarchy.depth - 1)].max())
            if most * neighbours.max_size > MOST_STATES:
                raise SpecError(
                    f"`beliefs` need a state for each number of groups and each size, here up to {most:,} × "
                    f'{neighbours.max_size:,} in one leaf, more than {MOST_STATES:,}; say leaves = "at_least"'
                )
        if self.settings.leaves == COUNTS or (
            estimates_counts(neighbours) and not any(self.settings._replace(borrow=False))
        ):
            return self.set(leaves=COUNTS if neighbours.public_totals else COUNTS_TOTAL)
        if self.settings.leaves is not None:
            return self
        besides = self.settings.entities_share is not None or self.settings.all_share is not None
        if besides or neighbours.groups_listed:  # these need at_least counts
            return self.set(leaves=AT_LEAST)
        if totals is not None:
            leaves = hierarchy.level_slice(hierarchy.depth - 1)
            groups = float(totals[leaves].mean())
            return self.set(leaves=choose_leaves(groups, int(totals[leaves].max()), neighbours.max_size))
        if self.settings.lists_below is None:
            if self.settings.bands is not None or neighbours.max_size < FEWEST_SIZES:
                return self.set(leaves=AT_LEAST)
            self = self.set(lists_below=Fraction(neighbours.max_size, SIZES_PER_GROUP))
        return self.set(totals_share=self.settings.totals_share or FIRST_SHARE)

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse data that cannot be released, from public facts alone: before any budget is spent."""
        super().fits(neighbours, hierarchy, plan)
        share = self.settings.totals_share
        if self.settings.bands is not None:
            up_to(self.settings.bands, neighbours.max_size)
        check_by_category(neighbours, self.settings, self._leaves_by_band)
        check_counts(neighbours, self.settings, self._leaves_by_band)
        if self.settings.entities_share is not None and (
            self.settings.bands is not None or {LISTS, BELIEFS} & set(self._leaves_by_band) or share is not None
        ):
            raise SpecError(
                "entities_share needs at_least counts of all sizes with the same noise; leave out bands, "
                "lists, `beliefs` and totals_share, or leave out entities_share: the number of entities then follows "
                "from the sizes"
            )
        if BELIEFS in self._leaves_by_band and not neighbours.public_totals:
            raise SpecError('`beliefs` need public totals, but totals are private; say leaves = "at_least" or "lists"')
        if BELIEFS in self._leaves_by_band and self.settings.bands is not None:
            raise SpecError('`beliefs` need all sizes together; leave out bands, or say leaves = "at_least"')
        if neighbours.public_totals and (share is not None or self.settings.lists_below is not None):
            aside = "lists_below" if share is None else "totals_share"
            raise SpecError(f"totals are public, so {aside} would buy nothing; leave it out")
        if self.settings.lists_below is not None and not (self.settings.leaves is None and self.settings.bands is None):
            raise SpecError("lists_below decides how leaves are measured; leave out leaves and bands, or lists_below")
        if not neighbours.public_totals and share is None and LISTS in self._leaves_by_band:
            raise SpecError(
                "lists of sizes need the number of groups in every region, but totals are private: read with a "
                "groups table if there is a public one, or set aside a share of the budget to measure them "
                "(totals_share, a tenth say)"
            )

    def divided(
        self, hierarchy: Hierarchy, shares: Shares | None, priority: str | None, budget: Budget
    ) -> Shares | None:
        """Return the given shares, or those of a priority (`balanced` by default); None if bands divide the budget."""
        if self.settings.bands is not None:
            if shares is not None or priority is not None:
                raise SpecError("bands already divide the budget over the levels; leave out shares and priority")
            return None
        if shares is not None:
            return choose_shares(hierarchy, shares, priority)

        def divided(way: Leaves) -> tuple[Fraction, ...]:
            given = _by_priority(hierarchy, priority or "balanced", way, budget, self.relation)
            return level_shares(hierarchy, given, some_without=True)

        if self.settings.lists_below is not None:
            return EitherWay(divided(LISTS), divided(AT_LEAST))
        return divided(self.settings.leaves or AT_LEAST)

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Plan to measure every level that has a share, in each band of sizes; the last level must have one.

        If totals are measured, they are those of the lowest level: all others are sums of them.
        """
        divided, last = self.divided(hierarchy, shares, None, budget), hierarchy.depth - 1
        if self.settings.all_share is not None and hierarchy.by.columns:
            one_way = divided.many if isinstance(divided, EitherWay) else divided
            levels = level_shares(hierarchy, one_way, some_without=True)
            return plan_by_category(hierarchy, budget, unit, levels, self.settings.all_share)
        if self.settings.lists_below is None:
            aside, entities = self.settings.totals_share or Fraction(0), self.settings.entities_share or Fraction(0)
            every = self._divisions(hierarchy, divided)
            first = [MeasurementQuery("totals", last, aside)] if aside else []
            sums = [
                MeasurementQuery("entities", level, share * entities) for level, share in enumerate(every[0].shares)
            ]
            left = 1 - aside - entities
            asked = (*first, *(one for one in sums if one.share), *_queries(every, self._leaves_by_band, left))
            return Plan(budget, unit, asked)
        aside = self.settings.totals_share or FIRST_SHARE
        few, many = (divided.few, divided.many) if isinstance(divided, EitherWay) else (divided, divided)
        branches = (
            _queries(self._divisions(hierarchy, one), [way], 1 - aside) for one, way in ((few, LISTS), (many, AT_LEAST))
        )
        rule = BranchRule(last, self.settings.lists_below, *branches)
        return Plan(budget, unit, (MeasurementQuery("totals", last, aside),), rule)

    def _divisions(self, hierarchy: Hierarchy, shares: Shares | None) -> list[Division]:
        """Return the bands of sizes, with the levels' shares in each; one band of all sizes if none are given."""
        if self.settings.bands is not None:
            return divisions(self.settings.bands, hierarchy)
        return [Division(None, level_shares(hierarchy, shares, some_without=True))]

    @property
    def _leaves_by_band(self) -> list[Leaves | None]:
        """Return how leaves are measured in each band."""
        settings = self.settings
        return (
            [settings.leaves] if settings.bands is None else [band.leaves or settings.leaves for band in settings.bands]
        )

    def estimated(self, measurements: Measurements, tell: Tell = nobody) -> Estimate:
        """Run `estimate` and report its progress."""
        return self.estimate(measurements, tell=tell)

    def simulate_truths(self, measurements: Measurements, counts: Integers) -> Callable[[int], Integers]:
        """Return draws of leaves that are as different as their posterior says."""
        return simulate_truths(self.settings, measurements, counts)

    def derive_facts(self, measurements: Measurements) -> FirstStageFacts:
        """Return the length of each list, from the measured totals."""
        tree, measured = measurements.hierarchy, measured_totals(measurements)
        if measured is None:
            return FirstStageFacts()
        return FirstStageFacts(places=tree.aggregate(places_for(measured, measurements.max_size)))


def _queries(every: Sequence[Division], ways: Sequence[Leaves | None], left: Fraction) -> tuple[MeasurementQuery, ...]:
    """Return the measurement queries of sizes, which share the rest of the budget."""
    if any(one.shares[-1] == 0 for one in every):
        raise BudgetError("the lowest level must have a share: all other levels are sums of it")
    return tuple(
        MeasurementQuery(_view(way, lowest=level == len(one.shares) - 1), level, share * left, one.band)
        for one, way in zip(every, ways, strict=True)
        for level, share in enumerate(one.shares)
        if share
    )


def _view(way: Leaves | None, *, lowest: bool) -> View:
    """Return the view of a level, given how leaves are measured."""
    if way == "counts" or way == "counts_total":
        return way
    return "sorted_sizes" if way == LISTS and lowest else "at_least"


def _by_priority(
    hierarchy: Hierarchy, priority: str, leaves: Leaves | None, budget: Budget, relation: Neighbours | None = None
) -> Sequence[Number]:
    """Return shares from the top level down.

    `balanced` is what `mechanisms.budget_allocation` finds. With lists the root has a fifth, to correct the sums of the
    leaves' posteriors, and the leaves have the rest; with posteriors of counts, a tenth. If the budget leaves hardly
    any noise, sums need no correction, and the leaves get all of it. By category, levels have equal shares: regions
    between root and leaves are shrunk too, and the root, which adds up the noise of all categories, would have the
    largest error with less.
    """
    if leaves in (COUNTS, COUNTS_TOTAL) and priority == "balanced":
        sensitivity = Sensitivity(2, 2) if relation is None else relation.sensitivity("counts")
        cap = MOST_LOST
        if leaves == COUNTS_TOTAL:  # the measured total lowers all variances by this factor
            cap = 1.0 if relation is None else sqrt(1 + 1 / relation.max_size)
        return capped_shares(hierarchy, budget, sensitivity, cap)
    if hierarchy.by.columns:  # the sum over all categories at its root is the sum of theirs
        even = priority == "balanced" and leaves not in (LISTS, BELIEFS)
        regions = hierarchy.regions
        return [0, *([1] * regions.depth if even else _by_priority(regions, priority, leaves, budget, relation))]
    depth = hierarchy.depth
    if depth == 1:
        return [1]
    if priority == "upper" and leaves == LISTS:
        return [1] * (depth - 1) + [depth - 1]
    if priority == "upper":
        return priority_shares(hierarchy, "upper")
    priority_shares(hierarchy, priority)  # refuses an unknown priority
    if leaves in (LISTS, BELIEFS):
        alone = priority == "leaves" or hardly_noisy(budget)
        return [0 if alone else 1] + [0] * (depth - 2) + [4 if leaves == LISTS else 9]
    if priority == "leaves":
        return [9] + [1] * (depth - 2) + [100 - 9 - (depth - 2)] if depth <= 12 else [1] * (depth - 1) + [9 * depth]
    return balanced_shares(hierarchy, budget)


def check_counts(neighbours: Neighbours, settings: Settings, ways: Sequence[Leaves | None]) -> None:
    """Refuse options that cannot be combined with counts of single sizes."""
    if not {COUNTS, COUNTS_TOTAL} & set(ways):
        return
    beside = settings._replace(leaves=None, borrow=False)
    if any(beside) or neighbours.categories.members_decide:
        raise SpecError(
            "counts of single sizes are measured alone, with the same noise for all sizes: leave out bands, "
            "totals_share, lists_below, entities_share, all_share and categories that members decide, or say "
            'leaves = "at_least"'
        )
    if neighbours.max_size > MOST_COUNTED:
        raise SpecError(
            f"counts of single sizes are estimated up to max_size = {MOST_COUNTED}, and it is {neighbours.max_size:,}; "
            'say leaves = "at_least", or use pgsr-hierarchical-dp'
        )


def check_by_category(neighbours: Neighbours, settings: Settings, ways: Sequence[Leaves | None]) -> None:
    """Refuse options that cannot be combined with the data's categories."""
    categories, summed = neighbours.categories, settings.all_share is not None
    if summed and not categories.columns:
        raise SpecError("all_share measures the sums over categories, but the data have no categories; leave it out")
    first = settings.totals_share is not None or settings.lists_below is not None
    others = LISTS in ways or first or settings.entities_share is not None
    if (summed or categories.members_decide) and (others or BELIEFS in ways or settings.bands is not None):
        raise SpecError(
            "sums over categories are measured besides the details (all_share; always where members decide a "
            "category): leave out lists, `beliefs`, bands, totals_share, lists_below and entities_share, which cannot "
            "be combined with it"
        )
    if neighbours.groups_listed and others:
        raise SpecError(
            "numbers of groups are public by region and not by category here: leave out lists, totals_share, "
            "lists_below and entities_share, which cannot be combined with that"
        )


def plan_by_category(
    hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Sequence[Fraction], all_share: Fraction
) -> Plan:
    """Plan sums and details on every level that has a share, below the root over all categories."""
    if shares[0] != 0:
        raise BudgetError(
            f"level {hierarchy.levels[0]!r} cannot have its own share: the sums of level "
            f"{hierarchy.levels[1]!r} are the same number, and have one"
        )
    if shares[-1] == 0:
        raise BudgetError("the lowest level must have a share: all other levels are sums of it")
    asked = [(level, share) for level, share in enumerate(shares) if share]
    sums = [MeasurementQuery("at_least", level, share * all_share, summed=True) for level, share in asked]
    view: View = "counts" if hierarchy.by.members_decide else "at_least"
    details = [MeasurementQuery(view, level, share * (1 - all_share)) for level, share in asked]
    return Plan(budget, unit, (*sums, *details))


ROWS: Sequence[Mechanism] = (
    Tallytree(
        name="tallytree",
        symbol="",
        paper="this project: docs/mechanisms.md#tallytree",
        view="at_least",
        estimate=partial(estimate_top_down, USUAL),
        takes=Settings._fields,
        cost="a few times the noise-sampling time; lists take groups × sizes steps",
        use="entities, or whole groups with up to 64 sizes, as the privacy unit",
        keeps=ALL_TOTALS,
        keeps_totals=True,
    ),
)
