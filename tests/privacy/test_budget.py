import math
import re
from decimal import Decimal
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given
from hypothesis import strategies as st

from tallytree import Budget, BudgetError, Hierarchy, SpecError, one_entity
from tallytree.mechanisms.budget_allocation import every_level, level_shares
from tallytree.privacy.budget import as_decimal, cost_of, epsilon_of, exact, largest_rho, scale_for
from tallytree.privacy.neighbours import Sensitivity
from tallytree.privacy.plan import MeasurementQuery, Plan
from tallytree.publish.statement import guarantee

TREE = Hierarchy.from_levels({"state": ["A", "B"], "county": ["a", "b"]}, ["state", "county"])


@pytest.mark.parametrize(("written", "meant"), [(0.1, "1/10"), ("0.1", "1/10"), (Decimal("0.1"), "1/10"), (3, "3")])
def test_a_number_is_the_decimal_that_was_written(written, meant):
    assert Budget(epsilon=written).amount == Fraction(meant)


@pytest.mark.parametrize("bad", [0, -1, "0", math.nan, math.inf, "nan", "one", True, [1], "1/0", "1e9"])
def test_bad_amounts_are_refused(bad):
    with pytest.raises(BudgetError):
        Budget(epsilon=bad)


def test_a_budget_is_given_in_one_way():
    for wrong in ({}, {"epsilon": 1, "rho": 1}, {"delta": "1e-6"}, {"epsilon": 1, "delta": 1}):
        with pytest.raises(BudgetError):
            Budget(**wrong)


def test_pure_epsilon_is_charged_to_rho_at_half_its_square_and_never_the_reverse():
    assert Budget(epsilon="0.5").charge_in("rho") == Fraction(1, 8)
    assert Budget(rho="0.5").charge_in("rho") == Fraction(1, 2)
    with pytest.raises(BudgetError, match="cannot be charged"):
        Budget(rho="0.5", delta="1e-9").charge_in("epsilon")


@pytest.mark.parametrize("rho", ["0.001", "0.1", "2"])
@pytest.mark.parametrize("delta", ["1e-5", "1e-12"])
def test_the_conversion_agrees_with_dp_accounting(rho, delta):
    orders = 1 + np.exp(np.linspace(-4, 9, 20_000))
    accountant = rdp.RdpAccountant(orders=orders)
    accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier=(1 / (2 * float(rho))) ** 0.5))
    theirs = accountant.get_epsilon(float(delta))
    ours = float(epsilon_of(Fraction(rho), Fraction(delta)))
    assert ours <= theirs * (1 + 1e-9)
    assert ours == pytest.approx(theirs, rel=1e-5)


@given(st.integers(1, 400), st.integers(3, 14))
def test_the_largest_rho_keeps_the_promised_epsilon_and_wastes_nothing(tenths, zeros):
    epsilon, delta = Fraction(tenths, 40), Fraction(1, 10**zeros)
    rho = largest_rho(epsilon, delta)
    assert epsilon_of(rho, delta) <= epsilon + Fraction(2, 10**12)
    assert epsilon_of(rho * Fraction(1001, 1000), delta) > epsilon


def test_budgets_round_trip_through_text():
    for budget in (Budget(epsilon="1/3"), Budget(rho="0.1", delta="1e-9"), Budget(epsilon=1, delta="1e-9")):
        assert Budget.from_json(budget.to_json()) == budget
    forged = {**Budget(epsilon=1, delta="1e-9").to_json(), "rho": "1"}
    with pytest.raises(BudgetError, match="does not follow"):
        Budget.from_json(forged)


@given(st.fractions(Fraction(1, 1000), 100), st.integers(1, 50), st.integers(1, 50))
def test_cost_and_scale_are_exact_inverses(cost, l1, l2_squared):
    for noise in ("discrete_laplace", "discrete_gaussian"):
        sensitivity = Sensitivity(l1, l2_squared)
        assert cost_of(noise, sensitivity, scale_for(noise, sensitivity, cost)) == cost


