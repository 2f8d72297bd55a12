"""Rows of `at_least` counts whose sums were measured as well: the number of entities, Σ_s T[s], with noise of its own.

*Least squares, exactly.* Where the noise of a level has one variance σ² at all K sizes, a row of measurements is its
sum and its K − 1 contrasts, and their errors are uncorrelated: the sum has the variance K σ², and another measurement
of the sum, of variance v, tells of nothing else. So the sums are weighed and carried up the tree by themselves, with
the precision 1 / (K σ²) + 1 / v on each level, and the contrasts as without them. A row is then moved by the same
number at each of its sizes, so that it has the better sum.

*Rows that fall and stay between 0 and their bound* have larger sums where noise below 0 is clipped, and the measured
sum would be lost there. The row x within these bounds that is nearest to what is believed, in the metric of its
covariance, minimises

    Σ (x − y)² / (2 σ²) + (Σ x − S)² / (2 w),    1 / w = 1 / Var S − 1 / (K σ²),    Σ y = S,

and that is the row within bounds nearest to y − θ σ², with θ = (Σ x − S) / w. The sum of that row falls as θ rises, so
θ is found by bisection. Moving a row by one number at all sizes moves its non-increasing fit by the same.
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.topdown.allocation import fit_monotone
from tallytree.estimate.topdown.subtrees import subtree_estimates

HALVINGS = 60


def weigh_measured_sums(
    mean: Floats, variance: Floats, values: Floats, noise: Floats, sums: Floats, sums_noise: Floats, tree: Hierarchy
) -> tuple[Floats, Floats, Floats]:
    """`subtree_estimates` of rows (`mean` and `variance`, from `values` with `noise` `[levels]`) and of their sums.

    `sums` `[regions]` were measured with noise of variance `sums_noise` `[levels]`, infinite where nothing was
    measured. Gives means `[regions, sizes]`, the variances of their cells and those of their sums `[regions]`.
    """
    sizes = values.shape[1]
    precision = 1 / (sizes * noise), 1 / sums_noise
    weight = (precision[0] + precision[1])[tree.level_of]
    derived, measured = (part[tree.level_of] for part in precision)
    known = weight > 0
    both = np.where(known, (derived * values.sum(axis=1) + measured * sums) / np.where(known, weight, 1.0), 0.0)
    level_noise = np.array([1 / total if total > 0 else np.inf for total in precision[0] + precision[1]])
    better, spread = (found[:, 0] for found in subtree_estimates(both[:, None], level_noise[:, None], tree))
    mean = mean + ((better - mean.sum(axis=1)) / sizes)[:, None]
    return mean, variance * (1 - 1 / sizes) + (spread / sizes**2)[:, None], spread


def keep_sums(mean: Floats, noise: Floats, spread: Floats, totals: Integers | None) -> Floats:
    """Rows moved so that, once they fall and are within bounds, their sums are what is believed of them.

    `noise` `[regions]` is the variance of a contrast, one for all sizes of a row, and `spread` `[regions]` that of a
    row's sum. Without `totals` a row has no upper bound.
    """
    sizes = mean.shape[1]
    lift = np.abs(mean).max(axis=1, keepdims=True) + 1  # so that nothing is clipped while rows are made to fall
    falling = fit_monotone(mean + lift, np.ones_like(mean), None) - lift
    most = np.full(len(mean), np.inf) if totals is None else totals.astype(np.float64)
    wanted = mean.sum(axis=1)
    stiff = np.maximum(1 / spread - 1 / (sizes * noise), 0.0)  # 1 / w

    def beyond(shift: Floats) -> Floats:
        """Σ x − S of rows that are moved down by `shift`, less what that shift should make of it."""
        found = np.clip(falling - shift[:, None], 0.0, most[:, None]).sum(axis=1) - wanted
        gap: Floats = found * stiff * noise - shift
        return gap

    reach = np.abs(falling).max(axis=1) + np.where(np.isfinite(most), most, 0.0) + np.abs(wanted) + 1
    low, high = -reach, reach
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = beyond(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    moved: Floats = mean - ((low + high) / 2)[:, None]
    return moved
