"""The newest published ways from the top down, on counts by size: BlueDown and InfTDA. To compare with, as `topdown`.

Both ask one question of each cell, its count, and give whole counts that add up, so both may be released.
"""

from __future__ import annotations

from functools import partial

from tallytree.estimate.baselines.bluedown import blue_down
from tallytree.estimate.baselines.chebyshev import chebyshev_down
from tallytree.estimate.tree.variances import LEAST_VARIANCE
from tallytree.mechanisms.mechanism import Estimate, Mechanism, terms
from tallytree.privacy.measurements import Measurements


def bluedown(measurements: Measurements) -> Estimate:
    """BlueDown: unbiased estimates upwards, then one family at a time from the root down."""
    variances = [max(variance, LEAST_VARIANCE) for variance in measurements.variances("counts")]
    total = terms(measurements, "counts")["total"]
    counts = blue_down(measurements.stacked("counts"), measurements.hierarchy, variances=variances, total=total)
    return Estimate(
        counts,
        "family by family from the top the closest counts to the best linear unbiased estimates of the regions, "
        "rounded (not one optimum in all)",
    )


def inftda(measurements: Measurements) -> Estimate:
    """InfTDA: one family at a time from the root down, the largest move the least there is."""
    total = terms(measurements, "counts")["total"]
    counts = chebyshev_down(measurements.stacked("counts"), measurements.hierarchy, total=total)
    return Estimate(
        counts,
        "family by family from the top counts whose largest distance to the measured ones is the least there is "
        "(not one optimum in all)",
    )


_Rival = partial(
    Mechanism,
    view="counts",
    cost="about the time of drawing the noise",
    unplanned="it is there to compare with; name it to see it",
)

ROWS = (
    _Rival(
        name="bluedown",
        symbol="BlueDown",
        paper="Ghazi, Kamath, Kumar, Manurangsi, Sealfon: BlueDown (arXiv 2603.10099), one question per cell",
        estimate=bluedown,
        use="comparison: as topdown, with every level's measurements used for the levels above it",
    ),
    _Rival(
        name="inftda",
        symbol="InfTDA",
        paper="Boninsegna, Silvestri: Hierarchical Origin/Destination Data with a TopDown Approach (arXiv 2412.09256)",
        estimate=inftda,
        use="comparison: as topdown, with the largest distance in place of the sum of squares",
    ),
)
