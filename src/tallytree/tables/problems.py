"""What can be wrong with the input, told to the data holder: counts and column names, never a value.

The texts live here, together, so that they can be read and reviewed at a glance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallytree.errors import DataError

HEADING = "The input cannot be used as it is. (For the data holder's eyes only: the counts below are not private.)"


@dataclass(frozen=True)
class Problem:
    """One kind of problem: how often it was found, and a line that says so and how to mend it."""

    count: int
    text: str


class InputProblems(DataError):
    """Every problem of the input at once, in `problems`; the message lists them."""

    problems: tuple[Problem, ...]

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join([HEADING, *(f"  - {problem.text}" for problem in self.problems)]))

    def __reduce__(self) -> tuple[type[InputProblems], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


def columns_text(columns: Sequence[str]) -> str:
    """How a message names columns: column 'county', or columns 'state', 'county'."""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(map(repr, columns))}"


def rows(count: int, has: str, have: str, rest: str, *, noun: str = "row") -> Problem:
    """'1 row has …' or '1,204 rows have …'."""
    plural = "entities" if noun == "entity" else f"{noun}s"
    who = f"1 {noun} {has}" if count == 1 else f"{count:,} {plural} {have}"
    return Problem(count, f"{who} {rest}")


# -------------------------------------------------------------------- the columns


def missing_columns(table: str, columns: Sequence[str]) -> Problem:
    verb = "are" if len(columns) > 1 else "is"
    return Problem(
        len(columns),
        f"{columns_text(columns)} {verb} not in {table}: correct the name, capital letters count "
        "(CSV files need a first line of names, and commas between cells)",
    )


def not_a_number(column: str, kind: str) -> Problem:
    return Problem(1, f"column {column!r} has type {kind}: a quantity must be a whole number")


# -------------------------------------------------------------------- the microdata


def no_rows() -> Problem:
    return Problem(0, "the input has no rows: check the path, and any filter before this")


def no_group(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"no group (column {column!r}): fill it in or drop them")


def no_region(count: int, columns: Sequence[str]) -> Problem:
    return rows(count, "has", "have", f"no region ({columns_text(columns)}): fill it in or drop them")


def unknown_region(count: int, columns: Sequence[str], lost_zeros: bool) -> Problem:
    hint = "; the column holds numbers and the hierarchy's codes begin with 0: read it as text" if lost_zeros else ""
    return rows(
        count,
        "is",
        "are",
        f"in a region that is not a leaf of the hierarchy ({columns_text(columns)}): add the region to the public "
        f"region table, or correct the rows; spaces and leading zeros count{hint}",
    )


def ambiguous_region(count: int, columns: Sequence[str]) -> Problem:
    return rows(
        count,
        "names",
        "name",
        f"a region whose name stands for several leaves ({columns_text(columns)}): give one column per level, "
        "as in region=['state', 'county'], or the region's id",
    )


def spanning_groups(count: int) -> Problem:
    return rows(
        count,
        "lies",
        "lie",
        "in more than one leaf region: correct the rows, or count each (group, region) pair as a group with "
        "on_spanning_group='split'",
        noun="group",
    )


def no_quantity(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"no quantity (column {column!r}): fill in 0 or drop them")


def unreadable_quantity(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"a quantity that is not a number (column {column!r}): correct them")


def negative_quantity(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"a negative quantity (column {column!r}): expected 0 or more")


def large_quantity(count: int, column: str, bound: int) -> Problem:
    return rows(
        count,
        "has",
        "have",
        f"a quantity above quantity_bound={bound:,} (column {column!r}): raise the bound, which adds noise, "
        "or cut the quantities to it",
    )


def fractional_quantity(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"a fractional quantity (column {column!r}): expected whole numbers")


def no_entity(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"no entity (column {column!r}): fill it in or drop them")


def repeated_entities(count: int, column: str) -> Problem:
    return rows(
        count,
        "has",
        "have",
        f"more than one row (column {column!r}): drop the copies, or give a public bound rows_per_entity, beyond "
        "which rows are dropped",
        noun="entity",
    )


def not_in_groups(count: int, column: str, pairs: bool) -> Problem:
    what = "(group, region) pair" if pairs else "group"
    return rows(
        count,
        "has",
        "have",
        f"a {what} that is not in the groups table (column {column!r}): add it there if it is public, or drop the rows",
    )


def disagreeing_region(count: int, columns: Sequence[str]) -> Problem:
    return rows(
        count,
        "lies",
        "lie",
        f"in another region than the groups table says for their group ({columns_text(columns)}): correct one of "
        "the two tables, or leave the region out of the microdata; groups that span regions need "
        "on_spanning_group='split'",
    )


# -------------------------------------------------------------------- the groups table


def groups_no_rows() -> Problem:
    return Problem(0, "the groups table has no rows: expected one row per group with its leaf region")


def groups_without_name(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"no group in the groups table (column {column!r}): fill it in or drop them")


def groups_without_region(count: int, columns: Sequence[str]) -> Problem:
    return rows(
        count, "has", "have", f"no region in the groups table ({columns_text(columns)}): fill it in or drop them"
    )


def groups_unknown_region(count: int, columns: Sequence[str]) -> Problem:
    return rows(
        count,
        "is",
        "are",
        f"in a region that is not a leaf of the hierarchy in the groups table ({columns_text(columns)}): "
        "correct one of the two",
    )


def groups_ambiguous_region(count: int, columns: Sequence[str]) -> Problem:
    return rows(
        count,
        "names",
        "name",
        f"a region whose name stands for several leaves in the groups table ({columns_text(columns)}): "
        "give one column per level, or the region's id",
    )


def repeated_groups(count: int, column: str, pairs: bool) -> Problem:
    what = "(group, region) pair" if pairs else "group"
    return rows(
        count,
        "stands",
        "stand",
        f"more than once in the groups table (column {column!r}): keep one row per {what}",
        noun=what,
    )
