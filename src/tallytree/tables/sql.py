"""The expressions that our queries share. Queries are written once, in DuckDB's SQL, and `engines` translates them.

What decides how an expression is written is the type of a column, which an engine says when a table is opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import float_info
from typing import Any

WHOLE = {"TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}  # bytes of signed integers
UNSIGNED = tuple(f"U{name}" for name in WHOLE)
FLOATING = ("FLOAT", "DOUBLE")
WHITE = " \t\n\r\v\f"


def quoted(name: str) -> str:
    """A name of a column or table, as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """A value as SQL has it; lists and mappings as DuckDB's functions take them.

    >>> literal({"it's": ["a", 1, None]})
    "{'it''s': ['a', 1, NULL]}"
    """
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{literal(name)}: {literal(each)}" for name, each in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(literal, value)) + "]"
    return "NULL" if value is None else str(value)


def select(columns: Mapping[str, str], source: str, ending: str = "") -> str:
    """A query for named expressions.

    >>> select({"home": "upper(h)"}, "people", " WHERE h <> ''")
    'SELECT upper(h) AS "home" FROM people WHERE h <> \\'\\''
    """
    listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in columns.items())
    return f"SELECT {listed} FROM {source}{ending}"


def count_if(condition: str, each: str = "1") -> str:
    """How many rows of a table a condition is true of, or the sum of a number over them."""
    return f"CAST(coalesce(sum(CASE WHEN {condition} THEN {each} ELSE 0 END), 0) AS BIGINT)"


@dataclass(frozen=True)
class Cell:
    """An expression and its type, by DuckDB's name of it."""

    text: str
    kind: str

    @property
    def is_text(self) -> bool:
        """Is it a text? One of a few texts (ENUM) is, too."""
        return self.kind == "VARCHAR" or self.kind.startswith("ENUM")

    @property
    def is_whole(self) -> bool:
        """Is it an integer of at most 64 bits?"""
        return self.kind in WHOLE or self.kind in UNSIGNED

    @property
    def is_numeric(self) -> bool:
        """Is it a number of any kind?"""
        return self.is_whole or self.kind in FLOATING or self.kind.startswith(("DECIMAL", "HUGEINT", "UHUGEINT"))

    @property
    def may_be_number(self) -> bool:
        """Is it of a type that `number` takes?"""
        return self.is_numeric or self.is_text or self.kind in ("BOOLEAN", '"NULL"')

    @property
    def as_text(self) -> str:
        """It as a text."""
        return self.text if self.kind == "VARCHAR" else f"CAST({self.text} AS VARCHAR)"

    @property
    def is_missing(self) -> str:
        """Is it null? For text also: is it empty? For floating point also: is it no finite number?"""
        if self.is_text:
            return f"({self.text} IS NULL OR {self.text} = '')"
        if self.kind in FLOATING:  # compared, for NaN is above all numbers on some engines and unlike any on others
            most = float_info.max
            return f"({self.text} IS NULL OR NOT ({self.text} >= -{most!r} AND {self.text} <= {most!r}))"
        return f"({self.text} IS NULL)"

    @property
    def number(self) -> Cell:
        """A quantity as a number: whole as it is, others as floating point, null where a text is none."""
        if self.is_whole:
            return self
        if self.kind == "BOOLEAN":
            return Cell(f"CASE WHEN {self.text} THEN 1 WHEN NOT {self.text} THEN 0 END", "BIGINT")
        if self.is_text:
            # DuckDB 2.0 hands a bare TRY_CAST to its CSV reader, which then fails on the first text; trim prevents it.
            return Cell(f"TRY_CAST(trim({self.text}, {literal(WHITE)}) AS DOUBLE)", "DOUBLE")
        return Cell(f"CAST({self.text} AS DOUBLE)", "DOUBLE")

    def within(self, bound: int) -> str:
        """Is it a whole number from 0 to the bound? To be asked of what `number` gives; null stands for no."""
        inside = f"({self.text} >= 0 AND {self.text} <= {bound})"
        return f"CASE WHEN {inside} THEN {self.has_no_fraction} ELSE FALSE END" if self.kind in FLOATING else inside

    @property
    def has_no_fraction(self) -> str:
        """Is a floating-point number within the bounds of a quantity a whole one?"""
        return f"(CAST(CAST({self.text} AS BIGINT) AS DOUBLE) = {self.text})"


@dataclass(frozen=True)
class Table:
    """A table of an engine, by its name or by a query in parentheses, and the types of its columns."""

    name: str
    kinds: Mapping[str, str]
    joined: str = ""  # what it is joined with, to find the leaves: see `regions.place`
    leaf: str = "0"  # which leaf region a row lies in

    def __getitem__(self, column: str) -> Cell:
        return Cell(f"given.{quoted(column)}", self.kinds[column])

    @property
    def source(self) -> str:
        """What is behind FROM: there the table is called `given`."""
        return f"{self.name} AS given{self.joined}"
