"""Bands of sizes: plans of them lose no more than the budget, and what is measured is what was proved."""

import random
from fractions import Fraction

import numpy as np
import pytest

from tallytree import Budget, BudgetError, ReleaseError, SpecError, measure, one_entity, one_group
from tallytree.lab.truth import measured_without_noise
from tallytree.privacy import MeasurementQuery, Plan
from tallytree.privacy.measurements import FirstStageFacts
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Band, shares_at_sizes
from tallytree.tables import GroupSizes, Sealed
from tests.oracles import neighbours as oracle
from tests.privacy.test_neighbours import RELATIONS, numbered_pairs

LENGTHS = (2, 1)  # groups in each leaf
HALF = Fraction(1, 2)


def random_queries(relation, draw, *, views):
    """Random queries for bands of sizes, or for all sizes, with any shares."""
    found = []
    for level in range(3):
        kinds = [view for view in views if draw.random() < 0.8]
        if not relation.public_totals and draw.random() < 0.3:
            found.append(MeasurementQuery("totals", level, Fraction(draw.randint(1, 5))))
        for view in kinds:
            first = 1
            while first <= relation.max_size:
                last = draw.randint(first, relation.max_size)
                whole = first == 1 and last == relation.max_size and draw.random() < 0.5
                if view not in ("at_least", "sorted_sizes"):
                    found.append(MeasurementQuery(view, level, Fraction(draw.randint(1, 9))))
                    break
                if draw.random() < 0.8:
                    band = None if whole else Band(first, last)
                    found.append(MeasurementQuery(view, level, Fraction(draw.randint(1, 9)), band))
                first = last + 1
    return found or [MeasurementQuery("at_least", 0, Fraction(1), Band(1, 1))]


def random_plan(relation, draw, views=("at_least", "sorted_sizes", "counts")):
    """Shares scaled, by counting them at each size, so that the largest sum is 1."""
    asked = random_queries(relation, draw, views=views)
    most = max(
        sum(one.share for one in asked if one.sizes is None or one.sizes[0] <= size <= one.sizes[1])
        for size in range(1, relation.max_size + 1)
    )
    scaled = tuple(MeasurementQuery(one.view, one.level, one.share / most, one.sizes) for one in asked)
    return Plan(Budget(epsilon=1), relation.unit, scaled)


def worst_losses(relation, queries, lengths=LENGTHS):
    """The largest part of the budget that neighbours lose, exactly: with Laplace and with Gaussian noise."""
    data_sets, (ones, others) = numbered_pairs(relation)
    l1, l2 = [], []
    for one in queries:
        shape = relation.max_size, relation.public_totals, lengths
        seen = np.array([oracle.band_of_level(data, one.view, one.level, one.sizes, *shape) for data in data_sets])
        change = seen[ones] - seen[others]
        l1.append(np.abs(change).sum(axis=1))
        l2.append((change**2).sum(axis=1))
    stated = [relation.sensitivity(one.view) for one in queries]
    losses = []
    for changes, bounds in ((l1, [one.l1 for one in stated]), (l2, [one.l2_squared for one in stated])):
        rows = np.unique(np.array(changes).T, axis=0).tolist()
        weights = [one.share / bound for one, bound in zip(queries, bounds, strict=True)]
        losses.append(max(sum(w * by for w, by in zip(weights, row, strict=True)) for row in rows))
    return losses


@pytest.mark.parametrize("relation", RELATIONS, ids=str)
def test_random_plans_with_bands_lose_no_more_than_the_budget_on_any_neighbours(relation):
    draw = random.Random(str(relation))
    for _ in range(6):
        plan = random_plan(relation, draw)
        lengths = LENGTHS if relation.public_totals else draw.choice([(0, 0), (1, 1), (2, 1), (3, 2)])
        laplace, gaussian = worst_losses(relation, plan.queries, lengths)
        assert laplace <= 1
        assert gaussian <= 1


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("public_totals", [False, True])
def test_where_a_row_adds_one_the_whole_budget_is_lost_so_no_more_could_be_spent(public_totals, rows):
    relation = Neighbours(one_entity(), 3, public_totals, 1, rows)
    draw = random.Random(7)
    for view in ("at_least", "sorted_sizes"):
        for _ in range(8):
            plan = random_plan(relation, draw, views=(view,))
            queries = [one for one in plan.queries if one.view != "totals"]
            most = max(shares_at_sizes(queries).values())
            laplace, gaussian = worst_losses(relation, queries)
            assert laplace == most
            assert gaussian == most or rows > 1


def test_a_change_that_touches_all_bands_loses_the_budget_and_one_band_alone_is_charged_more_than_it_needs():
    """The noise of a band is that of all sizes, so a band by itself loses its part of the sizes and no more."""
    relation = Neighbours(one_group(), 3, True)
    bands = [
        MeasurementQuery("at_least", 2, Fraction(1), Band(1, 1)),
        MeasurementQuery("at_least", 2, Fraction(1), Band(2, 3)),
    ]
    assert worst_losses(relation, bands) == [1, 1]
    assert worst_losses(relation, bands[:1]) == [Fraction(1, 3), Fraction(1, 3)]


def test_the_brute_force_can_see_shares_that_add_up_to_more_at_one_size():
    relation = Neighbours(one_entity(), 3, True)
    cheat = [
        MeasurementQuery("at_least", 0, Fraction(2, 3), Band(1, 2)),
        MeasurementQuery("sorted_sizes", 2, Fraction(2, 3), Band(2, 3)),
    ]
    assert worst_losses(relation, cheat) == [Fraction(4, 3), Fraction(4, 3)]
    with pytest.raises(BudgetError, match="not to 4/3 at size 2, where they are largest"):
        Plan(Budget(epsilon=1), one_entity(), tuple(cheat))


