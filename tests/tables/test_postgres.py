"""What PostgreSQL is asked for, and what it is left with: one state of the rows, no secret, nothing behind."""

from __future__ import annotations

import logging
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from tallytree import DataError, Hierarchy, Source, SpecError, TallytreeError
from tallytree.tables import read, source
from tests.engines import PASSWORD
from tests.tables.conftest import ON_POSTGRES
from tests.tables.test_acceptance import check_one_state

pytestmark = ON_POSTGRES

TREE = Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
OPTIONS = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 3}
ROWS = pa.table({"person": [1, 2, 3], "home": ["a", "a", "b"], "county": ["1", "1", "2"]})
HOMES = pa.table({"home": ["a", "b", "c"], "county": ["1", "2", "2"]})


@pytest.fixture(scope="module")
def rows(postgres):
    return postgres.load(ROWS)


def counts(rows, **options):
    return read(rows, **OPTIONS, groups_are_public=True, **options).counts.open_at_the_privacy_border().tolist()


def folder_of(server):
    return Path(server.url.partition("host=")[2])


def asked(server, query):
    found = server.connection.execute(query).fetchall()
    server.connection.commit()
    return found


def test_the_checks_and_the_count_see_one_state_of_the_rows(postgres):
    there = postgres.load(ROWS)
    with source.workspace(None) as connect:
        opened = source.open_source(there, None, connect)
        postgres.connection.execute(f'insert into "{there.table}" select * from "{there.table}"')
        postgres.connection.commit()
        seen = opened.fetch("Counting", f"SELECT count(*) AS rows FROM {opened.table.source}")
    assert seen.to_pylist() == [{"rows": 3}]
    assert sum(map(sum, counts(there))) == 2
    with pytest.raises(DataError, match="3 entities have more than one row"):
        counts(there, entity="person")


def test_a_view_that_changes_at_every_query_is_checked_and_counted_in_one_state(postgres):
    there = postgres.load(ROWS)
    check_one_state(
        postgres.connection.execute, f'"{there.table}"', "shifting", lambda: Source(postgres.url, "shifting")
    )


def test_groups_and_entities_may_be_of_any_type_that_can_be_compared(postgres):
    many = "from generate_series(1, 5) as n"
    for kind, value in {
        "uuid": "md5(n::text)::uuid",
        "bytea": "n::text::bytea",
        "date": "date '2026-01-01' + n",
    }.items():
        values = f"{value} as person, {value} as home, '1' as county"
        postgres.connection.execute(f"create table by_{kind} as select {values} {many}")
        postgres.connection.commit()
        assert counts(Source(postgres.url, f"by_{kind}"), entity="person") == [[5, 0, 0], [0, 0, 0]]


def test_nothing_is_left_behind_also_after_an_error(postgres, rows):
    listing = "select nspname, relname from pg_class join pg_namespace on relnamespace = pg_namespace.oid"
    open_sessions = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
    before = set(asked(postgres, listing))
    counts(rows, groups=HOMES, entity="person", rows_per_entity=1)
    with pytest.raises(DataError, match="not in the groups table"):
        counts(rows, groups=HOMES.slice(1))
    left = {(schema, name) for schema, name in set(asked(postgres, listing)) - before if schema != "pg_toast"}
    assert left == set()
    assert asked(postgres, open_sessions) == [(1,)]  # that of this test


def test_whoever_may_read_one_table_and_no_more_can_count_it(postgres, rows):
    postgres.connection.execute(f"create role reader login password '{PASSWORD}'")
    postgres.connection.execute(f'grant select on "{rows.table}" to reader')
    postgres.connection.commit()
    there = Source(postgres.url.replace("steward", "reader"), rows.table)
    assert counts(there, entity="person", rows_per_entity=1) == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(SpecError, match="has no table 'homes', or you may not read it"):
        counts(Source(there.url, "homes"))


def test_tables_are_found_by_schema_and_by_names_with_capitals(postgres):
    postgres.connection.execute('create schema census; create table census."People" (home text, county text)')
    postgres.connection.commit()
    for name in ('census."People"',):
        assert counts(Source(postgres.url, name)) == [[0, 0, 0]] * 2
    for name in ("census.people", "People", "a.b.c.d", "no such", '"', ";"):
        with pytest.raises(SpecError, match="the engine has no table"):
            counts(Source(postgres.url, name))


