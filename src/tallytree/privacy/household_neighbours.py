"""What is protected in household microdata, and how far one neighbour can move a table of counts.

The table of `HouseholdNeighbours.sensitivity` is the whole privacy argument of a measurement; each entry has its proof
there and a brute-force test over all small neighbouring data sets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal, get_args

from tallytree.core.arguments import TEXT, expect, instance, told
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.neighbours import (
    PrivacyUnit,
    Sensitivity,
    checked_same_unit_as,
    columns_to_json,
    same_unit_in_words,
)
from tallytree.tables.group_sizes import Columns

HouseholdUnitKind = Literal["one_group", "one_group_added_or_removed", "one_person_attributes"]
HOUSEHOLDS = "households"  # this kind of neighbour relation, in files


@dataclass(frozen=True)
class HouseholdUnit:
    """Whose data the synthetic microdata hide.

    "one_group": a whole household, replaced by any other, empty ones included; how many households there are is
    public. "one_group_added_or_removed": a whole household that comes or goes; their number is private.
    "one_person_attributes": the attributes of one person; households, their attributes and their sizes are *not*
    protected. `same_unit_as` is as in `PrivacyUnit`.
    """

    kind: HouseholdUnitKind = "one_group"
    same_unit_as: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "same_unit_as", checked_same_unit_as(self.same_unit_as))
        expect(self.kind, TEXT, "the privacy unit")
        if self.kind not in get_args(HouseholdUnitKind):
            raise SpecError(f"unknown privacy unit {self.kind!r}; expected {', '.join(get_args(HouseholdUnitKind))}")

    @classmethod
    def of(cls, value: HouseholdUnit | PrivacyUnit | str) -> HouseholdUnit:
        """A unit, or the unit that a word of a spec names."""
        if isinstance(value, HouseholdUnit):
            return value
        if isinstance(value, PrivacyUnit):
            return cls(value.kind, value.same_unit_as)  # type: ignore[arg-type]  # which refuses one_entity
        return cls(value)  # type: ignore[arg-type]


@dataclass(frozen=True)
class HouseholdNeighbours:
    """The full neighbour relation: the unit, and the most persons of a household, on which its sensitivities rest."""

    unit: HouseholdUnit
    max_persons: int
    columns: Columns | None = field(default=None, compare=False)  # what a household is; the ledger compares it

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", Columns.of(self.columns))
        expect(self.unit, instance(HouseholdUnit), "unit")
        if isinstance(self.max_persons, bool) or not isinstance(self.max_persons, int) or self.max_persons < 1:
            raise SpecError(f"max_persons must be a whole number of at least 1, not {told(self.max_persons)}")

    @property
    def number_is_public(self) -> bool:
        """Do all neighbours have the same number of households?"""
        return self.unit.kind != "one_group_added_or_removed"

    def sensitivity(self, marginal: Marginal, schema: Schema) -> Sensitivity:
        """The most that all counts of `marginal` together change between neighbours.

        M is the most persons of a household, A the number of cells over the household attributes (not size), C that
        over the person attributes (1 where there are none).

        A household adds to a table a vector of its own, and the table is the sum of these. A household added or
        removed changes the table by one such vector v, a household replaced by a difference v − w of two.

        Households, no person attributes: v has a single 1, at the household's attributes (and size).
          Added or removed: 1 / 1. Replaced: the 1 moves: 2 / 2; but 0 where the table has one cell only, for then it
          is the number of households.
        Households, with person attributes: v has a 1 in each cell that one of its persons has, so at most
          k = min(M, C) ones, all at one place of size and household attributes.
          Added or removed: k / k. Replaced: the entries of v − w are −1, 0 or 1, so L1 and L2² are both the number of
          cells that only one of the two has: 2k at most, reached where the two differ in household attributes (A > 1).
          With A = 1 and no size both lie among the same C cells: min(2k, C). With A = 1 and size they lie so if they
          have as many persons, otherwise one has at most M − 1: max(min(2k, C), k + min(M − 1, C)).
        Persons: v counts the household's n ≤ M persons by cell, so its L1 is n and its L2² at most n².
          Added or removed: M / M². Replaced, with A·C > 1: L1 of v − w is at most the sum 2M; L2² is at most
          |v|² + |w|² = 2M², for no entry is negative so v·w ≥ 0; reached by two households of M alike persons each, in
          different cells. With A·C = 1 and no size there is one cell, the number of persons, and it changes by at
          most M: M / M². With A·C = 1 and size, sizes n ≠ m have different cells: n + m ≤ 2M − 1 and
          n² + m² ≤ M² + (M − 1)².
        One person's attributes: the person's household keeps its size and attributes, so tables without person
          attributes (or with C = 1) stay as they are: 0. Otherwise the person moves from one cell to another of the
          same household: of persons, 2 / 2. Of households, the first cell loses the household if nobody else there
          has it and the second gains it if nobody had it: 2 / 2.

        By role: who is in a role is told within a household, by that household alone, so the table is a sum over
          households again. With r different roles named, a household that has somebody in each adds to the table as
          above, but for its at most n = M − r other persons, at the one place that its own attributes and those of
          the r persons have: A is then the number of cells over both. A household without such a person adds nothing.
          So all entries above hold with n for M, as bounds. A table of one cell without persons is 1 / 1 where a
          household is replaced, for either may lack the role.
          One person's attributes: refused where an attribute tells roles, for a person who changes it could make
          somebody else the head. By position, or by attributes of the household, roles stay. With R > 1 cells over the
          roles' attributes somebody in a role can move all that the household adds from one place to another: twice
          what a household added or removed changes. Otherwise as above.
        """
        most = self.max_persons - len(marginal.role_names)
        homes, people = self._cells(marginal, schema)
        if self.unit.kind == "one_person_attributes":
            if marginal.roles and self._role_cells(marginal, schema) > 1:
                added = HouseholdNeighbours(HouseholdUnit("one_group_added_or_removed"), self.max_persons)
                one = added.sensitivity(marginal, schema)
                return Sensitivity(2 * one.l1, 2 * one.l2_squared)
            return Sensitivity(2, 2) if people > 1 else Sensitivity(0, 0)
        replaced = self.unit.kind == "one_group"
        if marginal.of == "persons":
            if not replaced or (homes == people == 1 and not marginal.size):
                return Sensitivity(most, most**2)
            other = most if homes * people > 1 else most - 1
            return Sensitivity(most + other, most**2 + other**2)
        if not marginal.person:
            moved = 1 if not replaced else 2 if homes > 1 or marginal.size else 1 if marginal.roles else 0
            return Sensitivity(moved, moved)
        ones = min(most, people)
        if not replaced:
            changed = ones
        elif homes > 1:
            changed = 2 * ones
        else:
            changed = min(2 * ones, people)
            if marginal.size:
                changed = max(changed, ones + min(most - 1, people))
        return Sensitivity(changed, changed)

    def cells_sensitivity(self, marginal: Marginal, number: int, schema: Schema) -> Sensitivity:
        """The most that any `number` cells of `marginal` together change between neighbours.

        They are a part of the table, so they change by no more than the whole does, in either norm. And one cell
        changes by at most b: a household is counted in a cell of a households table or not, so b = 1; in a persons
        table it is counted with at most M persons (M − r by role) and at least none, so b = M, or b = 1 where a single
        person moves and takes nobody along, as somebody in a role does.
        So L1 is at most `number` · b and L2² at most `number` · b².
        """
        if number < 1:
            raise SpecError(f"a measurement needs at least one cell, not {number}")
        whole = self.sensitivity(marginal, schema)
        alone = self.unit.kind == "one_person_attributes" and not marginal.roles
        one = self.max_persons - len(marginal.role_names) if marginal.of == "persons" and not alone else 1
        return Sensitivity(min(whole.l1, number * one), min(whole.l2_squared, number * one**2))

    def _cells(self, marginal: Marginal, schema: Schema) -> tuple[int, int]:
        """How many cells the attributes of household and roles have (without size), and the person attributes."""
        marginal.check(schema)
        if schema.max_persons != self.max_persons:
            raise SpecError(
                f"the schema has max_persons={schema.max_persons}, the neighbour relation {self.max_persons}; "
                "they must agree"
            )
        if marginal.roles and self.unit.kind == "one_person_attributes" and roles_by_attribute(schema):
            raise SpecError(
                f"the table of {marginal.describe()} cannot be asked for under one_person_attributes, since an "
                "attribute of persons tells their roles: one person who changes it could change the roles of others. "
                "Tell roles by position, leave such tables out, or protect one_group"
            )
        return (
            prod(schema.attribute(name).codes for name in marginal.household) * self._role_cells(marginal, schema),
            prod(schema.attribute(name).codes for name in marginal.person),
        )

    def _role_cells(self, marginal: Marginal, schema: Schema) -> int:
        return prod(schema.attribute(name).codes for _, name in marginal.roles)

    def describe(self) -> str:
        """The relation in words, for the privacy statement."""
        largest = f"A household counts at most {self.max_persons} persons.{same_unit_in_words(self)}"
        if self.unit.kind == "one_group":
            return (
                "Neighbouring data sets differ in one household, replaced by any other with all its persons and "
                "attributes, empty ones included; so a person who joins, leaves or changes within a household is "
                f"protected too. The number of households is public and known exactly. {largest}"
            )
        if self.unit.kind == "one_group_added_or_removed":
            return (
                "Neighbouring data sets differ in one household, added or removed with all its persons. The number of "
                "households is private. A household that stays and changes, by as little as one person, counts as one "
                f"removed and one added: twice the epsilon, four times the rho. {largest}"
            )
        return (
            "Neighbouring data sets differ in the attributes of one person. NOT protected: which households there "
            "are, their attributes, the number of persons in each, and so whether a person is in the data at all; "
            f"tables of these may be published exactly. {largest}"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them back."""
        return {
            "kind": HOUSEHOLDS,
            "unit": self.unit.kind,
            "max_persons": self.max_persons,
            **columns_to_json(self),
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> HouseholdNeighbours:
        """What `to_json` wrote."""
        unit = HouseholdUnit(values["unit"], values.get("same_unit_as", ()))
        return cls(unit, values["max_persons"], values.get("columns"))


def roles_by_attribute(schema: Schema) -> bool:
    """Does an attribute of persons tell who is who?"""
    return schema.structure is not None and schema.structure.attribute is not None