def test_a_public_view_is_not_measured():
    with pytest.raises(BudgetError, match="public"):
        scale_for("discrete_laplace", Sensitivity(0, 0), Fraction(1))


def test_shares_are_proportions_that_add_up_to_the_whole():
    assert level_shares(TREE, None) == (Fraction(1, 3),) * 3
    assert level_shares(TREE, [1, 2, 5]) == (Fraction(1, 8), Fraction(1, 4), Fraction(5, 8))
    assert level_shares(TREE, {"county": "0.5", "state": 0.25, "total": Decimal("0.25")})[2] == Fraction(1, 2)


@pytest.mark.parametrize("shares", [[1, 1], [1, 1, 0], {"state": 1}, {"total": 1, "state": 1, "tract": 1}, [1, -1, 1]])
def test_bad_shares_are_refused(shares):
    with pytest.raises((SpecError, BudgetError)):
        level_shares(TREE, shares)


def test_a_plan_spends_exactly_its_budget():
    plan = every_level("counts", TREE, Budget(epsilon=1), one_entity(), [1, 1, 5])
    assert sum(plan.cost(query) for query in plan.queries) == 1
    for shares in ([Fraction(1, 2), Fraction(1, 3)], [Fraction(1, 2), Fraction(3, 4)]):
        queries = tuple(MeasurementQuery("counts", level, share) for level, share in enumerate(shares))
        with pytest.raises(BudgetError, match="exactly 1"):
            Plan(Budget(epsilon=1), one_entity(), queries)
    with pytest.raises(SpecError, match="twice"):
        Plan(Budget(epsilon=1), one_entity(), (MeasurementQuery("counts", 0, Fraction(1, 2)),) * 2)


def test_exact_reads_fractions_and_names_what_is_wrong():
    assert exact("1/3", "share") == Fraction(1, 3)
    with pytest.raises(BudgetError, match="the share must be a finite number"):
        exact("a third", "the share")


def stated(text, sign):
    """The amount that a text gives after a sign."""
    return Fraction(re.search(rf"{sign} = ([0-9.e+-]*[0-9])", text).group(1))


def test_what_is_stated_is_never_less_than_what_is_proved():
    chance = np.random.default_rng(59)
    for rho in [Fraction(int(part), 10**9) for part in chance.integers(10**5, 3 * 10**9, 200)]:
        budget = Budget(rho=rho, delta="1e-9")
        proved = epsilon_of(rho, budget.delta)
        for text in (guarantee(budget), f"{guarantee(budget)}, {Budget(epsilon=proved)}"):
            assert proved <= stated(text, "ε") <= proved * Fraction(100001, 100000)
            assert rho <= stated(text, "ρ") <= rho * Fraction(100001, 100000)
        assert proved <= stated(str(Budget(epsilon=proved)), "ε")
        assert rho <= stated(str(budget), "ρ")


@given(st.fractions(Fraction(1, 10**12), 10**6), st.integers(1, 9))
def test_amounts_are_shown_exactly_where_short_and_otherwise_on_the_safe_side(value, digits):
    up, down = Fraction(as_decimal(value, digits)), Fraction(as_decimal(value, digits, up=False))
    assert down <= value <= up
    assert up - down <= value * Fraction(2, 10 ** (digits - 1))
    assert Fraction(as_decimal(up)) == up or digits > 6


def test_a_little_more_than_one_is_not_shown_as_one():
    assert as_decimal(Fraction("1.0000004")) == "1.0000004"
    assert as_decimal(1 + Fraction(1, 10**30)) == "1.00001"
    assert as_decimal(1 - Fraction(1, 10**30), up=False) == "0.999999"
    assert [as_decimal(Fraction(each)) for each in ("0", "10", "1e-9", "100000", "0.1")] == [
        "0", "10", "1e-09", "100000", "0.1"
    ]  # fmt: skip
