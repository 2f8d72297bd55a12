"""Whole tables with given sums of rows and columns, all of them, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np


def tables(rows: list[int], columns: list[int]) -> Iterator[np.ndarray]:
    """Every table of whole numbers, 0 or more, with these sums."""
    for found in product(*(list(_parts(row, len(columns))) for row in rows)):
        table = np.array(found).reshape(len(rows), len(columns))
        if table.sum(axis=0).tolist() == columns:
            yield table


def least_cost(target: np.ndarray, weight: np.ndarray, rows: list[int], columns: list[int]) -> float:
    """The least Σ weight (x − target)² over all of these tables."""
    return min(cost(table, target, weight) for table in tables(rows, columns))


def cost(table: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
    return float((weight * (table - target) ** 2).sum())


def _parts(total: int, places: int) -> Iterator[tuple[int, ...]]:
    if places == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _parts(total - first, places - 1):
            yield (first, *rest)
