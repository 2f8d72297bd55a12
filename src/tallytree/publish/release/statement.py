"""What a release says of itself: the privacy statement (`privacy.json`) and the data package (`datapackage.json`)."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise
from typing import Any

from tallytree.core.arrays import Integers
from tallytree.domain.category_trees import over_categories
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.value import REACH_SHARE, SHORTER
from tallytree.mechanisms import Mechanism
from tallytree.privacy.budget import as_decimal
from tallytree.privacy.measurements import Measurement, Measurements, Passed
from tallytree.privacy.plan import Band, Question, shares_at_sizes
from tallytree.publish.release.contents import ReleaseContents, size_description
from tallytree.publish.release.entities import entity_description, entity_fields
from tallytree.publish.release.large.layout import COUNTS, ENTITIES, REGIONS, is_large, parts
from tallytree.publish.release.rows import category_description
from tallytree.publish.release.truncation import count_description, truncation
from tallytree.publish.statement import (
    LEDGER,
    NO_LEDGER,
    guarantee,
    noise_in_words,
    resource,
    same_data_in_words,
    software,
)

REACH_IN_WORDS = (
    f"the reach of a kind of interval on a level is a number m: {100 * REACH_SHARE:g} % of the level's published "
    "numbers have an interval of that kind within the number plus or minus m. The guaranteed kind is recommended on a "
    f"level, unless the reach of the typical kind is at most {100 * SHORTER:g} % of the guaranteed kind's"
)
LEFT_OUT = (
    "a cell without a row has count 0, and both its intervals run from 0; how far they reach at most is stated for "
    "each level, and guaranteed ones can be computed exactly from the measurements"
)
PARTITIONED = (
    "counts and entities are Parquet data sets in folders by level and, below the first level, by region of the first "
    "level; there are no CSV files"
)
BY_CATEGORY = (
    "id of the region, as in regions.csv, with its category in square brackets; without one it is the sum over all "
    "categories, whose level is the region's own (or, at the root of all, one above the others)"
)
BY_REGION = (
    "which of the measurements in privacy.json the values are of, from 0 on; or the name of public or settled numbers "
    "that the measurements go by"
)
SUMS = "sums of the released counts over the leaves of each area, so they agree with these and cost no privacy"
LISTED = "which leaves belong to which area is public; areas may overlap, and need not cover everything"
# Said of names; it holds for all texts in CSV files.
MARKED = (
    "; in CSV files a text that a spreadsheet would take for a formula has an apostrophe (') in front, in Parquet "
    "files all are exact"
)


def privacy_statement(release: ReleaseContents, *, zeros: bool) -> dict[str, Any]:
    """Everything a privacy reviewer asks for, in plain values."""
    measurements, mechanism = release.measurements, release.made_by
    return {
        "title": release.title,
        "statement": in_words(measurements),
        "unit": measurements.neighbours.unit.kind,
        "neighbours": measurements.neighbours.to_json(),
        "neighbours_in_words": measurements.neighbours.describe(),
        "budget": measurements.budget.to_json(),
        "measurements": [described(part, measurements) for part in measurements.measured],
        **({} if (told := bands_in_words(measurements)) is None else {"bands_of_sizes": told}),
        "noise": noise_in_words(measurements.noise_source),
        "public": public_facts(measurements),
        "truncation": truncation(measurements.neighbours) or None,
        "ledger": LEDGER if measurements.ledgered else NO_LEDGER,
        "mechanism": {
            "name": mechanism.name,
            "options": mechanism.options,
            "paper": mechanism.paper,
            "keeps": mechanism.keeps,
            **({} if release.fallback is None else release.fallback.to_json()),
        },
        "measured_first": measured_first(measurements),
        "certificate": release.certificate,
        "grand_total": None if (known := public_totals(measurements)) is None else int(known[0]),
        "totals": totals_in_words(measurements, mechanism),
        "max_size": measurements.max_size,
        "max_size_means": size_label(measurements.max_size, measurements.max_size),
        "entities": entity_description(measurements.neighbours, measurements.max_size),
        "zero_cells": "written" if zeros else "left out",
        **({"files": PARTITIONED} if is_large(release.hierarchy, len(release.sizes)) else {}),
        **({} if release.error_bars.which == "none" else {"intervals": intervals_statement(release, zeros=zeros)}),
        **({} if not release.areas else {"areas": areas_statement(release)}),
        "software": software(),
    }


def described(part: Measurement, measurements: Measurements) -> dict[str, Any]:
    """One row of the measurements table."""
    hierarchy = measurements.hierarchy
    _, level = measurements.regions_of(part.level, part.summed)
    return {
        **part.to_json(),
        "level": hierarchy.levels[part.level],
        "regions": level.stop - level.start,
        "charged": str(part.share * measurements.budget.amount),
        "cost": str(part.cost),
    }


def bands_in_words(measurements: Measurements) -> str | None:
    """Why charges of bands of sizes add up size by size, and to what; None where no band was measured."""
    if all(part.sizes is None for part in measurements.measured):
        return None
    at_each = shares_at_sizes(
        Question(part.view, part.level, part.share, part.sizes, part.summed) for part in measurements.measured
    )
    within = [size for size in at_each if size <= measurements.max_size]
    alike = [next(run) for _, run in groupby(within, key=lambda size: at_each[size])]
    sums = []
    for first, after in pairwise([*alike, measurements.max_size + 1]):
        sums.append(f"{as_decimal(at_each[first] * measurements.budget.amount)} at {Band(first, after - 1).in_words()}")
    return (
        "Measurements that name sizes, the first and the last of a band, are about these sizes alone: how many groups "
        "have each of them or more, or the sorted list of what each group has of its size within the band. Whoever "
        "comes or goes makes groups reach sizes, or reach them no longer, and each size moves the band that it is in "
        f"and no other one. So charges are added up at each size: {', '.join(sums)}. The largest of these sums is the "
        "budget."
    )


def measured_first(measurements: Measurements) -> list[str]:
    """What was not public but measured before anything else, in words; nothing for most releases."""
    facts = []
    for part in measurements.measured:
        paid = f"with {as_decimal(part.share * measurements.budget.amount)} of the budget"
        if part.view == "largest":
            facts.append(
                f"a largest size was measured {paid}, and raised by the noise it may lack: groups larger than "
                f"{measurements.max_size} count as {measurements.max_size}"
            )
        if part.view == "totals":
            level = measurements.hierarchy.levels[part.level]
            where = "region" if measurements.hierarchy.by is None else "region and category"
            facts.append(f"the number of groups in every {where} of level {level!r} was measured {paid}")
    if measurements.settled.totals is not None:
        facts.append("measured numbers of groups were made to add up, and the counts keep the result")
    if measurements.settled.places is not None and any(part.view == "sorted_sizes" for part in measurements.measured):
        facts.append(
            "from the measured numbers of groups it follows how long lists of sizes are, a little longer than there "
            "are likely to be groups; a list holds the largest sizes of its region, and zeros where there are fewer"
        )
    if measurements.passed is not None:
        facts.append(_fork_in_words(measurements, measurements.passed))
    return facts


def _fork_in_words(measurements: Measurements, passed: Passed) -> str:
    """The rule by which questions followed totals, and which did."""
    level, average = measurements.hierarchy.levels[passed.level], float(measurements.totals_of(passed.level).mean())
    ways = ["sorted lists of the sizes of the lowest level", "how many groups have each size or more"]
    followed = ways[0 if passed.few else 1]
    return (
        "what was measured next was decided by a rule that reads these noisy numbers and nothing else: with fewer than "
        f"{as_decimal(passed.fewer_than)} groups in a region of level {level!r} on average, {ways[0]}; otherwise "
        f"{ways[1]}. On average {average:.6g} were measured, so it was {followed}. Either way all measurements "
        "together cost the budget and no more"
    )


def public_facts(measurements: Measurements) -> list[str]:
    """What the guarantee takes as known to everybody."""
    facts = ["the hierarchy of regions", f"the largest size counted separately, {measurements.neighbours.max_size}"]
    if measurements.settled.max_size is not None:
        facts[1] = f"a bound on the largest size, {measurements.neighbours.max_size}"
    if measurements.regions_declared_public:
        facts[0] += " (taken from the microdata, whose list of regions the data holder declared public)"
    if measurements.neighbours.public_totals:
        named = "" if measurements.hierarchy.by is None else " and categories"
        facts.append(
            f"the list of groups with their regions{named} (declared public by the data holder), hence every region's "
            "number of groups"
        )
    if measurements.listed_totals is not None:
        facts.append(
            "the list of groups with their regions (declared public by the data holder), hence every region's number "
            "of groups over all categories"
        )
    if measurements.hierarchy.by is not None:
        facts += [f"the values of {name}" for name in measurements.hierarchy.by.names]
    if measurements.neighbours.quantity_bound > 1:
        facts.append(f"the bound on one row's quantity, {measurements.neighbours.quantity_bound}")
    if measurements.neighbours.truncated:
        facts.append(f"the bound on one entity's rows, {measurements.neighbours.rows_per_entity}")
    return facts


def in_words(measurements: Measurements) -> str:
    """The guarantee in a few sentences."""
    text = f"This release is {guarantee(measurements.budget)}. {measurements.neighbours.describe()}"
    if told := truncation(measurements.neighbours):
        text += f" {told}"
    if not measurements.ledgered:
        text += " It was made without a ledger: other releases about the same data add to its cost."
    return text + same_data_in_words(measurements.same_data_as)


def public_totals(measurements: Measurements) -> Integers | None:
    """The public number of groups in every region over all categories, where there is one."""
    if measurements.region_totals is None:
        return measurements.listed_totals
    found: Integers = over_categories(measurements.region_totals, measurements.hierarchy)
    return found


def totals_in_words(measurements: Measurements, mechanism: Mechanism) -> str:
    """Which totals the counts keep."""
    if measurements.listed_totals is not None:
        return "the public total of every region over all categories is kept; those by category are estimates"
    if measurements.region_totals is None:
        return "all totals are estimates: the number of groups is private"
    if mechanism.keeps_totals:
        return "the public total of every region is kept"
    return "the public grand total is kept; the totals of all other regions are estimates"


def intervals_statement(release: ReleaseContents, *, zeros: bool) -> dict[str, Any]:
    """What the columns of intervals promise, at which level of confidence, and what a missing row means for them."""
    bars = release.error_bars
    stated: dict[str, Any] = {
        "which": bars.which,
        "confidence": bars.confidence,
        "guaranteed": bars.no_guaranteed or "given",
        **({"typical": bars.no_typical or "given"} if bars.which == "all" else {}),
        "columns": bars.describe(),
    }
    if bars.reach:
        stated["recommended"] = {
            what: {level: bars.recommended(what, level) for level in levels} for what, levels in bars.reach.items()
        }
        stated["reach"] = {
            what: {level: dict(kinds) for level, kinds in levels.items()} for what, levels in bars.reach.items()
        }
        stated["reach_in_words"] = REACH_IN_WORDS
    if not zeros:
        stated["left_out"] = LEFT_OUT
        stated["left_out_at_most"] = bars.beyond_zero(release.counts, release.rows)
    return stated


def areas_statement(release: ReleaseContents) -> dict[str, Any]:
    """What is published of areas: how many there are of each kind, and what their totals are."""
    return {"kinds": dict(Counter(area.kind for area in release.areas)), "totals": SUMS, "leaves": LISTED}


def area_resources(release: ReleaseContents, cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tables of areas in the data package; `cells` are the fields after the area."""
    if not release.areas:
        return []
    keys = [
        {"name": "kind", "type": "string", "description": f"what such areas are called{MARKED}"},
        {"name": "area", "type": "string", "description": f"name of the area, unique within its kind{MARKED}"},
    ]
    totals = {
        "description": f"totals of areas: {SUMS}",
        "schema": {"fields": [*keys, *cells], "primaryKey": ["kind", "area", *release.rows.categories, "size"]},
    }
    leaf = {"name": "region", "type": "string", "description": "id of a leaf, as in regions.csv"}
    leaves = {
        "description": f"the leaves of every area; {LISTED}",
        "schema": {
            "fields": [*keys, leaf],
            "primaryKey": ["kind", "area", "region"],
            "foreignKeys": [{"fields": "region", "reference": {"resource": "regions", "fields": "region"}}],
        },
    }
    return [
        resource("areas.csv", totals),
        resource("areas.parquet", totals, name="areas-parquet"),
        resource("area_leaves.csv", leaves),
    ]


