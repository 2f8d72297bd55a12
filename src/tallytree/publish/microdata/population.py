"""Synthetic households under the names that population models read: a copy of the two tables, some rows at a time.

The directory that is copied stays as it is and can be verified; the copy is a convenience without a statement.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from tallytree.arguments import PATH, TEXT, expecting
from tallytree.errors import ReleaseError, SpecError
from tallytree.names import did_you_mean
from tallytree.publish.folder import PRIVACY
from tallytree.publish.microdata.files import HOUSEHOLDS, ID, PERSON, PERSONS
from tallytree.publish.reading import read_json
from tallytree.schema import SIZE


class Form(NamedTuple):
    """Names of files and columns; without a name for the zone the regions keep their own columns alone."""

    households: str
    persons: str
    size: str
    person: str
    zone: str | None = None


FORMS = {
    "activitysim": Form("households.csv", "persons.csv", "hhsize", "PNUM", "home_zone_id"),
    "populationsim": Form("synthetic_households.csv", "synthetic_persons.csv", "NP", "per_num"),
}


@expecting(directory=PATH, out=PATH, form=TEXT)
def population_files(
    directory: str | PathLike[str], out: str | PathLike[str], *, form: str = "activitysim"
) -> tuple[Path, Path]:
    """Write the households and persons of a directory as CSV files, in the form "activitysim" or "populationsim".

    Households have household_id, their number of persons and all attributes, persons a person_id, their household_id,
    their number in it and all attributes. For ActivitySim home_zone_id is the leaf region, as a number if all leaf
    regions are numbers and otherwise by its place among them, from 1. The folder `out` is made if need be, and files
    that are there are refused.
    """
    if form not in FORMS:
        raise SpecError(f"there is no form {form!r}; {did_you_mean(form, FORMS)}")
    source, target, names = Path(directory), Path(out), FORMS[form]
    for name in (HOUSEHOLDS, PERSONS, PRIVACY):
        if not (source / name).exists():
            raise ReleaseError(f"{source} holds no synthetic households: there is no {name} in it")
    paths = target / names.households, target / names.persons
    if there := [path for path in paths if os.path.lexists(path)]:
        raise ReleaseError(f"{there[0]} is there already; give another folder, or move it away")
    target.mkdir(parents=True, exist_ok=True)
    agreed = read_json(source / PRIVACY).get("agreement")
    region = None if agreed is None or names.zone is None else agreed["region"]
    _copied(source / HOUSEHOLDS, paths[0], lambda rows, first: _households(rows, names, region))
    _copied(source / PERSONS, paths[1], lambda rows, first: _persons(rows, names, first))
    return paths


def _copied(source: Path, target: Path, changed: Any) -> None:
    """Every group of rows, changed, into a CSV file that has its name once it is whole."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    unfinished = target.with_name(f"{target.name}.new")
    with pq.ParquetFile(source) as file, ExitStack() as stack:
        writer, first = None, 1
        for rows in _groups(file):
            table = changed(rows, first)
            if writer is None:
                writer = stack.enter_context(pc.CSVWriter(unfinished, table.schema))
            writer.write_table(table)
            first += rows.num_rows
    unfinished.rename(target)


def _groups(file: Any) -> Iterator[Any]:
    """The groups of rows, or the empty table where there are none."""
    if file.num_row_groups == 0:
        yield file.schema_arrow.empty_table()
    for group in range(file.num_row_groups):
        yield file.read_row_group(group)


def _households(rows: Any, names: Form, region: str | None) -> Any:
    import pyarrow as pa

    table = rows.rename_columns([names.size if name == SIZE else name for name in rows.column_names])
    if region is None:
        return _plain(table)
    labels = rows[region].combine_chunks()
    values = labels.dictionary.to_pylist() if len(labels) else []
    numbered = all(value.isdecimal() and value.isascii() and len(value) < 19 for value in values)
    zones = pa.array([int(value) if numbered else place for place, value in enumerate(values, start=1)], pa.int64())
    return _plain(table.append_column(names.zone, zones.take(labels.indices) if len(labels) else zones))


def _persons(rows: Any, names: Form, first: int) -> Any:
    import numpy as np
    import pyarrow as pa

    table = rows.rename_columns([names.person if name == PERSON else name for name in rows.column_names])
    numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
    assert table.column_names[0] == ID
    return _plain(table.add_column(0, "person_id", numbers))


def _plain(table: Any) -> Any:
    """Labels as texts: CSV has no dictionaries."""
    import pyarrow as pa

    fields = [
        pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
