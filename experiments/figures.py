"""Make the pictures of docs/evaluate.md anew: small experiments on made-up data. Run: python docs/figures.py"""

from __future__ import annotations

from pathlib import Path

import tallytree as tt
from tallytree.evaluate import compare, plots
from tallytree.evaluate.datasets import make

FOLDER = Path(__file__).parents[1] / "docs" / "figures"
MECHANISMS = ["pgsr-hierarchical-dp", "pgsr-cumulative-dp"]


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    budgets = [tt.Budget(epsilon=epsilon) for epsilon in ("0.1", "0.3", "1")]
    census = compare(make("census", scale=0.01), MECHANISMS, budgets, runs=5)
    plots.save(plots.error_against_budget(census, "l1"), FOLDER / "error-against-epsilon.png")
    plots.save(plots.error_against_size(census), FOLDER / "error-against-size.png")

    # One process at a time, so that runtimes are not those of two that share the processors.
    series = [
        compare(make("taxi", cut=sizes), MECHANISMS, [tt.Budget(epsilon="0.1")], runs=9, jobs=1)
        for sizes in (5, 10, 20, 50, 200, 1000)
    ]
    plots.save(plots.runtime_against_sizes(series), FOLDER / "runtime-against-sizes.png")


if __name__ == "__main__":
    main()
