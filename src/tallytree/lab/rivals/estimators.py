"""Mechanisms to compare with: M_H and M_c by generic solvers, M_H^dp with its tables, TopDown, BlueDown and InfTDA.

The solvers are exact (SCIP) or relaxed and rounded (Clarabel), on the PGSR paper's Models 1 and 2 in the readings that
`solvers` and `cost_tables` explain. With public totals M_c knows every region's number of groups, so it bounds its
`at_least` counts and gives size 0 the rest. TopDown is the U.S. Census Bureau's algorithm as that paper describes it,
on counts by size; BlueDown and InfTDA are newer top-down algorithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import counts_from_at_least
from tallytree.lab.rivals import solvers
from tallytree.lab.rivals.cost_tables import MOST_ENTRIES, paper_reach, table_entries, table_estimate, too_large
from tallytree.lab.rivals.topdown import blue_down, chebyshev_down, top_down
from tallytree.mechanisms.mechanism import ALL_TOTALS, PGSR, Estimate, Mechanism, precisions, sizes_of, terms
from tallytree.privacy.budget import NOISE_FOR, scale_for
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise import NoiseKind
from tallytree.privacy.plan import Plan

MOST_PROGRAMS = 1_000  # of a constraint solver: up to a minute
ROUNDED = "rounded cell by cell, so regions need not add up"
FROM_THE_TOP = "(not one optimum in all)"


def _from_counts(solve: Callable[..., Integers], certificate: str, measurements: Measurements) -> Estimate:
    counts = solve(measurements.stacked("counts"), measurements.hierarchy, **terms(measurements, "counts"))
    return Estimate(counts, certificate)


def _from_survivors(solve: Callable[..., Integers], certificate: str, measurements: Measurements) -> Estimate:
    noisy, totals = measurements.stacked("at_least"), measurements.region_totals
    survivors = solve(noisy, measurements.hierarchy, upper=totals, weights=precisions(measurements, "at_least"))
    return Estimate(counts_from_at_least(survivors, totals), certificate)


def hierarchical_tables(measurements: Measurements, *, per_entry: bool = False) -> Estimate:
    """Estimate by M_H^dp with cost tables: Algorithm 1's merge or, with `per_entry`, a constraint program per entry
    (M_dp^OP).
    """
    parts = sorted((part for part in measurements.measured if part.view == "counts"), key=lambda part: part.level)
    reaches = [domain_reach(part.noise, part.scale) for part in parts]
    solve = partial(table_estimate, reaches=reaches, per_entry=per_entry)
    certificate = "the closest consistent counts to the measured ones within the paper's domains"
    return _from_counts(solve, certificate, measurements)


def domain_reach(noise: NoiseKind, scale: Fraction) -> int:
    """Return 3⌈2λ²⌉ for Laplace noise of scale λ, as in the paper; for Gaussian noise 3⌈σ²⌉."""
    return paper_reach(2 * scale**2 if noise == "discrete_laplace" else scale)


@dataclass(frozen=True)
class TableMechanism(Mechanism):
    """A mechanism whose cost tables must fit into memory; their size follows from the noise.

    With `most_programs` a constraint solver makes every entry of the regions above the leaves.
    """

    most_programs: int | None = None

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse tables that are too large, before any budget is spent."""
        super().fits(neighbours, hierarchy, plan)
        if hierarchy is None or plan is None:
            return
        noise, regions = NOISE_FOR[plan.budget.currency], np.diff(hierarchy.level_starts).tolist()
        reaches = [
            domain_reach(noise, scale_for(noise, neighbours.sensitivity(ask.view, regions[ask.level]), plan.cost(ask)))
            for ask in sorted(plan.queries, key=lambda ask: ask.level)
        ]
        sizes = sizes_of(neighbours)
        entries = table_entries(hierarchy, sizes, reaches)
        if entries > MOST_ENTRIES:
            raise SpecError(too_large(entries))
        programs = entries - sizes * hierarchy.leaf_count * (2 * reaches[-1] + 1)
        if self.most_programs is not None and programs > self.most_programs:
            raise SpecError(
                f"{self.name} would solve {programs:,} constraint programs, more than {self.most_programs:,}; "
                "pgsr-hierarchical-dp finds the same optimum without any"
            )


_SLOW = "a solver takes long to simulate; name it to include it"
_Exact = partial(
    Mechanism,
    cost="an integer program (SCIP): small cases only; exact optimum",
    most_cells=solvers.MOST_CELLS,
    needs=("pyscipopt", "clarabel", "scipy"),
    unplanned=_SLOW,
)
_Relaxed = partial(
    Mechanism,
    keeps="only non-negative integers: regions need not add up",
    cost="a quadratic program (Clarabel)",
    use="comparison with the paper",
    refused="it rounds every number separately, so regions need not add up to the region above them",
)

