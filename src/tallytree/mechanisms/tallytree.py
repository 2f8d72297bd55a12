"""`tallytree`: our own mechanism, settled from the top, with leaves that learn from the shapes around them.

*Crowded* regions (many groups, few sizes) are measured by `at_least` counts on every level that has a share; estimates
are unbiased from below (`settled.subtrees`), whole from the root down (`settled.families`), and leaves are drawn
towards their parents' shapes where that pays (`settled.borrowed`). *Sparse* ones (fewer groups than sizes) are measured
by sorted lists of the leaves; what is believed of each leaf, given the shapes around it (`settled.lists`), is added up,
weighed against what was measured above if anything was, and made whole from the root down as well. Which of the two is
decided from public facts. With `bands` each band of sizes has its own shares, and may have its
own way to measure leaves: `at_least` up to a size and lists of what groups have above it, say, for regions with a
crowded front and a long sparse tail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.errors import BudgetError, SpecError
from tallytree.estimate.intervals.replicate_noise import chances, digest_of
from tallytree.estimate.settled.borrowed import borrowed
from tallytree.estimate.settled.entities import keeping_sums, with_measured_sums
from tallytree.estimate.settled.families import settled
from tallytree.estimate.settled.lists import ROUNDS, Lists, believed, drawing
from tallytree.estimate.settled.subtrees import subtree_estimates
from tallytree.estimate.tree.variances import LEAST_VARIANCE
from tallytree.hierarchy import Hierarchy
from tallytree.histogram import at_least, counts_from_at_least
from tallytree.mechanisms.bands import DividedBand, Division, Leaves, divisions, read_bands, read_leaves, up_to
from tallytree.mechanisms.mechanism import ALL_TOTALS, Estimate, Mechanism
from tallytree.privacy.budget import Budget, exact
from tallytree.privacy.measurements import Measurements, Settled
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import Plan, Question, Shares, level_shares, priority_shares
from tallytree.privacy.size_lists import list_starts

SIZES_PER_GROUP = 4  # with fewer groups in a leaf than a largest size divided by this, lists are measured
LEAST_DEVIATION = 1e-3  # of a group: a belief that is as good as certain
SIZES_PER_BAND = 2  # sizes from one to this many times as large are weighed alike


class Settings(NamedTuple):
    """The options of `tallytree`."""

    leaves: Leaves | None = None  # how leaves are measured; None: decided from public facts
    bands: tuple[DividedBand, ...] | None = None  # bands of sizes, each divided over the levels in its own way
    borrow: bool = True  # may a leaf learn from its parent's shape?
    totals_share: Fraction | None = None  # of the budget, for private totals; lists need them
    entities_share: Fraction | None = None  # of the budget, for the number of entities of each region


@dataclass(frozen=True)
class Tallytree(Mechanism):
    """Measured where it is worth it, settled from the top."""

    estimate: partial[Estimate]
    settings: Settings = field(default_factory=Settings)

    @property
    def divides_itself(self) -> bool:
        """Bands say how."""
        return self.settings.bands is not None

    @property
    def measures(self) -> str:
        """What it measures, in words."""
        if self.settings.leaves is None:
            return "at_least, on every level; or sorted sizes of the lowest level alone, where groups are few"
        if self.settings.leaves == "lists":
            return "sorted sizes of the lowest level; at_least on upper levels that have a share"
        return "at_least, on every level that has a share"

    @property
    def options(self) -> dict[str, Any]:
        """The options in plain values, as `configured` takes them."""
        given = self.settings._asdict()
        plain = {name: str(value) if isinstance(value, Fraction) else value for name, value in given.items()}
        if self.settings.bands is not None:
            plain["bands"] = [band.to_json() for band in self.settings.bands]
        return {name: value for name, value in plain.items() if value is not None}

    def configured(self, options: Mapping[str, Any]) -> Tallytree:
        """The mechanism with these options; wrong ones are refused."""
        if unknown := [name for name in options if name not in Settings._fields]:
            raise SpecError(f"{self.name} has no option {unknown[0]!r}; it has {', '.join(Settings._fields)}")
        changed = {name: _checked(name, value) for name, value in options.items() if value is not None}
        return self._set(self.settings._replace(**changed))

    def _set(self, settings: Settings) -> Tallytree:
        return replace(self, settings=settings, estimate=partial(self.estimate.func, settings))

    def suited_to(self, neighbours: Neighbours, hierarchy: Hierarchy, totals: Integers | None) -> Tallytree:
        """With the way that leaves are measured decided: lists where a leaf has less than 1/4 group per size.

        A list errs where groups have equal sizes, cumulative counts over the sizes that no group has, and beliefs about
        lists gain more from the shapes around them than `at_least` counts do. (On race by block, with 31 blocks to a
        leaf, lists had 0.5–0.8 of the error with a largest size of 200, and were even with one of 60.) Without public
        totals no public fact tells: at_least.
        """
        if self.settings.bands is not None:
            self = self._set(self.settings._replace(bands=up_to(self.settings.bands, neighbours.max_size)))
        if self.settings.leaves is not None:
            return self
        if self.settings.entities_share is not None:  # which only at_least counts agree with
            return self._set(self.settings._replace(leaves="at_least"))
        sparse = False
        if totals is not None:
            groups = float(totals[hierarchy.level_slice(hierarchy.depth - 1)].mean())
            sparse = SIZES_PER_GROUP * groups < neighbours.max_size
        return self._set(self.settings._replace(leaves="lists" if sparse else "at_least"))

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse what cannot be released, from public facts alone: before anything is spent."""
        super().fits(neighbours, hierarchy, plan)
        share = self.settings.totals_share
        if self.settings.bands is not None:
            up_to(self.settings.bands, neighbours.max_size)
        if self.settings.entities_share is not None and (self.settings.bands is not None or "lists" in self._ways):
            raise SpecError(
                "entities_share needs at_least counts of all sizes with the same noise; leave out bands and lists, or "
                "leave out entities_share: the number of entities is then derived from the sizes"
            )
        if neighbours.public_totals and share is not None:
            raise SpecError("totals are public here, so totals_share would be spent for nothing; leave it out")
        if not neighbours.public_totals and share is None and "lists" in self._ways:
            raise SpecError(
                "lists of sizes need the number of groups in every region, and here totals are private: read with a "
                "groups table if there is a public one, or set aside a share of the budget to measure them "
                "(totals_share, a tenth say)"
            )

    def divided(self, hierarchy: Hierarchy, shares: Shares | None, priority: str | None) -> Shares | None:
        """Shares as they were given, or by what matters most (`balanced` if nothing is said). None where bands say."""
        if self.settings.bands is not None:
            if shares is not None or priority is not None:
                raise SpecError(
                    "bands divide the budget over the levels, each in its way; leave out shares and priority"
                )
            return None
        if shares is not None and priority is not None:
            raise SpecError("shares and priority both divide the budget over the levels; give one of them")
        return shares if shares is not None else _by_priority(hierarchy, priority or "balanced", self.settings.leaves)

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Every level that has a share is measured, in each band of sizes; the last one must have one.

        Where totals are measured, theirs is the division of the first band: they tell how many groups reach size 1.
        """
        every = self._divisions(hierarchy, self.divided(hierarchy, shares, None))
        if any(one.shares[-1] == 0 for one in every):
            raise BudgetError("the lowest level must have a share: all other levels are sums of it")
        aside, last = self.settings.totals_share or Fraction(0), hierarchy.depth - 1
        entities = self.settings.entities_share or Fraction(0)
        if aside + entities >= 1:
            raise BudgetError("totals_share and entities_share must leave something for the sizes")
        first = [Question("totals", level, share * aside) for level, share in enumerate(every[0].shares) if share]
        sums = [Question("entities", level, share * entities) for level, share in enumerate(every[0].shares) if share]
        rest = 1 - aside - entities
        asks = [
            Question("sorted_sizes" if lists and level == last else "at_least", level, share * rest, one.band)
            for one, lists in zip(every, (way == "lists" for way in self._ways), strict=True)
            for level, share in enumerate(one.shares)
            if share
        ]
        return Plan(budget, unit, (*(first if aside else ()), *(sums if entities else ()), *asks))

    def _divisions(self, hierarchy: Hierarchy, shares: Shares | None) -> list[Division]:
        """The bands of sizes, with the levels' shares in each; one of all sizes where none are given."""
        if self.settings.bands is not None:
            return divisions(self.settings.bands, hierarchy)
        return [Division(None, level_shares(hierarchy, shares, some_without=True))]

    @property
    def _ways(self) -> list[Leaves | None]:
        """How leaves are measured in each band."""
        settings = self.settings
        return (
            [settings.leaves] if settings.bands is None else [band.leaves or settings.leaves for band in settings.bands]
        )

    def played(self, measurements: Measurements, counts: Integers) -> Callable[[int], Integers]:
        """Leaves that are as different as they are believed to be: released ones that borrow are closer together.

        For lists these are draws of what is believed, another for each replicate.
        """
        if any(part.view == "sorted_sizes" for part in measurements.measured):
            return _played_lists(self.settings, measurements, counts)
        if not self.settings.borrow:
            return super().played(measurements, counts)
        values, _ = _from_at_least(self.settings, measurements, apart_as_true=True)
        apart = counts_from_at_least(values, measurements.region_totals)
        return lambda replicate: apart

    def settle(self, measurements: Measurements) -> Settled:
        """Consistent totals from what was measured of them."""
        return Settled(_totals(measurements))


