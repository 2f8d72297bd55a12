"""The one counting query: rows to entities to groups to counts by (leaf, size), in the engine and out of core.

All that decides whether data are accepted is in this one query, which reads each row once. So what is counted is what
was checked, also where the rows of a source change from query to query. Only the last, small table reaches Python: at
most (leaves + 2) × (sizes + 1) rows. The query counts trouble on its way at next to no cost; what the trouble is,
`checking` finds out, and only if there is any.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.tables.engines import text_as_number, words
from tallytree.tables.options import Options
from tallytree.tables.regions import NOWHERE, RegionKeys, place

GROUP, QUANTITY, ENTITY = "group_key", "quantity", "entity"

LARGEST_FLOAT = float(np.finfo(np.float64).max)


def needed(table: Any, options: Options, *, of_groups: bool, region: bool) -> Any:
    """The needed columns alone, under fixed names: region columns become `region_0`, `region_1` …"""
    columns = {GROUP: table[options.group]}
    if region:
        columns |= {f"region_{at}": table[column] for at, column in enumerate(options.region)}
    if not of_groups and options.quantity is not None:
        columns[QUANTITY] = table[options.quantity]
    if not of_groups and options.entity is not None:
        columns[ENTITY] = table[options.entity]
    if options.by is not None and set(options.by.names) <= set(table.columns):
        columns |= {f"category_{at}": table[name] for at, name in enumerate(options.by.names)}
    return table.select(**columns)


def categorised(rows: Any, options: Options) -> Any:
    """Rows with `category`, the place of their cell among all (or NOWHERE), instead of its columns, if these are there.

    Values are compared as text. The queries after it see places and no values.
    """
    if options.by is None or "category_0" not in rows.columns:
        return rows
    codes = [category_code(rows, options, at) for at in range(len(options.by.columns))]
    place, known = codes[0], codes[0] >= 0
    for code, column in zip(codes[1:], options.by.columns[1:], strict=True):
        place, known = place * len(column.values) + code, known & (code >= 0)
    sql = words(rows)
    whole = sql.cases((known, place), else_=sql.literal(NOWHERE, "int32")).cast("int32")
    kept = [name for name in rows.columns if not name.startswith("category_")]
    return rows.mutate(category=whole).select(*kept, "category")


def category_code(rows: Any, options: Options, at: int) -> Any:
    """The place of a row's value among those of one category; NOWHERE, or the stated other value, if it is none."""
    assert options.by is not None
    sql = words(rows)
    column, value = options.by.columns[at], rows[f"category_{at}"]
    if not value.type().is_string():
        value = value.cast("string")
    cases = [(value == text, sql.literal(place, "int32")) for place, text in enumerate(column.values)]
    unknown = NOWHERE if column.other is None else column.values.index(column.other)
    return sql.cases(*cases, else_=sql.literal(unknown, "int32"))


def region_names(options: Options) -> list[str]:
    """The region columns' names within the query."""
    return [f"region_{at}" for at in range(len(options.region))]


def keys_alike(rows: Any, groups: Any) -> tuple[Any, Any]:
    """The two tables with group keys that can be compared: of the same kind as they are, otherwise both as text."""
    one, other = rows[GROUP].type(), groups[GROUP].type()
    if (one.is_string() and other.is_string()) or (one.is_integer() and other.is_integer()):
        return rows, groups
    if one.copy(nullable=True) == other.copy(nullable=True):
        return rows, groups
    return rows.mutate(**{GROUP: rows[GROUP].cast("string")}), groups.mutate(**{GROUP: groups[GROUP].cast("string")})


def is_missing(column: Any) -> Any:
    """Null; for text also empty, for floating point also what is not a finite number."""
    kind = column.type()
    if kind.is_string():
        return column.isnull() | (column == "")
    return column.isnull() | ~_is_finite(column) if kind.is_floating() else column.isnull()


def _is_finite(column: Any) -> Any:
    # Comparisons do it on every engine: NaN is above all numbers on some and unlike any on the others.
    return (column >= -LARGEST_FLOAT) & (column <= LARGEST_FLOAT)


def may_be_number(column: Any) -> bool:
    """Is the column of a type that `number` takes?"""
    kind = column.type()
    return bool(kind.is_numeric() or kind.is_boolean() or kind.is_string() or kind.is_null())


def number(column: Any) -> Any:
    """A quantity as a number: whole as it is, anything else as floating point, null where a text is none."""
    kind = column.type()
    if kind.is_integer():
        return column
    if kind.is_boolean():
        return column.ifelse(1, (~column).ifelse(0, words(column).null("int64")))
    return text_as_number(column) if kind.is_string() else column.cast("float64")


