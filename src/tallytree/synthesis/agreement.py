"""Synthetic households whose numbers by region and size equal a released table exactly.

Drawing: in a mixture of products region, size and all else are independent within a component. So given region and
size, component c has the weight w_c · P_c(region) · P_c(size) up to a constant, and everything else is drawn from the
component as ever. An explicit histogram is conditioned by looking at its cells of that region and size alone.

What the release and the synthesis cost together is in `tallytree.privacy.households.together`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours
from tallytree.schema import Schema
from tallytree.synthesis.models.histogram import Histogram
from tallytree.synthesis.models.mixture import Mixture
from tallytree.synthesis.models.public_stream import uniform
from tallytree.synthesis.models.sampling import CHUNK, Households, _Block, _spread

if TYPE_CHECKING:
    from tallytree.privacy.noise.keystream import Source


CELLS_AT_A_TIME = 4096  # of the table, for which chances of all components are held


@dataclass(frozen=True, eq=False)
class SizeTable:
    """A released table of households by region and size, and the privacy it was released with.

    `counts` is [codes of the attribute `region`, sizes]; sizes run from `first_size` on, and the last stands for all
    larger ones too, up to the most persons that a household can have.
    """

    region: str
    counts: Integers
    first_size: int
    neighbours: Neighbours
    budget: Budget
    release_id: str | None = None

    @property
    def number(self) -> int:
        """How many households there are in all."""
        return int(self.counts.sum())

    @property
    def last_size(self) -> int:
        """The last size, which means so many or more."""
        return self.first_size + int(self.counts.shape[1]) - 1


def size_table(
    schema: Schema,
    region: str,
    *,
    ids: Sequence[str],
    names: Sequence[str],
    counts: Integers,
    first_size: int,
    neighbours: Neighbours,
    budget: Budget,
    release_id: str | None = None,
) -> SizeTable:
    """A released table whose leaves are the values of a household attribute, by their ids or by their names."""
    attribute = schema.attribute(region)
    if attribute not in schema.household:
        raise SpecError(f"the region must be an attribute of households, and {region!r} is one of persons")
    leaves = next((which for which in (ids, names) if set(which) == set(attribute.values)), None)
    if leaves is None or len(set(leaves)) != len(leaves):
        lacking = sorted(set(attribute.values) - set(ids) - set(names)) or sorted(set(ids) - set(attribute.values))
        raise SpecError(
            f"the values of {region!r} must be the leaf regions of the release, by their ids or all by their names, "
            f"each once; among those that have no partner: {', '.join(lacking[:5]) or 'names that come twice'}"
        )
    last = first_size + counts.shape[1] - 1
    if last > schema.max_persons:
        raise SpecError(
            f"the release counts sizes up to {last}, and synthetic households have at most {schema.max_persons} "
            "persons: raise max_persons of the schema, or release with a smaller max_size"
        )
    place = {leaf: number for number, leaf in enumerate(leaves)}
    ordered = counts[[place[value] for value in attribute.values]].astype(np.int64)
    return SizeTable(region, ordered, first_size, neighbours, budget, release_id)


def draw_agreeing(
    model: Any, table: SizeTable, *, chunk: int = CHUNK, source: Source | None = None
) -> Iterator[Households]:
    """Households by region, then size, as many as the table says, in chunks of at most `chunk`."""
    if source is None:
        from tallytree.privacy.noise.keystream import Keystream

        source = Keystream()
    if not isinstance(model, Histogram | Mixture):
        model = model.mixture  # of a network
    given = _GivenHistogram(model, table) if isinstance(model, Histogram) else _GivenMixture(model, table)
    cells = np.flatnonzero(table.counts.ravel())
    counts = table.counts.ravel()[cells]
    ends = np.cumsum(counts)
    for first in range(0, table.number, chunk):
        last = min(first + chunk, table.number)
        # How many households of each cell fall into this chunk.
        taken = np.clip(ends, first, last) - np.clip(ends - counts, first, last)
        here = np.flatnonzero(taken)
        yield given.draw(cells[here], taken[here], source)


@dataclass(frozen=True, eq=False)
class _GivenMixture:
    """A mixture, given regions and sizes. Chances are kept as logarithms, so none is ever zero."""

    model: Mixture
    table: SizeTable

    def draw(self, cells: Integers, counts: Integers, source: Source) -> Households:
        """So many households for each cell of the table, together in random order."""
        schema, chances = self.model.schema, self.model.chances
        components, sizes = [], []
        for start in range(0, len(cells), CELLS_AT_A_TIME):
            part = slice(start, start + CELLS_AT_A_TIME)
            found = self._components(cells[part], counts[part], source)
            components.append(found)
            sizes.append(self._sizes(np.repeat(cells[part], counts[part]), found, source))
        region = np.repeat(cells // self.table.counts.shape[1], counts)
        component, size = np.concatenate(components), np.concatenate(sizes)
        order = np.argsort(component, kind="stable")
        component, size, region = component[order], size[order], region[order]
        block = _Block.empty(schema, size, source)
        for column, attribute in enumerate(schema.household):
            codes = region
            if attribute.name != self.table.region:
                codes = _spread(chances[f"household {attribute.name}"], component, source)
            block.set_household(column, codes)
        for place in range(schema.max_persons):
            rows = np.flatnonzero(size > place)
            for column, attribute in enumerate(schema.person):
                among = chances[f"person {attribute.name}"][:, place]
                block.set_person(rows, place, column, _spread(among, component[rows], source))
        return block.households

    def _components(self, cells: Integers, counts: Integers, source: Source) -> Integers:
        """A component for each household, systematically within each cell."""
        logits = self.model.to_arrays()
        regions, classes = np.divmod(cells, self.table.counts.shape[1])
        by_size = _logarithms(logits["sizes"])
        grouped = by_size[:, self.table.first_size : self.table.last_size + 1].copy()
        grouped[:, -1] = np.logaddexp.reduce(by_size[:, self.table.last_size :], axis=1)
        weights = _logarithms(logits["weights"][None])[0]
        by_region = _logarithms(logits[f"household {self.table.region}"])
        scores = weights + by_region.T[regions] + grouped.T[classes]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return _spread(chances, np.repeat(np.arange(len(cells)), counts), source)

    def _sizes(self, cells: Integers, components: Integers, source: Source) -> Integers:
        """A size for each household: the cell's own, or one drawn from the last class."""
        sizes: Integers = cells % self.table.counts.shape[1] + self.table.first_size
        rows = np.flatnonzero(sizes == self.table.last_size)
        rest = _logarithms(self.model.to_arrays()["sizes"])[:, self.table.last_size :]
        if len(rows) and rest.shape[1] > 1:
            rows = rows[np.argsort(components[rows], kind="stable")]
            chances = np.exp(rest - rest.max(axis=1, keepdims=True))
            sizes[rows] += _spread(chances, components[rows], source)
        return sizes


