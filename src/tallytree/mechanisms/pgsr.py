"""The fast mechanisms of Fioretto, Van Hentenryck and Zhu: M_H^dp and M_c^dp without their tables, and M_c^ch.

M_H^dp (Sections 5–7) and M_c^dp (Section 9.1): the optimum of their last step is found by `nearest_consistent`, exactly
and at a cost that does not depend on the noise. Different here: only the grand total is fixed, and only if it is public
(the paper's (H2) cannot hold for all regions); size 0 is a separate cell if a public list of groups exists; M_c^dp
works on `at_least` counts, because the paper's cumulative counts all shift when a group appears or vanishes.

M_c^ch (Section 9.2) has the noise that its ε requires here. The paper adds noise as if one entity changed one number of
a level's chain. It changes as many as the level has regions, so as printed the mechanism spends many times the ε that
it states. Here the measurement carries its true sensitivity (`Neighbours.sensitivity`), which makes the mechanism
private and, for most data, useless.

The joint mechanisms measure all levels and give one estimate for the whole tree, with a proved bound on how good it is.
`joint-cumulative` is M_c (Fioretto, Van Hentenryck, Zhu, Model 2) on `at_least` counts and `joint-counts` its twin on
counts. Different here: public totals hold in every region, not only at the root; private totals are not fixed anywhere;
levels are weighted by the exact variance of their noise; and the distance to a proved lower bound is stated with every
estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import counts_from_at_least
from tallytree.estimate.alternating import WEIGHT_RATIO_LIMIT, Proved
from tallytree.estimate.isotonic import nearest_chain, non_increasing
from tallytree.estimate.joint_tables import joint_counts as nearest_counts
from tallytree.estimate.joint_tables import joint_cumulative as nearest_at_least
from tallytree.estimate.least_squares import LEAST_VARIANCE
from tallytree.estimate.nearest import is_optimal, nearest_consistent
from tallytree.mechanisms.mechanism import ALL_TOTALS, PGSR, Estimate, Mechanism, precisions, terms
from tallytree.privacy.budget import NOISE_FOR, scale_for
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours, View
from tallytree.privacy.noise.samplers import gaussian_variance, laplace_variance
from tallytree.privacy.plan import Plan


def hierarchical_dp(measurements: Measurements) -> Estimate:
    """Estimate by M_H^dp: the consistent counts closest to the noisy counts."""
    counts = _closest(measurements.stacked("counts"), measurements, "counts")
    return Estimate(counts, "the closest consistent counts to the measured ones (certified optimal)")


def cumulative_dp(measurements: Measurements) -> Estimate:
    """Estimate by M_c^dp: make each region's `at_least` counts non-increasing, difference them, then as M_H^dp."""
    counts = _closest(_differences(measurements), measurements, "at_least")
    return Estimate(
        counts,
        "region by region the closest non-increasing counts, then the closest consistent counts to those "
        "(each step an exact optimum, the second certified; the two together are not one optimum)",
    )


def chain(measurements: Measurements) -> Estimate:
    """Estimate by M_c^ch: the closest non-increasing chain over regions and sizes, levels tied, then differences."""
    counts = nearest_chain(measurements.stacked("chain"), measurements.hierarchy, **terms(measurements, "chain"))
    return Estimate(counts, "the closest chain of counts to the measured one (an exact optimum)")


def _differences(measurements: Measurements) -> Integers:
    totals = measurements.region_totals
    return counts_from_at_least(non_increasing(measurements.stacked("at_least"), upper=totals), totals)


def _closest(noisy: Integers, measurements: Measurements, view: View) -> Integers:
    """Return `nearest_consistent` counts, levels weighted by their precision, with the certificate checked."""
    counts = nearest_consistent(noisy, measurements.hierarchy, **terms(measurements, view))
    if not _is_closest(noisy, counts, measurements, view):
        raise ReleaseError("the estimate failed its optimality certificate: please report this bug in tallytree")
    return counts


def _is_closest(noisy: Integers, counts: Integers, measurements: Measurements, view: View) -> bool:
    return is_optimal(noisy, counts, measurements.hierarchy, **terms(measurements, view))


def is_hierarchical_optimum(measurements: Measurements, counts: Integers) -> bool:
    """Return whether these counts are as close as those of `hierarchical_dp`; versions may choose different ones in a
    tie.
    """
    return _is_closest(measurements.stacked("counts"), counts, measurements, "counts")


