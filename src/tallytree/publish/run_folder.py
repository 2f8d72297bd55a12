"""`RunFolder`: the folder of a run that is not complete. However a run ends, the folder says how to go on from there.

It is the same for releases and syntheses. Its files come to the disk in this order, each whole and synced before the
next step is taken:

1. For a release `room`, as large as the measurements will be. Then the journal, with a token made by chance and the
   account that is to pay: *begun*. Nothing is spent.
2. The ledger reserves the cost under the token: *reserved*. Whoever goes on asks with the same token and pays nothing
   more. A synthesis has its rounds in the journal. Noise that a killed release drew was in its memory and is gone.
3. If a release measures totals before the rest, `first.parquet` has them, with room taken at the beginning. The room
   for all measurements is then made as large as they will be, which follows from the totals. Whoever goes on does not
   draw the totals again. Only then the rest is drawn.
4. `measurements.parquet`, written over the room: *measured*. The ledger is told their mark, and takes no other one for
   this reservation: of two copies of the folder that both draw, one can go on. Nothing is estimated before.
5. The journal has the id that the directory will have. The directory gets its name, and the ledger is told the id.
6. The journal says that the run is *finished*. Only then the folder is removed, the journal last. A kill before that
   leaves a folder that says that it is of no more use.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import warnings
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
from tallytree.publish.folder import MANIFEST, MEASUREMENTS, NEW, PRIVACY, SPEC, UNUSABLE, digest, place_of, write_json
from tallytree.publish.release.measurements_file import load_measurements, write_measurements
from tallytree.publish.release.table_layout import REGIONS
from tallytree.publish.statement import LEDGER
from tallytree.publish.untrusted import read_json

ROOM, FIRST, FIRST_ROOM = "room", "first.parquet", "first.room"
MAKING_ROOM = "making room for the measurements"
NAMES = (SPEC, f"{SPEC}{NEW}", ROOM, FIRST, FIRST_ROOM, REGIONS, MEASUREMENTS, FILE)  # the journal last
RUNS = ".runs"  # how the folder beside a ledger ends that has the runs for which no folder was named
HOUSEHOLDS = "households.parquet"  # in a synthesis alone

NOTHING_SPENT = "Nothing was spent."

Stage = Literal["nothing", "other", "begun", "reserved", "measured", "finished"]


class NotRecorded(UserWarning):
    """A release was saved, and the ledger that paid for it could not be told."""


class NotRemoved(UserWarning):
    """The folder of a run that is complete is still there."""


class SpentError(ReleaseError):
    """A run was interrupted after its cost was reserved; it can be finished from its folder without paying again.

    `state` says what was spent, and its `folder` is where to go on from.
    """

    def __init__(self, why: str, state: RunState) -> None:
        super().__init__(f"{why} {state.in_words()}")
        self.why, self.state = why, state


@dataclass(frozen=True)
class RunState:
    """How far a run came. All of it is for the data holder."""

    folder: Path
    stage: Stage
    ledger: str | None = None  # which is to be charged
    charged: str = ""  # what is spent, in words
    rounds: int = 0
    ids: tuple[str, ...] = ()  # that its directory was to get, or that the ledger recorded
    receipt: int | None = None
    lost: bool = False  # does the ledger hold the mark of measurements that are not here?
    unsure: str = ""  # why the ledger cannot be asked

    @property
    def spent(self) -> bool:
        """Is there anything to lose by deleting the folder, as far as can be known?"""
        return self.stage in ("reserved", "measured") or bool(self.unsure)

    def in_words(self) -> str:
        """What was spent, and what going on will do."""
        if self.stage == "nothing":
            return f"{self.folder} holds nothing of a run: none was begun in it, or it was finished."
        if self.stage == "other":
            return f"{self.folder} holds something else than an interrupted run. Nothing was spent."
        if self.stage == "finished":
            return f"The run in {self.folder} is complete, and the folder is of no more use."
        if self.unsure and self.stage == "begun":
            return (
                f"Whether its cost is reserved and spent is not known ({self.unsure}). Going on from {self.folder} "
                "asks the ledger: it is paid for once."
            )
        if self.lost:
            return (
                f"{self.charged} is spent. The measurements that this paid for are not in {self.folder}: they were "
                "deleted, or this is a copy and another run went on. The ledger takes no others. Go on from where they "
                "are, or delete the folder and pay for new ones."
            )
        if not self.spent:
            return "Nothing was spent."
        kept = "The measurements are" if self.stage == "measured" else ""
        if self.rounds:
            kept = f"The {self.rounds} rounds begun so far are" if self.rounds > 1 else "The round begun so far is"
        paid = f"{self.charged or 'Its budget'} is spent. "
        if kept:
            return f"{paid}{kept} kept in {self.folder}: going on from there spends nothing more."
        return f"{paid}Nothing measured was shown. Going on from {self.folder} spends nothing more."


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    folder: Path

    @classmethod
    def beside(cls, out: Path) -> RunFolder:
        """The folder of a run for a directory."""
        return cls(out.with_name(f"{out.name}.partial"))

    @property
    def unnamed(self) -> bool:
        """Did nobody name it? Then it goes as soon as its directory is saved."""
        return self.folder.parent.name.endswith(RUNS)

    # ---------------------------------------------------------------- how far it came

    def state(self) -> RunState:
        """How far the run came, as its files and the ledger tell.

        Of a folder that cannot be read nothing is known: it may hold a run that was paid for.
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
            raise ReleaseError(f"{self.folder / FILE} is damaged: what run it belongs to cannot be read") from None
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
        """The id of the directory at `out`, if this run wrote it: its journal has the id, or the ledger that paid."""
        state = self.state()
        manifest = out / MANIFEST
        if state.stage in ("nothing", "other") or not manifest.is_file():
            return None
        found = digest(manifest)
        return found if found in state.ids else None

    # ---------------------------------------------------------------- what a release keeps

    def take_rooms(self, rooms: Mapping[str, int], progress: Progress = silent) -> None:
        """Take the disk space that measurements will need, under these names."""
        try:
            sync(self.folder.parent)
            for name, size in rooms.items():
                (self.folder / name).unlink(missing_ok=True)
                if size:
                    self.take_room(size, in_percent(MAKING_ROOM, progress), name)
        except OSError as error:
            raise ReleaseError(
                f"the folder {self.folder} cannot be written, with room for {sum(rooms.values()):,} bytes of "
                f"measurements: {error.strerror}. Nothing was spent."
            ) from None

    def put(self, measurements: Measurements, progress: Progress = silent) -> None:
        """Keep measurements, in the room that was taken for them. They count as kept when this returns."""
        self.write_over(ROOM, measurements, MEASUREMENTS, in_percent("keeping the measurements", progress))

    def measurements(self) -> Measurements:
        """What a release kept, with the receipt."""
        state = self.state()
        if not (self.folder / MEASUREMENTS).exists():
            raise ReleaseError(f"{self.folder} holds no measurements to go on from")
        found = load_measurements(self.folder / MEASUREMENTS)
        if state.ledger is None or state.receipt is None:
            return found
        return replace(found, receipt=Receipt(state.ledger, state.receipt, found.same_data_as))

    def facts(self) -> dict[str, Any]:
        """The facts that the run was begun with."""
        return Journal(self.folder, look=True).facts or {}

    def write_over(self, room: str, measurements: Measurements, name: str, tell: Tell = nobody) -> None:
        """Write measurements into the room that was taken for them, see them to the disk, and name them then."""
        with open(os.open(self.folder / room, os.O_RDWR | os.O_CREAT, 0o600), "r+b") as file:
            write_measurements(measurements, file, tell)
            file.truncate()
            file.flush()
            os.fsync(file.fileno())
        (self.folder / room).replace(self.folder / name)
        sync(self.folder)

    def take_room(self, size: int, tell: Tell, name: str) -> None:
        """Make a file as large as needed and sync it, of bytes that do not shrink where files are compressed."""
        with (self.folder / name).open("ab") as file:
            for start in range(file.tell(), size, 1 << 20):
                file.write(os.urandom(min(1 << 20, size - start)))
                tell(start / size)
            file.flush()
            os.fsync(file.fileno())

    # ---------------------------------------------------------------- the end

    def keep_id(self, release_id: str) -> None:
        """Put an id down before its directory has its name; without a journal there is nothing to do."""
        self._note(lambda journal: journal.keep_id(release_id))

    def finish(self) -> None:
        """Say that the run is complete, and remove it then. If the disk does not let it, there is a warning."""
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
        """Remove the run's own files, the journal last, and the folder if it then is empty; other files stay."""
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
        text = f"{self.folder} is of no more use, and could not be removed: {why}. Remove it."
        warnings.warn(text, NotRemoved, stacklevel=3)

    def give_up(self) -> None:
        """Remove the folder of a run for which nothing was spent; one for which something may have been spent stays."""
        with contextlib.suppress(ReleaseError, OSError):
            state = self.state()
            if state.stage != "other" and not state.spent:
                self.remove()

    def write(self, name: str, value: dict[str, Any]) -> None:
        """Put a small file of JSON into the folder, whole, and on disk when this returns."""
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        write_json(self.folder / f"{name}{NEW}", value)
        sync(self.folder / f"{name}{NEW}")
        (self.folder / f"{name}{NEW}").replace(self.folder / name)
        sync(self.folder)


