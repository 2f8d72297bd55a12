"""The lemmas that the theorem takes from the literature, each computed out on small cases."""

from fractions import Fraction
from functools import cache
from itertools import pairwise, product

import numpy as np
import pyarrow as pa
import pytest

from tallytree import Budget, Hierarchy, SpecError, one_entity, one_group, read
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.privacy import MeasurementQuery, Neighbours, Plan, Sensitivity
from tallytree.privacy.budget import cost_of, epsilon_of, largest_rho, scale_for
from tallytree.privacy.measurements import FirstStageFacts
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.noise import cryptographic
from tallytree.privacy.run import measure_with
from tallytree.privacy.selection import candidates, cost_of_selection
from tallytree.tables.households import read_households
from tests.oracles.households import count, neighbouring_households, schema_of

ORDERS = (1.01, 1.5, 2.0, 4.0, 16.0, 64.0)


def normalized(exponents):
    """Logarithms of the probabilities that are proportional to exp(exponent)."""
    whole = np.asarray(exponents, float)
    return whole - np.logaddexp.reduce(whole)


def renyi(p, q, order):
    """The Rényi divergence of two distributions given by logarithms."""
    return np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1)


def gaussians(variance, shift):
    """Two discrete Gaussians, one shifted, far into their tails."""
    reach = int(40 * float(variance) ** 0.5) + 10 * abs(shift) + 10
    x = np.arange(-reach, reach + shift + 1)
    return normalized(-(x**2) / (2 * float(variance))), normalized(-((x - shift) ** 2) / (2 * float(variance)))


# -------------------------------------------------------------------- the cost of noise


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(2), Fraction(17, 2)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_laplace_noise_loses_what_it_costs_and_no_more(scale, shift):
    """The worst log-likelihood ratio over the integers is |shift| / scale, its stated cost."""
    x = np.arange(-200, 201)
    ratio = np.abs(np.abs(x - shift) - np.abs(x)).max() / scale
    assert ratio == cost_of("discrete_laplace", Sensitivity(shift, shift**2), scale)


@pytest.mark.parametrize("variance", [Fraction(1, 5), Fraction(1), Fraction(9, 2), Fraction(200)])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_gaussian_noise_diverges_by_no_more_than_it_costs(variance, shift):
    rho = float(cost_of("discrete_gaussian", Sensitivity(shift, shift**2), variance))
    p, q = gaussians(variance, shift)
    for order in ORDERS[:5]:
        assert renyi(p, q, order) <= order * rho + 1e-9
    if variance >= 1:
        assert renyi(p, q, 2.0) >= 2 * rho * 0.99  # nor is it dearer than it need be


def test_the_cost_of_many_changed_numbers_is_that_of_their_norms():
    """Independent noise on several numbers: log-ratios and divergences add up, so L1 and squared L2 are what counts."""
    change = (1, -2, 3)
    norms = Sensitivity(6, 14)
    assert sum(Fraction(abs(d), 7) for d in change) == cost_of("discrete_laplace", norms, Fraction(7))
    parts = [gaussians(7, abs(d)) for d in change]
    for order in ORDERS[:5]:
        apart = sum(renyi(p, q, order) for p, q in parts)
        assert apart <= order * float(cost_of("discrete_gaussian", norms, Fraction(7))) + 1e-9


# -------------------------------------------------------------------- exchanging budgets


def test_pure_epsilon_diverges_by_no_more_than_half_its_square():
    """All pairs of distributions over three outcomes on a grid; `charge_in` charges ε²/2 for the worst ratio ε."""
    grid = [np.array(p) / 12 for p in product(range(1, 11), repeat=3) if sum(p) == 12]
    worst = 0.0
    for p, q in product(grid, repeat=2):
        epsilon = float(np.abs(np.log(p / q)).max())
        if epsilon == 0:
            continue
        for order in ORDERS:
            divergence = renyi(np.log(p), np.log(q), order)
            assert divergence <= order * epsilon**2 / 2 + 1e-12
            worst = max(worst, divergence / (order * epsilon**2 / 2))
    assert worst > 0.9
    assert Budget(epsilon=3).charge_in("rho") == Fraction(9, 2)


