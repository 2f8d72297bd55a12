"""The experiments behind docs/papers.md: NOT PRIVATE, on public and made-up data.

    python -m experiments.coc --data DIRECTORY [--runs 5] [--part PART] [--results coc-results] [--out docs/figures]
    python -m experiments.coc --data DIRECTORY --part single --runs 1     the cheapest of them

The parts are table, nation, single, figure-1, merging (Figure 4), levels-2 and levels-3 (Figures 5 and 6), methods and
chosen; all of them if none is named.

DIRECTORY holds nyc_taxi_medallion_pickups.csv, us2010_block_hawaiian_national_hist.csv, ri_2010_block_race.csv,
us2010_vtd_race.parquet, switzerland_2003_municipality_household_size.csv and oregon_2000_pums_households.parquet.
Tables are printed too; results go to a folder (a journal each, so that an interrupted run goes on), pictures and CSV
files to another.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import process_time

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import tallytree as tt
from experiments.named_files import load
from experiments.omniscient import omniscient_errors
from experiments.summaries import COLUMNS, Row, of_runs, summarised, write_rows
from tallytree.core import display
from tallytree.core.display import COLORS
from tallytree.lab import Results, Truth, compare, plots
from tallytree.lab.audit.planted import estimate_with_shared_noise
from tallytree.lab.datasets import make
from tallytree.lab.results import level_errors
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS, Mechanism
from tallytree.mechanisms.count_of_counts import methods_for

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
METHOD = {"Hc": "cumulative", "Hg": "sorted-sizes"}
PER_LEVEL = ("0.05", "0.1", "0.3", "1")
WEST = ("02", "04", "16", "32", "49", "53")  # the paper's west coast: California, Oregon and Hawaii are not in the file
PUBLISHED = {"bottom-up": (20_731.0, 10_405.5, 772.8), "Hc×Hc×Hc": (10_547.0, 5_431.5, 1_601.8)}
ONE = tt.one_entity()


@dataclass(frozen=True)
class Given:
    """What the user asked for: where the data are, how many runs, where results and pictures go."""

    data: Path
    runs: int
    results: Path
    out: Path


ALONE = " apart"  # levels that are not made consistent


def matching(symbols: str, merge: str = "weighted", name: str | None = None) -> Mechanism:
    """`coc-matching` under the paper's name for its methods, such as Hg×Hc."""
    methods = [METHOD[symbol] for symbol in symbols.split("×")]
    found = MECHANISMS["coc-matching"].configured({"methods": methods, "merge": merge})
    return replace(found, name=name or symbols)


# -------------------------------------------------------------------- data


def down_to(truth: Truth, level: int) -> Truth:
    """The same counts with the regions of a level as leaves."""
    tree, rows = truth.hierarchy, truth.hierarchy.level_slice(level)
    paths = [tree.path_of(region) for region in range(rows.start, rows.stop)]
    table = {name: [path[place] for path in paths] for place, name in enumerate(tree.levels[: level + 1])}
    return replace(
        truth,
        hierarchy=tt.Hierarchy.from_levels(table, list(table)),
        counts=np.ascontiguousarray(truth.all_levels()[rows]),
    )


def within(truth: Truth, states: Sequence[str]) -> Truth:
    """The leaves that lie in some regions of the first level below the root."""
    tree, rows = truth.hierarchy, truth.hierarchy.level_slice(truth.hierarchy.depth - 1)
    paths = {leaf: tree.path_of(rows.start + leaf) for leaf in range(tree.leaf_count)}
    kept = [leaf for leaf, path in paths.items() if path[1] in states]
    table = {name: [paths[leaf][place] for leaf in kept] for place, name in enumerate(tree.levels)}
    return replace(truth, hierarchy=tt.Hierarchy.from_levels(table, list(table)), counts=truth.counts[kept])


