"""Groups of values: from noisy one-way tables alone, no more merged than noise asks for, and none by mistake."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.edit_rules import Attribute, Below, Role, Structure
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.grouping import NOISE_PART, group_values, one_way_tables
from tallytree.synthesis.model import Measured
from tallytree.synthesis.table_accuracy import Evidence, table_accuracies
from tallytree.synthesis.table_selection import MEAN_SIZE
from tallytree.synthesis.workload import Workload, is_sum_of

AGES = Attribute("age", tuple(map(str, range(7))), cuts=(10, 20, 30, 40, 50), missing="6")
RELATION = Attribute("relation", ("head", "spouse", "child", "parent", "lodger", "guest"))
WORK = Attribute("work", tuple("abcde"))
SCHEMA = Schema(
    (Attribute("area", ("x", "y")),),
    (RELATION, AGES, WORK),
    4,
    Structure(
        (
            Role("head", "exactly one", attribute="relation", values=("head",)),
            Role("spouse", "at most one", attribute="relation", values=("spouse",)),
            Role("child", attribute="relation", values=("child",)),
        ),
        (Below("child", "head", "age"),),
    ),
)
PAIR = Marginal("households", roles=(("head", "age"), ("spouse", "age")))
OTHERS = Marginal("persons", (), ("relation", "age"), roles=(("head", "age"),))
BY_WORK = Marginal("households", roles=(("head", "work"), ("spouse", "work")))
TABLES = [PAIR, OTHERS, BY_WORK, Marginal("households", size=True, roles=(("head", "age"),))]


def one_way(table, seed, number):
    """Noisy one-way tables of the axes of a table; some counts are negative."""
    rng = np.random.default_rng(seed)
    return {
        one: number * rng.dirichlet(np.full(one.cells(SCHEMA), 0.5)).reshape(one.shape(SCHEMA)) + rng.normal(0, 5)
        for one in one_way_tables(table)
    }


def counted(table, known):
    sums = [np.maximum(known[one], 0).sum() for one in one_way_tables(table)]
    roles = len(table.roles)
    return max(0, sums[roles] - sum(sums[:roles])) if table.of == "persons" else min(sums)


def most_noise(table, known):
    return NOISE_PART * counted(table, known)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(TABLES), st.integers(0, 99), st.sampled_from([10.0, 1000.0]), st.floats(0.1, 200))
def test_values_are_merged_until_noise_is_a_small_part_and_no_further(table, seed, number, deviation):
    known = one_way(table, seed, number)
    found = group_values(SCHEMA, table, lambda _: deviation, known)
    assert found == group_values(SCHEMA, table, lambda _: deviation, {**known, Marginal("persons"): np.ones(())})
    found.check(SCHEMA)
    assert replace(found, groups=()) == table
    noise, most = MEAN_SIZE * deviation * prod(found.shape(SCHEMA)), most_noise(table, known)
    if MEAN_SIZE * deviation * table.cells(SCHEMA) <= most:
        assert found == table
    fewest = [4 if name == "relation" else 2 for name in table.attributes]
    if noise > most:
        assert list(found.lengths(SCHEMA)) == fewest  # no two groups may be merged any more
    for name, groups in zip(found.attributes, found.groups_of_axes, strict=True):
        if name == "age" and groups:  # neighbours only, and the missing one is alone
            assert list(groups) == sorted(groups)
            assert groups.count(groups[-1]) == 1
        if name == "relation" and groups:  # the three that tell roles are alone
            assert [groups.count(groups[place]) for place in range(3)] == [1, 1, 1]
    if found != table:  # one merger less would have been too much noise
        coarser = [length + bool(own) for length, own in zip(found.lengths(SCHEMA), found.groups, strict=True)]
        rest = table.shape(SCHEMA)[: len(table.shape(SCHEMA)) - len(coarser)]
        assert MEAN_SIZE * deviation * prod(rest) * prod(coarser) > most


def test_the_rarest_groups_are_merged_first():
    known = {
        Marginal("households", roles=((role, "work"),)): np.array(counts)
        for role, counts in (("head", [1000.0, 5, 900, 3, 800]), ("spouse", [500.0, 400, 300, 200, 100]))
    }
    found = group_values(SCHEMA, BY_WORK, lambda _: 25.0, known)
    assert found.groups == ((0, 1, 2, 1, 3), ())


def test_without_a_one_way_table_a_table_stays_as_it_is():
    known = one_way(PAIR, 1, 10)
    known.popitem()
    assert group_values(SCHEMA, PAIR, lambda _: 1e6, known) == PAIR


def test_a_table_in_groups_is_never_taken_for_the_one_with_all_values():
    grouped = replace(PAIR, groups=((0, 0, 1, 2, 2, 3, 4), ()))
    by_spouse = Marginal("households", roles=(("spouse", "age"), ("head", "work")))
    assert not is_sum_of(PAIR, grouped)
    assert not is_sum_of(grouped, PAIR)
    assert is_sum_of(grouped, grouped)
    measured = Measured(grouped, np.ones(grouped.shape(SCHEMA)), np.array(4.0))
    evidence = Evidence(SCHEMA, [measured])
    assert evidence.known(PAIR) is None
    [found] = table_accuracies(Workload(SCHEMA, (PAIR,)), [np.zeros(PAIR.shape(SCHEMA))], evidence)
    assert (found.how, found.error) == ("not measured", None)
    [other] = table_accuracies(Workload(SCHEMA, (by_spouse,)), [np.zeros(by_spouse.shape(SCHEMA))], evidence)
    assert other.part is None


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (((0,), ()), "a number for each of its values"),
        (((0, 0, 1, 2, 2, 3, 5), ()), "counted from 0"),
        (((0, 0, 1, 2, 2, 3, -1), ()), "counted from 0"),
        (((0, 0, 0, 0, 0, 0, 0),), "has groups for 1 attributes"),
    ],
)
def test_groups_that_are_none_are_refused(groups, message):
    with pytest.raises(SpecError, match=message):
        replace(PAIR, groups=groups).check(SCHEMA)


def test_a_table_in_groups_is_read_back_and_names_its_groups():
    grouped = replace(OTHERS, groups=((0, 0, 1, 2, 2, 3, 4), (0, 1, 2, 3, 3, 3), ()))
    assert Marginal.from_json(grouped.to_json()) == grouped
    assert grouped.describe() == (
        "persons other than head by age of head by relation and age (age of head in 5 groups, relation in 4 groups)"
    )
    assert grouped.labels(SCHEMA)[1] == ["head", "spouse", "child", "parent or lodger or guest"]
    assert replace(PAIR, groups=((), ())) == PAIR
    assert "groups" not in PAIR.to_json()
