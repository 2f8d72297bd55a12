"""What a row counts as: rows to entities to groups to counts by (leaf, size), in one query, in the engine.

This module, `truncate`, `regions` and `options` decide the private counts. How an engine writes and runs a query is not
here, and neither is the text that says what is wrong with the data.

All that decides whether data are accepted is in the one query, which reads each row once. So what is counted is what
was checked, also where the rows of a source change from query to query. Only the last, small table reaches Python: at
most (leaves + 2) × (sizes + 1) rows. The query counts trouble on its way at next to no cost; what the trouble is,
`check` finds out, and only if there is any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import DataError
from tallytree.domain.category_trees import by_category
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.options import Options
from tallytree.tables.regions import NOWHERE, RegionKeys, place
from tallytree.tables.sealed import Sealed
from tallytree.tables.truncate import fresh_key, truncated

GROUP, QUANTITY, ENTITY = "group_key", "quantity", "entity"

LARGEST_FLOAT = float(np.finfo(np.float64).max)


def group_sizes(
    counting: Counting, fetch: Callable[[Callable[[], Any]], Any], explain: Callable[[], None], hierarchy: Hierarchy
) -> GroupSizes:
    """The private counts, sealed, with the public facts that they were counted under.

    `fetch` runs a query. If the query met any trouble, or no rows, `explain` raises what is wrong.
    """
    options = counting.options
    # Which rows are kept is random. The query finds trouble on all rows, kept or not, so a refusal is not random.
    key = None if options.rows_per_entity is None else fresh_key()
    cells = fetch(lambda: counting.query(key))
    trouble = int(np.sum(_numbers(cells, "trouble")))
    if trouble or not np.any(_numbers(cells, "size")):
        explain()
    if trouble:
        raise DataError(
            f"{trouble:,} groups cannot be counted, and a second look found no reason: the rows changed meanwhile, or "
            "differ from query to query. Nothing was spent. Read from a table, or a file, that does not change"
        )
    counts = as_counts(cells, options, hierarchy.leaf_count)
    listed = options.with_groups and options.from_rows
    return GroupSizes(
        hierarchy=by_category(hierarchy, options.by),
        max_size=options.max_size,
        counts=Sealed(counts),
        leaf_totals=counts.sum(axis=1) if options.first_size == 0 else None,
        listed_totals=counts.reshape(-1, hierarchy.leaf_count, counts.shape[1]).sum(axis=(0, 2)) if listed else None,
        name=options.name,
        quantity_bound=options.quantity_bound or 1,
        rows_per_entity=options.rows_per_entity or 1,
        entity_column=options.entity is not None,
        rows_were_bounded=options.rows_per_entity is not None,
        groups_were_split=options.split,
        regions_declared_public=options.hierarchy is None and not options.with_groups,
        columns=options.columns,
        files=options.files,
    )


def as_counts(cells: Any, options: Options, leaf_count: int) -> Integers:
    """The counts `[leaves, sizes]` of the query's result, which must be free of trouble; leaves are by category."""
    first = options.first_size
    leaf, size, groups = (_numbers(cells, name) for name in ("leaf", "size", "groups"))
    if options.by.columns:  # the leaves of a tree by category are those of the regions, category by category
        leaf, leaf_count = _numbers(cells, "category") * leaf_count + leaf, len(options.by) * leaf_count
    counts = np.zeros((leaf_count, options.max_size + 1 - first), dtype=np.int64)
    counted = size >= first  # without a public list a group whose quantities sum to 0 is not known to exist
    np.add.at(counts, (leaf[counted], size[counted] - first), groups[counted])
    return counts


def _numbers(cells: Any, name: str) -> Integers:
    numbers: Integers = cells[name].to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


