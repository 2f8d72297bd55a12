"""What a person sees of long work: one line on the error stream for the stage under way, where that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tallytree.progress import Progress, Stage

PACE_OVER = 600  # seconds over which the pace is averaged: rounds of a synthesis differ


@contextmanager
def shown(quiet: bool) -> Iterator[Progress]:
    """Show which stage is under way, how much of it is done, what it has spent, for how long, and how long still."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True, quiet=quiet)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=16),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(
        *columns,
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
        speed_estimate_period=PACE_OVER,
    ) as bars:
        running: dict[str, Any] = {}

        def show(stage: Stage) -> None:
            if stage.doing not in running:
                for task in running.values():
                    bars.update(task, visible=False)
                running.clear()
                running[stage.doing] = bars.add_task(stage.doing, total=None, amount="")
            bars.update(
                running[stage.doing],
                description=described(stage),
                completed=stage.done,
                total=max(stage.of, stage.done) or None,
                amount=amount(stage),
            )

        yield show


def described(stage: Stage) -> str:
    """The stage in words, with what there is to say about it."""
    return f"{stage.doing} ({stage.about})" if stage.about and stage.spent is None else stage.doing


def amount(stage: Stage) -> str:
    """How much is done, what it has spent, and what is known of the time left.

    >>> amount(Stage("writing households", 1000, 5000))
    '1,000 of 5,000'
    """
    from tallytree.privacy.budget import as_decimal

    parts = [f"{stage.done:,} of {stage.of:,}"] if stage.of else []
    if stage.spent is not None and stage.budget is not None:
        parts.append(f"ρ {as_decimal(stage.spent, 3)} of {as_decimal(stage.budget, 3)}")
    return ", ".join(parts)
