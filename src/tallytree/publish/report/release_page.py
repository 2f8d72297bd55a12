"""The page of a release: what was published, how good it is, and how it is protected."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, exp
from os import PathLike
from typing import Any

import numpy as np

from tallytree.core.errors import ReleaseError
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.entities import capped_sizes, cut_off
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.statement import privacy_statement, public_totals
from tallytree.publish.release.truncation import truncation
from tallytree.publish.report.bars import Bar, bar
from tallytree.publish.report.cells import UNKNOWN, Cells, slot_name
from tallytree.publish.report.embedding import data_of, embedded_regions
from tallytree.publish.report.levels import QUALITIES, LevelQuality, level_qualities, reviewer_rows, spendings
from tallytree.publish.report.maps import Map, read_map
from tallytree.publish.report.page import MOST_CELLS, Page, rendered
from tallytree.publish.report.standing_out import Comparison, StandingOut, standing_out
from tallytree.publish.report.words import Words, about, listed, percent

GeoJson = str | PathLike[str] | Mapping[str, Any]
LARGEST_ODDS = 1000  # beyond, e^ε is no comfort


def release_page(
    release: ReleaseContents,
    release_id: str | None,
    *,
    words: Words | None = None,
    map: GeoJson | None = None,  # noqa: A002
    directory: str = "release/",
) -> Page:
    """The page of a release; `directory` is where the page says that the files are."""
    called = words or Words()
    if (size := len(release.rows) * len(release.sizes)) > MOST_CELLS:
        raise ReleaseError(
            f"a page shows up to {MOST_CELLS:,} numbers, and this release has {size:,}; save it, and make a page of "
            "its upper levels with tallytree report"
        )
    cells = Cells.of(release)
    regions = embedded_regions(cells)
    drawn = None if map is None else read_map(map, release.hierarchy.regions)
    data = data_of(cells, regions, called)
    qualities = level_qualities(cells)
    values = {
        "title": release.title,
        "words": called,
        "tree": release.hierarchy.regions,
        "confidence": in_percent(release.error_bars.confidence),
        "plain": plain_words(cells, qualities, called),
        "facts": headline_facts(cells, called),
        "sizes": size_rows(cells, 0),
        "kinds": sorted({quality.kind for quality in qualities}) if cells.reaches is not None else [],
        "reach_share": percent(REACH_SHARE).replace(".0", ""),
        "no_bars": _no_bars(release),
        "left_out": len(release.hierarchy.regions) - len(regions),
        "upper": release.partial,
        "one_by_one": cells.one_by_one,
        "qualities": qualities,
        "quality_names": QUALITIES,
        "spendings": spendings(release, called),
        "stand_out": _compared(cells, standing_out(cells), called),
        "persons": _persons(cells, called),
        "categories": _by_category(cells),
        "capped": capped_sizes(release.sizes[-1]),
        "cut_off": cut_off(release.sizes[-1]).replace("Groups", called.groups.capitalize(), 1),
        "stated": (stated := privacy_statement(release)),
        "measured": reviewer_rows(stated),
        "release_id": release_id,
        "directory": directory,
        "map": None if drawn is None else _map_values(drawn, data, cells),
    }
    if drawn is not None:
        data["map"] = values["map"]["places"]  # type: ignore[index]
    return rendered("release.html", values, data=data)


# -------------------------------------------------------------------- in plain words


def plain_words(cells: Cells, qualities: list[LevelQuality], words: Words) -> dict[str, Any]:
    """What was counted, where, how it is protected and how far off a number can be, for whoever reads nothing else."""
    release, tree = cells.release, cells.release.hierarchy.regions
    measurements = release.measurements
    known = public_totals(measurements) is not None
    below = [
        f"{rows.stop - rows.start:,} of the level “{name}”"
        for level, name in enumerate(tree.levels)
        if level and (rows := tree.level_slice(level))
    ]
    by = f", by {listed(list(release.rows.categories))}" if release.rows.categories else ""
    last = size_label(release.sizes[-1], release.sizes[-1])
    total = f"{release.total:,} {words.groups} ({'a public number' if known else 'an estimate'})"
    return {
        "counted": (
            f"How many {words.groups} there are of each size, from {release.sizes[0]} to {last} {words.entities}{by}. "
            f"In all there are {total} with about {int(cells.entities[0, 0]):,} {words.entities} "
            f"({capped_sizes(release.sizes[-1])})."
        ),
        "where": f"In {tree.names[0]}" + (f" and its regions: {listed(below)}." if below else "."),
        "protected": protection_in_words(release, words),
        "off": [
            {
                "level": quality.name,
                "regions": f"{quality.regions:,}",
                "reach": None if quality.reach is None else f"± {quality.reach:,}",
                "kind": quality.kind,
                "groups": f"{quality.groups:,.0f}",
            }
            for quality in qualities
        ],
        "truncated": truncation(measurements.neighbours),
        "example": _example(cells, words),
    }


def _example(cells: Cells, words: Words) -> str:
    """How to read one number: the largest of the largest region of the last level."""
    tree = cells.release.hierarchy.regions
    rows = tree.level_slice(tree.depth - 1)
    region = rows.start + int(np.argmax(cells.groups[rows, 0]))
    place = int(np.argmax(cells.counts[region, 0]))
    ends = _ends(cells, region, place)
    if ends is None:
        return ""
    return (
        f"For example: {int(cells.counts[region, 0, place]):,} {words.groups} of size {cells.classes[place].label} in "
        f"{tree.names[region]} are to be read as “between {ends[0]:,} and {ends[1]:,}”."
    )


def protection_in_words(release: ReleaseContents, words: Words) -> str:
    """The promise for people who have not met ε before."""
    budget, unit = release.measurements.budget, release.measurements.neighbours.unit.kind
    whom = words.entities if unit == "one_entity" else words.groups
    text = (
        "Random noise was added to what was counted, before anything was published. It limits what anybody can find "
        f"out from this page about any one of the {whom} (differential privacy)."
    )
    if budget.currency == "epsilon" and (odds := exp(float(budget.amount))) <= LARGEST_ODDS:
        text += (
            f" With the strength chosen here, ε = {float(budget.amount):g}, no outcome of the whole publication became "
            f"more than {about(odds)} times as likely, or as unlikely, by any one of them being in the data."
        )
    return text


def headline_facts(cells: Cells, words: Words) -> list[tuple[str, str]]:
    """A few numbers to begin with."""
    release, tree = cells.release, cells.release.hierarchy.regions
    mean = cells.entities[0, 0] / cells.groups[0, 0] if cells.groups[0, 0] else 0.0
    budget, capped = release.measurements.budget, capped_sizes(release.sizes[-1])
    sign = "ε" if budget.currency == "epsilon" else "ρ"
    return [
        (f"{release.total:,}", words.groups),
        (f"{int(cells.entities[0, 0]):,}", f"{words.entities} ({capped})"),
        (f"{mean:.2f}", f"average size, in {words.entities} ({capped})"),
        (f"{len(tree):,}", "regions on all levels"),
        (f"{sign} = {float(budget.amount):g}", "privacy budget: the less, the stronger the protection"),
    ]


def _no_bars(release: ReleaseContents) -> str:
    bars = release.error_bars
    if bars.which == "none":
        return "This release was made without error bars; tallytree query computes them for any question."
    return next(iter(bars.missing.values()), "")


# -------------------------------------------------------------------- rows of charts


def size_rows(cells: Cells, region: int) -> list[dict[str, Any]]:
    """The sizes of a region: label, count, share, intervals in words, and a bar."""
    counts = cells.counts[region, 0]
    total = max(int(counts.sum()), 1)
    found = [_ends(cells, region, place) for place in range(len(cells.classes))]
    most = max(1, int(counts.max()), *(ends[1] for ends in found if ends is not None))
    rows = []
    for place, one in enumerate(cells.classes):
        rows.append(
            {
                "label": one.label,
                "count": f"{int(counts[place]):,}",
                "share": percent(counts[place] / total),
                "ends": _between(found[place]),
                "bar": bar(int(counts[place]), most, found[place]),
            }
        )
    return rows


def _ends(cells: Cells, region: int, place: int) -> tuple[int, int] | None:
    """The recommended interval of a count over all categories."""
    if cells.recommended_ends is None:
        return None
    lower, upper = (int(ends[region, place]) for ends in cells.recommended_ends)
    return None if lower == UNKNOWN else (lower, upper)


def _between(ends: tuple[float, float] | None) -> str:
    return "–" if ends is None else f"{ends[0]:,} to {ends[1]:,}"


def _compared(cells: Cells, comparison: Comparison, words: Words) -> dict[str, Any]:
    """The regions that stand out, in words and bars."""
    tree = cells.release.hierarchy.regions

    def row(one: StandingOut) -> dict[str, Any]:
        mean = one.kind == "mean"
        shown = (lambda value: f"{value:.2f}") if mean else percent
        most = max(one.ends[1], one.parents_ends[1]) if mean else min(1.0, max(one.ends[1], one.parents_ends[1]) * 1.05)
        capped = capped_sizes(cells.release.sizes[-1])
        what = f"average size ({capped})" if mean else f"{words.groups} of size {one.label}"
        size = "larger" if one.above else "smaller"
        return {
            "region": tree.names[one.region],
            "id": tree.ids[one.region],
            "parent": tree.names[one.parent],
            "what": what,
            "more": f"{size} than" if mean else f"a {size} share than",
            "value": shown(one.value),
            "ends": f"{shown(one.ends[0])} to {shown(one.ends[1])}",
            "parents": shown(one.parents_value),
            "parents_ends": f"{shown(one.parents_ends[0])} to {shown(one.parents_ends[1])}",
            "bar": bar(one.value, most, one.ends),
            "other": bar(one.parents_value, most, one.parents_ends),
        }

    by_noise = comparison.by_noise
    return {
        "rows": [row(one) for one in comparison.found],
        "compared": f"{comparison.compared:,}",
        "by_noise": "one" if by_noise <= 1 else f"{ceil(by_noise):,}",
        "why_not": comparison.why_not,
    }


def _persons(cells: Cells, words: Words) -> list[dict[str, Any]]:
    """Groups, entities and their mean, of the whole and of the regions below it with the most entities."""
    tree, most_rows = cells.release.hierarchy.regions, 15
    below = np.arange(len(tree))[tree.level_slice(min(1, tree.depth - 1))]
    below = below[np.argsort(-cells.entities[below, 0], kind="stable")][:most_rows]
    regions = [0, *(int(region) for region in below if region != 0)]
    most = max(1, int(cells.entities[regions[1:] or regions, 0].max()))
    rows = []
    for region in regions:
        count, groups = int(cells.entities[region, 0]), int(cells.groups[region, 0])
        prefix = cells.prefixes["entities"][int(tree.level_of[region])][0]
        ends = None
        if f"{prefix}lower" in cells.entity_ends:
            lower, upper = (int(cells.entity_ends[f"{prefix}{end}"][region, 0]) for end in ("lower", "upper"))
            ends = lower, upper
        rows.append(
            {
                "region": tree.names[region],
                "whole": region == 0,
                "groups": f"{groups:,}",
                "entities": f"{count:,}",
                "mean": f"{count / groups:.2f}" if groups else "–",
                "ends": _between(ends),
                "bar": bar(count, most, ends) if region or len(regions) == 1 else None,
            }
        )
    return rows


def _by_category(cells: Cells) -> list[dict[str, Any]]:
    """Groups and entities of the whole by the values of the categories."""
    rows = []
    total = max(int(cells.groups[0, 0]), 1)
    for slot, values in enumerate(cells.slots):
        if name := slot_name(values):
            groups, held = int(cells.groups[0, slot]), int(cells.entities[0, slot])
            rows.append(
                {
                    "name": name,
                    "groups": f"{groups:,}",
                    "share": percent(groups / total),
                    "entities": f"{held:,}",
                    "mean": f"{held / groups:.2f}" if groups else "–",
                    "bar": bar(groups, total),
                }
            )
    return rows


def _map_values(drawn: Map, data: dict[str, Any], cells: Cells) -> dict[str, Any]:
    """Outlines with the places of their regions among those that are embedded."""
    tree = cells.release.hierarchy.regions
    place = {code: at for at, code in enumerate(data["ids"])}
    known = [(place[tree.ids[one.region]], one.path) for one in drawn.outlines if tree.ids[one.region] in place]
    return {
        "level": tree.levels[drawn.level],
        "height": drawn.height,
        "paths": [path for _, path in known],
        "places": [at for at, _ in known],
        "unmatched": drawn.unmatched,
        "without": drawn.without,
        "not_embedded": len(drawn.outlines) - len(known),
    }


__all__ = ["Bar", "GeoJson", "release_page"]
