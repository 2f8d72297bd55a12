"""Household synthesis compared: HQR's Figure 1 remade, and real households. NOT PRIVATE, on public and made-up data.

    python -m experiments.hqr --data DIRECTORY [--only oregon] [--method h-gem] [--epsilon 1] [--runs 2] [--out FOLDER]
    python -m experiments.hqr --only acs-small --method mwem --epsilon 1 --runs 1 --out FOLDER     the cheapest

DIRECTORY holds oregon_2000_pums_*.parquet, atlanta_arc_*.parquet and us_cps_2012_2014_*.parquet (the made-up data need
none). Every finished run is added at once to synthesis.csv in docs/figures (or FOLDER), and a run that is there is not
done again, so the whole can be done in parts and after interruptions. Pictures and the table of ratios are made from
that file.

Schemas are public: categories come from the data's codebooks, bins are round numbers. As in the paper, households of
more than M persons are left out; M = 3 and few values where MWEM, which holds every possible household, takes part.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.domain.schema import Attribute, Schema
from tallytree.lab.microdata import HouseholdTruth, compare_synthesis, made_up
from tallytree.privacy.budget import Budget
from tallytree.synthesis.workload import Workload, all_sets, sampled_sets
from tallytree.tables.contingency import code_type, grouped

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
RUNS = "synthesis.csv"
EPSILONS = ("0.125", "0.25", "0.5", "1")
OURS = "tallytree-marginals"
METHODS = (OURS, "h-gem", "mwem")
SERIES = {
    ("mwem", "average"): "MWEM, average iterate, as printed",
    ("mwem", "last"): "MWEM, last iterate",
    ("h-gem", "averaged"): "H-GEM, as printed",
    ("h-gem", "converged"): "H-GEM, trained until its residual stops falling",
    (OURS, ""): OURS,
}
CLASSES = {"": "all queries", "household_": "households (Q_G)", "person_": "persons (Q_I)"}
ERRORS = {
    f"{prefix}{error}": f"{words} error, {of}"
    for error, words in (("max_error", "largest"), ("mean_error", "mean"))
    for prefix, of in CLASSES.items()
}
COLUMNS = (
    *("data", "households", "queries", "unit", "method", "model", "epsilon", "delta", "rho", "run", "seed"),
    *(*ERRORS, "drawn_max_error", "drawn_mean_error", "rounds", "seconds", "processor_seconds", "residual"),
)
OPTIONS = {"h-gem": {"converge_batch": 1000}}

Column = tuple[Attribute, NDArray[Any]]


# -------------------------------------------------------------------- data


def bins(name: str, numbers: Any, cuts: tuple[float, ...]) -> Column:
    """A number by bins; no number (not a number) counts as below the first cut."""
    codes = np.searchsorted(np.array(cuts), np.nan_to_num(np.asarray(numbers, float), nan=-np.inf), side="right")
    labels = (f"below {cuts[0]:g}", *(f"from {cut:g}" for cut in cuts))
    return Attribute(name, labels, cuts=cuts), codes


def kinds(name: str, values: Any, groups: dict[str, tuple[Any, ...]], rest: str | None = None) -> Column:
    """Categories joined to groups; values of no group are the `rest`."""
    labels = (*groups, *([rest] if rest is not None else []))
    codes = np.full(len(values), len(groups))
    for code, members in enumerate(groups.values()):
        codes[np.isin(values, members)] = code
    if rest is None and (codes == len(groups)).any():
        raise ValueError(f"{name} has values that the codebook does not list")
    return Attribute(name, labels), codes


def assemble(
    name: str, most: int, ids: Any, home_ids: Any, household: list[Column], person: list[Column]
) -> HouseholdTruth:
    """Households of 1 to `most` persons."""
    order = np.argsort(ids, kind="stable")
    home = order[np.searchsorted(ids[order], home_ids)]
    sizes = np.bincount(home, minlength=len(ids))
    kept = (sizes >= 1) & (sizes <= most)
    place = np.cumsum(kept) - 1
    members = kept[home]
    schema = Schema(tuple(column[0] for column in household), tuple(column[0] for column in person), most)

    def codes(columns: list[Column], rows: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
        return {attribute.name: code[rows].astype(code_type(attribute.codes)) for attribute, code in columns}

    whole = grouped(schema, codes(household, kept), codes(person, members), place[home[members]], int(kept.sum()))
    return HouseholdTruth(name, whole)


def read(directory: Path, name: str) -> dict[str, NDArray[Any]]:
    import pyarrow.parquet as pq

    table = pq.read_table(directory / f"{name}.parquet")
    return {column: table[column].to_numpy() for column in table.column_names}


def oregon(directory: Path, small: bool) -> HouseholdTruth:
    """Oregon 2000 PUMS, occupied housing units."""
    homes = read(directory, "oregon_2000_pums_households")
    people = read(directory, "oregon_2000_pums_persons")
    units = homes["unittype"] == 0
    homes = {name: column[units] for name, column in homes.items()}
    here = np.isin(people["household_id"].astype(str), homes["household_id"].astype(str))
    people = {name: column[here] for name, column in people.items()}
    area, building = homes["area"].astype(str), homes["bldgsz"].astype(str)
    if small:
        household = [
            kinds("area", area, {"013": ("013",), "007": ("007",), "011": ("011",)}, "other"),
            kinds("building", building, {"house": ("02", "03"), "mobile": ("01", "10")}, "flat"),
            bins("income", homes["hinc"], (25_000, 60_000)),
        ]
        person = [
            bins("age", people["age"], (18, 65)),
            kinds("worked", people["wrklyr"], {"yes": (1,)}, "no"),
            bins("own income", people["inctot"], (15_000,)),
        ]
    else:
        household = [
            kinds("area", area, {f"{number:03d}": (f"{number:03d}",) for number in range(1, 14)}),
            kinds("building", building, {f"{number:02d}": (f"{number:02d}",) for number in range(1, 11)}, "none"),
            bins("income", homes["hinc"], (10_000, 25_000, 40_000, 60_000, 100_000)),
        ]
        person = [
            bins("age", people["age"], (6, 12, 18, 25, 35, 45, 55, 65, 75)),
            kinds("worked", people["wrklyr"], {"too young": (0,), "yes": (1,), "no": (2,)}),
            bins("own income", people["inctot"], (1, 7_500, 15_000, 30_000, 60_000)),
        ]
    most, name = (3, "oregon-small") if small else (5, "oregon")
    ids, home_ids = homes["household_id"].astype(str), people["household_id"].astype(str)
    return assemble(name, most, ids, home_ids, household, person)


def atlanta(directory: Path, small: bool) -> HouseholdTruth:
    """The Atlanta region's synthetic population of ACS records."""
    homes, people = read(directory, "atlanta_arc_households"), read(directory, "atlanta_arc_persons")
    married, family = {"married": (1,)}, {"other family": (2, 3)}
    employed = {"employed": (1, 2, 4, 5)}
    if small:
        household = [
            kinds("puma", homes["puma"], {"1101": (1101,), "1102": (1102,)}),
            bins("vehicles", homes["veh"], (1, 2)),
            kinds("type", homes["hht"], married | family, "no family"),
            bins("income", homes["hincp"], (50_000, 100_000)),
        ]
        person = [
            bins("age", people["agep"], (18, 65)),
            kinds("sex", people["sex"], {"male": (1,), "female": (2,)}),
            kinds("work", people["esr"], employed, "no"),
        ]
    else:
        household = [
            kinds("puma", homes["puma"], {"1101": (1101,), "1102": (1102,)}),
            bins("vehicles", homes["veh"], (1, 2, 3, 4)),
            kinds("type", homes["hht"], {str(code): (code,) for code in range(1, 8)}),
            kinds("building", homes["bld"], {str(code): (code,) for code in range(1, 11)}),
            bins("income", homes["hincp"], (20_000, 40_000, 60_000, 100_000, 150_000)),
        ]
        person = [
            bins("age", people["agep"], (6, 12, 18, 25, 35, 45, 55, 65, 75)),
            kinds("sex", people["sex"], {"male": (1,), "female": (2,)}),
            kinds("work", people["esr"], employed | {"seeking": (3,), "outside": (6,), "too young": (-9,)}),
            kinds("occupation", people["pecasOcc"], {str(code): (code,) for code in range(6)}),
            bins("hours", people["wkhp"], (1, 20, 35, 45)),
        ]
    most, name = (3, "atlanta-small") if small else (5, "atlanta")
    return assemble(name, most, homes["household_id"], people["household_id"], household, person)


