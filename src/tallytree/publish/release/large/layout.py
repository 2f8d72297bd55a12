"""Which files a large release has, and which regions are in each: by level, and below the first by region of the first.

Regions come in breadth-first order, so all regions of a level that lie in one region further up are one range. A file
of `counts` is found by its names, as tools that read partitioned data sets expect: `counts/level=block/state=07/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from tallytree.hierarchy import Hierarchy

CELLS_IN_ONE_FILE = 20_000_000  # regions times sizes; a release of more is partitioned, and has no CSV files of them
COUNTS, ENTITIES, REGIONS = "counts", "entities", "regions.parquet"
ROWS = "rows.parquet"
MOST_FOLDERS = 400  # of one level; where the first level has more regions, each level has one file


class Part(NamedTuple):
    """One file of each of the two tables: the regions of a level, or those that lie in one region of the first."""

    level: int
    regions: range
    folder: str  # below that of the table

    def file(self, table: str) -> str:
        """The file's name within the release."""
        return f"{table}/{self.folder}/{ROWS}"


def is_large(hierarchy: Hierarchy, sizes: int) -> bool:
    """Is a release partitioned? One by category never is."""
    return hierarchy.by is None and hierarchy.depth > 1 and len(hierarchy) * sizes > CELLS_IN_ONE_FILE


def is_partitioned(directory: Path) -> bool:
    """Does a directory hold a large release?"""
    return (directory / COUNTS).is_dir()


def parts(hierarchy: Hierarchy) -> Iterator[Part]:
    """All parts, level by level."""
    first = hierarchy.level_slice(1)
    together = first.stop - first.start > MOST_FOLDERS
    starts = np.arange(first.start, first.stop + 1)
    for level, name in enumerate(hierarchy.levels):
        folder = f"level={_written(name)}"
        if level < 2 or together:
            regions = hierarchy.level_slice(level)
            yield Part(level, range(regions.start, regions.stop), folder)
            continue
        starts = hierarchy.child_starts[starts]
        for above, start, stop in zip(hierarchy.ids[first], starts[:-1], starts[1:], strict=True):
            yield Part(
                level, range(int(start), int(stop)), f"{folder}/{_written(hierarchy.levels[1])}={_written(above)}"
            )


def files_of(levels: Sequence[str], level: int, above: str | None) -> list[str]:
    """Where the counts of a region of a level may be, which lies in the region `above` of the first level.

    >>> files_of(["nation", "state", "county"], 2, "New York")
    ['counts/level=county/state=New%20York/rows.parquet', 'counts/level=county/rows.parquet']
    """
    folders = [f"level={_written(levels[level])}"]
    if above is not None:
        folders.insert(0, f"{folders[0]}/{_written(levels[1])}={_written(above)}")
    return [Part(level, range(0), folder).file(COUNTS) for folder in folders]


def file_names(hierarchy: Hierarchy) -> list[str]:
    """The files of both tables."""
    found = list(parts(hierarchy))
    return [part.file(table) for table in (COUNTS, ENTITIES) for part in found]


def _written(text: str) -> str:
    """A text as a part of a folder's name; dots would lead elsewhere, and are written otherwise too."""
    return quote(text, safe="").replace(".", "%2E")
