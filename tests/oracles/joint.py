"""References for the joint estimators: all tables tried one by one, SCIP, and least squares as one dense matrix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy
from tests.oracles.least_squares import sums_of_leaves


def squares(noisy: Integers, values: Any, hierarchy: Hierarchy, weights: Any = None) -> float:
    """Σ weight · (value − noisy)²."""
    by_level = np.ones(hierarchy.depth) if weights is None else np.asarray(weights, dtype=float)
    return float((by_level[hierarchy.level_of] * ((values - noisy) ** 2).sum(axis=1)).sum())


def dense_least_squares(values: Any, hierarchy: Hierarchy, region_weights: Any) -> Any:
    """A (AᵀWA)⁻¹ AᵀW q, where A turns leaves into regions."""
    turns = sums_of_leaves(hierarchy)
    weighted = turns.T * np.asarray(region_weights)
    return turns @ np.linalg.solve(weighted @ turns, weighted @ values)


def falling_rows(sizes: int, most: int) -> Iterator[tuple[int, ...]]:
    """All non-increasing rows of so many numbers from 0 to `most`."""
    return (row[::-1] for row in combinations_with_replacement(range(most + 1), sizes))


def rows_with_total(sizes: int, total: int) -> Iterator[tuple[int, ...]]:
    """All rows of so many non-negative numbers with this sum."""
    return (row for row in product(range(total + 1), repeat=sizes) if sum(row) == total)


def least_by_enumeration(
    noisy: Integers, hierarchy: Hierarchy, choices: list[list[tuple[int, ...]]], total: int | None = None
) -> float:
    """The least cost over all choices of a row for every leaf; `total` fixes the root's first value."""
    leaves = np.array(list(product(*choices)))  # [tables, leaves, sizes]
    tables = np.einsum("rl,nls->nrs", sums_of_leaves(hierarchy), leaves)
    if total is not None:
        tables = tables[tables[:, 0, 0] == total]
    return float(((tables - noisy) ** 2).sum(axis=(1, 2)).min())


def proved_cumulative(noisy: Integers, hierarchy: Hierarchy, totals: Any = None, weights: Any = None) -> float:
    """The least cost of Model 2 as SCIP proves it; `totals` as in `joint_cumulative`."""
    model, cells = _tree_model(noisy, hierarchy, weights, _reach(noisy, hierarchy, totals))
    for row in cells:
        for larger, smaller in pairwise(row):
            model.addCons(larger >= smaller)
    if totals is not None and np.ndim(totals) == 0:
        model.addCons(cells[0][0] == int(totals))
    elif totals is not None:
        for row, total in zip(cells, totals, strict=True):
            model.addCons(row[0] <= int(total))
    return _solved(model)


def proved_counts(noisy: Integers, hierarchy: Hierarchy, totals: Any, weights: Any = None) -> float:
    """The least cost of Model 1 with every region's total, as SCIP proves it."""
    from pyscipopt import quicksum

    model, cells = _tree_model(noisy, hierarchy, weights, int(max(totals)))
    for row, total in zip(cells, totals, strict=True):
        model.addCons(quicksum(row) == int(total))
    return _solved(model)


def _reach(noisy: Integers, hierarchy: Hierarchy, totals: Any) -> int:
    if totals is not None:
        return int(np.max(totals))
    return 2 * hierarchy.leaf_count * (int(np.abs(noisy).max()) + 1)


def _tree_model(noisy: Integers, hierarchy: Hierarchy, weights: Any, most: int) -> tuple[Any, list[list[Any]]]:
    """Whole numbers that add up; each square lies above the lines through neighbouring points of its parabola."""
    from pyscipopt import Model, quicksum

    model = Model()
    model.hideOutput()
    model.setParam("limits/time", 30)
    by_level = [1] * hierarchy.depth if weights is None else list(weights)
    cells, terms = [], []
    for region in range(len(hierarchy)):
        row = [model.addVar(vtype="I", lb=0, ub=most) for _ in range(noisy.shape[1])]
        for cell, seen in zip(row, noisy[region].tolist(), strict=True):
            square = model.addVar(lb=0)
            for step in range(-seen, max(most, 1) - seen):
                model.addCons(square >= (2 * step + 1) * (cell - seen) - step * (step + 1))
            terms.append(float(by_level[hierarchy.level_of[region]]) * square)
        cells.append(row)
    for region in range(int(hierarchy.level_starts[-2])):
        for size in range(noisy.shape[1]):
            below = quicksum(cells[child][size] for child in hierarchy.children_of(region))
            model.addCons(cells[region][size] == below)
    model.setObjective(quicksum(terms), "minimize")
    return model, cells


def _solved(model: Any) -> float:
    model.optimize()
    if model.getStatus() != "optimal":
        raise AssertionError(f"SCIP did not finish: {model.getStatus()}")
    return float(model.getObjVal())
