"""Sizes by category against what could be done before: NOT PRIVATE, for public data.

    python -m experiments.categories --data FOLDER [--runs 10] [--epsilon 0.1 --epsilon 1] [--out FILE]

For each data set and number c of categories, mean earth mover's errors per region by level, by category and over all of
them, as ratios to: each category by itself with `joint-cumulative` or with `tallytree`, with equal shares of the levels
(each with the whole budget, as categories part the groups; over all they are added up); the same without numbers of
groups listed by region; and, for categories that members decide, counts by category alone (`pgsr-hierarchical-dp`).
In the first two both sides estimate from the same noisy numbers. The largest size is 12, totals are private.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from experiments.named_files import load
from tallytree.core.arrays import Floats, Integers
from tallytree.domain.categories import Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import earth_movers_distance
from tallytree.lab.truth import Truth, seeded
from tallytree.mechanisms import prepare
from tallytree.mechanisms.mechanism import Mechanism
from tallytree.privacy import Budget, Neighbours
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.run import measure_with
from tallytree.tables import GroupSizes, Sealed

FILES = {
    "Oregon": ("oregon_2000_pums_households.parquet", "bldgsz"),
    "CPS": ("us_cps_2012_2014_households.parquet", "wages"),
    "Atlanta": ("atlanta_arc_households.parquet", "hincp"),
}
MAX_SIZE = 12
Errors = dict[str, Floats]  # by category and over all, by level


def told_apart(folder: Path, name: str, count: int) -> Truth:
    """A data set by a column: its commonest values, or for incomes as many classes of about equal size."""
    file, column = FILES[name]
    path = folder / file
    if column == "bldgsz":
        return load(path, public_totals=False, max_size=MAX_SIZE, by=column, most_values=count)
    whole = load(path, public_totals=False, max_size=MAX_SIZE)
    return _by_income(whole, path, column, count)


def _by_income(whole: Truth, path: Path, column: str, count: int) -> Truth:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    income = table[column].to_numpy().astype(np.float64)
    order = np.argsort(income, kind="stable")
    place = np.empty(len(income), np.int64)
    place[order] = np.arange(len(income)) * count // len(income)
    tree = whole.hierarchy
    leaves = {name: at for at, name in enumerate(tree.names[tree.level_slice(tree.depth - 1)])}
    leaf = np.array([leaves[str(text)] for text in table[tree.levels[-1]].to_pylist()])
    parts = np.zeros((count, *whole.counts.shape), dtype=np.int64)
    np.add.at(parts, (place, leaf, np.minimum(table["persons"].to_numpy(), MAX_SIZE) - 1), 1)
    return whole.by_category(Categories.of({"income": [f"class {n + 1}" for n in range(count)]}, "group"), parts)


# -------------------------------------------------------------------- ways to release it


def together(truth: Truth, budget: Budget, seed: int, *, listed: bool = False, who: str = "group") -> Integers:
    """By category with `tallytree`, with or without public numbers of groups by region, whoever decides it."""
    tree = truth.hierarchy
    totals = truth.counts.sum(axis=1).reshape(len(tree.by), -1).sum(axis=0)
    same = Categories.of({column.name: column.values for column in tree.by.columns}, who)
    private = GroupSizes(
        tree.regions.by_category(same), MAX_SIZE, Sealed(truth.counts), listed_totals=totals if listed else None
    )
    mechanism, measurements = _measured(private, "tallytree", budget, seed)
    return mechanism.estimate(measurements).counts


def apart(truth: Truth, budget: Budget, seed: int, mechanism: str) -> Integers:
    """Each category by itself with equal shares, in the rows of the tree by category.

    From the noisy `at_least` counts that `together` has. `pgsr-hierarchical-dp` measures counts: that is what is left
    where members decide and no sum is measured.
    """
    tree = truth.hierarchy
    counted = mechanism == "pgsr-hierarchical-dp"
    whole = None if counted else _measured(truth.group_sizes(), "tallytree", budget, seed)[1]
    rows = np.zeros((len(tree), truth.counts.shape[1]), dtype=np.int64)
    for cell, counts in enumerate(truth.counts.reshape(len(tree.by), -1, truth.counts.shape[1])):
        private = Truth("one", tree.regions, counts, False).group_sizes()
        chosen, measurements = _measured(private, mechanism, budget, seed, cell)
        if whole is not None:
            measurements = replace(measurements, measured=tuple(_of_cell(part, cell, tree) for part in whole.measured))
        rows[tree.cell_rows[:, cell]] = chosen.estimate(measurements).counts
    rows[0] = rows[tree.level_slice(1)].sum(axis=0)
    return rows


def _of_cell(part: Measurement, cell: int, tree: Hierarchy) -> Measurement:
    """What was measured of one category, as a measurement of the regions."""
    return replace(part, level=part.level - 1, values=part.values.reshape(len(tree.by), -1, part.values.shape[1])[cell])


def _measured(private: GroupSizes, name: str, budget: Budget, *seed: int) -> tuple[Mechanism, Measurements]:
    neighbours = Neighbours.of(private, "one_entity")
    mechanism, plan = prepare(
        name,
        neighbours=neighbours,
        hierarchy=private.hierarchy,
        totals=private.region_totals,
        budget=budget,
    )
    return mechanism, measure_with(seeded(*seed), private, plan, derive_facts=mechanism.derive_facts)


# -------------------------------------------------------------------- errors


def errors(truth: Truth, way: Callable[[int], Integers], runs: int) -> Errors:
    """Mean errors of a way over some runs."""
    tree, right = truth.hierarchy, truth.all_levels()
    found = [way(seed) for seed in range(runs)]
    return {
        "by category": np.mean([_by_level(one, right, tree)[1:] for one in found], axis=0),
        "over all": np.mean(
            [_by_level(tree.over_categories(one), tree.over_categories(right), tree.regions) for one in found], axis=0
        ),
    }


def _by_level(one: Integers, right: Integers, tree: Hierarchy) -> Floats:
    distance = earth_movers_distance(one, right, 1)
    return np.array([distance[tree.level_slice(level)].mean() for level in range(tree.depth)])


def report(
    folder: Path, names: Sequence[str], counts: Sequence[int], epsilons: Sequence[str], runs: int
) -> Iterator[str]:
    """A line for each data set, number of categories, ε and comparison: ratios by level, from the root down."""
    for name in names:
        for count in counts:
            truth = told_apart(folder, name, count)
            for epsilon in epsilons:
                budget = Budget(epsilon=epsilon)
                ways: dict[str, Callable[[int], Integers]] = {
                    "together": partial(together, truth, budget),
                    "listed": partial(together, truth, budget, listed=True),
                    "members": partial(together, truth, budget, who="members"),
                    "joint": partial(apart, truth, budget, mechanism="joint-cumulative"),
                    "alone": partial(apart, truth, budget, mechanism="tallytree"),
                    "details": partial(apart, truth, budget, mechanism="pgsr-hierarchical-dp"),
                }
                found = {way: errors(truth, make, runs) for way, make in ways.items()}
                pairs = [
                    ("together", "joint"),
                    ("together", "alone"),
                    ("listed", "together"),
                    ("members", "details"),
                ]
                for one, other in pairs:
                    told = "; ".join(
                        f"{what} " + " ".join(f"{ratio:.2f}" for ratio in found[one][what] / found[other][what])
                        for what in ("over all", "by category")
                    )
                    yield f"{name} c={count} ε={epsilon} {one} / {other}: {told}"


def main() -> None:
    """Read the command line and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--set", action="append", choices=list(FILES), help="repeat for several; all if left out")
    parser.add_argument("--categories", action="append", type=int, help="repeat for several; 2, 5 and 10 if left out")
    parser.add_argument("--epsilon", action="append", help="repeat for several; 0.1 and 1 if left out")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--out", type=Path, help="a file for the lines; they are printed in any case")
    given = parser.parse_args()
    sets, counts = given.set or list(FILES), given.categories or [2, 5, 10]
    lines = []
    for line in report(given.data, sets, counts, given.epsilon or ["0.1", "1"], given.runs):
        print(line, flush=True)
        lines.append(line)
    if given.out is not None:
        given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
