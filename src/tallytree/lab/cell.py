"""NOT PRIVATE: one cell of an experiment (a mechanism, a budget, a run), run in a worker process and scored there."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.errors import TallytreeError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.metrics import Score, scores
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS, Mechanism
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Cell:
    """One thing to run."""

    mechanism: str
    budget: Budget
    run: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What it is known by in a journal."""
        return self.mechanism, json.dumps(self.budget.to_json()), self.run


def save_truth(truth: Truth, folder: Path) -> None:
    """Two files that `load_truth` reads; every worker makes its own `GroupSizes`, which refuse to be pickled."""
    np.save(folder / "counts.npy", truth.counts)
    facts = {
        "name": truth.name,
        "public_totals": truth.public_totals,
        "quantity_bound": truth.quantity_bound,
        "hierarchy": truth.hierarchy.to_json(),
    }
    (folder / "truth.json").write_text(json.dumps(facts), encoding="utf-8")


def load_truth(folder: Path) -> Truth:
    """What `save_truth` wrote."""
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
        """Run the mechanism once on a tiny truth, so that compiling its kernels is not taken for its runtime."""
        kind = cell.mechanism, cell.budget.currency
        if kind not in self._warm:
            self._warm.add(kind)
            with suppress(Exception):
                self._estimate(_tiny(self.truth), cell)

    def run(self, cell: Cell) -> dict[str, Any]:
        """Measure, estimate, score: a record of plain values."""
        record: dict[str, Any] = {"mechanism": cell.mechanism, "budget": cell.budget.to_json(), "run": cell.run}
        memory = _Memory()
        try:
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

    def _estimate(self, truth: Truth, cell: Cell) -> tuple[Any, dict[str, float]]:
        start = time.perf_counter()
        group_sizes = truth.group_sizes()
        neighbours = Neighbours.of(group_sizes, self.unit)
        mechanism = self.mechanisms[cell.mechanism].suited_to(neighbours, truth.hierarchy, group_sizes.region_totals)
        plan = mechanism.plan(truth.hierarchy, cell.budget, self.unit)
        mechanism.fits(neighbours, truth.hierarchy, plan)
        # The seed leaves the mechanism out: those that measure the same get the same noise, so they differ by what
        # they make of it.
        seed = self.seed, str(cell.budget.to_json()), cell.run
        measurements = seeded_measurements(truth, plan, *seed, settle=mechanism.settle)
        measured, processor = time.perf_counter(), time.process_time()
        counts = mechanism.estimate(measurements).counts
        done = time.perf_counter()
        return _widened(counts, truth.max_size - measurements.max_size), {
            "seconds_measuring": measured - start,
            "seconds_estimating": done - measured,
            "processor_seconds_estimating": time.process_time() - processor,
        }


def _widened(counts: Any, above: int) -> Any:
    """The same counts with that many sizes above a measured largest one, all zero."""
    return np.pad(counts, ((0, 0), (0, above))) if above > 0 else counts


def _plain(score: Score) -> list[Any]:
    return [score.level, score.depth, score.metric, score.value, score.size, score.region]


def _tiny(truth: Truth) -> Truth:
    """The same kind of truth with as many levels and hardly any cells."""
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
        """The figures, in megabytes; none where the system has none."""
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
