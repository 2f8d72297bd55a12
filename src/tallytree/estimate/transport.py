"""Find the integer table with given row and column sums that is nearest to given numbers, exactly.

A table holds a family's children (rows) by category (columns), for one size. The sum of each child over all categories
is known, and so is the parent's count in each category. Among all integer tables x ≥ 0 with these sums, the wanted one
has the least Σ w (x − y)². It always exists if row sums and column sums have the same total.

*Multipliers.* In real numbers the nearest table is x = max(0, y + (a_row + b_column) / w) for multipliers a and b that
give the required sums. Given b, each a follows from its row alone. So the deficit of the columns is a function of b,
and Newton's method finds its zero. If a Newton step does not help, all b are set so that the columns have their sums
with the current a (block ascent of the dual). Newton's method has no direction for a column whose positive cells are
alone in their rows: its curvature is 0, and the block ascent moves it.

*How far multipliers matter.* The slope w (x − y) of a cell's cost lies between −m and m, m = max w (|y| + its row's
sum). If b_j − b_k > 2 m, every row fills column j before column k, for any such difference. So differences of
neighbours, in the order of the multipliers, are cut to 2 m: no row changes, and no digits are lost to huge multipliers.

*Integers.* Given multipliers, each row takes its integers at the least cost: units move between two of its cells as
long as that gains. For convex costs this ends at the optimum. Then no exchange within a row gains, and so no cycle of
exchanges over several rows does: the table is nearest for the column sums that it has. The surplus of columns then
moves, unit by unit and along the cheapest path of exchanges, to columns with a deficit (successive shortest paths, with
one node for each column). Each step keeps the table nearest for its column sums, so the last table is nearest for the
required sums. A column with a surplus has a row to take from, so a path exists each time. Good multipliers leave few
units to move. If many units remain (noise far above all counts), several move at once. Last, cycles of exchanges that
gain are cancelled: a table without such cycles is nearest.

*Bounds.* Every loop ends after a number of steps that is known before it begins. Row sums are correct from the first
integers on, and `_right_columns` ends with correct column sums. Beyond its bound it moves units directly, each time as
many as it can, which empties a cell, a surplus or a deficit. After `MOST_CYCLES` cycles the table is returned: its sums
are correct, and it is nearly the nearest one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy

MOST_TURNS = 100
MOST_CUTS = 4  # halvings of a step that does not bring columns nearer
NEAR = 0.25  # of a group: column sums this close are close enough before rounding to integers
MANY = 8  # below twice this number, units move one by one; otherwise this part of them moves at once
MOST_PATHS = 10_000  # and one for each cell: shortest paths, before units move directly
MOST_EXCHANGES = 10_000  # within a row
MOST_CYCLES = 10_000
FLAT = 1e-9  # part of a column's curvature that is added to it, and the least pivot
PRECISION = 1e-12  # relative: the least difference of costs that floats can distinguish


class Table(NamedTuple):
    """The target of a table and its row and column sums, which have the same total."""

    target: Floats  # `[rows, columns]`
    weight: Floats
    rows: Integers
    columns: Integers


def allocate_tables(mean: Floats, variance: Floats, tree: Hierarchy, sums: Integers) -> Integers:
    """Return integers `[rows of the tree, sizes]` by category, from the root of the regions down.

    `mean` and `variance` are the posterior of each row; `sums` `[regions, sizes]` are those over all categories:
    integers, 0 or more, adding up over the regions. The result adds up over regions and, to `sums`, over categories.
    """
    if not tree.by.columns:
        raise ValueError("expected a tree by category")
    values = np.zeros(mean.shape, dtype=np.int64)
    values[0] = sums[0]
    weight = 1.0 / variance[1:].clip(1e-12)
    weight = np.concatenate([weight[:1], weight])  # the root's row is not needed
    regions, sizes = tree.regions, mean.shape[1]
    for size in range(sizes):
        top = slice(1, 1 + len(tree.by))
        _allocate_row(mean[top, size].copy(), weight[top, size].copy(), int(sums[0, size]), values[top, size])
    for level in range(regions.depth - 1):
        parents, below = regions.level_slice(level), regions.level_slice(level + 1)
        starts = regions.child_starts[parents.start : parents.stop + 1] - below.start
        above = tree.on_level(values, level + 1)
        target, weights, found = (tree.on_level(each, level + 2) for each in (mean, weight, values))
        level_sums = _Sums(sums[below], above, starts)
        count = (parents.stop - parents.start) * sizes
        in_threads(partial(_allocate_level, target, weights, level_sums, found), blocks(count, max(1, count // 16)))
    return values


def allocate_counts(
    mean: Floats,
    deviation: Floats,
    tree: Hierarchy,
    totals: Integers,
    *,
    top: Integers | None = None,
    through: int | None = None,
    tell: Tell = nobody,
) -> Integers:
    """Return counts `[regions, sizes]` near `mean`: 0 or more, adding up, each row with its region's total.

    The totals add up. The counts of a family are the table of its children by size that is nearest in squares of
    standard deviations, with the children's totals and the parent's counts as its sums. `top`, `through` and `tell` are
    those of `allocation.allocate_rows`.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> allocate_counts(np.array([[6.2, 5.0], [2.4, 3.0], [3.1, -2.0]]), np.ones((3, 2)), tree, np.array([10, 7, 3]))
    array([[6, 4],
           [3, 4],
           [3, 0]])
    """
    through = tree.depth - 1 if through is None else through
    values = np.empty((tree.level_slice(through).stop, mean.shape[1]), dtype=np.int64)
    if top is None:
        top = np.empty((1, mean.shape[1]), dtype=np.int64)
        _allocate_row(mean[0].copy(), 1.0 / deviation[0] ** 2, int(totals[0]), top[0])
    values[: len(top)] = top
    for level in range(int(np.searchsorted(tree.level_starts, len(top))) - 1, through):
        parents, below = tree.level_slice(level), tree.level_slice(level + 1)
        starts = tree.child_starts[parents.start : parents.stop + 1] - below.start
        target, weight = (np.ascontiguousarray(each[below].T)[..., np.newaxis] for each in (mean, deviation))
        sums = _Sums(totals[below, np.newaxis], np.ascontiguousarray(values[parents].T)[..., np.newaxis], starts)
        found, count = np.empty(target.shape, np.int64), parents.stop - parents.start
        work = partial(_allocate_level, target, 1.0 / weight**2, sums, found)
        in_threads(work, blocks(count, max(1, count // 16)), tell if level == tree.depth - 2 else nobody)
        values[below] = found[..., 0].T
    return values


class _Sums(NamedTuple):
    """The sums that the tables of a level keep: one table for each parent and the last axis."""

    rows: Integers  # `[regions, sizes]`, over all categories
    columns: Integers  # `[categories, parents, sizes]`
    starts: Integers  # where the children of each parent begin


@kernel
def _allocate_level(mean: Floats, weight: Floats, sums: _Sums, values: Integers, start: int, stop: int) -> None:
    """Allocate the tables number `start` to `stop` of a level: one for each parent and size."""
    categories, _, sizes = values.shape
    for number in range(start, stop):
        parent, size = number // sizes, number % sizes
        first, last = sums.starts[parent], sums.starts[parent + 1]
        shape = last - first, categories
        rows, columns = np.empty(last - first, np.int64), np.empty(categories, np.int64)
        table, found = Table(np.empty(shape), np.empty(shape), rows, columns), np.empty(shape, np.int64)
        for child in range(last - first):
            rows[child] = sums.rows[first + child, size]
            for category in range(categories):
                table.target[child, category] = mean[category, first + child, size]
                table.weight[child, category] = weight[category, first + child, size]
        for category in range(categories):
            columns[category] = sums.columns[category, parent, size]
        find_nearest_table(table, found)
        for child in range(last - first):
            for category in range(categories):
                values[category, first + child, size] = found[child, category]


@kernel
def find_nearest_table(table: Table, found: Integers) -> None:
    """Write the integers nearest to a table's target that have its sums of rows and columns."""
    target, weight, rows, _ = table
    multipliers = _column_multipliers(table)
    count, width = target.shape
    shifted = np.empty(width)
    for row in range(count):
        for column in range(width):
            shifted[column] = target[row, column] + multipliers[column] / weight[row, column]
        _allocate_row(shifted, weight[row], rows[row], found[row])
    _right_columns(table, found)


