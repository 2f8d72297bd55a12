"""The public list of groups by itself: regions and numbers of groups, without opening the microdata beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.hierarchy import Hierarchy
from tallytree.tables.checking import groups_problems
from tallytree.tables.counting import needed, region_names
from tallytree.tables.options import checked
from tallytree.tables.problems import InputProblems, groups_no_rows, missing_columns
from tallytree.tables.regions import hierarchy_of, place, region_keys
from tallytree.tables.source import Opened, open_groups, workspace


def read_groups(
    groups: Any,
    *,
    group: str,
    region: str | Sequence[str] | None = None,
    hierarchy: Hierarchy | None = None,
    table: str | None = None,
    on_spanning_group: str = "error",
    memory_limit: str | None = None,
) -> tuple[Hierarchy, NDArray[np.int64]]:
    """The hierarchy and the public number of groups in each of its leaves, from a groups table as `read` takes it."""
    options = checked(
        group=group,
        region=region,
        hierarchy=hierarchy,
        max_size=1,
        quantity=None,
        quantity_bound=None,
        entity=None,
        rows_per_entity=None,
        groups=groups,
        on_spanning_group=on_spanning_group,
        regions_are_public=False,
    )
    with workspace(memory_limit) as connect:
        listed = open_groups(groups, table, Opened(connect(), None), connect)
        if missing := [column for column in (options.group, *options.region) if column not in listed.table.columns]:
            raise InputProblems([missing_columns("the groups table", missing)])
        regions = hierarchy
        if regions is None:
            cells = listed.fetch("Collecting the regions", lambda: _distinct(listed.table, options.region))
            if cells.num_rows == 0:
                raise InputProblems([groups_no_rows()])
            regions = hierarchy_of(cells, options.region)
        keys = region_keys(regions, options.region) if options.region else None
        if found := groups_problems(listed, options, keys):
            raise InputProblems(found)

        def by_leaf() -> Any:
            rows = place(needed(listed.table, options, of_groups=True, region=True), keys, region_names(options))
            return rows.group_by("leaf").agg(groups=rows.count())

        counted = listed.fetch("Counting the groups", by_leaf)
    totals = np.zeros(regions.leaf_count, dtype=np.int64)
    leaf, count = (counted[name].to_numpy(zero_copy_only=False) for name in ("leaf", "groups"))
    totals[leaf.astype(np.int64)] = count
    return regions, totals


def _distinct(table: Any, region: Sequence[str]) -> Any:
    cells = table.select(*region).distinct()
    return cells.mutate(**{column: cells[column].cast("string") for column in region})
