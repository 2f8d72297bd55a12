"""`release`: from private group sizes to a `Release`, the public value that is saved, shown and verified."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tallytree.arrays import Integers
from tallytree.errors import ReleaseError
from tallytree.estimate.intervals.value import checked_level
from tallytree.hierarchy import Hierarchy
from tallytree.long_table import key_columns, region_blocks
from tallytree.mechanisms import Mechanism, choose, mechanism_named, prepare
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger, Receipt
from tallytree.privacy.measure import NoiseSource, measure
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import Shares
from tallytree.progress import Progress, Stage, silent
from tallytree.publish.release.error_bars import (
    CONFIDENCE,
    NO_ERROR_BARS,
    ErrorBars,
    Which,
    checked_which,
    error_bars,
)
from tallytree.tables.group_sizes import GroupSizes

if TYPE_CHECKING:
    from tallytree.publish.release.answers import Answer, Sizes
    from tallytree.publish.release.region_names import Regions


MEASUREMENTS, RECEIPT, MECHANISM = "measurements.parquet", "receipt.json", "mechanism.json"


@dataclass(frozen=True, eq=False)
class Release:
    """Counts of groups by region and size, with the measurements they came from. Everything in it is public.

    `counts` is `[regions, sizes]` in the order of `hierarchy`; sizes run from `first_size` to `max_size`, the last of
    which stands for all larger ones too.
    """

    counts: Integers
    measurements: Measurements
    mechanism: str
    certificate: str
    title: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of the mechanism
    error_bars: ErrorBars = NO_ERROR_BARS

    @property
    def hierarchy(self) -> Hierarchy:
        """The regions."""
        return self.measurements.hierarchy

    @property
    def sizes(self) -> range:
        """What the columns of `counts` stand for."""
        return range(self.measurements.first_size, self.measurements.max_size + 1)

    @property
    def total(self) -> int:
        """How many groups were released in all; exact where the list of groups is public, otherwise an estimate."""
        return int(self.counts[0].sum())

    def table(self) -> Any:
        """One row per region and size: a pyarrow Table with level, region, size, count and the ends of intervals.

        `lower` and `upper` are guaranteed, `typical_lower` and `typical_upper` typical; a column that the release
        cannot fill is null, and the description in its metadata says why.
        """
        return self._rows(range(len(self.hierarchy))).cast(self.schema)

    def batches(self, *, zeros: bool = True) -> Any:
        """The rows of `table`, a block of regions at a time; without the zero cells if asked."""
        import pyarrow as pa

        for block in region_blocks(range(len(self.hierarchy)), len(self.sizes)):
            rows = self._rows(block)
            yield rows if zeros else rows.filter(pa.array(self.counts[block.start : block.stop].ravel() != 0))

    @property
    def schema(self) -> Any:
        """The pyarrow schema of `table`, with a description of every column that needs one."""
        from tallytree.publish.release.statement import counts_schema

        return counts_schema(self)

    def _rows(self, block: range) -> Any:
        import pyarrow as pa

        columns = {"count": self.counts, **self.error_bars.columns}
        values = {
            name: pa.nulls(len(block) * len(self.sizes), pa.int64())
            if cells is None
            else cells[block.start : block.stop].ravel()
            for name, cells in columns.items()
        }
        return pa.table({**key_columns(self.hierarchy, block, self.sizes), **values})

    # ---------------------------------------------------------------- questions; `answers` says how they are answered

    @property
    def made_by(self) -> Mechanism:
        """The mechanism with its options."""
        return mechanism_named(self.mechanism).configured(self.options)

    def estimate(self, regions: Regions, sizes: Sizes = None, **how: Any) -> Answer:
        """How many groups of the given sizes there are in the union of regions, with both intervals.

        Regions are ids or names; sizes are numbers or a text such as ">=6", "3-5" or "1,2,7+", and all sizes if left
        out. `confidence` is the release's own unless given; `typical=False` spares the 25 estimates that a typical
        interval takes; `progress` is told of them.
        """
        return self._ask("sum", [(regions, sizes)], **how)[0]

    def estimates(
        self,
        level: str,
        sizes: Sizes = None,
        *,
        kind: str = "sum",
        to: Regions = None,
        within: Regions = None,
        **how: Any,
    ) -> list[Answer]:
        """An answer for every region of a level by itself, or for those `within` some regions.

        `kind` is "sum", "share", "mean", "ratio" or "difference", the last two against the regions `to`. All typical
        intervals come from one run of replicates.
        """
        from tallytree.publish.release.region_names import regions_of_level

        wanted = regions_of_level(self.hierarchy, level, within)
        second = (to, sizes) if kind in ("ratio", "difference") else None
        return self._ask(kind, [(region, sizes) for region in wanted], second, **how)

    def share(self, regions: Regions, sizes: Sizes, **how: Any) -> Answer:
        """What part of all groups in the union of regions has the given sizes."""
        return self._ask("share", [(regions, sizes)], **how)[0]

    def mean_size(self, regions: Regions, **how: Any) -> Answer:
        """Entities per group in the union of regions; the last size counts as itself, so the mean is truncated."""
        return self._ask("mean", [(regions, None)], **how)[0]

    def ratio(
        self, regions: Regions, to: Regions, sizes: Sizes = None, *, to_sizes: Sizes = None, **how: Any
    ) -> Answer:
        """One sum divided by another; `to_sizes` are the same sizes unless given."""
        return self._ask("ratio", [(regions, sizes)], (to, sizes if to_sizes is None else to_sizes), **how)[0]

    def difference(
        self, regions: Regions, to: Regions, sizes: Sizes = None, *, to_sizes: Sizes = None, **how: Any
    ) -> Answer:
        """One sum minus another; `to_sizes` are the same sizes unless given."""
        return self._ask("difference", [(regions, sizes)], (to, sizes if to_sizes is None else to_sizes), **how)[0]

    def bands(self, regions: Regions, sizes: Sizes = None, *, confidence: float | None = None) -> Any:
        """Guaranteed intervals that hold for all sizes of one region together: a pyarrow Table like `table`.

        Of several regions each has a band of its own. Refused with a ReleaseError where there is no guarantee.
        """
        from tallytree.publish.release.answers import bands

        return bands(self, regions, sizes, confidence=confidence)

    def _ask(
        self, kind: str, asked: Iterable[tuple[Any, Any]], to: tuple[Any, Any] | None = None, **how: Any
    ) -> list[Answer]:
        from tallytree.publish.release.answers import Question, answers

        return answers(self, [Question.of(self, kind, *each, *(to or ())) for each in asked], **how)

    def save(self, directory: str | PathLike[str], *, replace: bool = False) -> str:
        """Write the release directory, whole or not at all, and return the release's id.

        The id is the digest of the manifest, which holds the digests of all other files: `verify(directory, id=…)`.
        """
        from tallytree.publish.release.package import write_release

        release_id = write_release(self, Path(directory), replace=replace)
        if self.measurements.receipt is not None:
            self.measurements.receipt.record(release_id)
        return release_id

    @classmethod
    def load(cls, directory: str | PathLike[str]) -> Release:
        """Read a saved release; `verify` says whether it is sound."""
        from tallytree.publish.release.files import COUNTS, PRIVACY, read_cells, read_json, stored_error_bars

        folder = Path(directory)
        if not (folder / COUNTS).exists():
            raise ReleaseError(f"{folder / COUNTS} is missing: {folder} does not hold a release of counts")
        statement = read_json(folder / PRIVACY)
        if not (folder / MEASUREMENTS).exists():
            raise ReleaseError(
                f"{folder / MEASUREMENTS} is missing: without its measurements a release cannot be checked, and "
                "nothing is known of its error"
            )
        measurements = Measurements.load(folder / MEASUREMENTS)
        sizes = range(measurements.first_size, measurements.max_size + 1)
        try:
            dense = statement["zero_cells"] == "written"
            cells = read_cells(
                folder / COUNTS, measurements.hierarchy, sizes, dense=dense, intervals=statement.get("intervals")
            )
            mechanism, certificate, title = statement["mechanism"], statement["certificate"], statement["title"]
            name, options = mechanism["name"], mechanism.get("options", {})
            bars = stored_error_bars(cells, statement.get("intervals"))
        except (KeyError, TypeError) as error:
            raise ReleaseError(f"{folder / PRIVACY} lacks {error}") from None
        if cells.problems:
            raise ReleaseError(f"{folder / COUNTS} is damaged: {cells.problems[0]}")
        return cls(cells.counts, measurements, name, certificate, title, options, bars)


def release(
    group_sizes: GroupSizes,
    *,
    budget: Budget,
    unit: PrivacyUnit,
    mechanism: str = "auto",
    options: Mapping[str, Any] | None = None,
    shares: Shares | None = None,
    priority: str | None = None,
    prior: Any = None,
    ledger: str | PathLike[str] | Ledger | None = None,
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
    data set's account first. `keep` names a folder that receives the measurements as soon as they are made: what is
    spent is then never lost, and `resume` goes on from there. `intervals` says which error bars the counts get, at the
    level `confidence`: "all", "guaranteed" (typical ones take 25 more estimates) or "none".
    """
    intervals, confidence = checked_which(intervals), checked_level(confidence)
    neighbours = Neighbours.of(group_sizes, unit)
    chosen, plan = prepare(
        decided(group_sizes, neighbours, mechanism, options, budget, shares, priority, prior, progress),
        options,
        neighbours=neighbours,
        hierarchy=group_sizes.hierarchy,
        totals=group_sizes.region_totals,
        budget=budget,
        shares=shares,
        priority=priority,
    )
    book = Ledger(ledger) if isinstance(ledger, str | PathLike) else ledger
    folder = None if keep is None else _fresh_folder(Path(keep))
    progress(Stage("measuring"))
    try:
        measurements = measure(group_sizes, plan, ledger=book, noise=noise, settle=chosen.settle)
    except BaseException:
        if folder is not None:
            folder.rmdir()
        raise
    if folder is not None:
        _keep(measurements, folder, chosen)
    return estimated(
        measurements,
        mechanism=chosen.name,
        options=chosen.options,
        title=title,
        intervals=intervals,
        confidence=confidence,
        progress=progress,
    )


