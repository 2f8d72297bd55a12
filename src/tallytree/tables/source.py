"""Open any source of rows: a path, a glob, Arrow data, a `Source`, a Spark data frame, an Ibis table.

Files and Arrow data are read by a new DuckDB connection, which spills to a private directory, encrypted. An engine's
errors quote rows, so each is replaced by a `DataError` that names only its class.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tallytree.core.csv_files import LONGEST_LINE, UTF_8, CsvFormat, csv_problem, is_utf_16, long_last_line
from tallytree.core.disk import lock
from tallytree.core.errors import DataError, SpecError
from tallytree.core.numbers import short
from tallytree.core.office_files import office_rows
from tallytree.core.progress import Progress, Stage, silent
from tallytree.core.public_table import csv_rows
from tallytree.tables import engines, spark
from tallytree.tables.address import Source, kind_of, paths_of
from tallytree.tables.guard import EngineError, guarded
from tallytree.tables.sql import Table, literal, quoted

READING = "reading the data"
SECONDS = 0.2  # between two queries of DuckDB's progress
MANY = 10_000  # rows of Arrow data
NAMES = count()
PREFIX = "tallytree-spill-"
LOCK = "in-use"
OWN_LIST = (
    "groups is the microdata themselves; expected another table, with one row for each group. Which groups have rows "
    "is private: if there is no such table, leave groups out"
)
Result = TypeVar("Result")


# -------------------------------------------------------------------- DuckDB


def waited(connection: Any, work: Callable[[], Result], tell: Callable[[float], None]) -> Result:
    """Return the result of `work`, which runs queries on this connection; meanwhile `tell` receives the percentage
    done.

    An interrupt, or any error that `tell` raises, ends the query and is raised once the query has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # interrupts are for the main thread
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work)
        try:
            while not wait([future], timeout=SECONDS).done:
                tell(connection.query_progress())  # below 0 if unknown
        except BaseException:
            while not wait([future], timeout=SECONDS).done:
                connection.interrupt()  # again, in case it came between two queries
            raise
        return future.result()


