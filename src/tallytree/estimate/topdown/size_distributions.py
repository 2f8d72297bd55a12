"""Shapes that regions lie in, fitted to what is believed of the leaves: empirical Bayes, from measurements alone.

A shape is a distribution of sizes, from 0 on. Posteriors of leaves follow from measurements and shapes, and shapes from
beliefs: the expected numbers of groups by size, added up over a region of an upper level, smoothed over neighbouring
sizes, and drawn towards the shape of the region above it. A few rounds of the two are taken; more would fit the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy

ROUNDS = 3
WIDTH = 0.1  # of the smoothing, relative to the size
STEPS_PER_WIDTH = 8  # of the smoothing's nodes
GROUPS_FROM_ABOVE = 20.0  # as many groups does the shape above a region count for


class Posterior(NamedTuple):
    """Of the `at_least` counts `[regions, sizes from 1]`: means, variances; and expected counts from size 0 on."""

    mean: Floats
    variance: Floats
    counts: Floats


class Model(NamedTuple):
    """How the leaves' measurements lead to a posterior: two kernels over blocks of leaves.

    `posteriors` takes the measurements, which size distribution each leaf has, the distributions, and where to put what
    is found. `draws` takes uniform numbers, `numbers` in all, in place of the latter, and where to put a draw.
    """

    posteriors: Callable[..., None]
    draws: Callable[..., None]
    measured: Any
    numbers: int

    def run(self, of: Integers, shapes: Floats, found: Posterior, tell: Tell = nobody) -> None:
        """Write the posterior of every leaf."""
        _in_blocks(lambda *block: self.posteriors(self.measured, of, shapes, found, *block), len(of), tell)


class LeafPosterior(NamedTuple):
    """The posterior of all leaves, and a function that draws `at_least` counts `[leaves, sizes from 1]` from it.

    It takes `numbers` numbers that are uniform from 0 to 1; the same numbers give the same counts.
    """

    beliefs: Posterior
    draw: Callable[[Floats], Integers]
    numbers: int


def leaf_posterior(model: Model, hierarchy: Hierarchy, max_size: int, rounds: int) -> LeafPosterior:
    """The posterior of the leaves under size distributions that are fitted to it."""
    leaves = hierarchy.level_slice(hierarchy.depth - 1)
    upper = min(1, hierarchy.depth - 1)
    of = hierarchy.above_leaves(upper)
    shapes = np.tile(first_shape(max_size), (len(np.unique(of)), 1))
    count = leaves.stop - leaves.start
    found = Posterior(np.zeros((count, max_size)), np.zeros((count, max_size)), np.zeros((count, max_size + 1)))
    for turn in range(rounds):
        model.run(of, shapes, found)
        if turn < rounds - 1:
            shapes = fitted_shapes(found.counts, hierarchy, upper)

    def draw(chances: Floats) -> Integers:
        drawn = np.zeros((count, max_size), dtype=np.int64)
        _in_blocks(lambda *block: model.draws(model.measured, of, shapes, chances, drawn, *block), count)
        return drawn

    return LeafPosterior(found, draw, model.numbers)


def _in_blocks(work: Callable[..., None], count: int, tell: Tell = nobody) -> None:
    in_threads(work, blocks(count, max(1, count // 16)), tell)


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
        smooth = smoothed(sums)
        weight = 1e-3 if level == 0 else GROUPS_FROM_ABOVE
        above = shapes
        if level > 0:
            above = shapes[hierarchy.parents[hierarchy.level_slice(level)] - hierarchy.level_slice(level - 1).start]
        shapes = (smooth + weight * above) / (smooth.sum(axis=1, keepdims=True) + weight)
    return shapes


def smoothed(sums: Floats) -> Floats:
    """Each size's groups `[regions, sizes from 0]`, spread normally over its neighbours, a tenth of it to either side.

    Small sizes stay as they are. All is computed between nodes: every size up to 160, and from there on sizes that are
    an eighth of the normal width h or less apart. Between nodes it is linear. So the number of steps grows with the
    logarithm of the largest size, and not with its square. The groups add up to what they were. Linear interpolation of
    exp(−x² / 2h²) over steps of h / 8 is off by at most (1/8)² / 8 of its peak, once for where groups come from and
    once for where they go: less than 0.5 % of the peak of each size's normal curve in all. The curve is cut off three
    widths away, where it has 1.1 % of its peak; that end may lie a step further out.
    """
    nodes = _nodes(sums.shape[1])
    left = np.searchsorted(nodes, np.arange(sums.shape[1]), side="right") - 1
    smooth = np.zeros_like(sums)
    _smooth(sums, nodes, left.astype(np.int64), smooth)
    return smooth


def _nodes(sizes: int) -> Integers:
    """Sizes from 0 to the last, each at most an eighth of its own width from the one before it, or one."""
    found = [0]
    while found[-1] < sizes - 1:
        found.append(min(sizes - 1, found[-1] + max(1, int(found[-1] * WIDTH / STEPS_PER_WIDTH))))
    return np.array(found, dtype=np.int64)


@kernel
def _smooth(sums: Floats, nodes: Integers, left: Integers, smooth: Floats) -> None:
    """Write the smoothed groups of each region; `left` is the number of the last node that a size does not lie below.

    A size between two nodes gives them its groups in parts, as linear interpolation weighs them, and takes from them in
    the same parts; `held` is how many sizes a node stands for.
    """
    sizes, count = sums.shape[1], len(nodes)
    part, held = np.zeros(sizes), np.zeros(count)  # the part of the node to the right
    for size in range(sizes):
        node = left[size]
        if nodes[node] < size:
            part[size] = (size - nodes[node]) / (nodes[node + 1] - nodes[node])
            held[node + 1] += part[size]
        held[node] += 1.0 - part[size]
    groups, spread, curve = np.empty(count), np.empty(count), np.empty(count)
    for region in range(sums.shape[0]):
        groups[:], spread[:] = 0.0, 0.0
        for size in range(sizes):
            groups[left[size]] += (1.0 - part[size]) * sums[region, size]
            if part[size] > 0.0:
                groups[left[size] + 1] += part[size] * sums[region, size]
        for node in range(count):
            size, width = nodes[node], WIDTH * nodes[node]
            if groups[node] <= 1e-9:
                continue
            if width < 0.35:
                spread[node] += groups[node] / held[node]
                continue
            low, high = max(1, int(size - 3 * width)), min(sizes - 1, int(size + 3 * width) + 1)
            first, last, total = left[low], left[high], 0.0
            for other in range(first, last + 1):
                curve[other] = np.exp(-0.5 * ((nodes[other] - size) / width) ** 2)
                total += held[other] * curve[other]
            for other in range(first, last + 1):
                spread[other] += groups[node] * curve[other] / total
        for size in range(sizes):
            node = left[size]
            smooth[region, size] = (1.0 - part[size]) * spread[node]
            if part[size] > 0.0:
                smooth[region, size] += part[size] * spread[node + 1]