def with_largest(truth: Truth, max_size: int, name: str) -> Truth:
    """The same groups under a larger public largest size."""
    return replace(truth, name=name, counts=np.pad(truth.counts, ((0, 0), (0, max_size - truth.max_size))))


def data_sets(folder: Path, depth: int) -> dict[str, Truth]:
    """The likes of the paper's four data sets, with two levels (but for taxi) or three."""
    housing = make("census", variant="coc", scale=0.05 if depth == 2 else 0.01, max_size=100_000)
    white = load(folder / "ri_2010_block_race.csv", race="white")
    pacific = load(folder / "us2010_vtd_race.parquet", race="nhpi")
    found = {
        "housing": replace(housing, name="housing"),
        "white": with_largest(down_to(white, 2), 10_000, "white"),
        "Hawaiian": with_largest(pacific if depth == 2 else within(pacific, WEST), 10_000, "Hawaiian"),
    }
    if depth == 2:
        return {name: down_to(truth, 1) for name, truth in found.items()}
    taxi = load(folder / "nyc_taxi_medallion_pickups.csv", max_size=100_000)
    return found | {"taxi": replace(taxi, name="taxi")}


# -------------------------------------------------------------------- the table, and single regions


def errors_of(truth: Truth, counts: np.ndarray) -> list[float]:
    """Earth mover's distance per region, level by level."""
    true = truth.all_levels()
    levels = range(truth.hierarchy.depth)
    return [float(level_errors(true, counts, truth.hierarchy, level, truth.first_size).emd.mean()) for level in levels]


def shown(errors: Sequence[Sequence[float]]) -> str:
    """Means with standard errors; a single run has none."""
    means = np.mean(errors, axis=0)
    if len(errors) == 1:
        return " | ".join(f"{mean:,.1f}" for mean in means)
    spreads = np.std(errors, axis=0, ddof=1) / np.sqrt(len(errors))
    return " | ".join(f"{mean:,.1f} ± {spread:,.1f}" for mean, spread in zip(means, spreads, strict=True))


def honest(truth: Truth, mechanism: Mechanism, budget: tt.Budget, run: int) -> list[float]:
    plan = mechanism.plan(truth.hierarchy, budget, ONE)
    return errors_of(truth, mechanism.estimate(seeded_measurements(truth, plan, 0, run)).counts)


def recorded(
    truth: Truth, name: str, run_once: Callable[[int], Sequence[float]], given: Given, epsilon: float = 1.0
) -> list[Row]:
    """Rows of a CSV file for some runs, which are printed too; `seconds` is processor time of one run, all steps."""
    started = process_time()
    errors = [run_once(run) for run in range(given.runs)]
    seconds = (process_time() - started) / given.runs
    print(f"{truth.name}, {name} | {shown(errors)}", flush=True)
    return of_runs(
        truth.name, name, truth.hierarchy.levels, errors, max_size=truth.max_size, epsilon=epsilon, seconds=seconds
    )


def table(given: Given) -> None:
    """Section 6.2.2 on the taxi data: as published, with shared noise, with independent noise."""
    taxi, budget = load(given.data / "nyc_taxi_medallion_pickups.csv", max_size=100_000), tt.Budget(epsilon=1)
    truth = replace(taxi, name="taxi")
    mechanisms = {"bottom-up": MECHANISMS["bottom-up"], "Hc×Hc×Hc": matching("Hc×Hc×Hc")}
    rows: list[Row] = []
    for name, mechanism in mechanisms.items():
        published = of_runs(truth.name, f"{name}, published", truth.hierarchy.levels, [PUBLISHED[name]], epsilon=1.0)
        rows += [{**row, "runs": 10, "seed": None, "privacy": None, "status": "published"} for row in published]

        def shared(run: int, mechanism: Mechanism = mechanism) -> list[float]:
            return errors_of(truth, estimate_with_shared_noise(truth, mechanism, budget, 0, run).counts)

        rows += recorded(truth, f"{name}, the same noise in all regions", shared, given)
    others = {"Hg×Hg×Hg": matching("Hg×Hg×Hg"), "joint-cumulative": MECHANISMS["joint-cumulative"]}
    for name, mechanism in (mechanisms | others).items():
        rows += recorded(truth, f"{name}, independent noise", partial(honest, truth, mechanism, budget), given)
    write_rows(given.out / "coc-table.csv", rows)


