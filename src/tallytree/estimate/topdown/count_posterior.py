"""What is believed of a region's `at_least` counts, given noisy ones and the shape of the regions around it.

The model is that of `topdown.list_posterior`: independent geometric counts c_s with mean n p_s, so Π q_s^c_s with
q_s = n p_s / (1 + n p_s). The counts T_s = c_s + c_s+1 + … climb as the size falls, and each was measured with noise of
its own: a hidden Markov chain over the sizes, from the largest down, whose marginals two passes find exactly,

    forward(s, t) = L_s(t) Σ over r ≤ t of forward(s + 1, r) q_s^(t − r),
    backward(s, t) = Σ over r ≥ t of L_s−1(r) q_s−1^(r − t) backward(s − 1, r),

where a sum of geometric weights takes one step for each t. After size 1 comes size 0, which is not measured, and no
region has more groups than its n: backward(1, t) = q_0^(n − t). (Where n is itself a guess, because totals are private,
nothing bounds the counts, and backward(1, t) = 1.) A *draw* takes T_1 from forward × backward, and then
T_s+1, given T_s = t, from forward(s + 1, r) q_s^(t − r) for r ≤ t.

*Windows.* Noise lies further than `REACH` scales from 0 (or as many times as unlikely, if it is Gaussian) with a chance
of e^−REACH. A count that is further than that from its own measurement, or from what those of larger and smaller sizes
leave it, is left out; where measurements contradict one another by more, windows are widened until they meet. So a size
takes as many steps as there are groups at most, and fewer where the noise is small. What lies between the windows of
two sizes is passed in one step.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import kernel, part_of_kernels
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.topdown.size_distributions import ROUNDS, LeafPosterior, Model, Posterior, leaf_posterior

REACH, NEAR = 35.0, 12.0  # the latter where sums of many leaves do not hang on what one in 10⁵ of them is
UNBOUNDED = 1 << 60


class Counted(NamedTuple):
    """Noisy `at_least` counts of the leaves, and how many groups each leaf has: for certain, or as far as is known."""

    values: Floats  # [leaves, sizes from 1]
    groups: Integers
    scale: float  # of Laplace noise; the variance of Gaussian noise
    gaussian: bool
    certain: bool = True
    reach: float = REACH


def widest(counted: Counted) -> int:
    """How many counts the window of a size may have, where nothing but its measurement bounds it."""
    reach = sqrt(2 * counted.reach * counted.scale) if counted.gaussian else counted.reach * counted.scale
    return 2 * ceil(reach) + 4


def count_posterior(counted: Counted, hierarchy: Hierarchy, *, rounds: int = ROUNDS) -> LeafPosterior:
    """The posterior of every leaf's counts, with size distributions fitted to all; a draw takes a number a count."""
    model = Model(_posteriors, _draws, counted, counted.values.size)
    return leaf_posterior(model, hierarchy, counted.values.shape[1], rounds)


def posterior_under(
    shape: Floats, counted: Counted, into: tuple[Floats, Floats] | None = None, tell: Tell = nobody
) -> Posterior:
    """What is believed of every leaf under one shape for all of them, `[sizes from 0]`; expected counts are left out.

    Means and variances are put `into` two arrays, if they are given.
    """
    leaves, sizes = counted.values.shape
    mean, variance = into or (np.empty((leaves, sizes)), np.empty((leaves, sizes)))
    found = Posterior(mean, variance, np.empty((0, sizes + 1)))
    of, shapes = np.zeros(leaves, np.int64), shape[None, :]
    Model(_posteriors, _draws, counted, counted.values.size).run(of, shapes, found, tell)
    return found


@kernel
def _posteriors(counted: Counted, of: Integers, shapes: Floats, found: Posterior, start: int, stop: int) -> None:
    for region in range(start, stop):
        groups = counted.groups[region]
        prior = _prior(groups, shapes[of[region]])
        low, high, starts = _windows(counted, region)
        forward = _forward(counted, region, prior, low, high, starts)
        _backward(counted, region, prior, low, high, starts, forward, found.mean[region], found.variance[region])
        if not len(found.counts):  # nobody wants them
            continue
        mean, counts = found.mean[region], found.counts[region]
        sizes = len(mean)
        counts[0] = groups - mean[0] if counted.certain else 0.0
        for size in range(1, sizes):
            counts[size] = mean[size - 1] - mean[size]
        counts[sizes] = mean[sizes - 1]


@kernel
def _draws(
    counted: Counted, of: Integers, shapes: Floats, chances: Floats, drawn: Integers, start: int, stop: int
) -> None:
    for region in range(start, stop):
        prior = _prior(counted.groups[region], shapes[of[region]])
        low, high, starts = _windows(counted, region)
        forward = _forward(counted, region, prior, low, high, starts)
        most = high[0]
        for size in range(drawn.shape[1]):
            first, begin = low[size], starts[size]
            last = min(most, high[size])
            total, weight = 0.0, 1.0  # from the largest down, each step further weighs by q
            ratio = prior[size] if size > 0 or counted.certain else 1.0
            for count in range(last, first - 1, -1):
                total += forward[begin + count - first] * weight
                weight *= ratio
            left, weight = chances[region * drawn.shape[1] + size] * total, 1.0
            chosen = min(first, most)
            for count in range(last, first - 1, -1):
                left -= forward[begin + count - first] * weight
                weight *= ratio
                if left < 0.0:
                    chosen = count
                    break
            drawn[region, size] = chosen
            most = chosen


@part_of_kernels
def _prior(groups: int, shape: Floats) -> Floats:
    prior = np.empty(len(shape))
    for size in range(len(shape)):
        mean = groups * shape[size]
        prior[size] = mean / (1.0 + mean)
    return prior


