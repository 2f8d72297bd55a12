"""Agreement with a released table of sizes: exact counts, and the right conditional chances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree import Budget, SpecError
from tallytree.domain.categories import Categories
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.lab.rivals.mwem import Histogram
from tallytree.privacy.neighbours import Neighbours, one_group
from tallytree.synthesis.agreement import SizeTable, draw_agreeing, match_to_schema
from tallytree.synthesis.mixture import Mixture
from tallytree.synthesis.model import MeasuredCell, SyntheticHouseholds
from tallytree.synthesis.public_stream import PublicStream
from tallytree.synthesis.sampling import counted

SCHEMA = Schema(
    (Attribute("tenure", ("owned", "rented")), Attribute("county", ("01", "02", "03"))),
    (Attribute("age", ("young", "old")),),
    3,
)


BY = Categories.of({"tenure": ["rented", "owned"]}, "group")


def relation(public):
    return Neighbours(one_group(), max_size=3, public_totals=public)


def table_of(counts, first_size=0):
    return SizeTable("county", np.array(counts), first_size, relation(first_size == 0), Budget(epsilon=1))


def by_tenure(counts):
    table = Neighbours(one_group(), max_size=3, public_totals=False, categories=BY)
    return SizeTable("county", counts, 1, table, Budget(epsilon=1), by=(("tenure", "tenure"),))


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


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=18, max_size=18), st.integers(1, 40))
def test_numbers_by_region_category_and_size_are_the_released_ones_exactly(name, counts, chunk):
    released = by_tenure(np.array(counts).reshape(3, 2, 3))
    chunks = list(draw_agreeing(MODELS[name], released, chunk=chunk))
    found = sum(counted(part, Marginal("households", ("county", "tenure"), (), True), SCHEMA) for part in chunks)
    assert np.array_equal(np.moveaxis(found, 0, -1)[..., 1:], released.counts) if chunks else released.number == 0


@pytest.mark.parametrize("name", ["mixture", "histogram"])
def test_the_rest_has_the_models_chances_given_region_category_and_size(name):
    model = MODELS[name]
    released = by_tenure(np.array([[[0, 30_000, 0], [0, 0, 0]], [[0, 0, 0], [30_000, 0, 0]], [[0, 0, 0], [0, 0, 0]]]))
    drawn = joined(draw_agreeing(model, released, source=PublicStream(f"given tenure {name}")))
    people = Marginal("persons", ("county", "tenure"), ("age",), True)
    homes = Marginal("households", ("county", "tenure"), (), True)
    answers, found, number = model.answers(people), counted(drawn, people, SCHEMA), model.answers(homes)
    for county, tenure, size in ((0, 0, 2), (1, 1, 1)):
        given_cell = answers[size, county, tenure] / number[size, county, tenure]
        # Shares of 30,000 draws of at most two persons: more than seven standard deviations, and a fixed stream.
        assert np.allclose(found[size, county, tenure] / 30_000, given_cell, atol=7 / 30_000**0.5)


def test_a_network_agrees_too():
    network = pytest.importorskip("tallytree.lab.rivals.hgem")
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
    given_values |= {"region": "county", **changes}
    ids, names, by = given_values.pop("ids"), given_values.pop("names"), given_values.pop("by", None)
    return match_to_schema(SCHEMA, SizeTable(**given_values), ids, names, by)


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


# -------------------------------------------------------------------- which categories can agree


def made_by(by=None, values=("rented", "owned"), names=("tenure",), region="county"):
    categories = Categories.of({name: list(values) for name in names}, "group")
    counts = np.arange(3 * 2 ** len(names) * 3).reshape(3, *[len(values)] * len(names), -1)
    table = Neighbours(one_group(), max_size=3, public_totals=False, categories=categories)
    return made(counts=counts, neighbours=table, first_size=1, by=by, region=region)


def test_categories_are_matched_by_name_or_as_said_in_the_attributes_order():
    plain = made_by()
    assert plain.attributes == ("county", "tenure")
    assert plain.counts[:, :, 0].tolist() == [[9, 6], [15, 12], [3, 0]]  # owned and rented of 01, 02, 03
    renamed = {"building": {"attribute": "tenure", "values": {"1": "owned", "2": "rented"}}}
    said = made_by(renamed, values=("2", "1"), names=("building",))
    assert said.counts.tolist() == plain.counts.tolist()
    assert said.by == (("building", "tenure"),)
    assert made_by({"building": "tenure"}, names=("building",)).counts.tolist() == plain.counts.tolist()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("building",)}, "distinguishes households by 'building'.*no attribute 'building'"),
        ({"by": {"tenur": "tenure"}}, "'tenur', which is not a category of the release; it has tenure"),
        ({"by": {"tenure": "age"}}, "no attribute 'age'"),
        ({"by": {"tenure": "county"}}, "not in the schema: rented, owned; not in the release: 01, 02, 03"),
        ({"by": {"tenure": 3}}, "by is 3"),
        ({"by": {"tenure": {"attributes": "tenure"}}}, "by has 'attributes'"),
        ({"by": {"tenure": {"values": {"owns": "owned"}}}}, "'owns', which 'tenure' of the release does not have"),
        ({"by": {"tenure": {"values": {"rented": "owned"}}}}, "cannot both be 'owned'"),
        ({"values": ("owned", "free")}, "not in the schema: free; not in the release: rented"),
        ({"names": ("tenure", "building"), "by": {"building": "tenure"}}, "'tenure' cannot stand for two"),
    ],
)
def test_categories_that_cannot_agree_are_refused(changes, message):
    with pytest.raises(SpecError, match=message):
        made_by(**changes)


def test_an_attribute_cannot_be_the_region_and_a_category():
    with pytest.raises(SpecError, match="'county' cannot stand for two"):
        made_by({"tenure": "county"}, values=("01", "02", "03"), names=("tenure",))


def test_a_release_without_categories_takes_none():
    with pytest.raises(SpecError, match="not a category of the release; it has none"):
        made(by={"tenure": "tenure"})
