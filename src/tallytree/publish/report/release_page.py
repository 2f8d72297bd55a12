"""The report of a release: what was published, how accurate it is, and how it is protected."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import ceil, exp
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.errors import ReleaseError
from tallytree.domain.categories import ALL
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.plan import Band
from tallytree.publish.folder import MANIFEST, PRIVACY, UNUSABLE, digest, reason
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.descriptions import capped_sizes, cut_off
from tallytree.publish.release.error_bars import in_percent
from tallytree.publish.release.files import read_upper
from tallytree.publish.release.release_statement import privacy_statement
from tallytree.publish.report import Page, render_page
from tallytree.publish.report.accuracy import CLASSES, find_differences, level_accuracy
from tallytree.publish.report.cells import HUNDREDTHS, MISSING, MOST_CELLS, Cells, What, script_data, select_regions
from tallytree.publish.report.maps import Map, read_map
from tallytree.publish.untrusted import read_json

GeoJson = str | PathLike[str] | Mapping[str, Any]
LARGEST_ODDS = 1000  # a larger e^ε says little
MOST_ROWS = 15  # of regions with their numbers of entities
Row = dict[str, Any]


def read_release_page(directory: Path, **options: Any) -> Page:
    """Return the report of a release's directory; of a large release only the upper levels are read."""
    release = read_upper(directory, MOST_CELLS)
    release_id = digest(directory / MANIFEST) if (directory / MANIFEST).is_file() else None
    try:
        return make_release_page(
            release, release_id, stated=read_json(directory / PRIVACY), directory=str(directory), **options
        )
    except UNUSABLE as error:
        raise ReleaseError(f"cannot write the report of {directory}: {reason(error)}") from None


def make_release_page(
    release: ReleaseContents,
    release_id: str | None,
    *,
    stated: Mapping[str, Any] | None = None,
    map: GeoJson | None = None,  # noqa: A002
    groups: str | None = None,
    entities: str | None = None,
    directory: str = "release/",
) -> Page:
    """Return the report of a release; `stated` is its privacy statement, `directory` the path shown on the page.

    `groups` and `entities` are other words for these than the release states.
    """
    stated, cells, words = (
        stated or privacy_statement(release),
        Cells.of(release),
        release.about.called(groups, entities),
    )
    regions, last, bars = select_regions(cells), release.sizes[-1], release.error_bars
    data = script_data(cells, regions, words)
    drawn = None if map is None else _place_map(read_map(map, cells.tree), data, cells)
    levels = [level_accuracy(cells, level) for level in range(cells.tree.depth)]
    differences = find_differences(cells)
    values = {
        "title": stated["title"],
        "about": words,
        "citation": words.cite("Release", stated["title"], release_id, stated["software"]["tallytree"]),
        "public_totals": stated["grand_total"] is not None,
        "areas": cells.areas,
        "words": words,
        "tree": cells.tree,
        "slots": release.rows.values,
        "confidence": in_percent(bars.confidence),
        "stated": stated,
        "budget": (budget := Budget.from_json(stated["budget"])),
        "odds": _odds(budget),
        "last_size": size_label(last, last),
        "first_size": release.sizes[0],
        "by": release.rows.categories,
        "facts": _facts(cells, 0, 0),
        "sizes": _size_rows(cells, 0, 0),
        "example": _example(cells),
        "kinds": sorted({one.kind for one in levels}) if cells.reach(0) is not None else [],
        "misses": f"{100 * (1 - bars.confidence):.3g}",
        "reach_share": f"{100 * REACH_SHARE:g} %",
        "no_bars": _no_bars(release),
        "left_out": len(cells.tree) - len(regions),
        "upper": release.partial or cells.tree.depth < release.hierarchy.regions.depth,
        "one_by_one": cells.one_by_one,
        "levels": levels,
        "accuracy_classes": CLASSES,
        "spent": _spent(stated, cells),
        "differences": differences,
        "by_noise": max(1, ceil(differences.by_noise)),
        "persons": _largest(cells),
        "categories": _by_category(cells),
        "capped": capped_sizes(last),
        "cut_off": cut_off(last).replace("Groups", words.groups.capitalize(), 1),
        "release_id": release_id,
        "directory": directory,
        "map": drawn,
    }
    data |= {} if drawn is None else {"map": drawn["places"]}
    return render_page("release.html", values, data=data, scripts=("page.js", "release.js"))


def _odds(budget: Budget) -> float | None:
    """Return e^ε, the largest factor that one protected unit changes a probability by; None if it is too large."""
    odds = exp(float(budget.amount)) if budget.currency == "epsilon" and budget.amount < LARGEST_ODDS else np.inf
    return odds if odds <= LARGEST_ODDS else None


