"""Adaptive plans: totals first, then one of two branches. Neither branch loses more than the budget."""

import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tallytree import Budget, BudgetError, Hierarchy, Ledger, ReleaseError, SpecError, one_entity, one_group
from tallytree.lab.truth import seeded
from tallytree.privacy import MeasurementQuery, Neighbours, Plan
from tallytree.privacy.ledger import Charge
from tallytree.privacy.measurements import Branch, FirstStageFacts
from tallytree.privacy.plan import Band, BranchRule, shares_at_sizes
from tallytree.privacy.run import measure_with
from tallytree.tables import GroupSizes, Sealed
from tests.privacy.test_bands import random_queries, worst_losses
from tests.privacy.test_neighbours import RELATIONS

QUARTER = Fraction(1, 4)
TREE = Hierarchy.from_levels({"state": ["A", "B"]}, ["state"])
LISTS = (MeasurementQuery("sorted_sizes", 1, 1 - QUARTER),)
COUNTS = (MeasurementQuery("at_least", 0, QUARTER), MeasurementQuery("at_least", 1, 1 - 2 * QUARTER))


def adaptive(below=LISTS, otherwise=COUNTS, *, first=None, fewer_than=Fraction(3), budget=None):
    first = (MeasurementQuery("totals", 1, QUARTER),) if first is None else first
    return Plan(budget or Budget(epsilon=1), one_entity(), first, BranchRule(1, fewer_than, below, otherwise))


def random_branch(relation, draw, left):
    """Questions about sizes whose shares add up, at the size where they are largest, to what is left."""
    found = random_queries(relation, draw, views=("at_least", "sorted_sizes", "counts"))
    asked = [one for one in found if one.view != "totals"] or [MeasurementQuery("counts", 0, Fraction(1))]
    most = max(shares_at_sizes(asked).values())
    return tuple(replace(one, share=one.share * left / most) for one in asked)


def random_fork(relation, draw):
    levels = draw.sample(range(3), draw.randint(1, 3))
    first = tuple(MeasurementQuery("totals", level, Fraction(1, draw.randint(4, 20))) for level in levels)
    left = 1 - sum(one.share for one in first)
    branches = [random_branch(relation, draw, left) for _ in range(2)]
    return Plan(
        Budget(epsilon=1), relation.unit, first, BranchRule(levels[0], Fraction(draw.randint(1, 9), 2), *branches)
    )


@pytest.mark.parametrize("relation", [one for one in RELATIONS if not one.public_totals], ids=str)
def test_neither_way_through_a_random_fork_loses_more_than_the_budget_on_any_neighbours(relation):
    """Whatever totals were measured: the way and the lengths of lists are the same for both neighbours then."""
    draw = random.Random(f"fork {relation}")
    for _ in range(3):
        for way in random_fork(relation, draw).branches:
            lengths = draw.choice([(0, 0), (1, 1), (2, 1), (3, 2)])
            laplace, gaussian = worst_losses(relation, way.queries, lengths)
            assert laplace <= 1
            assert gaussian <= 1


@pytest.mark.parametrize("unit", [one_entity(), one_group()], ids=str)
def test_a_new_group_is_seen_by_totals_and_by_what_follows_so_either_way_loses_all_of_the_budget(unit):
    relation = Neighbours(unit, 3, False)
    for way in adaptive().branches:
        asked = [replace(one, level=2 * one.level) for one in way.queries]  # the same on a tree of three levels
        assert worst_losses(relation, asked, (3, 2)) == [1, 1]


def test_the_brute_force_can_see_a_lot_that_spends_what_the_totals_have_spent_already():
    relation = Neighbours(one_entity(), 3, False)
    cheat = [MeasurementQuery("totals", 2, QUARTER), MeasurementQuery("sorted_sizes", 2, Fraction(1))]
    assert worst_losses(relation, cheat, (3, 2)) == [Fraction(5, 4), Fraction(5, 4)]
    for few, many in (((MeasurementQuery("sorted_sizes", 1, Fraction(1)),), COUNTS), (LISTS, (*COUNTS, *LISTS))):
        with pytest.raises(BudgetError, match="must add up to exactly 1"):
            adaptive(few, many)


def test_each_way_adds_up_to_one_with_what_went_before_bands_included():
    banded = tuple(MeasurementQuery("at_least", 1, 1 - QUARTER, band) for band in (Band(1, 2), Band(3, 5)))
    for way in adaptive(below=banded).branches:
        assert max(shares_at_sizes(way.queries).values()) == 1
        assert way.branch_rule is None
        assert way.queries[0] == MeasurementQuery("totals", 1, QUARTER)
    plain = adaptive().branch(below=False)
    assert plain.branches == (plain,)
    assert plain.branch(below=True) is plain


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"first": (MeasurementQuery("counts", 1, QUARTER),)}, "totals first, and nothing else"),
        (
            {"first": (MeasurementQuery("totals", 0, QUARTER),)},
            "reads totals of level 1, and the plan does not measure them",
        ),
        ({"below": ()}, "branches of a plan measure sizes"),
        ({"otherwise": (MeasurementQuery("totals", 0, 1 - QUARTER),)}, "branches of a plan measure sizes"),
        ({"below": (MeasurementQuery("largest", 0, 1 - QUARTER),)}, "branches of a plan measure sizes"),
        ({"otherwise": (COUNTS[0], COUNTS[0], MeasurementQuery("at_least", 1, QUARTER))}, "same query twice"),
    ],
)
def test_a_fork_that_cannot_be_passed_is_refused(change, why):
    with pytest.raises(SpecError, match=why):
        adaptive(**change)


