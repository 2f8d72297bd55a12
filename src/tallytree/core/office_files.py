"""Read workbooks (.xlsx) and files of Stata (.dta) and SPSS (.sav) as texts, batch by batch.

Each cell becomes a text on its own, so no row changes how another one is read: a whole number has no decimal point, and
a missing value is an empty text. The packages that read the files are extras.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from itertools import chain, islice
from typing import Any

from tallytree.core.errors import SpecError

ENDINGS = {".xlsx": "workbook", ".dta": "statistics", ".sav": "statistics"}  # the kind of file by its ending
ROWS = 100_000  # of a batch


def is_office_file(path: str) -> bool:
    """Return whether this module reads a file, by its ending."""
    return path.lower().endswith(tuple(ENDINGS))


def office_rows(path: str, sheet: str | None = None) -> Any:
    """Return the rows of a file as Arrow data that are read once; `sheet` names one of several sheets."""
    import pyarrow as pa

    names, batches = _workbook(path, sheet) if path.lower().endswith(".xlsx") else _statistics(path, sheet)
    if not names or "" in names or len(set(names)) < len(names):
        raise SpecError(f"{path}: the first line must give each column a different name")
    schema = pa.schema([(name, pa.string()) for name in names])
    columns = ([pa.array(map(as_text, cells), pa.string()) for cells in batch] for batch in batches)
    return pa.RecordBatchReader.from_batches(schema, (pa.record_batch(batch, schema) for batch in columns))


def as_text(value: object) -> str:
    """Return a cell as a schema names it: integers have no decimal point, and a missing value is an empty text.

    >>> [as_text(value) for value in (1.0, 2.5, True, None, float("nan"), "01")]
    ['1', '2.5', 'true', '', '', '01']
    """
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _workbook(path: str, sheet: str | None) -> tuple[list[str], Iterator[Sequence[Sequence[Any]]]]:
    """Return the first line of a sheet, and its other rows by columns, without rows that are all empty."""
    book = _package("python_calamine").CalamineWorkbook.from_path(path)
    if sheet is None and len(book.sheet_names) != 1:
        raise SpecError(f"{path} has {len(book.sheet_names)} sheets; name one with table=…")
    if sheet is not None and sheet not in book.sheet_names:
        raise SpecError(f"{path} has no sheet {sheet!r}; it has {', '.join(book.sheet_names)}")
    rows = book.get_sheet_by_name(sheet or book.sheet_names[0]).iter_rows()
    names = [as_text(cell).strip() for cell in next(rows, [])]
    filled = (row for row in rows if any(cell not in ("", None) for cell in row))
    batches = iter(lambda: [*islice(filled, ROWS)], [])
    return names, ([*zip(*batch, strict=True)] for batch in batches)


def _statistics(path: str, sheet: str | None) -> tuple[list[str], Iterator[Sequence[Sequence[Any]]]]:
    """Return the names of a file's variables, and its rows by columns. Codes stay codes; labels are not read."""
    if sheet is not None:
        raise SpecError(f"table names a table of a DuckDB file or a sheet; leave it out for {path}")
    package = _package("pyreadstat")
    read: Callable[..., Any] = package.read_dta if path.lower().endswith(".dta") else package.read_sav
    how = {"chunksize": ROWS, "output_format": "dict"}
    parts = (part for part, _ in package.read_file_in_chunks(read, path, **how))
    first = next(parts, None)
    if first is None:
        return read(path, metadataonly=True)[1].column_names, iter(())
    return [*first], ([*part.values()] for part in chain([first], parts))


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise SpecError(
            "files of Excel, Stata and SPSS are read with packages that are not installed: pip install "
            "'tallytree[files]'"
        ) from None
