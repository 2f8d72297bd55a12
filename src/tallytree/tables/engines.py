"""Engines other than the built-in DuckDB, through Ibis. Only this module uses Ibis, which is an extra.

Queries are written in DuckDB's SQL. sqlglot translates them to the SQL of the engine.
"""

from __future__ import annotations

import secrets
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tallytree.core.errors import DataError, SpecError
from tallytree.core.registry import import_extra
from tallytree.tables import spark
from tallytree.tables.address import POSTGRES, WHERE, Source
from tallytree.tables.guard import guarded
from tallytree.tables.sql import Table, quoted

Result = TypeVar("Result")

# The texts that Postgres, which has no TRY_CAST, can read as a number of a size that it can hold.
NUMBER = r"^[+-]?([0-9]{1,100}(\.[0-9]{0,100})?|\.[0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"


def ibis() -> Any:
    """Return the module; if it is not installed, the error says what to install."""
    try:
        import ibis
    except ModuleNotFoundError:
        raise SpecError(
            "rows on other engines than DuckDB are read through Ibis, which is not installed: pip install "
            "'tallytree[engines]'"
        ) from None
    import pyarrow

    with suppress(ImportError, AttributeError):
        pyarrow.lib._pandas_api.pd  # noqa: B018  (Ibis hands it data frames: it looks again, if it found no pandas)
    return ibis


def is_ibis(source: Any) -> bool:
    """Return whether it is an Ibis table. Its owner has loaded Ibis, so nothing is imported here."""
    return "ibis" in sys.modules and isinstance(source, ibis().expr.types.Table)


def backend_of(table: Any) -> Any:
    """Return the engine of an Ibis table; None if the table is in memory."""
    backends, _ = table._find_backends()
    if len(backends) > 1:
        raise SpecError("the Ibis table joins several engines; expected one on a single engine")
    return backends[0] if backends else None


def tables_of(expression: Any) -> set[Any]:
    """Return the tables, in an engine or in memory, that an Ibis expression reads."""
    import ibis.expr.operations as ops

    return set(expression.op().find((ops.PhysicalTable, ops.SQLQueryResult)))


def on_duckdb(con: Any, table: Any, backend: Any = None) -> str:
    """Return an Ibis table on a connection to DuckDB, or in memory, as a query in parentheses."""
    backend = backend or ibis().duckdb.from_connection(con)
    backend._run_pre_execute_hooks(table)  # tables in memory are registered
    return f"({backend.compile(table)})"


def _kind(kind: Any) -> str:
    """Return DuckDB's name of an Ibis type."""
    from ibis.backends.sql.datatypes import DuckDBType

    if kind.is_string():
        return "VARCHAR"
    if kind.is_null():
        return '"NULL"'
    return str(
        DuckDBType.to_string(kind) if kind.is_numeric() or kind.is_boolean() else kind.copy(nullable=True)
    ).upper()


# -------------------------------------------------------------------- engines


@dataclass(eq=False, repr=False)
class Engine:
    """An engine through Ibis. A connection that was opened elsewhere is left unchanged."""

    backend: Any
    close: Callable[[], None] = lambda: None
    locate: Callable[[str], tuple[Any, Any] | None] = lambda name: None  # an Ibis table and its unique identity
    ask: Callable[[Callable[[], Any]], Any] = lambda work: work()  # runs work that queries it
    why: Callable[[Exception], str | None] = lambda error: None  # describes an error without quoting it
    known: dict[str, Any] = field(default_factory=dict)  # the Ibis tables in the queries

    @property
    def name(self) -> str:
        """Return the engine's name in Ibis."""
        return str(self.backend.name)

    def run(self, doing: str, work: Callable[[], Result], tell: Callable[[float], None]) -> Result:
        """Run work that queries the engine, behind the guard. It does not report progress."""
        tell(-1)
        done: Result = guarded(doing, lambda: self.ask(work), self.why)
        return done

    def find(self, name: str) -> tuple[Any, Any]:
        """Return the Ibis table of that name and its identity, which is the same under any name; None if unknown."""
        found = guarded("Looking for the table", lambda: self.locate(name), self.why)
        if found is None:
            raise SpecError(
                f"the engine has no table {name!r}, or you may not read it; if it is in a schema, give that too"
            )
        return found

    def table(self, found: Any) -> Table:
        """Return an Ibis table for queries."""
        name = f"tallytree_{len(self.known)}"
        self.known[name] = found
        return Table(name, {column: _kind(kind) for column, kind in found.schema().items()})

    def put(self, data: Any) -> Table:
        """Return Arrow data, or a mapping of columns, as a table."""
        import pyarrow as pa

        return self.table(ibis().memtable(pa.table(data)))

    def fetch(self, query: str, kind: str) -> Any:
        """Return the rows of a small result, whose columns all have one kind, as an Arrow table."""
        text, columns = self.translated(query)
        return self.backend.to_pyarrow(self.backend.sql(text, schema=dict.fromkeys(columns, kind)))

    def rows(self, table: Table) -> Any:
        """Return all rows of a public table."""
        return self.backend.to_pyarrow(self.known[table.name])

    def translated(self, query: str) -> tuple[str, list[str]]:
        """Return a query in the engine's own SQL, with the tables that it names, and its columns."""
        import sqlglot

        tree = sqlglot.parse_one(query, read="duckdb")
        tables = [name for name in self.known if any(each.name == name for each in tree.find_all(sqlglot.exp.Table))]
        for name in tables:
            self.backend._run_pre_execute_hooks(self.known[name])  # tables in memory are registered
        listed = ", ".join(f"{name} AS ({self.backend.compile(self.known[name])})" for name in tables)
        if self.name == "postgres":
            tree = tree.transform(_in_postgres)
        text = tree.sql(dialect=self.backend.dialect)
        return f"WITH {listed} {text}" if listed else text, [each.alias for each in tree.expressions]


