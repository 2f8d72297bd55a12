"""Run numbered cases in a child process that can be killed: a case that never ends is a finding, and blocks nothing.

Compiled kernels do not hear Python's signals, so the operating system ends the child: each case has a limit of CPU
time, which does not depend on how busy the machine is. Compiling does not count. The next child goes on with the case
after the one that ended the last child.

    python -m tests.faults.isolated tests.faults.kernels FIRST STOP SEED [SECONDS]
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from tallytree.core.kernels import told_of_compiling

CPU_SECONDS = 20.0  # for one case; nearly all take milliseconds
WALL_SECONDS = 1_200.0  # for a child that waits and does not work
ROOT = Path(__file__).parents[2]


class Finding(NamedTuple):
    """A case that broke a promise, and which one: a field of `Tally`."""

    number: int
    promise: str
    words: str


def run_cases(module: str, first: int, stop: int, seed: int, seconds: float = CPU_SECONDS) -> list[Finding]:
    """Run `module.one(number, seed)` for all numbers from `first` to `stop - 1`; returns what went wrong.

    `one` returns None, or the promise that was broken and some words.
    """
    found: list[Finding] = []
    while first < stop:
        done, last = _run_child(module, first, stop, seed, seconds)
        found += done
        first = last + 1
    return found


def _run_child(module: str, first: int, stop: int, seed: int, seconds: float) -> tuple[list[Finding], int]:
    """Run one child, until it is through or ends early; returns its findings and the last case that it began."""
    command = [sys.executable, "-m", "tests.faults.isolated", module, str(first), str(stop), str(seed), str(seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        timer = threading.Timer(WALL_SECONDS, child.kill)
        timer.start()
        output, errors = child.communicate()
        timer.cancel()
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("[")]
    begun = [line[1] for line in lines if line[0] == "begin"]
    found = [Finding(*line[1:]) for line in lines if line[0] == "found"]
    if child.returncode == 0:
        return found, stop - 1
    if not begun:
        raise RuntimeError(f"the child process of {module} did not start: {errors[-2000:]}")
    ended = child.returncode in (-signal.SIGPROF, -signal.SIGKILL)
    words = f"no end in {seconds:g} CPU seconds" if ended else f"exit code {child.returncode}: {errors[-300:]}"
    return [*found, Finding(begun[-1], "hung" if ended else "tracebacks", words)], begun[-1]


class _Limit:
    """A limit of CPU time for this process that rests while a kernel is compiled."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._compiling, self._lock = seconds, 0, threading.Lock()

    def set(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, self._seconds)

    def hear(self, begins: bool) -> None:
        with self._lock:
            self._compiling += 1 if begins else -1
            signal.setitimer(signal.ITIMER_PROF, 0 if self._compiling else self._seconds)


def _main(module: str, first: int, stop: int, seed: int, seconds: float) -> None:
    from tests.shared_kernels import compile_once

    compile_once()
    run = importlib.import_module(module).one
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    limit = _Limit(seconds)
    with told_of_compiling(limit.hear):
        for number in range(first, stop):
            print(json.dumps(["begin", number]), flush=True)
            limit.set()
            if (wrong := run(number, seed)) is not None:
                print(json.dumps(["found", number, *wrong]), flush=True)


if __name__ == "__main__":
    first, stop, seed = (int(number) for number in sys.argv[2:5])
    _main(sys.argv[1], first, stop, seed, float(sys.argv[5]) if len(sys.argv) > 5 else CPU_SECONDS)
