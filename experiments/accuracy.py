"""The experiments behind docs/accuracy.md: NOT PRIVATE, on public and made-up data.

    python -m experiments.accuracy --data DIRECTORY [--half tune|held|all] [--runs 20] [--only NAME …]
        [--results accuracy-results] [--out docs/figures]
    python -m experiments.accuracy --data DIRECTORY --only oregon --only ri-asian --runs 2     to try it

DIRECTORY holds the files that experiments/named_files.py knows. Results go to a folder for each data set, ours and
others apart, with a journal each: an interrupted run goes on, and more runs may be added. A journal does not know that
a mechanism's code has changed: then delete its folder (`…/ours`). Tables are printed, and written as CSV to --out,
where the pictures go too.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal
from zlib import crc32

import tallytree as tt
from experiments.accuracy_tables import (
    DEFAULT,
    METRICS,
    Case,
    Cell,
    Error,
    Errors,
    tables,
)
from experiments.named_files import load
from tallytree.core import display
from tallytree.core.display import colors, tooltip
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab import Results, Truth, compare
from tallytree.lab.datasets import make
from tallytree.lab.oracle import oracle
from tallytree.mechanisms import MECHANISMS, Mechanism
from tallytree.mechanisms.budget_allocation import Shares
from tallytree.mechanisms.tallytree import Tallytree
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, one_entity
from tallytree.privacy.plan import Plan

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
EPSILONS = ("0.1", "0.3", "1", "3")
SHOWN_EPSILON = 1.0  # in the picture
TOTALS_SHARE = "1/10"  # of the budget, where a method needs totals that are private
MOST_LIST_STEPS = 200_000_000  # groups × sizes; more take long for each run
Half = Literal["tune", "held"]
Ready = Literal["balanced", "leaves", "upper", "equal", "only leaves"]

# -------------------------------------------------------------------- data


@dataclass(frozen=True)
class DataSet:
    """Something to compare on: which half it is in was decided before anything was tuned on it."""

    name: str
    kind: str
    half: Half
    read: Callable[[Path, bool], Truth]
    most_runs: int = 1000  # whatever is asked for: with many sizes a round of all contenders takes minutes

    def truth(self, folder: Path, public: bool) -> Truth:
        """The counts, under the name that tables have."""
        return replace(self.read(folder, public), name=self.name)


def from_file(name: str, kind: str, half: Half, file: str, most_runs: int = 1000, **options: Any) -> DataSet:
    """A file that `named_files` knows."""
    return DataSet(
        name, kind, half, lambda folder, public: load(folder / file, public_totals=public, **options), most_runs
    )


def made_up(name: str, kind: str, dataset: str, most_runs: int = 1000, **options: Any) -> DataSet:
    """Made in code, so to tune on."""
    return DataSet(name, kind, "tune", lambda _, public: make(dataset, public_totals=public, **options), most_runs)


HOUSEHOLDS, SPARSE, MANY = "households", "sparse", "many sizes"
RHODE_ISLAND, DISTRICTS = "ri_2010_block_race.csv", "us2010_vtd_race.parquet"
DATA_SETS = (
    made_up("census (made up)", HOUSEHOLDS, "census", scale=0.05, max_size=100),
    from_file("oregon", HOUSEHOLDS, "tune", "oregon_2000_pums_households.parquet"),
    from_file("switzerland", HOUSEHOLDS, "tune", "switzerland_2003_municipality_household_size.csv"),
    from_file("us-counties", HOUSEHOLDS, "tune", "us2010_county_household_size_2plus.csv"),
    from_file("atlanta", HOUSEHOLDS, "held", "atlanta_arc_households.parquet"),
    from_file("cps", HOUSEHOLDS, "held", "us_cps_2012_2014_households.parquet"),
    from_file("bay-area", HOUSEHOLDS, "held", "bayarea_2010_maz_household_size.csv", 4),
    made_up("race (made up)", SPARSE, "race", 2, scale=0.05),
    from_file("ri-asian", SPARSE, "tune", RHODE_ISLAND, 6, race="asian"),
    from_file("ri-white", SPARSE, "tune", RHODE_ISLAND, 2, race="white"),
    from_file("hawaiian-blocks", SPARSE, "tune", "us2010_block_hawaiian_national_hist.csv", 4),
    from_file("ri-black", SPARSE, "held", RHODE_ISLAND, 4, race="black"),
    from_file("ri-hisp", SPARSE, "held", RHODE_ISLAND, 2, race="hisp"),
    from_file("vtd-nhpi", SPARSE, "held", DISTRICTS, 2, race="nhpi", max_size=1000),
    made_up("taxi-263 (made up)", MANY, "taxi", 2, scale=0.2, max_size=1000),
    made_up("taxi-28 (made up)", MANY, "taxi", 2, zones=28, scale=0.2, max_size=4000),
    from_file("medallions", MANY, "held", "nyc_taxi_medallion_pickups.csv", 2),
)


# -------------------------------------------------------------------- contenders


@dataclass(frozen=True)
class Divided(Tallytree):
    """`tallytree` with its budget divided in a stated way, as `compare` takes it."""

    way: Ready = "balanced"

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Its own shares, whatever is given."""
        depth = hierarchy.depth
        if self.way == "equal":
            return super().plan(hierarchy, budget, unit, [1] * depth)
        if self.way == "only leaves":
            return super().plan(hierarchy, budget, unit, [0] * (depth - 1) + [1])
        return super().plan(hierarchy, budget, unit, self.divided(hierarchy, None, self.way, budget))


