"""References for monotone fits and for counts with a known total: exhaustive search, linear programs, obvious twins."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations_with_replacement
from math import floor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers


def cost(found: Sequence[int], noisy: Sequence[int], power: int) -> int:
    """Σ |x − y|^power in Python's integers."""
    return sum(abs(int(x) - int(y)) ** power for x, y in zip(found, noisy, strict=True))


def optima(noisy: Sequence[int], lower: int, upper: int, power: int) -> list[tuple[int, ...]]:
    """Every non-decreasing list of integers in lower … upper with the least cost, by trying them all."""
    lists = np.array(list(combinations_with_replacement(range(lower, upper + 1), len(noisy))))
    costs = (np.abs(lists - np.array(noisy)) ** power).sum(axis=1)
    return [tuple(found) for found in lists[costs == costs.min()].tolist()]


def chosen_among_all(noisy: Sequence[int], lower: int, upper: int, power: int) -> list[int]:
    """The documented optimum: for squares the greatest, for absolute deviations the clipped midpoint of the extremes.

    Both ends are found by trying all lists.
    """
    if power == 2:
        return np.max(optima(noisy, lower, upper, 2), axis=0).tolist()
    free = np.array(optima(noisy, min(noisy), max(noisy), 1))
    return np.clip((free.min(axis=0) + free.max(axis=0)) // 2, lower, upper).tolist()


def chosen_by_thresholds(noisy: NDArray[Any], lower: int, upper: int, power: int) -> Integers:
    """The same for longer lists: for every threshold by itself, the shortest and the longest best suffix."""
    noisy = np.asarray(noisy, dtype=np.int64)
    least, greatest = np.full((2, len(noisy)), noisy.min())
    for threshold in range(int(noisy.min()) + 1, int(noisy.max()) + 1):
        steps = np.abs(threshold - noisy) ** power - np.abs(threshold - 1 - noisy) ** power
        sums = np.append(np.cumsum(steps[::-1])[::-1], 0)  # the cost of raising each suffix, the empty one last
        best = np.flatnonzero(sums == sums.min())
        greatest[best[0] :] = threshold
        least[best[-1] :] = threshold
    return np.clip(greatest if power == 2 else (least + greatest) // 2, lower, upper)


def least_absolute_cost(noisy: NDArray[Any], lower: int, upper: int) -> float:
    """The least Σ |x − y| over non-decreasing real x in lower … upper, by a linear program."""
    from scipy.optimize import linprog
    from scipy.sparse import bmat, eye

    n = len(noisy)
    one = eye(n)
    steps = eye(n - 1, n) - eye(n - 1, n, 1)
    rows = bmat([[one, -one], [-one, -one], [steps, None]]) if n > 1 else bmat([[one, -one], [-one, -one]])
    right = np.concatenate([noisy, -np.asarray(noisy), np.zeros(n - 1)])
    costs = np.concatenate([np.zeros(n), np.ones(n)])
    solved = linprog(costs, A_ub=rows, b_ub=right, bounds=[(lower, upper)] * n + [(0, None)] * n)
    assert solved.status == 0
    return float(solved.fun)


def cheapest_units(noisy: Sequence[int], total: int) -> list[int]:
    """Non-negative counts with the total, one unit after another, each where it costs least: an integer optimum."""
    counts = [0] * len(noisy)
    for _ in range(total):
        prices = [2 * (count - seen) + 1 for count, seen in zip(counts, noisy, strict=True)]
        counts[prices.index(min(prices))] += 1
    return counts


def rounded_projection(noisy: Sequence[int], total: int) -> list[int]:
    """The real optimum in fractions, rounded down; missing units go to the largest fractions, the first of ties."""
    if total == 0:
        return [0] * len(noisy)
    ranked = sorted(noisy, reverse=True)
    shifts = [Fraction(sum(ranked[:k]) - total, k) for k in range(1, len(noisy) + 1)]
    shift = next(t for t in shifts if sum(max(Fraction(0), seen - t) for seen in noisy) == total)
    real = [max(Fraction(0), seen - shift) for seen in noisy]
    counts = [floor(value) for value in real]
    by_fraction = sorted(range(len(noisy)), key=lambda cell: counts[cell] - real[cell])
    for cell in by_fraction[: total - sum(counts)]:
        counts[cell] += 1
    return counts
