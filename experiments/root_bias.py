"""Is the root of a `tallytree` release off to one side? Behind docs/mechanisms.md: NOT PRIVATE, on made-up data.

    python -m experiments.root_bias [--runs 200] [--out FILE]        a few minutes on one idle core

For two made-up nations of households (24 counties of about 1,000 each; 400 villages of about 20, where almost all
counts are below the noise) it prints the mean signed error at the root of the number of groups with at least one entity
(T[1]) and with at least two (T[2]), and the standard error of that mean. Clipping at 0 in small regions would show here
if it reached the top. Where totals are public T[1] is left out: no estimate of it may exceed the public total, which
is a bound at the root itself and makes errors downward likelier where no group is empty.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import tallytree as tt
from tallytree.core.arrays import Floats, Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.datasets import make
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import prepare
from tallytree.privacy.neighbours import Neighbours

EPSILONS = ("0.1", "1")
TOTALS_SHARE = "1/10"
SHARES_BY_SIZE = (0.28, 0.34, 0.15, 0.13, 0.06, 0.025, 0.015)  # of households with 1, 2 … 7 persons


@dataclass(frozen=True)
class Bias:
    """Signed errors at the root over runs: of T[1] and T[2]."""

    data: str
    public_totals: bool
    leaves: str
    borrow: bool
    epsilon: str
    errors: Integers  # [runs, 2]

    @property
    def means(self) -> Floats:
        """The mean signed errors."""
        found: Floats = self.errors.mean(axis=0)
        return found

    @property
    def standard_errors(self) -> Floats:
        """Of these means; at least that of rounding, so that what never errs has none."""
        spread: Floats = self.errors.std(axis=0, ddof=min(1, len(self.errors) - 1))
        return np.maximum(spread, 1 / 12**0.5) / len(self.errors) ** 0.5


def villages(*, public_totals: bool, regions: int = 20, each: int = 20, households: int = 20, seed: int = 0) -> Truth:
    """A nation of `regions` with `each` villages of about so many households by 0 (a tenth of them), 1 … 7 persons."""
    rng = np.random.default_rng(seed)
    of = np.repeat([f"{number:02d}" for number in range(regions)], each)
    names = [f"{number:04d}" for number in range(len(of))]
    tree = Hierarchy.from_levels({"region": list(of), "village": names}, ["region", "village"])
    shape = np.concatenate([[0.1], 0.9 * np.array(SHARES_BY_SIZE)])
    counts = rng.poisson(rng.gamma(4, households / 4, (len(of), 1)) * shape / shape.sum())
    return Truth("villages", tree, counts if public_totals else counts[:, 1:].copy(), public_totals)


def nation(*, public_totals: bool) -> Truth:
    """The made-up census, small."""
    return make("census", scale=0.0002, max_size=20, public_totals=public_totals)


def bias(truth: Truth, epsilon: str, runs: int, *, leaves: str, borrow: bool) -> Bias:
    """What `runs` releases by seed are off at the root."""
    options: dict[str, Any] = {"leaves": leaves, "borrow": borrow}
    if leaves == "lists" and not truth.public_totals:
        options["totals_share"] = TOTALS_SHARE
    true = truth.all_levels()
    totals = true.sum(axis=1) if truth.public_totals else None
    chosen, plan = prepare(
        "tallytree",
        options,
        neighbours=Neighbours.of(truth.group_sizes(), tt.one_entity()),
        hierarchy=truth.hierarchy,
        totals=totals,
        budget=tt.Budget(epsilon=epsilon),
    )
    errors = np.empty((runs, 2), dtype=np.int64)
    for run in range(runs):
        measurements = seeded_measurements(
            truth, plan, "root bias", epsilon, leaves, run, derive_facts=chosen.derive_facts
        )
        gap = chosen.estimate(measurements).counts[0] - true[0]
        errors[run] = [gap[1 - truth.first_size :].sum(), gap[2 - truth.first_size :].sum()]
    return Bias(truth.name, truth.public_totals, leaves, borrow, epsilon, errors)


def all_of_them(runs: int) -> Iterator[Bias]:
    """Every case."""
    for build, public in product((nation, villages), (True, False)):
        truth = build(public_totals=public)
        for leaves, borrow, epsilon in product(("at_least", "lists"), (True, False), EPSILONS):
            yield bias(truth, epsilon, runs, leaves=leaves, borrow=borrow)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--out", type=Path, help="a file for the table too")
    options = parser.parse_args()
    lines = ["| data | totals | leaves | borrow | ε | T[1]: mean error ± SE | T[2]: mean error ± SE |"]
    lines.append("|---|---|---|---|---|---:|---:|")
    print("\n".join(lines))
    for one in all_of_them(options.runs):
        words = [
            "" if size == 0 and one.public_totals else f"{mean:+.1f} ± {error:.1f}"
            for size, (mean, error) in enumerate(zip(one.means, one.standard_errors, strict=True))
        ]
        totals, borrow = "public" if one.public_totals else "private", "yes" if one.borrow else "no"
        cells = [one.data, totals, one.leaves, borrow, one.epsilon, *words]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