def ours(truth: Truth) -> list[Mechanism]:
    """`tallytree` with each way to divide, and with other ways to measure leaves than it is bound to take, each twice.

    Where totals are private and sizes many it takes either way, by what it measures first.
    """
    row = MECHANISMS[DEFAULT]
    data = truth.group_sizes()
    own = row.suited_to(Neighbours.of(data, one_entity()), truth.hierarchy, data.region_totals).options.get("leaves")
    ways: tuple[Ready, ...] = ("balanced", "leaves", "upper", "equal", "only leaves")
    found = [_divided(row, DEFAULT if way == "balanced" else f"{DEFAULT} {way}", way) for way in ways]
    for other in ("at_least", "lists"):
        if other == own or (other == "lists" and int(truth.counts.sum()) * truth.max_size > MOST_LIST_STEPS):
            continue
        options = {"leaves": other, **({"totals_share": TOTALS_SHARE} if _asks_totals(truth, other) else {})}
        found.append(_divided(row.configured(options), f"{DEFAULT} {other}", "balanced"))
        found.append(_divided(row.configured(options), f"{DEFAULT} {other} upper", "upper"))
    return found


def _divided(row: Mechanism, name: str, way: Ready) -> Mechanism:
    given = {each.name: getattr(row, each.name) for each in fields(row)}
    return Divided(**{**given, "name": name}, way=way)


def _asks_totals(truth: Truth, leaves: str) -> bool:
    return leaves == "lists" and not truth.public_totals


def seeds(truth: Truth) -> list[str | Mechanism]:
    """The papers' mechanisms that these data suit, and their newest rivals; all with honest noise."""
    aside = {} if truth.public_totals else {"totals_share": TOTALS_SHARE}
    leaves = MECHANISMS["bottom-up"]
    found: list[str | Mechanism] = [
        "pgsr-hierarchical-dp",
        "pgsr-cumulative-dp",
        "pgsr-chain",
        "topdown",
        "bluedown",
        "inftda",
        "joint-cumulative",
        replace(leaves.configured({"method": "cumulative"}), name="bottom-up"),
        replace(leaves.configured({"method": "sorted-sizes-l1", **aside}), name="bottom-up lists"),
        MECHANISMS["coc-matching"].configured(aside) if aside else "coc-matching",
    ]
    return [*found, "joint-counts"] if truth.public_totals else found


SEEDS = (
    *("pgsr-hierarchical-dp", "pgsr-cumulative-dp", "pgsr-chain", "topdown", "bluedown", "inftda", "coc-matching"),
    *("bottom-up", "bottom-up lists", "joint-cumulative", "joint-counts"),
)
ORACLES = ("oracle", "oracle-counts")


# -------------------------------------------------------------------- running


@dataclass(frozen=True)
class Given:
    """What the user asked for."""

    data: Path
    runs: int
    results: Path
    out: Path
    jobs: int | None
    limit: float
    epsilons: tuple[str, ...] = EPSILONS


def run(given: Given, data: DataSet, public: bool) -> Results:
    """Every contender on one data set, from the journals as far as they go."""
    truth = data.truth(given.data, public)
    totals = "public" if public else "private"
    folder = given.results / f"{data.name.replace(' ', '-')}-{totals}"
    parts = {"others": [*seeds(truth), oracle(truth), oracle(truth, "counts")], "ours": ours(truth)}
    found = []
    for part, contenders in parts.items():
        found.append(
            compare(
                truth,
                contenders,
                [tt.Budget(epsilon=epsilon) for epsilon in given.epsilons],
                runs=min(given.runs, data.most_runs),
                seed=crc32(f"{data.name} {totals}".encode()),  # shared luck would look like agreement of data sets
                jobs=given.jobs,
                limit=given.limit,
                out=folder / part,
            )
        )
    results = Results.together(found)
    for lost in {(one["mechanism"], one["message"]) for one in results.failures()}:
        print(f"{data.name}, {totals} totals: no result of {lost[0]}: {lost[1]}", file=sys.stderr)
    return results


