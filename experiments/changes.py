"""How well `compare` finds changes between two releases, behind docs/guides/publish-again.md: NOT PRIVATE.

    python -m experiments.changes --data DIRECTORY [--runs 6]        about an hour on one idle core
    python -m experiments.changes --quick --out FILE                 made-up regions only; under a minute

The table goes to docs/figures/changes.csv, or to FILE. Real single-year tables get simulated changes: `none`;
`moderate`, where each leaf grows by 1.7 % (median) and one leaf in 50 by 20 to 50 %; `strong`, with 16 % and one leaf
in 10; `some`, where one leaf in 10 changes by 8 or 20 % and the others do not. Both years have private totals and the
unit `one_entity`. Every row is about the leaves, for one question.

`coverage` is the share of intervals that hold the true change, `selected` that among flagged leaves, `false` the mean
share of flags that are false (no change, or the other sign), `found` the share of changed leaves that are flagged, and
`width` the mean width divided by that of the difference of two 97.5 % intervals.
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tallytree as tt
from experiments.named_files import load
from tallytree.core.arrays import Floats, Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.changes import Rule
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import prepare
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.release.comparison import compare_releases
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.value import Release

FILES: dict[str, dict[str, Any]] = {
    "switzerland_2003_municipality_household_size.csv": {},
    "us2010_county_household_size_2plus.csv": {},
    "us_cps_2012_2014_households.parquet": {},
}
YEARS = (("0.1", "0.1"), ("0.3", "0.3"), ("1", "1"), ("0.1", "0.3"), ("1", "3"))
CHANGES = ("none", "moderate", "strong", "some")
QUESTIONS = ("groups", "entities", "sizes")
UNIT = tt.one_entity()
PAIRS = "families of two"  # quick, so it gets more runs


def changed(truth: Truth, change: str, rng: np.random.Generator) -> Truth:
    """The next year of a data set; leaves that do not change are exactly as before."""
    leaves = len(truth.counts)
    growth = np.ones(leaves)
    if change in ("moderate", "strong"):
        median, jumps = (0.017, 0.02) if change == "moderate" else (0.16, 0.1)
        growth = np.exp(rng.normal(0, median / 0.6745, leaves))
        jump = 1 + rng.choice([-1, 1], leaves) * rng.uniform(0.2, 0.5, leaves)
        growth *= np.where(rng.random(leaves) < jumps, jump, 1)
    if change == "some":
        chosen = rng.random(leaves) < 0.1
        growth[chosen] = 1 + rng.choice([-1, 1], chosen.sum()) * rng.choice([0.08, 0.2], chosen.sum())
    wanted: Floats = truth.counts * growth[:, None]
    counts = np.floor(wanted + rng.random(wanted.shape)).astype(np.int64)
    return replace(truth, counts=np.where(growth[:, None] == 1, truth.counts, counts))


def released(truth: Truth, epsilon: str, *seed: object) -> Release:
    """The default mechanism's release, with noise determined by the seed, and without error bars."""
    neighbours = Neighbours.of(truth.group_sizes(), UNIT)
    budget = tt.Budget(epsilon=epsilon)
    chosen, plan = prepare("auto", {}, neighbours=neighbours, hierarchy=truth.hierarchy, totals=None, budget=budget)
    measurements = seeded_measurements(truth, plan, truth.name, *seed, derive_facts=chosen.derive_facts)
    found = chosen.estimate(measurements)
    contents = ReleaseContents(found.counts, measurements, chosen, found.certificate, truth.name)
    return Release.of(contents, Path("in memory"))


def true_changes(old: Truth, new: Truth) -> dict[str, Integers]:
    """The true change of each leaf, by the label of its question."""
    moved = new.counts - old.counts
    sizes = np.arange(old.first_size, old.max_size + 1)
    named = {"groups": moved.sum(axis=1), "entities": moved @ sizes}
    for place, size in enumerate(sizes.tolist()):
        label = f"size {size}" if size < old.max_size else f"size {size} or more"
        named[label] = moved[:, place]
    return named


def twice(release: Release, other: Release) -> float:
    """The mean width of the difference of two 97.5 % intervals of a leaf's groups."""
    level = release.hierarchy.levels[-1]
    ends = [
        np.array([one.guaranteed for one in each.ask_each(tt.Query(), level=level, confidence=0.975, typical=False)])
        for each in (release, other)
    ]
    return float(sum((each[:, 1] - each[:, 0]).mean() for each in ends))


