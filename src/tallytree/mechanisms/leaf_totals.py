"""Measured totals of the leaves, where totals are private: noisy numbers of groups, and taken for no more than that.

They say how long lists of sizes are to be (`places_for`), and they are measurements of T[1], how many groups have size
1 or more, to be weighed against whatever else was measured of it.
"""

from __future__ import annotations

from math import sqrt

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.privacy.measurements import Measurement, Measurements

DEVIATIONS_LONGER = 3  # so much longer than a leaf's number of groups is likely to be is its list
LIKELY_DEVIATIONS = 3  # what differs from chance by more is taken for true
LEAST_VARIANCE = 1e-18  # of a whole number: less noise is none
LAPLACE_SPREAD = 5  # the variance of a squared Laplace noise, in squared variances


def measured_totals(measurements: Measurements) -> Measurement | None:
    """What was measured of the leaves' numbers of groups."""
    last = measurements.hierarchy.depth - 1
    return next((part for part in measurements.measured if (part.view, part.level) == ("totals", last)), None)


def noise_of(part: Measurement) -> float:
    """The variance of a measurement's noise, so that it can be divided by."""
    return max(part.variance, LEAST_VARIANCE)


def with_totals(measurements: Measurements, values: Floats, noise: Floats) -> tuple[Floats, Floats]:
    """Measured `at_least` counts and their noise, with T[1] of the leaves weighed against their measured totals.

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
    """Weigh beliefs of the leaves' T[1], `[leaves, sizes from 1]`, against their measured totals by variance, in place.

    Rows stay fit_monotone: as many reach size 1 as reach size 2, or more.
    """
    own = variance[:, 0] / (variance[:, 0] + noise_of(measured))
    mean[:, 0] += own * (measured.values[:, 0] - mean[:, 0])
    variance[:, 0] = own * noise_of(measured)  # not (1 − own) × variance, which may round to 0
    if mean.shape[1] > 1:
        np.maximum(mean[:, 0], mean[:, 1], out=mean[:, 0])
    else:
        np.maximum(mean, 0, out=mean)


def places_for(measured: Measurement, max_size: int) -> Integers:
    """How many places each leaf's list gets: as many as it is likely to have groups, and some more.

    Lists are read from their large ends, so groups beyond the places are lost, the smallest first, and places beyond
    the groups hold 0, which costs little. A leaf's measured total is drawn towards the mean of all leaves by as much as
    noise makes of the differences between them. Leaves are taken to differ by as much as their mean at least, by more
    if their variance exceeds that of the noise by more than chance would. No list has more than `max_size` spare
    places, nor more places than that beyond what all leaves have together, so that lists stay in bounds where the noise
    is large.
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
