"""Roles of persons in a household: the head, the spouse, the children. Each person has one role, or is one of the rest.

A role is told by a column's values (all roles by the same column, no value twice) or by the order of persons. Of
several persons who could be in a role that is for one, the first in order has it, and the others are of the rest. So
the map from persons to roles is total: whatever a household looks like, it says who is who, by that household alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from tallytree.core.arguments import MAPPING, TEXT, WHOLE, expect, optional, several
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.domain.attributes import Attribute

Number = Literal["exactly one", "at most one", "any"]
# Attributes and the values that each may have: given as a mapping, kept as a tuple of pairs.
Condition = Any
REST = "others"  # whoever has no role


def condition(given: Any, what: str) -> Condition:
    """A mapping from attributes to values (or one value), as a frozen condition: all of them together must hold."""
    if isinstance(given, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
        given = dict(given)
    expect(given, MAPPING, what)
    found = []
    for name, values in given.items():
        listed = (values,) if isinstance(values, str) else values
        expect(listed, several(TEXT), f"{what}: the values of {name!r}")
        if not listed:
            raise SpecError(f"{what}: {name!r} lists no value, so nothing could have it")
        found.append((str(name), tuple(listed)))
    return tuple(found)


def check_condition(given: Condition, known: Mapping[str, Attribute], what: str) -> None:
    """Refuse attributes and values that are not there."""
    for name, values in given:
        if name not in known:
            raise SpecError(f"{what}: there is no attribute {name!r}; {did_you_mean(name, list(known), 'there are')}")
        for value in values:
            if value not in known[name].values:
                meant = did_you_mean(value, known[name].values, "it has")
                raise SpecError(f"{what}: attribute {name!r} has no value {value!r}; {meant}")


def condition_text(given: Condition) -> str:
    """In words: age is child or adult, and sex is f."""
    return " and ".join(f"{name} is {' or '.join(values)}" for name, values in given)


@dataclass(frozen=True)
class Role:
    """A role: by `attribute` and its `values`, or by `position` in the order of persons (1 is the first).

    `number` says of how many persons it is. A role by position is of one person; with `household` it is there only in
    households that have these values. `may` are the values that persons in the role may have.

    >>> Role("head", "exactly one", attribute="relation", values=("head",)).single
    True
    """

    name: str
    number: Number = "any"
    attribute: str | None = None
    values: tuple[str, ...] = ()
    position: int | None = None
    household: Condition = ()
    may: Condition = ()

    def __post_init__(self) -> None:
        expect(self.name, TEXT, "a role's name")
        if not self.name or self.name == REST or "." in self.name:
            raise SpecError(f"a role's name is a text without a point, and not {REST!r}: {self.name!r}")
        what = f"role {self.name!r}"
        expect(self.attribute, optional(TEXT), f"attribute of {what}")
        expect(self.values, several(TEXT), f"values of {what}")
        expect(self.position, optional(WHOLE), f"position of {what}")
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "household", condition(self.household, f"household of {what}"))
        object.__setattr__(self, "may", condition(self.may, f"may of {what}"))
        if (self.attribute is None) == (self.position is None):
            raise SpecError(f"{what} is told by an attribute and its values, or by a position: give one of the two")
        if self.position is None:
            if not self.values:
                raise SpecError(f"{what} needs the values of {self.attribute!r} that tell it")
            if self.household:
                raise SpecError(f"{what}: household goes with a position; use a rule `has` instead")
        else:
            if self.values or self.position < 1:
                raise SpecError(f"{what}: a position is a whole number of at least 1, and has no values")
            if self.number == "any":
                first = self.position == 1 and not self.household
                object.__setattr__(self, "number", "exactly one" if first else "at most one")
            if self.number == "exactly one" and (self.position > 1 or self.household):
                raise SpecError(f"{what}: not every household has such a person; say at most one")
        if self.number not in get_args(Number):
            raise SpecError(f"{what}: number is one of {', '.join(get_args(Number))}, not {self.number!r}")

    @property
    def single(self) -> bool:
        """Is it a role of one person at most?"""
        return self.number != "any"

    def check(self, household: Mapping[str, Attribute], person: Mapping[str, Attribute]) -> None:
        """Refuse a role that the attributes do not fit."""
        what = f"role {self.name!r}"
        if self.attribute is not None:
            check_condition(((self.attribute, self.values),), person, what)
        check_condition(self.household, household, what)
        check_condition(self.may, person, what)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {
            "name": self.name,
            "number": self.number,
            "attribute": self.attribute,
            "values": list(self.values),
            "position": self.position,
            "household": plain(self.household),
            "may": plain(self.may),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Role:
        """What `to_json` wrote."""
        return cls(**values)


def plain(given: Condition) -> dict[str, list[str]]:
    """A condition as plain values."""
    return {name: list(values) for name, values in given}
