"""Whoever waits for DuckDB is told how far it is, and can interrupt it."""

import subprocess
import sys
import threading

import duckdb
import pyarrow as pa
import pytest

import tallytree as tt
from tallytree.core.errors import DataError
from tallytree.tables.source import MANY, READING, DuckDB, Opened, waited, workspace

ENDLESS = "select count(*) from (select (range * range) % 30017 as k, count(*) from range(100000000000) group by k)"


@pytest.fixture
def connection():
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar_print = false")
        connection.execute("SET enable_progress_bar = true")
        yield connection


def test_an_interrupt_ends_the_query():
    """In a process of its own, for the interrupt is a real one."""
    script = f"""
import os, signal, duckdb
from tallytree.tables.source import waited

signal.signal(signal.SIGINT, signal.default_int_handler)
connection, told = duckdb.connect(), []

def tell(percent):
    told.append(percent)
    os.kill(os.getpid(), signal.SIGINT)

try:
    waited(connection, lambda: connection.execute({ENDLESS!r}).fetchall(), tell)
except KeyboardInterrupt:
    print(len(told), connection.execute("select 1").fetchall())  # it is idle again
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "1 [(1,)]", ended.stderr


def test_what_the_work_gives_or_raises_is_given_or_raised(connection):
    assert waited(connection, lambda: connection.execute("select 2").fetchall(), print) == [(2,)]
    with pytest.raises(duckdb.Error):
        waited(connection, lambda: connection.execute("select nothing"), print)


def test_many_rows_are_in_a_table_of_duckdbs_own_which_it_knows_the_length_of(connection):
    engine = DuckDB(connection)
    for rows, scan in ((3, "Arrow Scan"), (MANY, "Seq Scan")):
        table = engine.put({"number": range(rows)})
        assert scan in str(connection.execute(f"EXPLAIN SELECT * FROM {table.source}").fetchall())
        assert engine.fetch(f"SELECT * FROM {table.source}")["number"].to_pylist() == list(range(rows))


def test_counts_are_the_same_whoever_holds_the_regions(monkeypatch):
    tree = tt.Hierarchy.from_levels({"state": ["GA", "GA", "NY"], "county": ["1", "2", "3"]}, ["state", "county"])
    rows = pa.table({"home": [1, 1, 2, 3, 3, 3], "county": ["1", "1", "3", "2", "2", "2"]})
    found = []
    for many in (MANY, 1):
        monkeypatch.setattr("tallytree.tables.source.MANY", many)
        sizes = tt.read(rows, group="home", region="county", hierarchy=tree, max_size=4)
        found.append(sizes.counts.open_at_the_privacy_border().tolist())
    assert found[0] == found[1] == [[0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]


def test_another_thread_waits_by_itself(connection):
    found = []
    thread = threading.Thread(target=lambda: found.append(waited(connection, threading.current_thread, print)))
    thread.start()
    thread.join()
    assert found == [thread]


def test_reading_tells_percentages_and_writes_nothing_by_itself(capfd):
    told = []

    class Enough(Exception):
        pass

    def progress(stage):
        told.append(stage)
        if stage.done >= 1:
            raise Enough

    with workspace(None) as connect:
        opened = Opened(connect(), None, progress)
        with pytest.raises(DataError, match="Enough"):
            opened.run("Counting", lambda: connect().con.execute(ENDLESS.replace("100000000000", "2000000000")))
    assert {(stage.doing, stage.about, stage.unit) for stage in told} == {(READING, "counting", "%")}
    assert told[-1].of == 100
    assert capfd.readouterr() == ("", "")


def test_read_hands_its_listener_on(tmp_path, monkeypatch):
    (tmp_path / "people.csv").write_text("household,county\n1,A\n2,B\n")
    monkeypatch.setattr("tallytree.tables.source.SECONDS", 0)  # so that even a short query is looked at
    told = []
    tree = tt.Hierarchy.from_levels({"county": ["A", "B"]}, ["county"])
    tt.read(
        tmp_path / "people.csv", group="household", region="county", hierarchy=tree, max_size=3, progress=told.append
    )
    assert {stage.doing for stage in told} == {READING}
