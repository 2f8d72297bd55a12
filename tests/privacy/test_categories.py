"""Categories at the border: sensitivities by brute force, plans of sums and details, and what is refused."""

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from tallytree import Categories, Hierarchy, SpecError, one_entity, one_group
from tallytree.domain.categories import NO_CATEGORIES
from tallytree.domain.histogram import at_least
from tallytree.lab.truth import measured_without_noise
from tallytree.mechanisms import prepare
from tallytree.privacy import Budget, MeasurementQuery, Neighbours, Plan, Sensitivity, measure
from tallytree.privacy.relations import describe_relation, relation_to_json, sizes_from_json
from tallytree.tables import GroupSizes, Sealed
from tests.oracles import categories as oracle

BY = {who: Categories.of({"sort": ["a", "b"]}, who) for who in ("group", "members")}
RELATIONS = [
    Neighbours(unit, max_size, public, quantity_bound, categories=BY[who])
    for unit, max_size, public, quantity_bound, who in product(
        (one_entity(), one_group()), (1, 2), (False, True), (1, 2), ("group", "members")
    )
    if not (public and who == "members") and not (unit == one_group() and quantity_bound > 1)
]
VIEWS = ("counts", "counts_total", "at_least", "totals", "sorted_sizes", "entities")


@cache
def neighbouring_pairs(relation):
    largest, members = relation.max_size + 1, relation.categories.members_decide
    pairs = []
    for data in oracle.data_sets(largest):
        others = (
            oracle.entity_neighbours(data, relation.quantity_bound, members=members)
            if relation.unit == one_entity()
            else oracle.group_neighbours(data, largest, members=members)
        )
        pairs += [(data, other) for other in others if other != data]
    return pairs


def worst_changes(relation, view, *, summed):
    """The largest L1 and squared L2 change of a view on any level, and the largest number of categories touched."""
    seen = {}

    def views(data):
        if data not in seen:
            facts = relation.max_size, relation.public_totals
            seen[data] = [
                np.array(oracle.view_of_level(data, view, level, *facts, summed=summed)) for level in range(2)
            ]
        return seen[data]

    worst_l1 = worst_l2 = touched = 0
    for one, other in neighbouring_pairs(relation):
        for before, after in zip(views(one), views(other), strict=True):
            change = np.abs(before - after)
            worst_l1, worst_l2 = max(worst_l1, int(change.sum())), max(worst_l2, int((change**2).sum()))
            if not summed:
                touched = max(touched, int((change.reshape(2, -1) > 0).any(axis=1).sum()))
    return worst_l1, worst_l2, touched


