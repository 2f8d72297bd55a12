"""Estimate all levels at once: counts with public totals, and `at_least` counts, near the noisy ones and adding up.

*Counts* (`joint_counts`), where every region's total is public: non-negative integers that add up both ways. This is
M_H of the PGSR paper (Fioretto, Van Hentenryck, Zhu, Model 1) with the totals of all regions fixed, as a public list of
groups has them, and not only the root's. The regions of each size form one tree and the leaves' totals another family
of constraints, so this is a convex-cost flow. Its integer optimum is the optimum of its piecewise linear relaxation,
and the bound of `alternating`, which is taken over integers row by row, has no gap of its own. The rounding keeps every
constraint but is not a flow algorithm; the gap that it leaves is part of the result.

A parent's row is allocated to its children, whose totals are fixed too. Each child takes the integers nearest to its
target that have its total. The columns then miss the parent's row by a few units. A surplus unit of one size moves to a
size that lacks one, within the child where that costs least. Last, pairs of siblings exchange a unit of one size for a
unit of another as long as that pays, which keeps the sums of rows and columns. If many units have to move, several move
at once, so the number of steps grows with the logarithm of the counts.

*`at_least` counts* (`joint_cumulative`): non-increasing integers that add up, within totals. This is Model 2 of the
PGSR paper (M_c; Fioretto, Van Hentenryck, Zhu, Section 9) for the whole tree at any depth. With two levels it is a flow
problem. From three levels on, its linear constraints are not integral. So instead of a search, a relaxation gives a
proved lower bound (`alternating`), and a rounding keeps every constraint: sums, order, and bounds. The result states
how far it can be from the best possible.

*Rounding.* The root is rounded alone. Below, a parent's integer row is allocated to its children. Rounding each size
separately would keep the sums only, and its errors would add up along the sizes. Instead the children's real rows are
read as functions of their sum V. Both fall with the size, so each child is a non-decreasing, piecewise linear function
of V, and together they grow as fast as V. From the largest size down, V takes the parent's integer values, and the
units that it gains are scheduled as jobs on machines. A child's next unit may be given once the child's function has
passed the units it holds, and must be given when the function reaches the next integer; the earliest deadline comes
first. The fractions themselves are a schedule, so a schedule in integer units exists, and earliest deadline first finds
it. Every child stays within one unit of its function. Float errors can at most choose another child for a unit: no unit
is given twice, taken back, or given beyond a bound, because that does not depend on floats.

*Exchanges* between siblings then bring the rows nearer to their targets. Read a row from the largest size down: a
region's k-th unit arrives at the size from which on (downwards) the row is at least k. If b has an arrival and a has a
later one, the two can be exchanged: between them, a holds one unit more and b one less. Nothing else moves: the sum is
the same, and both rows stay monotone. For every ordered pair of siblings one pass over the sizes finds the stretches
where that pays.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import kernel
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.alternating import (
    LEAST_GAIN,
    MOST_PARTNERS,
    VALUE_LIMIT,
    Proved,
    Relaxed,
    Target,
    allocate_levels,
    exchange_rounds,
    put_target,
    region_totals,
    sharp_table,
    solve,
)
from tallytree.estimate.checks import Weights, row_totals
from tallytree.estimate.simplex import integer_simplex, simplex_threshold

STEPS_PER_CHILD = 8  # the fewest steps to move all units that may go the same way
UNITS_PER_STEP = 16  # if so many units of an exchange pay, they move in several steps
EXCHANGES_PER_SIZE = 64  # between two siblings, at most


def joint_counts(
    noisy: NDArray[Any],
    hierarchy: Hierarchy,
    *,
    totals: NDArray[Any] | None,
    weights: Weights = None,
    tolerance: float = 1e-3,
) -> Proved:
    """Return non-negative integers `[regions, sizes]` near `noisy`: children add up to their parent, rows to their
    total.

    Near means a small Σ weight · (value − noisy)², and the result says how much smaller it could be at most. `totals`
    is the public number of groups of every region; all groups are in a column, so size 0 is one of them. `weights` has
    one positive number per level, the inverse of its noise variance say. `tolerance` is the relative gap at which the
    relaxation stops; rounding to integers adds its own.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> result = joint_counts(np.array([[7, 1], [4, -2], [4, 2]]), tree, totals=np.array([9, 4, 5]))
    >>> result.values
    array([[7, 2],
           [4, 0],
           [3, 2]])
    >>> result.gap
    0.0
    """
    noisy = sharp_table(noisy, hierarchy)
    if totals is None:
        raise SpecError(
            "joint-counts needs the public total of every region; where totals are private use "
            "pgsr-hierarchical-dp, or joint-cumulative"
        )
    fixed = region_totals(totals, hierarchy)
    thresholds = np.full(len(noisy), np.nan)  # from the last projection; the next one starts there

    def rounded(relaxed: Relaxed) -> Integers:
        root: Integers = integer_simplex(noisy[0] + relaxed.duals[0], fixed[0])
        return allocate_levels(root, hierarchy, partial(_share_counts, noisy, relaxed.duals, fixed))

    return solve(noisy, hierarchy, weights, tolerance, partial(_project_counts, fixed, thresholds), rounded)


@kernel
def _project_counts(
    totals: Integers, thresholds: Floats, target: Target, integer: bool, nearest: Floats, start: int, stop: int
) -> None:
    """Write non-negative numbers with each row's total; `thresholds` holds those of the last projection."""
    sizes = nearest.shape[1]
    row = np.empty(sizes)
    for region in range(start, stop):
        put_target(target, region, row)
        if integer:
            nearest[region] = integer_simplex(row, totals[region])
            continue
        threshold = simplex_threshold(row, totals[region], thresholds[region])
        thresholds[region] = threshold
        for size in range(sizes):
            nearest[region, size] = max(row[size] - threshold, 0.0)


