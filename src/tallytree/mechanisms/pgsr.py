"""The two dynamic-programming mechanisms of Fioretto, Van Hentenryck and Zhu, without their tables.

M_H^dp (Sections 5–7) and M_c^dp (Section 9.1). The optimum of their last step is found by `nearest_consistent`, exactly
and at a cost that does not depend on the noise. Different here: only the grand total is fixed and only where it is
public (the paper's (H2) cannot hold for all regions); size 0 is a cell of its own when a public list of groups exists;
M_c^dp works on `at_least` counts, because the paper's cumulative counts all shift when a group appears or vanishes.
"""

from __future__ import annotations

from tallytree.arrays import Integers
from tallytree.errors import ReleaseError
from tallytree.estimate.regions.isotonic import non_increasing
from tallytree.estimate.tree.nearest import is_optimal, nearest_consistent
from tallytree.histogram import counts_from_at_least
from tallytree.mechanisms.estimate import Estimate
from tallytree.mechanisms.inputs import grand_total, precisions
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import View


def hierarchical_dp(measurements: Measurements) -> Estimate:
    """M_H^dp: the consistent counts closest to the noisy counts."""
    counts = _closest(measurements.stacked("counts"), measurements, "counts")
    return Estimate(counts, "the closest consistent counts to the measured ones (certified optimal)")


def cumulative_dp(measurements: Measurements) -> Estimate:
    """M_c^dp: make each region's `at_least` counts non-increasing, difference them, then as M_H^dp."""
    totals = measurements.region_totals
    survivors = non_increasing(measurements.stacked("at_least"), upper=totals)
    counts = _closest(counts_from_at_least(survivors, totals), measurements, "at_least")
    return Estimate(
        counts,
        "region by region the closest non-increasing counts, then the closest consistent counts to those "
        "(each step an exact optimum, the second certified; the two together are not one optimum)",
    )


def _closest(noisy: Integers, measurements: Measurements, view: View) -> Integers:
    """`nearest_consistent`, levels weighted by their precision, with the certificate checked."""
    total, weights = grand_total(measurements), precisions(measurements, view)
    counts = nearest_consistent(noisy, measurements.hierarchy, total=total, weights=weights)
    if not is_optimal(noisy, counts, measurements.hierarchy, total=total, weights=weights):
        raise ReleaseError("the estimate failed its optimality certificate: please report this as a defect")
    return counts
