"""`verify` for synthetic households: recompute everything that their directory promises, from its files alone."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.numbers import exact_number, short
from tallytree.domain.schema import SIZE, Attribute, Marginal, Schema
from tallytree.privacy.accounting import cost_of
from tallytree.privacy.budget import Budget
from tallytree.privacy.households.neighbours import HouseholdNeighbours
from tallytree.privacy.households.rounds import GAUSSIAN
from tallytree.privacy.households.selection import cost_of_selection
from tallytree.privacy.households.together import Together, together
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.folder import MEASUREMENTS, MOST_FAULTS, PACKAGE, PRIVACY, Stored
from tallytree.publish.microdata.files import (
    ANSWERS,
    FILES,
    HOUSEHOLDS,
    ID,
    PERSON,
    PERSONS,
    QUESTIONS,
    REGIONS,
    SCHEMA,
    SIZES,
    arrow_schemas,
    scale,
    size_columns,
    size_rows,
    workload_of,
    write_report,
)
from tallytree.publish.microdata.stated import NOT_CHECKED, measurements_follow, package_follows, statement_follows
from tallytree.publish.microdata.statement import as_truncated, in_words, not_protected, sensitivity_of
from tallytree.publish.reading import ParquetRows, all_rows, check_room, read_json
from tallytree.publish.statement import NO_LEDGER, Unchecked, shown_in
from tallytree.synthesis.models.keeping import part
from tallytree.synthesis.models.model import Measured, SyntheticHouseholds
from tallytree.synthesis.models.sampling import Tally
from tallytree.synthesis.trust import Evidence
from tallytree.tables.households import NOT_CUT
from tallytree.tables.rule_checks import broken
from tallytree.version import VERSION

MOST_ROWS = 1 << 40  # of any table; memory is looked at beside


def is_microdata(folder: Path) -> bool:
    """Does the directory hold synthetic households, rather than a release of group sizes?"""
    return any((folder / name).exists() for name in (HOUSEHOLDS, PERSONS, SCHEMA))


class StoredMicrodata(Stored):
    """The files of a directory of synthetic households."""

    expected = FILES
    optional = (SIZES, REGIONS)

    def unchecked(self) -> Iterator[Unchecked]:
        """What is said and cannot be checked from the files."""
        yield from UNCHECKED
        if (version := self.statement["software"]["tallytree"]) != VERSION:
            told = (
                f"it was made by tallytree {short(version)} and checked by {VERSION}: what differs may be due to that"
            )
            yield Unchecked(f"{PRIVACY}: software.tallytree", told)

    @property
    def schema(self) -> Schema:
        """schema.json."""
        return self.once(SCHEMA, lambda: Schema.from_json(read_json(self.directory / SCHEMA)))

    @property
    def read(self) -> _Read:
        """Both tables of households and persons, read and checked in one pass."""
        return self.once("the microdata", lambda: _read(self))

    @property
    def evidence(self) -> Evidence:
        """measurements.parquet."""
        return self.once(MEASUREMENTS, lambda: _evidence(self))


class _Read:
    """What one pass over the two files found."""

    def __init__(self, stored: StoredMicrodata) -> None:
        self.links: list[str] = []
        self.values: list[str] = []
        self.sizes: list[str] = []
        self.places: list[str] = []  # households that are not in the regions of their leaf
        self.rules: dict[str, int] = {}
        self.households = 0
        self.tally = Tally(workload_of(stored.statement, stored.schema))
        agreed = stored.statement["agreement"]
        self.by_region: Integers | None = None
        if agreed is not None:
            attributes = _attributes(agreed)
            shape = [stored.schema.attribute(name).codes for name in attributes]
            self.by_region = np.zeros((*shape, stored.schema.max_persons + 1), np.int64)
            names = [attribute.name for attribute in stored.schema.household]
            self.agreed = [names.index(name) for name in attributes]
            self.above = {names.index(name): of_leaf for name, of_leaf in _regions(stored).items()}


def _read(stored: StoredMicrodata) -> _Read:
    import pyarrow as pa

    found = _Read(stored)
    homes, people = arrow_schemas(stored.schema)
    try:
        with (
            ParquetRows(stored.directory / HOUSEHOLDS, most=MOST_ROWS) as home_file,
            ParquetRows(stored.directory / PERSONS, most=MOST_ROWS) as person_file,
        ):
            for file, expected in ((home_file, homes), (person_file, people)):
                if file.schema.names != expected.names:
                    raise ReleaseError(f"{file.name}: its columns are not {', '.join(expected.names)}")
                check_room(file.rows, file.name)
            if len(home_file.groups) != len(person_file.groups):
                raise ReleaseError(f"{HOUSEHOLDS} and {PERSONS} are not divided into the same groups of rows")
            for group in home_file.groups:
                _take(found, home_file.group(group), person_file.group(group), stored.schema)
    except (OSError, pa.ArrowException) as error:
        raise ReleaseError(f"{HOUSEHOLDS} or {PERSONS} cannot be read: {error}") from None
    return found


def _take(found: _Read, homes: Any, people: Any, schema: Schema) -> None:
    """Check one group of rows and count it; one with faults is not counted."""
    before = len(found.links) + len(found.values) + len(found.sizes)
    first = found.households + 1
    found.households += homes.num_rows
    ids = np.arange(first, first + homes.num_rows)
    sizes = homes[SIZE].to_numpy()
    if not np.array_equal(homes[ID].to_numpy(), ids):
        found.links.append(f"{HOUSEHOLDS}: the ids are not {first:,} to {found.households:,}, each once and in order")
    if len(sizes) and (sizes.min() < 0 or sizes.max() > schema.max_persons):
        found.sizes.append(f"{HOUSEHOLDS}: a household has fewer than 0 persons or more than {schema.max_persons}")
    else:
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        owners = np.repeat(ids, sizes)
        numbers = np.arange(len(owners)) - np.repeat(offsets[:-1], sizes) + 1
        if not np.array_equal(people[ID].to_numpy(), owners):
            found.links.append(
                f"{PERSONS}: the persons of households {first:,} to {found.households:,} are not as many, or not of "
                f"those households, as {HOUSEHOLDS} says"
            )
        elif not np.array_equal(people[PERSON].to_numpy(), numbers):
            found.links.append(f"{PERSONS}: the persons of a household are not numbered from 1")
    household = _codes(homes, schema.household, HOUSEHOLDS, found.values)
    person = _codes(people, schema.person, PERSONS, found.values)
    if len(found.links) + len(found.values) + len(found.sizes) > before:
        return
    chunk = SyntheticHouseholds(sizes.astype(np.int32), household, person, offsets)
    found.tally.add(chunk)
    if schema.structure is not None:
        for rule in broken(part(chunk, schema, np.arange(len(sizes)))[0]):
            found.rules[rule.words] = found.rules.get(rule.words, 0) + int(rule.households.sum())
    if found.by_region is not None:
        np.add.at(found.by_region, (*(household[:, column] for column in found.agreed), sizes), 1)
        for column, of_leaf in found.above.items():
            if not np.array_equal(household[:, column], of_leaf[household[:, found.agreed[0]]]):
                name = schema.household[column].name
                found.places.append(f"{HOUSEHOLDS}: a household is in another {name} than its leaf region is")


def _codes(rows: Any, attributes: tuple[Attribute, ...], name: str, problems: list[str]) -> NDArray[np.int32]:
    """Labels as codes; those that the schema does not have are named (everything here is public)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = np.empty((rows.num_rows, len(attributes)), np.int32)
    for place, attribute in enumerate(attributes):
        labels = rows[attribute.name].cast(pa.string())
        found = pc.fill_null(pc.index_in(labels, pa.array(attribute.values, pa.string())), -1).to_numpy()
        for row in np.flatnonzero(found < 0)[:1]:
            problems.append(f"{name}: {attribute.name} has a value that the schema does not: {labels[row].as_py()!r}")
        codes[:, place] = found
    return codes


