"""Export the tables of a release to formats that other software reads: CSV on the Web, JSON-stat, SDMX-CSV and Excel.

CSV on the Web (W3C, 2015) is the CSV files of a release with metadata that describe every column. Texts that a
spreadsheet would take for formulas have an apostrophe in front, as in a release's own CSV files.

JSON-stat 2.0 is one JSON document per table. It has an extra dimension for the number and its intervals. Readers hold
the whole document in memory, so large releases are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import told
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.histogram import size_label
from tallytree.publish.folder import write_json, write_whole
from tallytree.publish.release.answers import answer_queries
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.queries import Query, QueryKind
from tallytree.publish.release.release_statement import privacy_note, public_totals
from tallytree.publish.release.table_layout import REGIONS_CSV, region_table
from tallytree.publish.table import LABELS, Key, Measure, Table, for_spreadsheets

Format = Literal["sdmx-csv", "json-stat", "csvw", "xlsx"]
FORMATS: tuple[str, ...] = get_args(Format)
METADATA = "csv-metadata.json"  # the file name that the standard prescribes
LARGEST_SIZE = 2**31 - 1
MOST_VALUES = 5_000_000  # of a JSON-stat document
MOST_AVERAGES = 2_000  # rows of the table of averages
AVERAGES: Mapping[QueryKind, int] = {"median": 0, "mean": 4}  # and their decimals
ENDS = ("", "_lower", "_upper")
WHOLE: tuple[Callable[[float], int], ...] = (round, floor, ceil)  # how a number and the ends are rounded
MEASURE = "measure"  # the dimension whose categories are the number and the ends of its intervals


def export(release: ReleaseContents, directory: Path, *, to: str, progress: Progress = silent) -> tuple[str, ...]:
    """Write the counts and the numbers of entities of a release and its areas, and return the names of the files.

    Raises a ReleaseError if the directory exists, and leaves it unchanged.
    """
    if to not in FORMATS:
        hint = did_you_mean(to, FORMATS, "there are") if isinstance(to, str) else f"expected {', '.join(FORMATS)}"
        raise SpecError(f"to is {told(to)}: unknown export format; {hint}")
    written: list[str] = []

    def fill(folder: Path) -> list[str]:
        from tallytree.publish.sdmx import write_sdmx_csv
        from tallytree.publish.workbook import write_workbook

        writers: dict[str, Callable[..., tuple[str, ...]]] = {
            "sdmx-csv": write_sdmx_csv,
            "json-stat": write_json_stat,
            "csvw": write_csvw,
            "xlsx": write_workbook,
        }
        tables = {"tables": exported_tables(release)} if to == "sdmx-csv" else {}
        written.extend(writers[to](release, folder, progress, **tables))
        return written

    write_whole(directory, fill)
    return tuple(written)


def exported_tables(release: ReleaseContents) -> tuple[Table, ...]:
    """Return the tables by codes: counts, entities, each kind of area, and averages."""
    return release.counts_table, release.entity_table, *release.area_tables, *averages_tables(release)


def averages_tables(release: ReleaseContents) -> tuple[Table, ...]:
    """Return the table of median and mean sizes with guaranteed intervals, if there are not too many regions.

    It is in exports only: `query` computes the same numbers from the other tables and the measurements.
    """
    rows, ids, last = release.rows, release.hierarchy.regions.ids, release.sizes[-1]
    places = [(region, dict(zip(rows.categories, values, strict=True))) for region in ids for values in rows.values]
    if len(places) > MOST_AVERAGES:
        return ()
    columns: dict[str, Sequence[float | None]] = {}
    for kind, digits in AVERAGES.items():
        queries = [Query(kind, region, by=by) for region, by in places]
        found = answer_queries(release, queries, confidence=release.error_bars.confidence, typical=False)
        ends, scale = [one.guaranteed or (None, None) for one in found], 10**digits
        values = [one.released for one in found], [low for low, _ in ends], [high for _, high in ends]
        for end, some, whole in zip(ENDS, values, WHOLE, strict=True):
            columns[f"{kind}{end}"] = [None if one is None else whole(one * scale) / scale for one in some]

    def measure(name: str, digits: int) -> Measure:
        level = None if name in AVERAGES else release.error_bars.confidence
        text = f"{LABELS[name]}; empty without groups; {last} stands for {size_label(last, last)}"
        given = level is None or any(value is not None for value in columns[name])
        return Measure(name, text, "entities", given, level, digits, optional=True)

    def rows_of(block: range, zeros: bool) -> dict[str, Any]:
        import pyarrow as pa

        del zeros  # every region has a row
        some = {name: pa.array(values[block.start : block.stop], pa.float64()) for name, values in columns.items()}
        return {**rows.keys(np.arange(block.start, block.stop)), **some}

    made = replace(
        release.entity_table,
        name="averages",
        title=f"{release.title}: median and mean sizes",
        description="The median and the mean size of the groups in every region",
        measures=tuple(measure(f"{kind}{end}", digits) for kind, digits in AVERAGES.items() for end in ENDS),
        rows=rows_of,
    )
    return (made,)


def described(release: ReleaseContents) -> str:
    """Return the publisher's description, if any, and how the numbers are protected."""
    return f"{release.about.description} {privacy_note(release.measurements)}".lstrip()


