"""Check that an estimate or a workload fits into memory, before any budget is spent and from public facts alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Plan

# Bytes for each cell (a region and a size), measured on half a million cells: 33 (bottom-up) to 95 for the estimate, 97
# (coc-matching) to 128 with typical intervals; tallytree takes 58 and 94, measured on eight million. The most of them
# is taken for every mechanism.
ESTIMATE, WITH_INTERVALS = 100, 130
IN_LIST = 8  # bytes for each group of a list of sizes that is measured, at least
IN_WORKLOAD = 32  # for each cell of its tables: the true counts, the model's, those rounded, those drawn
OVERRIDE = "TALLYTREE_ANY_MEMORY"


def refuse_beyond_memory(hierarchy: Hierarchy, neighbours: Neighbours, *, intervals: bool, listed: int = 0) -> None:
    """Raise if the estimate of all cells needs more memory than the machine has free, if that is known.

    `listed` is the number of groups in all measured lists of sizes, if it is public.
    """
    cells = len(hierarchy) * (neighbours.max_size + neighbours.public_totals)
    needed, free = cells * (WITH_INTERVALS if intervals else ESTIMATE) + IN_LIST * listed, available()
    if free is None or needed <= free or os.environ.get(OVERRIDE):
        return
    lists = f" and {listed:,} groups in lists of sizes" if listed else ""
    raise ReleaseError(
        f"there are {cells:,} cells (regions times sizes){lists}; estimating them takes about {needed / 1e9:.1f} GB of "
        f"memory, and {free / 1e9:.1f} GB are free. Nothing was spent. Use a machine with more memory, a smaller "
        f'max_size, intervals = "none", or set {OVERRIDE}=1 to try anyway.'
    )


def refuse_workload_beyond_memory(cells: int, tables: int) -> None:
    """Refuse a workload whose tables alone need more memory than the machine has free; most runs need somewhat more."""
    needed, free = cells * IN_WORKLOAD, available()
    if free is not None and needed > free:
        raise SpecError(
            f"the workload's {tables:,} tables have {cells:,} cells together, which take at least {needed / 1e9:.1f} "
            f"GB of memory, and {free / 1e9:.1f} GB are free. Nothing was spent. Use fewer or smaller tables "
            "(`workload` in the spec), or a machine with more memory."
        )


def count_listed(plan: Plan, totals: Integers | None) -> int:
    """Return how many groups the plan's measured lists of sizes have, if totals are public; otherwise 0."""
    if totals is None:
        return 0
    return max(int(totals[0]) * sum(ask.view == "sorted_sizes" for ask in way.queries) for way in plan.branches)


def available() -> int | None:
    """Return how many bytes of memory are free without swapping; None if the system does not report it."""
    if sys.platform == "linux":
        return min((each for each in (_in_machine(), _in_group()) if each is not None), default=None)
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _in_machine(path: str | Path = "/proc/meminfo") -> int | None:
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None


def _in_group(folder: str | Path = "/sys/fs/cgroup") -> int | None:
    """Return the memory that a container has left: its limit minus its use, without cached files."""
    try:
        names = "memory.max", "memory.current", "memory.stat"
        most, used, parts = (Path(folder, name).read_text(encoding="ascii") for name in names)
        files = sum(int(line.split()[1]) for line in parts.splitlines() if line.startswith("file "))
        return max(0, int(most) - int(used) + files)
    except (OSError, ValueError):
        return None
