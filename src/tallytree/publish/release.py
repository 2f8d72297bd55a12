"""`release`: from private group sizes to a `Release`, the public value that is saved, shown and verified."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.errors import ReleaseError
from tallytree.hierarchy import Hierarchy
from tallytree.long_table import key_columns, region_blocks
from tallytree.mechanisms import choose
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger, Receipt
from tallytree.privacy.measure import NoiseSource, measure
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.plan import Shares
from tallytree.privacy.unit import Neighbours, PrivacyUnit
from tallytree.tables.group_sizes import GroupSizes

Integers = NDArray[np.int64]
Progress = Callable[[str], None]

MEASUREMENTS, RECEIPT = "measurements.parquet", "receipt.json"


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
        """One row per region and size: a pyarrow Table with the columns level, region, size and count."""
        import pyarrow as pa

        block = range(len(self.hierarchy))
        return pa.table({**key_columns(self.hierarchy, block, self.sizes), "count": self.counts.ravel()})

    def batches(self, *, zeros: bool = True) -> Any:
        """The rows of `table`, a block of regions at a time; without the zero cells if asked."""
        import pyarrow as pa

        for block in region_blocks(range(len(self.hierarchy)), len(self.sizes)):
            counts = self.counts[block.start : block.stop].ravel()
            rows = pa.table({**key_columns(self.hierarchy, block, self.sizes), "count": counts})
            yield rows if zeros else rows.filter(pa.array(counts != 0))

    def save(self, directory: str | PathLike[str], *, replace: bool = False) -> str:
        """Write the release directory, whole or not at all, and return the release's id.

        The id is the digest of the manifest, which holds the digests of all other files: `verify(directory, id=…)`.
        """
        from tallytree.publish.package import write_release

        release_id = write_release(self, Path(directory), replace=replace)
        if self.measurements.receipt is not None:
            self.measurements.receipt.record(release_id)
        return release_id

    @classmethod
    def load(cls, directory: str | PathLike[str]) -> Release:
        """Read a saved release; `verify` says whether it is sound."""
        from tallytree.publish.stored import COUNTS, PRIVACY, read_counts, read_json

        folder = Path(directory)
        statement = read_json(folder / PRIVACY)
        measurements = Measurements.load(folder / MEASUREMENTS)
        sizes = range(measurements.first_size, measurements.max_size + 1)
        try:
            dense = statement["zero_cells"] == "written"
            counts, problems = read_counts(folder / COUNTS, measurements.hierarchy, sizes, dense=dense)
            mechanism, certificate, title = statement["mechanism"]["name"], statement["certificate"], statement["title"]
        except (KeyError, TypeError) as error:
            raise ReleaseError(f"{folder / PRIVACY} lacks {error}") from None
        if problems:
            raise ReleaseError(f"{folder / COUNTS} is damaged: {problems[0]}")
        return cls(counts, measurements, mechanism, certificate, title)


def release(
    group_sizes: GroupSizes,
    *,
    budget: Budget,
    unit: PrivacyUnit,
    mechanism: str = "auto",
    shares: Shares | None = None,
    ledger: str | PathLike[str] | Ledger | None = None,
    noise: NoiseSource = "tallytree",
    title: str | None = None,
    keep: str | PathLike[str] | None = None,
    progress: Progress = lambda step: None,
) -> Release:
    """Measure private group sizes within a budget, and estimate consistent counts from the measurements.

    `shares` divides the budget over the levels, equally if not given. With a `ledger` the cost is taken from the data
    set's account first. `keep` names a folder that receives the measurements as soon as they are made: what is spent is
    then never lost, and `resume` goes on from there.
    """
    neighbours = Neighbours.of(group_sizes, unit)
    chosen = choose(mechanism, neighbours)
    plan = chosen.plan(group_sizes.hierarchy, budget, unit, shares)
    chosen.check(neighbours, group_sizes.hierarchy, plan)
    book = Ledger(ledger) if isinstance(ledger, str | PathLike) else ledger
    folder = None if keep is None else _fresh_folder(Path(keep))
    progress("measuring")
    try:
        measurements = measure(group_sizes, plan, ledger=book, noise=noise)
    except BaseException:
        if folder is not None:
            folder.rmdir()
        raise
    if folder is not None:
        _keep(measurements, folder)
    return estimated(measurements, mechanism=chosen.name, title=title, progress=progress)


def estimated(
    measurements: Measurements,
    *,
    mechanism: str = "auto",
    title: str | None = None,
    progress: Progress = lambda step: None,
) -> Release:
    """The release that follows from measurements: pure post-processing, the same every time."""
    progress("estimating")
    chosen = choose(mechanism, measurements.neighbours)
    estimate = chosen.estimate(measurements)
    return Release(
        counts=estimate.counts,
        measurements=measurements,
        mechanism=chosen.name,
        certificate=estimate.certificate,
        title=title or "Groups by region and size",
    )


def resume(
    folder: str | PathLike[str],
    *,
    mechanism: str = "auto",
    title: str | None = None,
    progress: Progress = lambda step: None,
) -> Release:
    """Finish a release whose measurements were kept in `folder` before it was interrupted; nothing more is spent."""
    path = Path(folder)
    if not (path / MEASUREMENTS).exists():
        raise ReleaseError(f"{path} holds no measurements to go on from")
    measurements = Measurements.load(path / MEASUREMENTS)
    if (path / RECEIPT).exists():
        receipt = Receipt(**json.loads((path / RECEIPT).read_text()))
        measurements = replace(measurements, receipt=receipt)
    return estimated(measurements, mechanism=mechanism, title=title, progress=progress)


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


def _keep(measurements: Measurements, folder: Path) -> None:
    """Write measurements under their final name only once they are whole."""
    if measurements.receipt is not None:
        (folder / RECEIPT).write_text(json.dumps(asdict(measurements.receipt)))
    measurements.save(folder / "unfinished")
    (folder / "unfinished").rename(folder / MEASUREMENTS)
