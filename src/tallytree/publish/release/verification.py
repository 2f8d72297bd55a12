"""`verify`: recompute everything a release promises, from its files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.arrays import Integers
from tallytree.errors import ReleaseError, TallytreeError
from tallytree.hierarchy import Hierarchy
from tallytree.mechanisms import Mechanism, mechanism_named
from tallytree.privacy.accounting import NOISE_FOR, cost_of
from tallytree.privacy.budget import Budget
from tallytree.privacy.measure import FIRST
from tallytree.privacy.measurements import Measurements, Settled
from tallytree.privacy.neighbours import Neighbours
from tallytree.publish.folder import changed_files
from tallytree.publish.release.error_bars import ErrorBars
from tallytree.publish.release.files import (
    COUNTS,
    COUNTS_CSV,
    FILES,
    MANIFEST,
    MEASUREMENTS,
    MOST,
    PACKAGE,
    PRIVACY,
    REGIONS,
    Cells,
    count_columns,
    digest,
    read_cells,
    read_json,
    read_regions,
    stored_error_bars,
)
from tallytree.publish.release.interval_verification import INTERVAL_PROMISES
from tallytree.publish.release.statement import described, guarantee, measured_first, size_description
from tallytree.version import VERSION


@dataclass(frozen=True)
class Check:
    """One promise, and what was found against it; nothing if it holds."""

    promise: str
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`."""

    checks: tuple[Check, ...]
    release_id: str | None

    @property
    def ok(self) -> bool:
        """Do all promises hold?"""
        return all(not check.faults for check in self.checks)

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything that was found."""
        return tuple(fault for check in self.checks for fault in check.faults)


class _Stored:
    """A directory's files, each read once and when first asked for."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, Any] = {}

    def _once(self, name: str, read: Callable[[], Any]) -> Any:
        if name not in self._known:
            try:
                self._known[name] = read()
            except (TallytreeError, OSError, KeyError, TypeError, ValueError) as error:
                self._known[name] = error
        if isinstance(self._known[name], Exception):
            raise ReleaseError(f"{name} cannot be used: {_reason(self._known[name])}")
        return self._known[name]

    @property
    def statement(self) -> dict[str, Any]:
        statement: dict[str, Any] = self._once(PRIVACY, lambda: read_json(self.directory / PRIVACY))
        return statement

    @property
    def regions(self) -> tuple[Hierarchy, list[str]]:
        regions: tuple[Hierarchy, list[str]] = self._once(REGIONS, lambda: read_regions(self.directory / REGIONS))
        return regions

    @property
    def measurements(self) -> Measurements:
        loaded: Measurements = self._once(MEASUREMENTS, lambda: Measurements.load(self.directory / MEASUREMENTS))
        return loaded

    @property
    def mechanism(self) -> Mechanism:
        stated = self.statement["mechanism"]
        return mechanism_named(stated["name"]).configured(stated.get("options", {}))

    @property
    def sizes(self) -> range:
        return range(0 if self.statement["neighbours"]["public_totals"] else 1, self.statement["max_size"] + 1)

    @property
    def intervals(self) -> dict[str, Any] | None:
        """What the statement says of intervals; None where there are none, as in older releases."""
        intervals: dict[str, Any] | None = self.statement.get("intervals")
        return intervals

    @property
    def cells(self) -> Cells:
        options = {"dense": self.statement["zero_cells"] == "written", "intervals": self.intervals}
        cells: Cells = self._once(
            COUNTS, lambda: read_cells(self.directory / COUNTS, self.regions[0], self.sizes, **options)
        )
        return cells

    @property
    def counts(self) -> tuple[Integers, list[str]]:
        return self.cells.counts, self.cells.problems

    @property
    def error_bars(self) -> ErrorBars:
        return stored_error_bars(self.cells, self.intervals)


