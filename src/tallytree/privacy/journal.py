"""The journal of a run, and the reservation that pays for it: what a run that was killed goes on from.

Every run has a `Journal`, in memory or in a file of JSON lines. The first line holds the facts of the run, with a token
for the ledger that is on disk before anything is reserved; for household microdata also a keyed digest of the private
rows with its key (`digest_of_rows`). Then follow the receipt of the reservation, the rounds of a synthesis with their
costs and published results, the ids of directories that are about to get their names, and a line that says that the run
is finished. A release has its results in files of their own beside the journal.

`Reservation` compares a run with its journal and with the ledger, reserves its budget once, and begins its rounds.

A round that was reserved and not recorded was cut off in between. Its noise may have been drawn and seen, so it counts
as spent and is never drawn again.

The file is readable by its owner alone. It is confidential: anyone who has the digest and its key can test a guess of
*all* the rows. It is deleted when the run is finished.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tallytree.core.disk import JsonLines, is_there, whole_lines
from tallytree.core.errors import BudgetError, ReleaseError, TallytreeError
from tallytree.privacy.budget import as_decimal
from tallytree.privacy.ledger import Expense, Ledger, Receipt, Spending, holding
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.relations import relation_to_json

FILE = "journal.jsonl"
FORMAT = 3
VALUE = 22  # bytes that a 64-bit integer takes at most, with what stands between two
LINES = 512  # bytes of a round's two lines, without its request, cost and values

Values = dict[str, Any]


@dataclass
class Round:
    """One round: what was asked for, its cost in ρ, and what it gave (None: nothing yet, or it was lost)."""

    request: Values
    cost: Fraction
    result: Values | None = None
    mark: str = ""  # made by chance when it was reserved: the ledger tells by it which run began the round


class Journal:
    """An append-only file of JSON lines in a folder, or (without a folder) the same in memory.

    The file belongs to one process at a time: two that went on from the same round would both draw it. No journal can
    know that somebody copied the folder and goes on with both copies. The ledger does (`Ledger.begin_round`). Without
    a ledger nothing guards against it: keep one copy. With `resume` a journal that was not begun is refused. With
    `look` it is read and neither locked nor changed. `room` is how many bytes it may come to: they are taken on the
    disk at once. `about` are public facts that a run which goes on must share with the one that began.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        *,
        resume: bool = False,
        look: bool = False,
        room: int = 0,
        about: Values | None = None,
    ) -> None:
        self.about = about or {}
        self.facts: Values | None = None
        self.receipt: int | None = None  # the ledger's number of the reservation, once it is known to be made
        self.rounds: list[Round] = []
        self.ids: list[str] = []  # that directories were to get; the last one perhaps did
        self.finished = False
        self.path = None if folder is None else Path(folder) / FILE
        self._file: JsonLines | None = None
        self._closed = look
        if resume and not _has_lines(self.path):
            raise ReleaseError(
                f"{folder} holds no run that could be resumed: it was finished and removed, or never begun. Nothing "
                "was spent now, and nothing is begun anew."
            )
        if look:
            self._read(whole_lines(self.path.read_bytes())[0] if self.path is not None and is_there(self.path) else [])
        elif self.path is not None:
            self._open(self.path, resume, room)

    def _open(self, path: Path, resume: bool, room: int) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._file = JsonLines(path)
        except BlockingIOError:
            raise ReleaseError(
                f"another run is working in {path.parent} at this moment: its journal is in use by another run. Wait "
                "until it is done, or choose another directory. This run did nothing and spent nothing."
            ) from None
        except OSError as error:
            raise ReleaseError(f"cannot keep a journal in {path.parent}: {error.strerror}") from None
        try:
            self._read(self._file.lines)
            if resume and self.facts is None:
                raise ReleaseError(f"{path.parent} holds no run that could be resumed: nothing was reserved for it yet")
            self.keep_room(room)
        except BaseException:
            self.close()
            raise

    @property
    def on_disk(self) -> bool:
        """Return whether the journal is in a folder, so that the run can be resumed."""
        return self.path is not None

    @property
    def spent(self) -> Fraction:
        """Return what the rounds up to here cost, in ρ."""
        return sum((past.cost for past in self.rounds), Fraction(0))

    def begin(self, facts: Values) -> None:
        """Write the first line, which says what the run is for. It never changes."""
        assert self.facts is None
        self._append({"format": FORMAT, "facts": facts})
        self.facts = facts

    def keep_receipt(self, number: int) -> None:
        """Record the reservation of the ledger that pays for the run."""
        self._append({"receipt": number})
        self.receipt = number

    def forget(self) -> None:
        """Delete the beginning: for a run whose reservation the ledger refused."""
        assert not self.rounds
        self.facts = None
        if self._file is not None:
            self._file.clear()

    def keep_room(self, size: int) -> None:
        """Reserve disk space for so many bytes of lines to come, or refuse."""
        if self._file is None:
            return
        try:
            self._file.keep_room(size)
        except OSError as error:
            raise ReleaseError(
                f"the disk of {self.path} has no room for {size:,} more bytes, which the next results may take: "
                f"{error.strerror}. Nothing was drawn for them."
            ) from None

    def keep_id(self, release_id: str) -> None:
        """Record the id that a directory gets, before it has its name. The ledger gets it afterwards."""
        self._append({"release_id": release_id})
        self.ids.append(release_id)

    def finish(self) -> None:
        """Record that the run is complete. Its folder is not needed any more and can be deleted."""
        self._append({"finished": True})
        self.finished = True

    def reserve(self, request: Values, cost: Fraction, values: int = 1) -> Round:
        """Record a round as spent. Noise may be drawn once this returns (and a ledger knows), and not before.

        There is room on the disk then for a result of so many `values`.
        """
        self.keep_room(len(json.dumps(request)) + len(str(cost)) + LINES + VALUE * values)
        mark = secrets.token_hex(16)
        self._append({"reserved": len(self.rounds) + 1, "request": request, "cost": str(cost), "mark": mark})
        self.rounds.append(Round(request, cost, mark=mark))
        return self.rounds[-1]

    def record(self, result: Values) -> None:
        """Record the result of the last round. It may be used once this returns, and not before."""
        self._append({"recorded": len(self.rounds), "result": result})
        self.rounds[-1].result = result

    def first_stage(self) -> Measurements | None:
        """Return the first stage of an interrupted run; None unless a journal keeps it."""
        return None

    def keep_first_stage(self, known: Measurements) -> None:
        """Keep what was measured first, and take the disk space for the rest, whose size is known by now."""

    def close(self) -> None:
        """Close the file, so that another process can open it."""
        if self._file is not None:
            self._file.close()
        self._closed = True

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, line: Values) -> None:
        if self._closed or (self._file is not None and not self._file.usable):
            raise ReleaseError("the journal was closed, or could not be written; open it anew to go on")
        if self._file is None:
            return
        try:
            self._file.append(line)
        except OSError as error:
            raise ReleaseError(f"cannot write to the journal {self.path}: {error.strerror}") from None

    def _read(self, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, start=1):
            try:
                self._take(number, json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError):
                raise ReleaseError(
                    f"line {number} of {self.path} is damaged: which rounds were drawn is not known, so the run "
                    "cannot go on. Start anew in another folder, with a budget of its own."
                ) from None

    def _take(self, number: int, line: Values) -> None:
        if number == 1:
            if line["format"] != FORMAT:
                raise ReleaseError(
                    f"{self.path} has format {line['format']}; this version reads {FORMAT}. Resume with the version "
                    "that began the run, or start anew in another folder, with a budget of its own."
                )
            self.facts = dict(line["facts"])
        elif "receipt" in line:
            if self.receipt is not None or self.rounds or not isinstance(line["receipt"], int):
                raise ValueError
            self.receipt = line["receipt"]
        elif "release_id" in line:
            self.ids.append(str(line["release_id"]))
        elif "finished" in line:
            self.finished = True
        elif "reserved" in line:
            if line["reserved"] != len(self.rounds) + 1:
                raise ValueError
            self.rounds.append(Round(dict(line["request"]), Fraction(line["cost"]), mark=str(line["mark"])))
        else:
            last = self.rounds[-1]
            if line["recorded"] != len(self.rounds) or last.result is not None:
                raise ValueError
            last.result = dict(line["result"])


