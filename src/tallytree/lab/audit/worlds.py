"""NOT PRIVATE: small made-up tables, their neighbours, and the files that `read` and the command take.

A state has two counties, `p` and `q`. The audit from outputs uses *gadgets*: states with two groups in each county,
where `w` (in `p`) and `x` (in `q`) may change and `a` and `b` keep one person each. `pairs` lists all neighbours of all
small gadgets. A tree may hold many gadgets below a nation, and between neighbours one gadget changes. If noise is drawn
number by number, the measurements of a gadget's own regions depend on that gadget and on its own noise alone. So one
release of R gadgets gives R independent outputs, each distributed as in a pair of neighbours that differ in this
gadget. (A chain counts over all regions of a level, and lists may be as long as jointly measured totals: there a
release has one gadget.) The audit at the border uses `random_pair`: larger tables with random rows.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.domain.categories import Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.schema import Marginal, Schema
from tallytree.lab.truth import SeededWords
from tallytree.tables.contingency import grouped, marginal_counts
from tallytree.tables.group_sizes import GroupSizes, Sealed
from tallytree.tables.households import Households, households_from_codes
from tallytree.tables.reading import read

MAX_SIZE = 4
CATEGORY, VALUES = "sort", ("u", "v")
Totals = Literal["private", "public", "public by region"]  # the last: a public list of groups without their category


@dataclass(frozen=True)
class Group:
    """A group of a state: its county (0 or 1), its category, and its rows as (person, quantity)."""

    name: str
    county: int
    rows: tuple[tuple[str, int], ...] = ()
    category: int = 0

    @property
    def size(self) -> int:
        """Return the sum of quantities, at most the largest size."""
        return min(sum(quantity for _, quantity in self.rows), MAX_SIZE)


State = tuple[Group, ...]


@dataclass(frozen=True)
class Kind:
    """The kind of rows of a table, and the public bounds on them."""

    name: str
    quantity_bound: int = 1
    rows_per_entity: int = 1
    decided_by: Literal["group", "members"] | None = None  # who decides the category, if any

    @property
    def categories(self) -> Categories:
        """Return the categories, if any."""
        return Categories.of(self.decided_by and {CATEGORY: list(VALUES)}, self.decided_by)

    def reading(self) -> dict[str, Any]:
        """Return the options of `read`, and of a spec's [data]."""
        options: dict[str, Any] = {"group": "household", "region": "county", "max_size": MAX_SIZE}
        if self.quantity_bound > 1:
            options |= {"quantity": "quantity", "quantity_bound": self.quantity_bound}
        if self.rows_per_entity > 1:
            options |= {"entity": "person", "rows_per_entity": self.rows_per_entity}
        return options


PEOPLE = Kind("people")
QUANTITIES = Kind("quantities", quantity_bound=3)
SEVERAL_ROWS = Kind("several rows", rows_per_entity=2)
BY_GROUP = Kind("category decided by the group", decided_by="group")
BY_MEMBERS = Kind("category decided by members", decided_by="members")
KINDS = {kind.name: kind for kind in (PEOPLE, QUANTITIES, SEVERAL_ROWS, BY_GROUP, BY_MEMBERS)}


@dataclass(frozen=True)
class Pair:
    """Two neighbouring tables, each as a list of states, and their difference."""

    here: tuple[State, ...]
    there: tuple[State, ...]
    what: str
    watched: str = ""  # the group of a gadget that changes


# -------------------------------------------------------------------- neighbours


def pairs(kind: Kind, unit: str) -> Iterator[Pair]:
    """Yield all neighbours of all small gadgets: a change in `w` (the first county), or in `x` (the last)."""
    categories = range(len(VALUES)) if kind.decided_by == "members" else range(1)
    for watched, other in ("wx", "xw"):
        for old, new in product(range(MAX_SIZE + 1), repeat=2) if unit == "one_group" else ():
            for category in categories:
                if (old, 0) < (new, category):
                    moved = " and to another category" if category else ""
                    there = _gadget({watched: new}, {watched: category})
                    yield Pair(
                        (_gadget({watched: old}),), (there,), f"a group goes from {old} to {new}{moved}", watched
                    )
        if unit == "one_group":
            continue
        for size, quantity, category in product(range(MAX_SIZE), range(1, kind.quantity_bound + 1), categories):
            one = ("somebody", quantity)
            alone = "who lives alone" if size == 0 else f"in a group of {size} others"
            adding = "" if quantity == 1 else f" and adds {quantity}"
            moved = ", and the group changes its category" if category else ""
            here = _gadget({watched: size})
            there = _with_rows(_gadget({watched: size}, {watched: category}), {watched: (one,)})
            yield Pair((here,), (there,), f"somebody {alone} leaves{adding}{moved}", watched)
            if kind.rows_per_entity > 1:
                for others in range(MAX_SIZE):
                    here = _gadget({watched: size, other: others})
                    what = f"somebody with a row in a group of {size} others and one of {others} leaves"
                    yield Pair((here,), (_with_rows(here, {watched: (one,), other: (one,)}),), what, watched)
                here = _gadget({watched: size})
                what = f"somebody {alone} with two rows there leaves"
                yield Pair((here,), (_with_rows(here, {watched: (one, one)}),), what, watched)


