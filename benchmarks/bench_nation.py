"""A country down to its blocks, made up, released, verified and asked: seconds, CPU seconds and memory of each stage.

    python benchmarks/bench_nation.py --scale 1 --folder nation        (make bench-nation)

At scale 1: 300 million persons in 117 million households on 6 levels, 8.4 million regions × 10 sizes. Each step runs in
a process of its own, through the code of the command; its stages are those that the command shows. Ratios are of CPU
seconds, which suffer less from a busy machine: to the bare DuckDB query that counts the same, and to copying one array
of all cells. What was made is kept in the folder: a country that is there is used again, a release that is there is
made again in its place. With `--typical` it has typical intervals too, which take 25 more estimates. The last line is
JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from common import peak_bytes

MEMORY_LIMIT = "5GB"  # of DuckDB, in the spec and in the bare query
TYPICAL_SPEC = "typical.toml"
BARE = """
select block, least(persons, 10) as size, count(*) as households
from (select household_id, any_value(block) as block, count(*) as persons
      from read_parquet('{path}') group by household_id)
group by block, size
"""


class Stages:
    """A listener of progress that notes where time and memory went."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._doing: str | None = None

    def __call__(self, stage: Any) -> None:
        if stage.doing != self._doing:
            self.close()
            self._doing = stage.doing
            Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far
            self._start = time.perf_counter(), time.process_time()

    def close(self) -> None:
        """The stage under way is over."""
        if self._doing is not None:
            seconds, cpu = time.perf_counter() - self._start[0], time.process_time() - self._start[1]
            row = {"stage": self._doing, "seconds": seconds, "cpu": cpu, "peak": peak_bytes()}
            self.rows.append(row)
            print(json.dumps(row), flush=True)
        self._doing = None


# -------------------------------------------------------------------- steps, each in a process of its own


def step_make(folder: Path, scale: float, stages: Stages) -> None:
    from tallytree.core.progress import Stage
    from tallytree.lab.blocks import write_country

    stages(Stage("making up a country"))
    made = write_country(folder, scale=scale, progress=stages)
    spec = made.spec.read_text(encoding="utf-8").replace("[privacy]", f'memory_limit = "{MEMORY_LIMIT}"\n\n[privacy]')
    made.spec.write_text(spec, encoding="utf-8")
    facts = {"persons": made.persons, "households": made.households, "bytes": made.people.stat().st_size}
    (folder / "country.json").write_text(json.dumps({"scale": scale, **facts}))


def step_bare(folder: Path, scale: float, stages: Stages) -> None:
    import duckdb

    from tallytree.core.progress import Stage

    stages(Stage("bare query"))
    with duckdb.connect() as connection:
        connection.execute(f"set temp_directory = '{folder / 'spill'}'")
        connection.execute(f"set preserve_insertion_order = false; set memory_limit = '{MEMORY_LIMIT}'")
        rows = connection.sql(BARE.format(path=folder / "people.parquet")).to_arrow_table()
        assert rows.num_rows


def step_copy(folder: Path, scale: float, stages: Stages) -> None:
    import numpy as np
    import pyarrow.parquet as pq

    from tallytree.core.progress import Stage

    cells = np.ones((int(pq.read_metadata(folder / "regions.parquet").num_rows * 1.041), 10), np.int64)
    stages(Stage("copying one array"))
    cells.copy()


def step_release(folder: Path, scale: float, stages: Stages) -> None:
    from tallytree.command.command_options import ReleaseOptions
    from tallytree.command.make import _make
    from tallytree.command.release_spec import ReleaseSpec
    from tallytree.privacy.ledger import UNPAID
    from tallytree.publish.run_folder import RunFolder

    out, spec = folder / "release", ReleaseSpec.load(folder / wanted_spec(folder))
    for old in (out, folder / "release.partial"):
        shutil.rmtree(old, ignore_errors=True)
    run, options = RunFolder(folder / "release.partial"), ReleaseOptions(spec=folder / wanted_spec(folder), out=out)
    made, release_id = _make(spec, run, UNPAID, options, stages)
    run.finish()
    stages.close()
    print(json.dumps({"made": repr(made), "id": release_id}), flush=True)


def wanted_spec(folder: Path) -> str:
    """The spec with typical intervals, if that was asked for and so was written."""
    return next(name for name in (TYPICAL_SPEC, "release.toml") if (folder / name).exists())


def step_verify(folder: Path, scale: float, stages: Stages) -> None:
    from tallytree.publish.verify import verify

    found = verify(folder / "release", progress=lambda stage: stages(_by_promise(stage)))
    stages.close()
    assert found.ok, found.faults
    print(json.dumps({"verified": repr(found)}), flush=True)


def _by_promise(stage: Any) -> Any:
    from dataclasses import replace

    return replace(stage, doing=f"verify: {stage.about or stage.doing}")


