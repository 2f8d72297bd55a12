"""The layout of a release's tables: their rows, their files, and the table of regions.

*Rows.* Without categories a row is a region. With categories it is a region and a value of each category, or "all" for
the sum over a category's values. Arrays of such rows are *laid out* as the tree's rows first, then the sums, margin by
margin; the file has them region by region, the sums first.

*Files.* A small release has one file for each table, `counts.parquet`, and a CSV file beside it. A larger release
divides its files by level, and below the first level by region of the first level. Regions are in breadth-first order,
so all regions of a level that lie in one ancestor are one range. Tools that read partitioned data sets find a file of
`counts` by its name: `counts/level=block/state=07/`. Folder names are ASCII, have at most `LONGEST_NAME` bytes, and
differ by more than case within a folder, so that every file system can hold them (`folder_names`). They only locate
files: the ids of regions are in the files.

*Regions.* The public tree in breadth-first order, with public totals, is in `regions.parquet` and, of a small release,
in `regions.csv`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.names import briefly
from tallytree.domain.categories import ALL, margins
from tallytree.domain.hierarchy import Hierarchy
from tallytree.publish.table import Key, Measure, Table, differing_cells
from tallytree.publish.untrusted import all_rows

Keys = tuple[str, ...]


def category_description(name: str) -> str:
    """Return the description of a category's column."""
    return f"value of {name}; {ALL} stands for the sum over its values"


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a hierarchy, by category or not, in tables."""

    tree: Hierarchy

    __repr__ = briefly

    @property
    def categories(self) -> Keys:
        """Return the columns of categories; empty without categories."""
        return self.tree.by.names

    def __len__(self) -> int:
        """Return how many rows the table has for each size."""
        return len(self.tree.regions) * len(self.values)

    @property
    def laid_out(self) -> int:
        """Return how many rows a laid-out array has."""
        return len(self.tree) + len(margins(self.tree.by)) * len(self.tree.regions)

    def lay_out(self, values: NDArray[Any], sums: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return values of the tree's rows followed by the sums; the sums are computed if they are not given.

        The tree's root is the sum over all categories of the root region. If both are given, the sum's counts are used.
        """
        if self.tree.first_level == 0:
            return values
        below = self.tree.margin_sums(values) if sums is None else sums
        found = np.concatenate([values, below])
        found[0] = below[0]
        return found

    @cached_property
    def order(self) -> Integers:
        """Return the table's rows as rows of laid-out arrays."""
        regions, count = len(self.tree.regions), len(margins(self.tree.by))
        sums = len(self.tree) + np.arange(count * regions).reshape(count, regions).T
        return np.hstack([sums, self.tree.cell_rows]).ravel()

    @cached_property
    def levels(self) -> dict[str, NDArray[np.int64]]:
        """Return the laid-out rows of every level: those by category and, with categories, the sums separately."""
        tree = self.tree
        found = {name: np.arange(len(tree))[tree.level_slice(level)] for level, name in enumerate(tree.levels)}
        regions = tree.regions
        for level, name in enumerate(regions.levels if tree.by.columns else ()):
            starts = len(tree) + len(regions) * np.arange(len(margins(tree.by)))
            rows = np.arange(len(regions))[regions.level_slice(level)]
            found[f"{name}, {tree.levels[0]}"] = (starts[:, np.newaxis] + rows).ravel()
        return found

    @cached_property
    def values(self) -> list[Keys]:
        """Return the entries of the category columns for the rows of one region, in the table's order."""
        return [*(margin.values for margin in margins(self.tree.by)), *self.tree.by.cells]

    def level_of(self, row: int) -> str:
        """Return the name in `levels` of the level of a laid-out row."""
        return next(name for name, rows in self.levels.items() if rows[0] <= row <= rows[-1] and row in rows)

    def keys(self, places: Integers) -> dict[str, Any]:
        """Return Arrow columns level, region, name and the categories for rows of the table in ascending order."""
        import pyarrow as pa

        regions = self.tree.regions
        region, slot = np.divmod(places, len(self.values))
        first, last = (int(region[0]), int(region[-1]) + 1) if len(region) else (0, 0)

        def named(texts: Any, found: Integers) -> Any:
            return pa.array(texts, pa.string()).take(pa.array(found))

        ids = pa.array(regions.ids[first:last], pa.string()).take(pa.array(region - first))
        return {
            "level": named(regions.levels, regions.level_of[region]),
            "region": ids,
            "name": ids if regions.names is regions.ids else named(regions.names[first:last], region - first),
            **{name: named([cell[at] for cell in self.values], slot) for at, name in enumerate(self.categories)},
        }

    @cached_property
    def codes(self) -> list[Keys]:
        """Return the codes of each category in tables: "all" and its values."""
        return [tuple(dict.fromkeys(texts)) for texts in zip(*self.values, strict=True)]

    @cached_property
    def by_code(self) -> Integers:
        """Return the laid-out rows of regions by code of each category, the last category moving fastest."""
        numbers = [0] * len(self.values)
        for at, codes in enumerate(self.codes):
            numbers = [
                number * len(codes) + codes.index(cell[at]) for number, cell in zip(numbers, self.values, strict=True)
            ]
        return self.order.reshape(-1, len(self.values))[:, np.argsort(numbers)].ravel()

    def where(self, row: int) -> str:
        """Return a laid-out row in words."""
        tree = self.tree
        if row < len(tree):
            return f"region {tree.ids[row]!r}"
        margin, region = divmod(row - len(tree), len(tree.regions))
        values = ", ".join(margins(tree.by)[margin].values)
        return f"region {tree.regions.ids[region]!r} [{values}]"


