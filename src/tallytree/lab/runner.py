"""NOT PRIVATE: `compare` runs mechanisms × budgets × runs on a truth: in parallel, by seed, and again after a kill."""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

from tallytree.core.disk import JsonLines
from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, Stage, silent
from tallytree.lab.cell import Cell, CellWorker, save_truth
from tallytree.lab.results import WARNING, Results
from tallytree.lab.truth import Truth
from tallytree.lab.workers import Lost, run_all
from tallytree.mechanisms import MECHANISMS, Mechanism, mechanism_named
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import PrivacyUnit, one_entity
from tallytree.version import VERSION

FORMAT = 1
JOURNAL = "journal.jsonl"


def compare(
    truth: Truth,
    mechanisms: Sequence[str | Mechanism] | None = None,
    budgets: Sequence[Budget] = (Budget(epsilon=1),),
    *,
    runs: int = 5,
    unit: PrivacyUnit | None = None,
    seed: int = 0,
    jobs: int | None = None,
    limit: float | None = None,
    out: str | PathLike[str] | None = None,
    progress: Progress = silent,
) -> Results:
    """NOT PRIVATE: run each mechanism with each budget `runs` times on `truth` and score what comes out.

    `mechanisms` are names, or `Mechanism`s that a worker process can import; all registered ones if not
    given. One that refuses, fails, or takes longer than `limit` seconds gives a row that says so. The same seed gives
    the same estimates, whatever the number of processes (`jobs`, by default one per processor; for runtimes, use 1).
    With `out`, finished cells are kept in a journal there, and a second call runs only what is missing, also after
    mechanisms, budgets or runs were added.
    """
    unit = one_entity() if unit is None else unit
    chosen = _chosen(mechanisms)
    budgets = list(dict.fromkeys(budgets))
    _check(budgets, runs, seed, jobs, limit)
    cells = [Cell(name, budget, run) for run in range(runs) for budget in budgets for name in chosen]
    journal, found = (None, []) if out is None else _opened(Path(out), definition(truth, unit, seed))
    try:
        kept = {_key(record): record for record in found if not _worth_another_try(record, limit)}
        missing = [cell for cell in cells if cell.key not in kept]
        clock = _Clock(len(cells), len(missing), jobs or os.cpu_count() or 1, progress)
        for cell, record in _run(truth, unit, seed, chosen, missing, clock.jobs, limit):
            kept[cell.key] = record
            if journal is not None:
                journal.append(record)
            clock.tick()
    finally:
        if journal is not None:
            journal.close()
    return Results.of(truth.name, truth.max_size, unit.kind, [kept[cell.key] for cell in cells])


def definition(truth: Truth, unit: PrivacyUnit, seed: int) -> dict[str, Any]:
    """What must be the same for the cells of a journal to be of use: all but the mechanisms, budgets and runs."""
    digest = hashlib.sha256(repr(truth.hierarchy.to_json()).encode())
    digest.update(repr((truth.counts.shape, truth.public_totals, truth.quantity_bound)).encode())
    digest.update(truth.counts.astype("<i8").tobytes())
    return {
        "privacy": WARNING,
        "format": FORMAT,
        "tallytree": VERSION,
        "dataset": truth.name,
        "counts": digest.hexdigest()[:16],
        "unit": unit.kind,
        "seed": seed,
    }


def _opened(folder: Path, experiment: dict[str, Any]) -> tuple[JsonLines, list[dict[str, Any]]]:
    """The journal in a folder, a line per finished cell after one that says what the experiment is; and those cells.

    A journal of another experiment is refused, since its cells say nothing about this one.
    """
    path = folder / JOURNAL
    try:
        journal = JsonLines(path)
    except BlockingIOError:
        raise SpecError(f"{path} is in use by another run; wait for it to end, or use another folder") from None
    except OSError as error:
        raise SpecError(f"cannot write into {folder}: {error.strerror}") from None
    try:
        if not journal.lines:
            journal.append(experiment)
            return journal, []
        begun, *cells = [_parsed(line, number, path) for number, line in enumerate(journal.lines, start=1)]
        names = [*experiment, *(name for name in begun if name not in experiment)]
        if other := [name for name in names if begun.get(name) != experiment.get(name)]:
            there = ", ".join(f"{name} {begun.get(name)!r} there, {experiment.get(name)!r} now" for name in other)
            raise SpecError(
                f"{path} belongs to another experiment ({there}). Use another folder, or delete that file to "
                "start anew."
            )
    except BaseException:
        journal.close()
        raise
    return journal, cells