def _evidence(stored: StoredMicrodata) -> Evidence:
    rows = all_rows(stored.directory / MEASUREMENTS)
    which, cells = rows["measurement"].to_numpy(), rows["cell"].to_numpy()
    values, variance = rows["value"].to_numpy(), rows["variance"].to_numpy()
    noisy = [Marginal.from_json(table) for table in stored.statement["measured"]]
    exact = [Marginal.from_json(row["table"]) for row in stored.statement["published_exactly"]]
    measured, published = [], {}
    for place, marginal in enumerate([*noisy, *exact], start=1):
        marginal.check(stored.schema)
        part = slice(*np.searchsorted(which, [place, place + 1]))
        flat, spread = np.zeros(marginal.cells(stored.schema)), np.full(marginal.cells(stored.schema), np.inf)
        flat[cells[part]], spread[cells[part]] = values[part], variance[part]
        shape = marginal.shape(stored.schema)
        if place > len(noisy):
            published[marginal] = flat.reshape(shape)
        else:
            measured.append(Measured(marginal, flat.reshape(shape), spread.reshape(shape)))
    return Evidence(stored.schema, measured, published)


# -------------------------------------------------------------------- the promises


def _links(stored: StoredMicrodata) -> Iterator[str]:
    yield from stored.read.links[:MOST_FAULTS]
    stated = stored.statement["synthetic_households"]
    if stored.read.households != stated:
        yield f"there are {stored.read.households:,} households, and {PRIVACY} says {stated:,}"


