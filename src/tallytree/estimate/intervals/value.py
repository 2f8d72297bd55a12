"""`Intervals`: a lower and an upper end for every released count, and what both kinds of interval have in common.

*Guaranteed* intervals (`guaranteed`) hold for any truth; *typical* ones (`typical`) are several times narrower and hold
for data like the released ones. The truth is the counts of what was kept, where rows were dropped before counting. Both
follow from public measurements and released counts alone: no privacy is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallytree.arguments import told
from tallytree.arrays import Integers
from tallytree.errors import SpecError
from tallytree.estimate.checks import integer_table
from tallytree.notebook import briefly
from tallytree.privacy.measurements import Measurements

Kind = Literal["guaranteed", "typical"]


@dataclass(frozen=True, eq=False)
class Intervals:
    """`lower` and `upper` are `[regions, sizes]` like the counts they belong to, and lower ≤ count ≤ upper.

    `level` is the probability, over the noise, with which an interval holds the true count: each cell's by itself, or,
    where `simultaneous`, those of all sizes of one region together.
    """

    lower: Integers
    upper: Integers
    level: float
    kind: Kind
    simultaneous: bool = False

    __repr__ = briefly


def checked_level(level: object) -> float:
    """A level of confidence: a number from 0.5 to 0.9999, or a SpecError that says so."""
    if isinstance(level, bool) or not isinstance(level, Real) or not 0.5 <= level <= 0.9999:  # type: ignore[operator]
        raise SpecError(
            f"the level of an interval is {told(level)}; expected a number from 0.5 to 0.9999, such as 0.95"
        )
    return float(level)


def checked_counts(counts: NDArray[Any], measurements: Measurements) -> Integers:
    """Released counts of the measurements' shape, or a SpecError."""
    sizes = measurements.max_size - measurements.first_size + 1
    return integer_table(counts, len(measurements.hierarchy), sizes, name="counts")


def most_groups(measurements: Measurements) -> Integers:
    """No count of a region exceeds this: its public total, or 2⁶² where totals are private."""
    if measurements.region_totals is not None:
        return measurements.region_totals
    return np.full(len(measurements.hierarchy), 1 << 62, dtype=np.int64)