@kernel
def _share_counts(
    noisy: Integers, duals: Floats, totals: Integers, values: Integers, parent: int, first: int, last: int
) -> None:
    """Allocate a parent's row to the children `first … last - 1`."""
    surplus = -values[parent]
    for region in range(first, last):
        values[region] = integer_simplex(noisy[region] + duals[region], totals[region])
        for size in range(len(surplus)):
            surplus[size] += values[region, size]
    pull = _pulls(noisy[first:last], duals[first:last], values[first:last])
    _fix_columns(values[first:last], pull, surplus)
    _exchange_units(values[first:last], pull)


@kernel
def _pulls(noisy: Integers, duals: Floats, values: Integers) -> Floats:
    """Return twice the distance to the target, noisy + duals, which the relaxation prefers for the region alone.

    A unit more gains pull − 1, a unit less −pull − 1.
    """
    pull = np.empty(values.shape)
    for child in range(len(values)):
        for size in range(values.shape[1]):
            pull[child, size] = 2.0 * (noisy[child, size] + duals[child, size] - values[child, size])
    return pull


@kernel
def _fix_columns(rows: Integers, pull: Floats, surplus: Integers) -> None:
    """Move units within rows from sizes with a surplus to sizes with a deficit, each by its cheapest move."""
    children, sizes = rows.shape
    wanted = np.full(children, -1, dtype=np.int64)  # where a row's next unit would go
    for size in range(sizes):
        while surplus[size] > 0:
            best, least = -1, np.inf
            for child in range(children):
                if rows[child, size] == 0:
                    continue
                if wanted[child] < 0 or surplus[wanted[child]] >= 0:
                    wanted[child] = _most_wanted(pull[child], surplus)
                cost = pull[child, size] - pull[child, wanted[child]]
                if cost < least:
                    best, least = child, cost
            other = wanted[best]
            most = min(surplus[size], -surplus[other], rows[best, size])
            moved = max(1, most // (STEPS_PER_CHILD * children))
            rows[best, size] -= moved
            rows[best, other] += moved
            pull[best, size] += 2.0 * moved
            pull[best, other] -= 2.0 * moved
            surplus[size] -= moved
            surplus[other] += moved
            wanted[best] = -1


@kernel
def _most_wanted(pull: Floats, surplus: Integers) -> int:
    best = -1
    for size in range(len(pull)):
        if surplus[size] < 0 and (best < 0 or pull[size] > pull[best]):
            best = size
    return best


@kernel
def _exchange_units(rows: Integers, pull: Floats) -> None:
    """Exchange units of two sizes between two rows while it pays, for a bounded number of passes."""
    children, sizes = rows.shape
    partners = min(children // 2, MOST_PARTNERS)
    for _ in range(exchange_rounds(partners)):
        paid = False
        for offset in range(1, partners + 1):
            for one in range(children):
                other = (one + offset) % children
                for _ in range(EXCHANGES_PER_SIZE * sizes):
                    if not _exchange_pair(rows[one], rows[other], pull[one], pull[other]):
                        break
                    paid = True
        if not paid:
            break


@kernel
def _exchange_pair(one: Integers, other: Integers, pull_one: Floats, pull_other: Floats) -> bool:
    """Move units of size `taken` from `other` to `one` and as many of size `given` back, if the best choice pays.

    Each unit gains 8 less than the one before it: one unit is exchanged, or half of those that gain if they are many.
    """
    taken, given = -1, -1
    best_taken, best_given = -np.inf, -np.inf
    for size in range(len(one)):
        gain = pull_one[size] - pull_other[size] - 2.0
        if gain > best_taken and other[size] > 0:
            taken, best_taken = size, gain
        if -4.0 - gain > best_given and one[size] > 0:
            given, best_given = size, -4.0 - gain
    if taken < 0 or given < 0 or best_taken + best_given <= LEAST_GAIN:
        return False
    gain = min((best_taken + best_given) / 8.0, float(min(other[taken], one[given])))
    units = np.int64(gain / 2.0) if gain > UNITS_PER_STEP else 1
    one[taken] += units
    other[taken] -= units
    one[given] -= units
    other[given] += units
    pull_one[taken] -= 2.0 * units
    pull_other[taken] += 2.0 * units
    pull_one[given] += 2.0 * units
    pull_other[given] -= 2.0 * units
    return True


# -------------------------------------------------------------------- at_least counts


UNBOUNDED = (1 << 63) - 1
WHOLE_TOLERANCE = 1e-9  # a function this close below an integer counts as having reached it


def joint_cumulative(
    noisy: NDArray[Any],
    hierarchy: Hierarchy,
    *,
    totals: NDArray[Any] | int | None = None,
    weights: Weights = None,
    tolerance: float = 1e-3,
) -> Proved:
    """Return non-increasing integers `[regions, sizes]` near `noisy` for which children add up to their parent.

    Near means a small Σ weight · (value − noisy)², and the result says how much smaller it could be at most. `totals`:
    the public number of groups of every region, which no value of the region exceeds (the rest have size 0); or one
    number for the root alone, which its first value then equals, as in the paper, where no group is empty; or None.
    `weights` has one positive number per level, the inverse of its noise variance say. `tolerance` is the relative gap
    at which the relaxation stops; rounding to integers adds its own.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> result = joint_cumulative(np.array([[9, 5], [5, 6], [3, -2]]), tree, totals=np.array([10, 6, 4]))
    >>> result.values
    array([[9, 5],
           [6, 5],
           [3, 0]])
    >>> result.gap
    0.0
    """
    noisy = sharp_table(noisy, hierarchy)
    upper, fixed = _bounds(totals, hierarchy)
    project = partial(_project_at_least, upper, fixed)

    def rounded(relaxed: Relaxed) -> Integers:
        def share(values: Integers, parent: int, first: int, last: int) -> None:
            children = slice(first, last)
            _share_at_least(relaxed.nearest[children], upper[children], values[parent], values[children])
            pull = _pulls(noisy[children], relaxed.duals[children], values[children])
            _exchange_arrivals(values[children], pull, upper[children])

        root = np.empty((1, noisy.shape[1]))
        project(Target(noisy, relaxed.consistent, relaxed.duals, 0.0), True, root, 0, 1)
        return allocate_levels(root[0].astype(np.int64), hierarchy, share)

    return solve(noisy, hierarchy, weights, tolerance, project, rounded)


def _bounds(totals: Any, hierarchy: Hierarchy) -> tuple[Integers, bool]:
    """Return every region's upper bound (UNBOUNDED without one), and whether the root's first value is fixed to it."""
    of_root = isinstance(totals, int | np.integer) and not isinstance(totals, bool)
    if totals is not None and not of_root:
        return region_totals(totals, hierarchy), False
    upper = np.full(len(hierarchy), UNBOUNDED, dtype=np.int64)
    if of_root:
        if not 0 <= totals < VALUE_LIMIT:
            raise SpecError(f"the root's total is {totals}; expected an integer below 2⁵²")
        upper[0] = totals
    return row_totals(upper, len(hierarchy)), of_root


@kernel
def _project_at_least(
    upper: Integers, fixed: bool, target: Target, integer: bool, nearest: Floats, start: int, stop: int
) -> None:
    """Pool adjacent violators, clip to 0 … upper; integers by ⌊z + ½⌋ (`isotonic` has the proof)."""
    sizes = nearest.shape[1]
    row, means, counts = np.empty(sizes), np.empty(sizes), np.empty(sizes, dtype=np.int64)
    for region in range(start, stop):
        put_target(target, region, row)
        most = float(upper[region])
        size = 0
        if fixed and region == 0:
            nearest[region, 0] = most
            size = 1
        begin, pools = size, 0
        while size < sizes:
            mean = row[size]
            count = 1
            while pools > 0 and means[pools - 1] <= mean:
                pools -= 1
                mean = (mean * count + means[pools] * counts[pools]) / (count + counts[pools])
                count += counts[pools]
            means[pools], counts[pools] = mean, count
            pools += 1
            size += 1
        size = begin
        for pool in range(pools):
            value = means[pool]
            if integer:
                value = np.floor(value + 0.5)
            value = min(max(value, 0.0), most)
            for place in range(size, size + counts[pool]):
                nearest[region, place] = value
            size += counts[pool]


class _Functions(NamedTuple):
    """The children's rows as functions of their sum V, and the units that each child holds."""

    rows: Floats  # [children, sizes]
    top: Floats  # where the functions end: at the bounds or, without them, evenly beyond what the parent may need
    knots: Floats  # V at knot 0 (nothing), at knot k (the k-th size from the end), and at the top
    upper: Integers
    held: Integers
    ahead: Integers  # the knot at which a child's next unit falls due
    due: Floats  # V at that knot


@kernel
def _share_at_least(relaxed: Floats, upper: Integers, parent: Integers, shared: Integers) -> None:
    """Allocate a parent's row to its children, whose rows of the real solution are `relaxed`."""
    children, sizes = relaxed.shape
    knots = np.zeros(sizes + 2)
    for child in range(children):
        for size in range(sizes):
            knots[sizes - size] += relaxed[child, size]
    beyond = (max(0.0, float(parent[0]) - float(knots[sizes])) + 1.0) / children
    top = np.empty(children)
    for child in range(children):
        top[child] = relaxed[child, 0] + beyond if upper[child] == UNBOUNDED else float(upper[child])
    knots[sizes + 1] = top.sum()
    held, ahead = np.zeros(children, dtype=np.int64), np.zeros(children, dtype=np.int64)
    functions = _Functions(relaxed, top, knots, upper, held, ahead, np.empty(children))
    for child in range(children):
        _give(functions, child, 0)
    level = np.zeros(children)  # the functions at V
    handed, knot = 0, 0
    for size in range(sizes - 1, -1, -1):
        target = parent[size]
        if target > handed:
            while knot < sizes and knots[knot + 1] < target:
                knot += 1
            rise = knots[knot + 1] - knots[knot]
            part = min(1.0, max(0.0, (target - knots[knot]) / rise)) if rise > 0 else 1.0
            for child in range(children):
                below = _at(functions, child, knot)
                level[child] = below + part * (_at(functions, child, knot + 1) - below)
                gain = min(np.int64(np.floor(level[child] + WHOLE_TOLERANCE)), upper[child]) - held[child]
                gain = min(gain, target - handed)
                if gain > 0:
                    handed += _give(functions, child, gain)
            if handed < target:
                handed = _hand_out(functions, level, handed, target)
        for child in range(children):
            shared[child, size] = held[child]


@kernel
def _hand_out(functions: _Functions, level: Floats, handed: int, target: int) -> int:
    """Give one unit each to the children whose next unit falls due first, then, if units remain, to any child.

    If many units remain, each child takes an equal part of them, up to its bound.
    """
    held = functions.held
    order = np.argsort(functions.due, kind="mergesort")
    to_any = False
    while handed < target:
        each = max(1, (target - handed) // len(order)) if to_any else 1
        for child in order:
            units = min(each, target - handed, functions.upper[child] - held[child])
            if units > 0 and (to_any or held[child] < level[child]):
                handed += _give(functions, child, units)
        to_any = True
    return handed


@kernel
def _at(functions: _Functions, child: int, knot: int) -> float:
    sizes = functions.rows.shape[1]
    if knot == 0:
        return 0.0
    value: float = functions.rows[child, sizes - knot] if knot <= sizes else functions.top[child]
    return value


@kernel
def _give(functions: _Functions, child: int, units: int) -> int:
    """Give units to a child, and find the V at which its function reaches the next, searching on from there."""
    functions.held[child] += units
    sizes, unit, knot = functions.rows.shape[1], functions.held[child] + 1, functions.ahead[child]
    while knot <= sizes and _at(functions, child, knot + 1) < unit:
        knot += 1
    functions.ahead[child], functions.due[child] = knot, np.inf
    if knot <= sizes:
        below, above = _at(functions, child, knot), _at(functions, child, knot + 1)
        part = (unit - below) / (above - below) if above > below else 0.0
        functions.due[child] = functions.knots[knot] + max(0.0, part) * (
            functions.knots[knot + 1] - functions.knots[knot]
        )
    return units


@kernel
def _exchange_arrivals(rows: Integers, pull: Floats, upper: Integers) -> None:
    """Exchange arrivals among siblings while that pays, for a bounded number of passes."""
    children = len(rows)
    partners = min(children - 1, MOST_PARTNERS)
    for _ in range(exchange_rounds(partners)):
        gained = 0.0
        for offset in range(1, partners + 1):
            for one in range(children):
                other = (one + offset) % children
                gained += _exchange_arrival(rows[one], rows[other], pull[one], pull[other], upper[one])
                if partners < children - 1:  # otherwise the loop visits the pair in the other order too
                    gained += _exchange_arrival(rows[other], rows[one], pull[other], pull[one], upper[other])
        if gained == 0.0:
            break


@kernel
def _exchange_arrival(more: Integers, less: Integers, pull_more: Floats, pull_less: Floats, most: int) -> float:
    """Exchange arrivals of two siblings wherever that pays, and return the gain. `more` may hold at most `most`."""
    gained, run, begin = 0.0, 0.0, -1
    less_before = 0
    for size in range(len(more) - 1, -1, -1):
        if less[size] > less_before and run <= 0.0:
            run, begin = 0.0, size
        less_before = less[size]
        if begin < 0:
            continue
        run += pull_more[size] - pull_less[size] - 2.0
        if run > LEAST_GAIN:
            ends = more[0] < most if size == 0 else more[size - 1] > more[size]
            if ends:
                for place in range(size, begin + 1):
                    more[place] += 1
                    less[place] -= 1
                    pull_more[place] -= 2.0
                    pull_less[place] += 2.0
                less_before -= 1
                gained += run
                run, begin = 0.0, -1
    return gained
