"""Agreement with a released table of sizes: exact counts, and the right conditional chances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, SpecError
from tallytree.privacy.neighbours import Neighbours, one_group
from tallytree.schema import Attribute, Marginal, Schema
from tallytree.synthesis.agreement import SizeTable, draw_agreeing, size_table
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


def relation(public):
    return Neighbours(one_group(), max_size=3, public_totals=public)


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
