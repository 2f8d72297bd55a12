"""The directory of synthetic households: drawn and written a chunk at a time beside its place, and renamed into it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.progress import Progress, Stage
from tallytree.domain.schema import SIZE, Marginal, Schema
from tallytree.publish.folder import MEASUREMENTS, PACKAGE, PRIVACY, write_json, write_whole
from tallytree.publish.microdata.contents import SynthesisContents
from tallytree.publish.microdata.statement import data_package, privacy_statement
from tallytree.publish.run_folder import RunFolder
from tallytree.synthesis.country.levels import RegionLevels
from tallytree.synthesis.models.model import SyntheticHouseholds
from tallytree.synthesis.models.sampling import Tally
from tallytree.synthesis.trust import Evidence, TableAccuracy, noise_reach, table_accuracies
from tallytree.synthesis.workload import Workload

HOUSEHOLDS, PERSONS = "households.parquet", "persons.parquet"
QUESTIONS, ANSWERS, SCHEMA, SIZES = "questions.csv", "answers.parquet", "schema.json", "size_table.csv"
REGIONS = "regions.csv"
FILES = (HOUSEHOLDS, PERSONS, QUESTIONS, ANSWERS, SCHEMA, MEASUREMENTS, PRIVACY, PACKAGE)
SIZE_COLUMNS = ("region", "size", "count")
QUESTION_COLUMNS = (
    "question",
    "table",
    "counts",
    "household_attributes",
    "person_attributes",
    "by_size",
    *(field.name for field in fields(TableAccuracy) if field.name != "table"),
)

MOST_ANSWERS = 2_000_000  # cells; tables beyond them have their row of questions, but no rows of answers
ID, PERSON = "household_id", "person"


def write_microdata(
    synthesis: SynthesisContents,
    target: Path,
    *,
    number: int | None,
    replace: bool,
    progress: Progress,
) -> str:
    """Write all files and return the directory's id."""

    def fill(folder: Path) -> list[str]:
        tally, drawn, again = _write_households(synthesis, folder, number, progress)
        factor = scale(synthesis.fitted.number, drawn, agrees=synthesis.table is not None)
        written = write_report(tally, factor, synthesis.evidence, folder)
        _write_measurements(synthesis, folder / MEASUREMENTS)
        write_json(folder / SCHEMA, synthesis.schema.to_json())
        left_out = synthesis.workload.queries - written
        statement = privacy_statement(synthesis, number=drawn, left_out=left_out, drawn_again=again)
        write_json(folder / PRIVACY, statement)
        write_json(folder / PACKAGE, data_package(synthesis))
        if synthesis.table is None:
            return [*FILES]
        _write_size_table(synthesis, folder / SIZES)
        if synthesis.table.levels is None:
            return [*FILES, SIZES]
        _write_regions(synthesis.table.levels, folder / REGIONS)
        return [*FILES, SIZES, REGIONS]

    named = (lambda _: None) if synthesis.folder is None else RunFolder(synthesis.folder).keep_id
    return write_whole(target, fill, replace=replace, named=named)


def is_microdata(folder: Path) -> bool:
    """Does the directory hold synthetic households, rather than a release of group sizes?"""
    return any((folder / name).exists() for name in (HOUSEHOLDS, PERSONS, SCHEMA))


def scale(real: int, drawn: int, *, agrees: bool) -> float:
    """How many real households a synthetic one stands for; one where they agree with a released table."""
    return 1.0 if agrees or drawn == 0 else real / drawn


# -------------------------------------------------------------------- households and persons


def arrow_schemas(schema: Schema) -> tuple[Any, Any]:
    """The columns of the two files."""
    import pyarrow as pa

    label = pa.dictionary(pa.int32(), pa.string())
    homes = [(ID, pa.int64()), *((each.name, label) for each in schema.household), (SIZE, pa.int32())]
    people = [(ID, pa.int64()), (PERSON, pa.int32()), *((each.name, label) for each in schema.person)]
    return pa.schema(homes), pa.schema(people)


