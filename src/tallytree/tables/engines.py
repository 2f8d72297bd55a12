"""Other engines than our DuckDB, through Ibis: the one module that knows it. Ibis is an extra.

Our queries are written in words that Ibis and `duckdb_sql` share. They are methods of tables and columns; those that
go without a table are methods of `IbisWords` and of `DuckDB`.
"""

from __future__ import annotations

import secrets
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tallytree.core.errors import DataError, SpecError
from tallytree.tables import spark
from tallytree.tables.address import POSTGRES, WHERE, Source
from tallytree.tables.duckdb_sql import DuckDB, quoted
from tallytree.tables.guard import guarded

Result = TypeVar("Result")

# What Postgres, which has no TRY_CAST, takes for a number: of a size that it can hold.
NUMBER = r"^[+-]?([0-9]{1,100}(\.[0-9]{0,100})?|\.[0-9]{1,100})([eE][+-]?[0-9]{1,2})?$"


def ibis() -> Any:
    """The module; where it is not installed, the error says what to install."""
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


class IbisWords:
    """What has no table, in Ibis: literals, cases, tables in memory; and what engines write each in their own way."""

    def __init__(self, engine: str) -> None:
        self.engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(ibis(), name)

    def text_as_number(self, text: Any) -> Any:
        """A text as a floating-point number; null if it is none."""
        bare = text.strip()
        if self.engine != "postgres":
            return bare.try_cast("float64")
        return bare.re_search(NUMBER).ifelse(bare, ibis().null("string")).cast("float64")

    def sha256(self, text: Any) -> Any:
        """A hash of a text, in hexadecimal digits or as bytes: Ibis has no word for it on PostgreSQL."""
        if self.engine != "postgres":
            return text.hexdigest("sha256")
        builtin = ibis().udf.scalar.builtin

        @builtin  # type: ignore[untyped-decorator]
        def convert_to(text: str, encoding: str) -> bytes: ...  # type: ignore[empty-body]

        @builtin  # type: ignore[untyped-decorator]
        def sha256(content: bytes) -> bytes: ...  # type: ignore[empty-body]

        return sha256(convert_to(text, "UTF8"))


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


# -------------------------------------------------------------------- opening engines


@dataclass(frozen=True, eq=False, repr=False)
class Remote:
    """An engine that was opened here, through Ibis, and is left as it was."""

    backend: Any
    close: Callable[[], None]
    locate: Callable[[str], tuple[Any, Any]]  # from a table's name to an Ibis table, and what tells it from others
    ask: Callable[[Callable[[], Any]], Any] = lambda work: work()  # how work that queries it is done
    why: Callable[[Exception], str | None] = lambda error: None  # what an error of it means, in our words

    def table(self, name: str) -> tuple[Any, Any]:
        """The table of that name, and what it is known by, whatever it is called; None if that cannot be told."""
        found = guarded("Looking for the table", lambda: self.locate(name), self.why)
        if found is None:
            raise SpecError(
                f"the engine has no table {name!r}, or it may not be read; give its schema too, if it has one"
            )
        return found

    def run(self, doing: str, work: Callable[[], Result]) -> Result:
        """Work that queries the engine, behind the guard."""
        done: Result = guarded(doing, lambda: self.ask(work), self.why)
        return done


def connected(source: Source) -> Remote:
    """The engine at a URL."""
    ibis()
    return _postgres(source.url) if source.scheme in POSTGRES else _spark(source.url)


def _postgres(url: str) -> Remote:
    """One transaction that sees one state of the tables, whatever others change, and leaves nothing behind.

    The counting query checks what it counts by itself. The queries that say what is wrong come after it, and see the
    same state of the tables; a view with a volatile function can still differ from query to query.
    """
    psycopg, engine = _psycopg(), _postgres_backend()
    try:
        connection = psycopg.connect(url, autocommit=False)
    except psycopg.Error as error:
        problem = _why_not(str(error))
        raise DataError(f"PostgreSQL cannot be reached: {problem}") from None
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    connection.execute("SELECT 1")  # from here on whatever else begins and ends is within this transaction
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
        except psycopg.Error:  # it cannot be the name of a table
            return None
        if found is None:
            return None
        schema, relation, number = found
        return backend.table(relation, database=schema), _server(connection, number)

    return Remote(backend, connection.close, locate, why=_what_failed)


