"""Plan a synthesis: which tables will be measured, why, and with what noise.

No microdata are opened: the first measurements of the method depend on public facts, and the user states the
approximate number of households. The tables chosen in later rounds depend on noisy answers and cannot be predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import sqrt
from typing import Any

from tallytree.core.errors import BudgetError, SpecError
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import HouseholdNeighbours
from tallytree.synthesis.marginals import MarginalsOptions
from tallytree.synthesis.methods import share
from tallytree.synthesis.table_selection import (
    TableSelection,
    first_tables,
    noise_by_kind,
    parts_of,
    parts_of_the_budget,
)
from tallytree.synthesis.workload import Workload, is_sum_of

FIRST, STRUCTURAL, ASKED, SWEPT = "sizes and attributes", "for the roles", "asked for", "worth its noise"


@dataclass(frozen=True)
class PlannedTable:
    """A planned measurement of a table: its reason, its cost and its noise (a standard deviation, for one count).

    The last field is the expected sum of all noise, as a part of the table's total (None if that is unknown).
    """

    table: Marginal
    why: str
    rho: Fraction
    noise: float
    part: float | None


@dataclass(frozen=True)
class SynthesisPlan:
    """The tables to measure, and the rest: ρ for rounds of one table each, tables for the model."""

    tables: tuple[PlannedTable, ...]
    budget: Budget
    households: int | None
    for_rounds: Fraction
    left: tuple[Marginal, ...]
    exact: tuple[Marginal, ...]  # tables that the unit does not protect
    schema: Schema

    @property
    def expected(self) -> dict[str, float]:
        """Return the expected error of one count by kind of table, as a root mean square over its counts."""
        return noise_by_kind(((one.table, one.noise) for one in self.tables), self.schema)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "expected_error": self.expected,
            "budget": self.budget.to_json(),
            "households": self.households,
            "measured": [
                {
                    "table": one.table.to_json(),
                    "words": one.table.describe(),
                    "why": one.why,
                    "rho": str(one.rho),
                    "noise": one.noise,
                    "noise_as_part": one.part,
                }
                for one in self.tables
            ],
            "rho_for_rounds": str(self.for_rounds),
            "left_to_the_model": [table.describe() for table in self.left],
            "published_exactly": [table.describe() for table in self.exact],
        }


def plan_synthesis(
    workload: Workload,
    neighbours: HouseholdNeighbours,
    budget: Budget,
    options: MarginalsOptions,
    *,
    households: int | None = None,
) -> SynthesisPlan:
    """Return what `tallytree-marginals` would measure before its rounds; the sweep is included if `households` is
    given.

    A household is assumed to have half the maximum number of persons. In a run the first answers give this number.
    """
    if budget.rho is None:
        raise BudgetError("synthesis needs a delta, or a budget as rho")
    if households is not None and households < 1:
        raise SpecError(f"the number of households must be at least 1, not {households}")
    schema = workload.schema

    def sensitivity(table: Marginal) -> Any:
        return neighbours.sensitivity(table, schema)

    known = TableSelection(schema, sensitivity, households or 1, schema.max_persons / 2, options.worth_sweeping)
    found: list[PlannedTable] = []

    def add(table: Marginal, why: str, rho: Fraction) -> None:
        part = None if households is None else known.noise(table) / sqrt(float(rho))
        found.append(PlannedTable(table, why, rho, sqrt(sensitivity(table).l2_squared / (2 * float(rho))), part))

    first = [table for table in first_tables(schema) if sensitivity(table).l1]
    parts = parts_of_the_budget(schema, workload, neighbours, options.shares)
    parts = parts.limited(lambda table: (known.noise(table) / options.role_noise) ** 2 / float(budget.rho or 1))
    each = share(budget.rho, parts.first / (len(first) + 1))
    if not neighbours.number_is_public:
        add(Marginal("households"), FIRST, each)
    for table in first:
        add(table, ASKED if table in workload.measured else FIRST, each)
    for why, tables in ((STRUCTURAL, parts.by_role), (STRUCTURAL, parts.structural), (ASKED, parts.asked)):
        for table, part in tables.items():
            add(table, why, share(budget.rho, part))
    exact = tuple(table for table in workload if not sensitivity(table).l1)
    private = [table for table in workload if sensitivity(table).l1]
    if households is not None and parts.sweep:
        smaller = [table for table in parts_of(private) if sensitivity(table).l1]
        rho = share(budget.rho, parts.sweep)
        sweep = replace(known, measured=frozenset(one.table for one in found))
        chosen = sweep.tables(dict.fromkeys([*private, *smaller]), float(rho))
        for table in chosen:
            add(table, SWEPT, share(rho, Fraction(1, len(chosen))))
    spent = sum((one.rho for one in found), Fraction(0))
    measured = [one.table for one in found]
    left = tuple(table for table in private if not any(is_sum_of(table, other) for other in measured))
    return SynthesisPlan(tuple(found), budget, households, budget.rho - spent, left, exact, schema)