def as_tables(chunk: SyntheticHouseholds, schema: Schema, first_id: int) -> tuple[Any, Any]:
    """A chunk of codes as two Arrow tables with labels, households numbered from `first_id` on."""
    import pyarrow as pa

    def labels(codes: NDArray[Any], attributes: Any) -> list[Any]:
        return [
            pa.DictionaryArray.from_arrays(
                pa.array(np.ascontiguousarray(codes[:, place]), pa.int32()), pa.array(each.values, pa.string())
            )
            for place, each in enumerate(attributes)
        ]

    ids = np.arange(first_id, first_id + len(chunk.sizes), dtype=np.int64)
    persons = np.arange(len(chunk.person), dtype=np.int64) - np.repeat(chunk.offsets[:-1], chunk.sizes) + 1
    sizes = pa.array(chunk.sizes, pa.int32())
    home_columns = [pa.array(ids), *labels(chunk.household, schema.household), sizes]
    owners, numbers = pa.array(np.repeat(ids, chunk.sizes)), pa.array(persons.astype(np.int32))
    homes, people = arrow_schemas(schema)
    return (
        pa.table(home_columns, schema=homes),
        pa.table([owners, numbers, *labels(chunk.person, schema.person)], schema=people),
    )


def _write_households(
    synthesis: SynthesisContents, folder: Path, number: int | None, progress: Progress
) -> tuple[Tally, int, int]:
    """Draw and write chunk by chunk, one row group each, and count the workload's tables on the way.

    Returns the counts, how many households there are and how many of them were drawn again for the rules.
    """
    import pyarrow.parquet as pq

    homes, people = arrow_schemas(synthesis.schema)
    tally, written, again = Tally(synthesis.workload), 0, 0
    total = synthesis.number if number is None else number
    with pq.ParquetWriter(folder / HOUSEHOLDS, homes) as home_file, pq.ParquetWriter(folder / PERSONS, people) as file:
        for chunk in synthesis.draw(number):
            home_rows, person_rows = as_tables(chunk, synthesis.schema, written + 1)
            home_file.write_table(home_rows, row_group_size=max(1, home_rows.num_rows))
            file.write_table(person_rows, row_group_size=max(1, person_rows.num_rows))
            tally.add(chunk)
            written += len(chunk.sizes)
            again += chunk.redrawn
            progress(Stage("writing households", written, total))
    return tally, written, again


# -------------------------------------------------------------------- the report of errors


def write_report(tally: Tally, factor: float, evidence: Evidence, folder: Path) -> int:
    """Questions and answers of counted tables; returns how many answers were written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    scaled = [factor * counts for counts in tally.counts]
    asked = table_accuracies(tally.workload, scaled, evidence)
    with (folder / QUESTIONS).open("w", encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(QUESTION_COLUMNS)
        writer.writerows(question_rows(asked))
    kinds = [("question", pa.int32()), ("cell", pa.int64()), ("values", pa.string()), ("synthetic", pa.int64())]
    kinds += [(name, pa.float64()) for name in ("answer", "measured", "noise", "error_at_most")]
    written = 0
    with pq.ParquetWriter(folder / ANSWERS, pa.schema(kinds)) as file:
        for place, (marginal, counts) in enumerate(zip(tally.workload, tally.counts, strict=True), start=1):
            if written + counts.size > MOST_ANSWERS:
                break
            columns = answer_columns(place, marginal, counts, factor, evidence)
            file.write_table(pa.table(columns, schema=pa.schema(kinds)))
            written += counts.size
    return written


def question_rows(asked: Sequence[TableAccuracy]) -> Iterator[list[str]]:
    """The rows of questions.csv; an empty cell is not known."""
    for place, question in enumerate(asked, start=1):
        table = question.table
        numbers = [getattr(question, name) for name in QUESTION_COLUMNS[6:]]
        yield [
            str(place),
            table.describe(),
            table.of,
            listed([*table.household, *(f"{role}.{name}" for role, name in table.roles)]),
            listed(table.person),
            "yes" if table.size else "no",
            *("" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value) for value in numbers),
        ]


def listed(names: Sequence[str]) -> str:
    """Names in one cell, spaces between them; one with a space in it is quoted: `csv.reader([cell], delimiter=" ")`.

    >>> print(listed(["area", "own income"]))
    area "own income"
    """
    text = io.StringIO()
    csv.writer(text, delimiter=" ", lineterminator="").writerow(names)
    return text.getvalue()


def answer_columns(
    place: int, marginal: Marginal, counts: NDArray[np.int64], factor: float, evidence: Evidence
) -> dict[str, Any]:
    """The rows of answers.parquet for one table."""
    import pyarrow as pa

    flat = counts.ravel()
    found = evidence.known(marginal)
    answer = factor * flat
    nothing = pa.nulls(flat.size, pa.float64())
    columns: dict[str, Any] = {"measured": nothing, "noise": nothing, "error_at_most": nothing}
    if found is not None:
        variance = found.variance.ravel()
        unknown = ~np.isfinite(variance)
        with np.errstate(invalid="ignore"):
            reach = np.abs(answer - found.values.ravel()) + noise_reach(variance)
        columns = {
            "measured": pa.array(found.values.ravel(), mask=unknown),
            "noise": pa.array(np.sqrt(variance), mask=unknown),
            "error_at_most": pa.array(reach, mask=unknown),
        }
    return {
        "question": np.full(flat.size, place, np.int32),
        "cell": np.arange(flat.size, dtype=np.int64),
        "values": labels_of(marginal, evidence.schema),
        "synthetic": flat,
        "answer": answer,
        **columns,
    }


def labels_of(marginal: Marginal, schema: Schema) -> list[str]:
    """Each cell's values in words, in the order of the flat table."""
    axes = [[f"{number} {SIZE}" for number in range(schema.max_persons + 1)]] if marginal.size else []
    axes += [list(schema.attribute(name).values) for name in marginal.attributes]
    return ["; ".join(values) for values in product(*axes)]