def _no_bars(release: ReleaseContents) -> str:
    bars = release.error_bars
    if bars.which == "none":
        return "This release has no error bars. The command tallytree query computes them for any query."
    return next(iter(bars.missing.values()), "")


# -------------------------------------------------------------------- rows of tables


def _ends(cells: Cells, what: What, region: int) -> list[tuple[int, int] | None]:
    """Return the recommended intervals of a region's numbers over all categories."""
    level = int(cells.tree.level_of[region])
    if (found := cells.intervals(what, level)) is None:
        return [None] * len(cells.classes)
    lower, upper = (np.atleast_1d(ends[region - cells.tree.level_starts[level]]).tolist() for ends in found)
    return [None if low == MISSING else (low, high) for low, high in zip(lower, upper, strict=True)]


def _size_rows(cells: Cells, region: int, slot: int) -> list[Row]:
    """Return the sizes of a region, over all categories: label, count and interval."""
    counts = cells.counts[region, slot].tolist()
    return [
        {"label": one.label, "count": count, "ends": ends}
        for one, count, ends in zip(cells.classes, counts, _ends(cells, "counts", region), strict=True)
    ]


def _facts(cells: Cells, region: int, slot: int) -> Row:
    """Return groups, entities and mean size of a region, or of a value of categories in it."""
    groups, entities = int(cells.groups[region, slot]), int(cells.entities[region, slot])
    ends = _ends(cells, "entities", region)[0] if slot == 0 else None
    name, mean = cells.tree.names[region], entities / groups if groups else None
    found = {what: ends[len(cells.areas.names) + region].tolist() for what, ends in cells.of_places.items()}
    known = {what: slot == 0 and ends[0] != MISSING for what, ends in found.items()}
    return {
        "name": name,
        "groups": groups,
        "groups_ends": found["groups"] if known["groups"] else None,
        "entities": entities,
        "mean": mean,
        "mean_ends": [end / HUNDREDTHS for end in found["mean"]] if known["mean"] else None,
        "ends": ends,
    }


def _example(cells: Cells) -> Row | None:
    """Return an example number to read: the largest number of the largest region of the last level."""
    rows = cells.tree.level_slice(cells.tree.depth - 1)
    region = rows.start + int(np.argmax(cells.groups[rows, 0]))
    row = _size_rows(cells, region, 0)[int(np.argmax(cells.counts[region, 0]))]
    return None if row["ends"] is None else {**row, "name": cells.tree.names[region]}


def _largest(cells: Cells) -> list[Row]:
    """Return the root and the regions below it with the most entities."""
    rows = cells.tree.level_slice(min(1, cells.tree.depth - 1))
    below = rows.start + np.argsort(-cells.entities[rows, 0], kind="stable")[:MOST_ROWS]
    return [_facts(cells, region, 0) for region in dict.fromkeys([0, *below.tolist()])]


def _by_category(cells: Cells) -> list[Row]:
    """Return the root's numbers by the values of the categories."""
    named = [", ".join(value for value in values if value != ALL) for values in cells.release.rows.values]
    return [{**_facts(cells, 0, slot), "name": name} for slot, name in enumerate(named) if name]


def _spent(stated: Mapping[str, Any], cells: Cells) -> list[Row]:
    """Return what the budget was spent on in the order of the measurements, then the levels without a measurement."""
    names, levels, top = cells.release.rows.categories, cells.tree.levels, cells.release.hierarchy.levels[0]
    found = []
    for row in stated["measurements"]:
        over_all = row.get("summed") or row["level"] == top  # with categories the top is the sum over all of them
        level = levels[0] if row["level"] == top else row["level"]
        by = "" if not names else ", over all categories" if over_all else f", by {' and '.join(names)}"
        found.append(
            {
                **row,
                "level": level,
                "by": by,
                "share": float(Fraction(row["share"])),
                "charged": as_decimal(Fraction(row["charged"])),
                "sizes": Band(*row["sizes"]).in_words() if "sizes" in row else "",
            }
        )
    measured = {row["level"] for row in found}
    return [*found, *({"level": name, "by": "", "view": None} for name in levels if name not in measured)]


def _place_map(drawn: Map, data: Mapping[str, Any], cells: Cells) -> Row:
    """Return outlines with the indices of their regions among the embedded ones."""
    place = {code: at for at, code in enumerate(data["ids"])}
    known = [(place[code], one.path) for one in drawn.outlines if (code := cells.tree.ids[one.region]) in place]
    return {
        "level": cells.tree.levels[drawn.level],
        "height": drawn.height,
        "paths": [path for _, path in known],
        "places": [at for at, _ in known],
        "unmatched": drawn.unmatched,
        "without": drawn.without,
        "not_embedded": len(drawn.outlines) - len(known),
    }
