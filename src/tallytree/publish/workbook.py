"""Export to a workbook of Excel: notes, counts by level with recommended intervals, numbers of entities, and areas.

Cells are written as texts or as numbers. So no text is a formula, codes keep their zeros, and names are exact. The same
release gives the same file, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from tallytree.core.errors import ReleaseError
from tallytree.core.names import UNSEEN, visible
from tallytree.core.numbers import short
from tallytree.core.progress import Progress, Stage
from tallytree.core.registry import import_extra
from tallytree.domain.categories import ALL
from tallytree.domain.histogram import size_label
from tallytree.privacy.relations import describe_relation
from tallytree.publish.about import WORDS
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import capped_sizes, cut_off
from tallytree.publish.release.error_bars import ENDS, What, in_percent
from tallytree.publish.release.release_statement import noise_choice, totals_in_words
from tallytree.publish.statement import guarantee
from tallytree.publish.table import Table
from tallytree.version import VERSION

WORKBOOK, NOTES = "release.xlsx", "Notes"
MOST_ROWS = 1_048_576  # of a sheet, with its header
LONGEST_NAME, FORBIDDEN, RESERVED = 31, "[]:*?/\\", "history"  # for names of sheets
LONGEST_TEXT = 32_767  # of a cell
MOST_EXACT = 10**15  # Excel rounds larger numbers, so they are texts
WRITTEN = datetime(1980, 1, 1)  # the date that each workbook states, so that its bytes do not depend on the day
NARROWEST, WIDEST, BUTTON, NOTE = 8, 50, 3, 100  # widths of columns in characters
LINE, HEIGHT = 92, 15  # characters that surely fit into a line of a note, and the height of a line in points
KINDS_IN_WORDS = {
    "guaranteed": (
        "A guaranteed interval contains the number in the data, as they were counted, in at least {} of cases, for any "
        "data."
    ),
    "typical": (
        "A typical interval does so in about {} of cases for data like these. It can miss a region that is unlike its "
        "neighbours."
    ),
}


@dataclass(frozen=True)
class Sheet:
    """A sheet: some places of a published table."""

    name: str
    release: ReleaseContents
    table: Table
    what: What
    places: range
    level: str = ""  # if all rows are of one level

    @property
    def rows(self) -> int:
        """Return the number of rows below the header."""
        return len(self.places) * self.table.width

    @property
    def description(self) -> str:
        """Return what the sheet has."""
        of_level = f", on the level {visible(self.level)}" if self.level else ""
        return f"{self.table.description.partition(':')[0]}{of_level}. Rows: {self.rows:,}"

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the columns that identify a row."""
        return tuple(key.name for key in self.table.keys if not (self.level and key.name == "level"))

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the columns of numbers."""
        ends = {name for names in ENDS.values() for name in names}
        return tuple(measure.name for measure in self.table.given if measure.name not in ends)

    @cached_property
    def has_intervals(self) -> bool:
        """Return whether the numbers have intervals."""
        return len(self.numbers) < len(self.table.given)

    @property
    def columns(self) -> tuple[str, ...]:
        """Return all columns in their order."""
        return (*self.keys, *self.numbers, *(("lower", "upper", "interval") if self.has_intervals else ()))

    def cells(self) -> Iterator[tuple[Any, ...]]:
        """Yield the cells of each row."""
        for rows in self.table.batches(self.places, zeros=True):
            columns = {name: rows[name].to_pylist() for name in rows.column_names}
            shown = [columns[name] for name in (*self.keys, *self.numbers)]
            yield from zip(*shown, *(self._intervals(columns) if self.has_intervals else ()), strict=True)

    def _intervals(self, columns: dict[str, list[Any]]) -> list[tuple[Any, ...]]:
        """Return the ends of the recommended interval of each row, and its kind."""
        names = ("kind",) if self.what == "areas" else ("level", *self.release.rows.categories)
        kinds = [
            self.release.recommended(self.what, place, values) or "guaranteed"
            for place, *values in zip(*(columns[name] for name in names), strict=True)
        ]
        found = [(*(columns[name][row] for name in ENDS[kind]), kind) for row, kind in enumerate(kinds)]
        return [*zip(*found, strict=True)]


def write_workbook(release: ReleaseContents, folder: Path, progress: Progress) -> tuple[str, ...]:
    """Write the workbook and return its name. A table that is too long for a sheet is refused before that."""
    writer = import_extra("xlsxwriter", "the format xlsx", "tallytree[files]")
    sheets = sheets_of(release)
    for sheet in sheets:
        if sheet.rows >= MOST_ROWS:
            what = f"level {short(sheet.level)}" if sheet.level else f"the sheet {sheet.name}"
            raise ReleaseError(
                f"{what} has {sheet.rows:,} rows, and a sheet of Excel has at most {MOST_ROWS - 1:,} below its header. "
                "Use --to csvw, or read the Parquet files of the release"
            )
    how = {"constant_memory": True, "strings_to_urls": False, "strings_to_formulas": False}
    with writer.Workbook(folder / WORKBOOK, how) as book:
        properties = {"title": release.title, "author": release.about.publisher, "comments": f"tallytree {VERSION}"}
        book.set_properties({name: visible(text)[:255] for name, text in properties.items()} | {"created": WRITTEN})
        _write_notes(book, notes(release, sheets))
        for sheet in sheets:
            _write_sheet(book, sheet, progress)
    return (WORKBOOK,)


def sheets_of(release: ReleaseContents) -> list[Sheet]:
    """Return a sheet for each level, one of entities, and one of areas if there are any."""
    regions, slots = release.hierarchy.regions, len(release.rows.values)
    found = []
    for level, name in enumerate(regions.levels):
        rows = regions.level_slice(level)
        places = range(rows.start * slots, rows.stop * slots)
        found.append(Sheet(name, release, release.counts_table, "counts", places, name))
    found.append(Sheet("Entities", release, release.entity_table, "entities", release.entity_table.places))
    if release.areas:
        found.append(Sheet("Areas", release, release.areas_table, "areas", release.areas_table.places))
    names = sheet_names([NOTES, *(sheet.name for sheet in found)])[1:]
    return [replace(sheet, name=name) for sheet, name in zip(found, names, strict=True)]


def sheet_names(texts: Iterable[str]) -> list[str]:
    """Return a name of a sheet for each text, all different in the eyes of Excel, where case does not count.

    >>> sheet_names(["county", "County", "towns/cities", "'s-Gravenhage"])
    ['county', 'County 2', 'towns_cities', 's-Gravenhage']
    """
    found: list[str] = []
    taken = {RESERVED}
    for text in texts:
        plain = "".join("_" if letter in FORBIDDEN else letter for letter in UNSEEN.sub("_", text))
        name, number = _cut(plain, ""), 1
        while name.casefold() in taken:
            number += 1
            name = _cut(plain, f" {number}")
        taken.add(name.casefold())
        found.append(name)
    return found


def _cut(text: str, after: str) -> str:
    """Return the beginning of a text and what comes after it, in as many UTF-16 units as a sheet's name may have."""
    text = text.strip("' ")
    while len(f"{text}{after}".encode("utf-16-le")) > 2 * LONGEST_NAME:
        text = text[:-1]
    return f"{text.rstrip(chr(39))}{after}" or "_"


