"""Each leaf region's own weights of the components of one mixture, so that its rates come out.

*What is drawn.* Households of a region r are drawn as many as were released for each class k (a size, or a size and a
category), from the components with the weights π_rc P_c(k). So the components of the region's households have the
shares q_r = Σ_k f_rk π_rc P_c(k) / Σ_c π_rc P_c(k), where f_rk are the released shares of classes.

*What is wanted.* Rates b_r, where those of component c are A_c: Σ_c q_rc A_c = b_r. Weights of the form π_rc ∝
w_c exp(λ_r · A_c) change the whole's weights w by no more than that takes. λ_r is where

    λ · b − Σ_k f_k log Σ_c w_c P_c(k) exp(λ · A_c) − τ |λ|² / 2

is largest: its slope is b − Σ q A − τ λ. It is concave and smooth, and Newton's method with shorter steps where they
overshoot finds it for many regions at a time. τ lets rates that no weights give be missed by a little.

*Persons.* How many households contain a child depends on their sizes, which are released, and a component's rate A_c is
that of its own sizes. So of the wanted rate what the released sizes alone would change is taken off first: the rate of
the whole's components, given the region's classes, with each class's own rates A_c(k), minus the same with A_c.

The result is a mixture with the region as one more attribute: P_c(r) ∝ n_r π_rc / w'_c with w'_c = Σ n_r π_rc / n, so
that given the region a component has the weight π_rc. All else of it, and how it is drawn from, stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.country.levels import RegionLevels
from tallytree.synthesis.models.mixture import Mixture, softmax

STEPS = 40  # of Newton's method, at most
HALVINGS = 30  # of one step
NEAR_ENOUGH = 1e-6  # a slope
LOOSE = 1e-4  # τ: a rate that is missed by 0.01 counts as much as half a relative entropy
NUMBERS = 1 << 21  # that are worked on at a time
TINY = 1e-30


class Classes(NamedTuple):
    """What was released of regions: the chance of each class in each component `[components, classes]`, the classes'
    sizes `[classes]` (the last stands for larger ones too), and the regions' shares `[regions, classes]`.
    """

    chances: Floats
    sizes: Integers
    shares: Floats


class Wish(NamedTuple):
    """A table's rates: of each component `[components, cells]`, and wanted for each leaf region `[regions, cells]`."""

    components: Floats
    wanted: Floats


def by_components(model: Mixture, table: Marginal) -> Floats:
    """A table's rates in each component by itself, `[components, axes of the table]`."""
    arrays = model.to_arrays()
    rows = [
        type(model)
        .from_arrays(model.schema, {name: array[place : place + 1] for name, array in arrays.items()})
        .answers(table)
        for place in range(model.components)
    ]
    return np.stack(rows)


def in_classes(by_size: Floats, sizes: Integers) -> Floats:
    """Of values `[components, sizes from 0, …]` those of each class `[components, classes, …]`."""
    last = int(sizes.max())
    tails = by_size.copy()
    tails[:, last] = by_size[:, last:].sum(axis=1)
    found: Floats = tails[:, sizes]
    return found


def wish(model: Mixture, table: Marginal, rates: Floats, classes: Classes) -> Wish:
    """The rates of a table that the components should have, after what the released sizes do by themselves."""
    components, wanted = by_components(model, table).reshape(model.components, -1), rates
    if table.person:
        with_size = by_components(model, Marginal(table.of, table.household, table.person, size=True))
        own = in_classes(with_size.reshape(model.components, model.schema.max_persons + 1, -1), classes.sizes)
        alone = by_components(model, Marginal("households", size=True))
        own /= np.maximum(in_classes(alone, classes.sizes), TINY)[:, :, None]
        weight = weights_of(model)[:, None] * classes.chances
        weight /= np.maximum(weight.sum(axis=0), TINY)
        apart = np.einsum("ck,ckf->kf", weight, own) - weight.T @ components
        wanted = rates - classes.shares @ apart
    most = model.schema.max_persons if table.of == "persons" else 1
    return Wish(components / most, wanted / most)


