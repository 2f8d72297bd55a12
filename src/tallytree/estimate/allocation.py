"""Top-down estimation of `at_least` counts: a parent's integers are fixed, and then allocated to its children.

The posterior of a region and size is a mean and a standard deviation. A parent's estimate is better than the sum of its
children's, and clipping children at 0 or at their public total moves sums to one side. So the parent comes first: its
row is rounded to integers before its children are estimated, and nothing below changes it. The root has no bias from
clipping below. (TopDown and BlueDown estimate from the top down too, there for counts.)

*A family in real numbers.* Measured rows need not fall with the size. The wanted children's rows are monotone, lie
between 0 and the public totals, add up to the parent, and are nearest to the measured rows in squares of standard
deviations. Multipliers for the sizes find them.

*Integers*, from the largest size down. Each child starts with its count at the next larger size, because rows do not
rise. Each unit that the parent gains goes to the child that most likely has it: a child with mean m and deviation d has
a j-th group with a likelihood that falls with (j − ½ − m) / d. All units above one threshold are given at once;
bisection finds the threshold. The remaining units are given one by one. For a single size this is the allocation with
the least expected sum of absolute errors among those that add up, if posteriors are normal: the j-th unit of a child
lowers its expected error by 2 P(count ≥ j) − 1, which falls with j, so the best units are those with the largest
chances.

*Multipliers.* Among a family's rows x_c that fall with the size, lie between 0 and a bound, and add up to the parent's
row P, the wanted ones have the least Σ (x_cs − m_cs)² / (2 d_cs²). With a multiplier λ_s of "add up" for each size,
every child's row is found separately: x_c(λ) is the row nearest to m_c + d_c² λ, by pooling adjacent violators and
clipping. The dual function is concave in λ, and its gradient is the gap P − Σ x_c(λ). Where the gradient is 0, the rows
x_c(λ) are the wanted ones. So there are as many unknowns as sizes, for any number of children.

*Newton's method.* A pool with weight W = Σ 1/d² has the value (Σ m/d² + Σ λ) / W: it moves by 1/W with each of its own
multipliers, with no other, and not at all where it is clipped. The gap's derivative is therefore −H with H = Σ 1 1ᵀ / W
over the free pools of all children, which prefix sums apply to a vector in one step for each pool. Pools can appear and
vanish within a step, so this derivative is only local. The step therefore solves (H + μ V) δ = gap, by conjugate
gradients, where V is the diagonal of the Σ_c d_cs² (H is nowhere larger than V: projections do not expand). μ falls
while steps gain as much as predicted, and rises otherwise. A step that loses is shortened as the gap's trend along it
suggests.

*Rows whose sums were measured as well*: the number of entities, Σ_s T[s], with its own noise. If the noise of a level
has one variance σ² at all K sizes, a row of measurements consists of its sum and its K − 1 contrasts, whose errors are
uncorrelated. The sum has the variance K σ², and another measurement of the sum, of variance v, is informative about the
sum only. So the sums are estimated up the tree separately, with the precision 1 / (K σ²) + 1 / v on each level, and the
contrasts as without that measurement. Each row is then shifted by one number at all its sizes, so that it has the
better sum.

*Rows that fall and stay between 0 and their bound* have larger sums where noise below 0 is clipped, and then no longer
match the measured sum. The row x within these bounds that is nearest to the posterior mean, in the metric of its
covariance, minimises

    Σ (x − y)² / (2 σ²) + (Σ x − S)² / (2 w),    1 / w = 1 / Var S − 1 / (K σ²),    Σ y = S,

and that is the row within bounds nearest to y − θ σ², with θ = (Σ x − S) / w. The sum of that row falls as θ rises, so
θ is found by bisection. Moving a row by one number at all sizes moves its non-increasing fit by the same.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads, kernel, part_of_kernels
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.layout import row_blocks
from tallytree.estimate.least_squares import subtree_estimates

MOST_TURNS, MOST_SLOPES, MOST_ROUNDS = 100, 6, 100


def allocate_rows(
    mean: Floats,
    deviation: Floats,
    hierarchy: Hierarchy,
    totals: Integers | None,
    *,
    monotone_leaves: bool = False,
    top: Integers | None = None,
    through: int | None = None,
    tell: Tell = nobody,
) -> Integers:
    """Return integers `[regions, sizes]` near `mean`: non-increasing, adding up, from 0 to the region's total.

    `deviation` is positive and has the shape of `mean`. Without `totals`, only its parent's row bounds a row. With
    `monotone_leaves`, the leaves' rows already fall with the size and lie within bounds, as posterior means do. `top`
    holds the rows of the first levels, if they are already fixed; levels below number `through` are left out. `tell`
    receives the progress of the leaves, which are nearly all of the work.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> allocate_rows(np.array([[9.2, 5.0], [5.4, 6.0], [3.1, -2.0]]), np.ones((3, 2)), tree, np.array([10, 6, 4]))
    array([[9, 5],
           [6, 5],
           [3, 0]])
    """
    last = hierarchy.depth - 1
    through = last if through is None else through
    values = np.empty((hierarchy.level_slice(through).stop, mean.shape[1]), dtype=np.int64)
    rows = _rows(mean, deviation, totals)
    if top is None:
        top = np.floor(fit_monotone(mean[:1], deviation[:1], None if totals is None else totals[:1]) + 0.5)
    values[: len(top)] = top
    done = int(np.searchsorted(hierarchy.level_starts, len(top)))  # levels
    for level in range(done - 1, through):
        parents = hierarchy.level_slice(level)
        relax = not (monotone_leaves and level == last - 1)
        count, first = parents.stop - parents.start, parents.start
        work = partial(_allocate_families, rows, values, hierarchy.child_starts[first:], relax, first)
        in_threads(work, blocks(count, max(1, count // 16)), tell if level == last - 1 else nobody)
    return values


def fit_monotone(mean: Floats, deviation: Floats, totals: Integers | None) -> Floats:
    """Return for each row the nearest one that falls with the size and stays between 0 and the total."""
    near = np.empty_like(mean)
    in_threads(partial(_monotone_rows, _rows(mean, deviation, totals), near), row_blocks(mean))
    return near


class Rows(NamedTuple):
    """Posterior means and deviations of rows `[regions, sizes]`, and their upper limits."""

    mean: Floats
    deviation: Floats
    most: Floats


def _rows(mean: Floats, deviation: Floats, totals: Integers | None) -> Rows:
    return Rows(mean, deviation, np.full(len(mean), np.inf) if totals is None else totals.astype(np.float64))


@kernel
def _monotone_rows(rows: Rows, near: Floats, start: int, stop: int) -> None:
    for region in range(start, stop):
        _fit_monotone(rows.mean[region], rows.deviation[region], rows.most[region], near[region])


@part_of_kernels
def _fit_monotone(mean: Floats, deviation: Floats, most: float, near: Floats) -> None:
    """Pool adjacent violators with weights 1 / deviation², then clip: the nearest monotone row from 0 to `most`."""
    sizes = len(mean)
    pull, weight = np.empty(sizes), np.empty(sizes)
    sums, weights, begins = np.empty(sizes + 1), np.empty(sizes + 1), np.empty(sizes + 2, np.int64)
    for size in range(sizes):
        weight[size] = 1.0 / (deviation[size] * deviation[size])
        pull[size] = mean[size] * weight[size]
    for pool in range(1, pool_rows(pull, weight, sums, weights, begins) + 1):
        near[begins[pool] : begins[pool + 1]] = min(max(sums[pool] / weights[pool], 0.0), most)


@kernel
def _allocate_families(
    rows: Rows, values: Integers, child_starts: Integers, relax: bool, offset: int, start: int, stop: int
) -> None:
    """Allocate the rows of a level's regions to their children; the first region is number `offset`."""
    for place in range(start, stop):
        parent, first, last = values[offset + place], child_starts[place], child_starts[place + 1]
        if last - first == 1:
            for size in range(values.shape[1]):  # assigning a whole row takes Numba two seconds more to compile
                values[first, size] = parent[size]
            continue
        children = Rows(rows.mean[first:last], rows.deviation[first:last], rows.most[first:last])
        if relax:
            children = Rows(_relaxed(children, parent), children.deviation, children.most)
        _share(children, parent, values[first:last])


