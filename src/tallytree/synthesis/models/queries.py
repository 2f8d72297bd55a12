"""Single cells of tables answered one by one from a mixture of products: HQR's f_q, for the network's loss.

A round of H-GEM knows some hundred cells of as many tables. Here each is a row of indices into the chances, so that
any such list of cells of about the same length runs through the same compiled code. For whole tables `products` is
far quicker.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.schema import Marginal, Schema

Array = Any  # of NumPy or of JAX

WIDTH = 3  # attributes of each side that a row has room for; more if a cell needs them


class Queries(NamedTuple):
    """Cells as indices.

    `household` and `person` [queries, width] point into all attributes' chances in a row, the place after them being
    1; `sizes` [queries, 0 … most persons] is 1 where the number of persons counts; `of_persons` and `has_person`
    [queries] say what is counted.
    """

    household: NDArray[np.int32]
    person: NDArray[np.int32]
    sizes: NDArray[np.float32]
    of_persons: NDArray[np.float32]
    has_person: NDArray[np.float32]


def queries_of(schema: Schema, cells: Sequence[tuple[Marginal, tuple[int, ...]]], room: int | None = None) -> Queries:
    """The cells as indices, followed by empty rows up to `room`."""
    starts = {}
    ends = {}
    for side, attributes in (("household", schema.household), ("person", schema.person)):
        places = [0, *accumulate(attribute.codes for attribute in attributes)]
        starts.update({attribute.name: place for attribute, place in zip(attributes, places, strict=False)})
        ends[side] = places[-1]
    room = len(cells) if room is None else room
    width = max([WIDTH, *(max(len(marginal.household), len(marginal.person)) for marginal, _ in cells)])
    household = np.full((room, width), ends["household"], dtype=np.int32)
    person = np.full((room, width), ends["person"], dtype=np.int32)
    sizes = np.ones((room, schema.max_persons + 1), dtype=np.float32)
    of_persons, has_person = np.zeros(room, dtype=np.float32), np.zeros(room, dtype=np.float32)
    for row, (marginal, cell) in enumerate(cells):
        codes = list(cell)
        if marginal.size:
            sizes[row] = np.arange(schema.max_persons + 1) == codes.pop(0)
        for column, name in enumerate(marginal.household):
            household[row, column] = starts[name] + codes[column]
        for column, name in enumerate(marginal.person):
            person[row, column] = starts[name] + codes[len(marginal.household) + column]
        of_persons[row], has_person[row] = marginal.of == "persons", bool(marginal.person)
    return Queries(household, person, sizes, of_persons, has_person)


def expected_counts(queries: Queries, weights: Array, sizes: Array, household: Array, person: Array) -> Array:
    """[queries]: the expected count of each cell per household.

    `household` [components, all codes and a 1] and `person` [components, most persons, all codes and a 1].
    """
    homes, chances = household[:, queries.household[:, 0]], person[:, :, queries.person[:, 0]]
    for column in range(1, queries.household.shape[1]):
        homes = homes * household[:, queries.household[:, column]]
        chances = chances * person[:, :, queries.person[:, column]]
    nobody, number = 1.0, 0.0
    total = sizes[:, 0, None] * queries.sizes[:, 0] * (1 - queries.of_persons) * (1 - queries.has_person)
    for place in range(chances.shape[1]):
        nobody = nobody * (1 - chances[:, place])
        number = number + chances[:, place]
        rate = queries.of_persons * number + (1 - queries.of_persons) * (1 - nobody)
        total = total + sizes[:, place + 1, None] * queries.sizes[:, place + 1] * rate
    return weights @ (homes * total)
