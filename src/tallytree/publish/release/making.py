"""`release`: from private group sizes to a `Release`; and from measurements that were kept, with `resume`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tallytree.core.arguments import FLAG, MAPPING, PATH, TEXT, either, expecting, instance, optional
from tallytree.core.arrays import Integers
from tallytree.core.errors import BudgetError, ReleaseError
from tallytree.core.progress import Progress, Stage, in_percent, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.interval import checked_level
from tallytree.mechanisms import Mechanism, choose, prepare
from tallytree.privacy.budget import Budget
from tallytree.privacy.journal import Journal
from tallytree.privacy.ledger import Ledger, OtherMeasurements
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import AS_READ, Neighbours, PrivacyUnit
from tallytree.privacy.noise.randomness import NoiseSource
from tallytree.privacy.plan import Plan, Shares
from tallytree.privacy.run import FirstStage, Place, measure
from tallytree.publish.folder import place_of
from tallytree.publish.release.areas import Area, areas_to_publish
from tallytree.publish.release.error_bars import CONFIDENCE, Which, checked_which, error_bars
from tallytree.publish.release.fallback import Made, surely_estimated
from tallytree.publish.release.measurements_file import regions_beside, room_for, room_for_first
from tallytree.publish.release.memory import count_listed, refuse_beyond_memory
from tallytree.publish.release.partition import REGIONS
from tallytree.publish.release.value import Release
from tallytree.publish.run_folder import (
    FIRST_ROOM,
    MAKING_ROOM,
    ROOM,
    RunFolder,
    after_spending,
    folder_of,
    telling_what_was_spent,
)
from tallytree.publish.strength import warn_of_plan
from tallytree.tables.group_sizes import GroupSizes

if TYPE_CHECKING:
    from tallytree.planning.prior import Prior

_HOW = "call release again with keep={0!r}, or resume({0!r}) if it holds measurements"


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
    noise: NoiseSource = "tallytree",
    title: str | None = None,
    intervals: Which = "all",
    confidence: float = CONFIDENCE,
    areas: Mapping[str, Any] | None = None,
    keep: str | PathLike[str] | None = None,
    progress: Progress = silent,
) -> Release:
    """Measure private group sizes within a budget, and estimate consistent counts from the measurements.

    `shares` divides the budget over the levels, or `priority` does ("upper", "balanced" or "leaves"). If neither is
    given, the mechanism "tallytree" chooses the shares from the budget and the tree; all others use equal shares.
    `options` are the mechanism's own. With a public `prior` (see `plan`) the mechanism `auto` is the one with the least
    predicted error; otherwise it goes by sensitivities. With a `ledger` the cost is taken from the
    data set's account first; files that another account was charged for are refused, unless the accounts are linked or
    `same_data` says that it is meant: the privacy statement then names these accounts. Files that are none of those
    that the data set's account was charged for before are refused, unless `changed_files` says that they are the same
    data, corrected or in another format. Without a ledger nothing checks
    what else was released, and the privacy statement says so. (The command asks first; who calls this function chose.)
    `keep` names a folder that receives the measurements as soon as they are made, so that `resume` can go on from there
    and spends nothing more; from a run that was killed before they were there, call this again with the same folder.
    With a ledger and without `keep` that is a new folder beside the ledger, until the release is saved. An error or an
    interrupt after the budget was reserved says what was spent and where to go on from.
    `intervals` says which error bars the counts get, at the level `confidence`: "all",
    "guaranteed" (typical ones take 25 more estimates) or "none". `areas` publishes totals of areas that are no regions,
    such as {"school_districts": "districts.csv"}: public lists of leaves, as `Release.ask_each` takes them.
    """
    intervals, confidence = checked_which(intervals), checked_level(confidence)
    neighbours, budget = Neighbours.of(group_sizes, unit), Budget.of(budget)
    chosen, plan = decided(
        group_sizes,
        neighbours,
        budget=budget,
        mechanism=mechanism,
        options=options,
        shares=shares,
        priority=priority,
        prior=prior,
        progress=progress,
    )
    warn_of_plan(chosen, plan, neighbours, group_sizes.hierarchy, shares=shares, priority=priority)
    published = areas_to_publish(areas, group_sizes.hierarchy, group_sizes.max_size + 1)
    listed = count_listed(plan, group_sizes.region_totals)
    refuse_beyond_memory(group_sizes.hierarchy, neighbours, intervals=intervals == "all", listed=listed)
    book = Ledger(ledger) if isinstance(ledger, str | PathLike) else ledger
    folder = folder_of(keep, book)
    with telling_what_was_spent(folder, budget, _HOW.format(str(folder))):
        made = partial(
            measure,
            group_sizes,
            plan,
            ledger=book,
            noise=noise,
            settle=chosen.settle,
            same_data=same_data,
            changed_files=changed_files,
        )
        if folder is None:
            progress(Stage("measuring"))
            measurements = made()
        else:
            facts = group_sizes.hierarchy, neighbours, plan, group_sizes.region_totals
            measurements = _measured_and_kept(RunFolder(folder), made, chosen, facts, progress)
        return estimated(
            measurements,
            chosen,
            title=title,
            intervals=intervals,
            confidence=confidence,
            areas=published,
            folder=folder,
            progress=progress,
        )


def estimated(
    measurements: Measurements,
    mechanism: Mechanism,
    *,
    title: str | None = None,
    intervals: Which = "all",
    confidence: float = CONFIDENCE,
    areas: tuple[Area, ...] = (),
    folder: Path | None = None,
    progress: Progress = silent,
) -> Release:
    """The release that follows from measurements: pure post-processing, the same every time.

    Where the mechanism fails another one takes over, and the release says so (`fallback`).
    """
    stated = Stated(title or "Groups by region and size", checked_which(intervals), checked_level(confidence), areas)
    made = surely_estimated(measurements, mechanism, in_percent("estimating", progress))
    return replace(with_error_bars(measurements, made, stated, progress), folder=folder)


class Stated(NamedTuple):
    """What the data holder chooses of a release beside its mechanism."""

    title: str
    intervals: Which = "all"
    confidence: float = CONFIDENCE
    areas: tuple[Area, ...] = ()


def with_error_bars(measurements: Measurements, made: Made, stated: Stated, progress: Progress = silent) -> Release:
    """The release of an estimate, with the intervals that follow from it."""
    bars = error_bars(
        measurements,
        made.estimate.counts,
        made.by,
        which=stated.intervals,
        confidence=stated.confidence,
        areas=stated.areas,
        seconds=made.seconds,
        progress=progress,
    )
    return Release(
        counts=made.estimate.counts,
        measurements=measurements,
        made_by=made.by,
        certificate=made.certificate,
        fallback=made.fallback,
        title=stated.title,
        error_bars=bars,
        areas=stated.areas,
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
    """Finish a release whose measurements were kept in `folder` before it was interrupted; nothing more is spent.

    `auto` is the mechanism that the measurements were made for, with its options.
    """
    run = RunFolder(place_of(Path(folder)))
    measurements = run.measurements()
    _commit(measurements)
    if mechanism == "auto" and (before := run.facts().get("mechanism")) is not None:
        mechanism, options = before["name"], before["options"] if options is None else options
    chosen = suited(measurements, mechanism, options)
    with telling_what_was_spent(run.folder, measurements.budget, _HOW.format(str(run.folder))):
        return estimated(
            measurements,
            chosen,
            title=title,
            intervals=intervals,
            confidence=confidence,
            areas=areas_to_publish(areas, measurements.hierarchy, measurements.max_size + 1),
            folder=run.folder,
            progress=progress,
        )


def suited(measurements: Measurements, mechanism: str = "auto", options: Mapping[str, Any] | None = None) -> Mechanism:
    """The mechanism to estimate with from measurements, with what its options leave open decided as for a release."""
    public = measurements.neighbours, measurements.hierarchy, measurements.region_totals
    chosen = choose(mechanism, measurements.neighbours, options).suited_to(*public)
    chosen.plan(measurements.hierarchy, measurements.budget, measurements.neighbours.unit)  # refuses unfit options
    return chosen


def decided(
    group_sizes: GroupSizes,
    neighbours: Neighbours,
    *,
    budget: Budget,
    mechanism: str = "auto",
    options: Mapping[str, Any] | None = None,
    shares: Shares | None = None,
    priority: str | None = None,
    prior: Any = None,
    progress: Progress = silent,
) -> tuple[Mechanism, Plan]:
    """The mechanism and its plan, from public facts alone; what cannot be released is refused, and nothing is spent.

    `auto` with a public prior, and no options of a certain mechanism, is settled by predictions.
    """
    chosen: str | Mechanism = mechanism
    if mechanism == "auto" and prior is not None and not options:
        from tallytree.planning.report import predicted_best
        from tallytree.planning.simulation import PublicFacts

        facts = PublicFacts(group_sizes.hierarchy, neighbours, group_sizes.leaf_totals)
        by: dict[str, Any] = {"shares": shares, "priority": priority}
        chosen = predicted_best(facts, prior_of(prior), budget, **by, progress=progress)
    return prepare(
        chosen,
        options,
        neighbours=neighbours,
        hierarchy=group_sizes.hierarchy,
        totals=group_sizes.region_totals,
        budget=budget,
        shares=shares,
        priority=priority,
    )


def prior_of(value: Any, **stated: Any) -> Prior:
    """What `Prior.of` makes of a value, of a release's directory too: planning itself loads no releases."""
    from tallytree.planning.prior import SHAPES, Prior

    if isinstance(value, str | PathLike) and value not in SHAPES and Path(value).is_dir():
        value = Release.load(value)
    return Prior.of(value, **stated)


