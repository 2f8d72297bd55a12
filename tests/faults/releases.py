"""Random whole releases: each is refused before anything is spent, or is estimated, saved and verified.

Unit × totals (public, private, listed over all categories) × categories of both kinds × shares × budget × mechanism ×
noise, on trees, sizes and counts of all kinds. Every third release has the next mechanism of the table. The same seed
and number make the same release, noise included:

    python -m tests.faults.releases NUMBER SEED
"""

from __future__ import annotations

import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tallytree import Budget, verify
from tallytree.core.arrays import Integers
from tallytree.core.errors import TallytreeError
from tallytree.domain.categories import Categories
from tallytree.lab.truth import seeded
from tallytree.mechanisms import MECHANISMS, Mechanism
from tallytree.privacy.noise import Randomness
from tallytree.privacy.plan import Plan
from tallytree.privacy.run import measure_with
from tallytree.publish.memory import count_listed, refuse_beyond_memory
from tallytree.publish.release.error_bars import Publication
from tallytree.publish.release.release_run import Design, decide, estimate_release
from tallytree.tables import GroupSizes, Sealed
from tests.faults.isolated import run_cases
from tests.faults.kernels import MOST_EXAMPLES, any_tree
from tests.faults.tally import Tally
from tests.oracles import trees

MOST_REFUSALS = 50  # before a case counts as refused
CPU_SECONDS = 60.0  # for one release with all its intervals
MAY_BE_REPLACED = ("pgsr-hierarchical-exact", "pgsr-cumulative-exact", "pgsr-hierarchical-tables")
RELEASABLE = tuple(name for name, row in MECHANISMS.items() if not row.refused)
TALLYTREE_OPTIONS: tuple[dict[str, Any], ...] = (
    {"leaves": "at_least"},
    {"leaves": "lists"},
    {"leaves": "beliefs"},
    {"borrow": False},
    {"entities_share": "0.1"},
    {"totals_share": "0.1"},
    {"totals_share": "0.2", "leaves": "lists"},
    {"all_share": "0.4"},
    {"lists_below": 5},
)

Generator = np.random.Generator


@dataclass
class Drawn:
    """The seeded noise of a release, and whether any of it was drawn: then the budget is spent."""

    seed: tuple[int, int]
    spent: bool = field(default=False)

    def randomness(self) -> Randomness:
        """Noise that notes that it was drawn, under the name that releases may have."""
        own = seeded(*self.seed)

        def draw(kind: str) -> Any:
            def noted(scale: Fraction, count: int) -> Integers:
                self.spent = True
                drawn: Integers = getattr(own, kind)(scale, count)
                return drawn

            return noted

        return replace(own, name="tallytree", laplace=draw("laplace"), gaussian=draw("gaussian"))


def made_up(rng: Generator) -> GroupSizes:
    """Counts on some tree, with or without categories and public totals."""
    tree = trees.even_tree(int(rng.integers(2, 25))) if rng.random() < 0.4 else any_tree(rng)
    max_size = int(rng.choice([1, 2, 4, 7, 20, 60]))
    totals, kind = str(rng.choice(["private", "public", "listed"])), rng.choice(["none", "group", "members"])
    if kind != "none":
        values = [f"value {number}" for number in range(int(rng.integers(2, 5)))]
        tree = tree.by_category(Categories.of({"sort": values}, str(kind)))
        totals = "private" if kind == "members" and totals == "public" else totals
    elif totals == "listed":
        totals = "public"
    first = 0 if totals == "public" else 1
    counts = _counts(rng, tree.leaf_count, max_size + 1 - first)
    sums, public = counts.sum(axis=1), totals == "public"
    listed = sums.reshape(len(tree.by), -1).sum(axis=0) if tree.by.columns and totals == "listed" else None
    facts: dict[str, Any] = {}
    if rng.random() < 0.2:
        facts = {"quantity_bound": int(rng.integers(1, 6)), "rows_per_entity": int(rng.integers(1, 4))}
    return GroupSizes(
        tree, max_size, Sealed(counts), leaf_totals=sums if public else None, listed_totals=listed, **facts
    )


def _counts(rng: Generator, leaves: int, sizes: int) -> Integers:
    """Nothing, a few, some hundreds, or numbers up to 10¹² of groups in a leaf."""
    kind = rng.random()
    most = 0.0 if kind < 0.05 else 3 if kind < 0.2 else 300 if kind < 0.85 else 10 ** rng.uniform(3, 12)
    fall = rng.uniform(0.3, 1.0) ** np.arange(sizes)
    each = rng.gamma(0.5, 2 * most + 1e-9, (leaves, 1)) if rng.random() < 0.7 else np.full((leaves, 1), most)
    found: Integers = np.minimum(np.rint(each * fall * rng.uniform(0, 2, (leaves, sizes))), 1e12).astype(np.int64)
    return found


