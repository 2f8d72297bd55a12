"""Open anything that holds rows: a path, a glob, Arrow data, a `Source`, a Spark data frame, an Ibis table.

Files and Arrow data are read by a new DuckDB connection, which spills to a private directory (`spill`), encrypted.
An engine's errors quote rows, so each is replaced by a `DataError` that names its class and nothing else.
"""

from __future__ import annotations

import glob
import gzip
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from tallytree.core.csv_files import LONGEST_LINE, cell_separator, csv_problem, is_utf_16, long_last_line
from tallytree.core.errors import DataError, SpecError
from tallytree.core.numbers import short
from tallytree.core.progress import Progress, Stage, silent
from tallytree.tables import spark
from tallytree.tables.address import Source, refuse_url
from tallytree.tables.duckdb_sql import DuckDB, literal, quoted
from tallytree.tables.engines import IbisWords, Remote, backend_of, connected, ibis_on, is_ibis, is_spark, of_spark
from tallytree.tables.guard import EngineError, guarded
from tallytree.tables.spill import spill_directory

READING = "reading the data"
SECONDS = 0.2  # between two looks at how far DuckDB is
OWN_LIST = (
    "groups is the microdata themselves; expected a public list of groups from another source. Which groups have rows "
    "is private: if there is no public list, leave groups out, and totals are private"
)
Result = TypeVar("Result")

KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "csv",
    ".tsv.gz": "csv",
    ".duckdb": "duckdb",
    ".db": "duckdb",
}