@pytest.mark.parametrize("public_totals", [False, True])
def test_what_is_measured_of_bands_is_what_the_brute_force_looks_at(public_totals):
    draw, largest = random.Random(3), 3
    relation = Neighbours(one_entity(), largest, public_totals)
    for data in oracle.data_sets(largest + 1):
        plan, lengths = random_plan(relation, draw), LENGTHS
        first = [one for one in plan.queries if one.view == "totals"]
        counts, totals = Sealed(oracle.leaf_counts(data, largest, public_totals)), np.array(LENGTHS)
        if not public_totals:
            if not first:
                continue  # lists need totals that were measured
            lengths, totals = (draw.randint(0, 3), draw.randint(0, 3)), None
        first_stage = FirstStageFacts(oracle.TREE.aggregate(np.array(lengths))) if first else None
        found = measured_without_noise(GroupSizes(oracle.TREE, largest, counts, leaf_totals=totals), plan, first_stage)
        asked = [*first, *(one for one in plan.queries if one.view != "totals")]
        for part, one in zip(found.measured, asked, strict=True):
            assert (part.view, part.level, part.sizes, part.share) == (one.view, one.level, one.sizes, one.share)
            assert part.sensitivity == relation.sensitivity(one.view)  # whatever the band
            expected = oracle.band_of_level(data, one.view, one.level, one.sizes, largest, public_totals, lengths)
            assert part.values.ravel().tolist() == expected
            if one.view != "sorted_sizes":
                assert part.values.shape == ((1, 2, 2)[one.level], found.columns(one.view, one.sizes))


# -------------------------------------------------------------------- plans that are refused


def data(**facts):
    return GroupSizes(oracle.TREE, 3, Sealed(np.ones((2, 4), np.int64)), leaf_totals=np.array([4, 4]), **facts)


def test_a_band_has_whole_ends_of_one_or_more_and_a_view_that_has_sizes():
    for first, last in ((0, 2), (3, 2), (-1, -1), (1.0, 2), (1, 2.5), (True, 2), ("1", "2"), (1, None)):
        with pytest.raises(SpecError, match="the ends of a band of sizes must be integers"):
            MeasurementQuery("at_least", 0, Fraction(1), Band(first, last))
    for view in ("counts", "totals", "largest", "chain"):
        with pytest.raises(SpecError, match=f"{view} cannot be asked for a band"):
            MeasurementQuery(view, 0, Fraction(1), Band(1, 2))
    assert MeasurementQuery("at_least", 0, Fraction(1), (1, 2)).sizes == Band(1, 2)


@pytest.mark.parametrize("other", [None, Band(1, 2), Band(2, 3), Band(1, 3)], ids=str)
def test_bands_of_one_view_and_level_do_not_overlap(other):
    def plan(level):
        asked = MeasurementQuery("at_least", 0, HALF, Band(1, 2)), MeasurementQuery("at_least", level, HALF, other)
        return Plan(Budget(epsilon=1), one_entity(), asked)

    with pytest.raises(SpecError, match="same query twice: at_least of level 0"):
        plan(0)
    assert plan(1).queries[1].sizes == other


@pytest.mark.parametrize(
    ("shares", "size", "most"),
    [((1, 1, 1), 2, "2"), ((HALF, HALF, 1), 3, "3/2"), ((HALF, Fraction(1, 3), HALF), 2, "5/6")],
)
def test_shares_that_do_not_add_up_at_some_size_are_refused_with_that_size(shares, size, most):
    bands = Band(1, 2), Band(2, 4), Band(3, 5)
    asked = tuple(
        MeasurementQuery("at_least", level, Fraction(share), band)
        for level, (share, band) in enumerate(zip(shares, bands, strict=True))
    )
    with pytest.raises(BudgetError, match=f"not to {most} at size {size}, where they are largest"):
        Plan(Budget(epsilon=1), one_entity(), asked)


def test_shares_below_one_at_some_sizes_are_a_plan_if_they_are_one_at_another():
    asked = MeasurementQuery("at_least", 0, HALF, Band(1, 3)), MeasurementQuery("at_least", 2, HALF, Band(2, 2))
    Plan(Budget(epsilon=1), one_entity(), asked)
    assert shares_at_sizes(asked) == {1: HALF, 2: Fraction(1), 3: HALF, 4: Fraction(0)}


def test_a_band_beyond_the_largest_size_and_one_beside_a_measured_largest_size_are_refused():
    beyond = Plan(Budget(epsilon=1), one_entity(), (MeasurementQuery("at_least", 0, Fraction(1), Band(1, 4)),))
    with pytest.raises(SpecError, match="sizes up to 4, beyond the largest one, 3"):
        measure(data(), beyond)
    largest = MeasurementQuery("largest", 0, HALF), MeasurementQuery("at_least", 0, HALF, Band(1, 3))
    with pytest.raises(SpecError, match="do not measure the largest size as well"):
        measure(data(), Plan(Budget(epsilon=1), one_entity(), largest))


def test_a_band_is_not_taken_for_all_sizes():
    asked = tuple(MeasurementQuery("at_least", level, Fraction(1, 3), Band(1, 2)) for level in range(3))
    measurements = measure(data(), Plan(Budget(epsilon=1), one_entity(), asked))
    with pytest.raises(ReleaseError, match="for all sizes at once"):
        measurements.stacked("at_least")
    assert measurements.level_shares is None
    assert [part.values.shape for part in measurements.measured] == [(1, 2), (2, 2), (2, 2)]
