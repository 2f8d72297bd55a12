"""`tallytree`: our own mechanism, settled from the top, with leaves that learn from the shapes around them.

*Crowded* regions (many groups, few sizes) are measured by `at_least` counts on every level that has a share; estimates
are unbiased from below (`settled.subtrees`), whole from the root down (`settled.families`), and leaves are drawn
towards their parents' shapes where that pays (`settled.borrowed`). *Sparse* ones (fewer groups than sizes) are measured
by sorted lists of the leaves; what is believed of each leaf, given the shapes around it (`settled.lists`), is added up,
weighed against what was measured above if anything was, and made whole from the root down as well. *In between*, with
about as many sizes as groups, leaves are measured by `at_least` counts and read as lists are (`settled.counted`). Which
it is, is decided from public facts, or where there are none from numbers of groups that are measured first. With
`bands` each band of sizes has its own shares, and may have its own way to measure leaves: `at_least` up to a size and
lists of what groups have above it, say, for regions with a crowded front and a long sparse tail.
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
from tallytree.estimate.settled import counted
from tallytree.estimate.settled.borrowed import borrowed
from tallytree.estimate.settled.counted import Counted
from tallytree.estimate.settled.entities import keeping_sums, with_measured_sums
from tallytree.estimate.settled.families import settled
from tallytree.estimate.settled.lists import Lists, believed, drawing
from tallytree.estimate.settled.shapes import ROUNDS
from tallytree.estimate.settled.subtrees import subtree_estimates
from tallytree.hierarchy import Hierarchy
from tallytree.histogram import at_least, counts_from_at_least
from tallytree.mechanisms.bands import DividedBand, Division, Leaves, divisions, read_bands, read_leaves, up_to
from tallytree.mechanisms.leaf_totals import (
    LEAST_VARIANCE,
    measured_totals,
    noise_of,
    places_for,
    weigh_totals,
    with_totals,
)
from tallytree.mechanisms.mechanism import ALL_TOTALS, Estimate, Mechanism
from tallytree.privacy.budget import Budget, exact
from tallytree.privacy.measurements import Measurements, Settled
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import EitherWay, Fork, Plan, Question, Shares, level_shares, priority_shares
from tallytree.privacy.size_lists import list_starts

SIZES_PER_GROUP = 4  # with fewer groups in a leaf than a largest size divided by this, lists are measured
FIRST_SHARE = Fraction(1, 50)  # of the budget, to find out whether there are
FEWEST_SIZES = 40  # with a smaller largest size lists hardly pay, however few groups there are
MOST_STATES = 1 << 26  # sizes × groups of a leaf that beliefs may have to go through
LISTS: Leaves = "lists"
BELIEFS: Leaves = "beliefs"
AT_LEAST: Leaves = "at_least"
LEAST_DEVIATION = 1e-3  # of a group: a belief that is as good as certain
SIZES_PER_BAND = 2  # sizes from one to this many times as large are weighed alike


class Settings(NamedTuple):
    """The options of `tallytree`."""

    leaves: Leaves | None = None  # how leaves are measured; None: decided from public facts
    bands: tuple[DividedBand, ...] | None = None  # bands of sizes, each divided over the levels in its own way
    borrow: bool = True  # may a leaf learn from its parent's shape?
    totals_share: Fraction | None = None  # of the budget, for private totals; lists need them
    entities_share: Fraction | None = None  # of the budget, for the number of entities of each region
    lists_below: Fraction | None = None  # with fewer measured groups in a leaf on average, lists; else at_least


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
            return (
                "at_least, on every level; or sorted sizes of the lowest level, with at_least at the top, where groups "
                "are few; totals of the lowest level before that, where they would have to tell and are private"
            )
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
        leaf, lists had 0.5–0.8 of the error with a largest size of 200, and were even with one of 60.) Where there are
        about as many sizes as groups, `at_least` counts are measured and read as lists are: as beliefs. Without public
        totals no public fact tells. Where sizes are few lists would not pay, so it is at_least; otherwise totals are
        measured first, and the same rule goes by them.
        """
        if self.settings.bands is not None:
            self = self._set(self.settings._replace(bands=up_to(self.settings.bands, neighbours.max_size)))
        if self.settings.leaves is not None:
            return self
        if self.settings.entities_share is not None:  # which only at_least counts agree with
            return self._set(self.settings._replace(leaves=AT_LEAST))
        if totals is not None:
            leaves = hierarchy.level_slice(hierarchy.depth - 1)
            groups = float(totals[leaves].mean())
            return self._set(
                self.settings._replace(leaves=_way(groups, int(totals[leaves].max()), neighbours.max_size))
            )
        if self.settings.lists_below is None:
            if self.settings.bands is not None or neighbours.max_size < FEWEST_SIZES:
                return self._set(self.settings._replace(leaves="at_least"))
            self = self._set(self.settings._replace(lists_below=Fraction(neighbours.max_size, SIZES_PER_GROUP)))
        return self._set(self.settings._replace(totals_share=self.settings.totals_share or FIRST_SHARE))

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse what cannot be released, from public facts alone: before anything is spent."""
        super().fits(neighbours, hierarchy, plan)
        share = self.settings.totals_share
        if self.settings.bands is not None:
            up_to(self.settings.bands, neighbours.max_size)
        if self.settings.entities_share is not None and (
            self.settings.bands is not None or LISTS in self._ways or share is not None
        ):
            raise SpecError(
                "entities_share needs at_least counts of all sizes with the same noise; leave out bands, lists and "
                "totals_share, or leave out entities_share: the number of entities is then derived from the sizes"
            )
        if BELIEFS in self._ways and not neighbours.public_totals:
            raise SpecError('beliefs need public totals, and here they are private; say leaves = "at_least" or "lists"')
        if BELIEFS in self._ways and self.settings.bands is not None:
            raise SpecError('beliefs are about all sizes together; leave out bands, or say leaves = "at_least"')
        if neighbours.public_totals and (share is not None or self.settings.lists_below is not None):
            aside = "lists_below" if share is None else "totals_share"
            raise SpecError(f"totals are public here, so {aside} would be spent for nothing; leave it out")
        if self.settings.lists_below is not None and not (self.settings.leaves is None and self.settings.bands is None):
            raise SpecError("lists_below decides how leaves are measured; leave out leaves and bands, or lists_below")
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
        if shares is not None:
            return shares

        def divided(way: Leaves) -> tuple[Fraction, ...]:
            return level_shares(hierarchy, _by_priority(hierarchy, priority or "balanced", way), some_without=True)

        if self.settings.lists_below is not None:
            return EitherWay(divided(LISTS), divided(AT_LEAST))
        return divided(self.settings.leaves or AT_LEAST)

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Every level that has a share is measured, in each band of sizes; the last one must have one.

        Totals, where they are measured, are those of the lowest level: all others are sums of them.
        """
        divided, last = self.divided(hierarchy, shares, None), hierarchy.depth - 1
        if self.settings.lists_below is None:
            aside, entities = self.settings.totals_share or Fraction(0), self.settings.entities_share or Fraction(0)
            every = self._divisions(hierarchy, divided)
            first = [Question("totals", last, aside)] if aside else []
            sums = [Question("entities", level, share * entities) for level, share in enumerate(every[0].shares)]
            left = 1 - aside - entities
            asked = (*first, *(one for one in sums if one.share), *_questions(every, self._ways, left))
            return Plan(budget, unit, asked)
        aside = self.settings.totals_share or FIRST_SHARE
        few, many = (divided.few, divided.many) if isinstance(divided, EitherWay) else (divided, divided)
        lots = (
            _questions(self._divisions(hierarchy, one), [way], 1 - aside)
            for one, way in ((few, LISTS), (many, AT_LEAST))
        )
        return Plan(budget, unit, (Question("totals", last, aside),), Fork(last, self.settings.lists_below, *lots))

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

        For lists and beliefs these are draws of what is believed, another for each replicate.
        """
        if any(part.view == "sorted_sizes" for part in measurements.measured):
            return _played_lists(self.settings, measurements, counts)
        if self.settings.leaves == BELIEFS:
            return _played_beliefs(self.settings, measurements)
        if not self.settings.borrow:
            return super().played(measurements, counts)
        values, _ = _from_at_least(self.settings, measurements, apart_as_true=True)
        apart = counts_from_at_least(values, measurements.region_totals)
        return lambda replicate: apart

    def settle(self, measurements: Measurements) -> Settled:
        """How long lists are to be, from what was measured of totals."""
        tree, measured = measurements.hierarchy, measured_totals(measurements)
        if measured is None:
            return Settled()
        return Settled(places=tree.aggregate(places_for(measured, measurements.max_size)))


def _questions(every: Sequence[Division], ways: Sequence[Leaves | None], left: Fraction) -> tuple[Question, ...]:
    """What is asked of sizes, with what is left of the budget."""
    if any(one.shares[-1] == 0 for one in every):
        raise BudgetError("the lowest level must have a share: all other levels are sums of it")
    return tuple(
        Question(
            "sorted_sizes" if way == LISTS and level == len(one.shares) - 1 else "at_least",
            level,
            share * left,
            one.band,
        )
        for one, way in zip(every, ways, strict=True)
        for level, share in enumerate(one.shares)
        if share
    )


def _by_priority(hierarchy: Hierarchy, priority: str, leaves: Leaves | None) -> Shares:
    """Shares from the top level down.

    `balanced` gives each upper level 1 / (2 L − 1) and the leaves the rest, so that no level is further behind a method
    that serves it alone than any other (2 − 1/L times, if errors go as 1 / share). With lists the root has a tenth, to
    hold the sums of beliefs about leaves where they belong, and the leaves have the rest; with beliefs about counts, a
    fifth.
    """
    depth = hierarchy.depth
    if depth == 1:
        return [1]
    if priority == "upper" and leaves == "lists":
        return [1] * (depth - 1) + [depth - 1]
    if priority == "upper":
        return priority_shares(hierarchy, "upper")
    priority_shares(hierarchy, priority)  # refuses an unknown one
    if leaves in (LISTS, BELIEFS):
        return [0 if priority == "leaves" else 1] + [0] * (depth - 2) + [9 if leaves == LISTS else 4]
    if priority == "leaves":
        return [9] + [1] * (depth - 2) + [100 - 9 - (depth - 2)] if depth <= 12 else [1] * (depth - 1) + [9 * depth]
    return [1] * (depth - 1) + [depth]


def settled_from_the_top(settings: Settings, measurements: Measurements) -> Estimate:
    """Whole, non-increasing `at_least` counts that add up and keep public totals, from whatever was measured."""
    last = measurements.hierarchy.depth - 1
    lists = any(part.view == "sorted_sizes" and part.level == last for part in measurements.measured)
    way = _from_lists if lists else _from_beliefs if settings.leaves == BELIEFS else _from_at_least
    values, words = way(settings, measurements)
    words = f"whole numbers settled from the top, level by level; {words}"
    if settings.lists_below is not None:
        words += f"; {'lists were' if lists else 'at_least was'} measured, as the numbers of groups measured first told"
    return Estimate(counts_from_at_least(values, measurements.region_totals), words)


def _from_at_least(
    settings: Settings, measurements: Measurements, *, apart_as_true: bool = False
) -> tuple[Integers, str]:
    tree, totals = measurements.hierarchy, measurements.region_totals
    values, noise = with_totals(measurements, *_measured(measurements))
    mean, variance = subtree_estimates(values, noise, tree)
    summed = any(part.view == "entities" for part in measurements.measured)
    if summed:
        mean, variance = _with_entities(measurements, values, noise, mean, variance)
    del values
    deviation = np.sqrt(variance, out=variance)
    if summed:
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
    tree, totals = measurements.hierarchy, measurements.region_totals
    leaves = tree.level_slice(tree.depth - 1)
    found = believed(_lists(measurements), tree, measurements.max_size, rounds=ROUNDS if settings.borrow else 1)
    values, noise = _measured(measurements)
    front = np.isfinite(noise[-1])  # sizes that were counted in the leaves: there the lists have nothing to add
    if not front[0] and (measured := measured_totals(measurements)) is not None:
        weigh_totals(found.mean, found.variance, measured)
    mean, variance = (_added_up(leaf, tree) for leaf in (found.mean, found.variance))
    if front.any():
        known = with_totals(measurements, values, noise)
        mean[:, front], variance[:, front] = subtree_estimates(known[0][:, front], known[1][:, front], tree)
    for level in range(tree.depth - 1):
        rows = tree.level_slice(level)
        _weigh(mean[rows], variance[rows], values[rows], np.where(front, inf, noise[level])[None, :])
    deviation = np.sqrt(variance) + LEAST_DEVIATION
    whole = settled(mean, deviation, tree, totals, orderly_leaves=not front.any())
    changed = float(np.abs(whole[leaves] - found.mean)[:, ~front].mean())
    light = "the shapes around them" if settings.borrow else "one shape for all data"
    return whole, (
        f"leaves are read from lists of sizes in the light of {light}, "
        f"and moved by {changed:.2g} of a group on average to add up"
    )


def _from_beliefs(settings: Settings, measurements: Measurements) -> tuple[Integers, str]:
    """Beliefs about leaves, added up and weighed against the unbiased estimates of the same measurements.

    Beliefs are sharper, and biased where shapes do not fit: `_weigh` notices.
    """
    tree = measurements.hierarchy
    values, noise = _measured(measurements)
    unbiased, spread = subtree_estimates(values, noise, tree)
    rounds = ROUNDS if settings.borrow else 1
    found = counted.believed(_counted(measurements), tree, rounds=rounds)
    mean, variance = (_added_up(leaf, tree) for leaf in (found.mean, found.variance))
    for level in range(tree.depth - 1):
        rows = tree.level_slice(level)
        _weigh(mean[rows], variance[rows], unbiased[rows], spread[rows])
    deviation = np.sqrt(variance) + LEAST_DEVIATION
    whole = settled(mean, deviation, tree, measurements.region_totals, orderly_leaves=True)
    light = "the shapes around them" if settings.borrow else "one shape for all data"
    return whole, f"counts of leaves are read in the light of {light}, and moved to add up"


def _played_beliefs(settings: Settings, measurements: Measurements) -> Callable[[int], Integers]:
    """Draws of what is believed of the leaves' counts."""
    tree, totals, seed = measurements.hierarchy, measurements.region_totals, digest_of(measurements)
    leaves = tree.level_slice(tree.depth - 1)
    draw = counted.drawing(_counted(measurements), tree, rounds=ROUNDS if settings.borrow else 1)
    cells = (leaves.stop - leaves.start) * measurements.max_size

    def play(replicate: int) -> Integers:
        values = draw(chances(seed, replicate, cells))
        return tree.aggregate(counts_from_at_least(values, None if totals is None else totals[leaves]))

    return play


