"""`RunFolder`: the folder of an unfinished run. It states how to resume, no matter how the run ended.

Releases and syntheses work the same way. Files reach the disk in this order; each is complete and synced before the
next step:

1. For a release: `room`, a file as large as the measurements will be. Then the journal, with a random token and the
   account that is to pay: *begun*. Nothing is spent.
2. The ledger reserves the cost under the token: *reserved*. A resumed run uses the same token and pays nothing more. A
   synthesis has its rounds in the journal. Noise that a killed release drew was only in its memory and is gone.
3. If a release measures totals before the rest, `first.parquet` holds them, in space reserved at the beginning. The
   file for all measurements is then enlarged to its final size, which follows from the totals. A resumed run does not
   draw the totals again. Only then the rest is drawn.
4. `measurements.parquet`, written over `room`: *measured*. The ledger records their mark and accepts no other mark for
   this reservation. If two copies of the folder both draw, only one can continue. No estimate starts before this.
5. The journal records the id that the directory will have. The directory gets its name, and the ledger records the id.
6. The journal records that the run is *finished*. Only then the folder is removed, the journal last. A kill before that
   leaves a folder that states that it is no longer needed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tallytree.core.disk import is_there, sync
from tallytree.core.errors import BudgetError, ReleaseError, SpecError
from tallytree.core.numbers import exact_number
from tallytree.core.progress import Progress, Tell, in_percent, nobody, silent
from tallytree.privacy.budget import Budget
from tallytree.privacy.journal import FILE, Journal
from tallytree.privacy.ledger import ChangedInput, Charge, Ledger, OtherMeasurements, Receipt, Spending, amount, holding
from tallytree.privacy.measurements import FirstStageFacts, Measurements
from tallytree.privacy.relations import households_from_json
from tallytree.publish.folder import (
    MANIFEST,
    MEASUREMENTS,
    NEW,
    PRIVACY,
    SPEC,
    UNUSABLE,
    digest,
    place_of,
    write_json,
    write_whole,
)
from tallytree.publish.release.measurements_file import load_measurements, write_measurements
from tallytree.publish.release.table_layout import REGIONS
from tallytree.publish.statement import LEDGER
from tallytree.publish.untrusted import read_json

ROOM, FIRST, FIRST_ROOM = "room", "first.parquet", "first.room"
MAKING_ROOM = "reserving disk space for the measurements"
NAMES = (
    SPEC,
    f"{SPEC}{NEW}",
    ROOM,
    FIRST,
    FIRST_ROOM,
    REGIONS,
    MEASUREMENTS,
    FILE,
)  # removed in this order, the journal last
RUNS = ".runs"  # suffix of the folder beside a ledger for runs without a named folder
HOUSEHOLDS = "households.parquet"  # in a synthesis alone

NOTHING_SPENT = "Nothing was spent."

Stage = Literal["nothing", "other", "begun", "reserved", "measured", "finished"]


class NotRecorded(UserWarning):
    """A release was saved, but the ledger that paid for it could not record it."""


class NotRemoved(UserWarning):
    """The folder of a complete run could not be removed."""


class SpentError(ReleaseError):
    """A run was interrupted after its cost was reserved; resume it from its folder without paying again.

    `state` says what was spent, and its `folder` is the folder to resume from.
    """

    def __init__(self, why: str, state: RunState) -> None:
        super().__init__(f"{why} {state.in_words()}")
        self.why, self.state = why, state


@dataclass(frozen=True)
class RunState:
    """The progress of a run. All of it is for the data holder."""

    folder: Path
    stage: Stage
    ledger: str | None = None  # the ledger to be charged
    charged: str = ""  # what is spent, in words
    rounds: int = 0
    ids: tuple[str, ...] = ()  # of its directory, from the journal or the ledger
    receipt: int | None = None
    lost: bool = False  # the ledger has the mark of measurements that are not here
    unsure: str = ""  # why the ledger cannot be asked

    @property
    def spent(self) -> bool:
        """Return whether deleting the folder may lose something that was paid for."""
        return self.stage in ("reserved", "measured") or bool(self.unsure)

    def in_words(self) -> str:
        """Return what was spent, and what resuming does."""
        if self.stage == "nothing":
            return f"{self.folder} holds no run: none was started in it, or it was finished."
        if self.stage == "other":
            return f"{self.folder} does not hold an interrupted run. Nothing was spent."
        if self.stage == "finished":
            return f"The run in {self.folder} is complete; the folder is no longer needed."
        if self.unsure and self.stage == "begun":
            return (
                f"It is not known whether its cost is spent ({self.unsure}). Resuming from {self.folder} asks the "
                "ledger, which charges it only once."
            )
        if self.lost:
            return (
                f"{self.charged} is spent. The measurements that this paid for are not in {self.folder}: they were "
                "deleted, or this is a copy and another run continued. The ledger accepts no others. Resume where "
                "they are, or delete the folder and pay for new ones."
            )
        if not self.spent:
            return "Nothing was spent."
        kept = "The measurements are" if self.stage == "measured" else ""
        if self.rounds:
            kept = f"The {self.rounds} rounds started so far are" if self.rounds > 1 else "The round started so far is"
        paid = f"{self.charged or 'Its budget'} is spent. "
        if kept:
            return f"{paid}{kept} stored in {self.folder}: resuming from there spends nothing more."
        return f"{paid}No measurement was published. Resuming from {self.folder} spends nothing more."


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    folder: Path

    @classmethod
    def beside(cls, out: Path) -> RunFolder:
        """Return the folder of a run for a directory."""
        return cls(out.with_name(f"{out.name}.partial"))

    @property
    def unnamed(self) -> bool:
        """Return whether the user named no folder. Then it is removed once its directory is saved."""
        return self.folder.parent.name.endswith(RUNS)

    # ---------------------------------------------------------------- how far it came

    def state(self) -> RunState:
        """Return the run's progress according to its files and the ledger.

        A folder that cannot be read may hold a run that was paid for.
        """
        try:
            return self._state()
        except OSError as error:
            return RunState(self.folder, "begun", unsure=f"{self.folder} cannot be read: {error.strerror}")

    def _state(self) -> RunState:
        if not is_there(self.folder):
            return RunState(self.folder, "nothing")
        if self.folder.is_symlink() or not self.folder.is_dir():
            return RunState(self.folder, "other")
        journal = Journal(self.folder, look=True)
        if journal.facts is None:
            others = {path.name for path in self.folder.iterdir()} - {*NAMES}
            return RunState(self.folder, "other" if others or is_there(self.folder / MEASUREMENTS) else "nothing")
        try:
            facts = journal.facts
            name, ledger, token, budget = facts["name"], facts["ledger"], facts["token"], facts["budget"]
            budget = Budget.from_json(budget)
        except UNUSABLE:
            raise ReleaseError(f"{self.folder / FILE} is damaged: it does not say which run it belongs to") from None
        measured, drawn = is_there(self.folder / MEASUREMENTS), is_there(self.folder / FIRST) or bool(journal.rounds)
        stage: Stage = "finished" if journal.finished else "measured" if measured else "reserved" if drawn else "begun"
        known = {"rounds": len(journal.rounds), "ids": tuple(journal.ids), "receipt": journal.receipt}
        state = RunState(self.folder, stage, ledger=ledger, **known)  # type: ignore[arg-type]
        of = f" of {name!r}" if name else ""
        if stage == "finished" or ledger is None:
            return replace(state, charged=f"{amount(journal.spent, 'rho')}{of}" if journal.rounds else "")
        try:
            held = holding(Ledger(ledger).account(name or ""), token)
        except BudgetError as error:
            charged = f"{amount(budget.amount, budget.currency)}{of}" if journal.receipt is not None else ""
            return replace(state, unsure=str(error), charged=charged)
        return state if held is None else _with_reservation(state, held, f"{of} in {ledger}")

    def id_at(self, out: Path) -> str | None:
        """Return the id of the directory at `out` if the journal or the ledger shows that this run wrote it."""
        state = self.state()
        manifest = out / MANIFEST
        if state.stage in ("nothing", "other") or not manifest.is_file():
            return None
        found = digest(manifest)
        return found if found in state.ids else None

    # ---------------------------------------------------------------- what a release keeps

    def take_rooms(self, rooms: Mapping[str, int], progress: Progress = silent) -> None:
        """Reserve disk space for measurements under these names."""
        try:
            sync(self.folder.parent)
            for name, size in rooms.items():
                (self.folder / name).unlink(missing_ok=True)
                if size:
                    self.take_room(size, in_percent(MAKING_ROOM, progress), name)
        except OSError as error:
            raise ReleaseError(
                f"cannot reserve {sum(rooms.values()):,} bytes for measurements in the folder {self.folder}: "
                f"{error.strerror}. Nothing was spent."
            ) from None

    def measurements(self) -> Measurements:
        """Return the stored measurements of a release, with the receipt."""
        state = self.state()
        if not (self.folder / MEASUREMENTS).exists():
            raise ReleaseError(f"{self.folder} holds no measurements to resume from")
        found = load_measurements(self.folder / MEASUREMENTS)
        if state.ledger is None or state.receipt is None:
            return found
        return replace(found, receipt=Receipt(state.ledger, state.receipt, found.same_data_as))

    def facts(self) -> dict[str, Any]:
        """Return the facts that the run started with."""
        return Journal(self.folder, look=True).facts or {}

    def write_over(self, room: str, measurements: Measurements, name: str, tell: Tell = nobody) -> None:
        """Write measurements into their reserved space, sync them, then rename the file."""
        with open(os.open(self.folder / room, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            write_measurements(measurements, file, tell)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        (self.folder / room).replace(self.folder / name)
        sync(self.folder)

    def take_room(self, size: int, tell: Tell, name: str) -> None:
        """Create and sync a file of the needed size; random bytes keep file systems from compressing it."""
        with (self.folder / name).open("ab") as file:
            for start in range(file.tell(), size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - start)))
                tell(start / size)
            file.flush()
            os.fsync(file.fileno())

    # ---------------------------------------------------------------- the end

    def keep_id(self, release_id: str) -> None:
        """Record an id before its directory has its name; without a journal, do nothing."""
        self._note(lambda journal: journal.keep_id(release_id))

    def finish(self) -> None:
        """Record that the run is complete, then remove the folder; warn if it cannot be removed."""
        try:
            self._note(Journal.finish)
        except (ReleaseError, OSError) as error:
            self._warn(str(error))
        else:
            self.remove()

    def _note(self, note: Any) -> None:
        if self.state().stage in ("begun", "reserved", "measured"):
            with Journal(self.folder) as journal:
                note(journal)

    def remove(self) -> None:
        """Remove the run's own files, the journal last, then the folder if it is empty; other files stay."""
        try:
            if self.folder.is_symlink() or not self.folder.is_dir():
                return
            for name in NAMES:
                (self.folder / name).unlink(missing_ok=True)
            if not any(self.folder.iterdir()):
                self.folder.rmdir()
                if self.unnamed and not any(self.folder.parent.iterdir()):
                    self.folder.parent.rmdir()
                else:
                    sync(self.folder.parent)
        except FileNotFoundError:
            return
        except OSError as error:
            self._warn(str(error.strerror))

    def _warn(self, why: str) -> None:
        text = f"{self.folder} is no longer needed but could not be removed: {why}. Remove it."
        warnings.warn(text, NotRemoved, stacklevel=3)

    def give_up(self) -> None:
        """Remove the folder of a run that spent nothing; keep the folder of a run that may have spent something."""
        with contextlib.suppress(ReleaseError, OSError):
            state = self.state()
            if state.stage != "other" and not state.spent:
                self.remove()

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Write a small JSON file into the folder in one step; it is on disk when this returns."""
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        write_json(self.folder / f"{name}{NEW}", value)
        sync(self.folder / f"{name}{NEW}")
        (self.folder / f"{name}{NEW}").replace(self.folder / name)
        sync(self.folder)


class ReleaseJournal(Journal):
    """The journal of a release; its first-stage measurements are in a file beside it."""

    def __init__(
        self, run: RunFolder, about: dict[str, Any], size: Callable[[Measurements], int], progress: Progress
    ) -> None:
        super().__init__(run.folder, about=about)
        self._run, self._size, self._progress = run, size, progress

    def first_stage(self) -> Measurements | None:
        """Return the first-stage measurements of a run that was interrupted after them."""
        path = self._run.folder / FIRST
        return load_measurements(path) if path.exists() else None

    def keep_first_stage(self, known: Measurements) -> None:
        """Store the first-stage measurements and reserve the space for all measurements, whose size is now known."""
        if not (self._run.folder / FIRST).exists():
            self._run.write_over(FIRST_ROOM, replace(known, first_stage=FirstStageFacts(), branch=None), FIRST)
        self._run.take_room(self._size(known), in_percent(MAKING_ROOM, self._progress), ROOM)


def _with_reservation(state: RunState, held: Spending, where: str) -> RunState:
    """Return the state of a run whose reservation the ledger holds."""
    lost = state.stage != "measured" and bool(held.rounds) and not state.rounds
    stage: Stage = "measured" if state.stage == "measured" else "reserved"
    ids = state.ids if held.release_id is None else (*state.ids, held.release_id)
    cost = f"{amount(held.budget.amount, held.budget.currency)}{where}"
    return replace(state, stage=stage, charged=cost, ids=ids, lost=lost, receipt=held.number)


def choose_charge(ledger: str | os.PathLike[str] | Ledger | None, **stated: bool) -> Charge:
    """Return what pays for a run: a ledger (or its path) and the data holder's statements about the files."""
    return Charge(Ledger(ledger) if isinstance(ledger, str | os.PathLike) else ledger, **stated)


