"""Check that rules can be satisfied, by searching for one household of a given size and with somebody in a role.

Persons without a role of their own are subject to the same rules, so one of them represents all: if one is possible,
any number is. The search is over the household, one person in each role and one of the rest, and only over the
attributes that rules name. It assigns them one after the other and backtracks when a rule is broken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from tallytree.core.errors import SpecError
from tallytree.domain.edit_rules import Attribute, Below, Condition, Has, Implies, SizeClass, Structure, may_be_below

MOST_STEPS = 500_000  # values tried before the search is abandoned

Codes = dict[str, int]


class Household(NamedTuple):
    """A household that satisfies all rules: codes by attribute, of the household and of each person in order."""

    household: Codes
    persons: tuple[Codes, ...]


class Search:
    """The rules in codes, ready for the search."""

    def __init__(
        self, structure: Structure, household: Sequence[Attribute], person: Sequence[Attribute], most: int
    ) -> None:
        self.structure, self.most = structure, most
        self.home = {attribute.name: attribute for attribute in household}
        self.people = {attribute.name: attribute for attribute in person}
        rules = structure.all_rules
        self.implications = [rule for rule in rules if isinstance(rule, Implies)]
        self.below = [
            (rule, may_be_below(self.people[rule.attribute], rule.by)) for rule in rules if isinstance(rule, Below)
        ]
        self.has = [rule for rule in rules if isinstance(rule, Has)]
        self.classes = [
            (rule.attribute, rule.allowed(self.home[rule.attribute], most))
            for rule in rules
            if isinstance(rule, SizeClass)
        ]
        named = {name for rule in self.implications for name in rule.names}
        named |= {rule.attribute for rule, _ in self.below} | {name for name, _ in self.classes}
        named |= {name for rule in self.has for name, _ in rule.household}
        named |= {name for role in structure.roles for name, _ in role.household}
        named |= set() if structure.attribute is None else {structure.attribute}
        self.home_names = [name for name in self.home if name in named]
        first = [structure.attribute] if structure.attribute is not None else []
        self.person_names = [*first, *(name for name in self.people if name in named and name not in first)]
        self.steps = 0

    def household(
        self, size: int, *, role: str | None = None, fixed: Mapping[str, int] | None = None
    ) -> Household | None:
        """Return a household of `size` persons that satisfies all rules, with one in `role` if given; None if
        impossible.

        `fixed` are codes of household attributes that it must have.
        """
        self.steps = 0
        fixed = dict(fixed or {})
        if size == 0 and (not self.structure.empty or role is not None):
            return None
        names = [*fixed, *(name for name in self.home_names if name not in fixed)]
        for home in self._homes(names, {}, size, fixed):
            needed, refused = self._roles(home)
            if role is not None:
                needed = needed | {role}
            if needed & refused or (size == 0 and needed):
                continue
            if size == 0:
                return Household(self._whole(home, self.home), ())
            for slots in self._slots(size, home, needed, refused):
                persons = self._persons(slots, home, refused, [])
                if persons is not None:
                    everyone = [self._whole(person, self.people) for person in persons]
                    # Persons beyond the slots are like the last slot, which is one of the rest.
                    everyone += [everyone[-1]] * (size - len(everyone))
                    return Household(self._whole(home, self.home), tuple(everyone))
        return None

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise SpecError(
                "the rules are too complex to check whether they can be satisfied: name fewer attributes in them, or "
                "fewer values of these"
            )

    @staticmethod
    def _whole(codes: Codes, attributes: Mapping[str, Attribute]) -> Codes:
        return {name: codes.get(name, 0) for name in attributes}

    def _homes(self, names: list[str], home: Codes, size: int, fixed: Mapping[str, int]) -> Iterator[Codes]:
        if not names:
            yield home
            return
        name, *rest = names
        for code in [fixed[name]] if name in fixed else range(self.home[name].codes):
            self._step()
            codes = {**home, name: code}
            if all(table[size, code] for attribute, table in self.classes if attribute == name) and all(
                self._holds(rule, codes)
                for rule in self.implications
                if rule.role is None and all(each in codes for each in rule.names)
            ):
                yield from self._homes(rest, codes, size, fixed)

    def _roles(self, home: Codes) -> tuple[set[str], set[str]]:
        """Return the roles that must be present, and those that must not."""
        needed, refused = set(), set()
        for rule in self.has:
            if self._matches(rule.household, home):
                needed.add(rule.role)
            elif rule.only:
                refused.add(rule.role)
        return needed, refused

    def _slots(self, size: int, home: Codes, needed: set[str], refused: set[str]) -> Iterator[list[str | None]]:
        """Return the roles of persons in order, None for one of the rest."""
        structure = self.structure
        if structure.attribute is None:
            by_place: list[str | None] = [
                role.name
                if role.position is not None and role.position <= size and self._matches(role.household, home)
                else None
                for role in structure.single
            ][:size]
            if needed <= set(by_place) and not refused & set(by_place):
                yield by_place if size == len(by_place) else [*by_place, None]
            return
        always = [role.name for role in structure.single if role.number == "exactly one"]
        maybe = [role.name for role in structure.single if role.number == "at most one"]
        several = [name for name in needed if not structure.role(name).single]
        if refused & set(always):
            return
        for number in range(len(maybe) + 1):
            for chosen in combinations(maybe, number):
                there = {*always, *chosen}
                lonely = {name for name in needed if structure.role(name).single}
                if lonely <= there and not refused & there and len(there) + len(several) <= size:
                    slots: list[str | None] = [*always, *chosen, *several]
                    yield slots if len(slots) == size or several else [*slots, None]

    def _persons(
        self, slots: list[str | None], home: Codes, refused: set[str], so_far: list[Codes]
    ) -> list[Codes] | None:
        if len(so_far) == len(slots):
            return so_far
        for person in self._people(slots[len(so_far)], self.person_names, {}, home, refused):
            if self._compared(slots, [*so_far, person]):
                found = self._persons(slots, home, refused, [*so_far, person])
                if found is not None:
                    return found
        return None

    def _people(
        self, slot: str | None, names: list[str], person: Codes, home: Codes, refused: set[str]
    ) -> Iterator[Codes]:
        """Return the persons that satisfy the rules about one person."""
        if not names:
            role = self._role_of(slot, person)
            alone = (
                rule for rule in self.implications if rule.role is not None and not set(rule.names) & set(self.people)
            )
            if all(self._holds(rule, home) for rule in alone if rule.role == role):
                yield person
            return
        name, *rest = names
        for code in self._values(slot, name, refused):
            self._step()
            codes = {**person, name: code}
            known, role = {**home, **codes}, self._role_of(slot, codes)
            if all(
                self._holds(rule, known)
                for rule in self.implications
                if rule.role in (None, role) and name in rule.names and all(each in known for each in rule.names)
            ):
                yield from self._people(slot, rest, codes, home, refused)

    def _values(self, slot: str | None, name: str, refused: set[str]) -> list[int]:
        attribute = self.people[name]
        if name != self.structure.attribute:
            return [*range(attribute.codes)]
        if slot is not None:
            return [attribute.values.index(value) for value in self.structure.role(slot).values]
        roles = self.structure.roles
        gone = {value for role in roles if role.single or role.name in refused for value in role.values}
        return [code for code, value in enumerate(attribute.values) if value not in gone]

    def _role_of(self, slot: str | None, codes: Codes) -> str | None:
        name = self.structure.attribute
        if slot is not None or name is None:
            return slot
        return role_of_value(self.structure, self.people[name].values[codes[name]])

    def _compared(self, slots: list[str | None], persons: list[Codes]) -> bool:
        """Return whether the newest person satisfies the rules that compare persons."""
        newest = len(persons) - 1
        roles = [self._role_of(slot, person) for slot, person in zip(slots, persons, strict=False)]
        for rule, table in self.below:
            for one, other in [(newest, each) for each in range(newest)] + [(each, newest) for each in range(newest)]:
                if roles[one] == rule.role and roles[other] == rule.than:
                    self._step()
                    if not table[persons[one][rule.attribute], persons[other][rule.attribute]]:
                        return False
        return True

    def _holds(self, rule: Implies, codes: Codes) -> bool:
        return not self._matches(rule.when, codes) or self._matches(rule.then, codes)

    def _matches(self, condition: Condition, codes: Codes) -> bool:
        return all(self._value(name, codes[name]) in values for name, values in condition)

    def _value(self, name: str, code: int) -> str:
        attribute = self.people[name] if name in self.people else self.home[name]
        return attribute.values[code]


def role_of_value(structure: Structure, value: str) -> str | None:
    """Return the role of several persons that a value of the roles' attribute defines, or None."""
    for role in structure.roles:
        if not role.single and value in role.values:
            return role.name
    return None


def possible_sizes(search: Search) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return for 0 … max_persons whether such a household exists."""
    return np.array([search.household(size) is not None for size in range(search.most + 1)])


def check_possible(search: Search) -> None:
    """Refuse rules that no household can satisfy, and roles that nobody can be in."""
    sizes = range(search.most + 1)
    if not possible_sizes(search)[1:].any():
        raise SpecError(
            "the rules contradict each other: no household with persons can satisfy all of them. They are: "
            + _list(search)
        )
    for role in search.structure.roles:
        if not any(search.household(size, role=role.name) is not None for size in sizes):
            raise SpecError(
                f"the rules contradict each other: nobody can be in the role {role.name!r}. They are: " + _list(search)
            )


def _list(search: Search) -> str:
    return "; ".join(search.structure.in_words())
