"""Least squares without matrices where several margins of region × category × size tables were measured.

On each level of the region tree any of four margins of a table `[categories, sizes]` may have been measured with noise
of some variance: the whole table, its sums over categories, over sizes, or over both. A table is the sum of four parts
that are orthogonal to one another: its mean, what categories differ by, what sizes differ by, and the rest (centre the
axes in γ, average over the others, for γ ⊆ {category, size}). A margin A sees the parts γ ⊆ A, each of them alone, so
least squares falls into four problems, and each of these into one scalar problem on the tree for every cell.

*One region.* With n₁ categories and n₂ sizes, spread the margin A evenly over the table: what it says of part γ is P_γ
of that. Its noise there is white on the part with variance σ²(A) · Π over i ∉ A of n_i⁻² · Π over i ∈ A∖γ of n_i⁻¹,
seen along one entry of the part; the inverse of that is its weight, and what all margins say is their weighted mean.

*The tree.* Children add up part by part, so `tree_least_squares` with these weights, level by level, gives each part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.least_squares import tree_least_squares

CATEGORY, SIZE = 1, 2  # axes of `[regions, categories, sizes]`
Axes = frozenset[int]
PARTS: tuple[Axes, ...] = tuple(
    frozenset(axis for axis, there in zip((CATEGORY, SIZE), which, strict=True) if there)
    for which in product((False, True), repeat=2)
)
UNSEEN = 1e-12  # of the largest weight: what stands for no measurement of a level


class MeasuredMargin(NamedTuple):
    """What was measured of one level: `[regions of the level, …]` with the axes that were kept, and its variance."""

    level: int
    axes: Axes
    values: Floats  # regions, then categories if kept, then sizes if kept
    variance: float


def margins_least_squares(
    measured: Sequence[MeasuredMargin], hierarchy: Hierarchy, categories: int, sizes: int
) -> Floats:
    """The tables `[regions, categories, sizes]` nearest to all measured margins for which children add up.

    The leaves must have been measured in full. Weights are the inverse variances.
    """
    width = {CATEGORY: categories, SIZE: sizes}
    found = np.zeros((len(hierarchy), categories, sizes))
    for part in PARTS:
        seen = np.zeros(found.shape)
        weights = np.zeros(len(hierarchy))
        for level in range(hierarchy.depth):
            rows = hierarchy.level_slice(level)
            for margin in measured:
                if margin.level == level and part <= margin.axes:
                    weight = _weight(part, margin, width)
                    seen[rows] += weight * _part(_spread(margin, width), part)
                    weights[rows] += weight
            if weights[rows.start] > 0:
                seen[rows] /= weights[rows.start]
        if not weights[hierarchy.level_slice(hierarchy.depth - 1)].all():
            raise ValueError("expected the leaves' tables to be measured in full")
        if not weights.all():
            # A level without a measurement of this part has no say: its own value, weighted with next to nothing, is
            # the sum of what is below it.
            weights = _said_nothing(seen, weights, hierarchy)
        flat = tree_least_squares(seen.reshape(len(hierarchy), -1), hierarchy, weights)
        found += flat.reshape(found.shape)
    return found


def _said_nothing(seen: Floats, weights: Floats, hierarchy: Hierarchy) -> Floats:
    least = UNSEEN * weights.max()
    for level in range(hierarchy.depth - 2, -1, -1):
        rows = hierarchy.level_slice(level)
        if weights[rows.start] == 0:
            starts = hierarchy.child_starts[rows] - hierarchy.level_starts[level + 1]
            seen[rows] = np.add.reduceat(seen[hierarchy.level_slice(level + 1)], starts)
    return np.where(weights == 0, least, weights)


def _weight(part: Axes, margin: MeasuredMargin, width: Mapping[int, int]) -> float:
    """The inverse of the noise's variance along one entry of a part."""
    weight = 1.0 / margin.variance
    for axis in (CATEGORY, SIZE):
        if axis not in margin.axes:
            weight *= width[axis] ** 2
        elif axis not in part:
            weight *= width[axis]
    return weight


def _spread(margin: MeasuredMargin, width: Mapping[int, int]) -> Floats:
    """The margin, spread evenly over the whole table."""
    values = np.asarray(margin.values, dtype=np.float64)
    for axis in (CATEGORY, SIZE):
        if axis not in margin.axes:
            values = np.repeat(np.expand_dims(values, axis), width[axis], axis=axis) / width[axis]
    return values


def _part(tables: Floats, part: Axes) -> Floats:
    """The part γ: centred along the axes in γ, averaged along the others."""
    for axis in (CATEGORY, SIZE):
        mean = tables.mean(axis=axis, keepdims=True)
        tables = tables - mean if axis in part else np.broadcast_to(mean, tables.shape)
    return tables
