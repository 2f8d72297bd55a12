"""Estimation: from noisy measurements to counts, as pure functions of what is already public.

By the problem solved:

- single regions: `isotonic` rows and lists, and `simplex`, counts with a known total;
- the tree: `least_squares`, the `nearest` consistent integers (from the `relaxation`), and `matching` of groups;
- all levels in one problem with a proved bound: `alternating` directions, and `joint_tables`;
- from the top down: `posterior` and `shrinkage` of leaves, `allocation` of a parent's rows, `transport` by category;
- `intervals`: how far estimates may be off.

`checks` validates the input and output of estimators, and `layout` cuts their work into blocks.
"""

from tallytree.estimate.isotonic import non_increasing
from tallytree.estimate.nearest import is_optimal, nearest_consistent

__all__ = ["is_optimal", "nearest_consistent", "non_increasing"]