class ReleaseJournal(Journal):
    """The journal of a release, with what it measured first in a file beside it."""

    def __init__(
        self, run: RunFolder, about: dict[str, Any], size: Callable[[Measurements], int], progress: Progress
    ) -> None:
        super().__init__(run.folder, about=about)
        self._run, self._size, self._tell = run, size, in_percent(MAKING_ROOM, progress)

    def first_stage(self) -> Measurements | None:
        """What a run measured first that came no further."""
        path = self._run.folder / FIRST
        return load_measurements(path) if path.exists() else None

    def keep_first_stage(self, known: Measurements) -> None:
        """Keep what was measured first, and take the room that all measurements will need, which is known by now."""
        if not (self._run.folder / FIRST).exists():
            self._run.write_over(FIRST_ROOM, replace(known, first_stage=FirstStageFacts(), branch=None), FIRST)
        self._run.take_room(self._size(known), self._tell, ROOM)


def _with_reservation(state: RunState, held: Spending, where: str) -> RunState:
    """The state of a run whose reservation the ledger holds."""
    lost = state.stage != "measured" and bool(held.rounds) and not state.rounds
    stage: Stage = "measured" if state.stage == "measured" else "reserved"
    ids = state.ids if held.release_id is None else (*state.ids, held.release_id)
    cost = f"{amount(held.budget.amount, held.budget.currency)}{where}"
    return replace(state, stage=stage, charged=cost, ids=ids, lost=lost, receipt=held.number)


