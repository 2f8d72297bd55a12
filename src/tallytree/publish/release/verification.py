"""What `verify` checks of a release. Intervals are checked where there are any: older releases promise none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Integers
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.measured_view import no_guarantee
from tallytree.estimate.intervals.value import most_groups
from tallytree.hierarchy import Hierarchy
from tallytree.long_table import for_spreadsheets
from tallytree.mechanisms import Mechanism, instead_of
from tallytree.privacy.accounting import NOISE_FOR, cost_of
from tallytree.privacy.budget import Budget
from tallytree.privacy.measure import FIRST
from tallytree.privacy.measurements import Measurements, Settled
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.folder import MEASUREMENTS, MOST_FAULTS, PACKAGE, PRIVACY, Stored, read_json
from tallytree.publish.release.contents import size_description
from tallytree.publish.release.error_bars import GUARANTEED, TYPICAL, ErrorBars
from tallytree.publish.release.files import (
    COUNTS,
    COUNTS_CSV,
    FILES,
    NULL,
    REGIONS,
    Cells,
    are_named,
    count_columns,
    read_cells,
    read_regions,
    stated_fallback,
    stated_mechanism,
    stored_error_bars,
)
from tallytree.publish.release.measurements_file import load_measurements
from tallytree.publish.release.statement import LEFT_OUT, described, measured_first
from tallytree.publish.release.truncation import count_description, truncation
from tallytree.publish.statement import guarantee, shown_in
from tallytree.version import VERSION


class StoredRelease(Stored):
    """The files of a release directory."""

    expected = FILES

    @property
    def regions(self) -> tuple[Hierarchy, list[str]]:
        """regions.csv: the hierarchy, and the column of public totals as text."""
        return self.once(REGIONS, lambda: read_regions(self.directory / REGIONS, marked=self.named))

    @property
    def hierarchy(self) -> Hierarchy:
        """The regions."""
        return self.regions[0]

    @property
    def measurements(self) -> Measurements:
        """measurements.parquet."""
        return self.once(MEASUREMENTS, lambda: load_measurements(self.directory / MEASUREMENTS))

    @property
    def mechanism(self) -> Mechanism:
        """What the statement says the counts were made by."""
        return stated_mechanism(self.statement)

    @property
    def sizes(self) -> range:
        """The sizes that are counted."""
        return range(0 if self.statement["neighbours"]["public_totals"] else 1, self.statement["max_size"] + 1)

    @property
    def named(self) -> bool:
        """Do names stand beside ids, and are formulas marked as texts in CSV files? Not in those of early versions."""
        return are_named(self.directory / COUNTS)

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
        """counts.parquet."""
        path = self.directory / COUNTS
        return self.once(COUNTS, lambda: read_cells(path, self.hierarchy, self.sizes, self.statement))

    @property
    def counts(self) -> Integers:
        """The released counts."""
        return self.cells.counts

    @property
    def error_bars(self) -> ErrorBars:
        """The released intervals."""
        return stored_error_bars(self.cells, self.intervals, self.truncation)

    @property
    def says_if_truncated(self) -> bool:
        """Do the files say whether rows were dropped? Those of early versions do not, and were not asked to."""
        return "rows_were_bounded" in self.statement["neighbours"] or self.measurements.neighbours.rows_were_bounded

    @property
    def truncation(self) -> str:
        """What the files must say of what was left out before counting."""
        return truncation(self.measurements.neighbours) if self.says_if_truncated else ""


def _faults_at(wrong: NDArray[np.bool_], fault: str, stored: StoredRelease) -> Iterator[str]:
    """The fault, for the first few cells `[regions, sizes]` that have it."""
    for region, size in np.argwhere(wrong)[:MOST_FAULTS]:
        yield f"region {stored.hierarchy.ids[region]!r}, size {stored.sizes[size]}: {fault}"


def _rows(stored: StoredRelease) -> Iterator[str]:
    for problem in stored.cells.problems:
        yield f"{COUNTS}: {problem}"


def _csv_agrees(stored: StoredRelease) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    names = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    kinds = {column: names[kind] for column, kind in count_columns(stored.intervals, named=stored.named).items()}
    options = csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
    parse = csv.ParseOptions(newlines_in_values=True)
    try:
        with csv.open_csv(stored.directory / COUNTS_CSV, convert_options=options, parse_options=parse) as text:
            same = pq.ParquetFile(stored.directory / COUNTS).iter_batches()
            if stored.named:
                same = (for_spreadsheets(pa.table(batch)).to_batches()[0] for batch in same if batch.num_rows)
            yield from _difference(text, same, list(kinds))
    except pa.ArrowException as error:
        yield f"{COUNTS_CSV} cannot be read: {error}"


def _difference(one: Any, other: Any, columns: list[str]) -> Iterator[str]:
    """Compare two streams of record batches row by row, whatever their batches' lengths."""
    import pyarrow as pa

    left, right, row = None, None, 1
    while True:
        left = left if left is not None and left.num_rows else next(iter(one), None)
        right = right if right is not None and right.num_rows else next(other, None)
        if left is None or right is None:
            if left is not right:
                yield f"{COUNTS_CSV} and {COUNTS} differ in their number of rows after row {row - 1:,}"
            return
        if left.schema.names != columns:
            yield f"{COUNTS_CSV}: its columns are not {', '.join(columns)}"
            return
        length = min(left.num_rows, right.num_rows)
        head = pa.table(left.slice(0, length)), pa.table(right.slice(0, length)).replace_schema_metadata(None)
        if not head[0].equals(head[1].cast(head[0].schema)):
            yield f"{COUNTS_CSV} and {COUNTS} differ within rows {row:,} to {row + length - 1:,}"
            return
        left, right, row = left.slice(length), right.slice(length), row + length


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
    if not stored.statement["neighbours"]["public_totals"]:
        if any(texts):
            yield f"{REGIONS} gives totals although they are private"
        settled = stored.measurements.settled.totals
        if settled is not None and stored.mechanism.keeps_totals:
            for region in np.flatnonzero(stored.counts.sum(axis=1) != settled)[:MOST_FAULTS]:
                yield f"region {hierarchy.ids[region]!r}: the counts do not add up to the total that was measured first"
        return
    totals = np.array([int(text) for text in texts])
    wrong = np.flatnonzero(hierarchy.aggregate(totals[hierarchy.level_slice(hierarchy.depth - 1)]) != totals)
    for region in wrong[:MOST_FAULTS]:
        yield f"{REGIONS}: the public total of {hierarchy.ids[region]!r} is not the sum of those below it"
    if stored.mechanism.keeps_totals:
        for region in np.flatnonzero(stored.counts.sum(axis=1) != totals)[:MOST_FAULTS]:
            yield f"region {hierarchy.ids[region]!r}: the counts do not add up to the public total {totals[region]}"
    if stored.statement["grand_total"] != totals[0]:
        yield f"{PRIVACY} and {REGIONS} give different grand totals"
    known = stored.measurements.region_totals
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
    metadata = pq.read_schema(stored.directory / COUNTS).field("size").metadata or {}
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
    charged = Fraction(0)
    for row in statement["measurements"]:
        name = f"the measurement of {row['view']} on level {row['level']!r}"
        sensitivity = neighbours.sensitivity(row["view"], row["regions"])
        if row["sensitivity"] != {"l1": sensitivity.l1, "l2_squared": sensitivity.l2_squared}:
            yield f"{PRIVACY}: {name} states another sensitivity than its neighbour relation gives"
        if row["noise"] != NOISE_FOR[budget.currency]:
            yield f"{PRIVACY}: {name} has noise that does not fit a budget in {budget.currency}"
        scale, share = Fraction(row["scale"]), Fraction(row["share"])
        cost = cost_of(NOISE_FOR[budget.currency], sensitivity, scale)
        if str(cost) != row["cost"]:
            yield f"{PRIVACY}: {name} costs {cost}, not {row['cost']}"
        if str(share * budget.amount) != row["charged"] or cost > share * budget.amount:
            yield f"{PRIVACY}: {name} is not charged what it costs"
        charged += share * budget.amount
    if charged != budget.amount:
        yield f"{PRIVACY}: the charges add up to {charged}, not to the budget {budget.amount}"
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
    metadata = pq.read_schema(stored.directory / COUNTS).field("count").metadata or {}
    if metadata.get(b"description", b"").decode() != wanted:
        yield f"{COUNTS} does not say what its counts describe"


