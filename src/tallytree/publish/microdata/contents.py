"""`SynthesisContents`: all that the files of synthetic households are written from. Everything in it is public."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.household_neighbours import HouseholdNeighbours
from tallytree.privacy.joint_cost import Together, together
from tallytree.privacy.journal import Round
from tallytree.privacy.ledger import Receipt
from tallytree.synthesis.agreement import SizeTable, draw_agreeing
from tallytree.synthesis.methods import Method
from tallytree.synthesis.methods.asking import Fitted
from tallytree.synthesis.models.model import SyntheticHouseholds
from tallytree.synthesis.models.sampling import CHUNK, draw
from tallytree.synthesis.trust import Evidence
from tallytree.synthesis.workload import Workload
from tallytree.tables.households import OnBrokenRules


@dataclass(frozen=True, eq=False)
class SynthesisContents:
    """A model of private households with all it was made from.

    `number` is how many households `draw` gives if not told otherwise.
    """

    workload: Workload
    fitted: Fitted
    made_by: Method
    options: Mapping[str, Any]  # of the method
    neighbours: HouseholdNeighbours
    budget: Budget
    rounds: tuple[Round, ...]
    exact: Mapping[Marginal, Integers]  # tables that the unit does not protect and that were taken as they are
    truncation: str
    number: int
    title: str
    table: SizeTable | None = None  # with which the households agree
    truncated: bool = False  # may persons have been left out, by the rule in `truncation`?
    on_broken_rules: OnBrokenRules = "keep"  # what was done with households of the data that break a rule
    receipt: Receipt | None = field(default=None, repr=False)  # stays with the data holder; in no file
    folder: Path | None = field(default=None, repr=False)  # with the journal of its rounds; likewise

    __repr__ = briefly

    @property
    def method(self) -> str:
        """The method's name."""
        return self.made_by.name

    @property
    def schema(self) -> Schema:
        """The attributes."""
        return self.workload.schema

    @property
    def ledgered(self) -> bool:
        """Was the budget taken from a ledger?"""
        return self.receipt is not None

    @property
    def same_data_as(self) -> tuple[str, ...]:
        """Other accounts of the ledger that the same data are charged to."""
        return () if self.receipt is None else self.receipt.same_data_as

    @property
    def evidence(self) -> Evidence:
        """What was measured, as the report of errors takes it."""
        return Evidence(self.schema, self.fitted.measured, self.exact)

    @property
    def together(self) -> Together | None:
        """What this and the released table promise together, where there is one."""
        if self.table is None:
            return None
        return together(self.table.neighbours, self.table.budget, self.neighbours, self.budget)

    def draw(self, number: int | None = None, *, chunk: int = CHUNK) -> Iterator[SyntheticHouseholds]:
        """Synthetic households as codes, in chunks; with a released table, as many as it says."""
        if self.table is not None:
            if number not in (None, self.table.number):
                raise SpecError(
                    f"the released table has {self.table.number:,} households, so {number:,} cannot be drawn"
                )
            return draw_agreeing(self.fitted.model, self.table, chunk=chunk)
        return draw(self.fitted.model, self.number if number is None else number, chunk=chunk)
