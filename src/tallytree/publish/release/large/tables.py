"""The two tables of a large release, counts and numbers of entities, file by file: their rows, written and read back.

Level, and the region of the first level, are in the names of folders and not in the files. Cells whose count is zero
have no row. A file is made and compared in blocks of regions, so that no table is ever held whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.kernels import in_threads
from tallytree.core.progress import Progress, Stage
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import entities
from tallytree.publish.reading import ParquetRows, check_room
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.entities import entity_schema
from tallytree.publish.release.error_bars import COLUMNS, GUARANTEED, TYPICAL, checked_which
from tallytree.publish.release.large.layout import COUNTS, ENTITIES, Part, parts

REGIONS_AT_A_TIME = 1 << 16
NULL = -1  # stands for an empty cell among the ends of intervals
IN_NAMES = ("level",)  # columns that are in the names of folders


def schema_of(release: ReleaseContents, table: str) -> Any:
    """Columns and types of a table's files, with what they hold in words."""
    found = (
        release.schema
        if table == COUNTS
        else entity_schema(release.measurements.neighbours, release.sizes[-1], release.error_bars)
    )
    for name in IN_NAMES:
        found = found.remove(found.get_field_index(name))
    return found


def rows_of(release: ReleaseContents, table: str, block: range, schema: Any) -> Any:
    """The rows of a block of regions: a pyarrow Table."""
    import pyarrow as pa

    tree, some = release.hierarchy, slice(block.start, block.stop)
    counts = release.counts[some]
    values: dict[str, Any]
    if table == COUNTS:
        flat = counts.ravel()
        cells = np.flatnonzero(flat)
        region = cells // len(release.sizes)
        values = {"size": (release.sizes.start + cells % len(release.sizes)).astype(np.int32), "count": flat[cells]}
        ends = {name: None if ends is None else ends[some].ravel()[cells] for name, ends in _ends(release, table)}
    else:
        region = np.arange(len(block))
        values = {"entities": entities(counts, release.sizes.start), "open_groups": counts[:, -1]}
        ends = {name: None if ends is None else ends[some] for name, ends in _ends(release, table)}
    values |= {name: pa.nulls(len(region), pa.int64()) if cells is None else cells for name, cells in ends.items()}
    place = pa.array(region)
    ids = pa.array(tree.ids[some], pa.string()).take(place)
    names = ids if tree.names is tree.ids else pa.array(tree.names[some], pa.string()).take(place)
    return pa.table({"region": ids, "name": names, **values}, schema=schema)


def _ends(release: ReleaseContents, table: str) -> Iterator[tuple[str, Integers | None]]:
    bars = release.error_bars
    yield from (bars.columns if table == COUNTS else bars.entity_columns).items()


def _blocks(regions: range) -> Iterator[range]:
    for start in range(regions.start, regions.stop, REGIONS_AT_A_TIME):
        yield range(start, min(start + REGIONS_AT_A_TIME, regions.stop))


# -------------------------------------------------------------------- writing


def write_tables(release: ReleaseContents, folder: Path, progress: Progress) -> list[str]:
    """Write all files of both tables, on all cores; gives their names."""
    import pyarrow.parquet as pq

    schemas = {table: schema_of(release, table) for table in (COUNTS, ENTITIES)}
    work = [(table, part) for table in schemas for part in parts(release.hierarchy)]
    told = _Told("writing", [part for _, part in work], progress)

    def write(start: int, stop: int) -> None:
        for table, part in work[start:stop]:
            path = folder / part.file(table)
            path.parent.mkdir(parents=True, exist_ok=True)
            texts = ["region", "name"] if table == COUNTS else False  # each region has a row for each of its sizes
            with pq.ParquetWriter(path, schemas[table], use_dictionary=texts) as file:
                for block in _blocks(part.regions):
                    file.write_table(rows_of(release, table, block, schemas[table]))
            told.done(part)

    in_threads(write, [(number, number + 1) for number in range(len(work))])
    return [part.file(table) for table, part in work]


class _Told:
    """Tells progress how many regions are done, from any thread."""

    def __init__(self, doing: str, work: list[Part], progress: Progress) -> None:
        self._doing, self._progress, self._lock = doing, progress, Lock()
        self._done, self._of = 0, sum(len(part.regions) for part in work)

    def done(self, part: Part) -> None:
        with self._lock:
            self._done += len(part.regions)
            self._progress(Stage(self._doing, self._done, self._of, unit="%"))


# -------------------------------------------------------------------- reading


def read_counts(
    folder: Path, tree: Hierarchy, sizes: range, statement: Mapping[str, Any]
) -> tuple[Integers, dict[str, Integers]]:
    """Counts `[regions, sizes]` and the ends of intervals, by column; refused unless each row is where it belongs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    check_room(len(tree) * len(sizes), COUNTS)
    intervals = statement.get("intervals")
    names = () if intervals is None else COLUMNS[checked_which(intervals["which"])]
    counts = np.zeros((len(tree), len(sizes)), np.int64)
    ends = {name: np.full(counts.shape, NULL) for name in names}
    for part in parts(tree):
        if intervals is not None:
            _left_out(ends, part, intervals["left_out_at_most"][tree.levels[part.level]])
        ids = pa.array(tree.ids[part.regions.start : part.regions.stop], pa.string())
        with ParquetRows(folder / part.file(COUNTS), most=len(part.regions) * len(sizes)) as file:
            for group in file.groups:
                rows = file.group(group)
                place = pc.index_in(rows["region"].combine_chunks(), ids)
                size = rows["size"].to_numpy().astype(np.int64) - sizes.start
                if place.null_count or np.any((size < 0) | (size >= len(sizes))):
                    raise ReleaseError(
                        f"{part.file(COUNTS)} has rows of regions or sizes that the release does not have"
                    )
                cells = (part.regions.start + place.to_numpy().astype(np.int64)) * len(sizes) + size
                counts.ravel()[cells] = rows["count"].to_numpy()
                for name in names:
                    ends[name].ravel()[cells] = pc.fill_null(rows[name], NULL).to_numpy()
    return counts, ends


def _left_out(ends: dict[str, Integers], part: Part, at_most: Mapping[str, int]) -> None:
    """Cells without a row have intervals from 0 to what is stated for their level."""
    for lower, upper in (GUARANTEED, TYPICAL):
        if upper in ends and upper in at_most:
            ends[lower][part.regions.start : part.regions.stop] = 0
            ends[upper][part.regions.start : part.regions.stop] = at_most[upper]


def read_entity_ends(folder: Path, names: tuple[str, ...], tree: Hierarchy) -> dict[str, Integers]:
    """The ends of intervals of numbers of entities `[regions]`, by column; −1 where a cell is empty."""
    import pyarrow.compute as pc

    found = {name: np.full(len(tree), NULL) for name in names}
    for part in parts(tree):
        with ParquetRows(folder / part.file(ENTITIES), most=len(part.regions)) as file:
            if file.rows != len(part.regions):
                raise ReleaseError(f"{part.file(ENTITIES)} has {file.rows:,} rows for {len(part.regions):,} regions")
            start = part.regions.start
            for group in file.groups:
                rows = file.group(group)
                for name in names:
                    found[name][start : start + len(rows)] = pc.fill_null(rows[name], NULL).to_numpy()
                start += len(rows)
    return found
