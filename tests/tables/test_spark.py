"""Spark, for those who outgrow one machine: the same rows give the same counts and the same problems as on DuckDB."""

from __future__ import annotations

import logging
import shutil
from hashlib import sha256

import ibis
import numpy as np
import pyarrow as pa
import pytest

from tallytree import Hierarchy
from tallytree.tables import InputProblems, read
from tallytree.tables.lots import bounded

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.skipif(
        shutil.which("java") is None,
        reason="NOT TESTED ON SPARK: there is no Java; install it with: sudo apt-get install default-jre-headless",
    ),
]

STATES = [("GA", "Fulton"), ("GA", "Kings"), ("NY", "Kings"), ("DC", None)]
TREE = Hierarchy.from_levels(
    {"state": [state for state, _ in STATES], "county": [county for _, county in STATES]}, ["state", "county"]
)
OPTIONS = {"group": "home", "region": ["state", "county"], "hierarchy": TREE, "max_size": 4}


def people(rows=400, homes=150):
    made = np.random.default_rng(11)
    home = made.integers(0, homes, rows)
    return pa.table(
        {
            "person": np.arange(rows),
            "home": home,
            "state": [STATES[number % 4][0] for number in home],
            "county": [STATES[number % 4][1] for number in home],
            "amount": made.integers(0, 3, rows),
            "text": [str(value) for value in made.integers(0, 3, rows)],
        }
    )


def listed(homes=150):
    return pa.table(
        {
            "home": np.arange(homes),
            "state": [STATES[number % 4][0] for number in range(homes)],
            "county": [STATES[number % 4][1] for number in range(homes)],
        }
    )


@pytest.fixture(scope="module")
def spark():
    pyspark_sql = pytest.importorskip("pyspark.sql")
    session = (
        pyspark_sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def on_spark(spark):
    connection = ibis.pyspark.connect(spark)
    loaded = {}

    def load(name, table):
        if name not in loaded:
            spark.createDataFrame(table.to_pandas()).cache().createOrReplaceTempView(name)
            loaded[name] = connection.table(name)
        return loaded[name]

    return load


def opened(sizes):
    return sizes.counts.open_at_the_privacy_border().tolist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"quantity": "text", "quantity_bound": 2},
        {"entity": "person", "rows_per_entity": 2},
        {"groups": listed(), "on_spanning_group": "split", "quantity": "amount", "quantity_bound": 2},
    ],
    ids=["rows", "text quantities", "bounded", "all"],
)
def test_spark_counts_what_duckdb_counts(on_spark, options):
    rows = people()
    expected = opened(read(rows, **OPTIONS, **options))
    assert opened(read(on_spark("people", rows), **OPTIONS, **options)) == expected
    assert sum(map(sum, expected)) > 100


def test_spark_keeps_the_rows_that_duckdb_keeps_and_logs_no_key(on_spark, caplog):
    made = np.random.default_rng(12)
    visits = pa.table(
        {
            "who": made.integers(0, 30, 300),
            "place": [f"ß{place}" for place in made.integers(0, 40, 300)],
            "weight": made.integers(0, 3, 300),
        }
    )
    key = sha256(b"the same on both").hexdigest()
    there = on_spark("visits", visits)
    here = ibis.duckdb.connect()
    here.con.register("visits", visits)

    def kept(table, connection, engine):
        query = bounded(table, 2, entity="who", key=key, engine=engine)
        return sorted(tuple(row.values()) for row in connection.to_pyarrow(query).to_pylist())

    with caplog.at_level(logging.DEBUG):
        found = kept(there, there.get_backend(), "pyspark")
    assert found == kept(here.table("visits"), here, "duckdb")
    assert len(found) == 60
    assert key not in caplog.text


def test_spark_takes_the_groups_table_where_it_is(on_spark):
    rows, homes = people(), listed()
    expected = opened(read(rows, **OPTIONS, groups=homes))
    assert opened(read(on_spark("people", rows), **OPTIONS, groups=on_spark("homes", homes))) == expected


def test_spark_finds_the_problems_that_duckdb_finds(on_spark):
    rows = people(60, 20).to_pandas()
    rows.loc[0:3, "state"] = None
    rows.loc[0:3, "county"] = None
    rows.loc[4:6, "county"] = "Elsewhere"
    rows.loc[7:8, "amount"] = -1
    rows.loc[9:9, "text"] = "SECRET"
    rows.loc[10:11, "home"] = 999
    table = pa.Table.from_pandas(rows, preserve_index=False)
    for options in (
        {"quantity": "amount", "quantity_bound": 1},
        {"quantity": "text", "quantity_bound": 1, "entity": "person"},
        {"groups": listed(20)},
        {"groups": listed(20), "on_spanning_group": "split"},
    ):
        with pytest.raises(InputProblems) as on_duckdb:
            read(table, **OPTIONS, **options)
        with pytest.raises(InputProblems) as found:
            read(on_spark("broken", table), **OPTIONS, **options)
        assert found.value.problems == on_duckdb.value.problems
        assert len(found.value.problems) >= 2