class DuckDB:
    """A connection to DuckDB: tallytree's own, or one of Ibis."""

    name = "duckdb"

    def __init__(self, con: Any) -> None:
        self.con = con
        self.made: list[str] = []  # views and tables of imported data

    def run(self, doing: str, work: Callable[[], Result], tell: Callable[[float], None]) -> Result:
        """Run work that queries the engine, behind the guard; meanwhile `tell` receives the percentage done."""
        return guarded(doing, lambda: waited(self.con, work, tell))

    def table(self, name: str) -> Table:
        """Return a table by its name, or by a query in parentheses."""
        return Table(name, {column: kind for column, kind, *_ in self.con.execute(f"DESCRIBE FROM {name}").fetchall()})

    def put(self, data: Any, *, take: bool = True) -> Table:
        """Return Arrow data, or a mapping of columns, as a table.

        Data of many rows are copied into a table of DuckDB's own, because DuckDB does not know the progress of a query
        that scans Arrow data.
        """
        import pyarrow as pa

        name, rows = f"tallytree_{next(NAMES)}", pa.table(data)
        self.con.register(name, rows)
        self.made.append(f"VIEW {name}")
        if take and rows.num_rows >= MANY:
            self.con.execute(f"CREATE TEMP TABLE {name}_taken AS SELECT * FROM {name}; DROP {self.made.pop()}")
            name = f"{name}_taken"
            self.made.append(f"TABLE {name}")
        return self.table(name)

    def copy(self, parts: Iterable[Any]) -> Table:
        """Copy rows that are read once, part by part, to a table of DuckDB's own."""
        name, incoming = f"tallytree_{next(NAMES)}", f"tallytree_{next(NAMES)}"
        for number, part in enumerate(parts):
            self.con.register(incoming, part)
            into = f"INSERT INTO {name}" if number else f"CREATE TEMP TABLE {name} AS"
            self.con.execute(f"{into} SELECT * FROM {incoming}; DROP VIEW {incoming}")
        self.made.append(f"TABLE {name}")
        return self.table(name)

    def fetch(self, query: str, kind: str = "") -> Any:
        """Return the rows of a small result as an Arrow table."""
        return self.con.sql(query).to_arrow_table()

    def rows(self, table: Table) -> Any:
        """Return all rows of a public table."""
        return self.fetch(f"SELECT * FROM {table.source}")

    def batches(self, query: str) -> Any:
        """Return the rows of a large result, batch by batch."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_stream(self.con.sql(query))

    def close(self) -> None:
        """Restore the connection to its earlier state."""
        for each in self.made:
            self.con.execute(f"DROP {each}")


@dataclass(frozen=True)
class Opened:
    """A table and the engine that runs its queries."""

    engine: Any  # a DuckDB, or an Engine of `engines`
    table: Table
    progress: Progress = silent
    identity: Any = None  # a table's unique identity, if the engine has one

    def fetch(self, doing: str, query: str, kind: str = "int64") -> Any:
        """Return the rows of a small result, of numbers or of texts, as an Arrow table."""
        return self.run(doing, lambda: self.engine.fetch(query, kind))

    def put(self, data: Any) -> Table:
        """Copy Arrow data or a mapping of columns to the engine as a small table that is not private."""
        taken: Table = self.run("Importing a table", lambda: self.engine.put(data))
        return taken

    def run(self, doing: str, work: Callable[[], Result]) -> Result:
        """Run work of the engine behind the guard; DuckDB reports progress and can be interrupted."""
        about = f"{doing[0].lower()}{doing[1:]}"

        def tell(percent: float) -> None:
            of = 100 if 0 <= percent <= 100 else 0  # otherwise it is unknown
            self.progress(Stage(READING, int(percent) if of else 0, of, about, unit="%"))

        done: Result = self.engine.run(doing, work, tell)
        return done


class Workspace:
    """A new in-memory DuckDB, created on the first call, with its CSV files and the engines that were opened."""

    def __init__(self, directory: str, memory_limit: str | None, form: CsvFormat) -> None:
        self.directory, self.memory_limit, self.form = directory, memory_limit, form
        self.own: DuckDB | None = None
        self.csv_files: list[str] = []
        self.opened: dict[Any, DuckDB | engines.Engine] = {}  # by URL, or by the owner of the connection

    def __call__(self) -> DuckDB:
        if self.own is None:
            self.own = guarded("Starting DuckDB", lambda: _duckdb(self.directory, self.memory_limit))
        return self.own

    def engine(self, key: Any, opened: Callable[[], DuckDB | engines.Engine]) -> Any:
        """Return an engine, opened once."""
        if key not in self.opened:
            self.opened[key] = opened()
        return self.opened[key]


@contextmanager
def workspace(memory_limit: str | None, form: CsvFormat = UTF_8) -> Iterator[Workspace]:
    """Open a workspace for CSV files of this form; its spill files are removed with it. If the engine refuses, broken
    CSV files are named.
    """
    if memory_limit is not None and not isinstance(memory_limit, str):
        raise SpecError(f"memory_limit is {short(memory_limit)}; expected a text such as '4GB'")
    with spill_directory() as directory:
        connect = Workspace(directory, memory_limit, form)
        try:
            yield connect
        except EngineError:
            if found := next(filter(None, (csv_problem(path, form) for path in connect.csv_files)), None):
                raise DataError(found) from None
            raise
        finally:
            for engine in reversed(connect.opened.values()):  # the first one knows a session's earlier state
                guarded("Closing the connection", engine.close)
            if connect.own is not None:
                guarded("Closing DuckDB", connect.own.con.close)


def _duckdb(directory: str, memory_limit: str | None) -> DuckDB:
    import duckdb

    config: dict[str, Any] = {} if memory_limit is None else {"memory_limit": memory_limit}
    config |= {"preserve_insertion_order": False, "autoinstall_known_extensions": False}
    connection = duckdb.connect(config=config | {"temp_directory": directory})
    # In a notebook without ipywidgets DuckDB refuses both settings, and shows nothing anyway.
    with suppress(duckdb.Error):
        connection.execute("SET enable_progress_bar_print = false")  # no progress bar on the standard output
        connection.execute("SET enable_progress_bar = true")  # so that DuckDB knows its progress
    connection.execute("SET python_enable_replacements = false")  # no variable of Python stands for a table
    connection.execute("SET TimeZone = 'UTC'")
    _encrypt_spilled(connection)
    return DuckDB(connection)


def _encrypt_spilled(connection: Any) -> None:
    """Encrypt spill files, with a key that DuckDB creates and keeps in memory.

    If DuckDB's extension httpfs is installed, OpenSSL creates the key. Otherwise DuckDB's own random generator does,
    which is not cryptographic: the files of a killed process are then not plain text, and no more is promised.
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
    """Open the microdata on the engine that holds them."""
    engine, found, identity = _open(source, table, "source", connect)
    return Opened(engine, found, progress, identity)


