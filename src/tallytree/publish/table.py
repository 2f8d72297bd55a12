"""`Table`: a published table with keys, measures and rows in one or more parts; written and described here.

Counts, entities and areas are such tables. Their Parquet and CSV files, their entries in the data package, exports and
reports all come from the same description. Everything in them is public.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.kernels import in_threads
from tallytree.core.names import briefly, for_a_spreadsheet
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.publish.statement import resource

ROWS_IN_GROUP = 1 << 17  # of a Parquet file: the least that a query reads
PARTITIONED = (
    "counts and entities are Parquet data sets in folders by level and, below the first level, by region of the first "
    "level; there are no CSV files"
)
KEYS = ("region", "kind", "area", "size", "household_id", "question", "cell")  # columns that identify a row
NOTHING: Mapping[str, str] = MappingProxyType({})
LABELS = {
    "count": "number of groups",
    "entities": "number of entities, large groups capped",
    "open_groups": "number of groups of the last size or more",
    "lower": "lower end, guaranteed",
    "upper": "upper end, guaranteed",
    "typical_lower": "lower end, typical",
    "typical_upper": "upper end, typical",
    "median": "median size",
    "median_lower": "lower end of the median size, guaranteed",
    "median_upper": "upper end of the median size, guaranteed",
    "mean": "mean size, large groups capped",
    "mean_lower": "lower end of the mean size, guaranteed",
    "mean_upper": "upper end of the mean size, guaranteed",
}


@dataclass(frozen=True, eq=False)
class Key:
    """A column that identifies rows.

    A key with `codes` is a dimension: `labels` describe the codes, and `parents` are the indices of their parents (-1:
    none).
    """

    name: str
    description: str
    codes: Sequence[str] | None = None
    labels: Sequence[str] = ()
    parents: Integers | None = None
    whole: bool = False  # an integer, not a text
    unique: bool = False  # a different text for each place

    __repr__ = briefly


@dataclass(frozen=True)
class Measure:
    """A column of numbers: what it holds, and its unit. `given` is false if the release has no such numbers."""

    name: str
    description: str
    unit: str
    given: bool = True
    confidence: float | None = None  # of ends of intervals
    decimals: int = 0
    optional: bool = False  # some rows have no number

    @property
    def label(self) -> str:
        """Return a short label."""
        return LABELS[self.name]


@dataclass(frozen=True, eq=False)
class Table:
    """Rows with keys and measures, the last dimension moving fastest.

    The first of the `measures` is the number itself. The others are ends of its intervals or related numbers.
    A row is one cell of a *place*. A place is a region (by category) or an area, and has `width` cells. If `zeros` is
    false, cells whose number is zero have no row.
    """

    name: str
    title: str
    description: str
    keys: tuple[Key, ...]
    measures: tuple[Measure, ...]
    confidence: float
    width: int
    parts: tuple[tuple[str, range], ...]  # each file, and its places
    rows: Callable[[range, bool], dict[str, Any]]  # Arrow columns of places: all cells, or the non-zero ones
    zeros: bool = True
    in_folders: tuple[str, ...] = ()  # keys that are in folder names and not in the files

    __repr__ = briefly

    @property
    def dimensions(self) -> tuple[Key, ...]:
        """Return the keys that have codes; together they identify a row."""
        return tuple(key for key in self.keys if key.codes is not None)

    @property
    def cells(self) -> int:
        """Return the number of rows, including zeros."""
        return prod(len(key.codes or ()) for key in self.dimensions)

    @property
    def given(self) -> tuple[Measure, ...]:
        """Return the measures that have numbers."""
        return tuple(measure for measure in self.measures if measure.given)

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the reasons why the other measures have no numbers."""
        return tuple(dict.fromkeys(measure.description for measure in self.measures if not measure.given))

    # ---------------------------------------------------------------- descriptions

    @property
    def descriptions(self) -> dict[str, str]:
        """Return the description of each column, by its name."""
        columns: tuple[Key | Measure, ...] = (*self.keys, *self.measures)
        return {column.name: column.description for column in columns}

    @property
    def schema(self) -> Any:
        """Return the Arrow schema; descriptions and confidence levels are in the metadata of its fields."""
        import pyarrow as pa

        def described(column: Key | Measure) -> dict[str, str]:
            confidence = getattr(column, "confidence", None)
            stated = {} if confidence is None else {"confidence": str(confidence)}
            return {"description": column.description, **stated}

        return pa.schema(
            [
                *(
                    pa.field(key.name, pa.int32() if key.whole else pa.string(), metadata=described(key))
                    for key in self.keys
                ),
                *(
                    pa.field(
                        measure.name, pa.float64() if measure.decimals else pa.int64(), metadata=described(measure)
                    )
                    for measure in self.measures
                ),
            ]
        )

    @property
    def file_schema(self) -> Any:
        """Return the schema of the Parquet files."""
        import pyarrow as pa

        return pa.schema([field for field in self.schema if field.name not in self.in_folders])

    def resources(self, *, regions: str, csv: bool) -> list[dict[str, Any]]:
        """Return the table's files as a data package lists them; `regions` is the file that lists the regions."""
        fields: list[dict[str, Any]] = [
            {"name": key.name, "type": "integer" if key.whole else "string", "description": key.description}
            for key in self.keys
            if key.name not in self.in_folders
        ]
        for measure in self.measures:
            confidence = {} if measure.confidence is None else {"confidence": measure.confidence}
            constraints = {"required": measure.given, "minimum": 0}
            described = {"name": measure.name, "type": "integer", "description": measure.description}
            fields.append({**described, **confidence, "constraints": constraints})
        names = [key.name for key in self.dimensions]
        text = self.description if len(self.parts) == 1 else f"{self.description}; {PARTITIONED}"
        found: dict[str, Any] = {"description": text, "schema": {"fields": fields, "primaryKey": names}}
        if "region" in names and self.name != "regions":
            reference = {"resource": regions.split(".")[0], "fields": "region"}
            found["schema"]["foreignKeys"] = [{"fields": "region", "reference": reference}]
        files = [file for file, _ in self.parts]
        parquet = {"path": files if len(files) > 1 else files[0], "format": "parquet", **found}
        if not csv:
            return [{"name": self.name, **parquet}]
        return [resource(f"{self.name}.csv", found), {"name": f"{self.name}-parquet", **parquet}]

    # ---------------------------------------------------------------- rows

    def batches(self, places: range | None = None, *, zeros: bool | None = None) -> Iterator[Any]:
        """Yield the rows as pyarrow Tables, one block of places at a time; zero cells only if `zeros`."""
        import pyarrow as pa

        schema, written = self.schema, self.zeros if zeros is None else zeros
        for block in region_blocks(self.places if places is None else places, self.width):
            columns = self.rows(block, written)
            yield pa.table([columns[name] for name in schema.names], schema=schema)

    def cells_of(self, rows: Any, among: range | None = None) -> Integers:
        """Return the cell of each row, the last dimension moving fastest; -1 for a cell that does not exist.

        Only the codes `among` of the first dimension are compared.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        cells, known = np.zeros(rows.num_rows, np.int64), np.ones(rows.num_rows, np.bool_)
        for key in self.dimensions:
            codes, start = key.codes or (), 0
            if among is not None and key is self.dimensions[0]:
                codes, start = codes[among.start : among.stop], among.start
            listed = pa.array(codes, pa.string())
            place = pc.index_in(rows[key.name], listed.cast(pa.int32()) if key.whole else listed)
            code = pc.fill_null(place, -1).to_numpy().astype(np.int64)
            known &= code >= 0
            cells = cells * len(key.codes or ()) + start + code
        return np.where(known, cells, -1)

    @property
    def places(self) -> range:
        """Return all places."""
        return range(self.parts[0][1].start, self.parts[-1][1].stop)

    def whole(self, places: range | None = None, having: Mapping[str, str] = NOTHING) -> Any:
        """Return all rows of some places, including zeros, as one pyarrow Table: those `having` these texts in keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found = list(self.batches(places, zeros=True))
        for name, text in having.items():
            found = [rows.filter(pc.equal(rows[name], text)) for rows in found]
        return pa.concat_tables([self.schema.empty_table(), *found]).combine_chunks()

    def write(self, folder: Path, progress: Progress = silent, *, csv: bool) -> list[str]:
        """Write all parts on all cores, and with `csv` one CSV file of all rows; return the file names."""
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.parquet as pq

        schema, lock, done, every = self.file_schema, Lock(), 0, len(self.places)
        texts = [key.name for key in self.keys if not key.whole and (self.width > 1 or not key.unique)]
        texts = [name for name in texts if name in schema.names]

        def write(start: int, stop: int) -> None:
            nonlocal done
            for file, places in self.parts[start:stop]:
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                with pq.ParquetWriter(folder / file, schema, use_dictionary=texts) as writer:
                    for rows in self.batches(places):
                        writer.write_table(rows.select(schema.names), row_group_size=ROWS_IN_GROUP)
                with lock:
                    done += len(places)
                    progress(Stage(f"writing {self.name}", done, every, unit="%"))

        in_threads(write, [(number, number + 1) for number in range(len(self.parts))])
        names = [file for file, _ in self.parts]
        if csv:
            names.append(f"{self.name}.csv")
            with pa.csv.CSVWriter(folder / names[-1], self.schema) as text:
                for rows in self.batches():
                    text.write_table(for_spreadsheets(rows))
        return names


