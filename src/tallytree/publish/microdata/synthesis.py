"""`Synthesis`: a model of private households from which synthetic ones are drawn, with its files and errors.

Households are drawn and written a chunk at a time into a directory beside its place, which is renamed when complete.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from dataclasses import replace as replace_fields
from itertools import product
from os import PathLike
from pathlib import Path
from statistics import median_high
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.display import inline, page, paragraph, stacked_bar, table
from tallytree.core.names import quoted
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.schema import SIZE, Attribute, Marginal, Schema
from tallytree.privacy.budget import as_decimal
from tallytree.privacy.relations import describe_relation
from tallytree.publish.folder import MEASUREMENTS, PACKAGE, PRIVACY, write_json
from tallytree.publish.microdata.synthesis_statement import SynthesisContents, data_package, privacy_statement
from tallytree.publish.run_folder import Published, save_published
from tallytree.publish.statement import guarantee
from tallytree.publish.untrusted import opened
from tallytree.synthesis.model import SyntheticHouseholds
from tallytree.synthesis.sampling import Tally
from tallytree.synthesis.table_accuracy import Evidence, How, TableAccuracy, noise_reach, table_accuracies
from tallytree.synthesis.table_selection import kind_of, noise_by_kind
from tallytree.synthesis.workload import Workload

HOUSEHOLDS, PERSONS = "households.parquet", "persons.parquet"
QUESTIONS, ANSWERS, SCHEMA, SIZES = "questions.csv", "answers.parquet", "schema.json", "size_table.csv"
REGIONS = "regions.csv"
FILES = (HOUSEHOLDS, PERSONS, QUESTIONS, ANSWERS, SCHEMA, MEASUREMENTS, PRIVACY, PACKAGE)
QUESTION_NUMBERS = tuple(field.name for field in fields(TableAccuracy) if field.name != "table")
QUESTION_COLUMNS = (
    "question",
    "table",
    "counts",
    "household_attributes",
    "person_attributes",
    "by_size",
    *QUESTION_NUMBERS,
)
MOST_ANSWERS = 2_000_000  # cells; larger tables have a row in questions.csv, but no rows of answers
ID, PERSON = "household_id", "person"

Row = dict[str, Any]


class Synthesis(SynthesisContents, Published):
    """A model of private households with all it was made from. Everything in it is public.

    `number` is how many households `draw` and `save` give by default.
    """

    def __repr__(self) -> str:
        schema = self.schema
        attributes = f"{len(schema.household)} + {len(schema.person)} attributes, at most {schema.max_persons} persons"
        parts = f"{self.number:,} households", attributes, self.method, str(self.budget)
        return f"Synthesis({', '.join([quoted(self.title), *parts])})"

    def _repr_html_(self) -> str:
        records = self.fitted.rounds
        facts = {
            "households": f"{self.number:,} synthetic ones for {self.fitted.number:,} real ones"
            + ("" if self.neighbours.number_is_public else " (measured with noise)"),
            **describe_workload(self.workload),
            "method": self.method,
            "privacy": guarantee(self.budget),
            "protects": describe_relation(self.neighbours),
            "truncated": self.truncation if self.truncated else "",
        }
        rows = [
            (
                record.words,
                "published exactly" if record.kind == "public" else "lost" if record.lost else record.kind,
                as_decimal(record.rho),
                "" if record.noise is None else f"{record.noise:,.1f}",
            )
            for record in records
        ]
        headers = ("asked", "how", "ρ", "noise on one count (standard deviation)")
        asked = table(headers, rows, right=(2, 3), rest="fitted.rounds lists all of them")
        spent = {f"{place}: {record.words}": float(record.rho) for place, record in enumerate(records, 1) if record.rho}
        bar = inline(lambda: stacked_bar(spent, rest="")) if spent else ""
        return page(self.title, facts, asked, paragraph("Cost (ρ) of each measurement, in order:" if bar else ""), bar)

    def questions(self) -> list[TableAccuracy]:
        """The errors of the model's own answers, estimated from the measurements; `save` has those of its files."""
        answers = [self.fitted.number * table for table in self.fitted.model.answers_all(self.workload)]
        return table_accuracies(self.workload, answers, self.evidence)

    def save(
        self,
        directory: str | PathLike[str],
        *,
        number: int | None = None,
        replace: bool = False,
        progress: Progress = silent,
    ) -> str:
        """Draw households and write the directory, completely or not at all.

        Parameters
        ----------
        directory : path
            The directory to write.
        number : int, optional
            How many households to draw. The default is the synthesis's own `number`.
        replace : bool, default False
            Replace a directory that is there.
        progress : callable, optional
            A function that is called with each step of the work.

        Returns
        -------
        str
            The id, as that of `Release.save`.
        """
        made = self if number is None else replace_fields(self, number=number)
        return save_published(made, directory, replace=replace, progress=progress)

    def _write_files(self, folder: Path, progress: Progress) -> list[str]:
        """Draw households and write all files except the manifest; return their names."""
        tally, measured, drawn, again = _write_households(self, folder, progress)
        # The real households per synthetic one; 1 if they agree with a released table.
        factor = self.fitted.number / drawn if self.table is None and drawn else 1.0
        left_out = self.workload.queries - write_accuracy(tally, factor, self.evidence, folder)
        _write_measurements(self, folder / MEASUREMENTS)
        write_json(folder / SCHEMA, self.schema.to_json())
        quality = list_quality(self, measured, factor)
        statement = privacy_statement(self, number=drawn, left_out=left_out, drawn_again=again, quality=quality)
        write_json(folder / PRIVACY, statement)
        write_json(folder / PACKAGE, data_package(self))
        return [*FILES, *_write_released_table(self, folder)]


