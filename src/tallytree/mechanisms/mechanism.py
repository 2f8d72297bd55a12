"""`Mechanism`: what to measure plus how to estimate from it, with what it keeps, what it costs and when to use it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.mechanisms.estimate import Estimate
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurements, Settled
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, View
from tallytree.privacy.plan import Plan, Shares, every_level


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

    @property
    def measures(self) -> str:
        """What it measures, in words."""
        return f"{self.view}, on every level"

    def described(self) -> dict[str, Any]:
        """The row in plain values."""
        return {key: value for key, value in vars(self).items() if key not in ("estimate", "settings")}

    @property
    def options(self) -> dict[str, Any]:
        """The options it was given, in plain values."""
        return {}

    def configured(self, options: Mapping[str, Any]) -> Mechanism:
        """The mechanism with these options; most take none."""
        if options:
            raise SpecError(f"{self.name} takes no options, and was given {', '.join(options)}")
        return self

    def suited_to(
        self,
        neighbours: Neighbours,
        hierarchy: Hierarchy,
        totals: NDArray[np.int64] | None,
        budget: Budget,
        shares: Shares | None,
    ) -> Mechanism:
        """The mechanism with what it leaves open decided from public facts; `totals` are public ones."""
        return self

    def settle(self, measurements: Measurements) -> Settled:
        """What follows from measured totals and a measured largest size, for one that asks for them first."""
        return Settled()

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """What it measures: its view on every level."""
        return every_level(self.view, hierarchy, budget, unit, shares)

    def check(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse a release that this mechanism cannot make, from public facts alone: before anything is spent."""
        if self.refused:
            raise SpecError(f"{self.name} cannot be released: {self.refused}. It is for tallytree.evaluate only.")
        self.fits(neighbours, hierarchy, plan)

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse data and plans that it cannot work on, whatever for."""
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