# -------------------------------------------------------------------- CSV on the Web


def write_csvw(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write counts, entities, regions, areas and averages with their metadata and return the file names."""
    regions = region_table(release.hierarchy, public_totals(release.measurements), REGIONS_CSV)
    areas = [release.areas_table] if release.areas else []
    tables = release.counts_table, release.entity_table, regions, *areas, *averages_tables(release)
    for table in tables:
        _write(table, folder / f"{table.name}.csv", progress)
    write_json(
        folder / METADATA,
        {
            "@context": ["http://www.w3.org/ns/csvw", {"@language": "en"}],
            "dc:title": release.title,
            **release.about.in_dublin_core(),
            "dc:description": described(release),
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


def _described(table: Table) -> dict[str, Any]:
    """Return a table's columns and keys. A region's parent is not a foreign key, since the root has none."""
    columns = [*map(_key, table.keys), *map(_number, table.measures)]
    keys = [key.name for key in table.dimensions]
    schema = {"columns": columns, "primaryKey": [variable(name) for name in keys]}
    if "region" in keys and table.name != "regions":
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
    kind = {"base": "number" if measure.decimals else "integer", "minimum": 0}
    found = _column(measure.name, kind, measure.description, required=measure.given and not measure.optional)
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
    """Return a column's name as the standard requires: letters, digits, underscores, other bytes percent-encoded.

    >>> variable("count"), variable("tenure (2020)"), variable("_x")
    ('count', 'tenure%20%282020%29', '%5Fx')
    """
    safe = "".join(
        letter if re.fullmatch("[A-Za-z0-9_]", letter) else "".join(f"%{byte:02X}" for byte in letter.encode())
        for letter in name
    )
    return f"%5F{safe[1:]}" if safe.startswith("_") else safe


# -------------------------------------------------------------------- JSON-stat


def write_json_stat(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write one document per table and return the file names."""
    found = exported_tables(release)
    values = max(table.cells * len(table.given) for table in found)
    if values > MOST_VALUES:
        raise ReleaseError(
            f"this release has {values:,} values; JSON-stat files are read into memory, so the limit is "
            f"{MOST_VALUES:,}. use --to csvw, or read its Parquet files"
        )
    names = []
    for table in found:
        names.append(f"{table.name}.json")
        progress(Stage(f"writing {names[-1]}"))
        write_json(folder / names[-1], document(table, release))
    return tuple(names)


def document(table: Table, release: ReleaseContents) -> dict[str, Any]:
    """Return a table as a JSON-stat document."""
    given, columns = table.given, [dimension.name for dimension in table.dimensions]
    taken = MEASURE if MEASURE not in columns else f"{MEASURE} (of tallytree)"
    return {
        "version": "2.0",
        "class": "dataset",
        "label": table.title,
        **({"source": release.about.source} if release.about.source else {}),
        "note": [table.description, described(release), *table.missing],
        "id": [*columns, taken],
        "size": [*(len(dimension.codes or ()) for dimension in table.dimensions), len(given)],
        "role": {"geo": [name for name in columns if name in ("region", "area")], "metric": [taken]},
        "dimension": {
            **{dimension.name: _dimension(dimension) for dimension in table.dimensions},
            taken: {
                "label": "the number, and the ends of its intervals",
                "category": {
                    "index": [measure.name for measure in given],
                    "label": {measure.name: measure.label for measure in given},
                    "unit": {measure.name: {"base": measure.unit, "decimals": measure.decimals} for measure in given},
                    "note": {measure.name: [measure.description] for measure in given},
                },
            },
        },
        "value": _values(table).ravel().tolist(),
        "extension": {
            "tallytree": {
                "confidence": table.confidence,
                "privacy": privacy_note(release.measurements),
                **release.about.to_json(),
            }
        },
    }


def _dimension(dimension: Key) -> dict[str, Any]:
    codes = dimension.codes or ()
    category: dict[str, Any] = {"index": list(codes), "label": dict(zip(codes, dimension.labels, strict=True))}
    if dimension.parents is not None:
        below: dict[str, list[str]] = {}
        for code, parent in zip(codes, dimension.parents.tolist(), strict=True):
            if parent >= 0:
                below.setdefault(codes[parent], []).append(code)
        category["child"] = below
    return {"label": dimension.description, "category": category}


def _values(table: Table) -> NDArray[Any]:
    """Return the numbers as `[cells, measures]`, the last dimension moving fastest; None for those that are missing."""
    found = np.full((table.cells, len(table.given)), -1, dtype=object)
    for rows in table.batches(zeros=True):
        cell = table.cells_of(rows)
        for column, measure in enumerate(table.given):
            found[cell, column] = rows[measure.name].to_pylist()
    assert not (found == -1).any()  # every cell has a row, and no number is negative
    return found
