"""Copy synthetic households to CSV files with the column names that population models read.

The copied directory stays unchanged and can be verified; the copy is a convenience without a statement.

ActivitySim's tables have `household_id`, `home_zone_id` and `hhsize`, and `person_id`, `household_id` and `PNUM`; the
settings of its examples rename other columns to these. PopulationSim, with the settings of its examples, writes
`household_id`, a column for each level of regions and `NP` for households, and for persons the same regions,
`household_id` and `per_num`. It has no person ids; the copy adds them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arguments import PATH, TEXT, expecting
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.schema import SIZE, Schema
from tallytree.publish.folder import PRIVACY
from tallytree.publish.microdata.synthesis import HOUSEHOLDS, ID, PERSON, PERSONS, SCHEMA
from tallytree.publish.untrusted import read_json

PERSON_ID = "person_id"


class Form(NamedTuple):
    """Names of files and columns: `zone` is the leaf region as a number; without a zone persons have regions too."""

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
    directory: str | PathLike[str], out: str | PathLike[str], *, form: str = "activitysim", progress: Progress = silent
) -> tuple[Path, Path]:
    """Write the households and persons of a directory as CSV files for a travel model.

    Households have household_id, their number of persons and all attributes. Persons have a person_id, their
    household_id, their number in it and all attributes. For ActivitySim home_zone_id is the leaf region: as a number if
    all leaf regions are numbers, and otherwise by its place among them, from 1. For PopulationSim persons have the
    regions of their household.

    Parameters
    ----------
    directory : path
        The directory of a saved synthesis.
    out : path
        The folder to write to. It is made if need be; files that are there are refused.
    form : {"activitysim", "populationsim"}, default "activitysim"
        The software that the files are for.
    progress : callable, optional
        A function that is called with each step of the work.

    Returns
    -------
    tuple of Path
        The files of households and of persons.

    Raises
    ------
    SpecError
        If the form is unknown.
    ReleaseError
        If the directory cannot be read, or a file is there already.
    """
    if form not in FORMS:
        raise SpecError(f"unknown form {form!r}; {did_you_mean(form, FORMS)}")
    source, target, names = Path(directory), Path(out), FORMS[form]
    for name in (HOUSEHOLDS, PERSONS, PRIVACY, SCHEMA):
        if not (source / name).exists():
            raise ReleaseError(f"{source} holds no synthetic households: there is no {name} in it")
    copying = _Copying(names, Schema.from_json(read_json(source / SCHEMA)), _regions(source))
    copying.refuse_taken()
    paths = target / names.households, target / names.persons
    if there := [path for path in paths if os.path.lexists(path)]:
        raise ReleaseError(f"{there[0]} already exists; give another folder, or move it away")
    target.mkdir(parents=True, exist_ok=True)
    unfinished = [path.with_name(f"{path.name}.new") for path in paths]
    _copied(source, unfinished, copying.rows, progress)
    for path, whole in zip(unfinished, paths, strict=True):
        path.rename(whole)
    return paths


def _regions(source: Path) -> list[str]:
    """Return the columns of regions from the top down; empty if the households agree with no release."""
    agreed = read_json(source / PRIVACY).get("agreement")
    return [] if agreed is None else agreed.get("levels", [agreed["region"]])


def _copied(source: Path, targets: list[Path], changed: Callable[[Any, Any, int], Any], progress: Progress) -> None:
    """Copy every chunk of households and its persons, one row group of each file, to the CSV files."""
    import pyarrow.csv as pc
    import pyarrow.parquet as pq

    with ExitStack() as stack:
        homes, people = (stack.enter_context(pq.ParquetFile(source / name)) for name in (HOUSEHOLDS, PERSONS))
        number, groups = homes.metadata.num_rows, homes.num_row_groups
        if groups != people.num_row_groups:
            raise ReleaseError(f"{source}: {HOUSEHOLDS} and {PERSONS} are not from the same synthesis")
        chunks = ((homes.read_row_group(group), people.read_row_group(group)) for group in range(groups))
        empty = [(homes.schema_arrow.empty_table(), people.schema_arrow.empty_table())]
        writers: list[Any] = []
        first, done = 1, 0
        for home_rows, person_rows in chunks if groups else empty:
            tables = changed(home_rows, person_rows, first)
            if not writers:
                made = zip(targets, tables, strict=True)
                writers = [stack.enter_context(pc.CSVWriter(path, table.schema)) for path, table in made]
            for writer, table in zip(writers, tables, strict=True):
                writer.write_table(table)
            first, done = first + person_rows.num_rows, done + home_rows.num_rows
            progress(Stage("copying households", done, number))


class _Copying(NamedTuple):
    """The columns to copy, and their new names."""

    names: Form
    schema: Schema
    regions: list[str]

    def refuse_taken(self) -> None:
        """Refuse attributes that have the name of another column of the file."""
        added = {ID, self.names.size, *((self.names.zone,) if self.names.zone is not None and self.regions else ())}
        of_persons = {ID, PERSON_ID, self.names.person, *(() if self.names.zone is not None else self.regions)}
        for attributes, taken in ((self.schema.household, added), (self.schema.person, of_persons)):
            if both := [attribute.name for attribute in attributes if attribute.name in taken]:
                raise SpecError(f"two columns would have the name {both[0]!r}; rename the attribute")

    def rows(self, homes: Any, people: Any, first: int) -> tuple[Any, Any]:
        """Return households and their persons, who are numbered from `first` on."""
        return _plain(self._households(homes)), _plain(self._persons(homes, people, first))

    def _households(self, rows: Any) -> Any:
        table = rows.rename_columns([self.names.size if name == SIZE else name for name in rows.column_names])
        if self.names.zone is None or not self.regions:
            return table
        return table.append_column(self.names.zone, self._zones(rows[self.regions[-1]]))

    def _zones(self, labels: Any) -> Any:
        """Return numbers of leaf regions in the schema's order; a file may list those of a chunk in another order."""
        import pyarrow as pa
        import pyarrow.compute as pc

        values = self.schema.attribute(self.regions[-1]).values
        numbered = all(value.isdecimal() and value.isascii() and len(value) < 19 for value in values)
        zones = pa.array([int(value) if numbered else place for place, value in enumerate(values, start=1)], pa.int64())
        return zones.take(pc.index_in(labels.cast(pa.string()), value_set=pa.array(values, pa.string())))

    def _persons(self, homes: Any, rows: Any, first: int) -> Any:
        import pyarrow as pa

        table = rows.rename_columns([self.names.person if name == PERSON else name for name in rows.column_names])
        assert table.column_names[0] == ID
        if self.names.zone is None:
            owner = np.searchsorted(homes[ID].to_numpy(), rows[ID].to_numpy())
            for place, name in enumerate(self.regions, start=1):
                table = table.add_column(place, name, homes[name].combine_chunks().take(pa.array(owner)))
        numbers = pa.array(np.arange(first, first + rows.num_rows, dtype=np.int64))
        return table.add_column(0, PERSON_ID, numbers)


def _plain(table: Any) -> Any:
    """Return labels as texts: CSV has no dictionaries."""
    import pyarrow as pa

    fields = [
        pa.field(field.name, pa.string() if pa.types.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
