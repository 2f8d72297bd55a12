"""The privacy border: `measure` is the only reader of private counts.

In this order: the plan is checked against the data's public facts, the cost is reserved in the ledger, all noise is
drawn, and only then are the private counts touched; what leaves is their sum.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from importlib import import_module
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import SpecError
from tallytree.histogram import at_least
from tallytree.privacy.accounting import NOISE_FOR, NoiseKind, scale_for
from tallytree.privacy.ledger import Ledger
from tallytree.privacy.measurements import Measurement, Measurements
from tallytree.privacy.plan import Plan
from tallytree.privacy.unit import Neighbours, View
from tallytree.tables.group_sizes import GroupSizes

Integers = NDArray[np.int64]
NoiseSource = Literal["tallytree", "opendp"]
Draw = Callable[[Fraction, int], Integers]

# Where each source draws from, and the scale it really uses for the one asked for: never a smaller one.
_SOURCES: dict[NoiseSource, tuple[str, dict[NoiseKind, str]]] = {
    "tallytree": ("noise", {"discrete_laplace": "checked_scale", "discrete_gaussian": "checked_variance"}),
    "opendp": ("opendp_noise", {"discrete_laplace": "usable_scale", "discrete_gaussian": "usable_variance"}),
}


def measure(
    group_sizes: GroupSizes, plan: Plan, *, ledger: Ledger | None = None, noise: NoiseSource = "tallytree"
) -> Measurements:
    """Answer the plan's questions with noise that makes them as private as its budget says.

    Privacy: each question's noise is scaled to its exact share of the budget by the sensitivity of its view under the
    data's neighbour relation (`Neighbours.sensitivity`), and the shares add up to the budget (`Plan`).
    """
    if noise not in get_args(NoiseSource):
        raise SpecError(f"unknown noise source {noise!r}; expected tallytree or opendp")
    kind = NOISE_FOR[plan.budget.currency]
    draw, usable = _source(noise, kind)
    return _measured(group_sizes, plan, kind, draw, usable, source=noise, ledger=ledger)


def _measured(
    group_sizes: GroupSizes,
    plan: Plan,
    kind: NoiseKind,
    draw: Draw,
    usable: Callable[[Fraction], Fraction],
    *,
    source: str,
    ledger: Ledger | None,
) -> Measurements:
    """`measure` with the noise it was asked for. Only `tallytree.evaluate` calls it with any other, on public data."""
    hierarchy = group_sizes.hierarchy
    neighbours = Neighbours.of(group_sizes, plan.unit)
    if any(not 0 <= question.level < hierarchy.depth for question in plan.questions):
        raise SpecError(f"the plan asks for a level that is not there; the hierarchy has {hierarchy.depth}")
    regions = np.diff(hierarchy.level_starts).tolist()
    sensitivities = [neighbours.sensitivity(question.view, regions[question.level]) for question in plan.questions]
    scales = [
        usable(scale_for(kind, sensitivity, plan.cost(question)))
        for question, sensitivity in zip(plan.questions, sensitivities, strict=True)
    ]
    variances = [_variance(kind, scale) for scale in scales]
    shapes = [(regions[question.level], _columns(question.view, group_sizes)) for question in plan.questions]

    receipt = None
    if ledger is not None:
        receipt = ledger.reserve(group_sizes.name, plan.budget, neighbours, group_sizes.fingerprint())

    values = [draw(scale, rows * columns) for scale, (rows, columns) in zip(scales, shapes, strict=True)]
    noisy = [drawn.reshape(shape) for drawn, shape in zip(values, shapes, strict=True)]

    private = hierarchy.aggregate(group_sizes.counts.open_at_the_privacy_border())
    for question, sums in zip(plan.questions, noisy, strict=True):
        sums += _view(question.view, private[hierarchy.level_slice(question.level)], group_sizes.first_size)
    del private

    return Measurements(
        hierarchy=hierarchy,
        neighbours=neighbours,
        budget=plan.budget,
        measured=tuple(
            Measurement(question.view, question.level, question.share, sensitivity, kind, scale, variance, sums)
            for question, sensitivity, scale, variance, sums in zip(
                plan.questions, sensitivities, scales, variances, noisy, strict=True
            )
        ),
        region_totals=None if group_sizes.leaf_totals is None else hierarchy.aggregate(group_sizes.leaf_totals),
        noise_source=source,
        ledgered=ledger is not None,
        receipt=receipt,
        regions_declared_public=group_sizes.regions_declared_public,
    )


def _columns(view: View, group_sizes: GroupSizes) -> int:
    if view == "totals":
        return 1
    return group_sizes.max_size + (1 if view in ("counts", "chain") and group_sizes.public_totals else 0)


def _view(view: View, counts: Integers, first_size: int) -> Integers:
    if view == "at_least":
        return at_least(counts, first_size)
    if view == "chain":
        return _chain(counts)
    return counts.sum(axis=1, keepdims=True) if view == "totals" else counts


def _chain(counts: Integers) -> Integers:
    """For each cell how many groups are in it or in a later one, size by size and region by region within a size."""
    row = np.cumsum(counts.T.ravel()[::-1])[::-1]
    return np.ascontiguousarray(row.reshape(counts.shape[::-1]).T)


def _source(noise: NoiseSource, kind: NoiseKind) -> tuple[Draw, Callable[[Fraction], Fraction]]:
    module, usable = _SOURCES[noise]
    source = import_module(f"tallytree.privacy.{module}")
    return getattr(source, kind), getattr(source, usable[kind])


def _variance(kind: NoiseKind, scale: Fraction) -> float:
    from tallytree.privacy.noise import gaussian_variance, laplace_variance

    return laplace_variance(scale) if kind == "discrete_laplace" else gaussian_variance(scale)
