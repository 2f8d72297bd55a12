"""NOT PRIVATE: audit the rounds of synthesis: selections, measurements, and both together, under each unit.

One `PrivateTables` with a budget for many rounds answers the same query repeatedly: each answer is one output, with its
own randomness, and the claim of a round is its cost. A selection is made among ten tables, one whose score rises by its
sensitivity between the neighbours and nine whose score falls by it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, log

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import ReleaseError
from tallytree.domain.edit_rules import Role, Structure
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.lab.audit.verdicts import CONFIDENCE, Row, exact_epsilon, lower_bound, stated
from tallytree.lab.audit.worlds import Home, counts_of_homes, households_of
from tallytree.lab.truth import SeededWords
from tallytree.privacy.budget import Budget
from tallytree.privacy.measurements import Measurement
from tallytree.privacy.neighbours import HouseholdNeighbours, HouseholdUnitKind, PrivacyUnit
from tallytree.privacy.private_tables import NoisyTable, PrivateTables
from tallytree.privacy.selection import candidates, choose

SCHEMA = Schema(
    (Attribute("area", ("0", "1")),),
    (Attribute("age", ("0", "1")),),
    2,
    Structure((Role("head", position=1),)),
)
ROUNDS = ("measure a table", "measure a table by role", "select a table", "select, then measure")
DELTA = Fraction(1, 100)
RHO = Fraction(1, 2)  # of a measurement
EPSILON = Fraction(2)  # of a selection; in ρ it costs ε²/8 = 1/2 too
FALLING = 9  # candidates whose scores fall where one rises: more of them bring a choice nearer to its ε
AT_A_TIME = 250  # rounds of one `PrivateTables`, which adds up what was spent before each

KEPT: tuple[Home, ...] = ((0, ((0,), (1,))), (1, ((1,),)))  # an area, and each person's age
TABLE = Marginal("persons", ("area",), ("age",))
OTHER = Marginal("households", ("area",), ("age",))
BY_ROLE = Marginal("households", ("area",), roles=(("head", "age"),))


@dataclass(frozen=True)
class Case:
    """A unit, and two neighbours that differ as much as it allows."""

    unit: HouseholdUnitKind
    what: str
    here: tuple[Home, ...]
    there: tuple[Home, ...]

    @property
    def neighbours(self) -> HouseholdNeighbours:
        """Return the relation."""
        return HouseholdNeighbours(PrivacyUnit(self.unit), SCHEMA.max_persons)


TWO, OTHERS = (0, ((0,), (0,))), (1, ((1,), (1,)))
CASES = (
    Case("one_group", "a household is replaced", (TWO, *KEPT), (OTHERS, *KEPT)),
    Case("one_group_added_or_removed", "a household leaves", (TWO, *KEPT), KEPT),
    Case("one_person_attributes", "a person changes", ((0, ((0,),)), *KEPT), ((0, ((1,),)), *KEPT)),
)


def _counts(homes: tuple[Home, ...], table: Marginal) -> Integers:
    return counts_of_homes(SCHEMA, homes, table)


def audited_round(kind: str, case: Case, runs: int, confidence: float = CONFIDENCE) -> Row:
    """Return the claim of a kind of round under a unit, and the bounds."""
    if kind == "select a table":
        budget, scores, exact = Budget(epsilon=EPSILON), _selected(case, runs), _exact_choice(case)
    elif kind.startswith("measure"):
        table = BY_ROLE if "role" in kind else TABLE
        budget, scores, exact = Budget(rho=RHO, delta=DELTA), _measured(case, runs, table), _exact_measure(case, table)
    else:
        budget, scores, exact = Budget(rho=RHO + EPSILON**2 / 8, delta=DELTA), _both(case, runs), None
    epsilon, delta = stated(budget)
    return Row(
        part="synthesis",
        name=kind,
        unit=case.unit,
        setting="",
        budget=str(budget),
        neighbours=case.what,
        delta=delta,
        claimed=epsilon,
        exact=exact,
        measurements=lower_bound(*scores, delta=delta, confidence=confidence).epsilon,
        runs=runs,
    )


# -------------------------------------------------------------------- exactly


def _exact_measure(case: Case, table: Marginal) -> float:
    def as_measured(homes: tuple[Home, ...]) -> list[Measurement]:
        sensitivity = case.neighbours.sensitivity(table, SCHEMA)
        scale = sensitivity.l2_squared / (2 * RHO)
        values = _counts(homes, table)
        return [Measurement("counts", 0, Fraction(1), sensitivity, "discrete_gaussian", scale, 0.0, values)]

    return exact_epsilon(as_measured(case.here), as_measured(case.there), float(DELTA))


def _exact_choice(case: Case) -> float:
    """Return the largest log ratio of a place's chances on the two data sets, from the definition."""
    return max(abs(log(one / two)) for one, two in zip(*choice_chances(case), strict=True))


def choice_chances(
    case: Case, sensitivity_factor: Fraction = Fraction(1), falling: int = FALLING
) -> tuple[list[float], list[float]]:
    """Return the chances of each place, on either data set."""
    estimates = _estimates(case, falling)
    bounds = [float(case.neighbours.sensitivity(TABLE, SCHEMA).l1 * sensitivity_factor)] * len(estimates)
    return _chances(case.here, [TABLE] * len(estimates), estimates, bounds), _chances(
        case.there, [TABLE] * len(estimates), estimates, bounds
    )


