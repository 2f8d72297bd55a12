"""Which tables are measured by region, on which levels, and with what part of the budget.

All of it is decided from public numbers: a table is measured on a level if the noise of its share of the budget is
expected to sum to no more than `worth` of all that the table counts. What is not measured on a level is taken from the
level above. Rounds that a kill cut off are paid for and lost, and such a table too is taken from above.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Any, NamedTuple

from tallytree.core.errors import BudgetError, SpecError
from tallytree.domain.schema import SIZE, Marginal, Schema
from tallytree.privacy.budget import exact
from tallytree.privacy.neighbours import Sensitivity
from tallytree.synthesis.country.levels import RegionLevels
from tallytree.synthesis.methods.affording import MEAN_SIZE
from tallytree.synthesis.methods.asking import Asking, share
from tallytree.synthesis.models.model import Measured

Bound = Callable[[Marginal], Sensitivity]


@dataclass(frozen=True)
class RegionalOptions:
    """`share` is the part of the budget for tables by region; `tables` are sets of attribute names, each a table that
    is measured by region; without them every attribute is one. `worth` is how much noise a table may have.
    """

    share: Fraction = Fraction(1, 4)
    tables: tuple[tuple[str, ...], ...] | None = None
    worth: float = 1.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> RegionalOptions:
        """Options from plain values, checked."""
        if unknown := [name for name in given if name not in ("share", "tables", "worth")]:
            raise SpecError(f"regional has no {unknown[0]!r}; it has share, tables and worth")
        try:
            part = exact(given.get("share", cls.share), "share of regional")
        except BudgetError as error:
            raise SpecError(str(error)) from None
        if not 0 < part < 1:
            raise SpecError(f"share of regional must lie between 0 and 1, not {given['share']}")
        tables = given.get("tables")
        if tables is not None:
            if isinstance(tables, str) or not all(
                isinstance(names, list | tuple) and all(isinstance(name, str) for name in names) for names in tables
            ):
                raise SpecError('tables of regional are lists of attribute names, as in [["tenure"], ["age", "sex"]]')
            tables = tuple(tuple(names) for names in tables)
        worth = given.get("worth", cls.worth)
        try:
            worth = float(worth)
        except (TypeError, ValueError):
            worth = -1.0
        if not 0 < worth < float("inf"):
            raise SpecError(f"worth of regional must be a number above 0, not {given['worth']!r}")
        return cls(part, tables, worth)

    def chosen(self, national: Schema, sensitivity: Bound, released: Sequence[str]) -> tuple[Marginal, ...]:
        """The tables, without the region; one of persons counts households that contain such a person, if that is less
        sensitive. Sizes and the `released` categories are agreed with, and are not measured again.
        """
        attributes = [each for each in (*national.household, *national.person) if each.name not in released]
        sets = [(each.name,) for each in attributes if each.codes > 1] if self.tables is None else self.tables
        household = [each.name for each in national.household]
        found: dict[Marginal, None] = {}
        for names in sets:
            if not names or len(set(names)) < len(names):
                raise SpecError(f"tables of regional: {', '.join(names) or 'a list'} is empty, or names one twice")
            if known := [name for name in names if name == SIZE or name in released]:
                raise SpecError(f"tables of regional: {known[0]!r} is in the release, which households agree with")
            homes = tuple(name for name in names if name in household)
            people = tuple(name for name in names if name not in household)
            of_homes, of_people = Marginal("households", homes, people), Marginal("persons", homes, people)
            of_homes.check(national)
            less = not people or sensitivity(of_homes).l2_squared < sensitivity(of_people).l2_squared
            found[of_homes if less else of_people] = None
        return tuple(found)


class RegionalTable(NamedTuple):
    """A table that is measured by the regions of a level, and that table itself."""

    table: Marginal
    level: int
    by_region: Marginal


def by_region(table: Marginal, region: str) -> Marginal:
    """A table with the region as its first attribute of households."""
    return Marginal(table.of, (region, *table.household), table.person, table.size)


def affordable(
    tables: Sequence[Marginal],
    levels: RegionLevels,
    schema: Schema,
    sensitivity: Bound,
    *,
    rho: Fraction,
    number: int,
    persons: float,
    worth: float,
) -> list[RegionalTable]:
    """As many tables on as many levels as can all be measured well enough with equal parts of `rho`.

    Those with the least noise come first; the first n get a share of 1/n each, and n is the largest for which the noise
    of the n-th is expected to sum to no more than `worth` of what it counts. `persons` is how many a household has.
    """
    wanted = [
        RegionalTable(table, level, by_region(table, attribute.name))
        for table in tables
        for level, attribute in enumerate(levels.attributes)
    ]

    def noise(one: RegionalTable) -> float:
        spread = sqrt(sensitivity(one.by_region).l2_squared / 2)
        people = persons if one.table.of == "persons" else max(1.0, persons / 2) if one.table.person else 1.0
        return MEAN_SIZE * spread * one.by_region.cells(schema) / (number * max(people, 0.1))

    ranked, best = sorted(wanted, key=noise), 0
    for place, one in enumerate(ranked, start=1):
        if noise(one) * sqrt(place / float(rho)) <= worth:
            best = place
    return ranked[:best]


def measured_by_region(asking: Asking, wanted: Sequence[RegionalTable]) -> dict[tuple[Marginal, int], Measured]:
    """Measure the tables with equal parts of all that is left, the last with the rest; lost ones are left out."""
    found = {}
    for place, one in enumerate(wanted):
        rho = asking.left if place == len(wanted) - 1 else share(asking.left, Fraction(1, len(wanted) - place))
        noisy = asking.measure(one.by_region, rho)
        if noisy is not None:
            found[one.table, one.level] = noisy
        asking.tell(place + 1, len(wanted), one.by_region.describe())
    return found