# -------------------------------------------------------------------- files


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
    folder: str  # below that of the table; empty for a single part

    def file(self, table: str) -> str:
        """Return the file's name within the release."""
        return f"{table}/{self.folder}/{ROWS}" if self.folder else f"{table}.parquet"


def is_small(tree: Hierarchy, sizes: int) -> bool:
    """Return whether a release has one file per table, a row for every cell, and CSV files beside them."""
    return len(TableRows(tree)) * sizes <= SMALL


def upper_levels(cells: Integers, most: int) -> int:
    """Return how many levels from the top (at least one) have at most so many cells together."""
    return max(1, int(np.searchsorted(np.cumsum(cells), most, side="right")))


def parts(tree: Hierarchy, sizes: int) -> list[Part]:
    """Return all parts of a release, level by level; a small one has one part."""
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
    """Return the files of counts and entities."""
    small = is_small(tree, sizes)
    found = [part.file(table) for table in (COUNTS, ENTITIES) for part in parts(tree, sizes)]
    return [*found, *(f"{table}.csv" for table in (COUNTS, ENTITIES, "regions") if small)]


def files_of(folder: Path, table: str, levels: Sequence[str], level: int, above: str | None) -> list[Path]:
    """Return the files that may have rows of a level within the region `above` of the first level (None: any).

    A folder whose plain name would clash with another has a name with a hash, and then no folder has the plain name.
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
    """Return a folder name `key=text` for each text that every file system can hold, all of them in one folder.

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
    """Return as much of a text as fits, and its hash; `_written` gives no `@`, so no other text has this name."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:HASHED]
    return f"{key}={_beginning(text, LONGEST_NAME - len(key) - len(digest) - 2)}@{digest}"


def _key(levels: Sequence[str]) -> str:
    """Return the name of the first level for use in folder names."""
    return _beginning(levels[1], LONGEST_KEY)


def _beginning(text: str, most: int) -> str:
    """Return as many characters of a text as fit into `most` bytes."""
    written = ""
    for character in text:
        if len(written) + len(_written(character)) > most:
            break
        written += _written(character)
    return written


def _written(text: str) -> str:
    """Return a text as a part of a folder's name; dots are encoded too, since they could lead to other folders."""
    return quote(text, safe="").replace(".", "%2E")


