"""The models of a run, one after each round, and a file of the newest, so that a killed run need not fit them again.

The journal of the private tables has every round's result, so a resumed run gives the same models either way; the file
only saves time, and a run on a full disk goes on without. It is used for as long as the results that led to its model
are those that the journal repeats, and forgotten at the first that is not.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from tallytree.synthesis.models.model import Arrays, Model

FILE, UNFINISHED = "model.npz", "unfinished.npz"
FORMAT = 1
ABOUT = "about the checkpoint"

M = TypeVar("M", bound=Model)
Note = Any  # plain values that a round decides and later rounds need


class Models(Generic[M]):
    """Starts from `first()` and goes on with `advance`. `facts` are plain values that name the run."""

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        facts: Any,
        first: Callable[[], M],
        from_arrays: Callable[[Arrays], M],
    ) -> None:
        self._path = None if folder is None else Path(folder) / FILE
        self._first = first
        self._model: M | None = None
        self._chain = [_digest("", [FORMAT, facts])]
        self._notes: list[Note] = []
        self._skipped: list[Callable[[M], tuple[M, Note]]] = []
        self._saved = self._load(from_arrays)

    def advance(self, seen: Any, fit: Callable[[M], tuple[M, Note]]) -> Note:
        """The next round: `fit` gives its model from the last one's, and a note.

        `seen` are plain values on which the fit depends besides: the round's measured results. `fit` is called now,
        later or never, as the file allows.
        """
        self._chain.append(_digest(self._chain[-1], seen))
        at = len(self._chain) - 1
        if self._saved is not None and self._chain[at] == self._saved.chain[at]:
            self._notes.append(self._saved.notes[at - 1])
            self._skipped.append(fit)
            if at == len(self._saved.chain) - 1:
                self._model, self._skipped, self._saved = self._saved.model, [], None
            return self._notes[-1]
        self._saved = None
        self._model, note = fit(self.model)
        self._notes.append(note)
        self._save()
        return note

    @property
    def model(self) -> M:
        """The newest round's model; rounds that were skipped in hope of the file's are fitted now."""
        model = self._first() if self._model is None else self._model
        for fit in self._skipped:
            model, _ = fit(model)
        self._model, self._skipped, self._saved = model, [], None
        return model

    def _save(self) -> None:
        if self._path is None or self._model is None:
            return
        about = json.dumps({"chain": self._chain, "notes": self._notes})
        unfinished = self._path.with_name(UNFINISHED)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(unfinished, allow_pickle=False, **{ABOUT: np.array(about)}, **self._model.to_arrays())
            os.replace(unfinished, self._path)
        except OSError:
            with contextlib.suppress(OSError):
                unfinished.unlink()

    def _load(self, from_arrays: Callable[[Arrays], M]) -> _Saved[M] | None:
        """What the file has, if there is one that can be read and is about this run."""
        if self._path is None or not self._path.exists():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as arrays:
                about = json.loads(str(arrays[ABOUT]))
                chain, notes = list(about["chain"]), list(about["notes"])
                if chain[0] != self._chain[0] or len(chain) != len(notes) + 1 or not notes:
                    return None
                return _Saved(chain, notes, from_arrays({name: arrays[name] for name in arrays if name != ABOUT}))
        except (OSError, ValueError, KeyError, TypeError, IndexError, zipfile.BadZipFile, EOFError):
            return None


class _Saved(NamedTuple, Generic[M]):
    chain: list[str]
    notes: list[Note]
    model: M


def _digest(before: str, seen: Any) -> str:
    return hashlib.sha256((before + json.dumps(seen, sort_keys=True)).encode()).hexdigest()
