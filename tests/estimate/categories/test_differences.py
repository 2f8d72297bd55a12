import numpy as np
import pytest

from tallytree.estimate.categories.differences import tridiagonal_least_squares


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
