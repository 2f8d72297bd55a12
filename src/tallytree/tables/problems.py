"""Problems of the input, for the data holder: counts and column names, never a value.

All texts are in one table, so that they can be reviewed together. Below are the queries that find the exact problems,
each with one row of counts. They run only if counting met a problem. Together they find every problem that `count` can
meet, so that the data holder can fix all of them at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tallytree.core.errors import DataError
from tallytree.core.names import nearest
from tallytree.domain.hierarchy import Hierarchy
from tallytree.tables.count import AMBIGUOUS, NOWHERE, Counting, lost_zeros
from tallytree.tables.group_sizes import Options
from tallytree.tables.source import Opened
from tallytree.tables.sql import FLOATING, Cell, Table, count_if, literal, quoted, select

HEADING = "The input data has problems. (For the data holder's eyes only: the counts below are exact, not private.)"

HAS = "row has|rows have"
IS_IN = "row is in|rows are in"
NAMES = "row names|rows name"
OF_LIST, IN_LIST = (
    "listed_",
    " in the groups table",
)  # prefix and words for a problem of rows that was found in the list of groups

NUMBER = "tallytree row"  # a column with numbers of rows

# Each kind of problem: its subject (singular, plural; none if a count is meaningless), what is wrong and how to fix it.
# The words in braces stand for columns, types of columns, public bounds and names of tables.
TEXTS: dict[str, tuple[str, str]] = {
    # columns
    "missing_columns": (
        "",
        "{columns} not in {table}{hint}: correct the name, which is case-sensitive (CSV files need a first line of "
        "names, and the delimiter between cells)",
    ),
    "quantity_type": ("", "{column} has type {type}: a quantity must be an integer"),
    "number_type": ("", "{column} has type {type}: expected a number"),
    # rows of the microdata
    "no_regions": (
        "",
        "the input has no rows, and so no regions to take from it: give a hierarchy, or check the path and any filter "
        "(the regions that occur were declared public, so this reveals nothing)",
    ),
    "no_group": (HAS, "no group{where} ({group}): fill it in or drop them"),
    "no_region": (HAS, "no region{where} ({region}): fill it in or drop them"),
    "unknown_region": (
        IS_IN,
        "a region that is not a leaf of the hierarchy{where} ({region}): add the region to the public region table, or "
        "correct the rows; spaces and leading zeros matter{hint}",
    ),
    "ambiguous_region": (
        NAMES,
        "a region name that several leaves have{where} ({region}): give one column per level, as in "
        'region = ["state", "county"], or the id of the region',
    ),
    "spanning": (
        "group lies|groups lie",
        "in more than one leaf region: correct the rows, or count each (group, region) pair as a group with "
        'on_spanning_group = "split"',
    ),
    "unknown_category": (
        HAS,
        "none of the {values} listed values{where} ({column}): add what is missing to the public list, correct the "
        "rows, or say with `other` what they count as; names are case-sensitive, and spaces and leading zeros matter",
    ),
    "several_categories": (
        "group has|groups have",
        "rows in more than one category ({columns}): a group has one value of each, the same in all its rows",
    ),
    "empty_group": (
        "group has|groups have",
        "no entities, so their category is unknown ({columns}): remove them from the public list, or add the category "
        "to it",
    ),
    "no_quantity": (HAS, "no quantity ({quantity}): fill in 0 or drop them"),
    "unreadable_quantity": (HAS, "a quantity that is not a number ({quantity}): correct them"),
    "negative_quantity": (HAS, "a negative quantity ({quantity}): expected 0 or more"),
    "large_quantity": (
        HAS,
        "a quantity above quantity_bound = {bound} ({quantity}): raise the bound, which adds noise, or truncate the "
        "quantities",
    ),
    "fractional_quantity": (HAS, "a fractional quantity ({quantity}): expected integers"),
    "no_entity": (HAS, "no entity ({entity}): fill it in or drop them"),
    "repeated_entity": (
        "entity has|entities have",
        "more than one row ({entity}): drop the copies, or give a public bound rows_per_entity, beyond which rows are "
        "dropped",
    ),
    "unlisted_group": (
        HAS,
        "a {listed} that is not in the groups table ({group}): add it to that table, or drop the rows",
    ),
    "disagreeing_region": (
        "row lies|rows lie",
        "in another region than the groups table says for their group ({region}): correct one of the two tables, or "
        'leave the region out of the microdata; groups that span regions need on_spanning_group = "split"',
    ),
    # the groups table
    "groups_no_rows": ("", "the groups table has no rows: expected one row per group with its leaf region"),
    "repeated_group": (
        "{listed} appears|{listed}s appear",
        "more than once in the groups table ({group}): keep one row per {listed}",
    ),
    # households and persons
    "unknown_value": (
        HAS,
        "a value that the schema does not list ({column}): add it to the schema if it is publicly known, or correct "
        "the rows; names are case-sensitive, and spaces and leading zeros matter",
    ),
    "not_a_number": (HAS, "something that is not a number ({column}, which has cuts): correct them"),
    "empty_cell": (
        HAS,
        "an empty cell ({column}): fill it in, or say in the schema which value it stands for, as `missing`",
    ),
    "no_order": (HAS, "no number in the order of persons ({column}): fill it in"),
    "no_household": (HAS, "no household ({column}): fill it in or drop them"),
    "repeated_household": (
        "household appears|households appear",
        "more than once in the households table ({column}): keep one row per household",
    ),
    "unknown_household": (
        "person lives|persons live",
        "in a household that is not in the households table ({column}): add the household, or drop them",
    ),
    "too_many_persons": (
        "household has|households have",
        "more than max_persons = {bound} persons: raise max_persons, which adds noise, or say which persons to leave "
        'out with oversize = "drop" (keep the first) or oversize = "subsample" (keep some at random)',
    ),
    "broken_rule": (
        "household breaks|households break",
        'a rule ({rule}): correct them or the rule; or measure them as they are with on_broken_rules = "keep", and no '
        "synthetic household will break it",
    ),
}


@dataclass(frozen=True)
class Problem:
    """One kind of problem: how often it was found, and a message that says so and how to fix it."""

    count: int
    text: str


class InputProblems(DataError):
    """List every problem of the input in `problems`; the message has a line for each."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([HEADING, *(f"  - {problem.text}" for problem in self.problems)]))


