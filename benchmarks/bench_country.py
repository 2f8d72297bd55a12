"""A synthetic country: time and memory of fitting, settling and drawing, and errors by level. NOT PRIVATE: made up.

    python benchmarks/bench_country.py [--households 1000000] [--states 24] [--counties 131] [--draw 0]

`--draw` writes so many households more from the model that was fitted, as a country of that size would have, and says
how long a million of them take and how much memory the process had at most.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import tallytree as tt
from tallytree.synthesis.sampling import counted
from tallytree.tables import GroupSizes, Sealed
from tallytree.tables.households import households_from_codes

MOST = 6


def chosen(rng: np.random.Generator, logits: Any) -> Any:
    """A code for each row, with chances in proportion to exp(logits)."""
    chances = np.exp(np.stack(logits, axis=1))
    chances /= chances.sum(axis=1, keepdims=True)
    return np.minimum((rng.random(len(chances))[:, None] > chances.cumsum(axis=1)).sum(axis=1), chances.shape[1] - 1)


def made_up(number: int, states: int, per_state: int) -> tuple[Any, Any, dict[str, Any]]:
    """Households that differ by state and county, their sizes by county, and true tables by county."""
    rng, leaves = np.random.default_rng(1), states * per_state
    counties = tuple(f"c{place:05d}" for place in range(leaves))
    names = [f"s{place // per_state:03d}" for place in range(leaves)]
    tree = tt.Hierarchy.from_levels({"state": names, "county": counties}, ["state", "county"])
    people = rng.lognormal(0, 1.3, leaves)
    county = rng.choice(leaves, number, p=people / people.sum())
    lift = (np.repeat(rng.normal(0, 0.5, states), per_state) + rng.normal(0, 0.35, leaves))[county]
    none = np.zeros(number)
    tenure = chosen(rng, [none, none + 0.2, lift - 0.2])
    income = chosen(rng, [0.3 + 0.4 * (tenure == 2), none + 0.5, 0.2 + 0.3 * (tenure == 1), -0.6 - 0.3 * lift])
    size = np.minimum(1 + rng.poisson(1.2 + 0.3 * (tenure == 1) + 0.3 * np.tanh(lift)), MOST)
    home = np.repeat(np.arange(number), size)
    first, own = np.diff(home, prepend=-1) > 0, lift[home]
    age = chosen(rng, [np.where(first, -4, 0.6 - 0.4 * own), 0.3 * own, 0 * own, 0.3 - 0.5 * (size[home] > 2)])
    works = chosen(rng, [np.where((age == 0) | (age == 3), 3.0, 0.0), 0 * own, 0.8 + 0 * own])
    schema = tt.Schema(
        (
            tt.Attribute("tenure", ("owned", "mortgage", "rented")),
            tt.Attribute("income", ("low", "middle", "high", "top")),
            tt.Attribute("county", counties),
        ),
        (
            tt.Attribute("age", ("0-17", "18-39", "40-64", "65+")),
            tt.Attribute("sex", ("f", "m")),
            tt.Attribute("works", ("no", "part", "full")),
        ),
        MOST,
    )
    persons = {"age": age, "sex": rng.integers(0, 2, len(home)), "works": works}
    homes = {"tenure": tenure, "income": income, "county": county}
    private = households_from_codes(schema, homes, persons, home, number, name="country")
    counts = np.zeros((leaves, MOST), np.int64)
    np.add.at(counts, (county, size - 1), 1)
    true = {"tenure": np.zeros((leaves, 3)), "income": np.zeros((leaves, 4))}
    np.add.at(true["tenure"], (county, tenure), 1)
    np.add.at(true["income"], (county, income), 1)
    return private, GroupSizes(hierarchy=tree, max_size=MOST, counts=Sealed(counts), name="country"), true


def apart(true: Any, found: Any) -> float:
    """Total variation between the shares of regions, weighted by households."""
    number, there = true.sum(axis=1), np.maximum(found.sum(axis=1), 1)
    shares = true / np.maximum(number, 1)[:, None], found / there[:, None]
    both = (number > 0) & (found.sum(axis=1) > 0)
    return float((number * np.abs(shares[0] - shares[1]).sum(axis=1) / 2)[both].sum() / number[both].sum())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--households", type=int, default=1_000_000)
    parser.add_argument("--states", type=int, default=24)
    parser.add_argument("--counties", type=int, default=131, help="of each state")
    parser.add_argument("--epsilon", default="1")
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None, help="where households are written; by default removed")
    given = parser.parse_args()
    private, sizes, true = made_up(given.households, given.states, given.counties)
    released = tt.release(sizes, budget=tt.Budget(rho="0.02"), unit=tt.one_group(), intervals="none")
    report: dict[str, Any] = {"benchmark": "country", "households": given.households, "counties": len(true["tenure"])}

    def timed(name: str, work: Any) -> Any:
        started = time.perf_counter(), time.process_time()
        result = work()
        report[f"{name}_seconds"] = round(time.perf_counter() - started[0], 1)
        report[f"{name}_processor_seconds"] = round(time.process_time() - started[1], 1)
        return result

    budget = tt.Budget(epsilon=given.epsilon, delta="1e-9")
    regional = {"share": "0.3"}
    made = timed(
        "fit", lambda: tt.synthesize(private, budget=budget, release=released, region="county", regional=regional)
    )
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        timed("save", lambda: made.save(Path(folder) / "country"))
    for name, table in true.items():
        marginal = tt.Marginal("households", ("county", name))
        found = np.zeros(table.shape)
        for chunk in made.draw():
            found += counted(chunk, marginal, made.schema)
        states = [rows.reshape(given.states, given.counties, -1).sum(axis=1) for rows in (table, found)]
        report[name] = {"county": round(apart(table, found), 4), "state": round(apart(*states), 4)}
    if given.draw:
        factor = -(-given.draw // max(1, made.table.number))
        larger = replace(made, table=replace(made.table, counts=factor * made.table.counts), receipt=None, folder=None)
        report["drawn"] = larger.table.number
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            timed("draw", lambda: larger.save(Path(folder) / "country"))
            files = [Path(folder) / "country" / name for name in ("households.parquet", "persons.parquet")]
            report["gigabytes"] = round(sum(path.stat().st_size for path in files) / 1e9, 2)
        report["processor_seconds_per_million"] = round(
            report["draw_processor_seconds"] / report["drawn"] * 1_000_000, 2
        )
    report["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(json.dumps(report))


if __name__ == "__main__":
    main()