def interval_fields(release: ReleaseContents) -> list[dict[str, Any]]:
    """The columns of intervals as fields of the data package."""
    bars = release.error_bars
    return [
        {
            "name": name,
            "type": "integer",
            "description": text,
            "confidence": bars.confidence,
            "constraints": {"required": bars.columns[name] is not None, "minimum": 0},
        }
        for name, text in bars.describe().items()
    ]


def data_package(release: ReleaseContents, *, zeros: bool) -> dict[str, Any]:
    """A Frictionless data package that describes every table."""
    package = _data_package(release, zeros=zeros)
    return _partitioned(package, release) if is_large(release.hierarchy, len(release.sizes)) else package


def _partitioned(package: dict[str, Any], release: ReleaseContents) -> dict[str, Any]:
    """The same of a large release: its files are others, and so are the columns that these have."""
    found = {one["name"]: one for one in package["resources"]}
    areas = [one for name, one in found.items() if name.startswith("area")]
    for name in (COUNTS, ENTITIES):
        table = found[name]
        del table["mediatype"]
        table |= {"path": [part.file(name) for part in parts(release.hierarchy)], "format": "parquet"}
        table["description"] += f"; {PARTITIONED}"
        table["schema"]["fields"] = [one for one in table["schema"]["fields"] if one["name"] != "level"]
    regions, measured = found["regions"], found["measurements"]
    del regions["mediatype"]
    regions |= {"path": REGIONS, "format": "parquet"}
    measured["schema"]["fields"] = [
        {"name": "measurement", "type": "string", "description": BY_REGION},
        {"name": "region", "type": "string", "description": "id of the region, as in regions.csv"},
        {"name": "values", "type": "array", "description": "its noisy numbers, size by size; they may be negative"},
    ]
    package["resources"] = [*(found[name] for name in (COUNTS, ENTITIES, "regions", "measurements")), *areas]
    if not areas:
        package = _without(MARKED, "", package)
    return _without("regions.csv", REGIONS, package)  # type: ignore[no-any-return]