def waited(connection: Any, work: Callable[[], Result], tell: Callable[[float], None]) -> Result:
    """What `work` gives, which runs queries on this connection; meanwhile `tell` gets percentages that are done.

    An interrupt, or whatever `tell` raises, ends the query and is raised once it has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # interrupts are for the main thread
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work)
        try:
            while not wait([future], timeout=SECONDS).done:
                tell(connection.query_progress())  # below 0 where it is not known
        except BaseException:
            while not wait([future], timeout=SECONDS).done:
                connection.interrupt()  # again, if it came between two queries
            raise
        return future.result()


@dataclass(frozen=True)
class Opened:
    """A table and the engine that runs its queries."""

    backend: Any  # our DuckDB, or an Ibis backend
    table: Any  # a table of ours, or an Ibis table
    progress: Progress = silent
    identity: Any = None  # what tells a table of an engine from all others, if the engine says so
    remote: Remote | None = None  # if it was opened here

    @property
    def sql(self) -> Any:
        """What queries of this engine are written with, besides its tables."""
        return self.backend if isinstance(self.backend, DuckDB) else IbisWords(self.backend.name)

    def fetch(self, doing: str, expression: Callable[[], Any]) -> Any:
        """The rows of a small result as a pyarrow table; the expression is built inside the guard, too."""
        return self.run(doing, lambda: self.backend.to_pyarrow(expression()))

    def run(self, doing: str, work: Callable[[], Result]) -> Result:
        """Work of the engine behind the guard; DuckDB says how far it is, and can be interrupted."""
        about = f"{doing[0].lower()}{doing[1:]}"
        if self.backend.name != "duckdb":
            self.progress(Stage(READING, 0, 0, about, unit="%"))
            return guarded(doing, work) if (remote := self.remote) is None else remote.run(doing, work)

        def tell(percent: float) -> None:
            of = 100 if 0 <= percent <= 100 else 0  # otherwise it is not known
            self.progress(Stage(READING, int(percent) if of else 0, of, about, unit="%"))

        return guarded(doing, lambda: waited(self.backend.con, work, tell))


class Workspace:
    """A new in-memory DuckDB, made when first called; the CSV files that it was given; and engines that were opened."""

    def __init__(self, directory: str, memory_limit: str | None) -> None:
        self.directory, self.memory_limit = directory, memory_limit
        self.backend: DuckDB | None = None
        self.csv_files: list[str] = []
        self.remotes: list[Remote] = []
        self._by_url: dict[str, Remote] = {}

    def remote(self, source: Source) -> Remote:
        """The engine at a URL, opened once."""
        if source.url not in self._by_url:
            self._by_url[source.url] = connected(source)
            self.remotes.append(self._by_url[source.url])
        return self._by_url[source.url]

    def __call__(self) -> DuckDB:
        if self.backend is None:
            self.backend = guarded("Starting DuckDB", lambda: _duckdb(self.directory, self.memory_limit))
        return self.backend


@contextmanager
def workspace(memory_limit: str | None) -> Iterator[Workspace]:
    """A workspace; its spill files are removed with it. Where the engine refuses, broken CSV files are named."""
    if memory_limit is not None and not isinstance(memory_limit, str):
        raise SpecError(f"memory_limit is {short(memory_limit)}; expected a text such as '4GB'")
    with spill_directory() as directory:
        connect = Workspace(directory, memory_limit)
        try:
            yield connect
        except EngineError:
            if found := next(filter(None, map(csv_problem, connect.csv_files)), None):
                raise DataError(found) from None
            raise
        finally:
            for remote in reversed(connect.remotes):  # the first one knows how a session was
                guarded("Closing the connection", remote.close)
            if connect.backend is not None:
                guarded("Closing DuckDB", connect.backend.disconnect)


def _duckdb(directory: str, memory_limit: str | None) -> DuckDB:
    import duckdb

    config: dict[str, Any] = {} if memory_limit is None else {"memory_limit": memory_limit}
    config |= {"preserve_insertion_order": False, "autoinstall_known_extensions": False}
    connection = duckdb.connect(config=config | {"temp_directory": directory})
    # In a notebook without ipywidgets DuckDB refuses both settings, and shows nothing anyway.
    with suppress(duckdb.Error):
        connection.execute("SET enable_progress_bar_print = false")  # to the standard output
        connection.execute("SET enable_progress_bar = true")  # so that it knows how far it is
    connection.execute("SET python_enable_replacements = false")  # no variable of Python stands for a table
    connection.execute("SET TimeZone = 'UTC'")
    _encrypt_spilled(connection)
    return DuckDB(connection)


def _encrypt_spilled(connection: Any) -> None:
    """Have spill files encrypted, with a key that DuckDB makes and keeps in memory.

    With DuckDB's extension httpfs, if it is installed, OpenSSL makes the key. Without it DuckDB's own random generator
    does, which is not a cryptographic one: what a killed process left is then no plain text, and no more is promised.
    """
    import duckdb

    try:
        connection.execute("LOAD httpfs")
    except duckdb.Error:
        with suppress(duckdb.Error):  # older versions have no such setting
            connection.execute("SET force_mbedtls_unsafe = true")
    connection.execute("SET temp_file_encryption = true")


# -------------------------------------------------------------------- opening


def open_source(source: Any, table: str | None, connect: Workspace, progress: Progress = silent) -> Opened:
    """The microdata, where they are."""
    source, table = named(source, table, "table")
    if (elsewhere := _elsewhere(source, table, "table", connect)) is not None:
        remote, backend, found, identity = elsewhere
        return Opened(backend or ibis_on(connect()), found, progress, identity, remote)
    return Opened(connect(), _load(connect, source, table, "source"), progress)


def open_groups(groups: Any, table: str | None, beside: Opened, connect: Workspace) -> Opened:
    """The public groups table, on the engine of the microdata; it is moved there through memory if need be."""
    groups, table = named(groups, table, "groups_table")
    if (elsewhere := _elsewhere(groups, table, "groups_table", connect)) is not None:
        remote, backend, found, identity = elsewhere
        if identity is not None and identity == beside.identity:
            raise SpecError(OWN_LIST)
        if backend is beside.backend or (backend is None and beside.backend is not connect.backend):
            return Opened(beside.backend, found, beside.progress, remote=beside.remote)
        backend = backend or ibis_on(connect())
    else:
        remote, backend, found = None, connect(), _load(connect, groups, table, "groups")
        if backend is beside.backend:
            return Opened(backend, found, beside.progress)
    run = guarded if remote is None else remote.run
    moved = run("Reading the groups table", lambda: backend.to_pyarrow(found))
    return Opened(beside.backend, beside.sql.memtable(moved), beside.progress, remote=beside.remote)


def named(source: Any, table: str | None, option: str) -> tuple[Any, str | None]:
    """A source and the table that is meant: a `Source` of a DuckDB file is that file with its table."""
    if isinstance(source, Source):
        if table is not None:
            raise SpecError(f"the source names its table; leave {option} out")
        return (source, None) if source.path is None else (source.path, source.table)
    return source, table


def _elsewhere(source: Any, table: str | None, option: str, connect: Workspace) -> tuple[Any, Any, Any, Any] | None:
    """Engine, backend, table and identity of what is on another engine than our DuckDB; None if it is not."""
    if not isinstance(source, Source) and not is_ibis(source) and not is_spark(source):
        return None
    _refuse_table_name(table, option)
    if isinstance(source, Source):
        remote = connect.remote(source)
        return remote, remote.backend, *remote.table(source.table or "")
    if is_spark(source):
        remote = guarded("Opening the data frame", lambda: of_spark(source), spark.why)
        connect.remotes.append(remote)
        return remote, remote.backend, *remote.table("")
    return None, backend_of(source), source, None


def open_in_order(source: Any, option: str, connect: Workspace, progress: Progress = silent) -> Opened:
    """A file or Arrow table on a new DuckDB, whose rows arrive in the table's order."""
    backend = connect()
    guarded("Starting DuckDB", lambda: backend.con.execute("SET preserve_insertion_order = true"))
    return Opened(backend, _load(connect, source, None, option), progress)