def any_budget(rng: Generator) -> Budget:
    """ε from 10⁻⁶ to 10⁴, or ρ."""
    amount = f"{10 ** (rng.uniform(-6, 4) if rng.random() < 0.5 else rng.uniform(-3, 1)):.3g}"
    kind = rng.random()
    if kind < 0.6:
        return Budget(epsilon=amount)
    return Budget(rho=amount, delta="1e-9") if kind < 0.9 else Budget(epsilon=amount, delta="1e-9")


def any_shares(rng: Generator, depth: int) -> list[str] | None:
    """No shares, equal ones, some of none, or of very different size."""
    kind = rng.integers(4)
    if kind == 0:
        return None
    shares = [1] * depth if kind == 1 else [int(10 ** rng.uniform(0, 1 if kind == 2 else 6)) for _ in range(depth)]
    if rng.random() < 0.3:
        shares = [0 if rng.random() < 0.4 else share for share in shares[:-1]] + [1]
    return [str(share) for share in shares]


def planned(rng: Generator, mechanism: str) -> tuple[GroupSizes, Mechanism, Plan, str, str]:
    """Data, a mechanism and its plan, which intervals are asked for, and all of it in words; it may be refused."""
    private = made_up(rng)
    options = None
    if mechanism == "tallytree" and rng.random() < 0.5:
        options = TALLYTREE_OPTIONS[rng.integers(len(TALLYTREE_OPTIONS))]
    unit, budget = str(rng.choice(["one_entity", "one_group"])), any_budget(rng)
    shares = any_shares(rng, private.hierarchy.depth) if rng.random() < 0.5 and mechanism != "bottom-up" else None
    if private.hierarchy.by.columns and shares is not None:
        shares = ["0", *shares[1:]]
    which = str(rng.choice(["all", "guaranteed", "none"], p=[0.2, 0.5, 0.3]))
    design = Design(budget, unit, mechanism, options, shares)
    neighbours, chosen, plan = decide(private, design)
    listed = count_listed(plan, private.region_totals)
    refuse_beyond_memory(private.hierarchy, neighbours, intervals=which == "all", listed=listed)
    by = private.hierarchy.by.to_json()
    words = (
        f"{chosen.name} {chosen.options}, {private!r}, {unit}, {budget}, shares {shares}, intervals {which}, by {by}, "
        f"listed {private.listed_totals is not None}"
    )
    return private, chosen, plan, which, words


def make(rng: Generator, mechanism: str, drawn: Drawn, folder: Path) -> tuple[str, str] | None:
    """Make, save and verify one release; returns the promise that it broke, and words."""
    for _ in range(MOST_REFUSALS):
        try:
            private, chosen, plan, which, words = planned(rng, mechanism)
            break
        except TallytreeError:
            continue  # refused before anything was spent: as it should be
    else:
        return None
    measurements = measure_with(drawn.randomness(), private, plan, derive_facts=chosen.derive_facts)
    drawn.spent = True
    try:
        made = estimate_release(measurements, chosen, Publication(intervals=which))
    except Exception as error:
        return "lost", f"{_in_words(error)}; {words}"
    if made.fallback is not None and chosen.name not in MAY_BE_REPLACED:
        return "wrong", f"{made.fallback.why}; {words}"
    target = folder / "release"
    try:
        made.save(target)
    except Exception as error:
        return "lost", f"saving: {_in_words(error)}; {words}"
    if faults := verify(target).faults:
        return "half_written", f"{faults[0][:200]}; {words}"
    return None


def _in_words(error: BaseException) -> str:
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {str(error)[:200]} at {at.filename[-30:]}:{at.lineno}"


def one(number: int, seed: int) -> tuple[str, str] | None:
    """Make one release; returns the promise that it broke, and words, or None."""
    drawn, every = Drawn((seed, number)), divmod(number, 3)
    mechanism = RELEASABLE[every[0] % len(RELEASABLE)] if every[1] == 0 else ("auto", "tallytree")[every[1] - 1]
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            np.errstate(all="ignore"),
        ):
            warnings.simplefilter("ignore")
            return make(np.random.default_rng([seed, number]), mechanism, drawn, Path(folder))
    except TallytreeError as error:
        return ("lost", _in_words(error)) if drawn.spent else None
    except Exception as error:
        return ("lost" if drawn.spent else "tracebacks"), _in_words(error)


def run(count: int, seed: int, first: int = 0) -> Tally:
    """So many releases, from the one with the number `first` on."""
    found = run_cases("tests.faults.releases", first, first + count, seed, CPU_SECONDS)
    broken = {promise: sum(one.promise == promise for one in found) for promise in {one.promise for one in found}}
    words = [f"release {one.number} of seed {seed}: {one.words}" for one in found]
    return Tally("whole releases", count, examples=tuple(words[:MOST_EXAMPLES]), **broken)


if __name__ == "__main__":
    print(one(int(sys.argv[1]), int(sys.argv[2])) or "nothing is wrong")