def is_whole(value: Any, within: Any) -> Any:
    """Is a floating-point number that lies within the bounds of a quantity a whole one? Others are not."""
    return within.ifelse(value.cast("int64").cast("float64") == value, False)


def weighed(rows: Any, options: Options) -> Any:
    """Rows with `weight`, what they add to their group (cut to max_size, so that sums stay small), and `bad` 0 or 1."""
    sql = words(rows)
    if options.quantity is None:
        return rows.mutate(weight=sql.literal(1, "int64"))
    value = number(rows[QUANTITY])
    good = (value >= 0) & (value <= options.quantity_bound)
    if value.type().is_floating():
        good = is_whole(value, good)
    one, zero = sql.literal(1, "int64"), sql.literal(0, "int64")
    return rows.mutate(
        weight=sql.cases((good, sql.least(value, options.max_size)), else_=0).cast("int64"),
        bad=sql.cases((good, zero), else_=one),
    ).drop(QUANTITY)


def counting_query(
    table: Any,
    groups: Any,
    options: Options,
    keys: RegionKeys | None,
    region_in_rows: bool,
    bound: Callable[[Any], Any] | None = None,
) -> Any:
    """Counts of groups by (leaf, size), and how many of them are in any trouble.

    `bound` marks at most `rows_per_entity` rows of each entity as `kept`, where that is wanted. It is given what
    counting uses of a row (group, leaf, category, weight) and no more, so that rows which it cannot tell apart count
    the same.

    *The random selection decides sizes and nothing else.* Rows that are not kept stay in the query with a weight of 0.
    So trouble, and the leaf and category of a group, are functions of all rows: a table is accepted under every key or
    under none, and each group has the same leaf and category under every key. A group that keeps no row has size 0.
    Where sizes start at 1 it is then not counted; only if the public list has the group, and its rows tell its
    category, is it counted as size 1, because the domain says that somebody is in it (`Neighbours.sensitivity`).
    """
    rows = weighed(needed(table, options, of_groups=False, region=region_in_rows), options)
    if options.from_rows:
        rows = categorised(rows, options)
    elif options.by is not None:  # the public list has them
        rows = rows.drop(*[name for name in rows.columns if name.startswith("category_")])
    if region_in_rows or groups is None:
        rows = place(rows, keys, region_names(options) if region_in_rows else [])
    if options.entity is not None:
        rows = _one_row_each(rows, options) if bound is None else bound(_flagged(rows, is_missing(rows[ENTITY])))
        rows = rows.drop(ENTITY)
    if groups is None:
        found = _private_groups(rows, options)
    else:
        listed = needed(groups, options, of_groups=True, region=True)
        listed = place(listed if options.from_rows else categorised(listed, options), keys, region_names(options))
        found = _listed_groups(*keys_alike(rows, listed), options)
    size = words(found).least(found["size"], options.max_size).cast("int64")
    if options.with_groups and options.from_rows:
        size = words(found).greatest(size, options.first_size)
    told = {} if options.by is None else {"category": found.category}
    cells = found.select(leaf=found.leaf, size=size, trouble=found.trouble.ifelse(1, 0), **told)
    return cells.group_by("leaf", "size", *told).agg(groups=cells.count(), trouble=cells.trouble.sum())


def _one_row_each(rows: Any, options: Options) -> Any:
    """One row for each entity, which is bad if the entity had several, or is missing.

    So whatever the query reads, no entity adds more than one row to what is counted.
    """
    merged = {name: rows[name].max() for name in rows.columns if name not in (ENTITY, GROUP)}
    if options.quantity is None:
        merged["weight"] = words(rows).literal(1, "int64")
    rows = rows.group_by(ENTITY).agg(**{GROUP: _comparable(rows[GROUP]).max()}, **merged, entity_rows=rows.count())
    return _flagged(rows, is_missing(rows[ENTITY]) | (rows.entity_rows > 1)).drop("entity_rows")


def _flagged(rows: Any, condition: Any) -> Any:
    """Rows with `bad` 1 where the condition holds, and otherwise as it was."""
    sql = words(rows)
    before = rows.bad if "bad" in rows.columns else sql.literal(0, "int64")
    return rows.mutate(bad=sql.cases((condition, sql.literal(1, "int64")), else_=before))


def _comparable(column: Any) -> Any:
    """A column of which every engine finds the greatest value: as it is, or as text, which tells all its values apart.

    Some engines have no `max` of booleans, of UUIDs or of bytes.
    """
    kind = column.type()
    return column if kind.is_string() or kind.is_numeric() else column.cast("string")


def _kept_weight(rows: Any) -> Any:
    """What each row adds to its group's size: nothing where the selection did not keep it."""
    return rows.kept.ifelse(rows.weight, 0) if "kept" in rows.columns else rows.weight


