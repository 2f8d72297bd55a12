"""The mechanisms of the count-of-counts paper (Kuo and others, 2018): `naive`, `coc-matching` and `bottom-up`.

Every region is estimated separately from the view that its level's method measures (Section 4). Then the levels are
made consistent: by matching groups of a region with groups of the regions below it (Section 5), or, bottom-up, by
adding leaves up. Different here: any number of levels, with a method for each; the exact variance of the noise; and, if
the list of groups is not public, totals that are measured with their own share of the budget (the paper's footnote 5),
as a largest size can be (footnote 6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from math import ceil, sqrt
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import at_least, counts_from_at_least
from tallytree.estimate.isotonic import counts_of, non_decreasing_in_place, non_increasing
from tallytree.estimate.matching import SPREAD_RANGE, match_groups
from tallytree.estimate.nearest import nearest_consistent
from tallytree.estimate.simplex import nearest_with_total
from tallytree.mechanisms.budget_allocation import Shares, level_shares
from tallytree.mechanisms.mechanism import Estimate, Optioned, precisions, read_share
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import BESIDE_SIZES, FirstStageFacts, Measurement, Measurements, list_starts
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, View
from tallytree.privacy.plan import MeasurementQuery, Plan

DEVIATIONS_ABOVE_LARGEST = 5  # standard deviations of noise by which a measured largest size is raised
SIZES_PER_GROUP = 10  # with fewer groups than a public largest size divided by this, sizes count as sparse


class Method(NamedTuple):
    """How one region is estimated on its own."""

    symbol: str
    view: View
    power: int  # the power of the deviations that are summed up
    spread: int  # the variance of a run's size, times its groups, in variances of the noise (Section 5.1)


METHODS = {
    "cumulative": Method("Hc", "at_least", 1, 2),
    "cumulative-l2": Method("Hc", "at_least", 2, 2),
    "sorted-sizes": Method("Hg", "sorted_sizes", 2, 1),
    "sorted-sizes-l1": Method("Hg", "sorted_sizes", 1, 1),
    "naive": Method("H", "counts", 2, 0),
}
LEAVES_METHOD: dict[View, str] = {
    "at_least": "cumulative",
    "sorted_sizes": "sorted-sizes",
    "counts": "naive",
    "counts_total": "naive",
}
MATCHED = tuple(name for name in METHODS if name != "naive")

_COC = "Kuo, Chiu, Kifer, Hay, Machanavajjhala: Differentially Private Hierarchical Count-of-Counts Histograms (2018)"
UNMATCHED = "with merge = none levels are estimated separately, so regions need not add up to the region above them"
_FIRST = "before that, if requested, totals and the largest size"


def _views(methods: Sequence[str]) -> str:
    """Return the views that the methods work on, each once, with the methods' names."""
    named: dict[str, list[str]] = {}
    for name in methods:
        named.setdefault(METHODS[name].view, []).append(name)
    return ", ".join(f"{view} ({', '.join(names)})" for view, names in named.items())


class Settings(NamedTuple):
    """The options of the count-of-counts mechanisms; each mechanism takes some of them."""

    methods: tuple[str, ...] | str | None = None  # from the top level down, or one for all; None: from public facts
    method: str = "cumulative"  # of the leaves
    merge: str = "weighted"  # or "plain", or "none" in experiments
    totals_share: Fraction | None = None  # of the budget, for private totals
    largest_share: Fraction | None = None  # of the budget, for a largest size that is not public

    @property
    def aside(self) -> Fraction:
        """Return the share that is set aside for totals and the largest size."""
        return (self.totals_share or Fraction(0)) + (self.largest_share or Fraction(0))


_USUAL, _NAIVE = Settings(), Settings(method="naive")