def cps(directory: Path, small: bool) -> HouseholdTruth:
    """CPS households with their tax units in the place of persons."""
    homes, units = read(directory, "us_cps_2012_2014_households"), read(directory, "us_cps_2012_2014_taxunits")
    regions = {name: (name,) for name in ("Northeast", "Midwest", "South", "West")}
    household = [
        kinds("region", homes["region"].astype(str), regions),
        bins("size", homes["persons"], (2, 3) if small else (2, 3, 4, 5, 6)),
        bins("children", homes["children_u18"], (1,) if small else (1, 2, 3)),
        bins("wages", homes["wages"], (1, 50_000) if small else (1, 20_000, 40_000, 60_000, 100_000)),
    ]
    person = [
        kinds("filing", units["MARS"], {"single": (1,), "joint": (2,)}, "other"),
        bins("age of head", units["age_head"], (35, 65) if small else (20, 25, 35, 45, 55, 65, 75)),
        bins("own wages", units["e00200"], (1,) if small else (1, 10_000, 25_000, 50_000, 100_000)),
    ]
    ids, home_ids = homes["household_id"].astype(str), units["household_id"].astype(str)
    return assemble("cps-small" if small else "cps", 3, ids, home_ids, household, person)


READERS = {"oregon": oregon, "atlanta": atlanta, "cps": cps}
SMALL = tuple(f"{name}-small" for name in READERS)
DATA = ("acs-small", *SMALL, "acs", *READERS)
WITHOUT_MWEM = ("acs", *READERS)


