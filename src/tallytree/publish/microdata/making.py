"""`synthesize`: from private households to a `Synthesis`, the public value that households are drawn from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

from tallytree.arrays import Integers
from tallytree.errors import BudgetError, SpecError
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.households.journal import FILE as JOURNAL
from tallytree.privacy.households.journal import Round
from tallytree.privacy.households.neighbours import HouseholdNeighbours, HouseholdUnit
from tallytree.privacy.households.rounds import PrivateTables
from tallytree.privacy.ledger import Ledger, Receipt
from tallytree.privacy.neighbours import PrivacyUnit
from tallytree.progress import Progress, silent
from tallytree.publish.release.making import Release
from tallytree.publish.release.stored import MANIFEST, digest
from tallytree.schema import Marginal, Schema
from tallytree.synthesis.agreement import SizeTable, Together, draw_agreeing, size_table, together
from tallytree.synthesis.methods import DEFAULT, Method, Options, method
from tallytree.synthesis.methods.asking import Fitted
from tallytree.synthesis.models.model import SyntheticHouseholds
from tallytree.synthesis.models.sampling import CHUNK, draw
from tallytree.synthesis.trust import Evidence, TableAccuracy, table_accuracies
from tallytree.synthesis.workload import Workload, default_workload
from tallytree.tables.households import Households

AnyRelease = Release | str | PathLike[str]

HOUSEHOLD_ID, PERSON = "household_id", "person"
CHECKPOINT = "checkpoint"


@dataclass(frozen=True, eq=False)
class Synthesis:
    """A model of private households with all it was made from. Everything in it is public.

    `number` is how many households `draw` and `save` give if not told otherwise.
    """

    workload: Workload
    fitted: Fitted
    method: str
    options: Mapping[str, Any]
    neighbours: HouseholdNeighbours
    budget: Budget
    rounds: tuple[Round, ...]
    exact: Mapping[Marginal, Integers]  # tables that the unit does not protect and that were taken as they are
    truncation: str
    number: int
    title: str
    table: SizeTable | None = None  # with which the households agree
    receipt: Receipt | None = field(default=None, repr=False)  # stays with the data holder; in no file

    @property
    def schema(self) -> Schema:
        """The attributes."""
        return self.workload.schema

    @property
    def ledgered(self) -> bool:
        """Was the budget taken from a ledger?"""
        return self.receipt is not None

    @property
    def evidence(self) -> Evidence:
        """What was measured, as the report of errors takes it."""
        return Evidence(self.schema, self.fitted.measured, self.exact)

    @property
    def together(self) -> Together | None:
        """What this and the released table promise together, where there is one."""
        if self.table is None:
            return None
        return together(self.table.neighbours, self.table.budget, self.neighbours, self.budget)

    def draw(self, number: int | None = None, *, chunk: int = CHUNK) -> Iterator[SyntheticHouseholds]:
        """Synthetic households as codes, in chunks; by a released table as many as it says."""
        if self.table is not None:
            if number not in (None, self.table.number):
                raise SpecError(f"the released table has {self.table.number:,} households, so {number:,} cannot be had")
            return draw_agreeing(self.fitted.model, self.table, chunk=chunk)
        return draw(self.fitted.model, self.number if number is None else number, chunk=chunk)

    def questions(self) -> list[TableAccuracy]:
        """The errors of the model's own answers, estimated from the measurements; `save` has those of its files."""
        answers = [self.fitted.number * table for table in self.fitted.model.answers_all(self.workload)]
        return table_accuracies(self.workload, answers, self.evidence)

    def save(
        self,
        directory: str | PathLike[str],
        *,
        number: int | None = None,
        replace: bool = False,
        progress: Progress = silent,
    ) -> str:
        """Draw households and write the directory, whole or not at all; returns its id, as `Release.save` does."""
        from tallytree.publish.microdata.files import write_microdata

        saved = write_microdata(self, Path(directory), number=number, replace=replace, progress=progress)
        if self.receipt is not None:
            self.receipt.record(saved)
        return saved


