"""`Mechanism`: what to measure plus how to estimate from it, with what it keeps, what it costs and when to use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.mechanisms.estimate import Estimate
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.plan import Plan, Shares, every_level
from tallytree.privacy.unit import Neighbours, PrivacyUnit, View


@dataclass(frozen=True)
class Mechanism:
    """One row of the table."""

    name: str
    symbol: str  # the paper's
    paper: str
    view: View
    estimate: Callable[[Measurements], Estimate]
    keeps: str
    cost: str
    use: str
    keeps_totals: bool = False  # the public total of every region, not of the root alone
    needs_public_totals: bool = False
    most_cells: int | None = None  # regions × sizes; more are refused
    refused: str = ""  # why it may not be released, if it may not; `evaluate` may run it

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """What it measures: its view on every level."""
        return every_level(self.view, hierarchy, budget, unit, shares)

    def check(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse a release that this mechanism cannot make, from public facts alone: before anything is spent."""
        if self.refused:
            raise SpecError(f"{self.name} cannot be released: {self.refused}. It is for tallytree.evaluate only.")
        if self.needs_public_totals and not neighbours.public_totals:
            raise SpecError(
                f"{self.name} needs the public number of groups in every region, and here totals are private; "
                "read with a groups table if there is a public one, or use pgsr-hierarchical-dp"
            )
        if self.most_cells is not None and hierarchy is not None:
            cells = len(hierarchy) * sizes_of(neighbours)
            if cells > self.most_cells:
                raise SpecError(
                    f"{self.name} is for at most {self.most_cells:,} cells (regions × sizes), and these are {cells:,}; "
                    "use pgsr-hierarchical-dp, pgsr-cumulative-dp or auto"
                )


def sizes_of(neighbours: Neighbours) -> int:
    """How many sizes are counted."""
    return neighbours.max_size + (1 if neighbours.public_totals else 0)
