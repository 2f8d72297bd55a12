"""Read the measurements of the leaves, and their posterior where counts are sparse.

*Totals* of the leaves, if totals are private, are noisy numbers of groups and nothing more. They set the length of
lists of sizes (`places_for`). They are also measurements of T[1], the number of groups of size 1 or more, and are
combined with all other measurements of it.

*Tails.* In the sparse tail, and if the noise is small, posteriors of the leaves' `at_least` counts are computed and
added up. Rows of real regions end in a long tail of sizes that hardly any group has. There a leaf's noisy numbers
contain more information than least squares uses: most true counts are 0, and no count is less. With little noise
(scales up to `MOST_SCALE`), the posterior of each leaf (`posterior`, under the shape of the root) is much sharper than
the measurements, and so are sums of posteriors. With more noise the bias of these sums exceeds the gain.

*Sums.* Errors of posteriors need not cancel as noise does, because all posteriors use one shape. So a sum has the
variance Σ v + (κ Σ √v)²: a part κ of each error is assumed to be common to all leaves. The sum is then combined with
the unbiased estimate, which does not depend on the shape. (κ = 0.1, 0.2 and 0.4 were tried on Oregon's households and a
made-up census; the last was best at the root and as good below.)
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.progress import Tell, nobody
from tallytree.estimate.allocation import fit_monotone
from tallytree.estimate.least_squares import add_up, add_up_leaves
from tallytree.estimate.posterior import NEAR, REACH, Counted, Lists, posterior_under
from tallytree.privacy.measurements import Measurement, Measurements, list_starts
from tallytree.privacy.neighbours import View

DEVIATIONS_LONGER = 3  # standard deviations by which a list is longer than the leaf's likely number of groups
LIKELY_DEVIATIONS = 3  # larger differences from chance count as real
LEAST_VARIANCE = 1e-18  # of an integer: less noise counts as none
LAPLACE_SPREAD = 5  # the variance of a squared Laplace noise, in squared variances
MOST_SCALE = 2.0  # of Laplace noise on the leaves; Gaussian noise with the same variance counts alike
SPARSE = 4.0  # a leaf's row has a tail if fewer groups than this many scales have the largest size
ALIKE = 0.4  # κ
LEAST_PART = 1e-3  # of a group, spread over all sizes: no size is impossible
LEAST_SPREAD = 1e-6  # a variance

Weigh = Callable[[Floats, Floats, Floats, Floats], None]


def noisy_values(measurements: Measurements, view: View = "at_least") -> tuple[Floats, Floats]:
    """Return noisy numbers `[regions, sizes]` of a view, 0 if not measured, and the noise's variance by level."""
    tree, columns = measurements.hierarchy, measurements.columns(view)
    values, noise = np.zeros((len(tree), columns)), np.full((tree.depth, columns), inf)
    for part in measurements.measured:
        if part.view == view and not part.summed:
            band = slice(None) if part.sizes is None else slice(part.sizes.first - 1, part.sizes.last)
            values[tree.level_slice(part.level), band] = part.values
            noise[part.level, band] = noise_of(part)
    return values, noise


def measured_totals(measurements: Measurements) -> Measurement | None:
    """Return the measurement of the leaves' numbers of groups."""
    last = measurements.hierarchy.depth - 1
    return next((part for part in measurements.measured if (part.view, part.level) == ("totals", last)), None)


def noise_of(part: Measurement) -> float:
    """Return the variance of a measurement's noise, large enough to divide by."""
    return max(part.variance, LEAST_VARIANCE)


