"""What `verify` checks of a release: a table of promises, each with the function that finds what is against it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.numbers import exact_number, short
from tallytree.domain.category_trees import over_categories
from tallytree.mechanisms import instead_of
from tallytree.privacy.accounting import NOISE_FOR, cost_of
from tallytree.privacy.budget import Budget
from tallytree.privacy.measure import variance_of
from tallytree.privacy.measurements import Settled
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import FIRST, Band, Question, shares_at_sizes
from tallytree.publish.folder import MANIFEST, MEASUREMENTS, MOST_FAULTS, PACKAGE, PRIVACY, UNUSABLE, Stored
from tallytree.publish.reading import read_json
from tallytree.publish.release import restated
from tallytree.publish.release.area_files import areas_differ
from tallytree.publish.release.contents import size_description
from tallytree.publish.release.files import stated_fallback
from tallytree.publish.release.interval_checks import (
    entities_follow,
    guaranteed_follow,
    interval_words,
    intervals_in_order,
)
from tallytree.publish.release.partition import COUNTS, REGIONS
from tallytree.publish.release.region_table import region_table
from tallytree.publish.release.statement import described, measured_first, public_totals
from tallytree.publish.release.stored import StoredRelease, faults_at
from tallytree.publish.release.truncation import count_description
from tallytree.publish.statement import FORMAT, guarantee, shown_in


def _rows(stored: StoredRelease) -> Iterator[str]:
    for problem in stored.cells.problems:
        yield f"{COUNTS}: {problem}"


def _adds_up(stored: StoredRelease) -> Iterator[str]:
    hierarchy, sizes, counts = stored.hierarchy, stored.sizes, stored.counts
    parents = hierarchy.level_starts[-2]
    if parents == 0:
        return
    sums = np.add.reduceat(counts, hierarchy.child_starts[:parents], axis=0)
    for region, size in np.argwhere(sums != counts[:parents])[:MOST_FAULTS]:
        yield (
            f"region {hierarchy.ids[region]!r}, size {sizes[size]}: the regions below add up to {sums[region, size]}, "
            f"not to {counts[region, size]}"
        )


def _categories_add_up(stored: StoredRelease) -> Iterator[str]:
    found = stored.cells.laid_out
    if found is not None:
        fault = "the count is not the sum over the categories"
        yield from faults_at(found != stored.rows.lay_out(stored.counts), fault, stored)


def _levels_agree(stored: StoredRelease) -> Iterator[str]:
    hierarchy, counts = stored.hierarchy, stored.counts
    totals = [int(counts[hierarchy.level_slice(level)].sum()) for level in range(hierarchy.depth)]
    for level, total in enumerate(totals):
        if total != totals[0]:
            yield f"level {hierarchy.levels[level]!r} adds up to {total}, the root to {totals[0]}"
    public = stored.statement["grand_total"]
    if public is not None and totals[0] != public:
        yield f"the counts add up to {totals[0]}, not to the public grand total {public}"


def _public_totals(stored: StoredRelease) -> Iterator[str]:
    hierarchy, texts = stored.regions
    listed = stored.statement["neighbours"].get("groups_listed", False)
    if not stored.statement["neighbours"]["public_totals"] and not listed:
        if any(texts):
            yield f"{REGIONS} gives totals although they are private"
        settled = stored.measurements.settled.totals
        if settled is not None and stored.mechanism.keeps_totals:
            for region in np.flatnonzero(stored.counts.sum(axis=1) != settled)[:MOST_FAULTS]:
                yield f"{stored.rows.where(int(region))}: the counts do not add up to the total that was measured first"
        return
    totals = np.array([int(text) for text in texts])
    wrong = np.flatnonzero(hierarchy.aggregate(totals[hierarchy.level_slice(hierarchy.depth - 1)]) != totals)
    for region in wrong[:MOST_FAULTS]:
        yield f"{REGIONS}: the public total of {hierarchy.ids[region]!r} is not the sum of those below it"
    if listed:
        counts = over_categories(stored.counts, stored.hierarchy).sum(axis=1)
        for region in np.flatnonzero(counts != totals)[:MOST_FAULTS]:
            yield f"region {hierarchy.ids[region]!r}: the counts do not add up to the public total {totals[region]}"
    elif stored.mechanism.keeps_totals and (known := stored.measurements.region_totals) is not None:
        for region in np.flatnonzero(stored.counts.sum(axis=1) != known)[:MOST_FAULTS]:
            yield f"{stored.rows.where(int(region))}: the counts do not add up to the public total {known[region]}"
    if stored.statement["grand_total"] != totals[0]:
        yield f"{PRIVACY} and {REGIONS} give different grand totals"
    known = public_totals(stored.measurements)
    if known is None or not np.array_equal(known, totals):
        yield f"{REGIONS} and {MEASUREMENTS} give different public totals"


def _same_regions(stored: StoredRelease) -> Iterator[str]:
    if stored.hierarchy.to_json() != stored.measurements.hierarchy.to_json():
        yield f"{REGIONS} and {MEASUREMENTS} describe different hierarchies"


def _last_size(stored: StoredRelease) -> Iterator[str]:
    import pyarrow.parquet as pq

    largest = stored.statement["max_size"]
    described_as = size_description(largest)
    if stored.statement["max_size_means"] != f"{largest} or more" or largest != stored.measurements.max_size:
        yield f"{PRIVACY} does not say that size {largest} means {largest} or more"
    told = [stored.statement["neighbours_in_words"], *stored.statement.get("measured_first", [])]
    if not any(f"'{largest} or more'" in text or f"count as {largest}" in text for text in told):
        yield f"{PRIVACY}'s neighbour relation does not say that size {largest} means {largest} or more"
    for resource in read_json(stored.directory / PACKAGE)["resources"]:
        for field in resource["schema"]["fields"]:
            if field["name"] == "size" and field["description"] != described_as:
                yield f"{PACKAGE}: {resource['name']} does not say that size {largest} means {largest} or more"
    metadata = pq.read_schema(stored.counts_file).field("size").metadata or {}
    if metadata.get(b"description", b"").decode() != described_as:
        yield f"{COUNTS} does not say that size {largest} means {largest} or more"


def _privacy_adds_up(stored: StoredRelease) -> Iterator[str]:
    """Recompute the cost from the statement's own table, and the table from the neighbour relation."""
    statement = stored.statement
    budget, neighbours = Budget.from_json(statement["budget"]), Neighbours.from_json(statement["neighbours"])
    if statement["unit"] != neighbours.unit.kind or statement["neighbours_in_words"] != neighbours.describe():
        yield f"{PRIVACY}: the unit or its description does not fit the neighbour relation"
    if guarantee(budget, shown_in(statement)) not in statement["statement"]:
        yield f"{PRIVACY}: the statement in words does not give the stated budget"
    asked = []
    for row in statement["measurements"]:
        name = f"the measurement of {row['view']} on level {row['level']!r}"
        summed = row.get("summed", False)
        sensitivity = neighbours.sensitivity(row["view"], row["regions"], summed=summed)
        if row["sensitivity"] != {"l1": sensitivity.l1, "l2_squared": sensitivity.l2_squared}:
            yield f"{PRIVACY}: {name} states another sensitivity than its neighbour relation gives"
        if row["noise"] != NOISE_FOR[budget.currency]:
            yield f"{PRIVACY}: {name} has noise that does not fit a budget in {budget.currency}"
        scale, share = exact_number(row["scale"]), exact_number(row["share"])
        cost = cost_of(NOISE_FOR[budget.currency], sensitivity, scale)
        if str(cost) != row["cost"]:
            yield f"{PRIVACY}: {name} costs {cost}, not {row['cost']}"
        if str(share * budget.amount) != row["charged"] or cost > share * budget.amount:
            yield f"{PRIVACY}: {name} is not charged what it costs"
        band = None if "sizes" not in row else Band(*row["sizes"])
        asked.append(Question(row["view"], row["level"], share, band, summed))
        if band is not None and band.last > neighbours.max_size:
            yield f"{PRIVACY}: {name} is about sizes up to {band.last}, beyond the largest one, {neighbours.max_size}"
    at_each = shares_at_sizes(asked)
    size = max(at_each, key=lambda size: at_each[size])
    if (charged := at_each[size] * budget.amount) != budget.amount:
        where = "" if len(at_each) == 1 else f" at size {size}, where they are largest"
        yield f"{PRIVACY}: the charges add up to {charged}{where}, not to the budget {budget.amount}"
    known = stored.measurements.neighbours
    if (neighbours, neighbours.truncated) != (
        known,
        known.truncated,
    ) or budget.to_json() != stored.measurements.budget.to_json():
        yield f"{PRIVACY} and {MEASUREMENTS} state different privacy"
    if statement["measurements"] != [described(part, stored.measurements) for part in stored.measurements.measured]:
        yield f"{PRIVACY} and {MEASUREMENTS} describe different measurements"
    if statement.get("measured_first", []) != measured_first(stored.measurements, shown_in(statement)):
        yield f"{PRIVACY} does not say what was measured first"