def is_cumulative_optimum(measurements: Measurements, counts: Integers) -> bool:
    """Return the same for `cumulative_dp`."""
    return _is_closest(_differences(measurements), counts, measurements, "at_least")


# -------------------------------------------------------------------- joint


def joint_cumulative(measurements: Measurements) -> Estimate:
    """Estimate by M_c over the whole tree: consistent, non-increasing `at_least` counts near the measured ones."""
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
    """Estimate by M_H over the whole tree with all public totals: consistent counts near the measured ones."""
    if measurements.region_totals is None:
        raise ReleaseError(
            "joint-counts keeps every region's public total, but totals are private; "
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
    """Return the gap in words; never rounded down."""
    if found.gap == 0:
        return "proved to be the nearest ones (squared distance, weighted by precision)"
    percent = 100 * found.gap * (1 + 1e-9)
    shown = f"{percent + 0.005:.2f}" if percent >= 0.01 else "0.01"
    return f"their squared distance, weighted by precision, is within {shown} % of a proved lower bound"


@dataclass(frozen=True)
class JointMechanism(Mechanism):
    """A mechanism that weights levels by their precision, which must not differ too much for its arithmetic."""

    def fits(self, neighbours: Neighbours, hierarchy: Hierarchy | None = None, plan: Plan | None = None) -> None:
        """Refuse shares that leave one level almost no noise compared with another's, before any budget is spent."""
        super().fits(neighbours, hierarchy, plan)
        if hierarchy is None or plan is None:
            return
        noise, regions = NOISE_FOR[plan.budget.currency], np.diff(hierarchy.level_starts).tolist()
        variance = laplace_variance if noise == "discrete_laplace" else gaussian_variance
        found = [
            max(LEAST_VARIANCE, variance(scale_for(noise, neighbours.sensitivity(ask.view, regions[ask.level]), cost)))
            for ask, cost in ((ask, plan.cost(ask)) for ask in plan.queries)
        ]
        if max(found) > WEIGHT_RATIO_LIMIT * min(found):
            raise SpecError(
                f"{self.name} weights levels by their precision, and with these shares the noise of one level has more "
                f"than 10⁹ times the variance of another's. Divide the budget more evenly, or use "
                f"{'pgsr-cumulative-dp' if self.view == 'at_least' else 'pgsr-hierarchical-dp'}. Nothing was spent."
            )


_Joint = partial(
    JointMechanism,
    keeps=ALL_TOTALS,
    keeps_totals=True,
    cost="some tens of times the noise-sampling time; the distance to a proved bound is stated",
)

ROWS = (
    Mechanism(
        name="pgsr-hierarchical-dp",
        symbol="M_H^dp",
        paper=f"{PGSR}, Sections 5–7",
        view="counts",
        estimate=hierarchical_dp,
        cost="about the noise-sampling time; exact optimum",
        use="groups as the privacy unit, or entities with large quantities, with private totals",
        certified=is_hierarchical_optimum,
    ),
    Mechanism(
        name="pgsr-cumulative-dp",
        symbol="M_c^dp",
        paper=f"{PGSR}, Section 9.1",
        view="at_least",
        estimate=cumulative_dp,
        cost="about the noise-sampling time; each step is an exact optimum, the two together are not",
        use="entities as the privacy unit if joint-cumulative takes too long",
        certified=is_cumulative_optimum,
    ),
    Mechanism(
        name="pgsr-chain",
        symbol="M_c^ch",
        paper=f"{PGSR}, Section 9.2",
        view="chain",
        estimate=chain,
        cost="less than the noise-sampling time; exact optimum",
        use="comparison with the paper: its noise grows with the number of regions, so it is far off beyond a few",
        unplanned="its noise grows with the number of regions; name it to include it",
    ),
    _Joint(
        name="joint-cumulative",
        symbol="M_c at any size",
        paper=f"{PGSR}, Section 9, Model 2, with public totals kept in every region",
        view="at_least",
        estimate=joint_cumulative,
        use="entities as the privacy unit, to compare with the paper",
    ),
    _Joint(
        name="joint-counts",
        symbol="M_H at any size",
        paper=f"{PGSR}, Section 5, Model 1, with public totals kept in every region",
        view="counts",
        estimate=joint_counts,
        use="groups as the privacy unit, or entities with large quantities, with public totals",
        needs_public_totals=True,
    ),
)
