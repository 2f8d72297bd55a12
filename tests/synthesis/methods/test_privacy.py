"""An exact audit of one round, a selection and a measurement, over all neighbouring tiny data sets.

The round is run by the same code as in a release, with two doors left open: the exponents that the exponential
mechanism chooses by, and the scale of the noise that is added to the counts. From these the exact distribution of all
that a round gives is worked out here, from the definitions, and its Rényi divergences are compared with the price.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import exp, log

import numpy as np
import pytest

from tallytree import Budget
from tallytree.domain.edit_rules import Role, Structure
from tallytree.domain.schema import Marginal
from tallytree.lab.truth import seeded
from tallytree.privacy import selection
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables
from tallytree.synthesis.methods import MethodSession, epsilon_for
from tallytree.synthesis.workload import Workload
from tallytree.tables.households import households_from_codes
from tests.oracles.households import neighbouring_households, schema_of

PLAIN = schema_of({"area": 2}, {"age": 2}, 2)
WITH_ROLES = replace(PLAIN, structure=Structure((Role("head", position=1), Role("second", position=2))))
PRICE = Fraction(1, 3)
SELECTING = Fraction(1, 4)  # of the price
TABLES = {
    "one_group": [
        Marginal("households", ("area",), size=True),
        Marginal("households", ("area",), ("age",)),
        Marginal("persons", (), ("age",)),
    ],
    "one_group_added_or_removed": [Marginal("households", ("area",)), Marginal("persons", ("area",), ("age",))],
    "one_person_attributes": [Marginal("households", (), ("age",)), Marginal("persons", ("area",), ("age",))],
}
BY_ROLE = [
    Marginal("households", (), (), False, (("head", "age"), ("second", "age"))),
    Marginal("households", (), (), True, (("head", "age"),)),
    Marginal("persons", (), ("age",), False, (("head", "age"),)),
]
CASES = [
    *((kind, PLAIN, tables) for kind, tables in sorted(TABLES.items())),
    *((kind, WITH_ROLES, BY_ROLE) for kind in sorted(TABLES)),
]
ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0, 64.0)
REACH = np.arange(-400, 401)


def outcome(data, kind, schema, candidates, monkeypatch):
    """For each place that can be chosen: its chance, and the counts and noise scale of the table that follows."""
    rows = [(home, person) for home, (_, persons) in enumerate(data) for person in persons]
    homes = households_from_codes(
        schema,
        {"area": np.array([attributes[0] for attributes, _ in data], int)},
        {"age": np.array([person[0] for _, person in rows], int)},
        np.array([home for home, _ in rows], int),
        len(data),
    )
    found = []
    for place in range(len(candidates)):
        seen = {}

        def choose(offered, source, place=place, seen=seen):
            seen["exponents"] = [offered.exponent(which) for which in range(len(offered.scores))]
            return place

        def no_noise(scale, count, seen=seen):
            seen["scale"] = scale
            return np.zeros(count, np.int64)

        monkeypatch.setattr(selection, "choose", choose)
        neighbours = HouseholdNeighbours(PrivacyUnit(kind), schema.max_persons)
        tables = PrivateTables(homes, neighbours, Budget(rho=PRICE), randomness=replace(seeded(0), gaussian=no_noise))
        session = MethodSession(tables, Workload(schema, tuple(candidates)))
        epsilon = epsilon_for(PRICE * SELECTING)
        estimates = [np.ones(table.shape(schema), np.int64) for table in candidates]
        chosen = session.select(candidates, estimates, epsilon, [0, 1, 1][: len(candidates)], _weights(candidates))
        measured = session.measure(chosen, PRICE - epsilon**2 / 8)
        assert tables.left == 0
        found.append((seen["exponents"], measured.values.astype(int).ravel(), seen["scale"]))
    top = max(found[0][0])
    raised = [exp(exponent - top) for exponent in found[0][0]]
    return [(weight / sum(raised), counts, scale) for weight, (_, counts, scale) in zip(raised, found, strict=True)]


def _weights(candidates):
    return [Fraction(1), Fraction(1, 2), Fraction(3, 4)][: len(candidates)]


def renyi(one, other, order):
    """The divergence of a pair of outcomes: over places, and over whole numbers with discrete Gaussian noise."""
    terms = []
    for (chance, counts, scale), (other_chance, other_counts, other_scale) in zip(one, other, strict=True):
        assert scale == other_scale  # a scale that depended on the data would be a leak of its own
        logs = -(REACH**2) / (2 * float(scale))
        norm = np.log(np.exp(logs).sum())
        term = order * log(chance) + (1 - order) * log(other_chance)
        for shift in (counts - other_counts).tolist():
            apart = -((REACH + shift) ** 2) / (2 * float(scale))
            term += float(np.logaddexp.reduce(order * logs + (1 - order) * apart)) - float(norm)
        terms.append(term)
    return float(np.logaddexp.reduce(terms)) / (order - 1)


def tiny_neighbours(kind, schema):
    rest = (((0,), ((0,), (1,))), ((1,), ((1,),)))
    for one, other in neighbouring_households(schema, kind):
        yield (*one, *rest), (*other, *rest)


@pytest.mark.parametrize(("kind", "schema", "tables"), CASES)
def test_a_round_diverges_by_no_more_than_its_price_between_any_neighbours(kind, schema, tables, monkeypatch):
    known = {}

    def of(data):
        if data not in known:
            known[data] = outcome(data, kind, schema, tables, monkeypatch)
        return known[data]

    worst = dict.fromkeys(ORDERS, 0.0)
    for one, other in tiny_neighbours(kind, schema):
        for left, right in ((of(one), of(other)), (of(other), of(one))):
            for order in ORDERS:
                worst[order] = max(worst[order], renyi(left, right, order))
    for order in ORDERS:
        assert worst[order] <= float(PRICE) * order * (1 + 1e-9)
    # The audit would notice noise that is too small: most of what was paid for is really lost.
    assert worst[2.0] > 0.5 * float(PRICE) * 2.0