def _gadget(sizes: dict[str, int], categories: dict[str, int] | None = None) -> State:
    """Return the groups a, w, b and x; `sizes` and `categories` are those of w and x."""
    return tuple(
        Group(
            name,
            county,
            tuple((f"{name}{n}", 1) for n in range(sizes.get(name, fixed))),
            (categories or {}).get(name, 0),
        )
        for name, county, fixed in (("a", 0, 1), ("w", 0, 0), ("b", 1, 1), ("x", 1, 0))
    )


def _with_rows(state: State, added: dict[str, tuple[tuple[str, int], ...]]) -> State:
    return tuple(replace(group, rows=(*group.rows, *added.get(group.name, ()))) for group in state)


def random_pair(kind: Kind, unit: str, totals: Totals, *seed: object, states: int = 2) -> Pair:
    """Return states with random groups, and a random neighbour of them.

    Groups may be empty (then they exist on a public list only) or larger than the largest size. An entity may have
    more rows than the bound. The unit's definition is applied to rows: an entity comes with up to `rows_per_entity`
    rows and more that reading drops, or the contents of one group are replaced.
    """
    words = iter(SeededWords("random pair", *seed).words(2000).tolist())

    def pick(number: int) -> int:
        return int(next(words)) % number

    least = 1 if totals == "public by region" else 0  # each group on such a list has an entity

    def rows(person: str | None = None, number: int | None = None) -> tuple[tuple[str, int], ...]:
        count = least + pick(MAX_SIZE + 3) if number is None else number
        several = kind.rows_per_entity > 1
        names = (person or (f"somebody{pick(8)}" if several else f"nobody{next(words)}") for _ in range(count))
        return tuple((name, pick(kind.quantity_bound + 1) if kind.quantity_bound > 1 else 1) for name in names)

    def category() -> int:
        return pick(len(VALUES)) if kind.decided_by else 0

    here = tuple(tuple(Group(f"g{n}", pick(2), rows(), category()) for n in range(3 + pick(3))) for _ in range(states))
    decides = kind.decided_by == "members"
    place, tries = pick(states), 4
    while True:
        there = list(here)
        changes = 1 if unit == "one_group" else 1 + pick(kind.rows_per_entity + (kind.rows_per_entity > 1))
        for _ in range(changes):
            state = list(there[place])
            at = pick(len(state))
            group = state[at]
            content = rows() if unit == "one_group" else (*group.rows, *rows("the one", 1))
            state[at] = replace(group, rows=content, category=category() if decides else group.category)
            there[place] = tuple(state)
        tries -= 1
        if tries == 0 or any(
            (one.size, one.category) != (two.size, two.category)
            for one, two in zip(here[place], there[place], strict=True)
        ):
            break  # most pairs differ in what is counted
    what = "a group's contents are replaced" if unit == "one_group" else f"somebody with {changes} rows"
    both = (here, tuple(there)) if pick(2) else (tuple(there), here)
    return Pair(*both, what)


# -------------------------------------------------------------------- as counts


def leaf_counts(state: State, kind: Kind, *, public_totals: bool, one_region: bool = False) -> Integers:
    """Return [categories, counties, sizes] of one state, or with one county if it is a single region."""
    first = 0 if public_totals else 1
    counts = np.zeros((len(kind.categories), 2, MAX_SIZE + 1 - first), np.int64)
    for group in state:
        if group.size >= first:
            counts[group.category, group.county, group.size - first] += 1
    return counts.sum(axis=1, keepdims=True) if one_region else counts


@lru_cache
def tree(states: int, *, one_region: bool = False, kind: Kind = PEOPLE) -> Hierarchy:
    """Return the hierarchy of one state, of one as a single region, or of many below a nation; by category, if any."""
    table = region_table(states, one_region=one_region)
    regions = Hierarchy.from_levels(table, list(table))
    return regions.by_category(kind.categories)