@dataclass(frozen=True, eq=False, repr=False)
class Counting:
    """The tables of an engine, what is counted of them, and the words in which its queries are written.

    `sql` makes what has no table: literals, cases, small tables in memory, a hash. Tables and columns have methods.
    """

    sql: Any
    rows: Any
    groups: Any  # the public list of groups, or None
    options: Options
    keys: RegionKeys | None

    @property
    def region_in_rows(self) -> bool:
        """Do the rows say in which region they are? If not, the list of groups does."""
        return bool(self.options.region) and set(self.options.region) <= set(self.rows.columns)

    @property
    def region_names(self) -> list[str]:
        """The region columns' names within the query."""
        return [f"region_{at}" for at in range(len(self.options.region))]

    @property
    def category(self) -> tuple[str, ...]:
        """The column that tells categories apart within the query; no column for a single cell, which all are in."""
        return ("category",) if self.options.by.columns else ()

    def query(self, key: str | None) -> Any:
        """Counts of groups by (leaf, size), and how many of them are in any trouble.

        With a bound on an entity's rows, `truncated` marks at most so many of each entity as `kept`, by the `key`. It
        is given what counting uses of a row (group, leaf, category, weight) and no more, so that rows which it cannot
        tell apart count the same.

        *The random selection decides sizes and nothing else.* Rows that are not kept stay in the query with a weight
        of 0. So trouble, and the leaf and category of a group, are functions of all rows: a table is accepted under
        every key or under none, and each group has the same leaf and category under every key. A group that keeps no
        row has size 0. Where sizes start at 1 it is then not counted; only if the public list has the group, and its
        rows tell its category, is it counted as size 1, because the domain says that somebody is in it
        (`Neighbours.sensitivity`).
        """
        options, sql = self.options, self.sql
        rows = self.weighed(self.needed(self.rows, region=self.region_in_rows))
        if options.from_rows:
            rows = self.categorised(rows)
        else:  # the public list has them
            rows = rows.drop(*[name for name in rows.columns if name.startswith("category_")])
        if self.region_in_rows or self.groups is None:
            rows = place(sql, rows, self.keys, self.region_names if self.region_in_rows else [])
        if options.entity is not None:
            if key is None:
                rows = self._one_row_each(rows)
            else:
                flagged = self._flagged(rows, is_missing(rows[ENTITY]))
                rows = truncated(sql, flagged, options.rows_per_entity or 1, entity=ENTITY, key=key)
            rows = rows.drop(ENTITY)
        if self.groups is None:
            found = self._private_groups(rows)
        else:
            listed = self.needed(self.groups, of_groups=True, region=True)
            listed = place(sql, listed if options.from_rows else self.categorised(listed), self.keys, self.region_names)
            found = self._listed_groups(self._stacked(*keys_alike(rows, listed)))
        size = sql.least(found["size"], options.max_size).cast("int64")
        if options.with_groups and options.from_rows:
            size = sql.greatest(size, options.first_size)
        by = {name: found[name] for name in self.category}
        cells = found.select(leaf=found.leaf, size=size, trouble=found.trouble.ifelse(1, 0), **by)
        return cells.group_by("leaf", "size", *by).agg(groups=cells.count(), trouble=cells.trouble.sum())

    # ---------------------------------------------------------------- rows

    def needed(self, table: Any, *, region: bool, of_groups: bool = False) -> Any:
        """The needed columns alone, under fixed names: region columns become `region_0`, `region_1` …"""
        options = self.options
        columns = {GROUP: table[options.group]}
        if region:
            columns |= {f"region_{at}": table[column] for at, column in enumerate(options.region)}
        if not of_groups and options.quantity is not None:
            columns[QUANTITY] = table[options.quantity]
        if not of_groups and options.entity is not None:
            columns[ENTITY] = table[options.entity]
        if set(options.by.names) <= set(table.columns):
            columns |= {f"category_{at}": table[name] for at, name in enumerate(options.by.names)}
        return table.select(**columns)

    def categorised(self, rows: Any) -> Any:
        """Rows with `category`, the place of their cell among all (or NOWHERE), instead of its columns, if there.

        Values are compared as text. The queries after it see places and no values.
        """
        by = self.options.by
        if "category_0" not in rows.columns:
            return rows
        codes = [self.category_code(rows, at) for at in range(len(by.columns))]
        whole, known = codes[0], codes[0] >= 0
        for code, column in zip(codes[1:], by.columns[1:], strict=True):
            whole, known = whole * len(column.values) + code, known & (code >= 0)
        cell = self.sql.cases((known, whole), else_=self.sql.literal(NOWHERE, "int32")).cast("int32")
        kept = [name for name in rows.columns if not name.startswith("category_")]
        return rows.mutate(category=cell).select(*kept, "category")

    def category_code(self, rows: Any, at: int) -> Any:
        """The place of a row's value among those of one category; NOWHERE, or the stated other value, if none."""
        column, value = self.options.by.columns[at], rows[f"category_{at}"]
        if not value.type().is_string():
            value = value.cast("string")
        cases = [(value == text, self.sql.literal(place, "int32")) for place, text in enumerate(column.values)]
        unknown = NOWHERE if column.other is None else column.values.index(column.other)
        return self.sql.cases(*cases, else_=self.sql.literal(unknown, "int32"))

    def weighed(self, rows: Any) -> Any:
        """Rows with `weight`, what they add to their group (cut to max_size, so sums stay small), and `bad` 0 or 1."""
        sql, options = self.sql, self.options
        if options.quantity is None:
            return rows.mutate(weight=sql.literal(1, "int64"))
        value = number(sql, rows[QUANTITY])
        good = (value >= 0) & (value <= options.quantity_bound)
        if value.type().is_floating():
            good = is_whole(value, good)
        one, zero = sql.literal(1, "int64"), sql.literal(0, "int64")
        return rows.mutate(
            weight=sql.cases((good, sql.least(value, options.max_size)), else_=0).cast("int64"),
            bad=sql.cases((good, zero), else_=one),
        ).drop(QUANTITY)

    def _one_row_each(self, rows: Any) -> Any:
        """One row for each entity, which is bad if the entity had several, or is missing.

        So whatever the query reads, no entity adds more than one row to what is counted.
        """
        merged = {name: rows[name].max() for name in rows.columns if name not in (ENTITY, GROUP)}
        if self.options.quantity is None:
            merged["weight"] = self.sql.literal(1, "int64")
        rows = rows.group_by(ENTITY).agg(**{GROUP: _comparable(rows[GROUP]).max()}, **merged, entity_rows=rows.count())
        return self._flagged(rows, is_missing(rows[ENTITY]) | (rows.entity_rows > 1)).drop("entity_rows")

    def _flagged(self, rows: Any, condition: Any) -> Any:
        """Rows with `bad` 1 where the condition holds, and otherwise as it was."""
        before = rows.bad if "bad" in rows.columns else self.sql.literal(0, "int64")
        return rows.mutate(bad=self.sql.cases((condition, self.sql.literal(1, "int64")), else_=before))

    # ---------------------------------------------------------------- groups

    def _private_groups(self, rows: Any) -> Any:
        """Groups by their rows alone: `leaf`, `size`, `trouble`."""
        options = self.options
        one_each = options.quantity is None and "kept" not in rows.columns
        sums = {"size": rows.count() if one_each else _kept_weight(rows).sum()}
        sums |= {"bad": rows.bad.max()} if "bad" in rows.columns else {}
        sums |= self._categories_of(rows)
        spans = bool(options.region) and not options.split
        if options.split:
            found = rows.group_by(GROUP, "leaf").agg(**sums)
        else:
            ends = {"leaf": rows.leaf.min()} | ({"last": rows.leaf.max()} if spans else {})
            found = rows.group_by(GROUP).agg(**sums, **ends)
        trouble = self._trouble(found) | (found.leaf < 0)
        return found.mutate(trouble=trouble | (found.leaf != found["last"]) if spans else trouble)

    def _stacked(self, rows: Any, listed: Any) -> Any:
        """Rows and list, one below the other: grouping them once does the work of an outer join."""
        options, none = self.options, self.sql.null("int32")
        whole = self.sql.literal(0, "int64")
        nothing = whole.cast(rows.weight.type())
        pairs: dict[str, tuple[Any, Any]] = {
            GROUP: (rows[GROUP], listed[GROUP]),
            "weight": (_kept_weight(rows), nothing),
            "listings": (whole, whole + 1),
            "leaf": (rows.leaf if options.split else none, listed.leaf),
        }
        if options.from_rows:  # the size before the selection
            pairs["own_weight"] = rows.weight, nothing
        if "bad" in rows.columns:
            pairs["bad"] = rows.bad, whole
        if "leaf" in rows.columns and not options.split:
            pairs["own"] = rows.leaf, none
        for name in self.category:
            pairs[name] = (rows[name], none) if options.from_rows else (none, listed[name])
        above, below = ({name: pair[at] for name, pair in pairs.items()} for at in (0, 1))
        return rows.select(**above).union(listed.select(**below))

    def _listed_groups(self, both: Any) -> Any:
        """Groups by a public list: `leaf`, `size`, `trouble`."""
        options = self.options
        sums = {"size": both.weight.sum(), "listings": both.listings.sum()}
        sums |= {"own_size": both.own_weight.sum()} if options.from_rows else {}
        sums |= {"bad": both.bad.max()} if "bad" in both.columns else {}
        sums |= self._categories_of(both)
        if options.split:
            found = both.group_by(GROUP, "leaf").agg(**sums)
        else:
            ends = {"first": both.own.min(), "last": both.own.max()} if "own" in both.columns else {}
            found = both.group_by(GROUP).agg(**sums, leaf=both.leaf.max(), **ends)
        trouble = self._trouble(found) | (found.listings != 1) | (found.leaf.fill_null(NOWHERE) < 0)
        if "first" in found.columns:
            elsewhere = (found.first != found.leaf) | (found["last"] != found.leaf)
            trouble = trouble | elsewhere.fill_null(False)
        return found.mutate(trouble=trouble | (found.own_size < 1) if options.from_rows else trouble)

    def _categories_of(self, rows: Any) -> dict[str, Any]:
        """The last and the first category of a group's rows, which must be the same."""
        return {"category": rows.category.max(), "first_category": rows.category.min()} if self.category else {}

    def _trouble(self, found: Any) -> Any:
        """Is there no group, a bad row, or not one category that is known?"""
        trouble = is_missing(found[GROUP])
        if "bad" in found.columns:
            trouble = trouble | (found.bad > 0)
        if not self.category:
            return trouble
        unknown = found.first_category.fill_null(NOWHERE) < 0
        return trouble | unknown | (found.category != found.first_category)


# -------------------------------------------------------------------- columns


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


def number(sql: Any, column: Any) -> Any:
    """A quantity as a number: whole as it is, anything else as floating point, null where a text is none."""
    kind = column.type()
    if kind.is_integer():
        return column
    if kind.is_boolean():
        return column.ifelse(1, (~column).ifelse(0, sql.null("int64")))
    return sql.text_as_number(column) if kind.is_string() else column.cast("float64")


def is_whole(value: Any, within: Any) -> Any:
    """Is a floating-point number that lies within the bounds of a quantity a whole one? Others are not."""
    return within.ifelse(value.cast("int64").cast("float64") == value, False)


def _comparable(column: Any) -> Any:
    """A column of which every engine finds the greatest value: as it is, or as text, which tells all its values apart.

    Some engines have no `max` of booleans, of UUIDs or of bytes.
    """
    kind = column.type()
    return column if kind.is_string() or kind.is_numeric() else column.cast("string")


def _kept_weight(rows: Any) -> Any:
    """What each row adds to its group's size: nothing where the selection did not keep it."""
    return rows.kept.ifelse(rows.weight, 0) if "kept" in rows.columns else rows.weight