def problem(kind: str, count: int, **words: object) -> Problem:
    """Return a problem in words: '1 row has …' or '1,204 rows have …'.

    >>> problem("no_group", 1204, group="column 'home'").text
    "1,204 rows have no group (column 'home'): fill it in or drop them"
    """
    who, what = TEXTS[kind.removeprefix(OF_LIST)]
    if who:
        one, several = who.split("|")
        what = f"{count:,} {one if count == 1 else several} {what}"
    return Problem(count, what.format(**{"hint": "", **words}, where=IN_LIST if kind.startswith(OF_LIST) else ""))


def problems_in(counts: Mapping[str, int], **words: object) -> list[Problem]:
    """Return a problem for every kind with a count above 0, in the order of the counts."""
    return [problem(kind, count, **words) for kind, count in counts.items() if count]


def raise_any(found: Sequence[Problem]) -> None:
    """Raise the problems together, if there are any."""
    if found:
        raise InputProblems(found)


def columns_text(columns: Sequence[str]) -> str:
    """Return how a message names columns: column 'county', or columns 'state', 'county'."""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(map(repr, columns))}"


def missing_columns(table: str, have: Sequence[str], wanted: Sequence[str]) -> list[Problem]:
    """Return the problem that requested columns are missing from a table.

    A hint names the one column with a similar name. It never lists the others: in a file without a header line they
    would be cells.
    """
    missing = [column for column in wanted if column not in have]
    named = f"{columns_text(missing)} {'are' if len(missing) > 1 else 'is'}"
    hint = "".join(f" (did you mean {near!r}?)" for column in missing if (near := nearest(column, have, cutoff=0.75)))
    return [problem("missing_columns", len(missing), columns=named, table=table, hint=hint)] if missing else []


# -------------------------------------------------------------------- queries for the exact problems


def column_problems(table: Table, groups: Table | None, options: Options) -> list[Problem]:
    """Return missing columns and a quantity of a type that is not numeric, for both tables together."""
    have, quantity = table.kinds, options.quantity
    wanted = [options.group, *(column for column in (quantity, options.entity) if column is not None)]
    region_optional = groups is not None and not options.groups_were_split and not set(have) & set(options.region)
    if not region_optional:
        wanted[1:1] = options.region
    names = options.categories.names
    listed = names if options.categories_listed else ()
    found = missing_columns("the microdata", [*have], [*wanted, *(name for name in names if name not in listed)])
    if groups is not None:
        found += missing_columns("the groups table", [*groups.kinds], [options.group, *options.region, *listed])
    if quantity is not None and quantity in have and not table[quantity].may_be_number:
        found.append(problem("quantity_type", 1, column=columns_text([quantity]), type=have[quantity].lower()))
    return found


