"""The explicit histogram over all possible households, and multiplicative weights on it (HQR, Algorithms 1 and 2).

For each number of persons there is an array [household cells, cells of the persons in order]. A query is a product of a
set of household cells and a vector over the persons' cells, so neither answers nor updates need a vector over the whole
domain. The algorithm's output is the average of its iterates; the last one is often nearer to the truth, so both are
stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import Attribute, Counted, Marginal, Schema
from tallytree.privacy.noise.keystream import Source
from tallytree.synthesis.model import (
    MeasuredCell,
    SyntheticHouseholds,
    Wanted,
    check_number,
    refuse_roles,
)
from tallytree.synthesis.public_stream import PublicStream, uniform
from tallytree.synthesis.sampling import Block, ladders, replace_broken
from tallytree.synthesis.workload import Workload
from tallytree.tables.contingency import Rows, any_broken

MOST_CELLS = 5_000_000
AT_A_TIME = 200_000  # possible households that are checked against the rules at a time
BLOCK = 1 << 22  # numbers in a matrix of person vectors that is built at a time
LEAST_OF_NOISE = 1e-4  # the error of a cell that is good enough, relative to its noise
MOST_RATE = 30.0  # weights are multiplied by e^30 at most: noise far above the number of households must not overflow


@dataclass(frozen=True, eq=False)
class Histogram:
    """Chances of all households, by their number of persons: `cells[0]` is for `first` persons (0 or 1).

    `earlier` is the sum of the iterates before each of `rounds` updates, in the same arrays.
    """

    schema: Schema
    first: int
    cells: tuple[Floats, ...]
    earlier: tuple[Floats, ...]
    rounds: int = 0

    __repr__ = briefly

    def __post_init__(self) -> None:
        expected = _shapes(self.schema, self.first)
        if [cells.shape for cells in self.cells] != expected or [cells.shape for cells in self.earlier] != expected:
            raise SpecError("the histogram's arrays do not have the shapes of its schema")
        for cells in (*self.cells, *self.earlier):
            cells.flags.writeable = False

    @classmethod
    def start(cls, schema: Schema, *, empty: bool = False) -> Histogram:
        """Return the uniform distribution over all households that satisfy the schema's rules; no update adds others.

        With `empty`, households without persons are included.
        """
        first = 0 if empty else 1
        shapes = _shapes(schema, first)
        total = sum(rows * columns for rows, columns in shapes)
        if total > MOST_CELLS:
            raise SpecError(
                f"there are {total:.3g} possible households, and an explicit histogram holds at most {MOST_CELLS:,}; "
                "use the mixture or the network (method tallytree-marginals or h-gem)"
            )
        nothing = tuple(np.zeros(shape) for shape in shapes)
        if schema.structure is None:
            return cls(schema, first, tuple(np.full(shape, 1 / total) for shape in shapes), nothing)
        possible = [_possible(schema, shape, size) for size, shape in enumerate(shapes, start=first)]
        number = sum(int(flags.sum()) for flags in possible)
        return cls(schema, first, tuple(flags / number for flags in possible), nothing)

    def average(self) -> Histogram:
        """Return the average of the iterates before each update: Algorithm 1's output. The model itself is the last
        one.
        """
        if not self.rounds:
            return self
        mean = tuple(cells / self.rounds for cells in self.earlier)
        return Histogram(self.schema, self.first, mean, tuple(np.zeros_like(cells) for cells in mean))

    def answers(self, marginal: Marginal) -> Floats:
        """Return the expected table per household: shares of households, or expected numbers of persons."""
        marginal.check(self.schema)
        refuse_roles([marginal])
        return self._table(marginal, self._rates(marginal.of, marginal.person))

    def answers_all(self, workload: Workload) -> list[Floats]:
        """Return `answers` for each table; the sums over persons are done once for all household sets."""
        if workload.schema != self.schema:
            raise SpecError("the workload is for another schema than the model")
        refuse_roles(workload)
        rates: dict[tuple[Counted, tuple[str, ...]], list[Floats]] = {}
        for marginal in workload:
            if (marginal.of, marginal.person) not in rates:
                rates[marginal.of, marginal.person] = self._rates(marginal.of, marginal.person)
        return [self._table(marginal, rates[marginal.of, marginal.person]) for marginal in workload]

    def fit(
        self,
        measured: Sequence[MeasuredCell],
        number_of_households: float,
        number_of_persons: float,
        *,
        most_updates: int = 100,
    ) -> Histogram:
        """Fit by MWEM-Update (Algorithm 2) to all cells measured so far.

        The `most_updates` cells with the largest errors, of them those with at least half the largest error, are
        taken in a random order that the number of the round names. A household's chance is multiplied by
        exp(q(x) · (measured − answer) / 2), where q(x) is whether it counts, or how many of its persons do divided by
        the most persons. Answers and measurements are shares: of households, or of persons. `number_of_persons` must
        be public, as a noisy measurement is.
        """
        homes = check_number(number_of_households, "households")
        persons = check_number(number_of_persons, "persons")
        if not measured:
            raise SpecError("nothing to fit: no cell was measured")
        queries = [_query(self, cell, homes, persons) for cell in measured]
        cells = [array.copy() for array in self.cells]
        errors = np.array([abs(query.share - query.answer(cells)) for query in queries])
        top = np.argsort(-errors, kind="stable")[:most_updates]
        chosen = top[errors[top] >= errors.max() / 2]
        for index in chosen[PublicStream(f"order of updates, round {self.rounds}: ").order(len(chosen))]:
            queries[index].update(cells)
        earlier = tuple(total + array for total, array in zip(self.earlier, self.cells, strict=True))
        return Histogram(self.schema, self.first, tuple(cells), earlier, self.rounds + 1)

    def converge(
        self, measured: Sequence[MeasuredCell], number_of_households: float, number_of_persons: float, *, passes: int
    ) -> Histogram:
        """So many more passes of updates over all measured cells, each in an order of its own; fewer once no share is
        missed by more than a ten-thousandth of its noise. A round's own updates leave cells of earlier rounds unmet.
        """
        homes = check_number(number_of_households, "households")
        persons = check_number(number_of_persons, "persons")
        queries = [_query(self, cell, homes, persons) for cell in measured]
        spread = [cell.variance**0.5 / (homes if cell.marginal.of == "households" else persons) for cell in measured]
        cells = [array.copy() for array in self.cells]
        for turn in range(passes if queries else 0):
            missed = [abs(query.share - query.answer(cells)) for query in queries]
            if all(one <= LEAST_OF_NOISE * noise for one, noise in zip(missed, spread, strict=True)):
                break
            for index in PublicStream(f"order of pass {turn}: ").order(len(queries)):
                queries[index].update(cells)
        return Histogram(self.schema, self.first, tuple(cells), self.earlier, self.rounds)

    def draw_at(self, points: Floats, source: Source) -> SyntheticHouseholds:
        """Return a household for each point on the line of all chances, in random order."""
        line = ladders(np.concatenate([cells.ravel() for cells in self.cells])[None])
        which, homes, people = _located(np.searchsorted(line, points, side="right"), self.cells)
        return self._drawn(homes, which + self.first, people, source)

    def draw_given(self, wanted: Wanted, source: Source) -> SyntheticHouseholds:
        """Return the wanted households, in random order, each drawn only from the cells with its code and size.

        If the model has no households without persons, such households take the attributes of all households with their
        codes.
        """
        codes, _ = _codes_of(self.schema.household, list(wanted.codes))
        shape = [self.schema.attribute(name).codes for name in wanted.codes]
        places = np.ravel_multi_index(tuple(wanted.codes.values()), shape)
        homes, sizes, people = [], [], []
        for code, size, count in zip(places.tolist(), wanted.sizes.tolist(), wanted.counts.tolist(), strict=True):
            rows = np.flatnonzero(codes == code)
            last = self.schema.max_persons if size == wanted.last_size else size
            inside = [each for each in range(size, last + 1) if each >= self.first]
            lines = [self.cells[each - self.first][rows] for each in inside]
            if not inside:
                inside, lines = [0], [sum(cells[rows].sum(axis=1, keepdims=True) for cells in self.cells)]
            line = np.cumsum(np.concatenate([array.ravel() for array in lines]))
            points = (np.arange(count) + uniform(source, 1)[0]) / count * line[-1]
            found = np.minimum(np.searchsorted(line, points, side="right"), len(line) - 1)
            which, home, rest = _located(found, lines)
            homes.append(rows[home])
            sizes.append(np.array(inside)[which])
            people.append(rest)
        drawn = self._drawn(np.concatenate(homes), np.concatenate(sizes), np.concatenate(people), source)
        if self.schema.structure is None:
            return drawn
        columns = {each.name: column for column, each in enumerate(self.schema.household)}
        return replace_broken(drawn, self.schema, {name: columns[name] for name in wanted.codes})

    def _drawn(self, homes: Integers, sizes: Integers, people: Integers, source: Source) -> SyntheticHouseholds:
        """Return households by their cell, size and persons' cell, a number with a digit for each person in order."""
        block = Block.empty(self.schema, sizes, source)
        for column, codes in enumerate(_unravel(homes, self.schema.household)):
            block.set_household(column, codes)
        one_person = prod(attribute.codes for attribute in self.schema.person)
        for place in range(self.schema.max_persons):
            rows = np.flatnonzero(sizes > place)
            digit = people[rows] // one_person ** (sizes[rows] - 1 - place) % one_person
            for column, codes in enumerate(_unravel(digit, self.schema.person)):
                block.set_person(rows, place, column, codes)
        return block.households

    def _rates(self, of: Counted, person: tuple[str, ...]) -> list[Floats]:
        """Return, for each number of persons, [household cells, person cells]: the households that count, or the
        persons.
        """
        codes, length = _codes_of(self.schema.person, person)
        if of == "households" and not person:
            return [cells.sum(axis=1, keepdims=True) for cells in self.cells]
        people = len(codes)
        rates = []
        for size, cells in enumerate(self.cells, start=self.first):
            found = np.zeros((len(cells), length))
            if of == "persons":
                for place in range(size):
                    alone = cells.reshape(len(cells), people**place, people, -1).sum(axis=(1, 3))
                    np.add.at(found.T, codes, alone.T)
            else:
                step = max(1, BLOCK // cells.shape[1])
                for start in range(0, length, step):
                    stop = min(start + step, length)
                    masks = codes[:, None] == np.arange(start, stop)
                    found[:, start:stop] = cells @ _counted("households", masks, size)
            rates.append(found)
        return rates

    def _table(self, marginal: Marginal, rates: list[Floats]) -> Floats:
        codes, length = _codes_of(self.schema.household, marginal.household)
        by_size = np.zeros((self.schema.max_persons + 1, length, rates[0].shape[1]))
        for size, found in enumerate(rates, start=self.first):
            np.add.at(by_size[size], codes, found)
        return (by_size if marginal.size else by_size.sum(axis=0)).reshape(marginal.shape(self.schema))


@dataclass(frozen=True, eq=False)
class _Query:
    """A measured cell as a share, and the cells it covers: rows of household cells times a vector over persons' cells.

    `vectors` has one for each number of persons from `first` on, or none where that number does not count.
    """

    share: float
    of: Counted
    first: int
    rows: Integers
    vectors: tuple[Floats | None, ...]

    def answer(self, cells: Sequence[Floats]) -> float:
        """Return the share of households, or of persons, that the histogram gives."""
        counted = 0.0
        for array, vector in zip(cells, self.vectors, strict=True):
            if vector is not None:
                counted += float((array[self.rows] @ vector).sum())
        if self.of == "households":
            return counted
        return counted / sum(size * float(array.sum()) for size, array in enumerate(cells, start=self.first))

    def update(self, cells: list[Floats]) -> None:
        """Multiply the weights and normalise, in place."""
        most_persons = self.first + len(cells) - 1
        rate = (self.share - self.answer(cells)) / 2 / (1 if self.of == "households" else most_persons)
        rate = min(max(rate, -MOST_RATE), MOST_RATE)
        for array, vector in zip(cells, self.vectors, strict=True):
            if vector is not None:
                array[self.rows] *= np.exp(rate * vector)
        total = sum(float(array.sum()) for array in cells)
        for array in cells:
            array /= total


def _possible(schema: Schema, shape: tuple[int, int], size: int) -> NDArray[np.bool_]:
    """Return which cells for households of one size satisfy the rules, some at a time."""
    flags = np.empty(prod(shape), bool)
    one_person = prod(attribute.codes for attribute in schema.person)
    for start in range(0, flags.size, AT_A_TIME):
        cells = np.arange(start, min(start + AT_A_TIME, flags.size))
        homes, people = np.divmod(cells, shape[1])
        digits = [people // one_person ** (size - 1 - place) % one_person for place in range(size)]
        persons = np.stack(digits, axis=1).ravel() if digits else np.empty(0, np.int64)
        sides = [
            {each.name: codes for each, codes in zip(side, _unravel(numbers, side), strict=True)}
            for side, numbers in ((schema.household, homes), (schema.person, persons))
        ]
        flags[cells] = ~any_broken(Rows(schema, np.arange(len(cells) + 1) * size, *sides))
    return flags.reshape(shape)


def _query(model: Histogram, measured: MeasuredCell, homes: float, persons: float) -> _Query:
    measured.check(model.schema)
    marginal, cell = measured.marginal, list(measured.cell)
    size = cell.pop(0) if marginal.size else None
    home_codes, _ = _codes_of(model.schema.household, marginal.household)
    person_codes, _ = _codes_of(model.schema.person, marginal.person)
    shape = marginal.shape(model.schema)[1 if marginal.size else 0 :]
    split = len(marginal.household)
    rows = np.flatnonzero(home_codes == _flat(cell[:split], shape[:split]))
    mask = (person_codes == _flat(cell[split:], shape[split:]))[:, None]
    vectors: list[Floats | None] = []
    for number in range(model.first, model.schema.max_persons + 1):
        if size is not None and number != size:
            vectors.append(None)
        elif marginal.of == "households" and not marginal.person:
            vectors.append(np.ones(len(person_codes) ** number))
        else:
            vectors.append(_counted(marginal.of, mask, number)[:, 0])
    share = measured.value / (homes if marginal.of == "households" else persons)
    return _Query(share, marginal.of, model.first, rows, tuple(vectors))


def _counted(of: Counted, masks: NDArray[np.bool_], size: int) -> Floats:
    """Return [cells of `size` persons in order, queries]: how many persons match the query, or whether any does."""
    counted = np.zeros((1, masks.shape[1]))
    for _ in range(size):
        pairs = counted[:, None], masks[None].astype(np.float64)
        both = pairs[0] + pairs[1] if of == "persons" else np.maximum(*pairs)
        counted = both.reshape(-1, masks.shape[1])
    return counted


def _codes_of(attributes: Sequence[Attribute], names: Sequence[str]) -> tuple[Integers, int]:
    """Return, for each combination of codes, the cell of the table over `names`, and the number of cells."""
    shape = [attribute.codes for attribute in attributes]
    every = np.indices(shape).reshape(len(shape), prod(shape))
    places = [[attribute.name for attribute in attributes].index(name) for name in names]
    lengths = [shape[place] for place in places]
    codes = np.zeros(prod(shape), dtype=np.int64)
    for place, length in zip(places, lengths, strict=True):
        codes = codes * length + every[place]
    return codes, prod(lengths)


def _located(found: Integers, arrays: Sequence[Floats]) -> tuple[Integers, Integers, Integers]:
    """Return the array, row and column of places on the line of all arrays' cells, one after the other."""
    starts = np.cumsum([0, *(array.size for array in arrays)])
    which = np.searchsorted(starts, found, side="right") - 1
    row, column = np.divmod(found - starts[which], np.array([array.shape[1] for array in arrays])[which])
    return which, row, column


def _unravel(cells: Integers, attributes: Sequence[Attribute]) -> tuple[Integers, ...]:
    """Return the attributes' codes in each cell."""
    return np.unravel_index(cells, [attribute.codes for attribute in attributes]) if attributes else ()


def _flat(cell: Sequence[int], shape: Sequence[int]) -> int:
    flat = 0
    for index, length in zip(cell, shape, strict=True):
        flat = flat * length + index
    return flat


def _shapes(schema: Schema, first: int) -> list[tuple[int, int]]:
    homes = prod(attribute.codes for attribute in schema.household)
    people = prod(attribute.codes for attribute in schema.person)
    return [(homes, people**size) for size in range(first, schema.max_persons + 1)]
