"""Statements of a release: the privacy statement (`privacy.json`) and the data package (`datapackage.json`)."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

from tallytree.core.arrays import Integers
from tallytree.domain.histogram import size_label
from tallytree.estimate.intervals.interval import REACH_SHARE, SHORTER
from tallytree.mechanisms import Mechanism
from tallytree.mechanisms.noise_choice import measured_plan, noise_in_words
from tallytree.privacy.budget import as_decimal
from tallytree.privacy.measurements import Branch, Measurement, Measurements
from tallytree.privacy.plan import Band, MeasurementQuery, shares_at_sizes
from tallytree.privacy.relations import describe_relation, relation_to_json
from tallytree.publish.folder import MEASUREMENTS
from tallytree.publish.release.areas import LEAVES
from tallytree.publish.release.contents import LEFT_OUT, MARKED, SUMS, ReleaseContents
from tallytree.publish.release.descriptions import entity_description, truncation
from tallytree.publish.release.error_bars import KINDS
from tallytree.publish.release.table_layout import REGIONS, REGIONS_CSV, region_table
from tallytree.publish.statement import LEDGER, NO_LEDGER, guarantee, resource, same_data_in_words, software
from tallytree.publish.statement import noise_in_words as source_in_words
from tallytree.publish.table import PARTITIONED

REACH_IN_WORDS = (
    f"the reach of a kind of interval on a level is a number m: {100 * REACH_SHARE:g} % of the level's published "
    "numbers have an interval of that kind within the number plus or minus m. The guaranteed kind is recommended on a "
    f"level, unless the reach of the typical kind is at most {100 * SHORTER:g} % of the guaranteed kind's"
)
BY_REGION = (
    "which measurement in privacy.json the values are of, from 0 on; or the name of public or first-stage numbers "
    "that the measurements depend on"
)
BY_CATEGORY = (
    ", with its category in square brackets; without one it is the sum over all categories, whose level is the "
    "region's own (or, at the root of all, one above the others)"
)
VIEWS = (
    "counts: groups of each size, from the smallest on; at_least: of each size or more, from 1 on; sorted_sizes: sizes "
    "of the groups, ascending; totals: number of groups; entities: sum of the groups' sizes; largest: size of the "
    "largest group; chain: groups of each size in that region or one after it, or of any larger size in any region of "
    "the level"
)
OF_BANDS = (
    "; a list of a band of sizes holds what each group has of its size within it: min(size, last) − "
    "min(size, first − 1)"
)
LISTED = "the list of each area's leaves is public; areas may overlap, and need not cover everything"


def privacy_statement(release: ReleaseContents) -> dict[str, Any]:
    """Return everything that a privacy reviewer needs, in plain values."""
    measurements, mechanism = release.measurements, release.made_by
    return {
        "title": release.title,
        **release.about.in_statement(),
        "statement": in_words(measurements),
        "unit": measurements.neighbours.unit.kind,
        "neighbours": relation_to_json(measurements.neighbours),
        "neighbours_in_words": describe_relation(measurements.neighbours),
        "budget": measurements.budget.to_json(),
        "measurements": [described(part, measurements) for part in measurements.measured],
        **({} if (told := bands_in_words(measurements)) is None else {"bands_of_sizes": told}),
        "noise": source_in_words(measurements.noise_source),
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
        "zero_cells": "written" if release.is_small else "left out",
        **({} if release.is_small else {"files": PARTITIONED}),
        **({} if release.error_bars.which == "none" else {"intervals": intervals_statement(release)}),
        **({} if not release.areas else {"areas": areas_statement(release)}),
        "software": software(),
    }


def described(part: Measurement, measurements: Measurements) -> dict[str, Any]:
    """Return one row of the measurements table."""
    hierarchy = measurements.hierarchy
    _, level = measurements.regions_of(part.level, part.summed)
    return {
        **part.to_json(),
        "level": hierarchy.levels[part.level],
        "regions": level.stop - level.start,
        "charged": str(part.share * measurements.budget.amount),
        "cost": str(part.cost),
    }


def shares_by_size(measurements: Measurements) -> dict[int, Fraction]:
    """Return the sum of the shares of the budget that were spent at each size."""
    return shares_at_sizes(
        MeasurementQuery(part.view, part.level, part.share, part.sizes, part.summed) for part in measurements.measured
    )


def bands_in_words(measurements: Measurements) -> str | None:
    """Return why costs of size bands add up size by size, and to what; None if no band was measured."""
    if all(part.sizes is None for part in measurements.measured):
        return None
    at_each = shares_by_size(measurements)
    within = [size for size in at_each if size <= measurements.max_size]
    alike = [next(run) for _, run in groupby(within, key=lambda size: at_each[size])]
    sums = []
    for first, after in pairwise([*alike, measurements.max_size + 1]):
        sums.append(f"{as_decimal(at_each[first] * measurements.budget.amount)} at {Band(first, after - 1).in_words()}")
    return (
        "Measurements that name sizes, the first and the last of a band, are about these sizes alone: how many groups "
        "have each of them or more, or the sorted list of the part of each group's size within the band. Adding or "
        "removing a unit makes groups reach sizes, or reach them no longer, and each size moves the band that it is "
        f"in and no other one. So charges are added up at each size: {', '.join(sums)}. The largest of these sums is "
        "the budget."
    )


def measured_first(measurements: Measurements) -> list[str]:
    """Return what was private and measured first, in words; empty for most releases."""
    facts = []
    for part in measurements.measured:
        paid = f"with {as_decimal(part.share * measurements.budget.amount)} of the budget"
        if part.view == "largest":
            facts.append(
                f"a largest size was measured {paid}, and raised to allow for noise: groups larger than "
                f"{measurements.max_size} count as {measurements.max_size}"
            )
        if part.view == "totals":
            level = measurements.hierarchy.levels[part.level]
            where = "region and category" if measurements.hierarchy.by.columns else "region"
            facts.append(f"the number of groups in every {where} of level {level!r} was measured {paid}")
    if measurements.first_stage.totals is not None:
        facts.append("measured numbers of groups were made to add up, and the counts keep the result")
    if measurements.first_stage.places is not None and any(
        part.view == "sorted_sizes" for part in measurements.measured
    ):
        facts.append(
            "from the measured numbers of groups follows the length of the lists of sizes, which is slightly more "
            "than the likely number of groups; a list holds the largest sizes of its region, and zeros where there "
            "are fewer"
        )
    if measurements.branch is not None:
        facts.append(_branch_in_words(measurements, measurements.branch))
    return facts


def _branch_in_words(measurements: Measurements, branch: Branch) -> str:
    """Return the rule by which measurement queries followed from totals, and which branch was taken."""
    level, average = measurements.hierarchy.levels[branch.level], float(measurements.totals_of(branch.level).mean())
    ways = ["sorted lists of the sizes of the lowest level", "how many groups have each size or more"]
    followed = ways[0 if branch.below else 1]
    return (
        "what was measured next was decided by a rule that reads these noisy numbers and nothing else: with fewer than "
        f"{as_decimal(branch.fewer_than)} groups in a region of level {level!r} on average, {ways[0]}; otherwise "
        f"{ways[1]}. On average {average:.6g} were measured, so it was {followed}. Either way all measurements "
        "together cost the budget and no more"
    )


def public_facts(measurements: Measurements) -> list[str]:
    """Return the facts that the guarantee takes as public."""
    facts = ["the hierarchy of regions", f"the largest size counted separately, {measurements.neighbours.max_size}"]
    if measurements.first_stage.max_size is not None:
        facts[1] = f"a bound on the largest size, {measurements.neighbours.max_size}"
    if measurements.regions_declared_public:
        facts[0] += " (taken from the microdata, whose list of regions the data holder declared public)"
    if measurements.neighbours.public_totals:
        named = " and categories" if measurements.hierarchy.by.columns else ""
        facts.append(
            f"the list of groups with their regions{named} (declared public by the data holder), hence every region's "
            "number of groups"
        )
    if measurements.listed_totals is not None:
        facts.append(
            "the list of groups with their regions (declared public by the data holder), hence every region's number "
            "of groups over all categories"
        )
    facts += [f"the values of {name}" for name in measurements.hierarchy.by.names]
    facts += [f"the rule that {rule}" for rule in measurements.row_rules]
    if measurements.neighbours.quantity_bound > 1:
        facts.append(f"the bound on one row's quantity, {measurements.neighbours.quantity_bound}")
    if measurements.neighbours.truncated:
        facts.append(f"the bound on one entity's rows, {measurements.neighbours.rows_per_entity}")
    return facts


def in_words(measurements: Measurements) -> str:
    """Return the guarantee in a few sentences."""
    text = f"This release is {guarantee(measurements.budget)}. {describe_relation(measurements.neighbours)}"
    if why := noise_choice(measurements):
        text += f" {why}"
    if told := truncation(measurements.neighbours):
        text += f" {told}"
    if not measurements.ledgered:
        text += " It was made without a ledger: other releases about the same data add to its cost."
    return text + same_data_in_words(measurements.same_data_as)


def privacy_note(measurements: Measurements) -> str:
    """Return how the numbers are protected, in two sentences."""
    words = guarantee(measurements.budget)
    why = noise_choice(measurements)
    return f"{words[:1].upper()}{words[1:]}. {describe_relation(measurements.neighbours)}{f' {why}' if why else ''}"


def noise_choice(measurements: Measurements) -> str | None:
    """Return which noise was used and why, in one sentence; None if there was no choice."""
    return noise_in_words(measured_plan(measurements), measurements.neighbours, measurements.hierarchy)


def public_totals(measurements: Measurements) -> Integers | None:
    """Return the public number of groups in every region over all categories; None if private."""
    if measurements.region_totals is None:
        return measurements.listed_totals
    found: Integers = measurements.hierarchy.over_categories(measurements.region_totals)
    return found


def totals_in_words(measurements: Measurements, mechanism: Mechanism) -> str:
    """Return which totals the counts keep."""
    if measurements.listed_totals is not None:
        return "the public total of every region over all categories is kept; those by category are estimates"
    if measurements.region_totals is None:
        return "all totals are estimates: the number of groups is private"
    if mechanism.keeps_totals:
        return "the public total of every region is kept"
    return "the public grand total is kept; the totals of all other regions are estimates"


def intervals_statement(release: ReleaseContents) -> dict[str, Any]:
    """Return what the interval columns guarantee, their confidence, and what a missing row means for them."""
    bars = release.error_bars
    stated: dict[str, Any] = {
        "which": bars.which,
        "confidence": bars.confidence,
        **{kind: bars.missing.get(kind, "given") for kind in KINDS[bars.which]},
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
    if not release.is_small:
        stated["left_out"] = LEFT_OUT
        stated["left_out_at_most"] = bars.beyond_zero(release.counts, release.rows)
    return stated


def areas_statement(release: ReleaseContents) -> dict[str, Any]:
    """Return the number of published areas of each kind, and what their totals are."""
    return {"kinds": dict(Counter(area.kind for area in release.areas)), "totals": SUMS, "leaves": LISTED}


def data_package(release: ReleaseContents) -> dict[str, Any]:
    """Return a Frictionless data package that describes every table."""
    small = release.is_small
    listed = REGIONS_CSV if small else REGIONS
    tables = [release.counts_table, release.entity_table]
    regions = region_table(release.hierarchy, public_totals(release.measurements), REGIONS)
    areas = [release.areas_table] if release.areas else []
    return {
        "name": "tallytree-release",
        "title": release.title,
        **release.about.in_package(in_words(release.measurements)),
        "resources": [
            *(one for table in (*tables, regions) for one in table.resources(regions=listed, csv=small)),
            _measurements_resource(release, listed),
            *(one for table in areas for one in table.resources(regions=listed, csv=True)),
            *([_leaves_resource(listed)] if areas else []),
        ],
    }


def _leaves_resource(listed: str) -> dict[str, Any]:
    """Return the resource that lists the leaves of every area."""
    fields = {
        "kind": f"kind of area{MARKED}",
        "area": f"name of the area, unique within its kind{MARKED}",
        "region": f"id of a leaf, as in {listed}",
    }
    owner = {"fields": "region", "reference": {"resource": "regions", "fields": "region"}}
    return _listing(LEAVES, f"the leaves of every area; {LISTED}", fields, list(fields), foreignKeys=[owner])


def _measurements_resource(release: ReleaseContents, listed: str) -> dict[str, Any]:
    banded = any(part.sizes is not None for part in release.measurements.measured)
    fields = {
        "measurement": BY_REGION,
        "region": f"id of the region, as in {listed}{BY_CATEGORY if release.hierarchy.by.columns else ''}",
        "values": f"its noisy numbers, which may be negative; {VIEWS}",
    }
    text = f"the noisy measurements from which the counts were estimated{OF_BANDS if banded else ''}"
    return _listing(MEASUREMENTS, text, fields, ["measurement", "region"])


def _listing(path: str, text: str, fields: dict[str, str], keys: list[str], **more: Any) -> dict[str, Any]:
    """Return the resource of a file without counts: `values` are lists, and all other fields are texts."""
    described = [
        {"name": name, "type": "array" if name == "values" else "string", "description": about}
        for name, about in fields.items()
    ]
    return resource(path, {"description": text, "schema": {"fields": described, "primaryKey": keys, **more}})
