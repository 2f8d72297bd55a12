"""Read public counts from a plain file: long (one row per region and size) or wide (one column per size).

Everything is read as text, so that the region code 01001 keeps its zero; counts and sizes become numbers afterwards. If
the user does not name the columns of levels and sizes, and they are not certain, the file is refused: a column of
totals that is mistaken for a level makes every number of a comparison wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.public_table import numbers, public_table
from tallytree.domain.hierarchy import Hierarchy
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
    """Read counts of groups by region and size from a CSV or Parquet file.

    A file with the columns `size` and `count` is long: one row per leaf region and size; missing rows count as zero.
    Any other file is wide: one row per leaf region, and one column per size whose name ends in the size, all with the
    same text before it (hh1, hh2, hh3plus, or plain 1, 2, 3). Sizes must follow one another; those below the first are
    zero; "plus" (or "+") may end the name of the largest, which stands for all larger ones. `size` is the name of a
    long file's column of sizes, or that text before the number; it is required if it is unclear (`UnclearSizes`).

    `levels` are the columns with region names from the top down; other columns are ignored. If they are not given, all
    columns before the first size (or count) column are levels, provided that each is certainly one; otherwise an error
    gives the reason (`UnclearLevels`). Without such columns, all data are one region.

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
    """Return a public CSV or Parquet file as an Arrow table of text."""
    import pyarrow as pa

    table = public_table(path, "file")
    try:
        return table.cast(pa.schema([(name, pa.string()) for name in table.column_names]))
    except pa.ArrowException as error:
        raise SpecError(f"the file {fspath(path)} cannot be read: {error}") from None


def whole_numbers(table: Any, column: str) -> Integers:
    """Return a column of text as non-negative integers."""
    if column not in table.column_names:
        raise SpecError(f"there is no column {column!r}; the file has {', '.join(table.column_names)}")
    return numbers(table[column], column, whole=True).astype(np.int64)


def region_columns(table: Any, levels: Sequence[str]) -> dict[str, Any]:
    """Return the columns with region names, trimmed, from the top down."""
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
    """Return a truth from the leaf region and the size of each row; without `counts`, each row is one group."""
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
    """Return the tree of the paths in the rows, and each row's leaf."""
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


# -------------------------------------------------------------------- columns


SIZE_COLUMN = re.compile(r"(?P<prefix>.*?)(?P<size>[0-9]+)(?P<open>plus|\+)?", re.IGNORECASE)
NUMBER = r"^[-+]?[0-9][0-9,. ]*([eE][-+]?[0-9]+)?%?$"
CODE = r"^0[0-9]"  # codes such as 01001 begin like this, numbers do not
LARGEST_FIRST_SIZE = 2  # of columns that count as sizes by default: hh2, hh3 … are sizes, pop2019, pop2020 … are not
JOINT = "\x1f"  # joins the names of a path; no name holds it


class UnclearLevels(SpecError):
    """The user must name the columns that are levels. `likely` are possible ones, from the top down."""

    def __init__(self, told: str, likely: Sequence[str]) -> None:
        self.told, self.likely = told, tuple(likely)
        ask = f"Say which columns are levels, from the top down; if they are {' and '.join(self.likely)}"
        super().__init__(f"{told}. {ask}: levels={list(self.likely)!r}")


class UnclearSizes(SpecError):
    """The user must name the columns of sizes. `prefixes` are the texts before the numbers, the likeliest first."""

    def __init__(self, told: str, prefixes: Sequence[str]) -> None:
        self.told, self.prefixes = told, tuple(prefixes)
        super().__init__(f"{told}. Say what stands before the number; for the first of them: size={self.prefixes[0]!r}")


def checked_levels(levels: Sequence[str], numbers: Sequence[str]) -> list[str]:
    """Return the stated levels; refuse wrong ones."""
    if isinstance(levels, str):
        raise SpecError("levels must be a list of column names from the top down, at least one")
    if both := [level for level in levels if level in numbers]:
        raise SpecError(f"a column cannot be a level and hold numbers: {', '.join(both)}")
    if twice := [level for place, level in enumerate(levels) if level in levels[:place]]:
        raise SpecError(f"a column can be one level only; {', '.join(twice)} is named twice")
    return list(levels)


