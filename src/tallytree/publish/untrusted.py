"""Read untrusted files: only regular files, and only up to plausible sizes.

Sizes, depths and numbers of rows are checked before anything is read. So no folder keeps its reader busy for hours or
fills the memory: an endless file, a pipe, a link out of the folder, JSON with a million brackets, or a tiny Parquet
file that claims a billion rows.
"""

from __future__ import annotations

import io
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallytree.core.errors import ReleaseError

MOST_BYTES = {".json": 64 << 20, ".csv": 16 << 30, ".parquet": 16 << 30}  # of one file; JSON is read in one piece
MOST_TEXT = 256 << 20  # of a CSV file that is read in one piece
MOST_FILES, MOST_PARTS = 100, 500  # in a release's folder, and in those of a partitioned one below it
DEEPEST_FOLDERS = 3  # within each other
DEEPEST = 64  # brackets within brackets
MOST_UNPACKED, FREE = 64, 1 << 20  # the largest ratio of unpacked to packed size, beyond a megabyte
MOST_GROUPS = 1_000_000  # of rows
MOST_ROWS = 1 << 40  # of any table; memory is checked separately
TEXT_PER_ROW = 1000  # the most bytes of text per row, on average, beyond the first MOST_TEXT
BYTES_PER_CELL = 40  # of memory for a check


# -------------------------------------------------------------------- files


