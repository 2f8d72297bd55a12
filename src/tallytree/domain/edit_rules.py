"""Attributes of households and persons, and edit rules about them.

An attribute is a name and its possible values, in order. A `Structure` has the roles of persons in a household and the
rules that every household satisfies.

Examples of roles are the head, the spouse and the children. Each person has one role, or belongs to the rest.

A role is defined by a column's values (all roles by the same column, no value twice) or by the order of persons. If
several persons could be in a role for one person, the first in order has it, and the others belong to the rest. So the
map from persons to roles is total: it is defined for every household, and depends on that household alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import (
    FLAG,
    MAPPING,
    NUMBER,
    TEXT,
    WHOLE,
    Kind,
    either,
    expect,
    instance,
    optional,
    several,
)
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly, did_you_mean


@dataclass(frozen=True)
class Attribute:
    """An attribute and its public values. The code of a value is its place in the list.

    Parameters
    ----------
    name : str
        The name, which is that of the column.
    values : tuple of str
        The values.
    cuts : tuple of float, optional
        The column is a number and the values name its bins: below the first cut, from each cut up to the next (which
        is not included), and from the last cut on.
    missing : str, optional
        The value that an empty cell stands for.

    Examples
    --------
    >>> Attribute("age", ("child", "adult", "old"), cuts=(18, 65)).codes
    3
    """

    name: str
    values: tuple[str, ...]
    cuts: tuple[float, ...] | None = None
    missing: str | None = None

    __repr__ = briefly

    def __post_init__(self) -> None:
        expect(self.name, TEXT, "an attribute's name")
        if not self.name:
            raise SpecError("an attribute needs a name")
        expect(self.missing, optional(TEXT), f"missing of attribute {self.name!r}")
        if not self.values or not several(TEXT).holds(self.values):
            raise SpecError(f"attribute {self.name!r} needs a list of values, each of them text")
        if len(set(self.values)) != len(self.values):
            raise SpecError(f"attribute {self.name!r} lists a value twice")
        if self.missing is not None and self.missing not in self.values:
            raise SpecError(f"attribute {self.name!r}: missing = {self.missing!r} is not among its values")
        object.__setattr__(self, "values", tuple(self.values))
        if self.cuts is not None:
            if not several(NUMBER).holds(self.cuts) or any(low >= high for low, high in pairwise(self.cuts)):
                raise SpecError(f"attribute {self.name!r}: cuts must be finite numbers in increasing order")
            object.__setattr__(self, "cuts", tuple(self.cuts))
            bins = len(self.values) - (self.missing is not None)
            if len(self.cuts) + 1 != bins:
                made = len(self.cuts) + 1
                raise SpecError(f"attribute {self.name!r}: its cuts make {made} bins, but {bins} are named")
            if self.missing is not None and self.missing != self.values[-1]:
                raise SpecError(f"attribute {self.name!r}: with cuts, the missing value comes last")

    @property
    def codes(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` reads them back."""
        return {
            "name": self.name,
            "values": list(self.values),
            "cuts": None if self.cuts is None else list(self.cuts),
            "missing": self.missing,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Attribute:
        """Read what `to_json` returned.

        Parameters
        ----------
        values : dict
            What `to_json` returned.

        Returns
        -------
        Attribute
            The attribute.
        """
        cuts = values["cuts"]
        return cls(values["name"], tuple(values["values"]), None if cuts is None else tuple(cuts), values["missing"])


# -------------------------------------------------------------------- conditions

Number = Literal["exactly one", "at most one", "any"]
# Attributes and their allowed values: given as a mapping, stored as a tuple of pairs.
Condition = Any
REST = "others"  # persons without a role


def condition(given: Any, what: str) -> Condition:
    """Return a mapping from attributes to values (or one value) as a frozen condition; all entries must hold."""
    if isinstance(given, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
        given = dict(given)
    expect(given, MAPPING, what)
    found = []
    for name, values in given.items():
        listed = (values,) if isinstance(values, str) else values
        expect(listed, several(TEXT), f"{what}: the values of {name!r}")
        if not listed:
            raise SpecError(f"{what}: {name!r} lists no value; give at least one")
        found.append((str(name), tuple(listed)))
    return tuple(found)


def check_condition(given: Condition, known: Mapping[str, Attribute], what: str) -> None:
    """Refuse unknown attributes and values."""
    for name, values in given:
        if name not in known:
            raise SpecError(f"{what}: there is no attribute {name!r}; {did_you_mean(name, list(known), 'there are')}")
        for value in values:
            if value not in known[name].values:
                meant = did_you_mean(value, known[name].values, "it has")
                raise SpecError(f"{what}: attribute {name!r} has no value {value!r}; {meant}")


def condition_text(given: Condition) -> str:
    """Return the condition in words: age is child or adult, and sex is f."""
    return " and ".join(f"{name} is {' or '.join(values)}" for name, values in given)


@dataclass(frozen=True)
class Role:
    """A role of persons in a household, such as head or spouse.

    A role is known by an attribute and its values, or by the position in the order of persons.

    Parameters
    ----------
    name : str
        The name.
    number : {"exactly one", "at most one", "any"}, default "any"
        How many persons of a household have the role.
    attribute : str, optional
        The attribute that the role is known by.
    values : tuple of str, optional
        The values of this attribute.
    position : int, optional
        The position of the person in the order of persons; 1 is the first. Such a role is of one person.
    household : mapping, optional
        For a role by position: the values that households with this role have.
    may : mapping, optional
        The values that persons in the role may have.

    Examples
    --------
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
            raise SpecError(f"a role's name is a text without a full stop, and not {REST!r}: {self.name!r}")
        what = f"role {self.name!r}"
        expect(self.attribute, optional(TEXT), f"attribute of {what}")
        expect(self.values, several(TEXT), f"values of {what}")
        expect(self.position, optional(WHOLE), f"position of {what}")
        object.__setattr__(self, "values", tuple(self.values))
        object.__setattr__(self, "household", condition(self.household, f"household of {what}"))
        object.__setattr__(self, "may", condition(self.may, f"may of {what}"))
        if (self.attribute is None) == (self.position is None):
            raise SpecError(f"{what} needs either an attribute and its values, or a position")
        if self.position is None:
            if not self.values:
                raise SpecError(f"{what} needs the values of {self.attribute!r} that define it")
            if self.household:
                raise SpecError(f"{what}: household is for roles by position; use a rule `has` instead")
        else:
            if self.values or self.position < 1:
                raise SpecError(f"{what}: a position is an integer of at least 1, and has no values")
            if self.number == "any":
                first = self.position == 1 and not self.household
                object.__setattr__(self, "number", "exactly one" if first else "at most one")
            if self.number == "exactly one" and (self.position > 1 or self.household):
                raise SpecError(f"{what}: not every household has such a person; set number to 'at most one'")
        if self.number not in get_args(Number):
            raise SpecError(f"{what}: number is one of {', '.join(get_args(Number))}, not {self.number!r}")

    @property
    def single(self) -> bool:
        """Return whether at most one person of a household has the role."""
        return self.number != "any"

    def check(self, household: Mapping[str, Attribute], person: Mapping[str, Attribute]) -> None:
        """Refuse a role that the attributes do not fit.

        Parameters
        ----------
        household : mapping
            The household attributes by name.
        person : mapping
            The person attributes by name.

        Raises
        ------
        SpecError
            If an attribute or value is unknown.
        """
        what = f"role {self.name!r}"
        if self.attribute is not None:
            check_condition(((self.attribute, self.values),), person, what)
        check_condition(self.household, household, what)
        check_condition(self.may, person, what)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` reads them back."""
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
        """Read what `to_json` returned.

        Parameters
        ----------
        values : dict
            What `to_json` returned.

        Returns
        -------
        Role
            The role.
        """
        return cls(**values)


def plain(given: Condition) -> dict[str, list[str]]:
    """Return a condition as plain values."""
    return {name: list(values) for name, values in given}


# -------------------------------------------------------------------- rules

Attributes = Mapping[str, Attribute]


@dataclass(frozen=True)
class Implies:
    """Require that each person who has certain values has certain other values.

    `when` and `then` may name attributes of the household. A rule that names these alone, and no role, is about
    households.

    Parameters
    ----------
    then : mapping
        The values that follow.
    when : mapping, optional
        The values that they follow from. Without it, the rule holds for all.
    role : str, optional
        The rule is about persons in this role only.
    """

    then: Condition
    when: Condition = ()
    role: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "when", condition(self.when, "when of a rule"))
        object.__setattr__(self, "then", condition(self.then, "then of a rule"))
        expect(self.role, optional(TEXT), "role of a rule")
        if not self.then:
            raise SpecError("a rule `implies` needs `then`: the values that must hold")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the attributes of the rule, each once."""
        return tuple(dict.fromkeys(name for name, _ in (*self.when, *self.then)))

    def check(self, roles: Mapping[str, Role], household: Attributes, person: Attributes) -> None:
        """Refuse unknown roles, attributes and values.

        Parameters
        ----------
        roles : mapping
            The roles by name.
        household : mapping
            The household attributes by name.
        person : mapping
            The person attributes by name.

        Raises
        ------
        SpecError
            If a name or value is unknown.
        """
        _check_role(self.role, roles, "a rule `implies`")
        for part in (self.when, self.then):
            check_condition(part, {**household, **person}, "a rule `implies`")

    def in_words(self) -> str:
        """Return the rule in words."""
        who = f"{self.role}: " if self.role else ""
        when = f"if {condition_text(self.when)}, then " if self.when else ""
        return f"{who}{when}{condition_text(self.then)}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"kind": "implies", "role": self.role, "when": plain(self.when), "then": plain(self.then)}


@dataclass(frozen=True)
class Below:
    """Require that an attribute of each person in a role is below that of the person in another role.

    Bins break the rule only if no two numbers in them could satisfy it. Values that are not numbers are compared by
    their order in the schema, and then a `by` of 0 means: not above. Missing values break nothing.

    Parameters
    ----------
    role : str
        The role of the persons whose attribute is lower.
    than : str
        The role of the one person to compare with.
    attribute : str
        The attribute of persons that is compared.
    by : float, default 0
        The least difference.
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
        """Refuse unknown names, and attributes that cannot be compared.

        Parameters
        ----------
        roles : mapping
            The roles by name.
        household : mapping
            The household attributes by name.
        person : mapping
            The person attributes by name.

        Raises
        ------
        SpecError
            If a name is unknown, or the attribute cannot be compared.
        """
        for role in (self.role, self.than):
            _check_role(role, roles, "a rule `below`")
        if not roles[self.than].single:
            raise SpecError(f"a rule `below` compares with one person, but {self.than!r} may be several")
        check_condition(((self.attribute, ()),), person, "a rule `below`")
        if self.by != 0 and numbers_of(person[self.attribute]) is None:
            raise SpecError(
                f"a rule `below` has by = {self.by}, but the values of {self.attribute!r} are not numbers: leave by "
                "out, or give the attribute cuts"
            )

    def in_words(self) -> str:
        """Return the rule in words."""
        least = f" by at least {self.by:g}" if self.by else ""
        return f"{self.attribute} of {self.role} is not above that of {self.than}{least and f', and below it{least}'}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"kind": "below", "role": self.role, "than": self.than, "attribute": self.attribute, "by": self.by}


@dataclass(frozen=True)
class Has:
    """Require that households with certain values have a person in a role.

    Parameters
    ----------
    role : str
        The role.
    household : mapping
        The values of household attributes.
    only : bool, default False
        Require also that other households have nobody in the role.
    """

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
        """Refuse unknown roles, attributes and values.

        Parameters
        ----------
        roles : mapping
            The roles by name.
        household : mapping
            The household attributes by name.
        person : mapping
            The person attributes by name.

        Raises
        ------
        SpecError
            If a name or value is unknown.
        """
        _check_role(self.role, roles, "a rule `has`")
        check_condition(self.household, household, "a rule `has`")

    def in_words(self) -> str:
        """Return the rule in words."""
        if self.only:
            return f"there is a {self.role} if {condition_text(self.household)}, and no {self.role} otherwise"
        return f"if {condition_text(self.household)}, there is a {self.role}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"kind": "has", "role": self.role, "household": plain(self.household), "only": self.only}


@dataclass(frozen=True)
class SizeClass:
    """Require that a household attribute follows from the number of persons.

    Parameters
    ----------
    attribute : str
        The household attribute.
    sizes : mapping
        For each value the number of persons, or the least and the most of them.
    """

    attribute: str
    sizes: Any  # given as a mapping, stored as rows of a value, the smallest and the largest number

    def __post_init__(self) -> None:
        expect(self.attribute, TEXT, "attribute of a rule `size_class`")
        given: Any = self.sizes
        if isinstance(given, Mapping):
            given = [
                (value, one, one) if WHOLE.holds(one) else (value, *one) if several(WHOLE).holds(one) else ()
                for value, one in given.items()
            ]
        rows = Kind(
            "rows of a value, the smallest and the largest number of persons", lambda row: isinstance(row, list | tuple)
        )
        expect(given, several(rows), f"sizes of size_class of {self.attribute!r}")
        found = []
        for row in given:
            if len(row) != 3 or not several(WHOLE).holds(row[1:]) or not 0 <= row[1] <= row[2]:
                raise SpecError(
                    f"size_class of {self.attribute!r}: each value has a number of persons, or the smallest and the "
                    "largest number"
                )
            found.append((str(row[0]), int(row[1]), int(row[2])))
        if not found:
            raise SpecError(f"size_class of {self.attribute!r} needs sizes: for each value its number of persons")
        object.__setattr__(self, "sizes", tuple(found))

    def check(self, roles: Mapping[str, Role], household: Attributes, person: Attributes) -> None:
        """Refuse unknown attributes and values.

        Parameters
        ----------
        roles : mapping
            The roles by name.
        household : mapping
            The household attributes by name.
        person : mapping
            The person attributes by name.

        Raises
        ------
        SpecError
            If a name or value is unknown.
        """
        values = tuple(value for value, _, _ in self.sizes)
        check_condition(((self.attribute, values),), household, "a rule `size_class`")

    def allowed(self, attribute: Attribute, most: int) -> NDArray[np.bool_]:
        """Return which codes each number of persons allows; values that are not listed allow any number.

        Parameters
        ----------
        attribute : Attribute
            The attribute of the rule.
        most : int
            The largest number of persons that a household can have.

        Returns
        -------
        array of bool
            `[0 … most persons, codes]`.
        """
        table = np.ones((most + 1, attribute.codes), bool)
        sizes = np.arange(most + 1)
        for value, least, greatest in self.sizes:
            table[:, attribute.values.index(value)] = (sizes >= least) & (sizes <= greatest)
        return table

    def in_words(self) -> str:
        """Return the rule in words."""
        parts = (
            f"{value} is {least} person{'s' * (least != 1)}"
            if least == most
            else f"{value} is {least} to {most} persons"
            for value, least, most in self.sizes
        )
        return f"{self.attribute}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"kind": "size_class", "attribute": self.attribute, "sizes": [list(row) for row in self.sizes]}


Rule = Implies | Below | Has | SizeClass
KINDS: dict[str, type[Rule]] = {"implies": Implies, "below": Below, "has": Has, "size_class": SizeClass}


def rule_from_json(values: dict[str, Any]) -> Rule:
    """Return the rule that `to_json` wrote."""
    rest = {name: value for name, value in values.items() if name != "kind"}
    if values["kind"] == "size_class":
        rest["sizes"] = tuple(tuple(row) for row in rest["sizes"])
    return KINDS[values["kind"]](**rest)


def missing_together(attributes: Mapping[str, Attribute], names: tuple[str, ...]) -> tuple[Implies, ...]:
    """Return rules that say: of these columns, either all are missing or none."""
    if len(names) < 2:
        raise SpecError("missing_together needs at least two attributes")
    for name in names:
        check_condition(((name, ()),), attributes, "missing_together")
        if attributes[name].missing is None:
            raise SpecError(f"missing_together names {name!r}, which has no `missing`, the value for an empty cell")
    gone = {name: (str(attributes[name].missing),) for name in names}
    there = {name: tuple(value for value in attributes[name].values if value not in gone[name]) for name in names}
    return tuple(
        Implies(when=((one, part[one]),), then=tuple((other, part[other]) for other in names if other != one))
        for part in (gone, there)
        for one in names
    )


# -------------------------------------------------------------------- comparisons


def numbers_of(attribute: Attribute) -> list[tuple[float, float, bool]] | None:
    """Return for each value but the missing one (smallest, largest, is the largest attained); None if not numbers."""
    values = [value for value in attribute.values if value != attribute.missing]
    if attribute.cuts is not None:
        edges = [-inf, *attribute.cuts, inf]
        return [(low, high, False) for low, high in pairwise(edges)]
    try:
        return [(float(value), float(value), True) for value in values]
    except ValueError:
        return None


def may_be_below(attribute: Attribute, by: float) -> NDArray[np.bool_]:
    """Return `[codes, codes]`: whether the first can be below the second by at least `by`."""
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


# -------------------------------------------------------------------- roles and rules together

MOST_ROLES = 4  # for at most one person each: any subset of them may be present


@dataclass(frozen=True)
class Structure:
    """State the roles of persons in a household, and the rules that all households satisfy.

    Exactly one person in a role means: in every household that has persons.

    Parameters
    ----------
    roles : tuple of Role, optional
        The roles.
    rules : tuple of Has, Below, Implies or SizeClass, optional
        The rules.
    empty : bool, default True
        Whether a household may have no persons.
    """

    roles: tuple[Role, ...] = ()
    rules: tuple[Rule, ...] = ()
    empty: bool = True

    def __post_init__(self) -> None:
        expect(self.roles, several(instance(Role)), "roles")
        expect(self.rules, several(either(*map(instance, (Implies, Below, Has, SizeClass)))), "rules")
        expect(self.empty, FLAG, "empty")
        object.__setattr__(self, "roles", tuple(self.roles))
        object.__setattr__(self, "rules", tuple(self.rules))
        names = [role.name for role in self.roles]
        if len(set(names)) != len(names):
            raise SpecError("two roles have the same name")
        columns = {role.attribute for role in self.roles}
        if len(columns) > 1:
            raise SpecError("define all roles by the values of one attribute, or all by position")
        values = [value for role in self.roles for value in role.values]
        if twice := sorted({value for value in values if values.count(value) > 1}):
            raise SpecError(f"a value defines one role: {', '.join(twice)} is named for two")
        places = sorted(role.position for role in self.roles if role.position is not None)
        if places != [*range(1, len(places) + 1)]:
            raise SpecError("positions of roles must be 1, 2, … without a gap, each once")
        if sum(role.number == "at most one" for role in self.roles) > MOST_ROLES:
            raise SpecError(f"there are more than {MOST_ROLES} roles of at most one person")

    @property
    def attribute(self) -> str | None:
        """Return the attribute that all roles are known by; None if they are known by position, or without roles."""
        return self.roles[0].attribute if self.roles else None

    @property
    def single(self) -> tuple[Role, ...]:
        """Return the roles of at most one person: first those that every household has, then in the order given."""
        found = [role for role in self.roles if role.single]
        return tuple(sorted(found, key=lambda role: (role.position or 0, role.number != "exactly one")))

    def role(self, name: str) -> Role:
        """Return a role by name.

        Parameters
        ----------
        name : str
            The name.

        Returns
        -------
        Role
            The role.
        """
        for role in self.roles:
            if role.name == name:
                return role
        raise SpecError(f"there is no role {name!r}; there are {', '.join(role.name for role in self.roles) or 'none'}")

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """Return the rules, with what roles say about the values of the persons in them."""
        return (*(Implies(role=role.name, then=role.may) for role in self.roles if role.may), *self.rules)

    def check(self, household: Mapping[str, Attribute], person: Mapping[str, Attribute], most: int) -> None:
        """Refuse names that the attributes do not have.

        Parameters
        ----------
        household : mapping
            The household attributes by name.
        person : mapping
            The person attributes by name.
        most : int
            The largest number of persons that a household can have.

        Raises
        ------
        SpecError
            If a name or value is unknown.
        """
        for role in self.roles:
            role.check(household, person)
        named = {role.name: role for role in self.roles}
        for rule in self.rules:
            rule.check(named, household, person)
        if (least := len(self.single)) > most:
            raise SpecError(f"there are {least} roles of one person, but a household has at most {most} persons")

    def in_words(self) -> list[str]:
        """Return all rules in words, one line each, in the order in which broken ones are counted."""
        lines = [] if self.empty else ["no household is empty"]
        lines += [f"{role.number} {role.name}" for role in self.roles if role.single and role.position is None]
        return [*lines, *(rule.in_words() for rule in self.all_rules)]

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` reads them back."""
        return {
            "roles": [role.to_json() for role in self.roles],
            "rules": [rule.to_json() for rule in self.rules],
            "empty": self.empty,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Structure:
        """Read what `to_json` returned.

        Parameters
        ----------
        values : dict
            What `to_json` returned.

        Returns
        -------
        Structure
            The structure.
        """
        return cls(
            tuple(Role.from_json(role) for role in values["roles"]),
            tuple(rule_from_json(rule) for rule in values["rules"]),
            values["empty"],
        )
