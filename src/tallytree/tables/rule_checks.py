"""Who is who in households, and which of them break a rule: over columns of codes, private or drawn.

`table_counts` and these functions are the only readings of roles: what is measured, what is checked for the data
holder, what is drawn and what `verify` finds in files all go by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.names import briefly
from tallytree.domain.edit_rules import Below, Condition, Has, Implies, Role, SizeClass, Structure, may_be_below
from tallytree.domain.schema import Schema

Columns = Mapping[str, NDArray[Any]]
Flags = NDArray[np.bool_]

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Rows:
    """Some households as columns of codes; household h has the persons `starts[h]` up to `starts[h + 1]`."""

    schema: Schema
    starts: Integers
    household: Columns
    person: Columns

    __repr__ = briefly

    @property
    def structure(self) -> Structure:
        """The schema's, or one that says nothing."""
        return self.schema.structure or Structure()

    @property
    def sizes(self) -> Integers:
        """How many persons each household has."""
        return np.diff(self.starts)

    @property
    def homes(self) -> Integers:
        """Each person's household."""
        return np.repeat(np.arange(len(self.starts) - 1), self.sizes)

    def holds(self, condition: Condition, homes: Integers | None = None) -> Flags:
        """Which households have the condition's values; with `homes` which persons, each with its household's."""
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
    """For each household the person in a role of one person, the first who could be; NOBODY where there is none."""
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
    """Which persons are in a role."""
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
    """A rule in words, the households that break it, and the persons who do, where it is about persons."""

    words: str
    households: Flags
    persons: Flags | None = None


def broken(rows: Rows) -> list[Broken]:
    """Each rule with who breaks it, in the order of `Structure.in_words`."""
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
    """Which households break a rule."""
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
