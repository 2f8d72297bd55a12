"""TopDown, the U.S. Census Bureau's algorithm as the PGSR paper describes it, on counts by size."""

from __future__ import annotations

from tallytree.estimate.tree.topdown import top_down
from tallytree.mechanisms.estimate import Estimate
from tallytree.mechanisms.inputs import grand_total, precisions
from tallytree.privacy.measurements import Measurements


def topdown(measurements: Measurements) -> Estimate:
    """Least squares and rounding on two levels at a time, from the root down."""
    counts = top_down(
        measurements.stacked("counts"),
        measurements.hierarchy,
        total=grand_total(measurements),
        weights=precisions(measurements, "counts"),
    )
    return Estimate(counts, "two levels at a time the closest counts to the measured ones (not one optimum in all)")
