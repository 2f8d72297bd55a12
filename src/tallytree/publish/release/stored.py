"""`StoredRelease`: the files of a release directory as `verify` reads them, and what it cannot tell from them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.numbers import short
from tallytree.core.progress import Progress, in_percent, silent
from tallytree.domain.categories import Categories
from tallytree.domain.category_trees import by_category
from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms import Estimate, Mechanism
from tallytree.privacy.measurements import Measurements
from tallytree.publish.folder import (
    MANIFEST,
    MEASUREMENTS,
    MOST_FAULTS,
    PACKAGE,
    PRIVACY,
    REPORT,
    UNUSABLE,
    Stored,
    files_in,
)
from tallytree.publish.release.area_files import AREA_FILES, LEAVES, read_leaves, with_area_bars
from tallytree.publish.release.areas import Area
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.error_bars import ErrorBars
from tallytree.publish.release.files import (
    FACTS,
    Cells,
    read_cells,
    stated_fallback,
    stated_mechanism,
    stored_error_bars,
    with_entities,
)
from tallytree.publish.release.measurements_file import read_measurements
from tallytree.publish.release.partition import COUNTS, REGIONS, file_names, parts
from tallytree.publish.release.region_table import read_regions
from tallytree.publish.release.rows import TableRows
from tallytree.publish.release.truncation import truncation
from tallytree.publish.statement import Unchecked
from tallytree.version import VERSION

UNCHECKED = (
    Unchecked(f"{PRIVACY}: title", "the title (the same in all files)"),
    Unchecked(f"{PRIVACY}: software.python", "which version of Python was used"),
    Unchecked(f"{PRIVACY}: mechanism.failed_because", "why another mechanism than the one asked for was used, if so"),
    Unchecked(
        f"{MEASUREMENTS}: rows.value",
        "that the noisy numbers are those that were drawn; all other numbers are checked to follow from them",
    ),
    Unchecked(
        f"{MEASUREMENTS}: what the data holder said",
        "what the data holder said of the data and of the run: that they fit the neighbour relation, the names of "
        "regions, public totals and public facts, the source of the noise, and what was charged to a ledger (the same "
        "in all files)",
    ),
)
OLDER_GUARANTEED = (
    "guaranteed intervals: 0.3.0 and before made some shorter, down to 0 … 0, where estimates lie below 0; checked is "
    "that none is longer than it would be now"
)
OLDER_TYPICAL = "typical intervals: releases of format 1 drew their noise afresh"

LARGEST_VALUE = 1 << 53  # of a measurement, either way: estimators compute with such numbers exactly
INTERVALS = "the intervals"


class StoredRelease(Stored):
    """The files of a release directory."""

    optional: tuple[str, ...] = AREA_FILES

    @property
    def expected(self) -> tuple[str, ...]:  # type: ignore[override]
        """Names of files that the manifest must list."""
        try:
            return (*FACTS, *file_names(self.hierarchy, len(self.sizes)))
        except UNUSABLE:  # another promise is broken; here digests are compared of what there is
            return (*FACTS, *(name for name in files_in(self.directory) if name not in (MANIFEST, REPORT)))

    def __init__(self, directory: Path, progress: Progress = silent) -> None:
        super().__init__(directory)
        self.progress = progress

    @property
    def regions(self) -> tuple[Hierarchy, list[str]]:
        """The table of regions: the hierarchy, and public totals as text."""
        tree, totals = self.once(REGIONS, lambda: read_regions(self.directory / REGIONS))
        return tree, [] if totals is None else list(map(str, totals.tolist()))

    @property
    def hierarchy(self) -> Hierarchy:
        """The regions, by category where the statement says so."""
        by = self.statement["neighbours"].get("categories")
        if by is None:
            return self.regions[0]
        return self.once("the tree", lambda: by_category(self.regions[0], Categories.from_json(by)))

    @property
    def rows(self) -> TableRows:
        """The rows of the table of counts."""
        return self.once("the rows", lambda: TableRows(self.hierarchy))

    @property
    def measurements(self) -> Measurements:
        """measurements.parquet."""
        return self.once(MEASUREMENTS, lambda: read_measurements(self.directory / MEASUREMENTS, self.regions[0]))

    @property
    def mechanism(self) -> Mechanism:
        """What the statement says the counts were made by."""
        return stated_mechanism(self.statement)

    @property
    def sizes(self) -> range:
        """The sizes that are counted."""
        return range(0 if self.statement["neighbours"]["public_totals"] else 1, self.statement["max_size"] + 1)

    @property
    def counts_file(self) -> Path:
        """One of the files of counts: that all have the same columns is a promise."""
        return self.directory / parts(self.hierarchy, len(self.sizes))[0].file(COUNTS)

    @property
    def zeros_written(self) -> bool:
        """Does every cell have a row, those that are zero too?"""
        return bool(self.statement["zero_cells"] == "written")

    @property
    def intervals(self) -> dict[str, Any] | None:
        """What the statement says of intervals; None where there are none, as in older releases."""
        return self.statement.get("intervals")

    @property
    def cells(self) -> Cells:
        """The table of counts."""
        return self.once(COUNTS, lambda: read_cells(self.directory, self.hierarchy, self.sizes, self.statement))

    @property
    def counts(self) -> Integers:
        """The released counts."""
        return self.cells.counts

    @property
    def error_bars(self) -> ErrorBars:
        """The released intervals."""
        return self.once(INTERVALS, self._error_bars)

    def _error_bars(self) -> ErrorBars:
        bars = stored_error_bars(self.cells, self.intervals, self.truncation)
        bars = with_area_bars(self.directory, bars, self.areas, self.sizes, len(self.rows.values))
        return with_entities(bars, self.directory, self.rows, len(self.sizes))

    @property
    def areas(self) -> tuple[Area, ...]:
        """area_leaves.csv, where areas are published."""
        return self.once(LEAVES, lambda: read_leaves(self.directory, self.statement, self.hierarchy, len(self.sizes)))

    @property
    def estimate(self) -> Estimate:
        """What the stated mechanism estimates from the measurements."""
        return self.once("the estimate", self._estimated)

    def _estimated(self) -> Estimate:
        for part in self.measurements.measured:
            if part.values.size and max(int(part.values.max()), -int(part.values.min())) > LARGEST_VALUE:
                raise ReleaseError(f"{MEASUREMENTS} holds numbers that no count with noise can be")
        return self.mechanism.estimated(self.measurements, in_percent("estimating again", self.progress))

    @property
    def contents(self) -> ReleaseContents:
        """All that the files say, with what was proved of the counts found out anew."""
        fallback, used = stated_fallback(self.statement), self.mechanism
        proved = self.estimate.certificate
        return ReleaseContents(
            counts=self.counts,
            measurements=self.measurements,
            made_by=used,
            certificate=proved if fallback is None else f"{proved}; {fallback.in_words(used)}",
            title=self.statement["title"],
            error_bars=self.error_bars,
            fallback=fallback,
            areas=self.areas,
        )

    @property
    def is_older(self) -> bool:
        """Is it of format 1? Then it says less, and some of it in other words."""
        return bool(self.statement["format"] == 1)

    @property
    def of_another_version(self) -> bool:
        """Was it made by another version than checks it?"""
        return bool(self.statement["software"]["tallytree"] != VERSION)

    @property
    def typical_can_follow(self) -> bool:
        """Are there typical intervals that can be computed again?"""
        return not self.is_older and self.intervals is not None and self.intervals["which"] == "all"

    @property
    def states_reach(self) -> bool:
        """Does it say how far intervals reach? Releases of 0.3.0 and before do not."""
        return not self.is_older and self.intervals is not None and "reach" in self.intervals

    def unchecked(self) -> Iterator[Unchecked]:
        """What is said and cannot be checked from the files."""
        yield from UNCHECKED
        if self.areas:
            yield Unchecked(f"{LEAVES}: rows", "which leaves belong to which area, as the data holder said")
        if self.of_another_version:
            version = short(self.statement["software"]["tallytree"])
            told = f"it was made by tallytree {version} and checked by {VERSION}: what differs may be due to that"
            yield Unchecked(f"{PRIVACY}: software.tallytree", told)
        if self.intervals is not None and not self.states_reach:
            yield Unchecked(f"{COUNTS}: lower, upper", OLDER_GUARANTEED)
        if self.is_older:
            yield Unchecked(
                PACKAGE, "what the data package says, but for sizes, counts and intervals, and the order of rows"
            )
            if self.intervals is not None and self.intervals["which"] == "all":
                yield Unchecked(f"{COUNTS}: typical_lower, typical_upper", OLDER_TYPICAL)

    @property
    def says_if_truncated(self) -> bool:
        """Do the files say whether rows were dropped? Those of early versions do not, and were not asked to."""
        return "rows_were_bounded" in self.statement["neighbours"] or self.measurements.neighbours.rows_were_bounded

    @property
    def truncation(self) -> str:
        """What the files must say of what was left out before counting."""
        return truncation(self.measurements.neighbours) if self.says_if_truncated else ""


def faults_at(wrong: NDArray[np.bool_], fault: str, stored: StoredRelease) -> Iterator[str]:
    """The fault, for the first few cells `[rows, sizes]`, laid out, that have it."""
    for row, size in np.argwhere(wrong)[:MOST_FAULTS]:
        yield f"{stored.rows.where(int(row))}, size {stored.sizes[size]}: {fault}"
