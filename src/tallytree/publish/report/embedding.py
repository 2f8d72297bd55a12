"""What a page's script works on: regions, their counts and intervals, as short as can be in JSON.

The largest regions are embedded, level by level from the top, as long as there is room; the page says how many are
left out. Ends of intervals are written as distances from their counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.publish.release.entities import capped_sizes
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.report.cells import UNKNOWN, Cells
from tallytree.publish.report.words import Words

ROOM = 1_700_000  # characters of numbers and names


def embedded_regions(cells: Cells, *, room: int = ROOM) -> Integers:
    """The regions that are embedded, in their order: all, or the largest, with all regions above each."""
    tree = cells.release.hierarchy.regions
    numbers = [cells.counts, *(_distances(cells, name) for name in cells.ends)]
    length = sum(_digits(found).sum(axis=(1, 2)) for found in numbers)
    length = length + _digits(cells.entities).sum(axis=1) * (1 + len(cells.entity_ends))
    length = length + np.array([len(name) + len(code) + 12 for name, code in zip(tree.names, tree.ids, strict=True)])
    kept: list[Integers] = []
    for level in range(tree.depth):
        rows = np.arange(len(tree))[tree.level_slice(level)]
        rows = rows[np.argsort(-cells.groups[rows, 0], kind="stable")]
        fits = int(np.searchsorted(np.cumsum(length[rows]), room, side="right"))
        kept.append(rows[: max(fits, 1 if level == 0 else 0)])
        if fits < len(rows):
            break
        room -= int(length[rows].sum())
    found: Integers = np.sort(np.concatenate(kept))
    return found


def data_of(cells: Cells, regions: Integers, words: Words) -> dict[str, Any]:
    """The embedded regions in plain values; parents are places among them."""
    release, tree = cells.release, cells.release.hierarchy.regions
    place = np.full(len(tree) + 1, -1)  # the last is the root's parent
    place[regions] = np.arange(len(regions))
    return {
        "levels": list(tree.levels),
        "ids": [tree.ids[region] for region in regions],
        "names": [tree.names[region] for region in regions],
        "level": tree.level_of[regions].tolist(),
        "parent": place[tree.parents[regions]].tolist(),
        "children": np.diff(tree.child_starts)[regions].tolist(),
        "classes": [one.label for one in cells.classes],
        "sizes": [one.first for one in cells.classes] if cells.one_by_one else None,
        "categories": list(release.rows.categories),
        "slots": [list(values) for values in cells.slots],
        "count": _flat(cells.counts, regions),
        "columns": list(release.error_bars.columns),
        "ends": {name: _flat(_distances(cells, name), regions) for name in cells.ends},
        "entities": cells.entities[regions].tolist(),
        "recommended": cells.prefixes,
        "entity_ends": {name: found[regions].tolist() for name, found in cells.entity_ends.items()},
        "confidence": in_percent(release.error_bars.confidence),
        "words": {"groups": words.groups, "entities": words.entities, "capped": capped_sizes(release.sizes[-1])},
        "all": len(regions) == len(tree),
    }


def _distances(cells: Cells, name: str) -> Integers:
    """How far an end is from its count, never negative; UNKNOWN where there is none."""
    found: Integers = np.where(cells.ends[name] == UNKNOWN, UNKNOWN, np.abs(cells.ends[name] - cells.counts))
    return found


def _flat(values: Integers, regions: Integers) -> list[list[int]]:
    return [row.ravel().tolist() for row in values[regions]]


def _digits(values: Integers) -> Integers:
    """How long each number is in JSON, with its comma."""
    found: Integers = np.floor(np.log10(np.maximum(np.abs(values), 1))).astype(np.int64) + 2 + (values < 0)
    return found