def nation(given: Given) -> None:
    """The same comparison, honestly, on made-up nations of the shape of the paper's: 1 → 52 → 3,144, total ε = 1."""
    mechanisms = {
        "bottom-up": MECHANISMS["bottom-up"],
        "Hc×Hc×Hc": matching("Hc×Hc×Hc"),
        "joint-cumulative": MECHANISMS["joint-cumulative"],
    }
    rows: list[Row] = []
    for truth in (make("race"), make("census", variant="coc")):
        for name, mechanism in mechanisms.items():
            rows += recorded(truth, name, partial(honest, truth, mechanism, tt.Budget(epsilon=1)), given)
    write_rows(given.out / "coc-nations.csv", rows)


def roots(given: Given) -> Iterator[Truth]:
    """The taxi and Hawaiian data as one region, K = 100,000."""
    files = {"taxi": "nyc_taxi_medallion_pickups.csv", "Hawaiian": "us2010_block_hawaiian_national_hist.csv"}
    for name, file in files.items():
        yield replace(down_to(load(given.data / file, max_size=100_000), 0), name=name)


def single(given: Given) -> None:
    """Section 4 at the root of the taxi and Hawaiian data, ε = 1, and the naive method of Section 6.2.1."""
    rows: list[Row] = []
    for truth in roots(given):
        for method in ("cumulative", "cumulative-l2", "sorted-sizes", "sorted-sizes-l1", "naive"):
            mechanism = MECHANISMS["naive"]
            if method != "naive":
                mechanism = MECHANISMS["bottom-up"].configured({"method": method})
            rows += recorded(truth, method, partial(honest, truth, mechanism, tt.Budget(epsilon=1)), given)
    write_rows(given.out / "coc-single.csv", rows)


def figure_1(given: Given) -> None:
    """Figure 1: errors of H_g and of H_c along the groups in order of size, at the roots, ε = 1."""
    methods = {"Hg": "sorted-sizes", "Hc": "cumulative"}
    mechanisms = [replace(MECHANISMS["bottom-up"].configured({"method": m}), name=name) for name, m in methods.items()]
    tables, several = [], []
    for place, truth in enumerate(roots(given)):
        folder = given.results / f"figure-1-{place}"
        found = compare(truth, mechanisms, [tt.Budget(epsilon=1)], runs=given.runs, jobs=1, out=folder)
        several.append(found)
        rows = found.rows
        for column, value in (("level", [truth.name] * len(rows)), ("depth", [place] * len(rows))):
            rows = rows.set_column(rows.column_names.index(column), column, pa.array(value))
        tables.append(rows)
    chart = plots.error_against_size(Results(pa.concat_tables(tables)), by="groups")
    chart.title.text = "Error of H_g and H_c along the groups, in order of size"
    display.save(chart, given.out / "coc-figure-1.png")
    metrics = ("error_at_size", "signed_error_at_size", "groups_below_size")
    write_rows(given.out / "coc-figure-1.csv", summarised(several, metrics), [*COLUMNS, "size"])


# -------------------------------------------------------------------- figures


