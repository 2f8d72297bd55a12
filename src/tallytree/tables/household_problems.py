"""What can be wrong with tables of households and persons, told to the data holder: counts and column names only.

Like `problems`, whose kind of text these are, it never holds a value of a private column.
"""

from __future__ import annotations

from tallytree.tables.problems import Problem, rows


def no_rows(table: str) -> Problem:
    return Problem(0, f"the {table} table has no rows: check the path, and any filter before this")


def not_a_number_column(table: str, column: str, kind: str) -> Problem:
    return Problem(1, f"column {column!r} of the {table} table has type {kind}: expected a number")


def unknown_value(count: int, table: str, column: str) -> Problem:
    return rows(
        count,
        "has",
        "have",
        f"a value that the schema does not list (column {column!r} of the {table} table): add it to the schema if it "
        "is publicly known, or correct the rows; capital letters, spaces and leading zeros count",
    )


def empty_cell(count: int, table: str, column: str) -> Problem:
    return rows(
        count,
        "has",
        "have",
        f"an empty cell (column {column!r} of the {table} table): fill it in, or say in the schema which value it "
        "stands for (missing=…)",
    )


def not_a_number(count: int, table: str, column: str) -> Problem:
    return rows(
        count,
        "has",
        "have",
        f"something that is not a number (column {column!r} of the {table} table, which has cuts): correct them",
    )


def no_household(count: int, table: str, column: str) -> Problem:
    return rows(count, "has", "have", f"no household (column {column!r} of the {table} table): fill it in or drop them")


def repeated_households(count: int, column: str) -> Problem:
    return rows(
        count,
        "stands",
        "stand",
        f"more than once in the households table (column {column!r}): keep one row per household",
        noun="household",
    )


def unknown_household(count: int, column: str) -> Problem:
    return rows(
        count,
        "lives",
        "live",
        f"in a household that is not in the households table (column {column!r}): add the household, or drop them",
        noun="person",
    )


def no_order(count: int, column: str) -> Problem:
    return rows(count, "has", "have", f"no number in person_order (column {column!r} of the persons table): fill it in")


def too_many_persons(count: int, most: int) -> Problem:
    return rows(
        count,
        "has",
        "have",
        f"more than max_persons={most:,} persons: raise max_persons, which adds noise, or say which persons to leave "
        "out with oversize='drop' (keep the first) or oversize='subsample' (keep some drawn by lot)",
        noun="household",
    )
