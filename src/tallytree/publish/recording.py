"""Which release a reservation paid for: told to the ledger when it is saved, or later from the release's directory.

A reservation knows its measurements by their mark, so that a release leads to what paid for it. Nothing of the ledger
is in a release, and nothing but its id and its mark is in the ledger.
"""

from __future__ import annotations

import hashlib
import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallytree.core.errors import BudgetError, ReleaseError
from tallytree.privacy.ledger import Ledger, OtherMeasurements, Receipt
from tallytree.privacy.measurements import Measurements
from tallytree.publish.folder import MANIFEST, MEASUREMENTS, digest
from tallytree.publish.microdata.kept import receipt_of
from tallytree.publish.release.measurements_file import load_measurements
from tallytree.publish.release.partition import REGIONS

AT_A_TIME = 1 << 20  # rows


class NotRecorded(UserWarning):
    """A release was saved, and the ledger that paid for it could not be told."""


def mark_of(measurements: Measurements) -> str:
    """What the ledger knows measurements by: a digest of the noisy values, whatever file they are in."""
    found = hashlib.sha256()
    for part in measurements.measured:
        found.update(f"{part.view} {part.level} {part.values.size}\n".encode())
        for start in range(0, max(1, len(part.values)), AT_A_TIME):
            found.update(part.values[start : start + AT_A_TIME].astype("<i8").tobytes())
    return found.hexdigest()[:32]


def after_spending(error: BudgetError) -> str:
    """What a ledger says of something that it was to be told after it was charged."""
    return str(error).replace("othing was spent", "othing was changed")


@contextmanager
def warned_if_not_recorded(target: Path, receipt: Receipt) -> Iterator[None]:
    """A ledger that cannot be written does not keep a release from being saved: what it was to be told can follow."""
    try:
        yield
    except OtherMeasurements:
        raise
    except BudgetError as error:
        warnings.warn(
            f"the ledger that paid for the release was not told of it: {after_spending(error)}\nTell it with:\n"
            f"  {recording_command(target, receipt)}",
            NotRecorded,
            stacklevel=4,
        )


def recording_command(target: Path, receipt: Receipt) -> str:
    """The command that does it later, to be pasted."""
    words = ["tallytree", "ledger", "record", str(target), "--ledger", receipt.ledger, "--receipt", str(receipt.number)]
    return shlex.join(words)


def record(folder: Path, ledger: Ledger, number: int | None = None) -> tuple[int, str]:
    """Tell a ledger which release it paid for: the number of the reservation, and the id.

    The reservation is the one that its measurements are marked for; for synthetic households it is the one that what
    their run kept beside them names. Where nothing names one, it is the only one that fits. With a `number` that has
    to be the same one, or one without a mark; for synthetic households, one whose rounds cost the same.
    """
    if not (folder / MANIFEST).is_file():
        raise ReleaseError(f"{folder} is not a release: it has no {MANIFEST}")
    identity = digest(folder / MANIFEST)
    if (folder / REGIONS).is_file():  # which releases of counts have, and synthetic households do not
        measurements = load_measurements(folder / MEASUREMENTS)
        mark = mark_of(measurements)
        if number is None:
            number = ledger.paid_for(mark)
        if number is None and not measurements.ledgered:
            raise BudgetError(f"{folder} was made without a ledger: the ledger {ledger.path} did not pay for it")
        if number is None:
            number = ledger.only_unrecorded(str(folder), measurements.budget, measurements.neighbours, ())
        ledger.settle_on(number, mark)
    else:
        number = receipt_of(folder, ledger, number)
    ledger.record(number, identity)
    return number, identity
