"""`read` against the same SQL written by hand on DuckDB, and its peak memory under a limit.

    python benchmarks/bench_read.py --rows 100000000

Persons in households in 3,144 counties, about 2.5 to a household, made by SQL into a temporary Parquet file. Times
are the best of alternating repeats, on the clock and in CPU seconds of all threads, which suffer less from a busy
machine; only ratios are worth comparing between machines. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from tallytree import Hierarchy
from tallytree.tables import read

COUNTIES = 3144
MAX_SIZE = 20

# Counting alone, in the two ways one would write it; `read` is held against the faster one.
BY_GROUP = """
select county, least(persons, {max_size}) as size, count(*) as households
from (select household_id, any_value(county) as county, count(*) as persons
      from read_parquet('{path}') group by household_id)
group by county, size
"""
BY_PAIR = """
select county, least(persons, {max_size}) as size, count(*) as households
from (select household_id, county, count(*) as persons from read_parquet('{path}') group by household_id, county)
group by county, size
"""
# Counting with what `read` checks: no nulls, one county to a household, every county known.
CHECKED = """
select leaf, least(persons, {max_size}) as size, count(*) as households,
       sum((household_id is null)::int) as no_household, sum(persons - placed) as no_county,
       sum((first_county <> last_county)::int) as spanning, sum((leaf is null)::int) as unknown
from (select household_id, min(county) as first_county, max(county) as last_county, count(county) as placed,
             count(*) as persons
      from read_parquet('{path}') group by household_id)
left join counties on first_county = code
group by leaf, size
"""


def make(path: Path, rows: int) -> None:
    """Persons, streamed to Parquet; household sizes 1 … 4 with mean 2.5, counties scattered."""
    households = rows * 2 // 5
    with duckdb.connect() as connection:
        connection.execute("set preserve_insertion_order = false")
        connection.execute(f"""
            copy (
                select i as person_id, home as household_id, printf('%05d', (hash(home) % {COUNTIES})::int) as county
                from (select i, (i // 10) * 4 + [0, 1, 1, 2, 2, 2, 3, 3, 3, 3][(i % 10)::int + 1] as home
                      from range({households * 5 // 2}) t(i))
            ) to '{path}' (format parquet)""")


def hierarchy() -> Hierarchy:
    return Hierarchy.from_levels({"county": [f"{number:05d}" for number in range(COUNTIES)]}, ["county"])


def by_hand(query: str, path: Path, memory_limit: str | None) -> int:
    """Run a hand-written query on a fresh connection with the settings of `read`; the number of households."""
    with tempfile.TemporaryDirectory() as spill, duckdb.connect() as connection:
        connection.execute(f"set temp_directory = '{spill}'")
        connection.execute("set preserve_insertion_order = false")
        if memory_limit:
            connection.execute(f"set memory_limit = '{memory_limit}'")
        codes = f"select printf('%05d', i) as code, i::int as leaf from range({COUNTIES}) t(i)"
        connection.execute(f"create temp table counties as {codes}")
        result = connection.sql(query.format(path=path, max_size=MAX_SIZE)).to_arrow_table()
        return int(sum(result["households"].to_pylist()))


def by_read(path: Path, memory_limit: str | None) -> int:
    sizes = read(
        path,
        group="household_id",
        region="county",
        hierarchy=hierarchy(),
        max_size=MAX_SIZE,
        memory_limit=memory_limit,
    )
    return int(sizes.counts.open_at_the_privacy_border().sum())


def alone(path: Path, what: str, memory_limit: str) -> None:
    """In a process of its own: seconds and peak memory of one run, as JSON."""
    queries = {"by group": BY_GROUP, "by pair": BY_PAIR, "checked": CHECKED}
    start, cpu_start = time.perf_counter(), time.process_time()
    if what == "read":
        by_read(path, memory_limit)
    else:
        by_hand(queries[what], path, memory_limit)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    print(json.dumps({"seconds": seconds, "cpu": cpu, "peak": peak_memory()}))


def peak_memory() -> int:
    """This process's peak in bytes. Linux lets a child start with its parent's ru_maxrss, so VmHWM comes first."""
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--memory-limit", default="2GB")
    parser.add_argument("--alone", nargs=2, metavar=("PATH", "WHAT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        alone(Path(arguments.alone[0]), arguments.alone[1], arguments.memory_limit)
        return
    with tempfile.TemporaryDirectory(prefix="bench-read-") as directory:
        path = Path(directory) / "persons.parquet"
        make(path, arguments.rows)
        runs = {
            "by hand, grouped by household": lambda: by_hand(BY_GROUP, path, None),
            "by hand, grouped by both columns": lambda: by_hand(BY_PAIR, path, None),
            "by hand, with the same checks": lambda: by_hand(CHECKED, path, None),
            "tallytree.read": lambda: by_read(path, None),
        }
        best = dict.fromkeys(runs, (float("inf"), float("inf")))
        for repeat in range(arguments.repeats + 1):  # the first is for warming up
            totals = set()
            for label, run in runs.items():
                gc.collect()
                start, cpu_start = time.perf_counter(), time.process_time()
                totals.add(run())
                seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
                if repeat:
                    best[label] = (min(best[label][0], seconds), min(best[label][1], cpu))
                    print(f"    {repeat}  {label:34s} {seconds:7.2f} s  {cpu:7.2f} s of CPU", flush=True)
            assert len(totals) == 1, totals
        limited = {}
        for what in ("by group", "by pair", "checked", "read"):
            command = [sys.executable, __file__, "--alone", str(path), what, "--memory-limit", arguments.memory_limit]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            limited[what] = json.loads(done.stdout.splitlines()[-1])
    report(arguments, best, limited)


def report(
    arguments: argparse.Namespace, best: dict[str, tuple[float, float]], limited: dict[str, dict[str, float]]
) -> None:
    by_hand_alone = [times for label, times in best.items() if "grouped" in label]
    counting = [min(times) for times in zip(*by_hand_alone, strict=True)]
    ours, checked = best["tallytree.read"], best["by hand, with the same checks"]
    print(f"{arguments.rows:,} persons, best of {arguments.repeats}, DuckDB {duckdb.__version__}")
    for label, (seconds, cpu) in best.items():
        ratios = f"{seconds / counting[0]:5.2f} ×  {cpu:7.2f} s of CPU  {cpu / counting[1]:5.2f} ×"
        print(f"  {label:34s} {seconds:7.2f} s  {ratios}")
    print(f"with memory_limit={arguments.memory_limit}, each in a process of its own, imports included")
    for label, run in limited.items():
        times = f"{run['seconds']:7.2f} s  {run['cpu']:7.2f} s of CPU"
        print(f"  {label:34s} {times}  peak {run['peak'] / 1e9:5.2f} GB")
    line = {
        "benchmark": "read",
        "rows": arguments.rows,
        "over_counting_by_hand": round(ours[0] / counting[0], 3),
        "over_checking_by_hand": round(ours[0] / checked[0], 3),
        "cpu_over_counting_by_hand": round(ours[1] / counting[1], 3),
        "cpu_over_checking_by_hand": round(ours[1] / checked[1], 3),
        "limited_peak_gb": round(limited["read"]["peak"] / 1e9, 2),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    main()
