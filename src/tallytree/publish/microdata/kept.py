"""What a run of synthesis leaves beside its directory until that is written whole, and how to go on from there.

The folder holds the journal of rounds, and the newest model. A run that was cut off left it in one of these states:

- `nothing`: no line of the journal was written, so nothing was reserved and nothing drawn. A run may begin in it.
- `begun`: its budget was about to be reserved. Going on finds that reservation again, or makes it: once.
- `reserved`: its budget is spent, and rounds that were drawn are kept. Going on spends nothing more.
- `saved`: a directory was written and named, and perhaps the ledger does not know its id yet.
- `other`: something else than a synthesis is in it, and stays.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from tallytree.core.disk import sync
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.numbers import exact_number
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.households.journal import FILE, RoundJournal, has_begun
from tallytree.privacy.households.neighbours import HouseholdNeighbours
from tallytree.privacy.ledger import Ledger
from tallytree.publish.folder import MANIFEST, NEW, PRIVACY, SPEC, UNUSABLE, digest
from tallytree.publish.reading import read_json
from tallytree.publish.statement import LEDGER
from tallytree.synthesis.methods import checkpoints

CHECKPOINT = "checkpoint"
OWN = (SPEC, f"{SPEC}{NEW}", FILE)  # the journal last: it says that there is a run
MODELS = (checkpoints.FILE, checkpoints.UNFINISHED)

State = Literal["nothing", "begun", "reserved", "saved", "other"]


@dataclass(frozen=True)
class KeptRun:
    """What a folder holds of a run; all of it is for the data holder."""

    folder: Path
    state: State
    name: str | None = None  # of the data set
    budget: Budget | None = None
    ledgered: bool = False
    receipt: int | None = None
    rounds: int = 0
    spent: Fraction = Fraction(0)  # on rounds that were begun
    saved: tuple[str, ...] = ()

    @property
    def is_spent(self) -> bool:
        """May anything have been spent?"""
        return self.state in ("reserved", "saved") or (self.state == "begun" and self.ledgered)

    def in_words(self) -> str:
        """What was spent, and what is kept of it."""
        if self.state == "nothing":
            return f"{self.folder} holds nothing of a run: none was begun in it, or it was finished."
        if self.state == "other" or self.budget is None:
            return f"{self.folder} holds something else than an interrupted synthesis."
        of = f" of {self.name!r}" if self.name else ""
        if self.state == "begun" and not self.ledgered:
            return f"Nothing was spent: {self.folder} holds a synthesis that was cut off before its first round."
        if self.state == "begun":
            return (
                f"ρ = {as_decimal(self.budget.amount)}{of} may be reserved and spent: {self.folder} holds a synthesis "
                "that was cut off while the ledger was written. Going on finds that reservation or makes it, and "
                "charges it once."
            )
        charged = (
            f"ρ = {as_decimal(self.budget.amount)}{of} is reserved in the ledger (receipt {self.receipt}) and spent"
            if self.ledgered
            else f"ρ = {as_decimal(self.spent)}{of} is spent"
        )
        drawn = "1 round" if self.rounds == 1 else f"{self.rounds} rounds"
        return f"{charged}; the {drawn} begun so far are kept in {self.folder}, and going on spends no more than that."


def kept_run(folder: Path) -> KeptRun:
    """The state that a folder is in; a journal that is in use, or damaged, is a ReleaseError."""
    if not has_begun(folder):
        return KeptRun(folder, "other" if _others(folder) else "nothing")
    journal = RoundJournal(folder)
    journal.close()
    if journal.facts is None:
        return KeptRun(folder, "other" if _others(folder) else "nothing")
    state: State = "saved" if journal.saved else "reserved" if journal.receipt or journal.rounds else "begun"
    try:
        name, ledgered = journal.facts["name"], journal.facts["ledger"]
        budget = Budget.from_json(journal.facts["budget"])
    except UNUSABLE:
        raise ReleaseError(f"{folder / FILE} is damaged: what run it belongs to cannot be read") from None
    return KeptRun(
        folder,
        state,
        name=name,
        budget=budget,
        ledgered=ledgered,
        receipt=journal.receipt,
        rounds=len(journal.rounds),
        spent=sum((past.cost for past in journal.rounds), Fraction(0)),
        saved=tuple(journal.saved),
    )


def saved_as(run: KeptRun, target: Path) -> str | None:
    """The id of the directory at `target`, if it is one that this run wrote."""
    manifest = target / MANIFEST
    if not run.saved or not manifest.is_file():
        return None
    found = digest(manifest)
    return found if found in run.saved else None


def receipt_of(target: Path, ledger: Ledger, number: int | None = None) -> int:
    """The reservation of a ledger that paid for a directory of synthetic households.

    It is the one that is recorded already, or that the run's folder beside the directory names, or the only one that
    fits, or the given one. Its rounds have to cost what those of the directory do: what they were does not tell one run
    from another.
    """
    made = {each.number: each for account in ledger.accounts() for each in account.spendings}
    stated = read_json(target / PRIVACY)
    try:
        costs = [exact_number(row["cost"]) for row in stated["rounds"]]
        relation, budget = HouseholdNeighbours.from_json(stated["neighbours"]), Budget.from_json(stated["budget"])
    except (*UNUSABLE, SpecError):
        raise ReleaseError(f"{target / PRIVACY} does not say what was measured, for which unit and budget") from None
    if number is None:
        identity = digest(target / MANIFEST)
        number = next((each.number for each in made.values() if each.release_id == identity), None)
    if number is None:
        past = kept_run(target.absolute().with_name(f"{target.name}.partial"))
        number = past.receipt if saved_as(past, target) is not None else None
    if number is None and stated.get("ledger") != LEDGER:
        raise ReleaseError(f"{target} was made without a ledger: the ledger {ledger.path} did not pay for it")
    if number is None:
        number = ledger.only_unrecorded(str(target), budget, relation, costs)
    if number in made and made[number].rounds and [begun.cost for begun in made[number].rounds] != costs:
        raise ReleaseError(f"the rounds of reservation {number} are not those of {target}: another one paid for it")
    return number


def note_saved(folder: Path | None, release_id: str) -> None:
    """Put an id down in the journal before its directory has its name; without a journal there is nothing to do."""
    if has_begun(folder):
        journal = RoundJournal(folder)
        try:
            journal.keep_saved(release_id)
        finally:
            journal.close()


def remove_kept(folder: Path) -> None:
    """Remove what a run kept, the journal last; anything else that lies there stays, and its folder with it."""
    with contextlib.suppress(OSError):  # what cannot be removed now is by the next run, or with --resume
        if folder.is_symlink() or not folder.is_dir():
            return
        for path in [*(folder / CHECKPOINT / name for name in MODELS), *(folder / name for name in OWN)]:
            path.unlink(missing_ok=True)
        for path in (folder / CHECKPOINT, folder):
            if path.exists():
                path.rmdir()
        sync(folder.parent)


def _others(folder: Path) -> bool:
    """Is there anything that a run does not write?"""
    if not os.path.lexists(folder):
        return False
    if folder.is_symlink() or not folder.is_dir():
        return True
    inside = folder / CHECKPOINT
    return any(path.name not in (*OWN, CHECKPOINT) for path in folder.iterdir()) or (
        inside.is_dir() and any(path.name not in MODELS for path in inside.iterdir())
    )
