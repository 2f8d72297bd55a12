"""`ReleaseContents`: all that the files of a release are written from. Everything in it is public."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.notebook import briefly
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import entities, size_label
from tallytree.domain.long_table import region_blocks
from tallytree.mechanisms import Mechanism
from tallytree.privacy.measurements import Measurements
from tallytree.publish.release.areas import Area
from tallytree.publish.release.entities import entity_table
from tallytree.publish.release.error_bars import NO_ERROR_BARS, ErrorBars
from tallytree.publish.release.fallback import Fallback
from tallytree.publish.release.rows import TableRows, category_description
from tallytree.publish.release.scope import area_scopes, unions_of
from tallytree.publish.release.truncation import count_description


@dataclass(frozen=True, eq=False)
class ReleaseContents:
    """Counts of groups by region and size, with the measurements and the mechanism that they came from.

    `counts` is `[regions, sizes]` in the order of `hierarchy`; the last of the `sizes` stands for all larger ones too.
    With categories, `hierarchy` is the tree of regions by category (`hierarchy.regions` are the regions themselves).
    """

    counts: Integers
    measurements: Measurements
    made_by: Mechanism  # with its options
    certificate: str
    title: str
    error_bars: ErrorBars = NO_ERROR_BARS
    fallback: Fallback | None = None  # where the mechanism that was asked for failed
    areas: tuple[Area, ...] = ()  # whose totals are published beside the counts
    partial: bool = False  # is it of some regions of a large release, read without the others?
    folder: Path | None = field(default=None, repr=False)  # of its run; stays with the data holder, in no file

    __repr__ = briefly

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""
        return self.made_by.name

    @property
    def options(self) -> dict[str, Any]:
        """The mechanism's options, in plain values."""
        return self.made_by.options

    @property
    def hierarchy(self) -> Hierarchy:
        """The regions."""
        return self.measurements.hierarchy

    @cached_property
    def rows(self) -> TableRows:
        """The rows of the table, and where their numbers are."""
        return TableRows(self.hierarchy)

    @property
    def sizes(self) -> range:
        """What the columns of `counts` stand for."""
        return range(self.measurements.first_size, self.measurements.max_size + 1)

    @property
    def total(self) -> int:
        """How many groups were released in all; exact where the list of groups is public, otherwise an estimate."""
        return int(self.counts[0].sum())

    @property
    def entities(self) -> Integers:
        """The number of entities of every row of `counts`: Σ size · count, so the last size counts as just that."""
        return entities(self.counts, self.sizes.start)

    def entities_table(self) -> Any:
        """One row per region: a pyarrow Table with level, region (its id), name, entities, open_groups and intervals.

        `open_groups` are those of the last size or more, which count as that size: where there are any, the number of
        entities is a lower bound. Columns of intervals, and of categories, are as in `table`.
        """
        return entity_table(self.rows, self.measurements.neighbours, self.sizes, self.all_counts, self.error_bars)

    @property
    def schema(self) -> Any:
        """The pyarrow schema of `table`; descriptions and the level of confidence are in its metadata."""
        return self._schema("level", "region", "name")

    def _schema(self, *keys: str) -> Any:
        import pyarrow as pa

        confidence, by = str(self.error_bars.confidence), self.rows.categories
        return pa.schema(
            [
                *((key, pa.string()) for key in keys),
                *(pa.field(name, pa.string(), metadata={"description": category_description(name)}) for name in by),
                pa.field("size", pa.int32(), metadata={"description": size_description(self.sizes[-1])}),
                pa.field(
                    "count", pa.int64(), metadata={"description": count_description(self.measurements.neighbours)}
                ),
                *(
                    pa.field(name, pa.int64(), metadata={"description": text, "confidence": confidence})
                    for name, text in self.error_bars.describe().items()
                ),
            ]
        )

    def table(self) -> Any:
        """One row per region and size: a pyarrow Table with level, region (its id), name, size, count and intervals.

        With categories there is a column for each after the name, and rows for "all", the sums over its values.

        `lower` and `upper` are guaranteed, `typical_lower` and `typical_upper` typical; a column that the release
        cannot fill is null, and the description in its metadata says why.
        """
        return self._rows(range(len(self.rows)))

    def batches(self, *, zeros: bool = True) -> Iterator[Any]:
        """The rows of `table`, a block of regions at a time; without the zero cells if asked."""
        import pyarrow as pa

        counts = self.all_counts
        for block in region_blocks(range(len(self.rows)), len(self.sizes)):
            rows = self._rows(block)
            nonzero = counts[self.rows.order[block.start : block.stop]].ravel() != 0
            yield rows if zeros else rows.filter(pa.array(nonzero))

    def area_table(self) -> Any:
        """One row per published area and size: a pyarrow Table with kind, area, size, count and the same intervals.

        With categories there are columns and rows for these as in `table`.
        """
        import pyarrow as pa

        scopes, slots = area_scopes(self.areas, self.hierarchy), len(self.rows.values)
        width = len(self.sizes)
        columns: dict[str, Any] = {
            "kind": [area.kind for area in self.areas for _ in range(slots * width)],
            "area": [area.name for area in self.areas for _ in range(slots * width)],
            **{
                name: [scope.values[at] for scope in scopes for _ in self.sizes]
                for at, name in enumerate(self.rows.categories)
            },
            "size": np.tile(np.array(self.sizes, np.int32), len(scopes)),
            "count": unions_of(scopes, self.hierarchy).add_up(self.counts).ravel(),
        }
        for name, cells in self.error_bars.area_columns.items():
            columns[name] = pa.nulls(len(scopes) * width, pa.int64()) if cells is None else cells.ravel()
        return pa.table(columns, schema=self._schema("kind", "area"))

    def _rows(self, block: range) -> Any:
        import pyarrow as pa

        places = self.rows.order[block.start : block.stop]
        counted = {"count": self.all_counts, **self.error_bars.columns}
        values = {
            name: pa.nulls(len(block) * len(self.sizes), pa.int64()) if cells is None else cells[places].ravel()
            for name, cells in counted.items()
        }
        columns = {**self.rows.keys(block, self.sizes), **values}
        return pa.table({name: columns[name] for name in self.schema.names}).cast(self.schema)

    @cached_property
    def all_counts(self) -> Integers:
        """The counts with sums over categories after them, laid out as `rows` says; without categories just these."""
        found: Integers = self.rows.lay_out(self.counts)
        return found


def size_description(max_size: int) -> str:
    """What the column `size` means, wherever it appears."""
    return f"entities in the group; {max_size} stands for {size_label(max_size, max_size)}"