@dataclass(frozen=True)
class CountOfCounts(Optioned):
    """A mechanism with a method for each level that it measures."""

    keeps: str = "regions add up; every region's total where it is public or was measured first"
    keeps_totals: bool = True
    settings: Settings = _USUAL

    @staticmethod
    def read_option(option: str, value: Any) -> Any:
        """Return an option's value as the settings hold it; refuse a wrong one with a SpecError."""
        return _checked(option, value)

    def set(self, **changed: Any) -> Self:
        """Return the mechanism with some of its settings changed."""
        found = super().set(**changed)
        if found.settings.aside >= 1:
            raise SpecError("totals_share and largest_share leave nothing of the budget for the sizes themselves")
        return found

    @property
    def _methods(self) -> tuple[str, ...]:
        """Return the methods of the measured levels, from the top down; empty if they are still to be chosen."""
        methods = self.settings.methods or ()
        return (methods,) if isinstance(methods, str) else methods

    @property
    def variant(self) -> str:
        """Return the paper's name for the choice of methods."""
        return "×".join(METHODS[name].symbol for name in self._methods) or "a method for each level, from public facts"

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse data that cannot be released, from public facts alone: before any budget is spent."""
        super().fits(neighbours, hierarchy, plan)
        settings = self.settings
        if neighbours.public_totals and settings.totals_share is not None:
            raise SpecError("totals are public, so totals_share would buy nothing; leave it out")
        if not neighbours.public_totals and settings.totals_share is None and self._needs_totals:
            raise SpecError(
                f"{self.name} ({self.variant}) needs the number of groups in every region, and here totals are "
                "private: read with a groups table if there is a public one, or set aside a share of the budget to "
                "measure them (totals_share, a tenth say)"
            )
        if settings.largest_share is not None:
            neighbours.sensitivity("largest")
        if hierarchy is not None:
            self._check_levels(hierarchy)

    def _check_levels(self, hierarchy: Hierarchy) -> None:
        methods = self.settings.methods
        if isinstance(methods, tuple) and len(methods) != hierarchy.depth:
            raise SpecError(
                f"{self.name} takes one method for each level ({', '.join(hierarchy.levels)}), not {len(methods)}"
            )

    @property
    def _needs_totals(self) -> bool:
        return True

    def derive_facts(self, measurements: Measurements) -> FirstStageFacts:
        """Return consistent totals and a largest size, from their measurements."""
        return FirstStageFacts(_totals(measurements), _largest(measurements))

    def _queries(self, sizes: Sequence[MeasurementQuery]) -> tuple[MeasurementQuery, ...]:
        """Return the queries of sizes, after those of totals and the largest size that the settings require."""
        settings = self.settings
        first = []
        if settings.largest_share is not None:
            first.append(MeasurementQuery("largest", 0, settings.largest_share))
        if settings.totals_share is not None:
            first += [MeasurementQuery("totals", ask.level, ask.share * settings.totals_share) for ask in sizes]
        return (*first, *(replace(ask, share=ask.share * (1 - settings.aside)) for ask in sizes))


@dataclass(frozen=True)
class Matching(CountOfCounts):
    """`coc-matching`: every level is measured, and regions are matched with those below them."""

    @property
    def measures(self) -> str:
        """Return what it measures, in words."""
        return f"on every level, what its method works on: {_views(MATCHED)}; {_FIRST}"

    def suited_to(self, neighbours: Neighbours, hierarchy: Hierarchy, totals: Integers | None) -> CountOfCounts:
        """Return the mechanism with a method for each level, chosen from public facts if none is given."""
        if isinstance(self.settings.methods, tuple):
            return self
        one = self.settings.methods
        if one is None:
            return self.set(methods=methods_for(hierarchy, totals, neighbours.max_size))
        return self.set(methods=_each_level(one, hierarchy.depth))

    def set(self, **changed: Any) -> Self:
        """Return the mechanism with some of its settings changed; levels that are not matched cannot be released."""
        found = super().set(**changed)
        return (
            replace(found, refused=UNMATCHED, keeps="every region's total") if found.settings.merge == "none" else found
        )

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Plan to measure each level with the view of its method."""
        self._check_levels(hierarchy)
        methods = _each_level(self.settings.methods or "cumulative", hierarchy.depth)
        parts = level_shares(hierarchy, shares)
        asks = [MeasurementQuery(METHODS[name].view, level, parts[level]) for level, name in enumerate(methods)]
        return Plan(budget, unit, self._queries(asks))


