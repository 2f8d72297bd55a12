"""The journal of a run: what it is about and what was reserved, on disk before any noise is drawn, and what came of it.

Every run keeps one, in memory or in a file of JSON lines. The first line holds the facts of the run, with a token for
the ledger that is on disk before anything is reserved; for household microdata also a keyed digest of the private rows
with its key (`digest_of_rows`). Then follow the receipt of the reservation, the rounds of a synthesis with their costs
and published results, the ids of directories that are about to get their names, and a line that says that the run is
finished. A release has its results in files of their own beside the journal.

A round that was reserved and not recorded was cut off in between. Its noise may have been drawn and seen, so it counts
as spent and is never drawn again.

The file is readable by its owner alone. It is confidential: whoever has the digest and its key can test a guess of
*all* the rows. It is deleted when the run is finished.
"""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tallytree.core.disk import JsonLines, is_there, whole_lines
from tallytree.core.errors import ReleaseError

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
    `look` it is read and neither locked nor changed.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, *, resume: bool = False, look: bool = False) -> None:
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
            self._open(self.path, resume=resume)

    def _open(self, path: Path, *, resume: bool) -> None:
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
        except BaseException:
            self.close()
            raise

    @property
    def on_disk(self) -> bool:
        """Is it kept in a folder, so that the run can be resumed?"""
        return self.path is not None

    @property
    def spent(self) -> Fraction:
        """What the rounds up to here cost, in ρ."""
        return sum((past.cost for past in self.rounds), Fraction(0))

    def begin(self, facts: Values) -> None:
        """Say what the run is about; the first line, once and for all."""
        assert self.facts is None
        self._append({"format": FORMAT, "facts": facts})
        self.facts = facts

    def keep_receipt(self, number: int) -> None:
        """Put down which reservation of the ledger pays for the run."""
        self._append({"receipt": number})
        self.receipt = number

    def forget(self) -> None:
        """Have not begun: for a run whose reservation the ledger refused."""
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
        """Put down which id a directory gets, before it has its name. The ledger is told afterwards."""
        self._append({"release_id": release_id})
        self.ids.append(release_id)

    def finish(self) -> None:
        """Put down that the run is complete: from here on its folder is of no more use, and can be deleted."""
        self._append({"finished": True})
        self.finished = True

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
