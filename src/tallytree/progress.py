"""How long work says where it is: one value, told to one kind of listener. Words are put on the screen at the very end.

Whoever works calls `progress(Stage("estimating", 3, 25))`; whoever shows it (a bar, a log, a test) is a function of a
`Stage`. Everything in a stage is public.
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
