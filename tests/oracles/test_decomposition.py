import numpy as np
import pytest

from tests.oracles.decomposition import PARTS, MeasuredMargin, margins_least_squares
from tests.oracles.trees import random_tree


def dense(measured, hierarchy, categories, sizes):
    """The same by a matrix with a row for each measured number and a column for each cell of each leaf."""
    leaves, cells = hierarchy.leaf_count, categories * sizes
    below = np.eye(leaves, dtype=np.int64)
    inside = hierarchy.aggregate(below)  # [regions, leaves]: does a region hold a leaf?
    rows, values = [], []
    for margin in measured:
        cell = np.eye(cells).reshape(categories, sizes, cells)
        for axis in (2, 1):
            if axis not in margin.axes:
                cell = cell.sum(axis=axis - 1, keepdims=True)
        cell = cell.reshape(-1, cells)
        for region, value in enumerate(margin.values.reshape(len(margin.values), -1)):
            place = hierarchy.level_starts[margin.level] + region
            rows.append(np.kron(inside[place], cell) / np.sqrt(margin.variance))
            values.append(value / np.sqrt(margin.variance))
    found, *_ = np.linalg.lstsq(np.concatenate(rows), np.concatenate(values), rcond=None)
    leaf = found.reshape(leaves, cells)
    return (inside @ leaf).reshape(len(hierarchy), categories, sizes)


@pytest.mark.parametrize("seed", range(12))
def test_it_is_dense_least_squares_with_unequal_variances(seed):
    rng = np.random.default_rng(seed)
    tree = random_tree(rng, int(rng.integers(1, 4)), 3)
    categories, sizes = int(rng.integers(2, 4)), int(rng.integers(2, 5))
    shapes = {1: categories, 2: sizes}
    measured = []
    for level in range(tree.depth):
        rows = tree.level_slice(level)
        for axes in PARTS:
            full = len(axes) == 2
            if (full and (level == tree.depth - 1 or rng.random() < 0.7)) or (not full and rng.random() < 0.5):
                shape = (rows.stop - rows.start, *(shapes[axis] for axis in sorted(axes)))
                measured.append(MeasuredMargin(level, axes, rng.normal(0, 9, shape), float(rng.uniform(0.2, 30))))
    found = margins_least_squares(measured, tree, categories, sizes)
    assert np.abs(found - dense(measured, tree, categories, sizes)).max() < 1e-9


def test_leaves_that_were_not_measured_in_full_are_refused():
    tree = random_tree(np.random.default_rng(0), 2, 3)
    top = MeasuredMargin(0, PARTS[-1], np.ones((1, 2, 2)), 1.0)
    with pytest.raises(ValueError, match="in full"):
        margins_least_squares([top], tree, 2, 2)