@part_of_kernels
def _relaxed(rows: Rows, parent: Integers) -> Floats:
    """Return the children's monotone rows within bounds nearest to their means that nearly add up to the parent's."""
    mean, deviation, most = rows
    found = multipliers(rows, parent)
    near, target = np.empty(mean.shape), np.empty(mean.shape[1])
    for child in range(len(mean)):
        for size in range(len(target)):
            target[size] = mean[child, size] + deviation[child, size] ** 2 * found[size]
        _fit_monotone(target, deviation[child], most[child], near[child])
    return near


@part_of_kernels
def _share(rows: Rows, parent: Integers, shared: Integers) -> None:
    """Allocate a parent's row, from the largest size down."""
    children, sizes = rows.mean.shape
    held, most = np.zeros(children), np.empty(children)  # integers as floats, which compare faster with means
    middle, spread = np.empty(children), np.empty(children)
    given = 0.0
    for size in range(sizes - 1, -1, -1):
        wanted = float(parent[size])
        if given < wanted:
            for child in range(children):
                most[child] = min(rows.most[child], wanted)
                middle[child], spread[child] = rows.mean[child, size] + 0.5, rows.deviation[child, size]
            _give(middle, spread, wanted, most, held)
            given = wanted
        for child in range(children):
            shared[child, size] = np.int64(held[child])