def _in_postgres(node: Any) -> Any:
    """Translate what sqlglot does not: PostgreSQL has no TRY_CAST, and hashes bytes."""
    from sqlglot import exp

    if isinstance(node, exp.TryCast):
        matches = exp.RegexpLike(this=node.this, expression=exp.Literal.string(NUMBER))
        return exp.Case().when(matches, exp.Cast(this=node.this, to=node.to))
    if isinstance(node, exp.SHA2):
        return exp.SHA2(this=exp.func("convert_to", node.this, exp.Literal.string("UTF8")), length=node.args["length"])
    return node


# -------------------------------------------------------------------- opening engines


def connected(source: Source) -> Engine:
    """Return the engine at a URL."""
    ibis()
    return _postgres(source.url) if source.scheme in POSTGRES else _spark(source.url)


def _postgres(url: str) -> Engine:
    """Open one transaction that sees one state of the tables, even if others change them, and leaves nothing behind.

    The counting query checks in one pass what it counts. The queries that describe problems come after it and see the
    same state of the tables. A view with a volatile function can still differ from query to query.
    """
    psycopg, engine = _psycopg(), _postgres_backend()
    try:
        connection = psycopg.connect(url, autocommit=False)
    except psycopg.Error as error:
        problem = _why_not(str(error))
        raise DataError(f"PostgreSQL cannot be reached: {problem}") from None
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT 1")  # everything after this is within this transaction
    backend = engine.from_connection(connection)

    def locate(name: str) -> Any:
        listed = (
            "SELECT nspname, relname, pg_class.oid FROM pg_class JOIN pg_namespace ON relnamespace = pg_namespace.oid "
            "WHERE pg_class.oid = coalesce(to_regclass(quote_ident(%s)), to_regclass(%s)) "
            "AND relkind IN ('r', 'v', 'm', 'f', 'p') AND has_table_privilege(pg_class.oid, 'SELECT')"
        )
        try:
            with connection.transaction():
                found = connection.execute(listed, [name, name]).fetchone()
        except psycopg.Error:  # not a valid name of a table
            return None
        if found is None:
            return None
        schema, relation, number = found
        return backend.table(relation, database=schema), _server(connection, number)

    return Engine(backend, connection.close, locate, why=_what_failed)


def _server(connection: Any, number: int) -> Any:
    """Return the identity of a table: the server's own number, the database's and the table's."""
    asked = (
        "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "FROM pg_control_system()"
    )
    try:
        with connection.transaction():
            return (*connection.execute(asked).fetchone(), number)
    except Exception:
        return None  # some servers do not say


def _why_not(message: str) -> str:
    """Return why the connection failed, in fixed words: a driver's message may repeat its arguments."""
    reasons = {
        "password": f"the password is wrong or missing. {WHERE}",
        "authentication": "the server does not accept this user from this host",
        "definition of service": "the service is not in the service file",
        "does not exist": "the database or user does not exist",
        "resolve": "the host name is unknown",
        "not known": "the host name is unknown",
        "refused": "no server is listening at that address",
        "No such file": "no server is listening at that address",
        "timeout": "the server does not answer",
        "SSL": "an encrypted connection could not be made",
    }
    found = (reason for word, reason in reasons.items() if word in message)
    return next(found, "try the same URL with PostgreSQL's own program psql, which shows the reason")


