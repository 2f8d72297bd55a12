"""Other engines than our DuckDB, through Ibis: the one module that knows it. Ibis is an extra.

Our queries are written in words that Ibis and `duckdb_sql` share. They are methods of tables and columns, and those
that go without a table `words` gives for the one at hand.
"""

from __future__ import annotations

import sys
from typing import Any

from tallytree.errors import SpecError
from tallytree.tables.duckdb_sql import DuckDB, Table


def ibis() -> Any:
    """The module; where it is not installed, the error says what to install."""
    try:
        import ibis
    except ModuleNotFoundError:
        raise SpecError(
            "rows on other engines than DuckDB are read through Ibis, which is not installed: pip install "
            "'tallytree[engines]'"
        ) from None
    return ibis


def words(table: Any) -> Any:
    """What literals, cases and tables in memory are made with, beside this table."""
    return table.engine if isinstance(table, Table) else ibis()


def in_memory(backend: Any, data: Any) -> Any:
    """Arrow data as a table for this backend."""
    return backend.memtable(data) if isinstance(backend, DuckDB) else ibis().memtable(data)


def is_ibis(source: Any) -> bool:
    """Is it an Ibis table? If so, whoever made it has loaded Ibis."""
    return "ibis" in sys.modules and isinstance(source, ibis().expr.types.Table)


def ibis_on(engine: DuckDB) -> Any:
    """An Ibis backend on our DuckDB, for Ibis tables in memory, which have no engine of their own."""
    return ibis().duckdb.from_connection(engine.con)


def backend_of(table: Any) -> Any:
    """The engine of an Ibis table; None if it is in memory."""
    backends, _ = table._find_backends()
    if len(backends) > 1:
        raise SpecError("the Ibis table joins several engines; expected one on a single engine")
    return backends[0] if backends else None


def tables_of(expression: Any) -> set[Any]:
    """The tables in an engine or in memory that an Ibis expression begins with."""
    import ibis.expr.operations as ops

    return set(expression.op().find((ops.PhysicalTable, ops.SQLQueryResult)))


def postgres_sha256(text: Any) -> Any:
    """SHA-256 of a text, as bytes: Ibis has no word for it on Postgres."""
    builtin = ibis().udf.scalar.builtin

    @builtin  # type: ignore[untyped-decorator]
    def convert_to(text: str, encoding: str) -> bytes: ...  # type: ignore[empty-body]

    @builtin  # type: ignore[untyped-decorator]
    def sha256(content: bytes) -> bytes: ...  # type: ignore[empty-body]

    return sha256(convert_to(text, "UTF8"))