def open_public_groups(groups: Any, table: str | None, connect: Workspace) -> Opened:
    """Open a public groups table without the microdata."""
    engine, found, _ = _open(groups, table, "groups", connect)
    return Opened(engine, found)


def open_groups(groups: Any, table: str | None, beside: Opened, connect: Workspace, *, private: bool) -> Opened | None:
    """Open the groups table, if there is one, on the engine of the microdata.

    A public table is copied there through memory if needed. A private one must be there already.
    """
    if groups is None:
        return None
    engine, found, identity = _open(groups, table, "groups", connect)
    opened = Opened(engine, found)
    if identity is not None and identity == beside.identity:
        raise SpecError(OWN_LIST)
    if engine is not beside.engine:
        if private:
            raise SpecError(
                "groups is private and on another engine than the rows: tallytree does not copy private tables from "
                "engine to engine. Have both in files or in tables of one engine, or set groups_are_public if the list "
                "is public"
            )
        moved = opened.run("Reading the groups table", lambda: engine.rows(found))
        found = beside.put(moved)
    return Opened(beside.engine, found, beside.progress)


def named(source: Any, table: str | None, option: str) -> tuple[Any, str | None]:
    """Return a source and its table: a `Source` of a DuckDB file becomes that file with its table."""
    if isinstance(source, Source):
        if table is not None:
            raise SpecError(f"the source already names its table; leave {option} out")
        return (source, None) if source.path is None else (source.path, source.table)
    return source, table


def _open(source: Any, table: str | None, option: str, connect: Workspace) -> tuple[Any, Table, Any]:
    """Return the engine of a source, the table there, and its identity if the engine has one."""
    source, table = named(source, table, _table_option(option))
    if isinstance(source, Source):
        engine = connect.engine(source.url, lambda: engines.connected(source))
        found, identity = engine.find(source.table or "")
        return engine, engine.table(found), identity
    if not engines.is_spark(source) and not engines.is_ibis(source):
        return connect(), _load(connect, source, table, option), None
    _refuse_table_name(table, option)
    if engines.is_spark(source):
        opened = partial(guarded, "Opening the data frame", lambda: engines.of_spark(source), spark.why)
        engine = connect.engine(id(source), opened)
        found, identity = engine.find("")
        return engine, engine.table(found), identity
    backend = engines.backend_of(source)
    if backend is not None and backend.name != "duckdb":
        engine = connect.engine(id(backend), lambda: engines.Engine(backend))
        return engine, engine.table(source), None
    duckdb = connect() if backend is None else connect.engine(id(backend), lambda: DuckDB(backend.con))
    query = partial(engines.on_duckdb, duckdb.con, source, backend)
    return duckdb, guarded("Opening the Ibis table", lambda: duckdb.table(query())), None


def open_in_order(
    source: Any, option: str, connect: Workspace, progress: Progress = silent, *, table: str | None = None
) -> Opened:
    """Open a file or Arrow table on a new DuckDB, whose rows arrive in the table's order."""
    engine = connect()
    guarded("Starting DuckDB", lambda: engine.con.execute("SET preserve_insertion_order = true"))
    return Opened(engine, _load(connect, source, table, option), progress)


def _table_option(option: str) -> str:
    """Return the option that names the table of a source."""
    return "table" if option == "source" else "groups_table"


def _refuse_table_name(table: str | None, option: str) -> None:
    if table is not None:
        raise SpecError(
            f"{_table_option(option)} names a table of a DuckDB file or a sheet of a workbook; leave it out for "
            "other sources"
        )


def _load(connect: Workspace, source: Any, table: str | None, option: str) -> Table:
    """Load files or Arrow data on tallytree's own DuckDB."""
    engine = connect()
    paths = paths_of(source, option)
    kind = "Arrow" if paths is None else kind_of(paths, option)
    if kind == "duckdb":
        return _attached(engine, paths or [], table, option)
    if kind == "office":
        return _office(engine, paths or [], table, option)
    _refuse_table_name(table, option)
    if kind == "csv":
        connect.csv_files.extend(paths or [])
        return _csv(engine, paths or [], connect.form, option)
    if kind == "parquet":
        return guarded(
            f"Opening the Parquet {option}",
            lambda: engine.table(f"read_parquet({literal(paths)}, hive_types_autocast = false)"),
        )
    if not hasattr(source, "__arrow_c_stream__"):
        raise SpecError(
            f"{option} is of type {type(source).__name__}; expected a path, a list of paths, a Source, an Ibis table, "
            "a Spark data frame, or a table with the Arrow interface (pyarrow, pandas, polars)"
        )
    return guarded(f"Importing the Arrow {option}", lambda: engine.put(source, take=False))