# -------------------------------------------------------------------- notes


def notes(release: ReleaseContents, sheets: Iterable[Sheet]) -> list[tuple[str, str]]:
    """Return what a reader of the numbers must know: names and texts."""
    measurements, last = release.measurements, release.sizes[-1]
    neighbours = measurements.neighbours
    about = release.about
    unit = about.entities if neighbours.unit.kind == "one_entity" else f"{about.groups}, with all that belongs to it"
    protection, totals = guarantee(measurements.budget), totals_in_words(measurements, release.made_by)
    told = {
        "Title": release.title,
        **{name.replace("_", " ").capitalize(): text for name, text in about.to_json().items() if name not in WORDS},
        "Cite as": about.cite("Release", release.title, release.release_id, VERSION),
        "What was counted": (
            f"How many {about.groups} there are of each size in every region. The size is the number of "
            f"{about.entities}, from {release.sizes[0]} to {size_label(last, last)}."
        ),
        "Sizes": f"{capped_sizes(last).capitalize()}. {cut_off(last).replace('Groups', about.groups.capitalize(), 1)}",
        "Categories": (
            f"In the columns {' and '.join(release.rows.categories)}, {ALL} stands for the sum over the values. Filter "
            "these columns before you add anything up."
        )
        if release.rows.categories
        else "",
        "What was left out": release.error_bars.truncation,
        "Sums": "The numbers of regions add up exactly to the number of the region above them.",
        "Totals": f"{totals[:1].upper()}{totals[1:]}.",
        "Protection": (
            "Random noise was added to the counts before they were published. It limits what anybody can learn from "
            f"these tables about any one of the {unit}. This is called differential privacy."
        ),
        "Privacy budget": f"{protection[:1].upper()}{protection[1:]}. A smaller budget protects more."
        + (f" {choice}" if (choice := noise_choice(measurements)) else ""),
        "Protected unit": describe_relation(neighbours),
        "Intervals": _intervals_in_words(release),
        "Zeros": "A published 0 may really be a few, and a small number may really be 0.",
        "Areas": "An area is a set of regions. Its numbers are sums of the published numbers of these regions."
        if release.areas
        else "",
    }
    listed = [(f"Sheet {sheet.name}", sheet.description) for sheet in sheets]
    return [(name, text) for name, text in (*told.items(), *listed) if text]


