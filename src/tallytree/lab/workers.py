"""Run tasks in persistent worker processes with a time limit each; a process that exceeds it, or dies, is replaced.

The pool of `concurrent.futures` breaks if one of its processes must be ended; this one does not. Processes are spawned,
so a script that uses this needs the usual `if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Literal, Protocol

from tallytree.core.errors import TallytreeError

GRACE = 120.0  # seconds that preparing a task (imports, compilation) may take on top of the limit


class Worker(Protocol):
    """The object that runs in each process."""

    def prepare(self, task: Any) -> None:
        """Do the work that must not count as the task's own time."""

    def run(self, task: Any) -> Any:
        """Do the task."""


@dataclass(frozen=True)
class Lost:
    """Why a task has no result: its process was ended, or ended unexpectedly."""

    reason: Literal["timeout", "died"]
    message: str


@dataclass(eq=False)
class _Seat:
    process: Any
    connection: Connection
    ready: bool = False
    task: Any = None
    deadline: float = float("inf")


def run_all(
    make: Callable[..., Worker], arguments: tuple[Any, ...], tasks: Iterable[Any], *, jobs: int, limit: float | None
) -> Iterator[tuple[Any, Any]]:
    """Yield (task, result or `Lost`) as they finish, from at most `jobs` processes that call `make(*arguments)` once
    each.
    """
    pending = deque(tasks)
    seats: list[_Seat] = []
    try:
        while pending or any(seat.task is not None for seat in seats):
            busy = sum(seat.task is not None for seat in seats)
            while len(seats) < min(jobs, busy + len(pending)):
                seats.append(_spawn(make, arguments))
            for seat in seats:
                if seat.ready and seat.task is None and pending:
                    _give(seat, pending.popleft(), limit)
            for seat in _ready_seats(seats):
                finished = _heard(seat, limit)
                if finished is not None:
                    yield finished
            for seat in [seat for seat in seats if seat.deadline <= time.monotonic()]:
                _end(seat)
                yield seat.task, Lost("timeout", f"took longer than {limit:g} s")
                seat.connection.close()
            seats = [seat for seat in seats if not seat.connection.closed]
    finally:
        for seat in seats:
            _end(seat)


def _ready_seats(seats: list[_Seat]) -> list[_Seat]:
    soonest = min((seat.deadline for seat in seats), default=float("inf"))
    timeout = None if soonest == float("inf") else max(0.0, soonest - time.monotonic())
    heard = wait([seat.connection for seat in seats], timeout)
    return [seat for seat in seats if seat.connection in heard]


def _heard(seat: _Seat, limit: float | None) -> tuple[Any, Any] | None:
    """Receive one message; return a finished task with its result, if it was one."""
    try:
        kind, content = seat.connection.recv()
    except (EOFError, OSError):
        _end(seat)
        seat.connection.close()
        if not seat.ready:
            raise TallytreeError(
                "a worker process could not start; its message is above. A script that compares mechanisms "
                'must do so under `if __name__ == "__main__":`, because every worker imports it.'
            ) from None
        if seat.task is None:
            return None
        return seat.task, Lost("died", f"its process ended with exit code {seat.process.exitcode}")
    if kind == "ready":
        seat.ready = True
    elif kind == "running":
        seat.deadline = float("inf") if limit is None else time.monotonic() + limit
    else:
        task, seat.task, seat.deadline = seat.task, None, float("inf")
        return task, content
    return None


def _give(seat: _Seat, task: Any, limit: float | None) -> None:
    seat.task = task
    seat.deadline = float("inf") if limit is None else time.monotonic() + limit + GRACE
    with suppress(OSError):  # a process that has ended is noticed at the next message
        seat.connection.send(task)


def _spawn(make: Callable[..., Worker], arguments: tuple[Any, ...]) -> _Seat:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
    process.start()
    theirs.close()
    return _Seat(process, ours)


def _end(seat: _Seat) -> None:
    seat.process.terminate()
    seat.process.join(2)
    if seat.process.is_alive():
        seat.process.kill()
        seat.process.join()


def _serve(connection: Connection, make: Callable[..., Worker], arguments: tuple[Any, ...]) -> None:
    """Run a worker process until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, daemon=True).start()
    worker = make(*arguments)
    connection.send(("ready", None))
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        worker.prepare(task)
        connection.send(("running", None))
        connection.send(("result", worker.run(task)))


def _end_with_parent() -> None:
    """End the worker if its parent is gone: a killed parent cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
