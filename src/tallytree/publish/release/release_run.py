"""`release`: check, measure, estimate. `resume`: continue from the measurements that a run stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallytree.core.arguments import FLAG, MAPPING, PATH, TEXT, either, expecting, instance, optional
from tallytree.core.disk import sync
from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Progress, Stage, in_percent, silent
from tallytree.mechanisms import Mechanism, choose, prepare
from tallytree.mechanisms.budget_allocation import Shares
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Charge, Ledger
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import AS_READ, Neighbours, PrivacyUnit
from tallytree.privacy.noise import NoiseSource
from tallytree.privacy.plan import Plan
from tallytree.privacy.run import measure
from tallytree.publish.folder import MEASUREMENTS, place_of
from tallytree.publish.memory import count_listed, refuse_beyond_memory
from tallytree.publish.release.error_bars import CONFIDENCE, Publication, Which, error_bars
from tallytree.publish.release.fallback import Made, estimate_surely
from tallytree.publish.release.measurements_file import room_for
from tallytree.publish.release.table_layout import REGIONS, write_regions
from tallytree.publish.release.value import Release
from tallytree.publish.run_folder import (
    FIRST_ROOM,
    MAKING_ROOM,
    ROOM,
    ReleaseJournal,
    RunFolder,
    choose_charge,
    choose_folder,
    explain_failures,
)
from tallytree.publish.strength import warn_of_plan
from tallytree.tables.group_sizes import GroupSizes

if TYPE_CHECKING:
    from tallytree.planning.prior import Prior


@dataclass(frozen=True)
class Design:
    """How a budget is spent: privacy unit, mechanism, and allocation over the levels."""

    budget: Budget
    unit: PrivacyUnit | str
    mechanism: str = "auto"
    options: Mapping[str, Any] | None = None  # the mechanism's own
    shares: Shares | None = None
    priority: str | None = None
    prior: Any = None  # public: the mechanism "auto" is then the one with the least predicted error


AS_USUAL = Publication()


@dataclass(frozen=True, eq=False)
class CheckedRelease:
    """A release that was checked against public facts and not yet run."""

    group_sizes: GroupSizes
    neighbours: Neighbours
    mechanism: Mechanism
    plan: Plan
    publication: Publication
    warnings: tuple[str, ...]


@expecting(
    group_sizes=AS_READ,
    mechanism=TEXT,
    options=optional(MAPPING),
    ledger=optional(either(PATH, instance(Ledger))),
    same_data=FLAG,
    changed_files=FLAG,
    title=optional(TEXT),
    keep=optional(PATH),
)
def release(
    group_sizes: GroupSizes,
    *,
    budget: Budget | Mapping[str, Any],
    unit: PrivacyUnit | str,
    mechanism: str = "auto",
    options: Mapping[str, Any] | None = None,
    shares: Shares | None = None,
    priority: str | None = None,
    prior: Any = None,
    ledger: str | PathLike[str] | Ledger | None = None,
    same_data: bool = False,
    changed_files: bool = False,
    noise_source: NoiseSource = "tallytree",
    title: str | None = None,
    intervals: Which = "all",
    confidence: float = CONFIDENCE,
    areas: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
    keep: str | PathLike[str] | None = None,
    progress: Progress = silent,
) -> Release:
    """Release group sizes: measure private counts within a budget and estimate consistent counts from them.

    Everything that public facts rule out is refused before the budget is spent. An error or an interrupt after the
    budget was reserved says what was spent and how to go on.

    Parameters
    ----------
    group_sizes : GroupSizes
        The private counts, from `read`.
    budget : Budget or mapping
        What may be spent: a `Budget`, or the words of a spec such as ``{"epsilon": 1}``.
    unit : PrivacyUnit or str
        Whom the release protects: `one_entity()`, `one_group()`, or their names.
    mechanism : str, default "auto"
        What to measure and how to estimate from it. With a public `prior`, "auto" is the mechanism with the smallest
        predicted error; otherwise it goes by sensitivities.
    options : mapping, optional
        Options of the mechanism.
    shares : mapping or sequence, optional
        How the levels share the budget, such as ``{"nation": 1, "state": 1, "county": 2}``. Without `shares` and
        `priority`, the mechanism "tallytree" chooses the shares from the budget and the tree; all others use equal
        shares.
    priority : {"upper", "balanced", "leaves"}, optional
        Which levels should get more of the budget, instead of `shares`.
    prior : optional
        Public expectations for the choice of the mechanism, as `plan` takes them.
    ledger : path or Ledger, optional
        The ledger that holds the data set's account. The cost is taken from it first. Without a ledger nothing checks
        what else was released, and the privacy statement says so.
    same_data : bool, default False
        Accept files that another account was charged for. Without it such files are refused, unless the accounts are
        linked. The privacy statement then names these accounts.
    changed_files : bool, default False
        Accept files that the account was not charged for before: the same data, corrected or in another format.
    noise_source : {"tallytree", "opendp"}, default "tallytree"
        The library that draws the noise.
    title : str, optional
        The title of the release.
    intervals : {"all", "guaranteed", "none"}, default "all"
        Which intervals the counts get. Typical intervals take 25 more estimates.
    confidence : float, default 0.95
        The level of the intervals.
    areas : mapping, optional
        Custom areas to publish totals of, such as ``{"school_districts": "districts.csv"}``: public lists of leaves, as
        `Release.ask_each` takes them.
    about : mapping, optional
        Who publishes the release, and what it is about: texts for any of "publisher", "contact", "licence",
        "reference_date" (a date, a month such as "2025-03", "2025-Q1" or a year), "description" and "source".
    keep : path, optional
        A folder that receives the measurements as soon as they are drawn, so that `resume` can go on from there and
        spends nothing more. If a run was killed before they were there, call `release` again with the same folder. With
        a ledger and without `keep`, a new folder beside the ledger is used until the release is saved.
    progress : callable, optional
        A function that is called with each step of the work.

    Returns
    -------
    Release
        The counts with their intervals. Everything in it is public. `Release.save` writes it.

    Raises
    ------
    SpecError
        If a public input is wrong, such as an option, a share or a unit.
    BudgetError
        If the budget is malformed, or the account in the ledger cannot pay it.
    ReleaseError
        If the release needs more memory or disk space than there is.

    Examples
    --------
    >>> import pyarrow as pa
    >>> people = pa.table({"home": ["a", "a", "b", "c"], "county": ["X", "X", "Y", "Y"]})
    >>> counties = tt.Hierarchy.from_levels({"county": ["X", "Y"]}, ["county"])
    >>> sizes = tt.read(people, group="home", region="county", hierarchy=counties, max_size=3)
    >>> made = tt.release(sizes, budget=tt.Budget(epsilon=1), unit=tt.one_entity(), intervals="none")
    >>> made.table().column_names
    ['level', 'region', 'name', 'size', 'count']
    """
    publication = Publication.of(group_sizes, title, intervals, confidence, areas, about)
    charge = choose_charge(ledger, same_data=same_data, changed_files=changed_files)
    spent = charge.held(group_sizes.name, Budget.of(budget))
    design = Design(spent, unit, mechanism, options, shares, priority, prior)
    checked = check_release(group_sizes, design, publication, progress)
    run = choose_folder(keep, charge.ledger)
    with explain_failures(run, design.budget, _how_to_go_on(run)):
        return make_release(checked, charge, run, noise_source=noise_source, progress=progress)


def _how_to_go_on(run: RunFolder | None) -> str:
    folder = None if run is None else str(run.folder)
    return f"To continue, call release again with keep={folder!r}, or resume({folder!r}) if it holds measurements."


def decide(group_sizes: GroupSizes, design: Design, progress: Progress = silent) -> tuple[Neighbours, Mechanism, Plan]:
    """Return the neighbour relation, the mechanism and its plan from public facts alone; nothing is spent.

    Impossible releases are refused. `auto` with a public prior, and without options of a specific mechanism, chooses by
    predicted error.
    """
    hierarchy, neighbours = group_sizes.hierarchy, Neighbours.of(group_sizes, design.unit)
    chosen: str | Mechanism = design.mechanism
    divided: dict[str, Any] = {"shares": design.shares, "priority": design.priority}
    if chosen == "auto" and design.prior is not None and not design.options:
        from tallytree.planning.report import choose_by_prediction
        from tallytree.planning.simulation import PublicFacts

        facts = PublicFacts(hierarchy, neighbours, group_sizes.leaf_totals)
        chosen = choose_by_prediction(facts, prior_of(design.prior), design.budget, **divided, progress=progress)
    totals = group_sizes.region_totals
    public: dict[str, Any] = {"neighbours": neighbours, "hierarchy": hierarchy, "totals": totals}
    return neighbours, *prepare(chosen, design.options, **public, budget=design.budget, **divided)


def check_release(
    group_sizes: GroupSizes, design: Design, publication: Publication, progress: Progress = silent
) -> CheckedRelease:
    """Refuse everything that `release` refuses by public facts; nothing is spent."""
    neighbours, mechanism, plan = decide(group_sizes, design, progress)
    hierarchy, divided = group_sizes.hierarchy, {"shares": design.shares, "priority": design.priority}
    found = warn_of_plan(mechanism, plan, neighbours, hierarchy, **divided)  # type: ignore[arg-type]
    listed = count_listed(plan, group_sizes.region_totals)
    refuse_beyond_memory(hierarchy, neighbours, intervals=publication.intervals == "all", listed=listed)
    return CheckedRelease(group_sizes, neighbours, mechanism, plan, publication, tuple(found))


def make_release(
    checked: CheckedRelease,
    charge: Charge,
    run: RunFolder | None,
    *,
    noise_source: NoiseSource = "tallytree",
    progress: Progress = silent,
) -> Release:
    """Spend the budget: measure, store the measurements in the run's folder, and estimate."""
    measured = partial(
        measure,
        checked.group_sizes,
        checked.plan,
        noise_source=noise_source,
        derive_facts=checked.mechanism.derive_facts,
        **charge._asdict(),
    )
    if run is None:
        progress(Stage("measuring"))
        measurements = measured()
    else:
        measurements = _measure_and_keep(run, measured, checked, progress)
    return estimate_release(measurements, checked.mechanism, checked.publication, run=run, progress=progress)