def regional_weights(weights: Floats, classes: Classes, wishes: Sequence[Wish]) -> Floats:
    """Weights `[regions, components]` under which the wishes come out, as near to `weights` as they can be."""
    regions = len(classes.shares)
    if not wishes:
        return np.tile(weights, (regions, 1))
    components = np.concatenate([one.components for one in wishes], axis=1)
    wanted = np.concatenate([one.wanted for one in wishes], axis=1)
    first = np.log(np.maximum(weights[:, None] * classes.chances, TINY)).T  # classes by components
    block = max(1, NUMBERS // max(first.size, components.size * components.shape[1]))
    logarithms = np.log(np.maximum(weights, TINY))
    found = np.empty((regions, len(weights)))
    for start in range(0, regions, block):
        part = slice(start, start + block)
        prices = _prices(first, components, classes.shares[part], wanted[part])
        found[part] = softmax(logarithms + prices @ components.T)
    return found


def _prices(first: Floats, components: Floats, shares: Floats, wanted: Floats) -> Floats:
    """λ for some regions together."""
    prices = np.zeros_like(wanted)
    ridge = LOOSE * np.eye(components.shape[1])
    value, within = _value(prices, first, components, shares, wanted)
    for _ in range(STEPS):
        q = np.einsum("rk,rkc->rc", shares, within)
        slope = wanted - q @ components - LOOSE * prices
        if np.abs(slope).max(initial=0.0) <= NEAR_ENOUGH:
            break
        means = within @ components
        curve = (components.T[None] * q[:, None, :]) @ components + ridge
        curve -= (means * shares[:, :, None]).transpose(0, 2, 1) @ means
        step = np.linalg.solve(curve, slope[:, :, None])[:, :, 0]
        prices, value, within = _moved(prices, step, slope, value, (first, components, shares, wanted))
    return prices


def _moved(
    prices: Floats, step: Floats, slope: Floats, before: Floats, problem: tuple[Floats, Floats, Floats, Floats]
) -> tuple[Floats, Floats, Floats]:
    """The step, halved for each region until its value rises by a part of what the slope says."""
    length, gain = np.ones(len(prices)), (step * slope).sum(axis=1)
    for _ in range(HALVINGS):
        moved = prices + length[:, None] * step
        value, within = _value(moved, *problem)
        short = value < before + 1e-4 * length * gain - 1e-12
        if not short.any():
            break
        length = np.where(short, length / 2, length)
    return moved, value, within


def _value(prices: Floats, first: Floats, components: Floats, shares: Floats, wanted: Floats) -> tuple[Floats, Floats]:
    """What is to be made largest, and each class's weights of components `[regions, classes, components]`."""
    scores = first[None] + (prices @ components.T)[:, None, :]
    top = scores.max(axis=2, keepdims=True)
    within = np.exp(scores - top)
    sums = within.sum(axis=2, keepdims=True)
    within /= sums
    logarithms = (top + np.log(sums))[:, :, 0]
    value = (prices * wanted).sum(axis=1) - (shares * logarithms).sum(axis=1) - LOOSE / 2 * (prices**2).sum(axis=1)
    return value, within


def country(model: Mixture, schema: Schema, levels: RegionLevels, households: Integers, weights: Floats) -> Mixture:
    """The mixture over the longer `schema`, with the regions of all levels as attributes of households."""
    joint = np.maximum(households[:, None] * weights, TINY)  # regions by components
    arrays = {**model.to_arrays(), "weights": _logits(joint.sum(axis=0))}
    for level, attribute in enumerate(levels.attributes):
        arrays[f"household {attribute.name}"] = _logits(levels.summed(joint, level).T)
    return Mixture.from_arrays(schema, arrays)


def weights_of(model: Mixture) -> Floats:
    """The chances of the components."""
    return softmax(model.weights)


def _logits(chances: Floats) -> Floats:
    logits: Floats = np.log(np.maximum(chances / chances.sum(axis=-1, keepdims=True), TINY))
    return logits
