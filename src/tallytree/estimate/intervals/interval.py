"""Define `Intervals`: a lower and an upper end for every released count, and the parts that all kinds share.

*Guaranteed* intervals (`guaranteed`) hold for any truth; *typical* ones (`typical`) hold for data like the released
ones. Which of the two is shorter depends on the data (`recommended`). If rows were dropped before counting, the truth
is the counts of the remaining rows. Both follow from public measurements and released counts alone: they cost no
privacy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arguments import told
from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.core.numbers import EXACT
from tallytree.estimate.checks import integer_table
from tallytree.privacy.measurements import Measurements

Kind = Literal["guaranteed", "typical"]

ROWS_AT_ONCE = 1 << 14
SHORTER = 0.75  # typical intervals are recommended if their reach is at most this part of the guaranteed ones'
REACH_SHARE = 0.95  # the share of a level's numbers whose interval lies within the level's reach


@dataclass(frozen=True, eq=False)
class Intervals:
    """`lower` and `upper` are `[regions, sizes]` like the counts they belong to, and lower ≤ count ≤ upper.

    `level` is the probability, over the noise, that an interval contains the true count: of each cell alone or, if
    `simultaneous`, of all sizes of one region together.
    """

    lower: Integers
    upper: Integers
    level: float
    kind: Kind
    simultaneous: bool = False

    __repr__ = briefly


def cover(low: Any, high: Any, counts: Integers, most: Any) -> tuple[Integers, Integers]:
    """Return lower and upper ends: the possible integers from `low` to `high`, and the released count.

    The integers from 0 to `most` are possible. An interval of a single number would say that this number is certain,
    and with noise of any scale it never is. So such an interval is extended by the neighbouring numbers, unless `most`
    is 0.
    """
    low, high = integers_within(low, high, most)
    lower, upper = np.minimum(low, counts), np.maximum(high, counts)
    single = (lower == upper) & (np.asarray(most) > 0)
    lower, upper = np.where(single, lower - 1, lower), np.where(single, np.minimum(upper + 1, most), upper)
    return np.maximum(lower, 0), np.maximum(upper, counts)


def integers_within(low: Any, high: Any, most: Any = 1 << 62) -> tuple[Integers, Integers]:
    """Return the least and the greatest integer from `low` to `high`, up to rounding, clipped to 0 and `most`."""
    slack = 1e-9 * (1 + np.minimum(np.abs(low) + np.abs(high), 1e6))
    ends = np.ceil(low - slack), np.floor(high + slack)
    lower, upper = (np.clip(end, 0.0, np.asarray(most, dtype=np.float64)).astype(np.int64) for end in ends)
    return lower, upper


def reaches(found: Intervals, counts: Integers) -> Integers:
    """Return how far each interval reaches from its count: the distance to the farther end."""
    farthest: Integers = np.maximum(counts - found.lower, found.upper - counts)
    return farthest


def level_reach(found: Intervals, counts: Integers, rows: Integers) -> int:
    """Return the least m such that `REACH_SHARE` of these rows' intervals lie within count ± m; 0 without rows."""
    values, times = np.zeros(1, np.int64), np.zeros(1, np.int64)
    for start in range(0, len(rows), ROWS_AT_ONCE):  # in blocks, to avoid a copy of a large level
        some = rows[start : start + ROWS_AT_ONCE]
        part = Intervals(found.lower[some], found.upper[some], found.level, found.kind)
        distances = np.concatenate([values, reaches(part, counts[some]).ravel()])
        values, place = np.unique(distances, return_inverse=True)
        times = np.bincount(place, np.concatenate([times, np.ones(len(distances) - len(times))])).astype(np.int64)
    through = np.cumsum(times)
    return int(values[np.searchsorted(through, math.ceil(REACH_SHARE * through[-1]))])


def recommended(reach: Mapping[Kind, int]) -> Kind | None:
    """Return the kind of interval to use for all numbers of a level, from the reach of both kinds there.

    It is the guaranteed kind, which promises more, unless the typical one is shorter by a quarter or more. The choice
    is made for a whole level and not for each number. Otherwise the noise of a number would choose the shorter of its
    two 95 % intervals, and that one holds less often than either.
    """
    if not reach:
        return None
    shorter = "guaranteed" not in reach or ("typical" in reach and reach["typical"] <= SHORTER * reach["guaranteed"])
    return "typical" if shorter else "guaranteed"


def checked_level(level: object) -> float:
    """Return a level of confidence from 0.5 to 0.9999; refuse anything else with a SpecError."""
    if isinstance(level, bool | str) or not isinstance(level, EXACT) or not 0.5 <= level <= 0.9999:  # type: ignore[operator]
        raise SpecError(
            f"the level of an interval is {told(level)}; expected a number from 0.5 to 0.9999, such as 0.95"
        )
    return float(level)


def checked_counts(counts: NDArray[Any], measurements: Measurements) -> Integers:
    """Return released counts of the measurements' shape; refuse others with a SpecError."""
    sizes = measurements.max_size - measurements.first_size + 1
    return integer_table(counts, len(measurements.hierarchy), sizes, name="counts")


def most_groups(measurements: Measurements) -> Integers:
    """Return an upper limit of each region's counts: its public total, or 2⁶² if totals are private."""
    if measurements.region_totals is not None:
        return measurements.region_totals
    return np.full(len(measurements.hierarchy), 1 << 62, dtype=np.int64)
