"""The paper's chain with the paper's noise: what it really spends, exactly, and that it can be run but not released."""

from __future__ import annotations

import pickle
from fractions import Fraction

import numpy as np
import pytest

from tallytree import Budget, Hierarchy, SpecError, one_entity, one_group
from tallytree.lab import Truth
from tallytree.lab.audit.planted import CHAIN_AS_PRINTED, real_epsilon, real_epsilon_from_the_front
from tallytree.lab.truth import seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.privacy import Neighbours
from tests.oracles.loss import MAX_SIZE, US, leaf_counts, measured_without_noise, worst_loss
from tests.oracles.trees import even_tree

STATED = Budget(epsilon="0.3")
EPSILON = Fraction(3, 10)
UNITS = [one_entity(), one_group()]


def from_the_front(data, public_totals):
    """The paper's Section 9.2: each level's counts in size-major order, summed from the front, with noise L / ε."""
    scale = 2 / EPSILON
    counts = US.aggregate(leaf_counts(data, public_totals))
    return [(np.cumsum(counts[US.level_slice(level)].T.ravel()), scale) for level in range(2)]


def test_as_printed_one_person_households_that_vanish_cost_seven_and_a_half_times_the_stated_epsilon():
    worst = worst_loss(one_entity(), False, lambda data: from_the_front(data, False))
    assert worst == Fraction(15, 2) * EPSILON
    assert worst == real_epsilon_from_the_front(STATED, US, Neighbours(one_entity(), MAX_SIZE, public_totals=False))


def test_as_printed_with_groups_that_persist_it_still_costs_one_and_a_half_times_as_much():
    worst = worst_loss(one_entity(), True, lambda data: from_the_front(data, True))
    assert worst == Fraction(3, 2) * EPSILON
    assert worst == real_epsilon_from_the_front(STATED, US, Neighbours(one_entity(), MAX_SIZE, public_totals=True))


@pytest.mark.parametrize("public_totals", [False, True])
def test_on_survival_counts_the_papers_noise_costs_what_the_plan_says(public_totals):
    plan = CHAIN_AS_PRINTED.plan(US, STATED, one_entity())
    assert plan.budget.amount == real_epsilon(STATED, US) == Fraction(3, 2) * EPSILON
    look = {}
    worst = worst_loss(
        one_entity(),
        public_totals,
        lambda data: look.setdefault(str(data), measured_without_noise(data, plan, public_totals)),
    )
    assert worst == Fraction(3, 2) * EPSILON
    assert {scale for parts in look.values() for _, scale in parts} == {2 / EPSILON}  # the paper's L / ε


def test_ours_stays_within_the_same_stated_budget():
    for unit in UNITS:
        plan = MECHANISMS["pgsr-chain"].plan(US, STATED, unit)
        assert worst_loss(unit, False, lambda data, plan=plan: measured_without_noise(data, plan, False)) <= EPSILON


def test_the_real_loss_grows_with_the_regions():
    census, taxi = even_tree(52, 3144), even_tree(6, 263)
    assert real_epsilon(Budget(epsilon=1), census) == Fraction(3197, 3)  # about 1,066
    assert real_epsilon(Budget(epsilon=1), taxi) == 90
    one_region = Hierarchy.from_levels({"nation": ["US"]}, ["nation"])
    assert real_epsilon(Budget(epsilon=1), one_region) == 1
    with pytest.raises(SpecError, match="epsilon"):
        real_epsilon(Budget(rho=1), census)


def test_it_runs_as_any_mechanism_does_and_says_what_it_spent():
    tree = even_tree(4, 12)
    truth = Truth("made up", tree, np.random.default_rng(1).poisson(5, (12, 6)), public_totals=True)
    for unit in UNITS:
        mechanism = pickle.loads(pickle.dumps(CHAIN_AS_PRINTED))  # noqa: S301
        measurements = seeded_measurements(truth, mechanism.plan(tree, Budget(epsilon=1), unit), 1)
        assert sum(part.cost for part in measurements.measured) == Fraction(17, 3)
        estimate = mechanism.estimate(measurements)
        assert "NOT PRIVATE" in estimate.certificate
        assert "states ε = 1," in estimate.certificate
        assert "spends ε = 5.66" in estimate.certificate
        assert estimate.counts[0].sum() == truth.counts.sum()
    with pytest.raises(SpecError, match="equally"):
        CHAIN_AS_PRINTED.plan(tree, Budget(epsilon=1), one_entity(), shares=[1, 2, 3])


def test_it_is_not_registered_and_would_be_refused():
    assert CHAIN_AS_PRINTED.name not in MECHANISMS
    with pytest.raises(SpecError, match="spends more privacy than it states"):
        CHAIN_AS_PRINTED.check(Neighbours(one_entity(), MAX_SIZE, public_totals=True))


def test_with_honest_noise_the_chain_is_far_off():
    tree = even_tree(6, 60)
    truth = Truth("made up", tree, np.random.default_rng(2).poisson(20, (60, 8)), public_totals=True)
    errors = {}
    for mechanism in (CHAIN_AS_PRINTED, MECHANISMS["pgsr-chain"], MECHANISMS["pgsr-cumulative-dp"]):
        plan = mechanism.plan(tree, Budget(epsilon=1), one_entity())
        counts = mechanism.estimate(seeded_measurements(truth, plan, 3)).counts
        errors[mechanism.name] = int(np.abs(counts - truth.all_levels())[tree.level_slice(2)].sum())
    assert 3 * max(errors["pgsr-chain-as-printed"], errors["pgsr-cumulative-dp"]) < errors["pgsr-chain"]
