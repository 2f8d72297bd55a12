"""`Cube`: a released table as other software sees it: dimensions with codes and labels, measures with units.

A release has two of them: how many groups of each size there are, and how many entities. All formats are written from
these. Everything in them is public.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from tallytree.core.notebook import briefly
from tallytree.domain.histogram import size_label
from tallytree.publish.release.contents import ReleaseContents, size_description
from tallytree.publish.release.entities import capped_sizes, entity_description, open_description
from tallytree.publish.release.rows import category_description
from tallytree.publish.release.truncation import count_description
from tallytree.publish.statement import guarantee

GROUPS, ENTITIES = "groups", "entities"  # units
LABELS = {
    "count": "number of groups",
    "entities": "number of entities, large groups capped",
    "open_groups": "number of groups of the last size or more",
    "lower": "lower end, guaranteed",
    "upper": "upper end, guaranteed",
    "typical_lower": "lower end, typical",
    "typical_upper": "upper end, typical",
}


@dataclass(frozen=True)
class Dimension:
    """A column whose values are codes: `labels` say what they stand for, `parents` what each lies in (-1 for none)."""

    name: str
    description: str
    codes: tuple[str, ...]
    labels: tuple[str, ...]
    parents: tuple[int, ...] | None = None

    __repr__ = briefly


@dataclass(frozen=True)
class Measure:
    """A column of whole numbers: what it holds, and in which unit. `given` is false where the release has none."""

    name: str
    description: str
    unit: str
    given: bool = True

    @property
    def label(self) -> str:
        """A few words."""
        return LABELS[self.name]


@dataclass(frozen=True, eq=False)
class Cube:
    """A table with a row for each combination of codes, the last dimension moving fastest.

    The first of the `measures` is the number itself, the others are ends of its intervals or numbers beside it.
    """

    name: str
    title: str
    description: str
    dimensions: tuple[Dimension, ...]
    measures: tuple[Measure, ...]
    confidence: float
    batches: Callable[[], Iterator[Any]]  # pyarrow Tables with level, region, name, categories, size and the measures

    __repr__ = briefly

    @property
    def cells(self) -> int:
        """How many rows there are."""
        return prod(len(dimension.codes) for dimension in self.dimensions)

    @property
    def given(self) -> tuple[Measure, ...]:
        """The measures that have numbers."""
        return tuple(measure for measure in self.measures if measure.given)

    @property
    def missing(self) -> tuple[str, ...]:
        """Why the others have none."""
        return tuple(dict.fromkeys(measure.description for measure in self.measures if not measure.given))


def cubes(release: ReleaseContents) -> tuple[Cube, Cube]:
    """The counts of a release and its numbers of entities."""
    return _counts(release), _entities(release)


def privacy_note(release: ReleaseContents) -> str:
    """How the numbers are protected, in words."""
    measurements = release.measurements
    words = guarantee(measurements.budget)
    return f"{words[:1].upper()}{words[1:]}. {measurements.neighbours.describe()}"


def _counts(release: ReleaseContents) -> Cube:
    sizes, bars = release.sizes, release.error_bars
    size = Dimension(
        "size",
        size_description(sizes[-1]),
        tuple(map(str, sizes)),
        tuple(size_label(one, sizes[-1]) for one in sizes),
    )
    ends = (Measure(name, text, GROUPS, given=bars.columns[name] is not None) for name, text in bars.describe().items())
    return Cube(
        name="counts",
        title=f"{release.title}: groups by size",
        description=f"How many groups of each size there are in every region. {privacy_note(release)}",
        dimensions=(*_places(release), size),
        measures=(Measure("count", count_description(release.measurements.neighbours), GROUPS), *ends),
        confidence=bars.confidence,
        batches=release.batches,
    )


def _entities(release: ReleaseContents) -> Cube:
    neighbours, largest, bars = release.measurements.neighbours, release.sizes[-1], release.error_bars
    ends = (
        Measure(name, text, ENTITIES, given=bars.entity_columns[name] is not None)
        for name, text in bars.describe_entities(largest).items()
    )
    numbers = (
        Measure("entities", entity_description(neighbours, largest), ENTITIES),
        Measure("open_groups", open_description(largest), GROUPS),
    )
    return Cube(
        name="entities",
        title=f"{release.title}: entities ({capped_sizes(largest)})",
        description=f"How many entities there are in every region ({capped_sizes(largest)}). {privacy_note(release)}",
        dimensions=_places(release),
        measures=(*numbers, *ends),
        confidence=bars.confidence,
        batches=lambda: iter([release.entities_table()]),
    )


def _places(release: ReleaseContents) -> tuple[Dimension, ...]:
    """Regions, and categories where there are any, with the code "all" for sums over them."""
    regions, rows = release.hierarchy.regions, release.rows
    place = Dimension(
        "region",
        f"regions of the levels {', '.join(regions.levels)}",
        tuple(regions.ids),
        tuple(regions.names),
        tuple(int(parent) for parent in regions.parents),
    )
    by = []
    for at, name in enumerate(rows.categories):
        values = tuple(dict.fromkeys(cell[at] for cell in rows.values))
        by.append(Dimension(name, category_description(name), values, values))
    return (place, *by)