def problems_of(opened: Opened, counting: Counting, keys: Any, regions: Hierarchy) -> list[Problem]:
    """Return every problem of the rows, of the list of groups, and of the two together; `keys` are the texts of the
    leaves.
    """
    options, rows = counting.options, counting.rows
    found = _entity_problems(opened, counting)
    bad = _counts(opened, "Checking the rows", rows.source, _row_problems(counting))
    hint = _region_hint(opened, rows, options, keys, regions) if bad.get("unknown_region") else ""
    found += problems_in(bad, **_words(options), hint=hint)
    found += category_problems(opened, counting, of_groups=not counting.categories_in_rows)
    if counting.groups is not None:
        if options.groups_listed:
            found += _empty_problems(opened, counting)
        hint = _region_hint(opened, counting.groups, options, keys, regions)
        return found + groups_problems(opened, counting, hint) + _matching_problems(opened, counting)
    if counting.region_in_rows and not options.groups_were_split:
        found += _differing(opened, "Checking the groups' regions", counting, rows.leaf, "spanning")
    return found


def _row_problems(counting: Counting) -> dict[str, str]:
    """Return the possible problems of a row: kinds and conditions."""
    rows, regions = counting.rows, counting.options.region if counting.region_in_rows else ()
    missing = {"no_group": rows[counting.options.group].is_missing}
    return {**missing, **_region_problems(rows, regions), **_quantities(counting)}


def _region_hint(opened: Opened, table: Table, options: Options, keys: Any, regions: Hierarchy) -> str:
    """Return why regions of a table may be unknown: zeros are lost, or they belong to a level above the leaves."""
    if options.region and lost_zeros(table, options.region, keys):
        return "; the column holds numbers and the hierarchy's codes begin with 0: read it as text"
    return _level_hint(opened, table, options.region[0], regions) if len(options.region) == 1 else ""


def _level_hint(opened: Opened, table: Table, column: str, regions: Hierarchy) -> str:
    """Return which level above the leaves the unknown regions of a table belong to, with the number of rows."""
    upper = regions.level_slice(regions.depth - 1).start
    texts = {
        text: int(regions.level_of[region])
        for region in range(upper)
        for text in (regions.names[region], regions.ids[region])
    }
    known = opened.put({"text": [*texts], "level": [*texts.values()]})
    same = f"{table[column].as_text} = upper.text AND {table.leaf} = {NOWHERE}"
    joined = f"{table.source} JOIN {known.name} AS upper ON {same}"
    levels = range(regions.depth - 1)
    counts = _counts(opened, "Comparing regions", joined, {f"n{level}": f"upper.level = {level}" for level in levels})
    found = (f"; {counts[f'n{level}']:,} of them name a region of level {regions.levels[level]!r}" for level in levels)
    return "".join(text for level, text in zip(levels, found, strict=True) if counts[f"n{level}"])


def number_rows(table: Table) -> Table:
    """Return a table of DuckDB with the number of each row, from 1."""
    numbered = f"(SELECT *, row_number() OVER () AS {quoted(NUMBER)} FROM {table.name})"
    return replace(table, name=numbered, kinds={**table.kinds, NUMBER: "BIGINT"})


def bad_rows(opened: Opened, counting: Counting) -> Any:
    """Return the number of each bad row with the kind of its problem, from tables with numbers. NOT PRIVATE.

    `file` is 0 for the rows and 1 for the groups table. Of groups in several leaves or categories, of groups that are
    listed twice, and of entities with several rows, every row is listed.
    """
    parts = _bad_in_rows(counting)
    if counting.groups is not None and NUMBER in counting.groups.kinds:
        parts += _bad_in_groups(counting, counting.groups)
    return opened.fetch("Listing bad rows", " UNION ALL ".join(parts))


def _bad(kind: str, number: str, source: str, condition: str, *, file: int = 0) -> str:
    """Return a query for the rows that satisfy a condition."""
    return select({"file": str(file), "number": number, "problem": literal(kind)}, source, f" WHERE {condition}")


