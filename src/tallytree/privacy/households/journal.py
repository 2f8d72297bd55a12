"""The journal of rounds: what was reserved, on disk before any noise is drawn, and what came of it, afterwards.

A round that was reserved and not recorded was cut off in between. Its noise may have been drawn and seen, so it counts
as spent and is never drawn again. Nothing private is written here: requests, costs and published results only.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

from tallytree.errors import ReleaseError

FILE = "rounds.jsonl"
FORMAT = 1

Values = dict[str, Any]


@dataclass
class Round:
    """One round: what was asked for, its cost in ρ, and what it gave (None: nothing yet, or it was lost)."""

    request: Values
    cost: Fraction
    result: Values | None = None


class RoundJournal:
    """Rounds in an append-only file of JSON lines, or (without a folder) in memory alone.

    The file belongs to one process at a time. A last line without its end was being written when the program was
    killed, so before anything that depended on it: it is dropped. Whoever copies the folder and goes on with both
    copies draws rounds twice, which no journal can know: keep one.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.facts: Values | None = None
        self.rounds: list[Round] = []
        self._path = None if folder is None else Path(folder) / FILE
        self._file: BinaryIO | None = None
        self._usable = True
        if self._path is not None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a+b", buffering=0)
                _to_disk(self._path.parent)
            except OSError as error:
                raise ReleaseError(f"cannot keep a journal in {folder}: {error.strerror}") from None
            try:
                _lock(self._file, self._path)
                self._read(self._file)
            except BaseException:
                self.close()
                raise

    def begin(self, facts: Values) -> None:
        """Say what the rounds are about; the first line, once and for all."""
        assert self.facts is None
        self._append({"format": FORMAT, "facts": facts})
        self.facts = facts

    def reserve(self, request: Values, cost: Fraction) -> Round:
        """Put a round down as spent. Noise may be drawn once this returns, and not before."""
        self._append({"reserved": len(self.rounds) + 1, "request": request, "cost": str(cost)})
        self.rounds.append(Round(request, cost))
        return self.rounds[-1]

    def record(self, result: Values) -> None:
        """Put down what the last round gave. It may be used once this returns, and not before."""
        self._append({"recorded": len(self.rounds), "result": result})
        self.rounds[-1].result = result

    def close(self) -> None:
        """Let another process have the file."""
        if self._file is not None:
            self._file.close()
        self._usable = False

    def _append(self, line: Values) -> None:
        if not self._usable:
            raise ReleaseError("the journal was closed, or could not be written; open it anew to go on")
        if self._file is None:
            return
        content = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        self._usable = False  # until the whole line is on disk: nothing may follow a torn one
        try:
            if self._file.write(content) != len(content):
                raise OSError(0, "the line was cut off")
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ReleaseError(f"cannot write to the journal {self._path}: {error.strerror}") from None
        self._usable = True

    def _read(self, file: BinaryIO) -> None:
        file.seek(0)
        content = file.readall() if hasattr(file, "readall") else file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            file.truncate(whole)
            os.fsync(file.fileno())
        for number, line in enumerate(content[:whole].splitlines(), start=1):
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
                raise ReleaseError(f"{self._path} has format {line['format']}; this version reads {FORMAT}")
            self.facts = dict(line["facts"])
        elif "reserved" in line:
            if line["reserved"] != len(self.rounds) + 1:
                raise ValueError
            self.rounds.append(Round(dict(line["request"]), Fraction(line["cost"])))
        else:
            last = self.rounds[-1]
            if line["recorded"] != len(self.rounds) or last.result is not None:
                raise ValueError
            last.result = dict(line["result"])


def has_begun(folder: str | os.PathLike[str] | None) -> bool:
    """Does a folder hold the journal of a run, whose budget is reserved then?"""
    journal = None if folder is None else Path(folder) / FILE
    return journal is not None and journal.exists() and journal.stat().st_size > 0


def _to_disk(folder: Path) -> None:
    """See a new file's name to the disk, where the system can."""
    if sys.platform != "win32":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _lock(file: BinaryIO, path: Path) -> None:
    """Take the file for this process, or refuse: two that went on from the same round would both draw it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise ReleaseError(f"the journal {path} is in use by another run; wait for it to end") from None
