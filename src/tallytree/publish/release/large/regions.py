"""regions.parquet: the public regions of a large release in breadth-first order, and their public totals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.publish.reading import ParquetRows, check_room

AT_A_TIME = 1 << 17  # regions
MOST_REGIONS = 1 << 32


def regions_schema() -> Any:
    """Columns and types."""
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        [
            pa.field("region", text, metadata={"description": "id, unique over all levels"}),
            pa.field("name", text, metadata={"description": "name to show"}),
            pa.field("level", text, metadata={"description": "name of the level"}),
            pa.field("parent", text, metadata={"description": "id of the region above; empty at the root"}),
            pa.field("copy_of", text, metadata={"description": "id of the region that this one carries down a level"}),
            pa.field("total", pa.int64(), metadata={"description": "public number of groups, where there is one"}),
        ]
    )


def region_batches(tree: Hierarchy, totals: Integers | None) -> Iterator[Any]:
    """The rows, as pyarrow Tables."""
    import pyarrow as pa

    text = pa.string()
    for start in range(0, len(tree), AT_A_TIME):
        stop = min(start + AT_A_TIME, len(tree))
        parents = tree.parents[start:stop]
        first = max(0, int(parents[0]))
        above = pa.array(tree.ids[first : int(parents[-1]) + 1], text)
        places = pa.array(parents - first, mask=parents < 0)
        parent = above.take(places) if len(above) else pa.nulls(stop - start, text)
        copies = pa.array(parents - first, mask=~tree.carried[start:stop])
        ids = pa.array(tree.ids[start:stop], text)
        columns = [
            ids,
            ids if tree.names is tree.ids else pa.array(tree.names[start:stop], text),
            pa.array(tree.levels, text).take(pa.array(tree.level_of[start:stop])),
            parent,
            above.take(copies) if len(above) else pa.nulls(stop - start, text),
            pa.nulls(stop - start, pa.int64()) if totals is None else pa.array(totals[start:stop]),
        ]
        yield pa.table(columns, schema=regions_schema())


def write_regions(tree: Hierarchy, totals: Integers | None, path: Path) -> None:
    """Write the file."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, regions_schema(), use_dictionary=["level", "parent", "copy_of"]) as writer:
        for rows in region_batches(tree, totals):
            writer.write_table(rows)


def read_regions(path: Path) -> tuple[Hierarchy, Integers | None]:
    """The hierarchy and the public totals; a file that `write_regions` would not write is refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    with ParquetRows(path, most=MOST_REGIONS) as file:
        check_room(file.rows, file.name)
        if not file.schema.equals(regions_schema(), check_metadata=True):
            raise ReleaseError(f"{file.name}: its columns are not those of a release, or say something else")
        tables = [file.group(group) for group in file.groups]
    if not tables:
        raise ReleaseError(f"{path.name} has no rows")
    rows = pa.concat_tables(tables)
    if any(rows[name].null_count for name in ("region", "name", "level")):
        raise ReleaseError(f"{path.name} has empty cells")
    ids = rows["region"].combine_chunks()
    parents = pc.index_in(rows["parent"].combine_chunks(), ids)
    if parents.null_count != 1 or rows["parent"].null_count != 1:
        raise ReleaseError(f"{path.name}: a parent is missing")
    names, known = tuple(rows["name"].to_pylist()), tuple(ids.to_pylist())
    tree = Hierarchy.from_layout(
        levels=pc.unique(rows["level"]).to_pylist(),
        names=names,
        ids=known,
        parents=pc.fill_null(parents, -1).to_numpy(zero_copy_only=False),
        carried=rows["copy_of"].is_valid().to_numpy(),
    )
    given = rows["total"]
    totals = None if given.null_count else given.to_numpy().astype(np.int64)
    if totals is None and given.null_count < len(rows):
        raise ReleaseError(f"{path.name} gives the totals of some regions and not of others")
    for right, start in zip(region_batches(tree, totals), range(0, len(rows), AT_A_TIME), strict=True):
        if not right.equals(rows.slice(start, len(right))):
            raise ReleaseError(f"{path.name}: a region from row {start + 1:,} on is not described as the others say")
    return tree, totals