def compare_years(truth: Truth, change: str, years: tuple[str, str], runs: int) -> Iterator[dict[str, Any]]:
    """A row for each question, over all runs."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in range(runs):
        rng = np.random.default_rng([run, CHANGES.index(change)])
        other = changed(truth, change, rng)
        old, new = released(truth, years[0], years, change, run, "old"), released(other, years[1], years, change, run)
        level = truth.hierarchy.levels[-1]
        compared = compare_releases(old, new, QUESTIONS, level=level, rule=Rule())
        truths = true_changes(truth, other)
        for family in compared.families:
            label = "groups" if family.label == "groups" else family.label
            rows = compared.table(level, family.question).to_pydict()
            true = truths[label]
            place = {name: number for number, name in enumerate(truth.hierarchy.ids[-len(true) :])}
            true = true[[place[region] for region in rows["region"]]]
            lower, upper = np.array(rows["lower"]), np.array(rows["upper"])
            sign = np.select([np.array(rows["flag"]) == "increased", np.array(rows["flag"]) == "decreased"], [1, -1], 0)
            flagged = sign != 0
            kind = label if label in ("groups", "entities") else "sizes"
            own = found.setdefault(kind, {name: [] for name in ("coverage", "selected", "false", "found", "width")})
            own["coverage"].append(float(((lower <= true) & (true <= upper)).mean()))
            own["false"].append(float((sign[flagged] != np.sign(true[flagged])).mean()) if flagged.any() else 0.0)
            own["width"].append(float((upper - lower).mean()))
            if flagged.any():
                ends = [np.array(rows[name], dtype=float)[flagged] for name in ("selected_lower", "selected_upper")]
                held = (ends[0] <= true[flagged]) & (true[flagged] <= ends[1])
                own["selected"].extend(held.astype(float).tolist())
            if (true != 0).any():
                own["found"].append(float(flagged[true != 0].mean()))
        if run == 0:
            both = twice(old, new)
    for question, values in found.items():
        means = {name: round(float(np.mean(each)), 4) if each else "" for name, each in values.items()}
        yield {
            "data": truth.name,
            "leaves": len(truth.counts),
            "change": change,
            "epsilon_old": years[0],
            "epsilon_new": years[1],
            "question": question,
            "runs": runs,
            **means,
            "flagged": len(values["selected"]),
            "width_ratio": round(float(np.mean(values["width"])) / both, 3) if question == "groups" else "",
        }


def pairs_of_leaves(leaves: int = 1024) -> Truth:
    """Made-up regions in families of two, whose errors are strongly correlated."""
    rng = np.random.default_rng(7)
    number = np.arange(leaves)
    tree = Hierarchy.from_levels(
        {"district": [f"d{n // 2}" for n in number], "town": [f"t{n}" for n in number]}, ["district", "town"]
    )
    sizes = np.array([0.27, 0.33, 0.16, 0.13, 0.07, 0.04])
    counts = rng.poisson(rng.lognormal(6, 1, (leaves, 1)) * sizes)
    return Truth(PAIRS, tree, counts, False)


def truths(data: Path | None) -> Iterator[Truth]:
    """The data sets that there are."""
    yield pairs_of_leaves()
    for name, options in FILES.items():
        if data is None or not (data / name).exists():
            print(f"{name} is not there: left out", file=sys.stderr)
        else:
            yield load(data / name, public_totals=False, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the real data sets")
    parser.add_argument("--quick", action="store_true", help="one run, made-up regions, two budgets")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "docs" / "figures" / "changes.csv")
    options = parser.parse_args()
    table: list[dict[str, Any]] = []
    for truth in truths(None if options.quick else options.data):
        for years in YEARS[2:3] if options.quick else YEARS:
            for change in CHANGES:
                start = time.perf_counter()
                runs = 1 if options.quick else options.runs * (6 if truth.name == PAIRS else 1)
                table += compare_years(truth, change, years, runs)
                seconds = time.perf_counter() - start
                print(
                    f"{truth.name}, {change}, ε = {' and '.join(years)}: {seconds:.0f} s", file=sys.stderr, flush=True
                )
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(table[0]))
        writer.writeheader()
        writer.writerows(table)
    for change in CHANGES:
        own = [row for row in table if row["change"] == change]
        coverage, false = (np.array([row[name] for row in own]) for name in ("coverage", "false"))
        print(f"{change}: coverage {coverage.min():.3f} to {coverage.max():.3f}, false flags at most {false.max():.3f}")


if __name__ == "__main__":
    main()
