"""The release directory: written beside its place and renamed into it, so that a half-written one never exists."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallytree.errors import ReleaseError
from tallytree.publish.statement import data_package, privacy_statement
from tallytree.publish.stored import (
    COUNTS,
    COUNTS_CSV,
    FILES,
    MANIFEST,
    MEASUREMENTS,
    PACKAGE,
    PRIVACY,
    REGION_COLUMNS,
    REGIONS,
    digest,
)

if TYPE_CHECKING:
    from tallytree.publish.release import Release

CELLS_WITH_ZEROS = 5_000_000  # a larger release leaves its zero cells out


def write_release(release: Release, target: Path, *, replace: bool = False) -> str:
    """Write all files and return the release's id."""
    target = target.absolute()
    refuse_existing(target, replace=replace)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".writing", dir=target.parent))
    try:
        zeros = release.counts.size <= CELLS_WITH_ZEROS
        _write_counts(release, staging, zeros=zeros)
        _write_regions(release, staging / REGIONS)
        release.measurements.save(staging / MEASUREMENTS)
        _write_json(staging / PRIVACY, privacy_statement(release, zeros=zeros))
        _write_json(staging / PACKAGE, data_package(release, zeros=zeros))
        _write_json(staging / MANIFEST, {"files": {name: digest(staging / name) for name in FILES}})
        release_id = digest(staging / MANIFEST)
        for path in [*staging.iterdir(), staging]:
            _flush(path)
        staging.chmod(0o755)
        _put_in_place(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return release_id


def refuse_existing(target: Path, *, replace: bool = False) -> None:
    """A release is never written over something else; over an older release only if asked."""
    if not target.exists():
        return
    if not replace:
        raise ReleaseError(f"{target} is there already; choose another directory or remove it")
    if not (target / MANIFEST).is_file():
        raise ReleaseError(f"{target} is not a release, so it is not replaced; choose another directory")


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


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _put_in_place(staging: Path, target: Path) -> None:
    """Rename into place; an older release is moved aside first and removed last."""
    old = None
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent)) / target.name
        target.rename(old)
    staging.rename(target)
    _flush(target.parent)
    if old is not None:
        shutil.rmtree(old.parent)