@dataclass(frozen=True)
class Leaves(CountOfCounts):
    """`bottom-up`: the whole budget measures the leaves, which are then added up."""

    leaves_only: ClassVar[bool] = True

    @property
    def measures(self) -> str:
        """Return what it measures, in words."""
        methods = tuple(METHODS) if "method" in self.takes else (self.settings.method,)
        return f"on the lowest level, what its method works on: {_views(methods)}; {_FIRST}"

    @property
    def _methods(self) -> tuple[str, ...]:
        return (self.settings.method,)

    @property
    def _needs_totals(self) -> bool:
        return METHODS[self.settings.method].view != "at_least"

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Return a plan of one query for the lowest level."""
        if shares is not None:
            raise SpecError(f"{self.name} spends its whole budget on the lowest level: it takes no shares")
        ask = MeasurementQuery(METHODS[self.settings.method].view, hierarchy.depth - 1, Fraction(1))
        return Plan(budget, unit, self._queries([ask]))


@dataclass(frozen=True)
class Naive(Leaves):
    """`naive`: one method measures a single region."""

    def _check_levels(self, hierarchy: Hierarchy) -> None:
        if hierarchy.depth > 1:
            raise SpecError(
                f"naive is for data with a single region, and these have {hierarchy.depth} levels; use coc-matching, "
                "bottom-up or auto"
            )


def by_matching(settings: Settings, measurements: Measurements) -> Estimate:
    """Estimate as in Section 5: groups of the regions' own estimates are matched and merged from the top down, then
    added up.
    """
    hierarchy = measurements.hierarchy
    methods: Sequence[str | None] = (
        (None,) * hierarchy.depth if settings.methods is None else _each_level(settings.methods, hierarchy.depth)
    )
    if len(methods) != hierarchy.depth:
        raise SpecError(f"there are {len(methods)} methods for {hierarchy.depth} levels; give one for each")
    least, most = SPREAD_RANGE  # floats cannot distinguish smaller variances from zero
    alone, spreads = [], []
    for level, name in enumerate(methods):
        part = measurements.on_level(level)
        method = _method(part, name)
        alone.append(_alone(part, method, measurements))
        spreads.append(min(max(method.spread * part.variance, least), most))
    if settings.merge == "none":
        return Estimate(np.concatenate(alone), "each region's own estimate is optimal; levels need not agree")
    counts = match_groups(np.concatenate(alone), hierarchy, spreads=spreads, weighted=settings.merge == "weighted")
    return Estimate(counts, "each region's own estimate is optimal, and so are the matchings with those below")


def _each_level(methods: tuple[str, ...] | str, depth: int) -> tuple[str, ...]:
    return (methods,) * depth if isinstance(methods, str) else methods


def by_leaves(settings: Settings, measurements: Measurements) -> Estimate:
    """Estimate the leaves and add them up."""
    tree, last = measurements.hierarchy, measurements.hierarchy.depth - 1
    parts = [part for part in measurements.measured if part.view not in BESIDE_SIZES and not part.summed]
    parts = [part for part in parts if part.level == last]
    if parts and parts[0].sizes is not None:
        leaves, words = _from_bands(parts, measurements), "each leaf is estimated from its bands of sizes"
    else:
        words = "each leaf's own estimate is optimal"
        if parts and parts[0].view in ("counts", "counts_total"):
            counts = parts[0].values[:, : measurements.columns("counts")]
            part = replace(parts[0], view="counts", values=counts)
        else:
            part = measurements.on_level(last)
        if part.view == "counts" and measurements.known_totals is None:
            leaves = np.maximum(part.values, 0).astype(np.int64)
        else:
            leaves = _alone(part, _method(part, settings.method), measurements)
    if measurements.listed_totals is not None:
        leaves = _with_listed(leaves, measurements)
        words += ", moved to keep the public totals over all categories"
    return Estimate(tree.aggregate(leaves), words)


def _from_bands(parts: Sequence[Measurement], measurements: Measurements) -> Integers:
    """Return counts of leaves whose sizes were measured in bands: monotone rows of `at_least` counts."""
    tree, lengths = measurements.hierarchy, None
    leaves = tree.level_slice(tree.depth - 1)
    values = np.zeros((leaves.stop - leaves.start, measurements.max_size), dtype=np.int64)
    for part in parts:
        assert part.sizes is not None
        below, above = part.sizes.first - 1, part.sizes.last
        found = part.values
        if part.view == "sorted_sizes":  # the part of each group's size that lies within the band
            lengths = list_starts(measurements.lengths(part.level)) if lengths is None else lengths
            lists = part.values.copy()
            non_decreasing_in_place(lists, lengths, lower=0, upper=above - below, power=1)
            found = at_least(counts_of(lists, lengths, first_size=0, max_size=above - below), 0)
        values[:, below:above] = found
    totals = None if measurements.known_totals is None else measurements.known_totals[leaves]
    return _falling(values, totals, measurements.first_size, 1)


def _with_listed(leaves: Integers, measurements: Measurements) -> Integers:
    """Return the leaves' counts, moved as little as possible to match public totals over all categories."""
    tree, listed = measurements.hierarchy, measurements.listed_totals
    assert listed is not None
    regions, kinds, sizes = tree.regions, len(tree.by), leaves.shape[1]
    by_region = leaves.reshape(kinds, -1, sizes).transpose(1, 0, 2).reshape(-1, kinds * sizes)
    kept = nearest_with_total(by_region, listed[regions.level_slice(regions.depth - 1)])
    return np.ascontiguousarray(kept.reshape(-1, kinds, sizes).transpose(1, 0, 2).reshape(leaves.shape))