def estimate_release(
    measurements: Measurements,
    mechanism: Mechanism,
    publication: Publication = AS_USUAL,
    *,
    run: RunFolder | None = None,
    progress: Progress = silent,
) -> Release:
    """Return the release that follows from measurements: deterministic post-processing.

    If the mechanism fails another one takes over, and the release states it (`fallback`).
    """
    made = estimate_surely(measurements, mechanism, in_percent("estimating", progress))
    release = with_error_bars(made, publication, progress)
    return replace(release, folder=None if run is None else run.folder)


def with_error_bars(made: Made, publication: Publication, progress: Progress) -> Release:
    """Return the release of an estimate with its intervals."""
    return Release(
        counts=made.counts,
        measurements=made.measurements,
        made_by=made.by,
        certificate=made.certificate,
        fallback=made.fallback,
        title=publication.title,
        about=publication.about,
        error_bars=error_bars(made, publication, progress),
        areas=publication.areas,
    )


@expecting(folder=PATH, mechanism=TEXT, options=optional(MAPPING), title=optional(TEXT))
def resume(
    folder: str | PathLike[str],
    *,
    mechanism: str = "auto",
    options: Mapping[str, Any] | None = None,
    title: str | None = None,
    intervals: Which = "all",
    confidence: float = CONFIDENCE,
    areas: Mapping[str, Any] | None = None,
    progress: Progress = silent,
) -> Release:
    """Finish an interrupted release from the measurements that its folder holds.

    It spends nothing more, and keeps what `release` was given as `about`.

    Parameters
    ----------
    folder : path
        The folder that was named by `keep` in `release`, or that an error named.
    mechanism : str, default "auto"
        The mechanism to estimate with. "auto" is the one that the measurements were drawn for, with its options.
    options : mapping, optional
        Options of the mechanism.
    title : str, optional
        The title of the release.
    intervals : {"all", "guaranteed", "none"}, default "all"
        Which intervals the counts get, as in `release`.
    confidence : float, default 0.95
        The level of the intervals.
    areas : mapping, optional
        Custom areas to publish totals of, as in `release`.
    progress : callable, optional
        A function that is called with each step of the work.

    Returns
    -------
    Release
        The release that `release` would have returned.

    Raises
    ------
    SpecError
        If an argument is wrong, or the mechanism cannot estimate from these measurements.
    ReleaseError
        If the folder holds no measurements of a run.
    """
    run = RunFolder(place_of(Path(folder)))
    measurements = run.measurements()
    publication = Publication.of(measurements, title, intervals, confidence, areas, run.facts().get("about"))
    with explain_failures(run, measurements.budget, _how_to_go_on(run)):
        return finish_release(run, measurements, mechanism, options, publication, progress)