def test_the_rule_is_exact_for_numbers_of_any_size():
    rule = adaptive(fewer_than=Fraction(1, 3)).branch_rule
    assert rule.is_below([1, 0, 0, 0])
    assert not rule.is_below([1, 0, 0])
    huge = 1 << 62
    assert not rule.is_below([huge, huge, -huge, -huge, 2, 0])
    assert rule.is_below([huge, huge, -huge, -huge, 2, 0, 0])


# -------------------------------------------------------------------- measuring


def data(groups, sealed=Sealed, **facts):
    """So many groups of size 2 in each of two leaves."""
    counts = np.zeros((2, 5), np.int64)
    counts[:, 1] = groups
    return GroupSizes(TREE, 5, sealed(counts), **facts)


def noise_of(first, watch=lambda count: None):
    """The first draw, that of the totals, is this; the others are zero."""
    draws = []

    def draw(_scale, count):
        watch(count)
        draws.append(count)
        return np.array(first) if len(draws) == 1 else np.zeros(count, np.int64)

    return replace(seeded(0), laplace=draw, gaussian=draw)


def derive_facts(known):
    return FirstStageFacts(places=TREE.aggregate(np.array([2, 1])))


@pytest.mark.parametrize("budget", [Budget(epsilon=1), Budget(rho=1)], ids=str)
@pytest.mark.parametrize(
    ("groups", "noise", "few"),
    [(1, [0, 0], True), (4, [0, 0], False), (1, [5, -1], False), (4, [-9, 5], True), (3, [0, 0], False)],
)
def test_the_way_goes_by_the_noisy_totals_and_not_by_the_true_ones(groups, noise, few, budget):
    found = measure_with(noise_of(noise), data(groups), adaptive(budget=budget), derive_facts=derive_facts)
    assert found.branch == Branch(1, Fraction(3), few)
    asked = adaptive(budget=budget).branch(below=few)
    assert [(one.view, one.level, one.share) for one in found.measured] == [
        (one.view, one.level, one.share) for one in asked.queries
    ]
    assert found.measured[0].values[:, 0].tolist() == [groups + one for one in noise]
    assert sum(part.cost for part in found.measured) <= budget.amount
    if few:
        assert found.measured[1].values.tolist() == ([2, 2, 2] if groups > 1 else [0, 2, 2])


def test_two_data_sets_with_the_same_noisy_totals_are_asked_the_same():
    asked = [
        [(part.view, part.level, part.scale) for part in found.measured]
        for found in (
            measure_with(noise_of([total - groups] * 2), data(groups), adaptive(), derive_facts=derive_facts)
            for total in (2, 3)
            for groups in (0, 1, 8)
        )
    ]
    assert asked[0] == asked[1] == asked[2] != asked[3] == asked[4] == asked[5]


def test_all_of_the_budget_is_charged_before_anything_is_drawn_and_totals_come_before_the_rest(tmp_path):
    events = []

    class Watched(Sealed):
        def open_at_the_privacy_border(self):
            events.append("private counts")
            return super().open_at_the_privacy_border()

    people = data(1, sealed=Watched, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=2), Neighbours.of(people, one_entity()))

    def watch(count):
        assert [one.budget.amount for one in ledger.account("people").spendings] == [1]
        events.append(f"noise {count}")

    measure_with(noise_of([0, 0], watch), people, adaptive(), charge=Charge(ledger), derive_facts=derive_facts)
    assert events == ["noise 2", "private counts", "private counts", "noise 3"]


def test_a_way_that_does_not_fit_the_data_is_refused_before_the_ledger_even_if_it_would_not_be_taken(tmp_path):
    people = data(1, name="people")
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", Budget(epsilon=2), Neighbours.of(people, one_entity()))
    deep = adaptive(otherwise=(MeasurementQuery("at_least", 2, 1 - QUARTER),))
    wide = adaptive(otherwise=(MeasurementQuery("at_least", 1, 1 - QUARTER, Band(1, 9)),))
    for plan, why in (
        (deep, "a level that is not there"),
        (wide, "sizes up to 9"),
        (adaptive(), "measure totals with"),
    ):
        with pytest.raises(SpecError, match=why):
            measure_with(
                noise_of([0, 0]),
                people,
                plan,
                charge=Charge(ledger),
                derive_facts=None if plan == adaptive() else derive_facts,
            )
    assert not ledger.account("people").spendings


def test_a_fork_is_not_passed_without_the_totals_that_its_rule_reads():
    found = measure_with(noise_of([0, 0]), data(1), adaptive(), derive_facts=derive_facts)
    with pytest.raises(ReleaseError, match="totals of level 0, and they were not measured"):
        found.choose_branch(BranchRule(0, Fraction(1), LISTS, COUNTS))