def describe_workload(workload: Workload) -> dict[str, str]:
    """Return the attributes of households and of persons, and how many tables are to be right."""
    household, person = (
        ", ".join(f"{each.name} ({each.codes})" for each in side) or "none"
        for side in (workload.schema.household, workload.schema.person)
    )
    return {
        "of households": household,
        "of persons": f"{person}; at most {workload.schema.max_persons} in a household",
        "workload": f"{len(workload):,} tables with {workload.queries:,} counts",
    }


def is_microdata(folder: Path) -> bool:
    """Return whether the directory holds synthetic households rather than a release of group sizes."""
    return any((folder / name).exists() for name in (HOUSEHOLDS, PERSONS, SCHEMA))


# -------------------------------------------------------------------- households and persons


def as_tables(chunk: SyntheticHouseholds, schema: Schema, first_id: int = 1) -> tuple[Any, Any]:
    """Return a chunk of codes as two Arrow tables with labels, households numbered from `first_id` on."""
    import pyarrow as pa

    def labels(codes: NDArray[Any], attributes: tuple[Attribute, ...]) -> dict[str, Any]:
        return {
            each.name: pa.DictionaryArray.from_arrays(
                pa.array(np.ascontiguousarray(codes[:, place]), pa.int32()), pa.array(each.values, pa.string())
            )
            for place, each in enumerate(attributes)
        }

    ids = np.arange(first_id, first_id + len(chunk.sizes), dtype=np.int64)
    persons = np.arange(len(chunk.person)) - np.repeat(chunk.offsets[:-1], chunk.sizes) + 1
    return (
        pa.table({ID: ids, **labels(chunk.household, schema.household), SIZE: pa.array(chunk.sizes, pa.int32())}),
        pa.table(
            {ID: np.repeat(ids, chunk.sizes), PERSON: persons.astype(np.int32), **labels(chunk.person, schema.person)}
        ),
    )


