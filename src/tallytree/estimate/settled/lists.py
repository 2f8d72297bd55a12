"""What is believed of a region's sizes, given a noisy sorted list of them and the shape of the regions around it.

*The model.* A region with n groups has c_s of size s, independent geometric numbers with mean n p_s, where p is the
shape around it: for sparse counts, which is where lists are measured, regions differ from one another about as much as
geometric numbers do. Given n their probability is proportional to Π q_s^c_s with q_s = n p_s / (1 + n p_s). A sorted
list is a path that climbs through the sizes, so the probability of a list given its noisy measurement is a product over
its places of q_s times the noise's density: a hidden Markov chain, whose marginals two passes find exactly,

    forward(i, s) = L_i(s) q_s Σ over r ≤ s of forward(i − 1, r),
    backward(i, s) = Σ over r ≥ s of L_i+1(r) q_r backward(i + 1, r).

(Plain weights p_s in place of q_s are the prior of a list whose places prefer the commonest size: it swallows the
rare ones, the more so the longer the list. On real tables they made errors up to ten times larger.)

*Counts.* At least j groups have size s or more if and only if the j-th place from the end does, so the marginals of the
places are the exact distribution of every `at_least` count: its mean and variance follow.

*A draw* of the lists themselves comes from the same passes: the last place from its own distribution, and each one
before it from forward(i, ·) up to the size that was drawn after it. Beliefs' means are more alike than true lists are;
a draw is as rough as they are believed to be.

*Shapes* come from the measurements alone (empirical Bayes): the expected numbers of groups by size, added up over a
region of an upper level, smoothed over neighbouring sizes, and drawn towards the shape of the region above it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import blocks, in_threads, kernel

ROUNDS = 3  # of fitting shapes; more would fit the noise
WIDTH = 0.1  # of the smoothing, relative to the size
GROUPS_FROM_ABOVE = 20.0  # as many groups does the shape above a region count for
NEGLIGIBLE = 35.0  # e^−35: what is less likely than this beside the likeliest is left out
CELLS_AT_ONCE = 1 << 26  # places × sizes of the longest list


class Lists(NamedTuple):
    """Noisy lists of one level, one after another; several where bands of sizes were asked for one by one."""

    values: Integers  # [bands, places]
    starts: Integers  # where each region's list begins, and the end
    below: Integers  # a band is about what a size has above this …
    above: Integers  # … up to this
    scales: Floats  # of Laplace noise; the variance of Gaussian noise
    gaussian: bool


class Beliefs(NamedTuple):
    """Of the `at_least` counts `[regions, sizes from 1]`: means, variances; and expected counts from size 0 on."""

    mean: Floats
    variance: Floats
    counts: Floats


def believed(lists: Lists, hierarchy: Hierarchy, max_size: int, *, rounds: int = ROUNDS) -> Beliefs:
    """What is believed of every leaf, with shapes fitted to all of them."""
    return _fitted(lists, hierarchy, max_size, rounds)[0]


def drawing(lists: Lists, hierarchy: Hierarchy, max_size: int, *, rounds: int = ROUNDS) -> Callable[[Floats], Integers]:
    """A function that draws lists from what is believed, and gives their counts `[leaves, sizes from 0]`.

    It takes numbers that are uniform from 0 to 1, one for each place; the same numbers give the same lists.
    """
    _, of, shapes = _fitted(lists, hierarchy, max_size, rounds)

    def draw(chances: Floats) -> Integers:
        counts = np.zeros((len(of), max_size + 1), dtype=np.int64)
        in_threads(
            lambda start, stop: _draws(lists, of, shapes, chances, counts, start, stop),
            blocks(len(of), max(1, len(of) // 16)),
        )
        return counts

    return draw


def _fitted(lists: Lists, hierarchy: Hierarchy, max_size: int, rounds: int) -> tuple[Beliefs, Integers, Floats]:
    """Beliefs, with the shapes that they rest on and which of those each leaf has."""
    leaves = hierarchy.level_slice(hierarchy.depth - 1)
    families = max(1, hierarchy.depth - 2) if hierarchy.depth > 1 else 0
    upper = min(families, 1)
    of = _ancestors(hierarchy, upper)
    shapes = np.tile(_first_shape(max_size), (len(np.unique(of)), 1))
    count = leaves.stop - leaves.start
    found = Beliefs(np.zeros((count, max_size)), np.zeros((count, max_size)), np.zeros((count, max_size + 1)))
    for turn in range(rounds):
        _believe(lists, of, shapes, found)
        if turn < rounds - 1:
            shapes = _shapes(found.counts, hierarchy, upper)
    return found, of, shapes


def _believe(lists: Lists, of: Integers, shapes: Floats, found: Beliefs) -> None:
    count = len(of)

    def work(start: int, stop: int) -> None:
        _posteriors(lists, of, shapes, found, start, stop)

    in_threads(work, blocks(count, max(1, count // 16)))


def _ancestors(hierarchy: Hierarchy, level: int) -> Integers:
    """For every leaf the place, within that level, of the region it lies in."""
    regions = np.arange(len(hierarchy))[hierarchy.level_slice(hierarchy.depth - 1)]
    for _ in range(hierarchy.depth - 1 - level):
        regions = hierarchy.parents[regions]
    found: Integers = regions - hierarchy.level_slice(level).start
    return found


def _first_shape(max_size: int) -> Floats:
    """Half of all groups are empty, and sizes are the rarer the larger: a beginning that excludes nothing."""
    shape: Floats = np.ones(max_size + 1)
    shape /= 1.0 + np.arange(max_size + 1)
    shape[0] = shape[1:].sum() if max_size > 0 else 1.0
    shape /= shape.sum()
    return shape


def _shapes(counts: Floats, hierarchy: Hierarchy, upper: int) -> Floats:
    """The shape of every region of level `upper`, drawn towards that of the region above."""
    first = _first_shape(counts.shape[1] - 1)
    shapes = first[None, :]
    for level in range(upper + 1):
        of = _ancestors(hierarchy, level)
        regions = int(np.diff(hierarchy.level_starts)[level])
        sums = np.zeros((regions, counts.shape[1]))
        np.add.at(sums, of, counts)
        smooth = np.zeros_like(sums)
        _smoothed(sums, smooth)
        weight = 1e-3 if level == 0 else GROUPS_FROM_ABOVE
        above = shapes[hierarchy.parents[hierarchy.level_slice(level)] - hierarchy.level_slice(max(0, level - 1)).start]
        if level == 0:
            above = shapes
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


@kernel
def _posteriors(lists: Lists, of: Integers, shapes: Floats, found: Beliefs, start: int, stop: int) -> None:
    sizes = shapes.shape[1]
    prior, sums = np.empty(sizes), np.empty((_longest(lists, start, stop), sizes))
    for region in range(start, stop):
        groups = lists.starts[region + 1] - lists.starts[region]
        _prior(groups, shapes[of[region]], prior)
        _posterior(
            lists,
            lists.starts[region],
            groups,
            prior,
            sums,
            found.mean[region],
            found.variance[region],
            found.counts[region],
        )


@kernel
def _draws(
    lists: Lists, of: Integers, shapes: Floats, chances: Floats, counts: Integers, start: int, stop: int
) -> None:
    sizes = shapes.shape[1]
    prior, sums = np.empty(sizes), np.empty((_longest(lists, start, stop), sizes))
    for region in range(start, stop):
        first, groups = lists.starts[region], lists.starts[region + 1] - lists.starts[region]
        _prior(groups, shapes[of[region]], prior)
        _forward(lists, first, groups, prior, sums)
        size = sizes - 1
        for place in range(groups - 1, -1, -1):
            row = sums[place, : size + 1]
            size = min(size, np.searchsorted(row, chances[first + place] * row[size], side="right"))
            counts[region, size] += 1


@kernel
def _longest(lists: Lists, start: int, stop: int) -> int:
    longest = 1
    for region in range(start, stop):
        longest = max(longest, lists.starts[region + 1] - lists.starts[region])
    return longest


@kernel
def _prior(groups: int, shape: Floats, prior: Floats) -> None:
    """The weights q of a region with that many groups."""
    for size in range(len(shape)):
        mean = groups * shape[size]
        prior[size] = mean / (1.0 + mean)


@kernel
def _likelihoods(lists: Lists, place: int, prior: Floats, found: Floats) -> None:
    """L(s) q_s for every size s, divided by the largest L; 0 where that is next to nothing."""
    best = -np.inf
    for size in range(len(prior)):
        value = 0.0
        for band in range(len(lists.scales)):
            part = min(size, lists.above[band]) - min(size, lists.below[band])
            gap = float(abs(lists.values[band, place] - part))
            value -= gap * gap / (2 * lists.scales[band]) if lists.gaussian else gap / lists.scales[band]
        found[size] = value
        best = max(best, value)
    for size in range(len(prior)):
        found[size] = np.exp(found[size] - best) * prior[size] if found[size] - best > -NEGLIGIBLE else 0.0


@kernel
def _forward(lists: Lists, start: int, groups: int, prior: Floats, sums: Floats) -> None:
    """The pass forward for one list: `sums[i, s]` is the weight of all sizes up to s at place i."""
    sizes = len(prior)
    weights = np.empty(sizes)
    for place in range(groups):
        _likelihoods(lists, start + place, prior, weights)
        total = 0.0
        for size in range(sizes):
            total += weights[size] * (1.0 if place == 0 else sums[place - 1, size])
            sums[place, size] = total
        if total <= 0.0:  # measurements that contradict one another beyond what floats can hold: the order alone counts
            for size in range(sizes):
                sums[place, size] = 1.0 if place == 0 else sums[place - 1, size]
            total = sums[place, sizes - 1]
        for size in range(sizes):
            sums[place, size] /= total


@kernel
def _posterior(
    lists: Lists,
    start: int,
    groups: int,
    prior: Floats,
    sums: Floats,
    mean: Floats,
    variance: Floats,
    counts: Floats,
) -> None:
    """The two passes for one list."""
    sizes = len(prior)
    mean[:], variance[:], counts[:] = 0.0, 0.0, 0.0
    weights, behind, chances = np.empty(sizes), np.ones(sizes), np.empty(sizes)
    _forward(lists, start, groups, prior, sums)
    for place in range(groups - 1, -1, -1):
        total = 0.0
        for size in range(sizes):
            forward = sums[place, size] - (sums[place, size - 1] if size > 0 else 0.0)
            chances[size] = forward * behind[size]
            total += chances[size]
        if total <= 0.0:
            total = 1.0
        at_least, largest = 0.0, 2 * (groups - place) - 1
        for size in range(sizes - 1, 0, -1):
            chance = chances[size] / total
            counts[size] += chance
            at_least += chance
            mean[size - 1] += at_least
            variance[size - 1] += largest * at_least  # Σ (2 j − 1) P(at least j) is the mean of the square
        counts[0] += chances[0] / total
        _likelihoods(lists, start + place, prior, weights)
        total = 0.0
        for size in range(sizes - 1, -1, -1):
            total += weights[size] * behind[size]
            chances[size] = total
        if total > 0.0:
            for size in range(sizes):
                behind[size] = chances[size] / total
    for size in range(sizes - 1):
        variance[size] = max(0.0, variance[size] - mean[size] ** 2)
