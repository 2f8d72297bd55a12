"""NOT PRIVATE: audit every mechanism that can be released, from files to measurements, counts and published folders.

The outputs come from three places. Measurements: files are read and `decided` and `measure` run, as `release` does.
Counts: `release` runs to its end, and only its counts are scored. Command: `tallytree release` runs as a separate
process on a spec and files, with a ledger, and the measurements are those of the folder that it wrote.

Two distinguishers use measurements: the log-likelihood ratio of the two data sets, which is the best score if the noise
is correct, and single events about numbers, which assume nothing about the noise (`bounds`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import ReleaseError, TallytreeError
from tallytree.lab.audit.verdicts import (
    CONFIDENCE,
    Row,
    bound_of_events,
    exact_epsilon,
    exact_loss,
    log_ratios,
    lower_bound,
    stated,
)
from tallytree.lab.audit.worlds import (
    BY_GROUP,
    KINDS,
    MAX_SIZE,
    PEOPLE,
    QUANTITIES,
    SEVERAL_ROWS,
    Kind,
    Pair,
    State,
    Totals,
    group_sizes,
    has_groups_table,
    pairs,
    read_files,
    region_table,
    tree,
    write_files,
)
from tallytree.lab.truth import measured_without_noise
from tallytree.mechanisms import MECHANISMS, Mechanism
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger
from tallytree.privacy.measurements import FirstStageFacts, Measurement, Measurements, list_starts
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import FIRST, MeasurementQuery, Plan
from tallytree.privacy.run import measure
from tallytree.publish.release.release_run import Design, decide, release
from tallytree.publish.release.value import Release
from tallytree.tables.group_sizes import GroupSizes

# A δ far larger than one would release with: runs show events that are more likely than about one over their number.
BUDGETS = (Budget(epsilon=1), Budget(rho="1/2", delta="1/100"))
UNITS = ("one_entity", "one_group")
# Shares: states and counties are measured with equal ones, and regions above many gadgets with next to nothing.
ABOVE, BELOW = 1, 500
BANDS = [{"to": 2, "shares": [1, 300, 700]}, {"shares": [1, 700, 300]}]
GADGETS = 1000
# Private totals that a mechanism needs are measured. A setting takes the first of these that is accepted.
AS_NEEDED: tuple[dict[str, Any], ...] = ({}, {"totals_share": "0.3"})
# Other options that change what is measured: lists of sizes, adaptive plans, bands of sizes, numbers of entities.
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("coc-matching", {"methods": ["sorted-sizes"]}),
    ("coc-matching", {"methods": ["sorted-sizes"], "largest_share": "0.3"}),
    ("bottom-up", {"method": "sorted-sizes"}),
    ("bottom-up", {"method": "sorted-sizes", "largest_share": "0.3"}),
    ("tallytree", {"leaves": "lists"}),
    ("tallytree", {"leaves": "counts"}),
    ("tallytree", {"lists_below": "2"}),
    ("tallytree", {"entities_share": "0.3"}),
    ("tallytree", {"all_share": "0.3"}),
    ("tallytree", {"bands": BANDS, "leaves": "at_least"}),
    ("tallytree", {"bands": BANDS, "leaves": "lists"}),
)


@dataclass(frozen=True)
class Setting:
    """One combination to audit."""

    mechanism: str
    unit: str
    totals: Totals = "private"
    budget: Budget = BUDGETS[0]
    kind: Kind = PEOPLE
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    own_shares: bool = False  # whether the mechanism divides the budget over the levels by its own rule

    @property
    def one_region(self) -> bool:
        """Return whether it is for data with a single region."""
        return self.mechanism == "naive"

    @property
    def gadgets(self) -> int:
        """Return how many may be in one release: their outputs must be independent, and the mechanism must accept them.

        The number is even, so that half are here and half there, unless it is 1.
        """
        row = MECHANISMS[self.mechanism]
        _, plan = self.decide(self.count([next(pairs(self.kind, self.unit)).here[0]]))
        views = {query.view for branch in plan.branches for query in branch.queries}
        together = {"chain", "largest"} & views or ("sorted_sizes" in views and self.totals != "public")
        if self.one_region or together or row.name == "pgsr-hierarchical-tables":
            return 1
        cells = (MAX_SIZE + 1) * len(self.kind.categories)  # of a region
        return GADGETS if row.most_cells is None else (row.most_cells // cells - 2) // 6 * 2

    def arguments(self, depth: int) -> dict[str, Any]:
        """Return the arguments of `release` and `Design` for a tree of so many levels."""
        row, shares = MECHANISMS[self.mechanism], None
        levels = depth if self.kind.decided_by is None else depth - 1  # of regions
        if levels > 1 and not (self.own_shares or row.leaves_only or "bands" in self.options):
            shares = [*[ABOVE] * (depth - 2), BELOW, BELOW]
            if self.kind.decided_by == "members" or "all_share" in self.options:
                shares[0] = 0  # the sums of the level below are the same numbers
        options = dict(self.options)
        if "methods" in options:
            options["methods"] = [options["methods"][0]] * depth
        if "bands" in options:
            options["bands"] = [{**band, "shares": band["shares"][-depth:]} for band in options["bands"]]
        return {
            "budget": self.budget,
            "mechanism": self.mechanism,
            "options": options or None,
            "shares": shares,
        }

    def count(self, states: Sequence[State], declared: Kind | None = None) -> GroupSizes:
        """Return the counts of some states."""
        public = self.totals == "public"
        return group_sizes(states, self.kind, public_totals=public, one_region=self.one_region, declared=declared)

    def write(self, states: Sequence[State], folder: Path) -> None:
        """Write some states as files."""
        write_files(folder, states, self.kind, totals=self.totals, one_region=self.one_region)

    def read(self, folder: Path) -> GroupSizes:
        """Read the files as the command does."""
        return read_files(folder, self.kind, totals=self.totals)

    def decide(self, private: GroupSizes) -> tuple[Mechanism, Plan]:
        """Return the mechanism and its plan, as `release` decides them."""
        _, mechanism, plan = decide(private, Design(unit=self.unit, **self.arguments(private.hierarchy.depth)))
        return mechanism, plan

    def words(self) -> str:
        """Return the setting in words, without mechanism, unit and budget."""
        shown = {key: value if isinstance(value, str) else value[0] for key, value in self.options.items()}
        if "bands" in shown:
            shown["bands"] = f"of sizes, {len(self.options['bands'])}"
        options = "".join(f", {key} {value}" for key, value in shown.items())
        totals = self.totals if self.totals != "public by region" else "public (by region, not by category)"
        return f"{totals} totals, {self.kind.name}{options}"


def settings(mechanisms: list[str] | None = None, *, quick: bool = False) -> Iterator[Setting]:
    """Yield all combinations of mechanism, unit, totals, budget, kind of rows and options that a release accepts.

    The budget in ρ is combined with plain people; other kinds of rows and the other options have a budget in ε. With
    `quick` there are plain people, and private totals where a mechanism accepts them.
    """
    for row in MECHANISMS.values():
        if row.refused or (mechanisms is not None and row.name not in mechanisms):
            continue
        for kind, unit, totals, budget in product(KINDS.values(), UNITS, ("private", "public"), BUDGETS):
            if kind == QUANTITIES and unit == "one_group":
                continue  # a bound on quantities is about one row
            if kind == PEOPLE or (budget == BUDGETS[0] and not quick):
                if quick and totals == "public" and not row.needs_public_totals:
                    continue
                yield from _accepted(Setting(row.name, unit, totals, budget, kind))  # type: ignore[arg-type]
        for name, options in OPTIONS:
            if name == row.name and not quick:
                kinds = (PEOPLE, SEVERAL_ROWS) if "bands" in options else (PEOPLE, BY_GROUP)
                for kind, unit, totals in product(kinds, UNITS, ("private", "public")):
                    for budget in BUDGETS if kind == PEOPLE else BUDGETS[:1]:
                        yield from _accepted(Setting(name, unit, totals, budget, kind, options))  # type: ignore[arg-type]


def _accepted(setting: Setting) -> Iterator[Setting]:
    """Yield the setting with the first of the needed options that a release accepts; nothing if it refuses all."""
    for needed in AS_NEEDED:
        tried = replace(setting, options={**setting.options, **needed})
        try:
            tried.decide(tried.count([next(pairs(tried.kind, tried.unit)).here[0]]))
        except TallytreeError:
            continue
        yield tried
        return


def audited(setting: Setting, *, runs: int, count_runs: int, command: bool, confidence: float = CONFIDENCE) -> Row:
    """Return the bounds for one setting: exact ones, and from `runs` outputs of each data set, for a change in either
    county.

    All bounds from outputs of the row hold together with this confidence.
    """
    epsilon, delta = stated(setting.budget)
    worst = worst_pairs(setting)
    pair, exact = max(worst, key=lambda one: one[1])
    with_command = command and setting.gadgets > 1
    tests = 2 * len(worst) + (count_runs > 0) + 2 * with_command
    each = 1 - (1 - confidence) / tests

    found = 0.0
    for one, _ in worst:
        with tempfile.TemporaryDirectory() as folder:
            outputs = from_measurements(setting, one, max(50, runs // len(worst)), Path(folder))
        found = max(found, outputs.bound(delta, each))
    counts = None
    if count_runs:
        counts = lower_bound(*from_counts(setting, pair, count_runs), delta=delta, confidence=each).epsilon
    published = None
    if with_command:
        with tempfile.TemporaryDirectory() as folder:
            published = through_the_command(setting, pair, Path(folder)).bound(delta, each)
    return Row(
        part="release",
        name=setting.mechanism,
        unit=setting.unit,
        setting=setting.words(),
        budget=str(setting.budget),
        neighbours=pair.what,
        delta=delta,
        claimed=epsilon,
        exact=exact,
        measurements=found,
        counts=counts,
        command=published,
        runs=runs,
    )


# -------------------------------------------------------------------- exactly


def worst_pairs(setting: Setting) -> list[tuple[Pair, float]]:
    """Return, for a change in either county, the neighbours of one gadget that lose the most, and their ε.

    All neighbours and all branches of an adaptive plan are tried. Among equal losses, the pair is the one that changes
    the most numbers from or to 0, because code may treat a 0 differently.
    """
    worst: dict[str, tuple[tuple[Fraction, int], Pair, list[tuple[Measurement, ...]]]] = {}
    plan = None
    for pair in pairs(setting.kind, setting.unit):
        private = [setting.count(states) for states in (pair.here, pair.there)]
        plan = plan or setting.decide(private[0])[1]  # from public facts, which all these tables share
        for branch in plan.branches:
            first_stage = _likely(branch, private)
            seen = [measured_without_noise(one, branch, first_stage).measured for one in private]
            zeros = sum(int(((one.values == 0) != (two.values == 0)).sum()) for one, two in zip(*seen, strict=True))
            rank = exact_loss(*seen), zeros
            if pair.watched not in worst or rank > worst[pair.watched][0]:
                worst[pair.watched] = rank, pair, seen
    delta = stated(setting.budget)[1]
    return [(pair, exact_epsilon(seen[0], seen[1], delta)) for _, pair, seen in worst.values()]


def _likely(plan: Plan, private: Sequence[GroupSizes]) -> FirstStageFacts | None:
    """Return an outcome of the first stage that has room for either data set."""
    views = {query.view for query in plan.queries}
    if not views & set(FIRST):
        return None
    leaves = [_totals(one) for one in private]
    totals = private[0].hierarchy.aggregate(np.maximum(*leaves)) if "totals" in views else None
    return FirstStageFacts(totals, MAX_SIZE if "largest" in views else None)


def _totals(private: GroupSizes) -> Integers:
    """Return the number of groups in each leaf of made-up data, by a query without noise."""
    leaves = private.hierarchy.depth - 1
    ask = Plan(Budget(epsilon=1), PrivacyUnit("one_entity"), (MeasurementQuery("counts", leaves, Fraction(1)),))
    counts: Integers = measured_without_noise(private, ask).measured[0].values.sum(axis=1)
    return counts


# -------------------------------------------------------------------- from outputs


class Outputs(NamedTuple):
    """The view of a distinguisher on one data set and on its neighbour: scores, and numbers `[runs, n]`."""

    scores: tuple[Floats, Floats]
    numbers: tuple[Integers, Integers]

    def bound(self, delta: float, confidence: float) -> float:
        """Return the larger of the two bounds on ε; each holds with the confidence."""
        by_score = lower_bound(*self.scores, delta=delta, confidence=confidence)
        by_event = bound_of_events(*self.numbers, delta=delta, confidence=confidence)
        return max(by_score.epsilon, by_event.epsilon)


def from_measurements(setting: Setting, pair: Pair, runs: int, folder: Path) -> Outputs:
    """Return `runs` outputs of each data set, from files to measurements."""

    def read(states: list[State]) -> GroupSizes:
        setting.write(states, folder)
        return setting.read(folder)

    def outputs(private: GroupSizes, mechanism: Mechanism, plan: Plan, number: int) -> Iterator[Measurements]:
        return (measure(private, plan, derive_facts=mechanism.derive_facts) for _ in range(number))

    return sampled(setting, pair, runs, read, outputs)


Sampler = Callable[[GroupSizes, Mechanism, Plan, int], Iterator[Measurements]]


def sampled(
    setting: Setting,
    pair: Pair,
    runs: int,
    read: Callable[[list[State]], GroupSizes],
    outputs: Sampler,
    gadgets: int | None = None,
) -> Outputs:
    """Return a distinguisher's view of `runs` outputs of each data set: many gadgets in a release, or one in each."""
    gadgets = setting.gadgets if gadgets is None else gadgets
    seen: list[list[tuple[Floats, Integers]]] = []
    for states in [[*pair.here], [*pair.there]] if gadgets == 1 else [_alternating(pair, gadgets)]:
        private = read(states)
        mechanism, plan = setting.decide(private)
        distinguisher = Distinguisher(setting, pair, plan, gadgets)
        number = runs if gadgets == 1 else -(-2 * runs // gadgets)
        seen.append([distinguisher(output) for output in outputs(private, mechanism, plan, number)])
    if gadgets > 1:
        seen = [[(scores[half::2], numbers[half::2]) for scores, numbers in seen[0]] for half in (0, 1)]
    scores, numbers = ([np.concatenate([one[part] for one in side]) for side in seen] for part in (0, 1))
    return Outputs((scores[0], scores[1]), (numbers[0], numbers[1]))


def from_counts(setting: Setting, pair: Pair, runs: int) -> tuple[Floats, Floats]:
    """Return scores of the final counts of `release`, one gadget in each: how far they went from here to there."""
    both = [setting.count(states) for states in (pair.here, pair.there)]
    arguments = setting.arguments(both[0].hierarchy.depth)
    leaves = both[0].hierarchy.depth - 1
    ask = Plan(Budget(epsilon=1), PrivacyUnit("one_entity"), (MeasurementQuery("counts", leaves, Fraction(1)),))
    here, there = (one.hierarchy.aggregate(measured_without_noise(one, ask).measured[0].values) for one in both)
    scores = []
    for private in both:
        outputs = (release(private, unit=setting.unit, intervals="none", **arguments).counts for _ in range(runs))
        scores.append(np.array([_along(counts, here, there) for counts in outputs], dtype=float))
    return scores[0], scores[1]


def _along(counts: Integers, here: Integers, there: Integers) -> float:
    """Return the direction from here to there, in counts, without the sizes above a measured largest one."""
    width = counts.shape[1]
    return float((counts * (there - here)[:, :width]).sum())


def through_the_command(setting: Setting, pair: Pair, folder: Path) -> Outputs:
    """Return the outputs of one release that the command makes of a spec and files, with a ledger."""

    def read(states: list[State]) -> GroupSizes:
        setting.write(states, folder)
        (folder / "release.toml").write_text(spec(setting, len(states)), encoding="utf-8")
        private = setting.count(states)
        relation = Neighbours.of(setting.read(folder), setting.unit)  # with the columns that the spec names
        Ledger(folder / "ledger.db").open("made up", setting.budget, relation)
        return private

    def outputs(*_: object) -> Iterator[Measurements]:
        words = [sys.executable, "-m", "tallytree", "release", "release.toml", "--out", "published", "--quiet"]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=_this_package_first())
        if done.returncode != 0:
            raise ReleaseError(f"the command failed on made-up data: {done.stderr.strip()}")
        yield Release.load(folder / "published").measurements

    return sampled(setting, pair, 1, read, outputs)