def _parsed(line: bytes, number: int, path: Path) -> dict[str, Any]:
    with suppress(ValueError):
        if isinstance(value := json.loads(line), dict):
            return value
    raise SpecError(f"line {number} of {path} is damaged; delete that line or the file")


def _run(
    truth: Truth,
    unit: PrivacyUnit,
    seed: int,
    chosen: dict[str, Mechanism | None],
    missing: list[Cell],
    jobs: int,
    limit: float | None,
) -> Iterable[tuple[Cell, dict[str, Any]]]:
    if not missing:
        return
    with tempfile.TemporaryDirectory(prefix="tallytree-evaluate-") as folder:
        save_truth(truth, Path(folder))
        arguments = Path(folder), unit, seed, chosen
        for cell, result in run_all(CellWorker, arguments, missing, jobs=jobs, limit=limit):
            yield cell, {**(_lost(cell, result) if isinstance(result, Lost) else result), "limit": limit}


def _lost(cell: Cell, lost: Lost) -> dict[str, Any]:
    record = {"mechanism": cell.mechanism, "budget": cell.budget.to_json(), "run": cell.run}
    return {**record, "status": lost.reason, "message": lost.message, "costs": {}, "scores": []}


def _key(record: dict[str, Any]) -> tuple[str, str, int]:
    return Cell(record["mechanism"], Budget.from_json(record["budget"]), record["run"]).key


def _worth_another_try(record: dict[str, Any], limit: float | None) -> bool:
    """A cell that was cut off by a shorter limit than today's."""
    return record["status"] == "timeout" and (limit is None or limit > record["limit"])


def _chosen(mechanisms: Sequence[str | Mechanism] | None) -> dict[str, Mechanism | None]:
    """By name: None for a registered one, which workers look up themselves; others travel to them."""
    chosen: dict[str, Mechanism | None] = {}
    for mechanism in MECHANISMS if mechanisms is None else mechanisms:
        if isinstance(mechanism, str):
            chosen[mechanism_named(mechanism).name] = None
            continue
        if mechanism.name in chosen:
            raise SpecError(f"two mechanisms are called {mechanism.name!r}; give each its own name")
        chosen[mechanism.name] = None if MECHANISMS.get(mechanism.name) is mechanism else _movable(mechanism)
    if not chosen:
        raise SpecError("give at least one mechanism to compare")
    return chosen


def _movable(mechanism: Mechanism) -> Mechanism:
    try:
        pickle.dumps(mechanism)
    except Exception:
        raise SpecError(
            f"mechanism {mechanism.name!r} cannot be sent to a worker process: its estimate must be a function at the "
            "top of a module or script, not one made inside another function"
        ) from None
    return mechanism


def _check(budgets: Sequence[Budget], runs: int, seed: int, jobs: int | None, limit: float | None) -> None:
    if not budgets:
        raise SpecError("give at least one budget, for instance Budget(epsilon=1)")
    for name, value, least in (("runs", runs, 1), ("jobs", 1 if jobs is None else jobs, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SpecError(f"{name} must be a whole number of at least {least}, not {value!r}")
    if limit is not None and not (limit > 0 and math.isfinite(limit)):
        raise SpecError(f"limit must be a positive number of seconds, not {limit!r}")


class _Clock:
    """Reports progress. The pace counts from when there were as many results as workers: before that they start up."""

    def __init__(self, total: int, missing: int, jobs: int, report: Progress) -> None:
        self.jobs = max(1, min(jobs, missing))
        self._total, self._missing, self._report = total, missing, report
        self._finished = 0
        self._start = 0.0
        self._send(None)

    def tick(self) -> None:
        """One more cell is finished."""
        self._finished += 1
        if self._finished == self.jobs:
            self._start = monotonic()
        paced = self._finished - self.jobs
        left = self._missing - self._finished
        self._send((monotonic() - self._start) / paced * left if paced > 0 else None)

    def _send(self, seconds_left: float | None) -> None:
        resumed = self._total - self._missing
        done = resumed + self._finished
        self._report(Stage("comparing", done, self._total, resumed=resumed, seconds_left=seconds_left))
