"""Does borrowing ever hurt? Leaf errors of `tallytree` with it and without: NOT PRIVATE, on public and made-up data.

    python -m experiments.borrowing [--data DIRECTORY] [--runs 20] [--only NAME …] [--out FILE]

Both estimate from the same measurements, so their difference is known better than the errors themselves. For each data
set and ε the ratio of mean leaf errors (EMD, L1) is printed with its standard error; a ratio above 1.02 by more than
two of these is a miss. Some of the made-up data are made against borrowing: two kinds of leaves under one parent, one
odd leaf in a hundred, and leaves with very unequal numbers of groups.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tallytree as tt
from experiments.named_files import load
from tallytree.core.arrays import Floats, Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import earth_movers_distance, l1_distance
from tallytree.lab.datasets import make
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import prepare
from tallytree.privacy.neighbours import Neighbours

EPSILONS = ("0.1", "0.3", "1", "3")
ALLOWED = 1.02
FAMILIES = np.array([0.02, 0.16, 0.20, 0.22, 0.25, 0.10, 0.05])  # shapes of households by persons from 0 on
STUDENTS = np.array([0.02, 0.70, 0.15, 0.06, 0.04, 0.02, 0.01])


@dataclass(frozen=True)
class Compared:
    """Leaf errors, `[runs, 2]` each: the earth mover's distance and L1, summed over the leaves."""

    data: str
    epsilon: str
    leaves: str
    borrowed: Floats
    alone: Floats

    @property
    def ratios(self) -> Floats:
        """Mean error with borrowing over that without."""
        found: Floats = self.borrowed.mean(axis=0) / np.maximum(self.alone.mean(axis=0), 1e-9)
        return found

    @property
    def standard_errors(self) -> Floats:
        """Of the ratios, from the paired runs (delta method)."""
        gaps = self.borrowed - self.ratios * self.alone
        spread: Floats = gaps.std(axis=0, ddof=min(1, len(gaps) - 1)) / len(gaps) ** 0.5
        return spread / np.maximum(self.alone.mean(axis=0), 1e-9)

    @property
    def missed(self) -> bool:
        """Is borrowing worse than what is allowed, beyond 2 standard errors?"""
        return bool(np.any(self.ratios - 2 * self.standard_errors > ALLOWED))


# -------------------------------------------------------------------- data


def against(name: str, groups: Integers, odd: np.ndarray, seed: int = 0) -> Truth:
    """Ten regions with equally many leaves of so many households each; `odd` ones are full of students."""
    rng = np.random.default_rng(seed)
    of = [f"{place * 10 // len(groups):02d}" for place in range(len(groups))]
    leaves = [f"{place:04d}" for place in range(len(groups))]
    tree = Hierarchy.from_levels({"region": of, "leaf": leaves}, ["region", "leaf"])
    shapes = np.where(odd[:, None], STUDENTS, FAMILIES)
    shapes /= shapes.sum(axis=1, keepdims=True)
    counts = np.array([rng.multinomial(total, shape) for total, shape in zip(groups, shapes, strict=True)])
    return Truth(name, tree, counts, True)


def two_kinds(households: int) -> Truth:
    """Every second leaf is odd."""
    return against(f"two kinds of leaves, {households:,} each", np.full(200, households), np.arange(200) % 2 == 1)


def one_in_a_hundred(households: int) -> Truth:
    """One leaf in each hundred is odd."""
    name = f"one odd leaf in a hundred, {households:,} each"
    return against(name, np.full(1000, households), np.arange(1000) % 100 == 50)


def unequal() -> Truth:
    """From 2 households to 20,000, a tenth of the leaves odd, small and large ones."""
    groups = np.random.default_rng(1).permutation(np.geomspace(2, 20_000, 300).astype(np.int64))
    return against("very unequal leaves", groups, np.arange(300) % 10 == 5)


MADE_UP: dict[str, Callable[[], Truth]] = {
    "census": lambda: make("census", scale=0.02, max_size=20),
    "race": lambda: make("race", scale=0.0002, max_size=500),  # 100 groups to a leaf: measured by lists
    "two-kinds-100": lambda: two_kinds(100),
    "two-kinds-5000": lambda: two_kinds(5000),
    "one-odd-100": lambda: one_in_a_hundred(100),
    "one-odd-2000": lambda: one_in_a_hundred(2000),
    "unequal": unequal,
}
FILES = {
    "switzerland": ("switzerland_2003_municipality_household_size.csv", {}),
    "oregon": ("oregon_2000_pums_households.parquet", {}),
    "us-counties": ("us2010_county_household_size_2plus.csv", {}),
    "ri-asian": ("ri_2010_block_race.csv", {"race": "asian"}),
    "ri-white": ("ri_2010_block_race.csv", {"race": "white"}),
}


def truths(data: Path | None, only: list[str]) -> Iterator[tuple[str, Truth]]:
    """The data sets by their short names; files that are not there are named and left out."""
    for name, build in MADE_UP.items():
        if not only or name in only:
            yield name, build()
    for name, (file, options) in FILES.items():
        if only and name not in only:
            continue
        if data is None or not (data / file).exists():
            print(f"{file} is not there: {name} is left out", file=sys.stderr)
            continue
        yield name, load(data / file, **options)


# -------------------------------------------------------------------- comparing


def compared(name: str, truth: Truth, epsilon: str, runs: int) -> Compared:
    """Both ways, from the same measurements."""
    true = truth.all_levels()
    rows = truth.hierarchy.level_slice(truth.hierarchy.depth - 1)
    mechanism, plan = prepare(
        "tallytree",
        neighbours=Neighbours.of(truth.group_sizes(), tt.one_entity()),
        hierarchy=truth.hierarchy,
        totals=true.sum(axis=1) if truth.public_totals else None,
        budget=tt.Budget(epsilon=epsilon),
    )
    ways = [mechanism.configured({"borrow": borrow}) for borrow in (True, False)]
    errors = np.empty((2, runs, 2))
    for run in range(runs):
        measurements = seeded_measurements(
            truth, plan, "borrowing", name, epsilon, run, derive_facts=mechanism.derive_facts
        )
        for way, one in enumerate(ways):
            found = one.estimate(measurements).counts[rows]
            moved = earth_movers_distance(found, true[rows], truth.first_size).sum()
            errors[way, run] = moved, l1_distance(found, true[rows]).sum()
    return Compared(name, epsilon, str(mechanism.options["leaves"]), errors[0], errors[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the real data sets")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--only", action="append", default=[], help="a data set's short name; may be given again")
    parser.add_argument("--out", type=Path, help="a file for the table too")
    options = parser.parse_args()
    lines = ["| data | leaves | ε | EMD, with / without | L1, with / without |", "|---|---|---|---:|---:|"]
    print("\n".join(lines))
    misses = []
    for name, truth in truths(options.data, options.only):
        for epsilon in EPSILONS:
            found = compared(name, truth, epsilon, options.runs)
            emd, l1 = (
                f"{ratio:.3f} ± {error:.3f}" for ratio, error in zip(found.ratios, found.standard_errors, strict=True)
            )
            lines.append(f"| {name} | {found.leaves} | {epsilon} | {emd} | {l1} |")
            print(lines[-1], flush=True)
            if found.missed:
                misses.append(f"{name} at ε = {epsilon}")
    lines.append(f"\nmisses: {', '.join(misses) or 'none'}")
    print(lines[-1])
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
