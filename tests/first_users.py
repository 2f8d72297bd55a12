"""Three users who make their first release: files as offices have them, and all that the users type.

The data are public sets under their names in `tests.real_data`, real or made up. Nobody writes a file by hand.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tallytree as tt

Find = Callable[[str], Path]  # from a data set's name to its file
Type = Callable[..., Any]  # runs a command of `tallytree`

MOST_COMMANDS = 5
CALLS = 5  # of the user of Python
OPEN = ("ledger", "open", "release.toml", "--epsilon", "2")
PUBLISH = (OPEN, ("release", "release.toml", "--out", "release"), ("verify", "release"))


def write_office_csv(path: Path, table: pa.Table) -> None:
    """Write a file as an office's spreadsheet does: semicolons, decimal commas, windows-1252, empty if missing."""
    with path.open("w", encoding="cp1252", newline="") as file:
        writer = csv.writer(file, delimiter=";", lineterminator="\r\n")
        writer.writerow(table.column_names)
        writer.writerows(zip(*(map(_cell, column.to_pylist()) for column in table.columns), strict=True))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}".replace(".", ",") if isinstance(value, float) else str(value)


def _read(path: Path, **columns: str) -> dict[str, list[Any]]:
    """Return columns of a file under other names."""
    table = pq.read_table(path, columns=list(columns.values()))
    return {name: table[column].to_pylist() for name, column in columns.items()}


def _regions(folder: Path, *levels: tuple[str, Sequence[Any]]) -> None:
    """Write the public list of regions, from the top down."""
    rows = sorted(set(zip(*(column for _, column in levels), strict=True)))
    columns = dict(zip((name for name, _ in levels), zip(*rows, strict=True), strict=True))
    write_office_csv(folder / "regions.csv", pa.table({name: [*cells] for name, cells in columns.items()}))


def publish_survey(folder: Path, find: Find, type_command: Type) -> int:
    """A survey in one file: a row per person with text codes, missing answers and the zone of the household."""
    homes = _read(find("atlanta_arc_households.parquet"), id="household_id", puma="puma", zone="maz", income="hincp")
    at = {home: place for place, home in enumerate(homes["id"])}
    asked = _read(find("atlanta_arc_persons.parquet"), hhid="household_id", age="agep", sex="sex", hours="wkhp")
    place = [at[home] for home in asked["hhid"]]
    survey = {
        "hhid": asked["hhid"],
        "person_id": range(len(place)),
        "puma": [homes["puma"][each] for each in place],
        "zone": [homes["zone"][each] for each in place],
        "âge": asked["age"],
        "sexe": [{1: "m", 2: "f"}[code] for code in asked["sex"]],
        "hours": [None if hours is None or hours < 0 else hours / 1 for hours in asked["hours"]],
        "income": [None if homes["income"][each] is None else homes["income"][each] / 12 for each in place],
    }
    write_office_csv(folder / "survey.csv", pa.table({name: [*cells] for name, cells in survey.items()}))
    _regions(folder, ("puma", homes["puma"]), ("zone", homes["zone"]))
    commands = (("init", "survey.csv", "--yes", "--regions", "regions.csv"), *PUBLISH)
    for command in commands:
        type_command(*command)
    return len(commands)


def publish_two_files(folder: Path, find: Find, type_command: Type) -> int:
    """An office with a file of persons and one of households, some of them empty; codes begin with zeros."""
    columns = {"serial": "household_id", "area": "area", "puma": "puma", "building": "bldgsz", "income": "hinc"}
    homes = _read(find("oregon_2000_pums_households.parquet"), **columns)
    persons = _read(find("oregon_2000_pums_persons.parquet"), serial="household_id", age="age", income="inctot")
    write_office_csv(folder / "persons.csv", pa.table(persons))
    write_office_csv(folder / "households.csv", pa.table(homes))
    _regions(folder, ("area", homes["area"]), ("puma", homes["puma"]))
    commands = (("init", "persons.csv", "households.csv", "--yes", "--regions", "regions.csv"), *PUBLISH)
    for command in commands:
        type_command(*command)
    return len(commands)


def publish_frames(folder: Path, find: Find, type_command: Type) -> int:
    """Data frames of tax units and of households in Python; each call is a command."""
    units = pq.read_table(find("us_cps_2012_2014_taxunits.parquet")).to_pandas()
    homes = pq.read_table(find("us_cps_2012_2014_households.parquet")).to_pandas()
    places = homes[["region", "division", "state"]].drop_duplicates().sort_values(["region", "division", "state"])
    states = tt.Hierarchy.from_levels(places, ["region", "division", "state"])
    how = {"group": "household_id", "region": "state", "entity": "taxunit_id", "max_size": 6}
    private = tt.read(units, groups=homes, hierarchy=states, **how)
    release = tt.release(private, budget=tt.Budget(epsilon=1), unit=tt.one_entity())
    identity = release.save(folder / "release")
    assert tt.verify(folder / "release", id=identity).ok
    return CALLS


USERS = {"statistician": publish_survey, "data scientist": publish_frames, "office": publish_two_files}