def errors_of(results: Results, data: DataSet, public: bool) -> dict[str, dict[Cell, Error]]:
    """The means over runs that tables are made of."""
    found: dict[str, dict[Cell, Error]] = {}
    for row in results.summary().to_pylist():
        if row["metric"] in METRICS and row["depth"] is not None:
            case = Case(data.kind, data.name, "public" if public else "private", row["epsilon"])
            cell = Cell(case, row["depth"], row["level"], row["metric"])
            found.setdefault(row["mechanism"], {})[cell] = Error(row["mean"], row["standard_error"] or 0.0)
    return found


def settings_of(errors: Errors) -> list[str]:
    """The settings of ours that were run, the default first."""
    return sorted((name for name in errors if name.split()[0] == DEFAULT), key=lambda name: (name != DEFAULT, name))


def root_against_leaves(errors: Errors, totals: str) -> Any:
    """The picture: a panel for each data set with more than one level, a point for each mechanism; both axes log."""
    alt = display.altair()
    settings, papers = settings_of(errors), [seed for seed in SEEDS if seed in errors]
    places = {name: place for names in (settings, papers) for place, name in enumerate(names)}
    looks = ["diamond"] * len(settings) + [
        "circle" if place < len(display.COLORS) else "square" for place in range(len(papers))
    ]
    shape = alt.Shape("mechanism:N", scale=alt.Scale(domain=list(places), range=looks))
    axis, scale = alt.Axis(format="~s", tickCount=4, grid=False), alt.Scale(type="log", zero=False)
    panels = []
    cases = {cell.case for found in errors.values() for cell in found}
    for case in sorted(case for case in cases if (case.totals, case.epsilon) == (totals, SHOWN_EPSILON)):
        if rows := _ends(errors, case, list(places)):
            panels.append(
                alt.Chart(alt.Data(values=rows))
                .mark_point(filled=True, size=70, opacity=0.9)
                .encode(
                    x=alt.X("leaves:Q", title="all leaves together", scale=scale, axis=axis),
                    y=alt.Y("root:Q", title="root", scale=scale, axis=axis),
                    color=colors(places),
                    shape=shape,
                    tooltip=tooltip(("mechanism",), ("root", "leaves")),
                )
                .properties(width=230, height=200, title=display.panel_title(case.dataset))
            )
    if not panels:
        return None
    title = display.page_title(
        f"Earth mover's distance at the root and at the leaves (ε = {SHOWN_EPSILON:g}, {totals} totals)",
        "NOT PRIVATE: compared with the true counts. Diamonds: tallytree",
    )
    return display.styled(
        alt.concat(*panels, columns=3).resolve_scale(x="independent", y="independent").properties(title=title),
        subtitle_color="#b00020",
        legend_columns=4,
    )


def _ends(errors: Errors, case: Case, names: Sequence[str]) -> list[dict[str, Any]]:
    """The error of each mechanism at the root and at the leaves of a case; none for data with one level."""
    rows = []
    for name in names:
        here = {
            cell.depth: error.mean
            for cell, error in errors[name].items()
            if (cell.case, cell.metric) == (case, METRICS[0]) and error.mean > 0
        }
        if len(here) > 1:
            rows.append({"mechanism": name, "root": here[min(here)], "leaves": here[max(here)]})
    return rows


def report(given: Given, half: str, chosen: Sequence[DataSet]) -> str:
    """Run one half, write its tables and pictures, and return the tables as Markdown."""
    errors: dict[str, dict[Cell, Error]] = {}
    for data in chosen:
        for public in (True, False):
            for name, found in errors_of(run(given, data, public), data, public).items():
                errors.setdefault(name, {}).update(found)
            print(f"done: {data.name}, {'public' if public else 'private'} totals", file=sys.stderr, flush=True)
    settings, seeds_there = settings_of(errors), [seed for seed in SEEDS if seed in errors]
    for totals in ("public", "private"):
        picture = root_against_leaves(errors, totals)
        if picture is not None:
            display.save(picture, given.out / f"accuracy-{half}-{totals}.png")
    made = tables(errors, seeds_there, settings, ORACLES)
    for table in made:
        table.write(given.out, half)
    runs = ", ".join(f"{data.name} ({min(given.runs, data.most_runs)} runs)" for data in chosen)
    return "\n\n".join([f"Data: {runs}.", *(table.printed() for table in made)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data files")
    parser.add_argument("--half", choices=["tune", "held", "all"], default="all")
    parser.add_argument("--only", action="append", choices=[data.name for data in DATA_SETS], metavar="NAME")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--jobs", type=int, help="processes (one per processor)")
    parser.add_argument("--limit", type=float, default=120, help="seconds that one run may take")
    parser.add_argument("--results", type=Path, default=Path("accuracy-results"), help="folder of results and journals")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the tables and pictures")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    given = Given(options.data, options.runs, options.results, options.out, options.jobs, options.limit)
    for half in ("tune", "held") if options.half == "all" else (options.half,):
        chosen = [data for data in DATA_SETS if data.half == half and (not options.only or data.name in options.only)]
        if chosen:
            print(report(given, half, chosen))


if __name__ == "__main__":
    main()
