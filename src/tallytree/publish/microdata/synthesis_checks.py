"""The checks of `verify` for synthetic households: reproduce all files that follow from others.

Households, measurements, the schema and the declared settings are read. The ordinary writer then writes households,
errors, statement and data package once more. The fit of the model is not repeated: its results (the chosen tables and
the households themselves) are not checked, and are listed as an assumption.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Any, cast

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.names import briefly
from tallytree.core.numbers import exact_number, short
from tallytree.core.progress import Progress
from tallytree.domain.schema import SIZE, Attribute, Marginal, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.journal import Round
from tallytree.privacy.ledger import Receipt
from tallytree.privacy.neighbours import HouseholdNeighbours
from tallytree.privacy.noise.samplers import gaussian_variance
from tallytree.privacy.relations import households_from_json, sizes_from_json
from tallytree.publish.about import DECLARED, About
from tallytree.publish.folder import MEASUREMENTS, MOST_FAULTS, PRIVACY
from tallytree.publish.microdata.synthesis import (
    HOUSEHOLDS,
    PERSONS,
    REGIONS,
    SCHEMA,
    SIZES,
    Synthesis,
    measured_columns,
)
from tallytree.publish.microdata.synthesis_statement import BROKEN
from tallytree.publish.statement import LEDGER, Assumption, StoredFiles
from tallytree.publish.untrusted import (
    MOST_ROWS,
    MOST_TEXT,
    ParquetRows,
    all_rows,
    check_regular,
    check_room,
    read_json,
)
from tallytree.synthesis.agreement import RegionLevels, SizeTable
from tallytree.synthesis.grouping import group_values
from tallytree.synthesis.marginals import method
from tallytree.synthesis.methods import LEAST_VARIANCE, NUMBER, Fitted, RoundRecord
from tallytree.synthesis.model import Codes, Measured, Model, SyntheticHouseholds
from tallytree.synthesis.sampling import CHUNK, part
from tallytree.synthesis.workload import Workload
from tallytree.tables.contingency import broken
from tallytree.tables.households import NOT_CUT, OnBrokenRules


@dataclass(frozen=True, eq=False)
class StoredSynthesis(Synthesis):
    """A synthesis whose households are those of a folder; it has no model to draw others from."""

    stored: Callable[[], Iterator[SyntheticHouseholds]] | None = None

    __repr__ = briefly

    def draw(self, number: int | None = None, *, chunk: int = CHUNK) -> Iterator[SyntheticHouseholds]:
        """Yield the households of the folder, one row group at a time."""
        assert self.stored is not None
        return self.stored()


class SynthesisChecks(StoredFiles):
    """Synthetic households in a folder, and everything that follows from them, reproduced."""

    content = "households satisfy the schema's edit rules and have the released numbers by region and size"

    def __init__(self, folder: Path, progress: Progress) -> None:
        super().__init__(folder, progress)
        self.schema = Schema.from_json(read_json(folder / SCHEMA))
        self.remade = self._remade()
        self._faults: list[str] = []  # of households, collected while they are written again
        self._sizes: Integers = np.zeros(0, np.int64)  # households by the attributes of the released table and size

    @property
    def _redrawn(self) -> Any:
        """Return the stated number of households that were drawn again because of the edit rules."""
        return self.statement.get("structure", {}).get("drawn_again", 0)

    def _measured(self) -> tuple[dict[Marginal, Integers], tuple[Measured, ...]]:
        """Return exactly published tables, and noisy ones with the variances of the rounds that paid for them."""
        rows = all_rows(self.folder / MEASUREMENTS)
        if rows.schema != measured_columns() or any(column.null_count for column in rows.columns):
            raise ReleaseError(f"{MEASUREMENTS}: its columns are not those of measurements, or have empty cells")
        which, cells, values = (rows[name].to_numpy() for name in ("measurement", "cell", "value"))
        noisy = [Marginal.from_json(table) for table in self.statement["measured"]]
        exact = [Marginal.from_json(row["table"]) for row in self.statement["published_exactly"]]
        paid = [row for row in self.statement["rounds"] if row["kind"] == "measure" and not row["lost"]]
        published: dict[Marginal, Integers] = {}
        found = []
        for place, table in enumerate([*noisy, *exact], start=1):
            table.check(self.schema)
            mine = which == place
            flat = np.zeros(table.cells(self.schema))
            flat[cells[mine]] = values[mine]
            if place > len(noisy):
                published[table] = flat.astype(np.int64).reshape(table.shape(self.schema))
                continue
            variance = np.full(flat.shape, np.inf)
            variance[cells[mine]] = _variance(paid, table, cells[mine], self.schema)
            shape = table.shape(self.schema)
            found.append(Measured(table, flat.reshape(shape), variance.reshape(shape)))
        return published, tuple(found)

    def _remade(self) -> StoredSynthesis:
        """Return the contents that the files are written from."""
        statement, schema = self.statement, self.schema
        exact, measured = self._measured()
        chosen = method(statement["method"]["name"])
        records = [
            RoundRecord(row["kind"], _words(row, schema), exact_number(row["cost"])) for row in statement["rounds"]
        ]
        number = statement["real_households"]["number"]
        for table in measured:
            if table.marginal == NUMBER:  # so it follows from this measurement, the first one of this table
                number = max(1, int(table.values.sum()))
                break
        rule, ledgered = statement["truncation"], statement["ledger"] == LEDGER
        same_data = tuple(map(_text, statement["same_data_as"]))
        kept = statement.get("structure", {}).get("broken_in_the_data", BROKEN["keep"])
        return StoredSynthesis(
            workload=Workload(schema, tuple(map(Marginal.from_json, statement["workload"]))),
            fitted=Fitted(cast(Model, None), number, measured, tuple(records)),
            made_by=chosen,
            options=asdict(chosen.options(statement["method"]["options"])),
            neighbours=households_from_json(statement["neighbours"]),
            budget=Budget.from_json(statement["budget"]),
            rounds=tuple(map(_round, statement["rounds"])),
            exact=exact,
            truncation=rule,
            number=statement["synthetic_households"],
            title=_text(statement["title"]),
            about=About.of(statement.get("about")),
            table=self._size_table(),
            truncated=_text(rule) != NOT_CUT.format(most=schema.max_persons),
            on_broken_rules=cast(OnBrokenRules, {words: name for name, words in BROKEN.items()}[kept]),
            receipt=Receipt("", 0, same_data) if ledgered else None,
            stored=self._households,
        )

    def _size_table(self) -> SizeTable | None:
        agreed, schema = self.statement["agreement"], self.schema
        if agreed is None:
            return None
        by = tuple((category, attribute) for category, attribute in agreed.get("by", []))
        shape = [schema.attribute(name).codes for name in (agreed["region"], *(name for _, name in by))]
        counts = np.array([int(row[-1]) for row in _csv_rows(self.folder / SIZES)[1:]], np.int64)
        neighbours = sizes_from_json(agreed["release_neighbours"])
        if [(name, schema.attribute(other).codes) for name, other in by] != [
            (column.name, len(column.values)) for column in neighbours.categories.columns
        ]:
            raise ReleaseError(f"{PRIVACY}, agreement: its categories are not those of the release")
        first, last = agreed["first_size"], agreed["last_size"]
        if isinstance(first, bool) or not 0 <= first <= 1 or not first <= last <= schema.max_persons:
            raise ReleaseError(f"{PRIVACY}, agreement: the sizes {first} to {last} are not those of a released table")
        return SizeTable(
            agreed["region"],
            counts.reshape(*shape, last + 1 - first),
            first,
            neighbours,
            Budget.from_json(agreed["release_budget"]),
            None if agreed["release_id"] is None else _text(agreed["release_id"]),
            by,
            self._levels(agreed) if "levels" in agreed else None,
        )

    def _levels(self, agreed: dict[str, Any]) -> RegionLevels:
        """Return the ancestors of each leaf, from the table of regions."""
        attributes = tuple(self.schema.attribute(name) for name in agreed["levels"])
        rows = _csv_rows(self.folder / REGIONS)[1:]
        codes = [
            np.array([attribute.values.index(row[place]) for row in rows]) for place, attribute in enumerate(attributes)
        ]
        if attributes[-1].name != agreed["region"] or not set(attributes) <= set(self.schema.household):
            raise ReleaseError(f"{PRIVACY}, agreement: its levels are not attributes of households")
        levels = RegionLevels(attributes, tuple(codes))
        for below, above, parents in zip(codes[1:], codes, levels.parents[1:], strict=False):
            if not np.array_equal(parents[below], above):
                raise ReleaseError(f"{REGIONS}: a region lies in two regions of the level above")
        return levels

    def _households(self) -> Iterator[SyntheticHouseholds]:
        """Yield the households, one row group at a time, and count and check them."""
        schema, table = self.schema, self.remade.table
        columns = {each.name: place for place, each in enumerate(schema.household)}
        by = [] if table is None else [columns[name] for name in table.attributes]
        shape = [schema.household[place].codes for place in by]
        self._sizes, rules = np.zeros((*shape, schema.max_persons + 1), np.int64), Counter[str]()
        redrawn = self._redrawn
        with (
            ParquetRows(self.folder / HOUSEHOLDS, most=MOST_ROWS) as homes,
            ParquetRows(self.folder / PERSONS, most=MOST_ROWS) as people,
        ):
            check_room(homes.rows + people.rows, HOUSEHOLDS)
            if len(homes.groups) != len(people.groups):
                raise ReleaseError(f"{HOUSEHOLDS} and {PERSONS} are not divided into the same groups of rows")
            for group in homes.groups:
                chunk = _chunk(homes.group(group), people.group(group), schema)
                np.add.at(self._sizes, (*chunk.household[:, by].T, chunk.sizes), 1)
                levels = {} if table is None or table.levels is None else table.levels.added
                for attribute, of_leaf in levels.items():
                    if (chunk.household[:, columns[attribute.name]] != of_leaf[chunk.household[:, by[0]]]).any():
                        self._faults.append(f"a household has another {attribute.name} than its leaf region")
                if schema.structure is not None:
                    for rule in broken(part(chunk, schema, np.arange(len(chunk.sizes)))[0]):
                        rules[rule.words] += int(rule.households.sum())
                yield chunk._replace(redrawn=redrawn)
                redrawn = 0
        self._faults += [f"{number:,} households break the rule: {words}" for words, number in rules.items() if number]

    # ---------------------------------------------------------------- independent checks

    @property
    def checks(self) -> dict[str, Callable[[], Iterator[str]]]:
        """Return the checks that do not write files again, by description."""
        return {
            "the privacy costs follow from the neighbour relation and add up to the budget": self._cost_faults,
            "the groups of values follow from the noisy measurements": self._group_faults,
        }

    def _group_faults(self) -> Iterator[str]:
        """Group each table in groups again, from the one-way tables that were measured before it."""
        measured = [table for table in self.remade.fitted.measured if isinstance(table, Measured)]
        one_way = {table: counts.astype(np.float64) for table, counts in self.remade.exact.items()}
        neighbours = self.remade.neighbours
        for place, row in enumerate(self.statement["rounds"], start=1):
            if row["kind"] != "measure" or row["lost"]:
                continue
            table, rho = Marginal.from_json(row["table"]), float(exact_number(row["cost"]))
            if table.groups:
                noise = partial(_deviation, neighbours, self.schema, rho)
                if group_values(self.schema, replace(table, groups=()), noise, one_way) != table:
                    yield f"round {place}: {table.describe()}: other groups follow from what was measured before"
            if measured and measured[0].marginal == table:
                one_way[table] = measured.pop(0).values

    def _cost_faults(self) -> Iterator[str]:
        synthesis = self.remade
        if synthesis.spent > synthesis.budget.amount or any(past.cost <= 0 for past in synthesis.rounds):
            budget = synthesis.budget.amount
            yield f"the rounds cost {synthesis.spent}, more than the budget {budget}, or a round costs nothing"
        for table in synthesis.exact:
            if synthesis.neighbours.sensitivity(table, self.schema).l1:
                yield f"{table.describe()} were published exactly although they are protected"
        for place, row in enumerate(self.statement["rounds"], start=1):
            cells = row.get("cells")
            if cells is not None and len(set(cells)) != len(cells):
                yield f"round {place}: a cell is listed twice"

    def count_faults(self, *, same: bool) -> Iterator[str]:
        """Yield faults of the households: broken edit rules, and numbers that differ from the released ones."""
        yield from self._faults[:MOST_FAULTS]
        number = self.statement["synthetic_households"]
        if isinstance(self._redrawn, bool) or not 0 <= self._redrawn <= number:
            yield f"{self._redrawn!r} of {number:,} households cannot be the number drawn again"
        if (table := self.remade.table) is None:
            return
        drawn = self._sizes[..., table.first_size : table.last_size + 1].copy()
        drawn[..., -1] = self._sizes[..., table.last_size :].sum(axis=-1)
        if self._sizes[..., : table.first_size].any():
            yield "some households have sizes that were not released"
        for *codes, size in np.argwhere(drawn != table.counts)[:MOST_FAULTS]:
            values = (
                self.schema.attribute(name).values[code] for name, code in zip(table.attributes, codes, strict=True)
            )
            cell = (*codes, size)
            yield (
                f"{', '.join(values)}, size {table.first_size + size}: {drawn[cell]:,} synthetic households, but "
                f"{table.counts[cell]:,} were released"
            )

    # ---------------------------------------------------------------- assumptions

    def assumptions(self) -> Iterator[Assumption]:
        """Yield the statements that the files cannot prove, field by field."""
        statement = self.statement
        stated = {
            "title": "the title",
            **({"about": DECLARED} if "about" in statement else {}),
            "truncation": "the rule by which persons were left out, if any",
            "ledger": "whether a ledger was charged",
            "same_data_as": "which other accounts of the same data were charged",
            "rounds.*.words": "which tables selections chose",
            "rounds.*.candidates": "how many tables selections chose from",
            "rounds.*.digest": "which tables selections chose from",
            "rounds.*.lost": "which selections were lost",
        }
        if not any(Marginal.from_json(table) == NUMBER for table in statement["measured"]):
            stated["real_households.number"] = "the number of real households, whose measurement is not in the files"
        for name in statement["method"]["options"]:
            stated[f"method.options.{name}"] = f"the method's option {name}"
        if statement["agreement"] is not None:
            stated["agreement.release_id"] = "the id of the release that households agree with"
            for name in statement["agreement"]["release_neighbours"]:
                stated[f"agreement.release_neighbours.{name}"] = "the neighbour relation of that release"
            stated["agreement.release_budget"] = "the budget of that release"
        if "structure" in statement:
            stated["structure.drawn_again"] = "how many households were drawn again for the rules"
            stated["structure.broken_in_the_data"] = "what was done with real households that break them"
        for place, what in stated.items():
            yield Assumption(f"{PRIVACY}: {place}", what)
        for side in ("household", "person"):
            for name in ("cuts", "missing"):
                what = f"the {name} that the data were read with"
                yield Assumption(f"{SCHEMA}: {side}.*.{name}", what)
        yield Assumption(f"{HOUSEHOLDS}, {PERSONS}", "the households were drawn from a model of these measurements")
        yield Assumption(f"{MEASUREMENTS}: value", "the noisy measurements are those that were drawn")
        holder = "what the data holder states about the data: they fit the neighbour relation; the source of the noise"
        yield Assumption(f"{PRIVACY}: statements of the data holder", holder)


# -------------------------------------------------------------------- reading


def _round(row: dict[str, Any]) -> Round:
    """Return a round as stated; its sensitivity and its noise are computed again."""
    if row["kind"] not in ("measure", "select", "select_cell"):
        raise ReleaseError(f"{PRIVACY}: a round has the unknown kind {short(row['kind'])}")
    asked = ("table", "cells") if row["kind"] == "measure" else ("candidates", "digest")
    request = {name: row[name] for name in ("kind", *asked)}
    return Round(request, exact_number(row["cost"]), None if row["lost"] else {})


def _words(row: dict[str, Any], schema: Schema) -> str:
    """Return a round in words: for a measurement from its table, for a selection as stated."""
    if row["words"] is None or row["kind"] != "measure":
        return cast(str, row["words"])
    table = Marginal.from_json(row["table"])
    if row["cells"] is None:
        return table.describe()
    where = np.unravel_index(row["cells"][0], table.shape(schema))
    return f"{table.describe()}, cell {', '.join(str(int(index)) for index in where)}"


def _deviation(neighbours: HouseholdNeighbours, schema: Schema, rho: float, table: Marginal) -> float:
    """Return the standard deviation of the noise on one count of a table that costs `rho`."""
    return sqrt(neighbours.sensitivity(table, schema).l2_squared / (2 * rho))


def _variance(paid: list[dict[str, Any]], table: Marginal, cells: Integers, schema: Schema) -> float:
    """Return the variance of the first unused round that measured these cells, and mark the round as used."""
    for row in paid:
        every = np.arange(table.cells(schema)) if row["cells"] is None else np.sort(np.array(row["cells"], np.int64))
        if Marginal.from_json(row["table"]) == table and np.array_equal(every, cells):
            paid.remove(row)
            return max(gaussian_variance(exact_number(row["scale"])), LEAST_VARIANCE)
    raise ReleaseError(f"{MEASUREMENTS} has {table.describe()}, but no round of {PRIVACY} measured these cells")


def _chunk(homes: Any, people: Any, schema: Schema) -> SyntheticHouseholds:
    sizes = homes[SIZE].to_numpy()
    if len(sizes) and (sizes.min() < 0 or sizes.max() > schema.max_persons or sizes.sum() != people.num_rows):
        raise ReleaseError(
            f"{HOUSEHOLDS}: a household has more than {schema.max_persons} persons, or {PERSONS} has another number of "
            "rows"
        )
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    household, person = _codes(homes, schema.household, HOUSEHOLDS), _codes(people, schema.person, PERSONS)
    return SyntheticHouseholds(sizes.astype(np.int32), household, person, offsets)


def _codes(rows: Any, attributes: tuple[Attribute, ...], name: str) -> Codes:
    """Return labels as codes; raise an error that names a label unknown to the schema (everything here is public)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    codes = np.empty((rows.num_rows, len(attributes)), np.int32)
    for place, attribute in enumerate(attributes):
        labels = rows[attribute.name].cast(pa.string())
        found = pc.fill_null(pc.index_in(labels, pa.array(attribute.values, pa.string())), -1).to_numpy()
        for row in np.flatnonzero(found < 0)[:1]:
            told = labels[row].as_py()
            raise ReleaseError(f"{name}: {attribute.name} has a value that is not in the schema: {told!r}")
        codes[:, place] = found
    return codes


def _csv_rows(path: Path) -> list[list[str]]:
    check_regular(path, most=MOST_TEXT)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ReleaseError(f"{PRIVACY} has {short(value)}; expected a text")
    return value
