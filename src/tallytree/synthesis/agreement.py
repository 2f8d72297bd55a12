"""Synthetic households whose numbers by region and size equal a released table exactly, and what both cost together.

Drawing: in a mixture of products region, size and all else are independent within a component. So given region and
size, component c has the weight w_c · P_c(region) · P_c(size) up to a constant, and everything else is drawn from the
component as ever. An explicit histogram is conditioned by looking at its cells of that region and size alone.

Privacy. The table's release and the synthesis were made under relations of their own. A statement about both needs one:

- Public totals (the list of groups with their regions is public). The relation is: one household's contents (size,
  attributes but for the region, persons) replaced, its region kept. For the release this is its own relation, so it
  costs what it cost. For the synthesis it is a part of its own relation, in which a household may be replaced by *any*
  other, and a bound for all pairs of neighbours holds for some of them. The two costs add up, in ρ. Nothing is promised
  about a household's region, which is public.
- Private totals, households replaced. The relation is the synthesis': a household is replaced by any other, in
  whatever region. For the release this is a household removed from one region and one added in another: two steps of
  its relation ("added, removed, or replaced within its region"), through the data set without the household. By the
  triangle inequality a table moves at most twice as far: its L1 doubles and its squared L2 is four times what it was,
  so the release costs 2ε, or 4ρ (and since ε-DP is ε²/2-zCDP, (2ε)²/2 is four times as much too). Within one region,
  or with an empty household, it is less.
- Private totals, households added or removed. That is a step of the release's own relation, and costs what it cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.privacy.budget import Budget, as_decimal, epsilon_of
from tallytree.privacy.households.neighbours import HouseholdNeighbours
from tallytree.privacy.neighbours import Neighbours
from tallytree.schema import Schema
from tallytree.synthesis.models.histogram import Histogram
from tallytree.synthesis.models.mixture import Mixture
from tallytree.synthesis.models.public_stream import uniform
from tallytree.synthesis.models.sampling import CHUNK, Block, SyntheticHouseholds, draw_codes

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


@dataclass(frozen=True)
class Together:
    """What a release and a synthesis promise together: one relation, and the cost under it."""

    times: int  # how many steps of the release's relation one step of this one is
    release: Fraction  # the release's cost under this relation, in ρ
    synthesis: Fraction
    relation: str
    regions_are_public: bool

    @property
    def rho(self) -> Fraction:
        """The whole cost."""
        return self.release + self.synthesis

    def in_words(self, delta: Fraction | None) -> str:
        """The promise of both together."""
        text = (
            f"The released table of sizes and these synthetic households together are zero-concentrated "
            f"differentially private with ρ = {as_decimal(self.rho)}"
        )
        if delta is not None:
            text += (
                f", hence (ε, δ)-differentially private with ε = {as_decimal(epsilon_of(self.rho, delta))} at "
                f"δ = {as_decimal(delta)}"
            )
        counted = "" if self.times == 1 else " (twice the ε, four times the ρ: a household may change its region)"
        return (
            f"{text}: ρ = {as_decimal(self.release)} for the table{counted} and ρ = {as_decimal(self.synthesis)} for "
            f"the synthesis. {self.relation}"
        )


def together(table: Neighbours, spent: Budget, households: HouseholdNeighbours, budget: Budget) -> Together:
    """The one relation for both, or an error if there is none; the module says why."""
    unit = households.unit.kind
    if table.unit.kind != "one_group":
        raise SpecError(
            f"the release protects {table.unit.kind} and the synthesis whole households: no relation holds for both. "
            "Release the table with unit one_group."
        )
    if unit == "one_person_attributes":
        raise SpecError(
            "the release protects whole households and the synthesis one person's attributes only, with households "
            "and sizes known exactly: no relation holds for both. Use the unit one_group for the synthesis."
        )
    if table.quantity_bound != 1:
        raise SpecError("the release's sizes are sums of a quantity, not numbers of persons; they cannot agree")
    if table.public_totals and unit != "one_group":
        raise SpecError(
            "the release takes the list of households with their regions as public, and the synthesis their number as "
            "private: no relation holds for both. Use the unit one_group for the synthesis."
        )
    times = 2 if not table.public_totals and unit == "one_group" else 1
    if table.public_totals:
        relation = (
            "Neighbouring data sets differ in one household, replaced by any other in the same region. NOT protected: "
            "the regions of households, which are public, and so the number of households in every region."
        )
    elif unit == "one_group":
        relation = (
            "Neighbouring data sets differ in one household, replaced by any other with all its persons and "
            "attributes, in any region. The number of households in all is public."
        )
    else:
        relation = "Neighbouring data sets differ in one household, added or removed with all its persons."
    assert budget.rho is not None
    relation += f" A household counts at most {households.max_persons} persons."
    return Together(times, times**2 * spent.charge_in("rho"), budget.rho, relation, table.public_totals)


def draw_agreeing(
    model: Any, table: SizeTable, *, chunk: int = CHUNK, source: Source | None = None
) -> Iterator[SyntheticHouseholds]:
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

    def draw(self, cells: Integers, counts: Integers, source: Source) -> SyntheticHouseholds:
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
        block = Block.empty(schema, size, source)
        for column, attribute in enumerate(schema.household):
            codes = region
            if attribute.name != self.table.region:
                codes = draw_codes(chances[f"household {attribute.name}"], component, source)
            block.set_household(column, codes)
        for place in range(schema.max_persons):
            rows = np.flatnonzero(size > place)
            for column, attribute in enumerate(schema.person):
                among = chances[f"person {attribute.name}"][:, place]
                block.set_person(rows, place, column, draw_codes(among, component[rows], source))
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
        return draw_codes(chances, np.repeat(np.arange(len(cells)), counts), source)

    def _sizes(self, cells: Integers, components: Integers, source: Source) -> Integers:
        """A size for each household: the cell's own, or one drawn from the last class."""
        sizes: Integers = cells % self.table.counts.shape[1] + self.table.first_size
        rows = np.flatnonzero(sizes == self.table.last_size)
        rest = _logarithms(self.model.to_arrays()["sizes"])[:, self.table.last_size :]
        if len(rows) and rest.shape[1] > 1:
            rows = rows[np.argsort(components[rows], kind="stable")]
            chances = np.exp(rest - rest.max(axis=1, keepdims=True))
            sizes[rows] += draw_codes(chances, components[rows], source)
        return sizes


@dataclass(frozen=True, eq=False)
class _GivenHistogram:
    """An explicit histogram, given regions and sizes.

    Households without persons, where the model has none, take the attributes of all households of their region.
    """

    model: Histogram
    table: SizeTable

    def draw(self, cells: Integers, counts: Integers, source: Source) -> SyntheticHouseholds:
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
        block = Block.empty(schema, size, source)
        shape = [attribute.codes for attribute in schema.household]
        for column, codes in enumerate(np.unravel_index(np.concatenate(homes), shape)):
            block.set_household(column, codes)
        self._set_persons(block, size, np.concatenate(people))
        return block.households

    def _set_persons(self, block: Block, size: Integers, rest: Integers) -> None:
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
