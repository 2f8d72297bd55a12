"""`Cells`: the numbers of a release's tables that its report shows, and the data for the report's script.

They are read from the release's described tables. Custom areas are shown like regions without parent and children. Of
a release with more than `MOST_CELLS` cells only the upper levels are read. Many sizes are grouped into classes (1, 2,
3–4, 5–8 …), whose guaranteed intervals are computed for the largest regions. Otherwise the intervals are those of the
release.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor
from typing import Any, Literal

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.names import briefly
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.size_distribution import medians
from tallytree.publish.about import About
from tallytree.publish.release.answers import answer_queries
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import SizeClass, capped_sizes, size_classes
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.queries import Query, QueryKind
from tallytree.publish.release.release_statement import public_totals
from tallytree.publish.release.table_layout import upper_levels
from tallytree.publish.table import Table, region_blocks

MOST_CELLS = 10_000_000  # that a page is made from
MOST_QUERIES = 600  # for intervals of classes
MOST_AVERAGES = 400  # areas and regions, from the root down, whose groups, averages and medians get intervals
TYPICAL = "typical_"  # before the names of columns
MISSING = -1  # stands for an end of an interval that does not exist
HUNDREDTHS = 100  # averages are embedded as integers
AREA_ROOM = 400_000  # characters of numbers and names of areas that are embedded
ROOM = 1_700_000  # characters of numbers and names that are embedded

What = Literal["counts", "entities"]


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers by region and slot; the first slot of a region is the sum over all categories.

    `counts` and its ends of intervals are `[regions, slots, classes]`, `entities` and its ends `[regions, slots]`.
    """

    release: ReleaseContents
    tree: Hierarchy  # the regions that are shown: all, or the upper levels
    classes: tuple[SizeClass, ...]
    counts: Integers
    entities: Integers
    medians: Integers  # like `entities`
    ends: Mapping[What, Mapping[str, Integers]]  # by the name of their column

    __repr__ = briefly

    @classmethod
    def of(cls, release: ReleaseContents) -> Cells:
        """Return the cells of a release, or of its upper levels."""
        tree, slots = release.hierarchy.regions, len(release.rows.values)
        depth = upper_levels(np.diff(tree.level_starts) * slots * len(release.sizes), MOST_CELLS)
        if depth < tree.depth:
            stop = int(tree.level_starts[depth])
            above = tree.parents[:stop].tolist()
            carried = tree.carried[:stop].tolist()
            tree = Hierarchy.from_layout(tree.levels[:depth], tree.names[:stop], tree.ids[:stop], above, carried)
        shape = len(tree), slots
        ends = _read_numbers(release.counts_table, *shape, len(release.sizes))
        entity_ends = _read_numbers(release.entity_table, *shape)
        counts, classes = ends.pop("count"), size_classes(release.sizes)
        entities, _ = entity_ends.pop("entities"), entity_ends.pop("open_groups")
        middle = medians(counts, release.sizes.start)
        if len(classes) < len(release.sizes):
            counts = np.add.reduceat(counts, [one.first - release.sizes.start for one in classes], axis=2)
            ends = _class_ends(release, tree, classes, counts)
        return cls(release, tree, classes, counts, entities, middle, {"counts": ends, "entities": entity_ends})

    @property
    def one_by_one(self) -> bool:
        """Return whether every size has its own row, so that the rows are the published ones."""
        return len(self.classes) == len(self.release.sizes)

    @cached_property
    def groups(self) -> Integers:
        """Return the number of groups `[regions, slots]`."""
        found: Integers = self.counts.sum(axis=2)
        return found

    @cached_property
    def prefixes(self) -> dict[What, list[list[str]]]:
        """Return the prefixes of the columns of recommended intervals, by level and slot."""

        def prefix(what: What, level: str, values: Sequence[str]) -> str:
            guaranteed_only = what == "counts" and not self.one_by_one
            kind = self.release.recommended(what, level, values)
            return TYPICAL if kind == "typical" and not guaranteed_only else ""

        slots = self.release.rows.values
        return {what: [[prefix(what, level, one) for one in slots] for level in self.tree.levels] for what in self.ends}

    def intervals(self, what: What, level: int) -> tuple[Integers, Integers] | None:
        """Return both ends of the recommended intervals of a level, over all categories; None without intervals."""
        prefix, found, rows = self.prefixes[what][level][0], self.ends[what], self.tree.level_slice(level)
        if f"{prefix}lower" not in found:
            return None
        return found[f"{prefix}lower"][rows, 0], found[f"{prefix}upper"][rows, 0]

    @cached_property
    def areas(self) -> Areas:
        """Return the numbers of the published areas."""
        return _read_areas(self)

    @cached_property
    def of_places(self) -> dict[str, Integers]:
        """Return the guaranteed intervals of `groups`, `mean` (in hundredths) and `median`: areas, then regions."""
        return _place_ends(self)

    def reach(self, level: int) -> Integers | None:
        """Return how far a level's intervals reach from its counts over all categories, `[regions, classes]`."""
        if (ends := self.intervals("counts", level)) is None:
            return None
        (lower, upper), counts = ends, self.counts[self.tree.level_slice(level), 0]
        found: Integers = np.where(lower == MISSING, MISSING, np.maximum(counts - lower, upper - counts))
        return found


