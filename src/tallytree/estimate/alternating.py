"""Shared parts of the joint estimators: alternating directions, a rounding from the top down, and a proved lower bound.

The joint estimators look for the point nearest to `noisy` (weighted least squares) in the intersection of the linear
space L of consistent tables and a product C of small convex sets, one per region. Either alone is easy: L by
`tree_least_squares` for each size, C by a projection of each row that the caller provides. ADMM (Boyd et al. 2011,
Section 3.4.3 for the over-relaxation) brings them together. With the consistent x, dual variables d that are orthogonal
to L, and penalty ρ:

    z = project((noisy + d + ρ x) / (1 + ρ)),   x += α (fit(z) − x),   d −= α ρ (z − fit(z)).

Lower bound. For any d orthogonal to L (Σ w d x̄ = 0 for every consistent x̄) and any feasible x,

    Σ w (x − noisy)² = Σ w [(x − noisy)² − 2 d (x − x̄)]  ≥  min over z in C of Σ w [(z − noisy)² − 2 d (z − x̄)],

and that minimum is at project(noisy + d). The bound holds for the integers in C too: then the minimum is over integers,
also found row by row, and the bound is higher. `_proved_bound` computes it with dual variables that are orthogonal
*exactly*: they are differences of multipliers on a coarse binary grid, so that no sum along a path of the tree is ever
rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil, frexp, isfinite, ldexp
from typing import Any, NamedTuple, Protocol

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads, kernel
from tallytree.core.names import briefly
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import (
    Weights,
    check_adding_up,
    check_sums,
    integer_table,
    level_weights,
    magnitude,
    row_totals,
)
from tallytree.estimate.layout import row_blocks, tiles
from tallytree.estimate.least_squares import Pulls, fit_tile

VALUE_LIMIT = 1 << 52  # beyond it, floats do not hold every integer
WEIGHT_RATIO_LIMIT = 1e9
PENALTY = 4.0
RELAXATION = 1.6
MOST_ITERATIONS = 200
CHECK_EVERY = 4  # iterations
GRID_BITS = 40
CELLS_PER_BLOCK = 1 << 16

# Exchanges between siblings, after rounding: how many siblings each child is tried with, how often, and for what gain.
MOST_PARTNERS = 64
PASSES_PER_CHILD = 64  # about, in at most MOST_ROUNDS rounds
MOST_ROUNDS = 8
LEAST_GAIN = 1e-6


class Target(NamedTuple):
    """The target of a projection: (noisy + shift + penalty · point) / (1 + penalty)."""

    noisy: Integers
    point: Floats
    shift: Floats
    penalty: float


@kernel
def put_target(target: Target, region: int, row: Floats) -> None:
    """Write a region's row of a target."""
    noisy, point, shift, penalty = target
    for size in range(len(row)):
        value = noisy[region, size] + shift[region, size]
        row[size] = (value + penalty * point[region, size]) / (1.0 + penalty) if penalty > 0 else value


class Projection(Protocol):
    """Write the rows of C nearest to those of `target` from `start` to `stop - 1`, integers if `integer`."""

    def __call__(self, target: Target, integer: bool, nearest: Floats, start: int, stop: int, /) -> None: ...


class Relaxed(NamedTuple):
    """The real solution: `nearest` in C and, nearly, consistent; `consistent` in L; `duals` orthogonal to L."""

    nearest: Floats
    consistent: Floats
    duals: Floats
    iterations: int


@dataclass(frozen=True, eq=False)
class Proved:
    """Integers `[regions, sizes]` that keep every constraint, with a proved bound on their distance to the optimum."""

    values: Integers
    objective: float  # Σ weight · (value − noisy)²
    lower_bound: float  # the objective of all feasible integers is at least this
    iterations: int  # of the relaxation

    __repr__ = briefly

    @property
    def gap(self) -> float:
        """Return the part of the objective that is not proved necessary: 0 means optimal, 0.01 at most 1 % too much."""
        return 0.0 if self.objective <= self.lower_bound else 1 - self.lower_bound / self.objective


def solve(
    noisy: Integers,
    hierarchy: Hierarchy,
    weights: Weights,
    tolerance: float,
    project: Projection,
    rounded: Callable[[Relaxed], Integers],
) -> Proved:
    """Relax until the relative gap is at most `tolerance`, round, and prove a bound on the best integers."""
    if not (isfinite(tolerance) and tolerance >= 0):
        raise SpecError(f"tolerance is {tolerance}; expected a relative gap such as 1e-3")
    region_weights = _region_weights(weights, hierarchy)
    pulls, pieces = Pulls.of(hierarchy, region_weights), _size_blocks(noisy)
    relaxed = _alternate(noisy, region_weights, pulls, project, tolerance)
    values = rounded(relaxed)
    np.copyto(relaxed.nearest, values)
    objective = sum(in_threads(partial(_cost_of_sums, noisy, relaxed.nearest, region_weights, pulls), pieces))
    bound = _proved_bound(noisy, hierarchy, region_weights, project, relaxed, values)
    return Proved(values, float(objective), bound, relaxed.iterations)


