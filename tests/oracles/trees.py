"""References for the estimators on trees: random hierarchies, exhaustive search, CP-SAT, and slow obvious twins."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy


def random_tree(rng: np.random.Generator, levels: int, most_children: int, short: float = 0.2) -> Hierarchy:
    """A tree of at most `levels` levels; a region ends early with probability `short`."""
    edges, layer, named = [("root", "")], ["root"], 1
    for _ in range(levels - 1):
        below = []
        for parent in layer:
            if parent != "root" and rng.random() < short:
                continue
            for _ in range(int(rng.integers(1, most_children + 1))):
                edges.append((f"region {named}", parent))
                below.append(f"region {named}")
                named += 1
        layer = below
    return Hierarchy.from_edges(edges)


def even_tree(*regions: int) -> Hierarchy:
    """A tree with so many regions on each level below the root, spread evenly."""
    leaves = np.arange(regions[-1])
    table = {
        f"level {level}": [f"{level}.{region}" for region in leaves * count // regions[-1]]
        for level, count in enumerate(regions)
    }
    return Hierarchy.from_levels(table, list(table))


def noisy_counts(
    rng: np.random.Generator, hierarchy: Hierarchy, sizes: int, scale: float, mean: float = 20
) -> tuple[Integers, Integers]:
    """Made-up true counts that add up, and the same with two-sided geometric noise."""
    leaves = rng.poisson(rng.gamma(0.3, mean / 0.3, size=(hierarchy.leaf_count, 1)) * 0.7 ** np.arange(sizes))
    counts = hierarchy.aggregate(leaves)
    return counts, counts + two_sided_geometric(rng, counts.shape, scale)


def two_sided_geometric(rng: np.random.Generator, shape: tuple[int, ...], scale: float) -> Integers:
    """Discrete Laplace noise as NumPy draws it: in floats, with a seed."""
    stop = 1 - np.exp(-1 / scale)
    return rng.geometric(stop, shape) - rng.geometric(stop, shape)


def cost(noisy: Integers, counts: Integers, hierarchy: Hierarchy, weights: Any = None) -> int:
    """Σ weight · (count − noisy)², in Python's integers (exact for integer weights)."""
    weights = [1] * hierarchy.depth if weights is None else weights
    return sum(
        weights[level] * (int(count) - int(seen)) ** 2
        for level, row, target in zip(hierarchy.level_of, counts, noisy, strict=True)
        for count, seen in zip(row, target, strict=True)
    )


def is_feasible(counts: Integers, hierarchy: Hierarchy, total: int | None) -> bool:
    """Are the counts non-negative, and do they add up?"""
    if (counts < 0).any() or (total is not None and counts[0].sum() != total):
        return False
    return adds_up(counts, hierarchy)


def adds_up(counts: Integers, hierarchy: Hierarchy) -> bool:
    """Do all children add up to their parent, size by size?"""
    inner = range(int(hierarchy.level_starts[-2]))
    return all((counts[hierarchy.children_of(region)].sum(axis=0) == counts[region]).all() for region in inner)


def least_cost(noisy: Integers, hierarchy: Hierarchy, total: int | None = None, weights: Any = None) -> int:
    """The optimum by a table over all values that can matter: every split of every value of every region is tried."""
    weights = [1] * hierarchy.depth if weights is None else weights
    bound = max(0, int(noisy.max())) * hierarchy.leaf_count if total is None else total
    tables = [_table(noisy[:, size], hierarchy, weights, bound) for size in range(noisy.shape[1])]
    if total is None:
        return sum(min(table) for table in tables)
    return _splits(tables, bound)[total]


def _table(noisy: Integers, hierarchy: Hierarchy, weights: Any, bound: int) -> list[int]:
    @cache
    def best(region: int) -> list[int]:
        below = [best(child) for child in hierarchy.children_of(region)]
        inner = _splits(below, bound) if below else [0] * (bound + 1)
        weight, seen = weights[hierarchy.level_of[region]], int(noisy[region])
        return [weight * (value - seen) ** 2 + rest for value, rest in enumerate(inner)]

    return best(0)


def _splits(tables: list[list[int]], bound: int) -> list[int]:
    total = tables[0]
    for table in tables[1:]:
        total = [min(total[value - part] + table[part] for part in range(value + 1)) for value in range(bound + 1)]
    return total


def least_cost_by_enumeration(noisy: Integers, hierarchy: Hierarchy, total: int | None, most: int) -> int:
    """The optimum over all leaf counts from 0 to `most`: no idea of the structure at all. Tiny cases only."""
    shape = (hierarchy.leaf_count, noisy.shape[1])
    found = []
    for cells in product(range(most + 1), repeat=shape[0] * shape[1]):
        counts = hierarchy.aggregate(np.array(cells, dtype=np.int64).reshape(shape))
        if total is None or counts[0].sum() == total:
            found.append(int(((counts - noisy) ** 2).sum()))
    return min(found)


def proven_cost(noisy: Integers, hierarchy: Hierarchy, total: int | None, weights: Any = None) -> int:
    """The optimum as CP-SAT proves it."""
    from ortools.sat.python import cp_model

    weights = [1] * hierarchy.depth if weights is None else weights
    model = cp_model.CpModel()
    most = 2 * max(int(np.abs(noisy).max()), total or 0)
    counts: dict[tuple[int, int], Any] = {}
    terms = []
    for region in range(len(hierarchy)):
        for size in range(noisy.shape[1]):
            seen = int(noisy[region, size])
            counts[region, size] = model.new_int_var(0, most, "")
            square = model.new_int_var(0, max(seen**2, (most - seen) ** 2), "")
            gap = counts[region, size] - seen
            for step in range(-seen, most - seen):  # the lines through neighbouring points of the parabola
                model.add(square >= (2 * step + 1) * gap - step * (step + 1))
            terms.append(weights[hierarchy.level_of[region]] * square)
    for region in range(int(hierarchy.level_starts[-2])):
        for size in range(noisy.shape[1]):
            model.add(counts[region, size] == sum(counts[child, size] for child in hierarchy.children_of(region)))
    if total is not None:
        model.add(sum(counts[0, size] for size in range(noisy.shape[1])) == total)
    model.minimize(sum(terms))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_time_in_seconds = 20
    if solver.solve(model) != cp_model.OPTIMAL:
        raise RuntimeError("CP-SAT did not prove an optimum in time")
    return round(solver.objective_value)


def least_monotone_cost(noisy: Integers, upper: int) -> int:
    """The least Σ (x − y)² over all non-increasing integers from 0 to `upper`."""
    return min(
        sum((value - int(seen)) ** 2 for value, seen in zip(row, noisy, strict=True))
        for row in product(range(upper + 1), repeat=len(noisy))
        if all(after <= before for before, after in pairwise(row))
    )