def _write_households(
    synthesis: SynthesisContents, folder: Path, progress: Progress
) -> tuple[Tally, Tally | None, int, int]:
    """Draw and write chunk by chunk, one row group each, and count the workload's tables and the measured ones.

    Returns the counts of both (None if no whole table was measured), the number of households and how many of them were
    drawn again because of the edit rules.
    """
    import pyarrow.parquet as pq

    schema = synthesis.schema
    homes, people = as_tables(SyntheticHouseholds.of_sizes(schema, np.zeros(0, np.int32)), schema)
    tally, written, again = Tally(synthesis.workload), 0, 0
    known = synthesis.evidence.measured.values()
    whole = tuple(part.marginal for part in known if np.isfinite(part.variance).all())
    measured = Tally(Workload(schema, whole)) if whole else None
    with (
        pq.ParquetWriter(folder / HOUSEHOLDS, homes.schema) as home_file,
        pq.ParquetWriter(folder / PERSONS, people.schema) as person_file,
    ):
        for chunk in synthesis.draw():
            for file, rows in zip((home_file, person_file), as_tables(chunk, schema, written + 1), strict=True):
                file.write_table(rows, row_group_size=max(1, rows.num_rows))
            tally.add(chunk)
            if measured is not None:
                measured.add(chunk)
            written += len(chunk.sizes)
            again += chunk.redrawn
            progress(Stage("writing households", written, synthesis.number))
    return tally, measured, written, again


# -------------------------------------------------------------------- errors


