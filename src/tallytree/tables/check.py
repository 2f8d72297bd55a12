"""What exactly is wrong: the detailed queries, each one row of counts, run only when counting met trouble.

Together they find every problem that `count` can meet, so that the data holder can fix all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any

from tallytree.tables.count import (
    ENTITY,
    GROUP,
    QUANTITY,
    Counting,
    is_missing,
    is_whole,
    keys_alike,
    may_be_number,
    number,
)
from tallytree.tables.options import Options
from tallytree.tables.problems import OF_LIST, Problem, columns_text, missing_columns, problem, problems_in
from tallytree.tables.regions import AMBIGUOUS, NOWHERE, place
from tallytree.tables.source import Opened

Counts = dict[str, int]


def column_problems(table: Any, groups: Any, options: Options) -> list[Problem]:
    """Missing columns and a quantity whose type cannot be a number, for both tables together."""
    have, quantity = table.columns, options.quantity
    wanted = [options.group, *(column for column in (quantity, options.entity) if column is not None)]
    region_optional = groups is not None and not options.split and not set(have) & set(options.region)
    if not region_optional:
        wanted[1:1] = options.region
    named = [*options.by.names]
    found = missing_columns("the microdata", have, wanted + (named if options.from_rows else []))
    if groups is not None:
        listed = [] if options.from_rows else named
        found += missing_columns("the groups table", groups.columns, [options.group, *options.region, *listed])
    if quantity is not None and quantity in have and not may_be_number(table[quantity]):
        found.append(problem("quantity_type", 1, column=columns_text([quantity]), type=table[quantity].type()))
    return found


def problems_of(opened: Opened, counting: Counting) -> list[Problem]:
    """Every problem of the rows, of the list of groups, and of the two together."""
    options = counting.options
    found = _entity_problems(opened, counting) + _row_problems(opened, counting)
    found += category_problems(opened, counting, of_groups=counting.groups is not None and not options.from_rows)
    if counting.groups is not None:
        if options.from_rows:
            found += _empty_problems(opened, counting)
        return found + groups_problems(opened, counting) + _matching_problems(opened, counting)
    if counting.region_in_rows and not options.split:
        found += _spanning_problems(opened, counting)
    return found


def _entity_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Rows without an entity; unless rows are bounded, entities with more than one."""
    options = counting.options
    if options.entity is None:
        return []

    def query() -> Any:
        rows = counting.rows.select(**{ENTITY: counting.rows[options.entity]})
        per_entity = rows.group_by(ENTITY).agg(rows=rows.count())
        missing = is_missing(per_entity[ENTITY])
        return per_entity.agg(
            no_entity=_sum(missing.ifelse(per_entity["rows"], 0)),
            repeated_entity=_count(~missing & (per_entity["rows"] > 1)),
        )

    counts = _one_row(opened, "Checking the entities", query)
    if options.rows_per_entity is not None:
        del counts["repeated_entity"]
    return problems_in(counts, **_words(options))


def _row_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Problems of single rows: group, region, quantity. A table without rows has none."""
    options, keys = counting.options, counting.keys

    def query() -> Any:
        rows = _located(counting, region=counting.region_in_rows)
        counts = {"no_group": _count(is_missing(rows[GROUP])), **_region_counts(rows)}
        if options.quantity is not None:
            counts |= _quantity_counts(counting, rows)
        return rows.agg(**counts)

    counts = _one_row(opened, "Checking the rows", query)
    lost_zeros = (
        keys is not None
        and keys.begin_with_zero
        and counting.region_in_rows
        and any(counting.rows[column].type().is_numeric() for column in options.region)
    )
    hint = "; the column holds numbers and the hierarchy's codes begin with 0: read it as text" if lost_zeros else ""
    return problems_in(counts, **_words(options), hint=hint)


def _spanning_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Groups with rows in several leaves; rows whose leaf is not known are reported elsewhere."""

    def query() -> Any:
        rows = _located(counting, region=True)
        return _differing(rows.filter(rows.leaf >= 0), [GROUP], "leaf", "spanning")

    return problems_in(_one_row(opened, "Checking the groups' regions", query))


def category_problems(opened: Opened, counting: Counting, *, of_groups: bool) -> list[Problem]:
    """Values that no category lists; and groups with rows in several categories. The values themselves are not told."""
    by = counting.options.by
    if not by.columns:
        return []

    def query() -> Any:
        table = counting.groups if of_groups else counting.rows
        rows = counting.needed(table, of_groups=of_groups, region=False)
        return rows.agg(
            **{f"unknown_{at}": _count(counting.category_code(rows, at) < 0) for at in range(len(by.columns))}
        )

    def several() -> Any:
        rows = counting.categorised(_located(counting, region=counting.options.split))
        return _differing(
            rows.filter(rows.category >= 0), _group_keys(counting.options), "category", "several_categories"
        )

    unknown = _one_row(opened, "Checking the categories", query)
    kind = f"{OF_LIST if of_groups else ''}unknown_category"
    found = [
        problem(kind, unknown[f"unknown_{at}"], column=columns_text([column.name]), values=len(column.values))
        for at, column in enumerate(by.columns)
        if unknown[f"unknown_{at}"]
    ]
    if not of_groups:
        counts = _one_row(opened, "Checking the groups' categories", several)
        found += problems_in(counts, columns=columns_text(by.names))
    return found


