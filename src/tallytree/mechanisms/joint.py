"""The joint mechanisms: all levels measured, one estimate for the whole tree, and a proved bound on how good it is.

`joint-cumulative` is M_c (Fioretto, Van Hentenryck, Zhu, Model 2) on `at_least` counts and `joint-counts` its twin on
counts. Different here: public totals hold in every region, not at the root alone; private ones are nowhere fixed;
levels weigh by the exact variance of their noise; and the distance to a proved lower bound is stated with every
estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tallytree.core.errors import ReleaseError, SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import counts_from_at_least
from tallytree.estimate.alternating import WEIGHT_RATIO_LIMIT, Proved
from tallytree.estimate.joint_tables import joint_counts as nearest_counts
from tallytree.estimate.joint_tables import joint_cumulative as nearest_at_least
from tallytree.estimate.least_squares import LEAST_VARIANCE
from tallytree.mechanisms.mechanism import ALL_TOTALS, PGSR, Estimate, Mechanism, precisions
from tallytree.privacy.accounting import NOISE_FOR, scale_for
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise.draws import gaussian_variance, laplace_variance
from tallytree.privacy.plan import Plan


def joint_cumulative(measurements: Measurements) -> Estimate:
    """M_c over the whole tree: consistent, non-increasing `at_least` counts near the measured ones."""
    totals = measurements.region_totals
    found = nearest_at_least(
        measurements.stacked("at_least"),
        measurements.hierarchy,
        totals=totals,
        weights=precisions(measurements, "at_least"),
    )
    counts = counts_from_at_least(found.values, totals)
    return Estimate(counts, f"consistent `at_least` counts near the measured ones: {_words(found)}")


def joint_counts(measurements: Measurements) -> Estimate:
    """M_H over the whole tree with every region's public total: consistent counts near the measured ones."""
    if measurements.region_totals is None:
        raise ReleaseError(
            "joint-counts keeps every region's public total, and here totals are private; "
            "use pgsr-hierarchical-dp or joint-cumulative"
        )
    found = nearest_counts(
        measurements.stacked("counts"),
        measurements.hierarchy,
        totals=measurements.region_totals,
        weights=precisions(measurements, "counts"),
    )
    return Estimate(found.values, f"consistent counts near the measured ones: {_words(found)}")


def _words(found: Proved) -> str:
    """The gap in words; never rounded down."""
    if found.gap == 0:
        return "proved to be the nearest there are (squared distance, weighted by precision)"
    percent = 100 * found.gap * (1 + 1e-9)
    shown = f"{percent + 0.005:.2f}" if percent >= 0.01 else "0.01"
    return f"their squared distance, weighted by precision, is within {shown} % of a proved lower bound"


@dataclass(frozen=True)
class JointMechanism(Mechanism):
    """A mechanism that weighs levels by their precision, which must not differ too much for its arithmetic."""

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse shares that make one level's noise all but vanish beside another's, before anything is spent."""
        super().fits(neighbours, hierarchy, plan)
        if hierarchy is None or plan is None:
            return
        noise, regions = NOISE_FOR[plan.budget.currency], np.diff(hierarchy.level_starts).tolist()
        variance = laplace_variance if noise == "discrete_laplace" else gaussian_variance
        found = [
            max(LEAST_VARIANCE, variance(scale_for(noise, neighbours.sensitivity(ask.view, regions[ask.level]), cost)))
            for ask, cost in ((ask, plan.cost(ask)) for ask in plan.questions)
        ]
        if max(found) > WEIGHT_RATIO_LIMIT * min(found):
            raise SpecError(
                f"{self.name} weighs levels by their precision, and with these shares the noise of one level has more "
                f"than 10⁹ times the variance of another's. Divide the budget more evenly, or use "
                f"{'pgsr-cumulative-dp' if self.view == 'at_least' else 'pgsr-hierarchical-dp'}. Nothing was spent."
            )


_Joint = partial(
    JointMechanism,
    keeps=ALL_TOTALS,
    keeps_totals=True,
    cost="some tens of times the time of drawing the noise; the distance to a proved bound is stated",
)

ROWS = (
    _Joint(
        name="joint-cumulative",
        symbol="M_c",
        paper=f"{PGSR}, Section 9, Model 2, with public totals kept in every region",
        view="at_least",
        estimate=joint_cumulative,
        use="entities as the privacy unit, to compare with the paper",
    ),
    _Joint(
        name="joint-counts",
        symbol="M_H",
        paper=f"{PGSR}, Section 5, Model 1, with public totals kept in every region",
        view="counts",
        estimate=joint_counts,
        use="groups as the privacy unit, or entities with large quantities, with public totals: the default there",
        needs_public_totals=True,
    ),
)