def _csv(engine: DuckDB, paths: Sequence[str], form: CsvFormat, option: str) -> Table:
    """Read all columns as text, so that 01001 keeps its zero; nothing about the format is guessed from the rows."""
    doing = f"Reading the first line of the CSV {option}"
    if wide := next(filter(None, (guarded(doing, partial(is_utf_16, path, form)) for path in paths)), None):
        raise SpecError(f"{option}: {wide}")
    first_lines = {guarded(doing, partial(form.first_line, path)) for path in paths}
    if len(first_lines) > 1:
        raise SpecError(f"{option}: the CSV files have different columns; expected the same first line in all")
    header, delimiter = first_lines.pop()
    if not header or "" in header or len(set(header)) < len(header):
        raise SpecError(f"{option}: the CSV file's first line must give each column a different name")
    doing = f"Reading the last line of the CSV {option}"
    if long := next(filter(None, (guarded(doing, partial(long_last_line, path)) for path in paths)), None):
        raise DataError(f"{option}: {long}")
    if form.is_utf_8:
        columns = dict.fromkeys(header, "VARCHAR")
        how = {"auto_detect": False, "header": True, "delim": delimiter, "quote": '"', "escape": '"'}
        listed = ", ".join(
            f"{name} = {literal(value)}"
            for name, value in {**how, "columns": columns, "max_line_size": LONGEST_LINE}.items()
        )
        text = f"read_csv({literal(list(paths))}, {listed})"
        found = guarded(f"Opening the CSV {option}", lambda: engine.table(text))
    else:
        decoded = (partial(csv_rows, path, form) for path in paths)
        found = guarded(f"Reading the CSV {option}", lambda: engine.copy(rows() for rows in decoded))
    return replace(found, decimal=form.decimal)


def _office(engine: DuckDB, paths: Sequence[str], sheet: str | None, option: str) -> Table:
    """Copy workbooks, and files of Stata and SPSS, whose cells are all texts."""
    doing = f"Reading the {option}"
    parts = [guarded(doing, partial(office_rows, path, sheet)) for path in paths]
    if len({tuple(part.schema.names) for part in parts}) > 1:
        raise SpecError(f"{option}: the files have different columns; expected the same in all")
    return guarded(doing, lambda: engine.copy(parts))


def _attached(engine: DuckDB, paths: Sequence[str], table: str | None, option: str) -> Table:
    if len(paths) > 1:
        raise SpecError(f"{option}: expected one DuckDB file, not several")
    with open(paths[0], "rb") as file:
        if file.read(12)[8:] != b"DUCK":
            raise SpecError(f"{option}: {paths[0]} is not a DuckDB file")
    path, catalog = str(Path(paths[0]).absolute()), f"tallytree_{option}"
    known = "select database_name from duckdb_databases() where path = ?"  # some versions do not attach a file twice
    if found := guarded(f"Opening the DuckDB {option}", lambda: engine.con.execute(known, [path]).fetchone()):
        (catalog,) = found
    else:
        attach = f"ATTACH {literal(path)} AS {catalog} (READ_ONLY)"
        guarded(f"Opening the DuckDB {option}", lambda: engine.con.execute(attach))
    listing = "select table_name from information_schema.tables where table_catalog = ? and table_schema = 'main'"
    listed = guarded(f"Opening the DuckDB {option}", lambda: engine.con.execute(listing, [catalog]).fetchall())
    tables = [name for (name,) in listed]
    wanted = "table" if option == "source" else "groups_table"
    if table is None and len(tables) != 1:
        raise SpecError(f"{option}: the DuckDB file has {len(tables)} tables; name one with {wanted}=…")
    if table is not None and table not in tables:
        raise SpecError(f"{option}: the DuckDB file has no table {table!r}; it has {', '.join(sorted(tables))}")
    name = f"{catalog}.main.{quoted(table or tables[0])}"
    return guarded(f"Opening the DuckDB {option}", lambda: engine.table(name))


# -------------------------------------------------------------------- microdata are not their own public list
# The origins of rows are compared, never the rows: objects, files by device and number (so links count), tables of
# a DuckDB file, and the tables in an Ibis expression. A copy cannot be noticed.


def refuse_own_list(source: Any, table: str | None, groups: Any, groups_table: str | None) -> None:
    """Refuse a groups table that is the microdata."""
    if _same(source, table, groups, groups_table):
        raise SpecError(OWN_LIST)


