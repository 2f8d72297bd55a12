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

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.privacy.budget import Budget, as_decimal, epsilon_of
from tallytree.privacy.households.neighbours import HouseholdNeighbours
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise.keystream import Keystream, Source
from tallytree.schema import Schema
from tallytree.synthesis.models.model import Model, SyntheticHouseholds, Wanted
from tallytree.synthesis.models.sampling import CHUNK


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
        """The last size, which means that many or more."""
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
        unmatched = sorted(set(attribute.values) - set(ids) - set(names)) or sorted(set(ids) - set(attribute.values))
        raise SpecError(
            f"the values of {region!r} must be the leaf regions of the release, by their ids or all by their names, "
            f"each once; without a match: {', '.join(unmatched[:5]) or 'names that appear twice'}"
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
    model: Model, table: SizeTable, *, chunk: int = CHUNK, source: Source | None = None
) -> Iterator[SyntheticHouseholds]:
    """Households by region, then size, as many as the table says, in chunks of at most `chunk`."""
    words = Keystream() if source is None else source
    regions, places = np.nonzero(table.counts)
    counts = table.counts[regions, places]
    ends = np.cumsum(counts)
    for first in range(0, table.number, chunk):
        last = min(first + chunk, table.number)
        # How many households of each cell fall into this chunk.
        taken = np.clip(ends, first, last) - np.clip(ends - counts, first, last)
        here = np.flatnonzero(taken)
        sizes = places[here] + table.first_size
        yield model.draw_given(Wanted(table.region, regions[here], sizes, table.last_size, taken[here]), words)
