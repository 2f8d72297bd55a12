from __future__ import annotations

import numpy as np
from benchmarks.paper_tables import paper_estimate

from tallytree.estimate import nearest_consistent
from tests.oracles.trees import cost, is_feasible, noisy_counts, random_tree


def test_the_papers_tables_and_nearest_consistent_reach_the_same_cost():
    rng = np.random.default_rng(4)
    for case in range(25):
        tree = random_tree(rng, 2 + case % 3, most_children=3)
        counts, noisy = noisy_counts(rng, tree, sizes=3, scale=2, mean=5)
        total = int(counts[0].sum())
        tables = paper_estimate(noisy, tree, total, noise_scale=2)
        nearest = nearest_consistent(noisy, tree, total=total)
        assert is_feasible(tables, tree, total)
        assert cost(noisy, tables, tree) == cost(noisy, nearest, tree)
