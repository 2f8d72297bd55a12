"""Synthetic households whose numbers by region, category and size equal a released table exactly.

Drawing: in a mixture of products region, categories, size and all else are independent within a component. So given
region, categories and size, component c has the weight w_c · P_c(region) · P_c(category) … · P_c(size) up to a
constant, and everything else is drawn from the component as ever. An explicit histogram is conditioned by looking at
its cells of that region, category and size alone.

The joint privacy cost of the release and the synthesis is in `tallytree.privacy.joint_cost`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly, did_you_mean
from tallytree.domain.categories import Categories, Category
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.schema import SIZE, Attribute, Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise.keystream import Keystream, Source
from tallytree.synthesis.model import Model, SyntheticHouseholds, Wanted
from tallytree.synthesis.sampling import CHUNK

TAKEN = ("household_id", "person")


@dataclass(frozen=True, eq=False)
class RegionLevels:
    """The levels below the whole, from the top down, each an attribute; the last is the leaves'.

    `of_leaf[i]` has for every leaf the code of its region on level i; the last is 0, 1, 2 …
    """

    attributes: tuple[Attribute, ...]
    of_leaf: tuple[Integers, ...]

    __repr__ = briefly

    @property
    def region(self) -> str:
        """Return the attribute of the leaves."""
        return self.attributes[-1].name

    @property
    def added(self) -> dict[Attribute, Integers]:
        """Return the attributes of upper levels, and their codes by leaf."""
        return dict(zip(self.attributes[:-1], self.of_leaf[:-1], strict=True))

    @cached_property
    def parents(self) -> tuple[Integers, ...]:
        """For each level the code of every region's parent on the level before; of the first level all are 0."""
        found = [np.zeros(self.attributes[0].codes, np.int64)]
        for above, below, attribute in zip(self.of_leaf, self.of_leaf[1:], self.attributes[1:], strict=False):
            parent = np.zeros(attribute.codes, np.int64)
            parent[below] = above
            found.append(parent)
        return tuple(found)

    def summed(self, by_leaf: NDArray[Any], level: int) -> NDArray[Any]:
        """Return sums `[regions of the level, …]` of values by leaf."""
        sums = np.zeros((self.attributes[level].codes, *by_leaf.shape[1:]), by_leaf.dtype)
        np.add.at(sums, self.of_leaf[level], by_leaf)
        return sums


def region_levels(schema: Schema, region: str, tree: Hierarchy) -> RegionLevels:
    """Return the levels of a tree whose leaves are the values of a household attribute, by their ids or by
    their names.
    """
    attribute, last = schema.attribute(region), tree.depth - 1
    leaves = tree.level_slice(last)
    ids, names = tree.ids[leaves], tree.names[leaves]
    places = {value: place for place, value in enumerate(ids if set(ids) == set(attribute.values) else names)}
    order = np.array([places[value] for value in attribute.values])
    taken = {SIZE, *TAKEN, *(each.name for each in (*schema.household, *schema.person))}
    attributes, of_leaf = [], []
    for level in range(last):
        rows = tree.level_slice(level)
        if rows.stop - rows.start < 2:
            continue
        if tree.levels[level] in taken:
            raise SpecError(
                f"the level {tree.levels[level]!r} of the regions has the name of an attribute or a column: leave that "
                "attribute out, as it follows from the leaf region, or rename the level and release again"
            )
        called = tree.names[rows] if len(set(tree.names[rows])) == rows.stop - rows.start else tree.ids[rows]
        attributes.append(Attribute(tree.levels[level], tuple(called)))
        of_leaf.append(tree.above_leaves(level)[order])
    return RegionLevels((*attributes, attribute), (*of_leaf, np.arange(attribute.codes)))


def national_schema(schema: Schema, region: str) -> Schema:
    """Return the attributes without the region."""
    household = tuple(each for each in schema.household if each.name != region)
    if not household and not schema.person:
        raise SpecError("there is no attribute besides the region: nothing is left to synthesize")
    return replace(schema, household=household)


# -------------------------------------------------------------------- released tables


FORM = '{"tenure": "the attribute"} or {"tenure": {"attribute": "the attribute", "values": {"owned": "its value"}}}'


@dataclass(frozen=True, eq=False)
class SizeTable:
    """A released table of households by region, category and size, and the privacy it was released with.

    `counts` is [codes of the attribute `region`, codes of the attribute of each category in `by`, sizes]; sizes run
    from `first_size` on, and the last stands for all larger ones too, up to the most persons that a household can have.
    """

    region: str
    counts: Integers
    first_size: int
    neighbours: Neighbours
    budget: Budget
    release_id: str | None = None
    by: tuple[tuple[str, str], ...] = ()  # each category of the release, and the attribute that has its values
    levels: RegionLevels | None = None  # of the regions, where households have them as attributes too

    __repr__ = briefly

    @property
    def attributes(self) -> tuple[str, ...]:
        """Return the attributes that the axes before the last have the codes of."""
        return (self.region, *(attribute for _, attribute in self.by))

    @property
    def number(self) -> int:
        """Return how many households there are in all."""
        return int(self.counts.sum())

    @property
    def last_size(self) -> int:
        """Return the last size, which means that many or more."""
        return self.first_size + int(self.counts.shape[-1]) - 1