def _without(text: str, instead: str, value: Any) -> Any:
    """A JSON value with another text instead of one, wherever it is."""
    if isinstance(value, dict):
        return {key: _without(text, instead, each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without(text, instead, each) for each in value]
    return value.replace(text, instead) if isinstance(value, str) else value


def _data_package(release: ReleaseContents, *, zeros: bool) -> dict[str, Any]:
    size = size_description(release.measurements.max_size)
    keys = [
        {"name": "level", "type": "string", "description": "name of the level"},
        {"name": "region", "type": "string", "description": "id of the region, as in regions.csv"},
        {"name": "size", "type": "integer", "description": size},
    ]
    by = [
        {"name": name, "type": "string", "description": category_description(name)} for name in release.rows.categories
    ]
    shown = {"name": "name", "type": "string", "description": f"name of the region, to show{MARKED}"}
    count = {
        "name": "count",
        "type": "integer",
        "description": count_description(release.measurements.neighbours),
        "constraints": {"required": True, "minimum": 0},
    }
    cells: list[dict[str, Any]] = [*keys[2:], count, *interval_fields(release)]
    told = "" if zeros else "; cells that are zero are left out"
    if told and release.error_bars.which != "none":
        told += f" ({LEFT_OUT}: see privacy.json)"
    counts = {
        "description": f"the released counts{told}",
        "schema": {
            "fields": [*keys[:2], shown, *by, *cells],
            "primaryKey": ["region", *release.rows.categories, "size"],
            "foreignKeys": [{"fields": "region", "reference": {"resource": "regions", "fields": "region"}}],
        },
    }
    persons = {
        "description": "the number of entities of each region, which agrees with the released counts",
        "schema": {
            "fields": [
                *keys[:2],
                shown,
                *by,
                *entity_fields(release.measurements.neighbours, release.measurements.max_size, release.error_bars),
            ],
            "primaryKey": ["region", *release.rows.categories],
            "foreignKeys": [{"fields": "region", "reference": {"resource": "regions", "fields": "region"}}],
        },
    }
    columns = [
        {"name": "region", "type": "string", "description": "id, unique over all levels"},
        {"name": "name", "type": "string", "description": f"name to show{MARKED}"},
        {"name": "level", "type": "string", "description": "name of the level"},
        {"name": "parent", "type": "string", "description": "id of the region above; empty at the root"},
        {"name": "copy_of", "type": "string", "description": "id of the region that this one carries down a level"},
        {"name": "total", "type": "integer", "description": "public number of groups, where there is one"},
    ]
    regions = {
        "description": "the regions in breadth-first order",
        "schema": {"fields": columns, "primaryKey": ["region"]},
    }
    noisy = [
        {
            "name": "view",
            "type": "string",
            "description": "counts: groups of that size; at_least: of that size or more; sorted_sizes: sizes of the "
            "groups, ascending; totals: number of groups; entities: sum of the groups' sizes; largest: size of the "
            "largest group; chain: groups of that "
            "size in that region or one after it, or of any larger size in any region of the level",
        },
        *(keys if not by else [keys[0], {**keys[1], "description": BY_CATEGORY}, keys[2]]),
        {"name": "value", "type": "integer", "description": "the noisy measurement; may be negative"},
    ]
    bands = (
        ""
        if all(part.sizes is None for part in release.measurements.measured)
        else "; those of a band of sizes are one after another, in the order of privacy.json, and a list of a band "
        "holds what each group has of its size within it: min(size, last) − min(size, first − 1)"
    )
    measurements = {
        "description": f"the noisy measurements from which the counts were estimated{bands}",
        "schema": {"fields": noisy},
    }
    return {
        "name": "tallytree-release",
        "title": release.title,
        "description": in_words(release.measurements),
        "resources": [
            resource("counts.csv", counts),
            resource("counts.parquet", counts, name="counts-parquet"),
            resource("entities.csv", persons),
            resource("entities.parquet", persons, name="entities-parquet"),
            resource("regions.csv", regions),
            resource("measurements.parquet", measurements),
            *area_resources(release, [*by, *cells]),
        ],
    }
