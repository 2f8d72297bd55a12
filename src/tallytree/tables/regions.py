"""From region columns to leaves: the texts that stand for each leaf of the hierarchy, as a small table to join with.

A leaf is found by its id or name in one column, or by the names on its path in one column per level. Everything is
compared as text; columns of whole numbers are joined as numbers, with the texts that are such a number's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy

NOWHERE = -1  # no region, or one that is not in the hierarchy
AMBIGUOUS = -2  # a name that stands for several leaves

WHOLE_NUMBER = r"^(0|-?[1-9][0-9]{0,17})\z"

Keys = dict[tuple[str, ...], int]


@dataclass(frozen=True, eq=False)
class RegionKeys:
    """Which leaf (its number among the leaves, or AMBIGUOUS) each text in the region columns stands for."""

    columns: tuple[str, ...]
    texts: tuple[Any, ...]  # an Arrow array of texts for each column
    found: Any  # an Arrow array of the leaves that these stand for

    @classmethod
    def of(cls, columns: Sequence[str], keys: Keys) -> RegionKeys:
        """From a mapping."""
        import pyarrow as pa

        texts = (pa.array([key[at] for key in keys], pa.string()) for at in range(len(columns)))
        return cls(tuple(columns), tuple(texts), pa.array(keys.values(), pa.int32()))

    @property
    def keys(self) -> Keys:
        """The same as a mapping."""
        rows = zip(*(texts.to_pylist() for texts in self.texts), strict=True)
        return dict(zip(rows, self.found.to_pylist(), strict=True))

    @property
    def begin_with_zero(self) -> bool:
        """Would codes lose a zero if they were read as numbers?"""
        import pyarrow.compute as pc

        return any(pc.any(pc.match_substring_regex(texts, "^0(?s:.)")).as_py() for texts in self.texts)

    def may_be_empty(self, place: int) -> bool:
        """Do short branches leave this column empty?"""
        import pyarrow.compute as pc

        return bool(pc.any(pc.equal(self.texts[place], "")).as_py())


def region_keys(hierarchy: Hierarchy, columns: Sequence[str]) -> RegionKeys:
    """The texts that stand for each leaf. An id beats a name; a name of several leaves is AMBIGUOUS."""
    import pyarrow as pa

    leaves = hierarchy.level_slice(hierarchy.depth - 1)
    if len(columns) == 1 and hierarchy.names is hierarchy.ids and not hierarchy.carried[leaves].any():
        number = np.arange(hierarchy.leaf_count, dtype=np.int32)
        return RegionKeys(tuple(columns), (pa.array(hierarchy.ids[leaves], pa.string()),), pa.array(number))
    if len(columns) == 1:
        by_id, by_name = _single(hierarchy)
    else:
        by_id, by_name = _by_path(hierarchy, _places(hierarchy, columns))
    return RegionKeys.of(columns, by_name | by_id)


def _single(hierarchy: Hierarchy) -> tuple[Keys, Keys]:
    by_id: Keys = {}
    by_name: Keys = {}
    for leaf, region, origin in _leaves(hierarchy):
        by_id[hierarchy.ids[region],] = leaf
        by_id[hierarchy.ids[origin],] = leaf
        _add(by_name, (hierarchy.names[region],), leaf)
    return by_id, by_name


def _by_path(hierarchy: Hierarchy, places: Sequence[int]) -> tuple[Keys, Keys]:
    by_id: Keys = {}
    by_name: Keys = {}
    last = hierarchy.depth - 1
    for leaf, region, origin in _leaves(hierarchy):
        path = hierarchy.path_of(region)
        short = path + ("",) * (hierarchy.depth - len(path))
        carried = path + (path[-1],) * (hierarchy.depth - len(path))
        for names in {short, carried}:
            _add(by_name, tuple(names[place] for place in places), leaf)
        if len(path) == hierarchy.depth:
            with_id = (*path[:last], hierarchy.ids[origin])
            by_id[tuple(with_id[place] for place in places)] = leaf
    return by_id, by_name


def _leaves(hierarchy: Hierarchy) -> list[tuple[int, int, int]]:
    """(leaf, region, origin): the number among the leaves, the region's index, and the region it was carried from."""
    first = int(hierarchy.level_starts[-2])
    found = []
    for leaf in range(hierarchy.leaf_count):
        origin = region = first + leaf
        while hierarchy.carried[origin]:
            origin = int(hierarchy.parents[origin])
        found.append((leaf, region, origin))
    return found


def _add(keys: Keys, key: tuple[str, ...], leaf: int) -> None:
    keys[key] = AMBIGUOUS if keys.get(key, leaf) != leaf else leaf


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


# -------------------------------------------------------------------- in the engine


def place(sql: Any, table: Any, keys: RegionKeys | None, region: Sequence[str]) -> Any:
    """The table with a column `leaf` instead of its columns `region`; NOWHERE where none is found.

    The join comes before any aggregation on purpose: numbers of leaves are much cheaper to compare than texts.
    """
    if keys is None or not region:
        return table.mutate(leaf=sql.literal(0, "int32"))
    natives = [_joined_natively(table[column].type(), keys.may_be_empty(at)) for at, column in enumerate(region)]
    lookup = sql.memtable(_lookup(keys, [kind == "number" for kind in natives]))
    matches = []
    for at, (column, kind) in enumerate(zip(region, natives, strict=True)):
        value = table[column]
        if kind == "other":
            value = value.cast("string")
            if keys.may_be_empty(at):
                value = value.fill_null("")
        matches.append(value == lookup[f"key_{at}"])
    kept = {name: table[name] for name in table.columns if name not in region}
    return table.left_join(lookup, matches).select(
        **kept, leaf=lookup["found"].fill_null(sql.literal(NOWHERE, "int32"))
    )


def _joined_natively(kind: Any, may_be_empty: bool) -> str:
    if may_be_empty:
        return "other"
    if kind.is_string():
        return "text"
    return "number" if kind.is_signed_integer() or (kind.is_integer() and kind.nbytes < 8) else "other"


def _lookup(keys: RegionKeys, numbers: Sequence[bool]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.table([*keys.texts, keys.found], names=[*(f"key_{at}" for at in range(len(numbers))), "found"])
    for at, number in enumerate(numbers):
        if number:
            rows = rows.filter(pc.match_substring_regex(rows[f"key_{at}"], WHOLE_NUMBER))
            rows = rows.set_column(at, f"key_{at}", rows[f"key_{at}"].cast(pa.int64()))
    return rows


def hierarchy_of(cells: Any, columns: Sequence[str]) -> Hierarchy:
    """The hierarchy of a small public table of distinct regions; rows with gaps are left for the checks to count."""
    rows = []
    for row in zip(*(cells[column].to_pylist() for column in columns), strict=True):
        texts = ["" if cell is None else str(cell) for cell in row]
        while texts and not texts[-1].strip():
            texts.pop()
        if texts and all(text.strip() for text in texts):
            rows.append((*texts, *[""] * (len(columns) - len(texts))))
    if not rows:
        raise SpecError("the region columns are empty, so there is no hierarchy to take from them")
    rows = sorted(set(rows))
    return Hierarchy.from_levels(
        {column: [row[at] for row in rows] for at, column in enumerate(columns)}, list(columns)
    )