def region_table(states: int, *, one_region: bool = False) -> dict[str, list[str]]:
    """Return the columns of the public table of regions."""
    if one_region:
        return {"county": ["here"]}
    names = [f"s{number:05}" for number in range(states)]
    columns = {
        "nation": ["nation"] * 2 * states,
        "state": [state for state in names for _ in range(2)],
        "county": [f"{state}{county}" for state in names for county in "pq"],
    }
    return columns if states > 1 else {name: columns[name] for name in ("state", "county")}


def group_sizes(
    states: Sequence[State],
    kind: Kind,
    *,
    public_totals: bool,
    one_region: bool = False,
    declared: Kind | None = None,
    name: str | None = None,
) -> GroupSizes:
    """Return the counts of states as `read` would give them; `declared` has other bounds, for planted defects."""
    known: dict[State, Integers] = {}
    for state in states:
        if state not in known:
            known[state] = leaf_counts(state, kind, public_totals=public_totals, one_region=one_region)
    by_cell = np.concatenate([known[state] for state in states], axis=1)
    counts = np.ascontiguousarray(by_cell.reshape(-1, by_cell.shape[-1]))
    bounds = declared or kind
    return GroupSizes(
        hierarchy=tree(len(states), one_region=one_region, kind=bounds),
        max_size=MAX_SIZE,
        counts=Sealed(counts),
        leaf_totals=counts.sum(axis=1) if public_totals else None,
        name=name,
        quantity_bound=bounds.quantity_bound,
        rows_per_entity=bounds.rows_per_entity,
        entity_column=bounds.rows_per_entity > 1,
        rows_were_bounded=bounds.rows_per_entity > 1,
    )


# -------------------------------------------------------------------- as files


def in_two_files(kind: Kind, totals: Totals) -> bool:
    """Return whether rows and groups are two private files; these are groups that decide their category."""
    return totals == "private" and kind.decided_by == "group"


def has_groups_table(kind: Kind, totals: Totals) -> bool:
    """Return whether groups have a table, public or private."""
    return totals != "private" or in_two_files(kind, totals)


def write_files(
    folder: Path, states: Sequence[State], kind: Kind, *, totals: Totals = "private", one_region: bool = False
) -> None:
    """Write `people.csv`, `regions.csv` and, if groups have a table, `groups.csv`."""

    def about(number: int, group: Group) -> tuple[str, str, str]:
        county = "here" if one_region else f"s{number:05}{'pq'[group.county]}"
        return f"{number}{group.name}", county, VALUES[group.category]

    names, own = ("household", "county", CATEGORY), 1 if in_two_files(kind, totals) else 3
    people = [
        (*about(number, group)[:own], f"{number}{person}", quantity)
        for number, state in enumerate(states)
        for group in state
        for person, quantity in group.rows
    ]
    _write(folder / "people.csv", (*names[:own], "person", "quantity"), people)
    regions = region_table(len(states), one_region=one_region)
    _write(folder / "regions.csv", tuple(regions), list(zip(*regions.values(), strict=True)))
    if has_groups_table(kind, totals):
        width = 3 if totals != "public by region" and kind.decided_by is not None else 2
        listed = [about(number, group)[:width] for number, state in enumerate(states) for group in state]
        _write(folder / "groups.csv", names[:width], listed)


def read_files(folder: Path, kind: Kind, *, totals: Totals = "private") -> GroupSizes:
    """Read such files as the command does."""
    with (folder / "regions.csv").open(encoding="utf-8") as file:
        levels = next(csv.reader(file))
    return read(
        folder / "people.csv",
        groups=folder / "groups.csv" if has_groups_table(kind, totals) else None,
        groups_are_public=totals != "private",
        hierarchy=Hierarchy.from_levels(folder / "regions.csv", levels),
        by=kind.categories,
        **kind.reading(),
    )


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


# -------------------------------------------------------------------- households

Home = tuple[int, tuple[tuple[int, ...], ...]]  # the area, and the codes of each person


def _columns(schema: Schema, homes: Sequence[Home]) -> tuple[Any, ...]:
    persons = [person for _, members in homes for person in members]
    return (
        schema,
        {"area": np.array([area for area, _ in homes], np.int64)},
        {each.name: np.array([one[at] for one in persons], np.int64) for at, each in enumerate(schema.person)},
        np.array([number for number, (_, members) in enumerate(homes) for _ in members], np.int64),
        len(homes),
    )


def households_of(schema: Schema, homes: Sequence[Home]) -> Households:
    """Return households with an area as a data holder would pass them to a synthesis."""
    return households_from_codes(*_columns(schema, homes))


def counts_of_homes(schema: Schema, homes: Sequence[Home], table: Marginal) -> Integers:
    """Return the true counts of a table."""
    return marginal_counts(grouped(*_columns(schema, homes)), table)
