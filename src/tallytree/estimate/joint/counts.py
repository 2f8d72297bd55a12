"""All regions' counts at once, where every region's total is public: whole, non-negative, adding up both ways.

M_H of the PGSR paper (Fioretto, Van Hentenryck, Zhu, Model 1) with the totals of all regions fixed, as a public list
of groups has them, and not the root's alone. The regions of each size form one tree and the leaves' totals another
family: a convex-cost flow, so the whole numbers' optimum is that of its piecewise linear relaxation and the bound of
`alternating`, which is taken over whole numbers row by row, has no gap of its own. The rounding (`margin_rounding`)
keeps every constraint but is not a flow algorithm; the gap that it leaves is part of the result.
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
from tallytree.estimate.joint.margin_rounding import round_margins, simplex_threshold, whole_simplex
from tallytree.estimate.joint.problem import (
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
class JointCountsResult(Proved):
    """Counts `[regions, sizes]` that keep every constraint, and how near to the best they are proved to be."""

    counts: Integers


def joint_counts(
    noisy: NDArray[Any],
    hierarchy: Hierarchy,
    *,
    totals: NDArray[Any] | None,
    weights: Sequence[Any] | None = None,
    tolerance: float = 1e-3,
) -> JointCountsResult:
    """Non-negative whole numbers `[regions, sizes]` near `noisy`: children add up to their parent, rows to their total.

    Near means a small Σ weight · (value − noisy)², and the result says how much smaller it could be at most. `totals`
    is the public number of groups of every region; all groups are in a column, so size 0 is one of them. `weights` has
    one positive number per level, the inverse of its noise variance say. `tolerance` is the relative gap at which the
    relaxation stops; rounding to whole numbers adds its own.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> result = joint_counts(np.array([[7, 1], [4, -2], [4, 2]]), tree, totals=np.array([9, 4, 5]))
    >>> result.counts
    array([[7, 2],
           [4, 0],
           [3, 2]])
    >>> result.gap
    0.0
    """
    noisy = checked_noisy(noisy, hierarchy)
    if totals is None:
        raise SpecError(
            "joint-counts needs the public total of every region; where totals are private use "
            "pgsr-hierarchical-dp, or joint-cumulative"
        )
    fixed = checked_totals(totals, hierarchy)
    region_weights = checked_weights(weights, hierarchy)
    tolerance = checked_tolerance(tolerance)

    thresholds = np.full(len(noisy), np.nan)  # those of the last projection, from which the next one starts

    def project(
        point: Floats, shift: Floats, penalty: float, whole: bool, nearest: Floats, start: int, stop: int
    ) -> None:
        _project_rows(noisy, point, shift, penalty, whole, fixed, thresholds, nearest, start, stop)

    relaxed = alternate(noisy, hierarchy, region_weights, project, tolerance, MOST_ITERATIONS)
    values = round_margins(noisy, relaxed.prices, hierarchy, fixed)
    objective = objective_of(noisy, values, region_weights)
    bound = proved_bound(noisy, hierarchy, region_weights, project, relaxed, values)
    return JointCountsResult(counts=values, objective=objective, lower_bound=bound, iterations=relaxed.iterations)


@kernel
def _project_rows(
    noisy: Integers,
    point: Floats,
    shift: Floats,
    penalty: float,
    whole: bool,
    totals: Integers,
    thresholds: Floats,
    nearest: Floats,
    start: int,
    stop: int,
) -> None:
    sizes = noisy.shape[1]
    target = np.empty(sizes)
    for region in range(start, stop):
        for size in range(sizes):
            target[size] = noisy[region, size] + shift[region, size]
            if penalty > 0:
                target[size] = (target[size] + penalty * point[region, size]) / (1.0 + penalty)
        if whole:
            nearest[region] = whole_simplex(target, totals[region])
            continue
        threshold = simplex_threshold(target, totals[region], thresholds[region])
        thresholds[region] = threshold
        for size in range(sizes):
            nearest[region, size] = max(target[size] - threshold, 0.0)
