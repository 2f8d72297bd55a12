"""How often intervals hold the truth, behind docs/intervals.md: NOT PRIVATE, on public and made-up data.

    python -m experiments.interval_coverage --data DIRECTORY                       some minutes on two idle cores
    python -m experiments.interval_coverage --data DIRECTORY --quick --out FILE    one run, small data; under a minute
    python -m experiments.interval_coverage --data DIRECTORY --statistics          queries; some minutes

With --statistics the table is about guaranteed intervals of queries for quotients and statistics of sizes, 200 runs at
95 %, and goes to docs/figures/coverage-statistics.csv. Its rows are ε × kind × level: the coverage over all regions and
runs, that of the region with the least, and the mean widths.

The table goes to docs/coverage.csv, or to FILE. Files that are not in DIRECTORY (see docs/evaluate.md) are named and
left out; without --data that is all of them.

Coverage differs by kind of cell (a zero beyond the largest group is easy, a lone cluster is hard), so it is given by
kind, and the average over all cells, most of which are easy, is not. Rows are data set × mechanism × ε × level of
confidence × kind of interval × level of the hierarchy × kind of cell. Strata of fewer than 200 cells over all runs are
left out. `short` is by how many points a stratum falls short of its promise (nominal − 1 for guaranteed intervals,
nominal − 2 for typical ones) beyond 3 standard errors of the simulation; it is empty where the promise is kept. Typical
intervals are expected to fail on planted clusters.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tallytree as tt
from experiments.named_files import load
from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.interval import Intervals
from tallytree.estimate.intervals.typical import Simulation, typical
from tallytree.lab.datasets import make
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import Mechanism, prepare
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.release.answers import answer_queries
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.queries import resolve
from tallytree.publish.release.release_run import estimate_release

EPSILONS = ("0.1", "0.5", "1")
LEVELS = (0.9, 0.95)
FEWEST_CELLS = 200
ALLOWED = {"guaranteed": 0.01, "typical": 0.02}

BANDS = [{"to": 2, "shares": [1, 1, 1, 4]}, {"shares": [1, 0, 0, 4]}]
FRONT_AND_TAIL = [{"to": 2, "shares": [1, 1, 1, 3], "leaves": "at_least"}, {"shares": [1, 0, 0, 9], "leaves": "lists"}]

OREGON = "oregon_2000_pums_households.parquet"
# File, options of its loader, privacy unit, runs, options of the mechanism.
REAL: list[tuple[str, dict[str, Any], tt.PrivacyUnit, int, dict[str, Any]]] = [
    ("switzerland_2003_municipality_household_size.csv", {}, tt.one_entity(), 2, {}),
    ("switzerland_2003_municipality_household_size.csv", {}, tt.one_group(), 2, {}),
    (
        "switzerland_2003_municipality_household_size.csv",
        {"public_totals": False},
        tt.one_entity(),
        1,
        {"bands": BANDS},
    ),
    ("us2010_county_household_size_2plus.csv", {"public_totals": False}, tt.one_entity(), 1, {}),
    ("us2010_county_household_size_2plus.csv", {"public_totals": False}, tt.one_group(), 1, {}),
    ("us_cps_2012_2014_households.parquet", {}, tt.one_entity(), 20, {}),
    (OREGON, {}, tt.one_entity(), 20, {}),
    ("ri_2010_block_race.csv", {"race": "nhpi"}, tt.one_entity(), 2, {}),
    ("ri_2010_block_race.csv", {"race": "nhpi"}, tt.one_entity(), 2, {"bands": FRONT_AND_TAIL}),
    ("ri_2010_block_race.csv", {"race": "asian"}, tt.one_entity(), 1, {}),  # measured by lists
    (
        "ri_2010_block_race.csv",
        {"race": "asian", "public_totals": False},
        tt.one_entity(),
        1,
        {"leaves": "lists", "totals_share": "1/10"},
    ),
    ("nyc_taxi_medallion_pickups.csv", {"max_size": 2000}, tt.one_entity(), 2, {}),
]
QUICK = {"switzerland_2003_municipality_household_size.csv", "us_cps_2012_2014_households.parquet"}
KINDS = ("zero beyond the support", "zero within the support", "1–9", "10–99", "100 or more", "planted cluster")


# -------------------------------------------------------------------- coverage by kind of cell


@dataclass(frozen=True)
class Stratum:
    """The cells of one kind on one level: how many, in how many the interval held, and the intervals' mean width."""

    level: str
    kind: str
    cells: int
    held: int
    widths: int

    @property
    def coverage(self) -> float:
        """The share of cells whose interval held the truth."""
        return self.held / self.cells

    @property
    def width(self) -> float:
        """The mean of upper − lower."""
        return self.widths / self.cells

    def __add__(self, other: Stratum) -> Stratum:
        """Two runs' cells taken together."""
        return replace(
            self, cells=self.cells + other.cells, held=self.held + other.held, widths=self.widths + other.widths
        )


