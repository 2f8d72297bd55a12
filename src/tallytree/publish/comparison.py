"""Compare the files of a folder with those that tallytree makes again: by their bytes, or by what they hold.

Parquet files are compared with everything that a reader may use instead of the rows: types, descriptions, the
statistics of each row group, and whether there is anything in the file besides rows and footer, such as an index.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice, zip_longest
from math import isclose
from pathlib import Path
from typing import Any

from tallytree.core.numbers import short
from tallytree.publish.folder import MOST_FAULTS, UNUSABLE, listed_files, plain_name, reason
from tallytree.publish.reading import MOST_ROWS, ParquetRows, check_regular, read_json

LAST_DIGIT = 1e-9  # how far floats of another platform or version may differ, relative to their size
LAST_OF_SIX = 2e-5  # the same of floats that a CSV file has with six digits
LONGEST_VERSION = 100
KEYS = ("region", "kind", "area", "size", "household_id", "question", "cell")  # columns that say which row is meant
MAGIC, LENGTHS = 4, 8  # bytes at the beginning of a Parquet file, and after its footer
STATISTICS = (
    ("min", "has_min_max"),
    ("max", "has_min_max"),
    ("null_count", "has_null_count"),
    ("distinct_count", "has_distinct_count"),
)


def compare_folders(stated: Path, made: Path, *, exact: bool) -> dict[str, tuple[str, ...]]:
    """What is wrong with each file of a folder, by the file's name; with `exact` its bytes have to be the same."""
    files, expected = listed_files(stated), listed_files(made)
    found: dict[str, tuple[str, ...]] = {}
    for name in [*expected, *(name for name in files if name not in expected)]:
        if name not in files:
            faults: tuple[str, ...] = (f"{name} is missing",)
        elif name not in expected:
            faults = (f"{plain_name(name)} does not belong here: tallytree does not make it",)
        elif files[name] == expected[name]:
            faults = ()
        else:
            faults = tuple(islice(_differences(stated / name, made / name), 2 * MOST_FAULTS))
            if not faults and exact:
                faults = ("its content is right, and its bytes are not those that the same software writes",)
            faults = tuple(f"{name}: {fault}" for fault in faults)
        found[name] = faults
    return found


def _differences(stated: Path, made: Path) -> Iterator[str]:
    compare = {".json": _json_differences, ".csv": _csv_differences, ".parquet": _parquet_differences}[made.suffix]
    try:
        yield from compare(stated, made)
    except UNUSABLE as error:
        yield reason(error)


def _alike(one: Any, other: Any) -> bool:
    """Are two plain values the same, apart from the last digits of floats?"""
    if isinstance(one, float) and isinstance(other, float):
        return isclose(one, other, rel_tol=LAST_DIGIT, abs_tol=LAST_DIGIT)
    return type(one) is type(other) and one == other


# -------------------------------------------------------------------- JSON and CSV


def _json_differences(stated: Path, made: Path) -> Iterator[str]:
    found = read_json(stated)
    for place, fault in differences(found, read_json(made)):
        if not (place.startswith("software.") and _is_version(found["software"].get(place.partition(".")[2]))):
            yield f"{place} {fault}"


def _is_version(value: Any) -> bool:
    """Is this a text that can name a version? Which one it names is an assumption."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_VERSION


def differences(stated: Any, expected: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Places where a JSON value is not the expected one, and what is wrong there."""
    if isinstance(stated, dict) and isinstance(expected, dict):
        for key in [*expected, *(key for key in stated if key not in expected)]:
            inner = f"{place}.{key}" if place else str(key)
            if key not in stated:
                yield inner, "is missing"
            elif key not in expected:
                yield short(inner), "is not a field that tallytree writes"
            else:
                yield from differences(stated[key], expected[key], inner)
    elif isinstance(stated, list) and isinstance(expected, list) and len(stated) == len(expected):
        for number, (one, other) in enumerate(zip(stated, expected, strict=True)):
            yield from differences(one, other, f"{place}.{number}")
    elif not _alike(stated, expected):
        yield place, f"is {short(stated, 200)}; what follows from the other files is {short(expected, 200)}"


