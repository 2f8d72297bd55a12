"""Whole tables with given sums of rows and columns: the nearest one, exactly.

A family's children (rows) by category (columns), for one size: what each child has over all categories is known, and
what the parent has of each category. Of all tables of whole numbers x ≥ 0 with these sums, the one with the least
Σ w (x − y)² is wanted. It always exists where both sums are the same in all.

*Prices.* In real numbers the nearest table is x = max(0, y + (a_row + b_column) / w) for prices a and b that make the
sums right. Given b, each a follows from its row alone; so columns lack what is a function of b, whose zero Newton's
method finds. Where a step of it does not help, all b are set so that columns are right with the a as they are (an
ascent of the dual by blocks).

*Whole numbers.* With a price b on each column the sum to be made small changes by a constant as long as columns have
their sums, so prices do not change what is nearest. Given them, each row by itself takes its whole numbers at the least
cost: units are moved between two of its cells as long as that gains, which for convex costs ends at the optimum. No
exchange within a row then gains, so neither does any cycle of exchanges over several rows: the table is the nearest one
for the column sums that it happens to have. What columns have too much then goes, unit by unit and along the cheapest
path of exchanges, to those that lack it (successive shortest paths, over as many nodes as there are columns). Each step
keeps the table nearest for its column sums, so the last one is nearest for the wanted ones. A column with too much has
a row to take from, so there is a path each time. Good prices leave few units to move. Where many are left (noise far
above all counts), several go at once, and cycles of exchanges that gain are then used up: without any, a table is
nearest. (After 10,000 of these it is taken as it is; sums are right in any case.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.category_trees import on_level
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import blocks, in_threads, kernel

MOST_TURNS = 100
MOST_CUTS = 4  # halvings of a step that does not bring columns nearer
NEAR = 0.25  # of a group: column sums that are so nearly right need not be righter before numbers are made whole
MOST_HALVINGS = 60
MANY = 8  # units are moved one by one where they are fewer than twice as many; else this part of them at once
MOST_CYCLES = 10_000
PRECISION = 1e-12  # of costs: what floats can tell apart


def nearest_table(target: Floats, weight: Floats, rows: Integers, columns: Integers) -> Integers:
    """The whole numbers `[rows, columns]`, 0 or more, nearest to `target`, with these sums of rows and of columns.

    >>> nearest_table(np.array([[2.4, 0.2], [1.3, 1.3]]), np.ones((2, 2)), np.array([3, 2]), np.array([4, 1]))
    array([[3, 0],
           [1, 1]])
    """
    if int(rows.sum()) != int(columns.sum()) or min(rows.min(), columns.min()) < 0:
        raise ValueError("rows and columns must add up to the same number, and none of them may be negative")
    found = np.empty(target.shape, dtype=np.int64)
    goal, precision = np.ascontiguousarray(target, np.float64), np.ascontiguousarray(weight, np.float64)
    _transport(goal, precision, rows.astype(np.int64), columns.astype(np.int64), found)
    return found


def settled_tables(mean: Floats, variance: Floats, tree: Hierarchy, sums: Integers) -> Integers:
    """Whole numbers `[rows of the tree, sizes]` by category, from the root of the regions down.

    `mean` and `variance` are what is believed of each row; `sums` `[regions, sizes]` are settled over all categories:
    whole, 0 or more, adding up over the regions. The result adds up over regions and, to `sums`, over categories.
    """
    if tree.by is None:
        raise ValueError("expected a tree by category")
    values = np.zeros(mean.shape, dtype=np.int64)
    values[0] = sums[0]
    weight = 1.0 / variance[1:].clip(1e-12)
    weight = np.concatenate([weight[:1], weight])  # the root's row is not asked for
    regions, sizes = tree.regions, mean.shape[1]
    for size in range(sizes):
        top = slice(1, 1 + len(tree.by))
        _allocate_row(mean[top, size].copy(), weight[top, size].copy(), int(sums[0, size]), values[top, size])
    for level in range(regions.depth - 1):
        parents, below = regions.level_slice(level), regions.level_slice(level + 1)
        starts = regions.child_starts[parents.start : parents.stop + 1] - below.start
        above = on_level(values, tree, level + 1)
        here = [on_level(each, tree, level + 2) for each in (values, mean, weight)]
        count = parents.stop - parents.start

        def work(start: int, stop: int, arrays: tuple[Any, ...] = (*here, above, sums[below], starts)) -> None:
            _families(*arrays, start, stop)  # type: ignore[call-arg]

        in_threads(work, blocks(count * sizes, max(1, count * sizes // 16)))
    return values


@kernel
def _families(
    values: Integers,
    mean: Floats,
    weight: Floats,
    above: Integers,
    sums: Integers,
    starts: Integers,
    start: int,
    stop: int,
) -> None:
    """Tables number `start` to `stop` of a level: one for each parent and size."""
    categories, _, sizes = values.shape
    for number in range(start, stop):
        parent, size = number // sizes, number % sizes
        first, last = starts[parent], starts[parent + 1]
        target, precision = np.empty((last - first, categories)), np.empty((last - first, categories))
        rows, columns = np.empty(last - first, np.int64), np.empty(categories, np.int64)
        found = np.empty((last - first, categories), np.int64)
        for child in range(last - first):
            rows[child] = sums[first + child, size]
            for category in range(categories):
                target[child, category] = mean[category, first + child, size]
                precision[child, category] = weight[category, first + child, size]
        for category in range(categories):
            columns[category] = above[category, parent, size]
        _transport(target, precision, rows, columns, found)
        for child in range(last - first):
            for category in range(categories):
                values[category, first + child, size] = found[child, category]


@kernel
def _transport(target: Floats, weight: Floats, rows: Integers, columns: Integers, found: Integers) -> None:
    prices = _prices(target, weight, rows, columns)
    count, width = target.shape
    shifted = np.empty((count, width))
    for row in range(count):
        for column in range(width):
            shifted[row, column] = target[row, column] + prices[column] / weight[row, column]
        _allocate_row(shifted[row], weight[row], rows[row], found[row])
    _right_columns(shifted, weight, columns, found)


@kernel
def _prices(target: Floats, weight: Floats, rows: Integers, columns: Integers) -> Floats:
    """Prices of the columns in real numbers, with rows right at each step, until columns are nearly right."""
    count, width = target.shape
    of_row, of_column, tried = np.zeros(count), np.zeros(width), np.zeros(width)
    gap, tried_gap = np.empty(width), np.empty(width)
    curve, step = np.empty((width, width)), np.empty(width)
    _gaps(target, weight, rows, columns, of_column, of_row, gap)
    for _ in range(MOST_TURNS):
        if np.max(np.abs(gap)) < NEAR:
            break
        _curvature(target, weight, of_column, of_row, curve)
        _solved(curve, gap, step)
        better, part = False, 1.0
        for _ in range(MOST_CUTS):
            for column in range(width):
                tried[column] = of_column[column] + part * step[column]
            _gaps(target, weight, rows, columns, tried, of_row, tried_gap)
            if np.sum(tried_gap**2) < 0.9 * np.sum(gap**2):
                better = True
                break
            part *= 0.5
        if better:
            of_column[:], gap[:] = tried, tried_gap
            continue
        _gaps(target, weight, rows, columns, of_column, of_row, gap)
        for column in range(width):
            of_column[column] = _price(target[:, column], weight[:, column], of_row, float(columns[column]))
        _gaps(target, weight, rows, columns, of_column, of_row, gap)
    most = 0.0  # prices beyond this say no more than this one, and cost precision
    for row in range(count):
        for column in range(width):
            most = max(most, weight[row, column] * (abs(target[row, column]) + rows[row]))
    for column in range(width):
        of_column[column] = min(max(of_column[column], -2.0 * most), 2.0 * most)
    return of_column


@kernel
def _gaps(
    target: Floats, weight: Floats, rows: Integers, columns: Integers, of_column: Floats, of_row: Floats, gap: Floats
) -> None:
    """What columns lack at these prices, with rows made right by prices of their own, which are put into `of_row`."""
    for column in range(len(columns)):
        gap[column] = columns[column]
    for row in range(len(rows)):
        of_row[row] = _price(target[row], weight[row], of_column, float(rows[row]))
        for column in range(len(columns)):
            gap[column] -= max(0.0, target[row, column] + (of_row[row] + of_column[column]) / weight[row, column])


@kernel
def _curvature(target: Floats, weight: Floats, of_column: Floats, of_row: Floats, curve: Floats) -> None:
    """How column sums change with columns' prices: Σ over rows of D − d dᵀ / Σ d, with d = 1 / weight where x > 0."""
    count, width = target.shape
    curve[:] = 0.0
    give = np.empty(width)
    for row in range(count):
        total = 0.0
        for column in range(width):
            inner = target[row, column] + (of_row[row] + of_column[column]) / weight[row, column] > 0.0
            give[column] = 1.0 / weight[row, column] if inner else 0.0
            total += give[column]
        if total > 0.0:
            for one in range(width):
                curve[one, one] += give[one]
                for two in range(width):
                    curve[one, two] -= give[one] * give[two] / total


