"""The journal of rounds: what was reserved, on disk before any noise is drawn, and what came of it, afterwards.

A round that was reserved and not recorded was cut off in between. Its noise may have been drawn and seen, so it counts
as spent and is never drawn again.

The first line holds the facts of the run, with a token for the ledger that is on disk before anything is reserved, and
a keyed digest of the private rows with its key (`same_rows`). All else is requests, costs and published results. The
file is its owner's alone.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tallytree.core.disk import JsonLines, is_there
from tallytree.core.errors import ReleaseError

FILE = "rounds.jsonl"
FORMAT = 2  # 1, of version 0.1.0, had no token and no marks
VALUE = 22  # bytes that a whole number of 64 bits takes at most, with what stands between two
LINES = 512  # bytes of a round's two lines, without its request, cost and values

Values = dict[str, Any]


@dataclass
class Round:
    """One round: what was asked for, its cost in ρ, and what it gave (None: nothing yet, or it was lost)."""

    request: Values
    cost: Fraction
    result: Values | None = None
    mark: str = ""  # made by chance when it was reserved: the ledger tells by it which run began the round


class RoundJournal:
    """Rounds in an append-only file of JSON lines, or (without a folder) in memory alone.

    The file belongs to one process at a time: two that went on from the same round would both draw it. That somebody
    copied the folder and goes on with both copies no journal can know. The ledger does (`Ledger.begin_round`); without
    a ledger nothing guards against it: keep one copy. With `resume` a journal that was not begun is refused.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, *, resume: bool = False) -> None:
        self.facts: Values | None = None
        self.receipt: int | None = None  # the ledger's number of the reservation, once it is known to be made
        self.rounds: list[Round] = []
        self.saved: list[str] = []  # ids that directories were to get, the last one perhaps did
        if resume and not has_begun(folder):
            raise ReleaseError(
                f"{folder} holds no run that could be resumed: it was finished and removed, or never begun. Nothing "
                "was spent now, and nothing is begun anew."
            )
        self._path = None if folder is None else Path(folder) / FILE
        self._file: JsonLines | None = None
        self._closed = False
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
                self._file = JsonLines(self._path)
            except BlockingIOError:
                raise ReleaseError(f"the journal {self._path} is in use by another run; wait for it to end") from None
            except OSError as error:
                raise ReleaseError(f"cannot keep a journal in {folder}: {error.strerror}") from None
            try:
                self._read(self._file.lines)
                if resume and self.facts is None:
                    raise ReleaseError(f"{folder} holds no run that could be resumed: nothing was reserved for it yet")
            except BaseException:
                self.close()
                raise

    @property
    def on_disk(self) -> bool:
        """Is it kept in a folder, so that the run can be resumed?"""
        return self._path is not None

    def begin(self, facts: Values) -> None:
        """Say what the rounds are about; the first line, once and for all."""
        assert self.facts is None
        self._append({"format": FORMAT, "facts": facts})
        self.facts = facts

    def keep_receipt(self, number: int) -> None:
        """Put down which reservation of the ledger pays for the rounds."""
        self._append({"receipt": number})
        self.receipt = number

    def forget(self) -> None:
        """Have not begun: for a run whose reservation the ledger refused."""
        assert not self.rounds
        self.facts = None
        if self._file is not None:
            self._file.clear()

    def keep_room(self, size: int) -> None:
        """Make sure of room on the disk for so many bytes of lines to come, or refuse."""
        if self._file is None:
            return
        try:
            self._file.keep_room(size)
        except OSError as error:
            raise ReleaseError(
                f"the disk of {self._path} has no room for {size:,} more bytes, which the next results may take: "
                f"{error.strerror}. Nothing was drawn for them."
            ) from None

    def keep_saved(self, release_id: str) -> None:
        """Put down which id a directory gets, before it has its name; the ledger is told afterwards."""
        self._append({"saved": release_id})
        self.saved.append(release_id)

    def reserve(self, request: Values, cost: Fraction, values: int = 1) -> Round:
        """Put a round down as spent. Noise may be drawn once this returns (and a ledger knows), and not before.

        There is room on the disk then for a result of so many `values`.
        """
        self.keep_room(len(json.dumps(request)) + len(str(cost)) + LINES + VALUE * values)
        mark = secrets.token_hex(16)
        self._append({"reserved": len(self.rounds) + 1, "request": request, "cost": str(cost), "mark": mark})
        self.rounds.append(Round(request, cost, mark=mark))
        return self.rounds[-1]

    def record(self, result: Values) -> None:
        """Put down what the last round gave. It may be used once this returns, and not before."""
        self._append({"recorded": len(self.rounds), "result": result})
        self.rounds[-1].result = result

    def close(self) -> None:
        """Let another process have the file."""
        if self._file is not None:
            self._file.close()
        self._closed = True

    def _append(self, line: Values) -> None:
        if self._closed or (self._file is not None and not self._file.usable):
            raise ReleaseError("the journal was closed, or could not be written; open it anew to go on")
        if self._file is None:
            return
        try:
            self._file.append(line)
        except OSError as error:
            raise ReleaseError(f"cannot write to the journal {self._path}: {error.strerror}") from None

    def _read(self, lines: list[bytes]) -> None:
        for number, line in enumerate(lines, start=1):
            try:
                self._take(number, json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError):
                raise ReleaseError(
                    f"line {number} of {self._path} is damaged: which rounds were drawn is not known, so the run "
                    "cannot go on. Start anew in another folder, with a budget of its own."
                ) from None

    def _take(self, number: int, line: Values) -> None:
        if number == 1:
            if line["format"] != FORMAT:
                raise ReleaseError(
                    f"{self._path} has format {line['format']}; this version reads {FORMAT}. Resume with the version "
                    "that began the run, or start anew in another folder, with a budget of its own."
                )
            self.facts = dict(line["facts"])
        elif "receipt" in line:
            if self.receipt is not None or self.rounds or not isinstance(line["receipt"], int):
                raise ValueError
            self.receipt = line["receipt"]
        elif "saved" in line:
            self.saved.append(str(line["saved"]))
        elif "reserved" in line:
            if line["reserved"] != len(self.rounds) + 1:
                raise ValueError
            self.rounds.append(Round(dict(line["request"]), Fraction(line["cost"]), mark=str(line["mark"])))
        else:
            last = self.rounds[-1]
            if line["recorded"] != len(self.rounds) or last.result is not None:
                raise ValueError
            last.result = dict(line["result"])


def has_begun(folder: str | os.PathLike[str] | None) -> bool:
    """Does a folder hold the journal of a run, whose budget is reserved then?"""
    journal = None if folder is None else Path(folder) / FILE
    return journal is not None and is_there(journal) and journal.stat().st_size > 0
