"""`read`: from microdata to `GroupSizes`, or every problem of the input at once.

`read_groups` reads the public list of groups by itself, without opening the microdata beside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tallytree.core.arguments import FLAG, TEXT, expecting, optional
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, silent
from tallytree.domain.categories import NO_CATEGORIES, Categories
from tallytree.domain.category_trees import by_category
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.address import Source
from tallytree.tables.check import category_problems, column_problems, groups_problems, problems_of
from tallytree.tables.count import Counting, group_sizes
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.guard import from_outside
from tallytree.tables.options import Options, check_groups_are_public, region_columns
from tallytree.tables.problems import InputProblems, missing_columns, problem, raise_any
from tallytree.tables.regions import hierarchy_of, place, region_keys
from tallytree.tables.same_source import refuse_own_list
from tallytree.tables.source import Opened, open_groups, open_source, paths_of, stem, workspace
from tallytree.tables.truncate import check_engine

BYTES_PER_CELL = 24  # counts of the leaves, of all regions, and a view of them


@from_outside("Reading the microdata")
@expecting(
    name=optional(TEXT),
    regions_are_public=FLAG,
    groups_are_public=FLAG,
    table=optional(TEXT),
    groups_table=optional(TEXT),
)
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
    groups_are_public: bool = False,
    on_spanning_group: str = "error",
    regions_are_public: bool = False,
    table: str | None = None,
    groups_table: str | None = None,
    by: Any = None,
    decided_by: Any = None,
    memory_limit: str | None = None,
    progress: Progress = silent,
) -> GroupSizes:
    """Count the groups of each size in every leaf region, in the engine that holds the rows.

    `source` is a path, glob or list of paths (Parquet, CSV, a DuckDB file with `table`), Arrow data, a table of another
    engine (`Source`), a Spark data frame, or an Ibis table. `group` and `region` name columns; `hierarchy`, `max_size`,
    `quantity_bound`, `rows_per_entity` and the `groups` table are public. The exact number of groups in every region is
    published from that table, so `read` takes it only with `groups_are_public=True`. Raises `SpecError` for wrong
    options and `InputProblems`, which lists every problem of the data with counts, for the data holder's eyes only.
    `progress` is told how far DuckDB is.

    `by` tells groups apart by one or two columns besides: `{"tenure": ["owned", "rented"]}` has the public values, and
    `decided_by` says whether the "group" decides it or its "members" do (see `tallytree.Category`). The columns are in
    the groups table, or in the rows and the same in all rows of a group. With a groups table that does not have them
    the number of groups is public by region, and not by category; each group on the list then has an entity at least.
    """
    categories = Categories.of(by, decided_by)
    options = Options(
        group=group,
        region=region_columns(region),
        hierarchy=hierarchy,
        max_size=max_size,
        quantity=quantity,
        quantity_bound=quantity_bound,
        entity=entity,
        rows_per_entity=rows_per_entity,
        with_groups=groups is not None,
        on_spanning_group=on_spanning_group,
        regions_are_public=regions_are_public,
        by=categories,
    )
    if hierarchy is not None:
        refuse_too_many(hierarchy, options)
    paths = paths_of(source, "source")
    if name is None and paths is not None and len(paths) == 1:
        name = stem(paths[0])
    if name is None and isinstance(source, Source):
        name = source.name
    options = replace(options, name=name, files=tuple(paths or ()))
    if groups is not None:
        check_groups_are_public(groups_are_public)
        refuse_own_list(source, table, groups, groups_table)
    with workspace(memory_limit) as connect:
        rows = open_source(source, table, connect, progress)
        if rows_per_entity is not None:
            check_engine(rows.backend.name)
        listed = None if groups is None else open_groups(groups, groups_table, rows, connect)
        if listed is not None:
            options = replace(options, categories_listed=_are_listed(categories, listed.table.columns))
        raise_any(column_problems(rows.table, None if listed is None else listed.table, options))
        regions = _hierarchy(rows if listed is None else listed, options)
        refuse_too_many(regions, options)
        keys = region_keys(regions, options.region) if options.region else None
        counting = Counting(rows.sql, rows.table, None if listed is None else listed.table, options, keys)
        return group_sizes(
            counting,
            lambda query: rows.fetch("Counting", query),
            lambda: raise_any(problems_of(rows, counting)),
            regions,
        )


@from_outside("Reading the microdata")
def check(source: Any, **options: Any) -> None:
    """Raise what `read` would raise with the same arguments, and keep nothing.

    It does all of `read`'s work, because the checks are part of the counting query.
    """
    read(source, **options)


def read_groups(
    groups: Any,
    *,
    group: str,
    region: str | Sequence[str] | None = None,
    hierarchy: Hierarchy | None = None,
    table: str | None = None,
    on_spanning_group: str = "error",
    by: Categories = NO_CATEGORIES,
    memory_limit: str | None = None,
) -> tuple[Hierarchy, Integers]:
    """The hierarchy and the public number of groups in each of its leaves, from a groups table as `read` takes it.

    With categories `by` they are by category, where the groups table has these; otherwise by region.
    """
    options = Options(group, region_columns(region), hierarchy, on_spanning_group, with_groups=True)
    with workspace(memory_limit) as connect:
        listed = open_groups(groups, table, Opened(connect(), None), connect)
        raise_any(missing_columns("the groups table", listed.table.columns, [options.group, *options.region]))
        by = by if _are_listed(by, listed.table.columns) else NO_CATEGORIES
        options = replace(options, by=by)
        regions = _hierarchy(listed, options)
        keys = region_keys(regions, options.region) if options.region else None
        counting = Counting(listed.sql, listed.table, listed.table, options, keys)
        raise_any(groups_problems(listed, counting) + category_problems(listed, counting, of_groups=True))

        def by_leaf() -> Any:
            rows = counting.categorised(counting.needed(listed.table, of_groups=True, region=True))
            rows = place(listed.sql, rows, keys, counting.region_names)
            return rows.group_by("leaf", *counting.category).agg(groups=rows.count())

        counted = listed.fetch("Counting the groups", by_leaf)
    leaf, count = (counted[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in ("leaf", "groups"))
    if by.columns:
        leaf = leaf + counted["category"].to_numpy(zero_copy_only=False).astype(np.int64) * regions.leaf_count
    regions = by_category(regions, by)
    totals = np.zeros(regions.leaf_count, dtype=np.int64)
    totals[leaf] = count
    return regions, totals


def public_rows(source: Source) -> Any:
    """All rows of a public table of an engine, as Arrow data with every cell a text. Not for microdata."""
    with workspace(None) as connect:
        opened = open_source(source, None, connect)

        def cells() -> Any:
            return opened.table.mutate(**{name: opened.table[name].cast("string") for name in opened.table.columns})

        return opened.fetch("Reading the public table", cells)


def _are_listed(categories: Categories, columns: Sequence[str]) -> bool:
    """Are the categories in the groups table? All of them or none; and not those that members decide."""
    there = [name for name in categories.names if name in columns]
    if there and len(there) < len(categories.names):
        raise SpecError(f"the groups table has the category {there[0]!r} and not the other one; expected both, or none")
    if there and categories.members_decide:
        raise SpecError(
            "the groups table is public, so nobody can change what it says by coming or going: a category that members "
            "decide cannot be in it. Say decided_by = 'group', or have the column in the rows alone"
        )
    return len(there) == len(categories.names)


def refuse_too_many(regions: Hierarchy, options: Options) -> None:
    """Refuse more cells than the machine's memory holds, before they are counted."""
    cells = (options.max_size + 1) * len(options.by) * len(regions)
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return
    if cells * BYTES_PER_CELL > memory:
        raise SpecError(
            f"there are {cells:,} cells (regions × categories × sizes); counting them takes about "
            f"{cells * BYTES_PER_CELL / 1e9:,.0f} GB of memory, and the machine has {memory / 1e9:,.0f} GB. Nothing "
            "was spent. Use a smaller max_size, fewer values of categories or fewer regions"
        )


def lists_categories(groups: Any, table: str | None, categories: Categories) -> bool:
    """Does a groups table, which is public, have the columns of these categories?"""
    with workspace(None) as connect:
        return _are_listed(categories, open_groups(groups, table, Opened(connect(), None), connect).table.columns)


def _hierarchy(opened: Opened, options: Options) -> Hierarchy:
    """The public hierarchy; where none is given, that of the groups table, or of microdata whose regions are public."""
    if options.hierarchy is not None:
        return options.hierarchy

    def distinct() -> Any:
        cells = opened.table.select(*options.region).distinct()
        return cells.mutate(**{column: cells[column].cast("string") for column in options.region})

    cells = opened.fetch("Collecting the regions", distinct)
    if cells.num_rows == 0:
        raise InputProblems([problem("groups_no_rows" if options.with_groups else "no_regions", 0)])
    return hierarchy_of(cells, options.region)
