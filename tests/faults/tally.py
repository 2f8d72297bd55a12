"""What a harness of faults found: one row of the table that `make torture` prints."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tally:
    """How many runs there were, and in how many of them a promise was broken.

    `lost`: paid for, and neither published nor to be had by going on. `half_written`: something at the target that is
    neither the whole nor nothing. `overspent`: charged more than was published, or published more than was charged.
    `accepted`: changed, and passed as if it were not. `tracebacks`: an error that is not for users. `hung`: no end.
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
    examples: tuple[str, ...] = ()

    @property
    def broken(self) -> int:
        return (
            self.lost
            + self.half_written
            + self.overspent
            + self.accepted
            + self.tracebacks
            + self.hung
            + self.dead_ends
        )
