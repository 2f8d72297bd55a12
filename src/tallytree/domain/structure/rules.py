"""Rules that all households keep, each a frozen value with what it says in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import FLAG, NUMBER, TEXT, WHOLE, Kind, expect, optional, several
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.domain.attributes import Attribute
from tallytree.domain.structure.roles import Condition, Role, check_condition, condition, condition_text, plain

Attributes = Mapping[str, Attribute]


@dataclass(frozen=True)
class Implies:
    """Each person (in `role`, if one is named) who has the values of `when` has those of `then`.

    Both may name attributes of the household. A rule that names these alone, and no role, is about households.
    """

    then: Condition
    when: Condition = ()
    role: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "when", condition(self.when, "when of a rule"))
        object.__setattr__(self, "then", condition(self.then, "then of a rule"))
        expect(self.role, optional(TEXT), "role of a rule")
        if not self.then:
            raise SpecError("a rule `implies` needs `then`: what must hold")

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes it is about, each once."""
        return tuple(dict.fromkeys(name for name, _ in (*self.when, *self.then)))

    def check(self, roles: Mapping[str, Role], household: Attributes, person: Attributes) -> None:
        """Refuse what is not there."""
        _check_role(self.role, roles, "a rule `implies`")
        for part in (self.when, self.then):
            check_condition(part, {**household, **person}, "a rule `implies`")

    def in_words(self) -> str:
        """What it says."""
        who = f"{self.role}: " if self.role else ""
        when = f"if {condition_text(self.when)}, then " if self.when else ""
        return f"{who}{when}{condition_text(self.then)}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": "implies", "role": self.role, "when": plain(self.when), "then": plain(self.then)}


@dataclass(frozen=True)
class Below:
    """The `attribute` of each person in `role` is below that of the person in `than`, by at least `by`.

    Of bins it is broken where no two numbers of theirs could keep it; values that are not numbers are compared by their
    order in the schema, and then `by` is 0: not above. Missing values break nothing.
    """

    role: str
    than: str
    attribute: str
    by: float = 0

    def __post_init__(self) -> None:
        for part in ("role", "than", "attribute"):
            expect(getattr(self, part), TEXT, f"{part} of a rule `below`")
        expect(self.by, NUMBER, "by of a rule `below`")
        if self.role == self.than:
            raise SpecError(f"a rule `below` compares {self.role!r} with itself")

    def check(self, roles: Mapping[str, Role], household: Attributes, person: Attributes) -> None:
        """Refuse what is not there, or cannot be compared."""
        for role in (self.role, self.than):
            _check_role(role, roles, "a rule `below`")
        if not roles[self.than].single:
            raise SpecError(f"a rule `below` compares with one person, and {self.than!r} may be several")
        check_condition(((self.attribute, ()),), person, "a rule `below`")
        if self.by != 0 and numbers_of(person[self.attribute]) is None:
            raise SpecError(
                f"a rule `below` has by = {self.by}, and the values of {self.attribute!r} are no numbers: leave it "
                "out, or give the attribute cuts"
            )

    def in_words(self) -> str:
        """What it says."""
        least = f" by at least {self.by:g}" if self.by else ""
        return f"{self.attribute} of {self.role} is not above that of {self.than}{least and f', and below it{least}'}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": "below", "role": self.role, "than": self.than, "attribute": self.attribute, "by": self.by}


@dataclass(frozen=True)
class Has:
    """Households with the values of `household` have somebody in `role`; with `only`, no others have."""

    role: str
    household: Condition
    only: bool = False

    def __post_init__(self) -> None:
        expect(self.role, TEXT, "role of a rule `has`")
        expect(self.only, FLAG, "only of a rule `has`")
        object.__setattr__(self, "household", condition(self.household, "household of a rule `has`"))
        if not self.household:
            raise SpecError("a rule `has` needs `household`: the values of those households")

    def check(self, roles: Mapping[str, Role], household: Attributes, person: Attributes) -> None:
        """Refuse what is not there."""
        _check_role(self.role, roles, "a rule `has`")
        check_condition(self.household, household, "a rule `has`")

    def in_words(self) -> str:
        """What it says."""
        if self.only:
            return f"there is a {self.role} if {condition_text(self.household)}, and otherwise there is none"
        return f"if {condition_text(self.household)}, there is a {self.role}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": "has", "role": self.role, "household": plain(self.household), "only": self.only}


