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
from experiments.summaries import COLUMNS, TIME, Row, summarised, write_rows
from tallytree.core import display
from tallytree.lab import Results, Truth, compare, plots
from tallytree.lab.audit.planted import CHAIN_AS_PRINTED
from tallytree.lab.datasets import make
from tallytree.lab.results import ROWS
from tallytree.lab.rivals.estimators import TableMechanism
from tallytree.mechanisms import Mechanism, mechanism_named

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
# The paper's symbols; our form of M_H^dp solves the same problem as the paper's tables.
OURS = "M_H^dp without tables"
PRINTED = "M_H^dp as printed"
CHAIN = "M_c^ch as printed"  # with the paper's noise, which is too little for its ε
NAMES = {OURS: "pgsr-hierarchical-dp", PRINTED: "pgsr-hierarchical-tables", "joint": "joint-cumulative"}
FIGURE_7 = ("M_H", "M_H^r", PRINTED, OURS, "M_dp^OP", "M_c", "M_c^r", "M_c^dp", "M_c^ch", "TopDown")
FIGURE_9 = (OURS, "M_c^dp", "M_c^ch", "TopDown", "joint")
RELAXED = ("M_H^r", "M_c^r")
MOST_PROGRAMS = 10_000  # N = 5 at ε = 1, and no more
EPSILONS = ("0.1", "0.5", "1")
# Table 7: L1 errors by level, in ten thousands (taxi) and thousands (census).
UNITS = {"taxi": 10_000, "census": 1_000}
PUBLISHED = """
0.1 | M_H^r   | 25.4 158.7 904.4 | 40.3 54.3 802.1
0.1 | M_H^dp  | 26.6 121.9 915.7 | 10.3 38.4 825.4
0.1 | M_c^r   | 47.9 153.2 551.6 | 23.1 64.5 632.2
0.1 | M_c^dp  | 19.9  65.6 644.3 |  0.9 23.2 550.6
0.1 | M_c^ch  |  5.5  39.3 537.8 |  0.2 13.9 603.0
0.1 | TopDown | 26.6  93.0 809.1 |  3.7 35.0 820.5
0.5 | M_H^r   |  8.6  81.2 364.2 | 39.4 37.9 216.3
0.5 | M_H^dp  |  5.5  31.0 408.9 |  2.4  9.4 230.8
0.5 | M_c^r   | 46.7 153.5 450.7 | 23.1 61.0 494.2
0.5 | M_c^dp  |  4.0  16.4 352.9 |  0.2  5.8 159.1
0.5 | M_c^ch  |  1.2   9.5 150.6 |  0.0  3.4 165.3
0.5 | TopDown |  5.3  20.3 242.1 |  0.9  8.6 228.4
1   | M_H^r   |  7.7  77.2 279.0 | 40.7 39.2 130.0
1   | M_H^dp  |  3.1  19.8 328.5 |  1.2  5.1 128.8
1   | M_c^r   | 47.1 154.2 447.1 | 24.1 63.0 494.5
1   | M_c^dp  |  2.0   8.7 307.8 |  0.1  3.2  91.0
1   | M_c^ch  |  0.5   4.5  78.6 |  0.0  1.7  86.9
1   | TopDown |  2.6  10.3 138.4 |  0.5  4.6 127.2
"""
SAME = {OURS: "M_H^dp", CHAIN: "M_c^ch", "M_c^ch": ""}  # our names of what the paper measured


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
    """A mechanism that results call by the paper's symbol; M_dp^OP may solve more programs than usual."""
    row = mechanism_named(NAMES.get(symbol, symbol))
    if isinstance(row, TableMechanism) and row.most_programs is not None:
        row = replace(row, most_programs=MOST_PROGRAMS)
    return replace(row, name=symbol)


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
    found = given.compare(truth, FIGURE_9, EPSILONS, name, [replace(CHAIN_AS_PRINTED, name=CHAIN)])
    display.save(plots.error_against_budget(found, "l1"), given.out / f"pgsr-figure-9-{name}.png")
    rows = [{**row, "published": published(name, row)} for row in summarised([found], ("l1", "emd", "violations"))]
    write_rows(given.out / f"pgsr-table-7-{name}.csv", rows, [*COLUMNS, "published"])


def published(name: str, row: Row) -> float | None:
    """What Table 7 has for a row, if anything: an L1 error of a level."""
    if row["metric"] != "l1" or row.get("depth") is None:
        return None
    for line in PUBLISHED.strip().splitlines():
        epsilon, symbol, taxi, census = (part.strip() for part in line.split("|"))
        if symbol == SAME.get(row["mechanism"], row["mechanism"]) and float(epsilon) == row["epsilon"]:
            return UNITS[name] * float((taxi if name == "taxi" else census).split()[row["depth"]])
    return None


def figure_8(given: Given) -> None:
    """Run time against ε at full shape, from the results of census and taxi that are there: a panel for each."""
    tables = []
    for place, name in enumerate(name for name in FULL_SHAPE if (given.results / name / ROWS).exists()):
        rows = Results.load(given.results / name).rows
        rows = rows.filter(pc.equal(rows["metric"], TIME))
        for column, value in (("level", pa.array([name] * len(rows))), ("depth", pa.array([place] * len(rows)))):
            rows = rows.set_column(rows.column_names.index(column), column, value)
        tables.append(rows)
    chart = plots.error_against_budget(Results(pa.concat_tables(tables)), TIME)
    chart.title.text = "Run time against ε at full shape"
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
