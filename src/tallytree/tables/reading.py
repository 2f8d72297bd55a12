"""`read`: from microdata to `GroupSizes`, or every problem of the input at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallytree.errors import DataError
from tallytree.hierarchy import Hierarchy
from tallytree.tables.checking import (
    column_problems,
    entity_problems,
    groups_problems,
    matching_problems,
    row_problems,
    spanning_problems,
)
from tallytree.tables.counting import as_counts, counting_query
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.options import Options, checked
from tallytree.tables.problems import InputProblems, Problem, groups_no_rows, no_rows
from tallytree.tables.regions import RegionKeys, hierarchy_of, region_keys
from tallytree.tables.sealed import Sealed
from tallytree.tables.source import Opened, open_groups, open_source, paths_of, stem, workspace


def read(
    source: Any,
    *,
    group: str,
    region: str | Sequence[str] | None = None,
    hierarchy: Hierarchy | None = None,
    max_size: int,
    name: str | None = None,
    quantity: str | None = None,
    quantity_bound: int | None = None,
    entity: str | None = None,
    rows_per_entity: int | None = None,
    groups: Any = None,
    on_spanning_group: str = "error",
    regions_are_public: bool = False,
    table: str | None = None,
    groups_table: str | None = None,
    memory_limit: str | None = None,
) -> GroupSizes:
    """Count the groups of each size in every leaf region, in the engine that holds the rows.

    `source` is a path, glob or list of paths (Parquet, CSV, a DuckDB file with `table`), an Ibis table on any engine,
    or Arrow data. `group` and `region` name columns; `hierarchy`, `max_size`, `quantity_bound`, `rows_per_entity` and
    the `groups` table are public. Raises `SpecError` for wrong options and `InputProblems`, which lists every problem
    of the data with counts, for the data holder's eyes only.
    """
    options = checked(
        group=group,
        region=region,
        hierarchy=hierarchy,
        max_size=max_size,
        quantity=quantity,
        quantity_bound=quantity_bound,
        entity=entity,
        rows_per_entity=rows_per_entity,
        groups=groups,
        on_spanning_group=on_spanning_group,
        regions_are_public=regions_are_public,
    )
    paths = paths_of(source, "source")
    with workspace(memory_limit) as connect:
        rows = open_source(source, table, connect)
        listed = None if groups is None else open_groups(groups, groups_table, rows, connect)
        if found := column_problems(rows.table, None if listed is None else listed.table, options):
            raise InputProblems(found)
        regions, from_microdata = _hierarchy(rows, listed, options)
        counts = _counts(rows, listed, options, regions)
    if name is None and paths is not None and len(paths) == 1:
        name = stem(paths[0])
    return GroupSizes(
        hierarchy=regions,
        max_size=max_size,
        counts=Sealed(counts),
        leaf_totals=counts.sum(axis=1) if options.with_groups else None,
        name=name,
        quantity_bound=quantity_bound or 1,
        rows_per_entity=rows_per_entity or 1,
        entity_column=entity is not None,
        rows_were_bounded=rows_per_entity is not None,
        groups_were_split=options.split,
        regions_declared_public=from_microdata,
        files=tuple(paths or ()),
    )


def check(source: Any, **options: Any) -> None:
    """Raise what `read` would raise with the same arguments, and keep nothing.

    It does all of `read`'s work, because the checks are part of the counting query.
    """
    read(source, **options)


def _hierarchy(rows: Opened, listed: Opened | None, options: Options) -> tuple[Hierarchy, bool]:
    """The public hierarchy, and whether it was taken from the microdata."""
    if options.hierarchy is not None:
        return options.hierarchy, False
    opened = rows if listed is None else listed

    def distinct() -> Any:
        cells = opened.table.select(*options.region).distinct()
        return cells.mutate(**{column: cells[column].cast("string") for column in options.region})

    cells = opened.fetch("Collecting the regions", distinct)
    if cells.num_rows == 0:
        raise InputProblems([no_rows() if listed is None else groups_no_rows()])
    return hierarchy_of(cells, options.region), listed is None


def _counts(rows: Opened, listed: Opened | None, options: Options, hierarchy: Hierarchy) -> Any:
    """The counts `[leaves, sizes]`; any trouble met on the way is looked into and raised as `InputProblems`."""
    keys = region_keys(hierarchy, options.region) if options.region else None
    region_in_rows = bool(options.region) and set(options.region) <= set(rows.table.columns)
    groups = None if listed is None else listed.table
    entities = entity_problems(rows, options)
    # Which rows are dropped is random, so bounded rows are checked before, on all of them.
    if entities or options.rows_per_entity is not None:
        _raise_any(entities + _problems(rows, listed, options, keys, region_in_rows))
    cells = rows.fetch("Counting", lambda: counting_query(rows.table, groups, options, keys, region_in_rows))
    trouble = int(np.sum(cells["trouble"].to_numpy(zero_copy_only=False)))
    if trouble or not np.any(cells["size"].to_numpy(zero_copy_only=False)):
        _raise_any(_problems(rows, listed, options, keys, region_in_rows))
    if trouble:
        raise DataError(f"{trouble:,} groups cannot be counted, for a reason that the checks did not find")
    return as_counts(cells, options, hierarchy.leaf_count)


def _problems(
    rows: Opened, listed: Opened | None, options: Options, keys: RegionKeys | None, region_in_rows: bool
) -> list[Problem]:
    found = row_problems(rows, options, keys, region_in_rows)
    if listed is not None:
        found += groups_problems(listed, options, keys)
        found += matching_problems(rows, listed.table, options, keys, region_in_rows)
    elif region_in_rows and not options.split:
        found += spanning_problems(rows, options, keys)
    return found


def _raise_any(found: list[Problem]) -> None:
    if found:
        raise InputProblems(found)