def as_text(value: object) -> str:
    """A cell as a schema names it: whole numbers have no point, and nothing is an empty text.

    >>> [as_text(value) for value in (1.0, 2.5, True, None, float("nan"), "01")]
    ['1', '2.5', 'true', '', '', '01']
    """
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _refuse_table_name(table: str | None, option: str) -> None:
    if table is not None:
        raise SpecError(f"{option} names a table of a DuckDB file; leave it out for other sources")


def _load(connect: Workspace, source: Any, table: str | None, option: str) -> Any:
    backend = connect()
    if (paths := paths_of(source, option)) is not None:
        kind = kind_of(paths, option)
        if kind == "duckdb":
            return _attached(backend, paths, table, option)
        _refuse_table_name(table, "table" if option == "source" else "groups_table")
        if kind == "csv":
            connect.csv_files.extend(paths)
            return _csv(backend, paths, option)
        return guarded(
            f"Opening the Parquet {option}", lambda: backend.query(f"SELECT * FROM read_parquet({literal(paths)})")
        )
    _refuse_table_name(table, "table" if option == "source" else "groups_table")
    if not hasattr(source, "__arrow_c_stream__"):
        raise SpecError(
            f"{option} is of type {type(source).__name__}; expected a path, a list of paths, a Source, an Ibis table, "
            "a Spark data frame, or a table with the Arrow interface (pyarrow, pandas, polars)"
        )
    return guarded(f"Taking over the Arrow {option}", lambda: _registered(backend, source, option))


def _registered(backend: Any, source: Any, option: str) -> Any:
    import pyarrow as pa

    name = f"tallytree_{option}"
    backend.con.register(name, pa.table(source))
    return backend.query(f"SELECT * FROM {name}")


# -------------------------------------------------------------------- files


def paths_of(source: Any, option: str) -> list[str] | None:
    """The files that a path, glob or list of paths stands for; None if it is none of these."""
    if isinstance(source, Source) and source.path is not None:
        source = source.path
    if isinstance(source, str | PathLike):
        source = [source]
    elif not isinstance(source, Sequence) or not all(isinstance(path, str | PathLike) for path in source):
        return None
    elif not source:
        raise SpecError(f"{option} is an empty list; expected at least one path")
    paths: list[str] = []
    for path in map(fspath, source):
        refuse_url(path, option)
        found = [path] if Path(path).is_file() else sorted(glob.glob(path, recursive=True))
        if not found:
            raise SpecError(f"{option}: no file matches {path}")
        if directories := [each for each in found if not Path(each).is_file()]:
            raise SpecError(f"{option}: {directories[0]} is not a file; for a directory give {path}/**/*.parquet")
        paths.extend(found)
    return paths


