"""Shapes that regions lie in, fitted to what is believed of the leaves: empirical Bayes, from measurements alone.

A shape is a distribution of sizes, from 0 on. Beliefs about leaves follow from measurements and shapes, and shapes from
beliefs: the expected numbers of groups by size, added up over a region of an upper level, smoothed over neighbouring
sizes, and drawn towards the shape of the region above it. A few rounds of the two are taken; more would fit the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import kernel

ROUNDS = 3
WIDTH = 0.1  # of the smoothing, relative to the size
GROUPS_FROM_ABOVE = 20.0  # as many groups does the shape above a region count for


class Beliefs(NamedTuple):
    """Of the `at_least` counts `[regions, sizes from 1]`: means, variances; and expected counts from size 0 on."""

    mean: Floats
    variance: Floats
    counts: Floats


Believe = Callable[[Integers, Floats, Beliefs], None]  # which shape each leaf lies in, the shapes, what is believed


def fitted(believe: Believe, hierarchy: Hierarchy, max_size: int, rounds: int) -> tuple[Beliefs, Integers, Floats]:
    """Beliefs about the leaves, which of the shapes each lies in, and the shapes that they rest on."""
    leaves = hierarchy.level_slice(hierarchy.depth - 1)
    upper = min(1, hierarchy.depth - 1)
    of = hierarchy.above_leaves(upper)
    shapes = np.tile(first_shape(max_size), (len(np.unique(of)), 1))
    count = leaves.stop - leaves.start
    found = Beliefs(np.zeros((count, max_size)), np.zeros((count, max_size)), np.zeros((count, max_size + 1)))
    for turn in range(rounds):
        believe(of, shapes, found)
        if turn < rounds - 1:
            shapes = fitted_shapes(found.counts, hierarchy, upper)
    return found, of, shapes


def first_shape(max_size: int) -> Floats:
    """Half of all groups are empty, and sizes are the rarer the larger: a beginning that excludes nothing."""
    shape: Floats = np.ones(max_size + 1)
    shape /= 1.0 + np.arange(max_size + 1)
    shape[0] = shape[1:].sum() if max_size > 0 else 1.0
    shape /= shape.sum()
    return shape


def fitted_shapes(counts: Floats, hierarchy: Hierarchy, upper: int) -> Floats:
    """The shape of every region of level `upper`, drawn towards that of the region above."""
    first = first_shape(counts.shape[1] - 1)
    shapes = first[None, :]
    for level in range(upper + 1):
        of = hierarchy.above_leaves(level)
        regions = int(np.diff(hierarchy.level_starts)[level])
        sums = np.zeros((regions, counts.shape[1]))
        np.add.at(sums, of, counts)
        smooth = np.zeros_like(sums)
        _smoothed(sums, smooth)
        weight = 1e-3 if level == 0 else GROUPS_FROM_ABOVE
        above = shapes
        if level > 0:
            above = shapes[hierarchy.parents[hierarchy.level_slice(level)] - hierarchy.level_slice(level - 1).start]
        shapes = (smooth + weight * above) / (smooth.sum(axis=1, keepdims=True) + weight)
    return shapes


@kernel
def _smoothed(sums: Floats, smooth: Floats) -> None:
    """Spread each size's groups over its neighbours, normally, a tenth of the size to either side; small sizes stay."""
    sizes = sums.shape[1]
    for region in range(sums.shape[0]):
        for size in range(sizes):
            groups, width = sums[region, size], WIDTH * size
            if groups <= 1e-9:
                continue
            if width < 0.35:
                smooth[region, size] += groups
                continue
            low, high = max(1, int(size - 3 * width)), min(sizes - 1, int(size + 3 * width) + 1)
            total = 0.0
            for place in range(low, high + 1):
                total += np.exp(-0.5 * ((place - size) / width) ** 2)
            for place in range(low, high + 1):
                smooth[region, place] += groups * np.exp(-0.5 * ((place - size) / width) ** 2) / total
