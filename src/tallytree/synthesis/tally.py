"""Counting the tables of a workload over synthetic households, a chunk at a time. They are public, so is the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.kernels import kernel
from tallytree.schema import Marginal, Schema
from tallytree.synthesis.models.sampling import Households
from tallytree.synthesis.workload import Workload


class Tally:
    """The tables of a workload, counted over the chunks that were added so far."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.counts: list[Integers] = [np.zeros(marginal.shape(workload.schema), np.int64) for marginal in workload]

    def add(self, chunk: Households) -> None:
        """Count some more households."""
        for marginal, counts in zip(self.workload, self.counts, strict=True):
            counts += counted(chunk, marginal, self.workload.schema)


def counted(chunk: Households, marginal: Marginal, schema: Schema) -> Integers:
    """One table over some households, in its shape; `Marginal` says what it counts."""
    shape, cells = marginal.shape(schema), marginal.cells(schema)
    axes = [(chunk.sizes, schema.max_persons + 1)] if marginal.size else []
    axes += _columns(chunk.household, [attribute.name for attribute in schema.household], marginal.household, schema)
    homes = _places(axes, len(chunk.sizes))
    if marginal.of == "households" and not marginal.person:
        return np.bincount(homes, minlength=cells).astype(np.int64).reshape(shape)
    axes = _columns(chunk.person, [attribute.name for attribute in schema.person], marginal.person, schema)
    people = _places(axes, len(chunk.person))
    width = int(np.prod([length for _, length in axes], dtype=np.int64))
    home = np.repeat(np.arange(len(chunk.sizes)), chunk.sizes)
    counts = np.zeros(cells, np.int64)
    if marginal.of == "persons":
        counts += np.bincount(homes[home] * width + people, minlength=cells)
    else:
        _once_for_each_home(home, homes, people, np.full(width, -1, np.int64), counts)
    return counts.reshape(shape)


def _columns(
    codes: NDArray[Any], known: Sequence[str], wanted: Sequence[str], schema: Schema
) -> list[tuple[NDArray[Any], int]]:
    return [(codes[:, known.index(name)], schema.attribute(name).codes) for name in wanted]


def _places(axes: Sequence[tuple[NDArray[Any], int]], rows: int) -> Integers:
    """Each row's place among the cells of the axes."""
    places = np.zeros(rows, np.int64)
    for column, length in axes:
        places *= length
        places += column
    return places


@kernel
def _once_for_each_home(home: Integers, homes: Integers, people: Integers, seen: Integers, counts: Integers) -> None:
    """`seen` holds for each cell of the person attributes the last household that was counted in it."""
    for person in range(len(home)):
        place = people[person]
        if seen[place] != home[person]:
            seen[place] = home[person]
            counts[homes[home[person]] * len(seen) + place] += 1
