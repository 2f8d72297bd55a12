from __future__ import annotations

import io

import numpy as np
import pytest

from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.synthesis import fitting
from tallytree.synthesis.fitting import Stop, fit, loss_and_gradient, slopes_by_logits, target_of
from tallytree.synthesis.mixture import Mixture, softmax
from tallytree.synthesis.model import Measured, MeasuredCell
from tests.synthesis.helpers import every_table, schema_of

SCHEMA = schema_of((2, 3), (2, 3), 3)
HOUSEHOLDS = 10_000
NOISY = [
    Marginal("households", ("h0", "h1"), (), True),
    Marginal("households", ("h0", "h1"), ("p1",)),
    Marginal("households", (), ("p0", "p1")),
    Marginal("persons", ("h1",), ("p0", "p1")),
]


def measured_exactly(model, marginals, variance=1.0):
    return [Measured(marginal, HOUSEHOLDS * model.answers(marginal), variance) for marginal in marginals]


def misfit(model, measured):
    """The mean over measured counts of (expected − noisy)² / variance: about 1 if only noise lies between them."""
    squares = [
        ((HOUSEHOLDS * model.answers(table.marginal) - table.values) ** 2 / table.variance).sum() for table in measured
    ]
    return sum(squares) / sum(table.cells for table in measured)


@pytest.mark.parametrize(
    "marginal",
    [
        Marginal("households", ("h0", "h1"), (), True),
        Marginal("households", ("h1",), ("p1", "p0")),
        Marginal("households", ("h1", "h0"), ("p1",)),
        Marginal("households", (), ("p1",)),
        Marginal("households", ("h1",), ("p1",), True),
        Marginal("persons", ("h1", "h0"), ("p1",)),
        Marginal("persons", (), ("p0", "p1")),
        Marginal("persons", ("h0",), ("p1",), True),
        Marginal("persons", ("h0",)),
        Marginal("persons"),
        Marginal("households", ("h1", "h0")),
        Marginal("households", size=True),
        Marginal("households", (), ("p0", "p1")),
        Marginal("persons", size=True),
        Marginal("persons", ("h1", "h0"), ("p0",)),
        Marginal("persons", ("h0",), ("p0", "p1")),
    ],
    ids=Marginal.describe,
)
def test_the_gradient_by_logits_is_that_of_finite_differences(marginal):
    truth, model = (Mixture.start(SCHEMA, components=3, seed_text=text) for text in ("truth", "model"))
    [table] = measured_exactly(truth, [marginal], variance=HOUSEHOLDS)
    target = target_of(SCHEMA, table, HOUSEHOLDS)
    logits = {name: array.astype(np.float64) for name, array in model.to_arrays().items()}

    def value(logits):
        moved = {name: softmax(array) for name, array in logits.items()}
        other = Mixture.from_arrays(SCHEMA, model.to_arrays())
        object.__setattr__(other, "chances", moved)  # in double precision, which the logits of a model are not kept in
        return HOUSEHOLDS * ((other.answers(marginal) - table.values / HOUSEHOLDS) ** 2).sum()

    chances = {name: softmax(array).astype(np.float32) for name, array in logits.items()}
    found, gradient = loss_and_gradient(SCHEMA, chances, [target])
    assert found.tolist() == pytest.approx([value(logits)], rel=1e-4)
    slopes = slopes_by_logits(chances, gradient)
    largest = max(float(np.abs(slope).max()) for slope in slopes.values())
    for name, array in logits.items():
        for place in np.ndindex(array.shape):
            step = np.zeros(array.shape)
            step[place] = 1e-5
            difference = (value(logits | {name: array + step}) - value(logits | {name: array - step})) / 2e-5
            assert float(slopes[name][place]) == pytest.approx(difference, abs=1e-4 * largest), (name, place)