_Rival = partial(
    Mechanism,
    view="counts",
    cost="about the noise-sampling time",
    unplanned="it is for comparison; name it to include it",
)

_ROWS = (
    _Exact(
        name="pgsr-hierarchical-exact",
        symbol="M_H",
        paper=f"{PGSR}, Section 5",
        view="counts",
        estimate=partial(
            _from_counts,
            solvers.hierarchical_exact,
            "the closest consistent counts to the measured ones (SCIP proved them optimal)",
        ),
        use="checking pgsr-hierarchical-dp, which finds an equally near result at any size",
    ),
    _Relaxed(
        name="pgsr-hierarchical-relaxed",
        symbol="M_H^r",
        paper=f"{PGSR}, Sections 5 and 11",
        view="counts",
        estimate=partial(
            _from_counts,
            solvers.hierarchical_relaxed,
            f"the closest consistent real numbers to the measured counts, {ROUNDED}",
        ),
    ),
    TableMechanism(
        name="pgsr-hierarchical-tables",
        symbol="M_H^dp as printed",
        paper=f"{PGSR}, Sections 6 and 7, Algorithm 1",
        view="counts",
        estimate=hierarchical_tables,
        cost="time and memory grow with the noise's variance; fails where one of the paper's domains is empty",
        use="comparison with the paper; pgsr-hierarchical-dp finds an equally near result without tables",
        unplanned=_SLOW,
    ),
    TableMechanism(
        name="pgsr-hierarchical-programs",
        symbol="M_dp^OP",
        paper=f"{PGSR}, Sections 6 and 11",
        view="counts",
        estimate=partial(hierarchical_tables, per_entry=True),
        cost="a constraint program (CP-SAT) for each entry of each table above the leaves: minutes for tiny data",
        use="comparison with the paper; pgsr-hierarchical-dp finds an equally near result without tables",
        refused="it solves thousands of constraint programs for what pgsr-hierarchical-dp finds at once",
        needs=("ortools",),
        most_programs=MOST_PROGRAMS,
    ),
    _Exact(
        name="pgsr-cumulative-exact",
        symbol="M_c",
        paper=f"{PGSR}, Section 9",
        view="at_least",
        estimate=partial(
            _from_survivors,
            solvers.cumulative_exact,
            "the closest consistent survival counts to the measured ones (SCIP proved them optimal)",
        ),
        use="small data with entities as the privacy unit",
        keeps=ALL_TOTALS,
        keeps_totals=True,
    ),
    _Relaxed(
        name="pgsr-cumulative-relaxed",
        symbol="M_c^r",
        paper=f"{PGSR}, Sections 9 and 11",
        view="at_least",
        estimate=partial(
            _from_survivors,
            solvers.cumulative_relaxed,
            f"the closest consistent real numbers to the measured survival counts, {ROUNDED}",
        ),
    ),
    Mechanism(
        name="topdown",
        symbol="TopDown",
        paper=f"Abowd: The U.S. Census Bureau Adopts Differential Privacy (2018), as in {PGSR}, Section 10",
        view="counts",
        estimate=partial(
            _from_counts, top_down, f"two levels at a time the closest counts to the measured ones {FROM_THE_TOP}"
        ),
        cost="about the noise-sampling time; each step is nearly optimal, all together are not",
        use="comparison with the Census Bureau's algorithm: upper levels are fixed first",
    ),
    _Rival(
        name="bluedown",
        symbol="BlueDown",
        paper="Ghazi, Kamath, Kumar, Manurangsi, Sealfon: BlueDown (arXiv 2603.10099), one question per cell",
        estimate=partial(
            _from_counts,
            blue_down,
            "family by family from the top the closest counts to the best linear unbiased estimates of the regions, "
            f"rounded {FROM_THE_TOP}",
        ),
        use="comparison: as topdown, with every level's measurements used for the levels above it",
    ),
    _Rival(
        name="inftda",
        symbol="InfTDA",
        paper="Boninsegna, Silvestri: Hierarchical Origin/Destination Data with a TopDown Approach (arXiv 2412.09256)",
        estimate=partial(
            _from_counts,
            chebyshev_down,
            "family by family from the top counts whose largest distance to the measured ones is the least possible "
            f"{FROM_THE_TOP}",
        ),
        use="comparison: as topdown, with the largest distance in place of the sum of squares",
    ),
)
ROWS = {row.name: row for row in _ROWS}
