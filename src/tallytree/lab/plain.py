"""Counts that anyone may see, from a plain file: long (one row per region and size) or wide (one column per size).

Everything is read as text, so that the region code 01001 keeps its zero; counts and sizes become numbers afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.public_table import numbers, public_table
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.columns import JOINT, certain_levels, checked_levels, size_columns, size_in
from tallytree.lab.nation import checked_size
from tallytree.lab.truth import Truth

MOST_CELLS = 250_000_000  # 2 GB of counts


def read_counts(
    path: str | PathLike[str],
    levels: Sequence[str] | None = None,
    size: str | None = None,
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
    zero; "plus" (or "+") may end the name of the largest, which stands for all larger ones. `size` is the name of a
    long file's column of sizes, or that text before the number; it is asked for where it is unclear (`UnclearSizes`).

    `levels` are the columns with region names from the top down; other columns are left alone. If they are not given,
    all columns before the first size (or count) column are levels, unless it is not certain that each of them is one:
    that is an error which says why (`UnclearLevels`). Without any, all is one region.

    `max_size` counts larger groups as itself; without it, the largest size of the file is the largest.
    """
    table = text_table(path)
    names = list(table.column_names)
    of_sizes = "size" if size is None else size
    if {of_sizes, count} <= set(names):
        told = [of_sizes, count]
    elif (of_sizes in names) != (count in names) and levels is not None:
        lacking = count if of_sizes in names else of_sizes
        raise SpecError(f"{_file(path)} has no column {lacking!r}; a long file needs both {of_sizes!r} and {count!r}")
    else:
        told = size_columns(path, [name for name in names if name not in (levels or ())], size)
    if levels is None:
        levels = certain_levels(path, region_columns(table, names), told)
    else:
        levels = checked_levels(levels, told)
    label = Path(path).stem if name is None else name
    if told == [of_sizes, count]:
        sizes, counts = (whole_numbers(table, column) for column in told)
        return truth_of_cells(label, region_columns(table, levels), sizes, counts, public_totals, max_size)
    return _truth_of_columns(label, table, levels, told, public_totals, max_size)


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
    if column not in table.column_names:
        raise SpecError(f"there is no column {column!r}; the file has {', '.join(table.column_names)}")
    return numbers(table[column], column, whole=True).astype(np.int64)


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
    first = size_in(columns[0])
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


def _file(path: str | PathLike[str]) -> str:
    return Path(path).name
