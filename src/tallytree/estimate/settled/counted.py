"""What is believed of a region's `at_least` counts, given noisy ones and the shape of the regions around it.

The model is that of `settled.lists`: independent geometric counts c_s with mean n p_s, so Π q_s^c_s with
q_s = n p_s / (1 + n p_s). The counts T_s = c_s + c_s+1 + … climb as the size falls, and each was measured with noise of
its own: a hidden Markov chain over the sizes, from the largest down, whose marginals two passes find exactly,

    forward(s, t) = L_s(t) Σ over r ≤ t of forward(s + 1, r) q_s^(t − r),
    backward(s, t) = Σ over r ≥ t of L_s−1(r) q_s−1^(r − t) backward(s − 1, r),

where sums of geometric weights take one step for each t. After size 1 comes size 0, which is not measured: q_0^(n − t).

*Windows.* Noise is further than `REACH` scales from 0 with a chance of e^−REACH at most. A count that is further than
that from its measurement, or from what the measurements of larger and smaller sizes allow it, is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.estimate.settled.shapes import ROUNDS, Beliefs, fitted
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import blocks, in_threads, kernel

REACH = 35.0


class Counted(NamedTuple):
    """Noisy `at_least` counts of the leaves, the numbers of groups in them, and the noise by size."""

    values: Floats  # [leaves, sizes]
    groups: Integers
    scales: Floats  # [sizes], of Laplace noise; the variance of Gaussian noise
    gaussian: bool


def believed(counted: Counted, hierarchy: Hierarchy, *, rounds: int = ROUNDS) -> Beliefs:
    """What is believed of every leaf, with shapes fitted to all of them."""

    def believe(of: Integers, shapes: Floats, found: Beliefs) -> None:
        in_threads(
            lambda start, stop: _posteriors(counted, of, shapes, found, start, stop),
            blocks(len(of), max(1, len(of) // 16)),
        )

    return fitted(believe, hierarchy, counted.values.shape[1], rounds)[0]


@kernel
def _posteriors(counted: Counted, of: Integers, shapes: Floats, found: Beliefs, start: int, stop: int) -> None:
    sizes = counted.values.shape[1]
    prior = np.empty(sizes + 1)
    low, high, starts = np.empty(sizes, np.int64), np.empty(sizes, np.int64), np.empty(sizes + 1, np.int64)
    for region in range(start, stop):
        groups = counted.groups[region]
        for size in range(sizes + 1):
            mean = groups * shapes[of[region], size]
            prior[size] = mean / (1.0 + mean)
        _windows(counted.values[region], counted.scales, counted.gaussian, groups, low, high)
        starts[0] = 0
        for size in range(sizes):
            starts[size + 1] = starts[size] + high[size] - low[size] + 1
        _posterior(
            counted.values[region],
            counted.scales,
            counted.gaussian,
            groups,
            prior,
            low,
            high,
            starts,
            found.mean[region],
            found.variance[region],
            found.counts[region],
        )


@kernel
def _windows(values: Floats, scales: Floats, gaussian: bool, groups: int, low: Integers, high: Integers) -> None:
    """What each count may be, from all measurements together; windows of neighbours meet."""
    sizes = len(values)
    for size in range(sizes):
        reach = np.sqrt(2 * REACH * scales[size]) if gaussian else REACH * scales[size]
        reach = np.ceil(reach) + 1.0
        low[size] = int(min(max(np.floor(values[size] - reach), 0.0), groups))
        high[size] = int(min(max(np.ceil(values[size] + reach), 0.0), groups))
    for size in range(sizes - 2, -1, -1):
        low[size] = max(low[size], low[size + 1])
    for size in range(1, sizes):
        high[size] = min(high[size], high[size - 1])
    for size in range(sizes):
        if low[size] > high[size]:
            low[size], high[size] = high[size], low[size]
    # After a contradiction beyond all noise windows may fail to meet: widen until paths exist.
    for size in range(sizes - 2, -1, -1):
        if high[size] < low[size + 1]:
            high[size] = low[size + 1]
    for size in range(1, sizes):
        low[size] = min(low[size], high[size - 1])


@kernel
def _likelihood(values: Floats, scales: Floats, gaussian: bool, size: int, low: int, high: int, found: Floats) -> None:
    nearest = min(max(np.floor(values[size] + 0.5), float(low)), float(high))
    best = abs(nearest - values[size])
    for state in range(high - low + 1):
        gap = abs(low + state - values[size])
        found[state] = (
            np.exp((best * best - gap * gap) / (2 * scales[size])) if gaussian else np.exp((best - gap) / scales[size])
        )


@kernel
def _posterior(
    values: Floats,
    scales: Floats,
    gaussian: bool,
    groups: int,
    prior: Floats,
    low: Integers,
    high: Integers,
    starts: Integers,
    mean: Floats,
    variance: Floats,
    counts: Floats,
) -> None:
    sizes = len(values)
    mean[:], variance[:], counts[:] = 0.0, 0.0, 0.0
    widest = 1
    for size in range(sizes):
        widest = max(widest, high[size] - low[size] + 1)
    forward = np.empty(starts[sizes])
    seen, behind, ahead = np.empty(widest), np.empty(widest), np.empty(widest)
    for size in range(sizes - 1, -1, -1):
        first, last, begin = low[size], high[size], starts[size]
        _likelihood(values, scales, gaussian, size, first, last, seen)
        ratio = prior[size + 1]
        total, carried = 0.0, 0.0
        if size == sizes - 1:
            carried = ratio**first
            for state in range(last - first + 1):
                forward[begin + state] = carried * seen[state]
                carried *= ratio
                total += forward[begin + state]
        else:
            before, end = low[size + 1], high[size + 1]
            for t in range(before, min(first, end + 1)):
                carried = carried * ratio + forward[starts[size + 1] + t - before]
            if first > end + 1:
                carried *= ratio ** (first - 1 - end)
            for t in range(first, last + 1):
                carried *= ratio
                if before <= t <= end:
                    carried += forward[starts[size + 1] + t - before]
                forward[begin + t - first] = carried * seen[t - first]
                total += forward[begin + t - first]
        if total > 0.0:
            for state in range(last - first + 1):
                forward[begin + state] /= total
        else:
            for state in range(last - first + 1):
                forward[begin + state] = 1.0 / (last - first + 1)
    # backwards: behind[t] is the weight of everything at smaller sizes, given T[size] = t
    first, last = low[0], high[0]
    for t in range(first, last + 1):
        behind[t - first] = prior[0] ** (last - t)
    for size in range(sizes):
        first, last, begin = low[size], high[size], starts[size]
        total = 0.0
        for state in range(last - first + 1):
            total += forward[begin + state] * behind[state]
        if total <= 0.0:
            total = 1.0
        average, square = 0.0, 0.0
        for state in range(last - first + 1):
            chance = forward[begin + state] * behind[state] / total
            value = float(first + state)
            average += chance * value
            square += chance * value * value
        mean[size] = average
        variance[size] = max(0.0, square - average * average)
        if size == sizes - 1:
            break
        # to the next larger size r: weight of t' = Σ over t ≥ t' of L(t) q^(t − t') behind(t)
        _likelihood(values, scales, gaussian, size, first, last, seen)
        ratio = prior[size + 1]
        following, end = low[size + 1], high[size + 1]
        carried, total = 0.0, 0.0
        for t in range(last, max(first, end + 1) - 1, -1):
            carried = carried * ratio + seen[t - first] * behind[t - first]
        if max(first, end + 1) == first and end + 1 < first:
            carried *= ratio ** (first - end - 1)
        for t in range(end, following - 1, -1):
            carried *= ratio
            if first <= t <= last:
                carried += seen[t - first] * behind[t - first]
            ahead[t - following] = carried
            total = max(total, carried)
        for t in range(following, end + 1):
            behind[t - following] = ahead[t - following] / total if total > 0.0 else 1.0
    counts[0] = groups - mean[0]
    for size in range(1, sizes):
        counts[size] = mean[size - 1] - mean[size]
    counts[sizes] = mean[sizes - 1]