def _says_what_was_left_out(stored: StoredRelease) -> Iterator[str]:
    """Where rows may have been dropped, statement, data package and table all say so; and nowhere else."""
    import pyarrow.parquet as pq

    if not stored.says_if_truncated:
        return
    told, statement, package = stored.truncation, stored.statement, read_json(stored.directory / PACKAGE)
    if (statement["truncation"] or "") != told or told not in statement["statement"]:
        yield f"{PRIVACY} does not say what was left out before counting: {told or 'nothing'}"
    if told not in package["description"]:
        yield f"{PACKAGE} does not say what was left out before counting: {told}"
    wanted = count_description(stored.measurements.neighbours)
    for resource in package["resources"]:
        for field in resource["schema"]["fields"]:
            if field["name"] == "count" and field["description"] != wanted:
                yield f"{PACKAGE}: {resource['name']} does not say what its counts describe"
    metadata = pq.read_schema(stored.counts_file).field("count").metadata or {}
    if metadata.get(b"description", b"").decode() != wanted:
        yield f"{COUNTS} does not say what its counts describe"


def _follows(stored: StoredRelease) -> Iterator[str]:
    """Estimation is a pure function of the measurements."""
    measurements, fallback = stored.measurements, stated_fallback(stored.statement)
    asking = stored.mechanism if fallback is None else fallback.asked
    asking.check(measurements.neighbours, measurements.hierarchy)
    shares = None if asking.leaves_only else measurements.level_shares
    plan = asking.plan(measurements.hierarchy, measurements.budget, measurements.neighbours.unit, shares)
    passed = None if plan.fork is None else measurements.passing(plan.fork)
    if passed != measurements.passed:
        yield f"which questions were asked after the totals does not follow from these by the rule of {asking.name}"
    if passed is not None:
        plan = plan.branch(few=passed.few)
    asked = {(ask.view, ask.level, ask.share, ask.sizes, ask.summed) for ask in plan.questions}
    if asked != {(part.view, part.level, part.share, part.sizes, part.summed) for part in measurements.measured}:
        yield f"{asking.name} with the options in {PRIVACY} does not ask for what was measured"
    first = replace(measurements, measured=tuple(part for part in measurements.measured if part.view in FIRST))
    settled = asking.settle(replace(first, settled=Settled()))
    known = measurements.settled
    if settled.max_size != known.max_size or not _same(settled.totals, known.totals):
        yield f"the totals or the largest size in {MEASUREMENTS} do not follow from what was measured of them"
    if not _same(settled.places, known.places):
        yield f"the lengths of lists in {MEASUREMENTS} do not follow from the totals that were measured"
    if fallback is not None:
        used = stored.mechanism
        if (used.name, used.options) not in [(one.name, one.options) for one in instead_of(asking, measurements)]:
            yield f"{PRIVACY}: {used.name} is none of those that stand in for {asking.name}"
        if not stored.statement["certificate"].endswith(fallback.in_words(used)):
            yield f"{PRIVACY}: the certificate does not say that {used.name} stands in for {asking.name}"
    if not np.array_equal(stored.estimate.counts, stored.counts) and not _another_optimum(stored):
        yield f"{COUNTS} is not what {stored.statement['mechanism']['name']} estimates from {MEASUREMENTS}"


