"""Find out how a CSV file is written, from its first line, and why it could not be read.

A refused file is examined after a reader refused it. The result names encodings, line numbers and numbers of cells,
never a cell.
"""

from __future__ import annotations

import codecs
import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from shlex import quote
from typing import cast

from tallytree.core.errors import SpecError

SEPARATORS = (",", ";", "\t", "|")
DECIMALS = (".", ",")
UTF_16 = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
AT_A_TIME = 1 << 20
LONGEST_LINE = 1 << 21  # bytes of a line, and characters of a cell: DuckDB's limit


@dataclass(frozen=True)
class CsvFormat:
    """How CSV files are written. Without a delimiter, each file's first line decides.

    Nothing depends on other lines. The first line names the columns, which are public, so one row more or less does
    not change how the others are read.
    """

    delimiter: str | None = None
    decimal: str = "."
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise SpecError(f"delimiter is {self.delimiter!r}; expected one character, such as ';'")
        if self.decimal not in DECIMALS:
            raise SpecError(f"decimal is {self.decimal!r}; choose '.' or ','")
        try:
            "a".encode(self.encoding)
        except (LookupError, ValueError):
            raise SpecError(
                f"unknown encoding {self.encoding!r}; expected one such as utf-8, windows-1252 or utf-16"
            ) from None

    @property
    def is_utf_8(self) -> bool:
        """Return whether files are UTF-8, with or without a byte order mark."""
        return codecs.lookup(self.encoding).name in ("utf-8", "utf-8-sig", "ascii")

    @property
    def codec(self) -> str:
        """Return the codec; a byte order mark is skipped."""
        return "utf-8-sig" if self.is_utf_8 else self.encoding

    def first_line(self, path: str) -> tuple[tuple[str, ...], str]:
        """Return the names of the columns and the delimiter: the one that gives the most columns."""
        usual = "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else ","
        wanted = (usual, *SEPARATORS) if self.delimiter is None else (self.delimiter,)
        found: list[tuple[tuple[str, ...], str]] = []
        for delimiter in wanted:
            with _bytes(path) as file, TextIOWrapper(file, encoding=self.codec, newline="") as text:
                try:
                    found.append((tuple(next(csv.reader(text, delimiter=delimiter, strict=True), ())), delimiter))
                except csv.Error:
                    if delimiter == wanted[-1] and not found:
                        raise
        return max(found, key=lambda each: len(each[0]))


UTF_8 = CsvFormat()


def guess_encoding(paths: Sequence[str]) -> str:
    """Return the encoding that files are probably written in. It depends on all bytes, so no reader calls this."""
    for path in paths:
        with _bytes(path) as file:
            if file.read(2) in UTF_16:
                return "utf-16"
    return "utf-8" if all(_not_text(path, UTF_8) is None for path in paths) else "windows-1252"


def is_utf_16(path: str, form: CsvFormat = UTF_8) -> str | None:
    """Return a sentence if the file begins like UTF-16; cheap enough to check every file."""
    if not form.is_utf_8:
        return None
    with _bytes(path) as file:
        start = file.read(1000)
    encoding = UTF_16.get(start[:2]) or ("UTF-16LE" if b"\0" in start[1::2] else "UTF-16BE" if b"\0" in start else None)
    return None if encoding is None else _not_utf_8(path, f"it looks like {encoding}", encoding)


def csv_problem(path: str, form: CsvFormat = UTF_8) -> str | None:
    """Return a sentence that says what is wrong with the file, or None."""
    try:
        return is_utf_16(path, form) or _not_text(path, form) or _long_line(path) or _wrong_line(path, form)
    except (OSError, EOFError) as error:
        return (
            f"{path} cannot be read: {error.strerror or type(error).__name__}" if isinstance(error, OSError) else None
        )


def open_quote(path: str) -> str | None:
    """Return a sentence if quotes are not balanced: some readers silently take the rest of the file for one cell."""
    with _bytes(path) as file:
        quotes = sum(block.count(b'"') for block in iter(lambda: file.read(AT_A_TIME), b""))
    return csv_problem(path) if quotes % 2 else None


def long_last_line(path: str) -> str | None:
    """Return a sentence if the last line is too long: DuckDB silently drops such a line."""
    with _bytes(path) as file:
        if not isinstance(file, gzip.GzipFile):
            file.seek(max(0, file.seek(0, 2) - LONGEST_LINE - 1))
        end = b""
        for block in iter(lambda: file.read(AT_A_TIME), b""):
            end = (end + block)[-LONGEST_LINE - 1 :]
    return None if len(end) <= LONGEST_LINE or b"\n" in end[:-1] else _long_line(path)


def _long_line(path: str) -> str | None:
    line, length = 1, 0
    with _bytes(path) as file:
        for block in iter(lambda: file.read(AT_A_TIME), b""):
            first = block.find(b"\n")
            length += len(block) if first < 0 else first
            if length > LONGEST_LINE:
                return f"line {line:,} of {path} is longer than {LONGEST_LINE:,} bytes, which is the limit"
            if first >= 0:  # the other lines of the block are shorter
                line, length = line + block.count(b"\n"), len(block) - block.rfind(b"\n") - 1
    return None


def _not_text(path: str, form: CsvFormat) -> str | None:
    decoder = codecs.getincrementaldecoder(form.encoding)()
    line = 1
    with _bytes(path) as file:
        while True:
            block = file.read(AT_A_TIME)
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                if not form.is_utf_8:
                    return f"line {line:,} of {path} has a byte that is not valid in the encoding {form.encoding}"
                return _not_utf_8(path, f"line {line:,} has a byte that is not valid in UTF-8", "windows-1252")
            line += block.count(b"\n")
            if not block:
                return None


def _wrong_line(path: str, form: CsvFormat) -> str | None:
    delimiter = form.first_line(path)[1]
    with _bytes(path) as file, TextIOWrapper(file, encoding=form.codec, newline="") as text:
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        wanted = None
        begins = 1
        most = csv.field_size_limit(LONGEST_LINE)
        try:
            for cells in reader:
                if wanted is None:
                    wanted = len(cells)
                elif cells and len(cells) != wanted:
                    return (
                        f"line {begins:,} of {path} has {len(cells):,} cells, but the first line names {wanted:,} "
                        'columns: quote cells with a delimiter or a line end in "…", and give every line all cells'
                    )
                begins = reader.line_num + 1
        except csv.Error as error:
            if str(error).startswith("field larger"):
                return (
                    f"the row that begins in line {begins:,} of {path} has a cell of more than {LONGEST_LINE:,} "
                    'characters, the longest that is read; or a quote (") before it is not closed'
                )
            return (
                f'the row that begins in line {begins:,} of {path} cannot be read: a quote (") is not closed, or text '
                'follows one; inside of quotes write "" for "'
            )
        finally:
            csv.field_size_limit(most)
    return None


def _not_utf_8(path: str, found: str, encoding: str) -> str:
    better = quote(str(Path(path).with_name(f"utf8-{Path(path).name.removesuffix('.gz')}")))
    source = f"gzip -dc {quote(path)} | iconv -f {encoding} -t UTF-8" if path.lower().endswith(".gz") else None
    command = source or f"iconv -f {encoding} -t UTF-8 {quote(path)}"
    return (
        f'{path} is not UTF-8: {found}. Set encoding = "{encoding.lower()}" in its section of the spec, save the file '
        f"as “CSV UTF-8”, or convert it, if {encoding} is what it is: {command} > {better}"
    )


def _bytes(path: str) -> BufferedReader:
    return cast(BufferedReader, gzip.open(path, "rb") if path.lower().endswith(".gz") else open(path, "rb"))