@kernel
def _solved(curve: Floats, gap: Floats, step: Floats) -> None:
    """The step with curve · step = gap, nearly: what is not determined stays small. (Cholesky, within the matrix.)"""
    width = len(gap)
    largest = 0.0
    for one in range(width):
        largest = max(largest, curve[one, one])
    for one in range(width):
        curve[one, one] += 1e-9 * largest + 1e-300 if curve[one, one] > 1e-9 * largest else largest + 1e-300
        for two in range(one + 1):
            value = curve[one, two]
            for three in range(two):
                value -= curve[one, three] * curve[two, three]
            curve[one, two] = np.sqrt(max(value, 1e-300)) if one == two else value / curve[two, two]
    for one in range(width):
        value = gap[one]
        for two in range(one):
            value -= curve[one, two] * step[two]
        step[one] = value / curve[one, one]
    for one in range(width - 1, -1, -1):
        value = step[one]
        for two in range(one + 1, width):
            value -= curve[two, one] * step[two]
        step[one] = value / curve[one, one]


@kernel
def _price(target: Floats, weight: Floats, others: Floats, total: float) -> float:
    """The price p with Σ max(0, target + (others + p) / weight) = total; with total 0 the largest such p.

    The sum is piecewise linear, convex and rising in p; Newton's method from below a root overshoots once and then
    falls towards it, in as many steps as there are pieces at the most.
    """
    price = np.inf
    for place in range(len(target)):
        price = min(price, -target[place] * weight[place] - others[place])
    if total <= 0.0:
        return price
    slope, need = 0.0, total
    for place in range(len(target)):  # all cells positive: the line from which the first step is taken
        slope += 1.0 / weight[place]
        need -= target[place] + others[place] / weight[place]
    price = max(price, need / slope)
    for _ in range(MOST_HALVINGS):
        value, slope = 0.0, 0.0
        for place in range(len(target)):
            cell = target[place] + (others[place] + price) / weight[place]
            if cell > 0.0:
                value += cell
                slope += 1.0 / weight[place]
        if slope == 0.0:
            break
        step = (value - total) / slope
        price -= step
        if abs(step) <= 1e-12 * (1.0 + abs(price)):
            break
    return price


