"""What `verify` checks of a release's intervals. A release without any, such as an older one, promises none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.measured_view import no_guarantee
from tallytree.estimate.intervals.value import most_groups
from tallytree.hierarchy import Hierarchy
from tallytree.privacy.measurements import Measurements
from tallytree.publish.release.error_bars import GUARANTEED, TYPICAL, ErrorBars
from tallytree.publish.release.files import COUNTS, MOST, NULL, PACKAGE, PRIVACY, Cells, read_json
from tallytree.publish.release.statement import LEFT_OUT
from tallytree.version import VERSION


class Stored(Protocol):
    """The files of a release directory, as far as they matter here."""

    directory: Path

    @property
    def statement(self) -> dict[str, Any]: ...
    @property
    def intervals(self) -> dict[str, Any] | None: ...
    @property
    def regions(self) -> tuple[Hierarchy, list[str]]: ...
    @property
    def measurements(self) -> Measurements: ...
    @property
    def sizes(self) -> range: ...
    @property
    def cells(self) -> Cells: ...
    @property
    def error_bars(self) -> ErrorBars: ...


def _interval_words(stored: Stored) -> Iterator[str]:
    """The level of confidence and what each column promises are the same in all files, and are the true ones."""
    import pyarrow.parquet as pq

    if stored.intervals is None:
        return
    bars = stored.error_bars
    words = bars.describe()
    if stored.intervals["columns"] != words:
        yield f"{PRIVACY} does not say what the intervals promise at a confidence of {bars.confidence}"
    why = no_guarantee(stored.measurements) or ""
    if bars.no_guaranteed != why:
        yield f"{PRIVACY}: it is not true of guaranteed intervals that: {bars.no_guaranteed or 'they are given'}"
    if stored.statement["zero_cells"] != "written" and stored.intervals["left_out"] != LEFT_OUT:
        yield f"{PRIVACY} does not say what a missing row means for its intervals"
    schema = pq.read_schema(stored.directory / COUNTS)
    for name, text in words.items():
        metadata = schema.field(name).metadata or {}
        if metadata != {b"description": text.encode(), b"confidence": str(bars.confidence).encode()}:
            yield f"{COUNTS}: the column {name} does not say what {PRIVACY} says of it"
    for resource in read_json(stored.directory / PACKAGE)["resources"]:
        if not resource["name"].startswith("counts"):
            continue
        fields = {field["name"]: field for field in resource["schema"]["fields"]}
        for name, text in words.items():
            if (fields[name]["description"], fields[name]["confidence"]) != (text, bars.confidence):
                yield f"{PACKAGE}: the column {name} of {resource['name']} does not say what {PRIVACY} says of it"


def _intervals_in_order(stored: Stored) -> Iterator[str]:
    """0 ≤ lower ≤ count ≤ upper, and upper is at most the public total, unless the count itself is larger."""
    if stored.intervals is None:
        return
    counts, ends, hierarchy = stored.cells.counts, stored.cells.ends, stored.regions[0]
    most = np.maximum(most_groups(stored.measurements)[:, None], counts)
    bars = stored.error_bars
    for names, given in ((GUARANTEED, bars.guaranteed), (TYPICAL, bars.typical)):
        if names[0] not in ends:
            continue
        lower, upper = ends[names[0]], ends[names[1]]
        if given is None:
            wrong, fault = (
                (lower != NULL) | (upper != NULL),
                f"{names[0]} or {names[1]} is given although none is said to be",
            )
        else:
            wrong, fault = (lower < 0) | (lower > counts), f"{names[0]} is empty, or more than the count"
            yield from _named(wrong, fault, hierarchy, stored.sizes)
            wrong, fault = (upper < counts) | (upper > most), f"{names[1]} is empty, less than the count, or too large"
        yield from _named(wrong, fault, hierarchy, stored.sizes)


def _named(wrong: NDArray[np.bool_], fault: str, hierarchy: Hierarchy, sizes: range) -> Iterator[str]:
    for region, size in np.argwhere(wrong)[:MOST]:
        yield f"region {hierarchy.ids[region]!r}, size {sizes[size]}: {fault}"


def _guaranteed_follow(stored: Stored) -> Iterator[str]:
    """Guaranteed intervals are a pure function of measurements and counts; again only our own version is run.

    Typical ones come from fresh noise and cannot be had again.
    """
    if stored.intervals is None or stored.statement["software"]["tallytree"] != VERSION:
        return
    counts, ends, hierarchy = stored.cells.counts, stored.cells.ends, stored.regions[0]
    bars = stored.error_bars
    again = guaranteed(stored.measurements, counts, level=bars.confidence)
    if again is None or bars.guaranteed is None:
        return  # whether that is right is another promise
    for name, right in zip(GUARANTEED, (again.lower, again.upper), strict=True):
        wrong = ends[name] != right
        if stored.statement["zero_cells"] != "written":
            wrong &= counts != 0
        fault = f"{name} is not what follows from the measurements at a confidence of {bars.confidence}"
        yield from _named(wrong, fault, hierarchy, stored.sizes)
    if stored.statement["zero_cells"] != "written":
        reached = replace(bars, guaranteed=again).beyond_zero(counts, hierarchy)
        for level, stated in stored.intervals["left_out_at_most"].items():
            if stated[GUARANTEED[1]] != reached[level][GUARANTEED[1]]:
                yield f"{PRIVACY}: intervals of left-out cells of level {level!r} do not reach as far as is stated"


INTERVAL_PROMISES: dict[str, Callable[[Any], Iterator[str]]] = {
    "what is said of intervals is the same everywhere": _interval_words,
    "every interval holds its count and stays within what is possible": _intervals_in_order,
    "guaranteed intervals follow from the measurements": _guaranteed_follow,
}
