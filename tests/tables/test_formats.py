"""The same rows from every kind of source give the same counts."""

from __future__ import annotations

import gzip
import hashlib
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile

import duckdb
import ibis
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tallytree import DataError, Hierarchy, SpecError
from tallytree.tables import InputProblems, read, source

TREE = Hierarchy.from_levels({"county": ["01001", "01003", "02001"]}, ["county"])
PEOPLE = pa.table({"home": ["a", "a", "b", "c", "c", "c"], "county": ["01001"] * 2 + ["01003"] + ["02001"] * 3})
GROUPS = pa.table({"home": ["a", "b", "c", "d"], "county": ["01001", "01003", "02001", "02001"]})
EXPECTED = [[0, 1, 0], [1, 0, 0], [0, 0, 1]]
EXPECTED_WITH_GROUPS = [[0, 0, 1, 0], [0, 1, 0, 0], [1, 0, 0, 1]]
OPTIONS = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}


def counts(source, **options):
    return read(source, **OPTIONS, groups_are_public=True, **options).counts.open_at_the_privacy_border().tolist()


def write_csv(path):
    csv.write_csv(PEOPLE, path)
    return path


def test_parquet(tmp_path):
    parquet.write_table(PEOPLE, tmp_path / "people.parquet")
    assert counts(tmp_path / "people.parquet") == EXPECTED
    assert counts(str(tmp_path / "people.parquet"), groups=GROUPS) == EXPECTED_WITH_GROUPS


def test_csv_keeps_leading_zeros(tmp_path):
    assert counts(write_csv(tmp_path / "people.csv")) == EXPECTED


