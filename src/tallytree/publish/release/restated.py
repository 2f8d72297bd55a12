"""Everything that a release says, said again from its measurements and counts, and compared word by word.

The writers of the files are asked once more; what they would write now is what has to be there. So no field can be
added to a statement that `verify` does not look at.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tallytree.core.numbers import short
from tallytree.publish.folder import MEASUREMENTS, PACKAGE, PRIVACY
from tallytree.publish.reading import ParquetRows, read_json
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.measurements_file import facts_of, stored_facts
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


def statement_differs(release: ReleaseContents, folder: Path) -> Iterator[str]:
    """privacy.json against what follows from measurements, counts and the stated mechanism."""
    stated, older = read_json(folder / PRIVACY), _is_older(folder)
    if older and "truncation" in stated:
        yield f"{PRIVACY}: format 1 did not say what was left out, so this is not of that format"
    for place, fault in differences(stated, _plain(privacy_statement(release))):
        if older and (place in OLDER or (place in ("mechanism.options", "intervals") and fault == "is missing")):
            continue
        if place in REPORTED:
            name = place.split(".")[1]
            if isinstance(version := stated["software"].get(name), str) and 0 < len(version) <= 100:
                continue
        yield f"{PRIVACY}: {place} {fault}"


def package_differs(release: ReleaseContents, folder: Path) -> Iterator[str]:
    """datapackage.json against the tables it describes. Format 1 had no names beside ids, and other descriptions."""
    expected, older = _plain(data_package(release)), _is_older(folder)
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
    for place, fault in differences(facts, _plain(facts_of(release.measurements))):
        yield f"{MEASUREMENTS}: {place} {fault}"


def _is_older(folder: Path) -> bool:
    return bool(read_json(folder / PRIVACY)["format"] == 1)


def _plain(value: Any) -> Any:
    """As it comes back from a file."""
    return json.loads(json.dumps(value))
