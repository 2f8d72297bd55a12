"""Least squares from noisy numbers and noisy differences of neighbours: a tridiagonal system for each row."""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Floats


def tridiagonal_least_squares(
    values: Floats, variance: Floats, differences: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """The T with the least Σ (T[s] − values)² / variance + Σ (T[s] − T[s + 1] − differences)² / spread; and variances.

    All arrays are `[rows, sizes]`; T beyond the last size is 0. The system is a chain, so it is solved by two passes.
    What the sizes before s and the differences up to s say of T[s] is the estimate of T[s − 1] less a difference, and
    has the sum of both variances. From the other end it is the same, and there T beyond the last size is certain. An
    estimate is the mean of independent ones, weighed by their variances. So no step subtracts variances: they stay
    positive whatever their ratios are.

    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> tridiagonal_least_squares(4 * one, one, 2 * one, one)
    (array([[3.]]), array([[0.5]]))
    """
    sizes = values.shape[1]
    mean, left = values.astype(np.float64), variance.astype(np.float64)
    for size in range(1, sizes):
        before = mean[:, size - 1] - differences[:, size - 1], left[:, size - 1] + spread[:, size - 1]
        mean[:, size], left[:, size] = _weighed(values[:, size], variance[:, size], *before)
    after, after_variance = np.zeros(len(values)), np.zeros(len(values))
    for size in range(sizes - 1, -1, -1):
        after, after_variance = after + differences[:, size], after_variance + spread[:, size]
        mean[:, size], left[:, size] = _weighed(mean[:, size], left[:, size], after, after_variance)
        after, after_variance = _weighed(values[:, size], variance[:, size], after, after_variance)
    return mean, left


def _weighed(one: Floats, variance: Floats, other: Floats, other_variance: Floats) -> tuple[Floats, Floats]:
    """The best mean of two independent estimates, and its variance."""
    part = other_variance / (variance + other_variance)
    return part * one + variance / (variance + other_variance) * other, part * variance