def truth_of(name: str, directory: Path | None) -> tuple[HouseholdTruth, Workload]:
    """A data set by name, and its workload: all sets of three attributes, for `acs` 32 for each number of household
    attributes among them (the paper has 128).
    """
    if name.startswith("acs"):
        truth = made_up(name, seed=2022)
        return truth, all_sets(truth.schema) if name == "acs-small" else sampled_sets(truth.schema, 3, 32, "figure 1")
    if directory is None:
        raise SystemExit(f"{name} needs --data")
    truth = READERS[name.removesuffix("-small")](directory, name.endswith("-small"))
    return truth, all_sets(truth.schema)


# -------------------------------------------------------------------- runs


def finished(out: Path) -> list[dict[str, str]]:
    if not (out / RUNS).exists():
        return []
    with (out / RUNS).open(newline="") as file:
        return list(csv.DictReader(file))


def missing(
    out: Path, name: str, methods: Sequence[str], epsilons: Sequence[str], runs: int
) -> Iterator[tuple[str, str, int]]:
    """What is not in the file yet, first runs first."""
    done = {(row["data"], row["method"], float(row["epsilon"]), int(row["run"])) for row in finished(out)}
    for run in range(runs):
        for epsilon in epsilons:
            for method in methods:
                if not (method == "mwem" and name in WITHOUT_MWEM) and (name, method, float(epsilon), run) not in done:
                    yield method, epsilon, run


def append(out: Path, rows: list[dict[str, Any]]) -> None:
    new = not (out / RUNS).exists()
    with (out / RUNS).open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if new:
            writer.writeheader()
        writer.writerows(rows)


# -------------------------------------------------------------------- pictures and tables


