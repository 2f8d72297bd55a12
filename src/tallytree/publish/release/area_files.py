"""The files of published areas: their totals (`areas.csv`, `areas.parquet`) and which leaves they have.

A release has all three or none. They are written from the release's counts and public lists, and read back to be asked
about and checked: `areas_differ` writes them once more and compares.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import for_a_spreadsheet, from_a_spreadsheet
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.unions import largest_regions
from tallytree.estimate.intervals.value import Intervals, Kind
from tallytree.publish.folder import UNUSABLE, reason
from tallytree.publish.reading import MOST_TEXT, ParquetRows, check_regular
from tallytree.publish.release.area_bars import area_scopes
from tallytree.publish.release.areas import MOST_CELLS, Area, check_number
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.error_bars import (
    GUARANTEED,
    TYPICAL,
    AreaBars,
    ErrorBars,
    guaranteed_areas,
    guaranteed_rows,
)

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
        return read_leaves(folder, statement, tree, sizes)
    except ReleaseError:
        raise
    except UNUSABLE as error:
        raise ReleaseError(f"{folder / LEAVES} cannot be used: {reason(error)}") from None


def read_leaves(folder: Path, statement: Mapping[str, Any], tree: Hierarchy, sizes: int) -> tuple[Area, ...]:
    """The same; what is wrong with the file is an error of any kind."""
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

    def found(given: Intervals | None, kind: Kind, names: tuple[str, str]) -> Intervals | None:
        if given is None:
            return None
        lower, upper = (pc.fill_null(rows[name], -1).to_numpy().reshape(shape) for name in names)
        return Intervals(lower, upper, bars.confidence, kind)

    of_areas = AreaBars(found(bars.guaranteed, "guaranteed", GUARANTEED), found(bars.typical, "typical", TYPICAL))
    return replace(bars, of_areas=of_areas)


def _joined(file: ParquetRows) -> Any:
    import pyarrow as pa

    return pa.concat_tables([file.schema.empty_table(), *map(file.group, file.groups)])


# -------------------------------------------------------------------- checking


def areas_differ(release: ReleaseContents, folder: Path, listed: Mapping[str, Any]) -> Iterator[str]:
    """The files of the areas against the counts, the measurements and the lists of leaves; `listed` is the manifest.

    Typical intervals are taken as they are: whether they follow is another check.
    """
    for name in AREA_FILES:
        if (name in listed) != bool(release.areas):
            missing = "is missing from the manifest" if release.areas else "is there, and the statement names no areas"
            yield f"{name} {missing}"
            return
    if not release.areas:
        return
    if len({(area.kind, area.name) for area in release.areas}) < len(release.areas):
        yield f"{LEAVES}: the rows of an area do not stand together"
    bars = release.error_bars
    if bars.guaranteed is not None and bars.reach:  # 0.3.0 and before made some shorter: those are taken as they are
        measurements, counts = release.measurements, release.counts
        cells = guaranteed_rows(measurements, counts, bars.confidence)
        sure = guaranteed_areas(measurements, counts, area_scopes(release.areas, release.hierarchy), cells)
        release = replace(release, error_bars=replace(bars, of_areas=replace(bars.of_areas, guaranteed=sure)))
    likely = release.error_bars.of_areas.typical
    sums = release.area_table()["count"].to_numpy()
    if likely is not None and not np.all((likely.lower.ravel() <= sums) & (sums <= likely.upper.ravel())):
        yield f"{AREAS}: a typical interval does not hold its count"
    yield from release.areas_table.differences(folder, csv=True)
    with TemporaryDirectory() as made:
        _write_leaves(release, Path(made, LEAVES))
        if _texts(folder / LEAVES) != _texts(Path(made, LEAVES)):
            yield f"{LEAVES} is not written as the leaves of areas are"


def _texts(path: Path) -> list[list[str]]:
    check_regular(path, most=MOST_TEXT)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))