@part_of_kernels
def _give(middle: Floats, spread: Floats, wanted: float, most: Floats, held: Floats) -> None:
    """Raise the sum of `held` to `wanted`, no child beyond `most`: the likeliest units first. `middle` is m + ½.

    If means add up, the threshold is 0, so the search starts there. It follows the slope of the units given, and
    bisects if that leads outside the bracket or takes long.
    """
    children = len(held)
    low, high, threshold = -np.inf, np.inf, 0.0  # at `low` too many units are given, at `high` not
    for turn in range(MOST_TURNS):
        given, slope = 0.0, 0.0
        for child in range(children):
            value = _reach(middle[child], spread[child], threshold, held[child], most[child])
            given += value
            slope += spread[child] if held[child] < value < most[child] else 0.0
        if given > wanted:
            low = threshold
        else:
            high = threshold
        if given == wanted:
            break
        if turn == 0:
            for child in range(children):
                if given > wanted:
                    nothing = (middle[child] - held[child] - 1) / spread[child]
                    high = max(nothing if child == 0 else high, nothing)
                else:
                    low = min(0.0 if child == 0 else low, (middle[child] - most[child]) / spread[child])
            if given > wanted:
                high = high + 1.0 + abs(high) * 1e-9
        threshold = threshold + (given - wanted) / slope if slope > 0.0 and turn < MOST_SLOPES else low
        if not low < threshold < high:
            threshold = 0.5 * (low + high)
            if not low < threshold < high:
                break
    given = 0.0
    for child in range(children):
        held[child] = _reach(middle[child], spread[child], high, held[child], most[child])
        given += held[child]
    for _ in range(MOST_ROUNDS):
        if not given < wanted:
            return
        given = _give_one_each(middle, spread, given, wanted, most, held)
    for child in range(children):  # too many units for floats to distinguish: each child takes as many as it may
        units = max(0.0, min(most[child] - held[child], wanted - given))
        held[child] += units
        given += units


@part_of_kernels
def _give_one_each(middle: Floats, spread: Floats, given: float, wanted: float, most: Floats, held: Floats) -> float:
    """Give one more unit to each child that may have it, the likeliest first, while any remain; return the new sum.

    Few chances are compared here, those within rounding of the threshold. So no sort is needed, which Numba would take
    longer to compile than everything else.
    """
    unlikely = np.empty(len(held))
    for child in range(len(held)):
        unlikely[child] = (held[child] + 1 - middle[child]) / spread[child]
    least = -np.inf
    while given < wanted and least < np.inf:
        before, least = least, np.inf
        for child in range(len(held)):
            if held[child] < most[child] and before < unlikely[child] < least:
                least = unlikely[child]
        for child in range(len(held)):
            if unlikely[child] == least and given < wanted and held[child] < most[child]:
                held[child] += 1
                given += 1
    return given


@part_of_kernels
def _reach(middle: float, spread: float, threshold: float, held: float, most: float) -> float:
    """Return how many units lie above a threshold: the largest j with (m + ½ − j) / d ≥ threshold, from `held` to
    `most`.
    """
    value: float = np.floor(middle - threshold * spread)
    return min(max(value, held), most)


# -------------------------------------------------------------------- multipliers


MOST_PASSES = 60  # over all rows of a family
NEAR, NEAR_DEVIATIONS = 0.02, 0.01  # a child this near, in groups or in its deviation, is near enough
FIRST_DAMPING, LEAST_DAMPING = 0.1, 1e-7
MOST_GRADIENTS, SHARP = 30, 0.1  # conjugate gradients: the most steps, and the part of the residual at which they end


class Pools(NamedTuple):
    """The free pools of all children, one child after another, as many as `filled` says."""

    filled: Integers  # [1]
    first: Integers
    stop: Integers
    slope: Floats  # 1 / W


@part_of_kernels
def multipliers(rows: Rows, parent: Integers) -> Floats:
    """Return multipliers `[sizes]` at which the children's rows add up to the parent's, nearly: see NEAR."""
    mean, deviation, _ = rows
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
    value = _answer(rows, parent, found, gap, pools)
    damping, passes = FIRST_DAMPING, 1
    step, trial, left = np.empty(sizes), np.empty(sizes), np.empty(sizes)
    while passes < MOST_PASSES and _farthest(gap, largest) >= 1.0:
        _newton_step(pools, variances, damping, gap, step)
        promised = _product(gap, step)
        part = 1.0
        while passes < MOST_PASSES:
            for size in range(sizes):
                trial[size] = found[size] + part * step[size]
            now = _answer(rows, parent, trial, left, pools)
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
    """Return how far the child with the largest gap has to move, in multiples of the tolerance."""
    farthest = 0.0
    for size in range(len(gap)):
        farthest = max(farthest, abs(gap[size]) * largest[size])
    return farthest