@dataclass(frozen=True, eq=False)
class Areas:
    """The numbers of the published areas that a page has, like those of regions: `[areas, slots, classes]`."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]  # in the order of the areas
    kind_of: tuple[int, ...]
    counts: Integers
    entities: Integers
    medians: Integers
    ends: Mapping[str, Integers]
    left_out: int

    __repr__ = briefly


def _read_areas(cells: Cells) -> Areas:
    """Return as many areas as there is room for."""
    release, shape = cells.release, (cells.counts.shape[1], len(cells.release.sizes))
    room = max(1, AREA_ROOM // (6 * shape[0] * len(cells.classes) * (1 + len(cells.ends["counts"]))))
    areas = release.areas[:room]
    names = "count", *cells.ends["counts"]
    found = {name: np.zeros((0, *shape), np.int64) for name in names}
    if areas:
        found = _read_numbers(release.areas_table, len(areas), *shape)
    counts, ends = found.pop("count"), found
    entities, middle = counts @ np.array(release.sizes), medians(counts, release.sizes.start)
    if not cells.one_by_one:
        counts = np.add.reduceat(counts, [one.first - release.sizes.start for one in cells.classes], axis=2)
        ends = {name: np.full(counts.shape, MISSING, np.int64) for name in cells.ends["counts"]}
    kinds = tuple(dict.fromkeys(area.kind for area in areas))
    places = tuple(kinds.index(area.kind) for area in areas)
    titles = tuple(area.name for area in areas)
    return Areas(titles, kinds, places, counts, entities, middle, ends, len(release.areas) - len(areas))


def _place_ends(cells: Cells) -> dict[str, Integers]:
    """Return the ends of numbers of groups and of averages; those of public numbers and without intervals miss."""
    release, areas = cells.release, cells.release.areas[: len(cells.areas.names)]
    places: list[Any] = [*areas, *cells.tree.ids]
    kinds: dict[str, QueryKind] = {"mean": "mean", "median": "median", "groups": "sum"}
    found = {what: np.full((len(places), 2), MISSING, np.int64) for what in kinds}
    upper = release.partial or cells.tree.depth < release.hierarchy.regions.depth  # whose intervals are wider
    if release.error_bars.which == "none" or upper:
        return found
    some = [*range(len(areas))[: MOST_AVERAGES // 2], *range(len(areas), len(places))][:MOST_AVERAGES]
    if public_totals(release.measurements) is not None:
        del kinds["groups"]
    wanted = [(what, place) for what in kinds for place in some]
    queries = [Query(kinds[what], places[place]) for what, place in wanted]
    answers = answer_queries(release, queries, confidence=release.error_bars.confidence, typical=False)
    for (what, place), answer in zip(wanted, answers, strict=True):
        if answer.guaranteed is not None:
            low, high = (HUNDREDTHS * end if what == "mean" else end for end in answer.guaranteed)
            found[what][place] = floor(low), ceil(high)
    return found


def _read_numbers(table: Table, regions: int, *shape: int) -> dict[str, Integers]:
    """Return the measures of the first regions of a table by name, as arrays of this shape."""
    blocks = [table.rows(block, True) for block in region_blocks(range(regions * shape[0]), table.width)]
    return {
        one.name: np.concatenate([np.asarray(rows[one.name]) for rows in blocks]).reshape(regions, *shape)
        for one in table.given
    }


def _class_ends(
    release: ReleaseContents, tree: Hierarchy, classes: Sequence[SizeClass], counts: Integers
) -> dict[str, Integers]:
    """Return ends of guaranteed intervals of the sums over all categories, for the regions with the most groups."""
    largest = np.argsort(-counts[:, 0].sum(axis=1), kind="stable")[: max(1, MOST_QUERIES // len(classes))]
    queries = [Query("sum", tree.ids[row], range(one.first, one.last + 1)) for row in largest for one in classes]
    found = [one.guaranteed for one in answer_queries(release, queries, typical=False)]
    if not any(found):
        return {}
    ends = np.array([(MISSING, MISSING) if one is None else one for one in found]).astype(np.int64)
    columns = {name: np.full(counts.shape, MISSING, np.int64) for name in ("lower", "upper")}
    for place, name in enumerate(columns):
        columns[name][largest, 0] = ends[:, place].reshape(len(largest), len(classes))
    return columns


# -------------------------------------------------------------------- for the script


def select_regions(cells: Cells, *, room: int = ROOM) -> Integers:
    """Return the embedded regions in order: all, or the largest with all their ancestors."""
    tree = cells.tree
    numbers = [cells.counts, *(_distances(found, cells.counts) for found in cells.ends["counts"].values())]
    length = sum(_digits(found).sum(axis=(1, 2)) for found in numbers)
    length = length + _digits(cells.entities).sum(axis=1) * (1 + len(cells.ends["entities"]))
    length = length + _digits(cells.medians).sum(axis=1)
    length = length + np.array([len(name) + len(code) + 12 for name, code in zip(tree.names, tree.ids, strict=True)])
    found: list[Integers] = []
    for level in range(tree.depth):
        rows = np.arange(len(tree))[tree.level_slice(level)]
        rows = rows[np.argsort(-cells.groups[rows, 0], kind="stable")]
        fits = int(np.searchsorted(np.cumsum(length[rows]), room, side="right"))
        found.append(rows[: max(fits, 1 if level == 0 else 0)])
        if fits < len(rows):
            break
        room -= int(length[rows].sum())
    return np.sort(np.concatenate(found))


def script_data(cells: Cells, regions: Integers, words: About) -> dict[str, Any]:
    """Return the embedded regions as compact plain values: ends are distances, parents are indices."""
    release, tree = cells.release, cells.tree
    place = np.full(len(tree) + 1, -1)  # the last is the root's parent
    place[regions] = np.arange(len(regions))

    areas, bars = cells.areas, release.error_bars
    count, alone = len(areas.names), [MISSING] * len(areas.names)

    def flat(values: Integers, of_areas: Integers | None = None) -> list[list[int]]:
        shown = values[regions].reshape(len(regions), -1)
        more = (
            np.full((count, shown.shape[1]), MISSING) if of_areas is None else of_areas.reshape(count, shown.shape[1])
        )
        rows: list[list[int]] = np.concatenate([shown, more]).tolist()
        return rows

    def recommended(what: What) -> list[list[str]]:
        """Return the prefixes by level, then by kind of area."""
        typical = [
            what == "counts" and cells.one_by_one and bars.recommended("areas", one) == "typical" for one in areas.kinds
        ]
        return [*cells.prefixes[what], *([TYPICAL if one else ""] * len(release.rows.values) for one in typical)]

    return {
        "levels": [*tree.levels, *areas.kinds],
        "regions": len(regions),  # the places after these are areas
        "ids": [*(tree.ids[region] for region in regions), *areas.names],
        "names": [*(tree.names[region] for region in regions), *areas.names],
        "level": [*tree.level_of[regions].tolist(), *(tree.depth + kind for kind in areas.kind_of)],
        "parent": [*place[tree.parents[regions]].tolist(), *alone],
        "children": [*np.diff(tree.child_starts)[regions].tolist(), *([0] * count)],
        "classes": [one.label for one in cells.classes],
        "sizes": [one.first for one in cells.classes] if cells.one_by_one else None,
        "categories": list(release.rows.categories),
        "slots": [list(values) for values in release.rows.values],
        "count": flat(cells.counts, areas.counts),
        "columns": list(release.error_bars.columns),
        "ends": {
            name: flat(_distances(found, cells.counts), _distances(areas.ends[name], areas.counts))
            for name, found in cells.ends["counts"].items()
        },
        "place_ends": {
            what: [*found[count:][regions].tolist(), *found[:count].tolist()] for what, found in cells.of_places.items()
        },
        "entities": flat(cells.entities, areas.entities),
        "medians": flat(cells.medians, areas.medians),
        "last": release.sizes[-1],
        "recommended": {what: recommended(what) for what in cells.prefixes},
        "entity_ends": {name: flat(found) for name, found in cells.ends["entities"].items()},
        "confidence": in_percent(release.error_bars.confidence),
        "words": {"groups": words.groups, "entities": words.entities, "capped": capped_sizes(release.sizes[-1])},
        "all": len(regions) == len(tree),
    }


def _distances(ends: Integers, counts: Integers) -> Integers:
    """Return the non-negative distance of each end from its count; MISSING without an interval."""
    found: Integers = np.where(ends == MISSING, MISSING, np.abs(ends - counts))
    return found


def _digits(values: Integers) -> Integers:
    """Return the length of each number in JSON, including its comma."""
    found: Integers = np.floor(np.log10(np.maximum(np.abs(values), 1))).astype(np.int64) + 2 + (values < 0)
    return found
