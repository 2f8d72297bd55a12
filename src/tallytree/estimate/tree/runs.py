"""Which of a parent's groups is which of its children's: matching on runs of equal sizes, never group by group.

Algorithm 2 of Kuo, Chiu, Kifer, Hay and Machanavajjhala (Section 5.2): the parent's smallest group is matched with the
smallest of all children's groups, the next with the next, and so on. Groups of one size in one region cannot be
distinguished, so a run (a size, and how many groups have it) stands for all of them, and everything here is counted in
runs: `pairs` matches the parent's runs with those of all children together, `share` divides a pair among the children.
The kernels number sizes from zero, as columns.

Σ |parent's size − child's size| over all groups is the least there is: matching in order of size crosses no two pairs,
and uncrossing s ≤ s', t ≤ t' never costs, |s − t| + |s' − t'| ≤ |s − t'| + |s' − t|. Which of the equal groups are
meant, and in which child, costs nothing.
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.kernels import kernel

GROUP_LIMIT = 1 << 50  # `share` is exact up to here


@kernel
def pairs(parent: Integers, together: Integers) -> Integers:
    """Rows (parent's size, children's size, groups): the smallest with the smallest, until no group is left.

    `parent` and `together` are counts by size with equal sums. Each row uses up a run of one side or of both, so there
    are fewer rows than runs.
    """
    sizes = len(parent)
    rows = np.empty((np.count_nonzero(parent) + np.count_nonzero(together), 3), dtype=np.int64)
    found, above, below, size, child_size = 0, np.int64(0), np.int64(0), -1, -1
    while True:
        while above == 0 and size + 1 < sizes:
            size += 1
            above = parent[size]
        while below == 0 and child_size + 1 < sizes:
            child_size += 1
            below = together[child_size]
        groups = min(above, below)
        if groups == 0:
            return rows[:found]
        rows[found, 0], rows[found, 1], rows[found, 2] = size, child_size, groups
        found += 1
        above -= groups
        below -= groups


@kernel
def runs_by_size(children: Integers) -> tuple[Integers, Integers, Integers, Integers]:
    """The runs of `children` (children, sizes), all of the smallest size first, in the children's order within a size.

    Gives where each size's runs start (and the last one's end), each run's child, each run's groups, and the groups of
    all children together by size.
    """
    count, sizes = children.shape
    starts, together = np.zeros(sizes + 1, dtype=np.int64), np.zeros(sizes, dtype=np.int64)
    runs = np.zeros(count, dtype=np.int64)  # of each child
    for child in range(count):
        row, found = children[child], 0
        for size in range(sizes):
            together[size] += row[size]
            starts[size + 1] += row[size] != 0
            found += row[size] != 0
        runs[child] = found
    for size in range(sizes):
        starts[size + 1] += starts[size]
    owners, groups = np.empty(starts[sizes], dtype=np.int64), np.empty(starts[sizes], dtype=np.int64)
    places = starts[:sizes].copy()
    for child in range(count):
        size = 0
        while runs[child] > 0:
            if children[child, size] != 0:
                owners[places[size]], groups[places[size]] = child, children[child, size]
                places[size] += 1
                runs[child] -= 1
            size += 1
    return starts, owners, groups, together


@kernel
def share(
    left: Integers, owners: Integers, together: int, groups: int, turn: int, parts: Integers, scratch: Integers
) -> int:
    """Divide `groups` of the `together` groups of one size among runs that still hold `left`, in proportion to it.

    Writes `parts`, takes them off `left` and returns whose turn is next. Parts are the proportions rounded down, and
    one more for the largest remainders until they add up to `groups` (the paper's footnote 10). Among equal remainders
    the child whose turn it is comes first, then those after it, round and round; the turn passes to the child after
    the one served last. So where the same children are level every time, none is ever more than one group ahead.

    No part exceeds what is left: if groups < together, the proportion of a run lies below its `left`, also rounded up,
    and only a remainder above zero is rounded up (remainders are below one, so more of them are positive than there
    are groups to hand out).

    Exact: up to GROUP_LIMIT the float proportion, rounded twice, is off by a relative 2⁻⁵² or hardly more, so by less
    than one in all, and `whole` is at most one off. The true remainder for it then lies within −together … 2·together,
    and 64-bit products that wrap around give it exactly.
    """
    count = len(left)
    if groups == together:
        parts[:count] = left
        left[:] = 0
        return turn
    ratio = groups / together
    missing = groups
    rests, ranked = scratch[0], scratch[1]
    for run in range(count):
        whole = np.int64(left[run] * ratio)
        rest = left[run] * groups - whole * together
        if rest < 0:
            whole, rest = whole - 1, rest + together
        elif rest >= together:
            whole, rest = whole + 1, rest - together
        parts[run], rests[run], ranked[run] = whole, rest, rest
        missing -= int(whole)
    if missing > 0:
        least = _largest(ranked, count, missing)
        first = count
        for run in range(count):
            if rests[run] > least:
                parts[run] += 1
                missing -= 1
            if owners[run] >= turn and first == count:
                first = run
        for step in range(count):
            if missing == 0:
                break
            run = first + step if first + step < count else first + step - count
            if rests[run] == least:
                parts[run] += 1
                missing -= 1
                turn = int(owners[run]) + 1
    for run in range(count):
        left[run] -= parts[run]
    return turn


@kernel
def _largest(values: Integers, count: int, rank: int) -> int:
    """The `rank`-th largest (1 is the largest) of the first `count` values, which it reorders: Hoare's selection."""
    place, low, high = rank - 1, 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        up, down = low, high
        while up <= down:
            while values[up] > pivot:
                up += 1
            while values[down] < pivot:
                down -= 1
            if up <= down:
                values[up], values[down] = values[down], values[up]
                up += 1
                down -= 1
        if place <= down:
            high = down
        elif place >= up:
            low = up
        else:
            break
    value: int = values[place]
    return value