def _csv_differences(stated: Path, made: Path) -> Iterator[str]:
    check_regular(stated)
    with stated.open(encoding="utf-8", newline="") as one, made.open(encoding="utf-8", newline="") as other:
        for number, (row, expected) in enumerate(zip_longest(csv.reader(one), csv.reader(other))):
            if row is None or expected is None:
                yield f"row {number} is {'missing' if row is None else 'added'}: {short(row or expected, 200)}"
                return
            if row != expected and (len(row) != len(expected) or not all(map(_alike_in_csv, row, expected))):
                yield f"row {number} is {short(row, 200)}; what follows from the other files is {short(expected, 200)}"


def _alike_in_csv(one: str, other: str) -> bool:
    try:
        return one == other or ("." in other and isclose(float(one), float(other), rel_tol=LAST_OF_SIX))
    except ValueError:
        return False


# -------------------------------------------------------------------- Parquet


def _parquet_differences(stated: Path, made: Path) -> Iterator[str]:
    with ParquetRows(made, most=MOST_ROWS) as right, ParquetRows(stated, most=2 * right.rows + 1000) as file:
        if not file.schema.equals(right.schema, check_metadata=True) or not file.columns.equals(right.columns):
            yield "its columns have other names, types or descriptions than those that tallytree writes"
        if not file.schema.equals(right.schema):
            return
        if file.rows != right.rows:
            yield f"it has {file.rows:,} rows, and should have {right.rows:,}"
        else:
            yield from _row_differences(file, right)


def _row_differences(file: ParquetRows, right: ParquetRows) -> Iterator[str]:
    """Rows in their order, whatever the row groups; and what the footer says of them."""
    import pyarrow as pa

    groups, rest = iter(right.groups), right.schema.empty_table()
    length = MAGIC + LENGTHS + file.metadata.serialized_size
    for group in file.groups:
        rows = file.group(group)  # first of all: Arrow ends the process on what a damaged footer says of a column
        while len(rest) < len(rows) and (more := next(groups, None)) is not None:
            rest = pa.concat_tables([rest, right.group(more)])
        yield from _cell_differences(rows, rest.slice(0, len(rows)))
        yield from _footer_differences(file.metadata.row_group(group), rows)
        length += sum(_columns(file.metadata.row_group(group), "total_compressed_size"))
        rest = rest.slice(len(rows))
    if length != file.bytes:
        yield "it holds something besides its rows and their description, such as an index or a filter"


def _cell_differences(rows: Any, expected: Any) -> Iterator[str]:
    keys = [name for name in expected.column_names if name in KEYS]
    for name in expected.column_names:
        if not rows[name].equals(expected[name]):
            values = rows[name].to_pylist(), expected[name].to_pylist()
            wrong = (row for row, (one, other) in enumerate(zip(*values, strict=True)) if not _alike(one, other))
            for row in islice(wrong, 1):
                where = ", ".join(f"{key} {expected[key][row].as_py()!r}" for key in keys)
                yield f"{where or f'row {row + 1}'}: {name} is {values[0][row]!r}; what follows is {values[1][row]!r}"


def _footer_differences(group: Any, rows: Any) -> Iterator[str]:
    """How what the footer says of a row group differs from what it would say if these rows were written now."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if group.sorting_columns or any(_columns(group, "has_column_index")) or any(_columns(group, "has_offset_index")):
        yield "it states an order of its rows, or has an index"
    if not len(rows):
        return
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer, row_group_size=max(1, len(rows)))
    right = pq.ParquetFile(pa.BufferReader(buffer.getvalue())).metadata.row_group(0)
    for number in range(group.num_columns):
        stated, expected = _statistics(group.column(number)), _statistics(right.column(number))
        if any(expected.get(name) != value for name, value in stated.items()):
            yield f"the statistics of column {group.column(number).path_in_schema} do not fit its rows"


def _statistics(column: Any) -> dict[str, Any]:
    """The statistics that a column of a row group has."""
    found = column.statistics
    return {} if found is None else {name: getattr(found, name) for name, there in STATISTICS if getattr(found, there)}


def _columns(group: Any, name: str) -> list[Any]:
    return [getattr(group.column(number), name) for number in range(group.num_columns)]