@dataclass(frozen=True)
class SizeClass:
    """A household attribute that follows from the number of persons: for each value the least and the most of them."""

    attribute: str
    sizes: Any  # given as a mapping, kept as rows of a value, the least and the most

    def __post_init__(self) -> None:
        expect(self.attribute, TEXT, "attribute of a rule `size_class`")
        given: Any = self.sizes
        if isinstance(given, Mapping):
            given = [
                (value, one, one) if WHOLE.holds(one) else (value, *one) if several(WHOLE).holds(one) else ()
                for value, one in given.items()
            ]
        rows = Kind("rows of a value, the least and the most persons", lambda row: isinstance(row, list | tuple))
        expect(given, several(rows), f"sizes of size_class of {self.attribute!r}")
        found = []
        for row in given:
            if len(row) != 3 or not several(WHOLE).holds(row[1:]) or not 0 <= row[1] <= row[2]:
                raise SpecError(
                    f"size_class of {self.attribute!r}: each value has a number of persons, or the least and the most"
                )
            found.append((str(row[0]), int(row[1]), int(row[2])))
        if not found:
            raise SpecError(f"size_class of {self.attribute!r} needs sizes: for each value its number of persons")
        object.__setattr__(self, "sizes", tuple(found))

    def check(self, roles: Mapping[str, Role], household: Attributes, person: Attributes) -> None:
        """Refuse what is not there."""
        values = tuple(value for value, _, _ in self.sizes)
        check_condition(((self.attribute, values),), household, "a rule `size_class`")

    def allowed(self, attribute: Attribute, most: int) -> NDArray[np.bool_]:
        """[0 … most persons, codes]; values that are not listed go with any number."""
        table = np.ones((most + 1, attribute.codes), bool)
        sizes = np.arange(most + 1)
        for value, least, greatest in self.sizes:
            table[:, attribute.values.index(value)] = (sizes >= least) & (sizes <= greatest)
        return table

    def in_words(self) -> str:
        """What it says."""
        parts = (
            f"{value} is {least} person{'s' * (least != 1)}"
            if least == most
            else f"{value} is {least} to {most} persons"
            for value, least, most in self.sizes
        )
        return f"{self.attribute}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"kind": "size_class", "attribute": self.attribute, "sizes": [list(row) for row in self.sizes]}


Rule = Implies | Below | Has | SizeClass
KINDS: dict[str, type[Rule]] = {"implies": Implies, "below": Below, "has": Has, "size_class": SizeClass}


def rule_from_json(values: dict[str, Any]) -> Rule:
    """What a rule's `to_json` wrote."""
    rest = {name: value for name, value in values.items() if name != "kind"}
    if values["kind"] == "size_class":
        rest["sizes"] = tuple(tuple(row) for row in rest["sizes"])
    return KINDS[values["kind"]](**rest)


def missing_together(attributes: Mapping[str, Attribute], names: tuple[str, ...]) -> tuple[Implies, ...]:
    """Columns of which all are missing, or none: as rules that say so."""
    if len(names) < 2:
        raise SpecError("missing_together needs at least two attributes")
    for name in names:
        check_condition(((name, ()),), attributes, "missing_together")
        if attributes[name].missing is None:
            raise SpecError(f"missing_together names {name!r}, which has no value for an empty cell (missing=…)")
    gone = {name: (str(attributes[name].missing),) for name in names}
    there = {name: tuple(value for value in attributes[name].values if value not in gone[name]) for name in names}
    return tuple(
        Implies(when=((one, part[one]),), then=tuple((other, part[other]) for other in names if other != one))
        for part in (gone, there)
        for one in names
    )


# -------------------------------------------------------------------- what can be compared


def numbers_of(attribute: Attribute) -> list[tuple[float, float, bool]] | None:
    """For each value but the missing one: the least number, the greatest, and can it be reached? None if no numbers."""
    values = [value for value in attribute.values if value != attribute.missing]
    if attribute.cuts is not None:
        edges = [-inf, *attribute.cuts, inf]
        return [(low, high, False) for low, high in pairwise(edges)]
    try:
        return [(float(value), float(value), True) for value in values]
    except ValueError:
        return None


def may_be_below(attribute: Attribute, by: float) -> NDArray[np.bool_]:
    """[codes, codes]: can the first be below the second by at least `by`?"""
    codes = attribute.codes
    table = np.ones((codes, codes), bool)
    known = [code for code, value in enumerate(attribute.values) if value != attribute.missing]
    numbers = numbers_of(attribute)
    for one, low in enumerate(known):
        for other, high in enumerate(known):
            if numbers is None:
                table[low, high] = one <= other
            else:
                least, (_, most, reached) = numbers[one][0] + by, numbers[other]
                table[low, high] = least <= most if reached else least < most
    return table


def _check_role(role: str | None, roles: Mapping[str, Role], what: str) -> None:
    if role is not None and role not in roles:
        raise SpecError(f"{what} names the role {role!r}; {did_you_mean(role, list(roles), 'there are')}")
