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
before it from forward(i, ·) up to the size that was drawn after it. Posterior means are more alike than true lists are;
a draw is as rough as they are believed to be.

*Shapes* come from the measurements alone: `topdown.size_distributions`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import kernel, part_of_kernels
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.topdown.size_distributions import ROUNDS, LeafPosterior, Model, Posterior, leaf_posterior

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


def list_posterior(lists: Lists, hierarchy: Hierarchy, max_size: int, *, rounds: int = ROUNDS) -> LeafPosterior:
    """The posterior of every leaf's list, with size distributions fitted to all; a draw takes a number a place."""
    return leaf_posterior(Model(_posteriors, _draws, lists, lists.values.shape[1]), hierarchy, max_size, rounds)


@kernel
def _posteriors(lists: Lists, of: Integers, shapes: Floats, found: Posterior, start: int, stop: int) -> None:
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
def _draws(lists: Lists, of: Integers, shapes: Floats, chances: Floats, drawn: Integers, start: int, stop: int) -> None:
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
            if size > 0:
                drawn[region, size - 1] += 1
        for size in range(sizes - 2, 0, -1):
            drawn[region, size - 1] += drawn[region, size]


@part_of_kernels
def _longest(lists: Lists, start: int, stop: int) -> int:
    longest = 1
    for region in range(start, stop):
        longest = max(longest, lists.starts[region + 1] - lists.starts[region])
    return longest


@part_of_kernels
def _prior(groups: int, shape: Floats, prior: Floats) -> None:
    """The weights q of a region with that many groups."""
    for size in range(len(shape)):
        mean = groups * shape[size]
        prior[size] = mean / (1.0 + mean)


@part_of_kernels
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


@part_of_kernels
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


@part_of_kernels
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
        if total <= 0.0:  # contradictions beyond what floats can hold: what the places before it say is all there is
            for size in range(sizes):
                chances[size] = sums[place, size] - (sums[place, size - 1] if size > 0 else 0.0)
            total = sums[place, sizes - 1]
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