def _measured_and_kept(
    run: RunFolder,
    measured: Callable[..., Measurements],
    mechanism: Mechanism,
    facts: tuple[Hierarchy, Neighbours, Plan, Integers | None],
    progress: Progress,
) -> Measurements:
    """Measure, keep the result and tell the ledger; a folder of a run that came no further is gone on from."""
    state = run.state()
    if state.stage == "other":
        raise ReleaseError(f"{state.in_words()} Choose another directory.")
    if state.stage in ("measured", "finished") or state.lost:
        raise ReleaseError(
            f"{run.folder} is there already: an interrupted release. {state.in_words()}"
            + (" Go on from it with resume, or delete it to give it up." if state.stage == "measured" else "")
        )
    with Journal(run.folder) as journal:
        progress(Stage(MAKING_ROOM))
        regions_beside(facts[0], run.folder / REGIONS)
        run.take_rooms({ROOM: room_for(*facts), FIRST_ROOM: room_for_first(*facts)}, progress)
        first = FirstStage(run.first, lambda known: run.put_first(known, room_for(*facts, known), progress))
        about = {"mechanism": {"name": mechanism.name, "options": mechanism.options}}
        progress(Stage("measuring"))
        measurements = measured(place=Place(journal, json.loads(json.dumps(about)), first))
        run.put(measurements, progress)
    _commit(measurements)
    return measurements


def _commit(measurements: Measurements) -> None:
    """Commit the reservation to these measurements: the ledger, which took the cost before, takes no others."""
    if measurements.receipt is not None:
        try:
            measurements.receipt.settle_on(measurements.mark)
        except OtherMeasurements:
            raise
        except BudgetError as error:
            raise BudgetError(after_spending(str(error))) from None
