"""NOT PRIVATE: `compare` runs mechanisms × budgets × runs on a truth: in parallel, by seed, and resumable.

A cell of an experiment is a mechanism, a budget and a run. A worker process runs and scores it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import pickle
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tallytree.core.disk import JsonLines
from tallytree.core.errors import SpecError, TallytreeError
from tallytree.core.kernels import count_compiled
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.results import WARNING, Results, Score, scores
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.lab.workers import Lost, run_all
from tallytree.mechanisms import MECHANISMS, Mechanism, mechanism_named
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, one_entity
from tallytree.privacy.plan import Plan
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
    """NOT PRIVATE: run each mechanism with each budget `runs` times on `truth` and score the estimates.

    `mechanisms` are names, aliases, or `Mechanism`s that a worker process can import; the default is all registered
    ones. A mechanism that refuses, fails, or takes longer than `limit` seconds gives a row that says so. The same seed
    gives the same estimates for any number of processes (`jobs`, by default one per processor; for runtimes, use 1).
    With `out`, finished cells are stored in a journal there, and a second call runs only the missing cells, also after
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
    """Return what must be the same to reuse the cells of a journal: all but the mechanisms, budgets and runs."""
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
    """Return the journal in a folder and its finished cells; its first line describes the experiment.

    A journal of another experiment is refused, because its cells do not belong to this one.
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
                "start again."
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
    """Return whether a cell was cut off by a shorter limit than today's."""
    return record["status"] == "timeout" and (limit is None or limit > record["limit"])


def _chosen(mechanisms: Sequence[str | Mechanism] | None) -> dict[str, Mechanism | None]:
    """Return mechanisms by name: None for a registered one, which workers look up; others are sent to the workers."""
    chosen: dict[str, Mechanism | None] = {}
    for mechanism in MECHANISMS if mechanisms is None else mechanisms:
        if isinstance(mechanism, str):
            found = mechanism_named(mechanism)
            own = MECHANISMS[found.name] is found
            chosen[found.name if own else mechanism] = None if own else replace(found, name=mechanism)
            continue
        if mechanism.name in chosen:
            raise SpecError(f"two mechanisms have the name {mechanism.name!r}; give each its own name")
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
            "top of a module or script, not one inside another function"
        ) from None
    return mechanism


