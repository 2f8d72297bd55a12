"""Each leaf region's own weights of the components of one mixture, so that its rates come out.

All that a mixture answers is linear in its weights: a region with the weights π has the rates Σ π_c A_c, where A_c are
those of component c. The weights are moved by EM from those of the whole, π_c ← π_c · mean over tables of Σ over cells
of A_c · wanted / Σ π A. This is the likelihood of mixture weights, which is concave, and each step raises it; so few
steps leave the weights near to where they began, and many bring the rates as near as the components can. A rate that
does not add up to one with others (a household contains such a person, or has so many) is taken with its complement.

The result is a mixture with the region as one more attribute: w_c = Σ n_r π_rc / n and P_c(r) = n_r π_rc / (n w_c), so
that given the region a component has the weight π_rc. All else of it, and how it is drawn from, stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.schema import Marginal, Schema
from tallytree.synthesis.country.levels import RegionLevels
from tallytree.synthesis.models.mixture import Mixture, softmax

STEPS = 200
BLOCK = 4096  # regions worked on at a time
TINY = 1e-30


class Wish(NamedTuple):
    """A table's rates: of each component `[components, cells]`, and wanted for each leaf region `[regions, cells]`.

    All are chances, and the wanted ones of a region add up to 1, so that tables weigh the same whatever they count.
    """

    components: Floats
    wanted: Floats


def by_components(model: Mixture, table: Marginal) -> Floats:
    """A table's rates in each component by itself, `[components, cells]`."""
    arrays = model.to_arrays()
    rows = [
        type(model)
        .from_arrays(model.schema, {name: array[place : place + 1] for name, array in arrays.items()})
        .answers(table)
        .ravel()
        for place in range(model.components)
    ]
    return np.stack(rows)


def wish(model: Mixture, table: Marginal, rates: Floats) -> Wish:
    """Rates as chances: as they are where each household is in one cell, otherwise with their complements."""
    components, wanted = by_components(model, table), rates
    if table.of == "households" and not table.person:
        return Wish(components, wanted / wanted.sum(axis=1, keepdims=True))
    most = model.schema.max_persons if table.of == "persons" else 1
    cells = components.shape[1]

    def both(part: Floats) -> Floats:
        part = np.clip(part / most, 0.0, 1.0)
        found: Floats = np.concatenate([part, 1 - part], axis=1) / cells
        return found

    return Wish(both(components), both(wanted))


def regional_weights(weights: Floats, wishes: Sequence[Wish], steps: int = STEPS) -> Floats:
    """Weights `[regions, components]` under which the wishes come out as nearly as they can in so many steps."""
    components = np.concatenate([one.components for one in wishes], axis=1)
    wanted = np.concatenate([one.wanted for one in wishes], axis=1)
    found = np.tile(weights, (len(wanted), 1))
    for start in range(0, len(wanted), BLOCK):
        part = found[start : start + BLOCK]
        goal = wanted[start : start + BLOCK] / len(wishes)
        for _ in range(steps):
            part *= (goal / np.maximum(part @ components, TINY)) @ components.T
            part /= part.sum(axis=1, keepdims=True)
    return found


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
