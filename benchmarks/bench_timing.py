"""What the clock and the file sizes tell: each step of a release on pairs of data sets of the same public shape.

Run: python benchmarks/bench_timing.py [--runs 15] [--quick] [--wall]
The two data sets of a pair take turns. A ratio of medians has a 95 % interval (bootstrap); the pair `alike` compares a
data set with itself, so it shows what the machine alone does. `measure` is meant not to depend on private values;
estimating, writing and loading see noisy numbers only. One line of JSON holds every ratio and every file's size.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallytree as tt
from tallytree.core.arrays import Integers
from tallytree.mechanisms import prepare
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise.keystream import Keystream
from tallytree.privacy.run import measure
from tallytree.privacy.selection import candidates, choose
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import estimate_release

STATES, COUNTIES, GROUPS, LARGEST = 10, 200, 500, 40
STEPS = {"read": 1, "measure": 8, "estimate": 2, "write": 1, "load": 1}  # and how often in one turn
CANDIDATES = 100_000
LISTS = {"methods": ["sorted-sizes"] * 3}
MECHANISMS: dict[str, tuple[str, dict[str, Any]]] = {
    "counts": ("pgsr-hierarchical-dp", {}),
    "at_least": ("pgsr-cumulative-dp", {}),
    "sorted_sizes": ("coc-matching", LISTS),
}


@dataclass(frozen=True)
class Pair:
    """Two data sets as sizes of groups; with `public` the list of all groups is given to both."""

    public: bool
    one: Integers
    other: Integers


def pairs() -> dict[str, Pair]:
    """Sizes of the groups, in the order of their counties; 0 is a group without a row."""
    number = COUNTIES * GROUPS
    mixed = 1 + np.arange(number) % 7
    one_less = mixed.copy()
    one_less[0] -= 1
    ones, largest, single = np.ones(number, np.int64), np.full(number, LARGEST), np.zeros(number, np.int64)
    single[0] = 1
    return {
        "alike": Pair(True, mixed, mixed),
        "one entity": Pair(True, one_less, mixed),
        "all 1, all K": Pair(True, ones, largest),
        "one row, all K": Pair(True, single, largest),
        "1 group, all": Pair(False, single, ones),
    }


def stored(sizes: Integers, path: Path) -> Path:
    """One row for each group that has any entity; its quantity is the group's size."""
    groups = np.flatnonzero(sizes)
    counties = np.char.add("c", (groups // GROUPS).astype(str))
    pq.write_table(pa.table({"home": groups, "county": counties, "persons": sizes[groups]}), path)
    return path


class Run:
    """One data set and one mechanism: the steps of a release, each on what the one before gave."""

    def __init__(self, source: Path, groups: Path | None, view: str, folder: Path) -> None:
        counties = [f"c{county}" for county in range(COUNTIES)]
        states = [f"s{county % STATES}" for county in range(COUNTIES)]
        self.tree = tt.Hierarchy.from_levels({"state": states, "county": counties}, ["state", "county"])
        self.source, self.groups, self.folder, self.times_saved = source, groups, folder, 0
        self.read()
        name, options = MECHANISMS[view]
        if view == "sorted_sizes" and groups is None:
            options = {**options, "totals_share": "1/10"}
        self.mechanism, self.plan = prepare(
            name,
            options,
            neighbours=Neighbours.of(self.sizes, tt.one_entity()),
            hierarchy=self.tree,
            totals=self.sizes.region_totals,
            budget=tt.Budget(epsilon=1),
            shares=None,
            priority=None,
        )

    def read(self) -> None:
        self.sizes = tt.read(
            self.source,
            group="home",
            region="county",
            hierarchy=self.tree,
            max_size=LARGEST,
            quantity="persons",
            quantity_bound=LARGEST,
            groups=self.groups,
        )

    def measure(self) -> None:
        self.measured = measure(self.sizes, self.plan, derive_facts=self.mechanism.derive_facts)

    def estimate(self) -> None:
        self.release = estimate_release(self.measured, self.mechanism, Publication(intervals="none"))

    def write(self) -> None:
        self.times_saved += 1
        self.release.save(self.folder / str(self.times_saved))

    def load(self) -> None:
        tt.Release.load(self.folder / str(self.times_saved))

    def file_sizes(self) -> dict[str, int]:
        return {path.name: path.stat().st_size for path in sorted((self.folder / str(self.times_saved)).iterdir())}


def ratio(turns: list[tuple[float, float]]) -> dict[str, float]:
    """The ratio of medians over all turns, with the ends of its 95 % interval: whole turns are drawn again."""
    both, rng = np.array(turns), np.random.default_rng(0)
    again = np.median(both[rng.integers(0, len(both), (2000, len(both)))], axis=1)
    low, high = np.quantile(again[:, 0] / again[:, 1], [0.025, 0.975])
    one, other = np.median(both, axis=0)
    return {"ratio": round(float(one / other), 3), "low": round(float(low), 3), "high": round(float(high), 3)}


def timed(works: Sequence[Callable[[], Any]], often: int, clock: Callable[[], float]) -> tuple[float, float]:
    """The medians of two pieces of work in one turn, done by turns, each first as often as the other."""
    times: tuple[list[float], list[float]] = ([], [])
    for time_of in range(often):
        for which in (0, 1) if time_of % 2 else (1, 0):
            start = clock()
            works[which]()
            times[which].append(clock() - start)
    return float(np.median(times[0])), float(np.median(times[1]))


def in_words(step: str, found: dict[str, float]) -> str:
    return f"{step} {found['ratio']:.2f} ({found['low']:.2f}…{found['high']:.2f})"


def compared(pair: Pair, view: str, runs: int, clock: Callable[[], float], folder: Path) -> dict[str, Any]:
    """Every step's ratio (the first data set over the second), and the sizes of both folders' files."""
    whole = None if not pair.public else stored(np.ones(len(pair.one), np.int64), folder / "groups.parquet")
    both = [
        Run(stored(sizes, folder / f"{which}.parquet"), whole, view, folder / which)
        for which, sizes in (("one", pair.one), ("other", pair.other))
    ]
    first, second = both
    times: dict[str, list[tuple[float, float]]] = {step: [] for step in STEPS}
    for turn in range(runs + 1):
        both.reverse()
        for step, often in STEPS.items():
            found_now = timed([getattr(run, step) for run in both], often, clock)
            if turn:  # the first turn compiles
                times[step].append(found_now if both[0] is first else found_now[::-1])
    both = [first, second]
    found: dict[str, Any] = {step: ratio(times[step]) for step in STEPS}
    found["bytes"] = {name: [size, both[1].file_sizes().get(name)] for name, size in both[0].file_sizes().items()}
    return found


def choices(runs: int, clock: Callable[[], float]) -> dict[str, float]:
    """One choice among many: scores that are all alike, against one that is far above the others."""
    alike, apart = np.zeros(CANDIDATES, np.int64), np.zeros(CANDIDATES, np.int64)
    apart[0] = 10**6

    def work(scores: Integers) -> Callable[[], int]:
        return lambda: choose(candidates(scores, 1, Fraction(1)), Keystream())

    works = [work(alike), work(apart)]
    timed(works, 1, clock)
    return ratio([timed(works, 8, clock) for _ in range(runs)])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="3 turns")
    parser.add_argument("--wall", action="store_true", help="wall-clock time instead of CPU time")
    options = parser.parse_args()
    clock = time.perf_counter if options.wall else time.process_time
    runs = 3 if options.quick else options.runs
    rows: dict[str, Any] = {"choice": choices(runs, clock)}
    print(in_words("choice", rows["choice"]), flush=True)
    for name, pair in pairs().items():
        for view in MECHANISMS:
            with tempfile.TemporaryDirectory() as folder:
                found = compared(pair, view, runs, clock, Path(folder))
            rows[f"{name}: {view}"] = found
            print(f"{name:15} {view:13} {'  '.join(in_words(step, found[step]) for step in STEPS)}", flush=True)
    print(json.dumps({"benchmark": "timing", "clock": "wall" if options.wall else "cpu", "pairs": rows}))


if __name__ == "__main__":
    main()