@kernel
def _allocate_row(target: Floats, weight: Floats, total: int, found: Integers) -> None:
    """The whole numbers, 0 or more, with this sum and the least Σ weight (x − target)²."""
    width = len(target)
    price, given = _price(target, weight, np.zeros(width), float(total)), 0
    for place in range(width):
        found[place] = int(max(0.0, np.floor(target[place] + price / weight[place]))) if total > 0 else 0
        given += found[place]
    while given != total:
        step, best, cheapest = 1 if given < total else -1, -1, np.inf
        for place in range(width):
            if step > 0 or found[place] > 0:
                cost = _step_cost(target[place], weight[place], found[place], step)
                if best < 0 or cost < cheapest:
                    best, cheapest = place, cost
        found[best] += step
        given += step
    if total == 0:
        return
    while True:
        more, less, cheapest, dearest = 0, -1, np.inf, np.inf
        for place in range(width):
            cost = _step_cost(target[place], weight[place], found[place], 1)
            if cost < cheapest:
                more, cheapest = place, cost
            if found[place] > 0:
                cost = _step_cost(target[place], weight[place], found[place], -1)
                if cost < dearest:
                    less, dearest = place, cost
        if more == less or cheapest + dearest >= -PRECISION * (abs(cheapest) + abs(dearest)):
            return
        found[more] += 1
        found[less] -= 1


@kernel
def _step_cost(target: float, weight: float, value: int, step: int) -> float:
    """What Σ weight (x − target)² grows by if the value grows by one, or falls by one."""
    return weight * (2.0 * step * (value - target) + 1.0)