def write_accuracy(tally: Tally, factor: float, evidence: Evidence, folder: Path) -> int:
    """Write queries and answers of counted tables; return how many answers were written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    scaled = [factor * counts for counts in tally.counts]
    accuracies = table_accuracies(tally.workload, scaled, evidence)
    _write_csv(folder / QUESTIONS, QUESTION_COLUMNS, map(_question_row, range(1, len(accuracies) + 1), accuracies))
    kinds = [("question", pa.int32()), ("cell", pa.int64()), ("values", pa.string()), ("synthetic", pa.int64())]
    schema = pa.schema([*kinds, *((name, pa.float64()) for name in ("answer", "measured", "noise", "error_at_most"))])
    written = 0
    with pq.ParquetWriter(folder / ANSWERS, schema) as file:
        for place, (marginal, counts) in enumerate(zip(tally.workload, tally.counts, strict=True), start=1):
            if written + counts.size > MOST_ANSWERS:
                break
            file.write_table(pa.table(_answer_columns(place, marginal, counts.ravel(), factor, evidence), schema))
            written += counts.size
    return written


def list_quality(synthesis: SynthesisContents, measured: Tally | None, factor: float) -> list[dict[str, Any]]:
    """Return how near the households come to the measured tables, by kind of table; for programs and for people."""
    if measured is None:
        return []
    answers = [factor * counts for counts in measured.counts]
    found = [
        (one.table, one.noise, one.error)
        for one in table_accuracies(measured.workload, answers, synthesis.evidence)
        if one.noise is not None and one.error is not None
    ]
    schema = synthesis.schema
    noise = noise_by_kind(((table, noise) for table, noise, _ in found), schema)
    errors = noise_by_kind(((table, error) for table, _, error in found), schema)
    rows = []
    for kind in noise:
        tables = [table for table, _, _ in found if kind_of(table, schema) == kind]
        rows.append(
            {
                "kind": kind,
                "tables": len(tables),
                "counts": sum(table.cells(schema) for table in tables),
                "noise": float(f"{noise[kind]:.6g}"),
                "expected_error": float(f"{errors[kind]:.6g}"),
                "in_groups": [table.describe() for table in tables if table.groups],
            }
        )
    return rows


def read_questions(directory: Path) -> list[Row]:
    """Return the tables of the workload with their errors from questions.csv, the most accurate first."""
    with opened(directory / QUESTIONS) as file:
        rows = csv.DictReader(file.read().decode("utf-8").splitlines())
        found: list[Row] = [{**row, "question": int(row["question"]), "cells": int(row["cells"])} for row in rows]
    for row in found:
        row |= {name: float(row[name]) if row[name] else None for name in ("error", "at_most")}
    order = {how: place for place, how in enumerate(get_args(How))}
    return sorted(found, key=lambda row: (order.get(row["how"], len(order)), row["error"] or 0))


def accuracy_by_kind(tables: Sequence[Row]) -> list[Row]:
    """Return how many tables are known in each way, how many counts they have, and their median errors."""
    kinds = []
    for how in get_args(How):
        if own := [one for one in tables if one["how"] == how]:
            known = {name: [one[name] for one in own if one[name] is not None] for name in ("error", "at_most")}
            medians = {name: median_high(errors) if errors else None for name, errors in known.items()}
            kinds.append({"how": how, "tables": len(own), "cells": sum(one["cells"] for one in own), **medians})
    return kinds


def _question_row(place: int, accuracy: TableAccuracy) -> list[str]:
    """Return a row of questions.csv; an empty cell is unknown."""
    table = accuracy.table
    numbers = [getattr(accuracy, name) for name in QUESTION_NUMBERS]
    return [
        str(place),
        table.describe(),
        table.of,
        join_names([*table.household, *(f"{role}.{name}" for role, name in table.roles)]),
        join_names(table.person),
        "yes" if table.size else "no",
        *("" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value) for value in numbers),
    ]


def join_names(names: Sequence[str]) -> str:
    """Join names in one cell with spaces; a name with a space is quoted: `csv.reader([cell], delimiter=" ")`.

    >>> print(join_names(["area", "own income"]))
    area "own income"
    """
    text = io.StringIO()
    csv.writer(text, delimiter=" ", lineterminator="").writerow(names)
    return text.getvalue()


def _answer_columns(
    place: int, marginal: Marginal, counts: Integers, factor: float, evidence: Evidence
) -> dict[str, Any]:
    """Return the rows of answers.parquet for one table: each cell with its values in words."""
    import pyarrow as pa

    schema, known, answer = evidence.schema, evidence.known(marginal), factor * counts
    measured = np.zeros(counts.size) if known is None else known.values.ravel()
    variance = np.full(counts.size, np.inf) if known is None else known.variance.ravel()
    with np.errstate(invalid="ignore"):
        reach = np.abs(answer - measured) + noise_reach(variance)

    def where_measured(numbers: Floats) -> Any:
        return pa.array(numbers, mask=~np.isfinite(variance))

    axes = [[f"{number} {SIZE}" for number in range(schema.max_persons + 1)]] if marginal.size else []
    axes += marginal.labels(schema)
    return {
        "question": np.full(counts.size, place, np.int32),
        "cell": np.arange(counts.size),
        "values": ["; ".join(values) for values in product(*axes)],
        "synthetic": counts,
        "answer": answer,
        "measured": where_measured(measured),
        "noise": where_measured(np.sqrt(variance)),
        "error_at_most": where_measured(reach),
    }


# -------------------------------------------------------------------- measurements, and the released table


def measured_columns() -> Any:
    """Return the columns of the file of measurements."""
    import pyarrow as pa

    kinds = {"measurement": pa.int32(), "cell": pa.int64(), "value": pa.int64(), "variance": pa.float64()}
    return pa.schema(list(kinds.items()))


def _write_measurements(synthesis: SynthesisContents, path: Path) -> None:
    """Write first the noisy counts in the order of the statement's `measured`, then those `published_exactly`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    noisy = [part.counts(synthesis.schema) for part in synthesis.fitted.measured]
    exact = [(np.arange(counts.size), counts.ravel(), np.zeros(counts.size)) for counts in synthesis.exact.values()]
    with pq.ParquetWriter(path, measured_columns()) as file:
        for place, (cells, values, variance) in enumerate([*noisy, *exact], start=1):
            columns = [np.full(len(cells), place, np.int32), cells, np.rint(values).astype(np.int64), variance]
            file.write_table(pa.table([pa.array(column) for column in columns], schema=measured_columns()))


def _write_released_table(synthesis: SynthesisContents, folder: Path) -> Iterator[str]:
    """Write the table that the households agree with and, if they have its levels, each leaf with its ancestors."""
    released, schema = synthesis.table, synthesis.schema
    if released is None:
        return
    values = [schema.attribute(name).values for name in released.attributes]
    rows = product(*values, range(released.first_size, released.last_size + 1))
    header = ["region", *(category for category, _ in released.by), "size", "count"]
    counts = released.counts.ravel().tolist()
    _write_csv(folder / SIZES, header, ([*row, count] for row, count in zip(rows, counts, strict=True)))
    yield SIZES
    if released.levels is None:
        return
    above = zip(released.levels.attributes, released.levels.of_leaf, strict=True)
    columns = [[attribute.values[code] for code in codes.tolist()] for attribute, codes in above]
    header = [attribute.name for attribute in released.levels.attributes]
    _write_csv(folder / REGIONS, header, zip(*columns, strict=True))
    yield REGIONS


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
