"""Every table and figure of the papers, remade: NOT PRIVATE, on public and made-up data.

    python -m experiments.all --data DIRECTORY [--results all-results] [--out docs/figures]       about a night
    python -m experiments.all --data DIRECTORY --quick [--out FOLDER]                             minutes, to try it

DIRECTORY holds the files that `experiments.coc` and `experiments.hqr` name; without --data the parts that need them are
left out. Each part is a process of its own. A finished part is noted in the results folder with its time and is not run
again, so the same command continues after an interruption; an interrupted part continues from its own journals.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "docs" / "figures"


@dataclass(frozen=True)
class Part:
    """One command: its module and words, those of a full and of a quick run, and whether it needs real data."""

    module: str
    words: tuple[str, ...]
    full: tuple[str, ...] = ()
    quick: tuple[str, ...] = ("--runs", "1")
    real: bool = False
    journal: bool = True  # takes a folder for results beside the one for files

    @property
    def name(self) -> str:
        """The name of its note."""
        return "-".join([self.module, *(word for word in self.words if not word.startswith("--"))])

    def command(self, given: argparse.Namespace) -> list[str]:
        """The words after the interpreter."""
        found = ["-m", f"experiments.{self.module}", *self.words, *(self.quick if given.quick else self.full)]
        found += ["--data", str(given.data)] if self.real else []
        found += ["--results", str(given.results / self.module)] if self.journal else []
        return [*found, "--out", str(given.out)]


TEN = ("--runs", "10")  # as in the count-of-counts paper
THIRTY = ("--runs", "30")  # as in the PGSR paper
FIVE = ("--runs", "5")  # as in HQR
QUICK_HQR = ("--runs", "1", "--method", "mwem", "--epsilon", "1")
PARTS = (
    *(
        Part("pgsr", ("--part", part), THIRTY, ("--runs", "1", "--quick"))
        for part in ("figure-7", "relaxed", "census", "taxi", "figure-8")
    ),
    *(
        Part("coc", ("--part", part), TEN, real=True)
        for part in ("table", "single", "figure-1", "levels-2", "levels-3")
    ),
    *(Part("coc", ("--part", part), TEN, ("--runs", "1"), real=True) for part in ("merging", "chosen", "nation")),
    Part("coc", ("--part", "methods"), ("--runs", "3"), real=True),
    *(Part("hqr", ("--only", data), FIVE, QUICK_HQR, journal=False) for data in ("acs-small", "acs")),
    *(
        Part("hqr", ("--only", data), FIVE, QUICK_HQR, real=True, journal=False)
        for data in ("oregon-small", "atlanta-small")
    ),
    Part("figures", (), quick=("--quick",), journal=False),
)
# In a quick run: not the parts whose data alone take minutes.
SLOW = {"coc-merging", "coc-nation", "coc-methods", "coc-levels-2", "hqr-acs"}


def run(part: Part, given: argparse.Namespace) -> bool:
    """Run a part and note it, unless a note of the same command is there; return whether it succeeded."""
    command = part.command(given)
    note = given.results / f"{part.name}.done.json"
    if note.exists() and json.loads(note.read_text())["command"] == command:
        print(f"{part.name}: finished before", flush=True)
        return True
    started = time.perf_counter()
    code = subprocess.run([sys.executable, *command], check=False).returncode
    seconds = round(time.perf_counter() - started, 1)
    if code == 0:
        note.write_text(json.dumps({"command": command, "seconds": seconds}))
    print(f"{part.name}: {'finished' if code == 0 else 'FAILED'} after {seconds:,.0f} s", flush=True)
    return code == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the real data sets")
    parser.add_argument("--quick", action="store_true", help="one run of each, small data and short limits")
    parser.add_argument("--results", type=Path, default=Path("all-results"), help="folder of notes and journals")
    parser.add_argument("--out", type=Path, help="folder of the files: docs/figures, or with --quick that of results")
    given = parser.parse_args()
    given.out = given.out or (given.results if given.quick else FIGURES)
    for folder in (given.results, given.out):
        folder.mkdir(parents=True, exist_ok=True)
    parts = [part for part in PARTS if (given.data is not None or not part.real)]
    if given.quick:
        parts = [part for part in parts if part.name not in SLOW]
    failed = [part.name for part in parts if not run(part, given)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; the same command runs them again")


if __name__ == "__main__":
    main()
