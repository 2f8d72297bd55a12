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

from tallytree.core.arrays import Integers
from tallytree.core.progress import Progress, in_percent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.value import Intervals
from tallytree.privacy.measurements import Measurements
from tallytree.publish.folder import MEASUREMENTS, MOST_FAULTS, PACKAGE, PRIVACY, Stored
from tallytree.publish.release import restated
from tallytree.publish.release import verification as whole
from tallytree.publish.release.area_files import AREA_FILES, AREAS, with_area_bars
from tallytree.publish.release.error_bars import (
    GUARANTEED,
    TYPICAL,
    AreaBars,
    ErrorBars,
    guaranteed_entity_rows,
    guaranteed_rows,
    reach_by_level,
    with_typical,
)
from tallytree.publish.release.files import Cells, stored_error_bars
from tallytree.publish.release.interval_checks import interval_words, reach_of, same_ends
from tallytree.publish.release.large.layout import COUNTS, ENTITIES, REGIONS, file_names, parts
from tallytree.publish.release.large.regions import read_regions
from tallytree.publish.release.large.tables import differences
from tallytree.publish.release.measurements_file import read_measurements
from tallytree.publish.release.stored import INTERVALS, StoredRelease

FILES = (REGIONS, MEASUREMENTS, PRIVACY, PACKAGE)


class StoredLarge(StoredRelease):
    """The files of a partitioned release directory."""

    optional = AREA_FILES

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
    def counts(self) -> Integers:
        """What follows from the measurements."""
        return self.estimate.counts

    def _error_bars(self) -> ErrorBars:
        """Guaranteed intervals as they follow from the measurements; of typical ones what is stated of zero cells.

        Those take 25 estimates to compute again, and are another promise (`typical_follow`).
        """
        stated = self.intervals
        if stated is None:
            return stored_error_bars(Cells(self.counts, {}, []), None, self.truncation)
        ends: dict[str, Integers] = {}
        if stated["which"] == "all" and stated["typical"] == "given":
            reached = [stated["left_out_at_most"][level][TYPICAL[1]] for level in self.hierarchy.levels]
            upper = np.array(reached, np.int64)[self.hierarchy.level_of]
            ends = {
                TYPICAL[0]: np.broadcast_to(np.int64(0), self.counts.shape),
                TYPICAL[1]: np.broadcast_to(upper[:, np.newaxis], self.counts.shape),
            }
        tell = in_percent("guaranteed intervals again", self.progress)
        again = guaranteed_rows(self.measurements, self.counts, stated["confidence"], tell)
        ends |= {} if again is None else {"lower": again.lower, "upper": again.upper}
        bars = stored_error_bars(Cells(self.counts, ends, []), stated, self.truncation)
        bars = with_area_bars(self.directory, bars, self.areas, self.sizes, 1)
        some = np.broadcast_to(np.int64(0), len(self.hierarchy))
        return replace(
            bars,
            entities_guaranteed=guaranteed_entity_rows(self.measurements, self.counts, bars.confidence),
            entities_typical=None if bars.typical is None else Intervals(some, some, bars.confidence, "typical"),
        )


def typical_follow(stored: StoredLarge, progress: Progress) -> Iterator[str]:
    """Typical intervals are computed again, and the files held against them one by one."""
    intervals, contents = stored.intervals, stored.contents
    assert intervals is not None  # else nobody asks
    given, of_areas = contents.error_bars.no_typical, contents.error_bars.of_areas.typical
    bare = replace(contents.error_bars, guaranteed=None, entities_guaranteed=None, typical=None, of_areas=AreaBars())
    contents = replace(contents, error_bars=bare)
    stored.forget(INTERVALS)  # they were compared, and take as much memory as two copies of the counts
    again = with_typical(
        bare, stored.measurements, stored.counts, stored.mechanism, areas=stored.areas, progress=progress
    )
    if again.no_typical != given:
        yield f"{PRIVACY}: it is not true of typical intervals that: {given or 'they are given'}"
    if again.typical is None or given:
        return
    for table in (COUNTS, ENTITIES):
        yield from differences(replace(contents, error_bars=again), stored.directory, table, progress, but=GUARANTEED)
    if stored.areas and not same_ends(of_areas, again.of_areas.typical):
        yield f"{AREAS}: typical intervals are not what follows from the measurements"
    reach = reach_by_level(again, stored.counts, stored.measurements, stored.areas)
    if stored.states_reach and reach_of("typical", reach) != reach_of("typical", bare.reach):
        yield f"{PRIVACY}: typical intervals do not reach as far as is stated"
    for level, reached in again.beyond_zero(stored.counts, stored.rows).items():
        if intervals["left_out_at_most"][level][TYPICAL[1]] != reached[TYPICAL[1]]:
            yield f"{PRIVACY}: intervals of left-out cells of level {level!r} do not reach as far as is stated"


def _tables_follow(stored: StoredLarge) -> Iterator[str]:
    but = TYPICAL if stored.typical_can_follow else ()  # which are another promise
    if not stored.states_reach:
        but = (*but, *GUARANTEED)  # which 0.3.0 made shorter
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
