"""What exactly is wrong: the detailed queries, each one row of counts, run only when counting met trouble.

Together they find every problem that `count` can meet, so that the data holder can fix all of them at once. How much is
left out on purpose is counted here, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallytree.tables.count import Counting
from tallytree.tables.options import Options
from tallytree.tables.problems import OF_LIST, Problem, columns_text, missing_columns, problem, problems_in
from tallytree.tables.regions import AMBIGUOUS, NOWHERE, lost_zeros
from tallytree.tables.sealed import Unsharable
from tallytree.tables.source import Opened, open_in_order, open_source, workspace
from tallytree.tables.sql import FLOATING, Cell, Table, count_if, select

Counts = dict[str, int]


def column_problems(table: Table, groups: Table | None, options: Options) -> list[Problem]:
    """Missing columns and a quantity whose type cannot be a number, for both tables together."""
    have, quantity = table.kinds, options.quantity
    wanted = [options.group, *(column for column in (quantity, options.entity) if column is not None)]
    region_optional = groups is not None and not options.split and not set(have) & set(options.region)
    if not region_optional:
        wanted[1:1] = options.region
    found = missing_columns("the microdata", [*have], [*wanted, *(options.by.names if options.from_rows else ())])
    if groups is not None:
        listed = [] if options.from_rows else options.by.names
        found += missing_columns("the groups table", [*groups.kinds], [options.group, *options.region, *listed])
    if quantity is not None and quantity in have and not table[quantity].may_be_number:
        found.append(problem("quantity_type", 1, column=columns_text([quantity]), type=have[quantity].lower()))
    return found


def problems_of(opened: Opened, counting: Counting, keys: Any) -> list[Problem]:
    """Every problem of the rows, of the list of groups, and of the two together; `keys` stand for the leaves."""
    options, rows = counting.options, counting.rows
    found = _entity_problems(opened, counting)
    regions = options.region if counting.region_in_rows else ()
    counts = {"no_group": rows[options.group].is_missing, **_region_problems(rows, regions), **_quantities(counting)}
    hint = ""
    if counting.region_in_rows and lost_zeros(rows, options.region, keys):
        hint = "; the column holds numbers and the hierarchy's codes begin with 0: read it as text"
    bad_rows = _counts(opened, "Checking the rows", rows.source, counts)
    found += problems_in(bad_rows, **_words(options), hint=hint)
    found += category_problems(opened, counting, of_groups=not options.from_rows)
    if counting.groups is not None:
        if options.from_rows:
            found += _empty_problems(opened, counting)
        return found + groups_problems(opened, counting) + _matching_problems(opened, counting)
    if counting.region_in_rows and not options.split:
        found += _differing(opened, "Checking the groups' regions", counting, rows.leaf, "spanning")
    return found


def _entity_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Rows without an entity; unless rows are bounded, entities with more than one."""
    options, rows = counting.options, counting.rows
    if options.entity is None:
        return []
    entity = rows[options.entity]
    each = select({"entity": entity.text, "number": "count(*)"}, rows.source, f" GROUP BY {entity.text}")
    missing = Cell("entity", entity.kind).is_missing
    counts = {"no_entity": count_if(missing, "number")}
    if options.rows_per_entity is None:
        counts["repeated_entity"] = count_if(f"NOT {missing} AND number > 1")
    return problems_in(
        _one_row(opened, "Checking the entities", select(counts, f"({each}) AS given")), **_words(options)
    )


def _region_problems(table: Table, region: Sequence[str]) -> dict[str, str]:
    """What can be wrong with the region of a row: kinds and conditions."""
    if not region:
        return {}
    empty = " AND ".join(table[column].is_missing for column in region)
    return {
        "no_region": f"{table.leaf} = {NOWHERE} AND {empty}",
        "unknown_region": f"{table.leaf} = {NOWHERE} AND NOT ({empty})",
        "ambiguous_region": f"{table.leaf} = {AMBIGUOUS}",
    }


def _quantities(counting: Counting) -> dict[str, str]:
    """What can be wrong with a quantity: every bad one is counted once, under the first of these that is true of it."""
    if counting.options.quantity is None:
        return {}
    cell = counting.rows[counting.options.quantity]
    value = cell.number
    wrong = {
        "no_quantity": cell.is_missing if cell.is_text else f"{cell.text} IS NULL",
        "unreadable_quantity": value.is_missing,
        "negative_quantity": f"{value.text} < 0",
        "large_quantity": f"{value.text} > {counting.options.quantity_bound}",
    }
    if value.kind in FLOATING:
        wrong["fractional_quantity"] = f"NOT {value.has_no_fraction}"
    cases = " ".join(f"WHEN {condition} THEN {number}" for number, condition in enumerate(wrong.values()))
    return {kind: f"CASE {cases} ELSE -1 END = {number}" for number, kind in enumerate(wrong)}