def finish_release(
    run: RunFolder,
    measurements: Measurements,
    mechanism: str,
    options: Mapping[str, Any] | None,
    publication: Publication,
    progress: Progress = silent,
) -> Release:
    """Estimate from the measurements that a run stored."""
    _commit(measurements)
    if mechanism == "auto" and (before := run.facts().get("mechanism")) is not None:
        mechanism, options = before["name"], before["options"] if options is None else options
    chosen = choose_for(measurements, mechanism, options)
    return estimate_release(measurements, chosen, publication, run=run, progress=progress)


def choose_for(
    measurements: Measurements, mechanism: str = "auto", options: Mapping[str, Any] | None = None
) -> Mechanism:
    """Return the mechanism to estimate with from measurements; open options are decided as for a release."""
    public = measurements.neighbours, measurements.hierarchy, measurements.region_totals
    chosen = choose(mechanism, measurements.neighbours, options).suited_to(*public)
    chosen.plan(measurements.hierarchy, measurements.budget, measurements.neighbours.unit)  # refuses unfit options
    return chosen


def prior_of(value: Any, **stated: Any) -> Prior:
    """Return `Prior.of` a value, or of a release's directory; planning itself loads no releases."""
    from tallytree.planning.prior import SHAPES, Prior

    if isinstance(value, str | PathLike) and value not in SHAPES and Path(value).is_dir():
        value = Release.load(value)
    return Prior.of(value, **stated)