def refuse_private_file(public: Any, private: Any, what: str) -> None:
    """Refuse a public input, such as a prior, that is one of the files of the microdata, or their table."""
    if isinstance(public, Source):
        if _same(private, None, public, None):
            raise SpecError(f"{what} is the table of the microdata; expected something public, made without them")
        return
    if files := _shared_files(public, private):
        raise SpecError(
            f"{what} is a file of the microdata ({files[0]}); expected something public, made without them: what "
            "is taken from it is published or decides what is, and no budget pays for that"
        )


def _same(source: Any, table: str | None, groups: Any, groups_table: str | None) -> bool:
    if source is groups and table == groups_table:
        return True
    if isinstance(source, Source) and source == groups:
        return True  # under another URL, it is noticed on opening, if the engine identifies tables
    (source, table), (groups, groups_table) = named(source, table, "table"), named(groups, groups_table, "groups_table")
    if engines.is_ibis(source) and engines.is_ibis(groups):
        # All tables of the microdata are in the list, too. (Microdata that were joined with a public list are not.)
        return source.equals(groups) or (
            bool(engines.tables_of(source)) and engines.tables_of(source) <= engines.tables_of(groups)
        )
    shared = _shared_files(groups, source)
    if not shared or kind_of(shared, "groups") != "duckdb":
        return bool(shared)
    # Two tables of one DuckDB file are two sources; without a name the only table is meant.
    return table == groups_table or None in (table, groups_table)


def _shared_files(one: Any, other: Any) -> list[str]:
    """Return the files of `one` that are also among those of `other`, under any path."""
    private = {_identity(path) for path in _files(other)}
    return [path for path in _files(one) if _identity(path) in private]


def _files(source: Any) -> list[str]:
    """Return the existing files of a source; opening it reports the missing ones."""
    try:
        return paths_of(source, "source") or []
    except SpecError:
        return []


def _identity(path: str) -> tuple[int, int]:
    """Return what os.path.samefile compares."""
    found = Path(path).stat()
    return found.st_dev, found.st_ino


# -------------------------------------------------------------------- the directory that DuckDB spills to
# Only its owner can read it, and it is removed afterwards. A killed process removes nothing: its directory is found by
# its name and its lock file. The next run that can take the lock knows that nobody uses the directory.


@contextmanager
def spill_directory() -> Iterator[str]:
    """Create a directory with permissions for its owner alone, in the system's place for temporary files."""
    with contextlib.ExitStack() as stack:
        try:
            remove_stale()
            directory = Path(tempfile.mkdtemp(prefix=PREFIX))  # mode 700
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            _keep_files_private(directory)
            # Locked first and named afterwards: a file of that name is locked as long as its process lives.
            private = open(directory / "new", "xb", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115
            lock(stack.enter_context(private))
            (directory / "new").rename(directory / LOCK)
        except OSError as error:
            raise DataError(
                f"cannot create a private folder for temporary files: {error.strerror}. Nothing was spent. Make room "
                "in the system's folder for them, or name another one in the variable TMPDIR."
            ) from None
        yield str(directory)


def remove_stale() -> None:
    """Remove the directories that killed processes left behind.

    A directory is removed if it has tallytree's name, belongs to this user, is open to nobody else, and holds a lock
    file of this user that no living process has locked. Anything else is left alone, including a directory without a
    lock file: it may have just been created, and no engine has written to it.
    """
    if sys.platform == "win32":
        return
    for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if _is_ours(path.lstat(), stat.S_IFDIR, 0o700):
                descriptor = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
                with open(descriptor, "r+b") as file:
                    if _is_ours(os.fstat(descriptor), stat.S_IFREG, 0o600):
                        lock(file)
                        shutil.rmtree(path)


def _is_ours(found: os.stat_result, kind: int, mode: int) -> bool:
    return found.st_uid == os.getuid() and found.st_mode == kind | mode


def _keep_files_private(directory: Path) -> None:
    """Make files created here readable by their owner alone, for any mode the engine asks for, if the system can.

    This sets a default access list of the directory; a umask would apply to the whole process. Nobody else can reach
    into the directory in any case: this is for copies of its files that keep their permissions.
    """
    if sys.platform != "linux":
        return
    owner, group, others, nobody = 0x01, 0x04, 0x20, 0xFFFFFFFF
    entries = ((owner, 7), (group, 0), (others, 0))
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", who, may, nobody) for who, may in entries)
    with contextlib.suppress(OSError):
        os.setxattr(directory, "system.posix_acl_default", listed)