# -------------------------------------------------------------------- the table of regions


MOST_REGIONS = 1 << 32


def region_table(tree: Hierarchy, totals: Integers | None, file: str) -> Table:
    """Return the regions of a tree with their public totals over all categories, if any."""
    regions = tree.regions

    def rows(block: range, zeros: bool) -> dict[str, Any]:
        del zeros  # every region has a row
        return _rows(regions, totals, block)

    return Table(
        name="regions",
        title="regions",
        description="The regions in breadth-first order",
        keys=(
            Key("region", "id, unique over all levels", regions.ids, unique=True),
            Key("name", "name to show", unique=True),
            Key("level", "name of the level"),
            Key("parent", "id of the region above; empty at the root"),
            Key("copy_of", "id of the region that this one carries down a level"),
        ),
        measures=(Measure("total", "public number of groups, where there is one", "groups", totals is not None),),
        confidence=0.0,
        width=1,
        parts=((file, range(len(regions))),),
        rows=rows,
    )


def write_regions(tree: Hierarchy, totals: Integers | None, path: Path) -> None:
    """Write the Parquet file alone."""
    region_table(tree, totals, path.name).write(path.parent, csv=False)


def read_regions(path: Path) -> tuple[Hierarchy, Integers | None]:
    """Read the regions and their public totals; refuse any file that `write_regions` would not write."""
    import pyarrow.compute as pc

    rows = all_rows(path, most=MOST_REGIONS)
    if not len(rows):
        raise ReleaseError(f"{path.name} has no rows")
    if any(rows[name].null_count for name in ("region", "name", "level")):
        raise ReleaseError(f"{path.name} has empty cells")
    ids = rows["region"].combine_chunks()
    parents = pc.index_in(rows["parent"].combine_chunks(), ids)
    if parents.null_count != 1 or rows["parent"].null_count != 1:
        raise ReleaseError(f"{path.name}: a parent is missing")
    tree = Hierarchy.from_layout(
        levels=pc.unique(rows["level"]).to_pylist(),
        names=tuple(rows["name"].to_pylist()),
        ids=tuple(ids.to_pylist()),
        parents=pc.fill_null(parents, -1).to_numpy(zero_copy_only=False),
        carried=rows["copy_of"].is_valid().to_numpy(),
    )
    given = rows["total"]
    totals = None if given.null_count else given.to_numpy().astype(np.int64)
    if totals is None and given.null_count < len(rows):
        raise ReleaseError(f"{path.name} gives the totals of some regions and not of others")
    table = region_table(tree, totals, path.name)
    if not rows.schema.equals(table.schema, check_metadata=True):
        raise ReleaseError(f"{path.name}: its columns or their descriptions are not those of a release")
    for fault in differing_cells(rows, table.whole()):
        raise ReleaseError(f"a region contradicts the others: {path.name}, {fault}")
    return tree, totals


def _rows(tree: Hierarchy, totals: Integers | None, block: range) -> dict[str, Any]:
    import pyarrow as pa

    text, some = pa.string(), slice(block.start, block.stop)
    parents = tree.parents[some]
    first = max(0, int(parents[0]))
    above = pa.array(tree.ids[first : int(parents[-1]) + 1], text)
    nothing = pa.nulls(len(block), text)
    ids = pa.array(tree.ids[some], text)
    return {
        "region": ids,
        "name": ids if tree.names is tree.ids else pa.array(tree.names[some], text),
        "level": pa.array(tree.levels, text).take(pa.array(tree.level_of[some])),
        "parent": above.take(pa.array(parents - first, mask=parents < 0)) if len(above) else nothing,
        "copy_of": above.take(pa.array(parents - first, mask=~tree.carried[some])) if len(above) else nothing,
        "total": pa.nulls(len(block), pa.int64()) if totals is None else pa.array(totals[some]),
    }
