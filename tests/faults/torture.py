"""`make torture`: all harnesses of faults, on a large count, and one table of what they found.

    python -m tests.faults.torture [--small] [--only kills,races] [--seed 1]

Kills, faults, interruptions and races are real: processes of the command, stopped by the kernel (`supervisor`).
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tests.faults.tally import COUNTED, Tally


@dataclass(frozen=True)
class Harness:
    """A function `(count, seed) -> Tally`, and how often it is run.

    With a `lot` it is called for so many at a time, over the processors; without one it spreads and tells by itself.
    """

    name: str
    function: str
    large: int
    small: int
    lot: int = 0


HARNESSES = (
    Harness("kills", "injector.run_kills", 1_000, 30),
    Harness("faults", "injector.run_faults", 1_000, 30),
    Harness("interrupts", "injector.run_interrupts", 500, 15),
    Harness("dead disks", "injector.run_dead_disks", 1_000, 30),
    Harness("lack of memory", "injector.run_lack_of_memory", 500, 15),
    Harness("killed clean-ups", "injector.run_killed_clean_ups", 1_000, 30),
    Harness("intrusions", "injector.run_intrusions", 500, 15),
    Harness("races", "races.run", 48, 8),
    Harness("mutations", "mutations.run", 5_000, 100, 250),
    Harness("fuzzed inputs", "fuzz.run", 100_000, 1_000, 2_500),
    Harness("kernels", "kernels.run", 10_000, 230, 500),
    Harness("whole releases", "releases.run", 2_000, 40, 100),
)
COLUMNS = {name: name.replace("_", " ") for name in COUNTED}


def main() -> None:
    """Run the harnesses and print the table; exit code 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description="Disturb tallytree, and count which promises are broken.")
    parser.add_argument("--small", action="store_true", help="a short run")
    parser.add_argument("--only", help="harnesses, separated by commas")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="runs of each harness, instead of its own number")
    chosen = parser.parse_args()
    names = None if chosen.only is None else {name.strip() for name in chosen.only.split(",")}
    if names is not None and (unknown := names - {harness.name for harness in HARNESSES}):
        parser.error(f"there is no harness {', '.join(sorted(unknown))}")
    found = []
    for harness in HARNESSES:
        if names is None or harness.name in names:
            count = chosen.count or (harness.small if chosen.small else harness.large)
            found.append(counted(harness, count, chosen.seed))
    print("\n".join(table(found)))
    sys.exit(any(tally.broken for tally in found))


def counted(harness: Harness, count: int, seed: int) -> Tally:
    """What a harness finds; one that does not spread itself is run in lots, over the processors."""
    start = time.monotonic()

    def tell(done: int) -> None:
        print(f"\r{harness.name}: {done:,} of {count:,}, {time.monotonic() - start:.0f} s", end="", file=sys.stderr)
        sys.stderr.flush()

    tell(0)
    if harness.lot == 0:
        whole = function(harness)(count, seed, tell)
    else:
        lots = [(harness, min(harness.lot, count - at), seed + at) for at in range(0, count, harness.lot)]
        whole = Tally(harness.name, 0)
        with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
            for tally in pool.imap_unordered(_lot, lots):
                whole += tally
                tell(whole.runs)
    tell(whole.runs)
    print(file=sys.stderr)
    for example in whole.examples:
        print(f"  {example}", file=sys.stderr)
    return replace(whole, name=harness.name)


def function(harness: Harness) -> Callable[..., Tally]:
    module, name = harness.function.split(".")
    return getattr(importlib.import_module(f"tests.faults.{module}"), name)


def _lot(lot: tuple[Harness, int, int]) -> Tally:
    harness, count, seed = lot
    return function(harness)(count, seed)


def table(tallies: Iterable[Tally]) -> list[str]:
    """A row for each harness, as Markdown."""
    rows = [["harness", "runs", *COLUMNS.values()]]
    rows += [[each.name, f"{each.runs:,}", *(str(getattr(each, name)) for name in COLUMNS)] for each in tallies]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) if not place else cell.rjust(width) for place, (cell, width) in line) + " |"
        for line in (list(enumerate(zip(row, widths, strict=True))) for row in rows)
    ]
    ruler = "|" + "|".join("-" * (width + 1) + (":" if place else "-") for place, width in enumerate(widths)) + "|"
    return [lines[0], ruler, *lines[1:]]


if __name__ == "__main__":
    main()