@kernel
def _column_multipliers(table: Table) -> Floats:
    """Return real multipliers of the columns that make column sums nearly correct; rows are correct at each step."""
    target, weight, rows, columns = table
    count, width = target.shape
    of_row, of_column, tried = np.zeros(count), np.zeros(width), np.zeros(width)
    gap, tried_gap = np.empty(width), np.empty(width)
    curve, step = np.empty((width, width)), np.empty(width)
    _gaps(table, of_column, of_row, gap)
    for _ in range(MOST_TURNS):
        if np.max(np.abs(gap)) < NEAR:
            break
        _curvature(table, of_column, of_row, curve)
        _newton_step(curve, gap, step)
        better, part = False, 1.0
        for _ in range(MOST_CUTS):
            for column in range(width):
                tried[column] = of_column[column] + part * step[column]
            _gaps(table, tried, of_row, tried_gap)
            if np.sum(tried_gap**2) < 0.9 * np.sum(gap**2):
                better = True
                break
            part *= 0.5
        if better:
            of_column[:], gap[:] = tried, tried_gap
            continue
        _gaps(table, of_column, of_row, gap)
        for column in range(width):
            of_column[column] = _row_multiplier(target[:, column], weight[:, column], of_row, float(columns[column]))
        _gaps(table, of_column, of_row, gap)
    most = 0.0
    for row in range(count):
        for column in range(width):
            most = max(most, weight[row, column] * (abs(target[row, column]) + rows[row]))
    return _close_up(of_column, 2.0 * most)


