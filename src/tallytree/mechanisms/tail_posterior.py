"""Where counts run out: `at_least` counts of leaves read as beliefs where the noise is small, and added up.

Rows of real regions end in a long tail of sizes that hardly any group has. There a leaf's noisy numbers say more than
least squares takes from them: most are 0, and none can be less. With little noise (scales up to `MOST_SCALE`) what is
believed of each leaf (`posterior`, under the shape of the root) is much sharper than what was measured,
and so are sums of it. With more noise the sums of beliefs are off to one side by more than they gain.

*Sums.* Errors of beliefs need not cancel as noise does, for all of them rest on one shape. So a sum has the variance
Σ v + (κ Σ √v)²: a part κ of each error is taken to go the same way in all leaves. Then it is weighed against the
unbiased estimate, which no shape can move. (κ = 0.1, 0.2 and 0.4 were tried on Oregon's households and a made-up
census; the last was best at the root and as good below.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.progress import Tell, nobody
from tallytree.estimate.allocation import fit_monotone
from tallytree.estimate.least_squares import add_up, added_up
from tallytree.estimate.posterior import NEAR, Counted, posterior_under
from tallytree.mechanisms.leaf_totals import LEAST_VARIANCE, measured_totals, weigh_totals
from tallytree.privacy.measurements import Measurements

MOST_SCALE = 2.0  # of Laplace noise on the leaves; Gaussian noise with the same variance counts alike
SPARSE = 4.0  # with fewer groups of the largest size than this many scales, a leaf's row has a tail
ALIKE = 0.4  # κ
LEAST_PART = 1e-3  # of a group, spread over all sizes: no size is impossible
LEAST_SPREAD = 1e-6  # a variance

Weigh = Callable[[Floats, Floats, Floats, Floats], None]


def sharpened(
    measurements: Measurements, unbiased: Floats, variances: Floats, weigh: Weigh, tell: Tell = nobody
) -> tuple[Floats, Floats] | None:
    """Means and variances `[regions, sizes]`: beliefs about leaves, added up and weighed against unbiased estimates.

    None where they would not pay. `weigh` takes the sums and their variances, which it changes in place, and what they
    are weighed against with its variances.
    """
    tree, totals = measurements.hierarchy, measurements.known_totals
    leaves = tree.level_slice(tree.depth - 1)
    counted = _counted(measurements)
    if counted is None:
        return None
    root = fit_monotone(unbiased[:1], np.sqrt(variances[:1]), None if totals is None else totals[:1])[0]
    if root[-1] >= SPARSE * counted.scale * (leaves.stop - leaves.start):
        return None
    groups = float(totals[0]) if totals is not None else max(float(root[0]), 1.0)
    shape = -np.diff(root, prepend=max(groups, float(root[0])), append=0.0) / groups
    mean, variance = np.empty(unbiased.shape), np.empty(unbiased.shape)
    posterior_under(np.maximum(shape, LEAST_PART / len(root)), counted, (mean[leaves], variance[leaves]), tell)
    del counted
    if (first := measured_totals(measurements)) is not None:
        weigh_totals(mean[leaves], variance[leaves], first)
    variance[leaves] += LEAST_SPREAD
    add_up(mean, tree)
    add_up(variance, tree)
    upper = slice(0, leaves.start)
    variance[upper] += (ALIKE * added_up(np.sqrt(variance[leaves]), tree)[upper]) ** 2
    for level in range(tree.depth - 1):
        rows = tree.level_slice(level)
        weigh(mean[rows], variance[rows], unbiased[rows], variances[rows])
    return mean, variance


def _counted(measurements: Measurements) -> Counted | None:
    """The leaves' noisy counts, where all sizes were measured alike and with little noise."""
    tree, totals = measurements.hierarchy, measurements.known_totals
    leaves = tree.level_slice(tree.depth - 1)
    parts = [part for part in measurements.measured if part.level == tree.depth - 1 and part.view == "at_least"]
    if tree.by.columns or len(parts) != 1 or parts[0].sizes is not None or parts[0].variance > 2 * MOST_SCALE**2:
        return None
    values = parts[0].values.astype(np.float64)
    certain = totals is not None
    groups = totals[leaves] if totals is not None else np.maximum(values[:, 0], 1.0)
    return Counted(
        values=values,
        groups=np.ascontiguousarray(groups, np.int64),
        scale=max(float(parts[0].scale), LEAST_VARIANCE),
        gaussian=parts[0].noise == "discrete_gaussian",
        certain=certain,
        reach=NEAR,
    )
