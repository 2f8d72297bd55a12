"""Alternating directions between "children add up" and "every region is possible by itself", with a proved lower bound.

The joint estimators ask for the point nearest to `noisy` (weighted least squares) in the intersection of the linear
space L of consistent tables and a product C of small convex sets, one per region. Either alone is easy: L by
`tree_least_squares` for each size, C by a projection of each row that the caller provides. ADMM (Boyd et al. 2011,
Section 3.4.3 for the over-relaxation) brings them together. With the consistent x, prices d that are orthogonal to L,
and penalty ρ:

    z = project((noisy + d + ρ x) / (1 + ρ)),   x += α (fit(z) − x),   d −= α ρ (z − fit(z)).

Lower bound. For any d orthogonal to L (Σ w d x̄ = 0 for every consistent x̄) and any feasible x,

    Σ w (x − noisy)² = Σ w [(x − noisy)² − 2 d (x − x̄)]  ≥  min over z in C of Σ w [(z − noisy)² − 2 d (z − x̄)],

and that minimum is at project(noisy + d). It holds for the whole numbers in C too: then the minimum is over them,
found row by row as well, and the bound is higher. `proved_bound` computes it with prices that are orthogonal
*exactly*: they are differences of multipliers on a coarse binary grid, so that no sum along a path of the tree is ever
rounded.
"""

from __future__ import annotations

from math import ceil, frexp, ldexp
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats, Integers
from tallytree.estimate.layout import tiles
from tallytree.estimate.tree.least_squares import Pulls, fit_tile
from tallytree.hierarchy import Hierarchy
from tallytree.kernels import blocks, in_threads, kernel

PENALTY = 4.0
RELAXATION = 1.6
CHECK_EVERY = 4
GRID_BITS = 40
CELLS_PER_BLOCK = 1 << 16


class Projection(Protocol):
    """Write the nearest rows of C to (noisy + shift + penalty · point) / (1 + penalty), whole numbers if `whole`."""

    def __call__(
        self, point: Floats, shift: Floats, penalty: float, whole: bool, nearest: Floats, start: int, stop: int
    ) -> None: ...


class Relaxed(NamedTuple):
    """The real solution: `nearest` in C and, nearly, consistent; `consistent` in L; `prices` orthogonal to L."""

    nearest: Floats
    consistent: Floats
    prices: Floats
    iterations: int


