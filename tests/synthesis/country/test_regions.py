"""Regions of a country: levels as attributes, rates by region, and weights under which they come out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from tallytree import Hierarchy, SpecError
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.synthesis.agreement import national_schema, region_levels
from tallytree.synthesis.country_model import (
    LOOSE,
    Classes,
    RegionalOptions,
    Wish,
    answer_by_component,
    build_country_model,
    estimate_rates,
    regional_weights,
    select_regional_tables,
    shrink_towards,
    weights_of,
    wish,
)
from tallytree.synthesis.mixture import Mixture
from tallytree.synthesis.model import Measured
from tallytree.synthesis.table_selection import TableSelection

SCHEMA = Schema(
    (Attribute("county", ("d", "a", "b", "c", "e")), Attribute("tenure", ("owned", "rented"))),
    (Attribute("age", ("young", "old")),),
    3,
)
TREE = Hierarchy.from_levels(
    {"state": ["x", "x", "x", "y", "y"], "county": ["a", "b", "c", "d", "e"]}, ["state", "county"]
)
LEVELS = region_levels(SCHEMA, "county", TREE)
NATIONAL = national_schema(SCHEMA, "county")
TENURE = Marginal("households", ("tenure",))


def bound(marginal):
    longer = Schema((*SCHEMA.household, LEVELS.attributes[0]), SCHEMA.person, 3)
    return HouseholdNeighbours(PrivacyUnit("one_group"), 3).sensitivity(marginal, longer)


# -------------------------------------------------------------------- levels


def test_levels_follow_the_tree_in_the_order_of_the_attributes_values():
    assert [attribute.name for attribute in LEVELS.attributes] == ["state", "county"]
    assert LEVELS.region == "county"
    assert [LEVELS.attributes[0].values[code] for code in LEVELS.of_leaf[0]] == ["y", "x", "x", "x", "y"]
    assert LEVELS.parents[0].tolist() == [0, 0]
    assert LEVELS.parents[1].tolist() == LEVELS.of_leaf[0].tolist()
    assert LEVELS.summed(np.array([1, 2, 3, 4, 5]), 0).tolist() == [9, 6]


def test_a_level_with_the_name_of_an_attribute_is_refused():
    tree = Hierarchy.from_levels({"tenure": ["x", "y", "y", "y", "y"], "county": list("abcde")}, ["tenure", "county"])
    with pytest.raises(SpecError, match=r"the level 'tenure' .* has the name of an attribute"):
        region_levels(SCHEMA, "county", tree)


# -------------------------------------------------------------------- what is asked


def test_every_attribute_is_asked_for_but_those_that_are_released():
    every = RegionalOptions.of({}).chosen(NATIONAL, bound, [])
    assert every == (TENURE, Marginal("households", (), ("age",)))
    assert RegionalOptions.of({}).chosen(NATIONAL, bound, ["tenure"]) == every[1:]
    both = RegionalOptions.of({"tables": [["age", "tenure"]]}).chosen(NATIONAL, bound, [])
    assert both == (Marginal("households", ("tenure",), ("age",)),)


@pytest.mark.parametrize(
    ("given_options", "message"),
    [
        ({"shares": 1}, "no 'shares'"),
        ({"share": 1}, "between 0 and 1"),
        ({"share": "x"}, "share"),
        ({"tables": ["tenure"]}, "lists of attribute names"),
        ({"tables": [[]]}, "is empty"),
        ({"tables": [["persons"]]}, "'persons' is in the release"),
        ({"tables": [["rooms"]]}, "no attribute 'rooms'"),
        ({"worth": "much"}, "worth"),
    ],
)
def test_bad_options_are_refused(given_options, message):
    with pytest.raises(SpecError, match=message):
        RegionalOptions.of(given_options).chosen(NATIONAL, bound, [])


def test_upper_levels_come_first_and_a_small_budget_buys_them_alone():
    longer = Schema((*SCHEMA.household, LEVELS.attributes[0]), SCHEMA.person, 3)

    def bought(rho, number=1000):
        selection = TableSelection(longer, bound, number, 2.0, 1.0)
        found = select_regional_tables([TENURE], LEVELS, selection, rho)
        return [LEVELS.attributes[one.level].name for one in found]

    assert bought(1) == ["state", "county"]
    # Four cells with noise of 1/sqrt(2 · ρ) · sqrt(2) each: the sum of their sizes is worth it below 1000.
    assert bought(1.2e-5) == ["state"]
    assert bought(1e-8) == []


# -------------------------------------------------------------------- rates by region


def noisy(values, variance):
    return Measured(TENURE, np.array(values, float), np.array(variance))


HOUSEHOLDS = np.array([100, 200, 300, 400, 500])


def test_without_noise_regions_keep_their_own_counts_and_without_measurements_the_wholes_rates():
    shares = np.array([0.2, 0.4, 0.6, 0.8, 0.5])
    counts = np.stack([HOUSEHOLDS * shares, HOUSEHOLDS * (1 - shares)], axis=1)
    states = LEVELS.summed(counts, 0)
    whole = counts.sum(axis=0) / HOUSEHOLDS.sum()
    found = estimate_rates(TENURE, whole, {0: noisy(states, 1e-6), 1: noisy(counts, 1e-6)}, HOUSEHOLDS, LEVELS)
    assert np.allclose(found[:, 0], shares, atol=1e-3)
    alike = estimate_rates(TENURE, whole, {}, HOUSEHOLDS, LEVELS)
    assert np.allclose(alike, whole)
    by_state = estimate_rates(TENURE, whole, {0: noisy(states, 1e-6)}, HOUSEHOLDS, LEVELS)
    assert np.allclose(by_state[[1, 2, 3], 0], states[0, 0] / 900, atol=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1.0, 100.0, 1e4]))
def test_settled_counts_add_up_to_the_whole_and_each_region_to_its_households(seed, variance):
    rng = np.random.default_rng(seed)
    whole = rng.dirichlet([2, 2])
    tables = {
        level: noisy(rng.normal(50, variance**0.5, (attribute.codes, 2)), variance)
        for level, attribute in enumerate(LEVELS.attributes)
        if rng.random() < 0.8
    }
    households = rng.integers(1, 400, 5)
    rates = estimate_rates(TENURE, whole, tables, households, LEVELS)
    assert rates.min() > 0
    assert np.allclose(rates.sum(axis=1), 1, atol=1e-3)
    assert np.allclose((households[:, None] * rates).sum(axis=0), households.sum() * whole, rtol=1e-3)


def test_pure_noise_is_drawn_to_the_parent_and_real_differences_are_kept():
    rng = np.random.default_rng(5)
    number = np.full(400, 200.0)
    expected = np.tile([60.0, 140.0], (400, 1))
    chance = rng.binomial(200, 0.3, 400)[:, None] - 60.0
    true = expected + np.concatenate([chance, -chance], axis=1)
    for spread, least, most in ((0.0, 0.0, 0.2), (0.2, 0.55, 0.8)):
        apart = rng.normal(0, 200 * spread, 400)[:, None] * np.array([1.0, -1.0])
        measured = true + apart + rng.normal(0, 30, (400, 2))
        found = shrink_towards(measured, 900.0, expected, number)
        error = np.sqrt(np.mean((found - np.maximum(true + apart, 0)) ** 2))
        assert error < 30  # less than the noise
        kept = np.sum((found - expected) * (measured - expected)) / np.sum((measured - expected) ** 2)
        assert least <= kept <= most


# -------------------------------------------------------------------- weights


def random_classes(rng, components, regions):
    chances = rng.dirichlet([1, 1, 1], components)
    return Classes(chances, np.array([1, 2, 3]), rng.dirichlet([3, 3, 3], regions))


def test_the_weights_are_the_optimum_that_a_plain_solver_finds():
    rng = np.random.default_rng(2)
    classes = random_classes(rng, 6, 3)
    components = rng.dirichlet([1, 1, 1], 6)
    wanted = rng.dirichlet([4, 4, 4], 3)
    weights = rng.dirichlet(np.ones(6))
    found = regional_weights(weights, classes, [Wish(components, wanted)])
    for region in range(3):

        def minus(prices, region=region):
            scores = np.log(weights[:, None] * classes.chances) + (components @ prices)[:, None]
            sums = np.logaddexp.reduce(scores, axis=0)
            return -(prices @ wanted[region] - classes.shares[region] @ sums - LOOSE / 2 * prices @ prices)

        best = minimize(minus, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
        plain = weights * np.exp(components @ best)
        assert np.allclose(found[region], plain / plain.sum(), atol=1e-4)


def test_rates_that_the_components_can_have_come_out_given_the_released_classes():
    rng = np.random.default_rng(3)
    classes = random_classes(rng, 40, 25)
    components = rng.dirichlet([1, 1, 1], 40)
    wanted = 0.5 * components.mean(axis=0) + 0.5 * rng.dirichlet([9, 9, 9], 25)
    found = regional_weights(np.full(40, 1 / 40), classes, [Wish(components, wanted)])
    given_class = found[:, None, :] * classes.chances.T[None]
    given_class /= given_class.sum(axis=2, keepdims=True)
    drawn = np.einsum("rk,rkc->rc", classes.shares, given_class) @ components
    assert np.abs(drawn - wanted).max() < 0.002


def test_without_wishes_all_regions_have_the_weights_of_the_whole():
    classes = random_classes(np.random.default_rng(1), 4, 3)
    assert np.allclose(regional_weights(np.full(4, 0.25), classes, []), 0.25)


def test_a_country_has_the_regional_weights_and_is_otherwise_the_model_of_the_whole():
    model = Mixture.start(NATIONAL, components=5, seed_text="country", empty=False)
    rng = np.random.default_rng(4)
    weights = rng.dirichlet(np.ones(5), 5)
    longer = Schema((*SCHEMA.household, LEVELS.attributes[0]), SCHEMA.person, 3)
    made = build_country_model(model, longer, LEVELS, HOUSEHOLDS, weights)
    rates = answer_by_component(model, TENURE)
    by_county = made.answers(Marginal("households", ("county", "tenure")))
    assert np.allclose(by_county * HOUSEHOLDS.sum(), HOUSEHOLDS[:, None] * (weights @ rates), atol=1e-3)
    by_state = made.answers(Marginal("households", ("state", "tenure")))
    assert np.allclose(by_state, LEVELS.summed(by_county, 0), atol=1e-6)
    assert np.allclose(answer_by_component(model, TENURE).T @ weights_of(model), model.answers(TENURE))


def test_what_sizes_alone_explain_is_not_asked_of_the_weights():
    model = Mixture.start(NATIONAL, components=5, spread=1.0, seed_text="sizes", empty=False)
    aged = Marginal("households", (), ("age",))
    by_size = model.answers(Marginal("households", (), ("age",), size=True))
    alone = model.answers(Marginal("households", size=True))
    shares = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    chances = answer_by_component(model, Marginal("households", size=True))[:, 1:]
    rates = shares @ (by_size[1:] / alone[1:, None])  # what the whole's households of these sizes have
    classes = Classes(chances, np.array([1, 2, 3]), shares)
    found = regional_weights(weights_of(model), classes, [wish(model, aged, rates, classes)])
    assert np.allclose(found, weights_of(model), atol=1e-6)
