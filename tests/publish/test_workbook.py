"""The workbook holds the release, cell by cell, as two other readers read it."""

import io
import zipfile

import openpyxl
import pytest
import xlsxwriter
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.utils.escape import unescape
from python_calamine import CalamineWorkbook

import tallytree as tt
from tallytree.core.names import visible
from tallytree.publish import workbook
from tallytree.publish.release.release_statement import privacy_statement
from tests.publish.test_export import ABOUT, RELEASES, plain

NASTY_LEVELS = ("Notes", "a/b", "'quoted'", "HISTORY", "Entities", "x" * 40, "x" * 40 + "y", "😀" * 20, "", "=1+1")


@pytest.fixture(scope="module", params=RELEASES)
def release(request):
    return RELEASES[request.param]()


@pytest.fixture(scope="module")
def file(release, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exports") / "out"
    assert release.export(folder, to="xlsx") == ("release.xlsx",)
    return folder / "release.xlsx"


def tables(release):
    """The published rows of each sheet after the notes, with the intervals that the privacy statement recommends."""
    stated = privacy_statement(release).get("intervals", {}).get("recommended", {})
    for level in release.hierarchy.regions.levels:
        yield [row_of(release, row, stated.get("counts")) for row in release.table(level).to_pylist()]
    yield [row_of(release, row, stated.get("entities")) for row in release.table(of="entities").to_pylist()]
    if release.areas:
        yield [row_of(release, row, stated.get("areas")) for row in release.table(of="areas").to_pylist()]


def row_of(release, row, recommended):
    ends = {name: row.pop(name) for name in ("lower", "upper", "typical_lower", "typical_upper") if name in row}
    if recommended is None:
        return {**row, **({"lower": ends["lower"], "upper": ends["upper"]} if ends else {})}
    summed = any(row[name] == "all" for name in release.rows.categories)
    place = row["kind"] if "kind" in row else row["level"]
    kind = recommended[f"{place}, {release.hierarchy.levels[0]}" if summed and "kind" not in row else place]
    prefix = "typical_" if kind == "typical" else ""
    return {**row, "lower": ends[f"{prefix}lower"], "upper": ends[f"{prefix}upper"], "interval": kind}


def check_rows(found, expected):
    """Compare the rows of a sheet with the expected ones; the sheet of a level has no column for it."""
    header, *rows = found
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        shown = dict(zip(header, row, strict=True))
        assert set(wanted) - set(shown) <= {"level"}
        assert shown == {name: wanted.get(name, "guaranteed") for name in shown}


def test_openpyxl_reads_every_number_and_text(release, file):
    book = openpyxl.load_workbook(file)
    expected = list(tables(release))
    assert len(book.sheetnames) == len(expected) + 1
    for sheet, rows in zip(book.worksheets[1:], expected, strict=True):
        found = [[unescape(cell) if isinstance(cell, str) else cell for cell in row] for row in sheet.values]
        check_rows(found, rows)


def test_calamine_reads_every_number(release, file):
    book = CalamineWorkbook.from_path(file)
    for name, rows in zip(book.sheet_names[1:], tables(release), strict=True):
        header, *found = book.get_sheet_by_name(name).to_python()
        for column, shown in zip(header, zip(*found, strict=True), strict=True):
            if column in rows[0] and isinstance(rows[0][column], int):
                assert [int(number) for number in shown] == [row[column] for row in rows]


def test_a_sheet_is_formatted_to_be_read_and_has_no_formula(release, file):
    for sheet in openpyxl.load_workbook(file):
        assert not sheet.merged_cells.ranges
        cells = [cell for row in sheet.iter_rows() for cell in row]
        assert {cell.data_type for cell in cells} <= {"s", "n", "inlineStr"}
        assert all(cell.number_format == "@" or cell.font.b for cell in cells if isinstance(cell.value, str))
        assert all(width.width >= 8 for width in sheet.column_dimensions.values())
        if sheet.title == "Notes":
            continue
        assert sheet.freeze_panes == "A2"
        assert sheet.auto_filter.ref == sheet.dimensions
        assert all(cell.font.b for cell in sheet[1])
        names = [cell.value for cell in sheet[1]]
        number = sheet.cell(2, names.index("size" if "size" in names else "entities") + 1)
        assert isinstance(number.value, int)
        if "size" in names:
            last = sheet.cell(sheet.max_row, names.index("size") + 1)
            assert (last.value, last.number_format) == (release.sizes[-1], '0" or more"')
        for name in set(names) & {"count", "entities", "open_groups", "lower", "upper"}:
            assert sheet.cell(2, names.index(name) + 1).number_format == "#,##0"


def test_the_same_release_gives_the_same_bytes_whatever_the_day_is(release, file, tmp_path):
    release.export(tmp_path / "again", to="xlsx")
    assert (tmp_path / "again" / "release.xlsx").read_bytes() == file.read_bytes()
    with zipfile.ZipFile(file) as packed:
        assert {entry.date_time for entry in packed.infolist()} == {(1980, 1, 31, 0, 0, 0)}
        core = packed.read("docProps/core.xml").decode()
    assert core.count("1980-01-01T00:00:00Z") == 2


def notes_of(path):
    return {name: unescape(text) for name, text in openpyxl.load_workbook(path)["Notes"].values}


def test_the_notes_say_what_a_reader_must_know(release, file):
    told, last = notes_of(file), release.sizes[-1]
    assert told["Title"] == release.title
    assert f"Sizes above {last} counted as {last}." in told["Sizes"]
    assert "ε = 1" in told["Privacy budget"]
    assert "any one of the entities" in told["Protection"]
    assert told["Cite as"].endswith(f"made with tallytree {tt.__version__}.")
    assert ("no intervals" in told["Intervals"]) == (release.error_bars.which == "none")
    assert ("typical interval" in told["Intervals"]) == (release.error_bars.which == "all")
    assert ("Categories" in told) == bool(release.rows.categories)
    names = {f"Sheet {name}" for name in CalamineWorkbook.from_path(file).sheet_names[1:]}
    assert names <= set(told)


def test_the_notes_repeat_what_the_publisher_states_and_the_id(tmp_path):
    release = plain(intervals="none", about=ABOUT | {"groups": "homes", "entities": "people"})
    release_id = release.save(tmp_path / "release")
    tt.Release.load(tmp_path / "release").export(tmp_path / "out", to="xlsx")
    told = notes_of(tmp_path / "out" / "release.xlsx")
    for name, text in ABOUT.items():
        assert told[name.replace("_", " ").capitalize()] == str(text)
    assert release_id[:16] in told["Cite as"]
    assert ABOUT["publisher"] in told["Cite as"]
    assert "How many homes there are" in told["What was counted"]
    assert "any one of the people" in told["Protection"]
    properties = openpyxl.load_workbook(tmp_path / "out" / "release.xlsx").properties
    assert (properties.creator, properties.title) == (visible(ABOUT["publisher"]), visible(release.title))


@settings(max_examples=40)
@given(st.lists(st.text(max_size=40) | st.sampled_from(NASTY_LEVELS), max_size=12))
def test_names_of_sheets_are_names_that_excel_accepts(levels):
    names = workbook.sheet_names(["Notes", *levels, "Entities"])
    assert len({name.casefold() for name in names}) == len(levels) + 2
    with xlsxwriter.Workbook(io.BytesIO(), {"in_memory": True}) as book:
        for name in names:
            assert 0 < len(name.encode("utf-16-le")) <= 62
            assert name.casefold() != "history"
            book.add_worksheet(name)  # refuses what Excel does not accept
    for name, level in zip(names, ["Notes", *levels, "Entities"], strict=True):
        if len(level) <= 28 and level.isascii() and level.isalnum() and level.casefold() != "history":
            assert name.startswith(level)


def test_a_level_that_is_too_long_for_a_sheet_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    release = plain(intervals="none")
    monkeypatch.setattr(workbook, "MOST_ROWS", 12)  # with the header; the counties have 12 rows below it
    monkeypatch.setattr(workbook, "_write_notes", None)
    with pytest.raises(tt.ReleaseError, match="level 'county' has 12 rows, and a sheet of Excel has at most 11"):
        release.export(tmp_path / "out", to="xlsx")
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_is_too_long_for_a_cell_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(workbook, "LONGEST_TEXT", 8)
    with pytest.raises(tt.ReleaseError, match="does not fit into a cell"):
        plain(intervals="none").export(tmp_path / "out", to="xlsx")
    assert list(tmp_path.iterdir()) == []


def test_numbers_that_excel_would_round_are_texts(tmp_path, monkeypatch):
    monkeypatch.setattr(workbook, "MOST_EXACT", 50)
    release = plain(intervals="none")
    release.export(tmp_path / "out", to="xlsx")
    header, *rows = openpyxl.load_workbook(tmp_path / "out" / "release.xlsx")["county"].values
    shown = [row[header.index("count")] for row in rows]
    counts = release.table("county")["count"].to_pylist()
    assert shown == [count if count < 50 else f"{count:,}" for count in counts]


def test_without_the_package_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "xlsxwriter", None)
    with pytest.raises(tt.SpecError, match=r"pip install 'tallytree\[files\]'"):
        plain(intervals="none").export(tmp_path / "out", to="xlsx")
    assert list(tmp_path.iterdir()) == []
