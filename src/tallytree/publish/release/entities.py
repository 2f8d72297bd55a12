"""The number of entities of every region beside its groups by size: entities.csv and entities.parquet.

It is derived from the released table, Σ size · count, so the two agree whatever was measured. Groups of the last size
or more count with that size, so the number is a lower bound where there are larger ones: what groups have beyond the
last size is cut off when data are read, and measured nowhere. `open_groups` says how many groups that may be.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.domain.histogram import entities
from tallytree.domain.long_table import for_spreadsheets
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.release.error_bars import ErrorBars
from tallytree.publish.release.rows import TableRows, category_description
from tallytree.publish.release.truncation import truncation

ENTITIES, ENTITIES_CSV = "entities.parquet", "entities.csv"


def entity_description(neighbours: Neighbours, max_size: int) -> str:
    """What the column `entities` means, wherever it appears."""
    row = (
        "each row of the data counts as one"
        if neighbours.quantity_bound == 1
        else f"each row of the data counts with its quantity, at most {neighbours.quantity_bound}"
    )
    told = truncation(neighbours)
    return (
        f"number of entities in the groups of that region, with noise for privacy: the sum of size times count; {row}. "
        f"{cut_off(max_size)}" + (f" {told}" if told else "")
    )


def capped_sizes(max_size: int) -> str:
    """The cut-off of every number of entities and every mean size, in the words that stand next to it."""
    return f"sizes above {max_size} counted as {max_size}"


def cut_off(max_size: int) -> str:
    """Why the number of entities can be too low, in one sentence."""
    return (
        f"Groups of {max_size} or more count as {max_size}, so the number leaves out what larger groups have beyond "
        f"{max_size}."
    )


def open_description(max_size: int) -> str:
    """What the column `open_groups` means."""
    return f"released number of groups of size {max_size} or more, each of which counts as {max_size} entities"


def entity_schema(neighbours: Neighbours, max_size: int, bars: ErrorBars, categories: tuple[str, ...] = ()) -> Any:
    """The pyarrow schema of the table; descriptions and the level of confidence are in its metadata."""
    import pyarrow as pa

    described = {"entities": entity_description(neighbours, max_size), "open_groups": open_description(max_size)}
    confidence = str(bars.confidence)
    return pa.schema(
        [
            ("level", pa.string()),
            ("region", pa.string()),
            ("name", pa.string()),
            *(pa.field(name, pa.string(), metadata={"description": category_description(name)}) for name in categories),
            *(pa.field(name, pa.int64(), metadata={"description": text}) for name, text in described.items()),
            *(
                pa.field(name, pa.int64(), metadata={"description": text, "confidence": confidence})
                for name, text in bars.describe_entities(max_size).items()
            ),
        ]
    )


def entity_table(rows: TableRows, neighbours: Neighbours, sizes: range, counts: Integers, bars: ErrorBars) -> Any:
    """One row for each region and category: its keys, entities, open_groups and intervals: a pyarrow Table.

    `counts` are laid out as the rows say.
    """
    import pyarrow as pa

    schema, places = entity_schema(neighbours, sizes[-1], bars, rows.categories), rows.order
    columns: dict[str, Any] = {
        **rows.keys(range(len(rows)), range(1)),
        "entities": entities(counts, sizes.start)[places],
        "open_groups": counts[places, -1],
    }
    for name, ends in bars.entity_columns.items():
        columns[name] = pa.nulls(len(rows), pa.int64()) if ends is None else ends[places]
    return pa.table({name: columns[name] for name in schema.names}).cast(schema)


def entity_fields(neighbours: Neighbours, max_size: int, bars: ErrorBars) -> list[dict[str, Any]]:
    """The columns besides those that name the region, as fields of the data package."""
    count = {"type": "integer", "constraints": {"required": True, "minimum": 0}}
    return [
        {"name": "entities", "description": entity_description(neighbours, max_size), **count},
        {"name": "open_groups", "description": open_description(max_size), **count},
        *(
            {
                "name": name,
                "type": "integer",
                "description": text,
                "confidence": bars.confidence,
                "constraints": {"required": bars.entity_columns[name] is not None, "minimum": 0},
            }
            for name, text in bars.describe_entities(max_size).items()
        ),
    ]


def write_entities(table: Any, folder: Path) -> None:
    """Write both files."""
    import pyarrow.csv
    import pyarrow.parquet as pq

    pq.write_table(table, folder / ENTITIES)
    pyarrow.csv.write_csv(for_spreadsheets(table), folder / ENTITIES_CSV)


def read_ends(path: Path, names: tuple[str, ...], rows: TableRows) -> dict[str, Integers]:
    """The ends of intervals in entities.parquet, by column, laid out as the rows say, −1 where a cell is empty.

    Which row is about what is taken as it should be: `verify` looks.
    """
    import pyarrow.compute as pc

    from tallytree.publish.reading import ParquetRows

    with ParquetRows(path, most=2 * len(rows) + 1000) as file:
        missing = [name for name in names if name not in file.schema.names]
        if missing or file.rows != len(rows):
            lacking = f" and lacks the column {missing[0]}" if missing else ""
            raise ReleaseError(f"{path} is damaged: it has {file.rows:,} rows for {len(rows):,} {rows.what}{lacking}")
        groups = [file.group(group) for group in file.groups]
    found = {}
    for name in names:
        cells = [pc.fill_null(group[name], -1).to_numpy().astype(np.int64) for group in groups]
        found[name] = np.full(rows.laid_out, -1)
        found[name][rows.order] = np.concatenate(cells)
        if rows.categories:  # the tree's root is the first of the sums, which has the row
            found[name][0] = found[name][len(rows.tree)]
    return found
