"""Roles and rules: what they refuse, contradictions found beforehand, and what breaks them."""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from tallytree.core.errors import SpecError
from tallytree.domain.edit_rules import (
    Attribute,
    Below,
    Has,
    Implies,
    Role,
    SizeClass,
    Structure,
    may_be_below,
    missing_together,
)
from tallytree.domain.feasibility import Search
from tallytree.domain.schema import Schema
from tallytree.tables.contingency import Rows, any_broken
from tests.oracles.rules import HOUSEHOLD, MOST, PERSON, keeps, schema_with, structures
from tests.oracles.synthesis import every_household

PLAIN = Schema(HOUSEHOLD, PERSON, MOST)
HEAD = Role("head", "exactly one", attribute="relation", values=("head",))
EVERY = list(every_household(Schema(HOUSEHOLD, PERSON, 2)))


def rows_of(schema, households):
    starts = np.concatenate([[0], np.cumsum([len(persons) for _, persons in households])]).astype(np.int64)
    household = {each.name: np.array([home[at] for home, _ in households]) for at, each in enumerate(schema.household)}
    person = {
        each.name: np.array([person[at] for _, persons in households for person in persons], np.int64)
        for at, each in enumerate(schema.person)
    }
    return Rows(schema, starts, household, person)


@settings(max_examples=30, deadline=None)
@given(structures())
def test_households_that_break_a_rule_are_those_that_the_definition_says(structure):
    schema = Schema(HOUSEHOLD, PERSON, MOST)
    object.__setattr__(schema, "structure", structure)  # also where rules contradict each other
    some = EVERY[:: max(1, len(EVERY) // 400)]
    assert any_broken(rows_of(schema, some)).tolist() == [not keeps(structure, schema, each) for each in some]


@settings(max_examples=30, deadline=None)
@given(structures())
def test_the_search_finds_a_household_exactly_where_there_is_one(structure):
    schema = Schema(HOUSEHOLD, PERSON, 2)
    object.__setattr__(schema, "structure", structure)
    search = Search(structure, HOUSEHOLD, PERSON, 2)
    kept = {size for size in range(3) if any(keeps(structure, schema, one) for one in EVERY if len(one[1]) == size)}
    for size in range(3):
        found = search.household(size)
        assert (found is not None) == (size in kept), size
        if found is not None:
            household = tuple(found.household.values()), tuple(tuple(one.values()) for one in found.persons)
            assert keeps(structure, schema, household)


@settings(max_examples=30, deadline=None)
@given(structures())
def test_what_is_written_is_read_back(structure):
    assert Structure.from_json(json.loads(json.dumps(structure.to_json()))) == structure
    schema = schema_with(structure)
    if schema is not None:
        assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
        assert hash(schema) == hash(Schema.from_json(schema.to_json()))


def test_a_schema_without_structure_is_written_as_ever():
    assert set(PLAIN.to_json()) == {"household", "person", "max_persons"}


def test_bins_are_compared_by_what_could_be():
    age = Attribute("age", ("a", "b", "c", "?"), cuts=(10, 20), missing="?")
    assert may_be_below(age, 0).tolist() == [
        [True, True, True, True],
        [False, True, True, True],
        [False, False, True, True],
        [True, True, True, True],
    ]
    assert may_be_below(age, 10).tolist()[1] == [False, False, True, True]
    exact = Attribute("age", ("0", "1", "2"))
    assert may_be_below(exact, 1).tolist() == [[False, True, True], [False, False, True], [False, False, False]]
    words = Attribute("age", ("young", "old"))
    assert may_be_below(words, 0).tolist() == [[True, True], [False, True]]


def test_columns_are_missing_together_or_not_at_all():
    named = {
        "school": Attribute("school", ("yes", "none"), missing="none"),
        "grade": Attribute("grade", ("1", "2", "none"), missing="none"),
    }
    rules = missing_together(named, ("school", "grade"))
    schema = Schema((), tuple(named.values()), 1, Structure((), rules))
    households = [((), (person,)) for person in product(range(2), range(3))]
    flags = any_broken(rows_of(schema, households))
    assert [person for (_, (person,)), flag in zip(households, flags, strict=True) if not flag] == [
        (0, 0),
        (0, 1),
        (1, 2),
    ]
    with pytest.raises(SpecError, match="which has no `missing`, the value for an empty cell"):
        missing_together({**named, "age": Attribute("age", ("1",))}, ("school", "age"))


@pytest.mark.parametrize(
    ("roles", "rules", "message"),
    [
        ([HEAD], [Implies(then={"age": "below 10"}, role="head"), Implies(then={"age": "20 or more"})], "contradict"),
        (
            [HEAD, Role("child", attribute="relation", values=("child",), may={"age": "20 or more"})],
            [Below("child", "head", "age"), Implies(role="head", then={"age": "below 10"})],
            "nobody can be in the role 'child'",
        ),
        ([HEAD], [Has("head", {"area": "town"}, only=True), Implies(then={"area": "country"})], "contradict"),
        ([HEAD], [SizeClass("kind", {"couple": 9, "single": 9, "more": 9})], "contradict"),
        ([HEAD, HEAD], [], "two roles have the same name"),
        ([HEAD, Role("first", position=1)], [], "all by position"),
        ([Role("second", position=2)], [], "without a gap"),
        ([HEAD, Role("boss", attribute="relation", values=("head",))], [], "a value defines one role"),
        ([Role("head", attribute="relation", values=("haed",))], [], "did you mean 'head'"),
        ([HEAD], [Below("head", "uncle", "age")], "names the role 'uncle'"),
        ([HEAD], [Implies(then={"ages": "below 10"})], "no attribute 'ages'"),
        ([HEAD], [Has("head", {"age": "below 10"})], "no attribute 'age'"),
        (
            [HEAD, Role("child", attribute="relation", values=("child",))],
            [Below("head", "child", "age")],
            "compares with one person",
        ),
        (
            [HEAD, Role("child", attribute="relation", values=("child",))],
            [Below("child", "head", "relation", by=3)],
            "are not numbers",
        ),
    ],
)
def test_contradictions_and_nonsense_are_refused(roles, rules, message):
    with pytest.raises(SpecError, match=message):
        Schema(HOUSEHOLD, PERSON, MOST, Structure(tuple(roles), tuple(rules)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Role("head"), "an attribute and its values, or a position"),
        (lambda: Role("a.b", position=1), "without a full stop"),
        (lambda: Role("others", position=1), "not 'others'"),
        (lambda: Role("head", attribute="relation"), "needs the values"),
        (lambda: Role("head", position=0), "at least 1"),
        (lambda: Role("head", "two", position=1), "number is one of"),
        (lambda: Role("second", "exactly one", position=2), "not every household"),
        (lambda: Role("head", position=1, may={"age": []}), "lists no value"),
        (lambda: Implies(then={}), "the values that must hold"),
        (lambda: Has("head", {}), "needs `household`"),
        (lambda: Below("head", "head", "age"), "with itself"),
        (lambda: SizeClass("kind", {"couple": (2, 1)}), "the smallest and the largest"),
        (lambda: missing_together({}, ("a",)), "at least two"),
    ],
)
def test_values_that_say_nothing_are_refused(make, message):
    with pytest.raises(SpecError, match=message):
        make()
