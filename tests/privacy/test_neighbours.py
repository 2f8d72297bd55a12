from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from tallytree import SpecError, one_entity, one_group
from tallytree.domain.histogram import at_least
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.privacy import Neighbours, PrivacyUnit, Sensitivity
from tallytree.privacy.budget import Budget, scale_for
from tallytree.privacy.relations import describe_relation, relation_to_json, sizes_from_json
from tallytree.privacy.run import _chain, view_of
from tallytree.tables import GroupSizes, Sealed
from tests.oracles import neighbours as oracle

VIEWS = ("counts", "counts_total", "at_least", "totals", "entities")
RELATIONS = [
    Neighbours(one_entity(), max_size, public, quantity_bound, rows)
    for max_size, public, (quantity_bound, rows) in product(
        (1, 2, 3), (False, True), ((1, 1), (2, 1), (1, 2), (3, 1), (2, 2))
    )
] + [Neighbours(one_group(), max_size, public) for max_size, public in product((1, 2, 3), (False, True))]


def neighbouring_pairs(relation):
    largest = relation.max_size + 1
    for data in oracle.data_sets(largest):
        if relation.unit == one_entity():
            others = oracle.entity_neighbours(data, relation.quantity_bound, relation.rows_per_entity)
        else:
            others = oracle.group_neighbours(data, largest)
        for other in others:
            yield data, other


def changes(relation, view, lengths=None):
    """For every neighbouring pair, the change of a view on each level."""
    views = {}

    def seen(data):
        if data not in views:
            shape = relation.max_size, relation.public_totals, lengths
            views[data] = [np.array(oracle.view_of_level(data, view, level, *shape)) for level in range(3)]
        return views[data]

    for data, other in neighbouring_pairs(relation):
        yield [one - two for one, two in zip(seen(data), seen(other), strict=True)]


def one_cell(relation, view):
    """With a largest size of 1 and private totals there is one cell of counts; it is charged as if there were two."""
    return view == "counts" and relation.max_size == 1 and not relation.public_totals


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_sensitivities_are_the_exact_maxima_over_all_small_neighbouring_data_sets(relation, view):
    if view == "counts_total" and relation.public_totals:
        with pytest.raises(SpecError, match="totals are public"):
            relation.sensitivity(view)
        return
    worst_l1, worst_l2 = 0, 0
    for change in changes(relation, view):
        worst_l1 = max(worst_l1, *(int(np.abs(level).sum()) for level in change))
        worst_l2 = max(worst_l2, *(int((level**2).sum()) for level in change))
    if one_cell(relation, view):
        worst_l1, worst_l2 = 2 * worst_l1, 2 * worst_l2
    assert relation.sensitivity(view) == Sensitivity(worst_l1, worst_l2)


def reached(relation):
    """May one group take all that a neighbour changes, so that the bounds on single sizes are reached?"""
    if relation.unit == one_group():
        return True
    return min(relation.quantity_bound, relation.max_size) * relation.rows_per_entity <= relation.max_size


@cache
def numbered_pairs(relation):
    """All data sets that have neighbours, and the neighbouring pairs as two columns of their numbers."""
    pairs = set(neighbouring_pairs(relation))
    numbers = {data: number for number, data in enumerate(dict.fromkeys(data for pair in pairs for data in pair))}
    return list(numbers), np.array([[numbers[data] for data in pair] for pair in pairs]).T


def worst(relation, view, lengths=None):
    """The largest changes of a view of each level, in both norms."""
    data_sets, (ones, others) = numbered_pairs(relation)
    found = []
    for level in range(3):
        shape = relation.max_size, relation.public_totals, lengths
        seen = np.array([oracle.view_of_level(data, view, level, *shape) for data in data_sets])
        change = seen[ones] - seen[others]
        found.append(Sensitivity(int(np.abs(change).sum(axis=1).max()), int((change**2).sum(axis=1).max())))
    return found


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_lists_of_sizes_of_every_public_length_change_by_no_more_than_their_sensitivity(relation):
    """With public totals there is one length; with private ones every length, also too short or too long, is tried."""
    stated = relation.sensitivity("sorted_sizes")
    public = (2, 1)  # groups in each leaf
    every_length = [public] if relation.public_totals else list(product(range(4), range(3)))
    for lengths in every_length:
        for found in worst(relation, "sorted_sizes", lengths):
            assert found.l1 <= stated.l1
            assert found.l2_squared <= stated.l2_squared
            if lengths[0] >= 2 and lengths[1] >= 1:
                assert found.l1 == stated.l1
                assert found.l2_squared == stated.l2_squared or not reached(relation)
            if sum(lengths) == 0:
                assert found == Sensitivity(0, 0)


@pytest.mark.parametrize("relation", [relation for relation in RELATIONS if relation.unit == one_entity()], ids=str)
def test_the_largest_size_changes_by_no_more_than_its_sensitivity(relation):
    stated = relation.sensitivity("largest")
    for found in worst(relation, "largest"):
        assert found.l1 <= stated.l1
        assert found.l2_squared <= stated.l2_squared
        if reached(relation):
            assert found == stated