def _another_optimum(stored: StoredRelease) -> bool:
    """Are the counts of another version as close as those of this one? Of several optima it may have taken another."""
    certified = stored.mechanism.certified
    return stored.of_another_version and certified is not None and certified(stored.measurements, stored.counts)


def _same(one: Integers | None, other: Integers | None) -> bool:
    return one is other is None or (one is not None and other is not None and np.array_equal(one, other))


# -------------------------------------------------------------------- all that is said


def _statement_follows(stored: StoredRelease) -> Iterator[str]:
    if not isinstance(stored.statement["title"], str):
        yield f"{PRIVACY}: the title is not a text"
    if stored.statement["format"] not in (1, FORMAT):
        yield f"{PRIVACY} has format {short(stored.statement['format'])}; this version reads formats 1 and {FORMAT}"
    yield from _few(restated.statement_differs(stored.contents, stored.directory))


def _package_follows(stored: StoredRelease) -> Iterator[str]:
    yield from _few(restated.package_differs(stored.contents, stored.directory))


def _tables_follow(stored: StoredRelease) -> Iterator[str]:
    contents = stored.contents
    yield from _few(restated.facts_differ(contents, stored.directory))
    regions = region_table(contents.hierarchy, public_totals(contents.measurements), REGIONS)
    for table in (contents.counts_table, regions):
        yield from table.differences(stored.directory, stored.progress, csv=contents.is_small)


