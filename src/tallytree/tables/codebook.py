"""Propose a schema from public data: a codebook, or a sample that its user declares public.

A schema is never taken from the private rows. A value that only one household has would then be in the schema because
of that household, and no budget could hide it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from typing import Any

from tallytree.core.arguments import TEXT, WHOLE, expecting, several
from tallytree.core.errors import SpecError
from tallytree.core.office_files import as_text
from tallytree.domain.schema import Attribute, Schema
from tallytree.tables.source import open_in_order, workspace

MISSING = "missing"
LEVELS = ("household", "person")


def schema_from_codebook(codebook: Any, *, max_persons: int) -> Schema:
    """Make a schema from a public table of attributes and their values.

    Parameters
    ----------
    codebook : path or table
        A table with the columns attribute, level, value and (if need be) cut, one row per value, in the order that the
        values are to have. `level` is household or person. For a number, each row is a bin and `cut` is where it
        begins; the first bin has none. `cut` = missing marks the value that an empty cell stands for; it comes last.
    max_persons : int
        The largest number of persons that a household can have.

    Returns
    -------
    Schema
        The schema.

    Raises
    ------
    SpecError
        If the table is not a codebook.
    """
    table = _texts(codebook, "codebook")
    columns = [*table]
    if lost := [name for name in ("attribute", "level", "value") if name not in columns]:
        raise SpecError(
            f"the codebook has no column {', '.join(lost)}; expected attribute, level, value and, optionally, cut"
        )
    length = len(table["attribute"])
    cuts = table.get("cut", [None] * length)
    found: dict[str, dict[str, list[tuple[str, str]]]] = {level: {} for level in LEVELS}
    for row, (name, level, value, cut) in enumerate(
        zip(table["attribute"], table["level"], table["value"], cuts, strict=True), start=1
    ):
        if level not in LEVELS or not name or value is None:
            raise SpecError(f"row {row} of the codebook needs an attribute, a value and a level (household or person)")
        found[level].setdefault(name, []).append((value, (cut or "").strip()))
    household, person = (tuple(_attribute(name, rows) for name, rows in found[level].items()) for level in LEVELS)
    return Schema(household, person, max_persons)


def values_from_codebook(codebook: Any, name: str) -> list[str]:
    """Return the values of one attribute, in the order of a public table with the columns attribute and value."""
    table = _texts(codebook, "codebook")
    if lost := [column for column in ("attribute", "value") if column not in table]:
        raise SpecError(f"the codebook has no column {', '.join(lost)}; expected attribute and value")
    rows = zip(table["attribute"], table["value"], strict=True)
    values = [value or "" for attribute, value in rows if attribute == name]
    if not values:
        raise SpecError(f"the codebook has no rows for the attribute {name!r}")
    return values


@expecting(household_id=TEXT, leave_out=several(TEXT), most_values=WHOLE, bins=WHOLE)
def schema_from_sample(
    households: Any,
    persons: Any,
    *,
    household_id: str,
    sample_is_public: bool = False,
    max_persons: int | None = None,
    leave_out: Sequence[str] = (),
    most_values: int = 50,
    bins: int = 5,
) -> Schema:
    """Make a schema from two tables of a public sample: the values of each column, and bins of numbers.

    Values that the private data hold beyond the sample are refused when they are read.

    Parameters
    ----------
    households : path or table
        The households of the sample.
    persons : path or table
        The persons of the sample.
    household_id : str
        The column of both tables that says which household a row is of.
    sample_is_public : bool, default False
        Your declaration that the sample is public.
    max_persons : int, optional
        The largest number of persons that a household can have. The default is the sample's largest.
    leave_out : list of str, optional
        Columns that are not attributes.
    most_values : int, default 50
        A column of numbers with more different values is cut into bins; other columns with more must be left out.
    bins : int, default 5
        About how many bins, with as many rows each.

    Returns
    -------
    Schema
        The schema.

    Raises
    ------
    SpecError
        If the sample is not declared public, or a column has too many values.
    """
    if sample_is_public is not True:
        raise SpecError(
            "a schema may be taken from rows only if they are public, since every value in it is published: say "
            "sample_is_public=True if these are public; otherwise use a codebook"
        )
    if most_values < 1 or bins < 2:
        raise SpecError("most_values must be at least 1 and bins at least 2")
    tables = [_texts(households, "households"), _texts(persons, "persons")]
    for table, which in zip(tables, ("households", "persons"), strict=True):
        if household_id not in table:
            raise SpecError(f"the sample's {which} have no column {household_id!r}")
    if max_persons is None:
        max_persons = max(Counter(tables[1][household_id]).values(), default=1)
    sides = [
        tuple(
            _proposed(name, cells, most_values, bins)
            for name, cells in table.items()
            if name != household_id and name not in leave_out
        )
        for table in tables
    ]
    return Schema(sides[0], sides[1], max_persons)


def _texts(source: Any, option: str) -> dict[str, list[str | None]]:
    """Return a public table as columns of texts; empty cells are None, and integers have no decimal point."""
    with workspace(None) as connect:
        opened = open_in_order(source, option, connect)
        cells = opened.run(f"Reading the {option}", lambda: opened.engine.rows(opened.table))
    return {name: [as_text(value) or None for value in cells[name].to_pylist()] for name in cells.column_names}


def bin_names(edges: Sequence[str]) -> tuple[str, ...]:
    """Return default names for the bins between cuts.

    >>> bin_names(["18", "65"])
    ('below 18', '18 to 65', '65 or more')
    """
    return (f"below {edges[0]}", *(f"{low} to {high}" for low, high in pairwise(edges)), f"{edges[-1]} or more")


def _attribute(name: str, rows: list[tuple[str, str]]) -> Attribute:
    marked = [value for value, cut in rows if cut == MISSING]
    if len(marked) > 1:
        raise SpecError(f"the codebook marks several values of {name!r} as missing; expected one at most")
    cuts = [cut for _, cut in rows if cut and cut != MISSING]
    missing = marked[0] if marked else None
    values = tuple(value for value, _ in rows)
    if not cuts:
        return Attribute(name, values, missing=missing)
    if rows[0][1] or any(not cut for _, cut in rows[1:]):
        raise SpecError(f"attribute {name!r}: every bin but the first needs a cut, where it begins")
    try:
        return Attribute(name, values, tuple(float(cut) for cut in cuts), missing)
    except ValueError:
        raise SpecError(f"attribute {name!r}: a cut of the codebook is not a number") from None


def _proposed(name: str, cells: list[str | None], most_values: int, bins: int) -> Attribute:
    known = [cell for cell in cells if cell is not None]
    different = sorted(set(known))
    missing = MISSING if len(known) < len(cells) else None
    if missing is not None and missing in different:
        missing = "no value"
    last = () if missing is None else (missing,)
    if len(different) <= most_values:
        if not different:
            raise SpecError(f"column {name!r} of the sample is empty: leave it out")
        return Attribute(name, (*_in_order(different), *last), missing=missing)
    try:
        numbers = sorted(map(float, known))
    except ValueError:
        numbers = []
    if not numbers or not all(map(isfinite, numbers)):
        raise SpecError(
            f"column {name!r} of the sample has {len(different):,} different values: leave it out (leave_out=…), or "
            "give its values or bins in a codebook"
        )
    cuts = sorted({numbers[len(numbers) * part // bins] for part in range(1, bins)} - {numbers[0]})
    if not cuts:  # nearly all rows have the smallest number
        cuts = [next(number for number in numbers if number > numbers[0])]
    return Attribute(name, (*bin_names([as_text(cut) for cut in cuts]), *last), tuple(cuts), missing)


def _in_order(texts: list[str]) -> list[str]:
    """Sort by number if all texts are numbers, otherwise by text."""
    try:
        return sorted(texts, key=float)
    except ValueError:
        return sorted(texts)
