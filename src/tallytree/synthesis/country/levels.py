"""The public tree of regions as attributes of households: one for each level that has more than one region."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.schema import SIZE, Attribute, Schema

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
        """The attribute of the leaves."""
        return self.attributes[-1].name

    @property
    def added(self) -> dict[Attribute, Integers]:
        """The attributes of upper levels, and their codes by leaf."""
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
        """Sums `[regions of the level, …]` of values by leaf."""
        sums = np.zeros((self.attributes[level].codes, *by_leaf.shape[1:]), by_leaf.dtype)
        np.add.at(sums, self.of_leaf[level], by_leaf)
        return sums


def region_levels(schema: Schema, region: str, tree: Hierarchy) -> RegionLevels:
    """The levels of a tree whose leaves are the values of a household attribute, by their ids or by their names."""
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
    """The attributes without the region."""
    household = tuple(each for each in schema.household if each.name != region)
    if not household and not schema.person:
        raise SpecError("there is no attribute besides the region: nothing is left to synthesize")
    return replace(schema, household=household)
