"""The table of mechanisms. A mechanism is what to measure plus how to estimate from it; `MECHANISMS` holds them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tallytree.errors import SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.mechanisms.estimate import Estimate
from tallytree.mechanisms.pgsr import cumulative_dp, hierarchical_dp
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.plan import Plan, Shares, every_level
from tallytree.privacy.unit import Neighbours, PrivacyUnit, View

__all__ = ["MECHANISMS", "Estimate", "Mechanism", "choose", "mechanism_named"]


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

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """What it measures: its view on every level."""
        return every_level(self.view, hierarchy, budget, unit, shares)


_PGSR = "Fioretto, Van Hentenryck, Zhu: Differential Privacy of Hierarchical Census Data (2021)"

MECHANISMS = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(
            name="pgsr-hierarchical-dp",
            symbol="M_H^dp",
            paper=f"{_PGSR}, Sections 5–7",
            view="counts",
            estimate=hierarchical_dp,
            keeps="regions add up; the grand total where it is public (other totals are estimates)",
            cost="about the time of drawing the noise; exact optimum",
            use="groups as the privacy unit, or entities with large quantities",
        ),
        Mechanism(
            name="pgsr-cumulative-dp",
            symbol="M_c^dp",
            paper=f"{_PGSR}, Section 9.1",
            view="at_least",
            estimate=cumulative_dp,
            keeps="regions add up; the grand total where it is public (other totals are estimates)",
            cost="about the time of drawing the noise; each step is an exact optimum, the two together are not",
            use="entities as the privacy unit, one each: half the noise of counts, and monotone",
        ),
    )
}


def mechanism_named(name: str) -> Mechanism:
    """Look one up by name."""
    if name not in MECHANISMS:
        raise SpecError(f"unknown mechanism {name!r}; there are {', '.join(MECHANISMS)}, or auto")
    return MECHANISMS[name]


def choose(name: str, neighbours: Neighbours) -> Mechanism:
    """A mechanism by name; `auto` takes the view that needs less noise, from public facts alone."""
    if name != "auto":
        return mechanism_named(name)
    cumulative = neighbours.sensitivity("at_least").l1 < neighbours.sensitivity("counts").l1
    return MECHANISMS["pgsr-cumulative-dp" if cumulative else "pgsr-hierarchical-dp"]