def _bad_in_rows(counting: Counting) -> list[str]:
    options, rows = counting.options, counting.rows
    number, group = rows[NUMBER].text, rows[options.group]
    parts = [_bad(kind, number, rows.source, condition) for kind, condition in _row_problems(counting).items()]
    cells, differing = {"number": number, "group_key": group.text, "leaf": rows.leaf}, {}
    if options.categories.columns and counting.categories_in_rows:
        parts += _bad_categories(counting, rows)
        cells |= counting.category(rows)
        differing["category"] = "several_categories"
    known = f"({select(cells, rows.source, f' WHERE NOT {group.is_missing}')}) AS given"
    if counting.groups is None and counting.region_in_rows and not options.groups_were_split:
        differing["leaf"] = "spanning"
    for code, kind in differing.items():
        keys = "group_key, leaf" if options.groups_were_split and code != "leaf" else "group_key"
        ends = f"min({code}) OVER (PARTITION BY {keys}) <> max({code}) OVER (PARTITION BY {keys})"
        differs = f"({select({'number': 'number', 'differs': ends}, known, f' WHERE {code} >= 0')}) AS given"
        parts.append(_bad(kind, "number", differs, "differs"))
    if options.entity is not None:
        entity = rows[options.entity]
        parts.append(_bad("no_entity", number, rows.source, entity.is_missing))
        if options.rows_per_entity is None:
            times = f"NOT {entity.is_missing} AND count(*) OVER (PARTITION BY {entity.text}) > 1"
            repeats = f"({select({'number': number, 'repeats': times}, rows.source)}) AS given"
            parts.append(_bad("repeated_entity", "number", repeats, "repeats"))
    if counting.groups is not None:
        joined, wrong = _matching(counting, {"number": number})
        parts += [_bad(kind, "given.number", joined, condition) for kind, condition in wrong.items()]
    return parts


def _bad_in_groups(counting: Counting, listed: Table) -> list[str]:
    options, number = counting.options, listed[NUMBER].text
    conditions = _list_problems(counting, listed)
    parts = [_bad(kind, number, listed.source, condition, file=1) for kind, condition in conditions.items()]
    if not counting.categories_in_rows:
        parts += _bad_categories(counting, listed, file=1)
    cells = {"number": number, "group_key": listed[options.group].text, "leaf": listed.leaf}
    known = f"({select(cells, listed.source, f' WHERE NOT {listed[options.group].is_missing}')}) AS given"
    times = f"count(*) OVER (PARTITION BY {', '.join(_keys(options))}) > 1"
    repeats = f"({select({'number': 'number', 'repeats': times}, known)}) AS given"
    return [*parts, _bad("repeated_group", "number", repeats, "repeats", file=1)]


def _bad_categories(counting: Counting, table: Table, *, file: int = 0) -> list[str]:
    codes = [counting.category_code(table, at) for at in range(len(counting.options.categories.columns))]
    return [_bad("unknown_category", table[NUMBER].text, table.source, f"{code} < 0", file=file) for code in codes]


def _entity_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Return rows without an entity and, unless rows are bounded, entities with more than one row."""
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
        one_row(opened, "Checking the entities", select(counts, f"({each}) AS given")), **_words(options)
    )


def _region_problems(table: Table, region: Sequence[str]) -> dict[str, str]:
    """Return the possible problems of a row's region: kinds and conditions."""
    if not region:
        return {}
    empty = " AND ".join(table[column].is_missing for column in region)
    return {
        "no_region": f"{table.leaf} = {NOWHERE} AND {empty}",
        "unknown_region": f"{table.leaf} = {NOWHERE} AND NOT ({empty})",
        "ambiguous_region": f"{table.leaf} = {AMBIGUOUS}",
    }


def _quantities(counting: Counting) -> dict[str, str]:
    """Return the possible problems of a quantity; a bad quantity counts once, under the first condition that is
    true.
    """
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
    """Return unlisted values of categories, and groups with rows in several categories. It never names the values."""
    by = counting.options.categories
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
    """Return groups with rows in several leaves or categories; rows with an unknown one are counted elsewhere."""
    options, rows = counting.options, counting.rows
    group = rows[options.group]
    cells = {"group_key": group.text, "code": code, "leaf": rows.leaf}
    known = select(cells, rows.source, f" WHERE NOT {group.is_missing} AND {code} >= 0")
    ends = {"least_code": "min(code)", "most_code": "max(code)"}
    groups = select(ends, f"({known}) AS given", f" GROUP BY {', '.join(_keys(options))}")
    counts = _counts(opened, doing, f"({groups}) AS given", {kind: "least_code <> most_code"})
    return problems_in(counts, columns=columns_text(options.categories.names))


