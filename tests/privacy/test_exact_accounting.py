"""Exact accounting of Gaussian noise against sums over all outcomes and against dp_accounting."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_mechanism import DiscreteGaussianPrivacyLoss

from tallytree import Budget, BudgetError, measure, one_entity, one_group
from tallytree.lab.truth import seeded
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.privacy import exact_accounting
from tallytree.privacy.budget import largest_rho
from tallytree.privacy.exact_accounting import (
    BY_ONE,
    account_exactly,
    bound_delta,
    check_accounted,
    count_by_one,
    smallest_factor,
)
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Band, BranchRule, MeasurementQuery, Plan
from tallytree.privacy.run import measure_with
from tests.privacy.test_measure import TREE, sizes
from tests.privacy.test_neighbours import RELATIONS, changes


def probabilities(variance, most=60):
    """The probabilities of discrete Gaussian noise from −most to most."""
    noise = np.arange(-most, most + 1)
    weights = np.exp(-(noise**2) / (2 * float(variance)))
    return weights / weights.sum()


def exact_delta(variances, epsilon):
    """The sum over all outcomes of what is more likely than e^ε times, where each integer differs by 1."""
    here, there = np.ones(1), np.ones(1)
    for variance in variances:
        law = probabilities(variance)
        here = np.multiply.outer(here, np.append(law, 0)).ravel()
        there = np.multiply.outer(there, np.append(0, law)).ravel()
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


@pytest.mark.parametrize("epsilon", ["1/3", "1", "3"])
@pytest.mark.parametrize("variances", [(1,), (7,), ("1/2",), (4, 9), ("3/2", 5), (3, 3)], ids=str)
def test_the_bound_is_just_above_the_sum_over_all_outcomes(variances, epsilon):
    exact = exact_delta([Fraction(one) for one in variances], float(Fraction(epsilon)))
    cells = tuple((Fraction(one), 1) for one in variances)
    found = bound_delta(cells, Fraction(epsilon), Fraction(1, 10**9))
    assert exact <= found * (1 + 1e-12)
    assert found <= exact * 1.05 + 1e-12


def test_integers_with_the_same_noise_are_counted_as_often_as_they_are_listed():
    once = bound_delta(((Fraction(9), 3),), Fraction(1), Fraction(1, 10**9))
    each = bound_delta(((Fraction(9), 1),) * 3, Fraction(1), Fraction(1, 10**9))
    assert once == pytest.approx(each, rel=1e-3)


def test_less_noise_gives_a_larger_delta():
    found = [
        bound_delta(((Fraction(factor, 4) * 20, 2), (Fraction(factor, 4) * 40, 1)), Fraction(1), Fraction(1, 10**9))
        for factor in range(2, 9)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > 10 * found[-1]


SETTINGS = [("3/10", "1e-6", 5, 0.87), ("1", "1e-6", 5, 0.88), ("1", "1e-9", 5, 0.92), ("3", "1e-9", 10, 0.925)]


def equal_cells(epsilon, delta, count):
    """As many integers as levels with equal shares, with the noise of the conversion from ρ."""
    return ((count / (2 * largest_rho(epsilon, delta)), count),)


@pytest.mark.parametrize(("epsilon", "delta", "count", "most"), SETTINGS, ids=str)
def test_the_factor_is_what_dp_accounting_finds(epsilon, delta, count, most):
    """Theirs is pessimistic too: at our noise it allows the δ, and with a hundredth less noise it does not."""
    epsilon, delta = Fraction(epsilon), Fraction(delta)
    cells = equal_cells(epsilon, delta, count)
    factor = smallest_factor(cells, epsilon, delta)
    assert factor <= most

    def theirs(variance):
        one = privacy_loss_distribution.from_discrete_gaussian_mechanism(
            float(variance) ** 0.5, value_discretization_interval=1e-4, use_connect_dots=True
        )
        return one.self_compose(count).get_delta_for_epsilon(float(epsilon))

    variance = cells[0][0] * factor
    assert theirs(variance) <= float(delta) * (1 + 1e-3)
    assert theirs(variance * Fraction(98, 100)) > float(delta)


def test_theirs_has_the_same_law_for_one_integer():
    theirs = DiscreteGaussianPrivacyLoss(3.0, sensitivity=1)
    for epsilon in (0.1, 0.5, 1.5):
        found = bound_delta(((Fraction(9), 1),), Fraction(str(epsilon)), Fraction(1, 10**9))
        assert found == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=0.05, abs=1e-12)


def test_a_finer_grid_finds_no_larger_factor(monkeypatch):
    epsilon, delta = Fraction(1), Fraction("1e-6")
    cells, found = equal_cells(epsilon, delta, 3), []
    for grid in (250, 1000, 4000):
        monkeypatch.setattr(exact_accounting, "GRID", grid)
        smallest_factor.cache_clear()
        bound_delta.cache_clear()
        found.append(smallest_factor(cells, epsilon, delta))
    smallest_factor.cache_clear()
    bound_delta.cache_clear()
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_noise_too_wide_for_the_sums_keeps_the_conversion():
    epsilon, delta = Fraction(1, 10**6), Fraction("1e-9")
    assert bound_delta(((Fraction(10**14), 1),), epsilon, delta) == math.inf
    assert smallest_factor(((Fraction(10**14), 1),), epsilon, delta) == 1


@pytest.mark.parametrize("view", ["counts", "counts_total", "at_least", "totals", "entities"])
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_views_that_are_counted_by_one_move_by_at_most_one_in_each_integer(relation, view):
    """Over all small neighbouring data sets; and no more integers of a level differ than are counted."""
    if view == "counts_total" and relation.public_totals:
        return  # refused
    sensitivity = relation.sensitivity(view)
    count = count_by_one(view, sensitivity)
    if view not in BY_ONE or sensitivity.l1 != sensitivity.l2_squared:
        assert count is None
        return
    for change in changes(relation, view):
        for level in change:
            assert np.abs(level).max() <= 1
            assert np.abs(level).sum() <= count


GAUSSIAN = Budget(epsilon=1, delta="1e-6", noise="gaussian")
REGIONS = np.diff(TREE.level_starts).tolist()


def accounted(view, unit):
    """A plan for a view on every level, exactly accounted."""
    plan = every_level(view, TREE, GAUSSIAN, unit)
    return replace(plan, budget=account_exactly(GAUSSIAN, plan, Neighbours.of(sizes(), unit), REGIONS))


@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=str)
@pytest.mark.parametrize("view", ["counts", "at_least"])
def test_a_plan_gets_less_noise_and_its_measurements_are_proved(view, unit):
    plan = accounted(view, unit)
    assert plan.budget.is_accounted
    assert plan.budget.amount > GAUSSIAN.amount * Fraction(100, 93)
    found = measure_with(seeded(1), sizes(), plan)
    check_accounted(found.budget, found.measured)
    assert Budget.from_json(found.budget.to_json()) == found.budget
    if view == "at_least" and unit == one_entity():
        assert exact_delta([one.scale for one in found.measured[:2]], 1.0) < 1e-6


def test_other_views_bands_and_plans_with_a_branch_rule_keep_the_conversion():
    leaves, relation = TREE.depth - 1, Neighbours.of(sizes(), one_group())
    totals = MeasurementQuery("totals", leaves, Fraction(1, 2))
    lists, counts = (MeasurementQuery(view, leaves, Fraction(1, 2)) for view in ("sorted_sizes", "at_least"))
    rule = BranchRule(leaves, Fraction(5), (lists,), (counts,))
    for plan in (
        every_level("entities", TREE, GAUSSIAN, one_group()),
        Plan(GAUSSIAN, one_group(), (MeasurementQuery("at_least", leaves, Fraction(1), Band(1, 4)),)),
        Plan(GAUSSIAN, one_group(), (totals,), rule),
    ):
        assert account_exactly(GAUSSIAN, plan, relation, REGIONS) == GAUSSIAN


def test_only_an_open_budget_or_a_gaussian_one_is_accounted():
    relation = Neighbours.of(sizes(), one_group())
    for budget in (Budget(epsilon=1), Budget(rho=1, delta="1e-6"), Budget(epsilon=1, delta="1e-6", noise="zcdp")):
        plan = every_level("counts", TREE, budget, one_group())
        assert account_exactly(budget, plan, relation, REGIONS) == budget


@pytest.mark.parametrize("more", [Fraction(101, 100), Fraction(2)])
def test_a_budget_with_more_rho_than_is_proved_is_not_measured(more):
    """A factor below the true one, as a wrong accountant would find it."""
    plan = accounted("at_least", one_entity())
    forged = replace(plan, budget=GAUSSIAN.accounted(plan.budget.amount * more))
    with pytest.raises(BudgetError, match="does not give epsilon = 1 at delta"):
        measure(sizes(), forged)


def test_a_claim_for_measurements_that_no_accounting_covers_is_refused():
    plan = accounted("at_least", one_entity())
    (first, *_) = measure_with(seeded(1), sizes(), plan).measured
    for other in ({"view": "entities"}, {"sizes": Band(1, 2)}, {"noise": "discrete_laplace"}):
        with pytest.raises(BudgetError, match="no exact accounting is known"):
            check_accounted(plan.budget, [replace(first, **other)])