def choose_charge(ledger: str | os.PathLike[str] | Ledger | None, **stated: bool) -> Charge:
    """What pays for a run: a ledger, or the one at a path, and what the data holder states of the files."""
    return Charge(Ledger(ledger) if isinstance(ledger, str | os.PathLike) else ledger, **stated)


def choose_folder(named: str | os.PathLike[str] | None, ledger: Ledger | None) -> RunFolder | None:
    """Where a run is kept: in the folder that is named, otherwise beside the ledger that pays, without one nowhere."""
    if named is not None:
        return RunFolder(place_of(Path(named)))
    return None if ledger is None else RunFolder(Path(f"{ledger.path}{RUNS}", secrets.token_hex(8)))


# -------------------------------------------------------------------- what an error says of the budget


@contextmanager
def note_nothing_spent(*, unless: bool = False) -> Iterator[None]:
    """What is done before the ledger is asked: an error says that nothing was spent, whatever the disk can tell now."""
    try:
        yield
    except BaseException as error:
        if not unless:
            error.add_note(NOTHING_SPENT)
        raise


@contextmanager
def explain_failures(run: RunFolder | None, budget: Budget, how: str) -> Iterator[None]:
    """Let every error that ends a run say what was spent and how to go on; an interrupt too."""
    try:
        yield
    except BaseException as error:
        if run is None:
            if not isinstance(error, BudgetError | SpecError):
                cost = amount(budget.amount, budget.currency)
                error.add_note(f"Up to {cost} is spent, and no folder was given that results could be kept in.")
            raise
        if (explained := explain_failure(error, run, budget, how)) is error:
            raise
        raise explained from None


