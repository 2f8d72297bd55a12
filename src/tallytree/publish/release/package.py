"""The files of a release directory."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from tallytree.publish.folder import write_json, write_whole
from tallytree.publish.release.files import (
    COUNTS,
    COUNTS_CSV,
    FILES,
    MEASUREMENTS,
    PACKAGE,
    PRIVACY,
    REGION_COLUMNS,
    REGIONS,
)
from tallytree.publish.release.statement import data_package, privacy_statement

if TYPE_CHECKING:
    from tallytree.publish.release.making import Release

CELLS_WITH_ZEROS = 5_000_000  # a larger release leaves its zero cells out


def write_release(release: Release, target: Path, *, replace: bool = False) -> str:
    """Write all files and return the release's id."""

    def fill(folder: Path) -> tuple[str, ...]:
        zeros = release.counts.size <= CELLS_WITH_ZEROS
        _write_counts(release, folder, zeros=zeros)
        _write_regions(release, folder / REGIONS)
        release.measurements.save(folder / MEASUREMENTS)
        write_json(folder / PRIVACY, privacy_statement(release, zeros=zeros))
        write_json(folder / PACKAGE, data_package(release, zeros=zeros))
        return FILES

    return write_whole(target, fill, replace=replace)


def _write_counts(release: Release, folder: Path, *, zeros: bool) -> None:
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    schema = release.schema
    with pq.ParquetWriter(folder / COUNTS, schema) as parquet, pa.csv.CSVWriter(folder / COUNTS_CSV, schema) as text:
        for rows in release.batches(zeros=zeros):
            described_rows = rows.cast(schema)
            parquet.write_table(described_rows)
            text.write_table(described_rows)


def _write_regions(release: Release, path: Path) -> None:
    hierarchy, totals = release.hierarchy, release.measurements.region_totals
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(REGION_COLUMNS)
        for region, (identity, name) in enumerate(zip(hierarchy.ids, hierarchy.names, strict=True)):
            parent = hierarchy.parents[region]
            above = hierarchy.ids[parent] if parent >= 0 else ""
            total = "" if totals is None else int(totals[region])
            copy_of = above if hierarchy.carried[region] else ""
            writer.writerow([identity, name, hierarchy.levels[hierarchy.level_of[region]], above, copy_of, total])
