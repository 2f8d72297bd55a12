"""The arithmetic under the methods: shares of a budget, tables within tables, and where a fit may stop."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from tallytree.domain.edit_rules import Attribute, Role, Structure
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.synthesis.fitting import seldom_exceeded
from tallytree.synthesis.marginals import MarginalsOptions
from tallytree.synthesis.methods import epsilon_for, share
from tallytree.synthesis.table_selection import first_tables, helping_tables, parts_of, parts_of_the_budget
from tallytree.synthesis.workload import Workload, all_sets, is_sum_of
from tests.oracles.households import all_households, count, schema_of
from tests.synthesis.helpers import every_table

SCHEMA = schema_of({"area": 2, "home": 2}, {"age": 2}, 2)
BUDGETS = st.fractions(min_value=Fraction(1, 10**12), max_value=10**6)


@given(BUDGETS, st.fractions(min_value=Fraction(1, 10**6), max_value=1))
def test_a_share_is_never_more_than_asked_for_nearly_that_and_short(rho, part):
    found = share(rho, part)
    assert rho * part * (1 - Fraction(1, 1 << 38)) <= found <= rho * part
    assert found > 0
    assert found.denominator & (found.denominator - 1) == 0
    assert found.numerator.bit_length() <= 42 or found.denominator == 1


@given(BUDGETS)
def test_a_selection_costs_no_more_than_its_share_and_nearly_that(rho):
    epsilon = epsilon_for(rho)
    assert rho * (1 - Fraction(1, 1 << 30)) <= epsilon**2 / 8 <= rho


@pytest.mark.parametrize("size", [False, True])
def test_a_part_of_a_table_is_a_sum_of_its_cells_for_every_household(size):
    homes = all_households(SCHEMA)
    tables = [table for table in every_table(SCHEMA) if table.size == size]
    counts = {table: [count((home,), table, SCHEMA) for home in homes] for table in tables}
    for one, other in product(tables, repeat=2):
        names = [*one.household, *one.person]
        axes = [*(["size"] if other.size else []), *other.household, *other.person]
        if one.of != other.of or not set(names) <= set(axes):
            assert not is_sum_of(one, other)
            continue
        over = tuple(at for at, name in enumerate(axes) if name != "size" and name not in names)
        adds_up = all(
            np.array_equal(small, large.sum(axis=over)) for small, large in zip(counts[one], counts[other], strict=True)
        )
        assert is_sum_of(one, other) == adds_up


def test_the_parts_of_a_table_have_at_least_two_of_its_attributes():
    whole = Marginal("persons", ("area", "home"), ("age",))
    assert set(parts_of([whole])) == {
        Marginal("persons", ("area", "home")),
        Marginal("persons", ("area",), ("age",)),
        Marginal("persons", ("home",), ("age",)),
    }
    assert parts_of(parts_of([whole])) == []


def test_the_first_tables_have_sizes_and_every_attribute_with_more_than_one_value():
    schema = schema_of({"area": 2, "country": 1}, {"age": 3}, 2)
    assert first_tables(schema) == [
        Marginal("households", size=True),
        Marginal("households", ("area",)),
        Marginal("persons", (), ("age",)),
    ]
    assert helping_tables(schema) == [Marginal("households", ("area",), size=True)]


ROLES = Structure(
    (
        Role("head", "exactly one", attribute="role", values=("head",)),
        Role("spouse", "at most one", attribute="role", values=("spouse",)),
    )
)
WITH_ROLES = Schema(
    (Attribute("area", ("a", "b")),),
    (
        Attribute("role", ("head", "spouse", "other")),
        Attribute("age", tuple(map(str, range(9))), cuts=tuple(range(1, 9))),
        Attribute("sex", ("f", "m")),
    ),
    4,
    ROLES,
)


@pytest.mark.parametrize("kind", ["one_group", "one_group_added_or_removed", "one_person_attributes"])
@pytest.mark.parametrize("structure", [None, ROLES], ids=["without roles", "with roles"])
@pytest.mark.parametrize("asked", [0, 3])
def test_the_parts_of_a_budget_add_up_and_roles_take_theirs_from_the_first_tables_and_the_sweep(kind, structure, asked):
    schema = replace(WITH_ROLES, structure=structure)
    tables = all_sets(schema, 2).marginals
    neighbours = HouseholdNeighbours(PrivacyUnit(kind), schema.max_persons)
    measured = tuple(table for table in tables if neighbours.sensitivity(table, schema).l1)[:asked]
    shares = MarginalsOptions().shares
    parts = parts_of_the_budget(schema, Workload(schema, tables, measured), neighbours, shares)
    first, sweep, role, structural, wanted = map(Fraction, shares)
    roles = structure is not None and kind != "one_person_attributes"  # there one person could change who is the head
    assert bool(parts.structural) == roles
    assert parts.first == (first / 2 if roles else first)
    assert sum(parts.asked.values()) == pytest.approx(float(wanted) if asked else 0)
    assert sum(parts.by_role.values()) == pytest.approx(float(role) if roles else 0)
    assert sum(parts.structural.values()) == pytest.approx(float(structural) if roles else 0)
    assert parts.first + sum(parts.required.values()) + parts.sweep == first + sweep < 1
    if roles:
        ages, sexes = (
            parts.structural[Marginal("households", roles=(("head", name), ("spouse", name)))]
            for name in ("age", "sex")
        )
        assert ages == pytest.approx(float(2 * sexes))
        by_role = {Marginal("households", roles=((name, of),)) for name in ("head", "spouse") for of in ("age", "sex")}
        assert set(parts.by_role) == by_role.difference(measured)
        age, sex = (parts.by_role[Marginal("households", roles=(("head", name),))] for name in ("age", "sex"))
        assert age / sex == pytest.approx((9 / 2) ** 0.5)
        limited = parts.limited(lambda table: float(age) / 2)
        assert limited.by_role == {table: min(part, age / 2) for table, part in parts.by_role.items()}
        assert limited.first + sum(limited.required.values()) + limited.sweep == first + sweep
        assert limited.sweep > parts.sweep


def test_noise_alone_takes_a_table_over_its_bound_about_once_in_ten_thousand():
    cells = np.array([1, 2, 3, 5, 10, 100, 1_000, 20_000])
    chances = chi2.sf(seldom_exceeded(cells), cells)
    assert ((chances > 0.3e-4) & (chances < 3e-4)).all()
