"""From arrays `[regions, sizes]` to long tables, a block of regions at a time, so that no table is ever held whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tallytree.core.names import for_a_spreadsheet
from tallytree.domain.hierarchy import Hierarchy

ROWS_AT_A_TIME = 1 << 20


def region_blocks(regions: range, columns: int) -> Iterator[range]:
    """Cut regions into blocks of at most about a million cells (at least one region)."""
    step = max(1, ROWS_AT_A_TIME // max(1, columns))
    for start in range(regions.start, regions.stop, step):
        yield range(start, min(start + step, regions.stop))


def key_columns(hierarchy: Hierarchy, block: range, sizes: range | None) -> dict[str, Any]:
    """Arrow columns level, region and size for every cell of a block; without sizes, one row per region."""
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
    """An Arrow table whose texts are safe in a spreadsheet (`names.for_a_spreadsheet`), for a CSV file."""
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
