"""What synthetic households state beside their costs: each field is made again from others and compared.

`NOT_CHECKED` says what only the data holder can know.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.numbers import exact_number
from tallytree.domain.edit_rules import Structure
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.households.neighbours import HouseholdNeighbours
from tallytree.privacy.households.rounds import GAUSSIAN
from tallytree.privacy.households.together import Together
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise.draws import gaussian_variance
from tallytree.publish.folder import MEASUREMENTS, MOST_FAULTS, PACKAGE, PRIVACY
from tallytree.publish.microdata.files import measured_columns
from tallytree.publish.microdata.statement import (
    BROKEN,
    KIND,
    OF_A_SELECTION,
    accepted,
    as_truncated,
    exactly,
    how_number_is_known,
    method_in_words,
    package_of,
    promise,
    public_facts,
)
from tallytree.publish.reading import all_rows
from tallytree.publish.statement import LEDGER, NO_LEDGER, SOURCES
from tallytree.synthesis.explaining import ASKED, REASONS
from tallytree.synthesis.methods import method
from tallytree.synthesis.methods.asking import LEAST_VARIANCE
from tallytree.synthesis.trust import CONFIDENCE

NOT_CHECKED = (
    "the title",
    "the number of real households, which is public or was measured and is only stated",
    "by which rule persons were left out",
    "whether a ledger was charged, and for which accounts of the same data",
    "which tables were chosen in selections, from which candidates, and which rounds were lost",
    "the options of the method",
    "the id of the release that households agree with, and what is stated of its rows",
    "which version of the software made it",
    "how many synthetic households were drawn again for the rules, and what was done with real ones that break them",
)

# Fields by the format of the statement; the checks of costs compare some of them.
NEW_FIELDS = {"truncated", "same_data_as"}  # since format 2
FIELDS = {
    *("format", "kind", "title", "statement", "unit", "neighbours", "neighbours_in_words", "not_protected", "budget"),
    *("spent", "unspent", "rounds", "published_exactly", "measured", "truncation", "noise", "public", "ledger"),
    *("method", "real_households", "synthetic_households", "agreement", "workload", "confidence"),
    *("answers_left_out", "software"),
}
AGREED = {
    *("release_id", "region", "first_size", "last_size", "households", "release_neighbours", "release_budget"),
    *("steps_of_the_release", "release_rho", "synthesis_rho", "rho", "relation", "statement", "promise"),
}
BY, LEVELS = "by", "levels"  # are there where the release has categories, and where households have all levels
ANY_ROUND = {"round", "kind", "words", "cost", "lost"}
WHY = "why"  # a table was measured; early versions did not say
MEASURING = {*ANY_ROUND, "table", "cells", "sensitivity", "noise", "scale", WHY}
SELECTING = {*ANY_ROUND, "candidates", "digest", "epsilon", "sensitivity"}


def statement_follows(statement: dict[str, Any], schema: Schema, both: Together | None) -> Iterator[str]:
    """Every field is there, none is added, and those that follow from others do."""
    allowed = FIELDS | NEW_FIELDS | ({"structure"} if schema.structure is not None else set())
    yield from _fields(statement, allowed, PRIVACY, optional=NEW_FIELDS if statement["format"] == 1 else ())
    if schema.structure is not None:
        yield from _structure(statement["structure"], schema.structure, statement["synthetic_households"])
    neighbours = HouseholdNeighbours.from_json(statement["neighbours"])
    number = statement["real_households"]["number"]
    expected = {
        "kind": KIND,
        "neighbours": neighbours.to_json(),
        "budget": Budget.from_json(statement["budget"]).to_json(),
        "noise": SOURCES["tallytree"],
        "public": public_facts(neighbours, both),
        "method": _method(statement["method"]),
        "published_exactly": [
            exactly(table) for table in _tables(row["table"] for row in statement["published_exactly"])
        ],
        "measured": [table.to_json() for table in _tables(statement["measured"])],
        "workload": [table.to_json() for table in dict.fromkeys(_tables(statement["workload"]))],
        "real_households": {"number": number, "known": how_number_is_known(neighbours)},
        "confidence": CONFIDENCE,
        "software": {name: str(statement["software"].get(name)) for name in ("tallytree", "python")},
    }
    for name, value in expected.items():
        if not _same(statement[name], value):
            yield f"{PRIVACY}: {name} is not what follows from the rest"
    if not _counts(number) or number < 1:
        yield f"{PRIVACY}: the number of real households is not a whole number above 0"
    if statement["format"] not in (1, 2) or isinstance(statement["format"], bool):
        yield f"{PRIVACY}: its format {statement['format']!r} is not one that is known"
    if statement["ledger"] not in (LEDGER, NO_LEDGER):
        yield f"{PRIVACY} does not say whether a ledger was charged"
    if not isinstance(statement["title"], str) or not _texts(statement.get("same_data_as", [])):
        yield f"{PRIVACY}: the title or the names of accounts are not texts"
    asked = set(_tables(statement["workload"]))
    for place, row in enumerate(statement["rounds"], start=1):
        yield from _round(place, row, schema, asked)
    if statement["agreement"] is not None:
        yield from _agreement(statement["agreement"], schema)


def _round(place: int, row: dict[str, Any], schema: Schema, asked: set[Marginal]) -> Iterator[str]:
    measured = row["kind"] == "measure"
    where = f"{PRIVACY}, round {place}"
    yield from _fields(row, MEASURING if measured else SELECTING, where, optional=(WHY,))
    words = row["words"]
    if not isinstance(row["lost"], bool) or not (words is None or isinstance(words, str)):
        yield f"{where}: its words, or whether it was lost, cannot be understood"
    if measured:
        table = Marginal.from_json(row["table"])
        if row["noise"] != GAUSSIAN or not _same(row["table"], table.to_json()):
            yield f"{where}: its noise is not {GAUSSIAN}, or its table cannot be understood"
        if not _are_cells(row["cells"], table.cells(schema)):
            yield f"{where}: its cells are not cells of its table, each once"
        if WHY in row and (row[WHY] not in REASONS or (row[WHY] == ASKED) != (table in asked)):
            yield f"{where}: it does not say why its table was measured, or says that it was asked for wrongly"
        if words is not None and words != table.describe() and not words.startswith(f"{table.describe()}, cell "):
            yield f"{where}: its words are not those of its table"
    elif row["kind"] not in ("select", "select_cell"):
        yield f"{where}: its kind {row['kind']!r} is not known"
    elif row["sensitivity"] != OF_A_SELECTION or not _counts(row["candidates"]):
        yield f"{where}: its sensitivity or its number of candidates cannot be understood"


def _structure(stated: dict[str, Any], structure: Structure, households: int) -> Iterator[str]:
    where = f"{PRIVACY}, structure"
    yield from _fields(stated, {"rules", "broken_in_the_data", "drawn_again", "accepted"}, where)
    if not _same(stated["rules"], structure.in_words()):
        yield f"{where}: its rules are not those of the schema"
    again = stated["drawn_again"]
    if not _counts(again) or again > households or not _same(stated["accepted"], accepted(again, households)):
        yield f"{where}: how many households were drawn again, or what share was not, cannot be right"
    if stated["broken_in_the_data"] not in BROKEN.values():
        yield f"{where} does not say what was done with households of the data that break a rule"


def _agreement(agreed: dict[str, Any], schema: Schema) -> Iterator[str]:
    where = f"{PRIVACY}, agreement"
    table = Neighbours.from_json(agreed["release_neighbours"])
    categories = () if table.categories is None else table.categories.columns
    yield from _fields(agreed, AGREED | {LEVELS} | ({BY} if categories else set()), where, optional=(LEVELS,))
    levels = agreed.get(LEVELS, [agreed["region"]])
    known = [each.name for each in schema.household]
    if not _texts(levels) or not set(levels) <= set(known) or levels[-1:] != [agreed["region"]]:
        yield f"{where}: its levels are not attributes of households down to {agreed['region']!r}"
    first, last = agreed["first_size"], agreed["last_size"]
    if not (_counts(first) and _counts(last) and first <= 1 and first <= last <= schema.max_persons):
        yield f"{where}: the sizes {first!r} to {last!r} are not those of a released table"
    by = agreed.get(BY, [])
    if not isinstance(by, list) or not all(_texts(pair) and len(pair) == 2 for pair in by):
        yield f"{where}: its categories cannot be understood"
        return
    attributes = [agreed["region"], *(name for _, name in by)]
    if [name for name, _ in by] != [column.name for column in categories] or len(set(attributes)) < len(attributes):
        yield f"{where}: its categories are not those of the release, each with an attribute of its own"
    for (_, name), column in zip(by, categories, strict=False):
        if name not in [each.name for each in schema.household] or schema.attribute(name).codes != len(column.values):
            yield f"{where}: {name!r} is no attribute of households with as many values as {column.name!r}"
    expected = {
        "promise": promise(attributes, first, last),
        "release_neighbours": table.to_json(),
        "release_budget": Budget.from_json(agreed["release_budget"]).to_json(),
    }
    for name, value in expected.items():
        if not _same(agreed[name], value):
            yield f"{where}: {name} is not what follows from the rest"
    if agreed["release_id"] is not None and not isinstance(agreed["release_id"], str):
        yield f"{where}: the id of the release is not a text"


def _method(stated: dict[str, Any]) -> dict[str, Any]:
    """What is said of the method of this name, with the options that are given."""
    try:
        chosen = method(stated["name"])
        settings = asdict(chosen.options(stated["options"]))
        # Earlier versions had fewer options, and could not state those that came later.
        return method_in_words(chosen, {name: value for name, value in settings.items() if name in stated["options"]})
    except SpecError as error:
        raise ReleaseError(f"{PRIVACY}: {error}") from None


def package_follows(package: dict[str, Any], statement: dict[str, Any], schema: Schema) -> Iterator[str]:
    """The data package is made again from the schema and the statement."""
    left_out = as_truncated(statement["truncation"]) if statement.get("truncated") else ""
    made = package_of(schema, statement["title"], statement["statement"], left_out)
    for name in sorted({*made, *package}):
        if not _same(made.get(name), package.get(name)):
            yield f"{PACKAGE}: {name} does not follow from {PRIVACY} and the schema"


def measurements_follow(path: Path, statement: dict[str, Any], schema: Schema) -> Iterator[str]:
    """Each table in the file was measured in a round of its own, in these cells and with that round's noise.

    Tables that were published exactly have all their cells, without noise. There are no other rows.
    """
    which, cells, variances = _rows(path)
    paid = [row for row in statement["rounds"] if row["kind"] == "measure" and not row["lost"]]
    noisy = _tables(statement["measured"])
    exact = _tables(row["table"] for row in statement["published_exactly"])
    for place, table in enumerate([*noisy, *exact], start=1):
        part = slice(*np.searchsorted(which, [place, place + 1]))
        if place > len(noisy):
            if not np.array_equal(cells[part], np.arange(table.cells(schema))) or variances[part].any():
                yield f"{MEASUREMENTS}: {table.describe()} was published exactly, and is not whole or has noise"
            continue
        same = [row for row in paid if Marginal.from_json(row["table"]) == table]
        fits = [row for row in same if _paid_for(row, table, cells[part], variances[part], schema)]
        if fits:
            paid.remove(fits[0])
        elif same:
            yield (
                f"{MEASUREMENTS}: {table.describe()} has other cells, or another variance, than a round of {PRIVACY} "
                "paid for"
            )
        else:
            yield f"{MEASUREMENTS} has {table.describe()}, which no round of {PRIVACY} measured"
    others = sorted(set(np.unique(which)) - set(range(1, len(noisy) + len(exact) + 1)))
    for number in others[:MOST_FAULTS]:
        yield f"{MEASUREMENTS} has rows of a measurement {number}, which {PRIVACY} does not list"


def _rows(path: Path) -> tuple[Any, Any, Any]:
    rows = all_rows(path)
    if rows.schema != measured_columns() or any(column.null_count for column in rows.columns):
        raise ReleaseError(f"{MEASUREMENTS}: its columns are not {', '.join(measured_columns().names)}, or have gaps")
    which = rows["measurement"].to_numpy()
    if np.any(np.diff(which) < 0):
        raise ReleaseError(f"{MEASUREMENTS}: its rows are not in the order of measurements")
    return which, rows["cell"].to_numpy(), rows["variance"].to_numpy()


def _paid_for(row: dict[str, Any], table: Marginal, cells: Any, variances: Any, schema: Schema) -> bool:
    wanted = np.arange(table.cells(schema)) if row["cells"] is None else np.sort(np.array(row["cells"], np.int64))
    variance = max(gaussian_variance(exact_number(row["scale"])), LEAST_VARIANCE)
    return bool(np.array_equal(cells, wanted) and np.allclose(variances, variance, rtol=1e-9, atol=0))


def _tables(values: Any) -> list[Marginal]:
    return [Marginal.from_json(each) for each in values]


def _fields(found: dict[str, Any], expected: set[str], where: str, optional: Any = ()) -> Iterator[str]:
    for name in sorted(set(found) - expected):
        yield f"{where}: {name!r} is not a field that is known"
    for name in sorted(expected - set(found) - set(optional)):
        yield f"{where}: {name!r} is missing"


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON, where 1, 1.0 and true are not the same."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _are_cells(values: Any, number: int) -> bool:
    if values is None:
        return True
    whole = isinstance(values, list) and bool(values) and all(_counts(value) and value < number for value in values)
    return whole and len(set(values)) == len(values)


def _texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