def _by_priority(hierarchy: Hierarchy, priority: str, leaves: Leaves | None) -> Shares:
    """Shares from the top level down.

    `balanced` gives each upper level 1 / (2 L − 1) and the leaves the rest, so that no level is further behind a method
    that serves it alone than any other (2 − 1/L times, if errors go as 1 / share). With lists the root has a tenth, to
    hold the sums of beliefs about leaves where they belong, and the leaves have the rest.
    """
    depth = hierarchy.depth
    if depth == 1:
        return [1]
    if priority == "upper" and leaves == "lists":
        return [1] * (depth - 1) + [depth - 1]
    if priority == "upper":
        return priority_shares(hierarchy, "upper")
    priority_shares(hierarchy, priority)  # refuses an unknown one
    if leaves == "lists":
        return [0 if priority == "leaves" else 1] + [0] * (depth - 2) + [9]
    if priority == "leaves":
        return [9] + [1] * (depth - 2) + [100 - 9 - (depth - 2)] if depth <= 12 else [1] * (depth - 1) + [9 * depth]
    return [1] * (depth - 1) + [depth]


def settled_from_the_top(settings: Settings, measurements: Measurements) -> Estimate:
    """Whole, non-increasing `at_least` counts that add up and keep public totals, from whatever was measured."""
    last = measurements.hierarchy.depth - 1
    lists = any(part.view == "sorted_sizes" and part.level == last for part in measurements.measured)
    values, words = (_from_lists if lists else _from_at_least)(settings, measurements)
    totals = measurements.region_totals
    if totals is None and measurements.known_totals is not None:
        values[:, 0] = (
            measurements.known_totals
        )  # measured first: every group has at least size 1, and no row exceeds it
    return Estimate(
        counts_from_at_least(values, totals), f"whole numbers settled from the top, level by level; {words}"
    )


