"""Counts that anyone may see, from a plain file: long (one row per region and size) or wide (one column per size).

Everything is read as text, so that the region code 01001 keeps its zero; counts and sizes become numbers afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.evaluate.nation import checked_size
from tallytree.evaluate.truth import Truth
from tallytree.hierarchy import Hierarchy
from tallytree.public_table import public_table

MOST_CELLS = 250_000_000  # 2 GB of counts
SIZE_COLUMN = re.compile(r"(?P<prefix>.*?)(?P<size>[0-9]+)(?P<open>plus|\+)?", re.IGNORECASE)
JOINT = "\x1f"  # joins the names of a path; no name holds it


def read_counts(
    path: str | PathLike[str],
    levels: Sequence[str] | None = None,
    size: str = "size",
    count: str = "count",
    *,
    public_totals: bool = True,
    max_size: int | None = None,
    name: str | None = None,
) -> Truth:
    """Counts of groups by region and size, from a CSV or Parquet file.

    A file with the columns `size` and `count` is long: one row per leaf region and size, absent ones are zero.
    Any other is wide: one row per leaf region, and one column per size whose name ends in the size, all with the same
    text before it (hh1, hh2, hh3plus, or plain 1, 2, 3). Sizes must follow one another; those below the first are
    zero; "plus" (or "+") may end the name of the largest, which stands for all larger ones. Where several families of
    columns look like this, give the text before the number as `size`.

    `levels` are the columns with region names from the top down. If they are not given, all columns before the first
    size (or count) column are levels, and no column may come after; a column that only repeats the one before it, name
    for name, is taken for a description and refused: then say which columns are levels. Without any, all is one region.

    `max_size` counts larger groups as itself; without it, the largest size of the file is the largest.
    """
    table = text_table(path)
    names = list(table.column_names)
    if {size, count} <= set(names):
        numbers = [size, count]
    elif (size in names) != (count in names) and levels is not None:
        lacking = count if size in names else size
        raise SpecError(f"{_file(path)} has no column {lacking!r}; a long file needs both {size!r} and {count!r}")
    else:
        numbers = _size_columns(path, [name for name in names if name not in (levels or ())], size)
    levels = _levels(path, table, numbers, levels)
    label = Path(path).stem if name is None else name
    if numbers == [size, count]:
        sizes, counts = (whole_numbers(table, column) for column in numbers)
        return truth_of_cells(label, region_columns(table, levels), sizes, counts, public_totals, max_size)
    return _truth_of_columns(label, table, levels, numbers, public_totals, max_size)


# -------------------------------------------------------------------- what other readers need too


def text_table(path: str | PathLike[str]) -> Any:
    """A public CSV or Parquet file as an Arrow table of text."""
    import pyarrow as pa

    table = public_table(path, "file")
    try:
        return table.cast(pa.schema([(name, pa.string()) for name in table.column_names]))
    except pa.ArrowException as error:
        raise SpecError(f"the file {fspath(path)} cannot be read: {error}") from None


def whole_numbers(table: Any, column: str) -> Integers:
    """A column of text as whole numbers from 0 on."""
    import pyarrow as pa
    from pyarrow import compute

    if column not in table.column_names:
        raise SpecError(f"there is no column {column!r}; the file has {', '.join(table.column_names)}")
    try:
        numbers = compute.utf8_trim_whitespace(table[column]).cast(pa.int64())
    except pa.ArrowInvalid:
        raise SpecError(f"column {column!r} holds an empty cell or something else than a whole number") from None
    if numbers.null_count:
        raise SpecError(f"column {column!r} has {numbers.null_count} empty cells; expected a whole number in each")
    values: Integers = numbers.to_numpy()
    if len(values) and values.min() < 0:
        raise SpecError(f"column {column!r} holds {int((values < 0).sum())} negative numbers; counts start at 0")
    return values


def region_columns(table: Any, levels: Sequence[str]) -> dict[str, Any]:
    """The columns with region names, trimmed, from the top down."""
    from pyarrow import compute

    missing = [level for level in levels if level not in table.column_names]
    if missing:
        raise SpecError(f"there is no column {', '.join(missing)}; the file has {', '.join(table.column_names)}")
    return {level: compute.utf8_trim_whitespace(compute.fill_null(table[level], "")) for level in levels}


def truth_of_cells(
    name: str,
    regions: Mapping[str, Any],
    sizes: Integers,
    counts: Integers | None,
    public_totals: bool,
    max_size: int | None = None,
) -> Truth:
    """A truth from the leaf region and the size of each row; `counts` None means that each row is one group."""
    hierarchy, leaf = _leaves(regions, len(sizes))
    return _filled(name, hierarchy, leaf, sizes, counts, public_totals, max_size)


# -------------------------------------------------------------------- the parts


def _filled(
    name: str,
    hierarchy: Hierarchy,
    leaf: Integers,
    sizes: Integers,
    counts: Integers | None,
    public_totals: bool,
    max_size: int | None,
) -> Truth:
    largest = max(1, int(sizes.max())) if max_size is None else checked_size(max_size)
    if hierarchy.leaf_count * (largest + 1) > MOST_CELLS:
        raise SpecError(
            f"{hierarchy.leaf_count:,} leaf regions × {largest + 1:,} sizes are too many cells; "
            "give a smaller max_size, which larger groups then count as"
        )
    if counts is None:
        counts = np.ones(len(sizes), dtype=np.int64)
    elif twice := len(sizes) - len(np.unique(leaf * (int(sizes.max()) + 1) + sizes)):
        raise SpecError(f"{twice} rows repeat the region and size of an earlier row; expected one row for each")
    cells = np.zeros((hierarchy.leaf_count, largest + 1), dtype=np.int64)
    np.add.at(cells, (leaf, np.minimum(sizes, largest)), counts)
    if public_totals:
        return Truth(name, hierarchy, cells, True)
    if empty := int(cells[:, 0].sum()):
        raise SpecError(f"{empty} groups have size 0, which only exists with public totals; say public_totals=True")
    return Truth(name, hierarchy, cells[:, 1:].copy(), False)


def _truth_of_columns(
    name: str, table: Any, levels: Sequence[str], columns: Sequence[str], public_totals: bool, max_size: int | None
) -> Truth:
    hierarchy, leaf = _leaves(region_columns(table, levels), table.num_rows)
    if hierarchy.leaf_count < table.num_rows:
        twice = table.num_rows - hierarchy.leaf_count
        raise SpecError(f"{twice} rows repeat the region of an earlier row; a wide file has one row per leaf region")
    wide = np.column_stack([whole_numbers(table, column) for column in columns])
    first = _number(columns[0])
    sizes = np.tile(np.arange(first, first + len(columns)), len(wide))
    leaves = np.repeat(leaf, len(columns))
    return _filled(name, hierarchy, leaves, sizes, wide.ravel(), public_totals, max_size)


def _leaves(regions: Mapping[str, Any], rows: int) -> tuple[Hierarchy, Integers]:
    """The tree of the paths in the rows, and each row's leaf."""
    from pyarrow import compute

    if not rows:
        raise SpecError("the file has no rows")
    if not regions:
        return Hierarchy.from_levels({"all": ["total"]}, ["all"]), np.zeros(rows, dtype=np.int64)
    coded = compute.binary_join_element_wise(*regions.values(), JOINT).combine_chunks().dictionary_encode()
    paths = [key.split(JOINT) for key in coded.dictionary.to_pylist()]
    hierarchy = Hierarchy.from_levels(dict(zip(regions, zip(*paths, strict=True), strict=True)), list(regions))
    added = hierarchy.depth - len(regions)
    lowest = hierarchy.level_slice(hierarchy.depth - 1)
    leaf_of = {hierarchy.path_of(leaf)[added:]: leaf - lowest.start for leaf in range(lowest.start, lowest.stop)}
    order = np.array([leaf_of[tuple(name for name in path if name)] for path in paths], dtype=np.int64)
    return hierarchy, order[coded.indices.to_numpy(zero_copy_only=False)]


