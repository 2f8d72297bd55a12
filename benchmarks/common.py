"""What the benchmarks share: made-up inputs, clocks, peaks of memory, and a line of JSON for each figure."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests import engines
from tests.oracles.trees import even_tree, two_sided_geometric

from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy

__all__ = ["best_of", "drawn", "engines", "even_tree", "made_up_counts", "peak_bytes", "report", "rise_of_peak"]


def made_up_counts(hierarchy: Hierarchy, sizes: int, tail: float = 8.0) -> Integers:
    """Regions of very different population, sizes that thin out by exp(−tail): most cells are small, many are zero."""
    rng = np.random.default_rng(1)
    population = rng.gamma(0.3, 1, size=(hierarchy.leaf_count, 1))
    return hierarchy.aggregate(rng.poisson(population * 200 * np.exp(-tail * np.arange(sizes) / sizes)))


def drawn(shape: tuple[int, ...], scale: float) -> Integers:
    """Laplace-like noise by NumPy, the same on every call."""
    return two_sided_geometric(np.random.default_rng(2), shape, scale)


def best_of(times: int, work: Callable[[], Any], clock: Callable[[], float] = process_time) -> float:
    """The shortest of some runs, in seconds; of CPU time on all cores unless another clock is given."""
    found = []
    for _ in range(times):
        start = clock()
        work()
        found.append(clock() - start)
    return min(found)


def rise_of_peak(work: Callable[[], Any]) -> int:
    """By how many bytes one call raises the resident peak."""
    Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak so far, that of compiling
    before = peak_bytes()
    work()
    return peak_bytes() - before


def peak_bytes() -> int:
    """This process's resident peak, on Linux."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def report(sentence: str, **figures: Any) -> None:
    """A readable line and a line of JSON, floats to four digits."""
    print(sentence)
    print(json.dumps({key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in figures.items()}))
    sys.stdout.flush()