def test_csv_with_a_byte_order_mark_and_windows_line_ends(tmp_path):
    text = write_csv(tmp_path / "people.csv").read_text().replace("\n", "\r\n")
    (tmp_path / "people.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert counts(tmp_path / "people.csv") == EXPECTED


def test_compressed_csv(tmp_path):
    packed = tmp_path / "people.csv.gz"
    packed.write_bytes(gzip.compress(write_csv(tmp_path / "plain.csv").read_bytes()))
    assert counts(packed) == EXPECTED


def test_tab_separated(tmp_path):
    text = write_csv(tmp_path / "people.csv").read_text().replace(",", "\t")
    (tmp_path / "people.tsv").write_text(text)
    assert counts(tmp_path / "people.tsv") == EXPECTED


def test_globs_and_lists_of_files(tmp_path):
    parquet.write_table(PEOPLE.slice(0, 2), tmp_path / "part-1.parquet")
    parquet.write_table(PEOPLE.slice(2), tmp_path / "part-2.parquet")
    assert counts(str(tmp_path / "part-*.parquet")) == EXPECTED
    assert counts([tmp_path / "part-1.parquet", tmp_path / "part-2.parquet"]) == EXPECTED


def test_csv_files_with_different_columns_are_refused(tmp_path):
    (tmp_path / "one.csv").write_text("home,county\na,01001\n")
    (tmp_path / "two.csv").write_text("county,home\n01001,a\n")
    with pytest.raises(SpecError, match="different columns"):
        counts(str(tmp_path / "*.csv"))


def test_duckdb_file(tmp_path):
    path = tmp_path / "census.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.register("rows", PEOPLE)
        connection.execute("create table people as select * from rows")
    assert counts(path) == EXPECTED
    with duckdb.connect(str(path)) as connection:
        connection.register("rows", GROUPS)
        connection.execute("create table homes as select * from rows")
    with pytest.raises(SpecError, match="2 tables; name one with table="):
        counts(path)
    with pytest.raises(SpecError, match="no table 'x'; it has homes, people"):
        counts(path, table="x")
    assert counts(path, table="people") == EXPECTED
    assert counts(path, table="people", groups=path, groups_table="homes") == EXPECTED_WITH_GROUPS


def test_a_db_file_that_is_not_duckdb_is_refused(tmp_path):
    sqlite3.connect(tmp_path / "people.db").execute("create table people (home text)")
    with pytest.raises(SpecError, match="not a DuckDB file"):
        counts(tmp_path / "people.db")


def test_arrow_interfaces():
    assert counts(PEOPLE) == EXPECTED
    assert counts(PEOPLE.to_reader()) == EXPECTED
    assert counts(PEOPLE.to_pandas()) == EXPECTED
    assert counts(PEOPLE.to_pandas().astype("category")) == EXPECTED
    assert counts(PEOPLE, groups=GROUPS.to_pandas()) == EXPECTED_WITH_GROUPS


def test_ibis_on_duckdb(tmp_path):
    connection = ibis.duckdb.connect()
    connection.con.register("people", PEOPLE)
    connection.con.register("homes", GROUPS)
    people, homes = connection.table("people"), connection.table("homes")
    csv.write_csv(GROUPS, tmp_path / "homes.csv")
    assert counts(people) == EXPECTED
    assert counts(people.filter(people.home != "c")) == [*EXPECTED[:2], [0, 0, 0]]
    assert counts(people, groups=homes) == EXPECTED_WITH_GROUPS
    assert counts(people, groups=tmp_path / "homes.csv") == EXPECTED_WITH_GROUPS
    assert counts(PEOPLE, groups=homes) == EXPECTED_WITH_GROUPS
    assert counts(ibis.memtable(PEOPLE), groups=ibis.memtable(GROUPS)) == EXPECTED_WITH_GROUPS


def test_ibis_on_sqlite(tmp_path):
    database = sqlite3.connect(tmp_path / "people.sqlite")
    database.execute("create table people (home text, county text, amount real, person integer)")
    rows = [(*row.values(), 1.0, number) for number, row in enumerate(PEOPLE.to_pylist())]
    database.executemany("insert into people values (?, ?, ?, ?)", rows)
    database.commit()
    people = ibis.sqlite.connect(tmp_path / "people.sqlite").table("people")
    assert counts(people) == EXPECTED
    assert counts(people, groups=GROUPS) == EXPECTED_WITH_GROUPS
    assert counts(people, on_spanning_group="split") == EXPECTED
    assert counts(people, quantity="amount", quantity_bound=1) == EXPECTED
    assert counts(people, entity="person") == EXPECTED
    database.execute("update people set amount = 1.5, county = '9'")
    database.commit()
    with pytest.raises(InputProblems) as caught:
        counts(people, quantity="amount", quantity_bound=1, groups=GROUPS)
    assert [problem.count for problem in caught.value.problems] == [6, 6]


# ---------------------------------------------------------------- what else comes of a source


def test_name_and_fingerprint_come_from_the_file(tmp_path):
    path = write_csv(tmp_path / "people.2024.csv")
    sizes = read(path, **OPTIONS)
    inner = hashlib.sha256(path.read_bytes()).digest()
    assert sizes.name == "people.2024"
    assert sizes.fingerprint() == hashlib.sha256(b"rows, 1 files" + inner).hexdigest()
    assert read(path, **OPTIONS, name="census").name == "census"
    assert read(PEOPLE, **OPTIONS).fingerprint() is None
    assert read(PEOPLE, **OPTIONS).name is None


def test_spill_files_have_a_private_directory_that_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with source.workspace("1GB") as connect:
        (made,) = tmp_path.iterdir()
        settings = dict(
            connect().con.sql("select name, value from duckdb_settings()").fetchall(),
        )
        assert settings["temp_directory"] == str(made)
        assert settings["preserve_insertion_order"] == "false"
        assert stat.S_IMODE(os.stat(made).st_mode) == 0o700
    assert list(tmp_path.iterdir()) == []
    assert counts(PEOPLE) == EXPECTED
    with pytest.raises(InputProblems):
        read(PEOPLE, **(OPTIONS | {"group": "x"}))
    assert list(tmp_path.iterdir()) == []


def test_spilled_rows_leave_nothing_behind(tmp_path, monkeypatch):
    rows, spill = tmp_path / "rows.parquet", tmp_path / "spill"
    spill.mkdir()
    duckdb.sql("select i::varchar as home, '01001' as county from range(3000000) t(i)").write_parquet(str(rows))
    monkeypatch.setattr(tempfile, "tempdir", str(spill))
    assert counts(rows, memory_limit="150MB") == [[3000000, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert list(spill.iterdir()) == []


def test_a_nonsensical_memory_limit_is_an_error_without_the_engines_words():
    with pytest.raises(DataError, match=r"Starting DuckDB failed with \w+\."):
        counts(PEOPLE, memory_limit="lots")


def test_importing_tables_loads_no_engine():
    code = "import sys, tallytree.tables; print({'ibis', 'duckdb', 'pyarrow', 'pandas'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_pandas_codes_with_gaps_are_counted_as_missing():
    people = pd.DataFrame({"home": [1.0, None], "county": ["01001", "01001"]})
    with pytest.raises(InputProblems, match="1 row has no group"):
        counts(people)
