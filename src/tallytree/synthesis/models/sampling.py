"""Drawing households from a model, a chunk at a time, with less variance than independent draws have.

Systematic sampling: of n households, number i takes the point (i + u) / n on the line of all chances, with one random
u for all. Each component of a mixture, or cell of a histogram, then comes up as often as expected, rounded up or down.
Within a component the same is done for every attribute on its own, in an order of the households that is random and
fresh for every attribute; so each household has the right chances, attributes are paired at random, and every
attribute's counts are within one of what is expected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.schema import Schema
from tallytree.synthesis.models.public_stream import uniform

if TYPE_CHECKING:
    from tallytree.privacy.noise.keystream import Source

Codes = NDArray[np.int32]

CHUNK = 100_000


class SyntheticHouseholds(NamedTuple):
    """Some households as codes: `sizes` [households], `household` [households, attributes], `person` [persons,
    attributes], attributes in the schema's order; household i has the persons offsets[i] … offsets[i + 1] − 1.
    """

    sizes: Codes
    household: Codes
    person: Codes
    offsets: Integers


class Sampler(Protocol):
    """Households at given points of the line of all chances, in any order."""

    def at(self, points: Floats, source: Source) -> SyntheticHouseholds:
        """One household for each point; the points rise and lie in [0, 1)."""


class _HasSampler(Protocol):
    def sampler(self) -> Any: ...


def draw(
    model: _HasSampler, number: int, *, chunk: int = CHUNK, source: Source | None = None
) -> Iterator[SyntheticHouseholds]:
    """`number` households in chunks of at most `chunk`, each chunk spread over the whole distribution.

    Random bits come from a fresh cryptographic stream unless a source is given.
    """
    if number < 0 or chunk < 1:
        raise SpecError("number must be at least 0 and chunk at least 1")
    if source is None:
        from tallytree.privacy.noise.keystream import Keystream

        source = Keystream()
    sampler = model.sampler()
    return _chunks(sampler, number, ceil(number / chunk), source)


def _chunks(sampler: Sampler, number: int, chunks: int, source: Source) -> Iterator[SyntheticHouseholds]:
    shift = uniform(source, 1)[0]
    for first in range(chunks):
        yield sampler.at((np.arange(first, number, chunks) + shift) / number, source)


@dataclass(frozen=True)
class MixtureSampler:
    """Draws from a mixture of products; `chances` are those of `Mixture.chances`."""

    schema: Schema
    chances: Mapping[str, Floats]

    def at(self, points: Floats, source: Source) -> SyntheticHouseholds:
        """One household for each point, in random order."""
        component = np.searchsorted(ladders(self.chances["weights"][None]), points, side="right").astype(np.int64)
        sizes = draw_codes(self.chances["sizes"], component, source)
        block = Block.empty(self.schema, sizes, source)
        for column, attribute in enumerate(self.schema.household):
            block.set_household(column, draw_codes(self.chances[f"household {attribute.name}"], component, source))
        for place in range(self.schema.max_persons):
            rows = np.flatnonzero(sizes > place)
            for column, attribute in enumerate(self.schema.person):
                table = self.chances[f"person {attribute.name}"][:, place]
                block.set_person(rows, place, column, draw_codes(table, component[rows], source))
        return block.households


@dataclass(frozen=True)
class HistogramSampler:
    """Draws from an explicit histogram: for each number of persons from `first` on an array [household cells, cells of
    the persons in order].
    """

    schema: Schema
    first: int
    cells: tuple[Floats, ...]

    def at(self, points: Floats, source: Source) -> SyntheticHouseholds:
        """One household for each point, in random order."""
        starts = np.cumsum([0, *(cells.size for cells in self.cells)])
        line = ladders(np.concatenate([cells.ravel() for cells in self.cells])[None])
        cell = np.searchsorted(line, points, side="right")
        which = np.searchsorted(starts, cell, side="right") - 1
        block = Block.empty(self.schema, (which + self.first).astype(np.int64), source)
        homes, people = np.zeros(len(points), np.int64), np.zeros((len(points), self.schema.max_persons), np.int64)
        one_person = prod(attribute.codes for attribute in self.schema.person)
        for index, cells in enumerate(self.cells):
            rows = np.flatnonzero(which == index)
            homes[rows], rest = np.divmod(cell[rows] - starts[index], cells.shape[1])
            for place in reversed(range(index + self.first)):
                rest, people[rows, place] = np.divmod(rest, one_person)
        for column, codes in enumerate(_unravel(homes, [attribute.codes for attribute in self.schema.household])):
            block.set_household(column, codes)
        for place in range(self.schema.max_persons):
            rows = np.flatnonzero(which + self.first > place)
            codes_of = _unravel(people[rows, place], [attribute.codes for attribute in self.schema.person])
            for column, codes in enumerate(codes_of):
                block.set_person(rows, place, column, codes)
        return block.households


class Block(NamedTuple):
    """Households that are being filled in, and where each drawn one goes: a random place."""

    households: SyntheticHouseholds
    place: Integers

    @classmethod
    def empty(cls, schema: Schema, sizes: Integers, source: Source) -> Block:
        place = np.argsort(source.words(len(sizes)), kind="stable")
        moved = np.empty(len(sizes), np.int32)
        moved[place] = sizes
        offsets = np.concatenate([[0], np.cumsum(moved, dtype=np.int64)])
        household = np.empty((len(sizes), len(schema.household)), np.int32)
        person = np.empty((int(offsets[-1]), len(schema.person)), np.int32)
        return cls(SyntheticHouseholds(moved, household, person, offsets), place)

    def set_household(self, column: int, codes: Integers) -> None:
        self.households.household[self.place, column] = codes

    def set_person(self, rows: Integers, place: int, column: int, codes: Integers) -> None:
        self.households.person[self.households.offsets[self.place[rows]] + place, column] = codes


def draw_codes(chances: Floats, component: Integers, source: Source) -> Integers:
    """A code for each row of its component's chances [components, codes], systematically within each component.

    `component` does not fall. The rows of a component take the points (rank + u) / rows, ranks in random order.
    """
    rows = np.bincount(component, minlength=len(chances))
    order = np.argsort(component + uniform(source, len(component)), kind="stable")
    rank = np.empty(len(component))
    rank[order] = np.arange(len(component)) - np.repeat(np.cumsum(rows) - rows, rows)
    shift = uniform(source, len(chances))[component]
    point = 4.0 * component + (rank + shift) / rows[component]
    codes: Integers = np.searchsorted(ladders(chances), point, side="right") - component * chances.shape[1]
    return codes


def ladders(chances: Floats) -> Floats:
    """All rows' cumulative chances on one line, row r on 4r … 4r + 2.

    A row ends at 2, from its last possible code on, so that no rounding can carry a point past it; codes without any
    chance have steps of no height and are never hit.
    """
    ladder = np.cumsum(chances, axis=1)
    ladder /= ladder[:, -1:]
    ladder[ladder >= 1] = 2
    ladder[:, -1] = 2
    codes = chances.shape[1]
    last = codes - 1 - np.argmax(chances[:, ::-1] > 0, axis=1)
    ladder[np.arange(codes)[None, :] >= last[:, None]] = 2
    flat: Floats = (ladder + 4.0 * np.arange(len(chances))[:, None]).ravel()
    return flat


def _unravel(cells: Integers, shape: list[int]) -> tuple[Integers, ...]:
    return np.unravel_index(cells, shape) if shape else ()