STEPS = {"make": step_make, "bare": step_bare, "copy": step_copy, "release": step_release, "verify": step_verify}


# -------------------------------------------------------------------- the whole


def run(step: str, folder: Path, scale: float) -> list[dict[str, Any]]:
    """The lines that a step prints, shown as they come; and one for all of it."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--scale", str(scale)]
    rows: list[dict[str, Any]] = []
    before, start = os.times(), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = _parsed(line)
            if "stage" in row:
                print(f"  {row['stage'][:58]:58} {row['seconds']:8.1f} s", flush=True)
                rows.append(row)
            else:
                print(f"  {line.rstrip()[:300]}", flush=True)
    if process.returncode:
        raise SystemExit(f"the step {step} failed: what it says of that is above")
    if len(rows) > 1:
        whole = {"stage": f"{step}, all of it", "seconds": time.perf_counter() - start, "cpu": children_since(before)}
        rows.append(whole | {"peak": max(row["peak"] for row in rows)})
    return rows


def _parsed(line: str) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def children_since(before: Any) -> float:
    """CPU seconds of processes that ended since."""
    after = os.times()
    spent: float = after.children_user + after.children_system - before.children_user - before.children_system
    return spent


def asked(folder: Path) -> list[dict[str, Any]]:
    """Questions by the command, each in a process of its own, start of Python included."""
    import pyarrow.parquet as pq

    public = pq.ParquetFile(folder / "regions.parquet")
    nation, state, block = (
        public.read_row_group(public.num_row_groups - 1, [level])[level][-1].as_py()
        for level in ("nation", "state", "block")
    )
    questions = {
        "query: the nation": ["--region", nation, "--size", ">=3"],
        "query: a state": ["--region", state, "--size", ">=3"],
        "query: a block": ["--region", block, "--size", "2"],
    }
    rows = []
    for name, words in questions.items():
        before, start = os.times(), time.perf_counter()
        command = [sys.executable, "-m", "tallytree", "query", str(folder / "release"), *words, "--no-typical"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = {"stage": name, "seconds": time.perf_counter() - start, "cpu": children_since(before), "peak": 0}
        rows.append(row)
        print(f"  {name}\n{done.stdout}", flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> None:
    """All stages, with their ratios."""
    cpu = {row["stage"]: row["cpu"] for row in rows}
    head = f"{'stage':58} {'seconds':>8} {'CPU s':>8} {'peak GB':>8} {'× bare':>8} {'× copy':>8}"
    print(f"\n{head}\n{'-' * len(head)}")
    for row in shown(rows):
        peak = f"{row['peak'] / 1e9:8.2f}" if row["peak"] else " " * 8
        ratios = [row["cpu"] / max(cpu[name], 1e-9) for name in ("bare query", "copying one array")]
        times = f"{row['seconds']:8.1f} {row['cpu']:8.1f}"
        print(f"{row['stage'][:58]:58} {times} {peak} {ratios[0]:8.2f} {ratios[1]:8.1f}")


def shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, with quick promises of `verify` in one."""
    most = max((row["seconds"] for row in rows if row["stage"] == "verify, all of it"), default=0.0)
    quick = [row for row in rows if row["stage"].startswith("verify: ") and row["seconds"] < most / 50]
    if not quick:
        return rows
    sums = {name: sum(row[name] for row in quick) for name in ("seconds", "cpu")}
    told = f"verify: {len(quick)} quick ones together"
    together = {"stage": told, **sums, "peak": max(row["peak"] for row in quick)}
    kept = [row for row in rows if row not in quick]
    kept.insert(next(at for at, row in enumerate(kept) if row["stage"] == "verify, all of it"), together)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--folder", type=Path, default=Path("nation"))
    parser.add_argument("--typical", action="store_true", help="typical intervals too")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.absolute()
    if options.step:
        stages = Stages()
        STEPS[options.step](folder, options.scale, stages)
        stages.close()
        return
    made = folder / "country.json"
    rows = []
    if not made.exists() or json.loads(made.read_text())["scale"] != options.scale:
        rows += run("make", folder, options.scale)
    else:
        print(f"{folder} has a country of this scale, which is used again")
    if (folder / "release").exists():
        print(f"{folder / 'release'} is there from a run before, and is made again")
    (folder / TYPICAL_SPEC).unlink(missing_ok=True)
    if options.typical:
        spec = (folder / "release.toml").read_text(encoding="utf-8").replace('"guaranteed"', '"all"')
        (folder / TYPICAL_SPEC).write_text(spec, encoding="utf-8")
    print(made.read_text())
    for step in ("copy", "bare", "release", "verify"):
        rows += run(step, folder, options.scale)
    rows += asked(folder)
    table(rows)
    print(json.dumps({"benchmark": "nation", "scale": options.scale, "stages": rows}))


if __name__ == "__main__":
    main()