def verify(directory: str | PathLike[str], *, id: str | None = None) -> Verification:  # noqa: A002
    """Check the directory of a release or of synthetic households; with `id`, also that it is that very one."""
    folder = Path(directory)
    if not folder.is_dir():
        raise ReleaseError(f"there is no release directory at {folder}")
    promises, stored = _promises(folder)
    checks = tuple(Check(promise, tuple(_found(check, stored))) for promise, check in promises.items())
    manifest = folder / MANIFEST
    release_id = digest(manifest) if manifest.is_file() else None
    if id is not None:
        same = release_id is not None and len(id) >= 8 and release_id.startswith(id.lower())
        fault = f"the release's id is {release_id}, not {id}"
        checks = (Check("the release is the one with the given id", () if same else (fault,)), *checks)
    return Verification(checks, release_id)


def _promises(folder: Path) -> tuple[dict[str, Callable[[Any], Iterator[str]]], Any]:
    """What is promised depends on what the directory holds."""
    from tallytree.publish.microdata import verification as microdata

    if microdata.is_microdata(folder):
        return microdata.PROMISES, microdata.Stored(folder)
    return PROMISES, _Stored(folder)


def _found(check: Callable[[Any], Iterator[str]], stored: Any) -> Iterator[str]:
    """What a check finds; a file that cannot even be read is a fault too."""
    try:
        yield from check(stored)
    except (TallytreeError, OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        yield _reason(error)


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _digests(stored: _Stored) -> Iterator[str]:
    return changed_files(stored.directory, FILES)


def _rows(stored: _Stored) -> Iterator[str]:
    for problem in stored.counts[1]:
        yield f"{COUNTS}: {problem}"


def _csv_agrees(stored: _Stored) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import csv

    names = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
    kinds = {column: names[kind] for column, kind in count_columns(stored.intervals).items()}
    options = csv.ConvertOptions(column_types=kinds, strings_can_be_null=False)
    try:
        with csv.open_csv(stored.directory / COUNTS_CSV, convert_options=options) as text:
            same = pq.ParquetFile(stored.directory / COUNTS).iter_batches()
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


def _adds_up(stored: _Stored) -> Iterator[str]:
    hierarchy, sizes = stored.regions[0], stored.sizes
    counts = stored.counts[0]
    parents = hierarchy.level_starts[-2]
    if parents == 0:
        return
    sums = np.add.reduceat(counts, hierarchy.child_starts[:parents], axis=0)
    for region, size in np.argwhere(sums != counts[:parents])[:MOST]:
        yield (
            f"region {hierarchy.ids[region]!r}, size {sizes[size]}: the regions below add up to {sums[region, size]}, "
            f"not to {counts[region, size]}"
        )


def _levels_agree(stored: _Stored) -> Iterator[str]:
    hierarchy, counts = stored.regions[0], stored.counts[0]
    totals = [int(counts[hierarchy.level_slice(level)].sum()) for level in range(hierarchy.depth)]
    for level, total in enumerate(totals):
        if total != totals[0]:
            yield f"level {hierarchy.levels[level]!r} adds up to {total}, the root to {totals[0]}"
    public = stored.statement["grand_total"]
    if public is not None and totals[0] != public:
        yield f"the counts add up to {totals[0]}, not to the public grand total {public}"


def _public_totals(stored: _Stored) -> Iterator[str]:
    hierarchy, texts = stored.regions
    if not stored.statement["neighbours"]["public_totals"]:
        if any(texts):
            yield f"{REGIONS} gives totals although they are private"
        settled = stored.measurements.settled.totals
        if settled is not None and stored.mechanism.keeps_totals:
            for region in np.flatnonzero(stored.counts[0].sum(axis=1) != settled)[:MOST]:
                yield f"region {hierarchy.ids[region]!r}: the counts do not add up to the total that was measured first"
        return
    totals = np.array([int(text) for text in texts])
    wrong = np.flatnonzero(hierarchy.aggregate(totals[hierarchy.level_slice(hierarchy.depth - 1)]) != totals)
    for region in wrong[:MOST]:
        yield f"{REGIONS}: the public total of {hierarchy.ids[region]!r} is not the sum of those below it"
    if stored.mechanism.keeps_totals:
        for region in np.flatnonzero(stored.counts[0].sum(axis=1) != totals)[:MOST]:
            yield f"region {hierarchy.ids[region]!r}: the counts do not add up to the public total {totals[region]}"
    if stored.statement["grand_total"] != totals[0]:
        yield f"{PRIVACY} and {REGIONS} give different grand totals"
    known = stored.measurements.region_totals
    if known is None or not np.array_equal(known, totals):
        yield f"{REGIONS} and {MEASUREMENTS} give different public totals"


def _same_regions(stored: _Stored) -> Iterator[str]:
    if stored.regions[0].to_json() != stored.measurements.hierarchy.to_json():
        yield f"{REGIONS} and {MEASUREMENTS} describe different hierarchies"


def _last_size(stored: _Stored) -> Iterator[str]:
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


def _privacy_adds_up(stored: _Stored) -> Iterator[str]:
    """Recompute the cost from the statement's own table, and the table from the neighbour relation."""
    statement = stored.statement
    budget, neighbours = Budget.from_json(statement["budget"]), Neighbours.from_json(statement["neighbours"])
    if statement["unit"] != neighbours.unit.kind or statement["neighbours_in_words"] != neighbours.describe():
        yield f"{PRIVACY}: the unit or its description does not fit the neighbour relation"
    if guarantee(budget) not in statement["statement"]:
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
    if neighbours != stored.measurements.neighbours or budget.to_json() != stored.measurements.budget.to_json():
        yield f"{PRIVACY} and {MEASUREMENTS} state different privacy"
    if statement["measurements"] != [described(part, stored.measurements) for part in stored.measurements.measured]:
        yield f"{PRIVACY} and {MEASUREMENTS} describe different measurements"
    if statement.get("measured_first", []) != measured_first(stored.measurements):
        yield f"{PRIVACY} does not say what was measured first"


def _follows(stored: _Stored) -> Iterator[str]:
    """Estimation is a pure function of the measurements. Another version may differ, so only our own is run again."""
    if stored.statement["software"]["tallytree"] != VERSION:
        return
    measurements = stored.measurements
    plan = stored.mechanism.plan(
        measurements.hierarchy, measurements.budget, measurements.neighbours.unit, measurements.level_shares
    )
    asked = {(ask.view, ask.level, ask.share) for ask in plan.questions}
    if asked != {(part.view, part.level, part.share) for part in measurements.measured}:
        yield f"{stored.mechanism.name} with the options in {PRIVACY} does not ask for what was measured"
    first = replace(measurements, measured=tuple(part for part in measurements.measured if part.view in FIRST))
    settled = stored.mechanism.settle(replace(first, settled=Settled()))
    if settled.max_size != measurements.settled.max_size or not _same(settled.totals, measurements.settled.totals):
        yield f"the totals or the largest size in {MEASUREMENTS} do not follow from what was measured of them"
    estimate = stored.mechanism.estimate(measurements)
    if not np.array_equal(estimate.counts, stored.counts[0]):
        yield f"{COUNTS} is not what {stored.statement['mechanism']['name']} estimates from {MEASUREMENTS}"


def _same(one: Integers | None, other: Integers | None) -> bool:
    return one is other is None or (one is not None and other is not None and np.array_equal(one, other))


PROMISES: dict[str, Callable[[_Stored], Iterator[str]]] = {
    "the files are those that the manifest lists, unchanged": _digests,
    "every region and size has one row, with a count of 0 or more": _rows,
    "counts.csv and counts.parquet hold the same rows": _csv_agrees,
    "children add up to their parent for every size": _adds_up,
    "every level adds up to the same total, the public one if there is one": _levels_agree,
    "totals that are known add up, and are kept where the mechanism keeps them": _public_totals,
    "counts and measurements are about the same regions": _same_regions,
    "the last size is described as 'or more'": _last_size,
    "the privacy costs follow from the neighbour relation and add up to the budget": _privacy_adds_up,
    "the counts follow from the measurements": _follows,
    **INTERVAL_PROMISES,
}
