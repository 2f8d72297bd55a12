"""`Cells`: a release's table by region, category and size, as its page shows it.

With many sizes these are put into classes (1, 2, 3–4, 5–8 …), whose guaranteed intervals are computed for the largest
regions; otherwise the intervals are those that the release has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallytree.arrays import Integers
from tallytree.categories import ALL
from tallytree.publish.release.answers import answers
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.questions import Asked

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
            for name, found in self.release.error_bars.entity_columns.items()
            if found is not None
        }

    def half_widths(self, kind: str) -> Integers | None:
        """How far each count of the sums over all categories may be off, `[regions, classes]`; None if not known."""
        prefix = "" if kind == "guaranteed" else "typical_"
        if f"{prefix}lower" not in self.ends:
            return None
        lower, upper = (self.ends[f"{prefix}{end}"][:, 0] for end in ("lower", "upper"))
        counts = self.counts[:, 0]
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
    asked = [
        Asked.of(release, "sum", tree.ids[region], range(one.first, one.last + 1))
        for region in largest
        for one in classes
    ]
    found = answers(release, asked, typical=False)
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
