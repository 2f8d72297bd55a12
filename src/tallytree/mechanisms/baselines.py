"""M_H and M_c of the PGSR paper by generic solvers: exact (SCIP), relaxed and rounded (Clarabel), and the cost tables.

The paper's Models 1 and 2, in the readings that `baselines.solvers` and `…cost_tables` explain. With public
totals M_c knows every region's number of groups, so it bounds its survival counts and gives size 0 the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallytree.errors import SpecError
from tallytree.estimate.baselines import solvers
from tallytree.estimate.baselines.cost_tables import MOST_ENTRIES, paper_reach, table_entries, table_estimate, too_large
from tallytree.hierarchy import Hierarchy
from tallytree.histogram import counts_from_at_least
from tallytree.mechanisms.estimate import Estimate
from tallytree.mechanisms.inputs import grand_total, precisions
from tallytree.mechanisms.mechanism import Mechanism, sizes_of
from tallytree.privacy.accounting import NOISE_FOR, NoiseKind, scale_for
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Plan

MAY_NOT_ADD_UP = "rounded cell by cell, so regions need not add up"


def hierarchical_exact(measurements: Measurements) -> Estimate:
    """M_H: Model 1 as an integer program."""
    counts = solvers.hierarchical_exact(
        measurements.stacked("counts"),
        measurements.hierarchy,
        total=grand_total(measurements),
        weights=precisions(measurements, "counts"),
    )
    return Estimate(counts, "the closest consistent counts to the measured ones (SCIP proved them optimal)")


def hierarchical_relaxed(measurements: Measurements) -> Estimate:
    """M_H^r: Model 1 without whole numbers, rounded."""
    counts = solvers.hierarchical_relaxed(
        measurements.stacked("counts"),
        measurements.hierarchy,
        total=grand_total(measurements),
        weights=precisions(measurements, "counts"),
    )
    return Estimate(counts, f"the closest consistent real numbers to the measured counts, {MAY_NOT_ADD_UP}")


def hierarchical_tables(measurements: Measurements, *, per_entry: bool = False) -> Estimate:
    """M_H^dp by cost tables: Algorithm 1's merge or, with `per_entry`, a constraint program per entry (M_dp^OP)."""
    parts = sorted((part for part in measurements.measured if part.view == "counts"), key=lambda part: part.level)
    counts = table_estimate(
        measurements.stacked("counts"),
        measurements.hierarchy,
        [domain_reach(part.noise, part.scale) for part in parts],
        total=grand_total(measurements),
        weights=precisions(measurements, "counts"),
        per_entry=per_entry,
    )
    return Estimate(counts, "the closest consistent counts to the measured ones within the paper's domains")


def cumulative_exact(measurements: Measurements) -> Estimate:
    """M_c: Model 2 as an integer program."""
    survivors = solvers.cumulative_exact(
        measurements.stacked("at_least"),
        measurements.hierarchy,
        upper=measurements.region_totals,
        weights=precisions(measurements, "at_least"),
    )
    counts = counts_from_at_least(survivors, measurements.region_totals)
    return Estimate(counts, "the closest consistent survival counts to the measured ones (SCIP proved them optimal)")


def cumulative_relaxed(measurements: Measurements) -> Estimate:
    """M_c^r: Model 2 without whole numbers, rounded."""
    survivors = solvers.cumulative_relaxed(
        measurements.stacked("at_least"),
        measurements.hierarchy,
        upper=measurements.region_totals,
        weights=precisions(measurements, "at_least"),
    )
    counts = counts_from_at_least(survivors, measurements.region_totals)
    return Estimate(counts, f"the closest consistent real numbers to the measured survival counts, {MAY_NOT_ADD_UP}")


def domain_reach(noise: NoiseKind, scale: Fraction) -> int:
    """3⌈2λ²⌉ for Laplace noise of scale λ, as the paper has it; for Gaussian noise 3⌈σ²⌉."""
    return paper_reach(2 * scale**2 if noise == "discrete_laplace" else scale)


@dataclass(frozen=True)
class TableMechanism(Mechanism):
    """A mechanism whose cost tables must fit into memory; how large they get follows from the noise."""

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse tables that are too large, before anything is spent."""
        super().fits(neighbours, hierarchy, plan)
        if hierarchy is None or plan is None:
            return
        noise, regions = NOISE_FOR[plan.budget.currency], np.diff(hierarchy.level_starts).tolist()
        reaches = [
            domain_reach(noise, scale_for(noise, neighbours.sensitivity(ask.view, regions[ask.level]), plan.cost(ask)))
            for ask in sorted(plan.questions, key=lambda ask: ask.level)
        ]
        entries = table_entries(hierarchy, sizes_of(neighbours), reaches)
        if entries > MOST_ENTRIES:
            raise SpecError(too_large(entries))
