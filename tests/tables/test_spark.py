"""Spark by URL: sessions on a cluster and of Spark Connect, what they leave behind and what they say."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings

import pyarrow as pa
import pytest

from tallytree import DataError, Hierarchy, Source, SpecError
from tallytree.tables import read
from tallytree.tables import spark as sessions
from tests.engines import PASSWORD, connect_server, to_parquet
from tests.tables.conftest import ON_SPARK

TREE = Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
OPTIONS = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}
ROWS = pa.table({"person": [1, 2, 3], "home": ["SECRET", "SECRET", "b"], "county": ["1", "1", "2"]})
HOMES = pa.table({"home": ["SECRET", "b", "c"], "county": ["1", "2", "2"]})
EXPECTED = [[0, 1, 0], [1, 0, 0]]


def counts(rows, **options):
    return read(rows, **OPTIONS, groups_are_public=True, **options).counts.open_at_the_privacy_border().tolist()


def on_both(test):
    """The test on the cluster and on Spark Connect, by the fixture `there`."""
    for mark in ON_SPARK:
        test = mark(test)
    return pytest.mark.parametrize("there", ["spark", "connect"], indirect=True)(test)


@pytest.fixture
def there(request):
    return request.getfixturevalue(request.param)


def shown(error):
    return "".join(traceback.format_exception(error)) + repr(error)


# ---------------------------------------------------------------- nobody there


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_if_nobody_listens_there_it_is_said_before_spark_tries_for_minutes(scheme, monkeypatch):
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", None)
    monkeypatch.setattr("pyspark.sql.connect.session.SparkSession", None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(DataError, match="Spark cannot be reached: no server is listening at that address"):
            counts(Source(f"{scheme}://127.0.0.1:{port}", "people"))
    with pytest.raises(DataError, match="Spark cannot be reached: the host name is unknown"):
        counts(Source(f"{scheme}://nowhere.invalid:{port}", "people"))


@pytest.mark.parametrize(
    ("scheme", "module", "words"), [("spark", "pyspark.sql", "PySpark"), ("sc", "pyspark.sql.connect.session", "gRPC")]
)
def test_a_package_that_is_missing_is_named(monkeypatch, scheme, module, words):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SpecError, match=rf"needs {words}: pip install 'tallytree\[engines\]'"):
        counts(Source(f"{scheme}://127.0.0.1:1", "people"))


# ---------------------------------------------------------------- tables


@on_both
def test_tables_are_files_or_in_the_catalog(there):
    files = there.load(ROWS)
    assert counts(files) == EXPECTED
    kept, schema = session_of(there), "on_cluster" if there.session is not None else "of_connect"  # one folder for both
    kept.sql(f"create database {schema}")
    kept.sql(f"create table {schema}.people using parquet as select * from {files.table}")
    assert counts(Source(there.url, f"{schema}.people")) == EXPECTED
    assert counts(Source(there.url, f"{schema.upper()}.people"), groups=HOMES) == [[0, 0, 1, 0], [1, 1, 0, 0]]
    for name in (f"{schema}.persons", "nowhere.people", "a.b.c.d", "no such", "`", ";", "parquet.`/nowhere/at all`"):
        with pytest.raises(SpecError, match="the engine has no table"):
            counts(Source(there.url, name))
    with pytest.raises(DataError, match="column 'house' is not in the microdata"):
        read(files, **(OPTIONS | {"group": "house"}))
    for groups in (files, Source(there.url, f"{schema}.people")):
        with pytest.raises(SpecError, match="groups is the microdata themselves"):
            counts(Source(there.url, f"spark_catalog.{schema}.people") if groups is not files else files, groups=groups)


def session_of(there):
    """A session of the test's own, on the same engine."""
    if there.session is not None:
        return there.session
    from pyspark.sql.connect.session import SparkSession

    return SparkSession(there.url)