def choose_folder(named: str | os.PathLike[str] | None, ledger: Ledger | None) -> RunFolder | None:
    """Return a run's folder: the named one, otherwise one beside the ledger that pays; None without a ledger."""
    if named is not None:
        return RunFolder(place_of(Path(named)))
    return None if ledger is None else RunFolder(Path(f"{ledger.path}{RUNS}", secrets.token_hex(8)))


# -------------------------------------------------------------------- what an error says of the budget


@contextmanager
def explain_failures(run: RunFolder | None, budget: Budget, how: str) -> Iterator[None]:
    """Add to every error or interrupt that ends a run what was spent and how to resume.

    A refusal by the system, or by a ledger after it was charged, becomes a `SpentError`.
    """
    try:
        yield
    except BaseException as error:
        explained = error if run is None else _explain(error, run, budget, how)
        if run is None and not isinstance(error, BudgetError | SpecError):
            cost = amount(budget.amount, budget.currency)
            error.add_note(f"Up to {cost} is spent, and no folder was given to store results in.")
        if explained is error:
            raise
        raise explained from None


def _explain(error: BaseException, run: RunFolder, budget: Budget, how: str) -> BaseException:
    run.give_up()
    try:
        state = run.state()
    except ReleaseError as damage:
        state = RunState(run.folder, "begun", unsure=str(damage))
    why = _read_system_error(error)
    if why is not None:
        stopped = f"the run was stopped by the system: {why.rstrip('.')}."
    elif state.spent and isinstance(error, BudgetError) and not isinstance(error, OtherMeasurements):
        stopped = f"the run was stopped: {str(error).rstrip('.')}."
    else:
        stopped = ""
    if not state.spent:
        error = ReleaseError(stopped) if stopped else error
        if not isinstance(error, ChangedInput):  # which says so
            error.add_note(NOTHING_SPENT)
        return error
    if state.unsure:
        how = f"At most {amount(budget.amount, budget.currency)} is spent.\n{how}"
    if stopped:
        error = SpentError(stopped, state)
        error.add_note(how)
    else:
        error.add_note(f"{state.in_words()}\n{how}")
    return error


