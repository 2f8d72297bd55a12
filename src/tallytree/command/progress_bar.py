"""Progress of long work: the current stage, in one or two lines on the error stream of a terminal.

If the error stream is a log rather than a terminal, a line is added when a stage begins and at intervals after that.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from tallytree.core.names import visible
from tallytree.core.progress import Progress, Stage
from tallytree.privacy.budget import as_decimal

BETWEEN_LINES: float = 10  # seconds, at least, between two lines of a log
LOG_WIDTH = 80  # columns of a line in a log
PACE_FROM = 1.0  # seconds of work in a stage before its remaining time is estimated
COMPILING = Stage("compiling, once", about="compiled once; later runs load the result")

_under_way: list[Console] = []  # with progress lines that other output must not overwrite


def error_console() -> Console:
    """Return the console for messages: it prints above the progress lines, if any, and leaves them intact."""
    return _under_way[-1] if _under_way else Console(stderr=True, highlight=False)


@contextmanager
def show_progress(quiet: bool) -> Iterator[Progress]:
    """Show the current stage, its progress, the spent budget, and the elapsed and remaining time."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield lambda stage: None
        return
    from tallytree.core.kernels import told_of_compiling

    if not console.is_terminal:
        log = _Log()
        try:
            with told_of_compiling(log.pace.compiling):
                yield log.show
        finally:
            log.close()
        return
    fixed = Column(no_wrap=True)
    columns = SpinnerColumn(), _Doing(), BarColumn(bar_width=12, table_column=fixed), _State(table_column=fixed)
    with _Lines(*columns, console=console, transient=True) as lines:
        screen = _Screen(lines)
        _under_way.append(console)
        try:
            with told_of_compiling(screen.compiling):
                yield screen.show
        finally:
            _under_way.remove(console)


class _Pace:
    """The pace of the current stage, without the time of compiling, which happens once and says nothing about the rest.

    Thread-safe, and several threads may compile at a time.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._began, self._since, self.compilers = clock(), 0.0, 0

    def begin(self) -> None:
        """Begin a stage."""
        with self._lock:
            self._began = self._since = self._clock()

    def compiling(self, begins: bool) -> None:
        """Report that a kernel is being compiled, or that it is ready."""
        with self._lock:
            now = self._clock()
            if begins and not self.compilers:
                self._since = now
            self.compilers += 1 if begins else -1
            if not self.compilers:
                self._began += now - self._since

    def seconds_left(self, stage: Stage) -> float | None:
        """Return the seconds that the stage reports, or those that follow from its pace without earlier results."""
        if stage.seconds_left is not None or stage.resumed:
            return stage.seconds_left
        with self._lock:
            now = self._since if self.compilers else self._clock()
            return at_this_pace(stage, now - self._began) if now - self._began >= PACE_FROM else None


class _Log:
    """Progress as lines in a log: the first once a stage has run for a while, then at intervals. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock, self.pace = clock, threading.Lock(), _Pace(clock)
        self._doing, self._began, self._told = "", clock(), clock()
        self._open = True

    def close(self) -> None:
        """Stop writing lines: the result follows in the log."""
        with self._lock:
            self._open = False

    def show(self, stage: Stage) -> None:
        """Report that a stage has begun or advanced."""
        with self._lock:
            now = self._clock()
            if stage.doing != self._doing:
                self._doing, self._began = stage.doing, now
                self.pace.begin()
            if not self._open or now - self._told < BETWEEN_LINES:
                return
            self._told = now
            gone = times(now - self._began, self.pace.seconds_left(stage))
            numbers = "  ".join(part for part in (amount(stage), gone) if part)
            doing = _cut(visible(stage.doing), LOG_WIDTH - 5 - cell_len(numbers))  # and "..." at the end
            line = "  ".join(part for part in (doing, numbers, visible(stage.about)) if part)
            with suppress(OSError, ValueError):  # a log that cannot be written does not stop the work
                print(_cut(line, LOG_WIDTH), file=sys.stderr, flush=True)