def experiment(truth: Truth, mechanisms: Sequence[str | Mechanism], given: Given, folder: str) -> Results:
    """Errors against the budget per level, with the omniscient line."""
    depth = truth.hierarchy.depth
    budgets = {tt.Budget(epsilon=Fraction(part) * depth): tt.Budget(epsilon=part) for part in PER_LEVEL}
    found = compare(truth, mechanisms, list(budgets), runs=given.runs, out=given.results / folder, limit=300)
    for lost in found.failures():
        print(truth.name, lost)
    line = [
        {
            "mechanism": "omniscient",
            "budget": budget.to_json(),
            "run": run,
            "status": "done",
            "message": None,
            "costs": {},
            "scores": [
                [level, place, "emd_per_region", float(value), None, None]
                for place, (level, value) in enumerate(
                    zip(truth.hierarchy.levels, omniscient_errors(truth, budget), strict=True)
                )
            ],
        }
        for budget in budgets
        for run in range(given.runs)  # as many as the others have, though all are the same
    ]
    together = Results.together([found, Results.of(truth.name, truth.max_size, ONE.kind, line)])
    print_summary(together, depth)
    return per_level(together, depth)


def per_level(results: Results, depth: int) -> Results:
    """The same results with what each level got as their ε, which is the paper's axis."""
    rows = results.rows
    epsilon = [value / depth for value in rows["epsilon"].to_pylist()]
    budget = [f"ε = {value:g} per level" for value in epsilon]
    for name, values in (("epsilon", pa.array(epsilon)), ("budget", pa.array(budget))):
        rows = rows.set_column(rows.column_names.index(name), name, values)
    return Results(rows)


def print_summary(results: Results, depth: int) -> None:
    rows = [row for row in results.summary().to_pylist() if row["metric"] == "emd_per_region"]
    for row in sorted(rows, key=lambda row: (row["depth"], row["epsilon"], row["mean"])):
        print(
            f"{row['dataset']:9} {row['level']:14} {row['epsilon'] / depth:5g} per level  {row['mechanism']:24} "
            f"{row['mean']:14,.1f} ± {row['standard_error'] or 0:,.1f}",
            flush=True,
        )


def panels(several: Sequence[Results], by: str) -> Results:
    """All data sets in one picture: a panel for each data set and level, level after level or set after set."""
    tables = []
    for place, results in enumerate(several):
        rows = results.rows.filter(pc.equal(results.rows["metric"], "emd_per_region"))
        levels, depths = rows["level"].to_pylist(), rows["depth"].to_pylist()
        name = rows["dataset"][0].as_py()
        orders = [depth * len(several) + place if by == "level" else place * 10 + depth for depth in depths]
        columns = {"level": pa.array([f"{name}: {level}" for level in levels]), "depth": pa.array(orders)}
        for column, values in columns.items():
            rows = rows.set_column(rows.column_names.index(column), column, values)
        tables.append(rows)
    return Results(pa.concat_tables(tables))


def save(results: Results, path: Path, title: str, *, second: str = "") -> None:
    """Write a picture; mechanisms whose names end in `second` have the colour of the one before, and dashes."""
    chart = plots.error_against_budget(results, "emd_per_region")
    chart.title.text = title
    chart.config.legend.columns = 6
    for panel in chart.concat:
        for layer in panel.layer:
            layer.encoding.x.title = "ε per level"
            if second:
                names = layer.encoding.color["scale"]["domain"]
                places = np.cumsum([not name.endswith(second) for name in names]) - 1
                colors = [COLORS[place] for place in places]
                layer.encoding.color = layer.encoding.color.scale(domain=names, range=colors)
                if layer.mark.type == "line":
                    dashed = " || ".join(f"datum.mechanism == {name!r}" for name in names if name.endswith(second))
                    layer.transform = [alt.CalculateTransform(calculate=dashed, **{"as": "dashed"})]
                    dash = alt.StrokeDash("dashed:N", legend=None)
                    layer.encoding.strokeDash = dash.scale(domain=[False, True], range=[[1, 0], [5, 4]])
    display.save(chart, path)


