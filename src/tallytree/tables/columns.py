"""Describe the columns of private files, for their holder alone: names, types and, on request, distinct counts.

Types come from the first rows. No value of a row leaves this module; the counts are exact, and NOT PRIVATE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tallytree.core.csv_files import UTF_8, CsvFormat
from tallytree.core.errors import SpecError
from tallytree.tables.problems import one_row
from tallytree.tables.source import Opened, open_source, workspace
from tallytree.tables.sql import count_if, literal, select

SAMPLE = 10_000  # rows that decide a type
FORMS = {  # of texts, from narrow to wide
    "integer": r"^\s*[+-]?[0-9]{1,18}\s*$",
    "number": r"^\s*[+-]?[0-9]*\.?[0-9]+([eE][+-]?[0-9]+)?\s*$",
    "number with a decimal comma": r"^\s*[+-]?[0-9]*,?[0-9]+\s*$",
}


@dataclass(frozen=True)
class Column:
    """Name a column, its type, and its number of distinct values if that was counted."""

    name: str
    kind: str
    distinct: int | None = None


def describe_columns(
    source: Any, *, table: str | None = None, form: CsvFormat = UTF_8, count: bool = False
) -> tuple[list[Column], int | None]:
    """Return the columns of files and, with `count`, their distinct values and the number of rows. NOT PRIVATE."""
    with workspace(None, form) as connect:
        opened = open_source(source, table, connect)
        names = [*opened.table.kinds]
        _refuse_unnamed(opened, names)
        kinds = _kinds(opened, names)
        if not count:
            return [Column(*each) for each in zip(names, kinds, strict=True)], None
        distinct = {f"d{at}": f"count(DISTINCT {opened.table[name].text})" for at, name in enumerate(names)}
        counts = select({"rows": "count(*)"} | distinct, opened.table.source)
        row = one_row(opened, "Counting distinct values", counts)
        return [Column(*each) for each in zip(names, kinds, [*row.values()][1:], strict=True)], row["rows"]


def _kinds(opened: Opened, names: Sequence[str]) -> list[str]:
    """Return the type of each column: that of the engine, or the narrowest form of the texts in the first rows."""
    cells = {at: opened.table[name] for at, name in enumerate(names) if opened.table[name].is_text}
    kinds = [opened.table.kinds[name].lower() for name in names]
    counts = {
        f"{at} {form}": count_if(f"NOT {cell.is_missing} AND NOT regexp_matches({cell.as_text}, '{pattern}')")
        for at, cell in cells.items()
        for form, pattern in FORMS.items()
    } | {f"{at} there": count_if(f"NOT {cell.is_missing}") for at, cell in cells.items()}
    first = f"(SELECT * FROM {opened.table.name} LIMIT {SAMPLE}) AS given"
    found = one_row(opened, "Looking at the types of columns", select(counts, first)) if counts else {}
    for at in cells:
        fits = [form for form in FORMS if found[f"{at} {form}"] == 0]
        kinds[at] = "empty" if not found[f"{at} there"] else fits[0] if fits else "text"
    return kinds


def _refuse_unnamed(opened: Opened, names: Sequence[str]) -> None:
    """Refuse a table whose names of columns look like values: then they must not be shown either."""
    numbers = sum(re.fullmatch(r"\s*[+-]?[0-9.,]+\s*", name) is not None for name in names)
    cells = {name: opened.table[name] for name in names if opened.table[name].is_text}
    same = {f"{at}": count_if(f"{cells[name].as_text} = {literal(name)}") for at, name in enumerate(cells)}
    first = f"(SELECT * FROM {opened.table.name} LIMIT {SAMPLE}) AS given"
    again = sum(one_row(opened, "Looking at the first line", select(same, first)).values()) if same else 0
    if numbers or again:
        found = f"{numbers} of its {len(names)} cells are numbers" if numbers else f"{again} other cells repeat it"
        raise SpecError(
            f"the first line does not look like names of columns: {found}. Add a first line with a name for each "
            "column. (The line is not repeated here, because it may hold private values.)"
        )
