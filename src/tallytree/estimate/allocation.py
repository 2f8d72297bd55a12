"""Top-down estimation of `at_least` counts: a parent's integers are fixed, and then allocated to its children.

The posterior of a region and size is a mean and a standard deviation. A parent's estimate is better than the sum of
its children's, and clipping children at 0 or at their public total moves sums to one side; so the parent does not wait
for them. Its row is whole before its children's are sought, and nothing below moves it: the root has no bias from what
is clipped below. (The idea of settling from the top is that of TopDown and of BlueDown, there for counts.)

*A family in real numbers.* Where rows are measured they need not fall with the size. The children's rows nearest to
them (in squares of standard deviations) that do fall, stay between 0 and the public totals and add up to the parent are
found by multipliers for the sizes.

*Whole numbers*, from the largest size down. Each child holds what it has at the next larger size, for rows do not rise.
Of the units that the parent has more, each goes where it is likeliest to be true: a child with mean m and deviation d
has a j-th group with a likelihood that falls with (j − ½ − m) / d. All units above one threshold of that are given,
which is found by bisection, and the rest one by one. For a size by itself that is the allocation with the least
expected sum of absolute errors among those that add up, if posteriors are normal: the j-th unit of a child lowers its
expected error by 2 P(count ≥ j) − 1, which falls with j, so the best units are those with the largest chances.

*Multipliers*, at which children whose rows are each as near as they can be to their means add up to their parent.
Of a family's rows x_c, falling with the size and between 0 and a bound, that add up to the parent's row P, those are
sought for which Σ (x_cs − m_cs)² / (2 d_cs²) is least. With a multiplier λ_s of "add up" for each size, every
child answers by itself: x_c(λ) is the row nearest to m_c + d_c² λ, found by pooling adjacent violators and clipping.
The dual function is concave in λ, its gradient is the gap P − Σ x_c(λ), and where that is 0 the answers are the rows
sought. So there are as many unknowns as sizes, however many children there are.

*Newton's method.* A pool with weight W = Σ 1/d² has the value (Σ m/d² + Σ λ) / W: it moves by 1/W with each of its own
multipliers, with no other, and not at all where it is clipped. The gap's derivative is therefore −H with H = Σ 1 1ᵀ / W
over the free pools of all children, which prefix sums apply to a vector in one step for each pool. Where pools come and
go within a step that is not the whole truth, so the step solves (H + μ V) δ = gap, by conjugate gradients, where V is
the diagonal of the Σ_c d_cs² (H is nowhere larger than V: projections do not expand). μ falls while steps gain what
they promise, and rises when they do not; a step that loses is cut back to where the gap's trend along it says.

*Rows whose sums were measured as well*: the number of entities, Σ_s T[s], with noise of its own. Where the noise of a
level has one variance σ² at all K sizes, a row of measurements is its sum and its K − 1 contrasts, and their errors are
uncorrelated: the sum has the variance K σ², and another measurement of the sum, of variance v, tells of nothing else.
So the sums are weighed and carried up the tree by themselves, with the precision 1 / (K σ²) + 1 / v on each level, and
the contrasts as without them. A row is then moved by the same number at each of its sizes, so that it has the better
sum.

*Rows that fall and stay between 0 and their bound* have larger sums where noise below 0 is clipped, and the measured
sum would be lost there. The row x within these bounds that is nearest to the posterior mean, in the metric of its
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
    """Whole numbers `[regions, sizes]` near `mean`: non-increasing, adding up, from 0 to the region's total.

    `deviation` is positive and has the shape of `mean`. Without `totals` nothing bounds a row but its parent's. With
    `monotone_leaves` the leaves' rows fall with the size and are within bounds already, as posterior means do. `top`
    has the rows of the first levels, if they are fixed already; levels below that numbered `through` are left out.
    `tell` hears of the leaves, which are nearly all of the work.

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
    """Each row's nearest that falls with the size and stays between 0 and the total."""
    near = np.empty_like(mean)
    in_threads(partial(_monotone_rows, _rows(mean, deviation, totals), near), row_blocks(mean))
    return near


