"""The files of a release directory: write them, and read them as a whole or in part.

A part of a release is a release of a smaller tree: some regions of one level with everything below them, down to the
lowest level that is needed. Their measurements give valid bounds, as those of the whole tree do, though wider ones. If
several regions have no common parent in the part, an artificial root holds them together: it was not measured, and
queries never use it. Files, row groups and columns that are not needed are not read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.numbers import short
from tallytree.core.progress import Progress, Stage, in_percent, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.interval import Intervals, Kind, checked_level
from tallytree.mechanisms import Mechanism, mechanism_named
from tallytree.privacy.measurements import BESIDE_SIZES, Measurements
from tallytree.publish.about import About
from tallytree.publish.folder import MANIFEST, MEASUREMENTS, PACKAGE, PRIVACY, UNUSABLE, check_form, reason, write_json
from tallytree.publish.release.areas import AREAS, LEAVES, MOST_CELLS, Area, read_leaves, write_leaves
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import truncation
from tallytree.publish.release.error_bars import (
    COLUMNS,
    ENDS,
    KINDS,
    NO_ERROR_BARS,
    ErrorBars,
    Reach,
    What,
    checked_which,
    intervals_in,
)
from tallytree.publish.release.fallback import Fallback
from tallytree.publish.release.measurements_file import (
    MOST_ROWS,
    arrays_in,
    load_measurements,
    stored_facts,
    tree_by_category,
    without_values,
    write_measurements,
)
from tallytree.publish.release.queries import listed
from tallytree.publish.release.release_statement import data_package, privacy_statement, public_totals
from tallytree.publish.release.table_layout import (
    COUNTS,
    REGIONS,
    TableRows,
    files_of,
    parts,
    region_table,
    upper_levels,
)
from tallytree.publish.table import Table
from tallytree.publish.untrusted import ParquetRows, all_rows, check_regular, check_room, read_json

FACTS = (REGIONS, MEASUREMENTS, PRIVACY, PACKAGE)  # beside the files of counts and entities
NULL = -1  # stands for an empty cell among the ends of intervals
EXCERPT = (
    "Only these regions of the release were read. If a query covers several sizes, guaranteed intervals use the "
    "measurements of these regions, or of their parts, alone; with the whole tree they are narrower. Use --whole, or "
    "Release.load in Python, to read the whole tree and to get typical intervals too."
)
MADE_UP = "the regions of the query"  # id and name of the artificial root
REGION_COLUMNS = ("region", "name", "level", "parent", "copy_of")
Pieces = Iterable[tuple[range, Any]]  # rows of a table, and the regions that may appear in them


# -------------------------------------------------------------------- writing


def write_files(release: ReleaseContents, folder: Path, progress: Progress = silent) -> list[str]:
    """Write all files of a release except the manifest and return their names."""
    measurements, names = release.measurements, []
    regions = region_table(release.hierarchy, public_totals(measurements), REGIONS)
    for table in (release.counts_table, release.entity_table, regions):
        names += table.write(folder, progress, csv=release.is_small)
    write_measurements(measurements, folder / MEASUREMENTS, in_percent("writing the measurements", progress))
    write_json(folder / PRIVACY, privacy_statement(release))
    write_json(folder / PACKAGE, data_package(release))
    names += [MEASUREMENTS, PRIVACY, PACKAGE]
    if release.areas:
        names += [*release.areas_table.write(folder, csv=True), LEAVES]
        write_leaves(release.areas, release.hierarchy.regions, folder / LEAVES)
    progress(Stage("taking digests"))
    return names


# -------------------------------------------------------------------- reading


def read_release(folder: Path) -> ReleaseContents:
    """Read a saved release without verifying it; `verify` checks it."""
    with _reading(folder):
        return _Stored(folder).whole()


def read_for(folder: Path, regions: Iterable[str] | None, level: str | None = None) -> ReleaseContents:
    """Read the part of a release that a query needs: some regions, or all regions of a level within them.

    Regions are ids or names; None is the root. A small release is read whole.
    """
    with _reading(folder, (SpecError,)):
        source = _Stored(folder)
        if not source.partitioned:
            return source.whole()
        names = None if regions is None else list(regions)
        found = [source.root] if not names else source.find(names)
        levels = {source.levels.index(row["level"]) for row in found}
        if level is not None:
            if level not in source.levels:
                raise SpecError(f"there is no level {short(level)}; {did_you_mean(level, source.levels)}")
            levels.add(source.levels.index(level))
        return source.excerpt(found, min(levels), max(levels))


def read_upper(folder: Path, most: int) -> ReleaseContents:
    """Read the upper levels with at most so many cells (not counting the root's); a small release is read whole."""
    with _reading(folder):
        source = _Stored(folder)
        if not source.partitioned:
            return source.whole()
        cells = np.array([source.cells_of(level) for level in range(len(source.levels))])
        return source.excerpt([source.root], 0, upper_levels(cells, most) - 1, upper=True)


@contextmanager
def _reading(path: Path, mistakes: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn errors that bad files cause into a ReleaseError, except the user's own `mistakes`."""
    try:
        yield
    except UNUSABLE as error:
        if isinstance(error, (ReleaseError, *mistakes)):
            raise
        raise ReleaseError(f"{path} cannot be used: {reason(error)}") from None


def stated_mechanism(statement: Mapping[str, Any]) -> Mechanism:
    """Return the mechanism that a privacy statement names, with its options."""
    stated = statement["mechanism"]
    return mechanism_named(stated["name"]).configured(stated["options"])


def stated_fallback(statement: Mapping[str, Any]) -> Fallback | None:
    """Return which mechanism failed before the stated one was used, if any."""
    stated = statement["mechanism"]
    if "asked_for" not in stated:
        return None
    asked = stated["asked_for"]
    return Fallback(mechanism_named(asked["name"]).configured(asked["options"]), stated["failed_because"])


def read_areas_of(folder: Path, statement: Mapping[str, Any], tree: Hierarchy, sizes: int) -> tuple[Area, ...]:
    """Return the areas whose totals a release publishes, or raise a ReleaseError."""
    if "areas" not in statement:
        return ()
    with _reading(folder / LEAVES):
        return read_leaves(folder / LEAVES, tree, sizes)


def _stated_bars(statement: Mapping[str, Any], measurements: Measurements) -> ErrorBars:
    """Return the privacy statement's entries on intervals; `verify` checks whether they are true."""
    intervals, told = statement.get("intervals"), truncation(measurements.neighbours)
    if intervals is None:
        return replace(NO_ERROR_BARS, truncation=told)
    which, confidence = checked_which(intervals["which"]), checked_level(intervals["confidence"])
    missing = {kind: intervals.get(kind, "") for kind in KINDS[which] if intervals.get(kind, "") != "given"}
    try:
        reach: Reach = {
            what: {
                level: {kind: int(of[kind]) for kind in get_args(Kind) if kind in of} for level, of in levels.items()
            }
            for what, levels in intervals["reach"].items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ReleaseError(f"{PRIVACY} is damaged: intervals.reach cannot be read") from error
    return ErrorBars(which, confidence, {}, missing, told, reach)


@dataclass(frozen=True, eq=False)
class _Stored:
    """The directory of a release."""

    folder: Path

    def __post_init__(self) -> None:
        if os.path.lexists(self.folder / MANIFEST):
            check_form(self.folder, do="read")
        if not os.path.lexists(self.folder / REGIONS):
            raise ReleaseError(f"{self.folder / REGIONS} is missing: {self.folder} is not a release of counts")
        if not os.path.lexists(self.folder / MEASUREMENTS):
            raise ReleaseError(
                f"{self.folder / MEASUREMENTS} is missing: without its measurements a release cannot be checked, and "
                "its error is unknown"
            )

    @property
    def partitioned(self) -> bool:
        """Return whether the tables have several parts."""
        return (self.folder / COUNTS).is_dir()

    @cached_property
    def statement(self) -> dict[str, Any]:
        return read_json(self.folder / PRIVACY)

    def whole(self) -> ReleaseContents:
        """Read all of the release."""
        measurements = load_measurements(self.folder / MEASUREMENTS)
        tree, sizes = measurements.hierarchy, measurements.columns("counts")
        areas = read_areas_of(self.folder, self.statement, tree, sizes)
        found = self._contents(measurements, lambda table: self._all_pieces(table, tree, sizes), areas=areas)
        return self._with_area_bars(found)

    def _all_pieces(self, table: str, tree: Hierarchy, sizes: int) -> Iterator[tuple[range, Any]]:
        """Yield all rows of a table part by part; never more rows than the regions can have."""
        most = len(TableRows(tree).values) * (sizes if table == COUNTS else 1)
        for part in parts(tree, sizes):
            with ParquetRows(self.folder / part.file(table), most=2 * len(part.regions) * most + 1000) as file:
                for group in file.groups:
                    yield part.regions, file.group(group)

    def _contents(
        self,
        measurements: Measurements,
        pieces: Callable[[str], Pieces],
        *,
        areas: tuple[Area, ...] = (),
        partial: bool = False,
        entities: bool = True,
    ) -> ReleaseContents:
        """Return the release of these measurements, with the tables' rows from `pieces`.

        If zero cells are written, no row may be missing, unless the release is `partial`. Otherwise a missing cell has
        count 0,
        and its intervals reach from 0 to the end that the statement gives for its level.
        """
        statement, bars = self.statement, _stated_bars(self.statement, measurements)
        empty = ReleaseContents(
            counts=np.zeros((0, 0), np.int64),
            measurements=measurements,
            made_by=stated_mechanism(statement),
            certificate=statement["certificate"],
            title=statement["title"],
            about=About.of(statement.get("about")),
            fallback=stated_fallback(statement),
            error_bars=bars,
            areas=areas,
            partial=partial,
        )
        check_room(empty.rows.laid_out * len(empty.sizes), COUNTS)
        rows, kinds = empty.rows, [kind for kind in KINDS[bars.which] if kind not in bars.missing]
        found: dict[What, dict[Kind, Intervals]] = {}
        counts = empty.counts
        for table in (empty.counts_table, empty.entity_table) if entities else (empty.counts_table,):
            try:
                ends, seen = read_columns(table, pieces(table.name), rows)
                if table.name == COUNTS and statement["zero_cells"] != "written":
                    _fill_left_out(ends, seen, rows, statement.get("intervals", {}).get("left_out_at_most", {}))
                elif not partial and not seen[rows.order].all():
                    raise ReleaseError(_missing(seen, rows, empty.sizes))
            except ReleaseError as error:
                raise ReleaseError(f"the {table.name} in {self.folder} are damaged: {error}") from None
            ends[table.measures[0].name][~seen] = 0
            _put_root(rows, *ends.values())
            if table.name == COUNTS:
                counts = ends["count"]
                found["counts"] = intervals_in(ends, kinds, bars.confidence)
            else:
                flat = {name: one[:, 0] for name, one in ends.items()}
                found["entities"] = intervals_in(flat, kinds, bars.confidence)
        return replace(empty, counts=counts[: len(rows.tree)], error_bars=replace(bars, of=found))

    def _with_area_bars(self, release: ReleaseContents) -> ReleaseContents:
        """Return the release with the intervals of its areas."""
        bars = release.error_bars
        if not release.areas or bars.which == "none":
            return release
        shape = len(release.areas) * len(release.rows.values), len(release.sizes)
        rows = all_rows(self.folder / AREAS, most=MOST_CELLS)
        if rows.num_rows != prod(shape):
            raise SpecError(f"{AREAS} does not have a row for each area and size")
        ends = {name: _numbers(rows[name]).reshape(shape) for name in COLUMNS[bars.which]}
        of_areas = intervals_in(ends, bars.of["counts"], bars.confidence)
        return replace(release, error_bars=replace(bars, of={**bars.of, "areas": of_areas}))

    # ---------------------------------------------------------------- parts of it

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
        """Return the number of cells of a level."""
        known = self.statement
        sizes = int(known["max_size"]) + bool(known["neighbours"]["public_totals"])
        slots = prod(1 + len(one["values"]) for one in known["neighbours"].get("categories", ()))
        return self._count(level) * sizes * slots

    # ---------------------------------------------------------------- regions

    def find(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the rows of regions by id or by unique name."""
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
                raise SpecError(f"{len(rows)} regions are called {short(text)}; give one of the ids: {some}")
            if not rows:
                raise SpecError(f"there is no region {short(text)}; {REGIONS} lists ids and names")
            found[text] = rows[0]
        return [found[text] for text in wanted]

    def _in_any_case(self, text: str) -> list[dict[str, Any]]:
        import pyarrow.compute as pc
        from pyarrow import dataset

        rows = dataset.dataset(self.folder / REGIONS, format="parquet")
        same = pc.utf8_lower(dataset.field("name")) == text.lower()
        return [
            row
            for row in rows.to_table(columns=list(REGION_COLUMNS), filter=same).to_pylist()
            if row["copy_of"] is None
        ]

    def _regions(self, column: str, texts: Sequence[str]) -> Any:
        return _rows(self.folder / REGIONS, column, texts, columns=REGION_COLUMNS)

    def _above(self, rows: Sequence[Mapping[str, Any]], level: int) -> list[str]:
        """Return the ids of the regions of a level that contain or equal some regions."""
        found, left = set(), list(rows)
        while left:
            found |= {row["region"] for row in left if row["level"] == self.levels[level]}
            higher = list({row["parent"] for row in left if row["level"] != self.levels[level]})
            left = self._regions("region", higher).to_pylist() if higher else []
        return sorted(found)

    def _tree(self, tops: Sequence[str] | None, top: int, lowest: int) -> tuple[Hierarchy, bool]:
        """Return the regions from some of a level (None: all) downwards, and whether the root is artificial."""
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
        """Return the release of those regions of level `top` that hold the found ones, as deep as needed.

        With `upper` it ends at the deepest level, measured or not, and includes numbers of entities.
        """
        if any(part["view"] == "chain" for part in self.facts["measured"]):
            return self.whole()  # such measurements are not about single regions
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
            return self.whole()
        regions, made_up = self._tree(tops, top, lowest)
        tree = tree_by_category(self.facts, regions)
        measurements = self._measurements(tree, top - made_up, whole=tops is None)
        above = [None] if tops is None or top == 0 else self._above(found, 1)

        def pieces(table: str) -> Pieces:
            return ((range(len(regions)), rows) for rows in self._pieces(table, regions, made_up, above))

        found_part = self._contents(measurements, pieces, partial=True, entities=upper)
        if not made_up:
            return found_part
        lowest_counts = found_part.counts[tree.level_slice(tree.depth - 1)]
        return replace(found_part, counts=np.asarray(tree.aggregate(lowest_counts)))

    def _level(self, part: Mapping[str, Any]) -> int:
        """Return the level of regions that a measurement is about; -1 for the one over all categories."""
        return int(part["level"]) - (self.facts["neighbours"].get("categories") is not None)

    def _count(self, level: int) -> int:
        from pyarrow import dataset

        rows = dataset.dataset(self.folder / REGIONS, format="parquet")
        return int(rows.count_rows(filter=dataset.field("level") == self.levels[level]))

    def _pieces(self, table: str, regions: Hierarchy, made_up: bool, above: Sequence[str | None]) -> Iterator[Any]:
        """Yield the rows of a table that are about these regions."""
        for place in range(int(made_up), regions.depth):
            level = self.levels.index(regions.levels[place])
            ids = regions.ids[regions.level_slice(place)]
            paths = [path for one in above for path in files_of(self.folder, table, self.levels, level, one)]
            for path in dict.fromkeys(paths):
                yield _rows(path, "region", None if above == [None] else ids)

    def _measurements(self, tree: Hierarchy, offset: int, *, whole: bool) -> Measurements:
        """Return the measurements of an excerpt's regions; its first level is level `offset` of the release.

        An artificial root has no level in the release. The level over all categories belongs to the real root.
        """
        facts, parts, numbers = self.facts, [], []
        first, last = max(offset, 0) + (tree.regions.ids[0] == MADE_UP), offset + tree.regions.depth - 1
        for number, part in enumerate(facts["measured"]):
            level = self._level(part)
            if first <= level <= last or (level < 0 and offset == 0):
                parts.append({**part, "level": part["level"] - offset if level >= 0 else 0})
                numbers.append(number)
        known: dict[str, Integers] = {}
        for name, own in arrays_in(facts, tree):
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
        """Return the lists of values of these rows of the tree, in their order."""
        import pyarrow as pa

        rows = _rows(self.folder / MEASUREMENTS, "region", None if whole else ids, measurement=name)
        if not rows["region"].combine_chunks().equals(pa.array(ids, pa.string())):
            raise ReleaseError(f"{MEASUREMENTS} does not have one row for each region, in the order of the regions")
        return rows["values"].combine_chunks()


# -------------------------------------------------------------------- rows of tables


def read_columns(table: Table, pieces: Pieces, rows: TableRows) -> tuple[dict[str, Integers], NDArray[np.bool_]]:
    """Return a table's measures as laid-out arrays `[rows, width]`, and which cells have a row.

    Rows that the table does not have, rows that appear twice, and rows that contradict the tree raise a ReleaseError.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    regions, shape = rows.tree.regions, (rows.laid_out, table.width)
    found = {measure.name: np.full(shape, NULL) for measure in table.measures}
    seen = np.zeros(shape, np.bool_)
    fields = [(field.name, field.type) for field in table.schema if field.name != "level"]
    filled = {"level", table.measures[0].name, *(key.name for key in table.keys)}
    for among, piece in pieces:
        if [(field.name, field.type) for field in piece.schema if field.name != "level"] != fields:
            raise ReleaseError(
                f"its columns are {piece.schema.names}, not {[name for name, _ in fields]}, or of other types"
            )
        if any(piece[name].null_count for name in piece.schema.names if name in filled):
            raise ReleaseError("some cells are empty")
        cells = table.cells_of(piece, among)
        for row in np.flatnonzero(cells < 0)[:1]:
            texts = [f"{key.name} {piece[key.name][row].as_py()!r}" for key in table.dimensions]
            raise ReleaseError(f"a row was added for {listed(texts)}, which the release does not have")
        region = cells // (table.cells // len(regions))
        levels = [regions.levels[level] for level in regions.level_of[among.start : among.stop]]
        own: dict[str, Sequence[str]] = {"level": levels, "name": regions.names[among.start : among.stop]}
        for name, right_ones in own.items():
            if name in piece.schema.names:
                right = pa.array(right_ones, pa.string()).take(pa.array(region - among.start))
                for row in np.flatnonzero(pc.not_equal(piece[name], right).to_numpy())[:1]:
                    raise ReleaseError(f"the {name} of region {regions.ids[region[row]]!r} is wrong")
        place = rows.by_code[cells // table.width] * table.width + cells % table.width
        ordered = np.sort(place)
        for cell in [*place[seen.ravel()[place]], *ordered[1:][np.diff(ordered) == 0]][:1]:
            raise ReleaseError(f"the row of {_cell(int(cell), table, rows)} appears twice")
        seen.ravel()[place] = True
        for measure in table.measures:
            column, what = piece[measure.name], measure.name if measure.confidence is None else f"{measure.name} end"
            given = _numbers(column)
            for row in np.flatnonzero((given < 0) & column.is_valid().to_numpy())[:1]:
                raise ReleaseError(f"the {what} of {_cell(int(place[row]), table, rows)} is negative")
            found[measure.name].ravel()[place] = given
    return found, seen


def _numbers(column: Any) -> Integers:
    import pyarrow.compute as pc

    found: Integers = pc.fill_null(column, NULL).to_numpy()
    return found


def _put_root(rows: TableRows, *values: NDArray[Any]) -> None:
    """Copy the tree's root from the first of the sums: with categories only the sums have rows for it."""
    for each in values if rows.categories else ():
        each[0] = each[len(rows.tree)]


def _fill_left_out(
    ends: dict[str, Integers], seen: NDArray[np.bool_], rows: TableRows, at_most: Mapping[str, Mapping[str, int]]
) -> None:
    """Give cells without a row the widest intervals that the statement allows them."""
    for level, places in rows.levels.items():
        for lower, upper in ENDS.values():
            if upper in ends and upper in at_most.get(level, {}):
                for column, value in ((lower, 0), (upper, at_most[level][upper])):
                    ends[column][places] = np.where(seen[places], ends[column][places], value)


def _missing(seen: NDArray[np.bool_], rows: TableRows, sizes: range) -> str:
    """Return the first missing row, or the first region without rows."""
    place = next(int(place) for place in rows.order if not seen[place].all())
    if not seen[place].any():
        return f"{rows.where(place)} is missing"
    return f"the row of {rows.where(place)}, size {sizes[int(np.argmin(seen[place]))]} is missing"


def _cell(cell: int, table: Table, rows: TableRows) -> str:
    row, place = divmod(cell, table.width)
    sizes = next((key.codes for key in table.keys if key.name == "size"), None)
    return rows.where(row) + ("" if sizes is None else f", size {sizes[place]}")


def _rows(
    path: Path, column: str, texts: Sequence[str] | None, *, columns: Sequence[str] | None = None, **also: str
) -> Any:
    """Return the rows of a Parquet file that have one of these texts (None: any) in a column, as a pyarrow Table."""
    from pyarrow import dataset

    check_regular(path)
    field, conditions = dataset.field(column), [dataset.field(name) == text for name, text in also.items()]
    if texts is not None:  # row groups are skipped by their minimum and maximum
        conditions += [field >= min(texts), field <= max(texts), field.isin(list(texts))]
    condition = None
    for one in conditions:
        condition = one if condition is None else condition & one
    rows = dataset.dataset(path, format="parquet")
    return rows.to_table(filter=condition, columns=None if columns is None else list(columns))
