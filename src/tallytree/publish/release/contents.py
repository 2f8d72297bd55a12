"""`ReleaseContents`: everything that the files of a release are written from. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly, did_you_mean
from tallytree.domain.categories import ALL
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import entities, size_label
from tallytree.estimate.intervals.interval import Kind
from tallytree.mechanisms import Mechanism
from tallytree.privacy.measurements import Measurements
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.release.areas import Area
from tallytree.publish.release.descriptions import capped_sizes, count_description, entity_description, open_description
from tallytree.publish.release.error_bars import NO_ERROR_BARS, ErrorBars
from tallytree.publish.release.fallback import Fallback
from tallytree.publish.release.queries import By, area_scopes, level_named, read_by, unions_of
from tallytree.publish.release.table_layout import (
    COUNTS,
    ENTITIES,
    REGIONS,
    REGIONS_CSV,
    TableRows,
    category_description,
    is_small,
    parts,
)
from tallytree.publish.table import NOTHING, Key, Measure, Table

Tables = Literal["counts", "entities", "areas"]
GROUPS = "groups"  # a unit
RELEASE_ID = "_release_id"  # not a field, so that a copy with other contents does not have it
NO_ZEROS = "; cells that are zero are left out"
LEFT_OUT = (
    "a cell without a row has count 0, and both its intervals start at 0; their largest upper end is stated for each "
    "level, and guaranteed ones can be computed exactly from the measurements"
)
SUMS = "sums of the released counts over the leaves of each area, so they agree with these and cost no privacy"
# Stated for names; it is true of all texts in CSV files.
MARKED = (
    "; in CSV files a text that a spreadsheet would take for a formula has an apostrophe (') in front, in Parquet "
    "files all are exact"
)


@dataclass(frozen=True, eq=False)
class ReleaseContents:
    """Counts of groups by region and size, with their measurements and mechanism.

    `counts` is `[regions, sizes]` in the order of `hierarchy`; the last of the `sizes` stands for all larger ones too.
    With categories, `hierarchy` is the tree of regions by category (`hierarchy.regions` are the regions themselves).
    """

    counts: Integers
    measurements: Measurements
    made_by: Mechanism  # with its options
    certificate: str
    title: str
    about: About = NOT_STATED
    error_bars: ErrorBars = NO_ERROR_BARS
    fallback: Fallback | None = None  # if the requested mechanism failed
    areas: tuple[Area, ...] = ()  # whose totals are published beside the counts
    partial: bool = False  # holds some regions of a large release, read without the others
    folder: Path | None = field(default=None, repr=False)  # of its run; for the data holder, in no file

    __repr__ = briefly

    @property
    def release_id(self) -> str | None:
        """Return the id that the release was loaded or last saved with, or None before that."""
        found: str | None = self.__dict__.get(RELEASE_ID)
        return found

    @property
    def mechanism(self) -> str:
        """Return the mechanism's name."""
        return self.made_by.name

    @property
    def options(self) -> dict[str, Any]:
        """Return the mechanism's options, in plain values."""
        return self.made_by.options

    @property
    def hierarchy(self) -> Hierarchy:
        """Return the regions."""
        return self.measurements.hierarchy

    @cached_property
    def rows(self) -> TableRows:
        """Return the layout of the table's rows and of their numbers."""
        return TableRows(self.hierarchy)

    @property
    def sizes(self) -> range:
        """Return the sizes of the columns of `counts`."""
        return range(self.measurements.first_size, self.measurements.max_size + 1)

    @property
    def total(self) -> int:
        """Return the released number of groups: exact if the list of groups is public, otherwise an estimate."""
        return int(self.counts[0].sum())

    @property
    def entities(self) -> Integers:
        """The number of entities of every row of `counts`: Σ size · count, so the last size counts as just that."""
        return entities(self.counts, self.sizes.start)

    @property
    def is_small(self) -> bool:
        """Return whether every table has one part, a row for every cell, and a CSV file beside it."""
        return is_small(self.hierarchy, len(self.sizes))

    def recommended(self, what: str, place: str, values: Sequence[str] = ()) -> Kind | None:
        """Return the kind of interval that is recommended for numbers of a level or a kind of area.

        Parameters
        ----------
        what : str
            The table: "counts", "entities" or "areas".
        place : str
            The level, or the kind of area.
        values : list of str, optional
            A value for each category; "all" stands for the sum over a category.

        Returns
        -------
        {"guaranteed", "typical"} or None
            The kind; None without intervals.
        """
        level = f"{place}, {self.hierarchy.levels[0]}" if ALL in values else place
        return self.error_bars.recommended(what, level)

    @property
    def counts_table(self) -> Table:
        """Return the table of groups of each size in every region."""
        neighbours, sizes = self.measurements.neighbours, self.sizes
        return Table(
            name=COUNTS,
            title=f"{self.title}: groups by size",
            description=f"How many groups of each size there are in every region{'' if self.is_small else NO_ZEROS}",
            keys=(*self._places, self._size),
            measures=(Measure("count", count_description(neighbours), GROUPS), *self._ends("counts")),
            confidence=self.error_bars.confidence,
            width=len(sizes),
            parts=self._parts(COUNTS),
            rows=self._count_rows,
            zeros=self.is_small,
            in_folders=() if self.is_small else ("level",),
        )

    @property
    def entity_table(self) -> Table:
        """Return the table of entities in every region; `open_groups` are those of the last size or more.

        These count as the last size. If there are any, the number of entities is a lower bound.
        """
        neighbours, largest = self.measurements.neighbours, self.sizes[-1]
        numbers = (
            Measure("entities", entity_description(neighbours, largest), ENTITIES),
            Measure("open_groups", open_description(largest), GROUPS),
        )
        return Table(
            name=ENTITIES,
            title=f"{self.title}: entities ({capped_sizes(largest)})",
            description=f"How many entities there are in every region ({capped_sizes(largest)})",
            keys=self._places,
            measures=(*numbers, *self._ends("entities")),
            confidence=self.error_bars.confidence,
            width=1,
            parts=self._parts(ENTITIES),
            rows=self._entity_rows,
            in_folders=() if self.is_small else ("level",),
        )

    @property
    def areas_table(self) -> Table:
        """Return the table of groups of each size in every published area."""
        return self._areas_table("areas", range(len(self.areas)))

    @property
    def area_tables(self) -> tuple[Table, ...]:
        """Return the same by kind of area: the areas of a kind have different names, so each table is a full cube."""
        kinds = list(dict.fromkeys(area.kind for area in self.areas))
        starts = [[area.kind for area in self.areas].index(kind) for kind in kinds]
        numbers = enumerate(pairwise([*starts, len(self.areas)]), start=1)
        return tuple(
            self._areas_table("areas" if len(kinds) == 1 else f"areas_{number}", range(*ends))
            for number, ends in numbers
        )

    def _areas_table(self, table: str, some: range) -> Table:
        """Return the table of some of the areas, which are listed kind by kind."""
        areas, slots = self.areas[some.start : some.stop], len(self.rows.values)
        names, kinds = [area.name for area in areas], list(dict.fromkeys(area.kind for area in areas))
        kind = Key("kind", f"kind of area{MARKED}", kinds, kinds)
        area = Key("area", f"name of the area, unique within its kind{MARKED}", names, names)
        return Table(
            name=table,
            title=f"{self.title}: areas{f' ({kinds[0]})' if len(kinds) == 1 else ''}",
            description=f"How many groups of each size there are in every area: {SUMS}",
            keys=(kind, area, *self._places[3:], self._size),
            measures=self.counts_table.measures,
            confidence=self.error_bars.confidence,
            width=len(self.sizes),
            parts=(("areas.parquet", range(some.start * slots, some.stop * slots)),),
            rows=self._area_rows,
        )

    def table(self, level: str | None = None, by: By = None, *, of: Tables = "counts") -> Any:
        """Return the rows of a published table as a pyarrow Table.

        Ends of intervals are `lower` and `upper` (guaranteed), `typical_lower` and `typical_upper`. A column that the
        release cannot fill is null, and the description in its metadata says why.

        Parameters
        ----------
        level : str, optional
            The name of a level. All levels by default.
        by : mapping, optional
            Values of categories, such as ``{"tenure": "rented"}``, or "all" for the sum over a category's values. A
            category that is not named has all its rows.
        of : {"counts", "entities", "areas"}, default "counts"
            Which table: groups by region and size, entities by region, or groups by custom area and size.

        Returns
        -------
        pyarrow.Table
            One row per region and size: level, region (its id), name, categories, size, count and intervals. Entities
            have one row per region, and areas have `kind` and `area` in place of the region.

        Raises
        ------
        SpecError
            If the level, a category or the table is unknown.

        Examples
        --------
        >>> release.table(level="county").column("region").unique().to_pylist()
        ['X', 'Y']
        >>> release.table(of="entities").column_names[:5]
        ['level', 'region', 'name', 'entities', 'open_groups']
        """
        read_by(by, self.hierarchy.by)  # refuses what it does not know
        table, places = self._described(of), None
        if level is not None:
            if of == "areas":
                raise SpecError(f"areas have no levels, so level = {told(level)} cannot name one")
            rows, slots = level_named(level, self.hierarchy.regions), len(self.rows.values)
            places = range(rows.start * slots, rows.stop * slots)
        return table.whole(places, by or NOTHING)

    def _described(self, of: str) -> Table:
        """Return a published table with its description; refuse an unknown name."""
        if of not in get_args(Tables):
            raise SpecError(f"there is no table {told(of)}; {did_you_mean(str(of), get_args(Tables))}")
        return {"counts": self.counts_table, "entities": self.entity_table, "areas": self.areas_table}[of]

    def entities_table(self) -> Any:
        """Return the number of entities of every region as a pyarrow Table; short for ``table(of="entities")``.

        `open_groups` are those of the last size or more, which count as that size: where there are any, the number of
        entities is a lower bound.
        """
        return self.table(of="entities")

    def area_table(self) -> Any:
        """Return the counts of every published area as a pyarrow Table; short for ``table(of="areas")``."""
        return self.table(of="areas")

    # ---------------------------------------------------------------- columns

    @property
    def _places(self) -> tuple[Key, ...]:
        """Return level, region and name, and the categories, each with the code "all" for the sums over it."""
        regions, rows = self.hierarchy.regions, self.rows
        listed = REGIONS_CSV if self.is_small else REGIONS
        by = [
            Key(name, category_description(name), codes, codes)
            for name, codes in zip(rows.categories, rows.codes, strict=True)
        ]
        return (
            Key("level", "name of the level"),
            Key(
                "region", f"id of the region, as in {listed}", regions.ids, regions.names, regions.parents, unique=True
            ),
            Key("name", f"display name of the region{MARKED if self.is_small else ''}", unique=True),
            *by,
        )

    @property
    def _size(self) -> Key:
        codes, last = tuple(map(str, self.sizes)), self.sizes[-1]
        labels = tuple(size_label(size, last) for size in self.sizes)
        return Key("size", f"entities in the group; {last} stands for {labels[-1]}", codes, labels, whole=True)

    def _ends(self, what: Literal["counts", "entities"]) -> tuple[Measure, ...]:
        bars = self.error_bars
        texts, found = bars.describe(what, self.sizes[-1]), bars.columns_of(what)
        unit = GROUPS if what == "counts" else ENTITIES
        return tuple(
            Measure(name, text, unit, found[name] is not None, bars.confidence) for name, text in texts.items()
        )

    def _parts(self, table: str) -> tuple[tuple[str, range], ...]:
        slots = len(self.rows.values)
        return tuple(
            (part.file(table), range(part.regions.start * slots, part.regions.stop * slots))
            for part in parts(self.hierarchy, len(self.sizes))
        )

    def _count_rows(self, block: range, zeros: bool) -> dict[str, Any]:
        some = self._laid_out(block)
        columns = {"count": self.all_counts[some], **_of_places(self.error_bars.columns, some)}
        cells, places, sizes = self._cells(columns["count"], zeros)
        return {**self.rows.keys(block.start + places), "size": sizes, **_numbers(columns, cells)}

    def _entity_rows(self, block: range, zeros: bool) -> dict[str, Any]:
        del zeros  # every region has a row
        some, every = self._laid_out(block), np.arange(len(block))
        counts, ends = self.all_counts[some], self.error_bars.columns_of("entities")
        columns = {"entities": entities(counts, self.sizes.start), "open_groups": counts[:, -1]}
        return {**self.rows.keys(block.start + every), **_numbers(columns | _of_places(ends, some), every)}

    def _area_rows(self, block: range, zeros: bool) -> dict[str, Any]:
        import pyarrow as pa

        some = slice(block.start, block.stop)
        scopes = area_scopes(self.areas, self.hierarchy)[some]
        counts = unions_of(scopes, self.hierarchy).add_up(self.counts)
        cells, places, sizes = self._cells(counts, zeros)
        areas = [self.areas[place // len(self.rows.values)] for place in block]
        texts = {
            "kind": [area.kind for area in areas],
            "area": [area.name for area in areas],
            **{name: [scope.values[at] for scope in scopes] for at, name in enumerate(self.rows.categories)},
        }
        return {
            **{name: pa.array(each, pa.string()).take(pa.array(places)) for name, each in texts.items()},
            "size": sizes,
            **_numbers({"count": counts, **_of_places(self.error_bars.columns_of("areas"), some)}, cells),
        }

    def _cells(self, counts: Integers, zeros: bool) -> tuple[Integers, Integers, Integers]:
        """Return the rows of some places: their cells, and the place and the size of each."""
        cells = np.arange(counts.size) if zeros else np.flatnonzero(counts)
        places, sizes = np.divmod(cells, len(self.sizes))
        return cells, places, (sizes + self.sizes.start).astype(np.int32)

    def _laid_out(self, block: range) -> Any:
        """Return the laid-out rows of the places of a block."""
        if not self.rows.categories:
            return slice(block.start, block.stop)
        return self.rows.order[block.start : block.stop]

    @cached_property
    def all_counts(self) -> Integers:
        """Return the counts followed by sums over categories, as `rows` lays them out."""
        found: Integers = self.rows.lay_out(self.counts)
        return found


def _of_places(columns: Mapping[str, Integers | None], some: Any) -> dict[str, Integers | None]:
    return {name: None if one is None else one[some] for name, one in columns.items()}


def _numbers(columns: Mapping[str, Integers | None], cells: Integers) -> dict[str, Any]:
    """Return columns of numbers for some cells; empty columns for None."""
    import pyarrow as pa

    return {
        name: pa.nulls(len(cells), pa.int64()) if one is None else one.ravel()[cells] for name, one in columns.items()
    }