@contextmanager
def opened(path: Path, *, most: int | None = None) -> Iterator[io.BufferedReader]:
    """Open a regular file for reading, or raise a ReleaseError. Links are not followed, and the call never blocks."""
    check_regular(path, most=most)
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # flags that the system has
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        raise ReleaseError(f"{path} cannot be read: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # it was replaced since the check
            raise ReleaseError(f"{path} is not a regular file, so it was not read")
        yield file


def check_regular(path: Path, *, most: int | None = None) -> None:
    """Raise a ReleaseError unless the path is a regular file of a plausible size."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ReleaseError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    if not stat.S_ISREG(found.st_mode):
        raise ReleaseError(f"{path} is {_kind(found.st_mode)}, not a regular file, so it was not read")
    limit = MOST_BYTES.get(path.suffix, MOST_TEXT) if most is None else most
    if found.st_size > limit:
        raise ReleaseError(f"{path} has {found.st_size:,} bytes, more than the {limit:,} that it can mean; not read")


def _kind(mode: int) -> str:
    kinds = {stat.S_ISLNK: "a symbolic link", stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a pipe"}
    return next((name for is_one, name in kinds.items() if is_one(mode)), "a device or a socket")


def strange_files(folder: Path, partitioned: tuple[str, ...] = (), deep: int = 0) -> Iterator[str]:
    """Yield one sentence for each entry of a folder that must not be read; folders `partitioned` may have
    subfolders.
    """
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number == (MOST_PARTS if deep else MOST_FILES):
                yield f"{folder} holds more than {number} files, so it is not a release"
                return
            if deep < DEEPEST_FOLDERS and entry.is_dir(follow_symlinks=False) and (entry.name in partitioned or deep):
                yield from strange_files(Path(entry.path), partitioned, deep + 1)
                continue
            try:
                check_regular(Path(entry.path))
            except ReleaseError as error:
                yield str(error)


# -------------------------------------------------------------------- JSON


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object, or raise a ReleaseError."""
    with opened(path) as file:
        value = parsed(file.read(MOST_BYTES[".json"] + 1), str(path))
    if not isinstance(value, dict):
        raise ReleaseError(f"{path} does not hold a JSON object")
    return value


def parsed(content: bytes | str, name: str) -> Any:
    """Return JSON of plausible depth without duplicate keys in an object; `name` is its name in errors."""
    try:
        value = json.loads(content, object_pairs_hook=_object)
    except RecursionError:
        raise ReleaseError(f"{name} has brackets in brackets in brackets, more than {DEEPEST} deep") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{name} cannot be read: {error}") from None
    layer = [value]
    for _ in range(DEEPEST):
        layer = [
            inner
            for outer in layer
            for inner in (outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ())
        ]
        if not layer:
            return value
    raise ReleaseError(f"{name} has brackets in brackets in brackets, more than {DEEPEST} deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's values. Duplicate keys are refused, since readers differ in which one they use."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found


# -------------------------------------------------------------------- Parquet


class ParquetRows:
    """The rows of a Parquet file, one row group at a time; use as a context. More than `most` rows are refused."""

    def __init__(self, path: Path, *, most: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        check_regular(path)
        self.name, self.bytes = path.name, path.stat().st_size
        try:
            self.schema = pq.read_schema(path)
            self._texts = [field.name for field in self.schema if pa.types.is_string(field.type)]
            # Dictionaries stay encoded: a long text that a million rows share is stored once.
            self._file = pq.ParquetFile(path, read_dictionary=self._texts)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise ReleaseError(f"{path} cannot be read: {error}") from None
        try:
            self._check(most)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> ParquetRows:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self._file.metadata.num_rows)

    @property
    def metadata(self) -> Any:
        """Return the metadata of the footer."""
        return self._file.metadata

    @property
    def columns(self) -> Any:
        """Return the columns of the Parquet schema."""
        return self._file.schema

    @property
    def groups(self) -> range:
        """Return the numbers of the row groups."""
        return range(self._file.num_row_groups)

    def group(self, number: int) -> Any:
        """Return the rows of a row group as a pyarrow Table."""
        import pyarrow as pa

        try:
            rows = self._file.read_row_group(number)
            for name in self._texts:
                self._check_length(rows[name], rows.num_rows)
            return rows.cast(self.schema)
        except (OSError, pa.ArrowException) as error:
            raise ReleaseError(f"{self.name} cannot be read: {error}") from None

    def batches(self) -> Iterator[Any]:
        """Yield all rows as pyarrow record batches."""
        for number in self.groups:
            yield from self.group(number).to_batches()

    def _check(self, most: int) -> None:
        metadata = self._file.metadata
        if not 0 <= metadata.num_rows <= most or metadata.num_row_groups > MOST_GROUPS:
            raise ReleaseError(
                f"{self.name} says that it has {metadata.num_rows:,} rows, and at most {most:,} are expected; not read"
            )
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        if any(group.num_rows < 0 for group in groups) or sum(group.num_rows for group in groups) != metadata.num_rows:
            raise ReleaseError(f"{self.name} does not have as many rows as it says")
        # Columns are not inspected one by one: that makes Arrow end the process on a damaged one.
        unpacked = sum(group.total_byte_size for group in groups)
        if any(group.total_byte_size < 0 for group in groups) or unpacked > MOST_UNPACKED * self.bytes + FREE:
            raise ReleaseError(f"{self.name}: {self.bytes:,} bytes would become {unpacked:,}; not unpacked")

    def _check_length(self, column: Any, rows: int) -> None:
        """Refuse texts that would take far more memory than rows of a release, before they are decoded for each row."""
        import pyarrow as pa
        import pyarrow.compute as pc

        length = 0
        for chunk in column.chunks:
            if pa.types.is_dictionary(chunk.type):
                length += pc.sum(pc.take(pc.binary_length(chunk.dictionary), chunk.indices)).as_py() or 0
            else:
                length += pc.sum(pc.binary_length(chunk)).as_py() or 0
        if length > MOST_TEXT + TEXT_PER_ROW * rows:
            raise ReleaseError(f"{self.name} holds texts of {length:,} bytes in {rows:,} rows; not read")


# -------------------------------------------------------------------- memory


def check_room(cells: int, name: str) -> None:
    """Raise a ReleaseError if checking so many cells takes more memory than this machine has."""
    wanted, there = cells * BYTES_PER_CELL, _memory()
    if there is not None and wanted > there:
        raise ReleaseError(
            f"{name} describes {cells:,} cells (regions × sizes), which takes {wanted / 2**30:,.0f} GB of memory to "
            f"check; this machine has {there / 2**30:,.0f} GB"
        )


def _memory() -> int | None:
    """Return the machine's memory in bytes; None if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def all_rows(path: Path, *, most: int = MOST_ROWS) -> Any:
    """Return all rows of a Parquet file at once, if they fit into memory."""
    import pyarrow as pa

    with ParquetRows(path, most=most) as file:
        check_room(file.rows, file.name)
        return pa.concat_tables([file.schema.empty_table(), *map(file.group, file.groups)])
