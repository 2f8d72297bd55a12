"""All small data sets and all their neighbours, straight from the definitions: no formula of `tallytree.privacy` used.

A data set is the sum of quantities of each of three groups, two in one leaf and one in the other; the regions form a
tree of three levels. A group without entities has sum 0: with a public list of groups it is there with size 0, without
one it is not there at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import numpy as np

from tallytree.domain.hierarchy import Hierarchy

LEAF_OF_GROUP = (0, 0, 1)
TREE = Hierarchy.from_levels({"state": ["A", "B"], "county": ["a", "b"]}, ["state", "county"])

DataSet = tuple[int, ...]


def data_sets(largest: int) -> Iterator[DataSet]:
    """Every combination of group sums up to `largest`."""
    return product(range(largest + 1), repeat=len(LEAF_OF_GROUP))


def entity_neighbours(data: DataSet, quantity_bound: int, rows: int) -> Iterator[DataSet]:
    """One entity is added: at most `rows` rows, each adding 0 … quantity_bound to any group. Removal is the reverse."""
    choices = list(product(range(len(LEAF_OF_GROUP)), range(quantity_bound + 1)))
    for count in range(1, rows + 1):
        for added in combinations_with_replacement(choices, count):
            sums = list(data)
            for group, quantity in added:
                sums[group] += quantity
            yield tuple(sums)


def group_neighbours(data: DataSet, largest: int) -> Iterator[DataSet]:
    """One group's contents are replaced by anything, nothing included."""
    for group, new in product(range(len(LEAF_OF_GROUP)), range(largest + 1)):
        yield (*data[:group], new, *data[group + 1 :])


def leaf_counts(data: DataSet, max_size: int, public_totals: bool) -> np.ndarray:
    """[leaves, sizes], counted group by group."""
    first = 0 if public_totals else 1
    counts = np.zeros((2, max_size + 1 - first), dtype=np.int64)
    for leaf, total in zip(LEAF_OF_GROUP, data, strict=True):
        size = min(total, max_size)
        if size >= first:
            counts[leaf, size - first] += 1
    return counts


def view_of_level(
    data: DataSet, view: str, level: int, max_size: int, public_totals: bool, lengths: tuple[int, ...] | None = None
) -> list[int]:
    """A view of all regions of one level, written out cell by cell; lists of sizes have the leaves' lengths."""
    leaves_of = {0: [(0, 1)], 1: [(0,), (1,)], 2: [(0,), (1,)]}[level]
    if view.startswith("chain"):
        turned = leaves_of[::-1] if view == "chain, regions turned round" else leaves_of
        return chain_of_level(data, turned, max_size, public_totals)
    cells = []
    for leaves in leaves_of:
        sizes = [min(total, max_size) for leaf, total in zip(LEAF_OF_GROUP, data, strict=True) if leaf in leaves]
        if not public_totals:
            sizes = [size for size in sizes if size > 0]
        if view in ("counts", "counts_total"):
            cells += [sizes.count(size) for size in range(0 if public_totals else 1, max_size + 1)]
            cells += [len(sizes)] if view == "counts_total" else []
        elif view == "at_least":
            cells += [sum(size >= least for size in sizes) for least in range(1, max_size + 1)]
        elif view == "sorted_sizes":
            cells += listed(sizes, len(sizes) if lengths is None else sum(lengths[leaf] for leaf in leaves))
        elif view == "entities":
            cells.append(sum(sizes))
        elif view == "largest":
            cells.append(max(sizes, default=0))
        else:
            cells.append(len(sizes))
    return cells


def band_of_level(
    data: DataSet,
    view: str,
    level: int,
    band: tuple[int, int] | None,
    max_size: int,
    public_totals: bool,
    lengths: tuple[int, ...],
) -> list[int]:
    """A view of one level as if nobody could see of a group what lies outside of the band: unit by unit."""
    if band is None:
        return view_of_level(data, view, level, max_size, public_totals, lengths)
    within = [unit for unit in range(1, max_size + 1) if band[0] <= unit <= band[1]]
    seen = tuple(sum(unit <= total for unit in within) for total in data)
    if view == "sorted_sizes":
        return view_of_level(seen, view, level, max_size, public_totals, lengths)
    return view_of_level(seen, view, level, len(within), public_totals)


def listed(sizes: list[int], length: int) -> list[int]:
    """The largest `length` sizes, ascending; sizes of 0 in front where there are fewer."""
    falling = sorted(sizes, reverse=True)[:length]
    return (falling + [0] * (length - len(falling)))[::-1]


def chain_of_level(
    data: DataSet, leaves_of: list[tuple[int, ...]], max_size: int, public_totals: bool, *, from_the_front: bool = False
) -> list[int]:
    """All regions of a level in one row, size by size: groups in a cell or after it (before it, from the front)."""
    first = 0 if public_totals else 1
    region_of = {leaf: region for region, leaves in enumerate(leaves_of) for leaf in leaves}
    groups = [(min(total, max_size), region_of[leaf]) for leaf, total in zip(LEAF_OF_GROUP, data, strict=True)]
    groups = [group for group in groups if group[0] >= first]
    cells = product(range(first, max_size + 1), range(len(leaves_of)))
    if from_the_front:
        return [sum(group <= cell for group in groups) for cell in cells]
    return [sum(group >= cell for group in groups) for cell in cells]
