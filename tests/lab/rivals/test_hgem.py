from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.lab.rivals import hgem as network
from tallytree.lab.rivals.hgem import Generator, _average, _errors, _shares, queries_of
from tallytree.synthesis.model import MeasuredCell
from tallytree.synthesis.public_stream import PublicStream
from tests.oracles.synthesis import expected_table, mixture_chances
from tests.synthesis.helpers import every_table, schema_of

SCHEMA = schema_of((2, 3), (3,), 2)
HOUSEHOLDS, PERSONS = 1000.0, 1500.0
CELLS = [
    MeasuredCell(Marginal("households", ("h1",), ("p0",)), (2, 1), 420.0, 1.0),
    MeasuredCell(Marginal("persons", ("h0",), ("p0",)), (1, 2), 300.0, 1.0),
    MeasuredCell(Marginal("households", size=True), (2,), 700.0, 1.0),
]


def errors_of(model):
    """Shares measured minus shares answered, by the model's fixed batch."""
    persons = float(model.answers(Marginal("persons")))
    found = []
    for cell in CELLS:
        of_persons = cell.marginal.of == "persons"
        answer = model.answers(cell.marginal)[cell.cell] / (persons if of_persons else 1)
        found.append(cell.value / (PERSONS if of_persons else HOUSEHOLDS) - answer)
    return np.array(found)


@pytest.mark.parametrize("empty", [False, True])
def test_its_answers_are_those_of_the_households_it_stands_for(empty):
    model = Generator.start(SCHEMA, batch=4, seed_text="text", empty=empty)
    chances = mixture_chances(model.mixture)
    for marginal in every_table(SCHEMA):
        assert np.allclose(model.answers(marginal), expected_table(SCHEMA, marginal, chances), atol=1e-12)
    assert (model.answers(Marginal("households", size=True))[0] > 0) == empty


@pytest.mark.parametrize("empty", [False, True])
def test_the_shares_in_its_loss_are_its_answers(empty):
    model = Generator.start(SCHEMA, batch=40, seed_text="text", empty=empty)
    noise = PublicStream("noise of the output: text").normal(40, 128).astype(np.float32)
    cells = [(marginal, cell) for marginal in every_table(SCHEMA) for cell in np.ndindex(marginal.shape(SCHEMA))]
    queries = queries_of(SCHEMA, cells)
    found = _shares(SCHEMA, empty, model.weights, jnp.asarray(noise), queries)
    persons = float(model.answers(Marginal("persons")))
    expected = [
        model.answers(marginal)[cell] / (persons if marginal.of == "persons" else 1) for marginal, cell in cells
    ]
    assert np.allclose(found, expected, rtol=0, atol=1e-5)


def test_the_gradient_is_that_of_finite_differences():
    model = Generator.start(SCHEMA, batch=6, seed_text="slopes")
    queries = queries_of(SCHEMA, [(cell.marginal, cell.cell) for cell in CELLS])
    noise = jnp.asarray(PublicStream("rows").normal(6, 128), dtype=jnp.float32)

    def loss(weights):
        return jnp.abs(_errors(SCHEMA, False, weights, noise, queries, np.array([0.42, 0.2, 0.7]))).sum()

    slopes = jax.grad(loss)(model.weights)
    for name in model.weights:
        way = {other: np.zeros_like(array) for other, array in model.weights.items()}
        way[name] = np.asarray(slopes[name]) / np.linalg.norm(slopes[name])  # steepest, so well above rounding
        ahead, behind = ({n: model.weights[n] + sign * 1e-2 * way[n] for n in way} for sign in (1, -1))
        difference = float(loss(ahead) - loss(behind)) / 2e-2
        assert difference == pytest.approx(float(np.linalg.norm(slopes[name])), rel=0.02)


def test_fitting_comes_nearer_to_what_was_measured():
    model = Generator.start(SCHEMA, batch=400, seed_text="fit")
    before = np.abs(errors_of(model)).max()
    options = {"rate": 1e-3, "steps": 40, "stop_share": 0.02}
    for _ in range(3):
        model = model.fit(CELLS, HOUSEHOLDS, PERSONS, **options)
    assert before > 0.1
    assert np.abs(errors_of(model)).max() < before / 4


def test_a_model_within_the_threshold_is_left_as_it_is():
    model = Generator.start(SCHEMA, batch=400, seed_text="fit")
    fitted = model.fit(CELLS, HOUSEHOLDS, PERSONS, stop_share=1000)
    assert all(np.array_equal(fitted.weights[name], array) for name, array in model.weights.items())
    assert fitted.rounds == 1


def test_the_smoothed_error_is_that_of_the_newest_cells(monkeypatch):
    monkeypatch.setattr(network, "NEWEST_COUNTS", 0.25)
    model = Generator.start(SCHEMA, batch=400, seed_text="fit")
    once = model.fit(CELLS[:1], HOUSEHOLDS, PERSONS, stop_share=1000)
    twice = once.fit(CELLS[:2], HOUSEHOLDS, PERSONS, stop_share=1000)
    errors = np.abs(errors_of(model))
    assert once.smoothed_error == pytest.approx(errors[0], abs=0.06)
    assert twice.smoothed_error == pytest.approx(0.25 * errors[1] + 0.75 * errors[0], abs=0.06)


def test_late_weights_are_averaged():
    options = {"rate": 1e-2, "steps": 3, "stop_share": 0}
    models = [Generator.start(SCHEMA, batch=400)]
    for late in (False, True, True, True):
        models.append(models[-1].fit(CELLS, HOUSEHOLDS, PERSONS, **options, late=late))
    assert models[1].late is None
    assert models[1].averaged() is models[1]
    for name in models[0].weights:
        first, second, third = (model.weights[name] for model in models[2:])
        expected = 0.9 * (0.9 * first + 0.1 * second) + 0.1 * third
        assert np.allclose(models[-1].averaged().weights[name], expected, atol=1e-6)
    assert _average(None, models[1].weights, 0.9) is models[1].weights


def test_further_training_leaves_a_smaller_residual_and_repeats_itself(monkeypatch):
    monkeypatch.setattr(network, "PASS", 5)
    monkeypatch.setattr(network, "HALVINGS", 2)
    model = Generator.start(SCHEMA, batch=40, seed_text="fit").fit(CELLS, HOUSEHOLDS, PERSONS, steps=3)
    trained, again = (model.converge(CELLS, HOUSEHOLDS, PERSONS, batch=400) for _ in range(2))
    wider = replace(model, batch=400)
    assert np.abs(errors_of(trained)).max() < np.abs(errors_of(wider)).max()
    assert np.array_equal(errors_of(trained), errors_of(again))
    assert len(trained.mixture.weights) == 400
    with pytest.raises(SpecError, match="nothing to fit"):
        model.converge([], HOUSEHOLDS, PERSONS, batch=4)


def test_wrong_input_is_refused():
    model = Generator.start(SCHEMA, batch=4)
    with pytest.raises(SpecError, match="nothing to fit"):
        model.fit([], HOUSEHOLDS, PERSONS)
    with pytest.raises(SpecError, match="number of persons"):
        model.fit(CELLS, HOUSEHOLDS, -1)
    with pytest.raises(SpecError, match="batch"):
        Generator.start(SCHEMA, batch=0)