def test_a_fit_to_exact_tables_finds_a_model_with_the_same_tables(monkeypatch):
    truth = Mixture.start(SCHEMA, components=3, seed_text="truth")
    start = Mixture.start(SCHEMA, components=12, seed_text="start")
    before = max(np.abs(start.answers(marginal) - truth.answers(marginal)).max() for marginal in every_table(SCHEMA))
    monkeypatch.setattr(fitting, "PATIENCE", 50)
    monkeypatch.setattr(fitting, "LEAST_FALL", 0.001)
    shown = [*NOISY, Marginal("persons", (), ("p0", "p1")), Marginal("households", ("h1",), ("p0", "p1"))]
    result = fit(start, measured_exactly(truth, shown), HOUSEHOLDS, stop=Stop(steps=600, noise_explains=0))
    after = max(np.abs(result.model.answers(marginal) - truth.answers(marginal)).max() for marginal in shown)
    assert before > 0.1
    assert after < 0.003
    assert misfit(result.model, measured_exactly(truth, shown)) == pytest.approx(result.misfit, rel=0.5)


def test_a_fit_stops_where_noise_explains_the_rest_and_a_warm_start_takes_no_step():
    truth = Mixture.start(SCHEMA, components=3, seed_text="truth")
    rng = np.random.default_rng(7)
    noisy = [
        Measured(table.marginal, table.values + rng.normal(0, 50, table.values.shape), 50.0**2)
        for table in measured_exactly(truth, NOISY)
    ]
    assert misfit(truth, noisy) == pytest.approx(1, abs=0.4)
    result = fit(Mixture.start(SCHEMA, components=12), noisy, HOUSEHOLDS, stop=Stop(steps=400, noise_explains=1.1))
    assert result.misfit <= 1.1
    assert 0 < result.steps < 400
    again = fit(result.model, noisy, HOUSEHOLDS, stop=Stop(steps=400, noise_explains=1.2))
    assert again.steps == 0
    assert all(np.array_equal(again.model.to_arrays()[name], array) for name, array in result.model.to_arrays().items())


def test_a_new_table_that_is_far_off_is_fitted_though_the_others_fit_well():
    old, new = Marginal("households", ("h0", "h1"), (), True), Marginal("persons", ("h1",))
    start = Mixture.start(SCHEMA, components=12)
    expected = HOUSEHOLDS * start.answers(new)
    tables = [*measured_exactly(start, [old], variance=1000.0), Measured(new, expected * [1.1, 1.0, 0.9], 40.0**2)]
    assert misfit(start, tables) > 1
    result = fit(start, tables, HOUSEHOLDS, stop=Stop(steps=200, noise_explains=1.01 * misfit(start, tables)))
    assert result.steps > 0
    assert misfit(result.model, tables[1:]) < misfit(start, tables[1:])


def test_tables_that_are_late_weigh_more_so_that_the_noise_of_others_is_not_fitted(monkeypatch):
    truth = Mixture.start(SCHEMA, components=3, seed_text="truth")
    rng = np.random.default_rng(11)
    noisy = [
        Measured(table.marginal, table.values + rng.normal(0, 5, table.values.shape), 40.0**2)
        for table in measured_exactly(truth, NOISY)
    ]
    [odd] = measured_exactly(truth, [Marginal("households", ("h0",))])
    late = Measured(odd.marginal, odd.values + np.array([400.0, -400.0]), 40.0**2)  # at odds with the others
    monkeypatch.setattr(fitting, "seldom_exceeded", lambda cells: np.where(cells == 2, 2.0 * cells, np.inf))
    start = Mixture.start(SCHEMA, components=12, spread=0.2)
    waiting, hurried = (
        fit(
            start,
            [*noisy, late],
            HOUSEHOLDS,
            rate=0.03,
            stop=Stop(steps=1500, noise_explains=1.5, wait_for_late_tables=waits),
        )
        for waits in (True, False)
    )
    assert hurried.steps < waiting.steps
    assert misfit(hurried.model, [late]) <= 3


def test_factors_multiply_the_gradient_of_their_tables_and_not_the_losses():
    truth, model = (Mixture.start(SCHEMA, components=3, seed_text=text) for text in ("truth", "model"))
    targets = [target_of(SCHEMA, table, HOUSEHOLDS) for table in measured_exactly(truth, NOISY[:2])]
    chances = {name: array.astype(np.float32) for name, array in model.chances.items()}
    alone = [loss_and_gradient(SCHEMA, chances, [target]) for target in targets]
    losses, gradient = loss_and_gradient(SCHEMA, chances, targets, np.array([2.0, 0.5]))
    assert losses == pytest.approx(np.concatenate([found for found, _ in alone]))
    for name in gradient:
        expected = 2 * np.asarray(alone[0][1][name]) + 0.5 * np.asarray(alone[1][1][name])
        assert gradient[name] == pytest.approx(expected, rel=1e-4, abs=1e-2)