@part_of_kernels
def _product(one: Floats, other: Floats) -> float:
    """Return the inner product, added up in one order on every machine."""
    total = 0.0
    for size in range(len(one)):
        total += one[size] * other[size]
    return total


@part_of_kernels
def pool_rows(pull: Floats, weight: Floats, sums: Floats, weights: Floats, begins: Integers) -> int:
    """Pool adjacent violators of "falls with the size"; the pools are 1, 2, … up to the number that is returned.

    `pull` is value × weight. A pool's value is its sum / its weight, compared crosswise: nothing is divided here.
    Pools, whose starts are in `begins` from 1 on, end where the next one begins. Pool 0 is a sentinel before all others
    and is never reached.
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
def _answer(rows: Rows, parent: Integers, given: Floats, gap: Floats, pools: Pools) -> float:
    """Write the gap and the free pools at the given multipliers, and return the dual function up to a constant."""
    mean, deviation, limits = rows
    children, sizes = mean.shape
    first, stop, slope = pools.first, pools.stop, pools.slope
    pull, weight = np.empty(sizes), np.empty(sizes)
    sums, weights, begins = np.empty(sizes + 1), np.empty(sizes + 1), np.empty(sizes + 2, np.int64)
    change = np.zeros(sizes + 1)
    count, value = 0, 0.0
    for child in range(children):
        most = limits[child]
        for size in range(sizes):
            weight[size] = 1.0 / (deviation[child, size] * deviation[child, size])
            pull[size] = mean[child, size] * weight[size] + given[size]
        top = pool_rows(pull, weight, sums, weights, begins)
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
        value += given[size] * parent[size]
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
    """Write H times a vector: each pool adds its slope times the vector's sum over it, at all its sizes."""
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


# -------------------------------------------------------------------- entity sums


HALVINGS = 60


def weigh_measured_sums(
    mean: Floats, variance: Floats, values: Floats, noise: Floats, sums: Floats, sums_noise: Floats, tree: Hierarchy
) -> tuple[Floats, Floats, Floats]:
    """Return `subtree_estimates` of rows (`mean` and `variance`, from `values` with `noise` `[levels]`) and of their
    sums.

    `sums` `[regions]` were measured with noise of variance `sums_noise` `[levels]`, infinite where nothing was
    measured. The result is means `[regions, sizes]`, the variances of their cells, and those of their sums `[regions]`.
    """
    sizes = values.shape[1]
    precision = 1 / (sizes * noise), 1 / sums_noise
    weight = (precision[0] + precision[1])[tree.level_of]
    derived, measured = (part[tree.level_of] for part in precision)
    known = weight > 0
    both = np.where(known, (derived * values.sum(axis=1) + measured * sums) / np.where(known, weight, 1.0), 0.0)
    level_noise = np.array([1 / total if total > 0 else np.inf for total in precision[0] + precision[1]])
    better, spread = (found[:, 0] for found in subtree_estimates(both[:, None], level_noise[:, None], tree))
    mean = mean + ((better - mean.sum(axis=1)) / sizes)[:, None]
    return mean, variance * (1 - 1 / sizes) + (spread / sizes**2)[:, None], spread


def keep_sums(mean: Floats, noise: Floats, spread: Floats, totals: Integers | None) -> Floats:
    """Return rows shifted so that, once monotone and within bounds, their sums are the posterior means of these sums.

    `noise` `[regions]` is the variance of a contrast, one for all sizes of a row, and `spread` `[regions]` that of a
    row's sum. Without `totals` a row has no upper bound.
    """
    sizes = mean.shape[1]
    lift = np.abs(mean).max(axis=1, keepdims=True) + 1  # so that nothing is clipped during the monotone fit
    falling = fit_monotone(mean + lift, np.ones_like(mean), None) - lift
    most = np.full(len(mean), np.inf) if totals is None else totals.astype(np.float64)
    wanted = mean.sum(axis=1)
    stiff = np.maximum(1 / spread - 1 / (sizes * noise), 0.0)  # 1 / w

    def beyond(shift: Floats) -> Floats:
        """Return Σ x − S of rows shifted down by `shift`, less the value that this shift should give."""
        found = np.clip(falling - shift[:, None], 0.0, most[:, None]).sum(axis=1) - wanted
        gap: Floats = found * stiff * noise - shift
        return gap

    reach = np.abs(falling).max(axis=1) + np.where(np.isfinite(most), most, 0.0) + np.abs(wanted) + 1
    low, high = -reach, reach
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        above = beyond(middle) > 0
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    moved: Floats = mean - ((low + high) / 2)[:, None]
    return moved
