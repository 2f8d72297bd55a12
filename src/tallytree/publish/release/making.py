"""`release`: from private group sizes to a `Release`; and from measurements that were kept, with `resume`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallytree.arguments import FLAG, MAPPING, PATH, TEXT, either, expecting, instance, optional
from tallytree.errors import ReleaseError
from tallytree.estimate.intervals.value import checked_level
from tallytree.mechanisms import Mechanism, choose, prepare
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger, Receipt
from tallytree.privacy.measure import measure
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import AS_READ, Neighbours, PrivacyUnit
from tallytree.privacy.noise.randomness import NoiseSource
from tallytree.privacy.plan import Plan, Shares
from tallytree.progress import Progress, Stage, silent
from tallytree.publish.folder import MEASUREMENTS, read_json, write_json
from tallytree.publish.release.error_bars import CONFIDENCE, Which, checked_which, error_bars
from tallytree.publish.release.fallback import surely_estimated
from tallytree.publish.release.measurements_file import load_measurements, save_measurements
from tallytree.publish.release.value import Release
from tallytree.tables.group_sizes import GroupSizes

if TYPE_CHECKING:
    from tallytree.planning.prior import Prior

RECEIPT, MECHANISM = "receipt.json", "mechanism.json"  # beside the measurements that are kept


@expecting(
    group_sizes=AS_READ,
    mechanism=TEXT,
    options=optional(MAPPING),
    ledger=optional(either(PATH, instance(Ledger))),
    same_data=FLAG,
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
    noise: NoiseSource = "tallytree",
    title: str | None = None,
    intervals: Which = "all",
    confidence: float = CONFIDENCE,
    keep: str | PathLike[str] | None = None,
    progress: Progress = silent,
) -> Release:
    """Measure private group sizes within a budget, and estimate consistent counts from the measurements.

    `shares` divides the budget over the levels, or `priority` does ("upper", "balanced" or "leaves"); equally if
    neither is given. `options` are the mechanism's own. With a public `prior` (see `plan`) the mechanism `auto` is the
    one with the least predicted error; otherwise it goes by sensitivities. With a `ledger` the cost is taken from the
    data set's account first; files that another account was charged for are refused, unless the accounts are linked or
    `same_data` says that it is meant: the privacy statement then names these accounts. Without a ledger nothing checks
    what else was released, and the privacy statement says so. (The command asks first; who calls this function chose.)
    `keep` names a folder that receives the measurements as soon as they are made, so that `resume` can go on from there
    and spends nothing more. `intervals` says which error bars the counts get, at the level `confidence`: "all",
    "guaranteed" (typical ones take 25 more estimates) or "none".
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
    book = Ledger(ledger) if isinstance(ledger, str | PathLike) else ledger
    folder = None if keep is None else _fresh_folder(Path(keep))
    progress(Stage("measuring"))
    try:
        measurements = measure(group_sizes, plan, ledger=book, noise=noise, settle=chosen.settle, same_data=same_data)
    except BaseException:
        if folder is not None:
            folder.rmdir()
        raise
    if folder is not None:
        _keep(measurements, folder, chosen)
    return estimated(measurements, chosen, title=title, intervals=intervals, confidence=confidence, progress=progress)


def estimated(
    measurements: Measurements,
    mechanism: Mechanism,
    *,
    title: str | None = None,
    intervals: Which = "all",
    confidence: float = CONFIDENCE,
    progress: Progress = silent,
) -> Release:
    """The release that follows from measurements: pure post-processing, the same every time but for typical intervals.

    Those come from fresh noise of the same law. Where the mechanism fails another one takes over, and the release says
    so (`fallback`).
    """
    intervals, confidence = checked_which(intervals), checked_level(confidence)
    progress(Stage("estimating"))
    made = surely_estimated(measurements, mechanism)
    bars = error_bars(
        measurements,
        made.estimate.counts,
        made.by,
        which=intervals,
        confidence=confidence,
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
    progress: Progress = silent,
) -> Release:
    """Finish a release whose measurements were kept in `folder` before it was interrupted; nothing more is spent.

    `auto` is the mechanism that the measurements were made for, with its options.
    """
    path = Path(folder)
    if not (path / MEASUREMENTS).exists():
        raise ReleaseError(f"{path} holds no measurements to go on from")
    measurements = load_measurements(path / MEASUREMENTS)
    if (path / RECEIPT).exists():
        measurements = replace(measurements, receipt=Receipt(**read_json(path / RECEIPT)))
    if mechanism == "auto" and (path / MECHANISM).exists():
        kept = read_json(path / MECHANISM)
        mechanism, options = kept["name"], kept["options"] if options is None else options
    chosen = suited(measurements, mechanism, options)
    return estimated(measurements, chosen, title=title, intervals=intervals, confidence=confidence, progress=progress)


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


def _fresh_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise ReleaseError(
            f"{folder} is there already: an interrupted release whose budget is spent. Go on from it with resume, or "
            "delete it to give it up."
        ) from None
    except OSError as error:
        raise ReleaseError(f"the folder {folder} cannot be made: {error.strerror}. Nothing was spent.") from None
    return folder


def _keep(measurements: Measurements, folder: Path, mechanism: Mechanism) -> None:
    """Write measurements under their final name only once they are whole, beside the mechanism they were made for."""
    write_json(folder / MECHANISM, {"name": mechanism.name, "options": mechanism.options})
    if measurements.receipt is not None:
        write_json(folder / RECEIPT, asdict(measurements.receipt))
    save_measurements(measurements, folder / "unfinished")
    (folder / "unfinished").rename(folder / MEASUREMENTS)