def test_a_fit_that_cannot_improve_ends_before_its_steps_do():
    # One household attribute measured twice, with answers that contradict each other: noise explains none of it.
    marginal = Marginal("households", ("h1",))
    tables = [Measured(marginal, np.array(values) * 1000.0, 1.0) for values in ((1, 2, 7), (7, 2, 1))]
    result = fit(Mixture.start(SCHEMA, components=12), tables, HOUSEHOLDS, stop=Stop(steps=3000))
    assert result.steps < 600
    assert np.allclose(result.model.answers(marginal), [0.4, 0.2, 0.4], atol=0.01)


def test_precise_tables_count_more():
    marginal = Marginal("households", ("h0",))
    tables = [Measured(marginal, [8000, 2000], 1.0), Measured(marginal, [2000, 8000], 3.0)]
    model = fit(Mixture.start(SCHEMA, components=12), tables, HOUSEHOLDS).model
    assert np.allclose(model.answers(marginal), [0.65, 0.35], atol=0.01)


def test_a_fit_is_a_function_of_its_arguments_and_leaves_them_alone():
    truth, start = (Mixture.start(SCHEMA, components=12, seed_text=text) for text in ("truth", "start"))
    tables = measured_exactly(truth, NOISY)
    before = {name: array.copy() for name, array in start.to_arrays().items()}
    one, two = (fit(start, tables, HOUSEHOLDS, stop=Stop(steps=30)).model for _ in range(2))
    for name, array in one.to_arrays().items():
        assert np.array_equal(array, two.to_arrays()[name])
        assert np.array_equal(start.to_arrays()[name], before[name])
    assert not np.array_equal(one.sizes, start.sizes)


def test_households_that_cannot_be_empty_stay_so():
    tables = [Measured(Marginal("households", size=True), [2500.0] * 4, 1.0)]
    model = fit(Mixture.start(SCHEMA, components=12, empty=False), tables, HOUSEHOLDS, stop=Stop(steps=50)).model
    assert model.answers(Marginal("households", size=True))[0] == 0


def test_single_cells_can_be_fitted():
    marginal = Marginal("persons", ("h1",), ("p1",))
    values, variance = np.zeros((3, 3)), np.full((3, 3), np.inf)
    values[2, 1], variance[2, 1] = 6000.0, 25.0
    table = Measured(marginal, values, variance)
    assert table.cells == 1
    model = fit(Mixture.start(SCHEMA, components=12), [table], HOUSEHOLDS).model
    assert model.answers(marginal)[2, 1] == pytest.approx(0.6, abs=0.01)


def test_a_model_survives_a_file():
    model = Mixture.start(SCHEMA, components=5)
    file = io.BytesIO()
    np.savez(file, **model.to_arrays())
    file.seek(0)
    with np.load(file) as arrays:
        read = Mixture.from_arrays(SCHEMA, arrays)
    assert all(np.array_equal(read.to_arrays()[name], array) for name, array in model.to_arrays().items())


def test_wrong_input_is_refused():
    model = Mixture.start(SCHEMA, components=2)
    marginal = Marginal("households", ("h1",))
    with pytest.raises(SpecError, match="nothing to fit"):
        fit(model, [], HOUSEHOLDS)
    with pytest.raises(SpecError, match="number of households"):
        fit(model, [Measured(marginal, np.ones(3), 1.0)], 0)
    with pytest.raises(SpecError, match=r"is of shape \(2,\), not \(3,\)"):
        fit(model, [Measured(marginal, np.ones(2), 1.0)], HOUSEHOLDS)
    with pytest.raises(SpecError, match="variances above zero"):
        Measured(marginal, np.ones(3), 0.0)
    with pytest.raises(SpecError, match="not finite"):
        Measured(marginal, np.array([1.0, np.nan, 0.0]), 1.0)
    with pytest.raises(SpecError, match="no cell"):
        MeasuredCell(marginal, (3,), 1.0, 1.0).check(SCHEMA)
    with pytest.raises(SpecError, match="finite"):
        MeasuredCell(marginal, (2,), 1.0, np.inf)
