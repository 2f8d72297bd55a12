"""The public shape of household microdata: the attributes of households and persons, and the tables over them.

Nothing here is ever taken from private rows: values, bins and the largest number of persons are stated beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

from tallytree.core.arguments import FLAG, TEXT, WHOLE, expect, instance, optional, several
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly, did_you_mean
from tallytree.core.numbers import short
from tallytree.domain.edit_rules import Attribute as Attribute
from tallytree.domain.edit_rules import Structure
from tallytree.domain.feasibility import Search, check_possible

Counted = Literal["households", "persons"]
SIZE = "persons"  # the name of the first axis of a table, if that is the number of persons in a household


@dataclass(frozen=True)
class Schema:
    """State the attributes of households and of persons, and the largest number of persons of a household.

    A household may have no persons.

    Parameters
    ----------
    household : tuple of Attribute
        The attributes of households.
    person : tuple of Attribute
        The attributes of persons.
    max_persons : int
        The largest number of persons that a household can have.
    structure : Structure, optional
        The roles of persons, and the rules that all households satisfy. Without it everything is possible.

    Examples
    --------
    >>> schema = Schema((Attribute("tenure", ("owned", "rented")),), (Attribute("sex", ("f", "m")),), max_persons=2)
    >>> schema.attribute("sex").codes
    2
    """

    household: tuple[Attribute, ...]
    person: tuple[Attribute, ...]
    max_persons: int
    structure: Structure | None = None

    __repr__ = briefly

    def __post_init__(self) -> None:
        if isinstance(self.max_persons, bool) or not isinstance(self.max_persons, int) or self.max_persons < 1:
            raise SpecError(f"max_persons must be an integer of at least 1, not {short(self.max_persons)}")
        for side in ("household", "person"):
            expect(getattr(self, side), several(instance(Attribute)), side)
            object.__setattr__(self, side, tuple(getattr(self, side)))
        names = [attribute.name for attribute in (*self.household, *self.person)]
        if not names:
            raise SpecError("a schema needs at least one attribute")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SpecError(f"attributes of households and persons need different names; {', '.join(twice)} came twice")
        if SIZE in names:
            raise SpecError(f"{SIZE!r} is reserved for the number of persons in a household; rename the attribute")
        expect(self.structure, optional(instance(Structure)), "structure")
        if self.structure is not None:
            household, person = (
                {attribute.name: attribute for attribute in side} for side in (self.household, self.person)
            )
            self.structure.check(household, person, self.max_persons)
            check_possible(self.search)

    @cached_property
    def search(self) -> Search:
        """Return the search for households that satisfy the rules."""
        return Search(self.structure or Structure(), self.household, self.person, self.max_persons)

    def attribute(self, name: str) -> Attribute:
        """Return an attribute by name.

        Parameters
        ----------
        name : str
            The name.

        Returns
        -------
        Attribute
            The attribute.
        """
        for attribute in (*self.household, *self.person):
            if attribute.name == name:
                return attribute
        known = [attribute.name for attribute in (*self.household, *self.person)]
        raise SpecError(f"the schema has no attribute {name!r}; {did_you_mean(name, known, 'it has')}")

    @property
    def domain_size(self) -> int:
        """Return how many different households are possible, with persons in order and at least one: HQR's d."""
        persons = prod(attribute.codes for attribute in self.person)
        homes = prod(attribute.codes for attribute in self.household)
        return int(homes * sum(persons**number for number in range(1, self.max_persons + 1)))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` reads them back. A schema without structure has no word of one."""
        return {
            "household": [attribute.to_json() for attribute in self.household],
            "person": [attribute.to_json() for attribute in self.person],
            "max_persons": self.max_persons,
            **({} if self.structure is None else {"structure": self.structure.to_json()}),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Schema:
        """Read what `to_json` returned.

        Parameters
        ----------
        values : dict
            What `to_json` returned.

        Returns
        -------
        Schema
            The schema.
        """
        return cls(
            tuple(Attribute.from_json(attribute) for attribute in values["household"]),
            tuple(Attribute.from_json(attribute) for attribute in values["person"]),
            values["max_persons"],
            Structure.from_json(values["structure"]) if "structure" in values else None,
        )


@dataclass(frozen=True)
class Marginal:
    """Name a table of counts over the values of some attributes.

    `of` "households" counts the households that have the values of `household` and, if `person` is not empty, contain
    at least one person who has the values of `person` (the same person has them all). `of` "persons" counts the persons
    who have the values of `person` and live in a household with those of `household`. With `size` the number of persons
    in the household, 0 … max_persons, is one more attribute of the household.

    `roles` are pairs of a role (of one person) and an attribute of the person in it: further attributes of the
    household. A household in which nobody is in a named role is not counted, and neither are the persons in the named
    roles: of "persons", and of `person`, the others are meant.
    The axes are size (if any), then `household`, then `roles`, then `person`, in the order given.

    `groups` merges values of an axis: the table then counts as if the attribute had only as many values as there are
    groups. It has one entry for each axis but size. An entry has the number of its group for each value of the
    attribute, or is empty where every value is counted separately.

    Parameters
    ----------
    of : {"households", "persons"}
        What is counted.
    household : tuple of str, optional
        Household attributes.
    person : tuple of str, optional
        Person attributes.
    size : bool, default False
        Whether the number of persons is one more household attribute.
    roles : tuple of pairs, optional
        Pairs of a role and an attribute of the person in it.
    groups : tuple of tuple of int, optional
        For each attribute of the table the group of each of its values, numbered from 0.

    Examples
    --------
    >>> schema = Schema((Attribute("tenure", ("owned", "rented")),), (Attribute("sex", ("f", "m")),), max_persons=2)
    >>> Marginal("households", ("tenure",), ("sex",)).cells(schema)
    4
    """

    of: Counted
    household: tuple[str, ...] = ()
    person: tuple[str, ...] = ()
    size: bool = False
    roles: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.of not in ("households", "persons"):
            raise SpecError(f"a table counts households or persons, not {self.of!r}")
        for side in ("household", "person"):
            expect(getattr(self, side), several(TEXT), f"{side} of a table")
            object.__setattr__(self, side, tuple(getattr(self, side)))
        expect(self.size, FLAG, "size of a table")
        if not several(several(TEXT)).holds(self.roles) or any(len(pair) != 2 for pair in self.roles):
            raise SpecError("roles of a table are pairs of a role and an attribute of persons")
        object.__setattr__(self, "roles", tuple((role, name) for role, name in self.roles))
        if len(set(self.roles)) != len(self.roles):
            raise SpecError("a table names an attribute of a role twice")
        names = (*self.household, *self.person)
        if len(set(names)) != len(names):
            raise SpecError(f"the table over {', '.join(names)} names an attribute twice")
        if not several(several(WHOLE)).holds(self.groups):
            raise SpecError("groups of a table are, for each of its attributes, the numbers of its values' groups")
        groups = tuple(map(tuple, self.groups))
        object.__setattr__(self, "groups", groups if any(groups) else ())

    def check(self, schema: Schema) -> None:
        """Refuse attributes that the schema does not have, or has on the other side.

        Parameters
        ----------
        schema : Schema
            The schema.

        Raises
        ------
        SpecError
            If an attribute is refused.
        """
        for names, side, which in (
            (self.household, schema.household, "households"),
            (self.person, schema.person, "persons"),
        ):
            known = [attribute.name for attribute in side]
            for name in names:
                if name not in known:
                    raise SpecError(f"{which} have no attribute {name!r}; {did_you_mean(name, known, 'they have')}")
        if self.roles:
            self._check_roles(schema)
        if self.groups and len(self.groups) != len(self.attributes):
            raise SpecError(f"the table of {self._words()} has groups for {len(self.groups)} attributes")
        for name, groups in zip(self.attributes, self.groups, strict=False):
            if groups and (len(groups) != schema.attribute(name).codes or set(groups) != {*range(max(groups) + 1)}):
                raise SpecError(f"groups of {name!r} need a number for each of its values, counted from 0")

    def _check_roles(self, schema: Schema) -> None:
        structure = schema.structure or Structure()
        known = [attribute.name for attribute in schema.person]
        for role, name in self.roles:
            if not structure.role(role).single:
                raise SpecError(f"a table by {name} of {role} needs a role of one person, but {role!r} may be several")
            if name not in known:
                raise SpecError(f"persons have no attribute {name!r}; {did_you_mean(name, known, 'they have')}")
        if (self.of == "persons" or self.person) and schema.max_persons <= len(self.role_names):
            raise SpecError(f"the table of {self.describe()} counts nobody: a household has no more persons than roles")

    @property
    def role_names(self) -> tuple[str, ...]:
        """Return the roles that are named, each once."""
        return tuple(dict.fromkeys(role for role, _ in self.roles))

    def shape(self, schema: Schema) -> tuple[int, ...]:
        """Return the lengths of the axes.

        Parameters
        ----------
        schema : Schema
            The schema of the attributes.

        Returns
        -------
        tuple of int
            The lengths.
        """
        size = (schema.max_persons + 1,) if self.size else ()
        return (*size, *self.lengths(schema))

    def lengths(self, schema: Schema) -> tuple[int, ...]:
        """Return the lengths of the axes except size.

        Parameters
        ----------
        schema : Schema
            The schema of the attributes.

        Returns
        -------
        tuple of int
            The lengths.
        """
        return tuple(
            max(groups) + 1 if groups else schema.attribute(name).codes
            for name, groups in zip(self.attributes, self.groups_of_axes, strict=True)
        )

    @property
    def groups_of_axes(self) -> tuple[tuple[int, ...], ...]:
        """Return the groups of each axis except size; empty where no values are merged."""
        return self.groups or ((),) * len(self.attributes)

    @property
    def axes(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Return what each axis is of: the side or the role, the attribute, and its groups."""
        sides = (
            *(("household",) * len(self.household)),
            *(f"role {role}" for role, _ in self.roles),
            *(("person",) * len(self.person)),
        )
        size = (("size", "", ()),) if self.size else ()
        return (*size, *zip(sides, self.attributes, self.groups_of_axes, strict=True))

    def over(self, axes: Sequence[tuple[str, str, tuple[int, ...]]]) -> Marginal:
        """Return the table over some of its axes, in its order.

        Parameters
        ----------
        axes : list of tuple
            The axes, as `axes` has them.

        Returns
        -------
        Marginal
            The table.
        """
        chosen = [axis for axis in self.axes if axis in axes]

        def of(side: str) -> tuple[str, ...]:
            return tuple(name for which, name, _ in chosen if which == side)

        return Marginal(
            self.of,
            of("household"),
            of("person"),
            bool(of("size")),
            tuple((role, name) for role, name in self.roles if name in of(f"role {role}")),
            tuple(groups for which, _, groups in chosen if which != "size"),
        )

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the attribute of each axis except size; those of roles may come more than once."""
        return (*self.household, *(name for _, name in self.roles), *self.person)

    def labels(self, schema: Schema) -> list[list[str]]:
        """Return the words of each axis except size; the values of a group are joined by "or".

        Parameters
        ----------
        schema : Schema
            The schema of the attributes.

        Returns
        -------
        list of list of str
            The words.
        """
        found = []
        for name, groups in zip(self.attributes, self.groups_of_axes, strict=True):
            values = schema.attribute(name).values
            merged: dict[int, list[str]] = {}
            for group, value in zip(groups or range(len(values)), values, strict=True):
                merged.setdefault(group, []).append(value)
            found.append([" or ".join(merged[group]) for group in sorted(merged)])
        return found

    def cells(self, schema: Schema) -> int:
        """Return the number of counts.

        Parameters
        ----------
        schema : Schema
            The schema of the attributes.

        Returns
        -------
        int
            The number.
        """
        return prod(self.shape(schema))

    def describe(self) -> str:
        """Return the table in words, for messages and reports."""
        if not self.groups:
            return self._words()
        merged = [
            f"{name}{f' of {role}' if role else ''} in {max(groups) + 1} groups"
            for (name, role), groups in zip(self._named, self.groups, strict=False)
            if groups
        ]
        return f"{self._words()} ({', '.join(merged)})"

    @property
    def _named(self) -> list[tuple[str, str]]:
        homes, people = ([(name, "") for name in names] for names in (self.household, self.person))
        return [*homes, *((name, role) for role, name in self.roles), *people]

    def _words(self) -> str:
        axes = [*([SIZE] if self.size else []), *self.household, *(f"{name} of {role}" for role, name in self.roles)]
        where = f" by {', '.join(axes)}" if axes else ""
        others = f" other than {' and '.join(self.role_names)}" if self.roles else ""
        if not self.person:
            return f"persons{others}{where}" if self.of == "persons" else f"{self.of}{where}"
        who = " and ".join(self.person)
        if self.of == "households":
            return f"{self.of}{where} with a person{others} of each {who}"
        return f"persons{others}{where} by {who}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` reads them back."""
        named = {"of": self.of, "household": list(self.household), "person": list(self.person), "size": self.size}
        roles = {"roles": [list(pair) for pair in self.roles]} if self.roles else {}
        return {**named, **roles, **({"groups": [list(groups) for groups in self.groups]} if self.groups else {})}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Marginal:
        """Read what `to_json` returned.

        Parameters
        ----------
        values : dict
            What `to_json` returned.

        Returns
        -------
        Marginal
            The table.
        """
        roles = tuple(tuple(pair) for pair in values.get("roles", ()))
        groups = tuple(map(tuple, values.get("groups", ())))
        return cls(values["of"], tuple(values["household"]), tuple(values["person"]), values["size"], roles, groups)


def check_all(marginals: Iterable[Marginal], schema: Schema) -> None:
    """Refuse the first marginal that does not fit the schema."""
    for marginal in marginals:
        marginal.check(schema)
