"""Engines quote rows in their errors; nothing of that may reach the user."""

from __future__ import annotations

import gzip
import logging
import traceback

import pyarrow as pa
import pytest
from pyarrow import parquet

from tallytree import DataError, Hierarchy, TallytreeError
from tallytree.tables import read

SECRET = "SECRET-4711"
TREE = Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
OPTIONS = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}


@pytest.fixture
def refused(capfd, caplog):
    """Read, expect an error, and look for the secret everywhere it could have gone."""

    def attempt(source, **options):
        with caplog.at_level(logging.DEBUG), pytest.raises(TallytreeError) as caught:
            read(source, **(OPTIONS | options))
        error = caught.value
        out, err = capfd.readouterr()
        shown = [str(error), repr(error), repr(error.args), "".join(traceback.format_exception(error))]
        assert all(SECRET not in text for text in [*shown, out, err, caplog.text])
        assert error.__cause__ is None
        assert error.__context__ is None
        return error

    return attempt


@pytest.mark.parametrize(
    "broken",
    [
        b'home,county\na,1\n"' + SECRET.encode() + b",1\nb,2\n",
        b'home,county\na,1\n"' + SECRET.encode() + b'"x,1\nb,2\n',
        b"home,county\na,1\n" + SECRET.encode() + b"\nb,2\n",
        b"home,county\na,1\n" + SECRET.encode() + b",1,1,1\nb,2\n",
        b"home,county\na,1\n" + SECRET.encode() + b"\xff\xfe,1\nb,2\n",
        b'home,"county\n' + SECRET.encode() + b",1\n",
        b"home\xff,county\n" + SECRET.encode() + b",1\n",
        b"",
    ],
    ids=["unterminated quote", "text after a quote", "short row", "long row", "invalid UTF-8", "broken header",
         "invalid header", "empty file"],
)  # fmt: skip
def test_a_broken_csv_file_gives_no_row_away(tmp_path, refused, broken):
    (tmp_path / "people.csv").write_bytes(broken)
    refused(tmp_path / "people.csv")


def test_a_csv_file_without_a_header_does_not_show_its_first_row(tmp_path, refused):
    (tmp_path / "people.csv").write_text(f"{SECRET},1\nb,2\n")
    assert "'home', 'county' are not in the microdata" in str(refused(tmp_path / "people.csv"))


def test_a_cut_off_compressed_file_gives_no_row_away(tmp_path, refused):
    whole = gzip.compress(f"home,county\n{SECRET},1\n".encode() * 1000)
    (tmp_path / "people.csv.gz").write_bytes(whole[: len(whole) // 2])
    assert isinstance(refused(tmp_path / "people.csv.gz"), DataError)


@pytest.mark.parametrize("at", [4, 40, -8])
def test_a_corrupted_parquet_file_gives_no_row_away(tmp_path, refused, at):
    path = tmp_path / "people.parquet"
    table = pa.table({"home": [SECRET] * 50 + ["b"], "county": ["1"] * 51})
    parquet.write_table(table, path, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[at : at + 4 if at != -8 else -4] = b"\xff\xff\xff\xff"
    path.write_bytes(bytes(content))
    refused(path)


def test_a_file_that_is_not_what_its_name_says_gives_no_row_away(tmp_path, refused):
    (tmp_path / "people.parquet").write_text(f"home,county\n{SECRET},1\n")
    error = refused(tmp_path / "people.parquet")
    assert isinstance(error, DataError)
    assert "Parquet source failed with" in str(error)


def test_texts_in_columns_of_numbers_are_counted_not_shown(tmp_path, refused):
    (tmp_path / "people.csv").write_text(f"home,county,amount\na,1,{SECRET}\nb,2,1\n")
    error = refused(tmp_path / "people.csv", quantity="amount", quantity_bound=1)
    assert "1 row has a quantity that is not a number" in str(error)


def test_no_problem_shows_a_value(refused):
    table = pa.table({"home": [SECRET, SECRET, None], "county": [SECRET, "1", "2"], "who": [SECRET] * 3})
    refused(table, entity="who")
    refused(table, groups=pa.table({"home": ["a"], "county": ["1"]}), groups_are_public=True)


def test_values_that_arrow_cannot_take_are_not_shown(refused):
    import pandas as pd

    frame = pd.DataFrame({"home": [SECRET, 1, object()], "county": ["1", "1", "1"]})
    assert isinstance(refused(frame), DataError)


def test_an_engine_that_fails_while_counting_is_not_quoted(refused):
    import ibis

    connection = ibis.duckdb.connect()
    connection.con.register("people", pa.table({"home": [SECRET], "county": ["1"]}))
    people = connection.table("people")
    failing = people.mutate(home=people.home.cast("int64"))
    assert "Counting failed with ConversionException" in str(refused(failing))