def test_the_largest_size_is_refused_where_one_group_can_change_it_altogether():
    for max_size, public in product((1, 3), (False, True)):
        relation = Neighbours(one_group(), max_size, public)
        assert worst(relation, "largest")[0].l1 == max_size
        with pytest.raises(SpecError, match="public max_size, or protect one_entity"):
            relation.sensitivity("largest")


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_a_chain_is_as_many_times_as_sensitive_as_its_level_has_regions(relation):
    """The most is reached in the region that comes last, so it is the one with two groups that is put there."""
    worst_l1, worst_l2 = [0, 0, 0], [0, 0, 0]
    for change in changes(relation, "chain, regions turned round"):
        for level, difference in enumerate(change):
            worst_l1[level] = max(worst_l1[level], int(np.abs(difference).sum()))
            worst_l2[level] = max(worst_l2[level], int((difference**2).sum()))
    for level, regions in enumerate((1, 2, 2)):
        assert relation.sensitivity("chain", regions) == Sensitivity(worst_l1[level], worst_l2[level])
        assert relation.sensitivity("chain", regions).l1 == regions * relation.sensitivity("at_least").l1


@pytest.mark.parametrize("relation", [relation for relation in RELATIONS if not relation.public_totals], ids=str)
def test_a_total_costs_nothing_beside_the_counts_and_something_as_a_question_of_its_own(relation):
    together, alone = relation.sensitivity("counts_total"), relation.sensitivity("totals")
    assert together == relation.sensitivity("counts")
    assert alone.l1 > 0
    for change in changes(relation, "counts_total"):
        for level in change:  # so one count less always shows in the total
            rows = level.reshape(-1, relation.max_size + 1)
            assert rows[:, :-1].sum(axis=1).tolist() == rows[:, -1].tolist()


@pytest.mark.parametrize("view", ["counts", "at_least", "sorted_sizes", "entities", "chain"])
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_levels_compose_to_exactly_the_budget(relation, view):
    """The worst log-likelihood ratio of discrete Laplace noise is Σ |change| / scale over all levels together."""
    budget = Budget(epsilon=1)
    plan = every_level(view, oracle.TREE, budget, relation.unit, shares=[1, 2, 5])
    scales = [
        scale_for("discrete_laplace", relation.sensitivity(view, regions), plan.cost(query))
        for query, regions in zip(plan.queries, (1, 2, 2), strict=True)
    ]
    loss = max(
        sum(int(np.abs(level).sum()) / scale for level, scale in zip(change, scales, strict=True))
        for change in changes(relation, "chain, regions turned round" if view == "chain" else view, lengths=(3, 2))
    )
    assert loss == (Fraction(1, 2) if one_cell(relation, view) else 1)


def test_the_views_that_are_measured_are_the_views_of_the_oracle():
    for data, public in product(oracle.data_sets(3), (False, True)):
        sums = oracle.TREE.aggregate(oracle.leaf_counts(data, 2, public))
        for level in range(3):
            rows = sums[oracle.TREE.level_slice(level)]
            survivors = at_least(rows, first_size=0 if public else 1)
            for view in ("counts", "counts_total", "totals"):
                found = view_of(view, rows, 0 if public else 1)
                assert found.ravel().tolist() == oracle.view_of_level(data, view, level, 2, public)
            assert survivors.ravel().tolist() == oracle.view_of_level(data, "at_least", level, 2, public)
            assert _chain(rows).T.ravel().tolist() == oracle.view_of_level(data, "chain", level, 2, public)
            largest = view_of("largest", rows, 0 if public else 1)
            assert largest.ravel().tolist() == oracle.view_of_level(data, "largest", level, 2, public)
            entities = view_of("entities", rows, 0 if public else 1)
            assert entities.ravel().tolist() == oracle.view_of_level(data, "entities", level, 2, public)


def test_group_privacy_on_counts_never_protects_an_entity_less():
    for max_size, public in product((1, 5), (False, True)):
        group = Neighbours(one_group(), max_size, public).sensitivity("counts")
        entity = Neighbours(one_entity(), max_size, public).sensitivity("counts")
        assert group == entity


def sizes(**facts):
    counts = Sealed(np.zeros((2, 3), dtype=np.int64))
    return GroupSizes(oracle.TREE, 3, counts, **facts)


def test_one_group_refuses_split_groups_and_dropped_rows_with_the_reason():
    with pytest.raises(SpecError, match="were split"):
        Neighbours.of(sizes(groups_were_split=True), one_group())
    with pytest.raises(SpecError, match="were dropped"):
        Neighbours.of(sizes(rows_were_bounded=True, rows_per_entity=3, entity_column=True), one_group())
    assert Neighbours.of(sizes(rows_were_bounded=True, rows_per_entity=3), one_entity()).rows_per_entity == 3


def test_the_relation_in_words_says_what_is_protected():
    row = Neighbours.of(sizes(), one_entity())
    assert "a row is what is protected" in describe_relation(row)
    assert "one entity" in describe_relation(replace(row, entity_column=True))
    assert "at most 4 rows" in describe_relation(replace(row, entity_column=True, rows_per_entity=4))
    assert "between 0 and 7" in describe_relation(replace(row, quantity_bound=7))
    assert "'3 or more'" in describe_relation(row)
    assert "public" in describe_relation(replace(row, public_totals=True))
    assert "added, removed" in describe_relation(Neighbours.of(sizes(), one_group()))


def test_relations_round_trip_and_bad_ones_are_refused():
    for relation in RELATIONS:
        assert sizes_from_json(relation_to_json(relation)) == relation
    with pytest.raises(SpecError, match="unknown privacy unit"):
        PrivacyUnit("household")
    with pytest.raises(SpecError, match="max_size"):
        Neighbours(one_entity(), 0, False)
    with pytest.raises(SpecError, match="unknown view"):
        RELATIONS[0].sensitivity("sorted")
    with pytest.raises(SpecError, match="number of regions"):
        RELATIONS[0].sensitivity("chain")