def _empty_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Return listed groups without entities, if the rows must state the category."""
    keys = _keys(counting.options)
    own = counting.group[0].text
    rows = select({"group_key": own, "leaf": counting.rows.leaf, **counting.weight()}, counting.rows.source)
    columns = {name: name for name in keys}
    sizes = select(columns | {"size": "sum(weight)"}, f"({rows}) AS given", f" GROUP BY {', '.join(keys)}")
    same = " AND ".join(f"listed.{name} = given.{name}" for name in keys)
    joined = f"({_listings(counting)}) AS listed LEFT JOIN ({sizes}) AS given ON {same}"
    counts = _counts(opened, "Looking for groups without rows", joined, {"empty_group": "coalesce(given.size, 0) < 1"})
    return problems_in(counts, columns=columns_text(counting.options.categories.names), **_words(counting.options))


def groups_problems(opened: Opened, counting: Counting, hint: str = "") -> list[Problem]:
    """Return problems of the groups table alone; `hint` is about its unknown regions."""
    listed, options = counting.groups, counting.options
    assert listed is not None
    wrong = _list_problems(counting, listed)
    counts = {"rows": "TRUE"} | {f"{OF_LIST}{kind}": condition for kind, condition in wrong.items()}
    found = _counts(opened, "Checking the groups table", listed.source, counts)
    if found.pop("rows") == 0 and options.groups_are_public:
        return [problem("groups_no_rows", 0)]
    repeated = {"repeated_group": "listings > 1"}
    found |= _counts(opened, "Checking the groups table", f"({_listings(counting)}) AS given", repeated)
    return problems_in(found, **_words(options), hint=hint)


def _list_problems(counting: Counting, listed: Table) -> dict[str, str]:
    """Return the possible problems of a row of the groups table: kinds and conditions."""
    options = counting.options
    return {"no_group": listed[options.group].is_missing, **_region_problems(listed, options.region)}


def _matching_problems(opened: Opened, counting: Counting) -> list[Problem]:
    """Return rows whose group is not in the groups table, or is listed there with another region."""
    joined, wrong = _matching(counting, {})
    counts = _counts(opened, "Comparing the rows with the groups table", joined, wrong)
    return problems_in(counts, **_words(counting.options))


def _matching(counting: Counting, more: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return rows beside the groups table, with more of their columns, and conditions for what differs."""
    options, rows = counting.options, counting.rows
    known = f"NOT {rows[options.group].is_missing}" + (f" AND {rows.leaf} >= 0" if options.groups_were_split else "")
    columns = {"group_key": counting.group[0].text, "leaf": rows.leaf, **more}
    located = select(columns, rows.source, f" WHERE {known}")
    same = " AND ".join(f"listed.{name} = given.{name}" for name in _keys(options))
    joined = f"({located}) AS given LEFT JOIN ({_listings(counting)}) AS listed ON {same}"
    wrong = {"unlisted_group": "listed.listings IS NULL"}
    if counting.region_in_rows and not options.groups_were_split:
        known = "listed.listings = 1 AND listed.leaf >= 0 AND given.leaf >= 0"
        wrong["disagreeing_region"] = f"{known} AND listed.leaf <> given.leaf"
    return joined, wrong


# -------------------------------------------------------------------- pieces of queries


def _listings(counting: Counting) -> str:
    """Return how often the groups table lists each group or, with split, each (group, leaf) pair."""
    listed, options = counting.groups, counting.options
    assert listed is not None
    split = options.groups_were_split
    known = f"NOT {listed[options.group].is_missing}" + (f" AND {listed.leaf} >= 0" if split else "")
    rows = select({"group_key": counting.group[1].text, "leaf": listed.leaf}, listed.source, f" WHERE {known}")
    columns = {"group_key": "group_key", "leaf": "leaf" if split else "max(leaf)", "listings": "count(*)"}
    return select(columns, f"({rows}) AS given", f" GROUP BY {', '.join(_keys(options))}")


def _keys(options: Options) -> list[str]:
    """Return the columns that identify a group: with split, each (group, leaf) pair is a group."""
    return ["group_key", "leaf"] if options.groups_were_split else ["group_key"]


def _words(options: Options) -> dict[str, object]:
    """Return the public words of messages for these options: columns, a bound, and the name of a line of the groups
    table.
    """
    return {
        "group": columns_text([options.group]),
        "region": columns_text(options.region),
        "quantity": columns_text([options.quantity or ""]),
        "entity": columns_text([options.entity or ""]),
        "bound": options.quantity_bound or 0,
        "listed": "(group, region) pair" if options.groups_were_split else "group",
    }


def _counts(opened: Opened, doing: str, source: str, conditions: Mapping[str, str]) -> dict[str, int]:
    """Return how many rows each condition is true of."""
    return one_row(opened, doing, select({kind: count_if(each) for kind, each in conditions.items()}, source))


def one_row(opened: Opened, doing: str, query: str) -> dict[str, int]:
    """Return the row of counts that a query gives."""
    return {name: int(count) for name, count in opened.fetch(doing, query).to_pylist()[0].items()}
