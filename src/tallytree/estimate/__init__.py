"""Estimation: from noisy measurements to counts, as pure functions of what is already public."""

from tallytree.estimate.regions.isotonic import non_increasing
from tallytree.estimate.tree.nearest import is_optimal, nearest_consistent

__all__ = ["is_optimal", "nearest_consistent", "non_increasing"]