def explain_failure(error: BaseException, run: RunFolder, budget: Budget, how: str) -> BaseException:
    """An error that says what was spent and how to go on.

    What the system refuses, and what a ledger refuses after it was charged, becomes a `SpentError`.
    """
    before = NOTHING_SPENT in getattr(error, "__notes__", ())
    run.give_up()
    try:
        state = RunState(run.folder, "nothing") if before else run.state()
    except ReleaseError as damage:
        state = RunState(run.folder, "begun", unsure=str(damage))
    why = _read_system_error(error)
    if why is not None:
        stopped = f"the run was stopped by the system: {why.rstrip('.')}."
    elif state.spent and isinstance(error, BudgetError) and not isinstance(error, OtherMeasurements | ChangedInput):
        stopped = f"the run was stopped: {after_spending(str(error)).rstrip('.')}."
    else:
        stopped = ""
    if not state.spent:
        if stopped:
            error = ReleaseError(stopped)
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
    """Why the system stopped a run, if it did: that is no defect. Python without memory may fail in its own code."""
    if isinstance(error, OSError):
        return error.strerror or str(error) or "it could not be written"
    if isinstance(error, SystemError):
        return "Python itself failed, which it does for lack of memory"
    return "too little memory" if isinstance(error, MemoryError) else None


# -------------------------------------------------------------------- which release a reservation paid for


def after_spending(text: str) -> str:
    """What a ledger says of something that it was to be told after it was charged."""
    return text.replace("othing was spent", "othing was changed")


@contextmanager
def warn_if_not_recorded(target: Path, receipt: Receipt) -> Iterator[None]:
    """A ledger that cannot be written does not keep a release from being saved: what it was to be told can follow."""
    try:
        yield
    except OtherMeasurements:
        raise
    except BudgetError as error:
        words = ["ledger", "record", str(target), "--ledger", receipt.ledger, "--receipt", str(receipt.number)]
        warnings.warn(
            f"the ledger that paid for the release was not told of it: {after_spending(str(error))}\nTell it with:\n"
            f"  {shlex.join(['tallytree', *words])}",
            NotRecorded,
            stacklevel=4,
        )


def record(folder: Path, ledger: Ledger, number: int | None = None) -> tuple[int, str]:
    """Tell a ledger which release it paid for: the number of the reservation, and the id.

    The reservation is the one that its measurements are marked for; for synthetic households it is the one that the
    run's folder beside them names. Where nothing names one, it is the only one that fits. With a `number` that has to
    be the same one, or one without a mark; for synthetic households, one whose rounds cost the same.
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
    """The reservation of a ledger that paid for a directory of synthetic households.

    It is the one that is recorded already, or that the run's folder beside the directory names, or the only one that
    fits, or the given one. Its rounds have to cost what those of the directory do: what they were does not tell one run
    from another.
    """
    made = {each.number: each for account in ledger.accounts() for each in account.spendings}
    stated = read_json(target / PRIVACY)
    try:
        costs = [exact_number(row["cost"]) for row in stated["rounds"]]
        relation, budget = households_from_json(stated["neighbours"]), Budget.from_json(stated["budget"])
    except (*UNUSABLE, SpecError):
        raise ReleaseError(f"{target / PRIVACY} does not say what was measured, for which unit and budget") from None
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
