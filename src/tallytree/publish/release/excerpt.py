"""An excerpt of a release: the regions that a question is about, read without the others.

An excerpt is a release of a smaller tree: some regions of one level with all that lies below them, down to the lowest
level that is needed. Their measurements bound them for any truth as those of the whole tree do, if less closely. Where
they are several regions with nothing above them, a made-up root holds them together: it was not measured, and nobody
asks about it. Parts, groups of rows and columns that are not needed are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.numbers import short
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.measurements import BESIDE_SIZES, Measurements
from tallytree.publish.folder import MANIFEST, MEASUREMENTS, PRIVACY, UNUSABLE, check_form, reason
from tallytree.publish.reading import ParquetRows, check_regular, read_json
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.files import (
    cells_of,
    read_release,
    stated_fallback,
    stated_mechanism,
    stored_error_bars,
    with_entity_rows,
)
from tallytree.publish.release.measurements_file import (
    LISTED,
    MOST_ROWS,
    PLACES,
    PUBLIC,
    TOTALS,
    stored_facts,
    tree_by_category,
    without_values,
)
from tallytree.publish.release.partition import COUNTS, ENTITIES, REGIONS, files_of, upper_levels
from tallytree.publish.release.rows import TableRows
from tallytree.publish.release.truncation import truncation

EXCERPT = (
    "Only what the release holds of these regions was read. Where more than one size is asked for, guaranteed "
    "intervals go by what was measured of the regions themselves, or of those that make them up; with the whole tree "
    "they are narrower: --whole, or Release.load in Python, reads that and gives typical intervals too."
)
MADE_UP = "the regions that are asked about"  # id and name of a root that holds them together
COLUMNS = ("region", "name", "level", "parent", "copy_of")


def read_for(folder: Path, regions: Iterable[str] | None, level: str | None = None) -> ReleaseContents:
    """What a question about some regions takes of a release, or one about all regions of a level within these.

    Regions are ids or names; None is the root. A small release is read whole.
    """
    try:
        if not (folder / COUNTS).is_dir():
            return read_release(folder)
        source = _Source(folder)
        names = None if regions is None else list(regions)
        found = [source.root] if not names else source.find(names)
        levels = {source.levels.index(row["level"]) for row in found}
        if level is not None:
            if level not in source.levels:
                raise SpecError(f"there is no level {short(level)}; {did_you_mean(level, source.levels)}")
            levels.add(source.levels.index(level))
        return source.excerpt(found, min(levels), max(levels))
    except (ReleaseError, SpecError):
        raise
    except UNUSABLE as error:
        raise ReleaseError(f"{folder} cannot be used: {reason(error)}") from None


def read_upper(folder: Path, most: int) -> ReleaseContents:
    """A release of the upper levels, with at most so many cells (but for the root's); of a small one, all of it."""
    try:
        if not (folder / COUNTS).is_dir():
            return read_release(folder)
        source = _Source(folder)
        cells = np.array([source.cells_of(level) for level in range(len(source.levels))])
        return source.excerpt([source.root], 0, upper_levels(cells, most) - 1, upper=True)
    except ReleaseError:
        raise
    except UNUSABLE as error:
        raise ReleaseError(f"{folder} cannot be used: {reason(error)}") from None


@dataclass(frozen=True, eq=False)
class _Source:
    """The directory of a release that has several parts."""

    folder: Path

    def __post_init__(self) -> None:
        if (self.folder / MANIFEST).is_file():
            check_form(self.folder, do="read")

    @cached_property
    def statement(self) -> dict[str, Any]:
        return read_json(self.folder / PRIVACY)

    @cached_property
    def facts(self) -> dict[str, Any]:
        with ParquetRows(self.folder / MEASUREMENTS, most=MOST_ROWS) as file:
            return stored_facts(file.schema)

    @cached_property
    def levels(self) -> list[str]:
        return list(self.facts["hierarchy"]["levels"])

    @cached_property
    def root(self) -> dict[str, Any]:
        with ParquetRows(self.folder / REGIONS, most=MOST_ROWS) as file:
            first: dict[str, Any] = file.group(0).slice(0, 1).to_pylist()[0]
        return first

    def cells_of(self, level: int) -> int:
        """How many cells a level has."""
        known = self.statement
        sizes = int(known["max_size"]) + bool(known["neighbours"]["public_totals"])
        slots = prod(1 + len(one["values"]) for one in known["neighbours"].get("categories", ()))
        return self._count(level) * sizes * slots

    # ---------------------------------------------------------------- regions

    def find(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """The rows of regions, by id or, where that is unique, by name."""
        wanted = list(dict.fromkeys(texts))
        found = {row["region"]: row for row in self._regions("region", wanted).to_pylist()}
        named = [text for text in wanted if text not in found]
        by_name: dict[str, list[dict[str, Any]]] = {}
        for row in self._regions("name", named).to_pylist() if named else ():
            if row["copy_of"] is None:
                by_name.setdefault(row["name"], []).append(row)
        for text in named:
            rows = by_name.get(text) or self._in_any_case(text)
            if len(rows) > 1:
                some = ", ".join(row["region"] for row in rows[:6])
                raise SpecError(f"{len(rows)} regions are called {short(text)}; say which by id: {some}")
            if not rows:
                raise SpecError(f"there is no region {short(text)}; {REGIONS} lists ids and names")
            found[text] = rows[0]
        return [found[text] for text in wanted]

    def _in_any_case(self, text: str) -> list[dict[str, Any]]:
        import pyarrow.compute as pc
        from pyarrow import dataset

        rows = dataset.dataset(self.folder / REGIONS, format="parquet")
        same = pc.utf8_lower(dataset.field("name")) == text.lower()
        return [row for row in rows.to_table(columns=list(COLUMNS), filter=same).to_pylist() if row["copy_of"] is None]

    def _regions(self, column: str, texts: Sequence[str]) -> Any:
        return _rows(self.folder / REGIONS, column, texts, columns=COLUMNS)

    def _above(self, rows: Sequence[Mapping[str, Any]], level: int) -> list[str]:
        """The ids of the regions of a level in which regions lie, or which they are."""
        found, left = set(), list(rows)
        while left:
            found |= {row["region"] for row in left if row["level"] == self.levels[level]}
            higher = list({row["parent"] for row in left if row["level"] != self.levels[level]})
            left = self._regions("region", higher).to_pylist() if higher else []
        return sorted(found)

    def _tree(self, tops: Sequence[str] | None, top: int, lowest: int) -> tuple[Hierarchy, bool]:
        """The regions from some of a level (None: all) down to a lower one; is the root a made-up one?"""
        import pyarrow as pa
        import pyarrow.compute as pc

        own = self._regions("level", [self.levels[top]]) if tops is None else self._regions("region", tops)
        tables = [own]
        for level in range(top + 1, lowest + 1):
            whole = tops is None
            ids = tables[-1]["region"].to_pylist()
            tables.append(self._regions("level", [self.levels[level]]) if whole else self._regions("parent", ids))
        made_up = len(own) > 1
        rows = pa.concat_tables(tables)
        ids = rows["region"].combine_chunks()
        parents = pc.fill_null(pc.index_in(rows["parent"].combine_chunks(), ids), -1).to_numpy(zero_copy_only=False)
        head = [MADE_UP] if made_up else []
        tree = Hierarchy.from_layout(
            levels=[*head, *self.levels[top : lowest + 1]],
            names=[*head, *rows["name"].to_pylist()],
            ids=[*head, *ids.to_pylist()],
            parents=[*([-1] if made_up else []), *(parents + made_up).tolist()] if made_up else parents.tolist(),
            carried=[*([False] if made_up else []), *((parents >= 0) & rows["copy_of"].is_valid().to_numpy()).tolist()],
        )
        return tree, made_up

    # ---------------------------------------------------------------- the excerpt

    def excerpt(
        self, found: Sequence[Mapping[str, Any]], top: int, deepest: int, *, upper: bool = False
    ) -> ReleaseContents:
        """The release of the regions of level `top` that hold those that were found, as deep as is needed.

        With `upper` it ends at the deepest level, whether that was measured or not, and has numbers of entities too.
        """
        if any(part["view"] == "chain" for part in self.facts["measured"]):
            return read_release(self.folder)  # such measurements are not of single regions
        measured = {
            self._level(part)
            for part in self.facts["measured"]
            if part["view"] not in BESIDE_SIZES and not part.get("summed", False)
        }
        below = range(deepest, deepest if upper else len(self.levels))
        lowest = next((level for level in below if level in measured), deepest)
        tops: list[str] | None = self._above(found, top)
        if top == 0 or len(tops or ()) == self._count(top):
            top, tops = 0, None
        if tops is None and lowest == len(self.levels) - 1:
            return read_release(self.folder)
        regions, made_up = self._tree(tops, top, lowest)
        tree = tree_by_category(self.facts, regions)
        measurements = self._measurements(tree, top - made_up, whole=tops is None)
        sizes = range(measurements.first_size, measurements.max_size + 1)
        above = [None] if tops is None or top == 0 else self._above(found, 1)
        pieces = list(self._pieces(COUNTS, regions, made_up, above))
        cells = cells_of(((range(len(regions)), rows) for rows in pieces), tree, sizes, self.statement, some=True)
        if cells.problems:
            raise ReleaseError(f"the counts in {self.folder} are damaged: {cells.problems[0]}")
        counts = cells.counts
        if made_up:
            counts = np.asarray(tree.aggregate(counts[tree.level_slice(tree.depth - 1)]))
        bars = stored_error_bars(cells, self.statement.get("intervals"), truncation(measurements.neighbours))
        if upper:
            found_rows = ((range(len(regions)), rows) for rows in self._pieces(ENTITIES, regions, made_up, above))
            bars = with_entity_rows(bars, found_rows, TableRows(tree))
        return ReleaseContents(
            counts=counts,
            measurements=measurements,
            made_by=stated_mechanism(self.statement),
            certificate=self.statement["certificate"],
            title=self.statement["title"],
            fallback=stated_fallback(self.statement),
            error_bars=bars,
            partial=True,
        )

    def _level(self, part: Mapping[str, Any]) -> int:
        """The level of regions that a measurement is of; -1 for the one over all categories."""
        return int(part["level"]) - (self.facts["neighbours"].get("categories") is not None)

    def _count(self, level: int) -> int:
        from pyarrow import dataset

        rows = dataset.dataset(self.folder / REGIONS, format="parquet")
        return int(rows.count_rows(filter=dataset.field("level") == self.levels[level]))

    def _pieces(self, table: str, regions: Hierarchy, made_up: bool, above: Sequence[str | None]) -> Iterator[Any]:
        """The rows of a table that are about these regions."""
        for place in range(int(made_up), regions.depth):
            level = self.levels.index(regions.levels[place])
            ids = regions.ids[regions.level_slice(place)]
            paths = [path for one in above for path in files_of(self.folder, table, self.levels, level, one)]
            for path in dict.fromkeys(paths):
                yield _rows(path, "region", None if above == [None] else ids)

    def _measurements(self, tree: Hierarchy, offset: int, *, whole: bool) -> Measurements:
        """What was measured of the regions of an excerpt, whose first level is level `offset` of the release.

        A made-up root has no level in the release, and the level over all categories belongs to the real root.
        """
        facts, parts, numbers = self.facts, [], []
        first, last = max(offset, 0) + (tree.regions.ids[0] == MADE_UP), offset + tree.regions.depth - 1
        for number, part in enumerate(facts["measured"]):
            level = self._level(part)
            if first <= level <= last or (level < 0 and offset == 0):
                parts.append({**part, "level": part["level"] - offset if level >= 0 else 0})
                numbers.append(number)
        known: dict[str, Integers] = {}
        for name in facts["in_rows"]:
            if name not in (PUBLIC, LISTED, TOTALS, PLACES):
                raise ReleaseError(f"{MEASUREMENTS} does not say in a way that is known what is in its rows: {name!r}")
            own = tree.regions if name == LISTED else tree
            leaves = self._values(name, own.ids[own.level_slice(own.depth - 1)], whole=False)
            known[name] = np.asarray(own.aggregate(leaves.flatten().to_numpy()))
        without = {key: value for key, value in facts.items() if key != "passed"}
        found = without_values({**without, "measured": parts}, tree, known)
        for number, part in zip(numbers, found.measured, strict=True):
            own, rows = found.regions_of(part.level, part.summed)
            values = self._values(str(number), own.ids[rows], whole=whole).flatten().to_numpy()
            part.values[...] = values.reshape(part.values.shape)
        return found

    def _values(self, name: str, ids: Sequence[str], *, whole: bool) -> Any:
        """The lists of values of these rows of the tree, in their order."""
        import pyarrow as pa

        rows = _rows(self.folder / MEASUREMENTS, "region", None if whole else ids, measurement=name)
        if not rows["region"].combine_chunks().equals(pa.array(ids, pa.string())):
            raise ReleaseError(f"{MEASUREMENTS} does not have one row for each region, in the order of the regions")
        return rows["values"].combine_chunks()


def _rows(
    path: Path, column: str, texts: Sequence[str] | None, *, columns: Sequence[str] | None = None, **also: str
) -> Any:
    """The rows of a Parquet file that have one of these texts (None: any) in a column: a pyarrow Table."""
    from pyarrow import dataset

    check_regular(path)
    field, conditions = dataset.field(column), [dataset.field(name) == text for name, text in also.items()]
    if texts is not None:  # by the least and the greatest, groups of rows are left out
        conditions += [field >= min(texts), field <= max(texts), field.isin(list(texts))]
    condition = None
    for one in conditions:
        condition = one if condition is None else condition & one
    rows = dataset.dataset(path, format="parquet")
    return rows.to_table(filter=condition, columns=None if columns is None else list(columns))