def stem(path: str) -> str:
    """A file's name without the ending that says its kind."""
    name = Path(path).name
    endings = [ending for ending in KINDS if name.lower().endswith(ending)]
    return name[: -len(max(endings, key=len))] if endings else name


def kind_of(paths: Sequence[str], option: str) -> str:
    """What the files are, by the endings of their names: parquet, csv or duckdb."""
    kinds = set()
    for path in paths:
        endings = [ending for ending in KINDS if path.lower().endswith(ending)]
        if not endings:
            raise SpecError(f"{option}: {path} is of an unknown kind; expected one of {', '.join(KINDS)}")
        kinds.add(KINDS[endings[0]])
    if len(kinds) > 1:
        raise SpecError(f"{option}: files of several kinds ({', '.join(sorted(kinds))}); expected one kind")
    return kinds.pop()


def _csv(backend: Any, paths: Sequence[str], option: str) -> Any:
    """All columns as text, so that 01001 keeps its zero; nothing about the format is guessed from the rows."""
    commas = {cell_separator(path) for path in paths}
    doing = f"Reading the first line of the CSV {option}"
    if wide := next(filter(None, (guarded(doing, partial(is_utf_16, path)) for path in paths)), None):
        raise SpecError(f"{option}: {wide}")
    headers = {guarded(doing, partial(_header, path)) for path in paths}
    if len(headers) > 1 or len(commas) > 1:
        raise SpecError(f"{option}: the CSV files have different columns; expected the same first line in all")
    header, comma = headers.pop(), commas.pop()
    if not header or "" in header or len(set(header)) < len(header):
        raise SpecError(f"{option}: the CSV file's first line must give each column a different name")
    doing = f"Reading the last line of the CSV {option}"
    if long := next(filter(None, (guarded(doing, partial(long_last_line, path)) for path in paths)), None):
        raise DataError(f"{option}: {long}")
    form = {"header": True, "delim": comma, "quote": '"', "escape": '"', "columns": dict.fromkeys(header, "VARCHAR")}
    form["max_line_size"] = LONGEST_LINE
    how = ", ".join(f"{name} = {literal(value)}" for name, value in {"auto_detect": False, **form}.items())
    return guarded(
        f"Opening the CSV {option}", lambda: backend.query(f"SELECT * FROM read_csv({literal(list(paths))}, {how})")
    )


def _header(path: str) -> tuple[str, ...]:
    import csv

    opened = gzip.open if path.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        return tuple(next(csv.reader(file, delimiter=cell_separator(path), strict=True), ()))


def _attached(backend: Any, paths: Sequence[str], table: str | None, option: str) -> Any:
    if len(paths) > 1:
        raise SpecError(f"{option}: several DuckDB files; expected one")
    with open(paths[0], "rb") as file:
        if file.read(12)[8:] != b"DUCK":
            raise SpecError(f"{option}: {paths[0]} is not a DuckDB file")
    path, catalog = str(Path(paths[0]).absolute()), f"tallytree_{option}"
    known = "select database_name from duckdb_databases() where path = ?"  # some versions attach no file twice
    if found := guarded(f"Opening the DuckDB {option}", lambda: backend.con.execute(known, [path]).fetchone()):
        (catalog,) = found
    else:
        attach = f"ATTACH {literal(path)} AS {catalog} (READ_ONLY)"
        guarded(f"Opening the DuckDB {option}", lambda: backend.con.execute(attach))
    listing = "select table_name from information_schema.tables where table_catalog = ? and table_schema = 'main'"
    listed = guarded(f"Opening the DuckDB {option}", lambda: backend.con.execute(listing, [catalog]).fetchall())
    tables = [name for (name,) in listed]
    wanted = "table" if option == "source" else "groups_table"
    if table is None and len(tables) != 1:
        raise SpecError(f"{option}: the DuckDB file has {len(tables)} tables; name one with {wanted}=…")
    if table is not None and table not in tables:
        raise SpecError(f"{option}: the DuckDB file has no table {table!r}; it has {', '.join(sorted(tables))}")
    query = f"SELECT * FROM {catalog}.main.{quoted(table or tables[0])}"
    return guarded(f"Opening the DuckDB {option}", lambda: backend.query(query))
