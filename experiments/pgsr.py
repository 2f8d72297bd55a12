"""The experiments behind docs/pgsr.md: NOT PRIVATE, on made-up data. Run: python -m experiments.pgsr [--runs 3]

Results go to pgsr-results/ (a journal each, so that an interrupted run goes on) and pictures to docs/figures/.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tallytree as tt
from experiments.as_printed import CHAIN_AS_PRINTED
from tallytree.evaluate import compare, plots
from tallytree.evaluate.datasets import make

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
RESULTS = Path("pgsr-results")
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    FIGURES.mkdir(exist_ok=True)

    # Figure 7: runtime against the number of sizes, a limit of 20 s in place of the paper's 30 minutes.
    series = [
        compare(
            make("taxi", zones=28, scale=0.05, cut=sizes),
            [*FAST[:2], "topdown", "joint-cumulative", *SLOW],
            [tt.Budget(epsilon="0.1")],
            runs=runs,
            jobs=1,
            limit=20,
            out=RESULTS / f"scalability-{sizes}",
        )
        for sizes in (5, 10, 20, 50)
    ]
    for sizes, each in zip((5, 10, 20, 50), series, strict=True):
        each.save(RESULTS / f"scalability-{sizes}")
    plots.save(plots.runtime_against_sizes(series), FIGURES / "pgsr-figure-7.png")

    # Figures 8 and 9 and Table 7 at full shape, and the relaxations on a slice that they can manage.
    slices = {"census": make("census", scale=0.01, max_size=100), "taxi": make("taxi", zones=28, cut=300)}
    for name, slice_of in slices.items():
        full = compare(make(name), FAST, BUDGETS, runs=runs, jobs=1, limit=120, out=RESULTS / name)
        full.save(RESULTS / name)
        plots.save(plots.error_against_budget(full, "l1"), FIGURES / f"pgsr-figure-9-{name}.png")
        folder = RESULTS / f"{name}-slice"
        compare(slice_of, [*FAST, *RELAXED], BUDGETS, runs=runs, jobs=1, limit=60, out=folder).save(folder)


if __name__ == "__main__":
    main()
