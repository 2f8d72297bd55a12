"""The journal of rounds: what was reserved, on disk before any noise is drawn, and what came of it, afterwards.

A round that was reserved and not recorded was cut off in between. Its noise may have been drawn and seen, so it counts
as spent and is never drawn again. Nothing private is written here: requests, costs and published results only.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from tallytree.disk import JsonLines
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

    The file belongs to one process at a time: two that went on from the same round would both draw it. Whoever copies
    the folder and goes on with both copies draws rounds twice, which no journal can know: keep one.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self.facts: Values | None = None
        self.rounds: list[Round] = []
        self._path = None if folder is None else Path(folder) / FILE
        self._file: JsonLines | None = None
        self._closed = False
        if self._path is not None:
            try:
                self._file = JsonLines(self._path)
            except BlockingIOError:
                raise ReleaseError(f"the journal {self._path} is in use by another run; wait for it to end") from None
            except OSError as error:
                raise ReleaseError(f"cannot keep a journal in {folder}: {error.strerror}") from None
            try:
                self._read(self._file.lines)
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
