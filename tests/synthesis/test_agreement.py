"""Agreement with a released table of sizes: exact counts, the right conditional chances, and one privacy for both."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, SpecError
from tallytree.histogram import at_least
from tallytree.privacy.budget import epsilon_of
from tallytree.privacy.households.neighbours import HouseholdNeighbours, HouseholdUnit
from tallytree.privacy.neighbours import Neighbours, one_entity, one_group
from tallytree.schema import Attribute, Marginal, Schema
from tallytree.synthesis.agreement import SizeTable, draw_agreeing, size_table, together
from tallytree.synthesis.models.histogram import Histogram
from tallytree.synthesis.models.mixture import Mixture
from tallytree.synthesis.models.model import MeasuredCell, SyntheticHouseholds
from tallytree.synthesis.models.public_stream import PublicStream
from tallytree.synthesis.models.sampling import counted

SCHEMA = Schema(
    (Attribute("tenure", ("owned", "rented")), Attribute("county", ("01", "02", "03"))),
    (Attribute("age", ("young", "old")),),
    3,
)
RHO = Budget(rho="0.5", delta="1e-6")


def relation(public, unit=None, **more):
    return Neighbours(unit or one_group(), max_size=3, public_totals=public, **more)


def table_of(counts, first_size=0):
    return SizeTable("county", np.array(counts), first_size, relation(first_size == 0), Budget(epsilon=1))


def uneven_histogram(empty=True):
    start = Histogram.start(SCHEMA, empty=empty)
    cells = [
        MeasuredCell(Marginal("households", ("tenure", "county"), (), True), (2, 1, 2), 60.0, 1.0),
        MeasuredCell(Marginal("persons", ("county",), ("age",)), (0, 1), 90.0, 1.0),
        MeasuredCell(Marginal("households", ("county",), ("age",)), (1, 1), 55.0, 1.0),
    ]
    model = start
    for _ in range(5):
        model = model.fit(cells, 100, 200)
    return model


MODELS = {
    "mixture": Mixture.start(SCHEMA, components=7, seed_text="agreement"),
    "mixture without empty households": Mixture.start(SCHEMA, components=7, seed_text="agreement", empty=False),
    "histogram": uneven_histogram(),
    "histogram without empty households": uneven_histogram(empty=False),
}


def joined(chunks):
    chunks = list(chunks)
    sizes = np.concatenate([chunk.sizes for chunk in chunks])
    return SyntheticHouseholds(
        sizes,
        np.concatenate([chunk.household for chunk in chunks]),
        np.concatenate([chunk.person for chunk in chunks]),
        np.concatenate([[0], np.cumsum(sizes)]),
    )


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 6), min_size=4, max_size=4), min_size=3, max_size=3),
    st.integers(1, 9),
    st.sampled_from([(0, 4), (0, 3), (1, 3), (1, 1), (0, 1)]),
)
def test_numbers_by_region_and_size_are_the_released_ones_exactly(name, counts, chunk, sizes):
    first, columns = sizes
    released = table_of(np.array(counts)[:, :columns], first)
    chunks = list(draw_agreeing(MODELS[name], released, chunk=chunk))
    assert all(len(part.sizes) <= chunk for part in chunks)
    if not chunks:
        assert released.number == 0
        return
    drawn = joined(chunks)
    found = counted(drawn, Marginal("households", ("county",), (), True), SCHEMA).T
    classes = found[:, first : first + columns].copy()
    classes[:, -1] = found[:, first + columns - 1 :].sum(axis=1)
    assert np.array_equal(classes, released.counts)
    assert not found[:, :first].any()
    assert drawn.person.min(initial=0) >= 0
    assert drawn.person.max(initial=0) < 2


@pytest.mark.parametrize("name", ["mixture", "histogram"])
def test_the_rest_has_the_models_chances_given_region_and_size(name):
    model = MODELS[name]
    released = table_of([[20_000, 0, 20_000], [0, 20_000, 0], [0, 0, 40_000]])
    drawn = joined(draw_agreeing(model, released, source=PublicStream(f"given {name}")))
    homes = Marginal("households", ("county", "tenure"), (), True)
    people = Marginal("persons", ("county", "tenure"), ("age",), True)
    by_size = model.answers(Marginal("households", ("county",), (), True))
    for marginal in (homes, people):
        answers, found = model.answers(marginal), counted(drawn, marginal, SCHEMA)
        for county, place, classes in ((0, 0, [0]), (1, 1, [1]), (0, 2, [2, 3]), (2, 2, [2, 3])):
            given_cell = answers[classes, county].sum(axis=0) / by_size[classes, county].sum()
            share = found[classes, county].sum(axis=0) / released.counts[county, place]
            # Shares of 20,000 draws or more, numbers of persons up to 3: seven standard deviations, and a fixed stream.
            assert np.allclose(share, given_cell, atol=7 * 1.5 / 20_000**0.5)


def test_a_network_agrees_too():
    network = pytest.importorskip("tallytree.synthesis.models.network")
    model = network.Generator.start(SCHEMA, batch=5, empty=True)
    released = table_of([[1, 2, 3, 4], [0, 0, 0, 0], [5, 0, 1, 0]])
    drawn = joined(draw_agreeing(model, released))
    found = counted(drawn, Marginal("households", ("county",), (), True), SCHEMA).T
    assert np.array_equal(found, released.counts)


# -------------------------------------------------------------------- which tables can agree


def made(**changes):
    given_values = {
        "ids": ("c/03", "c/01", "c/02"),
        "names": ("03", "01", "02"),
        "counts": np.arange(12).reshape(3, 4),
        "first_size": 0,
        "neighbours": relation(True),
        "budget": Budget(epsilon=1),
    }
    return size_table(SCHEMA, changes.pop("region", "county"), **{**given_values, **changes})


def test_leaves_are_matched_by_id_or_by_name_in_the_attributes_order():
    assert made().counts.tolist() == [[4, 5, 6, 7], [8, 9, 10, 11], [0, 1, 2, 3]]
    assert made(ids=("01", "02", "03"), names=("x", "y", "z")).counts[0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"region": "age"}, "attribute of households"),
        ({"region": "town"}, "no attribute 'town'"),
        ({"names": ("03", "01", "04")}, "without a match: 02"),
        ({"names": ("03", "01", "02", "02"), "ids": ("a", "b", "c", "d")}, "each once"),
        ({"counts": np.zeros((3, 5), int)}, "sizes up to 4.*at most 3"),
    ],
)
def test_tables_that_cannot_agree_are_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        made(**changes)


# -------------------------------------------------------------------- one privacy for both


def households(kind="one_group"):
    return HouseholdNeighbours(HouseholdUnit(kind), 3)


@pytest.mark.parametrize(
    ("public", "unit", "spent", "times", "cost"),
    [
        (True, "one_group", Budget(rho="0.1"), 1, Fraction(1, 10)),
        (True, "one_group", Budget(epsilon="0.2"), 1, Fraction(2, 100)),
        (False, "one_group", Budget(rho="0.1"), 2, Fraction(4, 10)),
        (False, "one_group", Budget(epsilon="0.2"), 2, Fraction(8, 100)),  # (2 · 0.2)² / 2
        (False, "one_group_added_or_removed", Budget(rho="0.1"), 1, Fraction(1, 10)),
    ],
)
def test_the_release_is_charged_for_as_many_steps_as_the_relation_takes(public, unit, spent, times, cost):
    both = together(relation(public), spent, households(unit), RHO)
    assert (both.times, both.release, both.synthesis) == (times, cost, Fraction(1, 2))
    assert both.rho == cost + Fraction(1, 2)
    text = both.in_words(RHO.delta)
    assert f"ε = {float(epsilon_of(both.rho, RHO.delta)):.6g}" in text
    assert ("four times" in text) == (times == 2)
    assert ("NOT protected: the regions" in text) == public


@pytest.mark.parametrize(
    ("table", "unit", "message"),
    [
        (relation(False, one_entity()), "one_group", "protects one_entity"),
        (relation(False), "one_person_attributes", "one person's attributes only"),
        (relation(True), "one_group_added_or_removed", "as public"),
        (relation(False, quantity_bound=2), "one_group", "sums of a quantity"),
    ],
)
def test_two_relations_that_are_not_one_are_refused(table, unit, message):
    with pytest.raises(SpecError, match=message):
        together(table, Budget(epsilon=1), households(unit), RHO)


def view_of(data, view, regions, largest, first):
    """A view of all regions from its definition. A household is (region, size)."""
    counts = np.zeros((regions, largest + 1 - first), np.int64)
    for region, size in data:
        if size >= first:
            counts[region, size - first] += 1
    if view == "counts":
        return counts
    if view == "totals":
        return counts.sum(axis=1)
    if view == "at_least":
        return at_least(counts, first)
    lists = np.zeros((regions, len(data) + 1), np.int64)  # sorted from the large end, padded with sizes of 0
    for region in range(regions):
        sizes = sorted((size for place, size in data if place == region), reverse=True)
        lists[region, : len(sizes)] = sizes
    return lists


VIEWS = ("counts", "at_least", "sorted_sizes", "totals")


def moves(regions, largest):
    """All pairs of small data sets that differ in one household, replaced by any other in any region."""
    every = list(product(range(regions), range(largest + 1)))
    for rest in [(), *((one,) for one in every), *combinations_with_replacement(every[:4], 2)]:
        for old, new in product(every, repeat=2):
            yield (*rest, old), (*rest, new)


@pytest.mark.parametrize("view", VIEWS)
def test_a_household_that_changes_region_moves_a_private_table_at_most_twice_as_far(view):
    largest = 3
    own = Neighbours(one_group(), max_size=largest, public_totals=False).sensitivity(view)
    apart = [
        np.abs(view_of(new, view, 2, largest, 1) - view_of(old, view, 2, largest, 1)) for old, new in moves(2, largest)
    ]
    assert max(int(change.sum()) for change in apart) <= 2 * own.l1
    assert max(int((change**2).sum()) for change in apart) <= 4 * own.l2_squared
    if view != "counts":  # of counts a removal and an addition change one cell each, as a replacement does
        assert max(int(change.sum()) for change in apart) == 2 * own.l1


@pytest.mark.parametrize("view", ["counts", "at_least", "sorted_sizes"])
def test_within_its_region_a_household_moves_a_public_table_as_far_as_the_release_says(view):
    largest = 3
    own = Neighbours(one_group(), max_size=largest, public_totals=True).sensitivity(view)
    kept, moved = [0], [0]
    for old, new in moves(2, largest):
        change = np.abs(view_of(new, view, 2, largest, 0) - view_of(old, view, 2, largest, 0))
        (kept if old[-1][0] == new[-1][0] else moved).append(int(change.sum()))
        if old[-1][0] == new[-1][0]:
            assert (change**2).sum() <= own.l2_squared
    assert max(kept) == own.l1
    totals = Neighbours(one_group(), max_size=largest, public_totals=True).sensitivity("totals")
    assert totals.l1 == 0  # and so a changed region, which changes totals, cannot be in the relation
    assert max(moved) >= own.l1