def category_problems(opened: Opened, counting: Counting, *, of_groups: bool) -> list[Problem]:
    """Values that no category lists; and groups with rows in several categories. The values themselves are not told."""
    by = counting.options.by
    table = counting.groups if of_groups else counting.rows
    if not by.columns or table is None:
        return []
    unknown = {column.name: f"{counting.category_code(table, at)} < 0" for at, column in enumerate(by.columns)}
    counts = _counts(opened, "Checking the categories", table.source, unknown)
    kind = f"{OF_LIST if of_groups else ''}unknown_category"
    found = [
        problem(kind, counts[column.name], column=columns_text([column.name]), values=len(column.values))
        for column in by.columns
        if counts[column.name]
    ]
    if of_groups:
        return found
    code = counting.category(table)["category"]
    return found + _differing(opened, "Checking the groups' categories", counting, code, "several_categories")


def _differing(opened: Opened, doing: str, counting: Counting, code: str, kind: str) -> list[Problem]:
    """Groups with rows in several leaves, or categories; rows where it is not known are counted elsewhere."""
    options, rows = counting.options, counting.rows
    group = rows[options.group]
    cells = {"group_key": group.text, "code": code, "leaf": rows.leaf}
    known = select(cells, rows.source, f" WHERE NOT {group.is_missing} AND {code} >= 0")
    ends = {"least_code": "min(code)", "most_code": "max(code)"}
    groups = select(ends, f"({known}) AS given", f" GROUP BY {', '.join(_keys(options))}")
    counts = _counts(opened, doing, f"({groups}) AS given", {kind: "least_code <> most_code"})
    return problems_in(counts, columns=columns_text(options.by.names))


def _empty_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Groups of the public list without entities, where their rows would have to tell their category."""
    keys = _keys(counting.options)
    own = counting.group[0].text
    rows = select({"group_key": own, "leaf": counting.rows.leaf, **counting.weight()}, counting.rows.source)
    columns = {name: name for name in keys}
    sizes = select(columns | {"size": "sum(weight)"}, f"({rows}) AS given", f" GROUP BY {', '.join(keys)}")
    same = " AND ".join(f"listed.{name} = given.{name}" for name in keys)
    joined = f"({_listings(counting)}) AS listed LEFT JOIN ({sizes}) AS given ON {same}"
    counts = _counts(opened, "Looking for groups without rows", joined, {"empty_group": "coalesce(given.size, 0) < 1"})
    return problems_in(counts, columns=columns_text(counting.options.by.names), **_words(counting.options))


def groups_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Problems of the public groups table itself."""
    listed, options = counting.groups, counting.options
    assert listed is not None
    wrong = {"no_group": listed[options.group].is_missing, **_region_problems(listed, options.region)}
    counts = {"rows": "TRUE"} | {f"{OF_LIST}{kind}": condition for kind, condition in wrong.items()}
    found = _counts(opened, "Checking the groups table", listed.source, counts)
    if found.pop("rows") == 0:
        return [problem("groups_no_rows", 0)]
    repeated = {"repeated_group": "listings > 1"}
    found |= _counts(opened, "Checking the groups table", f"({_listings(counting)}) AS given", repeated)
    return problems_in(found, **_words(options))