def certain_levels(path: str | PathLike[str], columns: Mapping[str, Any], numbers: Sequence[str]) -> list[str]:
    """Return all columns except `numbers`, if each is certainly a level; otherwise raise an error with the reason.

    A column is not certain if it holds numbers without leading zeros (a total), divides no region (a description, or a
    level above), has the same names in most regions (another attribute), or stands after the numbers.
    """
    names = list(columns)
    first = min(names.index(column) for column in numbers)
    others = [name for name in names if name not in numbers]
    doubts: dict[str, str] = {}
    levels: list[str] = []
    for name in others:
        above = [columns[level] for level in levels]
        doubt = "stands after the sizes" if names.index(name) > first else _doubt(columns[name], above)
        if doubt:
            doubts[name] = doubt
        else:
            levels.append(name)
    if doubts:
        told = "; ".join(f"column {name!r} {doubt}" for name, doubt in doubts.items())
        listed = ", ".join(names)
        raise UnclearLevels(
            f"the levels of {Path(path).name} are unclear: {told}; it has the columns {listed}", levels or others
        )
    return levels


def _doubt(column: Any, above: Sequence[Any]) -> str:
    """Return why a column may not be a level below those above it; an empty text if it certainly is."""
    from pyarrow import compute

    named = column.filter(compute.not_equal(column, ""))
    numeric = compute.all(compute.match_substring_regex(named, NUMBER), min_count=1).as_py()
    if numeric and not compute.any(compute.match_substring_regex(named, CODE)).as_py():
        return "holds numbers, which may be totals or codes"
    if not above:
        return ""
    regions = _distinct(above)
    if 1 < regions == _distinct([*above, column]):
        return "divides no region of the columns before it, so it may describe them"
    alone = max(1, compute.count_distinct(named).as_py())
    present = compute.not_equal(column, "")
    if _distinct([each.filter(present) for each in (*above, column)]) >= 2 * alone > 2:
        return "has the same names in several regions, so it may be another attribute"
    return ""


def _distinct(columns: Sequence[Any]) -> int:
    from pyarrow import compute

    return int(compute.count_distinct(compute.binary_join_element_wise(*columns, JOINT)).as_py())


def size_columns(path: str | PathLike[str], names: Sequence[str], prefix: str | None) -> list[str]:
    """Return one column per size in the order of sizes: the family with that prefix, or the only family."""
    families: dict[str, list[str]] = {}
    for name in names:
        if match := SIZE_COLUMN.fullmatch(name):
            families.setdefault(match["prefix"], []).append(name)
    found = {key: family for key, family in families.items() if len(family) > 1}
    several = ", ".join(f"{family[0]} …" for family in found.values())
    file = Path(path).name
    if prefix is not None:
        if prefix not in families:
            listed = several or ", ".join(names)
            raise SpecError(f"{file} has no size columns {prefix}1, {prefix}2 …; it has {listed}")
        return _checked(file, families[prefix])
    if not found:
        raise SpecError(
            f"{file} has neither the columns 'size' and 'count' nor one column per size "
            f"(such as hh1, hh2, hh3plus); it has {', '.join(names)}"
        )
    likeliest = sorted(found, key=lambda key: -len(found[key]))
    if len(found) > 1:
        raise UnclearSizes(f"{file} has several families of size columns ({several})", likeliest)
    (columns,) = (_checked(file, family) for family in found.values())
    if (first := size_in(columns[0])) > LARGEST_FIRST_SIZE:
        raise UnclearSizes(
            f"the columns {', '.join(columns)} of {file} begin with {first:,}, so they may hold no sizes", likeliest
        )
    return columns


def _checked(file: str, family: Sequence[str]) -> list[str]:
    columns = sorted(family, key=size_in)
    sizes = [size_in(column) for column in columns]
    if sizes != list(range(sizes[0], sizes[0] + len(sizes))):
        raise SpecError(f"the sizes of {file} have gaps or appear twice: {', '.join(columns)}")
    if early := [column for column in columns[:-1] if not column[-1].isdigit()]:
        raise SpecError(f"only the largest size may be open, not {', '.join(early)}")
    return columns


def size_in(column: str) -> int:
    """Return the size that a column's name ends in."""
    match = SIZE_COLUMN.fullmatch(column)
    assert match
    return int(match["size"])
