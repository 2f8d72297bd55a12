"""An attribute of household microdata: a name, and the values that it can have, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tallytree.core.arguments import NUMBER, TEXT, expect, optional, several
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly


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