def summary(out: Path) -> list[dict[str, Any]]:
    """Means over runs of each method's models, with standard errors; a class of queries only where it was recorded."""
    cells: dict[tuple[str, str, float], list[dict[str, str]]] = {}
    for row in finished(out):
        if (series := SERIES.get((row["method"], row["model"]))) is not None:
            cells.setdefault((row["data"], series, float(row["epsilon"])), []).append(row)
    found = []
    for (data, series, epsilon), rows in cells.items():
        for error in ERRORS:
            values = np.array([float(row[error]) for row in rows if row[error]])
            if not len(values):
                continue
            spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
            mean = float(values.mean())
            found.append(
                {"data": data, "series": series, "epsilon": epsilon, "error": error, "runs": len(values), "mean": mean}
                | {"low": mean - spread, "high": mean + spread}
            )
    return found


def pictures(out: Path, only: Sequence[str]) -> None:
    import altair as alt

    rows = summary(out)
    for name in [name for name in dict.fromkeys(row["data"] for row in rows) if name in only]:
        here = [row for row in rows if row["data"] == name]
        there = [series for series in SERIES.values() if any(row["series"] == series for row in here)]
        base = alt.Chart(alt.Data(values=here)).encode(
            x=alt.X(
                "epsilon:Q", title="ε", scale=alt.Scale(type="log"), axis=alt.Axis(values=[float(e) for e in EPSILONS])
            ),
            color=alt.Color(
                "series:N", title=None, scale=alt.Scale(domain=there), legend=alt.Legend(orient="bottom", columns=2)
            ),
        )
        lines = base.mark_line(point=True).encode(y=alt.Y("mean:Q", title="error", scale=alt.Scale(type="log")))
        bars = base.mark_rule().encode(y=alt.Y("low:Q"), y2="high:Q")
        panels = [
            (lines + bars).transform_filter(alt.datum.error == error).properties(width=250, height=200, title=title)
            for error, title in ERRORS.items()
            if any(row["error"] == error for row in here)
        ]
        runs = sorted({row["runs"] for row in here})
        times = f"{runs[0]} to {runs[-1]} runs" if len(runs) > 1 else f"{runs[0]} runs"
        title = f"{name} (NOT PRIVATE: compared with the truth), means of {times}"
        chart = alt.concat(*panels, columns=max(2, len(panels) // 2)).properties(title=title)
        chart.configure_legend(labelLimit=400).save(str(out / f"synthesis-{name}.png"), scale_factor=2)


def table(out: Path) -> None:
    """Print errors, and those of tallytree-marginals as a share of each other method's."""
    means = {(row["data"], row["series"], row["epsilon"], row["error"]): row for row in summary(out)}
    for (data, series, epsilon, error), row in sorted(means.items()):
        ours = means.get((data, OURS, epsilon, error))
        ratio = "" if ours is None or series == OURS else f"ours / this = {ours['mean'] / row['mean']:.2f}"
        print(f"{data:14} ε={epsilon:<6g}{ERRORS[error]:34} {series:48} {row['mean']:.5f} ({row['runs']} runs) {ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the real data sets")
    parser.add_argument("--only", choices=DATA, action="append", help="a data set; may be repeated")
    parser.add_argument("--method", choices=METHODS, action="append")
    parser.add_argument("--epsilon", choices=EPSILONS, action="append")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--no-pictures", action="store_true")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the runs and pictures")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    methods, epsilons = given.method or METHODS, given.epsilon or EPSILONS
    for name in given.only or DATA:
        truth, workload = truth_of(name, given.data)
        for method, epsilon, run in list(missing(given.out, name, methods, epsilons, given.runs)):
            budget = Budget(epsilon=epsilon, delta=f"1/{truth.codes.number**2}")  # δ as in the paper
            append(
                given.out, list(compare_synthesis(truth, workload, {method: OPTIONS.get(method)}, [budget], runs=[run]))
            )
    table(given.out)
    if not given.no_pictures:
        pictures(given.out, given.only or DATA)


if __name__ == "__main__":
    main()
