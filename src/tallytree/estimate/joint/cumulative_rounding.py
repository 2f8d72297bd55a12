"""From real `at_least` counts to whole ones with every constraint kept: sums, order, and bounds.

The root is rounded by itself, before. Below, a parent's whole row is shared out among its children. Rounding each size
by itself would be feasible for the sums only, and its errors would add up along the sizes. Instead the children's real
rows are read as functions of their own sum V: both fall with the size, so each child is a non-decreasing, piecewise
linear function of V, and together they grow as fast as V. Going through the sizes from the largest down, V takes the
parent's whole values, and the units that it gains are handed out as jobs to machines: a child's next unit may be given
once the child's function has passed the units it holds and must be given when the function reaches the next whole
number; the earliest deadline is served first. The fractions themselves are a schedule, so one in whole units exists
and earliest deadline finds it; every child stays within one unit of its function. Float errors can at most choose
another child for a unit: that nothing is handed out twice, taken back, or given beyond a bound does not depend on
them.
"""

from __future__ import annotations

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.estimate.joint.alternating import Relaxed
from tallytree.estimate.joint.cumulative_exchange import exchange_arrivals
from tallytree.estimate.layout import from_the_top_down
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import kernel

SNUG = 1e-9  # a function this close below a whole number has reached it


def round_cumulative(
    root: Floats, relaxed: Relaxed, noisy: Integers, hierarchy: Hierarchy, upper: Integers, bounded: bool
) -> Integers:
    """Whole non-increasing rows from 0 to `upper`, children adding up, near the relaxed ones; `root` is whole already.

    `bounded` says that `upper` holds in every region and adds up; otherwise it concerns the root only.
    """
    values = np.empty(noisy.shape, dtype=np.int64)
    values[0] = root
    real, prices = relaxed.nearest, relaxed.prices

    def share(parent: int, first: int, last: int) -> None:
        _share_row(values, real, upper, bounded, parent, first, last)
        exchange_arrivals(values, noisy, prices, upper, bounded, first, last)

    from_the_top_down(hierarchy, share)
    return values


@kernel
def _share_row(
    values: Integers, relaxed: Floats, upper: Integers, bounded: bool, parent: int, first: int, last: int
) -> None:
    """Share a parent's row out among the children `first … last - 1`."""
    sizes, children = values.shape[1], last - first
    if children == 1:
        values[first] = values[parent]
        return
    knots = _knots(relaxed, first, last, sizes)
    top = _tops(int(values[parent, 0]), float(knots[sizes]), relaxed, upper, bounded, first, last)
    knots[sizes + 1] = top.sum()
    held = np.zeros(children, dtype=np.int64)
    level = np.zeros(children)  # the functions at V
    ahead = np.zeros(children, dtype=np.int64)  # the knot at which a child's next unit is due at the latest
    due = np.empty(children)
    for child in range(children):
        due[child] = _due(relaxed, knots, top, ahead, first, child, 1)
    handed, knot = 0, 0
    for size in range(sizes - 1, -1, -1):
        target = values[parent, size]
        if target > handed:
            while knot < sizes and knots[knot + 1] < target:
                knot += 1
            rise = knots[knot + 1] - knots[knot]
            part = min(1.0, max(0.0, (target - knots[knot]) / rise)) if rise > 0 else 1.0
            for child in range(children):
                below = _at(relaxed, top, first + child, child, knot)
                level[child] = below + part * (_at(relaxed, top, first + child, child, knot + 1) - below)
                most = upper[first + child] if bounded else target
                gain = min(np.int64(np.floor(level[child] + SNUG)), most) - held[child]
                gain = min(gain, target - handed)
                if gain > 0:
                    held[child] += gain
                    handed += gain
                    due[child] = _due(relaxed, knots, top, ahead, first, child, held[child] + 1)
            if handed < target:
                handed = _hand_out(relaxed, knots, top, ahead, due, held, level, upper, bounded, first, handed, target)
        for child in range(children):
            values[first + child, size] = held[child]


@kernel
def _hand_out(
    relaxed: Floats,
    knots: Floats,
    top: Floats,
    ahead: Integers,
    due: Floats,
    held: Integers,
    level: Floats,
    upper: Integers,
    bounded: bool,
    first: int,
    handed: int,
    target: int,
) -> int:
    """Give one unit each to the children whose next is due first: those above what they hold, then, if need be, any."""
    order = np.argsort(due, kind="mergesort")
    anybody = False
    while handed < target:
        for child in order:
            full = bounded and held[child] >= upper[first + child]
            if handed < target and not full and (anybody or held[child] < level[child]):
                held[child] += 1
                handed += 1
                due[child] = _due(relaxed, knots, top, ahead, first, child, held[child] + 1)
        anybody = True
    return handed


@kernel
def _knots(relaxed: Floats, first: int, last: int, sizes: int) -> Floats:
    """The children's sum at knot 0 (nothing), at knot k (the k-th size from the end), and room for the top."""
    knots = np.zeros(sizes + 2)
    for child in range(first, last):
        for size in range(sizes):
            knots[sizes - size] += relaxed[child, size]
    return knots


@kernel
def _tops(
    largest: int, reached: float, relaxed: Floats, upper: Integers, bounded: bool, first: int, last: int
) -> Floats:
    """Where the functions end: at the bounds or, without them, evenly beyond what the parent may need."""
    top = np.empty(last - first)
    beyond = (max(0.0, largest - reached) + 1.0) / (last - first)
    for child in range(first, last):
        top[child - first] = float(upper[child]) if bounded else relaxed[child, 0] + beyond
    return top


@kernel
def _at(relaxed: Floats, top: Floats, region: int, child: int, knot: int) -> float:
    sizes = relaxed.shape[1]
    if knot == 0:
        return 0.0
    value: float = relaxed[region, sizes - knot] if knot <= sizes else top[child]
    return value


@kernel
def _due(relaxed: Floats, knots: Floats, top: Floats, ahead: Integers, first: int, child: int, unit: int) -> float:
    """The sum V at which a child's function reaches `unit`; the search goes on where the last one ended."""
    sizes = relaxed.shape[1]
    knot = ahead[child]
    while knot <= sizes and _at(relaxed, top, first + child, child, knot + 1) < unit:
        knot += 1
    ahead[child] = knot
    if knot > sizes:
        return np.inf
    below, above = _at(relaxed, top, first + child, child, knot), _at(relaxed, top, first + child, child, knot + 1)
    part = (unit - below) / (above - below) if above > below else 0.0
    place: float = knots[knot] + max(0.0, part) * (knots[knot + 1] - knots[knot])
    return place
