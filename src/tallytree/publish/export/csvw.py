"""CSV on the Web (W3C, 2015): the CSV files of a release with metadata that tell a program all about their columns.

Texts that a spreadsheet would take for formulas have an apostrophe in front, as in a release's own CSV files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tallytree.core.progress import Progress, Stage
from tallytree.domain.long_table import for_spreadsheets
from tallytree.publish.export.cube import Cube, Measure, cubes, privacy_note
from tallytree.publish.folder import write_json
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.files import CELLS_WITH_ZEROS, REGIONS, write_regions
from tallytree.publish.release.rows import category_description

METADATA = "csv-metadata.json"  # where readers look for it, by the standard
LARGEST_SIZE = 2**31 - 1
ZEROS_LEFT_OUT = "Cells that are zero are left out."


def write_csvw(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write counts, entities and regions with their metadata, and name the files."""
    tables, names = [], [METADATA, REGIONS]
    write_regions(release, folder / REGIONS)
    for cube in cubes(release):
        zeros = cube.cells <= CELLS_WITH_ZEROS
        _write(cube, folder / f"{cube.name}.csv", progress, zeros=zeros)
        tables.append(_described(cube, zeros=zeros))
        names.append(f"{cube.name}.csv")
    write_json(
        folder / METADATA,
        {
            "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
            "dc:title": release.title,
            "dc:description": privacy_note(release),
            "tables": [*tables, _regions()],
        },
    )
    return tuple(names)


def _write(cube: Cube, path: Path, progress: Progress, *, zeros: bool) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv

    writer, done = None, 0
    for rows in cube.batches():
        progress(Stage(f"writing {path.name}", done, cube.cells))
        done += rows.num_rows
        writer = writer or pa.csv.CSVWriter(path, rows.schema)
        shown = rows if zeros else rows.filter(pc.not_equal(rows[cube.measures[0].name], 0))
        writer.write_table(for_spreadsheets(shown))
    if writer is not None:
        writer.close()


# -------------------------------------------------------------------- the metadata


def _described(cube: Cube, *, zeros: bool) -> dict[str, Any]:
    keys = [dimension.name for dimension in cube.dimensions]
    texts = {
        "level": "name of the level",
        "region": f"id of the region, as in {REGIONS}",
        "name": "name of the region, to show",
        **{name: category_description(name) for name in keys if name not in ("region", "size")},
    }
    columns = [_column(name, "string", text, required=True) for name, text in texts.items()]
    if keys[-1] == "size":
        whole = {"base": "integer", "minimum": 0, "maximum": LARGEST_SIZE}
        columns.append(_column("size", whole, cube.dimensions[-1].description, required=True))
    columns += [_number(measure, cube.confidence) for measure in cube.measures]
    return {
        "url": f"{cube.name}.csv",
        "dc:title": cube.title,
        "dc:description": cube.description if zeros else f"{cube.description} {ZEROS_LEFT_OUT}",
        "tableSchema": {
            "columns": columns,
            "primaryKey": [variable(name) for name in keys],
            "foreignKeys": [
                {"columnReference": "region", "reference": {"resource": REGIONS, "columnReference": "region"}}
            ],
        },
    }


def _number(measure: Measure, confidence: float) -> dict[str, Any]:
    found = _column(measure.name, {"base": "integer", "minimum": 0}, measure.description, required=measure.given)
    found["schema:unitText"] = measure.unit
    if "lower" in measure.name or "upper" in measure.name:
        found["schema:description"] = f"confidence level: {confidence}"
    return found


def _regions() -> dict[str, Any]:
    """The table of regions. `parent` is no foreign key: the root has none, which readers refuse in a key."""
    columns = [
        _column("region", "string", "id, unique over all levels", required=True),
        _column("name", "string", "name to show", required=True),
        _column("level", "string", "name of the level", required=True),
        _column("parent", "string", "id of the region above; empty at the root"),
        _column("copy_of", "string", "id of the region that this one carries down a level"),
        _column("total", {"base": "integer", "minimum": 0}, "public number of groups, where there is one"),
    ]
    columns[-1]["schema:unitText"] = "groups"
    return {
        "url": REGIONS,
        "dc:title": "regions",
        "tableSchema": {"columns": columns, "primaryKey": ["region"]},
    }


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