def _areas_follow(stored: StoredRelease) -> Iterator[str]:
    yield from areas_differ(stored.contents, stored.directory, read_json(stored.directory / MANIFEST)["files"])


def _noise_fits(stored: StoredRelease) -> Iterator[str]:
    """The stated variance of each measurement is that of its noise, and its noise is of a release."""
    for part in stored.measurements.measured:
        if part.variance != variance_of(part.noise, part.scale):
            yield f"{MEASUREMENTS}: the noise of {part.view} on level {part.level} does not have the stated variance"


def _few(faults: Iterator[str]) -> Iterator[str]:
    yield from islice(faults, 2 * MOST_FAULTS)


PROMISES: dict[str, Callable[[StoredRelease], Iterator[str]]] = {
    "the files are those that the manifest lists, unchanged": Stored.changes,
    "every region and size has one row, with a count of 0 or more": _rows,
    "children add up to their parent for every size": _adds_up,
    "every level adds up to the same total, the public one if there is one": _levels_agree,
    "totals that are known add up, and are kept where the mechanism keeps them": _public_totals,
    "counts and measurements are about the same regions": _same_regions,
    "the last size is described as 'or more'": _last_size,
    "the privacy costs follow from the neighbour relation and add up to the budget": _privacy_adds_up,
    "what was left out before counting is said wherever counts are described": _says_what_was_left_out,
    "the counts follow from the measurements": _follows,
    "what is said of intervals is the same everywhere": interval_words,
    "every interval holds its count and stays within what is possible": intervals_in_order,
    "guaranteed intervals follow from the measurements": guaranteed_follow,
    "numbers of entities, where there are any, are those of the counts, with their intervals": entities_follow,
    "the noise has the stated variance": _noise_fits,
    "what is stated follows from measurements, counts and mechanism, and nothing else is stated": _statement_follows,
}
NEWER_PROMISES: dict[str, Callable[[StoredRelease], Iterator[str]]] = {  # which releases of format 1 did not give
    "the data package describes these tables, and nothing else": _package_follows,
    "rows are in their order, and tables say what they hold": _tables_follow,
    "areas, where there are any, are the sums of their leaves, with the intervals that follow": _areas_follow,
}

CATEGORIES_ADD_UP = "rows for all categories are the sums over them, in every region and for every size"


def promises_of(stored: StoredRelease) -> dict[str, Callable[[StoredRelease], Iterator[str]]]:
    """What a release promises, each with its check; those of a release that cannot even be read are all broken."""
    try:
        older, by_category = stored.is_older, stored.hierarchy.by is not None
    except UNUSABLE:
        older, by_category = False, False
    promises = PROMISES if older else PROMISES | NEWER_PROMISES
    return {**promises, CATEGORIES_ADD_UP: _categories_add_up} if by_category else promises