@dataclass(frozen=True, eq=False)
class _GivenHistogram:
    """An explicit histogram, given regions and sizes.

    Households without persons, where the model has none, take the attributes of all households of their region.
    """

    model: Histogram
    table: SizeTable

    def draw(self, cells: Integers, counts: Integers, source: Source) -> Households:
        """So many households for each cell of the table, together in random order."""
        schema, model = self.model.schema, self.model
        homes, sizes, people = [], [], []
        for cell, count in zip(cells.tolist(), counts.tolist(), strict=True):
            region, place = divmod(cell, self.table.counts.shape[1])
            size = place + self.table.first_size
            rows = np.flatnonzero(self._region_of_cells() == region)
            classes = range(size, schema.max_persons + 1 if size == self.table.last_size else size + 1)
            inside = [each for each in classes if each >= model.first]
            if inside:
                lines = [model.cells[each - model.first][rows] for each in inside]
            else:
                inside, lines = [0], [sum(array[rows].sum(axis=1, keepdims=True) for array in model.cells)]
            line = np.cumsum(np.concatenate([array.ravel() for array in lines]))
            points = (np.arange(count) + uniform(source, 1)[0]) / count * line[-1]
            found = np.minimum(np.searchsorted(line, points, side="right"), len(line) - 1)
            starts = np.cumsum([0, *(array.size for array in lines)])
            which = np.searchsorted(starts, found, side="right") - 1
            width = np.array([array.shape[1] for array in lines])[which]
            home, rest = np.divmod(found - starts[which], width)
            homes.append(rows[home])
            sizes.append(np.array(inside)[which])
            people.append(rest)
        size = np.concatenate(sizes)
        block = _Block.empty(schema, size, source)
        shape = [attribute.codes for attribute in schema.household]
        for column, codes in enumerate(np.unravel_index(np.concatenate(homes), shape)):
            block.set_household(column, codes)
        self._set_persons(block, size, np.concatenate(people))
        return block.households

    def _set_persons(self, block: _Block, size: Integers, rest: Integers) -> None:
        """Persons from their cell, which is a number with one digit for each of them, the first person's in front."""
        codes = [attribute.codes for attribute in self.model.schema.person]
        one_person = int(np.prod(codes, dtype=np.int64))
        for place in range(self.model.schema.max_persons):
            rows = np.flatnonzero(size > place)
            digit = rest[rows] // one_person ** (size[rows] - 1 - place) % one_person
            for column, values in enumerate(np.unravel_index(digit, codes) if codes else ()):
                block.set_person(rows, place, column, values)

    def _region_of_cells(self) -> Integers:
        """The region's code in each household cell."""
        attributes = self.model.schema.household
        shape = [attribute.codes for attribute in attributes]
        column = [attribute.name for attribute in attributes].index(self.table.region)
        codes: Integers = np.indices(shape)[column].ravel()
        return codes


def _logarithms(logits: NDArray[Any]) -> Floats:
    """Logarithms of the chances that logits stand for, along the last axis."""
    raised = logits.astype(np.float64)
    logarithms: Floats = raised - np.logaddexp.reduce(raised, axis=-1, keepdims=True)
    return logarithms