@kernel
def _right_columns(target: Floats, weight: Floats, columns: Integers, found: Integers) -> None:
    """Move units between columns, within rows, until columns have their sums: along cheapest paths."""
    count, width = target.shape
    surplus = np.empty(width, np.int64)
    for column in range(width):
        surplus[column] = -columns[column]
        for row in range(count):
            surplus[column] += found[row, column]
    costs, by = np.empty((width, width)), np.empty((width, width), np.int64)
    stale, rough = np.ones(width, np.bool_), False
    length, before = np.empty(width), np.empty(width, np.int64)
    while np.any(surplus != 0):
        _refresh(target, weight, found, stale, costs, by)
        for column in range(width):
            length[column], before[column] = 0.0 if surplus[column] > 0 else np.inf, -1
        _lengths(costs, length, before)
        end, shortest = -1, np.inf
        for column in range(width):
            if surplus[column] < 0 and length[column] < shortest:
                end, shortest = column, length[column]
        start, steps = end, 0
        while before[start] >= 0 and steps < width:
            start = before[start]
            steps += 1
        if surplus[start] <= 0:  # costs beyond the precision of floats: the direct way, so that each turn rights a unit
            start = int(np.argmax(surplus))
            end = int(np.argmin(surplus))
            before[end], before[start] = start, -1
        most, here = min(surplus[start], -surplus[end]), end
        while here != start:
            most = min(most, found[by[before[here], here], before[here]])
            here = before[here]
        units = most // MANY if most >= 2 * MANY else 1
        rough = rough or units > 1
        here = end
        while here != start:
            row = by[before[here], here]
            found[row, here] += units
            found[row, before[here]] -= units
            stale[here] = True
            here = before[here]
        stale[start] = True
        surplus[end] += units
        surplus[start] -= units
    if rough:
        _cancel_cycles(target, weight, found, costs, by)


@kernel
def _cancel_cycles(target: Floats, weight: Floats, found: Integers, costs: Floats, by: Integers) -> None:
    """Move units around columns, within rows, as long as that gains: sums stay as they are."""
    width = target.shape[1]
    stale = np.ones(width, np.bool_)
    length, before = np.empty(width), np.empty(width, np.int64)
    for _ in range(MOST_CYCLES):
        _refresh(target, weight, found, stale, costs, by)
        length[:], before[:] = 0.0, -1
        last = _lengths(costs, length, before)
        if last < 0:
            return
        for _ in range(width):
            last = before[last]
        gain, curve, most, here = 0.0, 0.0, -1, last
        while True:
            row, there = by[before[here], here], before[here]
            gain += 2.0 * weight[row, here] * (found[row, here] - target[row, here])
            gain -= 2.0 * weight[row, there] * (found[row, there] - target[row, there])
            curve += weight[row, here] + weight[row, there]
            most = found[row, there] if most < 0 else min(most, found[row, there])
            here = there
            if here == last:
                break
        units = min(most, max(1, int(min(-gain / (2.0 * curve), 1e15))))
        if units < 1 or units * gain + float(units) ** 2 * curve >= 0.0:
            return
        while True:
            row = by[before[here], here]
            found[row, here] += units
            found[row, before[here]] -= units
            stale[here] = True
            here = before[here]
            if here == last:
                break


@kernel
def _refresh(target: Floats, weight: Floats, found: Integers, stale: Any, costs: Floats, by: Integers) -> None:
    for here in range(len(stale)):
        for there in range(len(stale)):
            if here != there and (stale[here] or stale[there]):
                _cheapest(target, weight, found, here, there, costs, by)
    stale[:] = False


@kernel
def _lengths(costs: Floats, length: Floats, before: Integers) -> int:
    """Cheapest paths, as Bellman and Ford find them; -1, or a column that a cycle of negative cost leads to."""
    width = len(length)
    last = -1
    for _ in range(width):
        last = -1
        for here in range(width):
            for there in range(width):
                if here != there and length[here] + costs[here, there] < length[there] - PRECISION * (
                    abs(costs[here, there]) + abs(length[here])
                ):
                    length[there], before[there] = length[here] + costs[here, there], here
                    last = there
        if last < 0:
            return last
    return last


@kernel
def _cheapest(
    target: Floats, weight: Floats, found: Integers, here: int, there: int, costs: Floats, by: Integers
) -> None:
    """The row that a unit goes from one column to another in at the least cost."""
    best, cheapest = -1, np.inf
    for row in range(target.shape[0]):
        if found[row, here] > 0:
            cost = _step_cost(target[row, here], weight[row, here], found[row, here], -1) + _step_cost(
                target[row, there], weight[row, there], found[row, there], 1
            )
            if cost < cheapest:
                best, cheapest = row, cost
    costs[here, there], by[here, there] = cheapest, best
