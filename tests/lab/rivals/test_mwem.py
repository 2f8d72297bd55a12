from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.datasets import DOMAINS
from tallytree.lab.rivals.mwem import Histogram
from tallytree.synthesis.model import MeasuredCell
from tallytree.synthesis.public_stream import PublicStream
from tests.oracles.synthesis import histogram_chances, mwem_update
from tests.synthesis.helpers import every_table, schema_of

SCHEMA = schema_of((2, 3), (2,), 3)
CELLS = [(marginal, cell) for marginal in every_table(SCHEMA) for cell in product(*map(range, marginal.shape(SCHEMA)))]
HOUSEHOLDS, PERSONS = 100.0, 210.0

measured_cells = st.lists(
    st.builds(
        lambda place, value: MeasuredCell(*CELLS[place], value, 1.0),
        st.integers(0, len(CELLS) - 1),
        st.integers(-20, 150),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=30)
@given(rounds=st.lists(measured_cells, min_size=1, max_size=3), most=st.integers(1, 6), empty=st.booleans())
def test_updates_are_those_of_the_slow_twin(rounds, most, empty):
    model = Histogram.start(SCHEMA, empty=empty)
    chances = histogram_chances(model)
    iterates = []
    for number, cells in enumerate(rounds):
        iterates.append(chances)
        shares = [cell.value / (HOUSEHOLDS if cell.marginal.of == "households" else PERSONS) for cell in cells]
        stream = PublicStream(f"order of updates, round {number}: ")
        chances = mwem_update(SCHEMA, chances, cells, shares, stream.order, most)
        model = model.fit(cells, HOUSEHOLDS, PERSONS, most_updates=most)
    found, average = histogram_chances(model), histogram_chances(model.average())
    assert found.keys() == chances.keys()
    for household, chance in chances.items():
        assert found[household] == pytest.approx(chance, rel=1e-9)
        assert average[household] == pytest.approx(np.mean([before[household] for before in iterates]), rel=1e-9)


def test_passes_over_all_cells_meet_those_of_earlier_rounds_too():
    first = MeasuredCell(Marginal("households", ("h1",)), (2,), 60.0, 1.0)
    second = MeasuredCell(Marginal("persons", ("h0",), ("p0",)), (0, 1), 84.0, 1.0)
    last = Histogram.start(SCHEMA).fit([first], HOUSEHOLDS, PERSONS).fit([first, second], HOUSEHOLDS, PERSONS)
    converged = last.converge([first, second], HOUSEHOLDS, PERSONS, passes=400)

    def missed(model):
        per_household = model.answers(Marginal("persons")).sum()
        return max(
            abs(model.answers(first.marginal)[2] - 0.6),
            abs(model.answers(second.marginal)[0, 1] / per_household - 84 / PERSONS),
        )

    assert missed(converged) < 1e-5 < missed(last)
    assert sum(cells.sum() for cells in converged.cells) == pytest.approx(1)
    assert last.converge([], HOUSEHOLDS, PERSONS, passes=400).cells[0].tolist() == last.cells[0].tolist()


def test_updates_come_nearer_to_what_was_measured():
    marginals = Marginal("households", ("h1",), ("p0",)), Marginal("persons", ("h0",), ("p0",))
    measured = [MeasuredCell(marginals[0], (2, 1), 10.0, 1.0), MeasuredCell(marginals[1], (0, 1), 84.0, 1.0)]
    model = Histogram.start(SCHEMA)
    for _ in range(200):
        model = model.fit(measured, HOUSEHOLDS, PERSONS)
    assert model.answers(marginals[0])[2, 1] == pytest.approx(0.1, abs=0.01)
    persons = model.answers(Marginal("persons"))
    assert model.answers(marginals[1])[0, 1] / persons == pytest.approx(0.4, abs=0.01)
    assert sum(cells.sum() for cells in model.cells) == pytest.approx(1)


def test_it_starts_uniform_over_the_papers_domain():
    domain = DOMAINS["acs-small"]
    model = Histogram.start(schema_of(domain.household.values(), domain.person.values(), domain.max_persons))
    assert sum(cells.size for cells in model.cells) == 262_080
    assert {float(cells.min()) for cells in model.cells} == {1 / 262_080}
    assert model.average() is model


def test_a_domain_that_is_too_large_names_the_models_to_use():
    domain = DOMAINS["acs"]
    schema = schema_of(domain.household.values(), domain.person.values(), domain.max_persons)
    with pytest.raises(SpecError, match="use the mixture"):
        Histogram.start(schema)


def test_wrong_input_is_refused():
    model = Histogram.start(SCHEMA)
    cell = MeasuredCell(*CELLS[40], 50.0, 1.0)
    with pytest.raises(SpecError, match="nothing to fit"):
        model.fit([], HOUSEHOLDS, PERSONS)
    with pytest.raises(SpecError, match="number of persons"):
        model.fit([cell], HOUSEHOLDS, 0)