# -------------------------------------------------------------------- measurements, and the released table


def _write_measurements(synthesis: SynthesisContents, path: Path) -> None:
    """First the noisy counts in the order of the statement's `measured`, then what was `published_exactly`."""
    import pyarrow.parquet as pq

    schema = measured_columns()
    with pq.ParquetWriter(path, schema) as file:
        for place, part in enumerate(synthesis.fitted.measured, start=1):
            file.write_table(_measurement(place, *part.counts(synthesis.schema), schema))
        for place, counts in enumerate(synthesis.exact.values(), start=len(synthesis.fitted.measured) + 1):
            file.write_table(_measurement(place, np.arange(counts.size), counts.ravel(), np.zeros(counts.size), schema))


def measured_columns() -> Any:
    """The columns of the file of measurements."""
    import pyarrow as pa

    return pa.schema(
        [("measurement", pa.int32()), ("cell", pa.int64()), ("value", pa.int64()), ("variance", pa.float64())]
    )


def _measurement(place: int, cells: NDArray[Any], values: NDArray[Any], variance: NDArray[Any], schema: Any) -> Any:
    import pyarrow as pa

    columns = {
        "measurement": np.full(len(cells), place, np.int32),
        "cell": cells.astype(np.int64),
        "value": np.rint(values).astype(np.int64),
        "variance": variance,
    }
    return pa.table(columns, schema=schema)


def _write_size_table(synthesis: SynthesisContents, path: Path) -> None:
    table = synthesis.table
    assert table is not None
    sizes = range(table.first_size, table.last_size + 1)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(size_columns([category for category, _ in table.by]))
        rows = size_rows(synthesis.schema, table.attributes, sizes)
        writer.writerows([*row, count] for row, count in zip(rows, table.counts.ravel().tolist(), strict=True))


def _write_regions(levels: RegionLevels, path: Path) -> None:
    """A row for each leaf region, with the regions that it lies in, from the top down."""
    columns = [
        [attribute.values[code] for code in of_leaf.tolist()]
        for attribute, of_leaf in zip(levels.attributes, levels.of_leaf, strict=True)
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([attribute.name for attribute in levels.attributes])
        writer.writerows(zip(*columns, strict=True))


def size_columns(categories: Sequence[str]) -> list[str]:
    """The columns of the file with the released table."""
    region, *rest = SIZE_COLUMNS
    return [region, *categories, *rest]


def size_rows(schema: Schema, attributes: Sequence[str], sizes: range) -> Iterator[tuple[str, ...]]:
    """What stands before the count in each row: a value of each attribute, and the size."""
    return product(*(schema.attribute(name).values for name in attributes), map(str, sizes))


def workload_of(statement: dict[str, Any], schema: Schema) -> Workload:
    """The workload that a statement names."""
    return Workload(schema, tuple(Marginal.from_json(table) for table in statement["workload"]))