class Rows(NamedTuple):
    """Posterior means and deviations of rows `[regions, sizes]`, and what each may not exceed."""

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
    """Pool adjacent violators with weights 1 / deviation², then clip: the nearest row that falls, from 0 to `most`."""
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
    """Allocate the rows of a level's regions, the first of which is numbered `offset`, to their children."""
    for place in range(start, stop):
        parent, first, last = values[offset + place], child_starts[place], child_starts[place + 1]
        if last - first == 1:
            for size in range(values.shape[1]):  # a row as a whole takes Numba two seconds more to compile
                values[first, size] = parent[size]
            continue
        children = Rows(rows.mean[first:last], rows.deviation[first:last], rows.most[first:last])
        if relax:
            children = Rows(_relaxed(children, parent), children.deviation, children.most)
        _share(children, parent, values[first:last])


@part_of_kernels
def _relaxed(rows: Rows, parent: Integers) -> Floats:
    """The children's rows nearest to their means that fall, keep their bounds and, nearly, add up to the parent's."""
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
    """Share a parent's row out, from the largest size down."""
    children, sizes = rows.mean.shape
    held, most = np.zeros(children), np.empty(children)  # whole numbers, as floats are quicker to compare with means
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
    """Raise `held` to `wanted` in all, no child beyond `most`: the likeliest units first. `middle` is m + ½.

    The threshold is sought from 0 on, where it is if means add up, by the slope of what is given; and halfway between
    what is too low and what is not wherever that leads outside or takes long.
    """
    children = len(held)
    low, high, threshold = -np.inf, np.inf, 0.0  # at `low` too much is given, at `high` not
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
    for child in range(children):  # floats cannot tell apart so many units: each child takes what it may
        units = max(0.0, min(most[child] - held[child], wanted - given))
        held[child] += units
        given += units


@part_of_kernels
def _give_one_each(middle: Floats, spread: Floats, given: float, wanted: float, most: Floats, held: Floats) -> float:
    """One unit more for each child that may have it, the likeliest first, while any is left; how many are given then.

    Few chances are told apart here, those within rounding of the threshold; so there is nothing to sort, which Numba
    would take longer to compile than all of the rest.
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
    """How many units lie above a threshold: the largest j with (m + ½ − j) / d ≥ threshold, from `held` to `most`."""
    value: float = np.floor(middle - threshold * spread)
    return min(max(value, held), most)


# -------------------------------------------------------------------- multipliers


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
def multipliers(rows: Rows, parent: Integers) -> Floats:
    """Multipliers `[sizes]` at which the children's answers add up to the parent's row, nearly: see NEAR."""
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
def pool_rows(pull: Floats, weight: Floats, sums: Floats, weights: Floats, begins: Integers) -> int:
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
def _answer(rows: Rows, parent: Integers, given: Floats, gap: Floats, pools: Pools) -> float:
    """Write the gap and the free pools at the given multipliers; the dual function but for a constant is returned."""
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


# -------------------------------------------------------------------- entity sums


HALVINGS = 60


def weigh_measured_sums(
    mean: Floats, variance: Floats, values: Floats, noise: Floats, sums: Floats, sums_noise: Floats, tree: Hierarchy
) -> tuple[Floats, Floats, Floats]:
    """`subtree_estimates` of rows (`mean` and `variance`, from `values` with `noise` `[levels]`) and of their sums.

    `sums` `[regions]` were measured with noise of variance `sums_noise` `[levels]`, infinite where nothing was
    measured. Gives means `[regions, sizes]`, the variances of their cells and those of their sums `[regions]`.
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
    """Rows moved so that, once they fall and are within bounds, their sums are the posterior means of these.

    `noise` `[regions]` is the variance of a contrast, one for all sizes of a row, and `spread` `[regions]` that of a
    row's sum. Without `totals` a row has no upper bound.
    """
    sizes = mean.shape[1]
    lift = np.abs(mean).max(axis=1, keepdims=True) + 1  # so that nothing is clipped while rows are made to fall
    falling = fit_monotone(mean + lift, np.ones_like(mean), None) - lift
    most = np.full(len(mean), np.inf) if totals is None else totals.astype(np.float64)
    wanted = mean.sum(axis=1)
    stiff = np.maximum(1 / spread - 1 / (sizes * noise), 0.0)  # 1 / w

    def beyond(shift: Floats) -> Floats:
        """Σ x − S of rows that are moved down by `shift`, less what that shift should make of it."""
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
