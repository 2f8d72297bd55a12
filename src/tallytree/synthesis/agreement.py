"""Synthetic households whose numbers by region and size equal a released table exactly.

Drawing: in a mixture of products region, size and all else are independent within a component. So given region and
size, component c has the weight w_c · P_c(region) · P_c(size) up to a constant, and everything else is drawn from the
component as ever. An explicit histogram is conditioned by looking at its cells of that region and size alone.

What the release and the synthesis cost together is in `tallytree.privacy.households.together`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.notebook import briefly
from tallytree.privacy.budget import Budget
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

    __repr__ = briefly

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
