"""NOT PRIVATE: every mechanism that can be released, audited from files to measurements, counts and published folders.

Three ways to the outputs. Measurements: files are read, `decided` and `measure` run, as `release` does, and an output
is scored by the log-likelihood ratio of the two data sets, the best score there is. Counts: `release` runs to its end
and its counts are scored alone. Command: `tallytree release` runs as a process of its own on a spec and files, with a
ledger, and the measurements are those of the folder that it wrote.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.errors import ReleaseError
from tallytree.evaluate.audit.bounds import CONFIDENCE, lower_bound
from tallytree.evaluate.audit.loss import exact_epsilon, exact_loss, log_ratios
from tallytree.evaluate.audit.results import Row, stated
from tallytree.evaluate.audit.worlds import (
    MAX_SIZE,
    PEOPLE,
    QUANTITIES,
    SEVERAL_ROWS,
    Kind,
    Pair,
    Rows,
    group_sizes,
    leaf_counts,
    pairs,
    read_files,
    write_files,
)
from tallytree.evaluate.truth import measured_without_noise
from tallytree.mechanisms import MECHANISMS, Mechanism
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger
from tallytree.privacy.measure import measure
from tallytree.privacy.measurements import Measurements, Settled
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import Plan, Question
from tallytree.privacy.size_lists import list_starts
from tallytree.publish.release.making import decided, release
from tallytree.publish.release.value import Release
from tallytree.tables.group_sizes import GroupSizes

# A δ far larger than one would release with: runs show events that are more likely than about one over their number.
BUDGETS = (Budget(epsilon=1), Budget(rho="1/2", delta="1/100"))
SHARES = (1, 500, 500)  # a nation above many gadgets gets next to nothing, so that they have nearly all
BANDS = [{"to": 2, "shares": [1, 300, 700]}, {"shares": [1, 700, 300]}]
GADGETS = 1000
CELLS = MAX_SIZE + 1


@dataclass(frozen=True)
class Setting:
    """One thing to audit."""

    mechanism: str
    unit: str
    public_totals: bool
    budget: Budget
    kind: Kind = PEOPLE
    options: dict[str, Any] = field(default_factory=dict, hash=False)

    @property
    def one_region(self) -> bool:
        """Is it for data with a single region?"""
        return self.mechanism == "naive"

    @property
    def gadgets(self) -> int:
        """How many may be in one release: their outputs must be independent, and the mechanism must take so many.

        Even, so that half are here and half there, but for 1.
        """
        row = MECHANISMS[self.mechanism]
        lists = any("sorted" in name for name in [*self.options.get("methods", ()), self.options.get("method", "")])
        lists = lists or self.options.get("leaves") == "lists"
        together = (lists and not self.public_totals) or "largest_share" in self.options
        if self.one_region or together or row.view == "chain" or row.name == "pgsr-hierarchical-tables":
            return 1
        return GADGETS if row.most_cells is None else (row.most_cells // CELLS - 1) // 6 * 2

    def arguments(self, gadgets: int) -> dict[str, Any]:
        """What `release` and `decided` are asked for."""
        shares = None
        if gadgets > 1 and not MECHANISMS[self.mechanism].leaves_only and "bands" not in self.options:
            shares = list(SHARES)
        return {
            "budget": self.budget,
            "mechanism": self.mechanism,
            "options": self._options(gadgets) or None,
            "shares": shares,
        }

    def _options(self, gadgets: int) -> dict[str, Any]:
        """`methods` has one for each level, and they are all alike here; so has each band of `bands` a share."""
        options, levels = dict(self.options), 3 if gadgets > 1 else 2
        if "methods" in options:
            options["methods"] = [options["methods"][0]] * levels
        if "bands" in options:
            options["bands"] = [{**band, "shares": band["shares"][-levels:]} for band in options["bands"]]
        return options

    def words(self) -> str:
        """The setting in words, but for mechanism, unit and budget."""
        told = {key: value if isinstance(value, str) else value[0] for key, value in self.options.items()}
        if "bands" in told:
            told["bands"] = f"of sizes, {len(self.options['bands'])}"
        options = "".join(f", {key} {value}" for key, value in told.items())
        return f"{'public' if self.public_totals else 'private'} totals, {self.kind.name}{options}"


def settings(mechanisms: list[str] | None = None, *, quick: bool = False) -> Iterator[Setting]:
    """Each mechanism that can be released, with each unit, totals and budget; and other rows and options."""
    for row in MECHANISMS.values():
        if row.refused or (mechanisms is not None and row.name not in mechanisms):
            continue
        for unit in ("one_entity", "one_group"):
            for budget in BUDGETS:
                for public in (True,) if row.needs_public_totals else (False,) if quick else (False, True):
                    yield Setting(row.name, unit, public, budget, options=_needed(row, public))
        if not quick:
            public = row.needs_public_totals
            for kind in (QUANTITIES, SEVERAL_ROWS):
                yield Setting(row.name, "one_entity", public, BUDGETS[0], kind, _needed(row, public))
    for name, option, method in (
        ("coc-matching", "methods", ["sorted-sizes"]),
        ("bottom-up", "method", "sorted-sizes"),
    ):
        if (mechanisms is None or name in mechanisms) and not quick:
            for unit in ("one_entity", "one_group"):
                for budget in BUDGETS:
                    yield Setting(name, unit, False, budget, options={option: method, "totals_share": "0.3"})
                    yield Setting(name, unit, True, budget, options={option: method})
            yield Setting(name, "one_entity", True, BUDGETS[0], options={option: method, "largest_share": "0.3"})

    if (mechanisms is None or "tallytree" in mechanisms) and not quick:
        for public, kind, leaves in product((False, True), (PEOPLE, SEVERAL_ROWS), ("at_least", "lists")):
            totals = {"totals_share": "0.3"} if leaves == "lists" and not public else {}
            for budget in BUDGETS:
                options = {"bands": BANDS, "leaves": leaves, **totals}
                yield Setting("tallytree", "one_entity", public, budget, kind, options)


def _needed(row: Mechanism, public_totals: bool) -> dict[str, Any]:
    return {"totals_share": "0.3"} if row.name in ("coc-matching", "naive") and not public_totals else {}


def audited(setting: Setting, *, runs: int, count_runs: int, command: bool, confidence: float = CONFIDENCE) -> Row:
    """The bounds for one setting: exact ones, and from `runs` outputs of each data set."""
    epsilon, delta = stated(setting.budget)
    pair, exact = worst_pair(setting)

    def bound(scores: tuple[Floats, Floats]) -> float:
        return lower_bound(*scores, delta=delta, confidence=confidence).epsilon

    with tempfile.TemporaryDirectory() as folder:
        found = bound(from_measurements(setting, pair, runs, Path(folder)))
    counts = bound(from_counts(setting, pair, count_runs)) if count_runs else None
    published = None
    if command and setting.gadgets > 1:
        with tempfile.TemporaryDirectory() as folder:
            published = bound(through_the_command(setting, pair, Path(folder)))
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


def worst_pair(setting: Setting) -> tuple[Pair, float]:
    """The neighbours of one gadget that lose the most, over all there are, and the ε that they really lose."""

    def look(rows: Rows, plan: Plan, settled: Settled | None) -> Measurements:
        return measured_without_noise(_private(setting, [rows]), plan, settled)

    worst = None
    for pair in pairs(setting.kind, setting.unit):
        here, there = (_private(setting, [rows]) for rows in (pair.here, pair.there))
        _, plan = _decided(setting, here, 1)
        settled = _likely(setting, plan, here, there)
        loss = exact_loss(look(pair.here, plan, settled).measured, look(pair.there, plan, settled).measured)
        if worst is None or loss > worst[0]:
            worst = loss, pair, plan, settled
    assert worst is not None
    _, pair, plan, settled = worst
    here_seen, there_seen = (look(rows, plan, settled).measured for rows in (pair.here, pair.there))
    return pair, exact_epsilon(here_seen, there_seen, stated(setting.budget)[1])


def _likely(setting: Setting, plan: Plan, here: GroupSizes, there: GroupSizes) -> Settled | None:
    """An outcome of what is measured first that has room for either data set."""
    views = {question.view for question in plan.questions}
    if not views & {"totals", "largest"}:
        return None
    leaves = [_totals(one) for one in (here, there)]
    totals = here.hierarchy.aggregate(np.maximum(*leaves)) if "totals" in views else None
    return Settled(totals, MAX_SIZE if "largest" in views else None)


def _totals(private: GroupSizes) -> Integers:
    """The number of groups in each leaf of made-up data, by a question without noise."""
    leaves = private.hierarchy.depth - 1
    ask = Plan(Budget(epsilon=1), PrivacyUnit("one_entity"), (Question("counts", leaves, Fraction(1)),))
    counts: Integers = measured_without_noise(private, ask).measured[0].values.sum(axis=1)
    return counts


# -------------------------------------------------------------------- from outputs


def from_measurements(setting: Setting, pair: Pair, runs: int, folder: Path) -> tuple[Floats, Floats]:
    """Scores of `runs` outputs of each data set, from files to measurements."""
    gadgets = setting.gadgets
    if gadgets == 1:
        scores = []
        for rows in (pair.here, pair.there):
            private = _read(setting, [rows], folder)
            mechanism, plan = _decided(setting, private, 1)
            outputs = (measure(private, plan, settle=mechanism.settle) for _ in range(runs))
            scorer = Scorer(setting, pair, plan, 1)
            scores.append(np.array([scorer(output)[0] for output in outputs]))
        return scores[0], scores[1]
    private = _read(setting, _alternating(pair, gadgets), folder)
    mechanism, plan = _decided(setting, private, gadgets)
    scorer = Scorer(setting, pair, plan, gadgets)
    rounds = -(-2 * runs // gadgets)
    found = np.array([scorer(measure(private, plan, settle=mechanism.settle)) for _ in range(rounds)])
    return found[:, ::2].ravel(), found[:, 1::2].ravel()


def from_counts(setting: Setting, pair: Pair, runs: int) -> tuple[Floats, Floats]:
    """Scores of the final counts of `release`, one gadget in each: how far they went from here to there."""
    scores = []
    here, there = (
        _private(setting, [rows]).hierarchy.aggregate(_leaf_counts(setting, rows)) for rows in (pair.here, pair.there)
    )
    for rows in (pair.here, pair.there):
        private = _private(setting, [rows])
        arguments = setting.arguments(1)
        unit = PrivacyUnit(setting.unit)  # type: ignore[arg-type]  # a unit's name
        outputs = (release(private, unit=unit, intervals="none", **arguments).counts for _ in range(runs))
        scores.append(np.array([_along(counts, here, there) for counts in outputs], dtype=float))
    return scores[0], scores[1]


def _along(counts: Integers, here: Integers, there: Integers) -> float:
    """The direction from here to there, in counts; the sizes above a measured largest one are left out."""
    width = counts.shape[1]
    return float((counts * (there - here)[:, :width]).sum())


def through_the_command(setting: Setting, pair: Pair, folder: Path) -> tuple[Floats, Floats]:
    """Scores of one release that the command makes of a spec and files, with a ledger."""
    gadgets = setting.gadgets
    write_files(folder, _alternating(pair, gadgets), public_totals=setting.public_totals)
    (folder / "release.toml").write_text(_spec(setting, gadgets), encoding="utf-8")
    private = _private(setting, _alternating(pair, gadgets))
    neighbours = Neighbours.of(private, PrivacyUnit(setting.unit))  # type: ignore[arg-type]
    Ledger(folder / "ledger.db").open("made up", setting.budget, neighbours)
    words = [sys.executable, "-m", "tallytree", "release", "release.toml", "--out", "published", "--quiet"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=_this_package_first())
    if done.returncode != 0:
        raise ReleaseError(f"the command failed on made-up data: {done.stderr.strip()}")
    measurements = Release.load(folder / "published").measurements
    _, plan = _decided(setting, private, gadgets)
    found = Scorer(setting, pair, plan, gadgets)(measurements)
    return found[::2], found[1::2]


def _this_package_first() -> dict[str, str]:
    """The environment in which the command is the one of this very package, wherever it is run."""
    here = str(Path(__file__).resolve().parents[3])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))}


class Scorer:
    """The log-likelihood ratio of each gadget in a release, from the numbers of its own regions."""

    def __init__(self, setting: Setting, pair: Pair, plan: Plan, gadgets: int) -> None:
        self._plan, self._gadgets = plan, gadgets
        self._worlds = [_private(setting, [rows] * gadgets) for rows in (pair.here, pair.there)]
        self._known: dict[str, list[Measurements]] = {}

    def __call__(self, output: Measurements) -> Floats:
        here, there = self._views(output)
        scores = np.zeros(self._gadgets)
        for part, one, two in zip(output.measured, here.measured, there.measured, strict=True):
            regions = _by_region(log_ratios(part, one, two), output, part.level, lists=part.view == "sorted_sizes")
            if self._gadgets == 1:
                scores += regions.sum()
            elif part.level > 0:  # the nation's numbers are about all gadgets together
                scores += regions.reshape(self._gadgets, -1).sum(axis=1)
        return scores

    def _views(self, output: Measurements) -> list[Measurements]:
        """The two worlds without noise, asked as this release was after its first measurements."""
        settled, passed = output.settled, output.passed
        plan = self._plan if passed is None else self._plan.branch(few=passed.few)
        lengths = [None if one is None else one.tolist() for one in (settled.totals, settled.places)]
        key = f"{lengths}, {settled.max_size}, {passed}"
        if key not in self._known:
            if len(self._known) > 100:
                self._known.clear()
            self._known[key] = [measured_without_noise(world, plan, settled) for world in self._worlds]
        return self._known[key]


def _by_region(ratios: Floats, output: Measurements, level: int, *, lists: bool) -> Floats:
    """Sums over the numbers of each region."""
    if not lists:
        return np.asarray(ratios.sum(axis=1), np.float64)
    starts = list_starts(output.lengths(level))
    sums = np.concatenate([[0.0], np.cumsum(ratios)])
    found: Floats = sums[starts[1:]] - sums[starts[:-1]]
    return found


# -------------------------------------------------------------------- worlds of a setting


def _alternating(pair: Pair, gadgets: int) -> list[Rows]:
    return [pair.there if number % 2 else pair.here for number in range(gadgets)]


def _private(setting: Setting, states: list[Rows]) -> GroupSizes:
    return group_sizes(states, setting.kind, public_totals=setting.public_totals, one_region=setting.one_region)


def _leaf_counts(setting: Setting, rows: Rows) -> Integers:
    return leaf_counts(rows, public_totals=setting.public_totals, one_region=setting.one_region)


def _read(setting: Setting, states: list[Rows], folder: Path) -> GroupSizes:
    write_files(folder, states, public_totals=setting.public_totals, one_region=setting.one_region)
    return read_files(folder, setting.kind, public_totals=setting.public_totals)


def _decided(setting: Setting, private: GroupSizes, gadgets: int) -> tuple[Mechanism, Plan]:
    neighbours = Neighbours.of(private, PrivacyUnit(setting.unit))  # type: ignore[arg-type]  # a unit's name
    return decided(private, neighbours, **setting.arguments(gadgets))


def _spec(setting: Setting, gadgets: int) -> str:
    """The spec of a release, as a person would write it."""

    def line(key: str, value: Any) -> str:
        return f"{key} = {text(value)}"

    def text(value: Any) -> str:
        if isinstance(value, dict):
            return "{ " + ", ".join(line(*item) for item in value.items()) + " }"
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(text, value))}]"
        return repr(value).replace("'", '"')

    arguments = setting.arguments(gadgets)
    budget = {key: value for key, value in setting.budget.to_json().items() if value is not None}
    sections: dict[str, dict[str, Any]] = {
        "regions": {"table": "regions.csv", "levels": ["nation", "state", "county"]},
        "data": {
            "source": "people.csv",
            "name": "made up",
            **({"groups": "groups.csv"} if setting.public_totals else {}),
            **setting.kind.reading(),
        },
        "privacy": {"unit": setting.unit, "ledger": "ledger.db", **budget},
        "release": {
            "mechanism": setting.mechanism,
            "intervals": "none",
            **({} if arguments["shares"] is None else {"shares": arguments["shares"]}),
        },
        "release.options": arguments["options"] or {},
    }
    return "\n".join(
        "\n".join([f"[{name}]", *(line(*item) for item in values.items()), ""])
        for name, values in sections.items()
        if values
    )
