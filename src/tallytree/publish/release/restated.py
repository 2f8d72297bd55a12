"""Everything that a release says, said again from its measurements and counts, and compared word by word.

The writers of the files are asked once more; what they would write now is what has to be there. So no field can be
added to a statement that `verify` does not look at.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tallytree.core.names import from_a_spreadsheet
from tallytree.core.numbers import short
from tallytree.publish.folder import MEASUREMENTS, PACKAGE, PRIVACY
from tallytree.publish.reading import ParquetRows, read_json
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.files import COUNTS, REGIONS, write_regions
from tallytree.publish.release.measurements_file import described_as, stored_facts
from tallytree.publish.release.statement import data_package, privacy_statement

# What format 1 did not have yet, or said in other words; the other checks look at it.
OLDER = {
    "format",
    "statement",
    "neighbours.rows_were_bounded",
    "truncation",
    "measured_first",
    "same_data_as",
    "entities",
}
REPORTED = {"software.tallytree", "software.python"}  # what nothing follows from: any text


def differences(stated: Any, expected: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Places where a JSON value is not the expected one, and what is wrong there."""
    if isinstance(stated, dict) and isinstance(expected, dict):
        for key in [*expected, *(key for key in stated if key not in expected)]:
            inner = f"{place}.{key}" if place else str(key)
            if key not in stated:
                yield inner, "is missing"
            elif key not in expected:
                yield short(inner), "is not something that a release says"
            else:
                yield from differences(stated[key], expected[key], inner)
    elif isinstance(stated, list) and isinstance(expected, list) and len(stated) == len(expected):
        for number, (one, other) in enumerate(zip(stated, expected, strict=True)):
            yield from differences(one, other, f"{place}.{number}")
    elif type(stated) is not type(expected) or stated != expected:
        yield place, f"is {short(stated, 200)}; what follows from the other files is {short(expected, 200)}"


def statement_differs(release: ReleaseContents, folder: Path, *, zeros: bool) -> Iterator[str]:
    """privacy.json against what follows from measurements, counts and the stated mechanism."""
    stated, older = read_json(folder / PRIVACY), _is_older(folder)
    if older and "truncation" in stated:
        yield f"{PRIVACY}: format 1 did not say what was left out, so this is not of that format"
    for place, fault in differences(stated, _plain(privacy_statement(release, zeros=zeros))):
        if older and (place in OLDER or (place in ("mechanism.options", "intervals") and fault == "is missing")):
            continue
        if place in REPORTED:
            name = place.split(".")[1]
            if isinstance(version := stated["software"].get(name), str) and 0 < len(version) <= 100:
                continue
        yield f"{PRIVACY}: {place} {fault}"


def package_differs(release: ReleaseContents, folder: Path, *, zeros: bool) -> Iterator[str]:
    """datapackage.json against the tables it describes. Format 1 had no names beside ids, and other descriptions."""
    expected, older = _plain(data_package(release, zeros=zeros)), _is_older(folder)
    if older:
        expected["resources"] = [one for one in expected["resources"] if not one["name"].startswith("entities")]
        fields = expected["resources"][0]["schema"]["fields"]
        fields[:] = [field for field in fields if field["name"] != "name"]
    for place, fault in differences(read_json(folder / PACKAGE), expected):
        if not (older and place.endswith(".description")):
            yield f"{PACKAGE}: {place} {fault}"


def facts_differ(release: ReleaseContents, folder: Path) -> Iterator[str]:
    """What measurements.parquet says of itself against what is read from it: nothing more, nothing in other words."""
    with ParquetRows(folder / MEASUREMENTS, most=1 << 40) as file:
        metadata, facts = file.schema.metadata, stored_facts(file.schema)
    if set(metadata) != {b"tallytree"}:
        yield f"{MEASUREMENTS} holds more than a description of its measurements"
    for place, fault in differences(facts, _plain(described_as(release.measurements))):
        yield f"{MEASUREMENTS}: {place} {fault}"


def regions_differ(release: ReleaseContents, folder: Path) -> Iterator[str]:
    """regions.csv against the hierarchy and the public totals of the measurements."""
    with TemporaryDirectory() as made:
        write_regions(release, Path(made, REGIONS))
        with (
            Path(made, REGIONS).open(encoding="utf-8", newline="") as right,
            (folder / REGIONS).open(encoding="utf-8", newline="") as stated,
        ):
            rows = csv.reader(right)
            plain = ([from_a_spreadsheet(text) for text in row] for row in rows) if _is_older(folder) else rows
            line = _first_difference(plain, csv.reader(stated))
    if line is not None:
        yield f"{REGIONS}: row {line} is not what follows from {MEASUREMENTS}"


def rows_differ(release: ReleaseContents, folder: Path, *, zeros: bool) -> Iterator[str]:
    """The rows of counts.parquet in their order, and what its columns say they are."""
    with ParquetRows(folder / COUNTS, most=2 * len(release.rows) * len(release.sizes) + 1000) as file:
        schema, batches = release.schema, release.batches(zeros=zeros)
        if _is_older(folder):
            schema = schema.remove(schema.get_field_index("name"))
            batches = (batch.drop_columns("name") for batch in batches)
        if not file.schema.equals(schema, check_metadata=True):
            yield f"{COUNTS}: its columns do not say what they hold in the words of a release"
            return
        row = _first_other_row(batches, map(file.group, file.groups))
    if row is not None:
        yield f"{COUNTS}: row {row:,} is not the one that belongs there: level by level, region by region, size by size"


def _first_other_row(right: Iterator[Any], stated: Iterator[Any]) -> int | None:
    """Compare two streams of tables of one schema, whatever the tables' lengths: the number of a row near the fault."""
    one, other, row = None, None, 1
    while True:
        one = one if one is not None and one.num_rows else next((rows for rows in right if rows.num_rows), None)
        other = (
            other if other is not None and other.num_rows else next((rows for rows in stated if rows.num_rows), None)
        )
        if one is None or other is None:
            return None if one is other else row
        length = min(one.num_rows, other.num_rows)
        if not one.slice(0, length).equals(other.slice(0, length)):
            while length > 1:  # the first half, if the fault is there
                half = length // 2
                if one.slice(0, half).equals(other.slice(0, half)):
                    one, other, row, length = one.slice(half), other.slice(half), row + half, length - half
                else:
                    length = half
            return row
        one, other, row = one.slice(length), other.slice(length), row + length


def _first_difference(right: Iterable[Any], stated: Iterable[Any]) -> int | None:
    """The number of the first row that differs, or that only one of the two has."""
    one, other, nothing = iter(right), iter(stated), object()
    number = 1
    while True:
        expected, found = next(one, nothing), next(other, nothing)
        if expected is nothing and found is nothing:
            return None
        if expected != found:
            return number
        number += 1


def _is_older(folder: Path) -> bool:
    return bool(read_json(folder / PRIVACY)["format"] == 1)


def _plain(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(value))