def differing_cells(rows: Any, expected: Any, alike: Callable[[Any, Any], bool] = operator.eq) -> Iterator[str]:
    """Yield the first cell of each column that differs from the expected one; both pyarrow Tables have the same
    length.
    """
    keys = [name for name in expected.column_names if name in KEYS]
    for name in expected.column_names:
        if not rows[name].equals(expected[name]):
            stated, right = rows[name].to_pylist(), expected[name].to_pylist()
            for row in range(len(right)):
                if not alike(stated[row], right[row]):
                    where = ", ".join(f"{key} {expected[key][row].as_py()!r}" for key in keys)
                    yield f"{where or f'row {row + 1}'}: {name} is {stated[row]!r}; expected {right[row]!r}"
                    break


# -------------------------------------------------------------------- blocks of regions

ROWS_AT_A_TIME = 1 << 20


def region_blocks(regions: range, columns: int) -> Iterator[range]:
    """Yield blocks of regions of at most about a million cells (at least one region)."""
    step = max(1, ROWS_AT_A_TIME // max(1, columns))
    for start in range(regions.start, regions.stop, step):
        yield range(start, min(start + step, regions.stop))


def key_columns(hierarchy: Hierarchy, block: range, sizes: range | None) -> dict[str, Any]:
    """Return Arrow columns level, region and size for every cell of a block; without sizes, one row per region."""
    import pyarrow as pa

    width = 1 if sizes is None else len(sizes)
    levels = np.repeat(hierarchy.level_of[block.start : block.stop], width).astype(np.int32)
    regions = np.repeat(np.arange(len(block), dtype=np.int32), width)
    ids = pa.array(hierarchy.ids[block.start : block.stop], pa.string())
    size = pa.nulls(len(block), pa.int32()) if sizes is None else np.tile(np.array(sizes, np.int32), len(block))
    return {
        "level": pa.DictionaryArray.from_arrays(levels, pa.array(hierarchy.levels, pa.string())).cast(pa.string()),
        "region": pa.DictionaryArray.from_arrays(regions, ids).cast(pa.string()),
        "size": pa.array(size, pa.int32()),
    }


def for_spreadsheets(rows: Any) -> Any:
    """Return an Arrow table for a CSV file whose texts are safe in a spreadsheet (`names.for_a_spreadsheet`)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(rows.schema):
        if pa.types.is_string(field.type):
            texts = pc.unique(rows[field.name]).to_pylist()
            marked = {text: cell for text in texts if text is not None and (cell := for_a_spreadsheet(text)) != text}
            if marked:
                places = pc.index_in(rows[field.name], pa.array(texts, pa.string()))
                cells = pa.array([marked.get(text, text) for text in texts], pa.string())
                rows = rows.set_column(place, field, cells.take(places.combine_chunks()))
    return rows
