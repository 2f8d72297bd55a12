"""Household microdata as integer codes, and the true counts of any table over them.

A table is counted in one pass over the codes, never query by query. What it returns is as private as the codes are:
on private codes only `privacy.households.rounds` calls `marginal_counts`, on codes that are public or made up
`tallytree.lab` does. Drawn households are counted by the same loops, through `table_counts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import DataError, SpecError
from tallytree.core.kernels import kernel
from tallytree.domain.edit_rules import Structure
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.tables.rule_checks import Rows, holders
from tallytree.tables.sealed import Unsharable

Codes = NDArray[Any]  # of the smallest unsigned type that holds an attribute's codes

MOST_CELLS = 1 << 27  # of one table: a gigabyte of counts
NOT_COUNTED = -1  # the place of a household or person that a table leaves out


@dataclass(frozen=True, eq=False, repr=False)
class HouseholdCodes(Unsharable):
    """One row per household and one per person, attributes as codes; a household's persons stand together.

    Household h has the persons `starts[h]` up to `starts[h + 1]`, at most `schema.max_persons` of them. `left_out` are
    the persons beyond that, if there were any: the household and the codes of each. No table counts them.
    """

    schema: Schema
    household: Mapping[str, Codes]
    person: Mapping[str, Codes]
    starts: Integers
    left_out: tuple[Integers, Mapping[str, Codes]] | None = None

    def __post_init__(self) -> None:
        sizes = np.diff(self.starts)
        if self.starts.ndim != 1 or len(self.starts) < 1 or self.starts[0] != 0 or np.any(sizes < 0):
            raise DataError("the places where households' persons start must rise from 0")
        if np.any(sizes > self.schema.max_persons):
            raise DataError(f"a household has more persons than max_persons={self.schema.max_persons}")
        rows = ((self.schema.household, self.household, len(sizes)), (self.schema.person, self.person, self.starts[-1]))
        for attributes, columns, length in rows:
            if list(columns) != [attribute.name for attribute in attributes]:
                raise DataError("there must be one column of codes for each attribute of the schema, in its order")
            for attribute in attributes:
                _check_codes(attribute, columns[attribute.name], int(length))

    @property
    def number(self) -> int:
        """How many households there are."""
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"HouseholdCodes({attributes_text(self.schema)})"


def code_type(codes: int) -> Any:
    """The smallest unsigned type for the codes 0 … codes − 1."""
    return np.min_scalar_type(max(codes - 1, 0))


def grouped(
    schema: Schema, household: Mapping[str, Codes], person: Mapping[str, Codes], home: NDArray[Any], number: int
) -> HouseholdCodes:
    """Codes of persons in any order: `home` says for each in which of the `number` households it lives."""
    if len(home) and (np.min(home) < 0 or np.max(home) >= number):
        raise DataError("a person lives in a household that is not there")
    starts = np.zeros(number + 1, np.int64)
    np.cumsum(np.bincount(home, minlength=number), out=starts[1:])
    if not np.all(home[1:] >= home[:-1]):
        order = np.argsort(home, kind="stable")
        person = {name: column[order] for name, column in person.items()}
    return HouseholdCodes(schema, household, person, starts)


def check_size(marginal: Marginal, schema: Schema) -> None:
    """Refuse a table that does not fit the schema, or has too many cells to be counted."""
    marginal.check(schema)
    cells = marginal.cells(schema)
    if cells > MOST_CELLS:
        raise SpecError(
            f"the table of {marginal.describe()} has {cells:,} cells; the most is {MOST_CELLS:,}: name fewer attributes"
        )


def marginal_counts(codes: HouseholdCodes, marginal: Marginal) -> Integers:
    """The true counts of `marginal`, in its shape."""
    check_size(marginal, codes.schema)
    return table_counts(marginal, codes.schema, codes.starts, codes.household, codes.person)


def table_counts(
    marginal: Marginal, schema: Schema, starts: Integers, household: Mapping[str, Codes], person: Mapping[str, Codes]
) -> Integers:
    """The counts of `marginal` over any columns of codes, private or drawn; household h has the persons from
    `starts[h]` up to `starts[h + 1]`.

    With person attributes a table of households counts a household once in each cell that any of its persons has,
    however many of them have it. In a table by role a household without such a person is in no cell, and the persons
    in these roles are not counted themselves.
    """
    shape, cells = marginal.shape(schema), marginal.cells(schema)
    axes: list[tuple[Any, int]] = [(np.diff(starts), schema.max_persons + 1)] if marginal.size else []
    axes += [(household[name], schema.attribute(name).codes) for name in marginal.household]
    named = _named(marginal, Rows(schema, starts, household, person)) if marginal.roles else {}
    counted = np.all([who >= 0 for who in named.values()], axis=0) if named else None
    # Where nobody is in the role any person's code will do: the household is taken out below.
    axes += [
        (person[name][np.maximum(named[role], 0)] if starts[-1] else 0, schema.attribute(name).codes)
        for role, name in marginal.roles
    ]
    home_places, _ = _places(axes, len(starts) - 1)
    if marginal.of == "households" and not marginal.person:
        places = home_places if counted is None else home_places[counted]
        return np.bincount(places, minlength=cells).astype(np.int64).reshape(shape)
    axes = [(person[name], schema.attribute(name).codes) for name in marginal.person]
    person_places, width = _places(axes, int(starts[-1]))
    if counted is not None:
        home_places[~counted] = NOT_COUNTED
        for who in named.values():
            person_places[who[counted]] = NOT_COUNTED
    counts = np.zeros(cells, np.int64)
    if marginal.of == "persons":
        _count_persons(starts, home_places, person_places, width, counts)
    else:
        _count_homes(starts, home_places, person_places, np.full(width, -1, np.int64), counts)
    return counts.reshape(shape)


def _named(marginal: Marginal, rows: Rows) -> dict[str, Integers]:
    """Who is in each named role, by household."""
    structure = rows.schema.structure or Structure()
    return {name: holders(rows, structure.role(name)) for name in marginal.role_names}


def _places(axes: Sequence[tuple[Any, int]], rows: int) -> tuple[Integers, int]:
    """Each row's place among the cells of the axes, and how many cells they have."""
    places, width = np.zeros(rows, np.int64), 1
    for column, length in axes:
        if width > 1:
            places *= length
        places += column
        width *= length
    return places, width