class _Screen:
    """The latest stage; while kernels are compiled, this is shown instead. Thread-safe."""

    def __init__(self, lines: Bars) -> None:
        self._lines, self._lock = lines, threading.RLock()
        self._stage, self._pace = Stage(""), _Pace(time.monotonic)

    def show(self, stage: Stage) -> None:
        """Report that a stage has begun or advanced."""
        with self._lock:
            if not self._lines.tasks or self._stage.doing != stage.doing:
                for task in self._lines.task_ids:
                    self._lines.remove_task(task)
                self._lines.add_task(stage.doing, total=None, stage=stage, until=None)
                self._pace.begin()
            self._stage = stage
            self._draw()

    def compiling(self, begins: bool) -> None:
        """Report that a kernel is being compiled, or that it is ready."""
        self._pace.compiling(begins)
        with self._lock:
            if self._lines.tasks:
                self._draw()
                self._lines.refresh()

    def _draw(self) -> None:
        stage = COMPILING if self._pace.compilers else self._stage
        left, total = self._pace.seconds_left(stage), max(stage.of, stage.done) or None
        until = None if left is None else time.monotonic() + left
        task, words = self._lines.task_ids[0], stage.doing
        self._lines.update(task, description=words, completed=stage.done, total=total, stage=stage, until=until)


class _Lines(Bars):
    """The bar of the current stage, and details below it, cut to the terminal's width."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if about := task.fields["stage"].about:
                yield Text(f"  {visible(about)}", style="dim", no_wrap=True, overflow="ellipsis")


class _Doing(ProgressColumn):
    """The name of the stage, cut to the space that the other columns leave."""

    def render(self, task: Task) -> Text:
        return Text(visible(task.description), no_wrap=True, overflow="ellipsis")


class _State(ProgressColumn):
    """The progress, the elapsed time and the remaining time."""

    def render(self, task: Task) -> Text:
        done = amount(task.fields["stage"])
        until = task.fields["until"]
        left = None if until is None else max(until - time.monotonic(), 0.0)
        gone = (times(task.elapsed or 0, left), "cyan")
        return Text.assemble(*([f"{done}  "] if done else []), gone, no_wrap=True)


def _cut(line: str, width: int) -> str:
    """Return as much of a line as fits `width` columns of a terminal, with dots at the cut."""
    if cell_len(line) <= width:
        return line
    cut = Text(line)
    cut.truncate(max(width - 3, 0))
    return f"{cut.plain.rstrip()}..."


def amount(stage: Stage) -> str:
    """Return how much is done, and the budget spent on it.

    >>> amount(Stage("writing households", 1000, 5000)), amount(Stage("reading", 37, 100, unit="%"))
    ('1,000 of 5,000', '37 %')
    """
    done = f"{100 * stage.done // stage.of} %" if stage.of and stage.unit == "%" else f"{stage.done:,} of {stage.of:,}"
    parts = [done] if stage.of else []
    if stage.spent is not None and stage.budget is not None:
        parts.append(f"ρ {as_decimal(stage.spent, 3)} of {as_decimal(stage.budget, 3)}")
    return ", ".join(parts)


def at_this_pace(stage: Stage, gone: float) -> float | None:
    """Return the seconds left at the present pace; None before anything is done.

    >>> at_this_pace(Stage("writing", 20, 100), 5.0)
    20.0
    """
    return gone * (stage.of - stage.done) / stage.done if 0 < stage.done < stage.of else None


def times(elapsed: float, left: float | None) -> str:
    """Return elapsed time, and remaining time if known.

    >>> times(75, None), times(4000, 7.2)
    ('1:15', '1:06:40, 0:07 left')
    """
    return _clock(elapsed) if left is None else f"{_clock(elapsed)}, {_clock(left)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
