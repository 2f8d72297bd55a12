from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.rivals.mwem import Histogram
from tallytree.synthesis.mixture import IMPOSSIBLE, Mixture
from tallytree.synthesis.model import MeasuredCell
from tallytree.synthesis.public_stream import PublicStream
from tallytree.synthesis.sampling import draw
from tests.oracles.synthesis import table_of
from tests.synthesis.helpers import every_table, schema_of

SCHEMA = schema_of((2, 3), (3, 2), 3)


def tilted_histogram(empty=False):
    model = Histogram.start(SCHEMA, empty=empty)
    cells = [
        MeasuredCell(Marginal("households", ("h1",), ("p0",)), (2, 1), 90.0, 1.0),
        MeasuredCell(Marginal("persons", ("h0",), ("p1",)), (0, 1), 120.0, 1.0),
    ]
    for _ in range(20):
        model = model.fit(cells, 100.0, 200.0)
    return model


def counted(schema, marginal, drawn):
    """The table of drawn households, each counted by itself but equal ones together."""
    table = np.zeros(marginal.shape(schema))
    kinds: dict = {}
    for block in drawn:
        people = [tuple(row) for row in block.person.tolist()]
        for place, home in enumerate(block.household.tolist()):
            household = tuple(home), tuple(people[block.offsets[place] : block.offsets[place + 1]])
            kinds[household] = kinds.get(household, 0) + 1
    for household, times in kinds.items():
        table += times * table_of(schema, marginal, household)
    return table


@pytest.mark.parametrize("model", [Mixture.start(SCHEMA, components=7), tilted_histogram(), tilted_histogram(True)])
def test_a_large_sample_has_the_models_tables(model):
    number = 20_000
    drawn = list(draw(model, number, chunk=6000, source=PublicStream("sample")))
    for marginal in list(every_table(SCHEMA))[::7]:
        expected = model.answers(marginal)
        found = counted(SCHEMA, marginal, drawn) / number
        # No draw here has more variance than independent ones, whose counts vary by at most max_persons² each.
        spread = np.sqrt(np.minimum(1, expected) * SCHEMA.max_persons**2 / number)
        assert (np.abs(found - expected) <= 5.5 * spread + 5 / number).all(), marginal


def test_shapes_and_offsets_fit_together():
    for model in (Mixture.start(SCHEMA, components=7), tilted_histogram(True)):
        blocks = list(draw(model, 1000, chunk=300))
        assert [len(block.sizes) for block in blocks] == [250] * 4
        for block in blocks:
            assert np.array_equal(np.diff(block.offsets), block.sizes)
            assert block.offsets[0] == 0
            assert block.person.shape == (block.sizes.sum(), 2)
            assert block.household.shape == (250, 2)
            assert block.sizes.max() <= SCHEMA.max_persons
            for codes, attributes in ((block.household, SCHEMA.household), (block.person, SCHEMA.person)):
                assert (codes >= 0).all()
                assert (codes < [attribute.codes for attribute in attributes]).all()


def test_one_component_gives_every_attribute_its_expected_counts_within_one():
    model = Mixture.start(SCHEMA, components=1)
    number = 997
    [block] = draw(model, number)
    for column, attribute in enumerate(SCHEMA.household):
        found = np.bincount(block.household[:, column], minlength=attribute.codes)
        assert (np.abs(found - number * model.chances[f"household {attribute.name}"][0]) <= 1).all()
    sizes = np.bincount(block.sizes, minlength=SCHEMA.max_persons + 1)
    assert (np.abs(sizes - number * model.chances["sizes"][0]) <= 1).all()
    for place in range(SCHEMA.max_persons):
        rows = block.offsets[:-1][block.sizes > place] + place
        for column, attribute in enumerate(SCHEMA.person):
            found = np.bincount(block.person[rows, column], minlength=attribute.codes)
            assert (np.abs(found - len(rows) * model.chances[f"person {attribute.name}"][0, place]) <= 1).all()


@settings(max_examples=20)
@given(seed=st.text(max_size=4), number=st.integers(0, 300), chunk=st.integers(1, 100))
def test_components_come_up_as_often_as_expected_in_chunks_of_any_size(seed, number, chunk):
    # Components are told apart by a household attribute that only they have.
    schema = schema_of((5,), (2,), 2)
    arrays = dict(Mixture.start(schema, components=5, seed_text=seed).to_arrays())
    arrays["household h0"] = np.where(np.eye(5) > 0, 0.0, IMPOSSIBLE)
    arrays["weights"] = PublicStream(seed).normal(5)
    model = Mixture.from_arrays(schema, arrays)
    blocks = list(draw(model, number, chunk=chunk, source=PublicStream(seed)))
    assert all(len(block.sizes) <= chunk for block in blocks)
    codes = np.concatenate([[], *(block.household[:, 0] for block in blocks)]).astype(np.int64)
    assert len(codes) == number
    assert (np.abs(np.bincount(codes, minlength=5) - number * model.chances["weights"]) < 1 + 1e-6).all()


def test_what_has_no_chance_is_never_drawn():
    schema = schema_of((4,), (4,), 3)
    arrays = {
        name: array.copy() for name, array in Mixture.start(schema, components=6, empty=False).to_arrays().items()
    }
    for name in ("household h0", "person p0"):
        arrays[name][..., [0, 2, 3]] = IMPOSSIBLE
    arrays["weights"][[0, 5]] = IMPOSSIBLE
    [block] = draw(Mixture.from_arrays(schema, arrays), 5000)
    assert (block.household == 1).all()
    assert (block.person == 1).all()
    assert block.sizes.min() == 1


def test_pairs_of_attributes_within_a_component_are_independent():
    model = Mixture.start(SCHEMA, components=1, seed_text="pairs")
    marginal = Marginal("households", ("h0", "h1"), (), True)
    number = 40_000
    found = counted(SCHEMA, marginal, draw(model, number, source=PublicStream("pairs"))) / number
    expected = model.answers(marginal)
    assert (np.abs(found - expected) <= 5.5 * np.sqrt(expected / number)).all()


def test_fresh_draws_differ_and_a_given_source_repeats():
    model = Mixture.start(SCHEMA, components=3)
    one, two = (next(draw(model, 200)).household for _ in range(2))
    assert not np.array_equal(one, two)
    one, two = (next(draw(model, 200, source=PublicStream("same"))).household for _ in range(2))
    assert np.array_equal(one, two)


def test_wrong_input_is_refused():
    with pytest.raises(SpecError, match="number"):
        draw(Mixture.start(SCHEMA, components=3), -1)