def _from_at_least(
    settings: Settings, measurements: Measurements, *, apart_as_true: bool = False
) -> tuple[Integers, str]:
    tree, totals = measurements.hierarchy, measurements.known_totals
    values, noise = _measured(measurements)
    mean, variance = subtree_estimates(values, noise, tree)
    counted = any(part.view == "entities" for part in measurements.measured)
    if counted:
        mean, variance = _with_entities(measurements, values, noise, mean, variance)
    del values
    deviation = np.sqrt(variance, out=variance)
    if counted:
        words = "rows are drawn to the numbers of entities that were measured; leaves borrow nothing"
        return settled(mean, deviation, tree, totals), words
    if not settings.borrow or tree.depth == 1:
        return settled(mean, deviation, tree, totals), "leaves borrow nothing from the regions above them"
    # Rows of leaves are settled before they borrow only where their numbers of groups are to be read from them.
    first = settled(mean, deviation, tree, totals, above_leaves=totals is not None)
    leaves = tree.level_slice(tree.depth - 1)
    above = first[: leaves.start].astype(np.float64)[tree.parents[leaves]]
    # With private totals the number of groups is itself a measured column: what is borrowed is the shape beyond it.
    begin = 0 if totals is not None else 1
    groups, groups_above = (
        (totals[leaves].astype(np.float64), totals[tree.parents[leaves]].astype(np.float64))
        if totals is not None
        else (first[leaves, 0].astype(np.float64), above[:, 0])
    )
    rows = mean[leaves, begin:], noise[-1, begin:], groups, above[:, begin:], groups_above
    drawn = borrowed(*rows, apart_as_true=apart_as_true)
    if drawn.part == 0:
        whole = first if len(first) == len(tree) else settled(mean, deviation, tree, totals, top=first)
        return whole, "leaves borrow nothing from the regions above them: it would not pay"
    mean[leaves, begin:] = drawn.mean
    np.sqrt(drawn.variance, out=deviation[leaves, begin:])
    part = drawn.part
    del above, rows, drawn  # as large as the measurements each
    whole = settled(mean, deviation, tree, totals, top=first[: leaves.start])
    return whole, f"of their rows, leaves borrow {100 * part:.0f} % from the shapes of the regions above them"


