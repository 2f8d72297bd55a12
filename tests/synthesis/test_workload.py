from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.datasets import DOMAINS
from tallytree.synthesis.workload import MOST_TABLES, Workload, all_sets, default_workload, named, sampled_sets
from tests.synthesis.helpers import schema_of


def paper_schema(variant):
    domain = DOMAINS[variant]
    return schema_of(domain.household.values(), domain.person.values(), domain.max_persons)


def test_all_sets_of_three_are_the_papers_1640_queries():
    workload = all_sets(paper_schema("acs-small"), 3)
    assert len(workload) == 2 * 56
    assert workload.queries == 1640


def test_a_sample_has_so_many_sets_for_each_number_of_household_attributes():
    workload = sampled_sets(paper_schema("acs"), 3, 128, "a text")
    counts = [sum(len(marginal.household) == number for marginal in workload) for number in range(4)]
    assert counts == [256, 256, 256, 240]  # only 120 sets of three household attributes exist: 504 sets in all
    assert 400_000 < workload.queries < 650_000


def test_a_sample_is_named_by_its_seed_text():
    schema = paper_schema("acs")
    assert sampled_sets(schema, 3, 20, "one") == sampled_sets(schema, 3, 20, "one")
    assert sampled_sets(schema, 3, 20, "one") != sampled_sets(schema, 3, 20, "two")


@settings(max_examples=25)
@given(
    household=st.lists(st.integers(1, 4), max_size=3),
    person=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    size=st.booleans(),
    data=st.data(),
)
def test_a_large_sample_is_all_sets_and_each_has_both_tables(household, person, size, data):
    schema = schema_of(household, person, 2)
    k = data.draw(st.integers(1, len(household) + len(person) + size))
    workload = all_sets(schema, k, size=size)
    assert sampled_sets(schema, k, 1000, "text", size=size) == workload
    for of in ("households", "persons"):
        sets = {(marginal.household, marginal.person, marginal.size) for marginal in workload if marginal.of == of}
        assert 2 * len(sets) == len(workload)
        assert {len(homes) + len(people) + by_size for homes, people, by_size in sets} == {k}
    smaller = all_sets(schema, k, smaller=True, size=size)
    assert set(workload) <= set(smaller)
    assert Marginal("persons") in set(smaller)
    assert Marginal("households") not in set(smaller)
    assert smaller.queries == sum(marginal.cells(schema) for marginal in smaller)


def test_named_sets_are_sorted_into_sides():
    schema = schema_of((2, 3), (4,), 2)
    workload = named(schema, [["p0", "h1"], ["persons", "h0"]])
    assert workload.marginals == (
        Marginal("households", ("h1",), ("p0",)),
        Marginal("persons", ("h1",), ("p0",)),
        Marginal("households", ("h0",), (), True),
        Marginal("persons", ("h0",), (), True),
    )
    assert workload.queries == 12 + 12 + 6 + 6


def test_unknown_or_repeated_attributes_are_refused():
    schema = schema_of((2, 3), (4,), 2)
    with pytest.raises(SpecError, match="no attribute 'age'; it has h0, h1, p0"):
        named(schema, [["h0", "age"]])
    with pytest.raises(SpecError, match="twice"):
        named(schema, [["h0", "h0"]])
    with pytest.raises(SpecError, match="twice"):
        named(schema, [["h0"], ["h0"]])
    with pytest.raises(SpecError, match="list of names"):
        named(schema, ["h0"])
    with pytest.raises(SpecError, match="at least one table"):
        named(schema, [])
    with pytest.raises(SpecError, match="between 1 and 3"):
        all_sets(schema, 4)
    with pytest.raises(SpecError, match="per_count"):
        sampled_sets(schema, 2, 0, "text")
    with pytest.raises(SpecError, match="households have no attribute 'p0'"):
        Workload(schema, (Marginal("households", ("p0",)),))


def test_a_workload_survives_json():
    workload = sampled_sets(paper_schema("acs"), 3, 5, "text", size=True)
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload


def test_the_default_workload_has_all_sets_of_three_attributes_if_they_are_few():
    schema = schema_of([2, 3], [3, 2], 3)
    tables = set(default_workload(schema))
    assert Marginal("households", size=True) in tables
    for homes, people in [(("h0",), ("p0", "p1")), (("h0", "h1"), ("p1",)), ((), ("p0",))]:
        assert {Marginal("households", homes, people), Marginal("persons", homes, people)} <= tables


def test_the_default_workload_of_many_attributes_is_a_sample_that_the_schema_names():
    schema = schema_of([2] * 9, [2] * 9, 3)
    workload = default_workload(schema)
    assert 0.9 * MOST_TABLES <= len(workload) <= MOST_TABLES
    assert {len(table.household) + len(table.person) for table in workload} == {0, 1, 2, 3}
    assert workload == default_workload(schema)
