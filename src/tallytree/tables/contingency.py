"""Household microdata as integer codes: roles, broken rules, and the true counts of any table.

A table is counted in one pass over the codes, never query by query. The result is as private as the codes. On private
codes only `privacy.run` calls `marginal_counts`; on public or simulated codes `tallytree.lab` does. Drawn households
are counted by the same loops, through `table_counts`. Only these loops and `broken` determine roles, so measuring,
checking, drawing and verifying use the same roles.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import DataError, SpecError
from tallytree.core.kernels import kernel
from tallytree.core.names import briefly
from tallytree.domain.edit_rules import Below, Condition, Has, Implies, Role, SizeClass, Structure, may_be_below
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.tables.group_sizes import Unsharable

Codes = NDArray[Any]  # of the smallest unsigned type that holds an attribute's codes

DIGEST_BITS = 256
MOST_CELLS = 1 << 27  # of one table: a gigabyte of counts
NOT_COUNTED = -1  # the index of a household or person that a table omits
Flags = NDArray[np.bool_]

NOBODY = -1


@dataclass(frozen=True, eq=False, repr=False)
class HouseholdCodes(Unsharable):
    """One row per household and one per person, with attributes as codes; the persons of a household are adjacent.

    Household h has the persons `starts[h]` up to `starts[h + 1]`, at most `schema.max_persons` of them. `left_out` has
    any further persons: the household and the codes of each. No table counts them.
    """

    schema: Schema
    household: Mapping[str, Codes]
    person: Mapping[str, Codes]
    starts: Integers
    left_out: tuple[Integers, Mapping[str, Codes]] | None = None

    def __post_init__(self) -> None:
        sizes = np.diff(self.starts)
        if self.starts.ndim != 1 or len(self.starts) < 1 or self.starts[0] != 0 or np.any(sizes < 0):
            raise DataError("`starts` must begin at 0 and must not decrease")
        if np.any(sizes > self.schema.max_persons):
            raise DataError(f"a household has more persons than max_persons = {self.schema.max_persons}")
        rows = ((self.schema.household, self.household, len(sizes)), (self.schema.person, self.person, self.starts[-1]))
        for attributes, columns, length in rows:
            if list(columns) != [attribute.name for attribute in attributes]:
                raise DataError("there must be one column of codes for each attribute of the schema, in its order")
            for attribute in attributes:
                _check_codes(attribute, columns[attribute.name], int(length))

    @property
    def number(self) -> int:
        """Return the number of households."""
        return len(self.starts) - 1

    def __repr__(self) -> str:
        return f"HouseholdCodes({attributes_text(self.schema)})"


def code_type(codes: int) -> Any:
    """Return the smallest unsigned type for the codes 0 … codes − 1."""
    return np.min_scalar_type(max(codes - 1, 0))


def grouped(
    schema: Schema, household: Mapping[str, Codes], person: Mapping[str, Codes], home: NDArray[Any], number: int
) -> HouseholdCodes:
    """Sort codes of persons in any order by household; `home` is each person's household among the `number`
    households.
    """
    if len(home) and (np.min(home) < 0 or np.max(home) >= number):
        raise DataError("a person's household is not among the households")
    starts = np.zeros(number + 1, np.int64)
    np.cumsum(np.bincount(home, minlength=number), out=starts[1:])
    if not np.all(home[1:] >= home[:-1]):
        order = np.argsort(home, kind="stable")
        person = {name: column[order] for name, column in person.items()}
    return HouseholdCodes(schema, household, person, starts)


def digest_of_rows(codes: HouseholdCodes, key: bytes) -> str:
    """HMAC-SHA256 over the households as a multiset: neither their order nor that of persons in one matters.

    Each household is hashed separately (attributes, size, its persons sorted) and the numbers are added up modulo
    2^256, which is the same in any order; the sum is hashed once more. A household has all persons that were read,
    those beyond `max_persons` included: so the digest is the same whichever of them a reading draws.
    """
    homes = _rows(list(codes.household.values()), codes.number)
    person = list(codes.person.values())
    living = np.repeat(np.arange(codes.number), np.diff(codes.starts))
    if codes.left_out is not None:
        of_household, columns = codes.left_out
        living = np.concatenate([living, of_household])
        person = [np.concatenate([column, columns[name]]) for name, column in codes.person.items()]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(living, minlength=codes.number))])
    order = np.lexsort([*reversed(person), living])
    people = _rows([column[order] for column in person], len(order))
    home_bytes, person_bytes = homes.tobytes(), people.tobytes()
    home_width, person_width = homes.shape[1] * homes.itemsize, people.shape[1] * people.itemsize
    total = 0
    for home, (start, stop) in enumerate(zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)):
        row = home_bytes[home * home_width : (home + 1) * home_width] + (stop - start).to_bytes(8, "big")
        row += person_bytes[start * person_width : stop * person_width]
        total += int.from_bytes(hmac.digest(key, row, "sha256"), "big")
    whole = f"{codes.number} {total % (1 << DIGEST_BITS)}"
    return hmac.digest(key, whole.encode(), "sha256").hex()


def _rows(columns: list[NDArray[Any]], number: int) -> NDArray[Any]:
    """Return columns of codes side by side, all with the same width."""
    return np.ascontiguousarray(np.array(columns, dtype="<i8").T.reshape(number, len(columns)))


def check_size(marginal: Marginal, schema: Schema) -> None:
    """Refuse a table that does not fit the schema or has too many cells to be counted."""
    marginal.check(schema)
    cells = marginal.cells(schema)
    if cells > MOST_CELLS:
        raise SpecError(
            f"the table of {marginal.describe()} has {cells:,} cells; the maximum is {MOST_CELLS:,}: name fewer "
            "attributes"
        )


def marginal_counts(codes: HouseholdCodes, marginal: Marginal) -> Integers:
    """Return the true counts of `marginal`, in its shape."""
    check_size(marginal, codes.schema)
    return table_counts(marginal, Rows(codes.schema, codes.starts, codes.household, codes.person))


def table_counts(marginal: Marginal, rows: Rows) -> Integers:
    """Return the counts of `marginal` over columns of codes, private or drawn.

    If a table of households has person attributes, a household counts once in each cell that any of its persons has,
    however many of them have it. In a table by role, a household without a person in that role is in no cell, and
    persons in these roles are not counted separately.
    """
    schema, starts, person = rows.schema, rows.starts, rows.person
    shape, cells = marginal.shape(schema), marginal.cells(schema)
    named = {name: holders(rows, rows.structure.role(name)) for name in marginal.role_names}  # who is in each role
    counted = np.all([who >= 0 for who in named.values()], axis=0) if named else None
    # If nobody is in the role, any person's code will do: the household is removed below.
    columns = [
        *(rows.household[name] for name in marginal.household),
        *(person[name][np.maximum(named[role], 0)] if starts[-1] else 0 for role, name in marginal.roles),
        *(person[name] for name in marginal.person),
    ]
    merged = [
        (np.array(groups)[codes] if groups else codes, length)
        for codes, groups, length in zip(columns, marginal.groups_of_axes, marginal.lengths(schema), strict=True)
    ]
    first_of_persons = len(merged) - len(marginal.person)
    axes: list[tuple[Any, int]] = [(rows.sizes, schema.max_persons + 1)] if marginal.size else []
    axes += merged[:first_of_persons]
    home_places, _ = _places(axes, len(starts) - 1)
    if marginal.of == "households" and not marginal.person:
        places = home_places if counted is None else home_places[counted]
        return np.bincount(places, minlength=cells).astype(np.int64).reshape(shape)
    person_places, width = _places(merged[first_of_persons:], int(starts[-1]))
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


def _places(axes: Sequence[tuple[Any, int]], rows: int) -> tuple[Integers, int]:
    """Return the cell index of each row among the cells of the axes, and the number of cells."""
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
    """Count households once per cell; `seen` holds, for each cell, the last household that was counted in it."""
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
        raise DataError(f"the codes of {attribute.name!r} must be integers, one for each row")
    if length and (np.min(column) < 0 or np.max(column) >= attribute.codes):
        raise DataError(f"the codes of {attribute.name!r} must be 0 to {attribute.codes - 1}")


def attributes_text(schema: Schema) -> str:
    """Return a schema's attribute names and bound, for a repr."""
    homes = ", ".join(attribute.name for attribute in schema.household) or "none"
    people = ", ".join(attribute.name for attribute in schema.person) or "none"
    return f"of households: {homes}; of persons: {people}; at most {schema.max_persons} persons"


