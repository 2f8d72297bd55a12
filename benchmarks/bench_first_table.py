"""From nothing to a verified release: how long it takes three users, and how many commands they type.

    TALLYTREE_REAL_DATA=… python benchmarks/bench_first_table.py

A statistician has a survey in one file, a data scientist has data frames, and an office has two files.
`tests/first_users.py` makes their files from the real data sets, or from small made-up ones if the variable names no
folder. Each command of `tallytree` is a process of its own, as on a terminal; the calls in Python share one. A line of
JSON for each user has the number of commands, and their seconds on the clock and of the processors.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from common import report

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.first_users import CALLS, MOST_COMMANDS, USERS, publish_frames
from tests.real_data import REAL_DATA, made_up, real

HERE, FRAMES = str(Path(__file__).resolve()), "frames"  # this script runs itself for the user of Python


def main(data: Path) -> None:
    """Run each user's commands in an empty folder."""
    find, source = (real, "real") if REAL_DATA else (partial(made_up, folder=data), "made-up")
    for user, publish in USERS.items():
        seconds: list[float] = []
        before = _processor_seconds()
        with tempfile.TemporaryDirectory() as name:
            run = partial(_run, Path(name), seconds)
            if publish is publish_frames:
                run(HERE, FRAMES, str(data))
                commands = CALLS
            else:
                commands = publish(Path(name), find, partial(run, "-m", "tallytree"))
        assert commands <= MOST_COMMANDS
        figures = {"commands": commands, "seconds": sum(seconds), "slowest": max(seconds)}
        figures["processor_seconds"] = _processor_seconds() - before
        report(f"{user}: {commands} commands, {sum(seconds):.1f} s on {source} data", user=user, data=source, **figures)


def _run(folder: Path, seconds: list[float], *words: str) -> None:
    start = time.monotonic()
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    seconds.append(time.monotonic() - start)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stderr}")


def _processor_seconds() -> float:
    times = os.times()
    return times.children_user + times.children_system


if __name__ == "__main__":
    if sys.argv[1:2] == [FRAMES]:
        publish_frames(Path(), real if REAL_DATA else partial(made_up, folder=Path(sys.argv[2])), print)
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