def merging(given: Given) -> None:
    """Figure 4: weighted against plain averages on two levels."""
    mechanisms = [
        matching(symbols, merge, f"{symbols} {merge}")
        for symbols in ("Hc×Hc", "Hc×Hg", "Hg×Hc")
        for merge in ("weighted", "plain")
    ]
    several = [
        experiment(truth, mechanisms, given, f"merging-{name}") for name, truth in data_sets(given.data, 2).items()
    ]
    together = panels(several, "level")
    private = Results(together.rows.filter(pc.not_equal(together.rows["mechanism"], "omniscient")))
    save(
        private,
        given.out / "coc-figure-4.png",
        "Matched sizes merged by weighted (solid) or plain (dashed) average",
        second=" plain",
    )
    write_rows(given.out / "coc-figure-4.csv", summarised(several, ("emd_per_region",)))


def levels_2(given: Given) -> None:
    """Figure 5: two levels."""
    _levels(given, 2, "coc-figure-5", [])


def levels_3(given: Given) -> None:
    """Figure 6: three levels, with consistency and without (each level by itself, which cannot be released)."""
    _levels(given, 3, "coc-figure-6", [ALONE])


def _levels(given: Given, depth: int, figure: str, endings: Sequence[str]) -> None:
    mechanisms: list[str | Mechanism] = []
    for symbols in ("×".join([symbol] * depth) for symbol in METHOD):
        mechanisms += [matching(symbols), *(matching(symbols, "none", symbols + ending) for ending in endings)]
    several = [
        experiment(truth, [*mechanisms, "bottom-up", "joint-cumulative"], given, f"levels-{depth}-{name}")
        for name, truth in data_sets(given.data, depth).items()
    ]
    order = "level" if depth == 2 else "set"
    title = {2: "Two levels", 3: f"Three levels, consistent (solid) and{ALONE} (dashed)"}[depth]
    path = given.out / f"{figure}.png"
    save(panels(several, order), path, f"{title}: earth mover's distance per region", second="".join(endings))
    write_rows(given.out / f"{figure}.csv", summarised(several, ("emd_per_region",)))


# -------------------------------------------------------------------- which method for which level


def flat(name: str, counts: np.ndarray, max_size: int, rng: np.random.Generator) -> Truth:
    """Some regions side by side, as the leaves of a tree of two levels."""
    if len(counts) > 24:
        counts = counts[np.sort(rng.choice(len(counts), 24, replace=False))]
    tree = tt.Hierarchy.from_levels({"region": [str(place) for place in range(len(counts))]}, ["region"])
    return Truth(name, tree, np.pad(counts, ((0, 0), (0, max_size + 1 - counts.shape[1]))), public_totals=True)


def regions_of(folder: Path) -> Iterator[tuple[bool, Truth]]:
    """Real regions level by level, and made-up ones; each under a tight and a large largest size."""
    rng = np.random.default_rng(5)
    blocks, districts = folder / "ri_2010_block_race.csv", folder / "us2010_vtd_race.parquet"
    real = [
        *((load(blocks, race=race), 20_000) for race in ("white", "nhpi", "hisp")),
        (load(folder / "nyc_taxi_medallion_pickups.csv"), 100_000),
        (load(districts, race="nhpi"), 20_000),
        (load(districts, race="white", max_size=10_000), 50_000),
        (make("census", variant="coc", scale=0.005), 100_000),
        (load(folder / "switzerland_2003_municipality_household_size.csv"), 20),
        (load(folder / "oregon_2000_pums_households.parquet"), 100),
    ]
    for truth, large in real:
        counts, tree = truth.all_levels(), truth.hierarchy
        for level, max_size in ((level, size) for level in range(tree.depth) for size in (truth.max_size, large)):
            name = f"{truth.name} {tree.levels[level]}"
            yield True, flat(name, counts[tree.level_slice(level)], max_size, rng)
    for largest in (30, 300, 3_000):
        typical = np.log(largest) / 2
        for groups in (10, 100, 1_000, 10_000, 100_000):
            made = {
                "uniform": rng.integers(1, largest + 1, (12, groups)),
                "log-normal": np.exp(rng.normal(typical, typical / 3, (12, groups))).astype(int),
                "geometric": rng.geometric(10 / largest, (12, groups)),
            }
            for shape, sizes in made.items():
                counts = np.stack([np.bincount(row, minlength=largest + 1) for row in np.minimum(sizes, largest)])
                for max_size in (largest, 10 * largest):
                    yield False, flat(f"{shape} {largest}", counts, max_size, rng)


