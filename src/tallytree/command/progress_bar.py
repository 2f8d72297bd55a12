"""What a person sees of long work: the stage under way, in one or two lines on the error stream of a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from tallytree.names import visible
from tallytree.privacy.budget import as_decimal
from tallytree.progress import Progress, Stage

PACE_OVER = 600  # seconds over which the pace is averaged: rounds of a synthesis differ


@contextmanager
def shown(quiet: bool) -> Iterator[Progress]:
    """Show which stage is under way, how much of it is done, what it has spent, for how long, and how long still."""
    console = Console(stderr=True, quiet=quiet)
    with _Lines(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        _State(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
        speed_estimate_period=PACE_OVER,
    ) as lines:

        def show(stage: Stage) -> None:
            if not lines.tasks or lines.tasks[0].description != stage.doing:
                for task in lines.task_ids:
                    lines.remove_task(task)
                lines.add_task(stage.doing, total=None, stage=stage)
            total = max(stage.of, stage.done) or None
            lines.update(lines.task_ids[0], completed=stage.done, total=total, stage=stage)

        yield show


class _Lines(Bars):
    """The bar of the stage under way, and below it what else there is to say about it, cut to the terminal's width."""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if about := task.fields["stage"].about:
                yield Text(f"  {visible(about)}", style="dim", no_wrap=True, overflow="ellipsis")


class _State(ProgressColumn):
    """How much is done, for how long, and how long still."""

    def render(self, task: Task) -> Text:
        done = amount(task.fields["stage"])
        gone = (times(task.elapsed or 0, seconds_left(task)), "cyan")
        return Text.assemble(*([f"{done}  "] if done else []), gone, no_wrap=True)


def amount(stage: Stage) -> str:
    """How much is done, and what it has spent.

    >>> amount(Stage("writing households", 1000, 5000))
    '1,000 of 5,000'
    """
    parts = [f"{stage.done:,} of {stage.of:,}"] if stage.of else []
    if stage.spent is not None and stage.budget is not None:
        parts.append(f"ρ {as_decimal(stage.spent, 3)} of {as_decimal(stage.budget, 3)}")
    return ", ".join(parts)


def seconds_left(task: Task) -> float | None:
    """What the stage says itself, or else what follows from its pace; results that were there before have none."""
    stage: Stage = task.fields["stage"]
    if stage.seconds_left is not None or stage.resumed:
        return stage.seconds_left
    return task.time_remaining if stage.done < stage.of else None


def times(elapsed: float, left: float | None) -> str:
    """Time gone, and time left where it is known.

    >>> times(75, None), times(4000, 7.2)
    ('1:15', '1:06:40, 0:07 left')
    """
    return _clock(elapsed) if left is None else f"{_clock(elapsed)}, {_clock(left)} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
