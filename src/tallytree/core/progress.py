"""How long work says where it is: one value, told to one kind of listener. Words are put on the screen at the very end.

Whoever works calls `progress(Stage("estimating", 3, 25))`; whoever shows it (a bar, a log, a test) is a function of a
`Stage`. Everything in a stage is public. Who works on a piece of a stage does not know which, and says what part of its
own work is done: `tell(0.5)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Stage:
    """What is being done, and how much of it is done: `done` of `of` pieces, where that is known (`of` > 0).

    Pieces are counted in `unit`, which is "%" where there is no better one. `about` has more words for who reads on. A
    synthesis also says what its rounds have `spent` of a `budget`, in ρ; an experiment how many results were there
    before it began (`resumed`) and how long the rest will take (`seconds_left`).
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
    """Show nothing."""


Tell = Callable[[float], None]  # what part of the work is done, from 0 to 1
STEPS = 1000  # that a stage in parts has


def nobody(part: float) -> None:
    """Tell nobody."""


def in_percent(doing: str, progress: Progress) -> Tell:
    """Tells of a stage by the part of it that is done; the stage begins now."""

    def tell(part: float) -> None:
        progress(Stage(doing, int(STEPS * part), STEPS, unit="%"))

    tell(0.0)
    return tell


def piece(tell: Tell, start: float, stop: float) -> Tell:
    """For who does the work between two parts of a larger one.

    >>> piece(print, 0.5, 0.75)(0.5)
    0.625
    """
    return lambda part: tell(start + (stop - start) * part)
