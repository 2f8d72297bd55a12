"""Progress of long work: one value that is passed to one kind of listener. Words are formatted only on display.

A worker calls `progress(Stage("estimating", 3, 25))`. A listener (a bar, a log, a test) is a function of a `Stage`.
Everything in a stage is public. A worker on a piece of a stage reports the completed part of its own work: `tell(0.5)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Stage:
    """The current work and how much of it is done: `done` of `of` pieces, if that is known (`of` > 0).

    Pieces are counted in `unit`; the default is "%". `about` has more details. A synthesis also reports how much of a
    `budget` its rounds have `spent`, in ρ. An experiment reports how many results existed before it began (`resumed`)
    and how long the rest will take (`seconds_left`).
    """

    doing: str
    done: int = 0
    of: int = 0
    about: str = ""
    unit: str = ""
    spent: Fraction | None = None
    budget: Fraction | None = None
    resumed: int = 0
    seconds_left: float | None = None


Progress = Callable[[Stage], None]


def silent(stage: Stage) -> None:
    """Ignore a stage."""


Tell = Callable[[float], None]  # called with the part of the work that is done, from 0 to 1
STEPS = 1000  # the number of steps in a stage that reports parts


def nobody(part: float) -> None:
    """Ignore progress."""


def in_percent(doing: str, progress: Progress) -> Tell:
    """Return a function that reports the completed part of a stage; the stage begins now."""

    def tell(part: float) -> None:
        progress(Stage(doing, int(STEPS * part), STEPS, unit="%"))

    tell(0.0)
    return tell


def piece(tell: Tell, start: float, stop: float) -> Tell:
    """Return a `tell` for work that lies between two parts of a larger work.

    >>> piece(print, 0.5, 0.75)(0.5)
    0.625
    """
    return lambda part: tell(start + (stop - start) * part)