@kernel
def _close_up(given: Floats, most: float) -> Floats:
    """Return the multipliers in the same order, neighbours at most `most` apart, with 0 in the middle of the range."""
    found, low, height = np.zeros(len(given)), float(np.min(given)), 0.0
    for _ in range(len(given)):  # find the next higher one each time, instead of sorting
        after = np.inf
        for place in range(len(given)):
            if low < given[place] < after:
                after = given[place]
        if after == np.inf:
            break
        height += min(after - low, most)
        for place in range(len(given)):
            if given[place] == after:
                found[place] = height
        low = after
    return found - 0.5 * height


@kernel
def _gaps(table: Table, of_column: Floats, of_row: Floats, gap: Floats) -> None:
    """Write the deficits of the columns at these multipliers; write the rows' own multipliers into `of_row`."""
    target, weight, rows, columns = table
    for column in range(len(columns)):
        gap[column] = columns[column]
    for row in range(len(rows)):
        of_row[row] = _row_multiplier(target[row], weight[row], of_column, float(rows[row]))
        for column in range(len(columns)):
            gap[column] -= max(0.0, target[row, column] + (of_row[row] + of_column[column]) / weight[row, column])


@kernel
def _curvature(table: Table, of_column: Floats, of_row: Floats, curve: Floats) -> None:
    """Write how column sums change with column multipliers: Σ over rows of D − d dᵀ / Σ d, d = 1 / weight where x > 0.

    Each row of the matrix adds up to 0. So the diagonal is the negative sum of the other entries, where nothing
    cancels.
    """
    target, weight = table.target, table.weight
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
                for two in range(one):
                    shared = give[one] * (give[two] / total)
                    curve[one, two] -= shared
                    curve[two, one] -= shared
                    curve[one, one] += shared
                    curve[two, two] += shared