def _what_failed(error: Exception) -> str | None:
    """Return the meaning of PostgreSQL's error code, which contains no value of a row."""
    code = getattr(error, "sqlstate", None) or ""
    classes = {
        "08": "the connection to PostgreSQL was lost",
        "42501": "this user may not read the table",
        "42P01": "the table does not exist any more",
        "53100": "PostgreSQL has no disk space left",
        "53200": "PostgreSQL is out of memory",
        "57014": "PostgreSQL cancelled the query; it may have a time limit for this user",
        "57P": "the server ended the connection, or is ending itself",
    }
    found = (words for start, words in classes.items() if code.startswith(start))
    lost = not code and type(error).__name__ in ("OperationalError", "InterfaceError")
    return next(found, classes["08"] if lost else None)


def _psycopg() -> Any:
    return import_extra("psycopg", "PostgreSQL", "tallytree[engines]")


def _postgres_backend() -> Any:
    """Return Ibis's backend with in-memory tables that are copied, so that no log has their cells, and end with the
    transaction.
    """
    from ibis.backends.postgres import Backend

    class Postgres(Backend):  # type: ignore[misc]
        def _register_in_memory_table(self, op: Any) -> None:
            named = self.compiler.type_mapper.to_string
            columns = ", ".join(f"{quoted(name)} {named(kind)}" for name, kind in op.schema.items())
            with self.con.transaction(), self.con.cursor() as cursor:
                cursor.execute(f"CREATE TEMPORARY TABLE {quoted(op.name)} ({columns}) ON COMMIT DROP")
                with cursor.copy(f"COPY {quoted(op.name)} FROM STDIN") as copy:
                    for batch in op.data.to_pyarrow(op.schema).to_batches():
                        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                            copy.write_row(row)
                cursor.execute(f"ANALYZE {quoted(op.name)}")

        def _finalize_memtable(self, name: str) -> None:
            pass  # it ends with the transaction

    return Postgres


def _spark(url: str) -> Engine:
    """Open a session on a cluster or of Spark Connect, which ends afterwards with all its views."""
    session = guarded("Connecting to Spark", lambda: spark.opened(url))
    backend = _spark_backend(session.session)

    def locate(name: str) -> Any:
        from pyspark.errors import AnalysisException

        try:
            frame = session.session.table(name)
            frame.columns  # noqa: B018  (Spark Connect looks for the table only now)
        except AnalysisException:
            return None
        return _create_view(frame, backend), _SameFrame(frame)

    return Engine(backend, session.close, locate, session.ask, spark.why)


@dataclass(frozen=True, eq=False, repr=False)
class _SameFrame:
    """Equal to another if Spark says that both frames have the same rows, under any name."""

    frame: Any

    def __eq__(self, other: object) -> bool:
        with suppress(Exception):  # of different sessions
            return isinstance(other, _SameFrame) and bool(self.frame.sameSemantics(other.frame))
        return False

    __hash__ = None  # type: ignore[assignment]


def is_spark(source: Any) -> bool:
    """Return whether it is a data frame of Spark or of Spark Connect."""
    return type(source).__module__.startswith("pyspark.sql.") and type(source).__name__ == "DataFrame"


def of_spark(frame: Any) -> Engine:
    """Return the session of a data frame, which is left unchanged afterwards; its only table is the frame."""
    conf, catalog = frame.sparkSession.conf, frame.sparkSession.catalog
    kept = {name: conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.mapKeyDedupPolicy")}
    backend = _spark_backend(frame.sparkSession)
    table = _create_view(frame, backend)

    def close() -> None:
        for name in backend.views:
            catalog.dropTempView(name)
        for name, value in kept.items():
            conf.set(name, value)

    return Engine(backend, close, lambda name: (table, _SameFrame(frame)), why=spark.why)


def _create_view(frame: Any, backend: Any) -> Any:
    name = f"tallytree_{secrets.token_hex(8)}"
    frame.createTempView(name)
    backend.views.append(name)
    return backend.table(name)


def _spark_backend(session: Any) -> Any:
    """Return Ibis's backend, which also lists the views that it creates."""
    ibis().pyspark  # noqa: B018  (so that it has its options)
    from ibis.backends.pyspark import Backend

    class Spark(Backend):  # type: ignore[misc]
        def _register_in_memory_table(self, op: Any) -> None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Spark Connect, about an option that Ibis gives it
                super()._register_in_memory_table(op)
            self.views.append(op.name)

    backend = Spark()
    backend.views = []
    backend.do_connect(session)
    return backend
