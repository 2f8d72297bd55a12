"""Workbooks, files of Stata and SPSS, and folders of Parquet files give the same counts as the same rows in a table."""

from __future__ import annotations

from datetime import date

import openpyxl
import pandas as pd
import pyarrow as pa
import pyreadstat
import pytest
from pyarrow import parquet

from tallytree import DataError, Hierarchy, SpecError
from tallytree.core.public_table import public_table
from tallytree.tables import InputProblems, read

TREE = Hierarchy.from_levels({"place": ["1001", "01003", "2.5", "Zürich"]}, ["place"])
HOW = {"group": "home", "region": "place", "hierarchy": TREE, "max_size": 3}


def write_xlsx(path, columns, sheets=("Sheet",)):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in sheets:
        sheet = book.create_sheet(name)
        sheet.append([*columns])
        for row in zip(*columns.values(), strict=True):
            sheet.append(row)
    book.save(path)


def write_stata(path, columns):
    pyreadstat.write_dta(pd.DataFrame(columns), str(path))


def write_spss(path, columns):
    pyreadstat.write_sav(pd.DataFrame(columns), str(path))


WRITERS = {"people.xlsx": write_xlsx, "people.dta": write_stata, "people.sav": write_spss}


@pytest.fixture(params=WRITERS)
def written(request, tmp_path):
    """A function that writes columns into a file of each kind."""

    def write(**columns):
        WRITERS[request.param](tmp_path / request.param, columns)
        return tmp_path / request.param

    return write


def counts(source, **options):
    return read(source, **HOW | options).counts.open_at_the_privacy_border().tolist()


def test_codes_that_are_numbers_have_no_decimal_point(written):
    path = written(home=[1, 1, 2], place=[1001, 1001, 2.5], size=[1, 2, 3])
    assert counts(path) == [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert counts(path, quantity="size", quantity_bound=3) == [[0, 0, 1], [0, 0, 0], [0, 0, 1], [0, 0, 0]]


def test_texts_keep_their_zeros_and_their_letters(written):
    path = written(home=["a", "b", "b"], place=["01003", "Zürich", "Zürich"])
    assert counts(path) == [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0]]


def test_a_missing_value_is_missing(written):
    path = written(home=[1.0, None, 2.0], place=["Zürich", "Zürich", None])
    with pytest.raises(InputProblems) as caught:
        counts(path)
    assert [problem.count for problem in caught.value.problems] == [1, 1]


def test_how_a_row_is_read_does_not_depend_on_the_other_rows(written):
    before = counts(written(home=[1, 2], place=[1001, 1001]))
    after = counts(written(home=[1, 2, 3.5], place=[1001, 1001, 2.5]))
    assert sum(abs(a - b) for one, two in zip(before, after, strict=True) for a, b in zip(one, two, strict=True)) == 1


def test_regions_may_be_in_such_a_file(written):
    path = written(state=["A", "B"], place=[1001, 2.5])
    assert Hierarchy.from_levels(path, ["state", "place"]).names[3:] == ("1001", "2.5")
    assert public_table(path).column_names == ["state", "place"]


def test_several_files_of_one_kind(written, tmp_path):
    path = written(home=[1, 2], place=[1001, 1001])
    other = path.rename(path.with_stem("first"))
    path = written(home=[3, 4], place=[1001, 2.5])
    assert counts([other, path]) == [[3, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    path = written(place=[1001], home=[1])
    with pytest.raises(SpecError, match="different columns"):
        counts([other, path])


def test_a_file_that_is_broken_is_refused_without_a_word_of_it(written):
    path = written(home=[1], place=["SECRET"])
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="failed with") as caught:
        counts(path)
    assert "SECRET" not in str(caught.value)


def test_a_workbook_with_several_sheets_needs_a_name(tmp_path):
    write_xlsx(tmp_path / "p.xlsx", {"home": [1], "place": [1001]}, ("a", "b"))
    with pytest.raises(SpecError, match="has 2 sheets; name one with table="):
        counts(tmp_path / "p.xlsx")
    with pytest.raises(SpecError, match="no sheet 'c'; it has a, b"):
        counts(tmp_path / "p.xlsx", table="c")
    assert counts(tmp_path / "p.xlsx", table="b")[0] == [1, 0, 0]


def test_dates_and_empty_rows_of_a_workbook(tmp_path):
    tree = Hierarchy.from_levels({"place": ["2020-01-31"]}, ["place"])
    rows = {"home": [1, None, 2], "place": [date(2020, 1, 31), None, date(2020, 1, 31)]}
    write_xlsx(tmp_path / "p.xlsx", rows)
    assert counts(tmp_path / "p.xlsx", hierarchy=tree) == [[2, 0, 0]]


@pytest.mark.parametrize("names", [["home", ""], ["home", "home"]])
def test_names_of_columns_must_differ(tmp_path, names):
    book = openpyxl.Workbook()
    book.active.append(names)
    book.active.append([1, 2])
    book.save(tmp_path / "p.xlsx")
    with pytest.raises(SpecError, match="each column a different name"):
        counts(tmp_path / "p.xlsx")


def test_a_folder_of_parquet_files(tmp_path):
    whole = pa.table({"home": [1, 1, 2], "place": ["1001", "1001", "01003"]})
    for number in range(3):
        (tmp_path / "people" / f"part {number}").mkdir(parents=True)
        parquet.write_table(whole.slice(number, 1), tmp_path / "people" / f"part {number}" / "rows.parquet")
    assert counts(tmp_path / "people") == counts(whole)
    assert counts(f"{tmp_path}/peo*/**/*.parquet") == counts(whole)


def test_codes_in_the_names_of_folders_keep_their_zeros(tmp_path):
    for place in ("1001", "01003"):
        (tmp_path / "people" / f"place={place}").mkdir(parents=True)
        parquet.write_table(pa.table({"home": [place]}), tmp_path / "people" / f"place={place}" / "rows.parquet")
    assert counts(tmp_path / "people") == [[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