def _from_lists(settings: Settings, measurements: Measurements) -> tuple[Integers, str]:
    tree, totals = measurements.hierarchy, measurements.known_totals
    leaves = tree.level_slice(tree.depth - 1)
    found = believed(_lists(measurements), tree, measurements.max_size, rounds=ROUNDS if settings.borrow else 1)
    mean, variance = (_added_up(leaf, tree) for leaf in (found.mean, found.variance))
    values, noise = _measured(measurements)
    front = np.isfinite(noise[-1])  # sizes that were counted in the leaves: there the lists have nothing to add
    if front.any():
        mean[:, front], variance[:, front] = subtree_estimates(values[:, front], noise[:, front], tree)
    for level in range(tree.depth - 1):
        rows = tree.level_slice(level)
        _weigh(mean[rows], variance[rows], values[rows], np.where(front, inf, noise[level]))
    deviation = np.sqrt(variance) + LEAST_DEVIATION
    whole = settled(mean, deviation, tree, totals, orderly_leaves=not front.any())
    changed = float(np.abs(whole[leaves] - found.mean)[:, ~front].mean())
    light = "the shapes around them" if settings.borrow else "one shape for all data"
    return whole, (
        f"leaves are read from lists of sizes in the light of {light}, "
        f"and moved by {changed:.2g} of a group on average to add up"
    )


def _played_lists(settings: Settings, measurements: Measurements, counts: Integers) -> Callable[[int], Integers]:
    """Draws of the lists. Sizes that were counted in the leaves are as released, but no less than what is drawn above.

    Released counts are settled from means of beliefs, which are smoother than any truth: what is estimated from those
    once more errs less than a release does.
    """
    tree, totals = measurements.hierarchy, measurements.known_totals
    leaves = tree.level_slice(tree.depth - 1)
    lists, seed = _lists(measurements), digest_of(measurements)
    draw = drawing(lists, tree, measurements.max_size, rounds=ROUNDS if settings.borrow else 1)
    front = np.isfinite(_measured(measurements)[1][-1])
    released = at_least(counts[leaves], measurements.first_size)

    def play(replicate: int) -> Integers:
        values = at_least(draw(chances(seed, replicate, lists.values.shape[1])), 0)
        values[:, front] = released[:, front]
        values = np.ascontiguousarray(np.maximum.accumulate(values[:, ::-1], axis=1)[:, ::-1])
        if measurements.region_totals is None and totals is not None:
            values[:, 0] = totals[leaves]
        public = None if measurements.region_totals is None else measurements.region_totals[leaves]
        return tree.aggregate(counts_from_at_least(values, public))

    return play


def _with_entities(
    measurements: Measurements, values: Floats, noise: Floats, mean: Floats, variance: Floats
) -> tuple[Floats, Floats]:
    """Means and variances of rows, with what was measured of their sums; a number of groups that is settled stays."""
    tree, totals = measurements.hierarchy, measurements.known_totals
    sums, sums_noise = np.zeros(len(tree)), np.full(tree.depth, inf)
    for part in measurements.measured:
        if part.view == "entities":
            sums[tree.level_slice(part.level)] = part.values[:, 0]
            sums_noise[part.level] = max(part.variance, LEAST_VARIANCE)
    begin = 0
    if measurements.region_totals is None and totals is not None:
        begin, sums, mean[:, 0] = 1, sums - totals, totals
    if begin == values.shape[1]:
        return mean, variance
    contrast, rows = variance[:, begin].copy(), slice(begin, None)
    better, spread, of_sums = with_measured_sums(
        mean[:, rows], variance[:, rows], values[:, rows], noise[:, begin], sums, sums_noise, tree
    )
    mean[:, rows], variance[:, rows] = keeping_sums(better, contrast, of_sums, totals), spread
    return mean, variance


