"""The files of a release directory, written; and read back, with everything that is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage, in_percent, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.interval import Kind, checked_level
from tallytree.mechanisms import Mechanism, mechanism_named
from tallytree.publish.folder import (
    MANIFEST,
    MEASUREMENTS,
    MOST_FAULTS,
    PACKAGE,
    PRIVACY,
    UNUSABLE,
    check_form,
    reason,
    write_json,
    write_whole,
)
from tallytree.publish.reading import ParquetRows, check_room, read_json
from tallytree.publish.release.area_files import read_published, with_area_bars, write_areas
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.error_bars import (
    COLUMNS,
    ENDS,
    KINDS,
    NO_ERROR_BARS,
    ErrorBars,
    Reach,
    checked_which,
    intervals_in,
)
from tallytree.publish.release.fallback import Fallback
from tallytree.publish.release.measurements_file import load_measurements, write_measurements
from tallytree.publish.release.partition import COUNTS, ENTITIES, REGIONS, parts
from tallytree.publish.release.region_table import region_table
from tallytree.publish.release.rows import TableRows
from tallytree.publish.release.statement import data_package, privacy_statement, public_totals
from tallytree.publish.release.truncation import truncation

FACTS = (REGIONS, MEASUREMENTS, PRIVACY, PACKAGE)  # beside the files of counts and entities
NULL = -1  # stands for an empty cell among the ends of intervals


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

    def fill(folder: Path) -> list[str]:
        names = write_files(release, folder, progress)
        progress(Stage("taking digests"))
        return names

    return write_whole(target, fill, replace=replace, named=named)


def write_files(release: ReleaseContents, folder: Path, progress: Progress = silent) -> list[str]:
    """Write all files of a release but the manifest, and name them."""
    measurements, names = release.measurements, []
    regions = region_table(release.hierarchy, public_totals(measurements), REGIONS)
    for table in (release.counts_table, release.entity_table, regions):
        names += table.write(folder, progress, csv=release.is_small)
    write_measurements(measurements, folder / MEASUREMENTS, in_percent("writing the measurements", progress))
    write_json(folder / PRIVACY, privacy_statement(release))
    write_json(folder / PACKAGE, data_package(release))
    return [*names, MEASUREMENTS, PRIVACY, PACKAGE, *write_areas(release, folder)]


# -------------------------------------------------------------------- reading


def read_release(folder: Path) -> ReleaseContents:
    """What a saved release holds, as far as it can be read; `verify` says whether it is sound."""
    if os.path.lexists(folder / MANIFEST):
        check_form(folder, do="read")
    if not os.path.lexists(folder / REGIONS):
        raise ReleaseError(f"{folder / REGIONS} is missing: {folder} does not hold a release of counts")
    statement = read_json(folder / PRIVACY)
    if not os.path.lexists(folder / MEASUREMENTS):
        raise ReleaseError(
            f"{folder / MEASUREMENTS} is missing: without its measurements a release cannot be checked, and "
            "nothing is known of its error"
        )
    measurements = load_measurements(folder / MEASUREMENTS)
    sizes = range(measurements.first_size, measurements.max_size + 1)
    try:
        cells = read_cells(folder, measurements.hierarchy, sizes, statement)
        if cells.problems:
            raise ReleaseError(f"the counts in {folder} are damaged: {cells.problems[0]}")
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
            error_bars=with_entities(
                with_area_bars(folder, bars, areas, sizes, len(rows.values)), folder, rows, len(sizes)
            ),
            areas=areas,
        )
    except (KeyError, TypeError) as error:
        raise ReleaseError(f"{folder / PRIVACY} lacks {error}") from None
    except ReleaseError:
        raise
    except UNUSABLE as error:
        raise ReleaseError(f"{folder / PRIVACY} cannot be used: {reason(error)}") from None


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
    """The table of counts as arrays `[regions, sizes]`, with everything that is wrong with its rows."""

    counts: Integers
    ends: dict[str, Integers]  # of intervals, by column, laid out as `TableRows` says; NULL where a cell is empty
    problems: list[str]
    laid_out: Integers | None = None  # the counts as `TableRows` lays them out, with the sums that the table has

    __repr__ = briefly


Pieces = Iterable[tuple[range, Any]]  # rows of a table, and the regions that they may be about


def pieces_of(folder: Path, table: str, tree: Hierarchy, sizes: int, most: int) -> Iterator[tuple[range, Any]]:
    """All rows of a table, part by part; of a file at most `most` rows for each region are read."""
    import pyarrow as pa

    for part in parts(tree, sizes):
        path = folder / part.file(table)
        try:
            with ParquetRows(path, most=2 * len(part.regions) * most + 1000) as file:
                for group in file.groups:
                    yield part.regions, file.group(group)
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None


def read_cells(folder: Path, tree: Hierarchy, sizes: range, statement: Mapping[str, Any]) -> Cells:
    """The counts of a whole release."""
    most = len(TableRows(tree).values) * len(sizes)
    return cells_of(pieces_of(folder, COUNTS, tree, len(sizes), most), tree, sizes, statement)


def cells_of(
    pieces: Pieces, tree: Hierarchy, sizes: range, statement: Mapping[str, Any], *, some: bool = False
) -> Cells:
    """Counts and, where the privacy statement promises them, the ends of intervals, from rows of their table.

    Where zero cells are written no row may be missing, unless these are `some` of the rows; otherwise a missing cell
    has count 0, and its intervals reach from 0 as far as the statement says for its level.
    """
    places = TableRows(tree)
    check_room(places.laid_out * len(sizes), COUNTS)
    intervals = statement.get("intervals")
    names = () if intervals is None else COLUMNS[checked_which(intervals["which"])]
    counts = np.zeros((places.laid_out, len(sizes)), dtype=np.int64)
    seen = np.zeros(counts.shape, dtype=np.bool_)
    ends = {name: np.full(counts.shape, NULL) for name in names}
    expected = ["region", "name", *places.categories, "size", "count", *names]
    problems: list[str] = []
    for among, rows in pieces:
        if [name for name in rows.schema.names if name != "level"] != expected:
            return Cells(counts[: len(tree)], ends, [f"its columns are {rows.schema.names}, not {expected}"])
        problems += _place_rows(rows, places, among, sizes, counts, ends, seen)
    if statement["zero_cells"] == "written":
        problems += [] if some else _missing(seen, places, sizes)
    elif intervals is not None:
        _fill_left_out(ends, seen, places, intervals["left_out_at_most"])
    if tree.by.columns:  # the tree's root is the first of the sums, which has the rows
        for values in (counts, *ends.values()):
            values[0] = values[len(tree)]
    return Cells(counts[: len(tree)], ends, problems, counts)


def stored_error_bars(cells: Cells, intervals: Mapping[str, Any] | None, told: str) -> ErrorBars:
    """The error bars that were read, with what the privacy statement says of them; `told` is what was left out."""
    if intervals is None:
        return replace(NO_ERROR_BARS, truncation=told)
    which, confidence = checked_which(intervals["which"]), checked_level(intervals["confidence"])
    missing = {kind: intervals.get(kind, "") for kind in KINDS[which] if intervals.get(kind, "") != "given"}
    found = intervals_in(cells.ends, [kind for kind in KINDS[which] if kind not in missing], confidence)
    return ErrorBars(which, confidence, {"counts": found}, missing, told, _checked_reach(intervals["reach"]))


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


def with_entities(bars: ErrorBars, folder: Path, rows: TableRows, sizes: int) -> ErrorBars:
    """The same error bars with those of numbers of entities."""
    return with_entity_rows(bars, pieces_of(folder, ENTITIES, rows.tree, sizes, len(rows.values)), rows)


def with_entity_rows(bars: ErrorBars, pieces: Pieces, rows: TableRows) -> ErrorBars:
    """The same, from rows of the table of entities."""
    import pyarrow.compute as pc

    ends = {name: np.full(rows.laid_out, NULL) for name in COLUMNS[bars.which]}
    found_rows = 0
    for among, table in pieces:
        found_rows += len(table)
        if missing := [name for name in ends if name not in table.schema.names]:
            raise ReleaseError(f"{ENTITIES} is damaged: it lacks the column {missing[0]}")
        _, place = rows.places(table, among)
        if np.any(place < 0):
            raise ReleaseError(f"{ENTITIES} is damaged: it has rows of regions that the release does not have")
        for name, own in ends.items():
            own[place] = pc.fill_null(table[name], NULL).to_numpy().astype(np.int64)
    if found_rows != len(rows):
        raise ReleaseError(f"{ENTITIES} is damaged: it has {found_rows:,} rows, and should have {len(rows):,}")
    if rows.categories:  # the tree's root is the first of the sums, which has the row
        for values in ends.values():
            values[0] = values[len(rows.tree)]

    return replace(bars, of={**bars.of, "entities": intervals_in(ends, bars.of.get("counts", {}), bars.confidence)})


def _fill_left_out(
    ends: dict[str, Integers], seen: NDArray[np.bool_], places: TableRows, at_most: Mapping[str, Mapping[str, int]]
) -> None:
    for name, rows in places.levels.items():
        for lower, upper in ENDS.values():
            if upper in ends and upper in at_most.get(name, {}):
                left_out = ~seen[rows]
                for column, value in ((lower, 0), (upper, at_most[name][upper])):
                    some = ends[column][rows]
                    some[left_out] = value
                    ends[column][rows] = some


def _place_rows(
    rows: Any,
    places: TableRows,
    among: range,
    sizes: range,
    counts: Integers,
    ends: dict[str, Integers],
    seen: NDArray[np.bool_],
) -> Iterator[str]:
    """Put a row group's counts where they belong and name the rows that belong nowhere."""
    import pyarrow as pa
    import pyarrow.compute as pc

    regions = places.tree.regions
    keys = ("level", "region", "name", *places.categories, "size", "count")
    if any(rows[name].null_count for name in keys if name in rows.column_names):
        yield "there are empty cells"
        return
    region, place = places.places(rows, among)
    level = regions.level_of[np.maximum(region, 0)]  # unless the rows say otherwise
    if "level" in rows.column_names:
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
    names = pa.array(regions.names[among.start : among.stop], pa.string()).take(pa.array(region - among.start))
    for row in np.flatnonzero(pc.not_equal(rows["name"].filter(pa.array(known)), names).to_numpy())[:MOST_FAULTS]:
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
