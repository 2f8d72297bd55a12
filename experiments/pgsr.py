"""The experiments behind docs/papers.md: NOT PRIVATE, on made-up data.

    python -m experiments.pgsr [--runs 3] [--results pgsr-results] [--out docs/figures]
    python -m experiments.pgsr --quick --out FOLDER     small data and short limits, to try it

Results go to a folder (a journal each, so that an interrupted run goes on) and pictures to another.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tallytree as tt
from tallytree.core import display
from tallytree.lab import compare, plots
from tallytree.lab.audit.planted import CHAIN_AS_PRINTED
from tallytree.lab.datasets import make

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
FAST = [
    "pgsr-hierarchical-dp",
    "pgsr-cumulative-dp",
    "pgsr-chain",
    CHAIN_AS_PRINTED,
    "topdown",
    "joint-counts",
    "joint-cumulative",
]
RELAXED = ["pgsr-hierarchical-relaxed", "pgsr-cumulative-relaxed"]
SLOW = ["pgsr-hierarchical-exact", "pgsr-cumulative-exact", "pgsr-hierarchical-tables", *RELAXED]
BUDGETS = [tt.Budget(epsilon=epsilon) for epsilon in ("0.1", "0.5", "1")]


def scalability(runs: int, quick: bool, results: Path, out: Path) -> None:
    """Figure 7: runtime against the number of sizes, a limit of 20 s in place of the paper's 30 minutes."""
    cuts = (5, 10) if quick else (5, 10, 20, 50)
    series = []
    for sizes in cuts:
        folder = results / f"scalability-{sizes}"
        found = compare(
            make("taxi", zones=28, scale=0.05, cut=sizes),
            [*FAST[:2], "topdown", "joint-cumulative", *SLOW],
            [tt.Budget(epsilon="0.1")],
            runs=runs,
            jobs=1,
            limit=2 if quick else 20,
            out=folder,
        )
        found.save(folder)
        series.append(found)
    display.save(plots.runtime_against_sizes(series), out / "pgsr-figure-7.png")


def errors(runs: int, quick: bool, results: Path, out: Path) -> None:
    """Figures 8 and 9 and Table 7 at full shape, and the relaxations on a slice that they can manage."""
    slices = {"census": make("census", scale=0.01, max_size=100), "taxi": make("taxi", zones=28, cut=300)}
    for name, part in slices.items():
        full = make(name, scale=0.01) if quick else make(name)
        found = compare(full, FAST, BUDGETS, runs=runs, jobs=1, limit=120, out=results / name)
        found.save(results / name)
        display.save(plots.error_against_budget(found, "l1"), out / f"pgsr-figure-9-{name}.png")
        if not quick:
            folder = results / f"{name}-slice"
            compare(part, [*FAST, *RELAXED], BUDGETS, runs=runs, jobs=1, limit=60, out=folder).save(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="small data and short limits")
    parser.add_argument("--results", type=Path, default=Path("pgsr-results"), help="folder of results and journals")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for part in (scalability, errors):
        part(options.runs, options.quick, options.results, options.out)


if __name__ == "__main__":
    main()