def _chances(
    homes: tuple[Home, ...], tables: Sequence[Marginal], estimates: Sequence[Integers], bounds: Sequence[float]
) -> list[float]:
    """Return P ∝ exp(ε u / 2), with u the score of each place over its sensitivity."""
    scores = [float(np.abs(_counts(homes, table) - one).sum()) for table, one in zip(tables, estimates, strict=True)]
    weights = [exp(float(EPSILON) * score / (2 * bound)) for score, bound in zip(scores, bounds, strict=True)]
    return [weight / sum(weights) for weight in weights]


def _estimates(case: Case, falling: int = FALLING) -> list[Integers]:
    """Return an estimate that is correct here, so that its score rises, and others that are correct there."""
    return [_counts(case.here, TABLE), *(_counts(case.there, TABLE) for _ in range(falling))]


def choice_rho(case: Case, falling: int) -> float:
    """Return a ρ below which the choice is not ρ-zCDP on these two data sets: the worst D_α/α over many orders α."""
    one, two = (np.array(chances) for chances in choice_chances(case, falling=falling))
    orders = 1 + np.geomspace(1e-3, 1e4, 400)
    logs = [np.logaddexp.reduce(order * np.log(one) + (1 - order) * np.log(two)) / (order - 1) for order in orders]
    return float(max(np.array(logs) / orders))


# -------------------------------------------------------------------- from outputs


def _measured(case: Case, runs: int, table: Marginal) -> tuple[Floats, Floats]:
    views = [_counts(homes, table) for homes in (case.here, case.there)]

    def score(tables: PrivateTables) -> float:
        return _ratio(_given(tables.measure(table, RHO)), *views)

    return _scores(case, runs, RHO, score)


def _selected(case: Case, runs: int) -> tuple[Floats, Floats]:
    here, there = choice_chances(case)
    estimates = _estimates(case)

    def score(tables: PrivateTables) -> float:
        place = tables.select([TABLE] * len(estimates), estimates, EPSILON)
        assert place is not None
        return log(there[place] / here[place])

    return _scores(case, runs, EPSILON**2 / 8, score)


def _both(case: Case, runs: int) -> tuple[Floats, Floats]:
    """Select a table and then measure it, as a method of synthesis does; the ratios of both outputs add up."""
    tables_of = (TABLE, OTHER)
    views = {table: [_counts(homes, table) for homes in (case.here, case.there)] for table in tables_of}
    bounds = [float(case.neighbours.sensitivity(table, SCHEMA).l1) for table in tables_of]
    estimates = [views[TABLE][0], views[OTHER][1]]
    chances = [_chances(homes, tables_of, estimates, bounds) for homes in (case.here, case.there)]

    def score(tables: PrivateTables) -> float:
        place = tables.select(list(tables_of), estimates, EPSILON)
        assert place is not None
        chosen = tables_of[place]
        return log(chances[1][place] / chances[0][place]) + _ratio(_given(tables.measure(chosen, RHO)), *views[chosen])

    return _scores(case, runs, RHO + EPSILON**2 / 8, score)


def _scores(case: Case, runs: int, price: Fraction, score: Callable[[PrivateTables], float]) -> tuple[Floats, Floats]:
    """Return `runs` scores on each data set; every round is charged its cost."""
    found = []
    for homes in (case.here, case.there):
        private = households_of(SCHEMA, homes)
        mine: list[float] = []
        while len(mine) < runs:
            number = min(AT_A_TIME, runs - len(mine))
            tables = PrivateTables(private, case.neighbours, Budget(rho=number * price))
            mine += [score(tables) for _ in range(number)]
            tables.close()
        found.append(np.array(mine))
    return found[0], found[1]


def halved_selection(runs: int, *seed: object) -> tuple[Floats, Floats]:
    """Plant a defect: the selection above with sensitivities halved. Seeded."""
    case, words = CASES[0], SeededWords("halved selection", *seed)
    estimates = _estimates(case)
    bound = case.neighbours.sensitivity(TABLE, SCHEMA).l1 // 2
    here, there = choice_chances(case, Fraction(1, 2))
    found = []
    for homes in (case.here, case.there):
        counts = _counts(homes, TABLE)
        scores = np.array([int(np.abs(counts - one).sum()) for one in estimates], np.int64)
        offered = candidates(scores, bound, EPSILON)
        places = [choose(offered, words) for _ in range(runs)]
        found.append(np.array([log(there[place] / here[place]) for place in places]))
    return found[0], found[1]


def _ratio(noisy: NoisyTable, here: Integers, there: Integers) -> float:
    """Return the log-likelihood ratio of a measured table."""
    return float(((noisy.values - here) ** 2 - (noisy.values - there) ** 2).sum() / (2 * float(noisy.scale)))


def _given(noisy: NoisyTable | None) -> NoisyTable:
    if noisy is None:
        raise ReleaseError("a round was lost in an audit, which keeps no journal: please report this bug in tallytree")
    return noisy
