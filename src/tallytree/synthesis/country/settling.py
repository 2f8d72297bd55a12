"""Rates by leaf region from noisy tables of all levels, settled from the top down.

A *rate* is what a table counts for each household of a region: the share that rents, the share that contains a child,
the number of persons over 65. The whole has the model's rates p. On each level a region with n households that lies in
one with the rates p has the noisy counts y, with noise of variance σ², and

    x = n p + g (y − n p),    g = V / (V + σ²),    V = n p + n² b

where n p is how much counts of regions with equal rates differ by chance, and b, by cell, is how much more they differ
on this level: fitted by moments from the noisy counts alone, b = Σ w ((y − n p)² − σ² − n p) / Σ w n² with the weights
w = (n / (n p + σ²))², and 0 where that is negative. So a region keeps its own counts where they tell something and has
its parent's rates where they are noise. Then counts near or below zero become a small part of n p, and the regions of a
parent are scaled to add up to it, cell by cell, as their cells are to their number of households.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.schema import Marginal
from tallytree.synthesis.country.levels import RegionLevels
from tallytree.synthesis.models.model import Measured

RAKES = 200  # times at most that regions are scaled to their parent, and cells to their region
NEAR_ENOUGH = 1e-6  # of a count, as a part of it
LEAST_OF_EXPECTED = 0.02  # of what the parent's rates expect: noise below zero does not tell that there is nobody
LEAST = 1e-9  # of a rate: what is impossible on paper may still be there


def settled_rates(
    table: Marginal, whole: Floats, noisy: Mapping[int, Measured], households: Integers, levels: RegionLevels
) -> Floats:
    """The rates `[leaves, cells]` of a table, from its rates in the whole `[cells]`, its noisy counts by level, and the
    numbers of `households` by leaf.
    """
    above = np.maximum(whole.ravel(), LEAST)[None]
    above_number = np.array([float(households.sum())])
    adds_up = not table.person and table.of == "households"  # each household is in one cell
    for level, parents in enumerate(levels.parents):
        number = levels.summed(households, level).astype(np.float64)
        expected = number[:, None] * above[parents]
        measured = noisy.get(level)
        counts = expected
        if measured is not None:
            own = measured.values.reshape(len(number), -1)
            counts = drawn_to(own, float(measured.variance.flat[0]), expected, number)
            counts = _raked(counts, parents, above_number[:, None] * above, number if adds_up else None)
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = np.where(number[:, None] > 0, counts / number[:, None], above[parents])
        above, above_number = np.maximum(rates, LEAST), number
    return above


def drawn_to(noisy: Floats, variance: float, expected: Floats, number: Floats) -> Floats:
    """Noisy counts `[regions, cells]` drawn to what the parents' rates expect, as far as they are noise."""
    apart, chance = noisy - expected, np.maximum(expected, LEAST)
    weight = (number[:, None] / (chance + variance)) ** 2
    total = (weight * number[:, None] ** 2).sum(axis=0)
    beyond = (weight * (apart**2 - variance - chance)).sum(axis=0) / np.maximum(total, LEAST)
    real = chance + number[:, None] ** 2 * np.maximum(beyond, 0.0)
    counts: Floats = np.maximum(expected + real / (real + variance) * apart, LEAST_OF_EXPECTED * expected)
    return counts


def _raked(counts: Floats, parents: Integers, wanted: Floats, number: Floats | None) -> Floats:
    """Counts scaled in turn to the parents' cells and, where each household is in one cell, to the regions' numbers."""
    counts = counts + LEAST
    for _ in range(RAKES):
        sums = np.zeros_like(wanted)
        np.add.at(sums, parents, counts)
        factors = wanted / np.maximum(sums, LEAST)
        counts *= factors[parents]
        if number is None or np.abs(factors - 1).max() <= NEAR_ENOUGH:
            break
        counts *= (number / np.maximum(counts.sum(axis=1), LEAST))[:, None]
    return counts


def rates_of_all(
    tables: Sequence[Marginal],
    wholes: Sequence[Floats],
    noisy: Mapping[tuple[Marginal, int], Measured],
    households: Integers,
    levels: RegionLevels,
) -> list[Floats]:
    """The settled rates of every table that was measured on some level."""
    return [
        settled_rates(
            table, whole, {level: found for (one, level), found in noisy.items() if one == table}, households, levels
        )
        for table, whole in zip(tables, wholes, strict=True)
    ]
