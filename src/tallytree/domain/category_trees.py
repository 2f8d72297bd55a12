"""Trees by category: all → category → the regions of that category, and the way back to the regions.

Categories partition the groups, so a tree whose root has a child for each category is an ordinary hierarchy: what adds
up, is measured and is settled on any tree is so on this one. Below the root each level has the regions of one level of
the region tree once for each category, category by category; so an array of a level is `[categories, regions, …]`.
Tables over all categories are sums of it. Without categories the tree is that of the regions, with one cell for each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import visible
from tallytree.domain.categories import Categories, margins
from tallytree.domain.hierarchy import Hierarchy

TOP = "all categories"
MOST_ROWS = 1 << 31


def by_category(regions: Hierarchy, categories: Categories) -> Hierarchy:
    """The tree of regions by category, with the whole over all categories at its root.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> by = Categories.of({"tenure": ["owned", "rented"]}, "group")
    >>> by_category(tree, by)
    Hierarchy(all categories 1 → total 2 → state 4)
    >>> by_category(tree, by).ids[3:]
    ('GA [owned]', 'NY [owned]', 'GA [rented]', 'NY [rented]')
    """
    if regions.by.columns:
        raise SpecError("these regions are told apart by categories already")
    if not categories.columns:
        return regions
    count, cells = len(categories), np.diff(regions.level_starts)
    if count * len(regions) >= MOST_ROWS:
        raise SpecError(f"there are {count * len(regions):,} regions times categories, more than can be handled")
    top = TOP
    while top in regions.levels:
        top += "*"
    names, ids, parents, carried = [regions.names[0]], [regions.ids[0]], [-1], [False]
    starts = np.concatenate([[1], 1 + count * np.cumsum(cells)])  # of the tree's levels below its root
    above_start = 0
    for level in range(regions.depth):
        rows = regions.level_slice(level)
        above = regions.parents[rows] - (0 if level == 0 else regions.level_starts[level - 1])
        per_level = 0 if level == 0 else int(cells[level - 1])
        for place, label in enumerate(categories.labels):
            names += [f"{name}, {label}" for name in regions.names[rows]]
            ids += [f"{region} [{label}]" for region in regions.ids[rows]]
            parents += [0] * len(above) if level == 0 else (above_start + place * per_level + above).tolist()
            carried += regions.carried[rows].tolist()
        above_start = int(starts[level])
    tree = Hierarchy.from_layout((top, *regions.levels), names, ids, parents, carried)
    return replace(tree, by=categories, without=regions)


def levels_in_words(tree: Hierarchy) -> str:
    """How many regions each level has, and by what they are told apart.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> levels_in_words(by_category(tree, Categories.of({"tenure": ["owned", "rented"]}, "group")))
    'total 1 → state 2, by tenure (2 values)'
    """
    told = tree.regions.counts_in_words()
    by = [f"{visible(column.name)} ({len(column.values)} values)" for column in tree.by.columns]
    return f"{told}, by {' and '.join(by)}" if by else told


def over_categories(values: NDArray[Any], tree: Hierarchy) -> NDArray[Any]:
    """Sums `[regions, …]` over all categories, of values `[rows of the tree, …]`."""
    if tree.regions is tree:
        return values
    return np.concatenate([on_level(values, tree, level).sum(axis=0) for level in range(tree.first_level, tree.depth)])


def on_level(values: NDArray[Any], tree: Hierarchy, level: int) -> NDArray[Any]:
    """The values of a level of regions as `[categories, regions of that level, …]`."""
    if level < tree.first_level:
        raise ValueError("expected a level of regions, below the root over all categories")
    rows = values[tree.level_slice(level)]
    return rows.reshape(len(tree.by), -1, *values.shape[1:])


def margin_sums(values: NDArray[Any], tree: Hierarchy) -> NDArray[Any]:
    """Sums `[margins × regions, …]` over the cells of every margin (see `categories.margins`), margin by margin.

    Without categories there is nothing to sum over, and no sum.
    """
    levels = [on_level(values, tree, level) for level in range(tree.first_level, tree.depth)]
    sums = [level[list(margin.cells)].sum(axis=0) for margin in margins(tree.by) for level in levels]
    return np.concatenate([values[:0], *sums])


def rows_of(tree: Hierarchy) -> Integers:
    """The tree's row of every region and category, `[regions, categories]`."""
    regions, count = tree.regions, len(tree.by)
    found = np.empty((len(regions), count), dtype=np.int64)
    for level in range(regions.depth):
        rows = tree.level_slice(level + tree.first_level)
        found[regions.level_slice(level)] = np.arange(rows.start, rows.stop).reshape(count, -1).T
    return found
