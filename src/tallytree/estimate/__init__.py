"""Estimation: from noisy measurements to counts, as pure functions of what is already public.

By the problem solved: `tree`, consistent counts for all regions (the nearest ones, least squares, the papers' ways down
the levels); `joint`, all levels in one problem, with a proved bound; `regions`, one region by itself; `intervals`, how
far estimates may be off; `baselines`, generic solvers and the papers' cost tables, to compare with. `checks` looks at
what they are given and `layout` cuts their work into blocks.
"""

from tallytree.estimate.regions.isotonic import non_increasing
from tallytree.estimate.tree.nearest import is_optimal, nearest_consistent

__all__ = ["is_optimal", "nearest_consistent", "non_increasing"]