def estimated(
    measurements: Measurements,
    *,
    mechanism: str = "auto",
    options: Mapping[str, Any] | None = None,
    title: str | None = None,
    intervals: Which = "all",
    confidence: float = CONFIDENCE,
    progress: Progress = silent,
) -> Release:
    """The release that follows from measurements: pure post-processing, the same every time but for typical intervals.

    Those come from fresh noise of the same law.
    """
    intervals, confidence = checked_which(intervals), checked_level(confidence)
    progress(Stage("estimating"))
    start = time.perf_counter()
    public = measurements.neighbours, measurements.hierarchy, measurements.region_totals, measurements.budget
    chosen = choose(mechanism, measurements.neighbours, options).suited_to(*public, measurements.level_shares)
    estimate = chosen.estimate(measurements)
    bars = error_bars(
        measurements,
        estimate.counts,
        chosen,
        which=intervals,
        confidence=confidence,
        seconds=time.perf_counter() - start,
        progress=progress,
    )
    return Release(
        counts=estimate.counts,
        measurements=measurements,
        mechanism=chosen.name,
        certificate=estimate.certificate,
        title=title or "Groups by region and size",
        options=chosen.options,
        error_bars=bars,
    )


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
    measurements = Measurements.load(path / MEASUREMENTS)
    if (path / RECEIPT).exists():
        receipt = Receipt(**json.loads((path / RECEIPT).read_text()))
        measurements = replace(measurements, receipt=receipt)
    if mechanism == "auto" and (path / MECHANISM).exists():
        kept = json.loads((path / MECHANISM).read_text())
        mechanism, options = kept["name"], kept["options"] if options is None else options
    return estimated(
        measurements,
        mechanism=mechanism,
        options=options,
        title=title,
        intervals=intervals,
        confidence=confidence,
        progress=progress,
    )


def decided(
    group_sizes: GroupSizes,
    neighbours: Neighbours,
    mechanism: str,
    options: Mapping[str, Any] | None,
    budget: Budget,
    shares: Shares | None,
    priority: str | None,
    prior: Any,
    progress: Progress = silent,
) -> str:
    """The mechanism's name; `auto` with a public prior, and no options of a certain one, is settled by predictions."""
    if mechanism != "auto" or prior is None or options:
        return mechanism
    from tallytree.planning.prior import Prior
    from tallytree.planning.report import predicted_best

    return predicted_best(
        group_sizes.hierarchy,
        neighbours,
        budget=budget,
        prior=Prior.of(prior),
        leaf_totals=group_sizes.leaf_totals,
        shares=shares,
        priority=priority,
        progress=progress,
    )


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
    (folder / MECHANISM).write_text(json.dumps({"name": mechanism.name, "options": mechanism.options}))
    if measurements.receipt is not None:
        (folder / RECEIPT).write_text(json.dumps(asdict(measurements.receipt)))
    measurements.save(folder / "unfinished")
    (folder / "unfinished").rename(folder / MEASUREMENTS)