def with_totals(measurements: Measurements, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Return measured `at_least` counts and their noise, with the leaves' T[1] combined with their measured totals.

    A group has size 1 or more, so a total is T[1].
    """
    measured = measured_totals(measurements)
    if measured is None:
        return values, noise
    values, noise, leaves = values.copy(), noise.copy(), measurements.hierarchy.level_slice(measured.level)
    own, other = noise[-1, 0], noise_of(measured)
    part = 1.0 if np.isinf(own) else own / (own + other)
    values[leaves, 0] += part * (measured.values[:, 0] - values[leaves, 0])
    noise[-1, 0] = part * other
    return values, noise


def weigh_totals(mean: Floats, variance: Floats, measured: Measurement) -> None:
    """Combine posteriors of the leaves' T[1], `[leaves, sizes from 1]`, with measured totals by variance, in place.

    Rows stay monotone: at least as many groups reach size 1 as reach size 2.
    """
    own = variance[:, 0] / (variance[:, 0] + noise_of(measured))
    mean[:, 0] += own * (measured.values[:, 0] - mean[:, 0])
    variance[:, 0] = own * noise_of(measured)  # not (1 − own) × variance, which may round to 0
    if mean.shape[1] > 1:
        np.maximum(mean[:, 0], mean[:, 1], out=mean[:, 0])
    else:
        np.maximum(mean, 0, out=mean)


def places_for(measured: Measurement, max_size: int) -> Integers:
    """Return how many places each leaf's list gets: its likely number of groups, and some more.

    Lists are read from their large ends. So groups beyond the places are lost, the smallest first, and places beyond
    the groups hold 0, which costs little. A leaf's measured total is shrunk towards the mean of all leaves by the
    noise's share of the differences between leaves. Leaves are assumed to differ by at least their mean, and by more if
    their variance exceeds that of the noise by more than chance explains. No list has more than `max_size` spare
    places, nor more than `max_size` places beyond the total of all leaves, so lists stay bounded if the noise is large.
    """
    totals, noise, leaves = measured.values[:, 0].astype(np.float64), noise_of(measured), len(measured.values)
    mean = float(totals.mean())
    chance = LIKELY_DEVIATIONS * noise * sqrt(LAPLACE_SPREAD / leaves)
    between = max(max(mean, 0.0) ** 2, float(totals.var()) - noise - chance)
    own = between / (between + noise)
    deviation = sqrt(own * noise + (1 - own) ** 2 * noise / leaves)
    longest = mean + own * (totals - mean) + min(DEVIATIONS_LONGER * deviation, max_size)
    together = max(mean, 0.0) * leaves + max_size
    return np.ceil(np.clip(longest, 0, together)).astype(np.int64) + 1


def measured_lists(measurements: Measurements) -> Lists:
    last = measurements.hierarchy.depth - 1
    parts = [part for part in measurements.measured if part.view == "sorted_sizes" and part.level == last]
    bands = [
        (0, measurements.max_size) if part.sizes is None else (part.sizes.first - 1, part.sizes.last) for part in parts
    ]
    return Lists(
        values=np.stack([part.values.astype(np.int64) for part in parts]),
        starts=list_starts(measurements.lengths(last)),
        below=np.array([below for below, _ in bands]),
        above=np.array([above for _, above in bands]),
        scales=np.array([max(float(part.scale), LEAST_VARIANCE) for part in parts]),
        gaussian=parts[0].noise == "discrete_gaussian",
    )


def counted_leaves(measurements: Measurements) -> Counted:
    """Return the leaves' noisy counts; if totals are private, numbers of groups are their measured totals."""
    tree, totals = measurements.hierarchy, measurements.region_totals
    leaves, part = tree.level_slice(tree.depth - 1), _measured_leaves(measurements)
    assert part is not None
    groups = part.values[:, 0]
    if totals is None:
        values, _ = with_totals(measurements, *noisy_values(measurements))
        groups = np.maximum(np.floor(values[leaves, 0] + 0.5), 1)
    return _counted(part, totals, groups, leaves)


def _measured_leaves(measurements: Measurements) -> Measurement | None:
    """Return the first `at_least` measurement of the leaves, if any."""
    last = measurements.hierarchy.depth - 1
    return next((part for part in measurements.measured if (part.view, part.level) == ("at_least", last)), None)


def _counted(
    part: Measurement, totals: Integers | None, measured: Integers | Floats, leaves: slice, reach: float = REACH
) -> Counted:
    """Return noisy counts with the leaves' numbers of groups: the known `totals`, or those that were `measured`."""
    return Counted(
        values=part.values.astype(np.float64),
        groups=np.ascontiguousarray(measured if totals is None else totals[leaves], np.int64),
        scale=max(float(part.scale), LEAST_VARIANCE),
        gaussian=part.noise == "discrete_gaussian",
        certain=totals is not None,
        reach=reach,
    )


# -------------------------------------------------------------------- tails


def sharpened(
    measurements: Measurements, unbiased: Floats, variances: Floats, weigh: Weigh, tell: Tell = nobody
) -> tuple[Floats, Floats] | None:
    """Return means and variances `[regions, sizes]`: posteriors of leaves, added up and combined with unbiased
    estimates.

    The result is None if this would not lower the error. `weigh` takes the sums and their variances, which it changes
    in place, and the estimates to combine them with and their variances.
    """
    tree, totals = measurements.hierarchy, measurements.known_totals
    leaves = tree.level_slice(tree.depth - 1)
    part = _measured_leaves(measurements)
    if tree.by.columns or part is None or part.sizes is not None or part.variance > 2 * MOST_SCALE**2:
        return None
    counted = _counted(part, totals, np.maximum(part.values[:, 0], 1), leaves, reach=NEAR)
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
    variance[upper] += (ALIKE * add_up_leaves(np.sqrt(variance[leaves]), tree)[upper]) ** 2
    for level in range(tree.depth - 1):
        rows = tree.level_slice(level)
        weigh(mean[rows], variance[rows], unbiased[rows], variances[rows])
    return mean, variance
