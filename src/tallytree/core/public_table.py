"""Public tables, all read in one way: CSV, Parquet, columns by name, or any data with the Arrow interface.

CSV is read as text, so that the code 01001 keeps its zero; the first line shows the delimiter. Nothing private is read
here, so errors may quote cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from os.path import isdir
from typing import Any

import numpy as np

from tallytree.core.arguments import PATH, expect
from tallytree.core.arrays import Floats
from tallytree.core.csv_files import LONGEST_LINE, UTF_8, CsvFormat, csv_problem, is_utf_16, open_quote
from tallytree.core.errors import SpecError
from tallytree.core.office_files import is_office_file, office_rows


def public_table(source: Any, what: str = "table", form: CsvFormat = UTF_8) -> Any:
    """Return a pyarrow Table; `what` names it in errors."""
    import pyarrow as pa

    if isinstance(source, str | PathLike):
        expect(source, PATH, f"the {what}")
    named = f" {fspath(source)}" if isinstance(source, str | PathLike) else ""
    try:
        if isinstance(source, str | PathLike):
            table = _file(fspath(source), form)
        elif isinstance(source, Mapping):
            table = _of_columns(source, what)
        else:
            table = pa.table(source)
    except FileNotFoundError:
        raise SpecError(f"there is no {what} at{named}") from None
    except UnicodeEncodeError:
        raise SpecError(
            f"the {what} has a text that cannot be written as UTF-8; it contains half of a character"
        ) from None
    except (OSError, pa.ArrowException, UnicodeError) as error:
        found = (
            csv_problem(fspath(source), form)
            if named and not _is_parquet(fspath(source)) and not is_office_file(fspath(source))
            else None
        )
        raise SpecError(f"the {what}{named} cannot be read: {found or error}") from None
    except (TypeError, ValueError, AttributeError):
        raise SpecError(
            f"the {what} is of type {type(source).__name__}; expected a path, columns by name or an Arrow table"
        ) from None
    if len(set(table.column_names)) < len(table.column_names):
        raise SpecError(f"the {what} has two columns of the same name: {', '.join(table.column_names)}")
    return table


def _of_columns(source: Mapping[Any, Any], what: str) -> Any:
    """Return columns by name as a table of text."""
    import pyarrow as pa

    columns: dict[str, list[str]] = {}
    for name in source:
        if isinstance(source[name], str) or not isinstance(source[name], Iterable):
            kind = type(source[name]).__name__
            raise SpecError(f"the column {name!r} of the {what} is of type {kind}; expected a list of cells")
        if str(name) in columns:
            raise SpecError(f"the {what} has two columns of the same name: {name}")
        columns[str(name)] = [text(cell) for cell in source[name]]
    if len({len(cells) for cells in columns.values()}) > 1:
        lengths = ", ".join(f"{name} has {len(cells):,}" for name, cells in columns.items())
        raise SpecError(f"the columns of the {what} differ in length: {lengths}; expected as many cells in each")
    return pa.table({name: pa.array(cells, pa.string()) for name, cells in columns.items()})


def _is_parquet(path: str) -> bool:
    return path.lower().endswith((".parquet", ".pq"))


def _file(path: str, form: CsvFormat) -> Any:
    from pyarrow import parquet

    if _is_parquet(path) or isdir(path):
        return parquet.read_table(path, partitioning=None)
    if is_office_file(path):
        return office_rows(path).read_all()
    if found := is_utf_16(path, form) or open_quote(path):
        raise SpecError(found)
    return csv_rows(path, form).read_all()


def csv_rows(path: str, form: CsvFormat) -> Any:
    """Return the rows of a CSV file as texts, batch by batch, decoded by Python."""
    from pyarrow import csv

    names, delimiter = form.first_line(path)
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=2 * LONGEST_LINE, encoding=form.codec.removesuffix("-sig")),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names, "string")),
    )


def text_columns(table: Any, names: Sequence[str]) -> list[list[str]]:
    """Return the named columns of a pyarrow Table as stripped text."""
    return [[text(cell) for cell in table[name].to_pylist()] for name in names]


def text(cell: Any) -> str:
    """Return a cell as stripped text, '' if it is empty."""
    return "" if cell is None else str(cell).strip()


def numbers(column: Any, what: str, *, whole: bool = False) -> Floats:
    """Return a column of a pyarrow Table as numbers of at least 0, or raise SpecError."""
    import pyarrow as pa
    from pyarrow import compute

    try:
        trimmed = compute.utf8_trim_whitespace(compute.fill_null(column.cast(pa.string()), ""))
        values: Floats = trimmed.cast(pa.float64()).to_numpy()
    except pa.ArrowException:  # readable only in Python, or not at all: then the error quotes it
        values = np.array([_number(text(cell), what) for cell in column.to_pylist()], dtype=np.float64)
    bad = ~np.isfinite(values) | (values < 0) | (whole & (values != np.floor(values)))
    if bad.any():
        expected = "integers" if whole else "numbers"
        wrong = text(column[int(bad.argmax())].as_py())
        raise SpecError(f"the column {what!r} of the public table holds {wrong!r}; expected {expected} of at least 0")
    return values


def _number(cell: str, what: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise SpecError(f"the column {what!r} of the public table holds {cell!r}; expected numbers") from None