@on_both
def test_data_frames_stay_and_their_session_is_left_as_it_was(there):
    session = session_of(there)
    session.conf.set("spark.sql.session.timeZone", "Europe/Prague")
    frame = session.table(there.load(ROWS).table)
    before = {each.name for each in session.catalog.listTables()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert counts(frame, groups=HOMES) == [[0, 0, 1, 0], [1, 1, 0, 0]]
    assert counts(frame, groups=session.table(there.load(HOMES).table)) == [[0, 0, 1, 0], [1, 1, 0, 0]]
    assert {each.name for each in session.catalog.listTables()} == before
    assert session.conf.get("spark.sql.session.timeZone") == "Europe/Prague"
    with pytest.raises(SpecError, match="groups is the microdata themselves"):
        counts(frame, groups=session.table(there.load(ROWS).table))
    failing = frame.selectExpr("cast(home as bigint) as home", "county")
    with pytest.raises(DataError, match="The engine's message is withheld") as caught:
        counts(failing)
    assert "SECRET" not in shown(caught.value)


@on_both
def test_a_file_that_is_gone_is_said_in_our_words(there):
    path = there.folder / "going.parquet"
    session = session_of(there)
    frame = session.table(to_parquet(path, ROWS))
    frame.columns  # noqa: B018
    path.unlink()
    with pytest.raises(DataError, match=r"failed: a file of the table .*does not exist any more") as caught:
        counts(frame)
    assert str(path) not in str(caught.value)


# ---------------------------------------------------------------- a cluster


READING = """
import json, os, signal, sys
import psutil, tallytree as tt
from tallytree.tables import spark
patience, url, people, homes = json.loads(sys.argv[1])
spark.PATIENCE = patience
tree = tt.Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
before = signal.getsignal(signal.SIGINT)
try:
    people, homes = tt.Source(url, people), tt.Source(url, homes)
    listed = {"groups": homes, "groups_are_public": True}
    found = tt.read(people, **listed, group="home", region="county", hierarchy=tree, max_size=3)
    print(json.dumps(found.counts.open_at_the_privacy_border().tolist()))
except tt.TallytreeError as error:
    print(error)
assert signal.getsignal(signal.SIGINT) is before
assert psutil.Process().children(recursive=True) == []
from pyspark import SparkContext
assert SparkContext._active_spark_context is None and SparkContext._gateway is None
"""


def read_in_a_process(there, patience=120, **environment):
    given = [patience, there.url, there.load(ROWS).table, there.load(HOMES).table]
    done = subprocess.run(
        [sys.executable, "-c", READING, json.dumps(given)], capture_output=True, text=True, env=os.environ | environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("_", [pytest.param("", marks=ON_SPARK)])
def test_a_session_that_a_url_opens_is_silent_and_ends_with_its_process(spark, _):
    assert json.loads(read_in_a_process(spark)) == [[0, 0, 1, 0], [1, 1, 0, 0]]


@pytest.mark.parametrize("_", [pytest.param("", marks=ON_SPARK)])
def test_a_cluster_without_a_worker_for_the_session_is_given_up(spark, tmp_path, _):
    settings = tmp_path / "spark-defaults.conf"
    settings.write_text((spark.folder / "conf" / "spark-defaults.conf").read_text() + "spark.executor.memory 900g\n")
    told = read_in_a_process(spark, patience=3, SPARK_CONF_DIR=str(tmp_path))
    assert told.startswith("Spark's cluster had no worker for this session in 3 seconds")


@pytest.mark.parametrize("_", [pytest.param("", marks=ON_SPARK)])
def test_another_cluster_than_that_of_the_running_session_is_refused(spark, _):
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"spark://127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(SpecError, match="this process has another Spark session; give a data frame of it"):
            counts(Source(url, "people"))
    assert spark.session.range(1).count() == 1


# ---------------------------------------------------------------- Spark Connect


@pytest.mark.parametrize("_", [pytest.param("", marks=ON_SPARK)])
def test_a_wrong_token_is_refused_and_not_repeated(connect, monkeypatch, capfd, _):
    rows = connect.load(ROWS)
    for token in ("SECRET", None):
        if token is None:
            monkeypatch.delenv("SPARK_CONNECT_AUTHENTICATE_TOKEN")
        else:
            monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", token)
        with pytest.raises(DataError, match="the token is wrong or missing") as caught:
            counts(rows)
        assert "SECRET" not in shown(caught.value)
    assert "SECRET" not in str(capfd.readouterr())


@pytest.mark.parametrize("_", [pytest.param("", marks=ON_SPARK)])
def test_a_server_that_dies_is_noticed_and_then_nobody_listens(spark_settings, tmp_path, monkeypatch, capfd, _):
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", PASSWORD)
    monkeypatch.setattr(sessions, "PATIENCE", 10)
    with connect_server(tmp_path) as (url, server):
        from pyspark.sql.connect.session import SparkSession

        session = SparkSession(url)
        columns = "cast(id % 2 + 1 as string) as county, concat('SECRET ', cast(id as string)) as home"
        session.sql(f"create view endless as select {columns} from range(100000000000)")
        asked = threading.Event()
        real = sessions.Session

        def watched(session, close, ask):
            return real(session, close, lambda work: (asked.set(), ask(work))[1])

        monkeypatch.setattr(sessions, "Session", watched)
        killer = threading.Thread(target=lambda: (asked.wait(), time.sleep(2), server.kill()))
        killer.start()
        with pytest.raises(DataError, match="the connection to Spark was lost") as caught:
            counts(Source(url, "endless"))
        killer.join()
        with pytest.raises(DataError, match="no server is listening at that address"):
            counts(Source(url, "endless"))
        session.client.close()
    assert PASSWORD not in shown(caught.value)
    assert "SECRET" not in shown(caught.value)
    assert PASSWORD not in str(capfd.readouterr())
