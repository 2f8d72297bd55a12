"""What can be wrong with the input, for the data holder: counts and column names, never a value.

The texts live here, together, so that they can be read and reviewed at a glance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallytree.core.errors import DataError
from tallytree.core.names import nearest

HEADING = "The input cannot be used as it is. (For the data holder's eyes only: the counts below are not private.)"

HAS = "row has|rows have"
IS_IN = "row is in|rows are in"
NAMES = "row names|rows name"
OF_LIST, IN_LIST = "listed_", " in the groups table"  # a kind of problem of rows, found in the list of groups

# Each kind of problem: who has it (one, or several; nobody where a count says nothing), what it is and how to fix it.
# The words in braces are columns, types of columns, public bounds and names of tables.
TEXTS: dict[str, tuple[str, str]] = {
    # columns
    "missing_columns": (
        "",
        "{columns} not in {table}{hint}: correct the name, capital letters count (CSV files need a first line of "
        "names, and commas between cells)",
    ),
    "quantity_type": ("", "{column} has type {type}: a quantity must be a whole number"),
    "number_type": ("", "{column} has type {type}: expected a number"),
    # rows of the microdata
    "no_regions": (
        "",
        "the input has no rows, and so no regions to take from it: give a hierarchy, or check the path and any filter "
        "(which regions occur was declared public, so that none does is no secret)",
    ),
    "no_group": (HAS, "no group{where} ({group}): fill it in or drop them"),
    "no_region": (HAS, "no region{where} ({region}): fill it in or drop them"),
    "unknown_region": (
        IS_IN,
        "a region that is not a leaf of the hierarchy{where} ({region}): add the region to the public region table, or "
        "correct the rows; spaces and leading zeros count{hint}",
    ),
    "ambiguous_region": (
        NAMES,
        "a region whose name stands for several leaves{where} ({region}): give one column per level, as in "
        "region=['state', 'county'], or the region's id",
    ),
    "spanning": (
        "group lies|groups lie",
        "in more than one leaf region: correct the rows, or count each (group, region) pair as a group with "
        "on_spanning_group='split'",
    ),
    "unknown_category": (
        HAS,
        "none of the {values} listed values{where} ({column}): add what is missing to the public list, correct the "
        "rows, or say with `other` what they count as; capital letters, spaces and leading zeros count",
    ),
    "several_categories": (
        "group has|groups have",
        "rows in more than one category ({columns}): a group has one value of each, the same in all its rows",
    ),
    "empty_group": (
        "group has|groups have",
        "no entities, so nothing tells their category ({columns}): take them off the public list, or put the category "
        "into it",
    ),
    "no_quantity": (HAS, "no quantity ({quantity}): fill in 0 or drop them"),
    "unreadable_quantity": (HAS, "a quantity that is not a number ({quantity}): correct them"),
    "negative_quantity": (HAS, "a negative quantity ({quantity}): expected 0 or more"),
    "large_quantity": (
        HAS,
        "a quantity above quantity_bound={bound:,} ({quantity}): raise the bound, which adds noise, or cut the "
        "quantities to it",
    ),
    "fractional_quantity": (HAS, "a fractional quantity ({quantity}): expected whole numbers"),
    "no_entity": (HAS, "no entity ({entity}): fill it in or drop them"),
    "repeated_entity": (
        "entity has|entities have",
        "more than one row ({entity}): drop the copies, or give a public bound rows_per_entity, beyond which rows are "
        "dropped",
    ),
    "unlisted_group": (
        HAS,
        "a {listed} that is not in the groups table ({group}): add it there if it is public, or drop the rows",
    ),
    "disagreeing_region": (
        "row lies|rows lie",
        "in another region than the groups table says for their group ({region}): correct one of the two tables, or "
        "leave the region out of the microdata; groups that span regions need on_spanning_group='split'",
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
        "the rows; capital letters, spaces and leading zeros count",
    ),
    "not_a_number": (HAS, "something that is not a number ({column}, which has cuts): correct them"),
    "empty_cell": (
        HAS,
        "an empty cell ({column}): fill it in, or say in the schema which value it stands for (missing=…)",
    ),
    "no_order": (HAS, "no number in person_order ({column}): fill it in"),
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
        "more than max_persons={bound:,} persons: raise max_persons, which adds noise, or say which persons to leave "
        "out with oversize='drop' (keep the first) or oversize='subsample' (keep some at random)",
    ),
    "broken_rule": (
        "household breaks|households break",
        "a rule ({rule}): correct them or the rule; or measure them as they are with on_broken_rules='keep', and no "
        "synthetic household will break it",
    ),
}


@dataclass(frozen=True)
class Problem:
    """One kind of problem: how often it was found, and a line that says so and how to fix it."""

    count: int
    text: str


class InputProblems(DataError):
    """Every problem of the input at once, in `problems`; the message lists them."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([HEADING, *(f"  - {problem.text}" for problem in self.problems)]))


def problem(kind: str, count: int, **words: object) -> Problem:
    """A problem in words: '1 row has …' or '1,204 rows have …'.

    >>> problem("no_group", 1204, group="column 'home'").text
    "1,204 rows have no group (column 'home'): fill it in or drop them"
    """
    who, what = TEXTS[kind.removeprefix(OF_LIST)]
    if who:
        one, several = who.split("|")
        what = f"{count:,} {one if count == 1 else several} {what}"
    return Problem(count, what.format(**{"hint": "", **words}, where=IN_LIST if kind.startswith(OF_LIST) else ""))


def problems_in(counts: Mapping[str, int], **words: object) -> list[Problem]:
    """A problem for every kind that was found at all, in the order of the counts."""
    return [problem(kind, count, **words) for kind, count in counts.items() if count]


def raise_any(found: Sequence[Problem]) -> None:
    """Raise the problems together, if there are any."""
    if found:
        raise InputProblems(found)


def columns_text(columns: Sequence[str]) -> str:
    """How a message names columns: column 'county', or columns 'state', 'county'."""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(map(repr, columns))}"


def missing_columns(table: str, have: Sequence[str], wanted: Sequence[str]) -> list[Problem]:
    """The problem that columns which are wanted are not among those of a table.

    A hint names the one column that is nearly what was asked for, and never the rest: in a file without a line of names
    they would be cells.
    """
    missing = [column for column in wanted if column not in have]
    named = f"{columns_text(missing)} {'are' if len(missing) > 1 else 'is'}"
    hint = "".join(f" (did you mean {near!r}?)" for column in missing if (near := nearest(column, have, cutoff=0.75)))
    return [problem("missing_columns", len(missing), columns=named, table=table, hint=hint)] if missing else []
