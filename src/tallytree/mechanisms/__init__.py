"""The table of mechanisms. A mechanism is what to measure plus how to estimate from it; `MECHANISMS` holds them all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import SpecError
from tallytree.estimate.baselines.solvers import MOST_CELLS
from tallytree.hierarchy import Hierarchy
from tallytree.mechanisms.chain import chain
from tallytree.mechanisms.count_of_counts import Leaves, Matching, Settings, by_leaves, by_matching
from tallytree.mechanisms.estimate import Estimate
from tallytree.mechanisms.joint import joint_counts, joint_cumulative
from tallytree.mechanisms.mechanism import Mechanism
from tallytree.mechanisms.pgsr import cumulative_dp, hierarchical_dp
from tallytree.mechanisms.baselines import (
    TableMechanism,
    cumulative_exact,
    cumulative_relaxed,
    hierarchical_exact,
    hierarchical_relaxed,
    hierarchical_tables,
)
from tallytree.mechanisms.topdown import topdown
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Plan, Shares, divided

__all__ = ["MECHANISMS", "Estimate", "Mechanism", "choose", "mechanism_named", "prepare"]

_PGSR = "Fioretto, Van Hentenryck, Zhu: Differential Privacy of Hierarchical Census Data (2021)"
_COC = "Kuo, Chiu, Kifer, Hay, Machanavajjhala: Differentially Private Hierarchical Count-of-Counts Histograms (2018)"
_GRAND_TOTAL = "regions add up; the grand total where it is public (other totals are estimates)"
_ALL_TOTALS = "regions add up; every region's total where totals are public"
_KNOWN_TOTALS = "regions add up; every region's total where it is public or was measured first"
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
        Matching(
            name="coc-matching",
            symbol="Hc×Hc×… with matching",
            paper=f"{_COC}, Sections 4 and 5",
            view="at_least",
            estimate=partial(by_matching, Settings()),
            keeps=_KNOWN_TOTALS,
            cost="a few times the time of drawing the noise; regions' own estimates are optimal, all together are not",
            use="very sparse sizes, or a method of its own for each level (methods)",
            keeps_totals=True,
            takes=("methods", "merge", "totals_share", "largest_share"),
        ),
        Leaves(
            name="bottom-up",
            symbol="BU",
            paper=f"{_COC}, Section 6.2.2",
            view="at_least",
            estimate=partial(by_leaves, Settings()),
            keeps=_KNOWN_TOTALS,
            cost="a few times the time of drawing the leaves' noise; each leaf's estimate is optimal",
            use="where well-populated leaves matter and upper levels do not: errors add up on the way",
            keeps_totals=True,
            takes=("method", "totals_share", "largest_share"),
        ),
        Leaves(
            name="naive",
            symbol="naive",
            paper=f"{_COC}, Section 4.1",
            view="counts",
            estimate=partial(by_leaves, Settings(method="naive")),
            keeps=_KNOWN_TOTALS,
            cost="less than the time of drawing the noise; exact optimum",
            use="comparison with the paper, on a single region",
            keeps_totals=True,
            takes=("totals_share", "largest_share"),
            settings=Settings(method="naive"),
        ),
    )
}


def mechanism_named(name: str) -> Mechanism:
    """Look one up by name."""
    if name not in MECHANISMS:
        raise SpecError(f"unknown mechanism {name!r}; there are {', '.join(MECHANISMS)}, or auto")
    return MECHANISMS[name]


def choose(name: str, neighbours: Neighbours, options: Mapping[str, Any] | None = None) -> Mechanism:
    """A mechanism to release with, by name; one that these data or this unit rule out is refused.

    `auto` decides from public facts alone. Survival counts need less noise than counts where one entity changes few of
    them: 1 cell against 2 when people are counted, but z_max cells when an entity may add z_max, and K under one_group.
    Then counts are measured; jointly with every region's total where totals are public. (Where there is a public prior,
    `release` lets predicted errors decide and comes here with a name.)
    """
    if name == "auto":
        cumulative = neighbours.sensitivity("at_least").l1 < neighbours.sensitivity("counts").l1
        counts = "joint-counts" if neighbours.public_totals else "pgsr-hierarchical-dp"
        name = "joint-cumulative" if cumulative else counts
    mechanism = mechanism_named(name).configured(options or {})
    mechanism.check(neighbours)
    return mechanism


def prepare(
    name: str,
    options: Mapping[str, Any] | None = None,
    *,
    neighbours: Neighbours,
    hierarchy: Hierarchy,
    totals: NDArray[np.int64] | None,
    budget: Budget,
    shares: Shares | None = None,
    priority: str | None = None,
) -> tuple[Mechanism, Plan]:
    """A mechanism with everything decided, and its plan, from public facts alone; or an error, before any is spent.

    `priority` stands for shares. One that measures leaves only takes no shares, and `leaves` is what it does anyway.
    """
    chosen = choose(name, neighbours, options)
    shares = divided(hierarchy, shares, None if isinstance(chosen, Leaves) and priority == "leaves" else priority)
    chosen = chosen.suited_to(neighbours, hierarchy, totals, budget, shares)
    plan = chosen.plan(hierarchy, budget, neighbours.unit, shares)
    chosen.check(neighbours, hierarchy, plan)
    return chosen, plan
