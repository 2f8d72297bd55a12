"""Public tables, all read in one way: CSV, Parquet, columns by name, or whatever speaks Arrow.

CSV is text throughout, so that the code 01001 keeps its zero. Nothing private is read here, so errors may quote cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

import numpy as np

from tallytree.arrays import Floats
from tallytree.errors import SpecError


def public_table(source: Any, what: str = "table") -> Any:
    """A pyarrow Table; `what` names it in errors."""
    import pyarrow as pa

    try:
        if isinstance(source, str | PathLike):
            table = _file(fspath(source))
        elif isinstance(source, Mapping):
            table = pa.table({str(name): pa.array([text(cell) for cell in source[name]]) for name in source})
        else:
            table = pa.table(source)
    except FileNotFoundError:
        raise SpecError(f"there is no {what} at {fspath(source)}") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        name = f" {fspath(source)}" if isinstance(source, str | PathLike) else ""
        raise SpecError(f"the {what}{name} cannot be read: {error}") from None
    except (TypeError, ValueError):
        raise SpecError(
            f"the {what} is of type {type(source).__name__}; expected a path, columns by name or an Arrow table"
        ) from None
    if len(set(table.column_names)) < len(table.column_names):
        raise SpecError(f"the {what} has two columns of the same name: {', '.join(table.column_names)}")
    return table


def _file(path: str) -> Any:
    from pyarrow import csv, parquet

    if path.lower().endswith((".parquet", ".pq")):
        return parquet.read_table(path)
    with csv.open_csv(path) as opened:
        kinds = dict.fromkeys(opened.schema.names, "string")
    return csv.read_csv(path, convert_options=csv.ConvertOptions(column_types=kinds))


def text_columns(table: Any, names: Sequence[str]) -> list[list[str]]:
    """The named columns of a pyarrow Table as stripped text."""
    return [[text(cell) for cell in table[name].to_pylist()] for name in names]


def text(cell: Any) -> str:
    """A cell as stripped text, '' where it is empty."""
    return "" if cell is None else str(cell).strip()


def numbers(texts: Sequence[str], what: str, *, whole: bool = False) -> Floats:
    """Texts of a column as numbers of at least 0, or a SpecError."""
    values = np.array([_number(cell, what) for cell in texts], dtype=np.float64)
    bad = ~np.isfinite(values) | (values < 0) | (whole & (values != np.floor(values)))
    if bad.any():
        expected = "whole numbers" if whole else "numbers"
        wrong = texts[int(bad.argmax())]
        raise SpecError(f"the column {what!r} of the public table holds {wrong!r}; expected {expected} of at least 0")
    return values


def _number(cell: str, what: str) -> float:
    try:
        return float(cell)
    except ValueError:
        raise SpecError(f"the column {what!r} of the public table holds {cell!r}; expected numbers") from None