@part_of_kernels
def _windows(counted: Counted, region: int) -> tuple[Integers, Integers, Integers]:
    """The least and the largest count that each size may have, and where its states begin."""
    values, groups = counted.values[region], counted.groups[region] if counted.certain else UNBOUNDED
    sizes = len(values)
    low, high, starts = np.empty(sizes, np.int64), np.empty(sizes, np.int64), np.empty(sizes + 1, np.int64)
    reach = 1.0 + np.ceil(
        np.sqrt(2 * counted.reach * counted.scale) if counted.gaussian else counted.reach * counted.scale
    )
    for size in range(sizes):
        low[size] = int(min(max(np.floor(values[size] - reach), 0.0), groups))
        high[size] = int(min(max(np.ceil(values[size] + reach), 0.0), groups))
    for size in range(sizes - 2, -1, -1):
        low[size] = max(low[size], low[size + 1])
    for size in range(1, sizes):
        high[size] = min(high[size], high[size - 1])
    for size in range(sizes):
        if low[size] > high[size]:  # a contradiction beyond all noise: both ends stay possible
            low[size], high[size] = high[size], low[size]
    for size in range(sizes - 2, -1, -1):
        high[size] = max(high[size], low[size + 1])
    for size in range(1, sizes):
        low[size] = min(low[size], high[size - 1])
    starts[0] = 0
    for size in range(sizes):
        starts[size + 1] = starts[size] + high[size] - low[size] + 1
    return low, high, starts


@part_of_kernels
def _likelihood(counted: Counted, region: int, size: int, low: int, high: int, found: Floats) -> None:
    """L(t) from `low` to `high`, divided by the largest of them."""
    value = counted.values[region, size]
    best = abs(min(max(np.floor(value + 0.5), float(low)), float(high)) - value)
    if counted.gaussian:
        for state in range(high - low + 1):
            gap = low + state - value
            found[state] = np.exp((best * best - gap * gap) / (2 * counted.scale))
        return
    nearest = min(max(int(np.floor(value + 0.5)), low), high) - low
    found[nearest], fall = 1.0, np.exp(-1 / counted.scale)
    for state in range(nearest - 1, -1, -1):
        found[state] = found[state + 1] * fall
    for state in range(nearest + 1, high - low + 1):
        found[state] = found[state - 1] * fall


@part_of_kernels
def _forward(counted: Counted, region: int, prior: Floats, low: Integers, high: Integers, starts: Integers) -> Floats:
    """forward(s, ·) for all sizes, each divided by its sum."""
    sizes = len(low)
    forward, seen = np.empty(starts[sizes]), np.empty(_widest(low, high))
    for size in range(sizes - 1, -1, -1):
        first, last, begin, ratio = low[size], high[size], starts[size], prior[size + 1]
        _likelihood(counted, region, size, first, last, seen)
        before, until = (0, 0) if size == sizes - 1 else (low[size + 1], high[size + 1])  # T is 0 beyond all sizes
        total, carried = 0.0, 0.0
        for count in range(min(before, first), min(until, last) + 1):
            carried *= ratio
            if count >= before:
                carried += 1.0 if size == sizes - 1 else forward[starts[size + 1] + count - before]
            if count >= first:
                forward[begin + count - first] = carried * seen[count - first]
                total += forward[begin + count - first]
        if until < first:
            carried *= ratio ** (first - until - 1)
        for count in range(max(first, until + 1), last + 1):
            carried *= ratio
            forward[begin + count - first] = carried * seen[count - first]
            total += forward[begin + count - first]
        for state in range(last - first + 1):
            forward[begin + state] = forward[begin + state] / total if total > 0.0 else 1.0 / (last - first + 1)
    return forward


@part_of_kernels
def _backward(
    counted: Counted,
    region: int,
    prior: Floats,
    low: Integers,
    high: Integers,
    starts: Integers,
    forward: Floats,
    mean: Floats,
    variance: Floats,
) -> None:
    """Means and variances of forward × backward; `behind` is backward(s, ·), divided by its largest."""
    sizes, widest = len(low), _widest(low, high)
    seen, behind, ahead = np.empty(widest), np.empty(widest), np.empty(widest)
    for count in range(low[0], high[0] + 1):
        behind[count - low[0]] = prior[0] ** (high[0] - count) if counted.certain else 1.0
    for size in range(sizes):
        first, last, begin = low[size], high[size], starts[size]
        total, average, square = 0.0, 0.0, 0.0
        for state in range(last - first + 1):
            chance = forward[begin + state] * behind[state]
            total += chance
            average += chance * state
            square += chance * state * state
        if total > 0.0:
            average, square = average / total, square / total
        mean[size], variance[size] = first + average, max(0.0, square - average * average)
        if size > 0:  # rounding, or a contradiction beyond all noise
            mean[size] = min(mean[size], mean[size - 1])
        if size == sizes - 1:
            return
        _likelihood(counted, region, size, first, last, seen)
        after, until, ratio = low[size + 1], high[size + 1], prior[size + 1]
        carried, largest = 0.0, 0.0
        for count in range(last, max(first, after) - 1, -1):
            carried *= ratio
            carried += seen[count - first] * behind[count - first]
            if count <= until:
                ahead[count - after] = carried
                largest = max(largest, carried)
        if until < first:
            carried *= ratio ** (first - until - 1)
        for count in range(min(until, first - 1), after - 1, -1):
            carried *= ratio
            ahead[count - after] = carried
            largest = max(largest, carried)
        for state in range(until - after + 1):
            behind[state] = ahead[state] / largest if largest > 0.0 else 1.0


@part_of_kernels
def _widest(low: Integers, high: Integers) -> int:
    widest = 1
    for size in range(len(low)):
        widest = max(widest, high[size] - low[size] + 1)
    return widest
