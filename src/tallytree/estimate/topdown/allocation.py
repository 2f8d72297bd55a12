"""Whole `at_least` counts from the root down: a parent's row is settled first and then shared out among its children.

What is believed of a region and size is a mean and a standard deviation. A parent's estimate is better than the sum of
its children's, and clipping children at 0 or at their public total moves sums to one side; so the parent does not wait
for them. Its row is whole before its children's are sought, and nothing below moves it: the root has no bias from what
is clipped below. (The idea of settling from the top is that of TopDown and of BlueDown, there for counts.)

*A family in real numbers.* Where rows are measured they need not fall with the size. The children's rows nearest to
them (in squares of standard deviations) that do fall, stay between 0 and the public totals and add up to the parent are
found by prices for the sizes (`topdown.multipliers`).

*Whole numbers*, from the largest size down. Each child holds what it has at the next larger size, for rows do not rise.
Of the units that the parent has more, each goes where it is likeliest to be true: a child with mean m and deviation d
has a j-th group with a likelihood that falls with (j − ½ − m) / d. All units above one threshold of that are given,
which is found by bisection, and the rest one by one. For a size by itself that is the allocation with the least
expected sum of absolute errors among those that add up, if beliefs are normal: the j-th unit of a child lowers its
expected error by 2 P(count ≥ j) − 1, which falls with j, so the best units are those with the largest chances.
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads, kernel, part_of_kernels
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.layout import row_blocks
from tallytree.estimate.topdown.multipliers import multipliers, pooled

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
    has the rows of the first levels, if they are settled already; levels below that numbered `through` are left out.
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
    bounds = np.full(len(hierarchy), -1, np.int64) if totals is None else np.ascontiguousarray(totals, np.int64)
    if top is None:
        values[:1] = np.floor(fit_monotone(mean[:1], deviation[:1], bounds[:1]) + 0.5)
    else:
        values[: len(top)] = top
    done = 1 if top is None else int(np.searchsorted(hierarchy.level_starts, len(top)))  # levels
    for level in range(done - 1, through):
        parents = hierarchy.level_slice(level)
        relax = not (monotone_leaves and level == last - 1)
        count, start_of = parents.stop - parents.start, parents.start

        def work(start: int, stop: int, start_of: int = start_of, relax: bool = relax) -> None:
            _settle(values, mean, deviation, bounds, hierarchy.child_starts, relax, start_of + start, start_of + stop)

        in_threads(work, blocks(count, max(1, count // 16)), tell if level == last - 1 else nobody)
    return values


def fit_monotone(mean: Floats, deviation: Floats, totals: Integers | None) -> Floats:
    """Each row's nearest that falls with the size and stays between 0 and the total."""
    near = np.empty_like(mean)
    bounds = np.full(len(mean), -1, np.int64) if totals is None else np.ascontiguousarray(totals, np.int64)
    in_threads(lambda start, stop: _monotone_rows(mean, deviation, bounds, near, start, stop), row_blocks(mean))
    return near


@part_of_kernels
def _limit(bound: int) -> float:
    return np.inf if bound < 0 else float(bound)


@kernel
def _monotone_rows(mean: Floats, deviation: Floats, bounds: Integers, near: Floats, start: int, stop: int) -> None:
    for region in range(start, stop):
        _fit_monotone(mean[region], deviation[region], _limit(bounds[region]), near[region])


@part_of_kernels
def _fit_monotone(mean: Floats, deviation: Floats, most: float, near: Floats) -> None:
    """Pool adjacent violators with weights 1 / deviation², then clip: the nearest row that falls, from 0 to `most`."""
    sizes = len(mean)
    pull, weight = np.empty(sizes), np.empty(sizes)
    sums, weights, begins = np.empty(sizes + 1), np.empty(sizes + 1), np.empty(sizes + 2, np.int64)
    for size in range(sizes):
        weight[size] = 1.0 / (deviation[size] * deviation[size])
        pull[size] = mean[size] * weight[size]
    for pool in range(1, pooled(pull, weight, sums, weights, begins) + 1):
        near[begins[pool] : begins[pool + 1]] = min(max(sums[pool] / weights[pool], 0.0), most)


@kernel
def _settle(
    values: Integers,
    mean: Floats,
    deviation: Floats,
    bounds: Integers,
    child_starts: Integers,
    relax: bool,
    start: int,
    stop: int,
) -> None:
    for parent in range(start, stop):
        first, last = child_starts[parent], child_starts[parent + 1]
        if last - first == 1:
            for size in range(values.shape[1]):  # a row as a whole takes Numba two seconds more to compile
                values[first, size] = values[parent, size]
            continue
        rows, spread = mean[first:last], deviation[first:last]
        if relax:
            rows = _relaxed(rows, spread, values[parent], bounds[first:last])
        _share(rows, spread, values[parent], bounds[first:last], values[first:last])


@part_of_kernels
def _relaxed(mean: Floats, deviation: Floats, parent: Integers, bounds: Integers) -> Floats:
    """The children's rows nearest to `mean` that fall, keep their bounds and, nearly, add up to the parent's row."""
    children, sizes = mean.shape
    price = multipliers(mean, deviation, parent, bounds)
    near, target = np.empty(mean.shape), np.empty(sizes)
    for child in range(children):
        for size in range(sizes):
            target[size] = mean[child, size] + deviation[child, size] ** 2 * price[size]
        _fit_monotone(target, deviation[child], _limit(bounds[child]), near[child])
    return near


@part_of_kernels
def _share(mean: Floats, deviation: Floats, parent: Integers, bounds: Integers, shared: Integers) -> None:
    """Share a parent's row out, from the largest size down."""
    children, sizes = mean.shape
    held, most = np.zeros(children), np.empty(children)  # whole numbers, as floats are quicker to compare with means
    middle, spread = np.empty(children), np.empty(children)
    given = 0.0
    for size in range(sizes - 1, -1, -1):
        wanted = float(parent[size])
        if given < wanted:
            for child in range(children):
                most[child] = min(_limit(bounds[child]), wanted)
                middle[child], spread[child] = mean[child, size] + 0.5, deviation[child, size]
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
