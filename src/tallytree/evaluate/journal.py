"""The journal of an experiment: a JSON line per finished cell, on disk at once, so that a kill loses little."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tallytree.errors import SpecError

FILE = "journal.jsonl"


class Journal:
    """Cells that are finished, in a file that starts with what the experiment is.

    A last line without its end was being written when the program was killed: it is dropped. A journal of another
    experiment is refused, since its cells say nothing about this one.
    """

    def __init__(self, folder: Path, experiment: dict[str, Any]) -> None:
        self.path = folder / FILE
        self.cells: list[dict[str, Any]] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        except OSError as error:
            raise SpecError(f"cannot write into {folder}: {error.strerror}") from None
        try:
            self._read(experiment)
        except BaseException:
            self._file.close()
            raise

    def _read(self, experiment: dict[str, Any]) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        self._file.truncate(whole)
        lines = list(self._parsed(content[:whole]))
        if not lines:
            self.append(experiment)
            return
        found, self.cells = lines[0], lines[1:]
        names = [*experiment, *(name for name in found if name not in experiment)]
        if other := [name for name in names if found.get(name) != experiment.get(name)]:
            there = ", ".join(f"{name} {found.get(name)!r} there, {experiment.get(name)!r} now" for name in other)
            raise SpecError(
                f"{self.path} belongs to another experiment ({there}). Use another folder, or delete that file to "
                "start anew."
            )

    def _parsed(self, content: bytes) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(content.splitlines(), start=1):
            try:
                value = json.loads(line)
            except ValueError:
                value = None
            if not isinstance(value, dict):
                raise SpecError(f"line {number} of {self.path} is damaged; delete that line or the file")
            yield value

    def append(self, cell: dict[str, Any]) -> None:
        """Write one line and see it to the disk."""
        self._file.write(json.dumps(cell, ensure_ascii=False, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
