"""The privacy border: `measure` is the only reader of private counts.

In this order: the plan is checked against the data's public facts, the cost of all of it is reserved in the ledger,
noise is drawn, and only then are the private counts touched; what leaves is their sum. Lists of sizes, which may be as
long as there are groups, are drawn and added to a part at a time. Totals and the largest size, where a plan asks for
them, are measured first: what follows from them (`Settled`) shapes the other questions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.histogram import at_least
from tallytree.privacy.accounting import NOISE_FOR, NoiseKind, scale_for
from tallytree.privacy.ledger import Ledger
from tallytree.privacy.measurements import Measurement, Measurements, Settle
from tallytree.privacy.neighbours import Neighbours, Sensitivity, View
from tallytree.privacy.plan import Plan, Question
from tallytree.privacy.size_lists import SMALL, noisy_lists
from tallytree.tables.group_sizes import GroupSizes

NoiseSource = Literal["tallytree", "opendp"]
Draw = Callable[[Fraction, int], Integers]

FIRST: tuple[View, ...] = ("totals", "largest")  # measured before the others

# Where each source draws from, and the scale it really uses for the one asked for: never a smaller one.
_SOURCES: dict[NoiseSource, tuple[str, dict[NoiseKind, str]]] = {
    "tallytree": ("draws", {"discrete_laplace": "checked_scale", "discrete_gaussian": "checked_variance"}),
    "opendp": ("opendp", {"discrete_laplace": "usable_scale", "discrete_gaussian": "usable_variance"}),
}


def measure(
    group_sizes: GroupSizes,
    plan: Plan,
    *,
    ledger: Ledger | None = None,
    noise: NoiseSource = "tallytree",
    settle: Settle | None = None,
) -> Measurements:
    """Answer the plan's questions with noise that makes them as private as its budget says.

    `settle` turns measured totals and a measured largest size into the ones that the other questions go by.

    Privacy: each question's noise is scaled to its exact share of the budget by the sensitivity of its view under the
    data's neighbour relation (`Neighbours.sensitivity`), and the shares add up to the budget (`Plan`).
    """
    if noise not in get_args(NoiseSource):
        raise SpecError(f"unknown noise source {noise!r}; expected tallytree or opendp")
    kind = NOISE_FOR[plan.budget.currency]
    draw, usable = _source(noise, kind)
    return _measured(group_sizes, plan, kind, draw, usable, source=noise, ledger=ledger, settle=settle)


def _measured(
    group_sizes: GroupSizes,
    plan: Plan,
    kind: NoiseKind,
    draw: Draw,
    usable: Callable[[Fraction], Fraction],
    *,
    source: str,
    ledger: Ledger | None,
    settle: Settle | None = None,
) -> Measurements:
    """`measure` with the noise it was asked for. Only `tallytree.evaluate` calls it with any other, on public data."""
    hierarchy = group_sizes.hierarchy
    neighbours = Neighbours.of(group_sizes, plan.unit)
    _check(plan, group_sizes, settle)
    regions = np.diff(hierarchy.level_starts).tolist()
    asked = []
    for question in plan.questions:
        sensitivity = neighbours.sensitivity(question.view, regions[question.level])
        scale = usable(scale_for(kind, sensitivity, plan.cost(question)))
        asked.append(_Asked(question, sensitivity, kind, scale, _variance(kind, scale)))

    receipt = None
    if ledger is not None:
        receipt = ledger.reserve(group_sizes.name, plan.budget, neighbours, group_sizes.fingerprint())
    nothing_yet = Measurements(
        hierarchy=hierarchy,
        neighbours=neighbours,
        budget=plan.budget,
        measured=(),
        region_totals=group_sizes.region_totals,
        noise_source=source,
        ledgered=ledger is not None,
        receipt=receipt,
        regions_declared_public=group_sizes.regions_declared_public,
    )

    known = _answered(group_sizes, draw, [one for one in asked if one.question.view in FIRST], nothing_yet)
    if settle is not None:
        known = replace(known, settled=settle(known))
    return _answered(group_sizes, draw, [one for one in asked if one.question.view not in FIRST], known)


@dataclass(frozen=True)
class _Asked:
    """A question with what its answer will be measured with."""

    question: Question
    sensitivity: Sensitivity
    noise: NoiseKind
    scale: Fraction
    variance: float

    def answer(self, values: NDArray[Any]) -> Measurement:
        question = self.question
        return Measurement(
            question.view,
            question.level,
            question.share,
            self.sensitivity,
            self.noise,
            self.scale,
            self.variance,
            values,
        )


def _answered(group_sizes: GroupSizes, draw: Draw, asked: list[_Asked], known: Measurements) -> Measurements:
    """`known` with the answers to some more questions. Only lists of sizes draw their noise a part at a time."""
    if not asked:
        return known
    drawn = {one: _drawn(draw, one, known) for one in asked if one.question.view != "sorted_sizes"}
    private = _folded(known.hierarchy.aggregate(group_sizes.counts.open_at_the_privacy_border()), known)
    answers = []
    for one in asked:
        counts = private[known.hierarchy.level_slice(one.question.level)]
        if one in drawn:
            drawn[one] += _view(one.question.view, counts, known.first_size)
            answers.append(one.answer(drawn[one]))
        else:
            lengths, noise = known.lengths(one.question.level), partial(draw, one.scale)
            answers.append(one.answer(noisy_lists(noise, counts, known.first_size, lengths, small=_small(one.scale))))
    return replace(known, measured=(*known.measured, *answers))


def _check(plan: Plan, group_sizes: GroupSizes, settle: Settle | None) -> None:
    """Refuse a plan that does not fit the data's public facts."""
    depth = group_sizes.hierarchy.depth
    if any(not 0 <= question.level < depth for question in plan.questions):
        raise SpecError(f"the plan asks for a level that is not there; the hierarchy has {depth}")
    views = {question.view for question in plan.questions}
    if any(question.view == "largest" and question.level > 0 for question in plan.questions):
        raise SpecError("the largest size is a question about the whole; ask it of the top level")
    if "sorted_sizes" in views and not group_sizes.public_totals and ("totals" not in views or settle is None):
        raise SpecError(
            "lists of sizes have as many places as there are groups, and here totals are private: measure totals with "
            "a share of the budget first, or read with a groups table if there is a public one"
        )


