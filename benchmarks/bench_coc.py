"""How long the count-of-counts mechanisms take and how much memory they need, at the shape of the U.S. census.

    python benchmarks/bench_coc.py            1→52→3,144 regions × 1,000 sizes, 117 million groups; some minutes
    python benchmarks/bench_coc.py --quick    a fiftieth of the counties; some seconds
    python benchmarks/bench_coc.py --only Hc  one case: Hc, Hg or node

Prints a readable line and a line of JSON for each case. How many times longer does measuring and estimating take than
drawing the same noise alone, and what share of it is the matching? `Hc` and `Hg` are coc-matching with cumulative
counts, or sorted lists, on every level; `node` is a single region with all groups. Times are CPU times, all cores
added, so that other work on the machine matters less; `wall_over_cpu` is the clock on the wall. Each case has a process
of its own, whose resident peak is given over all, and over what was there before.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest.mock import patch

import numpy as np

import tallytree as tt
from common import peak_bytes, report
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.matching import match_groups
from tallytree.lab.datasets import make
from tallytree.lab.truth import Truth
from tallytree.mechanisms import MECHANISMS, Mechanism, count_of_counts
from tallytree.privacy.noise.samplers import discrete_laplace
from tallytree.privacy.plan import Plan
from tallytree.privacy.run import AT_A_TIME, measure

CASES = {"Hc": "cumulative", "Hg": "sorted-sizes", "Hg-l1": "sorted-sizes-l1", "node": "sorted-sizes"}
BUDGET = tt.Budget(epsilon=1)


def prepared(case: str, scale: float) -> tuple[Truth, Mechanism, Plan]:
    """Made-up households, the mechanism of a case and what it measures."""
    truth = make("census", scale=scale)
    if case == "node":
        alone = Hierarchy.from_levels({"nation": ["US"]}, ["nation"])
        truth = Truth("one node", alone, truth.counts.sum(axis=0, keepdims=True), truth.public_totals)
        mechanism = MECHANISMS["bottom-up"].configured({"method": CASES[case]})
    else:
        mechanism = MECHANISMS["coc-matching"].configured({"methods": [CASES[case]] * truth.hierarchy.depth})
    return truth, mechanism, mechanism.plan(truth.hierarchy, BUDGET, tt.one_entity())


def draws(truth: Truth, plan: Plan) -> list[tuple[Any, int]]:
    """The scale and number of the plan's noise, in the portions in which it is drawn."""
    found = []
    groups, tree = int(truth.counts.sum()), truth.hierarchy
    for query in plan.queries:
        scale = 1 / plan.cost(query)
        level = tree.level_slice(query.level)
        if query.view == "sorted_sizes":
            found += [(scale, min(AT_A_TIME, groups - begin)) for begin in range(0, groups, AT_A_TIME)]
        else:
            found.append((scale, (level.stop - level.start) * truth.max_size))
    return found


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it gives, CPU seconds and seconds on the wall."""
    processor, wall = process_time(), perf_counter()
    found = work()
    return found, process_time() - processor, perf_counter() - wall


def figures(case: str, scale: float, times: int) -> dict[str, Any]:
    """Measure a case in this process; the best of some runs."""
    run_once(*prepared(case, 0.0005))  # compiles
    truth, mechanism, plan = prepared(case, scale)
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far, that of making the data
    before = peak_bytes()
    runs = [run_once(truth, mechanism, plan) for _ in range(times)]
    peak = peak_bytes()
    portions = draws(truth, plan)
    drawing = min(timed(lambda: [discrete_laplace(size, count) for size, count in portions])[1] for _ in range(times))
    best = min(runs, key=lambda run: run["cpu"])
    groups = int(truth.counts.sum())
    return {
        "case": case,
        "shape": np.diff(truth.hierarchy.level_starts).tolist(),
        "sizes": truth.max_size,
        "groups": groups,
        "cpu_seconds": best["cpu"],
        "wall_over_cpu": best["wall"] / best["cpu"],
        "over_drawing": best["cpu"] / drawing,
        "share_measuring": best["measuring"] / best["cpu"],
        "share_matching": best["matching"] / best["cpu"],
        "peak_gigabytes": peak / 1e9,
        "rise_over_int32_list": (peak - before) / (4 * groups),
    }


def run_once(truth: Truth, mechanism: Mechanism, plan: Plan) -> dict[str, float]:
    """Measure and estimate, with the matching timed on its own."""
    spent = [0.0]

    def timed_matching(*arguments: Any, **options: Any) -> Any:
        found, cpu, _ = timed(lambda: match_groups(*arguments, **options))
        spent[0] += cpu
        return found

    with patch.object(count_of_counts, "match_groups", timed_matching):
        held, measuring, wall = timed(lambda: measure(truth.group_sizes(), plan, derive_facts=mechanism.derive_facts))
        _, estimating, more = timed(lambda: mechanism.estimate(held))
    return {"cpu": measuring + estimating, "wall": wall + more, "measuring": measuring, "matching": spent[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a fiftieth of the counties")
    parser.add_argument("--only", choices=list(CASES), help="one case")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        times = 7 if options.quick or options.only == "Hc" else 1
        print(json.dumps(figures(options.only, 0.02 if options.quick else 1.0, times)))
        return
    for case in [options.only] if options.only else ["Hc", "node", "Hg"]:
        arguments = [sys.executable, __file__, "--only", case, "--here", *(["--quick"] if options.quick else [])]
        found = json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
        shape = "→".join(f"{count:,}" for count in found["shape"])
        report(
            f"{case}, {shape} × {found['sizes']:,}, {found['groups']:,} groups: {found['over_drawing']:.1f} × drawing "
            f"the noise alone, {found['share_matching']:.1%} of it matching; peak {found['peak_gigabytes']:.1f} GB, "
            f"which rose by {found['rise_over_int32_list']:.2f} × the list of all sizes in 32 bits",
            **found,
        )


if __name__ == "__main__":
    main()