def _follows(stored: StoredRelease) -> Iterator[str]:
    """Estimation is a pure function of the measurements. Another version may differ, so only our own is run again."""
    if stored.statement["software"]["tallytree"] != VERSION:
        return
    measurements, fallback = stored.measurements, stated_fallback(stored.statement)
    asking = stored.mechanism if fallback is None else fallback.asked
    plan = asking.plan(
        measurements.hierarchy, measurements.budget, measurements.neighbours.unit, measurements.level_shares
    )
    asked = {(ask.view, ask.level, ask.share) for ask in plan.questions}
    if asked != {(part.view, part.level, part.share) for part in measurements.measured}:
        yield f"{asking.name} with the options in {PRIVACY} does not ask for what was measured"
    first = replace(measurements, measured=tuple(part for part in measurements.measured if part.view in FIRST))
    settled = asking.settle(replace(first, settled=Settled()))
    if settled.max_size != measurements.settled.max_size or not _same(settled.totals, measurements.settled.totals):
        yield f"the totals or the largest size in {MEASUREMENTS} do not follow from what was measured of them"
    if fallback is not None:
        used = stored.mechanism
        if (used.name, used.options) not in [(one.name, one.options) for one in instead_of(asking, measurements)]:
            yield f"{PRIVACY}: {used.name} is none of those that stand in for {asking.name}"
        if not stored.statement["certificate"].endswith(fallback.in_words(used)):
            yield f"{PRIVACY}: the certificate does not say that {used.name} stands in for {asking.name}"
    estimate = stored.mechanism.estimate(measurements)
    if not np.array_equal(estimate.counts, stored.counts):
        yield f"{COUNTS} is not what {stored.statement['mechanism']['name']} estimates from {MEASUREMENTS}"


