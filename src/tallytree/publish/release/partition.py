"""Which files the tables of a release have, and which regions are in each.

A small release has one file for each table, `counts.parquet`, and a CSV file beside it. In a larger one the files are
divided by level, and below the first level by region of the first.

Regions come in breadth-first order, so all regions of a level that lie in one region further up are one range. A file
of `counts` is found by its names, as tools that read partitioned data sets expect: `counts/level=block/state=07/`.

Folder names are ASCII, have at most `LONGEST_NAME` bytes, and differ by more than case within a folder, so that every
file system can hold them (`folder_names`). They only locate files: the ids of regions are in the files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.publish.release.rows import TableRows

SMALL = 1_000_000  # rows of counts; a larger release has several parts, no CSV files, and no rows for zero cells
COUNTS, ENTITIES, REGIONS, REGIONS_CSV = "counts", "entities", "regions.parquet", "regions.csv"
ROWS = "rows.parquet"
MOST_FOLDERS = 400  # of one level; where the first level has more regions, each level has one file
LONGEST_NAME = 143  # bytes of a folder's name: what eCryptfs allows; other file systems allow 255
LONGEST_KEY = 60  # of these bytes, for the name of the first level
HASHED = 20  # hexadecimal digits


class Part(NamedTuple):
    """One file of each table: all regions, those of a level, or those of a level within one region of the first."""

    regions: range
    folder: str  # below that of the table; empty where there is one part

    def file(self, table: str) -> str:
        """The file's name within the release."""
        return f"{table}/{self.folder}/{ROWS}" if self.folder else f"{table}.parquet"


def is_small(tree: Hierarchy, sizes: int) -> bool:
    """Does a release have one file for each table, a row for every cell, and CSV files beside them?"""
    return len(TableRows(tree)) * sizes <= SMALL


def upper_levels(cells: Integers, most: int) -> int:
    """How many levels, from the top, have at most so many cells together; `cells` are those of each. At least one."""
    return max(1, int(np.searchsorted(np.cumsum(cells), most, side="right")))


def parts(tree: Hierarchy, sizes: int) -> list[Part]:
    """All parts of a release, level by level; a small one has one."""
    regions = tree.regions
    if is_small(tree, sizes):
        return [Part(range(len(regions)), "")]
    if regions.depth == 1:
        return [Part(range(len(regions)), folder_names("level", regions.levels)[0])]
    first = regions.level_slice(1)
    together = first.stop - first.start > MOST_FOLDERS
    starts = np.arange(first.start, first.stop + 1)
    within = folder_names(_key(regions.levels), regions.ids[first])
    found = []
    for level, folder in enumerate(folder_names("level", regions.levels)):
        if level < 2 or together:
            own = regions.level_slice(level)
            found.append(Part(range(own.start, own.stop), folder))
            continue
        starts = regions.child_starts[starts]
        for above, start, stop in zip(within, starts[:-1], starts[1:], strict=True):
            found.append(Part(range(int(start), int(stop)), f"{folder}/{above}"))
    return found


def file_names(tree: Hierarchy, sizes: int) -> list[str]:
    """The files of counts and entities."""
    small = is_small(tree, sizes)
    found = [part.file(table) for table in (COUNTS, ENTITIES) for part in parts(tree, sizes)]
    return [*found, *(f"{table}.csv" for table in (COUNTS, ENTITIES, "regions") if small)]


def files_of(folder: Path, table: str, levels: Sequence[str], level: int, above: str | None) -> list[Path]:
    """The files where rows of a level may be that lie in the region `above` of the first level (None: in any).

    A folder whose plain name would clash with another has a name with a hash, and none has its plain name.
    """
    if not (folder / table).is_dir():
        return [folder / f"{table}.parquet"]
    own = folder / table / folder_names("level", levels)[level]
    if (own / ROWS).exists():
        return [own / ROWS]
    if above is None:
        return sorted(own.glob(f"*/{ROWS}"))
    names = (_hashed(_key(levels), above), *folder_names(_key(levels), [above]))
    return [own / name / ROWS for name in names if (own / name / ROWS).exists()]


def folder_names(key: str, texts: Sequence[str]) -> list[str]:
    """A folder's name `key=text` for each text, fit for every file system, and for all of them in one folder.

    Texts are percent-encoded. Names that are too long, or that differ from another one only in case, end with a hash of
    the text.

    >>> folder_names("state", ["New York", "ohio", "Ohio"])
    ['state=New%20York', 'state=ohio@8f40d29c6591983ace8f', 'state=Ohio@438a7d5904cf041b1d91']
    """
    plain = [f"{key}={_written(text)}" for text in texts]
    alike = Counter(name.lower() for name in plain)
    return [
        name if alike[name.lower()] == 1 and len(name) <= LONGEST_NAME else _hashed(key, text)
        for name, text in zip(plain, texts, strict=True)
    ]


def _hashed(key: str, text: str) -> str:
    """As much of a text as there is room for, and its hash; `_written` gives no `@`, so no other text has this name."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASHED]
    return f"{key}={_beginning(text, LONGEST_NAME - len(key) - len(digest) - 2)}@{digest}"


def _key(levels: Sequence[str]) -> str:
    """The name of the first level, as folders' names begin."""
    return _beginning(levels[1], LONGEST_KEY)


def _beginning(text: str, most: int) -> str:
    """As many characters of a text as can be written with `most` bytes."""
    written = ""
    for character in text:
        if len(written) + len(_written(character)) > most:
            break
        written += _written(character)
    return written


def _written(text: str) -> str:
    """A text as a part of a folder's name; dots would lead elsewhere, and are written otherwise too."""
    return quote(text, safe="").replace(".", "%2E")