def _check(budgets: Sequence[Budget], runs: int, seed: int, jobs: int | None, limit: float | None) -> None:
    if not budgets:
        raise SpecError("give at least one budget, for instance Budget(epsilon=1)")
    for name, value, least in (("runs", runs, 1), ("jobs", 1 if jobs is None else jobs, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SpecError(f"{name} must be an integer of at least {least}, not {value!r}")
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
        """Count one more finished cell."""
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


# -------------------------------------------------------------------- one cell, in a worker process


MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Cell:
    """One mechanism, budget and run."""

    mechanism: str
    budget: Budget
    run: int

    @property
    def key(self) -> tuple[str, str, int]:
        """Return its key in a journal."""
        return self.mechanism, json.dumps(self.budget.to_json()), self.run


def save_truth(truth: Truth, folder: Path) -> None:
    """Write two files that `load_truth` reads; every worker builds its own `GroupSizes`, which cannot be pickled."""
    np.save(folder / "counts.npy", truth.counts)
    facts = {
        "name": truth.name,
        "public_totals": truth.public_totals,
        "quantity_bound": truth.quantity_bound,
        "hierarchy": truth.hierarchy.to_json(),
    }
    (folder / "truth.json").write_text(json.dumps(facts), encoding="utf-8")


def load_truth(folder: Path) -> Truth:
    """Load what `save_truth` wrote."""
    facts = json.loads((folder / "truth.json").read_text(encoding="utf-8"))
    facts["hierarchy"] = Hierarchy.from_layout(**facts["hierarchy"])
    return Truth(counts=np.load(folder / "counts.npy"), **facts)


class CellWorker:
    """Runs cells on one truth. A mechanism that refuses or fails gives a record that says so."""

    def __init__(self, folder: Path, unit: PrivacyUnit, seed: int, mechanisms: dict[str, Mechanism | None]) -> None:
        self.truth = load_truth(folder)
        self.counts = self.truth.all_levels()
        self.unit, self.seed = unit, seed
        self.mechanisms = {name: given or MECHANISMS[name] for name, given in mechanisms.items()}
        self._warm: set[tuple[str, str]] = set()

    def prepare(self, cell: Cell) -> None:
        """Run the mechanism once on a tiny truth, so that compiling its kernels does not count as its runtime."""
        kind = cell.mechanism, cell.budget.currency
        if kind not in self._warm:
            self._warm.add(kind)
            with suppress(Exception):
                self._planned(self.truth, cell)  # or it refuses the data, and there is nothing to warm up
                self._estimate(_tiny(self.truth), cell)

    def run(self, cell: Cell) -> dict[str, Any]:
        """Measure, estimate, score: return a record of plain values."""
        record: dict[str, Any] = {"mechanism": cell.mechanism, "budget": cell.budget.to_json(), "run": cell.run}
        memory = _Memory()
        try:
            compiled = count_compiled()
            counts, seconds = self._estimate(self.truth, cell)
            if count_compiled() > compiled:  # the tiny truth did not need these kernels: time it without compiling
                counts, seconds = self._estimate(self.truth, cell)
        except (Exception, SystemExit) as error:
            status = "refused" if isinstance(error, TallytreeError) else "failed"
            name = "" if status == "refused" else f"{type(error).__name__}: "
            return {**record, "status": status, "message": f"{name}{error}".strip(": "), "costs": {}, "scores": []}
        costs = {**seconds, **memory.used()}
        try:
            found = scores(self.counts, counts, self.truth.hierarchy, self.truth.first_size)
        except Exception as error:
            message = f"its estimate cannot be scored ({type(error).__name__}: {error})"
            return {**record, "status": "failed", "message": message, "costs": costs, "scores": []}
        return {**record, "status": "done", "message": None, "costs": costs, "scores": [_plain(s) for s in found]}

    def _planned(self, truth: Truth, cell: Cell) -> tuple[Mechanism, Plan]:
        """Return the mechanism with its plan, or raise its refusal."""
        group_sizes = truth.group_sizes()
        neighbours = Neighbours.of(group_sizes, self.unit)
        mechanism = self.mechanisms[cell.mechanism].suited_to(neighbours, truth.hierarchy, group_sizes.region_totals)
        plan = mechanism.plan(truth.hierarchy, cell.budget, self.unit)
        mechanism.fits(neighbours, truth.hierarchy, plan)
        return mechanism, plan

    def _estimate(self, truth: Truth, cell: Cell) -> tuple[Any, dict[str, float]]:
        start = time.perf_counter()
        mechanism, plan = self._planned(truth, cell)
        # The seed leaves the mechanism out: those that measure the same get the same noise, so they differ by what
        # they make of it.
        seed = self.seed, str(cell.budget.to_json()), cell.run
        measurements = seeded_measurements(truth, plan, *seed, derive_facts=mechanism.derive_facts)
        measured, processor = time.perf_counter(), time.process_time()
        counts = mechanism.estimate(measurements).counts
        done = time.perf_counter()
        return _widened(counts, truth.max_size - measurements.max_size), {
            "seconds_measuring": measured - start,
            "seconds_estimating": done - measured,
            "processor_seconds_estimating": time.process_time() - processor,
        }


def _widened(counts: Any, above: int) -> Any:
    """Return the same counts with that many sizes above a measured largest one, all zero."""
    return np.pad(counts, ((0, 0), (0, above))) if above > 0 else counts


def _plain(score: Score) -> list[Any]:
    return [score.level, score.depth, score.metric, score.value, score.size, score.region]


def _tiny(truth: Truth) -> Truth:
    """Return the same kind of truth with as many levels and hardly any cells."""
    depth = truth.hierarchy.depth
    table = {f"level {level}": ["here", "here"] for level in range(depth - 1)} | {"leaf": ["a", "b"]}
    hierarchy = (
        Hierarchy.from_levels(table, list(table)) if depth > 1 else Hierarchy.from_levels({"leaf": ["a"]}, ["leaf"])
    )
    counts = np.ones((hierarchy.leaf_count, 3 + (not truth.public_totals)), np.int64)
    return Truth("tiny", hierarchy, counts, truth.public_totals, truth.quantity_bound)


class _Memory:
    """The most memory this process has had resident since the object was made, where the system can be asked to forget
    an earlier peak (Linux); otherwise the most since the process started, and the name of the figure says so."""

    def __init__(self) -> None:
        self._before: float | None = None
        try:
            Path("/proc/self/clear_refs").write_text("5")
            self._before = _status("VmRSS")
        except (OSError, ValueError):
            pass

    def used(self) -> dict[str, float]:
        """Return the figures, in megabytes; an empty result if the system has none."""
        if self._before is not None:
            peak = _status("VmHWM")
            return {"peak_megabytes": peak, "working_megabytes": max(0.0, peak - self._before)}
        try:
            import resource
            import sys
        except ImportError:
            return {}
        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE
        return {"peak_megabytes_since_start": peak}


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    raise ValueError(field)
