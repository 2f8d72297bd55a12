"""Every model's tables against the sum over all possible households, one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.rivals.hgem import expected_counts, queries_of
from tallytree.lab.rivals.mwem import Histogram
from tallytree.synthesis import products
from tallytree.synthesis.mixture import Mixture
from tallytree.synthesis.workload import all_sets
from tests.oracles.synthesis import expected_table, histogram_chances, mixture_chances
from tests.synthesis.helpers import every_table, schema_of

SCHEMAS = [
    schema_of((2, 3), (2, 2), 2),
    schema_of((3,), (3,), 3),
    schema_of((), (2, 3), 2),
    schema_of((2,), (), 3),
    schema_of((2, 2), (2,), 1),
]
small_schemas = st.sampled_from(SCHEMAS)


def expanded(model):
    """The mixture as an explicit histogram, written down household by household."""
    chances = mixture_chances(model)
    start = Histogram.start(model.schema, empty=True)
    cells = [np.zeros(array.shape) for array in start.cells]
    flat = {size: iter(range(array.size)) for size, array in enumerate(cells)}
    for (_, persons), chance in chances.items():
        cells[len(persons)].ravel()[next(flat[len(persons)])] = chance
    return Histogram(model.schema, 0, tuple(cells), start.earlier)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_mixture_answers_as_its_households_do(schema):
    model = Mixture.start(schema, components=3, seed_text="answers")
    chances = mixture_chances(model)
    assert sum(chances.values()) == pytest.approx(1)
    workload = every_table(schema)
    for marginal, together in zip(workload, model.answers_all(workload), strict=True):
        expected = expected_table(schema, marginal, chances)
        assert model.answers(marginal).shape == marginal.shape(schema)
        assert np.allclose(model.answers(marginal), expected, rtol=0, atol=1e-12), marginal
        assert np.allclose(together, expected, rtol=0, atol=1e-12), marginal


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_histogram_answers_as_its_households_and_as_the_mixture_it_was_made_from(schema):
    model = Mixture.start(schema, components=2, seed_text="both")
    histogram = expanded(model)
    chances = histogram_chances(histogram)
    workload = every_table(schema)
    for marginal, together in zip(workload, histogram.answers_all(workload), strict=True):
        assert np.allclose(histogram.answers(marginal), expected_table(schema, marginal, chances), atol=1e-12)
        assert np.allclose(together, model.answers(marginal), rtol=0, atol=1e-12), marginal


def test_blocks_do_not_change_answers(monkeypatch):
    schema = schema_of((3, 2), (4, 3), 3)
    model = Mixture.start(schema, components=50)
    workload = every_table(schema)
    whole = model.answers_all(workload)
    monkeypatch.setattr(products, "CHANCES_FOR_THREADS", 1)
    monkeypatch.setattr(products, "COMPONENTS_PER_BLOCK", 7)
    for one, other, marginal in zip(whole, model.answers_all(workload), workload, strict=True):
        assert np.allclose(one, other, rtol=0, atol=1e-13)
        assert np.allclose(one, model.answers(marginal), rtol=0, atol=1e-13)


@settings(max_examples=20)
@given(schema=small_schemas, seed=st.text(max_size=3), data=st.data())
def test_tables_of_a_model_agree_with_each_other(schema, seed, data):
    model = Mixture.start(schema, components=4, seed_text=seed, empty=data.draw(st.booleans()))
    for marginal in every_table(schema):
        table = model.answers(marginal)
        assert (table >= 0).all()
        if marginal.size:
            plain = Marginal(marginal.of, marginal.household, marginal.person)
            assert np.allclose(table.sum(axis=0), model.answers(plain))
        if marginal.household:
            axis = marginal.size + len(marginal.household) - 1
            fewer = Marginal(marginal.of, marginal.household[:-1], marginal.person, marginal.size)
            assert np.allclose(table.sum(axis=axis), model.answers(fewer))
        if marginal.person:
            fewer = Marginal(marginal.of, marginal.household, marginal.person[:-1], marginal.size)
            if marginal.of == "persons":
                assert np.allclose(table.sum(axis=-1), model.answers(fewer))
            elif len(marginal.person) > 1:
                assert (table.sum(axis=-1) >= model.answers(fewer) - 1e-12).all()
                assert (table.max(axis=-1) <= model.answers(fewer) + 1e-12).all()
        if marginal.of == "households" and marginal.person:
            persons = model.answers(Marginal("persons", marginal.household, marginal.person, marginal.size))
            assert (table <= persons + 1e-12).all()
            assert (persons <= schema.max_persons * table + 1e-12).all()
    assert model.answers(Marginal("households")) == pytest.approx(1)


@settings(max_examples=20)
@given(seed=st.text(max_size=3), order=st.permutations(range(5)))
def test_the_order_of_components_and_of_axes_does_not_matter(seed, order):
    schema = schema_of((2, 3), (2, 3), 2)
    model = Mixture.start(schema, components=5, seed_text=seed)
    turned = Mixture.from_arrays(schema, {name: array[list(order)] for name, array in model.to_arrays().items()})
    for of in ("households", "persons"):
        table = model.answers(Marginal(of, ("h0", "h1"), ("p0", "p1"), True))
        assert np.allclose(table, turned.answers(Marginal(of, ("h0", "h1"), ("p0", "p1"), True)))
        swapped = model.answers(Marginal(of, ("h1", "h0"), ("p1", "p0"), True))
        assert np.allclose(table, swapped.transpose(0, 2, 1, 4, 3))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_cells_one_by_one_are_the_tables_cells(schema):
    model = Mixture.start(schema, components=3, seed_text="one by one")
    cells = [(marginal, cell) for marginal in every_table(schema) for cell in np.ndindex(marginal.shape(schema))]
    chances = model.chances
    ones = np.ones((3, 1)), np.ones((3, schema.max_persons, 1))
    household = np.concatenate([*(chances[f"household {a.name}"] for a in schema.household), ones[0]], axis=-1)
    person = np.concatenate([*(chances[f"person {a.name}"] for a in schema.person), ones[1]], axis=-1)
    queries = queries_of(schema, cells, room=len(cells) + 3)
    found = expected_counts(queries, chances["weights"], chances["sizes"], household, person)
    expected = [model.answers(marginal)[cell] for marginal, cell in cells]
    assert np.allclose(found[: len(cells)], expected, rtol=0, atol=1e-12)


def test_a_mixture_without_empty_households_has_none():
    schema = schema_of((2,), (2,), 3)
    table = Mixture.start(schema, components=4, empty=False).answers(Marginal("households", size=True))
    assert table[0] == 0
    assert (table[1:] > 0).all()


def test_the_seed_text_names_the_start():
    schema = schema_of((2,), (2,), 3)
    one, same, other = (Mixture.start(schema, components=4, seed_text=text) for text in ("a", "a", "b"))
    assert all(np.array_equal(same.to_arrays()[name], array) for name, array in one.to_arrays().items())
    assert not np.array_equal(one.sizes, other.sizes)


def test_wrong_input_is_refused():
    schema = schema_of((2,), (2,), 3)
    model = Mixture.start(schema, components=4)
    with pytest.raises(SpecError, match="no attribute 'h9'"):
        model.answers(Marginal("households", ("h9",)))
    for asked in (model, Histogram.start(schema)):
        with pytest.raises(SpecError, match="another schema"):
            asked.answers_all(all_sets(schema_of((3,), (2,), 3), 1))
    with pytest.raises(SpecError, match="component"):
        Mixture.start(schema, components=0)
    with pytest.raises(SpecError, match="not a mixture"):
        Mixture.from_arrays(schema, {"weights": np.zeros(3)})
    arrays = dict(model.to_arrays())
    with pytest.raises(SpecError, match="shapes"):
        Mixture.from_arrays(schema, arrays | {"sizes": np.zeros((4, 2))})
    with pytest.raises(SpecError, match="finite"):
        Mixture.from_arrays(schema, arrays | {"sizes": np.full((4, 4), np.nan)})