def _drawn(draw: Draw, one: _Asked, known: Measurements) -> Integers:
    """Noise in the shape of the answer."""
    level = known.hierarchy.level_slice(one.question.level)
    shape = (level.stop - level.start, known.columns(one.question.view))
    return draw(one.scale, shape[0] * shape[1]).reshape(shape)


def _folded(counts: Integers, known: Measurements) -> Integers:
    """The counts with all sizes above the settled largest one counted as that."""
    last = known.max_size - known.first_size
    if last + 1 == counts.shape[1]:
        return counts
    folded = counts[:, : last + 1].copy()
    folded[:, last] = counts[:, last:].sum(axis=1)
    return folded


def _small(scale: Fraction) -> bool:
    """Do 32 bits hold every sum but those that no one will ever see? Either way nothing is lost that matters."""
    return 1000 * scale < SMALL.max


def _view(view: View, counts: Integers, first_size: int) -> Integers:
    if view == "at_least":
        return at_least(counts, first_size)
    if view == "chain":
        return _chain(counts)
    if view == "largest":
        sizes = np.arange(first_size, first_size + counts.shape[1])
        largest: Integers = np.where(counts > 0, sizes, 0).max(axis=1, keepdims=True)
        return largest
    return counts.sum(axis=1, keepdims=True) if view == "totals" else counts


def _chain(counts: Integers) -> Integers:
    """For each cell how many groups are in it or in a later one, size by size and region by region within a size."""
    row = np.cumsum(counts.T.ravel()[::-1])[::-1]
    return np.ascontiguousarray(row.reshape(counts.shape[::-1]).T)


def _source(noise: NoiseSource, kind: NoiseKind) -> tuple[Draw, Callable[[Fraction], Fraction]]:
    module, usable = _SOURCES[noise]
    source = import_module(f"tallytree.privacy.noise.{module}")
    return getattr(source, kind), getattr(source, usable[kind])


def _variance(kind: NoiseKind, scale: Fraction) -> float:
    from tallytree.privacy.noise.draws import gaussian_variance, laplace_variance

    return laplace_variance(scale) if kind == "discrete_laplace" else gaussian_variance(scale)
