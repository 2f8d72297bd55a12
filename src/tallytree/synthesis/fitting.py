"""Fitting the mixture of products to noisy tables: weighted least squares by Adam with the full gradient.

Each measured table has its own gradient (`products.loss_and_slopes`). All logits are one array in single precision, so
that Adam's step is a few operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.mixture import Mixture, tables_of
from tallytree.synthesis.model import Arrays, Measured, check_number, squared_noise_quantile
from tallytree.synthesis.products import Tables, loss_and_slopes
from tallytree.synthesis.roles import view

SMOOTHING = 0.9  # of the misfit, over steps
DEVIATIONS = 3.7  # that a table's own misfit may lie above what noise explains: once in ten thousand tables
PATIENCE = 20  # steps without a fall of the misfit, before the rate is halved
LEAST_FALL = 0.01  # of the misfit, as a share, that counts as one
HALVINGS = 3  # of the rate, before a fit that no longer improves is over
LATE_FROM = 1.3  # times the misfit at which a fit may stop: from there on tables that are late weigh more
LATE_AFTER = 5  # steps, after which the weight of those that still are late grows
LATE_GROWTH, LATE_MOST = 1.2, 16.0  # by how much each time, and how far
STEPS_PER_E = 55  # in which the misfit usually falls to 1/e; only for the remaining time
FIRST_DECAY, SECOND_DECAY, LEAST_ROOT = 0.9, 0.999, 1e-8  # of Adam's moments, and what is added to its root


class FitOutcome(NamedTuple):
    """The model, how many steps were taken, and the smoothed misfit at the last of them."""

    model: Mixture
    steps: int
    misfit: float


class Stop(NamedTuple):
    """When a fit is over: after `steps`, or when the misfit is small enough. See `fit`."""

    steps: int = 500
    noise_explains: float = 1.0
    wait_for_late_tables: bool = True

    def likely_steps(self, taken: int, misfit: float) -> int:
        """Return how many steps the fit is likely to take in all, for the remaining time."""
        ratio = misfit / self.noise_explains if self.noise_explains else inf
        return ceil(min(self.steps, taken + STEPS_PER_E * log(max(ratio, 1.0))))


def fit(
    model: Mixture,
    measured: Sequence[Measured],
    number_of_households: float,
    *,
    stop: Stop = Stop(),  # noqa: B008  # it is frozen
    rate: float = 0.1,
    zeros: Sequence[Measured] = (),
    tell: Callable[[int, int], None] = lambda taken, likely: None,
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
    go on until the noise of all others is fitted. `tell` is called after each step with the number of steps taken, and
    with those that are likely to be taken in all.
    """
    number = check_number(number_of_households, "households")
    targets = [target_of(model.schema, table, number) for table in (*measured, *zeros)]
    cells_of = np.array([table.cells for table in measured])
    most = stop.noise_explains * seldom_exceeded(cells_of)
    cells = int(cells_of.sum())
    if not cells:
        raise SpecError("there is nothing to fit: no count was measured")
    adam = Adam(model.to_arrays())
    smoothed, best, since, halvings, taken = inf, inf, 0, 0, 0
    factors = np.ones(len(targets))
    while taken < stop.steps:
        chances = {name: softmax_single(array) for name, array in adam.logits.items()}
        losses, gradient = loss_and_gradient(model.schema, chances, targets, factors)
        losses = losses[: len(measured)]
        misfit = float(losses.sum()) / cells
        smoothed = misfit if smoothed == inf else SMOOTHING * smoothed + (1 - SMOOTHING) * misfit
        if smoothed <= stop.noise_explains and (losses <= most).all():
            break
        if not stop.wait_for_late_tables and smoothed <= LATE_FROM * stop.noise_explains and taken % LATE_AFTER == 0:
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
        adam.step(slopes_by_logits(chances, gradient), rate)
        taken += 1
        tell(taken, stop.likely_steps(taken, smoothed))
    return FitOutcome(Mixture.from_arrays(model.schema, adam.logits), taken, smoothed)


def seldom_exceeded(cells: Integers) -> Floats:
    """Return what the squares of as many standard normal numbers as there are cells sum to at most, but once in ten
    thousand.

    A bound of some standard deviations above the mean is not enough: small tables exceed it too often, and a fit that
    must bring each of many tables below it does not end before it has fitted noise.
    """
    bounds: Floats = cells * squared_noise_quantile(np.maximum(cells, 1), DEVIATIONS)
    return bounds