@kernel
def _newton_step(curve: Floats, gap: Floats, step: Floats) -> None:
    """Write the step with curve · step = gap, nearly, by in-place Cholesky; 0 for columns without curvature.

    The matrix is scaled to a diagonal of 1 + FLAT, so weights of any magnitude behave alike. Its other eigenvalues are
    at least FLAT, and so are its pivots: a step is no longer than gap / (FLAT · curvature).
    """
    width = len(gap)
    scale = np.empty(width)
    for one in range(width):
        scale[one] = 1.0 / np.sqrt(curve[one, one]) if curve[one, one] > 0.0 else 0.0
    for one in range(width):
        for two in range(one + 1):
            value = 1.0 + FLAT if one == two else curve[one, two] * scale[one] * scale[two]
            for three in range(two):
                value -= curve[one, three] * curve[two, three]
            curve[one, two] = np.sqrt(max(value, FLAT)) if one == two else value / curve[two, two]
    for one in range(width):
        value = gap[one] * scale[one]
        for two in range(one):
            value -= curve[one, two] * step[two]
        step[one] = value / curve[one, one]
    for one in range(width - 1, -1, -1):
        value = step[one]
        for two in range(one + 1, width):
            value -= curve[two, one] * step[two]
        step[one] = value / curve[one, one]
    for one in range(width):
        step[one] *= scale[one]


@kernel
def _row_multiplier(target: Floats, weight: Floats, others: Floats, total: float) -> float:
    """Return the multiplier p with Σ max(0, target + (others + p) / weight) = total; with total 0 the largest such p.

    The sum is piecewise linear, convex and rising in p, so Newton's method falls towards the root from any point above
    it, and each step but the last leaves a piece behind: there are at most as many steps as pieces. Two points lie
    above the root: the p at which one cell alone has the total, and the root of the line on which all cells are
    positive.
    """
    lowest, highest, slope, need = np.inf, np.inf, 0.0, total
    for place in range(len(target)):
        lowest = min(lowest, -target[place] * weight[place] - others[place])
        highest = min(highest, (total - target[place]) * weight[place] - others[place])
        slope += 1.0 / weight[place]
        need -= target[place] + others[place] / weight[place]
    if total <= 0.0:
        return lowest
    found = max(lowest, min(highest, need / slope))
    for _ in range(len(target) + 2):
        value, slope = 0.0, 0.0
        for place in range(len(target)):
            cell = target[place] + (others[place] + found) / weight[place]
            if cell > 0.0:
                value += cell
                slope += 1.0 / weight[place]
        if slope == 0.0:  # only where the line's root was rounded down
            found = highest
            continue
        step = (value - total) / slope
        found -= step
        if step <= 1e-14 * abs(found):  # at the root, or below it by rounding
            break
    return found


