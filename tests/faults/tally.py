"""What a harness of faults found: one row of the table that `make torture` prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

EXAMPLES = 12  # that are kept of one harness
Tell = Callable[[int], None]  # how many runs are done


def silent(_done: int) -> None:
    """Tells nobody."""


@dataclass(frozen=True)
class Tally:
    """How many runs there were, and in how many of them a promise was broken.

    `lost`: paid for, and neither published nor to be had by going on; or a file of the user's own that is gone.
    `half_written`: something at the target that is neither the whole nor nothing. `overspent`: charged more than was
    published, or published more than was charged. `accepted`: changed, and passed as if it were not. `tracebacks`: an
    error that is not for users. `hung`: no end. `dead_ends`: nothing was lost, and no command goes on. `untold`: an
    error that does not say whether something was spent, or says it wrongly. `left_over`: files of our own that stay
    beside a finished release. `wrong`: an estimate that is negative, does not add up or is not near enough.
    """

    name: str
    runs: int
    lost: int = 0
    half_written: int = 0
    overspent: int = 0
    accepted: int = 0
    tracebacks: int = 0
    hung: int = 0
    dead_ends: int = 0
    untold: int = 0
    left_over: int = 0
    wrong: int = 0
    examples: tuple[str, ...] = ()

    @property
    def broken(self) -> int:
        return sum(getattr(self, name) for name in COUNTED)

    def __add__(self, other: Tally) -> Tally:
        """Both together, under the first one's name."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("runs", *COUNTED)}
        return replace(self, **sums, examples=(*self.examples, *other.examples)[:EXAMPLES])


COUNTED = tuple(field.name for field in fields(Tally) if field.name not in ("name", "runs", "examples"))
