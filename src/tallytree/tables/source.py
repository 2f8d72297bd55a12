"""Open anything that holds rows as an Ibis table: a path, a glob, Arrow data, or an Ibis table on any engine.

Files and Arrow data are read by a new DuckDB connection, which spills to a private directory (`spill`), encrypted.
An engine's errors quote rows, so each is replaced by a `DataError` that names its class and nothing else.
"""

from __future__ import annotations

import glob
import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TypeVar

from tallytree.csv_files import cell_separator, csv_problem, is_utf_16
from tallytree.errors import DataError, SpecError
from tallytree.numbers import short
from tallytree.progress import Progress, Stage, silent
from tallytree.tables.guard import EngineError, guarded
from tallytree.tables.spill import spill_directory
from tallytree.tables.waiting import waited

READING = "reading the data"
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


@dataclass(frozen=True)
class Opened:
    """A table and the engine that runs its queries."""

    backend: Any  # an Ibis backend
    table: Any  # an Ibis table expression
    progress: Progress = silent

    def fetch(self, doing: str, expression: Callable[[], Any]) -> Any:
        """The rows of a small result as a pyarrow table; the expression is built inside the guard, too."""
        return self.run(doing, lambda: self.backend.to_pyarrow(expression()))

    def run(self, doing: str, work: Callable[[], Result]) -> Result:
        """Work of the engine behind the guard; DuckDB says how far it is, and can be interrupted."""
        if self.backend.name != "duckdb":
            return guarded(doing, work)

        def tell(percent: float) -> None:
            of = 100 if 0 <= percent <= 100 else 0  # otherwise it is not known
            about = f"{doing[0].lower()}{doing[1:]}"
            self.progress(Stage(READING, int(percent) if of else 0, of, about, unit="%"))

        return guarded(doing, lambda: waited(self.backend.con, work, tell))


class Workspace:
    """A new in-memory DuckDB (as an Ibis backend), made when first called; and the CSV files that it was given."""

    def __init__(self, directory: str, memory_limit: str | None) -> None:
        self.directory, self.memory_limit = directory, memory_limit
        self.backend: Any = None
        self.csv_files: list[str] = []

    def __call__(self) -> Any:
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
            if connect.backend is not None:
                guarded("Closing DuckDB", connect.backend.disconnect)


def _duckdb(directory: str, memory_limit: str | None) -> Any:
    import duckdb
    import ibis

    limit = {} if memory_limit is None else {"memory_limit": memory_limit}
    backend = ibis.duckdb.connect(
        temp_directory=directory, preserve_insertion_order=False, autoinstall_known_extensions=False, **limit
    )
    # In a notebook without ipywidgets DuckDB refuses both settings, and shows nothing anyway.
    with suppress(duckdb.Error):
        backend.con.execute("SET enable_progress_bar_print = false")  # to the standard output
        backend.con.execute("SET enable_progress_bar = true")  # so that it knows how far it is
    _encrypt_spilled(backend.con)
    return backend


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
    if is_ibis(source):
        _refuse_table_name(table, "table")
        return Opened(_backend_of(source) or connect(), source, progress)
    return Opened(connect(), _load(connect, source, table, "source"), progress)


def open_groups(groups: Any, table: str | None, beside: Opened, connect: Workspace) -> Opened:
    """The public groups table, on the engine of the microdata; it is moved there through memory if need be."""
    import ibis

    if is_ibis(groups):
        _refuse_table_name(table, "groups_table")
        backend = _backend_of(groups)
        if backend is None or backend is beside.backend:
            return Opened(beside.backend, groups, beside.progress)
        moved = guarded("Reading the groups table", lambda: backend.to_pyarrow(groups))
        return Opened(beside.backend, ibis.memtable(moved), beside.progress)
    loaded = _load(connect, groups, table, "groups")
    if connect() is beside.backend:
        return Opened(beside.backend, loaded, beside.progress)
    moved = guarded("Reading the groups table", lambda: connect().to_pyarrow(loaded))
    return Opened(beside.backend, ibis.memtable(moved), beside.progress)


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


def is_ibis(source: Any) -> bool:
    """Is it an Ibis table?"""
    import ibis

    return isinstance(source, ibis.expr.types.Table)


def _backend_of(table: Any) -> Any:
    backends, _ = table._find_backends()
    if len(backends) > 1:
        raise SpecError("the Ibis table joins several engines; expected one on a single engine")
    return backends[0] if backends else None


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
        return guarded(f"Opening the Parquet {option}", lambda: backend.read_parquet(paths))
    _refuse_table_name(table, "table" if option == "source" else "groups_table")
    if not hasattr(source, "__arrow_c_stream__"):
        raise SpecError(
            f"{option} is of type {type(source).__name__}; expected a path, a list of paths, an Ibis table, or a "
            "table with the Arrow interface (pyarrow, pandas, polars)"
        )
    return guarded(f"Taking over the Arrow {option}", lambda: _registered(backend, source, option))


def _registered(backend: Any, source: Any, option: str) -> Any:
    import pyarrow as pa

    name = f"tallytree_{option}"
    backend.con.register(name, pa.table(source))
    return backend.table(name)


# -------------------------------------------------------------------- files


def paths_of(source: Any, option: str) -> list[str] | None:
    """The files that a path, glob or list of paths stands for; None if it is none of these."""
    if isinstance(source, str | PathLike):
        source = [source]
    elif not isinstance(source, Sequence) or not all(isinstance(path, str | PathLike) for path in source):
        return None
    elif not source:
        raise SpecError(f"{option} is an empty list; expected at least one path")
    paths: list[str] = []
    for path in map(fspath, source):
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
    return guarded(
        f"Opening the CSV {option}",
        lambda: backend.read_csv(
            list(paths),
            auto_detect=False,
            header=True,
            columns=dict.fromkeys(header, "VARCHAR"),
            delim=comma,
            quote='"',
            escape='"',
        ),
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
    catalog = f"tallytree_{option}"
    guarded(
        f"Opening the DuckDB {option}",
        lambda: backend.attach(Path(paths[0]).absolute(), name=catalog, read_only=True),
    )
    listing = "select table_name from information_schema.tables where table_catalog = ? and table_schema = 'main'"
    listed = guarded(f"Opening the DuckDB {option}", lambda: backend.con.execute(listing, [catalog]).fetchall())
    tables = [name for (name,) in listed]
    wanted = "table" if option == "source" else "groups_table"
    if table is None and len(tables) != 1:
        raise SpecError(f"{option}: the DuckDB file has {len(tables)} tables; name one with {wanted}=…")
    if table is not None and table not in tables:
        raise SpecError(f"{option}: the DuckDB file has no table {table!r}; it has {', '.join(sorted(tables))}")
    return guarded(
        f"Opening the DuckDB {option}", lambda: backend.table(table or tables[0], database=(catalog, "main"))
    )
