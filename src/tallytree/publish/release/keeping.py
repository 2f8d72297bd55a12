"""`Kept`: the folder of a release that is being made. However a run ends, the folder says how to go on from there.

Its files come to the disk in this order, each whole and synced before the next step is taken:

1. `run.json`, with a token made by chance and the account that is to pay, and `mechanism.json`; `room`, as large as
   the measurements will be: *begun*. Nothing is spent.
2. The ledger reserves the cost under the token: *reserved*. Whoever goes on asks with the same token and pays nothing
   more. Noise that a killed run drew was in its memory and is gone.
3. If totals are measured before the rest, `first.parquet` has them, with room taken at the beginning; and the room for
   all measurements is made as large as they will be, which follows from the totals. Whoever goes on does not draw the
   totals again. Only then the rest is drawn.
4. `measurements.parquet`, written over the room: *measured*. The ledger is told their mark, and takes no other one for
   this reservation: of two copies of the folder that both draw, one can go on. Nothing is estimated before.
5. The release is in its place, and the ledger is told its id. Then the folder is removed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tallytree.core.disk import is_there, sync
from tallytree.core.errors import BudgetError, ReleaseError
from tallytree.core.progress import Progress, Tell, in_percent, nobody, silent
from tallytree.mechanisms import Mechanism
from tallytree.privacy.accounts import Spending, amount
from tallytree.privacy.budget import Budget
from tallytree.privacy.ledger import Ledger, Receipt, holding
from tallytree.privacy.measurements import Measurements, Settled
from tallytree.publish.folder import MANIFEST, MEASUREMENTS, NEW, SPEC, locked, write_json
from tallytree.publish.reading import read_json
from tallytree.publish.recording import mark_of
from tallytree.publish.release.measurements_file import load_measurements, write_measurements
from tallytree.publish.release.partition import REGIONS

RUN, MECHANISM, RECEIPT, ROOM = "run.json", "mechanism.json", "receipt.json", "room"
FIRST, FIRST_ROOM = "first.parquet", "first.room"  # what was measured before the rest
MAKING_ROOM = "making room for the measurements"
FILES = {
    MEASUREMENTS,
    REGIONS,
    FIRST,
    FIRST_ROOM,
    *(f"{name}{end}" for name in (RUN, MECHANISM, RECEIPT, SPEC, ROOM) for end in ("", NEW)),
}


class NotRemoved(UserWarning):
    """The folder of a run that is complete is still there."""


Stage = Literal["begun", "reserved", "measured"]


class SpentError(ReleaseError):
    """A release was interrupted after its cost was reserved; it can be finished from its folder without paying again.

    `state` says what was spent, and `folder` is where to go on from.
    """

    def __init__(self, why: str, state: State) -> None:
        super().__init__(f"{why} {state.in_words()}")
        self.why, self.state = why, state


@dataclass(frozen=True)
class State:
    """How far a release came."""

    folder: Path
    stage: Stage
    named: bool = False  # does the folder say which account is to pay, or that none is?
    ledger: str | None = None  # which is to be charged
    account: str | None = None
    charged: str = ""  # the cost that the ledger holds for this run, in words
    settled: bool = False  # does the ledger hold the mark of its measurements?
    unsure: str = ""  # why the ledger cannot be asked

    @property
    def spent(self) -> bool:
        """Is there anything to lose by deleting the folder, as far as can be known?"""
        return self.stage != "begun" or bool(self.unsure)

    def in_words(self) -> str:
        """What was spent, and what going on will do."""
        paid = f"{self.charged} is spent. " if self.charged else ""
        if self.stage == "measured":
            paid = paid or "Its budget is spent. "
            return f"{paid}The measurements are kept in {self.folder}: going on from there spends nothing more."
        if self.unsure:
            return (
                f"Whether its cost is reserved and spent is not known ({self.unsure}). Going on from {self.folder} "
                "asks the ledger: it is paid for once."
            )
        if self.settled:
            return (
                f"{paid}The measurements that this paid for are not in {self.folder}: they were deleted, or this is a "
                "copy and another run went on. The ledger takes no others. Go on from where they are, or delete the "
                "folder and pay for new ones."
            )
        if self.stage == "reserved":
            return f"{paid}Nothing measured was shown. Going on from {self.folder} spends nothing more."
        return "Nothing was spent."


@dataclass(frozen=True)
class Kept:
    """The folder of one run."""

    folder: Path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the folder for this process alone; it is made if it is not there, and goes again if nothing is spent."""
        try:
            self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            with locked(self.folder):
                self._refuse_others()
                try:
                    yield
                except BaseException:
                    self.give_up()
                    raise
        except BlockingIOError:
            raise ReleaseError(
                f"another run is working in {self.folder} at this moment: wait until it is done, or choose another "
                "directory. This run did nothing and spent nothing."
            ) from None

    def begin(
        self,
        mechanism: Mechanism,
        budget: Budget,
        ledger: Ledger | None,
        account: str | None,
        rooms: Mapping[str, int],
        regions: Callable[[Path], None] = lambda _: None,
        *,
        progress: Progress = silent,
    ) -> str:
        """Put down what the run is, and take the `rooms` that its measurements will need; gives its token.

        `regions` writes the file of regions that measurements need beside them.

        A folder of a run that came no further than its reservation is gone on from, with the token that it has.
        """
        run = {
            "token": secrets.token_hex(16),
            "ledger": None if ledger is None else str(ledger.path),
            "account": None if ledger is None else account,
            "budget": budget.to_json(),
        }
        try:
            sync(self.folder.parent)
            if (before := self._run()) is not None:
                if before != {**run, "token": before["token"]}:
                    raise ReleaseError(
                        f"{self.folder} was begun with {_paying(before)}, and not with {_paying(run)}. Nothing was "
                        "spent now. Go on as it was begun, or choose another directory."
                    )
                run = before
            self.write(MECHANISM, {"name": mechanism.name, "options": mechanism.options})
            regions(self.folder / REGIONS)
            for name, size in rooms.items():
                (self.folder / name).unlink(missing_ok=True)
                if size:
                    self._take_room(size, in_percent(MAKING_ROOM, progress), name)
            self.write(RUN, run)
        except OSError as error:
            raise ReleaseError(
                f"the folder {self.folder} cannot be written, with room for {sum(rooms.values()):,} bytes of "
                f"measurements: {error.strerror}. Nothing was spent."
            ) from None
        return str(run["token"])

    def put(self, measurements: Measurements, progress: Progress = silent) -> None:
        """Keep measurements, in the room that was taken for them. They count as kept when this returns."""
        if measurements.receipt is not None:
            self.write(RECEIPT, asdict(measurements.receipt))
        self._write_over(ROOM, measurements, MEASUREMENTS, in_percent("keeping the measurements", progress))

    def put_first(self, known: Measurements, size: int, progress: Progress = silent) -> None:
        """Keep what was measured first, and take the room that all measurements will need, which is known by now."""
        if not (self.folder / FIRST).exists():
            self._write_over(FIRST_ROOM, replace(known, settled=Settled(), passed=None), FIRST)
        self._take_room(size, in_percent(MAKING_ROOM, progress), ROOM)

    def first(self) -> Measurements | None:
        """What a run measured first that came no further."""
        return load_measurements(self.folder / FIRST) if (self.folder / FIRST).exists() else None

    def _write_over(self, room: str, measurements: Measurements, name: str, tell: Tell = nobody) -> None:
        """Write measurements into the room that was taken for them, see them to the disk, and name them then."""
        with open(os.open(self.folder / room, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            write_measurements(measurements, file, tell)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        (self.folder / room).replace(self.folder / name)
        sync(self.folder)

    def measurements(self) -> Measurements:
        """What was kept, with the receipt."""
        if not (self.folder / MEASUREMENTS).exists():
            raise ReleaseError(f"{self.folder} holds no measurements to go on from")
        found = load_measurements(self.folder / MEASUREMENTS)
        if (self.folder / RECEIPT).exists():
            found = replace(found, receipt=Receipt(**read_json(self.folder / RECEIPT)))
        return found

    def in_place(self, out: Path) -> bool:
        """Is there a release at `out` that was made from what was kept? An empty folder is what is left of one."""
        try:
            if not any(self.folder.iterdir()):
                return (out / MANIFEST).is_file()
            there = load_measurements(out / MEASUREMENTS)
            return mark_of(there) == mark_of(self.measurements())
        except (ReleaseError, OSError):
            return False

    def mechanism(self) -> tuple[str, Mapping[str, Any]] | None:
        """Name and options of the mechanism that was chosen for the run, if that was put down."""
        if not (self.folder / MECHANISM).exists():
            return None
        kept = read_json(self.folder / MECHANISM)
        return kept["name"], kept["options"]

    def state(self) -> State | None:
        """How far the run came, as its files and the ledger tell; None if there is no folder.

        Of a folder that cannot be read nothing is known: it may hold a run that was paid for.
        """
        try:
            return self._state()
        except OSError as error:
            return State(self.folder, "begun", unsure=f"{self.folder} cannot be read: {error.strerror}")

    def _state(self) -> State | None:
        if not is_there(self.folder):
            return None
        run = self._run()
        known: dict[str, Any] = (
            {} if run is None else {"named": True, **{key: run[key] for key in ("ledger", "account")}}
        )
        state = State(self.folder, "measured" if is_there(self.folder / MEASUREMENTS) else "begun", **known)
        if run is None:
            return state
        if run["ledger"] is None:  # what was measured first is not drawn again: the folder stays
            first = state.stage == "begun" and is_there(self.folder / FIRST)
            return replace(state, stage="reserved") if first else state
        try:
            held = self._held(run)
        except BudgetError as error:
            return replace(state, unsure=str(error))
        if held is None:
            return state
        cost = f"{amount(held.budget.amount, held.budget.currency)} of {run['account']!r} in {run['ledger']}"
        stage: Stage = "reserved" if state.stage == "begun" else "measured"
        return replace(state, stage=stage, charged=cost, settled=bool(held.rounds))

    def remove(self) -> None:
        """Remove the run's own files, the measurements last, and the folder if it then is empty."""
        try:
            for name in sorted(FILES, key=MEASUREMENTS.__eq__):
                (self.folder / name).unlink(missing_ok=True)
            self.folder.rmdir()
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            warnings.warn(
                f"{self.folder} is of no more use, and could not be removed: {error.strerror}. Remove it.",
                NotRemoved,
                stacklevel=2,
            )

    def give_up(self) -> None:
        """Remove the folder of a run for which nothing was spent; one for which something may have been spent stays."""
        with contextlib.suppress(ReleaseError, OSError):
            if (state := self.state()) is not None and not state.spent:
                self.remove()

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Put a small file of JSON into the folder, whole, and on disk when this returns."""
        write_json(self.folder / f"{name}{NEW}", value)
        sync(self.folder / f"{name}{NEW}")
        (self.folder / f"{name}{NEW}").replace(self.folder / name)
        sync(self.folder)

    def _refuse_others(self) -> None:
        if others := sorted({path.name for path in self.folder.iterdir()} - FILES):
            raise ReleaseError(
                f"{self.folder} is there already and holds {others[0]!r}, which is no part of a release that was "
                "interrupted. Nothing was spent. Choose another directory."
            )

    def _run(self) -> dict[str, Any] | None:
        return read_json(self.folder / RUN) if is_there(self.folder / RUN) else None

    def _held(self, run: Mapping[str, Any]) -> Spending | None:
        return holding(Ledger(run["ledger"]).account(run["account"]), run["token"])

    def _take_room(self, size: int, tell: Tell, name: str) -> None:
        """Make a file as large as needed and sync it, of bytes that do not shrink where files are compressed."""
        with (self.folder / name).open("ab") as file:
            for start in range(file.tell(), size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - start)))
                tell(start / size)
            file.flush()
            os.fsync(file.fileno())


def _paying(run: Mapping[str, Any]) -> str:
    budget = Budget.from_json(run["budget"])
    account = "no ledger" if run["ledger"] is None else f"the account {run['account']!r} in {run['ledger']}"
    return f"{amount(budget.amount, budget.currency)} and {account}"
