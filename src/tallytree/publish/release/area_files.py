"""The files of published areas: their totals (`areas.csv`, `areas.parquet`) and which leaves they have.

A release has all three or none. They are written from the release's counts and public lists, and read back.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import for_a_spreadsheet, from_a_spreadsheet
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.unions import largest_regions
from tallytree.publish.folder import UNUSABLE, reason
from tallytree.publish.reading import MOST_TEXT, ParquetRows, check_regular
from tallytree.publish.release.areas import MOST_CELLS, Area, check_number
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.error_bars import COLUMNS, ErrorBars, intervals_in

AREAS, AREAS_CSV, LEAVES = "areas.parquet", "areas.csv", "area_leaves.csv"
AREA_FILES = (AREAS, AREAS_CSV, LEAVES)
LEAF_COLUMNS = ("kind", "area", "region")


# -------------------------------------------------------------------- writing


def write_areas(release: ReleaseContents, folder: Path) -> tuple[str, ...]:
    """Write the files of the areas, if there are any, and name them."""
    if not release.areas:
        return ()
    release.areas_table.write(folder, csv=True)
    _write_leaves(release, folder / LEAVES)
    return AREA_FILES


def _write_leaves(release: ReleaseContents, path: Path) -> None:
    hierarchy = release.hierarchy.regions
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(LEAF_COLUMNS)
        for area in release.areas:
            for leaf in area.leaves(hierarchy):
                writer.writerow(map(for_a_spreadsheet, (area.kind, area.name, hierarchy.ids[leaf])))


# -------------------------------------------------------------------- reading


def read_published(folder: Path, statement: Mapping[str, Any], tree: Hierarchy, sizes: int) -> tuple[Area, ...]:
    """The areas whose totals a release says it publishes, or a ReleaseError."""
    try:
        return _read_leaves(folder, statement, tree, sizes)
    except ReleaseError:
        raise
    except UNUSABLE as error:
        raise ReleaseError(f"{folder / LEAVES} cannot be used: {reason(error)}") from None


def _read_leaves(folder: Path, statement: Mapping[str, Any], tree: Hierarchy, sizes: int) -> tuple[Area, ...]:
    if "areas" not in statement:
        return ()
    check_regular(folder / LEAVES, most=MOST_TEXT)
    with (folder / LEAVES).open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        if tuple(next(reader, ())) != LEAF_COLUMNS:
            raise SpecError(f"its columns are not {', '.join(LEAF_COLUMNS)}")
        rows = [[from_a_spreadsheet(cell) for cell in row] for row in reader]
    hierarchy = tree.regions
    first, index = int(hierarchy.level_starts[-2]), hierarchy.index
    if any(len(row) != len(LEAF_COLUMNS) for row in rows):
        raise SpecError("a row has too many or too few cells")
    if any(index.get(leaf, -1) < first for _, _, leaf in rows):
        raise SpecError("an area has a leaf that the release does not have")
    check_number(len({(kind, name) for kind, name, _ in rows}), sizes, tree)
    return tuple(
        Area(name, largest_regions(np.unique([index[leaf] for _, _, leaf in listed]), hierarchy), kind)
        for (kind, name), listed in groupby(rows, key=lambda row: (row[0], row[1]))
    )


def with_area_bars(
    folder: Path, bars: ErrorBars, areas: tuple[Area, ...], sizes: range, rows_of_each: int = 1
) -> ErrorBars:
    """The error bars of a release that was read, with those of its areas."""
    if not areas or bars.which == "none":
        return bars
    import pyarrow.compute as pc

    shape = len(areas) * rows_of_each, len(sizes)
    with ParquetRows(folder / AREAS, most=MOST_CELLS) as file:
        rows = _joined(file)
    if rows.num_rows != shape[0] * shape[1]:
        raise SpecError(f"{AREAS} does not have a row for each area and size")

    ends = {name: pc.fill_null(rows[name], -1).to_numpy().reshape(shape) for name in COLUMNS[bars.which]}
    return replace(bars, of={**bars.of, "areas": intervals_in(ends, bars.of["counts"], bars.confidence)})


def _joined(file: ParquetRows) -> Any:
    import pyarrow as pa

    return pa.concat_tables([file.schema.empty_table(), *map(file.group, file.groups)])