def synthesize(
    households: Households,
    *,
    budget: Budget,
    unit: HouseholdUnit | PrivacyUnit | str = "one_group",
    workload: Workload | None = None,
    method: str = DEFAULT,
    options: Mapping[str, Any] | None = None,
    ledger: str | PathLike[str] | Ledger | None = None,
    folder: str | PathLike[str] | None = None,
    number: int | None = None,
    release: AnyRelease | None = None,
    region: str | None = None,
    title: str | None = None,
    progress: Progress = silent,
) -> Synthesis:
    """Spend a budget on private households and fit a model to what was measured of them.

    `workload` are the tables to get right: without one all sets of up to three attributes, or a sample of them.
    `number` is how many households to draw, by default as many as there are. With a `ledger` the whole budget is
    taken from the data set's account first. `folder` keeps the journal of rounds and the newest model: calling again
    with the same folder and the same arguments goes on where a killed run stopped, and spends nothing twice.

    With a `release` of group sizes (or its directory) and the household attribute `region`, whose values are its leaf
    regions, households are drawn so that their numbers by region and size are the released ones exactly. Both then
    have one promise together; with a ledger the release is charged to the households' account too, once.

    Everything that can be refused is refused before anything is spent.
    """
    ready = check(households, budget, unit, workload, method, options, number, release, region)
    neighbours, table = ready.neighbours, ready.table
    book = Ledger(ledger) if isinstance(ledger, str | PathLike) else ledger
    journal = None if folder is None else Path(folder) / JOURNAL
    begun = journal is not None and journal.exists() and journal.stat().st_size > 0
    if book is not None and table is not None:
        _check_account(book, households.name, table, neighbours, budget, begun=begun)

    tables = PrivateTables(households, neighbours, budget, ledger=book, journal=folder)
    try:
        if book is not None and table is not None:
            _charge_release(book, households.name or "", table, neighbours, budget)
        checkpoint = None if folder is None else os.path.join(folder, CHECKPOINT)
        fitted = ready.method.run(
            tables, ready.workload, options=ready.options, progress=progress, checkpoint=checkpoint
        )
        exact = {marginal: tables.public_counts(marginal) for marginal in tables.published_exactly}
    finally:
        tables.close()
    return Synthesis(
        workload=ready.workload,
        fitted=fitted,
        method=ready.method.name,
        options=asdict(ready.options),
        neighbours=neighbours,
        budget=budget,
        rounds=tables.rounds,
        exact=exact,
        truncation=households.truncation(),
        number=table.number if table is not None else fitted.number if number is None else number,
        title=title or "Synthetic households and persons",
        table=table,
        receipt=tables.receipt,
    )


@dataclass(frozen=True, eq=False)
class Ready:
    """What a synthesis would do: all of it checked, nothing of it done."""

    neighbours: HouseholdNeighbours
    method: Method
    options: Options
    workload: Workload
    table: SizeTable | None


def check(
    households: Households,
    budget: Budget,
    unit: HouseholdUnit | PrivacyUnit | str,
    workload: Workload | None,
    method: str,
    options: Mapping[str, Any] | None,
    number: int | None,
    release: AnyRelease | None,
    region: str | None,
) -> Ready:
    """All that `synthesize` refuses is refused here, and nothing is spent."""
    schema = households.schema
    neighbours = HouseholdNeighbours(_unit(unit), schema.max_persons)
    chosen, settings, asked = check_public(schema, method, options, workload)
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise SpecError(f"number must be a whole number of at least 0, not {number!r}")
    tables = PrivateTables(households, neighbours, budget)  # reserves nothing: it has no ledger and no journal
    table = _table(schema, release, region, neighbours, budget, tables)
    if table is not None and number not in (None, table.number):
        raise SpecError(f"the release has {table.number:,} households, so number cannot be {number:,}: leave it out")
    return Ready(neighbours, chosen, settings, asked, table)


