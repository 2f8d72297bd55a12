"""The table of mechanisms. A mechanism is what to measure plus how to estimate from it; `MECHANISMS` holds them all."""

from __future__ import annotations

from tallytree.errors import SpecError
from tallytree.estimate.solvers import MOST_CELLS
from tallytree.mechanisms.chain import chain
from tallytree.mechanisms.estimate import Estimate
from tallytree.mechanisms.joint import joint_counts, joint_cumulative
from tallytree.mechanisms.mechanism import Mechanism
from tallytree.mechanisms.pgsr import cumulative_dp, hierarchical_dp
from tallytree.mechanisms.solver_based import (
    TableMechanism,
    cumulative_exact,
    cumulative_relaxed,
    hierarchical_exact,
    hierarchical_relaxed,
    hierarchical_tables,
)
from tallytree.mechanisms.topdown import topdown
from tallytree.privacy.unit import Neighbours

__all__ = ["MECHANISMS", "Estimate", "Mechanism", "choose", "mechanism_named"]

_PGSR = "Fioretto, Van Hentenryck, Zhu: Differential Privacy of Hierarchical Census Data (2021)"
_GRAND_TOTAL = "regions add up; the grand total where it is public (other totals are estimates)"
_ALL_TOTALS = "regions add up; every region's total where totals are public"
_MAY_NOT_ADD_UP = "it rounds every number by itself, so regions need not add up to the region above them"
_NOT_EVEN_SUMS = "nothing but whole numbers, none negative: regions need not add up"

MECHANISMS = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism(
            name="pgsr-hierarchical-dp",
            symbol="M_H^dp",
            paper=f"{_PGSR}, Sections 5–7",
            view="counts",
            estimate=hierarchical_dp,
            keeps=_GRAND_TOTAL,
            cost="about the time of drawing the noise; exact optimum",
            use="groups as the privacy unit, or entities with large quantities, with private totals: the default there",
        ),
        Mechanism(
            name="pgsr-hierarchical-exact",
            symbol="M_H",
            paper=f"{_PGSR}, Section 5",
            view="counts",
            estimate=hierarchical_exact,
            keeps=_GRAND_TOTAL,
            cost="an integer program (SCIP): small cases only; exact optimum",
            use="checking pgsr-hierarchical-dp, which finds an equally near result at any size",
            most_cells=MOST_CELLS,
        ),
        Mechanism(
            name="pgsr-hierarchical-relaxed",
            symbol="M_H^r",
            paper=f"{_PGSR}, Sections 5 and 11",
            view="counts",
            estimate=hierarchical_relaxed,
            keeps=_NOT_EVEN_SUMS,
            cost="a quadratic program (Clarabel)",
            use="comparison with the paper",
            refused=_MAY_NOT_ADD_UP,
        ),
        TableMechanism(
            name="pgsr-hierarchical-tables",
            symbol="M_H^dp with its tables, M_dp^OP",
            paper=f"{_PGSR}, Sections 6 and 7, Algorithm 1",
            view="counts",
            estimate=hierarchical_tables,
            keeps=_GRAND_TOTAL,
            cost="time and memory grow with the noise's variance; fails where one of the paper's domains is empty",
            use="comparison with the paper; pgsr-hierarchical-dp finds an equally near result without tables",
        ),
        Mechanism(
            name="pgsr-cumulative-dp",
            symbol="M_c^dp",
            paper=f"{_PGSR}, Section 9.1",
            view="at_least",
            estimate=cumulative_dp,
            keeps=_GRAND_TOTAL,
            cost="about the time of drawing the noise; each step is an exact optimum, the two together are not",
            use="entities as the privacy unit where joint-cumulative takes too long",
        ),
        Mechanism(
            name="pgsr-cumulative-exact",
            symbol="M_c",
            paper=f"{_PGSR}, Section 9",
            view="at_least",
            estimate=cumulative_exact,
            keeps=_ALL_TOTALS,
            cost="an integer program (SCIP): small cases only; exact optimum",
            use="small data with entities as the privacy unit",
            keeps_totals=True,
            most_cells=MOST_CELLS,
        ),
        Mechanism(
            name="pgsr-cumulative-relaxed",
            symbol="M_c^r",
            paper=f"{_PGSR}, Sections 9 and 11",
            view="at_least",
            estimate=cumulative_relaxed,
            keeps=_NOT_EVEN_SUMS,
            cost="a quadratic program (Clarabel)",
            use="comparison with the paper",
            refused=_MAY_NOT_ADD_UP,
        ),
        Mechanism(
            name="pgsr-chain",
            symbol="M_c^ch",
            paper=f"{_PGSR}, Section 9.2",
            view="chain",
            estimate=chain,
            keeps=_GRAND_TOTAL,
            cost="less than the time of drawing the noise; exact optimum",
            use="comparison with the paper: its noise grows with the number of regions, so it is far off beyond a few",
        ),
        Mechanism(
            name="joint-cumulative",
            symbol="M_c",
            paper=f"{_PGSR}, Section 9, Model 2, with public totals kept in every region",
            view="at_least",
            estimate=joint_cumulative,
            keeps=_ALL_TOTALS,
            cost="some tens of times the time of drawing the noise; the distance to a proved bound is stated",
            use="entities as the privacy unit: the default there",
            keeps_totals=True,
        ),
        Mechanism(
            name="joint-counts",
            symbol="M_H",
            paper=f"{_PGSR}, Section 5, Model 1, with public totals kept in every region",
            view="counts",
            estimate=joint_counts,
            keeps=_ALL_TOTALS,
            cost="some tens of times the time of drawing the noise; the distance to a proved bound is stated",
            use="groups as the privacy unit, or entities with large quantities, with public totals: the default there",
            keeps_totals=True,
            needs_public_totals=True,
        ),
        Mechanism(
            name="topdown",
            symbol="TopDown",
            paper=f"Abowd: The U.S. Census Bureau Adopts Differential Privacy (2018), as in {_PGSR}, Section 10",
            view="counts",
            estimate=topdown,
            keeps=_GRAND_TOTAL,
            cost="about the time of drawing the noise; each step is nearly optimal, all together are not",
            use="comparison with the Census Bureau's way: upper levels are settled first",
        ),
    )
}


def mechanism_named(name: str) -> Mechanism:
    """Look one up by name."""
    if name not in MECHANISMS:
        raise SpecError(f"unknown mechanism {name!r}; there are {', '.join(MECHANISMS)}, or auto")
    return MECHANISMS[name]


def choose(name: str, neighbours: Neighbours) -> Mechanism:
    """A mechanism to release with, by name; one that these data or this unit rule out is refused.

    `auto` decides from public facts alone. Survival counts need less noise than counts where one entity changes few of
    them: 1 cell against 2 when people are counted, but z_max cells when an entity may add z_max, and K under one_group.
    Then counts are measured; jointly with every region's total where totals are public.
    """
    if name == "auto":
        cumulative = neighbours.sensitivity("at_least").l1 < neighbours.sensitivity("counts").l1
        counts = "joint-counts" if neighbours.public_totals else "pgsr-hierarchical-dp"
        name = "joint-cumulative" if cumulative else counts
    mechanism = mechanism_named(name)
    mechanism.check(neighbours)
    return mechanism