@pytest.mark.parametrize("rho", ["0.01", "0.5", "3"])
@pytest.mark.parametrize("delta", ["1e-3", "1e-6", "1e-10"])
def test_gaussian_noise_keeps_the_epsilon_and_delta_that_are_stated_for_its_rho(rho, delta):
    """The exact δ at the stated ε, Σ max(0, P − e^ε Q), is no more than δ: for the mechanism that ρ was spent on."""
    epsilon = float(epsilon_of(Fraction(rho), Fraction(delta)))
    for shift in (1, 3):
        variance = scale_for("discrete_gaussian", Sensitivity(shift, shift**2), Fraction(rho))
        p, q = gaussians(variance, shift)
        above = p > q + epsilon
        exact = float((np.exp(p[above]) - np.exp(q[above] + epsilon)).sum())
        assert exact <= float(delta)
    assert largest_rho(Fraction(epsilon), Fraction(delta)) <= Fraction(rho) + Fraction(1, 10**9)


# -------------------------------------------------------------------- rounds that choose their own costs


SCHEMA = schema_of({"h": 2}, {"p": 2}, 2)
TABLES = [Marginal("households", ("h",), ("p",)), Marginal("persons", (), ("p",))]


def worst_run(unit, *, cheat=1):
    """The largest divergence of a whole run of choices, over all neighbours and some orders, as a part of its budget.

    What is asked next, and what that costs, follows from the answers; a branch goes on until its next round would not
    fit into the budget, and every outcome of every branch is gone through.
    """
    budget = Fraction(5, 2)
    relation = HouseholdNeighbours(PrivacyUnit(unit), SCHEMA.max_persons)
    bounds = np.concatenate(
        [np.full(table.cells(SCHEMA), relation.cells_sensitivity(table, 1, SCHEMA).l1) for table in TABLES]
    )

    @cache
    def chances(data, guess, epsilon):
        cells = np.concatenate([count(data, table, SCHEMA).ravel() for table in TABLES])
        offered = candidates(np.abs(cells - guess), bounds, epsilon)
        return normalized([cheat * float(offered.exponent(place)) for place in range(len(cells))])

    @cache
    def leaves(data, spent, last):
        epsilon = Fraction(2 + 2 * (last % 2))  # the last answer decides what the next round costs, and what it asks
        if spent + cost_of_selection(epsilon) > budget:
            return np.zeros(1)
        here = chances(data, last % 3, epsilon)
        return np.concatenate(
            [here[place] + leaves(data, spent + cost_of_selection(epsilon), place) for place in range(len(here))]
        )

    common, worst = (((0,), ((1,),)),), 0.0
    for one, other in neighbouring_households(SCHEMA, unit):
        p, q = leaves((*common, *one), Fraction(0), 0), leaves((*common, *other), Fraction(0), 0)
        worst = max(worst, *(float(renyi(p, q, order) / (order * float(budget))) for order in (1.5, 8.0)))
    return worst


@pytest.mark.parametrize("unit", ["one_group", "one_group_added_or_removed", "one_person_attributes"])
def test_rounds_whose_costs_depend_on_answers_stay_within_the_budget(unit):
    assert 0.05 < worst_run(unit) <= 1


def test_the_sum_over_adaptive_rounds_can_see_a_cheat():
    """Scores that weigh three times as much as was paid for lose more than the budget."""
    assert worst_run("one_group", cheat=3) > 1


# -------------------------------------------------------------------- households that are cut

MANY = Schema((Attribute("h", ("x", "y")),), (Attribute("who", tuple(map(str, range(20)))),), 2)


