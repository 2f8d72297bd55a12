"""CSV on the Web (W3C, 2015): the CSV files of a release with metadata that tell a program all about their columns.

Texts that a spreadsheet would take for formulas have an apostrophe in front, as in a release's own CSV files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tallytree.core.progress import Progress, Stage
from tallytree.domain.long_table import for_spreadsheets
from tallytree.publish.folder import write_json
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.partition import REGIONS_CSV
from tallytree.publish.release.region_table import region_table
from tallytree.publish.release.statement import privacy_note, public_totals
from tallytree.publish.table import Key, Measure, Table

METADATA = "csv-metadata.json"  # where readers look for it, by the standard
LARGEST_SIZE = 2**31 - 1


def write_csvw(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write counts, entities and regions with their metadata, and name the files."""
    regions = region_table(release.hierarchy, public_totals(release.measurements), REGIONS_CSV)
    tables = release.counts_table, release.entity_table, regions
    for table in tables:
        _write(table, folder / f"{table.name}.csv", progress)
    write_json(
        folder / METADATA,
        {
            "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
            "dc:title": release.title,
            "dc:description": privacy_note(release.measurements),
            "tables": [_described(table) for table in tables],
        },
    )
    return (METADATA, *(f"{table.name}.csv" for table in tables))


def _write(table: Table, path: Path, progress: Progress) -> None:
    import pyarrow as pa
    import pyarrow.csv

    done = 0
    with pa.csv.CSVWriter(path, table.schema) as writer:
        for rows in table.batches():
            progress(Stage(f"writing {path.name}", done, table.cells))
            done += rows.num_rows
            writer.write_table(for_spreadsheets(rows))


# -------------------------------------------------------------------- the metadata


def _described(table: Table) -> dict[str, Any]:
    """A table's columns and keys. The parent of a region is no foreign key: the root has none, which readers refuse."""
    columns = [*map(_key, table.keys), *map(_number, table.measures)]
    keys = [key.name for key in table.dimensions]
    schema = {"columns": columns, "primaryKey": [variable(name) for name in keys]}
    if table.name != "regions":
        reference = {"resource": REGIONS_CSV, "columnReference": "region"}
        schema["foreignKeys"] = [{"columnReference": "region", "reference": reference}]
    return {
        "url": f"{table.name}.csv",
        "dc:title": table.title,
        "dc:description": table.description,
        "tableSchema": schema,
    }


def _key(key: Key) -> dict[str, Any]:
    whole = {"base": "integer", "minimum": 0, "maximum": LARGEST_SIZE}
    required = key.name not in ("parent", "copy_of")
    return _column(key.name, whole if key.whole else "string", key.description, required=required)


def _number(measure: Measure) -> dict[str, Any]:
    found = _column(measure.name, {"base": "integer", "minimum": 0}, measure.description, required=measure.given)
    found["schema:unitText"] = measure.unit
    if measure.confidence is not None:
        found["schema:description"] = f"confidence level: {measure.confidence}"
    return found


def _column(name: str, datatype: Any, text: str, *, required: bool = False) -> dict[str, Any]:
    return {
        "name": variable(name),
        "titles": name,
        "datatype": datatype,
        "required": required,
        "dc:description": text,
    }


def variable(name: str) -> str:
    """A column's name as the standard wants it: letters, digits and underscores, and bytes of others as %E2.

    >>> variable("count"), variable("tenure (2020)"), variable("_x")
    ('count', 'tenure%20%282020%29', '%5Fx')
    """
    safe = "".join(
        letter if re.fullmatch("[A-Za-z0-9_]", letter) else "".join(f"%{byte:02X}" for byte in letter.encode())
        for letter in name
    )
    return f"%5F{safe[1:]}" if safe.startswith("_") else safe
