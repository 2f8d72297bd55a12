"""Whole tables with given sums of rows and columns, all of them, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.estimate.transport import Table, find_nearest_table


def nearest_table(target: Floats, weight: Floats, rows: Integers, columns: Integers) -> Integers:
    """What the kernel finds: the integers `[rows, columns]` nearest to `target` with these sums."""
    found = np.empty(target.shape, dtype=np.int64)
    find_nearest_table(Table(target.astype(np.float64), weight.astype(np.float64), rows, columns), found)
    return found


def tables(rows: list[int], columns: list[int]) -> Iterator[np.ndarray]:
    """Every table of integers, 0 or more, with these sums."""
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


def exact_cost(table: np.ndarray, target: np.ndarray, weight: np.ndarray) -> Fraction:
    """Σ weight (x − target)² of these floats, without rounding."""
    cells = zip(table.ravel().tolist(), target.ravel().tolist(), weight.ravel().tolist(), strict=True)
    return sum((Fraction(w) * (x - Fraction(y)) ** 2 for x, y, w in cells), Fraction(0))


def exactly_nearest(table: np.ndarray, target: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The nearest table with the sums of `table`, found from it in exact arithmetic.

    A table with a separable convex cost is optimal if and only if no cycle of unit exchanges lowers the cost.
    """
    table = table.copy()
    while cycle := _gaining_cycle(table, target, weight):
        for row, here, there in cycle:
            table[row, here] -= 1
            table[row, there] += 1
    return table


def _gaining_cycle(table: np.ndarray, target: np.ndarray, weight: np.ndarray) -> list[tuple[int, int, int]]:
    """(row, from, to) of unit exchanges around columns that lower the cost together; empty where there are none."""
    count, width = table.shape
    steps: dict[tuple[int, int], tuple[Fraction, int]] = {}
    for row, here, there in product(range(count), range(width), range(width)):
        if here != there and table[row, here] > 0:
            less, more = (2 * (int(table[row, at]) - Fraction(float(target[row, at]))) for at in (here, there))
            cost = Fraction(float(weight[row, here])) * (1 - less) + Fraction(float(weight[row, there])) * (1 + more)
            steps[here, there] = min(steps.get((here, there), (cost, row)), (cost, row))
    length, before, last = [Fraction(0)] * width, [-1] * width, -1
    for _ in range(width):
        last = -1
        for (here, there), (cost, _row) in steps.items():
            if length[here] + cost < length[there]:
                length[there], before[there], last = length[here] + cost, here, there
    if last < 0:
        return []
    for _ in range(width):
        last = before[last]
    cycle, there = [], last
    while not cycle or there != last:
        cycle.append((steps[before[there], there][1], before[there], there))
        there = before[there]
    return cycle
