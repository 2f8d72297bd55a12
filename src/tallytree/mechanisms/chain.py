"""M_c^ch of the PGSR paper (Section 9.2) with honest noise.

The paper adds noise as if one entity changed one number of a level's chain. It changes as many as the level has
regions, so as printed the mechanism spends many times the ε that it states; `tallytree.evaluate` can show that. Here
the measurement carries its true sensitivity (`Neighbours.sensitivity`), which makes the mechanism private and, for most
data, useless.
"""

from __future__ import annotations

from tallytree.estimate.tree.chain import nearest_chain
from tallytree.mechanisms.estimate import Estimate
from tallytree.mechanisms.inputs import grand_total, precisions
from tallytree.privacy.measurements import Measurements


def chain(measurements: Measurements) -> Estimate:
    """The closest non-increasing chain over all regions and sizes, levels tied, then differences."""
    counts = nearest_chain(
        measurements.stacked("chain"),
        measurements.hierarchy,
        total=grand_total(measurements),
        weights=precisions(measurements, "chain"),
    )
    return Estimate(counts, "the closest chain of counts to the measured one (an exact optimum)")