def _this_package_first() -> dict[str, str]:
    """Return an environment in which the command is that of this package, in any working directory."""
    here = str(Path(__file__).resolve().parents[3])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))}


class Distinguisher:
    """For each gadget in a release: the log-likelihood ratio of its own regions' numbers, and these numbers."""

    def __init__(self, setting: Setting, pair: Pair, plan: Plan, gadgets: int) -> None:
        self._plan, self._gadgets, self._public = plan, gadgets, setting.totals == "public"
        views = {query.view for query in plan.queries}
        self._shape_is_fixed = plan.branch_rule is None and "largest" not in views
        self._worlds = [setting.count(states * gadgets) for states in (pair.here, pair.there)]
        self._known: dict[str, list[Measurements]] = {}

    def __call__(self, output: Measurements) -> tuple[Floats, Integers]:
        here, there = self._views(output)
        scores, numbers = np.zeros(self._gadgets), []
        for part, one, two in zip(output.measured, here.measured, there.measured, strict=True):
            ratios = _by_region(log_ratios(part, one, two), output, part)
            categories = 1 if part.summed or part.level == 0 else len(output.hierarchy.by)
            if len(ratios) < categories * self._gadgets:
                continue  # these regions are about all gadgets together
            scores += ratios.reshape(categories, self._gadgets, -1).sum(axis=(0, 2))
            if part.view in FIRST or (self._shape_is_fixed and (part.view != "sorted_sizes" or self._public)):
                values = part.values.reshape(categories, self._gadgets, -1).astype(np.int64)
                numbers.append(values.transpose(1, 0, 2).reshape(self._gadgets, -1))
        return scores, np.concatenate(numbers, axis=1)

    def _views(self, output: Measurements) -> list[Measurements]:
        """Return the measurements of the two worlds without noise, with the queries of this release's second stage."""
        first_stage, branch = output.first_stage, output.branch
        plan = self._plan if branch is None else self._plan.branch(below=branch.below)
        lengths = [None if one is None else one.tolist() for one in (first_stage.totals, first_stage.places)]
        key = f"{lengths}, {first_stage.max_size}, {branch}"
        if key not in self._known:
            if len(self._known) > 100:
                self._known.clear()
            self._known[key] = [measured_without_noise(world, plan, first_stage) for world in self._worlds]
        return self._known[key]