@pytest.mark.parametrize("summed", [False, True], ids=["by category", "over all"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_sensitivities_with_categories_are_the_exact_maxima_over_all_small_neighbouring_data_sets(
    relation, view, summed
):
    if view == "counts_total" and relation.public_totals:
        with pytest.raises(SpecError, match="totals are public"):
            relation.sensitivity(view, summed=summed)
        return
    l1, l2, _ = worst_changes(relation, view, summed=summed)
    if relation.categories.members_decide and not summed and view in ("at_least", "sorted_sizes", "entities"):
        with pytest.raises(SpecError, match="cannot be measured by category where members decide it"):
            relation.sensitivity(view)
        return
    if view == "counts" and relation.max_size == 1 and not relation.public_totals and l1 == 1:
        l1, l2 = 2, 2  # one cell, charged as if there were two
    assert relation.sensitivity(view, summed=summed) == Sensitivity(l1, l2)


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_whoever_decides_says_how_many_categories_one_neighbour_can_touch(relation):
    _, _, touched = worst_changes(relation, "at_least", summed=False)
    assert touched == (2 if relation.categories.members_decide else 1)


@pytest.mark.parametrize("largest", [1, 2])
@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=str)
def test_survival_counts_by_category_would_change_by_up_to_twice_the_largest_size(unit, largest):
    relation = Neighbours(unit, largest, False, quantity_bound=1, categories=BY["members"])
    l1, _, _ = worst_changes(relation, "at_least", summed=False)
    assert l1 == 2 * largest


TREE = Hierarchy.from_levels({"county": ["x", "y"]}, ["county"])


def private(who, counts=None, **facts):
    counts = np.arange(12).reshape(4, 3) if counts is None else counts
    return GroupSizes(TREE.by_category(BY[who]), 3, Sealed(counts), **facts)


def plan_of(*queries, unit="one_entity"):
    return Plan(Budget.of({"epsilon": 1}), unit, tuple(queries))


def test_sums_and_details_are_measured_as_they_are():
    queries = (
        MeasurementQuery("at_least", 1, Fraction(1, 4), summed=True),
        MeasurementQuery("at_least", 2, Fraction(1, 4), summed=True),
        MeasurementQuery("counts", 2, Fraction(1, 2)),
    )
    data = private("members")
    root, county, detail = measured_without_noise(data, plan_of(*queries)).measured
    leaves = np.arange(12).reshape(2, 2, 3)
    assert np.array_equal(detail.values, leaves.reshape(4, 3))
    assert np.array_equal(county.values, at_least(leaves.sum(axis=0), 1))
    assert np.array_equal(root.values, at_least(leaves.sum(axis=(0, 1))[np.newaxis], 1))
    assert [part.sensitivity.l1 for part in (root, county, detail)] == [1, 1, 2]


def test_sums_cost_what_they_cost_without_categories_and_shares_add_up():
    queries = (
        MeasurementQuery("at_least", 2, Fraction(1, 2), summed=True),
        MeasurementQuery("counts", 2, Fraction(1, 2)),
    )
    found = measure(private("members"), plan_of(*queries))
    assert sum(part.cost for part in found.measured) == 1
    over = found.over_categories
    assert over.hierarchy is TREE
    assert over.neighbours.categories == NO_CATEGORIES
    assert [part.level for part in over.measured] == [1]


@pytest.mark.parametrize(
    ("queries", "words"),
    [
        ([MeasurementQuery("at_least", 2, Fraction(1))], "cannot be measured by category"),
        ([MeasurementQuery("at_least", 0, Fraction(1), summed=True)], "below the root of a tree by category"),
        ([MeasurementQuery("sorted_sizes", 2, Fraction(1), summed=True)], "are measured as at_least or counts"),
    ],
)
def test_what_cannot_be_measured_by_category_is_refused_before_anything_is_spent(queries, words):
    with pytest.raises(SpecError, match=words):
        measure(private("members"), plan_of(*queries))


def test_sums_are_refused_where_there_are_no_categories():
    plain = GroupSizes(TREE, 3, Sealed(np.ones((2, 3), np.int64)))
    with pytest.raises(SpecError, match="tree by category"):
        measure(plain, plan_of(MeasurementQuery("at_least", 1, Fraction(1), summed=True)))


def test_members_go_with_neither_a_public_list_nor_dropped_rows():
    for facts in ({"leaf_totals": np.ones(4, np.int64)}, {"rows_were_bounded": True, "rows_per_entity": 2}):
        with pytest.raises(SpecError, match="members decide a category"):
            Neighbours.of(private("members", **facts), "one_entity")


@pytest.mark.parametrize("who", ["group", "members"])
def test_the_relation_says_who_decides_and_comes_back_from_plain_values(who):
    relation = Neighbours(one_group(), 3, False, categories=BY[who])
    assert ("which the group decides" if who == "group" else "which its members decide") in describe_relation(relation)
    assert ("within its region and sort" in describe_relation(relation)) == (who == "group")
    assert sizes_from_json(relation_to_json(relation)) == relation
    assert relation != Neighbours(one_group(), 3, False)
    assert "categories" not in relation_to_json(Neighbours(one_group(), 3, False))


def test_sums_over_categories_are_those_of_each_level():
    tree = TREE.by_category(BY["group"])
    values = tree.aggregate(np.arange(12).reshape(4, 3))
    assert np.array_equal(tree.over_categories(values), TREE.aggregate(np.arange(12).reshape(2, 2, 3).sum(axis=0)))
    assert np.array_equal(tree.on_level(values, 2), np.arange(12).reshape(2, 2, 3))


# ---------------------------------------------------------------- the exact loss of what a release measures


def leaf_counts(data, max_size, public_totals):
    """`[categories × leaves, sizes]`, counted group by group."""
    first = 0 if public_totals else 1
    counts = np.zeros((2, 2, max_size + 1 - first), np.int64)
    for leaf, (size, category) in zip(oracle.LEAF_OF_GROUP, data, strict=True):
        if size >= first:
            counts[category, leaf, min(size, max_size) - first] += 1
    return counts.reshape(4, -1)


@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=str)
@pytest.mark.parametrize(("who", "public"), [("group", False), ("group", True), ("members", False)])
@pytest.mark.parametrize("name", ["tallytree", "pgsr-hierarchical-dp"])
def test_the_worst_loss_over_all_small_neighbours_is_the_budget(name, who, public, unit):
    epsilon, largest = Fraction(7, 10), 2
    relation = Neighbours(unit, largest, public, categories=BY[who])
    tree = TREE.by_category(BY[who])
    _, plan = prepare(
        name,
        {"leaves": "at_least"} if name == "tallytree" else {},
        neighbours=relation,
        hierarchy=tree,
        totals=np.array([3, 1, 2, 1, 0, 1, 2]) if public else None,
        budget=Budget(epsilon=epsilon),
    )
    seen = {}

    def measured(data):
        if data not in seen:
            counts = leaf_counts(data, largest, public)
            totals = counts.sum(axis=1) if public else None
            parts = measured_without_noise(GroupSizes(tree, largest, Sealed(counts), totals), plan).measured
            seen[data] = [(part.values, part.scale) for part in parts]
        return seen[data]

    worst = Fraction(0)
    for one, other in neighbouring_pairs(relation):
        if public and oracle.public_list(one) != oracle.public_list(other):
            continue
        pairs = zip(measured(one), measured(other), strict=True)
        worst = max(worst, sum((int(np.abs(a - b).sum()) / scale for (a, scale), (b, _) in pairs), Fraction(0)))
    # A replaced group moves by both sizes, or touches two cells of counts: 1/2 · 3/10 + 7/10 of the budget at most.
    short = name == "tallytree" and who == "members" and unit == one_group()
    assert worst == epsilon * (Fraction(17, 20) if short else 1)


def test_the_exact_loss_can_see_a_cheat():
    """Survival counts by category with the noise of a category that the group decides, where members decide it."""
    relation = Neighbours(one_entity(), 2, False, categories=BY["members"])
    as_if = TREE.by_category(BY["group"])
    plan = plan_of(MeasurementQuery("at_least", 2, Fraction(1)))
    worst = 0
    for one, other in neighbouring_pairs(relation)[::7]:
        (a,), (b,) = (
            measured_without_noise(GroupSizes(as_if, 2, Sealed(leaf_counts(data, 2, False))), plan).measured
            for data in (one, other)
        )
        worst = max(worst, np.abs(a.values - b.values).sum() / a.scale)
    assert worst > 1