def kept(replaced, **options):
    """Who is kept of each of three homes, the last of which has so many persons, spread between those of the others."""
    rows = [("a", 0), ("b", 1), ("a", 2), ("a", 3), ("b", 4)]
    for number in range(replaced):
        rows.insert(2 * number, ("c", 10 + number))
    homes = pa.table({"home": ["a", "b", "c"], "h": ["x", "y", "x"]})
    people = {"home": [home for home, _ in rows], "who": [str(who) for _, who in rows]}
    people = pa.table({**people, "line": [-who for _, who in rows]})
    codes = read_households(homes, people, schema=MANY, household_id="home", **options).codes
    opened = codes.open_at_the_privacy_border()
    return [opened.person["who"][start:stop].tolist() for start, stop in pairwise(opened.starts)]


@pytest.mark.parametrize("options", [{"oversize": "drop"}, {"oversize": "drop", "person_order": "line"}], ids=str)
def test_a_household_that_is_cut_changes_nothing_of_the_others(options):
    """Persons are dropped household by household: whatever stands in one, the others keep the same persons."""
    seen = [kept(replaced, **options) for replaced in range(6)]
    assert {str(homes[:2]) for homes in seen} == {str(seen[0][:2])}
    assert [len(homes[2]) for homes in seen] == [0, 1, 2, 2, 2, 2]
    assert [len(home) for home in seen[0][:2]] == [2, 2]


# -------------------------------------------------------------------- what is drawn is public


class Watched:
    """Randomness that writes down what is asked of it."""

    def __init__(self):
        self.asked = []
        self._real = cryptographic("tallytree")
        self.name = self._real.name

    def draw(self, kind, scale, number):
        self.asked.append((kind, scale, number))
        return self._real.draw(kind, scale, number)

    def usable(self, kind, scale):
        return self._real.usable(kind, scale)


TREE = Hierarchy.from_levels({"state": ["A", "B"], "county": ["a", "b"]}, ["state", "county"])
GROUPS = pa.table({"home": [1, 2, 3], "county": ["a", "a", "b"]})


def counted(sizes, groups):
    """Group sizes of three homes, each with so many rows."""
    homes = [(home, county) for home, county, size in zip((1, 2, 3), "aab", sizes, strict=True) for _ in range(size)]
    table = pa.table({"home": [home for home, _ in homes], "county": [county for _, county in homes]})
    return read(table, group="home", region="county", hierarchy=TREE, max_size=4, groups=groups, groups_are_public=True)


@pytest.mark.parametrize("groups", [GROUPS, None], ids=["public list", "private totals"])
@pytest.mark.parametrize("view", ["counts", "at_least", "sorted_sizes", "chain"])
def test_what_noise_is_drawn_and_how_much_of_it_follows_from_public_facts_alone(view, groups):
    """The same draws in the same order for very different data: neither their number nor their scales tell anything."""
    first_stage = FirstStageFacts(TREE.aggregate(np.array([2, 2]))) if groups is None else FirstStageFacts()
    plan = every_level(view, TREE, Budget(epsilon=1), one_entity())
    if groups is None and view == "sorted_sizes":
        first = (MeasurementQuery("totals", 2, Fraction(1, 4)),)
        rest = tuple(MeasurementQuery(view, query.level, query.share * Fraction(3, 4)) for query in plan.queries)
        plan = Plan(plan.budget, plan.unit, first + rest)
    seen = set()
    for sizes in ((1, 0, 0), (4, 4, 4), (0, 1, 9), (1, 1, 1)):
        watched = Watched()
        measure_with(watched, counted(sizes, groups), plan, derive_facts=lambda known: first_stage)
        seen.add(tuple(watched.asked))
    assert len(seen) == 1


def test_public_facts_alone_decide_what_is_refused_before_anything_is_read():
    """The relation, and whether a unit can protect the data, are the same for data of the same public facts."""
    for groups, unit in product((GROUPS, None), (one_entity(), one_group())):
        relations = {Neighbours.of(counted(sizes, groups), unit) for sizes in ((1, 0, 0), (4, 4, 4), (0, 1, 9))}
        assert len(relations) == 1
        (relation,) = relations
        if unit == one_group():
            with pytest.raises(SpecError):
                relation.sensitivity("largest")
