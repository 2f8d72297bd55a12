"""Whole groups as the privacy unit: the default against the one before and other mechanisms. NOT PRIVATE, public data.

    python -m experiments.one_group --data DIRECTORY [--runs 100] [--only NAME …] [--out docs/figures]

For each data set, public and private totals, ε, level and metric (earth mover's distance, EMD, and L1) it writes the
default's mean error, its ratio to the default of 0.3.0 (`joint-counts` with public totals, `pgsr-hierarchical-dp` with
private ones) and to the best of the others, to one-group.csv. The printed summary is that of docs/accuracy.md. A root
is one region, so its ratio needs 100 runs or more. The others have at most 24 runs.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tallytree as tt
from experiments.accuracy import DATA_SETS, FIGURES, DataSet
from tallytree.core.arrays import Floats
from tallytree.domain.histogram import at_least
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import prepare
from tallytree.privacy.neighbours import Neighbours

EPSILONS = ("0.3", "1", "3")
NAMES = ("switzerland", "us-counties", "cps", "oregon")
BEFORE = {True: "joint-counts", False: "pgsr-hierarchical-dp"}
OTHERS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bluedown", {}),
    ("pgsr-hierarchical-dp", {}),
    ("bottom-up", {"method": "cumulative"}),
    ("bottom-up", {"method": "naive"}),
    ("coc-matching", {}),
)
TOTALS_SHARE = "1/10"  # of the budget, where a method needs totals that are private
OTHERS_RUNS, SEED = 24, 1


class Cell(NamedTuple):
    """One level and metric of a case: mean errors, summed over the regions of the level."""

    data: str
    totals: str
    epsilon: str
    level: str
    depth: int
    leaves: bool
    metric: str
    error: float
    before: float
    best: float
    mechanism: str  # the best of the others

    @property
    def ratio(self) -> float:
        """Return the error relative to the default before."""
        return self.error / self.before


def errors(truth: Truth, epsilon: str, name: str, options: dict[str, Any], runs: int) -> Floats:
    """Return mean errors `[metrics, levels]` of a mechanism."""
    private, tree, true = truth.group_sizes(), truth.hierarchy, truth.all_levels()
    chosen, plan = prepare(
        name,
        options,
        neighbours=Neighbours.of(private, tt.one_group()),
        hierarchy=tree,
        totals=private.region_totals,
        budget=tt.Budget(epsilon=epsilon),
    )
    found = np.zeros((2, tree.depth))
    for run in range(runs):
        measurements = seeded_measurements(truth, plan, SEED, run, derive_facts=chosen.derive_facts)
        gap = chosen.estimate(measurements).counts - true
        for metric, distance in enumerate((np.abs(at_least(gap, truth.first_size)), np.abs(gap))):
            found[metric] += np.add.reduceat(distance.sum(axis=1), tree.level_starts[:-1]) / runs
    return found


def cells(data: DataSet, folder: Path, public: bool, epsilon: str, runs: int) -> Iterator[Cell]:
    """Yield the cells of a case."""
    truth = data.truth(folder, public)
    others = {}
    for name, options in OTHERS:
        if name == "coc-matching" and not public:
            continue
        aside = {"totals_share": TOTALS_SHARE} if options.get("method") == "naive" and not public else {}
        found = errors(truth, epsilon, name, {**options, **aside}, min(runs, OTHERS_RUNS))
        others[" ".join([name, *options.values()])] = found
    own, before = errors(truth, epsilon, "auto", {}, runs), errors(truth, epsilon, BEFORE[public], {}, runs)
    depth = truth.hierarchy.depth
    for metric, kind in enumerate(("emd", "l1")):
        for level, name in enumerate(truth.hierarchy.levels):
            best = min(others, key=lambda other: others[other][metric, level])
            error, usual, least = (float(each[metric, level]) for each in (own, before, others[best]))
            totals = "public" if public else "private"
            yield Cell(data.name, totals, epsilon, name, level, level == depth - 1, kind, error, usual, least, best)


def summary(found: list[Cell]) -> str:
    """Return the table of docs/accuracy.md: geometric means and the largest ratios."""

    def mean(ratios: list[float]) -> str:
        return f"{exp(sum(map(log, ratios)) / len(ratios)):.2f}"

    lines = [
        "| totals | all | upper levels, largest | leaves, largest | best other, per cell |",
        "|---|---|---|---|---|",
    ]
    for totals in dict.fromkeys(cell.totals for cell in found):
        here = [cell for cell in found if cell.totals == totals]
        upper, leaves = ([cell.ratio for cell in here if cell.leaves == lowest] for lowest in (False, True))
        parts = [
            totals,
            mean([cell.ratio for cell in here]),
            *(f"{mean(some)}, {max(some):.2f}" for some in (upper, leaves)),
            mean([cell.error / cell.best for cell in here]),
        ]
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data files")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--only", action="append", choices=[data.name for data in DATA_SETS], metavar="NAME")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the table")
    options = parser.parse_args()
    found: list[Cell] = []
    for data in (data for data in DATA_SETS if data.name in (options.only or NAMES)):
        for public in (False, True):
            for epsilon in EPSILONS:
                found += cells(data, options.data, public, epsilon, min(options.runs, data.most_runs))
                print(f"done: {data.name}, {'public' if public else 'private'} totals, ε = {epsilon}", flush=True)
    with (options.out / "one-group.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*Cell._fields, "ratio"])
        for cell in found:
            numbers = [f"{each:.1f}" if isinstance(each, float) else each for each in cell]
            writer.writerow([*numbers, f"{cell.ratio:.3f}"])
    print(summary(found))


if __name__ == "__main__":
    main()