def _values(stored: StoredMicrodata) -> Iterator[str]:
    yield from stored.read.values[:MOST_FAULTS]


def _sizes(stored: StoredMicrodata) -> Iterator[str]:
    yield from stored.read.sizes[:MOST_FAULTS]


def _rules(stored: StoredMicrodata) -> Iterator[str]:
    for words, number in stored.read.rules.items():
        if number:
            yield f"{HOUSEHOLDS}, {PERSONS}: {number:,} households break the rule: {words}"


def _privacy_adds_up(stored: StoredMicrodata) -> Iterator[str]:
    """Recompute every cost from the statement's own rounds, and their sensitivities from the neighbour relation."""
    statement, schema = stored.statement, stored.schema
    budget, neighbours = Budget.from_json(statement["budget"]), HouseholdNeighbours.from_json(statement["neighbours"])
    if statement["unit"] != neighbours.unit.kind or statement["neighbours_in_words"] != neighbours.describe():
        yield f"{PRIVACY}: the unit or its description does not fit the neighbour relation"
    both = _both(stored)
    if statement["not_protected"] != not_protected(neighbours, both):
        yield f"{PRIVACY} does not say all that is not protected"
    ledgered = statement["ledger"] != NO_LEDGER
    cut = statement["truncation"] != NOT_CUT.format(most=schema.max_persons)
    if statement.get("truncated", cut) != cut:
        yield f"{PRIVACY} does not say whether persons were left out: {statement['truncation']}"
    # Early versions gave the rule and did not repeat it in their statement.
    left_out = as_truncated(statement["truncation"]) if cut and "truncated" in statement else ""
    told = {"left_out": left_out, "same_data_as": statement.get("same_data_as", ()), "format": statement["format"]}
    if statement["statement"] != in_words(budget, neighbours, both, ledgered=ledgered, **told):
        yield f"{PRIVACY}: the statement in words does not follow from the budget and the relation"
    spent = Fraction(0)
    for place, row in enumerate(statement["rounds"], start=1):
        cost = exact_number(row["cost"])
        if row["round"] != place or cost <= 0:
            yield f"{PRIVACY}: round {place} is missing, or free"
        spent += cost
        if row["kind"] != "measure":
            if cost_of_selection(exact_number(row["epsilon"])) != cost:
                yield f"{PRIVACY}: the selection of round {place} does not cost ε²/8"
            continue
        sensitivity = sensitivity_of(row["table"], row["cells"], neighbours, schema)
        if row["sensitivity"] != {"l1": sensitivity.l1, "l2_squared": sensitivity.l2_squared}:
            yield f"{PRIVACY}: round {place} states another sensitivity than its neighbour relation gives"
        elif cost_of(GAUSSIAN, sensitivity, exact_number(row["scale"])) != cost:
            yield f"{PRIVACY}: round {place} does not cost what its noise says"
    if str(spent) != statement["spent"] or spent + exact_number(statement["unspent"]) != budget.amount:
        yield f"{PRIVACY}: the rounds cost {spent} together, which does not add up to the budget {budget.amount}"
    if spent > budget.amount:
        yield f"{PRIVACY}: the rounds cost more than the budget"
    for row in statement["published_exactly"]:
        if neighbours.sensitivity(Marginal.from_json(row["table"]), schema).l1:
            yield f"{PRIVACY}: {row['words']} were published exactly although they are protected"


def _report_follows(stored: StoredMicrodata) -> Iterator[str]:
    """Count the tables again, and make the report again."""
    found = stored.read
    if found.links or found.values or found.sizes:
        yield "not checked: the households cannot be counted"
        return
    statement = stored.statement
    factor = scale(
        statement["real_households"]["number"],
        statement["synthetic_households"],
        agrees=statement["agreement"] is not None,
    )
    with TemporaryDirectory() as folder:
        written = write_report(found.tally, factor, stored.evidence, Path(folder))
        if found.tally.workload.queries - written != statement["answers_left_out"]:
            yield f"{PRIVACY} does not say how many answers were left out"
        yield from _different(Path(folder), stored.directory)