def _levels(path: str | PathLike[str], table: Any, numbers: Sequence[str], levels: Sequence[str] | None) -> list[str]:
    names = list(table.column_names)
    if levels is not None:
        if isinstance(levels, str):
            raise SpecError("levels must be a list of column names from the top down, at least one")
        if both := [level for level in levels if level in numbers]:
            raise SpecError(f"a column cannot be a level and hold numbers: {', '.join(both)}")
        return list(levels)
    first = min(names.index(column) for column in numbers)
    if after := [name for name in names[first:] if name not in numbers]:
        raise SpecError(
            f"{_file(path)} has columns after its sizes ({', '.join(after)}), so its levels are unclear; "
            "say `levels`, from the top down"
        )
    columns = region_columns(table, names[:first])
    for above, below in pairwise(names[:first]):
        if _same_but_for_names(columns[above], columns[below]):
            raise SpecError(
                f"column {below!r} of {_file(path)} only repeats {above!r} by another name, so the levels are unclear; "
                "say `levels`, from the top down"
            )
    return names[:first]


def _same_but_for_names(above: Any, below: Any) -> bool:
    from pyarrow import compute

    pairs = compute.count_distinct(compute.binary_join_element_wise(above, below, JOINT)).as_py()
    both = (compute.count_distinct(above).as_py(), compute.count_distinct(below).as_py())
    return pairs > 1 and both == (pairs, pairs)


def _size_columns(path: str | PathLike[str], names: Sequence[str], prefix: str) -> list[str]:
    families: dict[str, list[str]] = {}
    for name in names:
        if match := SIZE_COLUMN.fullmatch(name):
            families.setdefault(match["prefix"], []).append(name)
    families = {key: family for key, family in families.items() if len(family) > 1 or key == prefix}
    if prefix in families:
        families = {prefix: families[prefix]}
    if not families:
        raise SpecError(
            f"{_file(path)} has neither the columns 'size' and 'count' nor one column per size "
            f"(such as hh1, hh2, hh3plus); it has {', '.join(names)}"
        )
    if len(families) > 1:
        several = ", ".join(f"{family[0]} …" for family in families.values())
        raise SpecError(f"{_file(path)} has several families of size columns ({several}); say which by size='…'")
    (columns,) = families.values()
    columns = sorted(columns, key=_number)
    numbers = [_number(column) for column in columns]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        raise SpecError(f"the sizes of {_file(path)} have gaps or appear twice: {', '.join(columns)}")
    if early := [column for column in columns[:-1] if not column[-1].isdigit()]:
        raise SpecError(f"only the largest size may be open, not {', '.join(early)}")
    return columns


def _number(column: str) -> int:
    match = SIZE_COLUMN.fullmatch(column)
    assert match
    return int(match["size"])


def _file(path: str | PathLike[str]) -> str:
    return Path(path).name
