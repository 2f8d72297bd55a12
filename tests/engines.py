"""Engines for the tests, started by them: a PostgreSQL server and a Spark cluster, both thrown away afterwards.

Servers are shared by all tests of a worker; tests that use one are in its `xdist_group`, so that there is one of each.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

PASSWORD = "correct-horse-4711"  # of the throw-away server
NAMES = count()

JAVA = shutil.which("java")
NO_JAVA = "NOT TESTED ON SPARK: there is no Java; install it with: sudo apt-get install default-jre-headless"
POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None) or shutil.which("initdb")
NO_POSTGRES = "NOT TESTED ON POSTGRES: there is no server; install it with: sudo apt-get install postgresql"


def unprivileged() -> dict[str, Any]:
    """As whom to run the server: it refuses to run as root."""
    if os.getuid() != 0:
        return {}
    known = {user.pw_name for user in pwd.getpwall()}
    user = pwd.getpwnam("postgres" if "postgres" in known else "nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@contextmanager
def postgres_server() -> Iterator[str]:
    """A server of PostgreSQL in a directory of its own, reached through a socket in there; its URL has no password."""
    assert POSTGRES is not None
    programs, user = Path(POSTGRES).parent, unprivileged()
    with tempfile.TemporaryDirectory(prefix="tallytree-postgres-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        (folder / "password").write_text(PASSWORD)
        if user:
            for path in (folder, folder / "password"):
                os.chown(path, user["user"], user["group"])

        def run(program: str, *arguments: str) -> None:
            whole = [str(programs / program), "--pgdata", str(folder / "data"), *arguments]
            with open(folder / "log", "ab") as log:
                subprocess.run(whole, check=True, cwd=folder, stdout=log, stderr=log, **user)

        run("initdb", "--username", "steward", "--auth", "scram-sha-256", "--pwfile", str(folder / "password"),
            "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync")  # fmt: skip
        settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c log_statement=all"
        run("pg_ctl", "--wait", "--log", str(folder / "server.log"), "--options", settings, "start")
        try:
            yield f"postgresql://steward@/postgres?host={folder}"
        finally:
            run("pg_ctl", "--wait", "--mode", "immediate", "stop")


def postgres_type(kind: pa.DataType) -> str:
    """The type of a column on PostgreSQL for one of Arrow's."""
    if pa.types.is_integer(kind):
        return "bigint"
    if pa.types.is_floating(kind):
        return "double precision"
    return {pa.date32(): "date", pa.bool_(): "boolean"}.get(kind, "text")


def to_postgres(connection: Any, name: str, table: pa.Table) -> None:
    """Make a table of these rows."""
    columns = ", ".join(f'"{field.name}" {postgres_type(field.type)}' for field in table.schema)
    with connection.cursor() as cursor:
        cursor.execute(f'create table "{name}" ({columns})')
        with cursor.copy(f'copy "{name}" from stdin') as copy:
            for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
                copy.write_row(row)
    connection.commit()


def to_spark(session: Any, table: pa.Table) -> Any:
    """A data frame of these rows."""
    kinds = [pa.string() if pa.types.is_null(field.type) else field.type for field in table.schema]
    schema = pa.schema([field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)])
    return session.createDataFrame(table.cast(schema))


@contextmanager
def spark_cluster(folder: Path, **more: str) -> Iterator[Any]:
    """A session on a cluster with two workers, whose executors are processes of their own."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.executor.memory": "640m",
        "spark.log.level": "OFF",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in (settings | more).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def spark_standalone(folder: Path) -> Iterator[str]:
    """The URL of a master with one worker, each a process of its own, started by Spark's own program."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    settings = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1", "SPARK_DAEMON_MEMORY": "256m"}
    started: list[subprocess.Popen] = []

    def start(name: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        whole = [str(program), f"org.apache.spark.deploy.{name.lower()}.{name}", *arguments]
        with open(log, "wb") as file:
            started.append(subprocess.Popen(whole, stdout=file, stderr=file, env=os.environ | settings, cwd=folder))
        return log

    def waited_for(log: Path, pattern: str) -> str:
        for _ in range(3000):
            if found := re.search(pattern, log.read_text()):
                return found[1]
            time.sleep(0.1)
        raise TimeoutError(log.read_text())

    try:
        ports = "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"
        url = waited_for(start("Master", *ports), r"Starting Spark master at (spark://\S+)")
        worker = start("Worker", *ports, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"), url)
        waited_for(worker, r"(Successfully registered with master)")
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait()