def _read_system_error(error: BaseException) -> str | None:
    """Return why the system stopped a run, or None. Python out of memory may fail in its own code."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or "it could not be written"
    if isinstance(error, SystemError):
        return "Python itself failed, as it does without memory"
    return "too little memory" if isinstance(error, MemoryError) else None


# -------------------------------------------------------------------- which release a reservation paid for


@contextmanager
def warn_if_not_recorded(target: Path, receipt: Receipt) -> Iterator[None]:
    """Warn if the ledger cannot be written after a release was saved: it can record the release later."""
    try:
        yield
    except OtherMeasurements:
        raise
    except BudgetError as error:
        words = ["ledger", "record", str(target), "--ledger", receipt.ledger, "--receipt", str(receipt.number)]
        warnings.warn(
            f"the ledger that paid for the release could not record it: {error}\nRecord it "
            f"with:\n  {shlex.join(['tallytree', *words])}",
            NotRecorded,
            stacklevel=4,
        )


class Published(ABC):
    """What a run makes from its measurements, a release or synthetic households, and how it becomes a directory."""

    @property
    @abstractmethod
    def receipt(self) -> Receipt | None:
        """Return the reservation that paid, for the data holder; it is in no file."""

    @property
    @abstractmethod
    def folder(self) -> Path | None:
        """Return the folder of the run, for the data holder; it is in no file."""

    @property
    def mark(self) -> str | None:
        """Return the mark of the measurements that the reservation is good for, if the ledger does not have it yet."""
        return None

    @abstractmethod
    def _write_files(self, folder: Path, progress: Progress) -> list[str]:
        """Write all files except the manifest, and return their names."""


def write_published(made: Published, target: Path, *, replace: bool = False, progress: Progress = silent) -> str:
    """Write the directory, completely or not at all, and return its id; the ledger is not asked."""
    named = (lambda _: None) if made.folder is None else RunFolder(made.folder).keep_id
    return write_whole(target, lambda folder: made._write_files(folder, progress), replace=replace, named=named)


def save_published(made: Published, directory: str | os.PathLike[str], *, replace: bool, progress: Progress) -> str:
    """Write the directory, record its id in the ledger that paid, and remove a folder that the user did not name.

    Before that the reservation is committed to the measurements: the ledger accepts no others.
    """
    target, receipt = place_of(Path(directory)), made.receipt
    if receipt is not None and made.mark is not None:
        with warn_if_not_recorded(target, receipt):
            receipt.commit(made.mark)
    identity = write_published(made, target, replace=replace, progress=progress)
    if receipt is not None:
        with warn_if_not_recorded(target, receipt):
            receipt.record(identity)
    if made.folder is not None and RunFolder(made.folder).unnamed:
        RunFolder(made.folder).finish()
    return identity


def record(folder: Path, ledger: Ledger, number: int | None = None) -> tuple[int, str]:
    """Record in a ledger which release it paid for; return the reservation's number and the id.

    The reservation is the one that the measurements are marked for. For synthetic households it is the one that the
    run's
    folder beside them names. If nothing names a reservation, it is the only one that fits. A given `number` must be the
    same reservation, or one without a mark; for synthetic households, one whose rounds cost the same.
    """
    if not (folder / MANIFEST).is_file():
        raise ReleaseError(f"{folder} is not a release: it has no {MANIFEST}")
    identity = digest(folder / MANIFEST)
    if (folder / HOUSEHOLDS).is_file():
        number = _reservation_of_synthesis(folder, identity, ledger, number)
    else:
        measurements = load_measurements(folder / MEASUREMENTS)
        mark = measurements.mark
        if number is None:
            number = ledger.paid_for(mark)
        if number is None and not measurements.ledgered:
            raise BudgetError(f"{folder} was made without a ledger: the ledger {ledger.path} did not pay for it")
        if number is None:
            number = ledger.only_unrecorded(str(folder), measurements.budget, measurements.neighbours, ())
        ledger.commit(number, mark)
    ledger.record(number, identity)
    return number, identity


def _reservation_of_synthesis(target: Path, identity: str, ledger: Ledger, number: int | None) -> int:
    """Return the reservation that paid for a directory of synthetic households.

    It is the one that is recorded already, or the one that the run's folder beside the directory names, or the only one
    that fits, or the given one. Its rounds must have the same costs as those of the directory: the measured tables
    alone do
    not distinguish two runs.
    """
    made = {each.number: each for account in ledger.accounts() for each in account.spendings}
    stated = read_json(target / PRIVACY)
    try:
        costs = [exact_number(row["cost"]) for row in stated["rounds"]]
        relation, budget = households_from_json(stated["neighbours"]), Budget.from_json(stated["budget"])
    except (*UNUSABLE, SpecError):
        raise ReleaseError(f"{target / PRIVACY} does not state the rounds, the unit and the budget") from None
    if number is None:
        number = next((each.number for each in made.values() if each.release_id == identity), None)
    if number is None:
        state = RunFolder.beside(target.absolute()).state()
        number = state.receipt if identity in state.ids else None
    if number is None and stated.get("ledger") != LEDGER:
        raise ReleaseError(f"{target} was made without a ledger: the ledger {ledger.path} did not pay for it")
    if number is None:
        number = ledger.only_unrecorded(str(target), budget, relation, costs)
    if number in made and made[number].rounds and [begun.cost for begun in made[number].rounds] != costs:
        raise ReleaseError(f"the rounds of reservation {number} are not those of {target}: another one paid for it")
    return number
