"""A part of private tables: some of their attributes, and what is left of the budget but for a part that is kept.

It asks the tables that it is a part of, and so can spend nothing that these could not.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, SpecError
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.households.journal import Round
from tallytree.privacy.households.neighbours import HouseholdNeighbours
from tallytree.privacy.households.rounds import NoisyTable, PrivateTables
from tallytree.privacy.neighbours import Sensitivity
from tallytree.tables.sealed import Unsharable


class PartOfTables(Unsharable):
    """What a method of synthesis asks of `PrivateTables`, without some attributes and without `kept` of the budget."""

    def __init__(self, whole: PrivateTables, schema: Schema, kept: Fraction) -> None:
        sides = ((schema.household, whole.schema.household), (schema.person, whole.schema.person))
        if schema.max_persons != whole.schema.max_persons or any(not set(some) <= set(every) for some, every in sides):
            raise SpecError("a part of private tables has some of their attributes, and no others")
        if not 0 <= kept <= whole.left:
            raise BudgetError("what is kept for later must be a part of what is left")
        self._whole, self._kept, self.schema = whole, kept, schema

    @property
    def neighbours(self) -> HouseholdNeighbours:
        """The relation."""
        return self._whole.neighbours

    @property
    def budget(self) -> Budget:
        """The budget of the whole run."""
        return self._whole.budget

    @property
    def left(self) -> Fraction:
        """What is left without the part that is kept, in ρ."""
        return self._whole.left - self._kept

    @property
    def number(self) -> int:
        """How many households there are, if that is public."""
        return self._whole.number

    @property
    def rounds(self) -> tuple[Round, ...]:
        """The rounds up to here."""
        return self._whole.rounds

    @property
    def resuming(self) -> bool:
        """Are there rounds in the journal that were not asked for again yet?"""
        return self._whole.resuming

    def sensitivity(self, marginal: Marginal, cells: int | None = None) -> Sensitivity:
        """How far one neighbour can move a table."""
        return self._whole.sensitivity(self._own(marginal), cells)

    def public_counts(self, marginal: Marginal) -> Integers:
        """A table that is public under the unit."""
        return self._whole.public_counts(self._own(marginal))

    def measure(self, marginal: Marginal, rho: Fraction) -> NoisyTable | None:
        """A table with noise."""
        return self._whole.measure(self._own(marginal), self._affordable(rho))

    def measure_cells(self, marginal: Marginal, cells: Sequence[int], rho: Fraction) -> NoisyTable | None:
        """Some cells of a table with noise."""
        return self._whole.measure_cells(self._own(marginal), cells, self._affordable(rho))

    def select(self, candidates: Sequence[Marginal], estimates: Any, epsilon: Fraction, **more: Any) -> int | None:
        """The place of a table that the estimates miss by much."""
        self._affordable(epsilon**2 / 8)
        return self._whole.select([self._own(one) for one in candidates], estimates, epsilon, **more)

    def select_cell(self, candidates: Sequence[Marginal], estimates: Any, epsilon: Fraction) -> tuple[int, int] | None:
        """The place of a cell that the estimates miss by much."""
        self._affordable(epsilon**2 / 8)
        return self._whole.select_cell([self._own(one) for one in candidates], estimates, epsilon)

    def _own(self, marginal: Marginal) -> Marginal:
        """A table of this part's attributes."""
        marginal.check(self.schema)
        return marginal

    def _affordable(self, rho: Fraction) -> Fraction:
        """A cost that leaves what is kept; on resuming, costs are compared with the journal's."""
        if not self.resuming and rho > self.left:
            raise BudgetError("this round would take from the part of the budget that is kept for later")
        return rho
