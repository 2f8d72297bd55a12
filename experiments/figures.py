"""The pictures of docs/evaluate.md: small experiments on made-up data. NOT PRIVATE.

python -m experiments.figures [--quick] [--out docs/figures]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tallytree as tt
from tallytree.core import display
from tallytree.lab import compare, plots
from tallytree.lab.datasets import make

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
MECHANISMS = ["pgsr-hierarchical-dp", "pgsr-cumulative-dp"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two runs each and fewer sizes")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    budgets = [tt.Budget(epsilon=epsilon) for epsilon in ("0.1", "0.3", "1")]
    census = compare(make("census", scale=0.01), MECHANISMS, budgets, runs=2 if options.quick else 5)
    display.save(plots.error_against_budget(census, "l1"), options.out / "error-against-epsilon.png")
    display.save(plots.error_against_size(census), options.out / "error-against-size.png")

    # One process at a time, so that runtimes are not those of two that share the processors.
    runs, cuts = (2, (5, 20)) if options.quick else (9, (5, 10, 20, 50, 200, 1000))
    series = [
        compare(make("taxi", cut=sizes), MECHANISMS, [tt.Budget(epsilon="0.1")], runs=runs, jobs=1) for sizes in cuts
    ]
    display.save(plots.runtime_against_sizes(series), options.out / "runtime-against-sizes.png")


if __name__ == "__main__":
    main()
