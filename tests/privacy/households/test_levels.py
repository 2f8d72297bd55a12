"""Regions of upper levels as attributes that follow from the leaf, and a part of private tables with its own budget."""

from fractions import Fraction

import numpy as np
import pytest

from tallytree import Budget, BudgetError, HouseholdNeighbours, Marginal, PrivacyUnit, Schema, SpecError
from tallytree.domain.schema import Attribute
from tallytree.privacy.neighbours import Sensitivity
from tallytree.privacy.private_tables import PrivateTables, longer_schema, with_levels
from tests.oracles.households import count, neighbouring_households, schema_of
from tests.synthesis.made_up import made_up

STATE, OF_COUNTY = Attribute("state", ("A", "B")), np.array([0, 0, 1])
UNITS = ["one_group", "one_group_added_or_removed", "one_person_attributes"]


def tables(unit="one_group", rho=1, **more):
    longer = with_levels(made_up(), "county", {STATE: OF_COUNTY})
    return PrivateTables(longer, HouseholdNeighbours(PrivacyUnit(unit), 3), Budget(rho=rho), **more)


def test_a_table_by_an_upper_level_is_the_sum_of_that_by_leaves():
    private = tables(rho=10**6)
    by_county = private.measure(Marginal("households", ("county", "tenure")), 10**5).values
    by_state = private.measure(Marginal("households", ("state", "tenure")), 10**5).values
    assert np.array_equal(by_state, [by_county[0] + by_county[1], by_county[2]])
    assert [attribute.name for attribute in private.schema.household] == ["tenure", "county", "state"]


@pytest.mark.parametrize("of_leaf", [np.array([0, 1]), np.array([0, 1, 2]), np.array([0, -1, 1])])
def test_codes_that_do_not_fit_the_leaves_are_refused(of_leaf):
    with pytest.raises(SpecError, match="one of its codes for each of the 3 leaf regions"):
        with_levels(made_up(), "county", {STATE: of_leaf})


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("of", ["households", "persons"])
@pytest.mark.parametrize("person", [(), ("p",)])
def test_no_neighbour_moves_a_table_by_an_upper_level_further_than_is_said(unit, of, person):
    schema, added = schema_of({"h": 3}, {"p": 2}, 2), Attribute("top", ("0", "1"))
    longer = longer_schema(schema, {added: OF_COUNTY})
    table = Marginal(of, ("h",), person)
    said = HouseholdNeighbours(PrivacyUnit(unit), 2).sensitivity(Marginal(of, ("top",), person), longer)

    def summed(data):
        by_leaf = count(data, table, schema).reshape(3, -1)
        return np.stack([by_leaf[code == OF_COUNTY].sum(axis=0) for code in (0, 1)])

    largest = Sensitivity(0, 0)
    for one, other in neighbouring_households(schema, unit):
        change = summed(one) - summed(other)
        largest = Sensitivity(
            max(largest.l1, int(np.abs(change).sum())), max(largest.l2_squared, int((change**2).sum()))
        )
    assert largest == said


# -------------------------------------------------------------------- a part of the tables


def part(whole, kept):
    national = Schema(whole.schema.household[:1], whole.schema.person, 3)
    return whole.part(national, Fraction(kept))


def test_a_part_spends_all_but_what_is_kept():
    whole = tables()
    some = part(whole, "1/4")
    assert some.left == Fraction(3, 4)
    with pytest.raises(BudgetError, match="is left"):
        some.measure(Marginal("households", ("tenure",)), Fraction(4, 5))
    with pytest.raises(BudgetError, match="is left"):
        some.select([Marginal("households", ("tenure",))], [np.zeros(2, int)], Fraction(5, 2))
    assert whole.spent == 0
    some.measure(Marginal("households", ("tenure",)), Fraction(3, 4))
    assert (some.left, whole.left) == (0, Fraction(1, 4))
    whole.measure(Marginal("households", ("state",)), Fraction(1, 4))
    assert whole.left == 0


def test_a_part_of_a_part_withholds_what_both_withhold():
    whole = tables()
    some = part(part(whole, "1/2"), "1/4")
    assert (some.left, whole.left) == (Fraction(1, 4), 1)
    assert part(some, 0).left == Fraction(1, 4)
    with pytest.raises(BudgetError, match="a part of the rest"):
        part(some, "1/2")
    with pytest.raises(BudgetError, match="is left"):
        some.measure(Marginal("households", ("tenure",)), Fraction(3, 8))
    assert whole.spent == 0


def test_a_part_has_no_other_attributes_and_keeps_no_more_than_there_is():
    whole = tables()
    with pytest.raises(SpecError, match="no attribute 'county'"):
        part(whole, 0).measure(Marginal("households", ("county",)), Fraction(1, 2))
    with pytest.raises(BudgetError, match="a part of the rest"):
        part(whole, 2)
    with pytest.raises(SpecError, match="some of their attributes"):
        whole.part(schema_of({"h": 2}, {}, 3), Fraction(0))
