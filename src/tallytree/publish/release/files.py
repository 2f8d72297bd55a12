"""The files of a release directory, written; and read back, with everything that is wrong with them."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.names import for_a_spreadsheet
from tallytree.core.notebook import briefly
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.long_table import for_spreadsheets
from tallytree.estimate.intervals.value import Intervals, Kind, checked_level
from tallytree.mechanisms import Mechanism, mechanism_named
from tallytree.publish.folder import (
    MEASUREMENTS,
    MOST_FAULTS,
    PACKAGE,
    PRIVACY,
    UNUSABLE,
    reason,
    write_json,
    write_whole,
)
from tallytree.publish.reading import ParquetRows, check_room, read_json
from tallytree.publish.release.area_files import read_published, with_area_bars, write_areas
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.entities import ENTITIES, ENTITIES_CSV, read_ends, write_entities
from tallytree.publish.release.error_bars import (
    COLUMNS,
    GUARANTEED,
    NO_ERROR_BARS,
    TYPICAL,
    ErrorBars,
    Reach,
    checked_which,
)
from tallytree.publish.release.fallback import Fallback
from tallytree.publish.release.large.layout import ENTITIES as LARGE_ENTITIES
from tallytree.publish.release.large.layout import REGIONS as LARGE_REGIONS
from tallytree.publish.release.large.layout import is_large, is_partitioned
from tallytree.publish.release.measurements_file import load_measurements, save_measurements
from tallytree.publish.release.rows import TableRows
from tallytree.publish.release.statement import data_package, privacy_statement, public_totals
from tallytree.publish.release.truncation import truncation

COUNTS, COUNTS_CSV, REGIONS = "counts.parquet", "counts.csv", "regions.csv"
FILES = (COUNTS, COUNTS_CSV, ENTITIES, ENTITIES_CSV, REGIONS, MEASUREMENTS, PRIVACY, PACKAGE)
MOST_CELLS = 1 << 40
COUNT_COLUMNS = {"level": "string", "region": "string", "name": "string", "size": "int32", "count": "int64"}
REGION_COLUMNS = ("region", "name", "level", "parent", "copy_of", "total")
NULL = -1  # stands for an empty cell among the ends of intervals
CELLS_WITH_ZEROS = 5_000_000  # a larger release leaves its zero cells out


# -------------------------------------------------------------------- writing


def write_release(
    release: ReleaseContents,
    target: Path,
    *,
    replace: bool = False,
    named: Callable[[str], None] = lambda _: None,
    progress: Progress = silent,
) -> str:
    """Write all files and return the release's id. `named` is told the id before the directory is in its place."""

    def fill(folder: Path) -> tuple[str, ...]:
        if is_large(release.hierarchy, len(release.sizes)):
            return write_large(release, folder, progress)
        zeros = len(release.rows) * len(release.sizes) <= CELLS_WITH_ZEROS
        _write_counts(release, folder, zeros=zeros)
        write_entities(release.entities_table(), folder)
        write_regions(release, folder / REGIONS)
        save_measurements(release.measurements, folder / MEASUREMENTS)
        write_json(folder / PRIVACY, privacy_statement(release, zeros=zeros))
        write_json(folder / PACKAGE, data_package(release, zeros=zeros))
        return (*FILES, *write_areas(release, folder))

    return write_whole(target, fill, replace=replace, named=named)


