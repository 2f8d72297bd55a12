"""Which files a large release has, and which regions are in each: by level, and below the first by region of the first.

Regions come in breadth-first order, so all regions of a level that lie in one region further up are one range. A file
of `counts` is found by its names, as tools that read partitioned data sets expect: `counts/level=block/state=07/`.

Folder names are ASCII, have at most `LONGEST_NAME` bytes, and differ by more than case within a folder, so that every
file system can hold them (`folder_names`). They only locate files: the ids of regions are in the files.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import numpy as np

from tallytree.domain.hierarchy import Hierarchy

CELLS_IN_ONE_FILE = 20_000_000  # regions times sizes; a release of more is partitioned, and has no CSV files of them
COUNTS, ENTITIES, REGIONS = "counts", "entities", "regions.parquet"
ROWS = "rows.parquet"
MOST_FOLDERS = 400  # of one level; where the first level has more regions, each level has one file
LONGEST_NAME = 143  # bytes of a folder's name: what eCryptfs allows; other file systems allow 255
LONGEST_KEY = 60  # of these bytes, for the name of the first level
HASHED = 20  # hexadecimal digits


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
    within = folder_names(_key(hierarchy.levels), hierarchy.ids[first])
    for level, folder in enumerate(folder_names("level", hierarchy.levels)):
        if level < 2 or together:
            regions = hierarchy.level_slice(level)
            yield Part(level, range(regions.start, regions.stop), folder)
            continue
        starts = hierarchy.child_starts[starts]
        for above, start, stop in zip(within, starts[:-1], starts[1:], strict=True):
            yield Part(level, range(int(start), int(stop)), f"{folder}/{above}")


def files_of(levels: Sequence[str], level: int, above: str | None) -> list[str]:
    """Where the counts of a region of a level may be, which lies in the region `above` of the first level.

    A folder whose plain name would clash with another has a name with a hash, and none has its plain name.

    >>> files_of(["nation", "state", "county"], 2, "New York")[1:]
    ['counts/level=county/state=New%20York/rows.parquet', 'counts/level=county/rows.parquet']
    """
    folder = folder_names("level", levels)[level]
    within = [] if above is None else [_hashed(_key(levels), above), *folder_names(_key(levels), [above])]
    return [Part(level, range(0), name).file(COUNTS) for name in (*(f"{folder}/{one}" for one in within), folder)]


def file_names(hierarchy: Hierarchy) -> list[str]:
    """The files of both tables."""
    found = list(parts(hierarchy))
    return [part.file(table) for table in (COUNTS, ENTITIES) for part in found]


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
