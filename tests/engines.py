"""Engines for the tests, started by them and thrown away: PostgreSQL, a Spark cluster, and Spark Connect.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PASSWORD = "correct-horse-4711"  # of the throw-away server
NAMES = count()

JAVA = shutil.which("java")
QUICK_TO_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
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


def to_parquet(path: Path, table: pa.Table) -> str:
    """A file of these rows, as Spark names it."""
    kinds = [pa.string() if pa.types.is_null(field.type) else field.type for field in table.schema]
    schema = pa.schema([field.with_type(kind) for field, kind in zip(table.schema, kinds, strict=True)])
    pq.write_table(table.cast(schema), path)
    return f"parquet.`{path}`"


@dataclass(frozen=True)
class Cluster:
    """A standalone cluster of Spark: its URL, and the processes of the master and of its workers."""

    url: str
    processes: tuple[subprocess.Popen[bytes], ...]


def started(folder: Path, name: str, words: Sequence[str], *, says: str, **environment: str) -> tuple[Any, str]:
    """A program of PySpark's, and what it says in its log about where it is."""
    import pyspark

    home = Path(pyspark.__file__).parent
    given = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", **environment}
    with open(folder / f"{name}.log", "wb") as log:
        program = [str(home / "bin" / words[0]), *words[1:]]
        process = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given)
    until = time.monotonic() + 300
    while process.poll() is None and time.monotonic() < until:
        if found := re.search(says, (folder / f"{name}.log").read_text()):
            return process, found[1]
        time.sleep(0.2)
    ended([process])
    raise RuntimeError(f"{name} of Spark did not start:\n" + (folder / f"{name}.log").read_text()[-2000:])


def ended(processes: Sequence[Any]) -> None:
    """End processes that were started here."""
    for process in processes:
        process.kill()
        process.wait()


def spark_settings(folder: Path, java: str = QUICK_TO_START, **settings: str) -> Path:
    """A folder for SPARK_CONF_DIR: small processes on this machine, for sessions that a URL opens too."""
    always = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "640m",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.memory": "640m",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": java,
        "spark.cores.max": "1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    made = folder / "conf"
    made.mkdir(exist_ok=True)
    whole = always | {name.replace("_", "."): value for name, value in settings.items()}
    lines = (f"{name} {value}\n" for name, value in whole.items() if value)
    (made / "spark-defaults.conf").write_text("".join(lines))
    return made


@contextmanager
def spark_cluster(folder: Path, java: str = QUICK_TO_START) -> Iterator[Cluster]:
    """A master and two workers, on ports that are free."""
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    small = {"SPARK_DAEMON_JAVA_OPTS": java, "SPARK_DAEMON_MEMORY": "128m"}
    processes: list[Any] = []
    try:
        words = ("spark-class", "org.apache.spark.deploy.master.Master", "--port", "0", *here)
        master, url = started(folder, "master", words, says=r"Starting Spark master at (\S+)", **small)
        processes.append(master)
        for number in range(2):
            room = ("--cores", "2", "--memory", "2g", "--work-dir", str(folder / f"work {number}"))
            words = ("spark-class", "org.apache.spark.deploy.worker.Worker", *room, *here, url)
            says = r"Successfully registered with master (\S+)"
            processes.append(started(folder, f"worker {number}", words, says=says, **small)[0])
        yield Cluster(url, tuple(processes))
    finally:
        ended(processes[::-1])


@contextmanager
def spark_session(url: str) -> Iterator[Any]:
    """A session of this process on a cluster, with an executor on each of two workers."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.cores.max": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    builder = SparkSession.builder.master(url)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def connect_server(folder: Path) -> Iterator[tuple[str, Any]]:
    """A server of Spark Connect that asks for the password as a token: its URL and its process."""
    wanted = {
        "spark.ui.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",  # to compile queries takes longer than to answer them
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
    }
    settings = [word for name, value in wanted.items() for word in ("--conf", f"{name}={value}")]
    words = ["spark-submit", "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += ["--master", "local[2]", *settings, "spark-internal"]
    says = r"Connect server started at: 127.0.0.1:(\d+)"
    server, port = started(folder, "connect", words, says=says, SPARK_CONNECT_AUTHENTICATE_TOKEN=PASSWORD)
    try:
        yield f"sc://localhost:{port}", server
    finally:
        ended([server])
