"""NOT PRIVATE: tiny made-up data sets, all their neighbours, and the files that `read` and the command take.

A gadget is a state of two counties with two groups each: `w` (watched) and `x` may change, `a` and `b` have one person
each and stay. A tree may hold many gadgets below a nation. Between neighbours one gadget changes. Where noise is drawn
number by number, what is measured of a gadget's own regions depends on that gadget and on noise of its own alone: so
one release of R gadgets, each here or there, gives R independent outputs, and each has the distribution that it has
in a pair of neighbours which differ in this gadget. (Not so for a chain, which counts over all regions of a level, nor
where the lists of sizes are as long as totals say that were measured together; these have one gadget in a release.)
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.arrays import Integers
from tallytree.hierarchy import Hierarchy
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.reading import read
from tallytree.tables.sealed import Sealed

MAX_SIZE = 4
COUNTY_OF = {"a": 0, "w": 0, "b": 1, "x": 1}

Row = tuple[str, str, int]  # group, person, quantity
Rows = tuple[Row, ...]


@dataclass(frozen=True)
class Kind:
    """What the rows of a data set are, and the public bounds on them."""

    name: str
    quantity_bound: int = 1
    rows_per_entity: int = 1

    def reading(self) -> dict[str, Any]:
        """The options of `read`, and of a spec's [data]."""
        options: dict[str, Any] = {"group": "household", "region": "county", "max_size": MAX_SIZE}
        if self.quantity_bound > 1:
            options |= {"quantity": "quantity", "quantity_bound": self.quantity_bound}
        if self.rows_per_entity > 1:
            options |= {"entity": "person", "rows_per_entity": self.rows_per_entity}
        return options


PEOPLE = Kind("people")
QUANTITIES = Kind("quantities", quantity_bound=3)
SEVERAL_ROWS = Kind("several rows", rows_per_entity=2)
KINDS = {kind.name: kind for kind in (PEOPLE, QUANTITIES, SEVERAL_ROWS)}


@dataclass(frozen=True)
class Pair:
    """Two states of a gadget that are neighbours."""

    here: Rows
    there: Rows
    what: str


def pairs(kind: Kind, unit: str) -> Iterator[Pair]:
    """All neighbours of all small gadgets: in `w`, and in `x` too where one person has two rows."""
    if unit == "one_group":
        for old, new in product(range(MAX_SIZE + 1), repeat=2):
            if old < new:
                yield Pair(_rows(old, 0), _rows(new, 0), f"a group goes from {old} to {new}")
        return
    for size, quantity in product(range(MAX_SIZE), range(1, kind.quantity_bound + 1)):
        one: Row = ("w", "somebody", quantity)
        alone = "who lives alone" if size == 0 else f"in a group of {size} others"
        adding = "" if quantity == 1 else f" and adds {quantity}"
        yield Pair(_rows(size, 0), (*_rows(size, 0), one), f"somebody {alone} leaves{adding}")
        if kind.rows_per_entity > 1:
            for other in range(MAX_SIZE):
                both = one, ("x", "somebody", quantity)
                what = f"somebody with a row in a group of {size} others and one of {other} leaves"
                yield Pair(_rows(size, other), (*_rows(size, other), *both), what)
            yield Pair(_rows(size, 0), (*_rows(size, 0), one, one), f"somebody {alone} with two rows there leaves")


def _rows(watched: int, other: int) -> Rows:
    kept: Rows = (("a", "anna", 1), ("b", "bert", 1))
    return (
        *kept,
        *(("w", f"w{number}", 1) for number in range(watched)),
        *(("x", f"x{number}", 1) for number in range(other)),
    )


# -------------------------------------------------------------------- as counts


def leaf_counts(rows: Rows, *, public_totals: bool, one_region: bool = False) -> Integers:
    """[counties, sizes] of one gadget, or [1, sizes] of it as a single region: counted group by group."""
    sizes = dict.fromkeys(COUNTY_OF, 0)
    for group, _, quantity in rows:
        sizes[group] += quantity
    first = 0 if public_totals else 1
    counts = np.zeros((2, MAX_SIZE + 1 - first), np.int64)
    for group, size in sizes.items():
        if size >= first:
            counts[COUNTY_OF[group], min(size, MAX_SIZE) - first] += 1
    return counts.sum(axis=0, keepdims=True) if one_region else counts


@lru_cache
def tree(gadgets: int, *, one_region: bool = False) -> Hierarchy:
    """The hierarchy of one gadget, of one as a single region, or of many below a nation."""
    if one_region:
        return Hierarchy.from_levels({"county": ["here"]}, ["county"])
    table = region_table(gadgets)
    return Hierarchy.from_levels(table, list(table))


def region_table(gadgets: int) -> dict[str, list[str]]:
    """The columns of the public table of regions."""
    states = [f"s{number:05}" for number in range(gadgets)]
    columns = {
        "nation": ["nation"] * 2 * gadgets,
        "state": [state for state in states for _ in range(2)],
        "county": [f"{state}{county}" for state in states for county in "pq"],
    }
    return columns if gadgets > 1 else {name: columns[name] for name in ("state", "county")}


def group_sizes(
    states: Sequence[Rows],
    kind: Kind,
    *,
    public_totals: bool,
    one_region: bool = False,
    declared: Kind | None = None,
    name: str | None = None,
) -> GroupSizes:
    """The counts of gadgets as `read` would give them; `declared` has other bounds, for planted defects."""
    known: dict[Rows, Integers] = {}
    for rows in states:
        if rows not in known:
            known[rows] = leaf_counts(rows, public_totals=public_totals, one_region=one_region)
    counts = np.concatenate([known[rows] for rows in states])
    bounds = declared or kind
    return GroupSizes(
        hierarchy=tree(len(states), one_region=one_region),
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


def write_files(folder: Path, states: Sequence[Rows], *, public_totals: bool, one_region: bool = False) -> None:
    """`people.csv`, `regions.csv` and, where the list of groups is public, `groups.csv`."""

    def county(number: int, group: str) -> str:
        return "here" if one_region else f"s{number:05}{'pq'[COUNTY_OF[group]]}"

    people = [
        (f"{number}{group}", county(number, group), f"{number}{person}", quantity)
        for number, rows in enumerate(states)
        for group, person, quantity in rows
    ]
    _write(folder / "people.csv", ("household", "county", "person", "quantity"), people)
    regions = {"county": ["here"]} if one_region else region_table(len(states))
    _write(folder / "regions.csv", tuple(regions), list(zip(*regions.values(), strict=True)))
    if public_totals:
        listed = [(f"{number}{group}", county(number, group)) for number in range(len(states)) for group in COUNTY_OF]
        _write(folder / "groups.csv", ("household", "county"), listed)


def read_files(folder: Path, kind: Kind, *, public_totals: bool) -> GroupSizes:
    """What the command reads of such files."""
    with (folder / "regions.csv").open(encoding="utf-8") as file:
        levels = next(csv.reader(file))
    return read(
        folder / "people.csv",
        groups=folder / "groups.csv" if public_totals else None,
        hierarchy=Hierarchy.from_levels(folder / "regions.csv", levels),
        **kind.reading(),
    )


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