def write_large(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """The files of a large release."""
    from tallytree.publish.release.large.tables import write_tables

    names = write_tables(release, folder, progress)
    save_measurements(release.measurements, folder / MEASUREMENTS, progress=progress)  # and the regions
    write_json(folder / PRIVACY, privacy_statement(release, zeros=False))
    write_json(folder / PACKAGE, data_package(release, zeros=False))
    progress(Stage("taking digests"))
    return (*names, LARGE_REGIONS, MEASUREMENTS, PRIVACY, PACKAGE, *write_areas(release, folder))


def _write_counts(release: ReleaseContents, folder: Path, *, zeros: bool) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    schema = release.schema
    with pq.ParquetWriter(folder / COUNTS, schema) as parquet, pa.csv.CSVWriter(folder / COUNTS_CSV, schema) as text:
        for rows in release.batches(zeros=zeros):
            parquet.write_table(rows)
            text.write_table(for_spreadsheets(rows))


def write_regions(release: ReleaseContents, path: Path) -> None:
    """The regions in breadth-first order, with their public totals."""
    hierarchy, totals = release.hierarchy.regions, public_totals(release.measurements)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(REGION_COLUMNS)
        for region, (identity, name) in enumerate(zip(hierarchy.ids, hierarchy.names, strict=True)):
            parent = hierarchy.parents[region]
            above = hierarchy.ids[parent] if parent >= 0 else ""
            total = "" if totals is None else int(totals[region])
            copy_of = above if hierarchy.carried[region] else ""
            texts = identity, name, hierarchy.levels[hierarchy.level_of[region]], above, copy_of
            writer.writerow([*map(for_a_spreadsheet, texts), total])


# -------------------------------------------------------------------- reading


def read_release(folder: Path) -> ReleaseContents:
    """What a saved release holds, as far as it can be read; `verify` says whether it is sound."""
    large = is_partitioned(folder)
    if not large and not os.path.lexists(folder / COUNTS):
        raise ReleaseError(f"{folder / COUNTS} is missing: {folder} does not hold a release of counts")
    statement = read_json(folder / PRIVACY)
    if not os.path.lexists(folder / MEASUREMENTS):
        raise ReleaseError(
            f"{folder / MEASUREMENTS} is missing: without its measurements a release cannot be checked, and "
            "nothing is known of its error"
        )
    measurements = load_measurements(folder / MEASUREMENTS)
    sizes = range(measurements.first_size, measurements.max_size + 1)
    try:
        cells = (
            _read_large(folder, measurements.hierarchy, sizes, statement)
            if large
            else read_cells(folder / COUNTS, measurements.hierarchy, sizes, statement)
        )
        if cells.problems:
            raise ReleaseError(f"{folder / COUNTS} is damaged: {cells.problems[0]}")
        rows = TableRows(measurements.hierarchy)
        areas = read_published(folder, statement, measurements.hierarchy, len(sizes))
        bars = stored_error_bars(cells, statement.get("intervals"), truncation(measurements.neighbours))
        return ReleaseContents(
            counts=cells.counts,
            measurements=measurements,
            made_by=stated_mechanism(statement),
            certificate=statement["certificate"],
            title=statement["title"],
            fallback=stated_fallback(statement),
            error_bars=with_entities(with_area_bars(folder, bars, areas, sizes, len(rows.values)), folder, rows),
            areas=areas,
        )
    except (KeyError, TypeError) as error:
        raise ReleaseError(f"{folder / PRIVACY} lacks {error}") from None
    except ReleaseError:
        raise
    except UNUSABLE as error:
        raise ReleaseError(f"{folder / PRIVACY} cannot be used: {reason(error)}") from None


def _read_large(folder: Path, tree: Hierarchy, sizes: range, statement: Mapping[str, Any]) -> Cells:
    from tallytree.publish.release.large.tables import read_counts

    counts, ends = read_counts(folder, tree, sizes, statement)
    return Cells(counts, ends, [], counts)


def stated_mechanism(statement: Mapping[str, Any]) -> Mechanism:
    """The mechanism that a privacy statement names, with its options."""
    stated = statement["mechanism"]
    return mechanism_named(stated["name"]).configured(stated["options"])


def stated_fallback(statement: Mapping[str, Any]) -> Fallback | None:
    """Which mechanism failed before the stated one was used, if one did."""
    stated = statement["mechanism"]
    if "asked_for" not in stated:
        return None
    asked = stated["asked_for"]
    return Fallback(mechanism_named(asked["name"]).configured(asked["options"]), stated["failed_because"])


@dataclass(frozen=True, eq=False)
class Cells:
    """counts.parquet as arrays `[regions, sizes]`, with everything that is wrong with its rows."""

    counts: Integers
    ends: dict[str, Integers]  # of intervals, by column, laid out as `TableRows` says; NULL where a cell is empty
    problems: list[str]
    laid_out: Integers | None = None  # the counts as `TableRows` lays them out, with the sums that the table has

    __repr__ = briefly


def count_columns(intervals: Mapping[str, Any] | None, categories: tuple[str, ...] = ()) -> dict[str, str]:
    """Name and type of the columns of counts, by what the privacy statement says of intervals (None without them)."""
    ends = () if intervals is None else COLUMNS[checked_which(intervals["which"])]
    keys: dict[str, str] = {}
    for column, kind in COUNT_COLUMNS.items():
        if column == "size":
            keys |= dict.fromkeys(categories, "string")
        keys[column] = kind
    return {**keys, **dict.fromkeys(ends, "int64")}


def read_cells(path: Path, hierarchy: Hierarchy, sizes: range, statement: Mapping[str, Any]) -> Cells:
    """Read counts and, where the privacy statement promises them, the ends of intervals.

    Where zero cells are written no row may be missing; otherwise a missing cell has count 0, and its intervals reach
    from 0 as far as the statement says for its level.
    """
    import pyarrow as pa

    places = TableRows(hierarchy)
    check_room(places.laid_out * len(sizes), path.name)
    dense, intervals = statement["zero_cells"] == "written", statement.get("intervals")
    expected = count_columns(intervals, places.categories)
    counts = np.zeros((places.laid_out, len(sizes)), dtype=np.int64)
    seen = np.zeros(counts.shape, dtype=np.bool_)
    keys = {*COUNT_COLUMNS, *places.categories}
    ends = {name: np.full(counts.shape, NULL) for name in expected if name not in keys}
    problems: list[str] = []
    try:
        with ParquetRows(path, most=2 * counts.size + 1000) as file:
            kinds = {field.name: str(field.type) for field in file.schema}
            if kinds != expected:
                return Cells(counts[: len(hierarchy)], ends, [f"its columns are {kinds}, not {expected}"])
            for group in file.groups:
                problems += _place_rows(file.group(group), places, sizes, counts, ends, seen)
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    if dense:
        problems += _missing(seen, places, sizes)
    elif intervals is not None:
        _fill_left_out(ends, seen, places, intervals["left_out_at_most"])
    if hierarchy.by is not None:  # the tree's root is the first of the sums, which has the rows
        for values in (counts, *ends.values()):
            values[0] = values[len(hierarchy)]
    return Cells(counts[: len(hierarchy)], ends, problems, counts)


def stored_error_bars(cells: Cells, intervals: Mapping[str, Any] | None, told: str) -> ErrorBars:
    """The error bars that were read, with what the privacy statement says of them; `told` is what was left out."""
    if intervals is None:
        return replace(NO_ERROR_BARS, truncation=told)
    which, confidence = checked_which(intervals["which"]), checked_level(intervals["confidence"])

    def found(kind: Kind, names: tuple[str, str]) -> tuple[Intervals | None, str]:
        given = intervals.get(kind, "")
        if given != "given":
            return None, given
        return Intervals(cells.ends[names[0]], cells.ends[names[1]], confidence, kind), ""

    (guaranteed, no_guaranteed), (typical, no_typical) = found("guaranteed", GUARANTEED), found("typical", TYPICAL)
    bars = ErrorBars(which, confidence, guaranteed, typical, no_guaranteed, no_typical, told)
    return replace(bars, reach=_checked_reach(intervals["reach"]))


def _checked_reach(stated: Any) -> Reach:
    """What the privacy statement says of the reach of intervals; `verify` checks whether it is true."""
    try:
        found: dict[str, dict[str, dict[Kind, int]]] = {
            what: {
                level: {kind: int(of[kind]) for kind in get_args(Kind) if kind in of} for level, of in levels.items()
            }
            for what, levels in stated.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ReleaseError(f"{PRIVACY} is damaged: intervals.reach cannot be read") from error
    return found


def with_entities(bars: ErrorBars, folder: Path, rows: TableRows) -> ErrorBars:
    """The same error bars with those of numbers of entities."""
    if (folder / LARGE_ENTITIES).is_dir():
        from tallytree.publish.release.large.tables import read_entity_ends

        ends = read_entity_ends(folder, COLUMNS[bars.which], rows.tree)
    else:
        ends = read_ends(folder / ENTITIES, COLUMNS[bars.which], rows)

    def found(given: Intervals | None, kind: Kind, names: tuple[str, str]) -> Intervals | None:
        return None if given is None else Intervals(ends[names[0]], ends[names[1]], bars.confidence, kind)

    return replace(
        bars,
        entities_guaranteed=found(bars.guaranteed, "guaranteed", GUARANTEED),
        entities_typical=found(bars.typical, "typical", TYPICAL),
    )


def _fill_left_out(
    ends: dict[str, Integers], seen: NDArray[np.bool_], places: TableRows, at_most: Mapping[str, Mapping[str, int]]
) -> None:
    for name, rows in places.levels.items():
        for lower, upper in (GUARANTEED, TYPICAL):
            if upper in ends and upper in at_most[name]:
                left_out = ~seen[rows]
                for column, value in ((lower, 0), (upper, at_most[name][upper])):
                    some = ends[column][rows]
                    some[left_out] = value
                    ends[column][rows] = some


def _place_rows(
    rows: Any,
    places: TableRows,
    sizes: range,
    counts: Integers,
    ends: dict[str, Integers],
    seen: NDArray[np.bool_],
) -> Iterator[str]:
    """Put a row group's counts where they belong and name the rows that belong nowhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    regions = places.tree.regions
    keys = (*COUNT_COLUMNS, *places.categories)
    if any(rows[name].null_count for name in keys if name in rows.column_names):
        yield "there are empty cells"
        return
    region, place = places.places(rows)
    level = pc.fill_null(pc.index_in(rows["level"], pa.array(regions.levels)), -1).to_numpy()
    size = rows["size"].to_numpy().astype(np.int64) - sizes.start
    value = rows["count"].to_numpy()
    known = (place >= 0) & (size >= 0) & (size < len(sizes))
    for row in np.flatnonzero(~known)[:MOST_FAULTS]:
        texts = [f"{name} {rows[name][row].as_py()!r}" for name in ("region", *places.categories)]
        told = f"{', '.join(texts)} and size {rows['size'][row].as_py()}"
        yield f"a row was added for {told}, which the release does not have"
    region, place, level, size, value = region[known], place[known], level[known], size[known], value[known]
    cells = place * len(sizes) + size
    ordered = np.sort(cells)
    again = np.concatenate([cells[seen.ravel()[cells]], ordered[1:][np.diff(ordered) == 0]])
    for cell in np.unique(again)[:MOST_FAULTS]:
        yield f"the row of {_cell(cell, places, sizes)} appears twice"
    for row in np.flatnonzero(level != regions.level_of[region])[:MOST_FAULTS]:
        yield f"the level of region {regions.ids[region[row]]!r} is wrong"
    if "name" in rows.column_names:
        wrong = pc.not_equal(rows["name"].filter(pa.array(known)), pa.array(regions.names).take(pa.array(region)))
        for row in np.flatnonzero(wrong.to_numpy())[:MOST_FAULTS]:
            yield f"the name of region {regions.ids[region[row]]!r} is wrong"
    for row in np.flatnonzero(value < 0)[:MOST_FAULTS]:
        yield f"the count of {_cell(cells[row], places, sizes)} is negative"
    seen.ravel()[cells] = True
    counts.ravel()[cells] = value
    for name, bounds in ends.items():
        column = rows[name]
        given = pc.fill_null(column, NULL).to_numpy()[known]
        below = (given < 0) & column.is_valid().to_numpy()[known]
        for row in np.flatnonzero(below)[:MOST_FAULTS]:
            yield f"the {name} end of {_cell(cells[row], places, sizes)} is negative"
        bounds.ravel()[cells] = given


def _missing(seen: NDArray[np.bool_], places: TableRows, sizes: range) -> Iterator[str]:
    written = places.order
    some, every = seen[written].any(axis=1), seen[written].all(axis=1)
    for row in np.flatnonzero(~some)[:MOST_FAULTS]:
        yield f"{places.where(int(written[row]))} is missing"
    for row in np.flatnonzero(some & ~every)[:MOST_FAULTS]:
        place = int(written[row])
        yield f"the row of {places.where(place)}, size {sizes[int(np.argmin(seen[place]))]} is missing"


def _cell(cell: int, places: TableRows, sizes: range) -> str:
    row, size = divmod(int(cell), len(sizes))
    return f"{places.where(row)}, size {sizes[size]}"
