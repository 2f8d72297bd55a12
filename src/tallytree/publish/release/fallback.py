"""A paid measurement is never lost to an estimator that fails: another mechanism that asks for the same takes over.

Exact solvers give up on very noisy numbers, and the papers' tables can have no solution. That shows only once the noise
is drawn, so after the budget is spent. Estimates are post-processing: taking another one costs no privacy, and the
release says which mechanism was asked for, which was used and why.

An estimate is used only if its counts are non-negative integers that add up over regions and categories and keep the
totals that the mechanism promises to keep. One that breaks this is a failure like any other.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from typing import Any

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.names import briefly
from tallytree.core.progress import Tell, nobody
from tallytree.estimate.checks import check_estimate
from tallytree.mechanisms import Estimate, Mechanism, instead_of
from tallytree.privacy.measurements import Measurements


class MechanismReplaced(UserWarning):
    """The mechanism that was asked for failed, and another one estimated from its measurements."""


class NotEstimated(ReleaseError):
    """No mechanism could estimate from these measurements. They are paid for, and here: `measurements`."""

    def __init__(self, message: str, measurements: Measurements) -> None:
        super().__init__(message)
        self.measurements = measurements


@dataclass(frozen=True)
class Fallback:
    """Which mechanism was asked for and measured, and why another one had to estimate."""

    asked: Mechanism
    why: str

    def in_words(self, used: Mechanism) -> str:
        """One sentence."""
        return (
            f"{self.asked.name} was asked for and failed on these measurements ({self.why}), so {used.name} estimated "
            "from them instead"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the privacy statement."""
        return {"asked_for": {"name": self.asked.name, "options": self.asked.options}, "failed_because": self.why}


@dataclass(frozen=True, eq=False)
class Made:
    """An estimate, which mechanism it is of, how long it took, and what failed before it."""

    estimate: Estimate
    by: Mechanism
    seconds: float
    fallback: Fallback | None

    __repr__ = briefly

    @property
    def certificate(self) -> str:
        """What was proved of the counts, and by which way they came about."""
        proved = self.estimate.certificate
        return proved if self.fallback is None else f"{proved}; {self.fallback.in_words(self.by)}"


def estimate_surely(measurements: Measurements, mechanism: Mechanism, tell: Tell = nobody) -> Made:
    """The mechanism's estimate or, if it fails, that of another one from the same measurements.

    Everything here is public, and whatever an estimator or its solver raises is a reason to try the next.
    """
    failed: list[str] = []
    for one in (mechanism, *instead_of(mechanism, measurements)):
        start = time.perf_counter()
        try:
            estimate = one.estimated(measurements, tell)
            check_counts(estimate.counts, measurements, one)
        except Exception as error:
            failed.append(str(error) or type(error).__name__)
            continue
        fallback = Fallback(mechanism, failed[0].rstrip(".")) if failed else None
        if fallback is not None:
            warnings.warn(fallback.in_words(one), MechanismReplaced, stacklevel=4)
        return Made(estimate, one, time.perf_counter() - start, fallback)
    raise NotEstimated(
        f"no mechanism could estimate from these measurements: {'; '.join(failed)}. The budget is spent; the "
        "measurements are kept, and `resume` (--resume) goes on from them with another mechanism. In Python they are "
        "in this error's `measurements` too.",
        measurements,
    )


def check_counts(counts: Integers, measurements: Measurements, mechanism: Mechanism) -> None:
    """Refuse counts that are negative, do not add up, or do not keep the totals that the mechanism keeps."""
    tree, totals, sizes = measurements.hierarchy, measurements.known_totals, measurements.columns("counts")
    if totals is not None and not mechanism.keeps_totals:
        totals = None if measurements.region_totals is None else totals[:1]
    check_estimate(counts, tree, sizes, totals)
    if (listed := measurements.listed_totals) is not None:
        check_estimate(tree.over_categories(counts), tree.regions, sizes, listed)
