"""`Cells`: a release's table by region, category and size, as its page shows it.

With many sizes these are put into classes (1, 2, 3–4, 5–8 …), whose guaranteed intervals are computed for the largest
regions; otherwise the intervals are those that the release has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.names import briefly
from tallytree.domain.categories import ALL
from tallytree.publish.release.answers import answer_queries
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.queries import Query

MOST_SIZES = 40  # that are shown one by one
MOST_ASKED = 600  # intervals of classes that are computed
UNKNOWN = -1  # stands for an end that there is none of


@dataclass(frozen=True)
class SizeClass:
    """Sizes that are shown together; most often one."""

    label: str
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers `[regions, slots, classes]`; the first slot of a region is the sum over all categories."""

    release: ReleaseContents
    classes: tuple[SizeClass, ...]
    counts: Integers
    ends: dict[str, Integers]  # of the columns of intervals that there are

    __repr__ = briefly

    @classmethod
    def of(cls, release: ReleaseContents) -> Cells:
        """The cells of a release."""
        classes = size_classes(release.sizes)
        counts = _cube(release, release.all_counts)
        if len(classes) == len(release.sizes):
            ends = {
                name: _cube(release, found) for name, found in release.error_bars.columns.items() if found is not None
            }
            return cls(release, classes, counts, ends)
        starts = [one.first - release.sizes.start for one in classes]
        summed = np.add.reduceat(counts, starts, axis=2)
        return cls(release, classes, summed, _ends_of_classes(release, classes, summed))

    @property
    def one_by_one(self) -> bool:
        """Is every size shown by itself, so that these are the published rows?"""
        return len(self.classes) == len(self.release.sizes)

    @property
    def slots(self) -> list[tuple[str, ...]]:
        """The values of categories in the rows of a region."""
        return [tuple(values) for values in self.release.rows.values]

    @cached_property
    def groups(self) -> Integers:
        """The number of groups `[regions, slots]`."""
        found: Integers = self.counts.sum(axis=2)
        return found

    @cached_property
    def entities(self) -> Integers:
        """The number of entities `[regions, slots]`."""
        counts = _cube(self.release, self.release.all_counts)
        found: Integers = counts @ np.array(self.release.sizes)
        return found

    @cached_property
    def entity_ends(self) -> dict[str, Integers]:
        """Ends of the numbers of entities `[regions, slots]`, of the columns that there are."""
        shape = self.groups.shape
        order = self.release.rows.order
        return {
            name: found[order].reshape(shape)
            for name, found in self.release.error_bars.columns_of("entities").items()
            if found is not None
        }

    @cached_property
    def prefixes(self) -> dict[str, list[list[str]]]:
        """What the columns of recommended intervals begin with, by level and slot: of counts and of entities."""
        release, tree = self.release, self.release.hierarchy

        def prefix(what: str, level: str, values: tuple[str, ...]) -> str:
            summed = ALL in values
            kind = release.error_bars.recommended(what, f"{level}, {tree.levels[0]}" if summed else level)
            return "typical_" if kind == "typical" else ""

        levels = tree.regions.levels
        found = {
            what: [[prefix(what, level, values) for values in self.slots] for level in levels]
            for what in ("counts", "entities")
        }
        if not self.one_by_one:  # intervals of classes are guaranteed ones
            found["counts"] = [[""] * len(self.slots) for _ in levels]
        return found

    @cached_property
    def recommended_ends(self) -> tuple[Integers, Integers] | None:
        """Ends of the recommended intervals of the sums over all categories, `[regions, classes]`; None if none."""
        tree = self.release.hierarchy.regions
        rows = [(tree.level_slice(level), of_slots[0]) for level, of_slots in enumerate(self.prefixes["counts"])]
        if not self.ends or any(f"{prefix}lower" not in self.ends for _, prefix in rows):
            return None
        lower, upper = (
            np.concatenate([self.ends[f"{prefix}{end}"][regions, 0] for regions, prefix in rows])
            for end in ("lower", "upper")
        )
        return lower, upper

    @cached_property
    def reaches(self) -> Integers | None:
        """How far the recommended intervals reach from the counts over all categories, `[regions, classes]`."""
        if self.recommended_ends is None:
            return None
        (lower, upper), counts = self.recommended_ends, self.counts[:, 0]
        found: Integers = np.where(lower == UNKNOWN, UNKNOWN, np.maximum(counts - lower, upper - counts))
        return found


def size_classes(sizes: range) -> tuple[SizeClass, ...]:
    """Each size, or where there are many 0, 1, 2, 3–4, 5–8 and so on.

    >>> [one.label for one in size_classes(range(1, 4))], [one.label for one in size_classes(range(0, 101))][3:]
    (['1', '2', '3+'], ['3–4', '5–8', '9–16', '17–32', '33–64', '65+'])
    """
    found, first = [], sizes[0]
    while first <= sizes[-1]:
        end = first if len(sizes) <= MOST_SIZES or first <= 2 else min(2 * (first - 1), sizes[-1])
        label = f"{first}+" if end == sizes[-1] else str(first) if end == first else f"{first}–{end}"
        found.append(SizeClass(label, first, end))
        first = end + 1
    return tuple(found)


def _cube(release: ReleaseContents, values: Any) -> Integers:
    rows = release.rows
    found: Integers = values[rows.order].reshape(-1, len(rows.values), values.shape[1])
    return found


def _ends_of_classes(release: ReleaseContents, classes: tuple[SizeClass, ...], counts: Integers) -> dict[str, Integers]:
    """Guaranteed ends of the sums over all categories, for the regions with the most groups."""
    tree = release.hierarchy.regions
    largest = np.argsort(-counts[:, 0].sum(axis=1), kind="stable")[: max(1, MOST_ASKED // len(classes))]
    asked = [Query("sum", tree.ids[region], range(one.first, one.last + 1)) for region in largest for one in classes]
    found = answer_queries(release, asked, typical=False)
    if all(one.guaranteed is None for one in found):
        return {}
    ends = {name: np.full(counts.shape, UNKNOWN, np.int64) for name in ("lower", "upper")}
    for (region, place), one in zip(((r, c) for r in largest for c in range(len(classes))), found, strict=True):
        if one.guaranteed is not None:
            ends["lower"][region, 0, place], ends["upper"][region, 0, place] = (int(end) for end in one.guaranteed)
    return ends


def slot_name(values: tuple[str, ...]) -> str:
    """The values of categories in words; empty where all are summed over.

    >>> slot_name(("all", "rented")), slot_name(("all",))
    ('rented', '')
    """
    return ", ".join(value for value in values if value != ALL)