def _intervals_in_words(release: ReleaseContents) -> str:
    bars = release.error_bars
    if not bars.of.get("counts"):
        return " ".join(["These tables have no intervals.", *bars.missing.values()])
    percent = in_percent(bars.confidence)
    return " ".join(
        [
            "Read each number together with its interval, from lower to upper. The column interval names its kind: the "
            "one that is recommended for all numbers of the level.",
            *(KINDS_IN_WORDS[kind].format(percent) for kind in bars.of["counts"]),
            "Each interval is about one number alone. You can add up counts, but not the ends of intervals: the "
            "command tallytree query computes the interval of a sum.",
        ]
    )


# -------------------------------------------------------------------- sheets


def _write_notes(book: Any, rows: list[tuple[str, str]]) -> None:
    sheet = book.add_worksheet(NOTES)
    bold = book.add_format({"bold": True, "valign": "top"})
    text = book.add_format({"text_wrap": True, "valign": "top", "num_format": "@"})
    heading = book.add_format({"bold": True, "font_size": 14, "text_wrap": True, "valign": "top", "num_format": "@"})
    sheet.set_column(0, 0, max(len(name) for name, _ in rows) + 2, bold)
    sheet.set_column(1, 1, NOTE, text)
    sheet.hide_gridlines(2)
    _prepare_print(sheet)
    for row, (name, content) in enumerate(rows):
        lines = sum(1 + len(line) // LINE for line in content.split("\n"))
        sheet.set_row(row, HEIGHT * (lines if row else lines + 0.5))
        _put_text(sheet, row, 0, name, bold)
        _put_text(sheet, row, 1, content, text if row else heading)


def _write_sheet(book: Any, sheet: Sheet, progress: Progress) -> None:
    """Write a header that stays in view, and typed cells below it."""
    written, last = book.add_worksheet(sheet.name), sheet.release.sizes[-1]
    header = book.add_format({"bold": True, "bottom": 1, "bg_color": "#E8EDF2", "num_format": "@"})
    texts, numbers = book.add_format({"num_format": "@"}), book.add_format({"num_format": "#,##0"})
    of_size, kind = book.add_format({"num_format": "0"}), book.add_format({"num_format": "@", "indent": 1})
    of_last = book.add_format({"num_format": size_label(last, last).replace(str(last), '0"', 1) + '"'})
    widths = [max(NARROWEST, len(name) + BUTTON) for name in sheet.columns]
    for column, name in enumerate(sheet.columns):
        _put_text(written, 0, column, name, header)
    row = 0
    for row, cells in enumerate(sheet.cells(), start=1):
        if row % 10_000 == 1:
            progress(Stage(f"writing the sheet {visible(sheet.name)}", row, sheet.rows))
        for column, (name, cell) in enumerate(zip(sheet.columns, cells, strict=True)):
            if name == "size":
                written.write_number(row, column, cell, of_last if cell == last else of_size)
                continue
            shown = cell if isinstance(cell, str) else f"{cell:,}"
            widths[column] = max(widths[column], min(len(shown) + 1, WIDEST))
            if isinstance(cell, int) and cell < MOST_EXACT:
                written.write_number(row, column, cell, numbers)
            else:
                _put_text(written, row, column, shown, kind if name == "interval" else texts)
    for column, width in enumerate(widths):
        written.set_column(column, column, width)
    written.freeze_panes(1, 0)
    written.autofilter(0, 0, row, len(widths) - 1)
    written.repeat_rows(0)
    _prepare_print(written)


def _put_text(sheet: Any, row: int, column: int, text: str, form: Any) -> None:
    if len(text) > LONGEST_TEXT:
        raise ReleaseError(
            f"a text of {len(text):,} characters does not fit into a cell of Excel, which holds {LONGEST_TEXT:,}: "
            f"{short(text)}"
        )
    sheet.write_string(row, column, text, form)


def _prepare_print(sheet: Any) -> None:
    sheet.set_landscape()
    sheet.set_paper(9)  # A4
    sheet.fit_to_pages(1, 0)  # as many pages as needed, each as wide as the sheet