def _measure_and_keep(
    run: RunFolder, measured: Callable[..., Measurements], checked: CheckedRelease, progress: Progress
) -> Measurements:
    """Measure, store the result and record it in the ledger, or continue a run that was interrupted before."""
    state = run.state()
    if state.stage == "other":
        raise ReleaseError(f"{state.in_words()} Choose another directory.")
    if state.stage in ("measured", "finished") or state.lost:
        raise ReleaseError(
            f"{run.folder} already holds an interrupted release. {state.in_words()}"
            + (" Continue it with resume, or delete it to abandon it." if state.stage == "measured" else "")
        )
    mechanism, group_sizes = checked.mechanism, checked.group_sizes
    facts = group_sizes.hierarchy, checked.neighbours, checked.plan, group_sizes.region_totals
    stated = {"about": checked.publication.about.to_json()}
    about = json.loads(json.dumps({"mechanism": {"name": mechanism.name, "options": mechanism.options}, **stated}))
    with ReleaseJournal(run, about, partial(room_for, *facts), progress) as journal:
        progress(Stage(MAKING_ROOM))
        write_regions(group_sizes.hierarchy, None, run.folder / REGIONS)
        sync(run.folder / REGIONS)
        run.take_rooms({ROOM: room_for(*facts), FIRST_ROOM: room_for(*facts, first=True)}, progress)
        progress(Stage("measuring"))
        measurements = measured(journal=journal)
        run.write_over(ROOM, measurements, MEASUREMENTS, in_percent("storing the measurements", progress))
    _commit(measurements)
    return measurements


def _commit(measurements: Measurements) -> None:
    """Commit the reservation to these measurements: the ledger, already charged, accepts no others."""
    if measurements.receipt is not None:
        measurements.receipt.commit(measurements.mark)