def _empty_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Groups of the public list without entities, where their rows would have to tell their category."""
    options = counting.options

    def query() -> Any:
        rows, listed = keys_alike(counting.weighed(_located(counting, region=options.split)), _listings(counting))
        sizes = rows.group_by(*_group_keys(options)).agg(size=rows.weight.sum())
        both = listed.left_join(sizes, [listed[name] == sizes[name] for name in _group_keys(options)])
        return both.agg(empty_group=_count(sizes["size"].fill_null(0) < 1))

    counts = _one_row(opened, "Looking for groups without rows", query)
    return problems_in(counts, columns=columns_text(options.by.names), **_words(options))


def groups_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Problems of the public groups table itself."""

    def query() -> Any:
        listed = _located(counting, of_groups=True, region=True)
        counts = {"no_group": _count(is_missing(listed[GROUP])), **_region_counts(listed)}
        return listed.agg(rows=listed.count(), **{f"{OF_LIST}{kind}": count for kind, count in counts.items()})

    def repeats() -> Any:
        by = _listings(counting)
        return by.agg(repeated_group=_count(by.listings > 1))

    counts = _one_row(opened, "Checking the groups table", query)
    if counts.pop("rows") == 0:
        return [problem("groups_no_rows", 0)]
    counts |= _one_row(opened, "Checking the groups table", repeats)
    return problems_in(counts, **_words(counting.options))


def _matching_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Rows whose group is not in the groups table, or is there with another region."""
    split, region_in_rows = counting.options.split, counting.region_in_rows

    def query() -> Any:
        rows = _located(counting, region=region_in_rows)
        rows = rows.filter(~is_missing(rows[GROUP]), *([rows.leaf >= 0] if split else []))
        rows, listed = keys_alike(rows, _listings(counting))
        matches = [rows[GROUP] == listed[GROUP], *([rows.leaf == listed.leaf] if split else [])]
        joined = rows.left_join(listed, matches)
        both = joined.select(listings=listed.listings, expected=listed.leaf, actual=rows.leaf)
        counts = {"unlisted_group": _count(both.listings.isnull())}
        if region_in_rows and not split:
            known = (both.listings == 1) & (both.expected >= 0) & (both.actual >= 0)
            counts["disagreeing_region"] = _count(known & (both.expected != both.actual))
        return both.agg(**counts)

    counts = _one_row(opened, "Comparing the rows with the groups table", query)
    return problems_in(counts, **_words(counting.options))


# -------------------------------------------------------------------- pieces of queries


def _located(counting: Counting, *, region: bool, of_groups: bool = False) -> Any:
    """The needed columns with `leaf`, and `placeless` where all region columns are empty."""
    rows = counting.needed(counting.groups if of_groups else counting.rows, of_groups=of_groups, region=region)
    names = counting.region_names if region else []
    if names:
        rows = rows.mutate(placeless=reduce(and_, [is_missing(rows[name]) for name in names]))
    return place(counting.sql, rows, counting.keys, names)


def _listings(counting: Counting) -> Any:
    """How often the groups table lists each group, or with split each (group, leaf) pair."""
    listed = _located(counting, of_groups=True, region=True)
    listed = listed.filter(~is_missing(listed[GROUP]))
    if counting.options.split:
        listed = listed.filter(listed.leaf >= 0)
        return listed.group_by(GROUP, "leaf").agg(listings=listed.count())
    return listed.group_by(GROUP).agg(listings=listed.count(), leaf=listed.leaf.max())


def _differing(rows: Any, keys: list[str], column: str, kind: str) -> Any:
    """How many groups have rows that differ in a column."""
    rows = rows.filter(~is_missing(rows[GROUP]))
    per_group = rows.group_by(*keys).agg(least=rows[column].min(), most=rows[column].max())
    return per_group.agg(**{kind: _count(per_group.least != per_group.most)})


def _group_keys(options: Options) -> list[str]:
    """The columns whose values tell groups apart: with split, each (group, leaf) pair is a group."""
    return [GROUP, "leaf"] if options.split else [GROUP]


def _region_counts(rows: Any) -> dict[str, Any]:
    if "placeless" not in rows.columns:
        return {}
    return {
        "no_region": _count((rows.leaf == NOWHERE) & rows.placeless),
        "unknown_region": _count((rows.leaf == NOWHERE) & ~rows.placeless),
        "ambiguous_region": _count(rows.leaf == AMBIGUOUS),
    }


def _quantity_counts(counting: Counting, rows: Any) -> dict[str, Any]:
    """Every bad quantity is counted once, under the first of these that is true of it."""
    column = rows[QUANTITY]
    value = number(counting.sql, column)
    # As text, since Ibis on Spark takes what is not a number for null.
    empty = is_missing(column) if column.type().is_string() else column.cast("string").isnull()
    unreadable = is_missing(value) & ~empty
    sound = ~(empty | unreadable)
    negative = (value < 0).fill_null(False) & sound
    large = (value > counting.options.quantity_bound).fill_null(False) & sound & ~negative
    counts = {
        "no_quantity": empty,
        "unreadable_quantity": unreadable,
        "negative_quantity": negative,
        "large_quantity": large,
    }
    if value.type().is_floating():
        within = sound & ~negative & ~large
        counts["fractional_quantity"] = within & ~is_whole(value, within)
    return {name: _count(each) for name, each in counts.items()}


def _words(options: Options) -> dict[str, object]:
    """The public words of messages about these options: columns, a bound, and what a line of the groups table is."""
    return {
        "group": columns_text([options.group]),
        "region": columns_text(options.region),
        "quantity": columns_text([options.quantity or ""]),
        "entity": columns_text([options.entity or ""]),
        "bound": options.quantity_bound or 0,
        "listed": "(group, region) pair" if options.split else "group",
    }


def _count(condition: Any) -> Any:
    return _sum(condition.ifelse(1, 0))


def _sum(column: Any) -> Any:
    return column.sum().fill_null(0)


def _one_row(opened: Opened, doing: str, query: Callable[[], Any]) -> Counts:
    row = opened.fetch(doing, query).to_pylist()[0]
    return {name: int(count) for name, count in row.items()}