def _private_groups(rows: Any, options: Options) -> Any:
    """Groups by their rows alone: `leaf`, `size`, `trouble`."""
    one_each = options.quantity is None and "kept" not in rows.columns
    size = rows.count() if one_each else _kept_weight(rows).sum()
    sums = {"size": size} | ({"bad": rows.bad.max()} if "bad" in rows.columns else {})
    if options.by is not None:
        sums |= {"category": rows.category.min(), "last_category": rows.category.max()}
    if options.split:
        found = rows.group_by(GROUP, "leaf").agg(**sums)
        trouble = is_missing(found[GROUP]) | (found.leaf < 0)
    else:
        spans = bool(options.region)
        ends = {"leaf": rows.leaf.min()} | ({"last": rows.leaf.max()} if spans else {})
        found = rows.group_by(GROUP).agg(**sums, **ends)
        trouble = is_missing(found[GROUP]) | (found.leaf < 0)
        if spans:
            trouble = trouble | (found.leaf != found["last"])
    if "bad" in sums:
        trouble = trouble | (found.bad > 0)
    if options.by is not None:
        trouble = trouble | (found.category < 0) | (found.category != found.last_category)
    return found.mutate(trouble=trouble)


def _listed_groups(rows: Any, listed: Any, options: Options) -> Any:
    """Groups by a public list. List and rows are stacked and grouped once, which does the work of an outer join."""
    sql = words(rows)
    whole, none = sql.literal(0, "int64"), sql.null("int32")
    with_region = "leaf" in rows.columns
    nothing = whole.cast(rows.weight.type())
    stack: dict[str, Any] = {GROUP: rows[GROUP], "weight": _kept_weight(rows), "listings": whole}
    below: dict[str, Any] = {GROUP: listed[GROUP], "weight": nothing, "listings": whole + 1}
    if options.from_rows:  # the size before the selection
        stack, below = stack | {"own_weight": rows.weight}, below | {"own_weight": nothing}
    if "bad" in rows.columns:
        stack, below = stack | {"bad": rows.bad}, below | {"bad": whole}
    if options.split:
        stack, below = stack | {"leaf": rows.leaf}, below | {"leaf": listed.leaf}
    else:
        stack = stack | {"leaf": none} | ({"own": rows.leaf} if with_region else {})
        below = below | {"leaf": listed.leaf} | ({"own": none} if with_region else {})
    if options.by is not None:
        of_rows, of_list = (rows.category, none) if options.from_rows else (none, listed.category)
        stack, below = stack | {"category": of_rows}, below | {"category": of_list}
    both = rows.select(**stack).union(listed.select(**below))
    sums = {"size": both.weight.sum(), "listings": both.listings.sum()}
    if options.from_rows:
        sums["own_size"] = both.own_weight.sum()
    if "bad" in stack:
        sums["bad"] = both.bad.max()
    if options.by is not None:
        sums |= {"category": both.category.max(), "first_category": both.category.min()}
    if options.split:
        found = both.group_by(GROUP, "leaf").agg(**sums)
    else:
        ends = {"first": both.own.min(), "last": both.own.max()} if with_region else {}
        found = both.group_by(GROUP).agg(**sums, leaf=both.leaf.max(), **ends)
    trouble = is_missing(found[GROUP]) | (found.listings != 1) | (found.leaf.fill_null(-1) < 0)
    if "bad" in sums:
        trouble = trouble | (found.bad > 0)
    if "first" in found.columns:
        elsewhere = (found.first != found.leaf) | (found["last"] != found.leaf)
        trouble = trouble | elsewhere.fill_null(False)
    if options.by is not None:
        trouble = trouble | (found.first_category.fill_null(NOWHERE) < 0) | (found.category != found.first_category)
    if options.from_rows:
        trouble = trouble | (found.own_size < 1)
    return found.mutate(trouble=trouble)


def as_counts(cells: Any, options: Options, leaf_count: int) -> NDArray[np.int64]:
    """The counts `[leaves, sizes]` of the query's result, which must be free of trouble; leaves are by category."""
    first = options.first_size
    leaf, size, groups = (cells[name].to_numpy(zero_copy_only=False) for name in ("leaf", "size", "groups"))
    if options.by is not None:  # the leaves of a tree by category are those of the regions, category by category
        category = cells["category"].to_numpy(zero_copy_only=False)
        leaf, leaf_count = category.astype(np.int64) * leaf_count + leaf, len(options.by) * leaf_count
    counts = np.zeros((leaf_count, options.max_size + 1 - first), dtype=np.int64)
    counted = size >= first  # without a public list a group whose quantities sum to 0 is not known to exist
    np.add.at(counts, (leaf[counted].astype(np.int64), size[counted].astype(np.int64) - first), groups[counted])
    return counts
