"""SQL expressions that the queries share. Queries are written once, in DuckDB's SQL, and `engines` translates them.

The type of a column, which an engine reports when a table is opened, decides how an expression is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sys import float_info
from typing import Any

WHOLE = {"TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}  # bytes of signed integers
UNSIGNED = tuple(f"U{name}" for name in WHOLE)
FLOATING = ("FLOAT", "DOUBLE")
WHOLE_FLOATS = 2**53  # integers below this are exact in every engine's floating point
WHITE = " \t\n\r\v\f"


def quoted(name: str) -> str:
    """Return a name of a column or table as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def literal(value: Any) -> str:
    """Return a value as SQL writes it; lists and mappings as DuckDB's functions take them.

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
    """Return a query for named expressions.

    >>> select({"home": "upper(h)"}, "people", " WHERE h <> ''")
    'SELECT upper(h) AS "home" FROM people WHERE h <> \'\''
    """
    listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in columns.items())
    return f"SELECT {listed} FROM {source}{ending}"


def count_if(condition: str, each: str = "1") -> str:
    """Return an expression for the number of rows for which a condition is true, or the sum of `each` over them."""
    return f"CAST(coalesce(sum(CASE WHEN {condition} THEN {each} ELSE 0 END), 0) AS BIGINT)"


@dataclass(frozen=True)
class Cell:
    """An expression and its type, by DuckDB's name of it."""

    text: str
    kind: str
    decimal: str = "."  # the decimal mark of texts

    @property
    def is_text(self) -> bool:
        """Return whether it is a text. An ENUM is a text, too."""
        return self.kind == "VARCHAR" or self.kind.startswith("ENUM")

    @property
    def is_integer(self) -> bool:
        """Return whether it is an integer of at most 64 bits."""
        return self.kind in WHOLE or self.kind in UNSIGNED

    @property
    def is_numeric(self) -> bool:
        """Return whether it is a number of any kind."""
        return self.is_integer or self.kind in FLOATING or self.kind.startswith(("DECIMAL", "HUGEINT", "UHUGEINT"))

    @property
    def may_be_number(self) -> bool:
        """Return whether `number` accepts its type."""
        return self.is_numeric or self.is_text or self.kind in ("BOOLEAN", '"NULL"')

    @property
    def as_text(self) -> str:
        """Return the expression as a text."""
        return self.text if self.kind == "VARCHAR" else f"CAST({self.text} AS VARCHAR)"

    @property
    def label(self) -> str:
        """Return the expression as a text as a schema writes it: integers without a point, and no text for NaN."""
        if self.kind not in FLOATING:
            return self.as_text
        whole = f"{self.text} = trunc({self.text}) AND abs({self.text}) < {WHOLE_FLOATS}"
        cases = f"WHEN isnan({self.text}) THEN NULL WHEN {whole} THEN CAST(CAST({self.text} AS BIGINT) AS VARCHAR)"
        return f"CASE {cases} ELSE {self.as_text} END"

    @property
    def is_missing(self) -> str:
        """Return a condition: null; for text also empty; for floating point also not finite."""
        if self.is_text:
            return f"({self.text} IS NULL OR {self.text} = '')"
        if self.kind in FLOATING:  # compared, because NaN is above all numbers on some engines and unordered on others
            most = float_info.max
            return f"({self.text} IS NULL OR NOT ({self.text} >= -{most!r} AND {self.text} <= {most!r}))"
        return f"({self.text} IS NULL)"

    @property
    def number(self) -> Cell:
        """Return a quantity as a number: integers unchanged, others as floating point, null for a text that is not a
        number.
        """
        if self.is_integer:
            return self
        if self.kind == "BOOLEAN":
            return Cell(f"CASE WHEN {self.text} THEN 1 WHEN NOT {self.text} THEN 0 END", "BIGINT")
        if self.is_text:
            # DuckDB 2.0 moves a bare TRY_CAST into its CSV reader, which then fails on the first text. trim helps.
            text = f"trim({self.text}, {literal(WHITE)})"
            if self.decimal == ",":  # a point in such a text separates thousands, so it is no number here
                text = f"CASE WHEN {text} LIKE '%.%' THEN NULL ELSE replace({text}, ',', '.') END"
            return Cell(f"TRY_CAST({text} AS DOUBLE)", "DOUBLE")
        return Cell(f"CAST({self.text} AS DOUBLE)", "DOUBLE")

    def within(self, bound: int) -> str:
        """Return a condition on a result of `number`: an integer from 0 to the bound; null counts as false."""
        inside = f"({self.text} >= 0 AND {self.text} <= {bound})"
        return f"CASE WHEN {inside} THEN {self.has_no_fraction} ELSE FALSE END" if self.kind in FLOATING else inside

    @property
    def has_no_fraction(self) -> str:
        """Return a condition: a floating-point number within the bounds of a quantity is an integer."""
        return f"(CAST(CAST({self.text} AS BIGINT) AS DOUBLE) = {self.text})"


def comparable(own: Cell, other: Cell) -> tuple[Cell, Cell]:
    """Return two cells unchanged if they can be compared, otherwise as text."""
    alike = own.kind == other.kind or (own.is_text and other.is_text) or (own.is_integer and other.is_integer)
    return (own, other) if alike else (Cell(own.as_text, "VARCHAR"), Cell(other.as_text, "VARCHAR"))


@dataclass(frozen=True)
class Table:
    """A table of an engine, by its name or by a query in parentheses, and the types of its columns."""

    name: str
    kinds: Mapping[str, str]
    joined: str = ""  # the join that finds the leaves: see `count.place`
    leaf: str = "0"  # the leaf region of a row
    decimal: str = "."  # the decimal mark of texts

    def __getitem__(self, column: str) -> Cell:
        return Cell(f"given.{quoted(column)}", self.kinds[column], self.decimal)

    @property
    def source(self) -> str:
        """Return the part of a query after FROM, where the table is called `given`."""
        return f"{self.name} AS given{self.joined}"
