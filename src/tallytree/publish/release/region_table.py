"""The table of regions: the public tree in breadth-first order, with public totals.

It is in `regions.parquet` and, of a small release, in `regions.csv`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.publish.reading import all_rows
from tallytree.publish.table import Key, Measure, Table, differing_cells

MOST_REGIONS = 1 << 32


def region_table(tree: Hierarchy, totals: Integers | None, file: str) -> Table:
    """The regions of a tree with their public totals over all categories, where there are any."""
    regions = tree.regions

    def rows(block: range, zeros: bool) -> dict[str, Any]:
        del zeros  # every region has a row
        return _rows(regions, totals, block)

    return Table(
        name="regions",
        title="regions",
        description="The regions in breadth-first order",
        keys=(
            Key("region", "id, unique over all levels", regions.ids, unique=True),
            Key("name", "name to show", unique=True),
            Key("level", "name of the level"),
            Key("parent", "id of the region above; empty at the root"),
            Key("copy_of", "id of the region that this one carries down a level"),
        ),
        measures=(Measure("total", "public number of groups, where there is one", "groups", totals is not None),),
        confidence=0.0,
        width=1,
        parts=((file, range(len(regions))),),
        rows=rows,
    )


def write_regions(tree: Hierarchy, totals: Integers | None, path: Path) -> None:
    """Write the Parquet file alone."""
    region_table(tree, totals, path.name).write(path.parent, csv=False)


def read_regions(path: Path) -> tuple[Hierarchy, Integers | None]:
    """The regions and their public totals; a file that `write_regions` would not write is refused."""
    import pyarrow.compute as pc

    rows = all_rows(path, most=MOST_REGIONS)
    if not len(rows):
        raise ReleaseError(f"{path.name} has no rows")
    if any(rows[name].null_count for name in ("region", "name", "level")):
        raise ReleaseError(f"{path.name} has empty cells")
    ids = rows["region"].combine_chunks()
    parents = pc.index_in(rows["parent"].combine_chunks(), ids)
    if parents.null_count != 1 or rows["parent"].null_count != 1:
        raise ReleaseError(f"{path.name}: a parent is missing")
    tree = Hierarchy.from_layout(
        levels=pc.unique(rows["level"]).to_pylist(),
        names=tuple(rows["name"].to_pylist()),
        ids=tuple(ids.to_pylist()),
        parents=pc.fill_null(parents, -1).to_numpy(zero_copy_only=False),
        carried=rows["copy_of"].is_valid().to_numpy(),
    )
    given = rows["total"]
    totals = None if given.null_count else given.to_numpy().astype(np.int64)
    if totals is None and given.null_count < len(rows):
        raise ReleaseError(f"{path.name} gives the totals of some regions and not of others")
    table = region_table(tree, totals, path.name)
    if not rows.schema.equals(table.schema, check_metadata=True):
        raise ReleaseError(f"{path.name}: its columns are not those of a release, or do not say what they hold")
    for fault in differing_cells(rows, table.whole()):
        raise ReleaseError(f"a region is not described as the others say: {path.name}, {fault}")
    return tree, totals


def _rows(tree: Hierarchy, totals: Integers | None, block: range) -> dict[str, Any]:
    import pyarrow as pa

    text, some = pa.string(), slice(block.start, block.stop)
    parents = tree.parents[some]
    first = max(0, int(parents[0]))
    above = pa.array(tree.ids[first : int(parents[-1]) + 1], text)
    nothing = pa.nulls(len(block), text)
    ids = pa.array(tree.ids[some], text)
    return {
        "region": ids,
        "name": ids if tree.names is tree.ids else pa.array(tree.names[some], text),
        "level": pa.array(tree.levels, text).take(pa.array(tree.level_of[some])),
        "parent": above.take(pa.array(parents - first, mask=parents < 0)) if len(above) else nothing,
        "copy_of": above.take(pa.array(parents - first, mask=~tree.carried[some])) if len(above) else nothing,
        "total": pa.nulls(len(block), pa.int64()) if totals is None else pa.array(totals[some]),
    }