def methods_for(hierarchy: Hierarchy, totals: Integers | None, max_size: int) -> tuple[str, ...]:
    """Return a method for each level, from public facts alone.

    Cumulative counts err where they are flat, over the empty sizes between groups. A sorted list errs where it is flat,
    over the groups of equal size. So the list is better if more sizes than groups occur. The number of sizes that occur
    is not public; only the largest size is, which is usually much larger. So the method is a list if a level's regions
    have on average less than a tenth of a group per size, with least absolute deviations, which are more accurate for
    lists too. Without public totals it is cumulative.

    On 608 cases (real and made-up regions, four budgets; see docs/papers.md) this rule names the best method in over
    five of six. Rules that also use the noise are hardly better. The rule misses long sparse tails behind many small
    groups, such as group quarters among households: no public fact shows them.
    """
    if totals is None:
        return ("cumulative",) * hierarchy.depth
    average = [float(totals[hierarchy.level_slice(level)].mean()) for level in range(hierarchy.depth)]
    return tuple("sorted-sizes-l1" if SIZES_PER_GROUP * groups < max_size else "cumulative" for groups in average)


def _method(part: Measurement, name: str | None) -> Method:
    """Return the method that a measurement is for; the usual method of its view if none is named."""
    method = METHODS["cumulative" if part.view == "at_least" else "sorted-sizes"] if name is None else METHODS[name]
    if method.view != part.view:
        raise SpecError(f"the method {name!r} works on {method.view}, but level {part.level} measured {part.view}")
    return method


def _alone(part: Measurement, method: Method, measurements: Measurements) -> Integers:
    """Return the counts of a level's regions, each estimated separately (Section 4)."""
    level = measurements.hierarchy.level_slice(part.level)
    first, last = measurements.first_size, measurements.max_size
    totals = None if measurements.known_totals is None else measurements.known_totals[level]
    if method.view == "counts":
        if totals is None:
            raise SpecError("naive needs the number of groups")
        return nearest_with_total(part.values, totals)
    if method.view == "sorted_sizes":
        starts = list_starts(measurements.lengths(part.level))
        lists = part.values.copy()
        least = first if measurements.first_stage.places is None else 0  # spare places hold 0
        non_decreasing_in_place(lists, starts, lower=least, upper=last, power=method.power)
        return counts_of(lists, starts, first_size=least, max_size=last)[:, first - least :]
    return _falling(part.values, totals, first, method.power)


