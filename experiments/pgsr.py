"""Section 11 of the PGSR paper remade: Figures 7, 8 and 9 and Table 7. NOT PRIVATE, on made-up data.

    python -m experiments.pgsr [--part figure-7] [--runs 3] [--limit 1800] [--results pgsr-results] [--out docs/figures]
    python -m experiments.pgsr --quick --out FOLDER     small data and short limits, to try it

The parts are figure-7 (run time against the number of sizes), relaxed (the relaxed mechanisms on a census of all
counties, for growing numbers of sizes), census and taxi (Figure 9 and Table 7 at full shape) and figure-8 (run time
against ε, from their results); all of them if none is named. Results go to a folder (a journal each, so that an
interrupted run goes on), pictures and CSV files to another. A mechanism that takes longer than the limit, 30 minutes as
in the paper, is a row that says so.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import tallytree as tt
from experiments.summaries import TIME, summarised, write_rows
from tallytree.core import display
from tallytree.lab import Results, Truth, compare, plots
from tallytree.lab.audit.planted import CHAIN_AS_PRINTED
from tallytree.lab.datasets import make
from tallytree.mechanisms import Mechanism, mechanism_named

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
# The paper's symbols; our form of M_H^dp solves the same problem as the paper's tables.
OURS = "M_H^dp without tables"
PRINTED = "M_H^dp as printed"
NAMES = {OURS: "pgsr-hierarchical-dp", PRINTED: "pgsr-hierarchical-tables", "joint": "joint-cumulative"}
FIGURE_7 = ("M_H", "M_H^r", PRINTED, OURS, "M_dp^OP", "M_c", "M_c^r", "M_c^dp", "M_c^ch", "TopDown")
FIGURE_9 = (OURS, "M_c^dp", "M_c^ch", "TopDown", "joint")
RELAXED = ("M_H^r", "M_c^r")
EPSILONS = ("0.1", "0.5", "1")


@dataclass(frozen=True)
class Given:
    """What the user asked for: runs, seconds for one run, small data or not, where results and pictures go."""

    runs: int
    limit: float
    quick: bool
    results: Path
    out: Path

    def compare(
        self, truth: Truth, names: Sequence[str], epsilons: Sequence[str], folder: str, more: Sequence[Mechanism] = ()
    ) -> Results:
        """Run mechanisms by the paper's symbols, one process at a time, so that run times do not mix."""
        chosen = [*map(named, names), *more]
        budgets = [tt.Budget(epsilon=epsilon) for epsilon in epsilons]
        path = self.results / folder
        found = compare(truth, chosen, budgets, runs=self.runs, jobs=1, limit=self.limit, out=path)
        found.save(path)
        return found


def named(symbol: str) -> Mechanism:
    """A mechanism that results call by the paper's symbol."""
    return replace(mechanism_named(NAMES.get(symbol, symbol)), name=symbol)


def figure_7(given: Given) -> None:
    """Run time against the number of sizes, for ε = 0.1 and 1: the paper's tables grow with the noise."""
    series = [
        given.compare(make("taxi", zones=28, scale=0.05, cut=sizes), FIGURE_7, ("0.1", "1"), f"figure-7-{sizes}")
        for sizes in ((5, 10) if given.quick else (5, 10, 20, 50))
    ]
    display.save(plots.runtime_against_sizes(series), given.out / "pgsr-figure-7.png")
    write_rows(given.out / "pgsr-figure-7.csv", summarised(series, (TIME,)))


def relaxed(given: Given) -> None:
    """The relaxed mechanisms beside the exact ones, on 3,197 regions, as far as the limit allows."""
    series = [
        given.compare(
            make("census", scale=0.01 if given.quick else 1, max_size=sizes),
            (OURS, "M_c^dp", *RELAXED),
            ("0.1", "1"),
            f"relaxed-{sizes}",
        )
        for sizes in ((10, 30) if given.quick else (10, 30, 100, 300))
    ]
    write_rows(given.out / "pgsr-relaxed.csv", summarised(series, (TIME, "l1", "violations")))


def full_shape(given: Given, name: str) -> None:
    """Figures 8 and 9 and Table 7: run time and error against ε by level, at full shape."""
    truth = make(name, scale=0.01) if given.quick else make(name)
    found = given.compare(truth, FIGURE_9, EPSILONS, name, [replace(CHAIN_AS_PRINTED, name="M_c^ch as printed")])
    display.save(plots.error_against_budget(found, "l1"), given.out / f"pgsr-figure-9-{name}.png")
    write_rows(given.out / f"pgsr-table-7-{name}.csv", summarised([found], ("l1", "emd", "violations")))


def figure_8(given: Given) -> None:
    """Run time against ε at full shape, from the results of census and taxi: a panel for each."""
    tables = []
    for place, name in enumerate(FULL_SHAPE):
        rows = Results.load(given.results / name).rows
        rows = rows.filter(pc.equal(rows["metric"], TIME))
        for column, value in (("level", pa.array([name] * len(rows))), ("depth", pa.array([place] * len(rows)))):
            rows = rows.set_column(rows.column_names.index(column), column, value)
        tables.append(rows)
    chart = plots.error_against_budget(Results(pa.concat_tables(tables)), TIME)
    chart.title.text = "Run time against ε: census and taxi at full shape"
    display.save(chart, given.out / "pgsr-figure-8.png")


FULL_SHAPE = ("census", "taxi")
PARTS = {
    "figure-7": figure_7,
    "relaxed": relaxed,
    "census": lambda given: full_shape(given, "census"),
    "taxi": lambda given: full_shape(given, "taxi"),
    "figure-8": figure_8,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="may be repeated")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--limit", type=float, help="seconds for one run; 1,800 if not given, 2 with --quick")
    parser.add_argument("--quick", action="store_true", help="small data and short limits")
    parser.add_argument("--results", type=Path, default=Path("pgsr-results"), help="folder of results and journals")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the pictures and CSV files")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    limit = options.limit or (2 if options.quick else 1800)
    given = Given(options.runs, limit, options.quick, options.results, options.out)
    for part in options.part or PARTS:
        PARTS[part](given)


if __name__ == "__main__":
    main()
