"""The prices at which children whose rows are each as near as they can be to what is believed add up to their parent.

*The problem.* Of a family's rows x_c, falling with the size and between 0 and a bound, that add up to the parent's row
P, those are sought for which Σ (x_cs − m_cs)² / (2 d_cs²) is least. With a price λ_s for each size (a multiplier of
"add up"), every child answers by itself: x_c(λ) is the row nearest to m_c + d_c² λ, found by pooling adjacent violators
and clipping. The dual function is concave in λ, its gradient is the gap P − Σ x_c(λ), and where that is 0 the answers
are the rows sought. So there are as many unknowns as sizes, however many children there are.

*Newton's method.* A pool with weight W = Σ 1/d² has the value (Σ m/d² + Σ λ) / W: it moves by 1/W with each of its own
prices, with no other, and not at all where it is clipped. The gap's derivative is therefore −H with H = Σ 1 1ᵀ / W over
the free pools of all children, which prefix sums apply to a vector in one step for each pool. Where pools come and go
within a step that is not the whole truth, so the step solves (H + μ V) δ = gap, by conjugate gradients, where V is the
diagonal of the Σ_c d_cs² (H is nowhere larger than V: projections do not expand). μ falls while steps gain what they
promise, and rises when they do not; a step that loses is cut back to where the gap's trend along it says.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import part_of_kernels

MOST_PASSES = 60  # over all rows of a family
NEAR, NEAR_DEVIATIONS = 0.02, 0.01  # of a group or of its deviation: a child that is to move so little is near enough
FIRST_DAMPING, LEAST_DAMPING = 0.1, 1e-7
MOST_GRADIENTS, SHARP = 30, 0.1  # conjugate gradients: how many, and the part of the residual at which they end


class Pools(NamedTuple):
    """The free pools of all children, one child after another, as far as `filled` says."""

    filled: Integers  # [1]
    first: Integers
    stop: Integers
    slope: Floats  # 1 / W


@part_of_kernels
def multipliers(mean: Floats, deviation: Floats, parent: Integers, bounds: Integers) -> Floats:
    """Prices `[sizes]` at which the children's answers add up to the parent's row, nearly: see NEAR."""
    children, sizes = mean.shape
    variances, largest = np.zeros(sizes), np.zeros(sizes)
    found, gap = np.zeros(sizes), np.zeros(sizes)
    for child in range(children):
        for size in range(sizes):
            variance = deviation[child, size] ** 2
            variances[size] += variance
            largest[size] = max(largest[size], variance)
            found[size] -= mean[child, size]
    for size in range(sizes):
        found[size] = (found[size] + parent[size]) / variances[size]
        largest[size] /= variances[size] * max(NEAR, NEAR_DEVIATIONS * np.sqrt(largest[size]))
    cells = children * sizes
    pools = Pools(np.zeros(1, np.int64), np.empty(cells, np.int32), np.empty(cells, np.int32), np.empty(cells))
    value = _answer(mean, deviation, parent, bounds, found, gap, pools)
    damping, passes = FIRST_DAMPING, 1
    step, trial, left = np.empty(sizes), np.empty(sizes), np.empty(sizes)
    while passes < MOST_PASSES and _farthest(gap, largest) >= 1.0:
        _newton_step(pools, variances, damping, gap, step)
        promised = _product(gap, step)
        part = 1.0
        while passes < MOST_PASSES:
            for size in range(sizes):
                trial[size] = found[size] + part * step[size]
            now = _answer(mean, deviation, parent, bounds, trial, left, pools)
            passes += 1
            if now > value or part < 1e-3:
                break
            trend = _product(left, step)
            part *= min(0.7, max(0.05, promised / (promised - trend))) if trend < 0.0 else 0.5
            damping = min(1.0, 4 * damping)
        gained = (now - value) / promised
        if not now > value:
            break
        found, trial = trial, found
        gap, left = left, gap
        value = now
        if gained > 0.4:
            damping = max(LEAST_DAMPING, 0.2 * damping)
        elif gained < 0.15:
            damping = min(1.0, 3 * damping)
    return found


@part_of_kernels
def _farthest(gap: Floats, largest: Floats) -> float:
    """How far the child that has farthest to move is, in parts of what is near enough."""
    farthest = 0.0
    for size in range(len(gap)):
        farthest = max(farthest, abs(gap[size]) * largest[size])
    return farthest


@part_of_kernels
def _product(one: Floats, other: Floats) -> float:
    """The inner product, added up in one order on every machine."""
    total = 0.0
    for size in range(len(one)):
        total += one[size] * other[size]
    return total


@part_of_kernels
def pooled(pull: Floats, weight: Floats, sums: Floats, weights: Floats, begins: Integers) -> int:
    """Pool adjacent violators of "falls with the size"; the pools are 1, 2, … up to the number that is returned.

    `pull` is value × weight. A pool's value is its sum / its weight, compared crosswise: nothing is divided here. The
    pools in front, `begins` from 1 on, end where the next one begins. Pool 0 stands before all and is never reached.
    """
    sums[0], weights[0] = np.inf, 1.0
    above, heavy_above, top = np.inf, 1.0, 0
    for size in range(len(pull)):
        here, heavy, begin = pull[size], weight[size], size
        if above * heavy <= here * heavy_above:
            here += above
            heavy += heavy_above
            begin = begins[top]
            top -= 1
            while sums[top] * heavy <= here * weights[top]:
                here += sums[top]
                heavy += weights[top]
                begin = begins[top]
                top -= 1
        top += 1
        sums[top], weights[top], begins[top] = here, heavy, begin
        above, heavy_above = here, heavy
    begins[top + 1] = len(pull)
    return top


@part_of_kernels
def _answer(
    mean: Floats, deviation: Floats, parent: Integers, bounds: Integers, prices: Floats, gap: Floats, pools: Pools
) -> float:
    """Write the gap and the free pools at these prices; the dual function but for a constant is returned."""
    children, sizes = mean.shape
    first, stop, slope = pools.first, pools.stop, pools.slope
    pull, weight = np.empty(sizes), np.empty(sizes)
    sums, weights, begins = np.empty(sizes + 1), np.empty(sizes + 1), np.empty(sizes + 2, np.int64)
    change = np.zeros(sizes + 1)
    count, value = 0, 0.0
    for child in range(children):
        most = np.inf if bounds[child] < 0 else float(bounds[child])
        for size in range(sizes):
            weight[size] = 1.0 / (deviation[child, size] * deviation[child, size])
            pull[size] = mean[child, size] * weight[size] + prices[size]
        top = pooled(pull, weight, sums, weights, begins)
        for pool in range(1, top + 1):
            if sums[pool] <= 0.0:
                break
            begin, end, inverse = begins[pool], begins[pool + 1], 1.0 / weights[pool]
            here = sums[pool] * inverse
            if here < most:
                first[count], stop[count], slope[count] = begin, end, inverse
                count += 1
            else:
                here = most
            value += here * (0.5 * here * weights[pool] - sums[pool])
            change[begin] += here
            change[end] -= here
    pools.filled[0] = count
    held = 0.0
    for size in range(sizes):
        held += change[size]
        gap[size] = parent[size] - held
        value += prices[size] * parent[size]
    return value


@part_of_kernels
def _newton_step(pools: Pools, variances: Floats, damping: float, gap: Floats, step: Floats) -> None:
    """Write δ with (H + μ V) δ = gap, nearly: conjugate gradients with the diagonal as preconditioner."""
    sizes = len(gap)
    diagonal, moved, sums = np.zeros(sizes + 1), np.empty(sizes + 1), np.empty(sizes + 1)
    for pool in range(pools.filled[0]):
        diagonal[pools.first[pool]] += pools.slope[pool]
        diagonal[pools.stop[pool]] -= pools.slope[pool]
    rest, ahead = gap.copy(), np.empty(sizes)
    held, size_of_rest = 0.0, 0.0
    for size in range(sizes):
        held += diagonal[size]
        diagonal[size] = max(held, 0.0) + damping * variances[size]
        step[size] = 0.0
        ahead[size] = rest[size] / diagonal[size]
        size_of_rest += rest[size] * ahead[size]
    enough = SHARP**2 * size_of_rest
    for _ in range(MOST_GRADIENTS):
        _move(pools, ahead, sums, moved)
        bend = 0.0
        for size in range(sizes):
            moved[size] += damping * variances[size] * ahead[size]
            bend += ahead[size] * moved[size]
        if not bend > 0.0:
            break
        length, before = size_of_rest / bend, size_of_rest
        size_of_rest = 0.0
        for size in range(sizes):
            step[size] += length * ahead[size]
            rest[size] -= length * moved[size]
            size_of_rest += rest[size] * rest[size] / diagonal[size]
        if size_of_rest <= enough:
            break
        for size in range(sizes):
            ahead[size] = rest[size] / diagonal[size] + size_of_rest / before * ahead[size]


@part_of_kernels
def _move(pools: Pools, vector: Floats, sums: Floats, moved: Floats) -> None:
    """H times a vector: each pool adds its slope times the vector's sum over it, over all its sizes."""
    sizes = len(vector)
    sums[0] = 0.0
    for size in range(sizes):
        sums[size + 1] = sums[size] + vector[size]
    moved[:] = 0.0
    for pool in range(pools.filled[0]):
        first, stop = pools.first[pool], pools.stop[pool]
        share = pools.slope[pool] * (sums[stop] - sums[first])
        moved[first] += share
        moved[stop] -= share
    for size in range(1, sizes):
        moved[size] += moved[size - 1]
