"""If an estimator fails, another mechanism that uses the same measurements takes over, so no paid measurement is
lost.

Exact solvers fail on very noisy numbers, and the papers' linear programs can be infeasible. That shows only once the
noise is drawn, so after the budget is spent. Estimates are post-processing: another estimate costs no privacy. The
release states which mechanism was requested, which one was used and why.

An estimate is used only if its counts are non-negative integers that add up over regions and categories and keep the
totals that the mechanism keeps. An estimate that violates this is a failure like any other.
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
    """The requested mechanism failed, and another one estimated from its measurements."""


class NotEstimated(ReleaseError):
    """No mechanism could estimate from these measurements. They are paid for and available as `measurements`."""

    def __init__(self, message: str, measurements: Measurements) -> None:
        super().__init__(message)
        self.measurements = measurements


@dataclass(frozen=True)
class Fallback:
    """The mechanism that was requested and measured, and why another one estimated."""

    asked: Mechanism
    why: str

    def in_words(self, used: Mechanism) -> str:
        """Return one sentence."""
        return (
            f"{self.asked.name} was requested and failed on these measurements ({self.why}), so {used.name} estimated "
            "from them instead"
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for the privacy statement."""
        return {"asked_for": {"name": self.asked.name, "options": self.asked.options}, "failed_because": self.why}


@dataclass(frozen=True, eq=False)
class Made:
    """An estimate from measurements, its mechanism, its duration, and the mechanisms that failed before it."""

    measurements: Measurements
    estimate: Estimate
    by: Mechanism
    seconds: float
    fallback: Fallback | None

    __repr__ = briefly

    @property
    def counts(self) -> Integers:
        """Return the estimated counts."""
        return self.estimate.counts

    @property
    def certificate(self) -> str:
        """Return what was proved about the counts, and how they were computed."""
        proved = self.estimate.certificate
        return proved if self.fallback is None else f"{proved}; {self.fallback.in_words(self.by)}"


def estimate_surely(measurements: Measurements, mechanism: Mechanism, tell: Tell = nobody) -> Made:
    """Return the mechanism's estimate or, if it fails, that of another mechanism from the same measurements.

    Everything here is public, so any error of an estimator or its solver is a reason to try the next one.
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
        return Made(measurements, estimate, one, time.perf_counter() - start, fallback)
    raise NotEstimated(
        f"no mechanism could estimate from these measurements: {'; '.join(failed)}. The budget is spent; the "
        "measurements are stored, and `resume` (--resume) continues from them with another mechanism. In Python they "
        "are in this error's `measurements` too.",
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