def _different(made: Path, kept: Path) -> Iterator[str]:
    import pyarrow as pa

    tables = []
    for folder in (made, kept):
        with (folder / QUESTIONS).open(encoding="utf-8", newline="") as file:
            tables.append(list(csv.reader(file)))
    if len(tables[0]) != len(tables[1]) or tables[0][0] != tables[1][0]:
        yield f"{QUESTIONS} has other rows or columns than the workload asks for"
    else:
        wrong = [row[1] for row, other in zip(tables[0][1:], tables[1][1:], strict=True) if not _alike(row, other)]
        for table in wrong[:MOST_FAULTS]:
            yield f"{QUESTIONS}: the errors of {table} do not follow from the files"
    try:
        ours, theirs = all_rows(made / ANSWERS), all_rows(kept / ANSWERS)
    except ReleaseError as error:
        yield f"{ANSWERS} cannot be read: {error}"
        return
    if ours.schema != theirs.schema or ours.num_rows != theirs.num_rows:
        yield f"{ANSWERS} has other rows or columns than the workload asks for"
        return
    for name in ours.column_names:
        if pa.types.is_floating(ours[name].type):
            one, other = ours[name].to_numpy(), theirs[name].to_numpy()
            same = np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)
        else:
            same = ours[name].equals(theirs[name])
        if not same:
            yield f"{ANSWERS}: the column {name} does not follow from the files"


def _alike(one: list[str], other: list[str]) -> bool:
    """The same texts, and numbers that are the same but for their last digit. Earlier versions did not quote names."""
    for left, right in zip(one, other, strict=True):
        if left != right and right != " ".join(next(csv.reader([left], delimiter=" "), [])):
            try:
                if not np.isclose(float(left), float(right), rtol=1e-4, atol=1e-9):
                    return False
            except ValueError:
                return False
    return True


def _agrees(stored: StoredMicrodata) -> Iterator[str]:
    agreed = stored.statement["agreement"]
    path = stored.directory / SIZES
    if agreed is None:
        if path.exists():
            yield f"{SIZES} is there, but {PRIVACY} says nothing of it"
        return
    found = stored.read
    attributes = _attributes(agreed)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    sizes = range(agreed["first_size"], agreed["last_size"] + 1)
    expected = list(size_rows(stored.schema, attributes, sizes))
    columns = size_columns([category for category, _ in agreed.get("by", [])])
    if rows[:1] != [columns] or [tuple(row[:-1]) for row in rows[1:]] != expected:
        yield f"{SIZES} does not have a row for every {', '.join(columns[:-1])}"
        return
    shape = [stored.schema.attribute(name).codes for name in attributes]
    released = np.array([int(row[-1]) for row in rows[1:]]).reshape(*shape, len(sizes))
    if int(released.sum()) != agreed["households"]:
        yield f"{SIZES} has {int(released.sum()):,} households, and {PRIVACY} says {agreed['households']}"
    assert found.by_region is not None
    drawn = found.by_region[..., sizes.start : sizes.stop].copy()
    drawn[..., -1] = found.by_region[..., sizes[-1] :].sum(axis=-1)
    for cell in np.flatnonzero(drawn != released)[:MOST_FAULTS]:
        *values, size = expected[cell]
        yield (
            f"{', '.join(values)}, size {size}: {drawn.flat[cell]:,} synthetic households, and "
            f"{released.flat[cell]:,} were released"
        )
    if found.by_region[..., : sizes.start].any():
        yield "there are households of sizes that were not released"


def _regions(stored: StoredMicrodata) -> dict[str, Integers]:
    """For each level above the leaves its code by leaf, from the table of regions."""
    agreed = stored.statement["agreement"]
    levels = [] if agreed is None else agreed.get("levels", [])
    if not levels:
        return {}
    with (stored.directory / REGIONS).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    values = [stored.schema.attribute(name).values for name in levels]
    if rows[:1] != [levels] or [row[-1:] for row in rows[1:]] != [[value] for value in values[-1]]:
        raise ReleaseError(f"{REGIONS} does not have a row for every value of {levels[-1]}, with all levels")
    places = [{value: code for code, value in enumerate(each)} for each in values]
    try:
        codes = np.array([[place[cell] for place, cell in zip(places, row, strict=True)] for row in rows[1:]])
    except (KeyError, ValueError):
        raise ReleaseError(f"{REGIONS} has regions that the schema does not have") from None
    return {name: codes[:, column] for column, name in enumerate(levels[:-1])}


