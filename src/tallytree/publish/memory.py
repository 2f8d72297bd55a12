"""Will an estimate or a workload fit into memory? Asked before anything is spent, with public facts alone."""

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
    """Raise if the estimate of all cells needs more memory than the machine has free, as far as that can be known.

    `listed` is how many groups the measured lists of sizes have in all, where that is public.
    """
    cells = len(hierarchy) * (neighbours.max_size + neighbours.public_totals)
    needed, free = cells * (WITH_INTERVALS if intervals else ESTIMATE) + IN_LIST * listed, available()
    if free is None or needed <= free or os.environ.get(OVERRIDE):
        return
    lists = f" and {listed:,} groups in lists of sizes" if listed else ""
    raise ReleaseError(
        f"there are {cells:,} cells (regions times sizes){lists}; estimating them takes about {needed / 1e9:.1f} GB of "
        f"memory, and {free / 1e9:.1f} GB are free. Nothing was spent. Use a machine with more memory, a smaller "
        f'max_size, intervals = "none", or set {OVERRIDE}=1 to try it.'
    )


def refuse_workload_beyond_memory(cells: int, tables: int) -> None:
    """Refuse a workload whose tables alone take more memory than the machine has left; most runs need some more."""
    needed, free = cells * IN_WORKLOAD, available()
    if free is not None and needed > free:
        raise SpecError(
            f"the workload's {tables:,} tables have {cells:,} cells together, which take at least {needed / 1e9:.1f} "
            f"GB of memory, and {free / 1e9:.1f} GB are free. Nothing was spent. Ask for fewer or smaller tables (see "
            "workload), or use a larger machine."
        )


def count_listed(plan: Plan, totals: Integers | None) -> int:
    """How many groups the lists of sizes have that a plan measures, where totals are public; 0 where they are not."""
    if totals is None:
        return 0
    return max(int(totals[0]) * sum(ask.view == "sorted_sizes" for ask in way.queries) for way in plan.branches)


def available() -> int | None:
    """How many bytes of memory can be had without swapping; None where the system does not say."""
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
    """What a container leaves: its limit less what it uses, but for copies of files, which give way."""
    try:
        names = "memory.max", "memory.current", "memory.stat"
        most, used, parts = (Path(folder, name).read_text(encoding="ascii") for name in names)
        files = sum(int(line.split()[1]) for line in parts.splitlines() if line.startswith("file "))
        return max(0, int(most) - int(used) + files)
    except (OSError, ValueError):
        return None