def kinds_of(counts: Integers, planted: NDArray[np.bool_] | None = None) -> NDArray[np.int8]:
    """For every true cell `[regions, sizes]` its kind, as a place in `KINDS`."""
    beyond = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1] == 0
    kinds = (1 + np.digitize(counts, [1, 10, 100])).astype(np.int8)
    kinds[beyond] = 0
    if planted is not None:
        kinds[planted] = len(KINDS) - 1
    return kinds


def strata(intervals: Intervals, truth: Integers, hierarchy: Hierarchy, kinds: NDArray[np.int8]) -> Iterator[Stratum]:
    """The strata that have cells, level by level from the top."""
    held = (intervals.lower <= truth) & (truth <= intervals.upper)
    widths = intervals.upper - intervals.lower
    for level, name in enumerate(hierarchy.levels):
        regions = hierarchy.level_slice(level)
        for kind, words in enumerate(KINDS):
            here = kinds[regions] == kind
            if cells := int(np.count_nonzero(here)):
                yield Stratum(name, words, cells, int(held[regions][here].sum()), int(widths[regions][here].sum()))


def with_clusters(truth: Truth, *, clusters: int, groups: int = 10, seed: int = 0) -> tuple[Truth, NDArray[np.bool_]]:
    """The same truth with that many clusters, each of `groups` groups of one odd size in one leaf; and where they are.

    A cluster lies at a size, beyond the first third of all, that no group of its leaf has. The mask
    is `[regions, sizes]` and marks the leaves' cells, and those above of whose groups at least half are planted.
    """
    rng = np.random.default_rng(seed)
    counts, sizes = truth.counts, truth.counts.shape[1]
    spots = rng.permutation(np.flatnonzero(counts[:, sizes // 3 :].ravel() == 0))[:clusters]
    leaf, size = np.divmod(spots, sizes - sizes // 3)
    size += sizes // 3
    planted = np.zeros_like(counts)
    planted[leaf, size] = groups
    changed = replace(truth, name=f"{truth.name} with clusters", counts=counts + planted)
    share = truth.hierarchy.aggregate(planted)
    return changed, (share > 0) & (2 * share >= changed.all_levels())


# -------------------------------------------------------------------- the table


class Case(NamedTuple):
    """A truth with the mask of what was planted in it, the privacy unit, the runs and the mechanism's options."""

    truth: Truth
    planted: NDArray[np.bool_] | None
    unit: tt.PrivacyUnit
    runs: int
    options: dict[str, Any]


def made_up() -> list[tuple[Truth, int, dict[str, Any]]]:
    """Made-up data sets, how many clusters of ten groups of one odd size are planted in each, and options."""
    return [
        (make("census", scale=0.05, max_size=200), 300, {}),
        (make("race", scale=0.02, max_size=500), 300, {}),
        (make("race", scale=0.001, max_size=300), 40, {"leaves": "lists"}),
    ]


def cases(data: Path | None, quick: bool, most_runs: int) -> Iterator[Case]:
    """All cases, or the quick ones."""
    for name, options, unit, runs, own in REAL:
        if quick and (name not in QUICK or unit.kind != "one_entity"):
            continue
        if data is None or not (data / name).exists():
            print(f"{name} is not there: left out", file=sys.stderr)
            continue
        yield Case(load(data / name, **options), None, unit, 1 if quick else min(runs, most_runs), own)
    for truth, clusters, own in made_up()[: 1 if quick else 3]:
        changed, planted = with_clusters(truth, clusters=clusters)
        yield Case(changed, planted, tt.one_entity(), 1 if quick else min(2, most_runs), own)


def measured(case: Case, epsilon: str, run: int) -> tuple[tt.Measurements, Mechanism]:
    """The default mechanism's measurements by seed, and the mechanism."""
    truth, unit = case.truth, case.unit
    neighbours = Neighbours.of(truth.group_sizes(), unit)
    totals = truth.all_levels().sum(axis=1) if truth.public_totals else None
    facts: dict[str, Any] = {"neighbours": neighbours, "hierarchy": truth.hierarchy, "totals": totals}
    chosen, plan = prepare("auto", case.options, **facts, budget=tt.Budget(epsilon=epsilon))
    return seeded_measurements(truth, plan, truth.name, epsilon, run, derive_facts=chosen.derive_facts), chosen


def intervals_of(case: Case, epsilon: str, run: int) -> tuple[str, list[Intervals]]:
    """The default mechanism's release by seed, and all its intervals: one bootstrap serves every level."""
    measurements, chosen = measured(case, epsilon, run)
    counts = chosen.estimate(measurements).counts
    found = [each for level in LEVELS if (each := guaranteed(measurements, counts, level=level)) is not None]
    played = chosen.simulate_truths(measurements, counts)
    replicated = typical(measurements, counts, Simulation(chosen.estimate, chosen.derive_facts, played))
    way = "bands" if "bands" in chosen.options else chosen.options.get("leaves")
    name = chosen.name if way is None else f"{chosen.name}, {way}"
    return name, found + [replicated.intervals_at(level) for level in LEVELS]


def shortfall(kind: str, level: float, stratum: Stratum) -> float:
    """How far below its promise, beyond simulation error, in points; 0 or less is a kept promise."""
    error = 3 * math.sqrt(level * (1 - level) / stratum.cells)
    return 100 * (level - ALLOWED[kind] - error - stratum.coverage)


def rows(case: Case) -> Iterator[dict[str, Any]]:
    """One row per stratum of enough cells."""
    truth, true = case.truth, case.truth.all_levels()
    kinds = kinds_of(true, case.planted)
    for epsilon in EPSILONS:
        found: dict[tuple[float, str, str, str], Stratum] = {}
        for run in range(case.runs):
            mechanism, all_intervals = intervals_of(case, epsilon, run)
            for intervals in all_intervals:
                for each in strata(intervals, true, truth.hierarchy, kinds):
                    key = (intervals.level, intervals.kind, each.level, each.kind)
                    found[key] = found[key] + each if key in found else each
        for (level, kind, *_), each in found.items():
            if each.cells >= FEWEST_CELLS:
                short = shortfall(kind, level, each)
                yield {
                    "data": truth.name,
                    "totals": "public" if truth.public_totals else "private",
                    "unit": case.unit.kind,
                    "mechanism": mechanism,
                    "epsilon": epsilon,
                    "confidence": level,
                    "interval": kind,
                    "level": each.level,
                    "cells": each.kind,
                    "number": each.cells,
                    "coverage": round(each.coverage, 4),
                    "mean_width": round(each.width, 1),
                    "short": round(short, 2) if short > 0 else "",
                }


# -------------------------------------------------------------------- statistics of sizes


STATISTICS = [
    tt.Query("share", sizes=">=4"),
    tt.Query("mean"),
    tt.Query("median"),
    tt.Query("quantile", q="0.9"),
    tt.Query("gini"),
]
MOST_RUNS = 200


def statistics(case: Case, epsilon: str, runs: int) -> Iterator[dict[str, Any]]:
    """One row per query and level: how often its guaranteed intervals hold the truth, and how wide they are."""
    tree, true = case.truth.hierarchy, case.truth.all_levels()
    queries = [replace(query, regions=identity) for query in STATISTICS for identity in tree.ids]
    shape = len(STATISTICS), len(tree)
    held, widths, errors, exact = (np.zeros(shape) for _ in range(4))
    for run in range(runs):
        measurements, chosen = measured(case, epsilon, run)
        release = estimate_release(measurements, chosen, Publication(intervals="none"))
        if run == 0:
            whole = [resolve(query, release.hierarchy, release.sizes) for query in queries]
            exact = np.array([one.value(true, release.sizes.start) for one in whole], np.float64).reshape(shape)
        answers = answer_queries(release, queries, confidence=0.95, typical=False)
        ends = np.array([answer.guaranteed for answer in answers], np.float64).reshape(*shape, 2)
        released = np.array([answer.released for answer in answers], np.float64).reshape(shape)
        held += (ends[..., 0] <= exact + 1e-9) & (exact <= ends[..., 1] + 1e-9)
        widths += ends[..., 1] - ends[..., 0]
        errors += np.abs(released - exact)
    for number, query in enumerate(STATISTICS):
        for level, name in enumerate(tree.levels):
            some = number, tree.level_slice(level)
            yield {
                "data": case.truth.name,
                "epsilon": epsilon,
                "query": " ".join(str(part) for part in (query.kind, query.q or query.sizes) if part),
                "level": name,
                "regions": len(held[some]),
                "runs": runs,
                "coverage": round(float(held[some].mean()) / runs, 4),
                "least_region": round(float(held[some].min()) / runs, 4),
                "mean_width": float(f"{widths[some].mean() / runs:.3g}"),
                "mean_error": float(f"{errors[some].mean() / runs:.3g}"),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the real data sets")
    parser.add_argument("--quick", action="store_true", help="one run of each, small data only")
    parser.add_argument("--runs", type=int, default=1000, help="at most as many of each")
    parser.add_argument("--statistics", action="store_true", help="queries, on Oregon or made-up data")
    parser.add_argument("--out", type=Path, help="the table; by default in docs")
    options = parser.parse_args()
    docs, table = Path(__file__).parents[1] / "docs", list[dict[str, Any]]()
    if options.statistics:
        truth = make("census", scale=0.005, max_size=12) if options.data is None else load(options.data / OREGON)
        case = Case(truth, None, tt.one_entity(), 1, {})
        for epsilon in ("1", "0.1"):
            table += statistics(case, epsilon, min(options.runs, MOST_RUNS))
        write(table, options.out or docs / "figures" / "coverage-statistics.csv")
        return
    for case in cases(options.data, options.quick, options.runs):
        start = time.perf_counter()
        table += rows(case)
        words = f"{case.truth.name}, {case.unit.kind}, {case.options or 'as it is'}, {case.runs} runs"
        print(f"{words}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
    write(table, options.out or docs / "coverage.csv")
    for kind in ALLOWED:
        own = [row for row in table if row["interval"] == kind]
        short = [row for row in own if row["short"] != ""]
        expected = [row for row in short if kind == "typical" and row["cells"] == "planted cluster"]
        lowest = min((row["coverage"] - row["confidence"] for row in own), default=np.nan)
        print(
            f"{kind}: {len(own) - len(short)} of {len(own)} strata keep the promise, {len(expected)} planted ones "
            f"fail as expected, {len(short) - len(expected)} others do not; the lowest is {100 * lowest:+.1f} points"
        )


def write(table: list[dict[str, Any]], path: Path) -> None:
    """Write rows as CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(table[0]))
        writer.writeheader()
        writer.writerows(table)


if __name__ == "__main__":
    main()
