"""All small data sets of groups with categories and all their neighbours, straight from the definitions.

A data set is, for each of three groups (two in one leaf, one in the other), its size and its category, both 0 for a
group without entities where totals are private: it is not there. No formula of `tallytree.privacy` is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

LEAF_OF_GROUP = (0, 0, 1)
CATEGORIES = 2

Group = tuple[int, int]  # size, category
DataSet = tuple[Group, ...]


def data_sets(largest: int) -> Iterator[DataSet]:
    """Every combination of sizes up to `largest` and categories."""
    return product(product(range(largest + 1), range(CATEGORIES)), repeat=len(LEAF_OF_GROUP))


def public_list(data: DataSet) -> tuple[int, ...]:
    """What a public list says: the category of each group. Neighbours have the same list, where there is one."""
    return tuple(category for _, category in data)


def entity_neighbours(data: DataSet, quantity_bound: int, *, members: bool) -> Iterator[DataSet]:
    """A row that adds 0 … quantity_bound to a group; where members decide, its category may be any one after that.

    A group that was empty had no members to have a category: its first one brings any (private totals alone).
    """
    for group, added in product(range(len(LEAF_OF_GROUP)), range(quantity_bound + 1)):
        size, category = data[group]
        for new in range(CATEGORIES) if members else (category,):
            yield (*data[:group], (size + added, new), *data[group + 1 :])


def group_neighbours(data: DataSet, largest: int, *, members: bool) -> Iterator[DataSet]:
    """One group's contents are replaced by anything, within its category unless members decide that."""
    for group, new_size in product(range(len(LEAF_OF_GROUP)), range(largest + 1)):
        _, category = data[group]
        for new in range(CATEGORIES) if members else (category,):
            yield (*data[:group], (new_size, new), *data[group + 1 :])


def view_of_level(
    data: DataSet, view: str, level: int, max_size: int, public_totals: bool, *, summed: bool
) -> list[int]:
    """A view of all regions of one level, by category or over all of them, written out cell by cell."""
    leaves_of: list[tuple[int, ...]] = [(0, 1)] if level == 0 else [(0,), (1,)]
    kinds: list[tuple[int, ...]] = (
        [tuple(range(CATEGORIES))] if summed else [(category,) for category in range(CATEGORIES)]
    )
    cells = []
    for kind, leaves in product(kinds, leaves_of):
        groups = [
            min(size, max_size)
            for leaf, (size, category) in zip(LEAF_OF_GROUP, data, strict=True)
            if leaf in leaves and category in kind and (public_totals or size > 0)
        ]
        if view in ("counts", "counts_total"):
            cells += [groups.count(size) for size in range(0 if public_totals else 1, max_size + 1)]
            cells += [len(groups)] if view == "counts_total" else []
        elif view == "at_least":
            cells += [sum(size >= least for size in groups) for least in range(1, max_size + 1)]
        elif view == "sorted_sizes":
            cells += ([0] * len(LEAF_OF_GROUP) + sorted(groups))[-len(LEAF_OF_GROUP) :]
        elif view == "entities":
            cells.append(sum(groups))
        else:
            cells.append(len(groups))
    return cells