class Target(NamedTuple):
    """A measured table as the gradient takes it: per household, and with the weights that make it a misfit."""

    marginal: Marginal
    shares: NDArray[np.float32]
    weights: NDArray[np.float32]


def target_of(schema: Schema, table: Measured, number: float) -> Target:
    table.check(schema)
    shares, weights = table.values / number, number**2 / table.variance
    return Target(table.marginal, shares.astype(np.float32), weights.astype(np.float32))


def loss_and_gradient(
    schema: Schema, chances: Arrays, targets: Sequence[Target], factors: Floats | None = None
) -> tuple[Floats, dict[str, NDArray[Any]]]:
    """Return each table's loss, and the gradient of their sum, each times its factor, by all chances."""
    losses = np.zeros(len(targets))
    gradient = {name: np.zeros_like(array) for name, array in chances.items()}
    for place, (marginal, shares, weights) in enumerate(targets):
        tables = tables_of(schema, marginal, chances)
        losses[place], slopes = loss_and_slopes(marginal.of, marginal.size, tables, shares, weights)
        add_slopes(gradient, schema, marginal, slopes, 1.0 if factors is None else float(factors[place]))
    return losses, gradient


def add_slopes(
    gradient: Mapping[str, NDArray[Any]], schema: Schema, marginal: Marginal, slopes: Tables, factor: float
) -> None:
    """Add the slopes of a table's own arrays, times a factor, to those by the chances that `tables_of` made them of."""
    sizes, homes, people = slopes.sizes, [*slopes.household], [*slopes.person[: len(marginal.person)]]
    if marginal.groups:  # a code has the slope of its group
        spread = [
            slope[..., list(groups)] if groups else slope
            for slope, groups in zip([*homes, *people], marginal.groups, strict=True)
        ]
        homes, people = spread[: len(homes)], spread[len(homes) :]
    if marginal.roles:
        seen, rows = view(schema, marginal.role_names, len(sizes)), np.arange(len(sizes))
        sizes = sizes * seen.sizes
        if people:
            people[0] = people[0] * seen.others[:, :, None]
        for (role, name), slope in zip(marginal.roles, homes[len(marginal.household) :], strict=True):
            gradient[f"person {name}"][rows, seen.places[role]] += factor * slope
    gradient["weights"][:] += factor * slopes.weights
    gradient["sizes"][:] += factor * sizes
    for name, slope in zip(marginal.household, homes, strict=False):
        gradient[f"household {name}"][:] += factor * slope
    for name, slope in zip(marginal.person, people, strict=True):
        gradient[f"person {name}"][:] += factor * slope


def softmax_single(logits: NDArray[Any]) -> NDArray[Any]:
    """Chances along the last axis, in the precision of the logits."""
    raised: NDArray[Any] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    raised /= raised.sum(axis=-1, keepdims=True)
    return raised


def slopes_by_logits(chances: Arrays, gradient: Arrays) -> dict[str, NDArray[Any]]:
    """Return the chain rule through softmax: by a logit, p · (slope by p − its mean under p)."""
    return {
        name: chance * (gradient[name] - (chance * gradient[name]).sum(axis=-1, keepdims=True))
        for name, chance in chances.items()
    }


class Adam:
    """Logits in one array, `logits` by name, with the moments of Adam (Kingma and Ba, 2015)."""

    def __init__(self, arrays: Arrays) -> None:
        self._flat = np.concatenate([array.ravel() for array in arrays.values()]).astype(np.float32)
        ends = np.cumsum([array.size for array in arrays.values()])
        parts = np.split(self._flat, ends[:-1])  # views
        self.logits = {name: part.reshape(arrays[name].shape) for name, part in zip(arrays, parts, strict=True)}
        self._first, self._second, self._steps = np.zeros_like(self._flat), np.zeros_like(self._flat), 0

    def step(self, slopes: Arrays, rate: float) -> None:
        """Move the logits against their slopes."""
        flat = np.concatenate([slopes[name].ravel() for name in self.logits])
        self._steps += 1
        self._first += (1 - FIRST_DECAY) * (flat - self._first)
        self._second += (1 - SECOND_DECAY) * (flat * flat - self._second)
        root = np.sqrt(self._second / (1 - SECOND_DECAY**self._steps)) + LEAST_ROOT
        self._flat -= rate / (1 - FIRST_DECAY**self._steps) * self._first / root
