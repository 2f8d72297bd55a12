"""What two releases have in common: sizes, questions, and the numbers of both that are compared.

A comparison uses the sizes that both releases have. If `max_size` differs, the smaller one is the last size on both
sides and stands for all larger ones: a number of groups of that size or more does not depend on `max_size`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import briefly, did_you_mean
from tallytree.domain.categories import ALL
from tallytree.estimate.intervals.changes import Changes, OldAndNew, Rule, bound_changes, find_changes
from tallytree.estimate.intervals.guaranteed import SumBounds
from tallytree.estimate.intervals.linear import Estimates, estimate_sums, no_guarantee, no_linear
from tallytree.estimate.intervals.tails import Errors
from tallytree.estimate.intervals.unions import Unions
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import truncation
from tallytree.publish.release.queries import Query, read_by, sizes_in, sizes_in_words, values_of
from tallytree.publish.release.region_pairs import RegionPairs
from tallytree.publish.release.value import Release

if TYPE_CHECKING:
    pass

GROUPS, ENTITIES, SIZES = "groups", "entities", "sizes"
QUESTIONS = (GROUPS, ENTITIES, SIZES)
SHARED_BITS = 40  # noise makes so many values equal with a probability of about 1 in 2⁴⁰
BENJAMINI_HOCHBERG, HOLM, BONFERRONI = "Benjamini-Hochberg", "Holm", "Bonferroni"

# -------------------------------------------------------------------- what can be compared


def check_comparable(old: Release, new: Release) -> list[str]:
    """Return differences that limit a comparison; refuse releases that cannot be compared with a ReleaseError."""
    one, other = old.measurements, new.measurements
    if one is other or (old.release_id is not None and old.release_id == new.release_id):
        raise ReleaseError("both are the same release; name two different ones")
    shared = [part for part in one.measured if any(_is_same(part, again) for again in other.measured)]
    bits = sum(part.values.size * math.log2(1 + math.sqrt(part.variance)) for part in shared)
    if one.mark == other.mark or bits >= SHARED_BITS:
        raise ReleaseError(
            "both releases were made from the same noisy measurements, so their difference says nothing about change; "
            "compare releases of different data"
        )
    for release in (old, new):
        if (reason := no_guarantee(release.measurements)) is not None:
            raise ReleaseError(f"{release.title!r} cannot be compared. {reason}")
    _check_units(one, other)
    return list(_differences(one, other))


def _is_same(one: Measurement, other: Measurement) -> bool:
    alike = (one.view, one.scale, one.values.shape) == (other.view, other.scale, other.values.shape)
    return alike and bool(np.array_equal(one.values, other.values))


def _check_units(one: Measurements, other: Measurements) -> None:
    """Refuse releases that count different things."""
    names = [measurements.neighbours.columns for measurements in (one, other)]
    stated = any(measurements.neighbours.unit.same_unit_as for measurements in (one, other))
    if names[0] is not None and names[1] is not None and not stated:
        for what in ("group", "entity"):
            before, after = (getattr(columns, what) for columns in names)
            if before != after and None not in (before, after):
                raise ReleaseError(
                    f"the releases count different units: the {what} column is {before!r} in the old one and {after!r} "
                    "in the new one. If they mean the same, state it with same_unit_as when you release"
                )
    if one.neighbours.groups_were_split != other.neighbours.groups_were_split:
        raise ReleaseError(
            "the releases count different units: in one of them a group that spans leaves counts once in each leaf"
        )


def _differences(one: Measurements, other: Measurements) -> Iterator[str]:
    """Yield what differs between the releases, and what that means for the comparison."""
    old, new = one.neighbours, other.neighbours
    if old.unit.kind != new.unit.kind:
        yield f"The privacy unit differs: {old.unit.kind} before, {new.unit.kind} now. The numbers mean the same."
    bounds = (
        (old.rows_per_entity, new.rows_per_entity, "rows of an entity"),
        (old.quantity_bound, new.quantity_bound, "a row’s quantity"),
    )
    for before, after, what in bounds:
        if before != after:
            yield f"The bound on {what} differs: {before} before, {after} now. A change may come from that alone."
    if truncation(old) != truncation(new):
        yield "Rows were dropped before counting in different ways. A change may come from that alone."
    if one.max_size != other.max_size:
        least = min(one.max_size, other.max_size)
        yield (
            f"The largest size differs: {one.max_size} before, {other.max_size} now. Sizes above {least} count as "
            f"{least} on both sides."
        )
    if one.first_size != other.first_size:
        yield "Groups are listed publicly in one release only: groups of size 0 are left out on both sides."
    if one.hierarchy.by != other.hierarchy.by:
        yield "The categories differ, so sums over all categories are compared."


def describe_protection(old: Budget, new: Budget) -> str:
    """Return how people in both data sets are protected, in words."""
    both = f"both budgets together, {old} and {new}"
    if old.currency == new.currency and old.delta is None and new.delta is None:
        sign = "ε" if old.currency == "epsilon" else "ρ"
        both = f"the sum of both budgets, {sign} = {as_decimal(old.amount + new.amount)}"
    return f"This comparison cost no budget. A person in both data sets is protected by {both}."


# -------------------------------------------------------------------- questions


class Question(NamedTuple):
    """Numbers to compare: Σ weight · count over the sizes that both releases have."""

    name: str
    weights: tuple[int, ...]
    values: tuple[str, ...]  # of the categories; empty without


def shared_sizes(old: Release, new: Release) -> range:
    """Return the sizes that both releases have."""
    return range(max(old.sizes[0], new.sizes[0]), min(old.sizes[-1], new.sizes[-1]) + 1)


def read_questions(
    wanted: Iterable[str | Query], by: Mapping[str, str] | str | None, old: Release, new: Release
) -> list[Question]:
    """Return the questions in terms of the sizes that both releases have."""
    alike, categories, sizes = old.hierarchy.by == new.hierarchy.by, new.hierarchy.by, shared_sizes(old, new)
    if by is not None and not alike:
        raise SpecError("the releases have different categories, so by cannot name any")
    each = [{by: value} for value in values_of(by, categories)] if isinstance(by, str) else [dict(by or {})]
    found: dict[Question, None] = {}
    for one in [wanted] if isinstance(wanted, str | Query) else wanted:
        for chosen in each:
            for name, weights, own in _weights(one, sizes):
                found[Question(name, weights, read_by({**chosen, **own}, categories) if alike else ())] = None
    if not found:
        raise SpecError(f"no question was given; choose from {', '.join(QUESTIONS)}, or give a Query")
    return list(found)


def _weights(one: str | Query, sizes: range) -> Iterator[tuple[str, tuple[int, ...], Mapping[str, str]]]:
    """Yield name, weight of each size and values of categories of what a user asked."""
    named = {GROUPS: [Query()], SIZES: [Query(sizes=size) for size in sizes]}
    if one == ENTITIES:
        yield ENTITIES, tuple(sizes), {}
    elif isinstance(one, str) and one not in named:
        raise SpecError(f"unknown question {told(one)}; {did_you_mean(one, QUESTIONS)}")
    for query in [one] if isinstance(one, Query) else named.get(one, []):
        if query.kind != "sum" or query.regions is not None:
            raise SpecError(
                "a comparison takes queries of the kind 'sum' without regions; it is about all regions of a level"
            )
        some = sizes_in(query.sizes, sizes)
        yield sizes_in_words(some, sizes) or GROUPS, tuple(int(size in some) for size in sizes), query.by or {}


# -------------------------------------------------------------------- numbers


class Numbers(NamedTuple):
    """Published numbers of several areas, and their unbiased estimates if there are any."""

    published: Integers
    estimates: Estimates | None


@dataclass(frozen=True, eq=False)
class Side:
    """One of two releases, and the sizes that both have."""

    release: ReleaseContents
    sizes: range

    __repr__ = briefly

    def weights(self, question: Question) -> Integers:
        """Return the weights of the sizes 0 … K + 1 of this release; those beyond the last common one count as it."""
        last = self.release.sizes[-1]
        found = np.zeros(last + 2, np.int64)
        found[self.sizes[0] : last + 1] = question.weights[-1]
        found[self.sizes[0] : self.sizes[-1] + 1] = question.weights
        return found

    @cached_property
    def over_all(self) -> Measurements | None:
        """Return the measurements of the sums over all categories, if there are unbiased estimates from them."""
        over = self.release.measurements.over_categories
        return over if self.release.rows.categories and over.measured and no_linear(over) is None else None

    def measured(self, question: Question, regions: Unions) -> tuple[Measurements, Unions]:
        """Return the measurements that answer a question, and their rows."""
        if set(question.values) <= {ALL} and self.over_all is not None:
            return self.over_all, regions
        return self.release.measurements, self._rows(question, regions)

    def _rows(self, question: Question, regions: Unions) -> Unions:
        tree = self.release.hierarchy
        if not tree.by.columns:
            return regions
        cells = list(tree.by.places_of(question.values or (ALL,) * len(tree.by.columns)))
        rows: Integers = tree.cell_rows[regions.rows][:, cells].ravel()
        return Unions(rows, regions.starts * len(cells), rows[:0])

    def numbers(self, question: Question, regions: Unions) -> Numbers:
        """Return published numbers and unbiased estimates of areas."""
        by_size, rows, first = self.weights(question), self._rows(question, regions), self.release.sizes[0]
        if (by_size[first:-1] == 1).all() and (totals := self._totals(question, regions, rows)) is not None:
            return Numbers(totals, Estimates(totals.astype(np.float64), Errors.none(len(totals))))
        published = rows.add_up(self.release.counts @ by_size[first:-1])
        measurements, rows = self.measured(question, regions)
        linear = no_linear(measurements) is None
        return Numbers(published, estimate_sums(measurements, by_size.astype(np.float64), rows) if linear else None)

    def _totals(self, question: Question, regions: Unions, rows: Unions) -> Integers | None:
        """Return public numbers of all groups."""
        measurements = self.release.measurements
        if measurements.region_totals is not None:
            return rows.add_up(measurements.region_totals)
        if measurements.listed_totals is not None and set(question.values) <= {ALL}:
            return regions.add_up(measurements.listed_totals)
        return None

    def ends(self, question: Question, regions: Unions, error: float) -> OldAndNew:
        """Return guaranteed ends of the numbers."""
        measurements, rows = self.measured(question, regions)
        found = SumBounds(measurements).of(self.weights(question).astype(np.float64), rows, error)
        if found is None:
            raise ReleaseError(
                f"{self.release.title!r} does not bound the question {question.name!r}; ask for other questions"
            )
        return found


def compare_pairs(
    sides: tuple[Side, Side], pairs: RegionPairs, question: Question, rule: Rule
) -> tuple[tuple[Numbers, Numbers], Changes, str]:
    """Return both numbers of each pair, their changes, and the method that flagged these."""
    (one, before), (other, after) = zip(sides, (pairs.old, pairs.new), strict=True)
    old, new = one.numbers(question, before), other.numbers(question, after)
    published = new.published - old.published
    if old.estimates is None or new.estimates is None:
        found = bound_changes(
            lambda error: (one.ends(question, before, error), other.ends(question, after, error)), published, rule
        )
        return (old, new), found, BONFERRONI
    found = find_changes(old.estimates, new.estimates, published, rule)
    return (old, new), found, rule_name(rule) if found.tested else "public"


def rule_name(rule: Rule) -> str:
    """Return the name of the test of a family."""
    return HOLM if rule.family_wise else BENJAMINI_HOCHBERG
