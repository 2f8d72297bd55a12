"""The slow twin of matching: every group is listed, and all arithmetic is in fractions. Small cases only."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import floor

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy

Pair = tuple[int, int, int]  # the parent's size, the child, the child's size


def listed(counts: Integers) -> list[int]:
    """Each size as often as there are groups of it, ascending."""
    return [size for size, groups in enumerate(counts.tolist()) for _ in range(groups)]


def group_pairs(parent: list[int], children: list[list[int]]) -> list[Pair]:
    """Algorithm 2 as printed, one pair per group; proportions by largest remainder, equal ones in turn."""
    top = sorted(parent)
    bottom = sorted((size, child) for child, sizes in enumerate(children) for size in sizes)
    found: list[Pair] = []
    turn = 0
    while top:
        size, child_size = top[0], bottom[0][0]
        above = [group for group in top if group == size]
        below = [child for group, child in bottom if group == child_size]
        holding = Counter(below)
        if len(above) >= len(below):
            parts = dict(holding)
        else:
            parts, turn = proportional(holding, len(above), len(children), turn)
        for child, groups in parts.items():
            for _ in range(groups):
                found.append((size, child, child_size))
                top.remove(size)
                bottom.remove((child_size, child))
    return found


def proportional(holding: Counter[int], groups: int, children: int, turn: int) -> tuple[dict[int, int], int]:
    """Divide `groups` in proportion to what each child holds; who is next in turn afterwards."""
    exact = {child: Fraction(groups * held, holding.total()) for child, held in holding.items()}
    parts = {child: floor(share) for child, share in exact.items()}
    missing = groups - sum(parts.values())
    ranked = sorted(exact, key=lambda child: (parts[child] - exact[child], (child - turn) % children))
    least = max((parts[child] - exact[child] for child in ranked[:missing]), default=None)
    for child in ranked[:missing]:
        if parts[child] - exact[child] == least:
            turn = child + 1
    for child in ranked[:missing]:
        parts[child] += 1
    return parts, turn


def slow_matched(counts: Integers, hierarchy: Hierarchy, spreads: list[int], weighted: bool) -> Integers:
    """Algorithm 1, group by group: sizes and precisions of every group of every region."""
    sizes = counts.shape[1]
    merged: dict[int, list[tuple[int, Fraction]]] = {0: independent(counts[0], spreads[0])}
    for region in range(int(hierarchy.level_starts[-2])):
        children = hierarchy.children_of(region)
        spread = spreads[hierarchy.level_of[region] + 1]
        precision_above = dict(merged[region])  # one precision for all groups of a size
        below = [dict(independent(counts[child], spread)) for child in children]
        found: list[list[tuple[int, Fraction]]] = [[] for _ in children]
        pairs = group_pairs([size for size, _ in merged[region]], [listed(counts[child]) for child in children])
        for size, child, child_size in pairs:
            above, own = precision_above[size], below[child][child_size]
            share = own / (above + own) if weighted else Fraction(1, 2)
            average = (1 - share) * size + share * child_size
            found[child].append((floor(average + Fraction(1, 2)), above + own))
        for place, child in enumerate(children):
            merged[child] = pooled(found[place])
    leaves = np.zeros((hierarchy.leaf_count, sizes), dtype=np.int64)
    for place in range(hierarchy.leaf_count):
        for size, _ in merged[int(hierarchy.level_starts[-2]) + place]:
            leaves[place, size] += 1
    return hierarchy.aggregate(leaves)


def independent(counts: Integers, spread: int) -> list[tuple[int, Fraction]]:
    """Every group's size with the precision of its run: how many groups there are of it, over the spread."""
    return [(size, Fraction(int(counts[size])) / Fraction(spread)) for size in listed(counts)]


def pooled(groups: list[tuple[int, Fraction]]) -> list[tuple[int, Fraction]]:
    """The same sizes, each group with the mean precision of all groups of its size."""
    count = Counter(size for size, _ in groups)
    sums: dict[int, Fraction] = {}
    for size, precision in groups:
        sums[size] = sums.get(size, Fraction(0)) + precision
    return [(size, sums[size] / count[size]) for size, _ in groups]
