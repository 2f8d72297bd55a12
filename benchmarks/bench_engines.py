"""`read` on every engine against its own bare query, which counts groups by region and size and checks nothing.

    python benchmarks/bench_engines.py --rows 10000000 [--engines duckdb postgres spark]

The same persons in households in 3,144 counties are on DuckDB (a file), on PostgreSQL (a throw-away server) and on
Spark (Parquet, a cluster with a master and two workers). Counts must agree to the last one. Seconds are the best of
alternating repeats, by the clock and of CPU in this process and the engine's; only ratios are worth comparing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil

import tallytree as tt
from common import engines, report

COUNTIES, MAX_SIZE = 3144, 10
COLUMNS = """i as person, {whole} as household, lpad(cast({whole} * 7919 % 3144 as {text}), 5, '0') as county"""
BARE = """select county, size, count(*) as households from
    (select household, min(county) as county, least(count(*), 10) as size from {table} group by household) as found
    group by county, size"""
TREE = tt.Hierarchy.from_levels({"county": [f"{number:05d}" for number in range(COUNTIES)]}, ["county"])

Engine = tuple[str, Any, Callable[[], Any], Callable[[], list[psutil.Process]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    arguments = parser.parse_args()
    expected = None
    with tempfile.TemporaryDirectory(prefix="bench-engines-") as folder:
        for name in arguments.engines:
            with ENGINES[name](Path(folder), arguments.rows) as (version, source, bare, processes):
                best = compared(source, bare, processes, arguments.repeats)
                found = best.pop("counts")
            assert expected is None or np.array_equal(found, expected), "the engines disagree"
            expected = found
            clock, cpu = (best["read"][at] / best["bare"][at] for at in (0, 1))
            report(
                f"{name} {version}, {arguments.rows:,} rows: {clock:.2f} × the bare query by the clock "
                f"({best['read'][0]:.1f} s and {best['bare'][0]:.1f}), {cpu:.2f} × by CPU ({best['read'][1]:.1f} s)",
                engine=name,
                rows=arguments.rows,
                clock_ratio=round(clock, 3),
                cpu_ratio=round(cpu, 3),
            )


def compared(source: Any, bare: Callable[[], Any], processes: Callable[[], list[psutil.Process]], times: int) -> Any:
    """The least seconds of both, by the clock and of CPU, and the counts; the first run is for warming up."""
    best: dict[str, Any] = {}

    def counted() -> Any:
        sizes = tt.read(source, group="household", region="county", hierarchy=TREE, max_size=MAX_SIZE)
        return sizes.counts.open_at_the_privacy_border()

    for repeat in range(times + 1):
        for label, work in (("bare", bare), ("read", counted)):
            start, used = time.perf_counter(), cpu_of(processes())
            best["counts"] = work()
            spent = time.perf_counter() - start, cpu_of(processes()) - used
            if repeat:
                best[label] = tuple(map(min, spent, best.get(label, spent)))
    return best


def cpu_of(processes: list[psutil.Process]) -> float:
    """Seconds of CPU of processes, of those below them, and of those below them that have ended."""
    below = {child for process in processes for child in process.children(recursive=True)}
    return sum(sum(each.cpu_times()[:4]) for each in {*processes, *below} if each.is_running())


@contextmanager
def on_duckdb(folder: Path, rows: int) -> Iterator[Engine]:
    path = folder / "people.duckdb"
    columns = COLUMNS.format(whole="(i * 2 // 5)", text="varchar")
    with duckdb.connect(str(path)) as connection:
        connection.execute(f"create table people as select {columns} from range({rows}) as t(i)")

    def bare() -> None:
        with duckdb.connect(str(path), read_only=True) as connection:
            connection.sql(BARE.format(table="people")).to_arrow_table()

    yield duckdb.__version__, tt.Source(f"duckdb://{path}", "people"), bare, lambda: [psutil.Process()]


@contextmanager
def on_postgres(folder: Path, rows: int) -> Iterator[Engine]:
    import psycopg

    os.environ["PGPASSWORD"] = engines.PASSWORD
    columns = COLUMNS.format(whole="(i * 2 / 5)", text="text")
    with engines.postgres_server() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                f"create table people as select {columns} from generate_series(0, {rows - 1}::bigint) as t(i)"
            )
            connection.execute("vacuum analyze people")
            version = connection.info.parameter_status("server_version") or ""

        def bare() -> None:
            with psycopg.connect(url) as connection:
                connection.execute(BARE.format(table="people")).fetchall()

        server = int((Path(url.partition("host=")[2]) / "data" / "postmaster.pid").read_text().split()[0])
        processes = [psutil.Process(), psutil.Process(server)]
        yield version.split()[0], tt.Source(url, "people"), bare, lambda: processes


@contextmanager
def on_spark(folder: Path, rows: int) -> Iterator[Engine]:
    columns = COLUMNS.format(whole="(i * 2 div 5)", text="string").split(", ", 2)
    settings = engines.spark_settings(folder, java="", spark_driver_memory="1g", spark_executor_memory="1g")
    os.environ |= {"SPARK_CONF_DIR": str(settings), "SPARK_LOCAL_IP": "127.0.0.1"}
    with engines.spark_cluster(folder, java="") as cluster, engines.spark_session(cluster.url) as session:
        path = folder / "people.parquet"
        session.range(rows).withColumnRenamed("id", "i").selectExpr(*columns).write.parquet(str(path))
        session.read.parquet(str(path)).createTempView("people")

        def bare() -> None:
            session.sql(BARE.format(table="people")).toArrow()

        yield session.version, tt.Source(cluster.url, f"parquet.`{path}`"), bare, lambda: [psutil.Process()]


ENGINES = {"duckdb": on_duckdb, "postgres": on_postgres, "spark": on_spark}

if __name__ == "__main__":
    main()