# -------------------------------------------------------------------- roles and rules


@dataclass(frozen=True, eq=False)
class Rows:
    """Households as columns of codes; household h has the persons `starts[h]` up to `starts[h + 1]`."""

    schema: Schema
    starts: Integers
    household: Mapping[str, Codes]
    person: Mapping[str, Codes]

    __repr__ = briefly

    @property
    def structure(self) -> Structure:
        """Return the schema's edit rules, or an empty set of rules."""
        return self.schema.structure or Structure()

    @property
    def sizes(self) -> Integers:
        """Return the number of persons of each household."""
        return np.diff(self.starts)

    @property
    def homes(self) -> Integers:
        """Return the household of each person."""
        return np.repeat(np.arange(len(self.starts) - 1), self.sizes)

    def holds(self, condition: Condition, homes: Integers | None = None) -> Flags:
        """Return which households have the condition's values; with `homes`, which persons do, each with its
        household's values.
        """
        found = np.ones(len(self.starts) - 1 if homes is None else len(homes), bool)
        for name, values in condition:
            allowed = _allowed(self.schema, name, values)
            if name in self.household:
                flags = allowed[self.household[name]]
                found &= flags if homes is None else flags[homes]
            else:
                found &= allowed[self.person[name]]
        return found


@lru_cache(maxsize=4096)
def _allowed(schema: Schema, name: str, values: tuple[str, ...]) -> Flags:
    attribute = schema.attribute(name)
    return np.array([value in values for value in attribute.values])


