"""Microdata given as their own public list of groups are noticed, by whatever name."""

from __future__ import annotations

import ibis
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from tallytree import Hierarchy, SpecError
from tallytree.tables import read

TREE = Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
ROWS = pa.table({"home": ["a", "b", "c"], "county": ["1", "1", "2"]})
LIST = pa.table({"home": ["a", "b", "c", "d"], "county": ["1", "1", "2", "2"]})
OPTIONS = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}


def refused(source, groups, **options):
    with pytest.raises(SpecError, match="groups is the microdata themselves"):
        read(source, groups=groups, groups_are_public=True, **OPTIONS, **options)


def created(connection):
    for name, table in (("people", ROWS), ("homes", LIST)):
        connection.con.register("given", table)
        connection.con.execute(f"create table {name} as select * from given")
    return connection.table("people"), connection.table("homes")


def test_the_same_object():
    refused(ROWS, ROWS)
    frame = ROWS.to_pandas()
    refused(frame, frame)


def test_the_same_file_by_any_path(tmp_path, monkeypatch):
    path = tmp_path / "people.parquet"
    parquet.write_table(ROWS, path)
    (tmp_path / "symbolic.parquet").symlink_to(path)
    (tmp_path / "hard.parquet").hardlink_to(path)
    monkeypatch.chdir(tmp_path)
    others = ["people.parquet", "./people.parquet", path, str(path), "symbolic.parquet", "hard.parquet", "peo*.parquet"]
    for other in others:
        refused(path, other)
        refused(other, [other])


def test_one_file_of_several(tmp_path):
    for name in ("one.csv", "two.csv"):
        csv.write_csv(ROWS, tmp_path / name)
    refused([tmp_path / "one.csv", tmp_path / "two.csv"], tmp_path / "two.csv")


def test_the_same_table_of_a_duckdb_file_and_not_another(tmp_path):
    path = tmp_path / "people.duckdb"
    connection = ibis.duckdb.connect(path)
    created(connection)
    connection.disconnect()
    refused(path, path, table="people", groups_table="people")
    assert read(
        path, groups=path, groups_are_public=True, **OPTIONS, table="people", groups_table="homes"
    ).leaf_totals.tolist() == [2, 2]


def test_the_same_ibis_table_and_what_is_made_of_it():
    connection = ibis.duckdb.connect()
    rows, homes = created(connection)
    refused(rows, rows)
    refused(rows, connection.table("people"))
    refused(rows, rows.select("home", "county").distinct())
    refused(rows.filter(rows.county == "1"), rows)
    joined = rows.drop("county").join(homes, "home")
    for source in (rows, joined):
        assert read(source, groups=homes, groups_are_public=True, **OPTIONS).leaf_totals.tolist() == [2, 2]


def test_a_list_from_elsewhere_is_taken(tmp_path):
    parquet.write_table(ROWS, tmp_path / "people.parquet")
    parquet.write_table(LIST, tmp_path / "homes.parquet")
    sizes = read(tmp_path / "people.parquet", groups=tmp_path / "homes.parquet", groups_are_public=True, **OPTIONS)
    assert sizes.leaf_totals.tolist() == [2, 2]


def test_a_list_of_groups_is_private_until_the_data_holder_declares_it_public(tmp_path):
    """The office's own household file would publish the exact number of households of every region."""
    parquet.write_table(LIST, tmp_path / "households.parquet")
    for groups in (LIST, tmp_path / "households.parquet"):
        assert read(ROWS, groups=groups, **OPTIONS).leaf_totals is None
        assert read(ROWS, groups=groups, groups_are_public=True, **OPTIONS).leaf_totals.tolist() == [2, 2]
