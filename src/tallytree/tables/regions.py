"""From region columns to leaves: the texts that stand for each leaf of the hierarchy, as a small table to join with.

A leaf is found by its id or name in one column, or by the names on its path in one column per level. Everything is
compared as text; columns of whole numbers are joined as numbers, with the texts that are such a number's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.sql import UNSIGNED, WHOLE, Table

NOWHERE = -1  # no region, or one that is not in the hierarchy
AMBIGUOUS = -2  # a name that stands for several leaves

WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})\z"

Keys = dict[tuple[str, ...], int]


def region_keys(hierarchy: Hierarchy, columns: Sequence[str]) -> Any:
    """The texts that stand for each leaf, as Arrow data: `key_0`, `key_1` … and `found`, the leaf or AMBIGUOUS."""
    import pyarrow as pa

    leaves = hierarchy.level_slice(hierarchy.depth - 1)
    names = [*(f"key_{at}" for at in range(len(columns))), "found"]
    if len(columns) == 1 and hierarchy.names is hierarchy.ids and not hierarchy.carried[leaves].any():
        number = np.arange(hierarchy.leaf_count, dtype=np.int32)
        return pa.table([pa.array(hierarchy.ids[leaves], pa.string()), pa.array(number)], names)
    keys = leaves_by_text(hierarchy, columns)
    texts = (pa.array([key[at] for key in keys], pa.string()) for at in range(len(columns)))
    return pa.table([*texts, pa.array(keys.values(), pa.int32())], names)


def leaves_by_text(hierarchy: Hierarchy, columns: Sequence[str]) -> Keys:
    """The leaf that each text, or each path of texts, stands for. An id beats a name."""
    by_id: Keys = {}
    by_name: Keys = {}
    last = hierarchy.depth - 1
    places = None if len(columns) == 1 else _places(hierarchy, columns)
    for leaf, region, origin in _leaves(hierarchy):
        path = hierarchy.path_of(region)
        if places is None:
            by_id |= {(hierarchy.ids[region],): leaf, (hierarchy.ids[origin],): leaf}
            named: set[tuple[str, ...]] = {(hierarchy.names[region],)}
        else:
            lost = hierarchy.depth - len(path)
            named = {tuple(each[place] for place in places) for each in (path + ("",) * lost, path + path[-1:] * lost)}
            if not lost:
                with_id = (*path[:last], hierarchy.ids[origin])
                by_id[tuple(with_id[place] for place in places)] = leaf
        for key in named:
            by_name[key] = AMBIGUOUS if by_name.get(key, leaf) != leaf else leaf
    return by_name | by_id


def _leaves(hierarchy: Hierarchy) -> Iterator[tuple[int, int, int]]:
    """(leaf, region, origin): the number among the leaves, the region's index, and the region it was carried from."""
    first = int(hierarchy.level_starts[-2])
    for leaf in range(hierarchy.leaf_count):
        origin = first + leaf
        while hierarchy.carried[origin]:
            origin = int(hierarchy.parents[origin])
        yield leaf, first + leaf, origin


def _places(hierarchy: Hierarchy, columns: Sequence[str]) -> list[int]:
    """Which level each column holds: by the levels' names where these are the columns' names, otherwise by order."""
    if set(columns) <= set(hierarchy.levels):
        places = [hierarchy.levels.index(column) for column in columns]
        if hierarchy.depth - 1 in places:
            return places
    if len(columns) == hierarchy.depth:
        return list(range(hierarchy.depth))
    if len(columns) == hierarchy.depth - 1:
        return list(range(1, hierarchy.depth))
    raise SpecError(
        f"region names {len(columns)} columns, but the hierarchy has the levels {', '.join(hierarchy.levels)}; "
        "expected one column per level from the top down (the root's may be left out), or one column with leaves"
    )


def place(table: Table, region: Sequence[str], keys: Any, put: Callable[[Any], Table]) -> Table:
    """The table with the `leaf` of each row, NOWHERE where none is found; `put` takes Arrow data to its engine.

    The join comes before any aggregation on purpose: numbers of leaves are much cheaper to compare than texts.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    matches = []
    for at, cell in enumerate(map(table.__getitem__, region)):
        key, text = f"key_{at}", cell.text
        may_be_empty = pc.any(pc.equal(keys[key], "")).as_py()  # short branches leave the column empty
        if not may_be_empty and (cell.kind in WHOLE or cell.kind in UNSIGNED[:-1]):
            keys = keys.filter(pc.match_substring_regex(keys[key], WHOLE_NUMBER))
            keys = keys.set_column(at, key, keys[key].cast(pa.int64()))
        elif may_be_empty:
            text = f"coalesce({cell.as_text}, '')"
        elif not cell.is_text:
            text = cell.as_text
        matches.append(f"{text} = leaves.{key}")
    joined = f" LEFT JOIN {put(keys).name} AS leaves ON {' AND '.join(matches)}"
    return replace(table, joined=joined, leaf=f"coalesce(leaves.found, {NOWHERE})")


def lost_zeros(table: Table, region: Sequence[str], keys: Any) -> bool:
    """Do codes of the hierarchy begin with a zero, while a column has numbers in their place?"""
    import pyarrow.compute as pc

    zeros = [pc.any(pc.match_substring_regex(keys[f"key_{at}"], "^0(?s:.)")).as_py() for at in range(len(region))]
    return any(zeros) and any(table[column].is_numeric for column in region)