def _has_lines(path: Path | None) -> bool:
    return path is not None and is_there(path) and path.stat().st_size > 0


class Reservation:
    """The budget of a run, which the ledger reserves once, and the rounds that it pays for. It holds no private data.

    A round of a synthesis goes through these steps, each on disk before the next: (1) the journal puts it down with a
    random mark, (2) the ledger begins it (`Ledger.begin_round`): it is the next number, and all rounds fit into the
    reservation, (3) noise is drawn, (4) the journal records the result.

    *Over all copies of a journal the rounds that are drawn cost no more than the reservation.* Noise of round n is
    drawn after a call of `begin_round` for n returned, in the process that called it, once per call. The ledger lets
    each n begin once, for any caller, and the costs that it let begin add up to at most the reservation. This does not
    depend on what any journal holds, so neither copies, restored backups nor kills between the steps can change it.

    *A run that was killed can go on.* An honest journal, which nobody else resumed, has j rounds and the ledger l:

    - killed before (1), or after (2) or later: j = l, and the marks are equal. A round without a result is lost.
    - killed between (1) and (2): j = l + 1, and the last round has no result. It was not drawn. It is begun now, and
      lost: paid for, as its cost is in the journal already.

    Everything else is a journal that another run went on from, or a ledger that is not the one of this run. It is
    refused before the digest of the private rows is computed: j < l (a copy of it drew
    further), a mark that is not the ledger's (a copy drew that round), j > l otherwise (an older ledger was put back).

    A release has no rounds in the journal: the ledger commits its reservation to the mark of its measurements.
    """

    def __init__(
        self,
        journal: Journal,
        ledger: Ledger | None,
        expense: Expense,
        facts: Values,
        digest: Callable[[bytes], str] | None = None,
    ) -> None:
        self.journal, self.budget, self._ledger, self._name = journal, expense.budget, ledger, expense.name or ""
        self._replayed = 0
        self._process, self._lock = os.getpid(), threading.RLock()
        past = journal.facts
        if past is not None and ledger is not None and journal.receipt is not None and digest is not None:
            self._check_rounds(past["token"])
        about = {
            "name": expense.name,
            "neighbours": relation_to_json(expense.neighbours),
            "budget": expense.budget.to_json(),
            "ledger": None if ledger is None else str(ledger.path),
            **journal.about,
            **facts,
        }
        if past is not None:
            self._check_same(past, about, digest)
        else:
            if ledger is not None:
                ledger.check(expense)
            key = secrets.token_hex(32)
            rows = {} if digest is None else {"key": key, "rows": digest(bytes.fromhex(key))}
            journal.begin({**about, "token": secrets.token_hex(16), **rows})
        self.receipt = None if ledger is None else self._reserve(ledger, expense, fresh=past is None)

    @property
    def rounds(self) -> tuple[Round, ...]:
        """Return the rounds up to here: requests, costs and results."""
        return tuple(self.journal.rounds[: self._replayed])

    @property
    def left(self) -> Fraction:
        """Return the budget that remains after the rounds up to here, lost ones included, in its currency."""
        return self.budget.amount - sum((past.cost for past in self.rounds), Fraction(0))

    @property
    def resuming(self) -> bool:
        """Return whether the journal has rounds that were not replayed yet."""
        return self._replayed < len(self.journal.rounds)

    def lock(self) -> threading.RLock:
        """Return the lock of this run. A forked process has a copy of the remaining budget, so it is refused."""
        if os.getpid() != self._process:
            raise BudgetError(
                "private tables belong to the process that opened them, and this is another one (a fork of it): the "
                "budget would be spent in both. Ask in the first process; nothing was spent."
            )
        return self._lock

    def replay_round(self, request: Values, cost: Fraction) -> Round:
        """Return the journal's next round, if it is the one that is asked for now."""
        past = self.journal.rounds[self._replayed]
        if past.request != request or past.cost != cost:
            raise ReleaseError(
                f"the journal's round {self._replayed + 1} was another one ({past.request['kind']}, "
                f"ρ = {as_decimal(past.cost)}) than is asked for now ({request['kind']}, "
                f"ρ = {as_decimal(cost)}): resume with the same program and options, or start anew in another "
                "folder with its own budget"
            )
        self._replayed += 1
        return past

    def begin_round(self, request: Values, cost: Fraction, values: int) -> None:
        """Record a new round in the journal and in the ledger; its noise may be drawn once this returns."""
        self.journal.reserve(request, cost, values)
        self._replayed += 1
        self._begin_round(self._replayed)

    def _check_same(self, past: Values, about: Values, digest: Callable[[bytes], str] | None) -> None:
        """Refuse to go on with another run than the journal's."""
        if (past["ledger"] is None) != (about["ledger"] is None):
            which = "without a ledger" if past["ledger"] is None else "with a ledger"
            raise ReleaseError(f"the journal belongs to a run {which}; resume it in the same way")
        if past["ledger"] != about["ledger"] and self._held(past["token"]) is None:
            raise ReleaseError(
                f"the run was begun with the account {past['name']!r} in {past['ledger']}, and {about['ledger']} does "
                "not hold its reservation. Nothing was spent now. Resume with the ledger of the first run."
            )
        if other := [name for name in about if past.get(name) != about[name] and name != "ledger"]:
            raise ReleaseError(
                f"the journal belongs to another run: it was begun with another {', '.join(other)}. Nothing was spent "
                "now. Resume with the same data and options, or use another folder, which needs a budget of its own."
            )
        if digest is not None and past["rows"] != digest(bytes.fromhex(past["key"])):
            raise ReleaseError(
                "the private rows are not those that this run began with, though they have the same name. Resume with "
                "the same rows, or start anew in another folder, which needs a budget of its own."
            )

    def _reserve(self, ledger: Ledger, expense: Expense, *, fresh: bool) -> Receipt:
        # The token is on disk: killed from here on, the run finds its reservation again instead of making another.
        assert self.journal.facts is not None
        token = self.journal.facts["token"]
        try:
            receipt = ledger.reserve(expense, token)
        except TallytreeError:
            if fresh and not self._may_hold(token):
                self.journal.forget()
            raise
        if self.journal.receipt is None:
            self.journal.keep_receipt(receipt.number)
        if "rows" in self.journal.facts:  # a run of rounds
            begun = self._check_rounds(token)
            for number in range(begun + 1, len(self.journal.rounds) + 1):
                self._begin_round(number)  # cut off before the ledger knew: nothing was drawn for it, nothing will be
        return receipt

    def _check_rounds(self, token: str) -> int:
        """Return how many rounds the ledger began; refuse to resume unless it has ours, and no other run went on from
        them.
        """
        held, ours = self._held(token), self.journal.rounds
        if held is None or held.number != self.journal.receipt:
            raise ReleaseError(
                "the ledger does not hold the reservation that this journal was begun with: resume with the ledger "
                "of the first run"
            )
        begun = [(each.mark, each.cost) for each in held.rounds]
        known = [(each.mark, each.cost) for each in ours]
        if len(known) < len(begun) or known[: len(begun)] != begun:
            raise ReleaseError(
                f"this journal is a copy, or was restored: it has {len(known)} rounds, and of the {len(begun)} that "
                "the ledger knows some were drawn by another run. Nothing was drawn now. Go on with that run's folder."
            )
        ahead = ours[len(begun) :]
        if len(ahead) > 1 or any(each.result is not None for each in ahead):
            raise ReleaseError(
                f"the ledger knows {len(begun)} of this journal's {len(known)} rounds: an older copy of the ledger was "
                "put in its place. Nothing was drawn now. Restore the newest copy."
            )
        return len(begun)

    def _begin_round(self, number: int) -> None:
        """Begin a round that the journal put down; its noise may be drawn once this returns."""
        if self._ledger is not None:
            assert self.journal.receipt is not None
            past = self.journal.rounds[number - 1]
            receipt = Receipt(str(self._ledger.path), self.journal.receipt)
            self._ledger.begin_round(receipt, number=number, cost=past.cost, mark=past.mark)

    def _held(self, token: str) -> Spending | None:
        assert self._ledger is not None
        return holding(self._ledger.account(self._name), token)

    def _may_hold(self, token: str) -> bool:
        """Return whether the ledger holds the reservation with this token; True if it cannot be read."""
        try:
            return self._held(token) is not None
        except TallytreeError:
            return True
