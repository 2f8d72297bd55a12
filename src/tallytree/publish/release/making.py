"""`release`: from private group sizes to a `Release`; and from measurements that were kept, with `resume`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallytree.core.arguments import FLAG, MAPPING, PATH, TEXT, either, expecting, instance, optional
from tallytree.core.errors import BudgetError, ReleaseError
from tallytree.core.progress import Progress, Stage, in_percent, silent
from tallytree.estimate.intervals.value import checked_level
from tallytree.mechanisms import Mechanism, choose, prepare
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger, OtherMeasurements
from tallytree.privacy.measure import FirstStage, measure
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import AS_READ, Neighbours, PrivacyUnit
from tallytree.privacy.noise.randomness import NoiseSource
from tallytree.privacy.plan import Plan, Shares
from tallytree.publish.folder import place_of
from tallytree.publish.recording import after_spending, mark_of
from tallytree.publish.release.areas import Area, areas_to_publish
from tallytree.publish.release.error_bars import CONFIDENCE, Which, checked_which, error_bars
from tallytree.publish.release.fallback import surely_estimated
from tallytree.publish.release.keeping import FIRST_ROOM, MAKING_ROOM, ROOM, Kept, SpentError
from tallytree.publish.release.measurements_file import regions_beside, room_for, room_for_first
from tallytree.publish.release.memory import count_listed, refuse_beyond_memory
from tallytree.publish.release.value import Release
from tallytree.publish.strength import warn_of_plan
from tallytree.tables.group_sizes import GroupSizes

if TYPE_CHECKING:
    from tallytree.planning.prior import Prior


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
    `intervals` says which error bars the counts get, at the level `confidence`: "all",
    "guaranteed" (typical ones take 25 more estimates) or "none". `areas` publishes totals of areas that are no regions,
    such as {"school_districts": "districts.csv"}: public lists of leaves, as `Release.estimates` takes them.
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
    flags = {"same_data": same_data, "changed_files": changed_files}
    how: dict[str, Any] = {"ledger": book, "noise": noise, "settle": chosen.settle, **flags}
    if keep is None:
        progress(Stage("measuring"))
        measurements = measure(group_sizes, plan, **how)
    else:
        progress(Stage(MAKING_ROOM))
        facts = group_sizes.hierarchy, neighbours, plan, group_sizes.region_totals
        rooms = {ROOM: room_for(*facts), FIRST_ROOM: room_for_first(*facts)}
        kept = Kept(place_of(Path(keep)))
        how["first_stage"] = FirstStage(
            kept.first, lambda known: kept.put_first(known, room_for(*facts, known), progress)
        )
        with kept.held():
            _refuse_measured(kept)
            if book is not None and ((state := kept.state()) is None or not state.spent):
                book.check(group_sizes.name, budget, neighbours, group_sizes.fingerprint(), **flags)
            regions = partial(regions_beside, group_sizes.hierarchy)
            token = kept.begin(chosen, budget, book, group_sizes.name, rooms, regions, progress=progress)
            progress(Stage("measuring"))
            measurements = _measured_and_kept(kept, lambda: measure(group_sizes, plan, **how, token=token), progress)
    return estimated(
        measurements,
        chosen,
        title=title,
        intervals=intervals,
        confidence=confidence,
        areas=published,
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
    progress: Progress = silent,
) -> Release:
    """The release that follows from measurements: pure post-processing, the same every time.

    Where the mechanism fails another one takes over, and the release says so (`fallback`).
    """
    intervals, confidence = checked_which(intervals), checked_level(confidence)
    made = surely_estimated(measurements, mechanism, in_percent("estimating", progress))
    bars = error_bars(
        measurements,
        made.estimate.counts,
        made.by,
        which=intervals,
        confidence=confidence,
        areas=areas,
        seconds=made.seconds,
        progress=progress,
    )
    return Release(
        counts=made.estimate.counts,
        measurements=measurements,
        made_by=made.by,
        certificate=made.certificate,
        fallback=made.fallback,
        title=title or "Groups by region and size",
        error_bars=bars,
        areas=areas,
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
    kept = Kept(place_of(Path(folder)))
    measurements = kept.measurements()
    _settle_on(measurements)
    if mechanism == "auto" and (before := kept.mechanism()) is not None:
        mechanism, options = before[0], before[1] if options is None else options
    chosen = suited(measurements, mechanism, options)
    return estimated(
        measurements,
        chosen,
        title=title,
        intervals=intervals,
        confidence=confidence,
        areas=areas_to_publish(areas, measurements.hierarchy, measurements.max_size + 1),
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

        chosen = predicted_best(
            group_sizes.hierarchy,
            neighbours,
            budget=budget,
            prior=prior_of(prior),
            leaf_totals=group_sizes.leaf_totals,
            shares=shares,
            priority=priority,
            progress=progress,
        )
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


def _refuse_measured(kept: Kept) -> None:
    state = kept.state()
    if state is not None and (state.stage == "measured" or state.settled):
        raise ReleaseError(
            f"{kept.folder} is there already: an interrupted release. {state.in_words()}"
            + (" Go on from it with resume, or delete it to give it up." if state.stage == "measured" else "")
        )


def _measured_and_kept(kept: Kept, measured: Callable[[], Measurements], progress: Progress) -> Measurements:
    """Measure, keep the result and tell the ledger."""
    try:
        measurements = measured()
        kept.put(measurements, progress)
        _settle_on(measurements)
    except (OSError, MemoryError, BudgetError) as error:
        state = kept.state()
        spent = state is not None and state.spent
        if isinstance(error, OtherMeasurements) or (isinstance(error, BudgetError) and not spent):
            raise
        why = error.strerror or "" if isinstance(error, OSError) else str(error) or "there is not enough memory"
        if state is None or not spent:
            raise ReleaseError(f"the measurements could not be made: {why}. Nothing was spent.") from None
        why = why.rstrip(".")
        raise SpentError(f"the run was stopped before its measurements could be used: {why}.", state) from None
    return measurements


def _settle_on(measurements: Measurements) -> None:
    """Tell the ledger, which took the cost before."""
    if measurements.receipt is not None:
        try:
            measurements.receipt.settle_on(mark_of(measurements))
        except OtherMeasurements:
            raise
        except BudgetError as error:
            raise BudgetError(after_spending(error)) from None
