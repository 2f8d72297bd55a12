"""Engines that hold the tests' rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import ibis
import pytest

from tallytree import Source
from tests import engines
from tests.engines import JAVA, NO_JAVA, NO_POSTGRES, PASSWORD, POSTGRES, postgres_server, to_parquet, to_postgres

NUMBERS = count()
SERVERS = {"PostgreSQL": "postgres", "Spark": "spark", "Spark Connect": "connect"}

ON_POSTGRES = [pytest.mark.xdist_group("postgres"), pytest.mark.skipif(POSTGRES is None, reason=NO_POSTGRES)]
ON_SPARK = [pytest.mark.slow, pytest.mark.xdist_group("spark"), pytest.mark.skipif(JAVA is None, reason=NO_JAVA)]


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server and a connection of its owner."""

    url: str
    connection: Any

    def load(self, table):
        name = f"rows {next(NUMBERS)}"
        to_postgres(self.connection, name, table)
        return Source(self.url, name)


@pytest.fixture(scope="session")
def postgres():
    psycopg = pytest.importorskip("psycopg")
    with pytest.MonkeyPatch.context() as patch, postgres_server() as url:
        patch.setenv("PGPASSWORD", PASSWORD)
        with psycopg.connect(url) as connection:
            yield Server(url, connection)


@dataclass(frozen=True)
class Spark:
    """A Spark cluster with a session of this process on it, or a server of Spark Connect."""

    url: str
    folder: Path
    session: Any  # of the cluster; None for Spark Connect
    known: dict[int, tuple[Any, Source]]

    def load(self, table):
        """The rows in a file; the same for the same rows."""
        if id(table) not in self.known:
            name = to_parquet(self.folder / f"rows {next(NUMBERS)}.parquet", table)
            self.known[id(table)] = table, Source(self.url, name)
        return self.known[id(table)][1]


@pytest.fixture(scope="session")
def spark_settings(tmp_path_factory):
    """A folder with the settings of all Spark sessions, also of those that a URL opens."""
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(engines.spark_settings(folder)))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        yield folder


@pytest.fixture(scope="session")
def spark(spark_settings):
    pytest.importorskip("pyspark")
    with engines.spark_cluster(spark_settings) as cluster, engines.spark_session(cluster.url) as session:
        yield Spark(cluster.url, spark_settings, session, {})


@pytest.fixture(scope="session")
def connect(spark_settings):
    pytest.importorskip("pyspark")
    with pytest.MonkeyPatch.context() as patch, engines.connect_server(spark_settings) as (url, _):
        patch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", PASSWORD)
        yield Spark(url, spark_settings, None, {})


@pytest.fixture(
    scope="session",
    params=[
        "a DuckDB file",
        "Ibis",
        pytest.param("PostgreSQL", marks=ON_POSTGRES),
        pytest.param("Spark", marks=ON_SPARK),
        pytest.param("Spark Connect", marks=ON_SPARK),
    ],
)
def placed(request, tmp_path_factory):
    """From Arrow data to the same rows on an engine, as `read` takes them."""
    if request.param in SERVERS:
        return request.getfixturevalue(SERVERS[request.param]).load
    path = tmp_path_factory.mktemp("engine") / "rows.duckdb"
    backend = ibis.duckdb.connect() if request.param == "Ibis" else None

    def load(table):
        name = f"rows {next(NUMBERS)}"
        if backend is not None:
            backend.con.register(name, table)
            return backend.table(name)
        with duckdb.connect(str(path)) as connection:
            connection.register("given", table)
            connection.execute(f'create table "{name}" as from given')
        return Source(f"duckdb://{path}", name)

    return load