def _server(connection: Any, number: int) -> Any:
    """What tells a table from all others: the server's own number, the database's and the table's."""
    asked = (
        "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "FROM pg_control_system()"
    )
    try:
        with connection.transaction():
            return (*connection.execute(asked).fetchone(), number)
    except Exception:
        return None  # some servers do not tell


def _why_not(message: str) -> str:
    """Why there is no connection, in our words: a driver's may repeat what it was given."""
    reasons = {
        "password": f"the password is wrong or missing. {WHERE}",
        "authentication": "the server does not let this user in from here",
        "definition of service": "the service file has no such service",
        "does not exist": "there is no such database or user",
        "resolve": "there is no host of that name",
        "not known": "there is no host of that name",
        "refused": "no server listens there",
        "No such file": "no server listens there",
        "timeout": "the server does not answer",
        "SSL": "an encrypted connection could not be made",
    }
    found = (reason for word, reason in reasons.items() if word in message)
    return next(found, "try the same URL with PostgreSQL's own program psql, which says why")


def _what_failed(error: Exception) -> str | None:
    """What PostgreSQL's code of an error means, which holds no value of a row."""
    code = getattr(error, "sqlstate", None) or ""
    classes = {
        "08": "the connection to PostgreSQL was lost",
        "42501": "this user may not read the table",
        "42P01": "the table is not there any more",
        "53100": "PostgreSQL has no disk left",
        "53200": "PostgreSQL is out of memory",
        "57014": "PostgreSQL cancelled the query; it may have a limit of time for this user",
        "57P": "the server ended the connection, or is ending itself",
    }
    found = (words for start, words in classes.items() if code.startswith(start))
    lost = not code and type(error).__name__ in ("OperationalError", "InterfaceError")
    return next(found, classes["08"] if lost else None)


def _psycopg() -> Any:
    try:
        import psycopg
    except ImportError:
        raise SpecError("PostgreSQL needs psycopg: pip install 'tallytree[engines]'") from None
    return psycopg


def _postgres_backend() -> Any:
    """Ibis's backend, with tables in memory that vanish with the transaction and are copied: no log has their cells."""
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
            pass  # it goes with the transaction

    return Postgres


def _spark(url: str) -> Remote:
    """A session on a cluster or of Spark Connect, opened here and ended afterwards with all views in it."""
    session = guarded("Connecting to Spark", lambda: spark.opened(url))
    backend = _spark_backend(session.session)

    def locate(name: str) -> Any:
        from pyspark.errors import AnalysisException

        try:
            frame = session.session.table(name)
            frame.columns  # noqa: B018  (Spark Connect looks for the table only now)
        except AnalysisException:
            return None
        return _viewed(frame, backend), _SameFrame(frame)

    return Remote(backend, session.close, locate, session.ask, spark.why)


@dataclass(frozen=True, eq=False, repr=False)
class _SameFrame:
    """Equal to another if Spark says that both frames are of the same rows, by whatever name."""

    frame: Any

    def __eq__(self, other: object) -> bool:
        with suppress(Exception):  # of different sessions
            return isinstance(other, _SameFrame) and bool(self.frame.sameSemantics(other.frame))
        return False

    __hash__ = None  # type: ignore[assignment]


def is_spark(source: Any) -> bool:
    """Is it a data frame of Spark, or of Spark Connect?"""
    return type(source).__module__.startswith("pyspark.sql.") and type(source).__name__ == "DataFrame"


def of_spark(frame: Any) -> Remote:
    """The session of a data frame, left as it was afterwards; its one table is the frame."""
    conf, catalog = frame.sparkSession.conf, frame.sparkSession.catalog
    kept = {name: conf.get(name) for name in ("spark.sql.session.timeZone", "spark.sql.mapKeyDedupPolicy")}
    backend = _spark_backend(frame.sparkSession)
    table = _viewed(frame, backend)

    def close() -> None:
        for name in backend.views:
            catalog.dropTempView(name)
        for name, value in kept.items():
            conf.set(name, value)

    return Remote(backend, close, lambda name: (table, _SameFrame(frame)), why=spark.why)


def _viewed(frame: Any, backend: Any) -> Any:
    name = f"tallytree_{secrets.token_hex(8)}"
    frame.createTempView(name)
    backend.views.append(name)
    return backend.table(name)


def _spark_backend(session: Any) -> Any:
    """Ibis's backend, which keeps a list of the views that were made."""
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
