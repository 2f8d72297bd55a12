"""SDMX-CSV 2.0: the tables of a release with codes for keys, and a structure message (SDMX-ML 3.0) with the labels.

Codes in SDMX have letters, digits, `_`, `@`, `$` and `-`. Other characters of a region's id are written as `$2f$`,
their number in hexadecimal, so that two ids never share a code and no code begins a formula. Labels are names as they
are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Progress, Stage
from tallytree.publish.export.sdmx_structure import AGENCY, VERSION, Component, Flow, write_structure
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.statement import privacy_note
from tallytree.publish.table import Key, Table

STRUCTURE = "structure.xml"
MOST_OBSERVATIONS = 20_000_000
# Columns of every such file, and one that SDMX gives a meaning of its own.
TAKEN = ("structure", "structure_id", "structure_name", "action", "series_key", "obs_key", "time_period")


def write_sdmx_csv(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write a file of observations for each table and the structure of both, and name the files."""
    found = release.counts_table, release.entity_table
    most = max(table.cells for table in found)
    if most > MOST_OBSERVATIONS:
        raise ReleaseError(
            f"this release has {most:,} observations; as SDMX-CSV, which has no room for cells that are left out, at "
            f"most {MOST_OBSERVATIONS:,} are written. Export it as csvw, or read its Parquet files"
        )
    names = [STRUCTURE]
    flows = [_flow(table, privacy_note(release.measurements)) for table in found]
    for table, flow in zip(found, flows, strict=True):
        names.append(f"{table.name}.csv")
        _write(table, flow, folder / names[-1], progress)
    write_structure(flows, release.title, folder / STRUCTURE)
    return tuple(names)


def code(text: str) -> str:
    """A text as a code: the same text always gives the same code, and two texts give two.

    >>> code("13121"), code("OR/Lincoln"), code("-1"), code("$")
    ('13121', 'OR$2f$Lincoln', '$2d$1', '$24$')
    """
    escaped = re.sub(r"[^A-Za-z0-9_@-]|^[-@]", lambda found: f"${ord(found[0]):x}$", text)
    return escaped or "$$"


def component_ids(names: Iterable[str]) -> dict[str, str]:
    """Columns' names as ids of components, in capital letters; where two would be the same a number is added.

    >>> component_ids(["region", "born in", "born-in", "2020"])
    {'region': 'REGION', 'born in': 'BORN_IN', 'born-in': 'BORN_IN_2', '2020': 'C_2020'}
    """
    found: dict[str, str] = {}
    for name in names:
        plain = re.sub(r"[^A-Z0-9_]", "_", name.upper())
        plain = plain if re.match("[A-Z]", plain) else f"C_{plain}"
        number, chosen = 1, plain
        while chosen in found.values():
            number += 1
            chosen = f"{plain}_{number}"
        found[name] = chosen
    return found


# -------------------------------------------------------------------- observations


def _flow(table: Table, note: str) -> Flow:
    """What the structure says of a table. The first measure is OBS_VALUE, the others are attributes beside it."""
    kept = (*TAKEN, "obs_value", "unit_measure", "conf_level", *(measure.name for measure in table.measures))
    ids = component_ids([*kept, *(dimension.name for dimension in table.dimensions)])
    return Flow(
        name=table.name.upper(),
        label=table.title,
        description=f"{table.description}. {note}",
        dimensions=tuple(
            Component(ids[dimension.name], dimension.description, _codes(dimension)) for dimension in table.dimensions
        ),
        value=Component("OBS_VALUE", table.measures[0].description),
        attributes=(
            *(Component(ids[measure.name], measure.description) for measure in table.given[1:]),
            Component(ids["unit_measure"], "unit of OBS_VALUE", ((_unit(table), table.measures[0].unit, ""),)),
            Component(ids["conf_level"], "level of confidence of the intervals", kind="Decimal"),
        ),
    )


def _codes(dimension: Key) -> tuple[tuple[str, str, str], ...]:
    codes = [code(one) for one in dimension.codes or ()]
    parents = (-1,) * len(codes) if dimension.parents is None else dimension.parents.tolist()
    above = (codes[parent] if parent >= 0 else "" for parent in parents)
    return tuple(zip(codes, dimension.labels, above, strict=True))


def _unit(table: Table) -> str:
    return table.measures[0].unit.upper()


def _write(table: Table, flow: Flow, path: Path, progress: Progress) -> None:
    import pyarrow as pa
    import pyarrow.csv

    writer, done = None, 0
    for rows in table.batches(zeros=True):
        progress(Stage(f"writing {path.name}", done, table.cells))
        done += rows.num_rows
        keys = {
            component.name: _as_codes(rows[dimension.name])
            for component, dimension in zip(flow.dimensions, table.dimensions, strict=True)
        }
        numbers = [rows[measure.name] for measure in table.given]
        columns = {
            "STRUCTURE": pa.repeat(pa.scalar("dataflow"), rows.num_rows),
            "STRUCTURE_ID": pa.repeat(pa.scalar(f"{AGENCY}:{flow.name}({VERSION})"), rows.num_rows),
            "ACTION": pa.repeat(pa.scalar("I"), rows.num_rows),
            **keys,
            "OBS_VALUE": numbers[0],
            **{found.name: column for found, column in zip(flow.attributes, numbers[1:], strict=False)},
            flow.attributes[-2].name: pa.repeat(pa.scalar(_unit(table)), rows.num_rows),
            flow.attributes[-1].name: pa.repeat(pa.scalar(str(table.confidence)), rows.num_rows),
        }
        written = pa.table(columns)
        writer = writer or pa.csv.CSVWriter(path, written.schema)
        writer.write_table(written)
    if writer is not None:
        writer.close()


def _as_codes(column: Any) -> Any:
    """A column of texts or sizes as codes."""
    import pyarrow as pa

    texts = column.cast(pa.string()).combine_chunks().dictionary_encode()
    codes = pa.array([code(text) for text in texts.dictionary.to_pylist()], pa.string())
    return codes.take(texts.indices)