@kernel
def _allocate_row(target: Floats, weight: Floats, total: int, found: Integers) -> None:
    """Write the non-negative integers with this sum and the least Σ weight (x − target)².

    Rounding down from the multiplier leaves less than one unit per cell to give. Floats leave more if targets are far
    larger than the total; then several units are given at once, a part of the remainder each time.
    """
    width = len(target)
    multiplier, left = _row_multiplier(target, weight, np.zeros(width), float(total)), total
    for place in range(width):
        value = np.floor(target[place] + multiplier / weight[place])
        found[place] = int(min(max(value, 0.0), float(left)))
        left -= found[place]
    if total == 0:
        return
    while left > 0:  # bound: `left` falls each time, by its share of the cells at least
        best, cheapest = 0, np.inf
        for place in range(width):
            cost = _step_cost(target[place], weight[place], found[place], 1)
            if cost < cheapest:
                best, cheapest = place, cost
        units = max(1, left // (2 * width))
        found[best] += units
        left -= units
    for _ in range(MOST_EXCHANGES):
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
    """Return the change of Σ weight (x − target)² if the value grows by one, or falls by one."""
    return weight * (2.0 * step * (value - target) + 1.0)


@kernel
def _right_columns(table: Table, found: Integers) -> None:
    """Move units between columns, within rows, along cheapest paths, until columns have their sums."""
    count, width = found.shape
    surplus = np.empty(width, np.int64)
    for column in range(width):
        surplus[column] = -table.columns[column]
        for row in range(count):
            surplus[column] += found[row, column]
    costs, by = np.empty((width, width)), np.empty((width, width), np.int64)
    stale = np.ones(width, np.bool_)
    length, before = np.empty(width), np.empty(width, np.int64)
    paths, most_paths = 0, MOST_PATHS + count * width
    while np.any(surplus != 0):  # bound: `most_paths`, and then each turn empties a cell, a surplus or a gap
        _refresh(table, found, stale, costs, by)
        for column in range(width):
            length[column], before[column] = 0.0 if surplus[column] > 0 else np.inf, -1
        _lengths(costs, length, before)
        end, shortest = -1, np.inf
        for column in range(width):
            if surplus[column] < 0 and length[column] < shortest:
                end, shortest = column, length[column]
        start = end
        for _ in range(width if end >= 0 else 0):
            if before[start] < 0:
                break
            start = before[start]
        direct = paths >= most_paths or end < 0 or surplus[start] <= 0 or before[start] >= 0
        if direct:  # also if costs exceed the precision of floats, so that each turn corrects a unit
            start, end = int(np.argmax(surplus)), int(np.argmin(surplus))
            before[end], before[start] = start, -1
        paths += 1
        most, here = min(surplus[start], -surplus[end]), end
        for _ in range(width):
            if here == start:
                break
            most = min(most, found[by[before[here], here], before[here]])
            here = before[here]
        units = most // MANY if most >= 2 * MANY and not direct else most if direct else 1
        _move_units(found, units, end, start, before, by, stale)
        surplus[end] += units
        surplus[start] -= units
    _cancel_cycles(table, found, costs, by)


@kernel
def _cancel_cycles(table: Table, found: Integers, costs: Floats, by: Integers) -> None:
    """Move units around columns, within rows, as long as that gains; all sums stay the same."""
    target, weight, width = table.target, table.weight, found.shape[1]
    stale = np.ones(width, np.bool_)
    length, before = np.empty(width), np.empty(width, np.int64)
    for _ in range(MOST_CYCLES):
        _refresh(table, found, stale, costs, by)
        length[:], before[:] = 0.0, -1
        last = _lengths(costs, length, before)
        if last < 0:
            return
        for _ in range(width):  # back into the cycle
            last = before[last] if before[last] >= 0 else last
        if before[last] < 0:  # no cycle: rounding
            return
        gain, curve, most, here = 0.0, 0.0, -1, last
        for _ in range(width):
            row, there = by[before[here], here], before[here]
            gain += 2.0 * weight[row, here] * (found[row, here] - target[row, here])
            gain -= 2.0 * weight[row, there] * (found[row, there] - target[row, there])
            curve += weight[row, here] + weight[row, there]
            most = found[row, there] if most < 0 else min(most, found[row, there])
            here = there
            if here == last:
                break
        units = min(most, max(1, int(min(-gain / (2.0 * curve), 1e15))))
        if here != last or units < 1 or units * gain + float(units) ** 2 * curve >= 0.0:
            return
        _move_units(found, units, last, last, before, by, stale)


@kernel
def _move_units(found: Integers, units: int, end: int, start: int, before: Integers, by: Integers, stale: Any) -> None:
    """Move units to the column `end` along the path from `start`, or around the cycle."""
    here = end
    for _ in range(len(before)):
        row = by[before[here], here]
        found[row, here] += units
        found[row, before[here]] -= units
        stale[here] = True
        here = before[here]
        if here == start:
            break
    stale[start] = True


@kernel
def _refresh(table: Table, found: Integers, stale: Any, costs: Floats, by: Integers) -> None:
    """Find the row in which moving a unit between two columns costs least, where either column is stale."""
    target, weight = table.target, table.weight
    for here in range(len(stale)):
        for there in range(len(stale)):
            if here == there or not (stale[here] or stale[there]):
                continue
            best, cheapest = -1, np.inf
            for row in range(len(found)):
                if found[row, here] > 0:
                    cost = _step_cost(target[row, here], weight[row, here], found[row, here], -1)
                    cost += _step_cost(target[row, there], weight[row, there], found[row, there], 1)
                    if cost < cheapest:
                        best, cheapest = row, cost
            costs[here, there], by[here, there] = cheapest, best
    stale[:] = False


@kernel
def _lengths(costs: Floats, length: Floats, before: Integers) -> int:
    """Find the cheapest paths by Bellman–Ford; return -1, or a column that a cycle of negative cost leads to."""
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