def _counted(measurements: Measurements) -> Counted:
    tree, totals = measurements.hierarchy, measurements.region_totals
    last = tree.depth - 1
    part = next(part for part in measurements.measured if part.view == "at_least" and part.level == last)
    if totals is None:
        raise SpecError("beliefs about counts need public totals")
    return Counted(
        values=part.values.astype(np.float64),
        groups=np.ascontiguousarray(totals[tree.level_slice(last)], np.int64),
        scale=max(float(part.scale), LEAST_VARIANCE),
        gaussian=part.noise == "discrete_gaussian",
    )


def _way(groups: float, most_groups: int, sizes: int) -> Leaves:
    """How leaves are measured, by how many groups they have on average and at most."""
    if SIZES_PER_GROUP * groups < sizes:
        return LISTS
    many = sizes >= FEWEST_SIZES and groups <= SIZES_PER_GROUP * sizes and most_groups * sizes <= MOST_STATES
    return BELIEFS if many else AT_LEAST


def _played_lists(settings: Settings, measurements: Measurements, counts: Integers) -> Callable[[int], Integers]:
    """Draws of the lists. Sizes that were counted in the leaves are as released, but no less than what is drawn above.

    Released counts are settled from means of beliefs, which are smoother than any truth: what is estimated from those
    once more errs less than a release does.
    """
    tree = measurements.hierarchy
    leaves = tree.level_slice(tree.depth - 1)
    lists, seed = _lists(measurements), digest_of(measurements)
    draw = drawing(lists, tree, measurements.max_size, rounds=ROUNDS if settings.borrow else 1)
    front = np.isfinite(_measured(measurements)[1][-1])
    released = at_least(counts[leaves], measurements.first_size)

    def play(replicate: int) -> Integers:
        values = at_least(draw(chances(seed, replicate, lists.values.shape[1])), 0)
        values[:, front] = released[:, front]
        values = np.ascontiguousarray(np.maximum.accumulate(values[:, ::-1], axis=1)[:, ::-1])
        public = None if measurements.region_totals is None else measurements.region_totals[leaves]
        return tree.aggregate(counts_from_at_least(values, public))

    return play


