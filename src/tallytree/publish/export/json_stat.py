"""JSON-stat 2.0: each table as one JSON document, with a dimension of its own for the number and its intervals.

Such a document is held in memory as a whole by those who read it, so large releases are refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Progress, Stage
from tallytree.publish.folder import write_json
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.statement import privacy_note
from tallytree.publish.table import Key, Table

MOST_VALUES = 5_000_000
MEASURE = "measure"  # the dimension whose categories are the number and the ends of its intervals


def write_json_stat(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write a document for each table, and name the files."""
    found = release.counts_table, release.entity_table
    values = max(table.cells * len(table.given) for table in found)
    if values > MOST_VALUES:
        raise ReleaseError(
            f"this release has {values:,} values; a JSON-stat document, which is read as a whole, gets at most "
            f"{MOST_VALUES:,}. Export it as csvw, or read its Parquet files"
        )
    names = []
    for table in found:
        names.append(f"{table.name}.json")
        progress(Stage(f"writing {names[-1]}"))
        write_json(folder / names[-1], document(table, release))
    return tuple(names)


def document(table: Table, release: ReleaseContents) -> dict[str, Any]:
    """A table as JSON-stat."""
    given, columns = table.given, [dimension.name for dimension in table.dimensions]
    taken = MEASURE if MEASURE not in columns else f"{MEASURE} (of tallytree)"
    return {
        "version": "2.0",
        "class": "dataset",
        "label": table.title,
        "note": [table.description, privacy_note(release.measurements), *table.missing],
        "id": [*columns, taken],
        "size": [*(len(dimension.codes or ()) for dimension in table.dimensions), len(given)],
        "role": {"geo": ["region"], "metric": [taken]},
        "dimension": {
            **{dimension.name: _dimension(dimension) for dimension in table.dimensions},
            taken: {
                "label": "the number, and the ends of its intervals",
                "category": {
                    "index": [measure.name for measure in given],
                    "label": {measure.name: measure.label for measure in given},
                    "unit": {measure.name: {"base": measure.unit, "decimals": 0} for measure in given},
                    "note": {measure.name: [measure.description] for measure in given},
                },
            },
        },
        "value": _values(table).ravel().tolist(),
        "extension": {"tallytree": {"confidence": table.confidence, "privacy": privacy_note(release.measurements)}},
    }


def _dimension(dimension: Key) -> dict[str, Any]:
    codes = dimension.codes or ()
    category: dict[str, Any] = {"index": list(codes), "label": dict(zip(codes, dimension.labels, strict=True))}
    if dimension.parents is not None:
        below: dict[str, list[str]] = {}
        for code, parent in zip(codes, dimension.parents.tolist(), strict=True):
            if parent >= 0:
                below.setdefault(codes[parent], []).append(code)
        category["child"] = below
    return {"label": dimension.description, "category": category}


def _values(table: Table) -> NDArray[np.int64]:
    """The numbers `[cells, measures]`, the last dimension moving fastest: a table's rows are put where they belong."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = np.full((table.cells, len(table.given)), -1, dtype=np.int64)
    for rows in table.batches(zeros=True):
        cell = np.zeros(rows.num_rows, dtype=np.int64)
        for dimension in table.dimensions:
            codes = rows[dimension.name].cast(pa.string())
            place = pc.index_in(codes, pa.array(dimension.codes, pa.string())).to_numpy()
            cell = cell * len(dimension.codes or ()) + place.astype(np.int64)
        for column, measure in enumerate(table.given):
            found[cell, column] = rows[measure.name].to_numpy()
    assert found.size == 0 or found.min() >= 0  # every cell has a row, and no number is negative
    return found