def row_blocks(table: NDArray[Any]) -> list[tuple[int, int]]:
    """Blocks of regions to work on together."""
    return blocks(len(table), max(1, CELLS_PER_BLOCK // table.shape[1]))


def size_blocks(table: NDArray[Any]) -> list[tuple[int, int]]:
    """Blocks of sizes to work on together; all of them where threads would cost more than they save."""
    return tiles(table.shape[1]) if table.size > CELLS_PER_BLOCK else [(0, table.shape[1])]


def alternate(
    noisy: Integers, hierarchy: Hierarchy, weights: Floats, project: Projection, tolerance: float, most: int
) -> Relaxed:
    """Iterate until leaves that are summed up cost at most 1 + `tolerance` times the dual bound, or `most` times."""
    pulls = Pulls.of(hierarchy, weights)
    rows, sizes = row_blocks(noisy), size_blocks(noisy)
    x, d, z = np.empty(noisy.shape), np.empty(noisy.shape), noisy.astype(np.float64)
    in_threads(lambda start, stop: _begin(z, x, d, pulls, start, stop), sizes)
    negligible = 1e-6 * float(weights.min())  # of one cell that is off by one
    iteration = 0
    while iteration < most:
        iteration += 1
        in_threads(lambda start, stop: project(x, d, PENALTY, False, z, start, stop), rows)
        in_threads(lambda start, stop: _advance(z, x, d, pulls, start, stop), sizes)
        if iteration % CHECK_EVERY == 0 and iteration < most:
            cost = sum(in_threads(lambda start, stop: _cost_of_sums(noisy, z, weights, pulls, start, stop), sizes))
            in_threads(lambda start, stop: project(x, d, 0.0, False, z, start, stop), rows)
            bound = sum(in_threads(lambda start, stop: _bound(noisy, z, d, x, weights, start, stop), rows))
            if cost - bound <= tolerance * cost + negligible:
                break
    in_threads(lambda start, stop: project(x, d, PENALTY, False, z, start, stop), rows)
    return Relaxed(z, x, d, iteration)


def objective_of(noisy: Integers, values: Integers, weights: Floats) -> float:
    """Σ weight · (value − noisy)²."""
    pieces = in_threads(lambda start, stop: _cost(noisy, values, weights, start, stop), row_blocks(noisy))
    return float(sum(pieces))


def proved_bound(
    noisy: Integers, hierarchy: Hierarchy, weights: Floats, project: Projection, relaxed: Relaxed, feasible: Integers
) -> float:
    """A number that no feasible whole numbers' objective is below. Overwrites the arrays of `relaxed`.

    Float arithmetic is allowed for by a margin: relative for the sums, and for the projections that of a target that is
    off by a few units in the last place of a row's sum. Where all weights are whole numbers so is every objective, and
    the bound is rounded up.
    """
    prices, shift, z = relaxed.prices, relaxed.consistent, relaxed.nearest
    largest = float(np.abs(prices).max() * 2 * weights.max() * hierarchy.depth)
    grid = ldexp(1.0, frexp(largest)[1] - GRID_BITS) if largest > 0 else 1.0
    child_starts, parents, sizes = hierarchy.child_starts, hierarchy.parents, size_blocks(noisy)
    in_threads(lambda a, b: _exact_prices(prices, weights, child_starts, parents, grid, a, b), sizes)
    rows = row_blocks(noisy)

    def piece(start: int, stop: int) -> tuple[float, float]:
        np.divide(prices[start:stop], 2 * weights[start:stop, None], out=shift[start:stop])
        project(shift, shift, 0.0, True, z, start, stop)
        found: tuple[float, float] = _proved(noisy, z, prices, shift, feasible, weights, start, stop)
        return found

    pieces = in_threads(piece, rows)
    bound = sum(value for value, _ in pieces) - sum(margin for _, margin in pieces)
    if np.all(weights == np.round(weights)) and abs(bound) < 1 << 52:
        bound = ceil(bound)
    return max(0.0, float(bound))


@kernel
def _begin(noisy: Floats, x: Floats, d: Floats, pulls: Pulls, start: int, stop: int) -> None:
    fitted = fit_tile(noisy, pulls, start, stop)
    for region in range(noisy.shape[0]):
        for size in range(start, stop):
            x[region, size] = fitted[region, size - start]
            d[region, size] = fitted[region, size - start] - noisy[region, size]


@kernel
def _advance(z: Floats, x: Floats, d: Floats, pulls: Pulls, start: int, stop: int) -> None:
    fitted = fit_tile(z, pulls, start, stop)
    for region in range(z.shape[0]):
        for size in range(start, stop):
            fit = fitted[region, size - start]
            x[region, size] += RELAXATION * (fit - x[region, size])
            d[region, size] -= RELAXATION * PENALTY * (z[region, size] - fit)


@kernel
def _cost_of_sums(noisy: Integers, z: Floats, weights: Floats, pulls: Pulls, start: int, stop: int) -> float:
    """The objective of the table whose leaves are those of z and all else their sums: it is in L and in C."""
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
def _bound(noisy: Integers, z: Floats, d: Floats, x: Floats, weights: Floats, start: int, stop: int) -> float:
    total = 0.0
    for region in range(start, stop):
        row = 0.0
        for size in range(noisy.shape[1]):
            value = z[region, size]
            row += (value - noisy[region, size]) ** 2 - 2 * d[region, size] * (value - x[region, size])
        total += weights[region] * row
    return total


@kernel
def _cost(noisy: Integers, values: Integers, weights: Floats, start: int, stop: int) -> float:
    total = 0.0
    for region in range(start, stop):
        row = 0.0
        for size in range(noisy.shape[1]):
            row += float(values[region, size] - noisy[region, size]) ** 2
        total += weights[region] * row
    return total


@kernel
def _exact_prices(
    prices: Floats, weights: Floats, child_starts: Integers, parents: Integers, grid: float, start: int, stop: int
) -> None:
    """Turn d into λ ≈ 2 w d with Σ λ = 0 along every path from the root to a leaf, without any rounding.

    λ_r = ν_r − ν_parent with a multiplier ν for every parent's "children add up", on the grid; ν is 0 at the leaves.
    """
    regions, width = prices.shape[0], stop - start
    multipliers = np.zeros((regions, width))
    for region in range(regions - 1, -1, -1):
        first, last = child_starts[region], child_starts[region + 1]
        for child in range(first, last):
            for size in range(width):
                multipliers[region, size] += multipliers[child, size] - 2 * weights[child] * prices[child, start + size]
        if first < last:
            for size in range(width):
                multipliers[region, size] = grid * np.round(multipliers[region, size] / (last - first) / grid)
    for region in range(regions):
        for size in range(width):
            above = multipliers[parents[region], size] if region > 0 else 0.0
            prices[region, start + size] = multipliers[region, size] - above


@kernel
def _proved(
    noisy: Integers,
    z: Floats,
    prices: Floats,
    shift: Floats,
    feasible: Integers,
    weights: Floats,
    start: int,
    stop: int,
) -> tuple[float, float]:
    """Some rows' part of the bound, and the margin for errors of floating arithmetic."""
    sizes = noisy.shape[1]
    total, margin = 0.0, 0.0
    for region in range(start, stop):
        row, magnitude, largest = 0.0, 0.0, 0.0
        for size in range(sizes):
            value = z[region, size]
            square = weights[region] * (value - noisy[region, size]) ** 2
            priced = prices[region, size] * (value - feasible[region, size])
            row += square - priced
            magnitude += square + abs(priced)
            largest = max(largest, abs(noisy[region, size] + shift[region, size]))
        total += row
        margin += 2.0**-52 * ((sizes + 64) * magnitude + 16.0 * weights[region] * sizes * sizes * (largest + 1.0))
    return total, margin