def _weigh(mean: Floats, variance: Floats, measured: Floats, noise: Floats) -> None:
    """Weigh sums of beliefs against what was measured of them, in place.

    Beliefs may be off by more than they say: where their squared distance from the measurements is larger than noise
    and variances explain, over sizes of like magnitude, their variance is raised to what explains it.
    """
    sizes = mean.shape[1]
    first = 1
    while first <= sizes:
        last = min(sizes, SIZES_PER_BAND * first - 1) if first > 1 else 1
        columns = first - 1 + np.flatnonzero(np.isfinite(noise[first - 1 : last]))
        first = last + 1
        if len(columns) == 0:
            continue
        gap, spread = measured[:, columns] - mean[:, columns], variance[:, columns]
        excess = max(0.0, float(np.mean(gap**2 - noise[columns] - spread)))
        spread = spread + excess
        own = spread / (spread + noise[columns])
        mean[:, columns] += own * gap
        variance[:, columns] = (1 - own) * spread


def _measured(measurements: Measurements) -> tuple[Floats, Floats]:
    """Measured `at_least` counts `[regions, sizes]`, zero where there are none, and the noise's variance by level."""
    tree, sizes = measurements.hierarchy, measurements.max_size
    values, noise = np.zeros((len(tree), sizes)), np.full((tree.depth, sizes), inf)
    for part in measurements.measured:
        if part.view == "at_least":
            columns = slice(0, sizes) if part.sizes is None else slice(part.sizes.first - 1, part.sizes.last)
            values[tree.level_slice(part.level), columns] = part.values
            noise[part.level, columns] = max(part.variance, LEAST_VARIANCE)
    return values, noise


def _lists(measurements: Measurements) -> Lists:
    last = measurements.hierarchy.depth - 1
    parts = [part for part in measurements.measured if part.view == "sorted_sizes" and part.level == last]
    bands = [
        (0, measurements.max_size) if part.sizes is None else (part.sizes.first - 1, part.sizes.last) for part in parts
    ]
    return Lists(
        values=np.stack([part.values.astype(np.int64) for part in parts]),
        starts=list_starts(measurements.lengths(last)),
        below=np.array([below for below, _ in bands]),
        above=np.array([above for _, above in bands]),
        scales=np.array([max(float(part.scale), LEAST_VARIANCE) for part in parts]),
        gaussian=parts[0].noise == "discrete_gaussian",
    )


def _added_up(leaf: Floats, tree: Hierarchy) -> Floats:
    """Rows of all regions, `[regions, sizes]`, from those of the leaves."""
    rows = np.empty((len(tree), leaf.shape[1]))
    rows[tree.level_slice(tree.depth - 1)] = leaf
    for level in range(tree.depth - 2, -1, -1):
        regions, below = tree.level_slice(level), tree.level_slice(level + 1)
        rows[regions] = np.add.reduceat(rows[below], tree.child_starts[regions] - below.start)
    return rows


def _totals(measurements: Measurements) -> Integers | None:
    """Whole totals that add up, settled from the top as everything else: clipping small leaves moves nothing above."""
    if not any(part.view == "totals" for part in measurements.measured):
        return None
    tree = measurements.hierarchy
    values, noise = np.zeros((len(tree), 1)), np.full((tree.depth, 1), inf)
    for part in measurements.measured:
        if part.view == "totals":
            values[tree.level_slice(part.level)] = part.values
            noise[part.level] = max(part.variance, LEAST_VARIANCE)
    mean, variance = subtree_estimates(values, noise, tree)
    return settled(mean, np.sqrt(variance), tree, None)[:, 0]


def _checked(option: str, value: Any) -> Any:
    if option in ("totals_share", "entities_share"):
        share = exact(value, option)
        if not 0 < share < 1:
            raise SpecError(f"{option} must lie between 0 and 1, not {value!r}")
        return share
    if option == "borrow":
        if not isinstance(value, bool):
            raise SpecError(f"borrow must be true or false, not {value!r}")
        return value
    if option == "bands":
        return read_bands(value)
    return read_leaves(value)


ROWS: Sequence[Mechanism] = (
    Tallytree(
        name="tallytree",
        symbol="",
        paper="our own: docs/mechanisms.md#tallytree",
        view="at_least",
        estimate=partial(settled_from_the_top, Settings()),
        cost="some times the time of drawing the noise; lists take groups × sizes steps",
        use="entities as the privacy unit: the default there",
        keeps=ALL_TOTALS,
        keeps_totals=True,
    ),
)
