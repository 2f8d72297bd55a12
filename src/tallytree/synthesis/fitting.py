"""Fitting the mixture of products to noisy tables: weighted least squares by Adam with the full gradient.

Each measured table has its own gradient: that of households by their persons' values is compiled once for all
(`products.loss_and_slopes`), others once for each shape, so that a new table in a later round costs at most one small
compilation and not one of everything. The logits, the chain rule through them and Adam's step are one more function,
compiled once for the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Counted, Marginal, Schema
from tallytree.synthesis.mixture import Mixture, tables_of
from tallytree.synthesis.model import Measured, check_number, squared_noise_quantile
from tallytree.synthesis.products import Tables, answers, loss_and_slopes
from tallytree.synthesis.roles import view

SMOOTHING = 0.9  # of the misfit, over steps
DEVIATIONS = 3.7  # that a table's own misfit may lie above what noise explains: once in ten thousand tables
PATIENCE = 20  # steps without a fall of the misfit, before the rate is halved
LEAST_FALL = 0.01  # of the misfit, as a share, that counts as one
HALVINGS = 3  # of the rate, before a fit that no longer improves is over
LATE_FROM = 1.3  # times the misfit at which a fit may stop: from there on tables that are late weigh more
LATE_AFTER = 5  # steps, after which the weight of those that still are late grows
LATE_GROWTH, LATE_MOST = 1.2, 16.0  # by how much each time, and how far


class FitOutcome(NamedTuple):
    """The model, how many steps were taken, and the smoothed misfit at the last of them."""

    model: Mixture
    steps: int
    misfit: float


def fit(
    model: Mixture,
    measured: Sequence[Measured],
    number_of_households: float,
    *,
    steps: int = 500,
    rate: float = 0.1,
    noise_explains: float = 1.0,
    zeros: Sequence[Measured] = (),
    wait_for_late_tables: bool = True,
) -> FitOutcome:
    """Move `model` towards all measured tables. The same arguments give the same model.

    The fit stops when the smoothed misfit (the mean over measured counts of squared distance over variance) is no more
    than `noise_explains`: 1 is what noise alone gives at the truth, and going below it fits the noise. No table's own
    misfit may then be above what noise gives once in ten thousand tables: many old tables must not hide that a new one
    is far off. It also stops when `steps` are done, or when the misfit no longer falls: after `PATIENCE` steps without
    a fall by the share `LEAST_FALL` the rate is halved, and after `HALVINGS` of these the fit is over.

    `zeros` are tables that the model is drawn to as well, and whose misfit has no part in when to stop: public facts,
    such as cells that a rule keeps empty.

    Without `wait_for_late_tables`, those that alone keep the fit from stopping weigh more and more, so that it need not
    go on until the noise of all others is fitted.
    """
    number = check_number(number_of_households, "households")
    targets = [target_of(model.schema, table, number) for table in (*measured, *zeros)]
    cells_of = np.array([table.cells for table in measured])
    most = noise_explains * seldom_exceeded(cells_of)
    cells = int(cells_of.sum())
    if not cells:
        raise SpecError("there is nothing to fit: no count was measured")
    logits = {name: jnp.asarray(array) for name, array in model.to_arrays().items()}
    moments = optax.scale_by_adam().init(logits)
    smoothed, best, since, halvings, taken = inf, inf, 0, 0, 0
    factors = np.ones(len(targets))
    while taken < steps:
        chances = _chances(logits)
        losses, gradient = loss_and_gradient(model.schema, chances, targets, factors)
        losses = losses[: len(measured)]
        misfit = float(losses.sum()) / cells
        smoothed = misfit if smoothed == inf else SMOOTHING * smoothed + (1 - SMOOTHING) * misfit
        if smoothed <= noise_explains and (losses <= most).all():
            break
        if not wait_for_late_tables and smoothed <= LATE_FROM * noise_explains and taken % LATE_AFTER == 0:
            late = np.flatnonzero(losses > most)
            factors[late] = np.minimum(factors[late] * LATE_GROWTH, LATE_MOST)
        if smoothed < best * (1 - LEAST_FALL):
            best, since = smoothed, 0
        else:
            since += 1
        if since >= PATIENCE:
            rate, since, halvings = rate / 2, 0, halvings + 1
            if halvings > HALVINGS:
                break
        logits, moments = _step(logits, chances, gradient, moments, rate)
        taken += 1
    fitted = Mixture.from_arrays(model.schema, {name: np.asarray(array) for name, array in logits.items()})
    return FitOutcome(fitted, taken, smoothed)


def seldom_exceeded(cells: Integers) -> Floats:
    """What the squares of as many standard normal numbers as there are cells sum to at most, but once in ten thousand.

    A bound of some standard deviations above the mean is not enough: small tables exceed it too often, and a fit that
    must bring each of many tables below it does not end before it has fitted noise.
    """
    bounds: Floats = cells * squared_noise_quantile(np.maximum(cells, 1), DEVIATIONS)
    return bounds


class Target(NamedTuple):
    """A measured table as the gradient takes it: per household, and with the weights that make it a misfit."""

    marginal: Marginal
    shares: jax.Array
    weights: jax.Array


def target_of(schema: Schema, table: Measured, number: float) -> Target:
    table.check(schema)
    shares = jnp.asarray(table.values / number, dtype=jnp.float32)
    weights = jnp.asarray(number**2 / table.variance, dtype=jnp.float32)
    return Target(table.marginal, shares, weights)


def loss(of: Counted, by_size: bool, tables: Tables, shares: Any, weights: Any) -> Any:
    """The squared, weighted distance of one table."""
    return (weights * (answers(of, by_size, tables).reshape(shares.shape) - shares) ** 2).sum()


_of_one_table = partial(jax.jit, static_argnums=(0, 1))(jax.value_and_grad(loss, argnums=2))


def loss_and_gradient(
    schema: Schema, chances: dict[str, jax.Array], targets: Sequence[Target], factors: Floats | None = None
) -> tuple[Floats, dict[str, Any]]:
    """Each table's loss, and the gradient of their sum, each times its factor, by all chances: zero for those that no
    table has.
    """
    losses = []
    gradient: dict[str, Any] = {}
    plain = {name: np.asarray(array) for name, array in chances.items()}
    for place, target in enumerate(targets):
        marginal = target.marginal
        factor = np.float32(1 if factors is None else factors[place])
        tables = tables_of(schema, marginal, plain if marginal.roles else chances)
        if marginal.of == "households" and marginal.person and not marginal.size:
            found, slopes = loss_and_slopes(tables, target.shares, target.weights)
        else:
            found, slopes = _of_one_table(marginal.of, marginal.size, tables, target.shares, target.weights)
        losses.append(float(found))
        for name, slope in slopes_by_chances(schema, marginal, slopes, plain):
            if name in gradient:  # in NumPy: a sum of two small arrays takes the engine longer to start than to do
                gradient[name] += factor * slope
            else:
                gradient[name] = factor * np.array(slope)
    return np.array(losses), {
        name: gradient[name] if name in gradient else np.zeros_like(chances[name]) for name in chances
    }


def slopes_by_chances(
    schema: Schema, marginal: Marginal, slopes: Tables, chances: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """The slopes of a table's own arrays by the chances that `tables_of` made them of."""
    homes = [np.asarray(slope) for slope in slopes.household]
    people = [np.asarray(slope) for slope in slopes.person[: len(marginal.person)]]
    sizes = np.asarray(slopes.sizes)
    if marginal.roles:
        seen, rows = view(schema, marginal.role_names, len(sizes)), np.arange(len(sizes))
        sizes = sizes * seen.sizes
        if people:
            people[0] = people[0] * seen.others[:, :, None]
        for (role, name), slope in zip(marginal.roles, homes[len(marginal.household) :], strict=True):
            whole = np.zeros_like(chances[f"person {name}"])
            whole[rows, seen.places[role]] = slope
            yield f"person {name}", whole
    yield "weights", np.asarray(slopes.weights)
    yield "sizes", sizes
    for name, slope in zip(marginal.household, homes, strict=False):
        yield f"household {name}", slope
    for name, slope in zip(marginal.person, people, strict=True):
        yield f"person {name}", slope


@jax.jit
def _chances(logits: dict[str, jax.Array]) -> dict[str, jax.Array]:
    return {name: jax.nn.softmax(array, axis=-1) for name, array in logits.items()}


@jax.jit
def _step(
    logits: dict[str, jax.Array],
    chances: dict[str, jax.Array],
    gradient: dict[str, jax.Array],
    moments: optax.OptState,
    rate: float,
) -> tuple[dict[str, jax.Array], optax.OptState]:
    """Adam's step."""
    moves, moments = optax.scale_by_adam().update(slopes_by_logits(chances, gradient), moments)
    return {name: logits[name] - rate * moves[name] for name in logits}, moments


def slopes_by_logits(chances: dict[str, Any], gradient: dict[str, Any]) -> dict[str, Any]:
    """The chain rule through softmax: by a logit, p · (slope by p − its mean under p)."""
    slopes = {}
    for name, chance in chances.items():
        slope = gradient[name]
        slopes[name] = chance * (slope - (chance * slope).sum(axis=-1, keepdims=True))
    return slopes