def _places(stored: StoredMicrodata) -> Iterator[str]:
    """Is each household in the regions that its leaf lies in, and are these a tree?"""
    agreed = stored.statement["agreement"]
    if (stored.directory / REGIONS).exists() != (agreed is not None and "levels" in agreed):
        yield f"{REGIONS} is there, but {PRIVACY} names no levels, or the other way round"
        return
    yield from stored.read.places[:MOST_FAULTS]
    above = list(_regions(stored).items())
    for (upper, high), (lower, low) in pairwise(above):
        if len(np.unique(np.stack([low, high]), axis=1).T) > len(np.unique(low)):
            yield f"{REGIONS}: a region of {lower} lies in two of {upper}"


def _attributes(agreed: dict[str, Any]) -> list[str]:
    """The attributes that the released table is by."""
    return [agreed["region"], *(attribute for _, attribute in agreed.get("by", []))]


def _together(stored: StoredMicrodata) -> Iterator[str]:
    """The promise of both is recomputed from the two relations and the two budgets."""
    agreed, both = stored.statement["agreement"], _both(stored)
    if both is None:
        return
    budget = Budget.from_json(stored.statement["budget"])
    stated = agreed["steps_of_the_release"], agreed["release_rho"], agreed["synthesis_rho"], agreed["rho"]
    if stated != (both.times, str(both.release), str(both.synthesis), str(both.rho)):
        yield f"{PRIVACY}: the cost of both together does not follow from their relations and budgets"
    if (
        agreed["statement"] != both.in_words(budget.delta, shown_in(stored.statement))
        or agreed["relation"] != both.relation
    ):
        yield f"{PRIVACY}: what both promise together is not what follows"


def _both(stored: StoredMicrodata) -> Together | None:
    agreed = stored.statement["agreement"]
    if agreed is None:
        return None
    return together(
        Neighbours.from_json(agreed["release_neighbours"]),
        Budget.from_json(agreed["release_budget"]),
        HouseholdNeighbours.from_json(stored.statement["neighbours"]),
        Budget.from_json(stored.statement["budget"]),
    )


def _measured(stored: StoredMicrodata) -> Iterator[str]:
    yield from measurements_follow(stored.directory / MEASUREMENTS, stored.statement, stored.schema)


def _statement_follows(stored: StoredMicrodata) -> Iterator[str]:
    yield from statement_follows(stored.statement, stored.schema, _both(stored))
    if json.dumps(read_json(stored.directory / SCHEMA)) != json.dumps(stored.schema.to_json()):
        yield f"{SCHEMA} has something else than the schema in it"


def _package_follows(stored: StoredMicrodata) -> Iterator[str]:
    yield from package_follows(read_json(stored.directory / PACKAGE), stored.statement, stored.schema)


UNCHECKED = (
    *(Unchecked(PRIVACY, what) for what in NOT_CHECKED),
    Unchecked(f"{PRIVACY}: method", "that the method drew these households from a model of these measurements"),
    Unchecked(f"{MEASUREMENTS}: value", "that the noisy numbers are those that were drawn"),
    Unchecked(
        f"{PRIVACY}: what the data holder said",
        "what the data holder said of the data: that they fit the neighbour relation, public facts, the noise's source",
    ),
)

PROMISES: dict[str, Callable[[StoredMicrodata], Iterator[str]]] = {
    "the files are those that the manifest lists, unchanged": Stored.changes,
    "every person lives in a household, which says how many it has": _links,
    "all values are in the schema": _values,
    "no household has more persons than the schema allows": _sizes,
    "no household breaks a rule of the schema, where it has any": _rules,
    "the costs follow from the neighbour relation and add up to the budget": _privacy_adds_up,
    "everything else in the statement follows from it": _statement_follows,
    "every measurement was paid for, and has the noise that was paid for": _measured,
    "the data package describes these files": _package_follows,
    "the report of errors follows from the files": _report_follows,
    "households agree with the released sizes by region and category, where there are any": _agrees,
    "every household is in the regions that its leaf region lies in, where it has them": _places,
    "what both promise together follows from their relations and budgets": _together,
}
