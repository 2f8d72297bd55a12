"""`Intervals`: a lower and an upper end for every released count, and what both kinds of interval have in common.

*Guaranteed* intervals (`guaranteed`) hold for any truth; *typical* ones (`typical`) hold for data like the released
ones. Which of the two is shorter depends on the data (`recommended`). The truth is the counts of what was kept, where
rows were dropped before counting. Both follow from public measurements and released counts alone: no privacy is spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.estimate.checks import integer_table
from tallytree.privacy.measurements import Measurements

Kind = Literal["guaranteed", "typical"]

ROWS_AT_ONCE = 1 << 14
SHORTER = 0.75  # of the reach of guaranteed intervals: what typical ones must not exceed to be recommended
REACH_SHARE = 0.95  # of the numbers of a level: so many have an interval within the level's reach


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


def cover(low: Any, high: Any, counts: Integers, most: Any) -> tuple[Integers, Integers]:
    """Lower and upper ends: the whole numbers from `low` to `high` that are possible, and the released count.

    Possible are 0 to `most`. An interval of a single number would say that this number is certain. Noise never makes
    it so, whatever its scale: such an interval takes in the numbers beside it, unless `most` is 0.
    """
    low, high = integers_within(low, high, most)
    lower, upper = np.minimum(low, counts), np.maximum(high, counts)
    single = (lower == upper) & (np.asarray(most) > 0)
    lower, upper = np.where(single, lower - 1, lower), np.where(single, np.minimum(upper + 1, most), upper)
    return np.maximum(lower, 0), np.maximum(upper, counts)


def integers_within(low: Any, high: Any, most: Any = 1 << 62) -> tuple[Integers, Integers]:
    """The least and the greatest integer from `low` to `high`, give or take rounding, clipped to 0 and `most`."""
    slack = 1e-9 * (1 + np.minimum(np.abs(low) + np.abs(high), 1e6))
    ends = np.ceil(low - slack), np.floor(high + slack)
    lower, upper = (np.clip(end, 0.0, np.asarray(most, dtype=np.float64)).astype(np.int64) for end in ends)
    return lower, upper


def reaches(found: Intervals, counts: Integers) -> Integers:
    """How far each interval reaches from its count: the distance to the end that is farther away."""
    farthest: Integers = np.maximum(counts - found.lower, found.upper - counts)
    return farthest


def level_reach(found: Intervals, counts: Integers, rows: Integers) -> int:
    """The least m such that `REACH_SHARE` of the intervals of these rows lie within count ± m; 0 if there are none."""
    values, times = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for start in range(0, len(rows), ROWS_AT_ONCE):  # a large level is not copied as a whole
        some = rows[start : start + ROWS_AT_ONCE]
        part = Intervals(found.lower[some], found.upper[some], found.level, found.kind)
        distances = np.concatenate([values, reaches(part, counts[some]).ravel()])
        values, place = np.unique(distances, return_inverse=True)
        times = np.bincount(place, np.concatenate([times, np.ones(len(distances) - len(times))])).astype(np.int64)
    through = np.cumsum(times)
    return int(values[np.searchsorted(through, math.ceil(REACH_SHARE * through[-1]))])


def recommended(reach: Mapping[Kind, int]) -> Kind | None:
    """The kind of interval to use for all numbers of a level, by the reach of both kinds there.

    It is the guaranteed kind, unless the typical one is shorter by a quarter or more, for the guaranteed kind promises
    more. The choice is made for a level as a whole, and not for each number: the shorter of two 95 % intervals of one
    number is chosen by the noise of that number, and holds less often than either.
    """
    if not reach:
        return None
    shorter = "guaranteed" not in reach or ("typical" in reach and reach["typical"] <= SHORTER * reach["guaranteed"])
    return "typical" if shorter else "guaranteed"


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