@kernel
def _count_persons(
    starts: Integers, home_places: Integers, person_places: Integers, width: int, counts: Integers
) -> None:
    for home in range(len(home_places)):
        first = home_places[home] * width
        if first < 0:
            continue
        for person in range(starts[home], starts[home + 1]):
            if person_places[person] >= 0:
                counts[first + person_places[person]] += 1


@kernel
def _count_homes(
    starts: Integers, home_places: Integers, person_places: Integers, seen: Integers, counts: Integers
) -> None:
    """`seen` holds for each cell of the person attributes the last household that was counted in it."""
    width = len(seen)
    for home in range(len(home_places)):
        first = home_places[home] * width
        if first < 0:
            continue
        for person in range(starts[home], starts[home + 1]):
            place = person_places[person]
            if place >= 0 and seen[place] != home:
                seen[place] = home
                counts[first + place] += 1


def _check_codes(attribute: Attribute, column: Codes, length: int) -> None:
    if column.shape != (length,) or column.dtype.kind not in "ui":
        raise DataError(f"the codes of {attribute.name!r} must be whole numbers, one for each row")
    if length and (np.min(column) < 0 or np.max(column) >= attribute.codes):
        raise DataError(f"the codes of {attribute.name!r} must be 0 to {attribute.codes - 1}")


def attributes_text(schema: Schema) -> str:
    """A schema's names and bound, for a repr."""
    homes = ", ".join(attribute.name for attribute in schema.household) or "none"
    people = ", ".join(attribute.name for attribute in schema.person) or "none"
    return f"of households: {homes}; of persons: {people}; at most {schema.max_persons} persons"
