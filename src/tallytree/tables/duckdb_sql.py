"""DuckDB's SQL, in the few words of Ibis that our queries use: so a query is written once, and DuckDB needs no Ibis.

A `Table` is the text of a query and a `Column` that of an expression over tables; nothing runs before it is fetched.
Of which kind a column is, DuckDB itself is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

NAMES = count()
MANY = 10_000  # rows of Arrow data
WHOLE = {"TINYINT": 1, "SMALLINT": 2, "INTEGER": 4, "BIGINT": 8}
UNSIGNED = {f"U{name}": size for name, size in WHOLE.items()}
FLOATING = ("FLOAT", "DOUBLE")
KINDS = {"string": "VARCHAR", "int32": "INTEGER", "int64": "BIGINT", "float64": "DOUBLE"}  # by Ibis's names


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
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "TRUE", False: "FALSE"}[value]
    return f"({value!r})" if value < 0 else repr(value)


@dataclass(frozen=True)
class Kind:
    """The type of a column, as DuckDB writes it."""

    name: str

    def is_string(self) -> bool:
        """Is it text? One of a few texts (ENUM) is, too."""
        return self.name == "VARCHAR" or self.name.startswith("ENUM")

    def is_integer(self) -> bool:
        """Is it a whole number of at most 64 bits?"""
        return self.name in WHOLE or self.name in UNSIGNED

    def is_signed_integer(self) -> bool:
        """Is it such a number that may be negative?"""
        return self.name in WHOLE

    def is_floating(self) -> bool:
        """Is it a floating-point number?"""
        return self.name in FLOATING

    def is_numeric(self) -> bool:
        """Is it a number of any kind?"""
        return self.is_integer() or self.is_floating() or self.name.startswith(("DECIMAL", "HUGEINT", "UHUGEINT"))

    def is_boolean(self) -> bool:
        """Is it true or false?"""
        return self.name == "BOOLEAN"

    def is_null(self) -> bool:
        """Is it of no type, since there are no values?"""
        return self.name == '"NULL"'

    @property
    def nbytes(self) -> int:
        """The bytes of a whole number."""
        return (WHOLE | UNSIGNED)[self.name]

    def copy(self, *, nullable: bool) -> Kind:
        """The kind itself: in a query of DuckDB anything may be null."""
        return self

    def __str__(self) -> str:
        return self.name.lower()


def _word(text: str) -> Callable[..., Column]:
    """A method of columns, by the name that Ibis gives it, in SQL: {0} is the column, {1} and {2} are its arguments."""
    return lambda column, *others: column._with(text, *others)


class Column:
    """An expression: its text, and the table that it is of, if it is of one."""

    def __init__(self, text: str, table: Table | None = None) -> None:
        self.text, self.table = text, table

    def _with(self, text: str, *others: Any) -> Column:
        """An expression of this one, which is {0}, and of others, columns or values."""
        tables = [self.table, *(other.table for other in others if isinstance(other, Column))]
        return Column(text.format(self.text, *map(_text, others)), next(filter(None, tables), None))

    def type(self) -> Kind:
        """Its kind, which DuckDB is asked."""
        assert self.table is not None
        return self.table.engine.kind(f"SELECT {self.text} FROM {self.table.named}")

    __eq__ = _word("({0} = {1})")  # type: ignore[assignment]
    __ne__ = _word("({0} <> {1})")  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]
    __lt__ = _word("({0} < {1})")
    __le__ = _word("({0} <= {1})")
    __gt__ = _word("({0} > {1})")
    __ge__ = _word("({0} >= {1})")
    __and__ = _word("({0} AND {1})")
    __or__ = _word("({0} OR {1})")
    __invert__ = _word("(NOT {0})")
    __add__ = _word("({0} + {1})")
    __sub__ = _word("({0} - {1})")
    __mul__ = _word("({0} * {1})")
    min, max, sum = _word("min({0})"), _word("max({0})"), _word("sum({0})")  # over a group
    isnull = _word("({0} IS NULL)")
    fill_null = _word("coalesce({0}, {1})")
    ifelse = _word("CASE WHEN {0} THEN {1} ELSE {2} END")
    concat = _word("({0} || {1})")
    length = _word("length({0})")

    def strip(self) -> Column:
        """A text without white space around it."""
        return self._with("trim({0}, {1})", " \t\n\r\v\f")

    def cast(self, kind: str | Kind) -> Column:
        """It as another kind; what cannot be is an error."""
        return self._with(f"CAST({{0}} AS {_name(kind)})")

    def try_cast(self, kind: str | Kind) -> Column:
        """It as another kind; what cannot be is missing."""
        return self._with(f"TRY_CAST({{0}} AS {_name(kind)})")

    def over(self, *, group_by: str, order_by: Sequence[str]) -> Column:
        """The place of a row in an order within its group, from 0: for `row_number`."""
        order = Column(", ".join(map(quoted, order_by)))
        return self._with("({0} OVER (PARTITION BY {1} ORDER BY {2}) - 1)", Column(quoted(group_by)), order)


def _text(value: Any) -> str:
    return value.text if isinstance(value, Column) else literal(value)


def _name(kind: str | Kind) -> str:
    return kind.name if isinstance(kind, Kind) else KINDS[kind]


@dataclass(frozen=True, eq=False)
class Rows:
    """What is behind FROM, a table or several that are joined: expressions over them can be selected."""

    engine: DuckDB
    named: str

    def select(self, *kept: str, **columns: Any) -> Table:
        """A table of these columns."""
        chosen = {name: _text(self[name]) for name in kept} | {name: _text(each) for name, each in columns.items()}
        return self._query(chosen)

    def agg(self, **columns: Any) -> Table:
        """One row of aggregates."""
        return self.select(**columns)

    def __getitem__(self, name: str) -> Column:
        raise KeyError(name)

    def _query(self, columns: Mapping[str, str], ending: str = "") -> Table:
        listed = ", ".join(f"{text} AS {quoted(name)}" for name, text in columns.items())
        return Table(self.engine, f"SELECT {listed} FROM {self.named}{ending}", tuple(columns))


@dataclass(frozen=True, eq=False, repr=False)
class Table(Rows):
    """A query with its columns."""

    named: str = field(init=False)
    text: str
    columns: tuple[str, ...]
    alias: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "alias", f"t{next(NAMES)}")
        object.__setattr__(self, "named", f"({self.text}) AS {self.alias}")

    def __getitem__(self, name: str) -> Column:
        if name not in self.columns:
            raise KeyError(name)
        return Column(f"{self.alias}.{quoted(name)}", self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.columns:
            raise AttributeError(name)
        return self[name]

    def mutate(self, **columns: Any) -> Table:
        """The table with columns added or replaced."""
        return self._query(
            {name: _text(self[name]) for name in self.columns} | {n: _text(c) for n, c in columns.items()}
        )

    def drop(self, *names: str) -> Table:
        """The table without some columns."""
        return self.select(*(name for name in self.columns if name not in names))

    def filter(self, *conditions: Column) -> Table:
        """The rows for which all of these are true."""
        where = " AND ".join(condition.text for condition in conditions)
        return self._query({name: _text(self[name]) for name in self.columns}, f" WHERE {where}")

    def distinct(self) -> Table:
        """The different rows."""
        return Table(self.engine, f"SELECT DISTINCT * FROM {self.named}", self.columns)

    def union(self, other: Table) -> Table:
        """Its rows and those of another table with the same columns."""
        return Table(self.engine, f"({self.text}) UNION ALL ({other.text})", self.columns)

    def count(self) -> Column:
        """The number of rows."""
        return Column("count(*)", self)

    def group_by(self, *keys: str) -> Grouped:
        """Groups of rows that are alike in these columns."""
        return Grouped(self, keys)

    def left_join(self, other: Table, conditions: Sequence[Column]) -> Rows:
        """Every row with its matches in another table, or with none."""
        matches = " AND ".join(condition.text for condition in conditions)
        return Rows(self.engine, f"{self.named} LEFT JOIN {other.named} ON {matches}")

    def cross_join(self, other: Table) -> Table:
        """Every row with every row of another table."""
        chosen = {name: _text(table[name]) for table in (self, other) for name in table.columns}
        return Rows(self.engine, f"{self.named} CROSS JOIN {other.named}")._query(chosen)


@dataclass(frozen=True, eq=False)
class Grouped:
    """Groups of a table's rows."""

    table: Table
    keys: tuple[str, ...]

    def agg(self, **columns: Any) -> Table:
        """A row of aggregates for each group."""
        keys = {name: _text(self.table[name]) for name in self.keys}
        chosen = keys | {name: _text(each) for name, each in columns.items()}
        return self.table._query(chosen, f" GROUP BY {', '.join(keys.values())}")


