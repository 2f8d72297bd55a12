"""The problem of `nearest` in real numbers instead of whole ones: which leaves are positive, and what follows.

Write w and y for a region's weight and noisy count. Give a unit in a region the price λ; its subtree then holds

- a leaf:   S(λ) = max(0, y + λ / 2w);
- a region: S(λ) = C(v) with C = the sum of its children's S and λ = v + 2w(C(v) − y),

because at the optimum the last unit in a region costs 2w(x − y) there and v below, the same for every child that is
not empty. For given positive leaves everything is linear, C(v) = base + slope · v: sums over the leaves up the tree.
So is what follows: the price at which all sizes hold the total, and below it every region's

    v = (λ + 2w(y − base)) / (1 + 2w · slope),

down the tree to the leaves' parents, where it says which leaves are positive: y > −v / 2w. Repeat until that stays
the same; then it is the optimum.

Why that ends, and soon. Repeating is the primal-dual active set method (Hintermüller, Ito, Kunisch: The primal-dual
active set strategy as a semismooth Newton method, 2003) for min Σ w(x − y)² over the leaves. Its matrix, Σ w11ᵀ over
the regions, is an ultrametric one, whose inverse is an M-matrix (Martínez, Michon, San Martín, 1994); for those the
method is proven to be monotone from the second step on, whatever it begins with. Each step is a pass over the leaves
that only adds and compares; noisy counts take about ten, whatever the noise and whatever the depth.

Floats are good enough here: whatever they get wrong is put right, exactly, in `exchange`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import in_threads, kernel, part_of_kernels
from tallytree.estimate.layout import Tree, wide_tiles

STEPS = 200  # at most, should floats go round in circles
PARENT_STEPS = 2  # of the same kind on the leaves of one parent, while they are in the cache
# Leaves this close to zero, relative to the price, are not positive: the noise of floats must not decide.
CLOSE = 1e-11


class Lines(NamedTuple):
    """C of every region above the leaves in every size, and S of the roots, on the piece of the current price."""

    bases: Floats  # [regions above the leaves, sizes]
    slopes: Floats
    root_bases: Floats  # [sizes]
    root_slopes: Floats


def relaxed(noisy: Integers, tree: Tree, total: int | None) -> tuple[Lines, Floats]:
    """The lines of the real optimum, and what each size's root holds there.

    Without a total the price of a unit is 0: nothing need be paid.
    """
    sizes, inner = noisy.shape[1], noisy.shape[0] - int(tree.leaf_counts[0])
    lines = Lines(np.zeros((inner, sizes)), np.zeros((inner, sizes)), np.zeros(sizes), np.zeros(sizes))
    pieces = wide_tiles(sizes)
    times = STEPS if total is None else 1
    price = 0.0

    def step(start: int, stop: int) -> int:
        return _step(noisy, tree, lines, price, start, stop, times)

    for _ in range(STEPS):
        changed = sum(in_threads(step, pieces))
        slope = float(lines.root_slopes.sum())
        if total is None or (changed == 0 and (slope > 0 or total == 0)):
            break
        # Where no leaf is positive, the price was too low.
        price = (total - float(lines.root_bases.sum())) / slope if slope > 0 else 2 * abs(price) + 1
    return lines, lines.root_bases + lines.root_slopes * price


@kernel
def _step(noisy: Integers, tree: Tree, lines: Lines, price: float, start: int, stop: int, times: int) -> int:
    """Find the positive leaves of the sizes `start … stop - 1` at a price, and the lines for these; how many changed.

    At most so many times, until nothing changes. Changes are counted by parents of leaves.
    """
    regions, width = noisy.shape[0], stop - start
    leaves = tree.leaf_counts[0]
    inner = regions - leaves
    if inner == 0:
        return _step_alone(noisy, tree, lines, price, start, stop)
    prices = np.empty((inner, width))
    sums, counts = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    least = np.empty(width, dtype=np.int64)
    above = np.empty(width)
    changed = 0
    for _ in range(times):
        changed = 0
        for region in range(inner):
            first, last = tree.child_starts[region], tree.child_starts[region + 1]
            if region == 0:
                above[:] = price
            else:
                above[:] = prices[tree.parents[region]]
            bases, slopes = lines.bases[region, start:stop], lines.slopes[region, start:stop]
            doubled, mine, here = 2.0 * tree.weights[region], noisy[region, start:stop], prices[region]
            _below(above, bases, slopes, mine, doubled, here)
            if first < inner:
                bases[:] = 0.0
                slopes[:] = 0.0
                continue
            slope = 0.5 / tree.weights[first]
            for again in range(PARENT_STEPS):
                _positive(noisy, first, last, start, stop, here, slope, least, sums, counts)
                different = 0
                for place in range(width):
                    different += (bases[place] != sums[place]) | (slopes[place] != slope * counts[place])
                    bases[place] = sums[place]
                    slopes[place] = slope * counts[place]
                if again == 0:
                    changed += different
                if different == 0:
                    break
                _below(above, bases, slopes, mine, doubled, here)
        for region in range(inner - 1, -1, -1):
            doubled, mine = 2.0 * tree.weights[region], noisy[region, start:stop]
            bases, slopes = lines.bases[region, start:stop], lines.slopes[region, start:stop]
            if region == 0:
                lines.root_bases[start:stop] = 0.0
                lines.root_slopes[start:stop] = 0.0
                _lift(bases, slopes, mine, doubled, lines.root_bases[start:stop], lines.root_slopes[start:stop])
            else:
                parent = tree.parents[region]
                _lift(bases, slopes, mine, doubled, lines.bases[parent, start:stop], lines.slopes[parent, start:stop])
        if changed == 0:
            break
    return changed


@part_of_kernels
def _below(above: Floats, bases: Floats, slopes: Floats, noisy: Integers, doubled: float, prices: Floats) -> None:
    """The price v below a region with the price λ: λ = v + 2w(base + slope · v − y)."""
    for place in range(len(prices)):
        prices[place] = (above[place] + doubled * (noisy[place] - bases[place])) / (1.0 + doubled * slopes[place])


@part_of_kernels
def _lift(
    bases: Floats, slopes: Floats, noisy: Integers, doubled: float, upper_bases: Floats, upper_slopes: Floats
) -> None:
    """Add a region's S, as a line, to its parent's C: the slope σ of C becomes σ / (1 + 2wσ)."""
    for place in range(len(bases)):
        slope = slopes[place] / (1.0 + doubled * slopes[place])
        upper_bases[place] += bases[place] - doubled * slope * (bases[place] - noisy[place])
        upper_slopes[place] += slope


@part_of_kernels
def _positive(
    noisy: Integers,
    first: int,
    last: int,
    start: int,
    stop: int,
    prices: Floats,
    slope: float,
    least: Integers,
    sums: Integers,
    counts: Integers,
) -> None:
    """How many of a parent's leaves are positive at its prices, and the sum of their noisy counts."""
    for place in range(len(prices)):
        least[place] = _least_positive(prices[place], slope)
    sums[:] = 0
    counts[:] = 0
    for leaf in range(first, last):
        row = noisy[leaf, start:stop]
        for place in range(len(row)):
            is_positive = row[place] >= least[place]
            sums[place] += row[place] if is_positive else 0
            counts[place] += is_positive


@part_of_kernels
def _least_positive(price: float, slope: float) -> int:
    """The least noisy count of a leaf that is positive at a price."""
    shift = min(max(-slope * price, -4e18), 4e18)
    return int(np.floor(shift + CLOSE * (1.0 + abs(shift)))) + 1


@part_of_kernels
def _step_alone(noisy: Integers, tree: Tree, lines: Lines, price: float, start: int, stop: int) -> int:
    """The same where the root is the only leaf."""
    slope = 0.5 / tree.weights[0]
    least = _least_positive(price, slope)
    changed = 0
    for size in range(start, stop):
        is_positive = noisy[0, size] >= least
        base, rise = (noisy[0, size], slope) if is_positive else (0, 0.0)
        changed += lines.root_slopes[size] != rise
        lines.root_bases[size], lines.root_slopes[size] = base, rise
    return changed