def match_to_schema(
    schema: Schema, released: SizeTable, ids: Sequence[str], names: Sequence[str], by: Mapping[str, Any] | None = None
) -> SizeTable:
    """Return the table by the codes of household attributes. The leaves `released` has are the values of its region, by
    their `ids` or by their `names`.

    `by` says which household attribute has a category's values; without it, the attribute of the same name.
    """
    region, categories, last = released.region, released.neighbours.categories, released.last_size
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
    if last > schema.max_persons:
        raise SpecError(
            f"the release counts sizes up to {last}, and synthetic households have at most {schema.max_persons} "
            "persons: raise max_persons of the schema, or release with a smaller max_size"
        )
    place = {leaf: number for number, leaf in enumerate(leaves)}
    ordered = released.counts[[place[value] for value in attribute.values]].astype(np.int64)
    agreed = agreed_categories(schema, region, categories, by)
    for axis, (_, places) in enumerate(agreed, start=1):
        ordered = np.take(ordered, places, axis=axis)
    pairs = tuple((name, each.name) for name, (each, _) in zip(categories.names, agreed, strict=True))
    return replace(released, counts=ordered, by=pairs)


def agreed_categories(
    schema: Schema, region: str, categories: Categories, by: Mapping[str, Any] | None
) -> list[tuple[Attribute, list[int]]]:
    """For each category the attribute that has its values and, for each of the attribute's, its place among them."""
    given = {} if by is None else dict(by)
    if unknown := [name for name in given if name not in categories.names]:
        listed = ", ".join(categories.names) or "none"
        raise SpecError(f"by names {told(unknown[0])}, which is not a category of the release; it has {listed}")
    found = [_agreed(schema, column, given.get(column.name, column.name)) for column in categories.columns]
    taken = [region, *(attribute.name for attribute, _ in found)]
    if twice := sorted({name for name in taken if taken.count(name) > 1}):
        raise SpecError(f"the attribute {twice[0]!r} cannot stand for two of the region and the categories at once")
    return found


def _agreed(schema: Schema, category: Category, given: Any) -> tuple[Attribute, list[int]]:
    """Return one category's attribute, and the place of each of its values among the category's."""
    renamed: Mapping[str, Any] = {}
    name = given
    if isinstance(given, Mapping):
        if unknown := [key for key in given if key not in ("attribute", "values")]:
            raise SpecError(f"by has {told(unknown[0])} for {category.name!r}; expected {FORM}")
        name, renamed = given.get("attribute", category.name), given.get("values") or {}
    if not isinstance(name, str) or not isinstance(renamed, Mapping):
        raise SpecError(f"by is {told(given)} for {category.name!r}; expected {FORM}")
    known = [attribute.name for attribute in schema.household]
    if name not in known:
        raise SpecError(
            f"the release distinguishes households by {category.name!r}, and they have no attribute {name!r}: "
            f"{did_you_mean(name, known, 'they have')}. Say with by which attribute has its values: {FORM}"
        )
    attribute = schema.attribute(name)
    if unknown := [value for value in renamed if value not in category.values]:
        raise SpecError(f"by names the value {told(unknown[0])}, which {category.name!r} of the release does not have")
    values = [str(renamed.get(value, value)) for value in category.values]
    if twice := sorted({value for value in values if values.count(value) > 1}):
        raise SpecError(
            f"two values of {category.name!r} cannot both be {twice[0]!r} of {name!r}: they are counted apart"
        )
    if set(values) != set(attribute.values):
        missing = [value for value in values if value not in attribute.values]
        more = [value for value in attribute.values if value not in values]
        parts = [f"not in the schema: {', '.join(missing[:5])}"] if missing else []
        parts += [f"not in the release: {', '.join(more[:5])}"] if more else []
        raise SpecError(
            f"the attribute {name!r} must have the values of the release's {category.name!r}, each once; "
            f"{'; '.join(parts)}. Values that are written otherwise are named in by: {FORM}"
        )
    return attribute, [values.index(value) for value in attribute.values]


def draw_agreeing(
    model: Model, table: SizeTable, *, chunk: int = CHUNK, source: Source | None = None
) -> Iterator[SyntheticHouseholds]:
    """Yield households by region, category, then size, as many as the table says, in chunks of at most `chunk`."""
    words = Keystream() if source is None else source
    *codes, places = np.nonzero(table.counts)
    counts = table.counts[(*codes, places)]
    ends = np.cumsum(counts)
    for first in range(0, table.number, chunk):
        last = min(first + chunk, table.number)
        # How many households of each cell fall into this chunk.
        taken = np.clip(ends, first, last) - np.clip(ends - counts, first, last)
        here = np.flatnonzero(taken)
        sizes = places[here] + table.first_size
        known = {name: of_cells[here] for name, of_cells in zip(table.attributes, codes, strict=True)}
        drawn = model.draw_given(Wanted(known, sizes, table.last_size, taken[here]), words)
        if table.levels is not None:
            _place(drawn, model.schema, table.levels)
        yield drawn


def _place(drawn: SyntheticHouseholds, schema: Schema, levels: RegionLevels) -> None:
    """Put every household into the regions of upper levels that its leaf lies in."""
    columns = {attribute.name: column for column, attribute in enumerate(schema.household)}
    leaves = drawn.household[:, columns[levels.region]]
    for attribute, of_leaf in levels.added.items():
        drawn.household[:, columns[attribute.name]] = of_leaf[leaves]