def _falling(values: Integers, totals: Integers | None, first_size: int, power: int) -> Integers:
    """Return counts from the monotone rows nearest to noisy `at_least` counts, with the totals if they are known."""
    if first_size == 0 or totals is None:
        return counts_from_at_least(non_increasing(values, totals, power=power), totals)
    return counts_from_at_least(np.column_stack([totals, non_increasing(values[:, 1:], totals, power=power)]))


def _totals(measurements: Measurements) -> Integers | None:
    """Return the consistent totals nearest to the measured ones; if only leaves were measured, non-negative ones."""
    hierarchy = measurements.hierarchy
    measured = [part for part in measurements.measured if part.view == "totals"]
    if not measured:
        return None
    if len(measured) < hierarchy.depth:
        return hierarchy.aggregate(np.maximum(measured[0].values[:, 0], 0))
    weights = precisions(measurements, "totals")
    return nearest_consistent(measurements.stacked("totals"), hierarchy, weights=weights)[:, 0]


def _largest(measurements: Measurements) -> int | None:
    """Return an upper bound on the largest size that fails with a chance below one in two thousand (footnote 6)."""
    for part in measurements.measured:
        if part.view == "largest":
            bound = int(part.values[0, 0]) + ceil(DEVIATIONS_ABOVE_LARGEST * sqrt(part.variance))
            return min(max(bound, 1), measurements.neighbours.max_size)
    return None


def _checked(option: str, value: Any) -> Any:
    """Return an option's value, as `Settings` holds it."""
    if option in ("totals_share", "largest_share"):
        return read_share(option, value)
    if option == "merge":
        if value not in ("weighted", "plain", "none"):
            raise SpecError(f"merge must be weighted or plain (none in experiments only), not {value!r}")
        return value
    if option == "methods" and value == "auto":
        return None
    if option == "methods" and not isinstance(value, Sequence):
        raise SpecError(f"methods must be one for all levels, a list from the top level down, or auto, not {value!r}")
    allowed = MATCHED if option == "methods" else tuple(METHODS)
    for name in [value] if option == "method" or isinstance(value, str) else value:
        if name not in allowed:
            raise SpecError(f"unknown method {name!r}; there are {', '.join(allowed)}")
    return value if isinstance(value, str) else tuple(value)


ROWS = (
    Matching(
        name="coc-matching",
        symbol="H_c×H_c×… with matching",
        paper=f"{_COC}, Sections 4 and 5",
        view="at_least",
        estimate=partial(by_matching, _USUAL),
        cost="a few times the noise-sampling time; regions' own estimates are optimal, all together are not",
        use="very sparse sizes, or a separate method for each level (methods)",
        takes=("methods", "merge", "totals_share", "largest_share"),
    ),
    Leaves(
        name="bottom-up",
        symbol="BU",
        paper=f"{_COC}, Section 6.2.2",
        view="at_least",
        estimate=partial(by_leaves, _USUAL),
        cost="a few times the leaves' noise-sampling time; each leaf's estimate is optimal",
        use="if well-populated leaves matter and upper levels do not: errors add up on the way",
        takes=("method", "totals_share", "largest_share"),
    ),
    Naive(
        name="naive",
        symbol="naive",
        paper=f"{_COC}, Section 4.1",
        view="counts",
        estimate=partial(by_leaves, _NAIVE),
        cost="less than the noise-sampling time; exact optimum",
        use="comparison with the paper, on a single region",
        takes=("totals_share", "largest_share"),
        settings=_NAIVE,
    ),
)