def test_microdata_are_not_their_own_list_by_another_url_or_name(postgres, rows):
    for groups in (
        rows,
        Source(postgres.url, f'public."{rows.table}"'),
        Source(f"{postgres.url}&port=5432", rows.table),
    ):
        with pytest.raises(SpecError, match="groups is the microdata themselves"):
            counts(rows, groups=groups)


def test_the_key_of_lots_is_in_no_log(postgres, rows, monkeypatch):
    key = "0123456789abcdef" * 4
    monkeypatch.setattr("tallytree.tables.count.fresh_key", lambda: key)
    counts(rows, entity="person", rows_per_entity=1)
    log = (folder_of(postgres) / "server.log").read_text()
    assert "sha256(" in log.lower()  # every statement is logged
    assert key not in log


def test_a_row_that_the_engine_quotes_is_not_shown(postgres):
    there = postgres.load(pa.table({"home": ["SECRET"], "county": ["1"]}))
    postgres.connection.execute(f'create view failing as select home::bigint as home, county from "{there.table}"')
    postgres.connection.commit()
    with pytest.raises(DataError, match=r"Counting failed with \w+\. The engine's message is withheld") as caught:
        counts(Source(postgres.url, "failing"))
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_connection_that_ends_in_the_middle_is_said_in_our_words(postgres):
    there = postgres.load(pa.table({"home": ["SECRET"], "county": ["1"]}))
    postgres.connection.execute(f'create view slow as select r.* from "{there.table}" r, pg_sleep(600)')
    postgres.connection.commit()
    asleep = "select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'"

    def end():
        while not asked(postgres, asleep):
            time.sleep(0.1)

    with ThreadPoolExecutor() as pool:
        ending = pool.submit(end)
        with pytest.raises(DataError, match="Counting failed: the server ended the connection") as caught:
            counts(Source(postgres.url, "slow"))
        ending.result()
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_table_behind_a_view_that_may_not_be_read_is_said_in_our_words(postgres, rows):
    postgres.connection.execute(f"create role guest login password '{PASSWORD}'")
    postgres.connection.execute(f'create view barred with (security_invoker) as select * from "{rows.table}"')
    postgres.connection.execute("grant select on barred to guest")
    postgres.connection.commit()
    with pytest.raises(DataError, match="Counting failed: this user may not read the table"):
        counts(Source(postgres.url.replace("steward", "guest"), "barred"))


# ---------------------------------------------------------------- passwords


def test_the_password_comes_from_a_file_or_a_service(postgres, rows, monkeypatch, tmp_path):
    monkeypatch.delenv("PGPASSWORD")
    with pytest.raises(DataError, match="the password is wrong or missing") as caught:
        counts(rows)
    assert "PGPASSWORD" in str(caught.value)
    kept = tmp_path / "pgpass"
    kept.write_text(f"*:*:*:steward:{PASSWORD}\n")
    kept.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(kept))
    assert counts(rows) == [[0, 1, 0], [1, 0, 0]]
    monkeypatch.delenv("PGPASSFILE")
    service = tmp_path / "services.conf"
    service.write_text(f"[census]\nhost={folder_of(postgres)}\nuser=steward\ndbname=postgres\npassword={PASSWORD}\n")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    assert counts(Source("postgresql:///?service=census", rows.table)) == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(DataError, match="the service is not in"):
        counts(Source("postgresql:///?service=elsewhere", rows.table))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("steward", "nobody"), "password is wrong or missing"),
        (("/postgres?", "/nowhere?"), "the database or user does not exist"),
        (("host=/", "host=/nowhere/"), "no server is listening at that address"),
    ],
)
def test_why_there_is_no_connection_is_said_without_the_password(postgres, monkeypatch, caplog, capfd, change, words):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with caplog.at_level(logging.DEBUG), pytest.raises(TallytreeError, match=words) as caught:
        counts(Source(postgres.url.replace(*change), "people"))
    shown = (
        "".join(traceback.format_exception(caught.value)) + repr(caught.value) + caplog.text + str(capfd.readouterr())
    )
    assert PASSWORD not in shown


def test_a_wrong_password_is_not_repeated(rows, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "SECRET")
    with pytest.raises(DataError, match="the password is wrong") as caught:
        counts(rows)
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_driver_that_is_missing_is_named(monkeypatch, rows):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SpecError, match=r"pip install 'tallytree\[engines\]'"):
        counts(rows)
