"""`Scope`: what a question is about: a union of regions, and of each category a value or the sum over all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tallytree.core.arguments import told
from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.domain.categories import ALL, Categories, margins
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.unions import Unions
from tallytree.publish.release.areas import Area
from tallytree.publish.release.region_names import RegionNames
from tallytree.publish.release.rows import TableRows

Regions = str | Iterable[str] | Area | None
By = Mapping[str, str] | None
MOST_NAMES = 3  # of regions in a sentence


@dataclass(frozen=True)
class Scope:
    """Regions, none within another, and a value of each category; "all" is the sum over its values."""

    regions: tuple[int, ...]
    values: tuple[str, ...]  # in the order of the categories; none where there are none
    words: str
    area: str = ""  # the name of the area that is asked about, if it is one

    @classmethod
    def of(cls, regions: Regions, by: By, tree: Hierarchy) -> Scope:
        """What people say, in terms of a release's tree; unknown regions and values are a SpecError."""
        values, own = read_by(by, tree.by), tree.regions
        union = regions.regions if isinstance(regions, Area) else union_of(named_regions(regions, own), own)
        place = f"the area {regions.name}" if isinstance(regions, Area) else places(union, own)
        area = regions.name if isinstance(regions, Area) else ""
        return cls(union, values, place + values_in_words(values, tree.by), area)

    @property
    def over_all(self) -> bool:
        """Is it about the sums over all categories?"""
        return bool(self.values) and set(self.values) == {ALL}

    def rows(self, tree: Hierarchy) -> tuple[int, ...]:
        """The rows of the tree that add up to it, none within another."""
        if self.over_all and self.regions == (0,):
            return (0,)
        found: list[int] = tree.cell_rows[np.ix_(self.regions, tree.by.places_of(self.values))].ravel().tolist()
        return tuple(sorted(found))

    def table_row(self, tree: Hierarchy) -> int | None:
        """The row of the released table that it is, as `TableRows` lays them out; None if it is none."""
        if len(self.regions) > 1:
            return None
        for place, margin in enumerate(margins(tree.by)):
            if margin.values == self.values:
                return len(tree) + place * len(tree.regions) + self.regions[0]
        return self.rows(tree)[0]

    def by(self, tree: Hierarchy) -> dict[str, str]:
        """The values by the categories' names."""
        return dict(zip(tree.by.names, self.values, strict=True))


def area_scopes(areas: Sequence[Area], tree: Hierarchy) -> list[Scope]:
    """The rows of the table of areas: of each area the sums over categories first, as regions have them."""
    return [Scope(area.regions, values, "", area.name) for area in areas for values in TableRows(tree).values]


def unions_of(scopes: Sequence[Scope], tree: Hierarchy) -> Unions:
    """The sums that scopes are about."""
    whole = [scope.regions if scope.over_all else None for scope in scopes]
    return Unions.of_regions([scope.rows(tree) for scope in scopes], whole)


# -------------------------------------------------------------------- categories


def read_by(by: object, categories: Categories) -> tuple[str, ...]:
    """A value of each category, "all" for one that is not named."""
    if by is not None and not isinstance(by, Mapping):
        raise SpecError(f'by is {told(by)}; expected a value for each category that is meant: {{"tenure": "rented"}}')
    if by and not categories.columns:
        raise SpecError("this release has no categories, so by cannot name any")
    given = dict(by or {})
    if unknown := [name for name in given if name not in categories.names]:
        raise SpecError(f"there is no category {told(unknown[0])}; {did_you_mean(str(unknown[0]), categories.names)}")
    values = []
    for column in categories.columns:
        value = given.get(column.name, ALL)
        if value not in (ALL, *column.values):
            hint = did_you_mean(str(value), (*column.values, ALL))
            raise SpecError(f"{column.name} has no value {told(value)}; {hint}")
        values.append(value)
    return tuple(values)


def values_of(category: str, categories: Categories) -> tuple[str, ...]:
    """The values of a category, and "all" for their sum."""
    read_by({category: ALL}, categories)
    return next((*column.values, ALL) for column in categories.columns if column.name == category)


def values_in_words(values: Sequence[str], categories: Categories) -> str:
    """What comes after the place in a sentence: nothing where all values are meant.

    >>> by = Categories.of({"tenure": ["owned", "rented"]}, "group")
    >>> values_in_words(["rented"], by), values_in_words(["all"], by)
    (' with tenure rented', '')
    """
    told = [f"{name} {value}" for name, value in zip(categories.names, values, strict=True) if value != ALL]
    return f" with {listed(told)}" if told else ""


# -------------------------------------------------------------------- regions


def named_regions(regions: Regions, hierarchy: Hierarchy) -> list[int]:
    """Indices of regions by id or, where that is unique, by name; the root for None.

    A branch that was carried down bears its name on several levels and is the same place on all of them.
    """
    if regions is None:
        return [0]
    if isinstance(regions, Area):
        return list(regions.regions)
    if not isinstance(regions, Iterable):
        raise SpecError(f"{told(regions)} is not a region; expected an id or a name, as text, or several of them")
    texts = [regions] if isinstance(regions, str) else list(regions)
    if not texts:
        raise SpecError("the sum is empty: no region was given; name at least one")
    names = RegionNames(hierarchy)
    return [names.find(text) for text in texts]


def regions_of_level(hierarchy: Hierarchy, level: str, within: Regions = None) -> list[str]:
    """The ids of all regions of a level, or of those within some regions."""
    if level not in hierarchy.levels:
        raise SpecError(f"there is no level {told(level)}; {did_you_mean(level, hierarchy.levels)}")
    inside = np.zeros(len(hierarchy), dtype=np.bool_)
    inside[named_regions(within, hierarchy)] = True
    for below in range(1, hierarchy.depth):
        rows = hierarchy.level_slice(below)
        inside[rows] |= inside[hierarchy.parents[rows]]
    rows = hierarchy.level_slice(hierarchy.levels.index(level))
    found = np.flatnonzero(inside[rows]) + rows.start
    if not len(found):
        raise SpecError(f"none of the regions of level {level!r} lies within those that were named")
    return [hierarchy.ids[region] for region in found]


def union_of(regions: Iterable[int], hierarchy: Hierarchy) -> tuple[int, ...]:
    """The regions without those that lie within another of them."""
    named, kept = set(regions), []
    for region in sorted(named):
        above = int(hierarchy.parents[region])
        while above >= 0 and above not in named:
            above = int(hierarchy.parents[above])
        if above < 0:
            kept.append(region)
    return tuple(kept)


def places(regions: Sequence[int], hierarchy: Hierarchy) -> str:
    """Regions for a sentence: names, with ids where those say more."""
    texts = []
    for region in regions[:MOST_NAMES]:
        name, identity = hierarchy.names[region], hierarchy.ids[region]
        texts.append(identity if identity.endswith(name) else f"{name} ({identity})")
    if len(regions) > MOST_NAMES:
        return f"{len(regions):,} regions ({', '.join(texts)}, …)"
    return listed(texts)


def row_in_words(row: int, tree: Hierarchy) -> str:
    """A row of the tree for a sentence: its region, with its category if it is of one."""
    if not tree.by.columns or row == 0:
        return places([row], tree)
    level = int(tree.level_of[row])
    regions, rows = tree.regions.level_slice(level - 1), tree.level_slice(level)
    cell, place = divmod(row - rows.start, regions.stop - regions.start)
    values = values_in_words(tree.by.cells[cell], tree.by)
    return places([regions.start + place], tree.regions) + values


def listed(texts: Sequence[str]) -> str:
    """a, b and c.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
