"""Predictions for one plan: errors by simulation, and half-widths of guaranteed intervals exactly.

Errors come from simulated data of the prior, measured and estimated as a release would be. Nothing private is involved,
so nothing is charged. Within one replicate all scenarios use the same simulated data, so their differences are more
precise than their errors. A large tree is simulated in part.

Half-widths follow from the plan's noise alone. The half-width of a level is that of its widest cell: no interval of the
level extends further to either side of an unbiased estimate, for any data. From the *published* count, which is
smoothed, it can reach further, because an interval always contains its count (`Reach`). If many sizes are counted,
`guaranteed` may find smaller upper ends from the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import earth_movers_distance, l1_distance
from tallytree.estimate.intervals.guaranteed import FEWEST_SIZES, WINDOW_PART, guaranteed, guaranteed_sums
from tallytree.estimate.intervals.interval import REACH_SHARE, Intervals, Kind, checked_level, reaches, recommended
from tallytree.estimate.intervals.linear import LINEAR_VIEWS, cell_columns
from tallytree.estimate.intervals.tails import Errors, Noise
from tallytree.estimate.intervals.typical import factor_for
from tallytree.estimate.intervals.unions import Unions
from tallytree.estimate.least_squares import TreeVariances
from tallytree.mechanisms import Mechanism, prepare
from tallytree.mechanisms.budget_allocation import Shares
from tallytree.mechanisms.mechanism import sizes_of
from tallytree.planning.prior import ExpectedCounts, Prior, sum_up
from tallytree.privacy.budget import NOISE_FOR, Budget, scale_for
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise import NoiseKind, variance_of
from tallytree.privacy.plan import FIRST, Band, Plan
from tallytree.privacy.run import measure
from tallytree.tables.group_sizes import GroupSizes, Sealed

SURE = 0.99  # the probability that a predicted reach is large enough
TYPICAL_MARGIN = 1.4
NEAR = 0.05  # of a count: published numbers this close are called within 5 %
CELLS_IN_ALL = 200_000  # limit for each mechanism and split, over all replicates
REPLICATES = (3, 25)  # minimum and maximum
MOST_CELLS = 500_000  # limit for simulated regions × sizes


@dataclass(frozen=True)
class Scenario:
    """A mechanism with all its settings, a budget and its allocation over the levels."""

    mechanism: Mechanism
    budget: Budget  # with its noise decided
    shares: Shares | None
    asked: Budget | None = None  # the budget as it was given, if another one follows from it


@dataclass(frozen=True)
class Prediction:
    """The predictions for one level: errors are means per region, with standard errors from the simulation."""

    mechanism: str
    split: str
    shares: tuple[Fraction, ...]  # of the levels, from the top down; 0 for a level that is not measured
    budget: Budget
    level: str
    depth: int
    l1: float
    l1_standard_error: float
    emd: float
    emd_standard_error: float
    half_width: float | None  # of the widest guaranteed interval for one count, around an unbiased estimate; or None
    reach: float | None  # most recommended intervals of the level are within count ± reach; depends on the prior
    published_as_none: float  # of the regions with groups, the part whose published counts are all 0; likewise
    within_5_percent: float  # of the counts that are not 0, the part that is published within 5 %; likewise

    def plain(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "shares": [str(share) for share in self.shares], "budget": str(self.budget)}


@dataclass(frozen=True, eq=False)
class PublicFacts:
    """The facts known before data are opened; `leaf_totals` are the numbers of groups, if these are public."""

    hierarchy: Hierarchy
    neighbours: Neighbours
    leaf_totals: Integers | None = None

    __repr__ = briefly

    @cached_property
    def totals(self) -> Integers | None:
        """Return the public numbers of groups of all regions."""
        return None if self.leaf_totals is None else self.hierarchy.aggregate(self.leaf_totals)

    def expect(self, prior: Prior) -> ExpectedCounts:
        """Return a prior's expected counts for such data."""
        first_size, max_size = 0 if self.neighbours.public_totals else 1, self.neighbours.max_size
        return prior.fitted(self.hierarchy, first_size=first_size, max_size=max_size, leaf_totals=self.leaf_totals)

    def scenario(self, chosen: Mechanism, budget: Budget, shares: Shares | None, priority: str | None) -> Scenario:
        """Return the scenario of a prepared mechanism with its given shares."""
        leaves = chosen.leaves_only
        return Scenario(chosen, budget, None if leaves else chosen.divided(self.hierarchy, shares, priority, budget))

    def prepare(
        self,
        mechanism: str,
        budget: Budget,
        options: Mapping[str, Any] | None = None,
        *,
        shares: Shares | None = None,
        priority: str | None = None,
    ) -> tuple[Scenario, Plan]:
        """Return what a release would use: the mechanism, its shares and its plan; or raise its error."""
        chosen, asked = prepare(
            mechanism,
            options,
            neighbours=self.neighbours,
            hierarchy=self.hierarchy,
            totals=self.totals,
            budget=budget,
            shares=shares,
            priority=priority,
        )
        return replace(self.scenario(chosen, asked.budget, shares, priority), asked=budget), asked