@dataclass(frozen=True, eq=False, repr=False)
class DuckDB:
    """A connection to DuckDB, and the words that are said without a table."""

    con: Any
    name: str = "duckdb"

    def query(self, text: str) -> Table:
        """The table that a query gives."""
        return Table(self, text, tuple(name for name, *_ in self._described(text)))

    def kind(self, text: str) -> Kind:
        """The kind of a query's first column."""
        return Kind(self._described(text)[0][1])

    def _described(self, text: str) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = self.con.execute(f"DESCRIBE {text}").fetchall()
        return found

    def memtable(self, data: Any) -> Table:
        """Arrow data, or a mapping of columns, as a table.

        One of many rows is taken over into a table of DuckDB's own: it does not know how far a query is that scans
        Arrow data.
        """
        import pyarrow as pa

        name, rows = f"tallytree_{next(NAMES)}", pa.table(data)
        if rows.num_rows < MANY:
            self.con.register(name, rows)
        else:
            self.con.register(f"{name}_taken", rows)
            self.con.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {name}_taken")
            self.con.unregister(f"{name}_taken")
        return self.query(f"SELECT * FROM {name}")

    def literal(self, value: Any, kind: str) -> Column:
        """A value of a kind."""
        return Column(literal(value)).cast(kind)

    def null(self, kind: str) -> Column:
        """A missing value of a kind."""
        return Column("NULL").cast(kind)

    def cases(self, *branches: tuple[Column, Any], else_: Any) -> Column:
        """The value that goes with the first condition that is true."""
        whens = " ".join(f"WHEN {_text(condition)} THEN {_text(value)}" for condition, value in branches)
        return Column(f"CASE {whens} ELSE {_text(else_)} END", branches[0][0].table)

    def least(self, column: Column, bound: Any) -> Column:
        """The smaller of two."""
        return column._with("least({0}, {1})", bound)

    def greatest(self, column: Column, bound: Any) -> Column:
        """The greater of two."""
        return column._with("greatest({0}, {1})", bound)

    def row_number(self) -> Column:
        """The place of a row, `over` an order."""
        return Column("row_number()")

    def text_as_number(self, text: Column) -> Column:
        """A text as a floating-point number; null if it is none."""
        # DuckDB 2.0 hands a bare TRY_CAST to its CSV reader, which then fails on the first text; `strip` is in its way.
        return text.strip().try_cast("float64")

    def sha256(self, text: Column) -> Column:
        """A hash of a text, in hexadecimal digits."""
        return text._with("sha256({0})")

    def to_pyarrow(self, table: Table) -> Any:
        """The rows of a small result; sums, which DuckDB keeps in 128 bits, as whole numbers of 64."""
        import pyarrow as pa

        rows = self.con.sql(table.text).to_arrow_table()
        kinds = [pa.int64() if pa.types.is_decimal(kind) and kind.scale == 0 else kind for kind in rows.schema.types]
        return rows.cast(pa.schema(list(zip(rows.column_names, kinds, strict=True))))

    def batches(self, table: Table) -> Any:
        """The rows of a large result, batch by batch."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self.con.sql(table.text))

    def disconnect(self) -> None:
        """Close the connection."""
        self.con.close()
