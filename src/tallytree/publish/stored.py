"""The files of a release directory, read back: names, digests, and arrays with everything that is wrong with them."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import ReleaseError, SpecError
from tallytree.hierarchy import Hierarchy

Integers = NDArray[np.int64]

COUNTS, COUNTS_CSV, REGIONS = "counts.parquet", "counts.csv", "regions.csv"
MEASUREMENTS, PRIVACY, PACKAGE, MANIFEST = "measurements.parquet", "privacy.json", "datapackage.json", "manifest.json"
FILES = (COUNTS, COUNTS_CSV, REGIONS, MEASUREMENTS, PRIVACY, PACKAGE)
COUNT_COLUMNS = {"level": "string", "region": "string", "size": "int32", "count": "int64"}
REGION_COLUMNS = ("region", "name", "level", "parent", "copy_of", "total")
MOST = 3  # how many faults of one kind are named


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or a ReleaseError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReleaseError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ReleaseError(f"{path} does not hold a JSON object")
    return value


def read_regions(path: Path) -> tuple[Hierarchy, list[str]]:
    """The hierarchy in regions.csv and the column of public totals as text."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        if tuple(next(reader, ())) != REGION_COLUMNS:
            raise SpecError(f"its columns are not {', '.join(REGION_COLUMNS)}")
        rows = list(reader)
    if any(len(row) != len(REGION_COLUMNS) for row in rows):
        raise SpecError("a row has too many or too few cells")
    ids = [row[0] for row in rows]
    place = {region: number for number, region in enumerate(ids)}
    if unknown := [row[3] for row in rows if row[3] and row[3] not in place]:
        raise SpecError(f"a parent is missing: {unknown[0]}")
    hierarchy = Hierarchy.from_layout(
        levels=list(dict.fromkeys(row[2] for row in rows)),
        names=[row[1] for row in rows],
        ids=ids,
        parents=[place[row[3]] if row[3] else -1 for row in rows],
        carried=[bool(row[4]) for row in rows],
    )
    return hierarchy, [row[5] for row in rows]


def read_counts(path: Path, hierarchy: Hierarchy, sizes: range, *, dense: bool) -> tuple[Integers, list[str]]:
    """counts.parquet as an array, with what is wrong with its rows; where it is `dense` no row may be missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    counts = np.zeros((len(hierarchy), len(sizes)), dtype=np.int64)
    seen = np.zeros(counts.shape, dtype=np.bool_)
    problems: list[str] = []
    try:
        with pq.ParquetFile(path) as file:
            kinds = {field.name: str(field.type) for field in file.schema_arrow}
            if kinds != COUNT_COLUMNS:
                return counts, [f"its columns are {kinds}, not {COUNT_COLUMNS}"]
            for group in range(file.num_row_groups):
                problems += _place_rows(file.read_row_group(group), hierarchy, sizes, counts, seen)
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    if dense:
        problems += _missing(seen, hierarchy, sizes)
    return counts, problems


def _place_rows(
    rows: Any, hierarchy: Hierarchy, sizes: range, counts: Integers, seen: NDArray[np.bool_]
) -> Iterator[str]:
    """Put a row group's counts where they belong and name the rows that belong nowhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if any(rows[name].null_count for name in rows.column_names):
        yield "there are empty cells"
        return
    region = pc.fill_null(pc.index_in(rows["region"], pa.array(hierarchy.ids)), -1).to_numpy().astype(np.int64)
    level = pc.fill_null(pc.index_in(rows["level"], pa.array(hierarchy.levels)), -1).to_numpy()
    size = rows["size"].to_numpy().astype(np.int64) - sizes.start
    value = rows["count"].to_numpy()
    known = (region >= 0) & (size >= 0) & (size < len(sizes))
    for row in np.flatnonzero(~known)[:MOST]:
        place = f"region {rows['region'][row].as_py()!r} and size {rows['size'][row].as_py()}"
        yield f"a row was added for {place}, which the release does not have"
    region, level, size, value = region[known], level[known], size[known], value[known]
    cells = region * len(sizes) + size
    ordered = np.sort(cells)
    again = np.concatenate([cells[seen.ravel()[cells]], ordered[1:][np.diff(ordered) == 0]])
    for cell in np.unique(again)[:MOST]:
        yield f"the row of {_cell(cell, hierarchy, sizes)} stands twice"
    for row in np.flatnonzero(level != hierarchy.level_of[region])[:MOST]:
        yield f"the level of region {hierarchy.ids[region[row]]!r} is wrong"
    for row in np.flatnonzero(value < 0)[:MOST]:
        yield f"the count of {_cell(cells[row], hierarchy, sizes)} is negative"
    seen.ravel()[cells] = True
    counts.ravel()[cells] = value


def _missing(seen: NDArray[np.bool_], hierarchy: Hierarchy, sizes: range) -> Iterator[str]:
    some, every = seen.any(axis=1), seen.all(axis=1)
    for region in np.flatnonzero(~some)[:MOST]:
        yield f"region {hierarchy.ids[region]!r} is missing"
    for region in np.flatnonzero(some & ~every)[:MOST]:
        yield f"the row of region {hierarchy.ids[region]!r}, size {sizes[int(np.argmin(seen[region]))]} is missing"


def _cell(cell: int, hierarchy: Hierarchy, sizes: range) -> str:
    region, size = divmod(int(cell), len(sizes))
    return f"region {hierarchy.ids[region]!r}, size {sizes[size]}"