@dataclass(frozen=True)
class Effort:
    """The number of simulations, and the largest number of cells (regions × sizes) of a tree."""

    replicates: int
    most_cells: int = MOST_CELLS

    @classmethod
    def usual(
        cls,
        facts: PublicFacts,
        most_cells: int = MOST_CELLS,
        in_all: int = CELLS_IN_ALL,
        bounds: tuple[int, int] = REPLICATES,
    ) -> Effort:
        """Return the usual effort: fewer simulations of larger trees."""
        cells = min(most_cells, len(facts.hierarchy) * sizes_of(facts.neighbours))
        return cls(min(max(in_all // cells, bounds[0]), bounds[1]), most_cells)


@dataclass(frozen=True, eq=False)
class Simulation:
    """Mean errors per region, `[scenarios, replicates, levels]`, the levels those of `name_levels`."""

    l1: Floats
    emd: Floats
    tree: Hierarchy  # the simulated tree
    reach: Floats  # `[scenarios, levels]`: the reach of recommended intervals; NaN if unknown
    published_as_none: Floats  # `[scenarios, levels]`: the part of regions with groups that are published as 0
    within_5_percent: Floats  # `[scenarios, levels]`: the part of counts above 0 that are published within 5 %

    __repr__ = briefly


def simulate_releases(
    expected: ExpectedCounts,
    neighbours: Neighbours,
    scenarios: Sequence[Scenario],
    effort: Effort,
    *,
    confidence: float | None = None,
    progress: Progress = silent,
) -> Simulation:
    """Run every scenario on simulated data, on a smaller tree if the hierarchy has too many cells.

    With a level of `confidence` the reach of its intervals is predicted too.

    A mechanism that measures only leaves adds up their errors, and clamping gives most of them one sign. So its errors
    on a smaller tree are multiplied by the ratio of a region's real number of leaves to that in the smaller tree.
    """
    whole, sizes = expected.hierarchy, expected.max_size - expected.first_size + 1
    tree, leaves = shrink_tree(whole, expected.totals, max(2 * whole.depth, effort.most_cells // sizes))
    shape = (len(scenarios), effort.replicates, len(name_levels(tree)))
    per_level = np.full((shape[0], shape[2]), np.nan)
    nothing = np.zeros_like(per_level)
    found = Simulation(np.empty(shape), np.empty(shape), tree, per_level, nothing, nothing.copy())
    reaching = [Reach(shape[2]) for _ in scenarios]
    lost = _leaves_per_region(whole) / _leaves_per_region(tree)
    lost = np.concatenate([lost, lost[2 : 2 + shape[2] - tree.depth]])  # the same numbers over all categories
    for replicate in range(effort.replicates):
        # The first one compiles or loads the kernels, so its time says nothing about that of the others.
        others = Stage("simulating", replicate - 1, effort.replicates - 1)
        progress(others if replicate else Stage("simulating the first release"))
        counts = expected.sample(leaves)
        data, truth = _make_data(counts, tree, neighbours), tree.aggregate(counts)
        true_parts = split_by_level(truth, tree)
        for number, scenario in enumerate(scenarios):
            measurements = _measure(data, neighbours, scenario)
            estimate = scenario.mechanism.estimate(measurements).counts
            wide = np.zeros_like(truth)  # a measured largest size may have cut the columns short
            wide[:, : estimate.shape[1]] = estimate
            parts = split_by_level(wide, tree)
            if confidence is not None:
                reaching[number].add(_guaranteed(measurements, estimate, confidence), parts, true_parts)
            factors = lost if scenario.mechanism.leaves_only else np.ones(shape[2])
            for level, (one, other) in enumerate(zip(parts, true_parts, strict=True)):
                errors = l1_distance(one, other), earth_movers_distance(one, other, expected.first_size)
                found.l1[number, replicate, level] = factors[level] * errors[0].mean()
                found.emd[number, replicate, level] = factors[level] * errors[1].mean()
                found.published_as_none[number, level] += _share_published_as_none(one, other) / effort.replicates
                found.within_5_percent[number, level] += within_5_percent(one, other) / effort.replicates
    if confidence is not None:
        found.reach[:] = [one.found(confidence) for one in reaching]
    return found


# -------------------------------------------------------------------- how far intervals will reach


class Reach:
    """The reach of the recommended intervals of each level around the published counts, from simulated releases.

    *Guaranteed* intervals are those of the simulated releases. The predicted reach is an order statistic of all their
    reaches on a level: a new reach exceeds it with a probability of at most 1 − `REACH_SHARE`, and that statement
    itself holds with a probability of `SURE` over the simulation, if reaches are independent.

    *Typical* intervals are a multiple of the root mean square error of a cell in replicates of the released counts. The
    prediction uses that of the simulated releases themselves. It varies between releases, so the prediction is
    multiplied by `TYPICAL_MARGIN`. That factor was chosen on simulated tables.
    """

    def __init__(self, levels: int) -> None:
        self._sure: list[list[Integers]] = [[] for _ in range(levels)]
        self._squares: list[Floats] = []
        self._releases = 0
        self._guaranteed = True

    def add(self, sure: list[Intervals] | None, published: list[Integers], truth: list[Integers]) -> None:
        """Add one release, level by level."""
        squares = [(one - other).astype(np.float64) ** 2 for one, other in zip(published, truth, strict=True)]
        before = self._squares or [np.zeros_like(one) for one in squares]
        self._squares = [one + other for one, other in zip(before, squares, strict=True)]
        self._releases += 1
        self._guaranteed &= sure is not None
        for level, one in enumerate(sure or ()):
            self._sure[level].append(reaches(one, published[level][:, : one.lower.shape[1]]).ravel())

    def found(self, confidence: float) -> list[float]:
        """Return the reach to expect on each level."""
        result = []
        for reached, squares in zip(self._sure, self._squares, strict=True):
            deviations = np.sqrt(squares / self._releases)
            half = np.maximum(1.0, np.ceil(factor_for(confidence) * deviations - 1e-9))
            kinds: dict[Kind, int] = {"typical": math.ceil(TYPICAL_MARGIN * _order_statistic(half.ravel()))}
            if self._guaranteed:
                kinds["guaranteed"] = _order_statistic(np.concatenate(reached))
            result.append(float(kinds[recommended(kinds) or "typical"]))
        return result


def _order_statistic(values: Floats | Integers) -> int:
    """Return a large order statistic: a new value is below it with probability `REACH_SHARE`, with certainty `SURE`."""
    number = len(values)
    spread = NormalDist().inv_cdf(SURE) * math.sqrt(number * REACH_SHARE * (1 - REACH_SHARE))
    return int(np.sort(values)[min(number, math.ceil(number * REACH_SHARE + spread)) - 1])


def split_by_level(counts: NDArray[Any], tree: Hierarchy) -> list[NDArray[Any]]:
    """Return the counts of each of the `name_levels`."""
    found = [counts[tree.level_slice(level)] for level in range(tree.depth)]
    if tree.by.columns:
        sums, regions = tree.over_categories(counts), tree.regions
        found += [sums[regions.level_slice(level)] for level in range(1, regions.depth)]
    return found


def _guaranteed(measurements: Measurements, counts: Integers, confidence: float) -> list[Intervals] | None:
    """Return guaranteed intervals of each of the `name_levels`, or None."""
    found, tree = guaranteed(measurements, counts, level=confidence), measurements.hierarchy
    if found is None:
        return None
    lower, upper = split_by_level(found.lower, tree), split_by_level(found.upper, tree)
    if tree.by.columns:
        sums, regions = guaranteed_sums(measurements, counts, Unions.of_margins(tree), found), tree.regions
        for ends, of_sums in ((lower, sums.lower), (upper, sums.upper)):
            over = [of_sums[: len(regions)][regions.level_slice(level)] for level in range(regions.depth)]
            ends[0], ends[tree.depth :] = over[0], over[1:]
    return [Intervals(low, high, confidence, "guaranteed") for low, high in zip(lower, upper, strict=True)]


def _share_published_as_none(published: Integers, truth: Integers) -> float:
    """Return the part of the regions with groups that is published without any."""
    there = truth.sum(axis=1) > 0
    return float(np.mean(published[there].sum(axis=1) == 0)) if there.any() else 0.0


def within_5_percent(published: Integers, truth: Integers) -> float:
    """Return the part of the counts above 0 that is published within 5 %."""
    there = truth > 0
    return float(np.mean(np.abs(published - truth)[there] <= NEAR * truth[there])) if there.any() else 1.0


def name_levels(tree: Hierarchy) -> tuple[str, ...]:
    """Return the levels with predicted errors; with categories also those of the regions over all categories."""
    if not tree.by.columns:
        return tree.levels
    return (*tree.levels, *(f"{level}, over all" for level in tree.regions.levels[1:]))


def _leaves_per_region(tree: Hierarchy) -> Floats:
    """Return, for each level, the mean number of leaves of its regions."""
    return tree.leaf_count / np.diff(tree.level_starts)


def _make_data(counts: Integers, tree: Hierarchy, neighbours: Neighbours) -> GroupSizes:
    """Return simulated counts in the form that `measure` takes, under the same neighbour relation."""
    listed = neighbours.groups_listed
    return GroupSizes(
        hierarchy=tree,
        max_size=neighbours.max_size,
        counts=Sealed(counts),
        leaf_totals=counts.sum(axis=1) if neighbours.public_totals else None,
        listed_totals=counts.sum(axis=1).reshape(len(tree.by), -1).sum(axis=0) if listed else None,
        quantity_bound=neighbours.quantity_bound,
        rows_per_entity=neighbours.rows_per_entity,
        entity_column=neighbours.entity_column,
        groups_were_split=neighbours.groups_were_split,
    )


def _measure(data: GroupSizes, neighbours: Neighbours, scenario: Scenario) -> Measurements:
    mechanism = scenario.mechanism
    plan = mechanism.plan(data.hierarchy, scenario.budget, neighbours.unit, scenario.shares)
    return measure(data, plan, derive_facts=mechanism.derive_facts)


def shrink_tree(hierarchy: Hierarchy, leaf_totals: Floats, most_regions: int) -> tuple[Hierarchy, Integers]:
    """Return a part of the hierarchy with all its levels and about `most_regions` regions at most, and its leaves.

    Every region keeps at most m children, spread evenly over their siblings by expected total, and m is as large as the
    limit allows; small families are kept completely. Errors depend on a region's own noise and on its children's, so
    little is lost: with m children a region's sum over them has variance m against the 1 of its own measurement, so
    from n children to m its variance changes by less than a part 1/m.
    """
    if len(hierarchy) <= most_regions:
        return hierarchy, np.arange(hierarchy.leaf_count)
    if hierarchy.by.columns:  # the same regions of each category
        count, regions = len(hierarchy.by), hierarchy.regions
        totals = leaf_totals.reshape(count, -1).sum(axis=0)
        part, leaves = shrink_tree(regions, totals, max(2 * regions.depth, most_regions // count))
        every = (np.arange(count)[:, np.newaxis] * regions.leaf_count + leaves).ravel()
        return part.by_category(hierarchy.by), every
    first = int(hierarchy.level_starts[-2])
    family, rank = _ranks(hierarchy, leaf_totals)
    low, high = 1, int(family.max())
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (
            (middle, high) if _kept(hierarchy, family, rank, middle).sum() <= most_regions else (low, middle - 1)
        )
    kept = np.flatnonzero(_kept(hierarchy, family, rank, low))
    place = np.full(len(hierarchy), -1)
    place[kept] = np.arange(len(kept))
    parents = hierarchy.parents[kept]
    tree = Hierarchy.from_layout(
        hierarchy.levels,
        [hierarchy.names[region] for region in kept],
        [hierarchy.ids[region] for region in kept],
        [-1, *place[parents[1:]].tolist()],
        hierarchy.carried[kept].tolist(),
    )
    return tree, kept[kept >= first] - first


def _ranks(hierarchy: Hierarchy, leaf_totals: Floats) -> tuple[Integers, Integers]:
    """Return for every region its number of siblings, including itself, and its rank among them by expected total."""
    totals = sum_up(hierarchy, leaf_totals)
    family, rank = np.ones(len(hierarchy), dtype=np.int64), np.zeros(len(hierarchy), dtype=np.int64)
    parents = hierarchy.parents[1:]
    family[1:] = np.diff(hierarchy.child_starts)[parents]
    order = np.lexsort((totals[1:], parents))  # parents never decrease, so families keep their order
    rank[1:][order] = np.arange(len(order)) - (hierarchy.child_starts[parents] - 1)
    return family, rank


def _kept(hierarchy: Hierarchy, family: Integers, rank: Integers, most: int) -> NDArray[np.bool_]:
    """Return which regions stay if each family keeps `most`, evenly spaced by rank."""
    parts = np.minimum(family, most)
    kept = ((2 * rank + 2) * parts + family) // (2 * family) > (2 * rank * parts + family) // (2 * family)
    kept[0] = True
    for level in range(1, hierarchy.depth):
        regions = hierarchy.level_slice(level)
        kept[regions] &= kept[hierarchy.parents[regions]]
    return kept


# -------------------------------------------------------------------- half-widths


@dataclass(frozen=True, eq=False)
class CellErrors:
    """The error distribution of one count, unbiased and linear in a plan's measurements, for every region."""

    law: TreeVariances
    kind: NoiseKind
    scales: Mapping[int, Fraction]  # the noise scale of each measured level
    columns: Floats  # the weights of the columns in a count
    many_sizes: bool  # then `guaranteed` keeps a part of the error probability for windows

    __repr__ = briefly

    @classmethod
    def of(
        cls, hierarchy: Hierarchy, neighbours: Neighbours, plan: Plan, band: Band | None = None
    ) -> CellErrors | None:
        """Return the errors; None unless the plan measures counts or `at_least` counts of the leaves, of all sizes
        together.

        With a band, the errors are for its sizes, as if the cells beside it were measured like those within.
        """
        last = hierarchy.depth - 1
        asked = [query for query in plan.queries if query.sizes == band and not query.summed]
        of_leaves = {query.view for query in asked if query.level == last}
        view = next((view for view in LINEAR_VIEWS if view in of_leaves), None)
        if view is None:
            return None
        kind, sensitivity = NOISE_FOR[plan.budget.currency], neighbours.sensitivity(view)
        scales = {query.level: scale_for(kind, sensitivity, plan.cost(query)) for query in asked if query.view == view}
        variances = [variance_of(kind, scales[at]) if at in scales else math.inf for at in range(hierarchy.depth)]
        # A count is a difference of two at_least counts, but the largest size (and size 0) is a single one.
        kinds = cell_columns(view, neighbours.max_size)
        return cls(
            TreeVariances.of(hierarchy, variances),
            kind,
            scales,
            kinds[-1 if neighbours.max_size > 1 else 0],
            view == "at_least" and neighbours.max_size >= FEWEST_SIZES,
        )

    def deviations(self) -> tuple[float, ...]:
        """Return the largest standard deviation of a count on each level."""
        tree = self.law.hierarchy
        largest = [float(self.law.variance[tree.level_slice(level)].max()) for level in range(tree.depth)]
        return tuple(math.sqrt(float(self.columns @ self.columns) * variance) for variance in largest)

    def half_widths(self, confidence: float) -> tuple[float, ...]:
        """Return the half-width of the widest guaranteed interval on each level."""
        chance = (1 - checked_level(confidence)) / 2 * (1 - WINDOW_PART if self.many_sizes else 1)
        tree = self.law.hierarchy
        noise = {level: Noise(self.kind, scale) for level, scale in self.scales.items()}
        half = Errors.of_regions(self.law, noise).over_columns(self.columns).reach(chance)
        return tuple(float(half[tree.level_slice(level)].max()) for level in range(tree.depth))


def half_widths(
    hierarchy: Hierarchy, neighbours: Neighbours, plan: Plan, *, confidence: float = 0.95
) -> tuple[float, ...] | None:
    """Return, for each level from the top down, the half-width of a guaranteed interval for one count.

    None if the plan measures neither counts nor `at_least` counts of the leaves in some size band: there the widths
    depend on the data. With bands it is the widest of them (a count between two bands is the difference of a number of
    each, and its error lies between). Additional measured sums over categories do not count.
    """
    bands = {query.sizes for query in plan.queries if query.view not in FIRST}
    found = [CellErrors.of(hierarchy, neighbours, plan, band) for band in bands]
    widths = [errors.half_widths(confidence) for errors in found if errors is not None]
    if len(widths) < len(found):
        return None
    return tuple(max(of_level) for of_level in zip(*widths, strict=True))
