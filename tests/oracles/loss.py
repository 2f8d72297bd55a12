"""The exact privacy loss of a measurement on the 11-person example: the worst log-likelihood ratio over all neighbours.

Discrete Laplace noise of scale b has P(v) ∝ exp(−|v|/b), so where a number differs by d between two data sets, the
ratio of the likelihoods of an output is at most exp(|d|/b), and outputs beyond both reach it. Independent numbers
multiply: the worst log ratio of two data sets is exactly Σ |d|/b, a fraction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.truth import measured_without_noise as without_noise
from tallytree.privacy.measurements import FirstStageFacts
from tallytree.privacy.neighbours import PrivacyUnit
from tallytree.privacy.plan import Plan
from tallytree.tables import GroupSizes, Sealed

US = Hierarchy.from_edges([("GA", "US"), ("NY", "US")], levels=["nation", "state"])
MAX_SIZE = 5
GROUPS = {"A": ("GA", 3), "B": ("GA", 1), "C": ("GA", 1), "D": ("NY", 3), "E": ("NY", 1), "F": ("NY", 2)}

DataSet = dict[str, tuple[str, int]]


def neighbours(unit: PrivacyUnit, public_totals: bool) -> Iterator[DataSet]:
    """All neighbours of the example; a group of size 0 is there only if the list of groups is public."""
    new = [] if public_totals else [("new in GA", ("GA", 0)), ("new in NY", ("NY", 0))]
    for name, (region, size) in [*GROUPS.items(), *new]:
        others = [size - 1, size + 1] if unit.kind == "one_entity" else range(MAX_SIZE + 2)
        for other in others:
            if other >= 0:
                yield {**GROUPS, name: (region, other)}


def leaf_counts(data: DataSet, public_totals: bool) -> NDArray[np.int64]:
    """[leaves, sizes], counted group by group."""
    first = 0 if public_totals else 1
    counts = np.zeros((2, MAX_SIZE + 1 - first), dtype=np.int64)
    for region, size in data.values():
        if size >= first:
            counts[("GA", "NY").index(region), min(size, MAX_SIZE) - first] += 1
    return counts


def measured_without_noise(
    data: DataSet, plan: Plan, public_totals: bool, derive_facts: Callable[[Any], FirstStageFacts] | None = None
) -> list[tuple[NDArray[np.int64], Fraction]]:
    """What `measure` adds its noise to, and the scale of that noise: the very code that a release runs.

    `derive_facts` stands for an outcome of what is measured first. Noise can lead to any, and what is asked next
    depends on the outcome alone, so the loss is the worst over all outcomes of the sum over both stages.
    """
    counts = leaf_counts(data, public_totals)
    totals = np.array([3, 3]) if public_totals else None
    group_sizes = GroupSizes(US, MAX_SIZE, Sealed(counts), leaf_totals=totals)

    known = None if derive_facts is None else derive_facts(None)
    measurements = without_noise(group_sizes, plan, known)
    return [(part.values, part.scale) for part in measurements.measured]


def worst_loss(
    unit: PrivacyUnit, public_totals: bool, look: Callable[[DataSet], list[tuple[NDArray[np.int64], Fraction]]]
) -> Fraction:
    """The worst log-likelihood ratio over all neighbours of what `look` gives: numbers, and their noise's scale."""
    here = look(GROUPS)
    return max(
        sum(
            (int(np.abs(one - two).sum()) / scale for (one, scale), (two, _) in zip(here, look(other), strict=True)),
            Fraction(0),
        )
        for other in neighbours(unit, public_totals)
    )
