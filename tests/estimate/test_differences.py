import numpy as np
import pytest

from tallytree.estimate.least_squares import tridiagonal_least_squares


@pytest.mark.parametrize("sizes", [1, 2, 7])
def test_it_is_dense_least_squares_with_exact_variances(sizes):
    rng = np.random.default_rng(sizes)
    values, differences = rng.normal(0, 9, (2, 5, sizes))
    variance, spread = rng.uniform(0.1, 30, (2, 5, sizes))
    found, left = tridiagonal_least_squares(values, variance, differences, spread)
    steps = np.eye(sizes) - np.eye(sizes, k=1)
    for row in range(5):
        design = np.vstack([np.eye(sizes), steps])
        weights = np.diag(1 / np.concatenate([variance[row], spread[row]]))
        inverse = np.linalg.inv(design.T @ weights @ design)
        right = design.T @ weights @ np.concatenate([values[row], differences[row]])
        assert np.allclose(found[row], inverse @ right, rtol=0, atol=1e-9)
        assert np.allclose(left[row], np.diag(inverse), rtol=1e-9)


def test_variances_stay_positive_and_estimates_exact_where_they_differ_by_many_orders_of_magnitude():
    rng = np.random.default_rng(5)
    for _ in range(50):
        true = np.cumsum(rng.integers(0, 1000, 6)[::-1])[::-1].astype(float)
        differences = true - np.append(true[1:], 0.0)
        variance, spread = 10 ** rng.uniform(-18, 6, (2, 6))
        found, left = tridiagonal_least_squares(true[None], variance[None], differences[None], spread[None])
        assert np.allclose(found[0], true, rtol=1e-12, atol=0)
        assert np.all(left > 0)
        assert np.all(left <= variance)
