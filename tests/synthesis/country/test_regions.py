"""Regions of a country: levels as attributes, small regions, and the one fit to all tables together."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, Hierarchy, SpecError, one_group
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.privacy.neighbours import HouseholdNeighbours, Neighbours, PrivacyUnit
from tallytree.synthesis.agreement import SizeTable, national_schema, region_levels
from tallytree.synthesis.country_model import (
    Country,
    RegionalOptions,
    RegionalTable,
    add_regions,
    add_upper_levels,
    by_class,
    fit_regions,
    in_leaves,
    select_regional_tables,
    shrink_tables,
    shrink_towards,
)
from tallytree.synthesis.marginals import MarginalsOptions
from tallytree.synthesis.methods import Fitted
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


# -------------------------------------------------------------------- small regions


def noisy(values, variance):
    return Measured(TENURE, np.array(values, float), np.array(variance))


HOUSEHOLDS = np.array([100, 200, 300, 400, 500])


def test_without_noise_regions_keep_their_own_counts_and_with_much_of_it_they_have_their_parents_rates():
    shares = np.array([0.2, 0.4, 0.6, 0.8, 0.5])
    counts = np.stack([HOUSEHOLDS * shares, HOUSEHOLDS * (1 - shares)], axis=1)
    states = LEVELS.summed(counts, 0)
    whole = counts.sum(axis=0) / HOUSEHOLDS.sum()
    found = shrink_tables(whole, {0: noisy(states, 1e-6), 1: noisy(counts, 1e-6)}, HOUSEHOLDS, LEVELS)
    assert np.allclose(found[0].values, states, rtol=1e-3)
    assert np.allclose(found[1].values, counts, rtol=1e-3)
    assert shrink_tables(whole, {}, HOUSEHOLDS, LEVELS) == {}
    lost = np.zeros((5, 2))
    shrunk = shrink_tables(whole, {0: noisy(states, 1e-6), 1: noisy(lost, 1e12)}, HOUSEHOLDS, LEVELS)[1]
    of_state = states[LEVELS.parents[1]] / states.sum(axis=1)[LEVELS.parents[1], None]
    assert np.allclose(shrunk.values, HOUSEHOLDS[:, None] * of_state, rtol=1e-3)
    assert (shrunk.variance < 1e4).all()
    nobody = shrink_tables(whole, {1: noisy(np.full((5, 2), 9.0), 100.0)}, np.array([0, 0, 0, 0, 9]), LEVELS)[1]
    assert np.allclose(nobody.values[:4], 0, atol=1e-3)


def test_pure_noise_is_drawn_to_the_parent_and_real_differences_are_kept_and_errors_are_as_large_as_said():
    rng = np.random.default_rng(5)
    number = np.full(400, 200.0)
    rates = np.tile([0.3, 0.7], (400, 1))
    expected = number[:, None] * rates
    chance = rng.binomial(200, 0.3, 400)[:, None] - 60.0
    true = expected + np.concatenate([chance, -chance], axis=1)
    for spread, least, most in ((0.0, 0.0, 0.2), (0.2, 0.55, 0.8)):
        apart = rng.normal(0, 200 * spread, 400)[:, None] * np.array([1.0, -1.0])
        measured = true + apart + rng.normal(0, 30, (400, 2))
        found, variance = shrink_towards(measured, 900.0, rates, number)
        error = np.sqrt(np.mean((found - np.maximum(true + apart, 0)) ** 2))
        assert error < 30  # less than the noise
        assert 0.5 < error / np.sqrt(variance.mean()) < 1.1  # two cells add up, so it is taken as somewhat too large
        kept = np.sum((found - expected) * (measured - expected)) / np.sum((measured - expected) ** 2)
        assert least <= kept <= most


# -------------------------------------------------------------------- the joint fit


LONGER = Schema((*SCHEMA.household, LEVELS.attributes[0]), SCHEMA.person, 3)
BY_STATE, BY_COUNTY = (Marginal("households", (name, "tenure")) for name in ("state", "county"))


def national(seed_text="country"):
    return Mixture.start(NATIONAL, components=6, spread=1.0, seed_text=seed_text, empty=False)


def released(counts):
    sizes = Neighbours(one_group(), max_size=3, public_totals=False)
    return SizeTable("county", counts, 1, sizes, Budget(rho=1), levels=LEVELS)


def test_at_first_every_component_has_the_released_shares_of_regions():
    model = national()
    with_regions = add_regions(model, LEVELS, HOUSEHOLDS)
    made = add_upper_levels(with_regions, LONGER, LEVELS)
    tenure = model.answers(TENURE)
    shares = HOUSEHOLDS / HOUSEHOLDS.sum()
    assert np.allclose(made.answers(BY_COUNTY), shares[:, None] * tenure, atol=1e-6)
    assert np.allclose(made.answers(BY_STATE), LEVELS.summed(shares, 0)[:, None] * tenure, atol=1e-6)
    empty = add_regions(model, LEVELS, np.array([0, 5, 0, 5, 0]))
    assert np.allclose(empty.answers(Marginal("households", ("county",))), [0, 0.5, 0, 0.5, 0])


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_table_by_upper_regions_is_one_by_leaf_regions_in_groups(seed):
    rng = np.random.default_rng(seed)
    model = add_regions(national(), LEVELS, HOUSEHOLDS)
    arrays = model.to_arrays()
    arrays["household county"] = rng.normal(0, 2, (6, 5)).astype(np.float32)
    model = Mixture.from_arrays(model.schema, arrays)
    longer = add_upper_levels(model, LONGER, LEVELS)
    for level, table in enumerate((BY_STATE, BY_COUNTY)):
        values = longer.answers(table)
        leaves = in_leaves(Measured(table, values, np.array(4.0)), level, LEVELS)
        assert np.allclose(model.answers(leaves.marginal), values, atol=1e-6)
        assert np.array_equal(leaves.values, values)


@pytest.mark.parametrize("last", [2, 3])
def test_released_classes_are_a_table_of_the_model_and_the_last_size_is_divided_as_in_the_whole(last):
    counts = np.random.default_rng(3).integers(0, 50, (5, last))
    model = national()
    marginal, found = by_class(model, add_regions(model, LEVELS, HOUSEHOLDS).schema, released(counts))
    assert marginal == Marginal("households", ("county",), (), True)
    assert found.shape == (4, 5)
    assert (found[0] == 0).all()
    assert np.array_equal(found[1:last], counts[:, :-1].T)
    assert np.allclose(found[last:].sum(axis=0), counts[:, -1])
    sizes = model.answers(Marginal("households", size=True))
    assert np.allclose(found[-1] * sizes[last], found[last] * sizes[-1])


def test_a_joint_fit_comes_near_the_regions_and_keeps_the_whole():
    rng = np.random.default_rng(1)
    shares = np.array([0.2, 0.4, 0.6, 0.8, 0.5])
    number = 10 * HOUSEHOLDS
    tenure = np.stack([number * shares, number * (1 - shares)], axis=1)
    sizes = rng.multinomial(1, [0.3, 0.4, 0.3], 5) + np.round(number[:, None] * [0.3, 0.4, 0.3]).astype(int)
    whole = Measured(TENURE, tenure.sum(axis=0), np.array(25.0))
    of_size = Measured(Marginal("households", size=True), np.array([0, *sizes.sum(axis=0)], float), np.array(25.0))
    measured = (whole, of_size)
    noisy = {(TENURE, 1): Measured(BY_COUNTY, tenure + rng.normal(0, 10, tenure.shape), np.array(100.0))}
    wanted = (RegionalTable(TENURE, 1, BY_COUNTY),)
    plan = Country(LEVELS, LONGER, wanted, Fraction(1, 4))
    fitted = Fitted(national(), int(number.sum()), measured, ())
    told = []
    model = fit_regions(fitted, plan, released(sizes), noisy, (), MarginalsOptions(), lambda *words: told.append(words))
    found = fitted.number * model.answers(BY_COUNTY)
    assert np.abs(found - tenure).max() < 60
    assert np.abs(fitted.number * model.answers(TENURE) - whole.values).max() < 60
    classes = fitted.number * model.answers(Marginal("households", ("county",), (), True))
    assert np.abs(classes[1:].T - sizes).max() < 60
    assert told
    unmeasured = fit_regions(fitted, plan, released(sizes), {}, (), MarginalsOptions(), lambda *words: None)
    assert np.allclose(unmeasured.answers(TENURE), fitted.model.answers(TENURE), atol=1e-6)