def holders(rows: Rows, role: Role) -> Integers:
    """Return for each household the first person who can have a role of one person, or NOBODY."""
    found = np.full(len(rows.starts) - 1, NOBODY, np.int64)
    if role.position is not None:
        there = (rows.sizes >= role.position) & rows.holds(role.household)
        found[there] = rows.starts[:-1][there] + role.position - 1
        return found
    could = np.flatnonzero(_could_be(rows, role))
    homes, first = np.unique(rows.homes[could], return_index=True)
    found[homes] = could[first]
    return found


def in_role(rows: Rows, role: Role) -> Flags:
    """Return which persons are in a role."""
    if not role.single:
        return _could_be(rows, role)
    flags = np.zeros(int(rows.starts[-1]), bool)
    who = holders(rows, role)
    flags[who[who >= 0]] = True
    return flags


def _could_be(rows: Rows, role: Role) -> Flags:
    return _allowed(rows.schema, str(role.attribute), role.values)[rows.person[str(role.attribute)]]


@dataclass(frozen=True, eq=False)
class Broken:
    """A rule in words, the households that break it and, if the rule is about persons, the persons who do."""

    words: str
    households: Flags
    persons: Flags | None = None


def broken(rows: Rows) -> list[Broken]:
    """Return each rule with the households and persons that break it, in the order of `Structure.in_words`."""
    structure, found = rows.structure, []
    if not structure.empty:
        found.append(rows.sizes == 0)
    for role in structure.roles:
        if role.single and role.position is None:
            number = np.bincount(rows.homes[_could_be(rows, role)], minlength=len(rows.starts) - 1)
            too_few = (number < 1) & (rows.sizes > 0) if role.number == "exactly one" else np.zeros(len(number), bool)
            found.append(too_few | (number > 1))
    results: list[tuple[Flags, Flags | None]] = [(flags, None) for flags in found]
    for rule in structure.all_rules:
        if isinstance(rule, Implies):
            results.append(_implied(rows, rule))
        elif isinstance(rule, Below):
            results.append(_below(rows, rule))
        elif isinstance(rule, Has):
            results.append((_has(rows, rule), None))
        else:
            results.append((_size_class(rows, rule), None))
    return [
        Broken(words, flags, persons) for words, (flags, persons) in zip(structure.in_words(), results, strict=True)
    ]


def any_broken(rows: Rows) -> Flags:
    """Return which households break a rule."""
    flags = np.zeros(len(rows.starts) - 1, bool)
    for rule in broken(rows):
        flags |= rule.households
    return flags


def _implied(rows: Rows, rule: Implies) -> tuple[Flags, Flags | None]:
    if rule.role is None and all(name in rows.household for name in rule.names):
        return rows.holds(rule.when) & ~rows.holds(rule.then), None
    homes = rows.homes
    persons = rows.holds(rule.when, homes) & ~rows.holds(rule.then, homes)
    if rule.role is not None:
        persons &= in_role(rows, rows.structure.role(rule.role))
    return _of_households(rows, persons), persons


def _below(rows: Rows, rule: Below) -> tuple[Flags, Flags]:
    table = _may_be_below(rows.schema, rule)
    codes, homes = rows.person[rule.attribute], rows.homes
    other = holders(rows, rows.structure.role(rule.than))[homes]
    persons = in_role(rows, rows.structure.role(rule.role)) & (other != NOBODY)
    persons[persons] = ~table[codes[persons], codes[other[persons]]]
    return _of_households(rows, persons), persons


@lru_cache(maxsize=256)
def _may_be_below(schema: Schema, rule: Below) -> Flags:
    return may_be_below(schema.attribute(rule.attribute), rule.by)


def _has(rows: Rows, rule: Has) -> Flags:
    role = rows.structure.role(rule.role)
    if role.single:
        there: Flags = holders(rows, role) != NOBODY
    else:
        there = _of_households(rows, in_role(rows, role))
    wanted = rows.holds(rule.household)
    return (there != wanted) if rule.only else (wanted & ~there)


def _size_class(rows: Rows, rule: SizeClass) -> Flags:
    table = rule.allowed(rows.schema.attribute(rule.attribute), rows.schema.max_persons)
    return ~table[np.minimum(rows.sizes, rows.schema.max_persons), rows.household[rule.attribute]]


def _of_households(rows: Rows, persons: Flags) -> Flags:
    flags = np.zeros(len(rows.starts) - 1, bool)
    flags[rows.homes[persons]] = True
    return flags