def check_public(
    schema: Schema, name: str, options: Mapping[str, Any] | None, workload: Workload | None
) -> tuple[Method, Options, Workload]:
    """The method, its options and the workload, if all can be used with this schema; no private row is needed."""
    names = [attribute.name for attribute in (*schema.household, *schema.person)]
    for taken in (HOUSEHOLD_ID, PERSON):
        if taken in names:
            raise SpecError(f"{taken!r} is a column of the synthetic tables; call the attribute something else")
    chosen = method(name)
    settings = chosen.prepared(schema, options)
    asked = default_workload(schema) if workload is None else workload
    asked.check(schema)
    return chosen, settings, asked


def _unit(unit: HouseholdUnit | PrivacyUnit | str) -> HouseholdUnit:
    if isinstance(unit, HouseholdUnit):
        return unit
    return HouseholdUnit(unit.kind if isinstance(unit, PrivacyUnit) else unit)  # type: ignore[arg-type]


# -------------------------------------------------------------------- agreement with a released table


def _table(
    schema: Schema,
    release: AnyRelease | None,
    region: str | None,
    neighbours: HouseholdNeighbours,
    budget: Budget,
    tables: PrivateTables,
) -> SizeTable | None:
    """The released table, if there is one and it can agree with these households."""
    if (release is None) != (region is None):
        raise SpecError("agreement with a release needs both: release, and region, the attribute with its leaf regions")
    if release is None or region is None:
        return None
    table = released_sizes(schema, release, region)
    together(table.neighbours, table.budget, neighbours, budget)
    if table.neighbours.public_totals and table.number != tables.number:
        raise SpecError(
            f"the release has {table.number:,} households and the data {tables.number:,}, both public: they are not "
            "about the same households"
        )
    return table


def released_sizes(schema: Schema, release: AnyRelease, region: str) -> SizeTable:
    """The leaves of a release (or of its directory) as the values of a household attribute."""
    release_id = None
    if not isinstance(release, Release):
        folder = Path(release)
        release = Release.load(folder)
        release_id = digest(folder / MANIFEST)
    tree, measurements = release.hierarchy, release.measurements
    leaves = tree.level_slice(tree.depth - 1)
    return size_table(
        schema,
        region,
        ids=tree.ids[leaves],
        names=tree.names[leaves],
        counts=release.counts[leaves],
        first_size=measurements.first_size,
        neighbours=measurements.neighbours,
        budget=measurements.budget,
        release_id=release_id,
    )


def _check_account(
    book: Ledger,
    name: str | None,
    table: SizeTable,
    neighbours: HouseholdNeighbours,
    budget: Budget,
    *,
    begun: bool,
) -> None:
    """Refuse unless the account can pay for the release (if it has not yet) and for what is to come."""
    if table.release_id is None:
        raise SpecError("with a ledger, give the release as its directory: its id tells whether it was charged before")
    account = book.account(name or "")
    both = together(table.neighbours, table.budget, neighbours, budget)
    for_release = Fraction(0) if _is_charged(book, name or "", table) else both.release
    needed = for_release + (Fraction(0) if begun else both.synthesis)
    if account.currency != "rho":
        raise BudgetError("synthesis is charged in ρ: the ledger must have opened the data set in rho")
    if needed > account.left:
        raise BudgetError(
            f"{name!r} has ρ = {as_decimal(account.left)} left; the released table and the synthesis together would "
            f"cost ρ = {as_decimal(needed)}. Nothing was spent."
        )


def _charge_release(book: Ledger, name: str, table: SizeTable, neighbours: HouseholdNeighbours, budget: Budget) -> None:
    if not _is_charged(book, name, table):
        cost = together(table.neighbours, table.budget, neighbours, budget).release
        receipt = book.reserve(name, Budget(rho=cost), neighbours)
        receipt.record(table.release_id or "")


def _is_charged(book: Ledger, name: str, table: SizeTable) -> bool:
    return any(spending.release_id == table.release_id for spending in book.account(name).spendings)
