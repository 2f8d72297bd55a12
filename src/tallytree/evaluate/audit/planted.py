"""NOT PRIVATE: defects planted on purpose, which an audit must catch from outputs, each against the ε that it claims.

Each is a way in which noise, sensitivities, budgets or lots have gone wrong in published code, or could in ours. All
but the defect is what a release runs. Noise is seeded, so that a planted defect is caught every time or never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.evaluate.audit.as_printed import CHAIN_AS_PRINTED
from tallytree.evaluate.audit.bounds import CONFIDENCE, lower_bound
from tallytree.evaluate.audit.loss import total_log_ratio
from tallytree.evaluate.audit.releases import BUDGETS, Scorer, Setting
from tallytree.evaluate.audit.results import Row, stated
from tallytree.evaluate.audit.rounds import CASES, EPSILON, halved_selection
from tallytree.evaluate.audit.shared_noise import shared_noise_measurements
from tallytree.evaluate.audit.worlds import (
    MAX_SIZE,
    PEOPLE,
    QUANTITIES,
    Kind,
    Pair,
    group_sizes,
    leaf_counts,
    pairs,
    tree,
)
from tallytree.evaluate.truth import SeededWords, Truth, measured_without_noise, seeded
from tallytree.privacy.budget import Budget
from tallytree.privacy.measure import measure_with
from tallytree.privacy.neighbours import one_entity
from tallytree.privacy.noise.randomness import Randomness
from tallytree.privacy.plan import Plan, every_level
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.sealed import Sealed

GADGETS = 1000
RUNS_OF_GADGETS, RUNS_OF_RELEASES = 10_000, 800  # runs: many gadgets in one release are cheap
COUNTIES_AS_PRINTED = 40
PURE, CONCENTRATED = BUDGETS
Scores = tuple[Floats, Floats]


@dataclass(frozen=True)
class Defect:
    """A planted defect: how to sample the scores of its outputs on two neighbours."""

    name: str
    budget: Budget
    neighbours: str
    scores: Callable[[int], Scores]
    runs: int  # on each of the two data sets
    unit: str = "one_entity"

    def audited(self, confidence: float = CONFIDENCE) -> Row:
        """The claim, and the bound from outputs."""
        epsilon, delta = stated(self.budget)
        bound = lower_bound(*self.scores(self.runs), delta=delta, confidence=confidence)
        return Row(
            part="planted",
            name=self.name,
            unit=self.unit,
            setting="",
            budget=str(self.budget),
            neighbours=self.neighbours,
            delta=delta,
            claimed=epsilon,
            measurements=bound.epsilon,
            runs=self.runs,
        )


def defects() -> list[Defect]:
    """All of them."""
    alone, pair, *_ = pairs(PEOPLE, "one_entity")
    return [
        Defect("noise halved", PURE, alone.what, partial(_halved, PURE, alone), RUNS_OF_GADGETS),
        Defect("noise halved", CONCENTRATED, alone.what, partial(_halved, CONCENTRATED, alone), RUNS_OF_GADGETS),
        Defect("noise shared by regions", PURE, alone.what, partial(_shared, alone), RUNS_OF_RELEASES),
        Defect("sensitivity of 1, quantities up to 2", PURE, "somebody who adds 2 leaves", _short, RUNS_OF_GADGETS),
        Defect("chain as printed in the paper", PURE, pair.what, partial(_printed, pair), RUNS_OF_RELEASES),
        Defect("lots by file position", PURE, "somebody in the first line leaves", _by_position, RUNS_OF_RELEASES),
        Defect("shares that add up to 2", PURE, alone.what, partial(_overspent, alone), RUNS_OF_GADGETS),
        Defect(
            "selection with sensitivity halved",
            Budget(epsilon=EPSILON),
            CASES[0].what,
            halved_selection,
            2 * RUNS_OF_RELEASES,
            CASES[0].unit,
        ),
        Defect("noise from a fixed seed", PURE, alone.what, partial(_repeated, alone), RUNS_OF_RELEASES),
    ]


# -------------------------------------------------------------------- one release, many gadgets


def _halved(budget: Budget, pair: Pair, runs: int) -> Scores:
    """Laplace noise of half the scale, Gaussian of half the standard deviation."""
    own = seeded("halved")

    def laplace(scale: Fraction, count: int) -> Integers:
        return own.laplace(scale / 2, count)

    def gaussian(variance: Fraction, count: int) -> Integers:
        return own.gaussian(variance / 4, count)

    return _of_gadgets(_cumulative(budget), pair, runs, replace(own, laplace=laplace, gaussian=gaussian))


def _short(runs: int) -> Scores:
    """A row adds 2, and the noise is for 1: what one row can add was declared too small."""
    pair = next(one for one in pairs(QUANTITIES, "one_entity") if one.there[-1][2] == 2)
    setting = replace(_cumulative(PURE), kind=QUANTITIES)
    return _of_gadgets(setting, pair, runs, seeded("short"), declared=PEOPLE)


def _overspent(pair: Pair, runs: int) -> Scores:
    """Each level is measured with twice its share; a `Plan` refuses that, so it is forged."""

    def forged(plan: Plan) -> Plan:
        doubled = tuple(replace(question, share=2 * question.share) for question in plan.questions)
        object.__setattr__(plan, "questions", doubled)
        return plan

    return _of_gadgets(_cumulative(PURE), pair, runs, seeded("overspent"), change=forged)


def _cumulative(budget: Budget) -> Setting:
    return Setting("pgsr-cumulative-dp", "one_entity", public_totals=False, budget=budget)


def _of_gadgets(
    setting: Setting,
    pair: Pair,
    runs: int,
    randomness: Randomness,
    *,
    declared: Kind | None = None,
    change: Callable[[Plan], Plan] = lambda plan: plan,
) -> Scores:
    """As `releases.from_measurements`, with other randomness, bounds or plan."""
    states = [pair.there if number % 2 else pair.here for number in range(GADGETS)]
    private = group_sizes(states, setting.kind, public_totals=False, declared=declared)
    arguments = setting.arguments(GADGETS)
    plan = every_level("at_least", private.hierarchy, setting.budget, one_entity(), arguments["shares"])
    plan = change(plan)
    scorer = Scorer(setting, pair, plan, GADGETS)
    found = np.array([scorer(measure_with(randomness, private, plan)) for _ in range(-(-2 * runs // GADGETS))])
    return found[:, ::2].ravel(), found[:, 1::2].ravel()


# -------------------------------------------------------------------- one gadget in each release


def _shared(pair: Pair, runs: int) -> Scores:
    """One vector of noise for all regions: in the difference of two counties nothing of it is left."""
    truths = [
        Truth("made up", tree(1), leaf_counts(rows, public_totals=False), public_totals=False)
        for rows in (pair.here, pair.there)
    ]
    plan = every_level("at_least", tree(1), PURE, one_entity())
    expected = _difference(measured_without_noise(truths[0].group_sizes(), plan).measured[1].values)

    def score(truth: Truth, run: int) -> float:
        measured = shared_noise_measurements(truth, plan, "shared", run).measured[1].values
        return -float(np.abs(_difference(measured) - expected).sum())

    return _each(truths, runs, score)


def _difference(values: Integers) -> Integers:
    difference: Integers = values[0] - values[1]
    return difference


def _printed(pair: Pair, runs: int) -> Scores:
    """The paper's noise on chains over the regions of each level."""
    others = [pair.here] * (COUNTIES_AS_PRINTED // 2 - 1)
    states = [[rows, *others] for rows in (pair.here, pair.there)]
    worlds = [group_sizes(some, PEOPLE, public_totals=False) for some in states]
    plan = CHAIN_AS_PRINTED.plan(worlds[0].hierarchy, PURE, one_entity())
    return _by_likelihood(worlds, plan, runs, "printed")


def _repeated(pair: Pair, runs: int) -> Scores:
    """The same noise in every run: who has seen the generator subtracts it."""
    worlds = [group_sizes([rows], PEOPLE, public_totals=False) for rows in (pair.here, pair.there)]
    plan = every_level("at_least", tree(1), PURE, one_entity())
    expected = measure_with(seeded(0), worlds[0], plan)

    def score(world: GroupSizes, run: int) -> float:
        found = measure_with(seeded(0), world, plan)
        pairs_of = zip(found.measured, expected.measured, strict=True)
        return -float(sum(np.abs(one.values - two.values).sum() for one, two in pairs_of))

    return _each(worlds, runs, score)


def _by_position(runs: int) -> Scores:
    """Of each person's two rows one is kept, by a lot that belongs to the line of the file: a seeded engine does so.

    Without the first line all lots fall on other rows: one person moves the rows of all. (To keep each person's first
    row would be no such defect: it depends on nobody else's rows.)
    """
    lots = SeededWords("lots").words(200).tolist()
    rows = [(person, county) for person in range(40) for county in (0, 1)]
    worlds = [_kept_by_lot(some, lots) for some in (rows, [(-1, 0), *rows])]
    plan = every_level("at_least", tree(1), PURE, one_entity())
    return _by_likelihood(worlds, plan, runs, "lots")


def _kept_by_lot(rows: Sequence[tuple[int, int]], lots: Sequence[int]) -> GroupSizes:
    """The groups of the rows with the smallest lot of each person; each row's group is its own, of size 1."""
    kept: dict[int, tuple[int, int]] = {}
    for line, (person, county) in enumerate(rows):
        kept[person] = min(kept.get(person, (2**64, 0)), (lots[line], county))
    counts = np.zeros((2, MAX_SIZE), np.int64)
    for _, county in kept.values():
        counts[county, 0] += 1
    return GroupSizes(tree(1), MAX_SIZE, Sealed(counts), entity_column=True, rows_were_bounded=True)


def _by_likelihood(worlds: Sequence[GroupSizes], plan: Plan, runs: int, seed: str) -> Scores:
    views = [measured_without_noise(world, plan) for world in worlds]
    random = seeded(seed)

    def score(world: GroupSizes, run: int) -> float:
        return total_log_ratio(measure_with(random, world, plan), *views)

    return _each(worlds, runs, score)


def _each(worlds: Sequence[object], runs: int, score: Callable[..., float]) -> Scores:
    here, there = ([score(world, run) for run in range(runs)] for world in worlds)
    return np.array(here), np.array(there)
