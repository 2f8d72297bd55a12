"""Measured sums of rows: equal to dense least squares, and rows within bounds that are nearest to what is believed."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.allocation import fit_monotone, keep_sums, weigh_measured_sums
from tallytree.estimate.least_squares import subtree_estimates

TREE = Hierarchy.from_levels({"state": list("AAABB"), "county": list("12345")}, ["state", "county"])
SIZES = 4


def leaves_below(region):
    """The leaves of a region, by looking."""
    below = {region}
    for other in range(len(TREE)):
        if int(TREE.parents[other]) in below:
            below.add(other)
    first = TREE.level_slice(2).start
    return [other - first for other in sorted(below) if other >= first]


def dense(region, values, noise, sums, sums_noise):
    """Least squares from all that was measured in a region's subtree, with the leaves' cells as unknowns."""
    leaves, below = leaves_below(region), [other for other in range(len(TREE)) if leaves_below(other)]
    inside = [other for other in below if set(leaves_below(other)) <= set(leaves) and _within(other, region)]
    unknowns = [(leaf, size) for leaf in leaves for size in range(SIZES)]
    rows, right, weights = [], [], []
    for other in inside:
        level, mine = int(TREE.level_of[other]), set(leaves_below(other))
        for size in range(SIZES):
            rows.append([float(leaf in mine and size == one) for leaf, one in unknowns])
            right.append(values[other, size])
            weights.append(1 / noise[level])
        rows.append([float(leaf in mine) for leaf, _ in unknowns])
        right.append(sums[other])
        weights.append(1 / sums_noise[level])
    kept = np.array(weights) > 0
    design, target, weight = np.array(rows)[kept], np.array(right)[kept], np.array(weights)[kept]
    covariance = np.linalg.inv(design.T @ (weight[:, None] * design))
    solution = covariance @ design.T @ (weight * target)
    picks = np.array([[float(one == size) for _, one in unknowns] for size in range(SIZES)])
    return picks @ solution, picks @ covariance @ picks.T


def _within(other, region):
    while other >= 0 and other != region:
        other = int(TREE.parents[other])
    return other == region


@pytest.mark.parametrize("seed", range(4))
def test_rows_and_sums_together_are_dense_least_squares(seed):
    rng = np.random.default_rng(seed)
    values, sums = rng.normal(20, 9, (len(TREE), SIZES)), rng.normal(80, 9, len(TREE))
    noise, sums_noise = rng.uniform(0.5, 9, 3), rng.uniform(0.5, 30, 3)
    if seed == 1:
        noise[1] = np.inf  # a level where only sums were measured
    if seed == 2:
        sums_noise[2] = sums_noise[0] = np.inf
    mean, variance = subtree_estimates(values, np.repeat(noise[:, None], SIZES, axis=1), TREE)
    mean, variance, spread = weigh_measured_sums(mean, variance, values, noise, sums, sums_noise, TREE)
    for region in range(len(TREE)):
        right, covariance = dense(region, values, noise, sums, sums_noise)
        np.testing.assert_allclose(mean[region], right, rtol=1e-9)
        np.testing.assert_allclose(variance[region], np.diag(covariance), rtol=1e-9)
        np.testing.assert_allclose(spread[region], covariance.sum(), rtol=1e-9)


@pytest.mark.parametrize("public", [False, True])
def test_a_row_within_bounds_is_the_nearest_in_the_metric_of_its_covariance(public):
    rng = np.random.default_rng(9)
    for _ in range(15):
        mean, noise = rng.normal(1, 4, (1, SIZES)), rng.uniform(0.5, 5, 1)
        spread, total = noise * rng.uniform(0.05, SIZES, 1), np.array([rng.integers(1, 6)])
        bounds = total if public else None
        row = fit_monotone(keep_sums(mean, noise, spread, bounds), np.ones_like(mean), bounds)[0]

        def cost(x, mean=mean[0], noise=noise[0], spread=spread[0]):
            contrasts = (x - x.mean()) - (mean - mean.mean())
            return (contrasts @ contrasts) / noise + (x.sum() - mean.sum()) ** 2 / spread

        falls = {"type": "ineq", "fun": lambda x: x[:-1] - x[1:]}
        most = float(total[0]) if public else None
        start = np.linspace(1, 0, SIZES)
        best = minimize(cost, start, bounds=[(0, most)] * SIZES, constraints=falls, options={"ftol": 1e-14})
        assert cost(row) <= best.fun + 1e-6
        np.testing.assert_allclose(row, best.x, atol=2e-3)


def test_a_sum_that_is_as_good_as_known_is_kept_where_noise_is_clipped():
    """Noise below 0 that is clipped would add to the sum."""
    rng = np.random.default_rng(2)
    mean = np.hstack([np.full((50, 1), 40.0), rng.normal(0, 10, (50, 20))])
    mean += ((50 - mean.sum(axis=1)) / 21)[:, None]
    kept = fit_monotone(keep_sums(mean, np.full(50, 100.0), np.full(50, 1e-9), None), np.ones_like(mean), None)
    np.testing.assert_allclose(kept.sum(axis=1), 50, atol=1e-3)
    assert fit_monotone(mean, np.ones_like(mean), None).sum(axis=1).mean() > 60
