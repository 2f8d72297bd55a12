"""Engines that hold the tests' rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

import duckdb
import ibis
import pytest

from tallytree import Source
from tests.engines import (
    JAVA,
    NO_JAVA,
    NO_POSTGRES,
    PASSWORD,
    POSTGRES,
    postgres_server,
    spark_cluster,
    to_postgres,
    to_spark,
)

NUMBERS = count()

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


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    pytest.importorskip("pyspark")
    few_rows = {"spark.sql.adaptive.enabled": "false", "spark.sql.codegen.wholeStage": "false"}  # nothing to compile
    with spark_cluster(tmp_path_factory.mktemp("spark"), **few_rows) as session:
        yield session


@pytest.fixture(
    scope="session",
    params=[
        "a DuckDB file",
        "Ibis",
        pytest.param("PostgreSQL", marks=ON_POSTGRES),
        pytest.param("Spark", marks=ON_SPARK),
    ],
)
def placed(request, tmp_path_factory):
    """From Arrow data to the same rows on an engine, as `read` takes them."""
    if request.param == "PostgreSQL":
        return request.getfixturevalue("postgres").load
    if request.param == "Spark":
        session, known = request.getfixturevalue("spark"), {}

        def frame(table):
            if id(table) not in known:
                known[id(table)] = table, to_spark(session, table)
            return known[id(table)][1]

        return frame
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