def methods(given: Given) -> None:
    """How often `methods_for` names the best method, and what it loses against it; regions by themselves."""
    choices = ("cumulative", "sorted-sizes", "sorted-sizes-l1")
    losses: dict[tuple[bool, str], list[float]] = {}
    with (given.results / "methods.jsonl").open("w") as file:
        for real, truth in regions_of(given.data):
            totals = truth.all_levels().sum(axis=1)
            for epsilon in ("0.02", "0.1", "0.5", "2"):
                errors = {}
                for method in choices:
                    mechanism = MECHANISMS["bottom-up"].configured({"method": method})
                    budget = tt.Budget(epsilon=epsilon)
                    found = [honest(truth, mechanism, budget, run)[-1] for run in range(given.runs)]
                    errors[method] = 1 + float(np.mean(found))  # one unit more, so that 0 against 0.1 is nothing
                errors["the rule"] = errors[methods_for(truth.hierarchy, totals, truth.max_size)[-1]]
                best = min(errors.values())
                for name, error in errors.items():
                    losses.setdefault((real, name), []).append(error / best)
                facts = {
                    "regions": truth.name,
                    "max_size": truth.max_size,
                    "groups": float(totals[-truth.hierarchy.leaf_count :].mean()),
                }
                file.write(json.dumps({**facts, "epsilon": epsilon, **errors}) + "\n")
    for (real, name), lost in losses.items():
        print(
            f"{'real' if real else 'made up'}, {name}: best in {np.mean(np.array(lost) == 1):.0%} of {len(lost)}, "
            f"{np.exp(np.mean(np.log(lost))) - 1:.1%} above the best on average, at most {max(lost):.1f} times"
        )


def chosen(given: Given) -> None:
    """What `auto` takes against one method everywhere: Rhode Island's blocks by white persons, four levels."""
    truth = with_largest(load(given.data / "ri_2010_block_race.csv", race="white"), 10_000, "white")
    totals = truth.all_levels().sum(axis=1)
    candidates = {
        "auto": methods_for(truth.hierarchy, totals, truth.max_size),
        "cumulative": ("cumulative",) * 4,
        "sorted-sizes-l1": ("sorted-sizes-l1",) * 4,
    }
    rows: list[Row] = []
    for epsilon in ("0.4", "4"):
        for name, each in candidates.items():
            mechanism = MECHANISMS["coc-matching"].configured({"methods": each})
            run_once = partial(honest, truth, mechanism, tt.Budget(epsilon=epsilon))
            rows += recorded(truth, name, run_once, given, float(epsilon))
    write_rows(given.out / "coc-methods-by-level.csv", rows)


PARTS = {
    "table": table,
    "nation": nation,
    "single": single,
    "figure-1": figure_1,
    "merging": merging,
    "levels-2": levels_2,
    "levels-3": levels_3,
    "methods": methods,
    "chosen": chosen,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the real data sets")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="may be repeated")
    parser.add_argument("--results", type=Path, default=Path("coc-results"), help="folder of results and journals")
    parser.add_argument("--out", type=Path, default=FIGURES, help="folder of the pictures")
    options = parser.parse_args()
    given = Given(options.data, options.runs, options.results, options.out)
    for folder in (given.results, given.out):
        folder.mkdir(parents=True, exist_ok=True)
    for name in options.part or PARTS:
        PARTS[name](given)


if __name__ == "__main__":
    main()
