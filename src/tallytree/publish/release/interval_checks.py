"""What `verify` checks of intervals, where there are any: older releases promise none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tallytree.core.progress import Progress
from tallytree.estimate.intervals.measured_view import no_guarantee
from tallytree.estimate.intervals.value import Intervals, Kind, most_groups
from tallytree.publish.folder import MOST_FAULTS, PACKAGE, PRIVACY
from tallytree.publish.reading import read_json
from tallytree.publish.release.area_files import AREAS
from tallytree.publish.release.contents import LEFT_OUT
from tallytree.publish.release.error_bars import (
    GUARANTEED,
    TYPICAL,
    Reach,
    error_bars,
    guaranteed_entity_rows,
    guaranteed_rows,
    reach_by_level,
)
from tallytree.publish.release.files import NULL
from tallytree.publish.release.partition import COUNTS, ENTITIES
from tallytree.publish.release.stored import StoredRelease, faults_at


def interval_words(stored: StoredRelease) -> Iterator[str]:
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
    yield from _reach_follows(stored)
    if not stored.zeros_written and stored.intervals["left_out"] != LEFT_OUT:
        yield f"{PRIVACY} does not say what a missing row means for its intervals"
    schema = pq.read_schema(stored.counts_file)
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


def _reach_follows(stored: StoredRelease) -> Iterator[str]:
    """How far guaranteed intervals reach, which decides what kind is recommended; the rest is for `typical_follow`."""
    if not stored.states_reach:
        return
    bars = stored.error_bars
    if not stored.zeros_written and bars.guaranteed is not None:  # the files do not have the intervals of zero cells
        bars = replace(bars, guaranteed=guaranteed_rows(stored.measurements, stored.counts, bars.confidence))
    again = reach_by_level(bars, stored.counts, stored.measurements, stored.areas)
    if reach_of("guaranteed", again) != reach_of("guaranteed", bars.reach):
        yield f"{PRIVACY}: guaranteed intervals do not reach as far as is stated"


def reach_of(kind: Kind, reach: Reach) -> dict[str, dict[str, int | None]]:
    """The reach of one kind of interval, by what the numbers are of and level."""
    return {what: {level: kinds.get(kind) for level, kinds in levels.items()} for what, levels in reach.items()}


def intervals_in_order(stored: StoredRelease) -> Iterator[str]:
    """0 ≤ lower ≤ count ≤ upper, and upper is at most the public total, unless the count itself is larger."""
    if stored.intervals is None:
        return
    counts, ends, bars = stored.rows.lay_out(stored.counts), stored.cells.ends, stored.error_bars
    limits = most_groups(stored.measurements)
    if stored.measurements.region_totals is not None:
        limits = stored.rows.lay_out(limits)
    most = np.maximum(limits[:, None] if len(limits) == len(counts) else limits[:1, None], counts)
    for names, given in ((GUARANTEED, bars.guaranteed), (TYPICAL, bars.typical)):
        if names[0] not in ends:
            continue
        lower, upper = ends[names[0]], ends[names[1]]
        if given is None:
            fault = f"{names[0]} or {names[1]} is given although none is said to be"
            yield from faults_at((lower != NULL) | (upper != NULL), fault, stored)
            continue
        fault = f"{names[0]} is empty, or more than the count"
        yield from faults_at((lower < 0) | (lower > counts), fault, stored)
        fault = f"{names[1]} is empty, less than the count, or too large"
        yield from faults_at((upper < counts) | (upper > most), fault, stored)


def entities_follow(stored: StoredRelease) -> Iterator[str]:
    """Numbers of entities are those of the counts, and their guaranteed intervals follow from the measurements."""
    bars, contents = stored.error_bars, stored.contents
    if bars.which != "none":
        again = guaranteed_entity_rows(stored.measurements, stored.counts, bars.confidence)
        if stored.states_reach:
            bars = replace(bars, entities_guaranteed=again)
        elif (ends := bars.entities_guaranteed) is not None and again is not None:  # they were shorter
            for row in np.flatnonzero((ends.lower < again.lower) | (ends.upper > again.upper))[:MOST_FAULTS]:
                yield f"{ENTITIES}, {stored.rows.where(int(row))}: the guaranteed interval is too long"
    table = replace(contents, error_bars=bars).entity_table
    yield from table.differences(stored.directory, stored.progress, csv=contents.is_small)
    if (typical := bars.entities_typical) is not None:
        numbers = stored.rows.lay_out(contents.entities)
        wrong = (typical.lower < 0) | (typical.lower > numbers) | (typical.upper < numbers)
        for row in np.flatnonzero(wrong)[:MOST_FAULTS]:
            yield f"{ENTITIES}, {stored.rows.where(int(row))}: the typical interval does not hold its number"


def guaranteed_follow(stored: StoredRelease) -> Iterator[str]:
    """Guaranteed intervals are a pure function of measurements and counts."""
    if stored.intervals is None:
        return
    counts, ends, bars = stored.counts, stored.cells.ends, stored.error_bars
    again, laid_out = guaranteed_rows(stored.measurements, counts, bars.confidence), stored.rows.lay_out(counts)
    if again is None or bars.guaranteed is None:
        return  # whether that is right is another promise
    for name, right in zip(GUARANTEED, (again.lower, again.upper), strict=True):
        wrong = ends[name] != right
        if not stored.states_reach:  # they were shorter
            wrong = ends[name] < right if name == GUARANTEED[0] else ends[name] > right
        if not stored.zeros_written:
            wrong &= laid_out != 0
        fault = f"{name} is not what follows from the measurements at a confidence of {bars.confidence}"
        yield from faults_at(wrong, fault, stored)
    if not stored.zeros_written:
        reached = replace(bars, guaranteed=again).beyond_zero(counts, stored.rows)
        for level, stated in stored.intervals["left_out_at_most"].items():
            if stated[GUARANTEED[1]] != reached[level][GUARANTEED[1]]:
                yield f"{PRIVACY}: intervals of left-out cells of level {level!r} do not reach as far as is stated"


def typical_follow(stored: StoredRelease, progress: Progress) -> Iterator[str]:
    """Typical intervals are a function of measurements and counts too, which takes 25 estimates."""
    counts, stated = stored.counts, stored.error_bars
    assert stored.intervals is not None  # else nobody asks
    again = error_bars(
        stored.measurements,
        counts,
        stored.mechanism,
        which="all",
        confidence=stated.confidence,
        areas=stored.areas,
        progress=progress,
    )
    if again.no_typical != stated.no_typical:
        yield f"{PRIVACY}: it is not true of typical intervals that: {stated.no_typical or 'they are given'}"
    if again.typical is None or stated.typical is None:
        return
    for name, right in zip(TYPICAL, (again.typical.lower, again.typical.upper), strict=True):
        wrong = stored.cells.ends[name] != right
        if not stored.zeros_written:
            wrong &= stored.rows.lay_out(counts) != 0
        fault = f"{name} is not what follows from the measurements at a confidence of {stated.confidence}"
        yield from faults_at(wrong, fault, stored)
    if stored.areas and not same_ends(stated.of_areas.typical, again.of_areas.typical):
        yield f"{AREAS}: typical intervals are not what follows from the measurements"
    if not stored.is_older and stated.entities_typical is not None and again.entities_typical is not None:
        one, other = stated.entities_typical, again.entities_typical
        wrong = (one.lower != other.lower) | (one.upper != other.upper)
        for row in np.flatnonzero(wrong)[:MOST_FAULTS]:
            yield (
                f"{ENTITIES}, {stored.rows.where(int(row))}: the typical interval is not what follows from the "
                f"measurements at a confidence of {stated.confidence}"
            )
    if stored.states_reach and again.reach != stated.reach:
        yield f"{PRIVACY}: intervals do not reach as far as is stated"
    if not stored.zeros_written and stored.intervals["left_out_at_most"] != again.beyond_zero(counts, stored.rows):
        yield f"{PRIVACY}: intervals of left-out cells do not reach as far as is stated"


def same_ends(one: Intervals | None, other: Intervals | None) -> bool:
    """Are two sets of intervals the same, or both missing?"""
    if one is None or other is None:
        return one is other
    return np.array_equal(one.lower, other.lower) and np.array_equal(one.upper, other.upper)
