"""All regions' `at_least` counts at once: whole, non-increasing, adding up, within totals, near the noisy ones.

Model 2 of the PGSR paper (M_c; Fioretto, Van Hentenryck, Zhu, Section 9) for the whole tree at any depth. With two
levels it is a flow problem; from three on its linear constraints are not integral, so instead of a solver that
searches there is a relaxation with a proved lower bound (`alternating`) and a rounding that keeps every constraint
(`cumulative_rounding`). How far the result can be from the best possible is part of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.estimate.joint.alternating import alternate, objective_of, proved_bound
from tallytree.estimate.joint.cumulative_rounding import round_cumulative
from tallytree.estimate.joint.problem import (
    VALUE_LIMIT,
    Proved,
    checked_noisy,
    checked_tolerance,
    checked_totals,
    checked_weights,
)
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import kernel

MOST_ITERATIONS = 200


@dataclass(frozen=True, eq=False, kw_only=True)
class JointResult(Proved):
    """`at_least` counts `[regions, sizes]` that keep every constraint, and how near to the best they are at least."""

    counts_at_least: Integers


def joint_cumulative(
    noisy: NDArray[Any],
    hierarchy: Hierarchy,
    *,
    totals: NDArray[Any] | int | None = None,
    weights: Sequence[Any] | None = None,
    tolerance: float = 1e-3,
) -> JointResult:
    """Non-increasing whole numbers `[regions, sizes]` near `noisy` for which children add up to their parent.

    Near means a small Σ weight · (value − noisy)², and the result says how much smaller it could be at most. `totals`:
    the public number of groups of every region, which no value of the region exceeds (the rest have size 0); or one
    number for the root alone, which its first value then equals, as in the paper, where no group is empty; or None.
    `weights` has one positive number per level, the inverse of its noise variance say. `tolerance` is the relative gap
    at which the relaxation stops; rounding to whole numbers adds its own.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> result = joint_cumulative(np.array([[9, 5], [5, 6], [3, -2]]), tree, totals=np.array([10, 6, 4]))
    >>> result.counts_at_least
    array([[9, 5],
           [6, 5],
           [3, 0]])
    >>> result.gap
    0.0
    """
    noisy = checked_noisy(noisy, hierarchy)
    region_weights = checked_weights(weights, hierarchy)
    tolerance = checked_tolerance(tolerance)
    upper, bounded, fixed = _bounds(totals, hierarchy)

    def project(
        point: Floats, shift: Floats, penalty: float, whole: bool, nearest: Floats, start: int, stop: int
    ) -> None:
        _project_rows(noisy, point, shift, penalty, whole, upper, fixed, nearest, start, stop)

    relaxed = alternate(noisy, hierarchy, region_weights, project, tolerance, MOST_ITERATIONS)
    root = np.empty((1, noisy.shape[1]))
    project(relaxed.consistent, relaxed.prices, 0.0, True, root, 0, 1)
    values = round_cumulative(root[0], relaxed, noisy, hierarchy, upper, bounded)
    objective = objective_of(noisy, values, region_weights)
    bound = proved_bound(noisy, hierarchy, region_weights, project, relaxed, values)
    return JointResult(counts_at_least=values, objective=objective, lower_bound=bound, iterations=relaxed.iterations)


def _bounds(totals: Any, hierarchy: Hierarchy) -> tuple[Integers, bool, bool]:
    """Every region's upper bound, whether these are public totals, and whether the root's first value is fixed."""
    upper = np.full(len(hierarchy), np.iinfo(np.int64).max, dtype=np.int64)
    if totals is None:
        return upper, False, False
    if isinstance(totals, int | np.integer) and not isinstance(totals, bool):
        if not 0 <= totals < VALUE_LIMIT:
            raise SpecError(f"the root's total is {totals}; expected a whole number from 0 to 2⁴⁵")
        upper[0] = totals
        return upper, False, True
    return checked_totals(totals, hierarchy), True, False


@kernel
def _project_rows(
    noisy: Integers,
    point: Floats,
    shift: Floats,
    penalty: float,
    whole: bool,
    upper: Integers,
    fixed: bool,
    nearest: Floats,
    start: int,
    stop: int,
) -> None:
    """Pool adjacent violators, clip to 0 … upper; whole numbers by ⌊z + ½⌋ (the proof is in `isotonic`)."""
    sizes = noisy.shape[1]
    means, counts = np.empty(sizes), np.empty(sizes, dtype=np.int64)
    for region in range(start, stop):
        most = float(upper[region])
        size = 0
        if fixed and region == 0:
            nearest[region, 0] = most
            size = 1
        begin, pools = size, 0
        while size < sizes:
            mean = noisy[region, size] + shift[region, size]
            if penalty > 0:
                mean = (mean + penalty * point[region, size]) / (1.0 + penalty)
            count = 1
            while pools > 0 and means[pools - 1] <= mean:
                pools -= 1
                mean = (mean * count + means[pools] * counts[pools]) / (count + counts[pools])
                count += counts[pools]
            means[pools], counts[pools] = mean, count
            pools += 1
            size += 1
        size = begin
        for pool in range(pools):
            value = means[pool]
            if whole:
                value = np.floor(value + 0.5)
            value = min(max(value, 0.0), most)
            for place in range(size, size + counts[pool]):
                nearest[region, place] = value
            size += counts[pool]