def _with_entities(
    measurements: Measurements, values: Floats, noise: Floats, mean: Floats, variance: Floats
) -> tuple[Floats, Floats]:
    """Means and variances of rows, with what was measured of their sums."""
    tree = measurements.hierarchy
    sums, sums_noise = np.zeros(len(tree)), np.full(tree.depth, inf)
    for part in measurements.measured:
        if part.view == "entities":
            sums[tree.level_slice(part.level)] = part.values[:, 0]
            sums_noise[part.level] = noise_of(part)
    contrast = variance[:, 0].copy()
    better, spread, of_sums = with_measured_sums(mean, variance, values, noise[:, 0], sums, sums_noise, tree)
    return keeping_sums(better, contrast, of_sums, measurements.region_totals), spread


def _weigh(mean: Floats, variance: Floats, measured: Floats, noise: Floats) -> None:
    """Weigh sums of beliefs against what was measured of them, in place.

    `noise` is its variance, `[regions, sizes]` or one row for all regions, infinite where nothing was measured. Beliefs
    may be off by more than they say: where their squared distance from the measurements is larger than noise and
    variances explain, over sizes of like magnitude, their variance is raised to what explains it.
    """
    sizes = mean.shape[1]
    first = 1
    while first <= sizes:
        last = min(sizes, SIZES_PER_BAND * first - 1) if first > 1 else 1
        columns = first - 1 + np.flatnonzero(np.isfinite(noise[0, first - 1 : last]))
        first = last + 1
        if len(columns) == 0:
            continue
        gap, spread = measured[:, columns] - mean[:, columns], variance[:, columns]
        excess = max(0.0, float(np.mean(gap**2 - noise[:, columns] - spread)))
        spread = spread + excess
        own = spread / (spread + noise[:, columns])
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
            noise[part.level, columns] = noise_of(part)
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


def _checked(option: str, value: Any) -> Any:
    if option in ("totals_share", "entities_share"):
        share = exact(value, option)
        if not 0 < share < 1:
            raise SpecError(f"{option} must lie between 0 and 1, not {value!r}")
        return share
    if option == "lists_below":
        groups = exact(value, option)
        if groups <= 0:
            raise SpecError(f"lists_below is a number of groups in a leaf, more than 0, not {value!r}")
        return groups
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