def _same(one: Integers | None, other: Integers | None) -> bool:
    return one is other is None or (one is not None and other is not None and np.array_equal(one, other))


# -------------------------------------------------------------------- intervals


def _interval_words(stored: StoredRelease) -> Iterator[str]:
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
    if not stored.zeros_written and stored.intervals["left_out"] != LEFT_OUT:
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


def _intervals_in_order(stored: StoredRelease) -> Iterator[str]:
    """0 ≤ lower ≤ count ≤ upper, and upper is at most the public total, unless the count itself is larger."""
    if stored.intervals is None:
        return
    counts, ends, bars = stored.counts, stored.cells.ends, stored.error_bars
    most = np.maximum(most_groups(stored.measurements)[:, None], counts)
    for names, given in ((GUARANTEED, bars.guaranteed), (TYPICAL, bars.typical)):
        if names[0] not in ends:
            continue
        lower, upper = ends[names[0]], ends[names[1]]
        if given is None:
            fault = f"{names[0]} or {names[1]} is given although none is said to be"
            yield from _faults_at((lower != NULL) | (upper != NULL), fault, stored)
            continue
        fault = f"{names[0]} is empty, or more than the count"
        yield from _faults_at((lower < 0) | (lower > counts), fault, stored)
        fault = f"{names[1]} is empty, less than the count, or too large"
        yield from _faults_at((upper < counts) | (upper > most), fault, stored)


def _guaranteed_follow(stored: StoredRelease) -> Iterator[str]:
    """Guaranteed intervals are a pure function of measurements and counts; again only our own version is run.

    Typical ones come from fresh noise and are not computed again.
    """
    if stored.intervals is None or stored.statement["software"]["tallytree"] != VERSION:
        return
    counts, ends, bars = stored.counts, stored.cells.ends, stored.error_bars
    again = guaranteed(stored.measurements, counts, level=bars.confidence)
    if again is None or bars.guaranteed is None:
        return  # whether that is right is another promise
    for name, right in zip(GUARANTEED, (again.lower, again.upper), strict=True):
        wrong = ends[name] != right
        if not stored.zeros_written:
            wrong &= counts != 0
        fault = f"{name} is not what follows from the measurements at a confidence of {bars.confidence}"
        yield from _faults_at(wrong, fault, stored)
    if not stored.zeros_written:
        reached = replace(bars, guaranteed=again).beyond_zero(counts, stored.hierarchy)
        for level, stated in stored.intervals["left_out_at_most"].items():
            if stated[GUARANTEED[1]] != reached[level][GUARANTEED[1]]:
                yield f"{PRIVACY}: intervals of left-out cells of level {level!r} do not reach as far as is stated"


PROMISES: dict[str, Callable[[StoredRelease], Iterator[str]]] = {
    "the files are those that the manifest lists, unchanged": Stored.changes,
    "every region and size has one row, with a count of 0 or more": _rows,
    "counts.csv and counts.parquet hold the same rows": _csv_agrees,
    "children add up to their parent for every size": _adds_up,
    "every level adds up to the same total, the public one if there is one": _levels_agree,
    "totals that are known add up, and are kept where the mechanism keeps them": _public_totals,
    "counts and measurements are about the same regions": _same_regions,
    "the last size is described as 'or more'": _last_size,
    "the privacy costs follow from the neighbour relation and add up to the budget": _privacy_adds_up,
    "what was left out before counting is said wherever counts are described": _says_what_was_left_out,
    "the counts follow from the measurements": _follows,
    "what is said of intervals is the same everywhere": _interval_words,
    "every interval holds its count and stays within what is possible": _intervals_in_order,
    "guaranteed intervals follow from the measurements": _guaranteed_follow,
}