def _matching_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Rows whose group is not in the groups table, or is there with another region."""
    options, rows = counting.options, counting.rows
    known = f"NOT {rows[options.group].is_missing}" + (f" AND {rows.leaf} >= 0" if options.split else "")
    located = select({"group_key": counting.group[0].text, "leaf": rows.leaf}, rows.source, f" WHERE {known}")
    same = " AND ".join(f"listed.{name} = given.{name}" for name in _keys(options))
    joined = f"({located}) AS given LEFT JOIN ({_listings(counting)}) AS listed ON {same}"
    wrong = {"unlisted_group": "listed.listings IS NULL"}
    if counting.region_in_rows and not options.split:
        known = "listed.listings = 1 AND listed.leaf >= 0 AND given.leaf >= 0"
        wrong["disagreeing_region"] = f"{known} AND listed.leaf <> given.leaf"
    return problems_in(_counts(opened, "Comparing the rows with the groups table", joined, wrong), **_words(options))


# -------------------------------------------------------------------- pieces of queries


def _listings(counting: Counting) -> str:
    """How often the groups table lists each group, or with split each (group, leaf) pair."""
    listed, options = counting.groups, counting.options
    assert listed is not None
    known = f"NOT {listed[options.group].is_missing}" + (f" AND {listed.leaf} >= 0" if options.split else "")
    rows = select({"group_key": counting.group[1].text, "leaf": listed.leaf}, listed.source, f" WHERE {known}")
    columns = {"group_key": "group_key", "leaf": "leaf" if options.split else "max(leaf)", "listings": "count(*)"}
    return select(columns, f"({rows}) AS given", f" GROUP BY {', '.join(_keys(options))}")


def _keys(options: Options) -> list[str]:
    """The columns whose values tell groups apart: with split, each (group, leaf) pair is a group."""
    return ["group_key", "leaf"] if options.split else ["group_key"]


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


def _counts(opened: Opened, doing: str, source: str, conditions: Mapping[str, str]) -> Counts:
    """How many rows each condition is true of."""
    return _one_row(opened, doing, select({kind: count_if(each) for kind, each in conditions.items()}, source))


def _one_row(opened: Opened, doing: str, query: str) -> Counts:
    return {name: int(count) for name, count in opened.fetch(doing, query).to_pylist()[0].items()}


# -------------------------------------------------------------------- what is left out
# How much is left out before anything is counted: rows beyond rows_per_entity, persons beyond max_persons. NOT PRIVATE:
# these are exact numbers of the private data, for the data holder's own eyes. `tallytree validate` shows them, and
# nothing that is published or saved has them in it.


@dataclass(frozen=True, eq=False, repr=False)
class Part(Unsharable):
    """So many of so many, exactly: private."""

    part: int
    whole: int

    def for_the_data_holder(self, what: str) -> str:
        """The share in words. Not private: show it to the data holder, marked as such, and to nobody else."""
        share = 100 * self.part / self.whole if self.whole else 0.0
        return f"{share:.3g} % of {self.whole:,} {what} ({self.part:,})"

    def __repr__(self) -> str:
        return "Part(private)"


def rows_left_out(
    source: Any, options: Options, *, table: str | None = None, memory_limit: str | None = None
) -> tuple[Part, Part] | None:
    """Rows that `read` drops, and entities that lose some; None without a bound on an entity's rows. NOT PRIVATE."""
    if options.entity is None or options.rows_per_entity is None:
        return None
    with workspace(memory_limit) as connect:
        return _beyond(open_source(source, table, connect), options.entity, options.rows_per_entity)


def persons_left_out(
    persons: Any, household_id: str, max_persons: int, *, memory_limit: str | None = None
) -> tuple[Part, Part]:
    """Persons that `read_households` leaves out, and households that it cuts, of those with any. NOT PRIVATE."""
    with workspace(memory_limit) as connect:
        return _beyond(open_in_order(persons, "persons", connect), household_id, max_persons)


def groups_at_largest(
    source: Any, options: Options, *, table: str | None = None, memory_limit: str | None = None
) -> Part:
    """Groups of max_size or more, of all that have rows, before any rows are dropped. NOT PRIVATE."""
    with workspace(memory_limit) as connect:
        rows = open_source(source, table, connect)
        keys = ", ".join(rows.table[name].text for name in (options.group, *(options.region if options.split else ())))
        size = "count(*)" if options.quantity is None else f"sum({rows.table[options.quantity].number.text})"
        found = select({"size": size}, rows.table.source, f" GROUP BY {keys}")
        counts = {"groups": count_if("size > 0"), "largest": count_if(f"size > 0 AND size >= {options.max_size}")}
        row = _one_row(rows, "Counting the largest groups", select(counts, f"({found}) AS given"))
    return Part(row["largest"], row["groups"])


def _beyond(rows: Opened, column: str, most: int) -> tuple[Part, Part]:
    """Rows beyond `most` with the same value, of all rows; and values with more rows than that, of all values."""
    each = select({"number": "count(*)"}, rows.table.source, f" GROUP BY {rows.table[column].text}")
    many = f"number > {most}"
    counts = {"rows": count_if("TRUE", "number"), "dropped": count_if(many, f"number - {most}")}
    counts |= {"entities": count_if("TRUE"), "cut": count_if(many)}
    row = _one_row(rows, "Counting what is left out", select(counts, f"({each}) AS given"))
    return Part(row["dropped"], row["rows"]), Part(row["cut"], row["entities"])