def _by_region(ratios: Floats, output: Measurements, part: Measurement) -> Floats:
    """Return sums over the numbers of each region."""
    if part.view != "sorted_sizes":
        return np.asarray(ratios.sum(axis=1), np.float64)
    starts = list_starts(output.lengths(part.level))
    sums = np.concatenate([[0.0], np.cumsum(ratios)])
    found: Floats = sums[starts[1:]] - sums[starts[:-1]]
    return found


def _alternating(pair: Pair, gadgets: int) -> list[State]:
    return [(pair.there if number % 2 else pair.here)[0] for number in range(gadgets)]


def spec(setting: Setting, states: int, *, ledger: bool = True) -> str:
    """Return the spec of a release, as a person would write it."""

    def line(key: str, value: Any) -> str:
        return f"{key} = {text(value)}"

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(line(*item) for item in value.items()) + " }"
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        return repr(value).replace("'", '"')

    hierarchy = tree(states, one_region=setting.one_region, kind=setting.kind)
    levels = list(region_table(states, one_region=setting.one_region))
    arguments = setting.arguments(hierarchy.depth)
    budget = {key: value for key, value in setting.budget.to_json().items() if value is not None}
    if "epsilon" in budget:
        budget.pop("rho", None)  # it follows from ε and δ
    sections: dict[str, dict[str, Any]] = {
        "regions": {"table": "regions.csv", "levels": levels},
        "data": {
            "source": "people.csv",
            "name": "made up",
            **({"groups": "groups.csv"} if has_groups_table(setting.kind, setting.totals) else {}),
            "groups_are_public": setting.totals != "private",
            **setting.kind.reading(),
        },
        **{
            f"by.{column.name}": {"values": column.values, "decided_by": column.decided_by}
            for column in setting.kind.categories.columns
        },
        "privacy": {"unit": setting.unit, "ledger": "ledger.db" if ledger else False, **budget},
        "release": {
            "mechanism": setting.mechanism,
            "intervals": "none" if ledger else "all",
            **({} if arguments["shares"] is None else {"shares": arguments["shares"]}),
        },
        "release.options": arguments["options"] or {},
    }
    return "\n".join(
        "\n".join([f"[{name}]", *(line(*item) for item in values.items()), ""])
        for name, values in sections.items()
        if values
    )
