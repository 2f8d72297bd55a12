"""The public shape of household microdata: the attributes of households and persons, and the tables over them.

Nothing here is ever taken from private rows: values, bins and the most persons of a household are stated beforehand.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Literal

from tallytree.arguments import FLAG, NUMBER, TEXT, expect, instance, optional, several
from tallytree.errors import SpecError
from tallytree.names import did_you_mean
from tallytree.notebook import briefly
from tallytree.numbers import short

Counted = Literal["households", "persons"]
SIZE = "persons"  # the name of the number of persons in a household, where a table has it as its first axis


@dataclass(frozen=True)
class Attribute:
    """A named list of values; a row's code is its value's place in the list.

    With `cuts` the column is a number and the values name its bins: below the first cut, from each cut up to the next
    (which it does not reach), and from the last cut on. `missing` is the value that an empty cell stands for, if any.

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
                raise SpecError(f"attribute {self.name!r}: cuts must be finite numbers that rise")
            object.__setattr__(self, "cuts", tuple(self.cuts))
            bins = len(self.values) - (self.missing is not None)
            if len(self.cuts) + 1 != bins:
                made = len(self.cuts) + 1
                raise SpecError(f"attribute {self.name!r}: its cuts make {made} bins, but {bins} are named")
            if self.missing is not None and self.missing != self.values[-1]:
                raise SpecError(f"attribute {self.name!r}: with cuts, the missing value comes last")

    @property
    def codes(self) -> int:
        """How many values there are."""
        return len(self.values)

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {
            "name": self.name,
            "values": list(self.values),
            "cuts": None if self.cuts is None else list(self.cuts),
            "missing": self.missing,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Attribute:
        """What `to_json` wrote."""
        cuts = values["cuts"]
        return cls(values["name"], tuple(values["values"]), None if cuts is None else tuple(cuts), values["missing"])


@dataclass(frozen=True)
class Schema:
    """Attributes of households and of persons, and the most persons that a household can have (it may have none)."""

    household: tuple[Attribute, ...]
    person: tuple[Attribute, ...]
    max_persons: int

    __repr__ = briefly

    def __post_init__(self) -> None:
        if isinstance(self.max_persons, bool) or not isinstance(self.max_persons, int) or self.max_persons < 1:
            raise SpecError(f"max_persons must be a whole number of at least 1, not {short(self.max_persons)}")
        for side in ("household", "person"):
            expect(getattr(self, side), several(instance(Attribute)), side)
            object.__setattr__(self, side, tuple(getattr(self, side)))
        names = [attribute.name for attribute in (*self.household, *self.person)]
        if not names:
            raise SpecError("a schema needs at least one attribute")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise SpecError(f"attributes of households and persons need different names; {', '.join(twice)} came twice")
        if SIZE in names:
            raise SpecError(f"{SIZE!r} names the number of persons in a household; call the attribute something else")

    def attribute(self, name: str) -> Attribute:
        """One attribute by name."""
        for attribute in (*self.household, *self.person):
            if attribute.name == name:
                return attribute
        known = [attribute.name for attribute in (*self.household, *self.person)]
        raise SpecError(f"the schema has no attribute {name!r}; {did_you_mean(name, known, 'it has')}")

    @property
    def domain_size(self) -> int:
        """How many different households there can be, persons in order and at least one: HQR's d."""
        persons = prod(attribute.codes for attribute in self.person)
        homes = prod(attribute.codes for attribute in self.household)
        return int(homes * sum(persons**number for number in range(1, self.max_persons + 1)))

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {
            "household": [attribute.to_json() for attribute in self.household],
            "person": [attribute.to_json() for attribute in self.person],
            "max_persons": self.max_persons,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Schema:
        """What `to_json` wrote."""
        return cls(
            tuple(Attribute.from_json(attribute) for attribute in values["household"]),
            tuple(Attribute.from_json(attribute) for attribute in values["person"]),
            values["max_persons"],
        )


@dataclass(frozen=True)
class Marginal:
    """A table of counts over the values of some attributes.

    `of` "households" counts the households that have the values of `household` and, where `person` is not empty,
    contain at least one person who has the values of `person` (the same person has them all). `of` "persons" counts
    the persons who have the values of `person` and live in a household with those of `household`. With `size` the
    number of persons in the household, 0 … max_persons, is one more attribute of the household.
    The axes are size (if any), then `household`, then `person`, in the order given.
    """

    of: Counted
    household: tuple[str, ...] = ()
    person: tuple[str, ...] = ()
    size: bool = False

    def __post_init__(self) -> None:
        if self.of not in ("households", "persons"):
            raise SpecError(f"a table counts households or persons, not {self.of!r}")
        for side in ("household", "person"):
            expect(getattr(self, side), several(TEXT), f"{side} of a table")
            object.__setattr__(self, side, tuple(getattr(self, side)))
        expect(self.size, FLAG, "size of a table")
        names = (*self.household, *self.person)
        if len(set(names)) != len(names):
            raise SpecError(f"the table over {', '.join(names)} names an attribute twice")

    def check(self, schema: Schema) -> None:
        """Refuse attributes that the schema does not have, or has on the other side."""
        for names, side, which in (
            (self.household, schema.household, "households"),
            (self.person, schema.person, "persons"),
        ):
            known = [attribute.name for attribute in side]
            for name in names:
                if name not in known:
                    raise SpecError(f"{which} have no attribute {name!r}; {did_you_mean(name, known, 'they have')}")

    def shape(self, schema: Schema) -> tuple[int, ...]:
        """The lengths of the axes."""
        size = (schema.max_persons + 1,) if self.size else ()
        return (*size, *(schema.attribute(name).codes for name in (*self.household, *self.person)))

    def cells(self, schema: Schema) -> int:
        """How many counts there are."""
        return prod(self.shape(schema))

    def describe(self) -> str:
        """In words, for messages and reports."""
        axes = [*([SIZE] if self.size else []), *self.household]
        where = f" by {', '.join(axes)}" if axes else ""
        if not self.person:
            return f"{self.of}{where}"
        who = " and ".join(self.person)
        return (
            f"{self.of}{where} with a person of each {who}" if self.of == "households" else f"persons{where} by {who}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {"of": self.of, "household": list(self.household), "person": list(self.person), "size": self.size}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Marginal:
        """What `to_json` wrote."""
        return cls(values["of"], tuple(values["household"]), tuple(values["person"]), values["size"])


def check_all(marginals: Iterable[Marginal], schema: Schema) -> None:
    """Refuse the first marginal that does not fit the schema."""
    for marginal in marginals:
        marginal.check(schema)