def sharp_table(noisy: Any, hierarchy: Hierarchy) -> Integers:
    """Return `[regions, sizes]` of integers small enough for sums in floats."""
    table = integer_table(noisy, len(hierarchy))
    if table.shape[1] == 0:
        raise SpecError("noisy has no sizes; expected at least one column")
    if (largest := magnitude(table)) >= VALUE_LIMIT:
        raise SpecError(f"noisy holds values up to {largest:,}: their sums may overflow; expected less than 2⁵²")
    check_sums(table, max(table.shape))
    return table


def region_totals(totals: Any, hierarchy: Hierarchy) -> Integers:
    """Return one non-negative integer per region, children adding up to their parent."""
    checked = row_totals(totals, len(hierarchy))
    if checked.max() >= VALUE_LIMIT:
        raise SpecError(f"totals reach {checked.max():,}; expected less than 2⁵²")
    check_adding_up(checked, hierarchy)
    return checked


def allocate_levels(root: Integers, hierarchy: Hierarchy, share: Callable[[Integers, int, int, int], None]) -> Integers:
    """Return the table with this first row; `share(values, parent, first, last)` fills its other rows level by level.

    `share` allocates a parent's row to the children `first … last - 1`; an only child takes the row unchanged.
    """
    values = np.empty((len(hierarchy), len(root)), dtype=np.int64)
    values[0] = root
    for level in range(hierarchy.depth - 1):
        parents = hierarchy.level_slice(level)
        count, top = parents.stop - parents.start, parents.start

        def work(start: int, stop: int, top: int = top) -> None:
            for parent in range(top + start, top + stop):
                first, last = int(hierarchy.child_starts[parent]), int(hierarchy.child_starts[parent + 1])
                if last - first == 1:
                    values[first] = values[parent]
                else:
                    share(values, parent, first, last)

        in_threads(work, blocks(count, max(1, count // 16)))
    return values


@kernel
def exchange_rounds(partners: int) -> int:
    """Return how many rounds of exchanges to run among siblings that are each tried with this number of partners."""
    return min(MOST_ROUNDS, max(1, PASSES_PER_CHILD // max(1, partners)))


def _region_weights(weights: Weights, hierarchy: Hierarchy) -> Floats:
    """Return each region's weight, which is its level's."""
    given = [float(weight) for weight in level_weights(weights, hierarchy.depth)]
    if max(given) > WEIGHT_RATIO_LIMIT * min(given):
        raise SpecError(f"weights range from {min(given):g} to {max(given):g}; expected a ratio of at most 10⁹")
    return np.array(given)[hierarchy.level_of]


def _alternate(noisy: Integers, weights: Floats, pulls: Pulls, project: Projection, tolerance: float) -> Relaxed:
    """Iterate until the sums of the leaves cost at most 1 + `tolerance` times the dual bound."""
    rows, sizes = row_blocks(noisy, CELLS_PER_BLOCK), _size_blocks(noisy)
    x, d, z = np.zeros(noisy.shape), np.zeros(noisy.shape), noisy.astype(np.float64)
    in_threads(partial(_advance, z, x, d, pulls, 1.0, 1.0), sizes)
    target, undamped = Target(noisy, x, d, PENALTY), Target(noisy, x, d, 0.0)
    negligible = 1e-6 * float(weights.min())  # of one cell that is off by one
    iteration = 0
    while iteration < MOST_ITERATIONS:
        iteration += 1
        in_threads(partial(project, target, False, z), rows)
        in_threads(partial(_advance, z, x, d, pulls, RELAXATION, RELAXATION * PENALTY), sizes)
        if iteration % CHECK_EVERY == 0 and iteration < MOST_ITERATIONS:
            cost = sum(in_threads(partial(_cost_of_sums, noisy, z, weights, pulls), sizes))
            in_threads(partial(project, undamped, False, z), rows)
            bounds = in_threads(partial(_dual_bound, undamped, z, d, 2 * weights, x, weights), rows)
            if cost - sum(bound for bound, _ in bounds) <= tolerance * cost + negligible:
                break
    in_threads(partial(project, target, False, z), rows)
    return Relaxed(z, x, d, iteration)


def _proved_bound(
    noisy: Integers, hierarchy: Hierarchy, weights: Floats, project: Projection, relaxed: Relaxed, feasible: Integers
) -> float:
    """Return a lower bound of the objective of all feasible integers. Overwrites the arrays of `relaxed`.

    A margin covers the errors of float arithmetic. It is relative for the sums; for the projections it is that of a
    target that is off by a few units in the last place of a row's sum. If all weights are integers, every objective is
    an integer too, and the bound is rounded up.
    """
    duals, shift, z = relaxed.duals, relaxed.consistent, relaxed.nearest
    largest = float(np.abs(duals).max() * 2 * weights.max() * hierarchy.depth)
    grid = ldexp(1.0, frexp(largest)[1] - GRID_BITS) if largest > 0 else 1.0
    tree = hierarchy.child_starts, hierarchy.parents
    in_threads(partial(_exact_duals, duals, weights, tree, grid), _size_blocks(noisy))
    target, factors = Target(noisy, shift, shift, 0.0), np.ones(len(noisy))

    def piece(start: int, stop: int) -> tuple[float, float]:
        np.divide(duals[start:stop], 2 * weights[start:stop, None], out=shift[start:stop])
        project(target, True, z, start, stop)
        found: tuple[float, float] = _dual_bound(target, z, duals, factors, feasible, weights, start, stop)
        return found

    pieces = in_threads(piece, row_blocks(noisy, CELLS_PER_BLOCK))
    bound = sum(value for value, _ in pieces) - sum(margin for _, margin in pieces)
    if np.all(weights == np.round(weights)) and abs(bound) < 1 << 52:
        bound = ceil(bound)
    return max(0.0, float(bound))


def _size_blocks(table: Integers) -> list[tuple[int, int]]:
    """Return blocks of sizes to work on together; one block if threads would cost more than they save."""
    return tiles(table.shape[1]) if table.size > CELLS_PER_BLOCK else [(0, table.shape[1])]


@kernel
def _advance(
    z: Floats, x: Floats, d: Floats, pulls: Pulls, relaxation: float, step: float, start: int, stop: int
) -> None:
    fitted = fit_tile(z, pulls, start, stop)
    for region in range(z.shape[0]):
        for size in range(start, stop):
            fit = fitted[region, size - start]
            x[region, size] += relaxation * (fit - x[region, size])
            d[region, size] -= step * (z[region, size] - fit)


@kernel
def _cost_of_sums(noisy: Integers, z: Floats, weights: Floats, pulls: Pulls, start: int, stop: int) -> float:
    """Return the objective of the table that adds up the leaves of z: it is in L and in C."""
    regions, width = z.shape[0], stop - start
    sums = np.zeros((regions, width))
    cost = 0.0
    for region in range(regions - 1, -1, -1):
        first, last = pulls.child_starts[region], pulls.child_starts[region + 1]
        if first == last:
            for size in range(width):
                sums[region, size] = z[region, start + size]
        for child in range(first, last):
            for size in range(width):
                sums[region, size] += sums[child, size]
        for size in range(width):
            cost += weights[region] * (sums[region, size] - noisy[region, start + size]) ** 2
    return cost


@kernel
def _exact_duals(
    duals: Floats, weights: Floats, tree: tuple[Integers, Integers], grid: float, start: int, stop: int
) -> None:
    """Replace d by λ ≈ 2 w d with Σ λ = 0 along every path from the root to a leaf, without any rounding.

    λ_r = ν_r − ν_parent with a multiplier ν for every parent's "children add up", on the grid; ν is 0 at the leaves.
    """
    child_starts, parents = tree
    regions, width = duals.shape[0], stop - start
    multipliers = np.zeros((regions, width))
    for region in range(regions - 1, -1, -1):
        first, last = child_starts[region], child_starts[region + 1]
        for child in range(first, last):
            for size in range(width):
                multipliers[region, size] += multipliers[child, size] - 2 * weights[child] * duals[child, start + size]
        if first < last:
            for size in range(width):
                multipliers[region, size] = grid * np.round(multipliers[region, size] / (last - first) / grid)
    for region in range(regions):
        for size in range(width):
            above = multipliers[parents[region], size] if region > 0 else 0.0
            duals[region, start + size] = multipliers[region, size] - above


@kernel
def _dual_bound(
    target: Target, z: Floats, duals: Floats, factors: Floats, x: Any, weights: Floats, start: int, stop: int
) -> tuple[float, float]:
    """Return some rows' part of the bound by the dual variables factor · d at a consistent x, and the margin."""
    sizes = z.shape[1]
    total, margin = 0.0, 0.0
    for region in range(start, stop):
        row, magnitude, largest = 0.0, 0.0, 0.0
        for size in range(sizes):
            value, noisy = z[region, size], target.noisy[region, size]
            square = weights[region] * (value - noisy) ** 2
            shift = factors[region] * duals[region, size] * (value - x[region, size])
            row += square - shift
            magnitude += square + abs(shift)
            largest = max(largest, abs(noisy + target.shift[region, size]))
        total += row
        margin += 2.0**-52 * ((sizes + 64) * magnitude + 16.0 * weights[region] * sizes * sizes * (largest + 1.0))
    return total, margin
