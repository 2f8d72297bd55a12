"""`synthesize`: fit a public `Synthesis`, from which households are drawn, to private households."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arguments import FLAG, MAPPING, PATH, TEXT, either, expecting, instance, optional, told
from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, silent
from tallytree.domain.schema import Schema
from tallytree.privacy.budget import Budget
from tallytree.privacy.joint_cost import charge_release, check_account, together
from tallytree.privacy.journal import VALUE, Journal
from tallytree.privacy.ledger import Charge, Ledger
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables, check_households, number_of, with_levels
from tallytree.publish.about import NOT_STATED, About
from tallytree.publish.folder import MANIFEST, digest
from tallytree.publish.memory import refuse_workload_beyond_memory
from tallytree.publish.microdata.synthesis import ID, PERSON, Synthesis
from tallytree.publish.release.value import Release
from tallytree.publish.run_folder import RunFolder, choose_charge, choose_folder, explain_failures
from tallytree.synthesis.agreement import SizeTable, match_to_schema
from tallytree.synthesis.country_model import (
    Country,
    RegionalOptions,
    fit_country,
    plan_country,
    restrict_workload,
    workload_of,
)
from tallytree.synthesis.marginals import DEFAULT, method
from tallytree.synthesis.methods import Method, Options
from tallytree.synthesis.workload import Workload, default_workload
from tallytree.tables.households import Households

AnyRelease = Release | str | PathLike[str]

JOURNAL = 1 << 20  # bytes for the lines of a journal without the values of complete tables
MOST_ROOM = 1 << 30  # reserved at the start; later rounds reserve their space before they start


@expecting(
    households=instance(Households, "as tallytree.read_households returns them"),
    workload=optional(instance(Workload)),
    method=TEXT,
    options=optional(MAPPING),
    ledger=optional(either(PATH, instance(Ledger))),
    same_data=FLAG,
    changed_files=FLAG,
    folder=optional(PATH),
    release=optional(either(instance(Release), PATH)),
    region=optional(TEXT),
    by=optional(MAPPING),
    regional=optional(MAPPING),
    title=optional(TEXT),
)
def synthesize(
    households: Households,
    *,
    budget: Budget | Mapping[str, Any],
    unit: PrivacyUnit | str = "one_group",
    workload: Workload | None = None,
    method: str = DEFAULT,
    options: Mapping[str, Any] | None = None,
    ledger: str | PathLike[str] | Ledger | None = None,
    same_data: bool = False,
    changed_files: bool = False,
    folder: str | PathLike[str] | None = None,
    resume: bool = False,
    number: int | None = None,
    release: AnyRelease | None = None,
    region: str | None = None,
    by: Mapping[str, Any] | None = None,
    regional: Mapping[str, Any] | None = None,
    title: str | None = None,
    about: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Synthesis:
    """Spend a budget on private households and fit a model to the noisy measurements.

    Everything that can be refused is refused before anything is spent. An error or an interrupt after the budget was
    reserved says what was spent and how to go on.

    Parameters
    ----------
    households : Households
        The private households, from `read_households`.
    budget : Budget or mapping
        What may be spent: a `Budget`, or the words of a spec such as ``{"epsilon": 1, "delta": "1e-6"}``.
    unit : PrivacyUnit or str, default "one_group"
        Whom the synthesis protects. See `PrivacyUnit`.
    workload : Workload, optional
        The tables to get right. The default is all sets of up to three attributes, or a sample of them.
    method : str, default "tallytree-marginals"
        The method: "tallytree-marginals", "h-gem" or "mwem".
    options : mapping, optional
        Options of the method.
    ledger : path or Ledger, optional
        The ledger that holds the data set's account. The whole budget is taken from it first.
    same_data : bool, default False
        Accept files that another account was charged for, as in `release`.
    changed_files : bool, default False
        Accept files that the account was not charged for before, as in `release`.
    folder : path, optional
        The folder that keeps the journal of rounds. If a run was killed, call again with the same folder and the same
        arguments: it goes on where it stopped and spends nothing twice. With a ledger and without `folder`, a new
        folder beside the ledger is used until the synthesis is saved. With a ledger, a copy of the folder cannot draw a
        round again; without one, nothing guards against copies.
    resume : bool, default False
        Refuse a folder that holds no such run.
    number : int, optional
        How many households to draw. The default is as many as there are.
    release : Release or path, optional
        A release of group sizes, or its directory. Households are drawn so that their numbers by region and size are
        exactly the released ones. Both then have one joint privacy cost; with a ledger the release is charged to the
        households' account too, once.
    region : str, optional
        The household attribute whose values are the release's leaf regions. Needed with `release`.
    by : mapping, optional
        For a release with categories, the household attribute of each category: ``{"tenure": "ten"}``, or with its
        values: ``{"tenure": {"attribute": "ten", "values": {"owned": "1", "rented": "2"}}}``. The default is the
        attribute of the same name, with the same values. Households then agree with the release by category too.
    regional : mapping, optional
        Measure tables by the regions of every level of the release's tree with a part of the budget, such as
        ``{"share": "0.25", "tables": [["tenure"], ["age"]]}`` (every attribute by default). Households then differ by
        region as far as the budget allows, and the levels above the leaves become attributes of households too. The
        workload is then about the whole.
    title : str, optional
        The title of the synthesis.
    about : mapping, optional
        Who publishes it, and what it is about, as in `release`.
    progress : callable, optional
        A function that is called with each step of the work.

    Returns
    -------
    Synthesis
        The fitted model. Everything in it is public. `Synthesis.save` draws households and writes them.

    Raises
    ------
    SpecError
        If a public input is wrong.
    BudgetError
        If the budget is malformed, or the account in the ledger cannot pay it.
    """
    settings = SynthesisSettings(
        Budget.of(budget),
        PrivacyUnit.of(unit),
        workload,
        method,
        options,
        number,
        release,
        region,
        by,
        regional,
        title,
        About.of(about),
    )
    checked = check_synthesis(households, settings)
    charge = choose_charge(ledger, same_data=same_data, changed_files=changed_files)
    run = choose_folder(folder, charge.ledger)
    where = None if run is None else str(run.folder)
    how = f"To continue, call synthesize again with the same arguments and folder={where!r}."
    with explain_failures(run, settings.budget, how):
        return make_synthesis(checked, charge, run, resume=resume, progress=progress)


@dataclass(frozen=True, eq=False)
class SynthesisSettings:
    """The arguments of `synthesize`: what to measure, the release to agree with, and the title."""

    budget: Budget
    unit: PrivacyUnit
    workload: Workload | None = None
    method: str = DEFAULT
    options: Mapping[str, Any] | None = None
    number: int | None = None
    release: AnyRelease | None = None
    region: str | None = None
    by: Mapping[str, Any] | None = None
    regional: Mapping[str, Any] | None = None
    title: str | None = None
    about: About = NOT_STATED


@dataclass(frozen=True, eq=False)
class ChosenMethod:
    """The method and workload that follow from the settings and the schema, without any private row."""

    method: Method
    options: Options
    workload: Workload  # of the root, if there are regions


@dataclass(frozen=True, eq=False)
class CheckedSynthesis:
    """A synthesis that was checked and not yet run."""

    settings: SynthesisSettings
    households: Households
    neighbours: HouseholdNeighbours
    chosen: ChosenMethod
    table: SizeTable | None
    country: Country | None = None


def choose_method(schema: Schema, settings: SynthesisSettings) -> ChosenMethod:
    """Return the method, its options and the workload if they fit this schema; no private row is needed.

    With tables by region, the workload is about the other attributes.
    """
    names = [attribute.name for attribute in (*schema.household, *schema.person)]
    for taken in (ID, PERSON):
        if taken in names:
            raise SpecError(f"{taken!r} is a column of the synthetic tables; rename the attribute")
    if settings.regional is not None and (settings.release is None or settings.region is None):
        raise SpecError("regional needs release and region: it uses the release's tree of regions")
    chosen = method(settings.method)
    options = chosen.prepared(schema, settings.options)
    if settings.regional is not None and settings.region is not None:
        workload = restrict_workload(schema, settings.region, settings.workload)
    else:
        workload = default_workload(schema) if settings.workload is None else settings.workload
        workload.check(schema)
    refuse_workload_beyond_memory(workload.queries, len(workload))
    return ChosenMethod(chosen, options, workload)


def check_synthesis(
    households: Households, settings: SynthesisSettings, chosen: ChosenMethod | None = None
) -> CheckedSynthesis:
    """Refuse everything that `synthesize` refuses; nothing is spent. `chosen` must be for the same schema."""
    schema, number, budget = households.schema, settings.number, settings.budget
    neighbours = HouseholdNeighbours(settings.unit, schema.max_persons, households.columns)
    chosen = choose_method(schema, settings) if chosen is None else chosen
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise SpecError(f"number must be a non-negative integer, not {told(number)}")
    check_households(households, neighbours, budget)
    there = number_of(households, neighbours) if neighbours.number_is_public else None
    if there == 0:
        raise SpecError("there are no households (public under this unit), so nothing can be synthesized")
    release = _opened(settings.release)
    table = _table(schema, release, settings, neighbours, there)
    if table is not None and number not in (None, table.number):
        raise SpecError(f"the release has {table.number:,} households, so number cannot be {number:,}: leave it out")
    if settings.regional is None or release is None or table is None:
        return CheckedSynthesis(settings, households, neighbours, chosen, table)
    tree, regional = release[0].hierarchy.regions, RegionalOptions.of(settings.regional)
    country = plan_country(schema, tree, table, neighbours, budget, regional, chosen.options)
    refuse_workload_beyond_memory(
        workload_of(country, chosen.workload).queries, len(chosen.workload) + len(country.wanted)
    )
    households = with_levels(households, country.levels.region, country.levels.added)
    table = replace(table, levels=country.levels)
    return CheckedSynthesis(settings, households, neighbours, chosen, table, country)


def make_synthesis(
    checked: CheckedSynthesis,
    charge: Charge,
    run: RunFolder | None,
    *,
    resume: bool = False,
    progress: Progress = silent,
) -> Synthesis:
    """Spend the budget round by round and fit a model to the measurements."""
    settings, households, chosen = checked.settings, checked.households, checked.chosen
    neighbours, table, country = checked.neighbours, checked.table, checked.country
    if charge.ledger is not None and table is not None:
        both = together(table.neighbours, table.budget, neighbours, settings.budget)
        begun = run is not None and run.state().spent
        check_account(charge.ledger, households.name, both, table.release_id, begun=begun)
    room = JOURNAL + VALUE * chosen.workload.queries
    tables = PrivateTables(
        households,
        neighbours,
        settings.budget,
        charge=charge,
        journal=Journal(None if run is None else run.folder, resume=resume, room=min(room, MOST_ROOM)),
    )
    try:
        if charge.ledger is not None and table is not None:
            charge_release(charge.ledger, households.name, neighbours, both, table.release_id)
        if country is None or table is None:
            fitted = chosen.method.run(tables, chosen.workload, options=chosen.options, progress=progress)
        else:
            by_region = country, table, chosen.method, chosen.options, chosen.workload
            fitted = fit_country(tables, *by_region, progress=progress)
        exact = {marginal: tables.public_counts(marginal) for marginal in tables.published_exactly}
    finally:
        tables.close()
    number = fitted.number if settings.number is None else settings.number
    return Synthesis(
        workload=chosen.workload if country is None else workload_of(country, chosen.workload),
        fitted=fitted,
        made_by=chosen.method,
        options=asdict(chosen.options),
        neighbours=neighbours,
        budget=settings.budget,
        rounds=tables.rounds,
        exact=exact,
        truncation=households.truncation(),
        truncated=households.truncated_by_rule,
        on_broken_rules=households.on_broken_rules,
        number=number if table is None else table.number,
        title=settings.title or "Synthetic households and persons",
        about=settings.about,
        table=table,
        receipt=tables.receipt,
        folder=None if run is None else run.folder,
    )


# -------------------------------------------------------------------- agreement with a released table


def _opened(release: AnyRelease | None) -> tuple[Release, str | None] | None:
    """Return a release, and its id if it was given as a directory."""
    if release is None or isinstance(release, Release):
        return None if release is None else (release, None)
    folder = Path(release)
    return Release.load(folder), digest(folder / MANIFEST)


def _table(
    schema: Schema,
    release: tuple[Release, str | None] | None,
    settings: SynthesisSettings,
    neighbours: HouseholdNeighbours,
    number: int | None,
) -> SizeTable | None:
    """Return the released table if it can agree with these households; None without a release."""
    if (release is None) != (settings.region is None):
        raise SpecError("to agree with a release, give both release and region (the attribute with its leaf regions)")
    if release is None or settings.region is None:
        if settings.by is not None:
            raise SpecError("by names the attributes for a release's categories; give a release too")
        return None
    table = released_sizes(schema, *release, settings.region, settings.by)
    both = together(table.neighbours, table.budget, neighbours, settings.budget)
    if both.regions_are_public and table.number != number:
        raise SpecError(
            f"the release has {table.number:,} households and the data {number:,}; both are public, so they are not "
            "about the same households"
        )
    return table


def released_sizes(
    schema: Schema, release: Release, release_id: str | None, region: str, by: Mapping[str, Any] | None = None
) -> SizeTable:
    """Return the leaves of a release as the values of a household attribute."""
    tree, measurements = release.hierarchy, release.measurements
    by_region = np.moveaxis(tree.on_level(release.counts, tree.depth - 1), 0, 1)
    leaves = tree.regions.level_slice(tree.regions.depth - 1)
    counts = by_region.reshape(len(by_region), *(len(column.values) for column in tree.by.columns), -1)
    released = SizeTable(
        region, counts, measurements.first_size, measurements.neighbours, measurements.budget, release_id
    )
    return match_to_schema(schema, released, tree.regions.ids[leaves], tree.regions.names[leaves], by)
