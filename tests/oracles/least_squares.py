"""Least squares on a tree by dense matrices: estimates, covariances and the weights on every measurement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.domain.hierarchy import Hierarchy


def sums_of_leaves(hierarchy: Hierarchy) -> Floats:
    """The matrix that turns leaf counts into the counts of all regions."""
    return hierarchy.aggregate(np.eye(hierarchy.leaf_count, dtype=np.int64)).astype(np.float64)


def dense_weights(hierarchy: Hierarchy, level_variances: Sequence[float]) -> Floats:
    """S (Sᵀ P S)⁻¹ Sᵀ P: estimates of all regions from measurements of all, P the precisions (0 where not measured)."""
    design = sums_of_leaves(hierarchy)
    precision = 1 / np.array(level_variances, dtype=np.float64)[hierarchy.level_of]
    weighted = design.T * precision
    return design @ np.linalg.solve(weighted @ design, weighted)


def dense_covariance(hierarchy: Hierarchy, level_variances: Sequence[float]) -> Floats:
    """S (Sᵀ P S)⁻¹ Sᵀ: the covariances of the estimates of all regions."""
    design = sums_of_leaves(hierarchy)
    precision = 1 / np.array(level_variances, dtype=np.float64)[hierarchy.level_of]
    covariance: Any = design @ np.linalg.solve((design.T * precision) @ design, design.T)
    return np.asarray(covariance)
