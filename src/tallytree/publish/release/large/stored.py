"""`StoredLarge`: the directory of a large release as `verify` reads it, and what it promises.

Counts and intervals are computed again from the measurements, and the files are held against them one by one: so each
is read once, and never all of them together. What is checked of counts (that they add up, and so on) is checked of what
was computed, which is what the files hold, or a promise is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from tallytree.arrays import Integers
from tallytree.estimate.intervals.value import Intervals
from tallytree.hierarchy import Hierarchy
from tallytree.privacy.measurements import Measurements
from tallytree.progress import Progress, silent
from tallytree.publish.folder import MEASUREMENTS, MOST_FAULTS, PACKAGE, PRIVACY, Stored
from tallytree.publish.release import restated
from tallytree.publish.release import verification as whole
from tallytree.publish.release.area_files import AREA_FILES, with_area_bars
from tallytree.publish.release.error_bars import (
    COLUMNS,
    TYPICAL,
    ErrorBars,
    guaranteed_entity_rows,
    guaranteed_rows,
)
from tallytree.publish.release.files import Cells, stored_error_bars
from tallytree.publish.release.interval_checks import interval_words
from tallytree.publish.release.large.layout import COUNTS, ENTITIES, REGIONS, file_names, parts
from tallytree.publish.release.large.regions import read_regions
from tallytree.publish.release.large.tables import differences, read_counts, read_entity_ends
from tallytree.publish.release.measurements_file import read_measurements
from tallytree.publish.release.stored import StoredRelease

FILES = (REGIONS, MEASUREMENTS, PRIVACY, PACKAGE)


class StoredLarge(StoredRelease):
    """The files of a partitioned release directory."""

    optional = AREA_FILES

    def __init__(self, directory: Path, progress: Progress = silent) -> None:
        super().__init__(directory)
        self.progress = progress

    @property
    def expected(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of files that the manifest must list."""
        return (*FILES, *file_names(self.hierarchy))

    @property
    def tree_and_totals(self) -> tuple[Hierarchy, Integers | None]:
        """regions.parquet."""
        return self.once(REGIONS, lambda: read_regions(self.directory / REGIONS))

    @property
    def hierarchy(self) -> Hierarchy:
        """The regions."""
        return self.tree_and_totals[0]

    @property
    def regions(self) -> tuple[Hierarchy, list[str]]:
        """The regions, and public totals as text."""
        tree, totals = self.tree_and_totals
        return tree, [] if totals is None else list(map(str, totals.tolist()))

    @property
    def measurements(self) -> Measurements:
        """measurements.parquet."""
        return self.once(MEASUREMENTS, lambda: read_measurements(self.directory / MEASUREMENTS, self.hierarchy))

    @property
    def named(self) -> bool:
        """Names stand beside ids."""
        return True

    @property
    def counts_file(self) -> Path:
        """One of the files of counts: that all have the same columns is a promise."""
        return self.directory / next(parts(self.hierarchy)).file(COUNTS)

    @property
    def cells(self) -> Cells:
        """All counts and intervals of the files; what looks at them one by one does without."""
        return self.once(COUNTS, self._cells)

    def _cells(self) -> Cells:
        counts, ends = read_counts(self.directory, self.hierarchy, self.sizes, self.statement)
        return Cells(counts, ends, [], counts)

    @property
    def counts(self) -> Integers:
        """What follows from the measurements."""
        return self.estimate.counts

    def _error_bars(self) -> ErrorBars:
        """Guaranteed intervals as they follow from the measurements; typical ones as they are in the files."""
        stated = self.intervals
        if stated is None:
            return stored_error_bars(Cells(self.counts, {}, []), None, self.truncation)
        ends: dict[str, Integers] = {}
        if stated["which"] == "all":
            ends = {name: self.cells.ends[name] for name in TYPICAL}
        again = guaranteed_rows(self.measurements, self.counts, stated["confidence"])
        ends |= {} if again is None else {"lower": again.lower, "upper": again.upper}
        bars = stored_error_bars(Cells(self.counts, ends, []), stated, self.truncation)
        bars = with_area_bars(self.directory, bars, self.areas, self.sizes, 1)
        bars = replace(
            bars, entities_guaranteed=guaranteed_entity_rows(self.measurements, self.counts, bars.confidence)
        )
        if bars.typical is None:
            return bars
        found = read_entity_ends(self.directory, COLUMNS["all"], self.hierarchy)
        typical = Intervals(found[TYPICAL[0]], found[TYPICAL[1]], bars.confidence, "typical")
        return replace(bars, entities_typical=typical)


def _tables_follow(stored: StoredLarge) -> Iterator[str]:
    but = TYPICAL if stored.typical_can_follow else ()  # which are another promise
    for table in (COUNTS, ENTITIES):
        yield from differences(stored.contents, stored.directory, table, stored.progress, but=but)


def _public_totals(stored: StoredLarge) -> Iterator[str]:
    tree, totals = stored.tree_and_totals
    known, settled = stored.measurements.region_totals, stored.measurements.settled.totals
    if (known is None) != (totals is None) or (
        known is not None and totals is not None and not np.array_equal(known, totals)
    ):
        yield f"{REGIONS} and {MEASUREMENTS} give different public totals"
    if known is not None and not np.array_equal(tree.aggregate(known[tree.level_slice(tree.depth - 1)]), known):
        yield f"{REGIONS}: public totals do not add up"
    if stored.statement["grand_total"] != (None if known is None else int(known[0])):
        yield f"{PRIVACY} and {REGIONS} give different grand totals"
    kept = settled if known is None else known
    if kept is not None and stored.mechanism.keeps_totals:
        for region in np.flatnonzero(stored.counts.sum(axis=1) != kept)[:MOST_FAULTS]:
            yield f"region {tree.ids[region]!r}: the counts do not add up to its total, {kept[region]}"


def _facts_follow(stored: StoredLarge) -> Iterator[str]:
    yield from restated.facts_differ(stored.contents, stored.directory)


ROWS_FOLLOW = "every row of every file is the one that follows from the measurements: counts, intervals, entities"

STATED = "what is stated follows from measurements, counts and mechanism, and nothing else is stated"

PROMISES: dict[str, Callable[[StoredLarge], Iterator[str]]] = {
    "the files are those that the manifest lists, unchanged": Stored.changes,
    "the privacy costs follow from the neighbour relation and add up to the budget": whole._privacy_adds_up,
    "the noise has the stated variance": whole._noise_fits,
    "the counts follow from the measurements": whole._follows,
    ROWS_FOLLOW: _tables_follow,
    "children add up to their parent for every size": whole._adds_up,
    "every level adds up to the same total, the public one if there is one": whole._levels_agree,
    "totals that are known add up, and are kept where the mechanism keeps them": _public_totals,
    "the last size is described as 'or more'": whole._last_size,
    "what was left out before counting is said wherever counts are described": whole._says_what_was_left_out,
    "what is said of intervals is the same everywhere": interval_words,
    STATED: whole._statement_follows,
    "the data package describes these tables, and nothing else": whole._package_follows,
    "the measurements say of themselves what they are, and nothing else": _facts_follow,
    "areas, where there are any, are the sums of their leaves, with the intervals that follow": whole._areas_follow,
}
