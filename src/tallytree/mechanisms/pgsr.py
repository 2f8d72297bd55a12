"""The fast mechanisms of Fioretto, Van Hentenryck and Zhu: M_H^dp and M_c^dp without their tables, and M_c^ch.

M_H^dp (Sections 5–7) and M_c^dp (Section 9.1): the optimum of their last step is found by `nearest_consistent`, exactly
and at a cost that does not depend on the noise. Different here: only the grand total is fixed and only where it is
public (the paper's (H2) cannot hold for all regions); size 0 is a cell of its own when a public list of groups exists;
M_c^dp works on `at_least` counts, because the paper's cumulative counts all shift when a group appears or vanishes.

M_c^ch (Section 9.2) has honest noise here. The paper adds noise as if one entity changed one number of a level's chain.
It changes as many as the level has regions, so as printed the mechanism spends many times the ε that it states. Here
the measurement carries its true sensitivity (`Neighbours.sensitivity`), which makes the mechanism private and, for most
data, useless.
"""

from __future__ import annotations

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.domain.histogram import counts_from_at_least
from tallytree.estimate.isotonic import nearest_chain, non_increasing
from tallytree.estimate.nearest import is_optimal, nearest_consistent
from tallytree.mechanisms.mechanism import PGSR, Estimate, Mechanism, terms
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import View


def hierarchical_dp(measurements: Measurements) -> Estimate:
    """M_H^dp: the consistent counts closest to the noisy counts."""
    counts = _closest(measurements.stacked("counts"), measurements, "counts")
    return Estimate(counts, "the closest consistent counts to the measured ones (certified optimal)")


def cumulative_dp(measurements: Measurements) -> Estimate:
    """M_c^dp: make each region's `at_least` counts non-increasing, difference them, then as M_H^dp."""
    counts = _closest(_differences(measurements), measurements, "at_least")
    return Estimate(
        counts,
        "region by region the closest non-increasing counts, then the closest consistent counts to those "
        "(each step an exact optimum, the second certified; the two together are not one optimum)",
    )


def chain(measurements: Measurements) -> Estimate:
    """M_c^ch: the closest non-increasing chain over all regions and sizes, levels tied, then differences."""
    counts = nearest_chain(measurements.stacked("chain"), measurements.hierarchy, **terms(measurements, "chain"))
    return Estimate(counts, "the closest chain of counts to the measured one (an exact optimum)")


def _differences(measurements: Measurements) -> Integers:
    totals = measurements.region_totals
    return counts_from_at_least(non_increasing(measurements.stacked("at_least"), upper=totals), totals)


def _closest(noisy: Integers, measurements: Measurements, view: View) -> Integers:
    """`nearest_consistent`, levels weighted by their precision, with the certificate checked."""
    counts = nearest_consistent(noisy, measurements.hierarchy, **terms(measurements, view))
    if not _is_closest(noisy, counts, measurements, view):
        raise ReleaseError("the estimate failed its optimality certificate: please report this as a defect")
    return counts


def _is_closest(noisy: Integers, counts: Integers, measurements: Measurements, view: View) -> bool:
    return is_optimal(noisy, counts, measurements.hierarchy, **terms(measurements, view))


def is_hierarchical_optimum(measurements: Measurements, counts: Integers) -> bool:
    """Are these counts as close as those of `hierarchical_dp`? Where several are, versions may take different ones."""
    return _is_closest(measurements.stacked("counts"), counts, measurements, "counts")


def is_cumulative_optimum(measurements: Measurements, counts: Integers) -> bool:
    """The same for `cumulative_dp`."""
    return _is_closest(_differences(measurements), counts, measurements, "at_least")


ROWS = (
    Mechanism(
        name="pgsr-hierarchical-dp",
        symbol="M_H^dp",
        paper=f"{PGSR}, Sections 5–7",
        view="counts",
        estimate=hierarchical_dp,
        cost="about the time of drawing the noise; exact optimum",
        use="groups as the privacy unit, or entities with large quantities, with private totals: the default there",
        certified=is_hierarchical_optimum,
    ),
    Mechanism(
        name="pgsr-cumulative-dp",
        symbol="M_c^dp",
        paper=f"{PGSR}, Section 9.1",
        view="at_least",
        estimate=cumulative_dp,
        cost="about the time of drawing the noise; each step is an exact optimum, the two together are not",
        use="entities as the privacy unit where joint-cumulative takes too long",
        certified=is_cumulative_optimum,
    ),
    Mechanism(
        name="pgsr-chain",
        symbol="M_c^ch",
        paper=f"{PGSR}, Section 9.2",
        view="chain",
        estimate=chain,
        cost="less than the time of drawing the noise; exact optimum",
        use="comparison with the paper: its noise grows with the number of regions, so it is far off beyond a few",
        unplanned="its noise grows with the number of regions; name it to see it",
    ),
)
