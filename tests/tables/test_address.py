"""URLs of engines: what is known, what is refused, and that no secret in one is repeated."""

from __future__ import annotations

import traceback

import pytest

import tallytree as tt

SECRET = "SECRET4711"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (f"postgresql://me:{SECRET}@host/census", "has a password in it.*PGPASSWORD.*pgpass.*service"),
        (f"postgres://me:{SECRET}@host/census", "has a password in it"),
        (f"postgresql://:{SECRET}@host/census", "has a password in it"),
        (f"postgresql://me%3A{SECRET}@host/census", "has a password in it"),
        (f"postgresql://me:{SECRET}@@host/census", "has a password in it"),
        (f"postgresql://host/census?user=me&password={SECRET}", "has a password in it"),
        (f"postgresql://host/census?sslpassword={SECRET}", "has a password in it"),
        (f"postgresql://me:{SECRET}/x@host/census", "cannot be read"),
        (f"postgresql://me:{SECRET}#x@host/census", "cannot be read"),
        (f"postgresql://me:{SECRET}?x@host/census", "cannot be read"),
        (f"postgresql://host/census#{SECRET}", "unknown settings"),
        (f"postgresql://host/census?oauth_client_secret={SECRET}", "unknown settings"),
        (f"postgresql://host/census?{SECRET}", "cannot be read"),
        (f"spark://me:{SECRET}@host:7077", "more than a host and a port"),
        (f"spark://host:7077/?token={SECRET}", "more than a host and a port"),
        ("spark://", "lacks its host or port"),
        ("spark://host", "lacks its host or port"),
        (f"sc://me:{SECRET}@host", "more than a host and a port"),
        (f"sc://host:15002/;token={SECRET}", "more than a host and a port.*SPARK_CONNECT_AUTHENTICATE_TOKEN"),
        (f"sc://host:15002/;use_ssl=true;token={SECRET}", "more than a host and a port"),
        (f"sc://host:15002/;x-secret={SECRET}", "more than a host and a port"),
        (f"sc://host:15002/{SECRET}", "more than a host and a port"),
        (f"sc://host:15002?token={SECRET}", "more than a host and a port"),
        (f"sc://host:{SECRET}", "cannot be read"),
        (f"md:census?motherduck_token={SECRET}", "one of MotherDuck. It is not opened here"),
        (f"MotherDuck:census?motherduck_token={SECRET}", "one of MotherDuck. It is not opened here"),
        (f"mysql://me:{SECRET}@host/census", "of an unknown kind"),
        (f"{SECRET}", "of an unknown kind"),
        ("duckdb://", "has no path"),
    ],
)
def test_a_url_that_is_refused_is_not_repeated(url, words):
    with pytest.raises(tt.SpecError, match=words) as caught:
        tt.Source(url, "people")
    error = caught.value
    shown = traceback.TracebackException.from_exception(error, capture_locals=True).stack[1:]  # [0] is this test
    texts = [str(error), repr(error.args), *(str(frame.locals) for frame in shown)]
    assert all(SECRET not in text for text in texts)
    assert error.__cause__ is error.__context__ is None


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://host/census",
        "postgresql://me@host:5433/census?sslmode=verify-full",
        "postgresql:///?service=census",
        "postgres://%2Frun%2Fpostgresql/census",
        "spark://master:7077",
        "sc://server",
        "sc://server:15002/",
        "sc://server:443/;use_ssl=true",
    ],
)
def test_a_url_without_a_secret_is_taken(url):
    source = tt.Source(url, 'public."people"')
    assert source.name == "people"
    assert source.path is None
    with pytest.raises(tt.SpecError, match="needs a table"):
        tt.Source(url)


def test_a_duckdb_url_is_a_path():
    assert tt.Source("duckdb://census.duckdb").path == "census.duckdb"
    assert tt.Source("duckdb:///data/census.duckdb", "people").path == "/data/census.duckdb"


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("parquet.`/data/people`", "people"),
        ("parquet.`/data/people.parquet/`", "people"),
        ("parquet.`hdfs://node/data/people/*.parquet`", "people"),
        ("orc.`s3a://bucket/the people.orc`", "the people"),
        ("census.`the people`", "the people"),
        ("catalog.census.people", "people"),
        ('"census"."people"', "people"),
    ],
)
def test_files_on_spark_are_named_by_their_path(table, name):
    assert tt.Source("spark://master:7077", table).name == name


def test_a_url_where_a_path_is_expected_is_not_repeated():
    tree = tt.Hierarchy.from_levels({"county": ["1"]}, ["county"])
    for given in (f"postgresql://me:{SECRET}@host/census", [f"postgresql://me:{SECRET}@host/census"]):
        with pytest.raises(tt.SpecError, match=r"expected; a table of an engine is Source\(url, table\)") as caught:
            tt.read(given, group="home", region="county", hierarchy=tree, max_size=3)
        assert SECRET not in str(caught.value)
    for given in (f"md:census?motherduck_token={SECRET}", [f"md:census?motherduck_token={SECRET}"]):
        with pytest.raises(tt.SpecError, match=r"is a URL of MotherDuck\. It is not opened here") as caught:
            tt.read(given, group="home", region="county", hierarchy=tree, max_size=3)
        assert SECRET not in str(caught.value)


def test_a_source_names_its_table_once():
    options = {"group": "home", "hierarchy": tt.Hierarchy.from_levels({"county": ["1"]}, ["county"]), "max_size": 3}
    with pytest.raises(tt.SpecError, match="names its table; leave table out"):
        tt.read(tt.Source("spark://host:7077", "a"), table="b", region="county", **options)
