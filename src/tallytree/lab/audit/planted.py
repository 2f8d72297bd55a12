"""NOT PRIVATE: defects planted on purpose, which an audit must catch from outputs, each against the ε that it claims.

Each is an error in noise, sensitivities, budgets or the selection of rows that occurred in published code, or could
occur in tallytree. Everything except the defect is the code of a release, and the distinguishers are those of the
audit: they do not know the defect. Noise is seeded, so a planted defect is caught every time or never; another `seed`
shows how often.

Two of them are the noise of published papers: `CHAIN_AS_PRINTED` and `shared_noise_measurements` are also used
separately. The PGSR paper gives each number of a level's chain noise for one change by one entity (Section 9.2.2), but
one entity changes as many numbers as the level has regions. So with a stated ε over L levels the real loss is (ε / L) ·
Σ |R_ℓ|, and it is larger still on the paper's own counts from the front, which all shift when a group appears or
vanishes. `pgsr-chain` adds the same noise under the real budget with shares in proportion to |R_ℓ|. That is the plan
made here, so its accounting shows the real ε.

The code that Kuo and others published seeds its generator anew for every region, always with the same number. Their
proof needs independent noise (levels compose in sequence, regions in parallel): with shared noise the difference of two
regions' measurements is exact, and nothing is protected. It also changes the errors. Noise that is the same in all
leaves adds up on the way to the root in proportion to their number, not to its square root; and noise that is the same
above and below makes a parent agree with its children's mistakes. The paper's table can be reproduced with shared noise
and not with independent noise, so shared noise is here for comparison. It takes a `Truth`, which is public or made up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from statistics import median

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.audit.household_rounds import CASES, EPSILON, halved_selection
from tallytree.lab.audit.releases import BUDGETS, Setting, sampled, worst_pairs
from tallytree.lab.audit.verdicts import CONFIDENCE, Row, lower_bound, stated, total_log_ratio
from tallytree.lab.audit.worlds import BY_GROUP, BY_MEMBERS, MAX_SIZE, PEOPLE, QUANTITIES, Kind, pairs, tree
from tallytree.lab.truth import SeededWords, Truth, measured_without_noise, seeded
from tallytree.mechanisms import MECHANISMS, Estimate, Mechanism
from tallytree.mechanisms.budget_allocation import Shares, every_level
from tallytree.mechanisms.pgsr import chain
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, one_entity, one_group
from tallytree.privacy.noise import Randomness
from tallytree.privacy.plan import MeasurementQuery, Plan
from tallytree.privacy.run import measure_with
from tallytree.tables.group_sizes import GroupSizes, Sealed

RUNS_OF_GADGETS, RUNS_OF_RELEASES = 30_000, 800  # runs: many gadgets in one release are cheap
COUNTIES_AS_PRINTED = 40
PURE, CONCENTRATED = BUDGETS
Seed = tuple[object, ...]
Bound = Callable[[Seed, int, float, float], float]  # seed, runs, δ and confidence to a bound on ε


@dataclass(frozen=True)
class Defect:
    """A planted defect, and how to bound ε from its outputs on two neighbours."""

    name: str
    budget: Budget
    neighbours: str
    bound: Bound
    runs: int  # on each of the two data sets
    unit: str = "one_entity"

    def audited(self, confidence: float = CONFIDENCE, tries: int = 1) -> Row:
        """Return the claim, the median bound from outputs over some tries, and how often it exceeds the claim."""
        epsilon, delta = stated(self.budget)
        bounds = [self.bound((self.name, seed), self.runs, delta, confidence) for seed in range(tries)]
        return Row(
            part="planted",
            name=self.name,
            unit=self.unit,
            setting="",
            budget=str(self.budget),
            neighbours=self.neighbours,
            delta=delta,
            claimed=epsilon,
            measurements=median(bounds),
            runs=self.runs,
            power=sum(bound > epsilon for bound in bounds) / tries,
        )


def defects() -> list[Defect]:
    """Return all planted defects."""
    many, few, worst = RUNS_OF_GADGETS, RUNS_OF_RELEASES, "those that the audit of the default takes"

    def released(name: str, altered: Altered, runs: int, budget: Budget = PURE) -> Defect:
        return Defect(name, budget, worst, partial(bound_of_releases, altered, budget), runs, altered.unit)

    return [
        released("noise halved", Altered(_halved), many),
        released("noise halved", Altered(_halved), many, CONCENTRATED),
        released("no noise on zero cells of at_least", Altered(zeros_keep=True), many),
        released("the same noise on two levels", Altered(_repeated, gadgets=1), few),
        released("the same noise in all regions", Altered(_shared, gadgets=1), few),
        released("noise from a fixed seed", Altered(_fixed, gadgets=1), few),
        released("the noise of a count again on the total", Altered(_covariance_forgotten, unit="one_group"), many),
        released(
            "sensitivity of 1, quantities up to 3", Altered(kind=QUANTITIES, declared=PEOPLE, leaves="at_least"), many
        ),
        released("shares that add up to 2", Altered(doubled_shares=True), many),
        Defect(
            "a total not charged where members move groups",
            PURE,
            "a group gains a member and goes to another category",
            _total_not_charged,
            8 * few,
            "one_group",
        ),
        Defect("chain as printed in the paper", PURE, "somebody in a group of 1 others leaves", _printed, few),
        Defect("rows selected by file position", PURE, "somebody in the first line leaves", _by_position, few),
        Defect(
            "selection with sensitivity halved",
            Budget(epsilon=EPSILON),
            CASES[0].what,
            _halved_selection,
            4 * few,
            CASES[0].unit,
        ),
    ]


# -------------------------------------------------------------------- releases


@dataclass(frozen=True)
class Altered:
    """A release of the default mechanism with a defect."""

    noise: Callable[[Randomness, Seed], Randomness] = lambda own, seed: own  # of each release
    zeros_keep: bool = False  # a true value of 0 is published without noise
    doubled_shares: bool = False  # each query spends twice its share
    kind: Kind = PEOPLE
    declared: Kind | None = None  # public bounds that the rows do not keep
    gadgets: int | None = None  # in a release, if not the audit's number
    unit: str = "one_entity"
    leaves: str | None = None  # how leaves are measured, if not by default

    def measure(self, private: GroupSizes, _: Mechanism, plan: Plan, number: int, seed: Seed) -> Iterator[Measurements]:
        """Yield `number` sets of measurements."""
        if self.doubled_shares:  # a `Plan` refuses that, so it is forged
            doubled = tuple(replace(query, share=2 * query.share) for query in plan.queries)
            object.__setattr__(plan, "queries", doubled)
        truth = measured_without_noise(private, plan).measured
        own = seeded(*seed)
        for run in range(number):
            found = measure_with(self.noise(own, (*seed, run)), private, plan)
            if self.zeros_keep:
                kept = (
                    np.where(true.values == 0, 0, one.values) for one, true in zip(found.measured, truth, strict=True)
                )
                parts = zip(found.measured, kept, strict=True)
                found = replace(found, measured=tuple(replace(one, values=values) for one, values in parts))
            yield found


def bound_of_releases(
    altered: Altered, budget: Budget, seed: Seed, runs: int, delta: float, confidence: float
) -> float:
    """Return a bound on ε from outputs, computed like the audit of a setting."""
    options = {} if altered.leaves is None else {"leaves": altered.leaves}
    setting = Setting("tallytree", altered.unit, "private", budget, altered.kind, options)
    worst = worst_pairs(setting)
    found = []
    for pair, _ in worst:
        outputs = sampled(
            setting,
            pair,
            runs // len(worst),
            lambda states: setting.count(states, altered.declared),
            partial(altered.measure, seed=seed),
            gadgets=altered.gadgets,
        )
        found.append(outputs.bound(delta, 1 - (1 - confidence) / (2 * len(worst))))
    return max(found)


def _halved(own: Randomness, seed: Seed) -> Randomness:
    """Return Laplace noise of half the scale, Gaussian noise of half the standard deviation."""

    def laplace(scale: Fraction, count: int) -> Integers:
        return own.laplace(scale / 2, count)

    def gaussian(variance: Fraction, count: int) -> Integers:
        return own.gaussian(variance / 4, count)

    return replace(own, laplace=laplace, gaussian=gaussian)


def _repeated(own: Randomness, seed: Seed) -> Randomness:
    """Return noise that begins with the same numbers in every draw, so levels share their noise."""
    return replace(own, laplace=lambda scale, count: seeded(*seed).laplace(scale, count))


def _shared(own: Randomness, seed: Seed) -> Randomness:
    """Return noise with the same row for all regions of a level, and other rows for other levels."""

    def laplace(scale: Fraction, count: int) -> Integers:
        return np.resize(own.laplace(scale, MAX_SIZE), count)

    return replace(own, laplace=laplace)


def _covariance_forgotten(own: Randomness, seed: Seed) -> Randomness:
    """Return noise in which the total of each row has the noise of its third count, as if both were one number."""

    def laplace(scale: Fraction, count: int) -> Integers:
        rows = own.laplace(scale, count).reshape(-1, MAX_SIZE + 1)
        rows[:, -1] = rows[:, 2]
        return rows.ravel()

    return replace(own, laplace=laplace)


def _fixed(own: Randomness, seed: Seed) -> Randomness:
    """Return the same noise in every release."""
    return seeded("fixed")


# -------------------------------------------------------------------- others


def _printed(seed: Seed, runs: int, delta: float, confidence: float) -> float:
    """Bound ε for the paper's noise on chains over the regions of each level."""
    setting = Setting("pgsr-chain", "one_entity")
    _, pair, *_ = pairs(PEOPLE, "one_entity")
    others = [pair.here[0]] * (COUNTIES_AS_PRINTED // 2 - 1)
    worlds = [setting.count([*states, *others]) for states in (pair.here, pair.there)]
    plan = CHAIN_AS_PRINTED.plan(worlds[0].hierarchy, PURE, one_entity())
    return _bound_by_likelihood(worlds, plan, seed, runs, delta, confidence)


def _total_not_charged(seed: Seed, runs: int, delta: float, confidence: float) -> float:
    """Bound ε if counts and totals by category have the noise of counts, and members can move a group."""
    setting, what = (
        Setting("tallytree", "one_group", kind=BY_MEMBERS),
        "a group goes from 1 to 2 and to another category",
    )
    pair = next(pair for pair in pairs(BY_MEMBERS, "one_group") if pair.what == what)
    worlds = [setting.count(states, BY_GROUP) for states in (pair.here, pair.there)]
    leaves = worlds[0].hierarchy.depth - 1
    plan = Plan(PURE, one_group(), (MeasurementQuery("counts_total", leaves, Fraction(1)),))
    return _bound_by_likelihood(worlds, plan, seed, runs, delta, confidence)


def _by_position(seed: Seed, runs: int, delta: float, confidence: float) -> float:
    """Bound ε if one of each person's two rows is kept by a random number that belongs to the line of the file.

    A seeded engine does this. Without the first line all random numbers fall on other rows: one person changes the rows
    of everyone. (Keeping each person's first row would not be such a defect: it does not depend on other persons'
    rows.)
    """
    ranks = SeededWords("lots").words(200).tolist()
    rows = [(person, county) for person in range(40) for county in (0, 1)]
    worlds = [_kept_by_rank(some, ranks) for some in (rows, [(-1, 0), *rows])]
    plan = every_level("at_least", tree(1), PURE, one_entity())
    return _bound_by_likelihood(worlds, plan, seed, runs, delta, confidence)


def _kept_by_rank(rows: Sequence[tuple[int, int]], ranks: Sequence[int]) -> GroupSizes:
    """Return the groups of the rows with the smallest random number of each person; each row is a group of size 1."""
    kept: dict[int, tuple[int, int]] = {}
    for line, (person, county) in enumerate(rows):
        kept[person] = min(kept.get(person, (2**64, 0)), (ranks[line], county))
    counts = np.zeros((2, MAX_SIZE), np.int64)
    for _, county in kept.values():
        counts[county, 0] += 1
    return GroupSizes(tree(1), MAX_SIZE, Sealed(counts), entity_column=True, rows_were_bounded=True)


def _bound_by_likelihood(
    worlds: Sequence[GroupSizes], plan: Plan, seed: Seed, runs: int, delta: float, confidence: float
) -> float:
    views = [measured_without_noise(world, plan) for world in worlds]
    random = seeded(*seed)
    here, there = (
        np.array([total_log_ratio(measure_with(random, world, plan), *views) for _ in range(runs)]) for world in worlds
    )
    return lower_bound(here, there, delta=delta, confidence=confidence).epsilon


def _halved_selection(seed: Seed, runs: int, delta: float, confidence: float) -> float:
    return lower_bound(*halved_selection(runs, *seed), delta=delta, confidence=confidence).epsilon


# -------------------------------------------------------------------- the noise of the PGSR paper as printed


def real_epsilon(stated: Budget, hierarchy: Hierarchy) -> Fraction:
    """Return the ε that the paper's noise spends if it states `stated`, on `at_least` counts, for either unit."""
    return _stated_epsilon(stated) * len(hierarchy) / hierarchy.depth


def real_epsilon_from_the_front(stated: Budget, hierarchy: Hierarchy, neighbours: Neighbours) -> Fraction:
    """Return the same on the paper's counts from the front.

    If groups persist with a size-0 cell, these counts reveal as much as `at_least` counts. If a group of size 1 can
    vanish, all counts from its cell to the end of the chain change by one: K·|R_ℓ| of them, against noise for the
    `at_least` sensitivity of one region.
    """
    persistent = real_epsilon(stated, hierarchy)
    if neighbours.public_totals:
        return persistent
    all_of_them = neighbours.max_size * neighbours.rows_per_entity
    return persistent * Fraction(all_of_them, neighbours.sensitivity("at_least").l1)


@dataclass(frozen=True)
class AsPrinted(Mechanism):
    """`pgsr-chain` with the paper's noise. Its budget is the stated one; its plan's is the one that is really spent."""

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Plan noise of scale L / ε (times the quantity bound) on every level, charged with its real cost."""
        if shares is not None:
            raise SpecError(f"{self.name} divides its stated budget equally over the levels, as the paper does")
        spent = Budget(epsilon=real_epsilon(budget, hierarchy))
        return every_level("chain", hierarchy, spent, unit, np.diff(hierarchy.level_starts).tolist())


def as_printed(measurements: Measurements) -> Estimate:
    """Estimate by M_c^ch; the certificate gives the ε that was stated and the ε that was spent."""
    hierarchy = measurements.hierarchy
    spent = measurements.budget.amount
    stated = spent * hierarchy.depth / len(hierarchy)
    words = (
        f"NOT PRIVATE as stated: the paper states ε = {as_decimal(stated)}, its noise spends ε = {as_decimal(spent)}"
    )
    return Estimate(chain(measurements).counts, words)


def _stated_epsilon(stated: Budget) -> Fraction:
    if stated.currency != "epsilon":
        raise SpecError("the paper's chain has Laplace noise: give its stated budget as epsilon, without delta")
    return stated.amount


CHAIN_AS_PRINTED = AsPrinted(
    name="pgsr-chain-as-printed",
    symbol="M_c^ch as printed",
    paper=MECHANISMS["pgsr-chain"].paper,
    view="chain",
    estimate=as_printed,
    keeps=MECHANISMS["pgsr-chain"].keeps,
    cost="less than the noise-sampling time; spends many times the ε that it states",
    use="showing what the paper's figures depend on",
    refused="it spends more privacy than it states",
)


# -------------------------------------------------------------------- noise shared by regions and levels


NOT_PRIVATE = "NOT PRIVATE: every region of every level was measured with the same noise"


def shared_noise_measurements(truth: Truth, plan: Plan, *seed: object) -> Measurements:
    """NOT PRIVATE: answer the plan's `at_least` queries with the same noise in every region.

    Levels with equal shares of the budget have the same vector; with unequal ones, vectors from the same random words.
    """
    if any(query.view != "at_least" for query in plan.queries):
        raise SpecError("only `at_least` measurements have as many values in every region, so only they share noise")

    def laplace(scale: Fraction, count: int) -> Integers:
        return np.resize(seeded(*seed).laplace(scale, truth.max_size), count)

    def gaussian(variance: Fraction, count: int) -> Integers:
        return np.resize(seeded(*seed).gaussian(variance, truth.max_size), count)

    shared = replace(
        seeded(*seed), name="shared by regions and levels: NOT PRIVATE", laplace=laplace, gaussian=gaussian
    )
    return measure_with(shared, truth.group_sizes(), plan)


def estimate_with_shared_noise(
    truth: Truth, mechanism: Mechanism, budget: Budget, *seed: object, unit: PrivacyUnit | None = None
) -> Estimate:
    """NOT PRIVATE, and its certificate says so: estimate from measurements that share their noise."""
    plan = mechanism.plan(truth.hierarchy, budget, one_entity() if unit is None else unit)
    found = mechanism.estimate(shared_noise_measurements(truth, plan, *seed))
    return replace(found, certificate=f"{NOT_PRIVATE}; {found.certificate}")
