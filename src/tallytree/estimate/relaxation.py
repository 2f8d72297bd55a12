"""Solve the problem of `nearest` in real numbers: which leaves are positive, and what follows.

Write w and y for a region's weight and noisy count. If a unit in a region has the multiplier λ, the region's subtree
holds

- a leaf:   S(λ) = max(0, y + λ / 2w);
- a region: S(λ) = C(v) with C = the sum of its children's S and λ = v + 2w(C(v) − y),

because at the optimum the last unit in a region costs 2w(x − y) there and v below. The cost v is the same for every
child that is not empty. For given positive leaves everything is linear: C(v) = base + slope · v, with sums over the
leaves that are computed up the tree. So is the multiplier at which all sizes hold the total. Below it, every region has

    v = (λ + 2w(y − base)) / (1 + 2w · slope),

computed down the tree to the leaves' parents. There it says which leaves are positive: y > −v / 2w. Repeat until the
set of positive leaves stays the same; then it is the optimum.

*Why this ends, and soon.* The repetition is the primal-dual active set method (Hintermüller, Ito, Kunisch: The
primal-dual active set strategy as a semismooth Newton method, 2003) for min Σ w(x − y)² over the leaves. Its matrix, Σ
w11ᵀ over the regions, is ultrametric, so its inverse is an M-matrix (Martínez, Michon, San Martín, 1994). For such
matrices the method is proven to be monotone from the second step on, from any starting point. Each step is a pass over
the leaves that only adds and compares. Noisy counts take about ten steps, for any noise and any depth.

Floats are good enough here: the exchanges of `nearest` correct all their errors exactly.

*Integers that add up and are nearly optimal*, the starting point of the exchanges. With the positive leaves fixed,
everything is linear: a region's subtree holds S(λ), its children together C(v) = base + slope · v. So one pass down
gives integers. A region with some units solves C(v) = units, its children get the integer parts of their S(v), and the
remaining units go to the largest fractions. Leaves share their parent's units optimally. All steps work on rows, with
several sizes at once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import in_threads, kernel, part_of_kernels
from tallytree.estimate.layout import Tree, wide_tiles

STEPS = 200  # at most, in case rounding makes the steps cycle
PARENT_STEPS = 2  # steps of the same kind on the leaves of one parent, while they are in the cache
# Leaves this close to zero, relative to the multiplier, are not positive: rounding errors must not decide.
CLOSE = 1e-11


class Lines(NamedTuple):
    """C of every region above the leaves in every size, and S of the roots, on the piece of the current multiplier."""

    bases: Floats  # [regions above the leaves, sizes]
    slopes: Floats
    root_bases: Floats  # [sizes]
    root_slopes: Floats


def solve_relaxation(noisy: Integers, tree: Tree, total: int | None) -> tuple[Lines, Floats]:
    """Return the lines of the real optimum, and what each size's root holds there.

    Without a total the multiplier is 0.
    """
    sizes, inner = noisy.shape[1], noisy.shape[0] - int(tree.leaf_counts[0])
    lines = Lines(np.zeros((inner, sizes)), np.zeros((inner, sizes)), np.zeros(sizes), np.zeros(sizes))
    pieces = wide_tiles(sizes)
    multiplier = 0.0
    for _ in range(STEPS):
        times = STEPS if total is None else 1
        changed = sum(in_threads(partial(_step, noisy, tree, lines, multiplier, times), pieces))
        slope = float(lines.root_slopes.sum())
        if total is None or (changed == 0 and (slope > 0 or total == 0)):
            break
        # Where no leaf is positive, the multiplier was too low.
        multiplier = (total - float(lines.root_bases.sum())) / slope if slope > 0 else 2 * abs(multiplier) + 1
    return lines, lines.root_bases + lines.root_slopes * multiplier


@kernel
def _step(noisy: Integers, tree: Tree, lines: Lines, multiplier: float, times: int, start: int, stop: int) -> int:
    """Find the positive leaves of the sizes `start … stop - 1` and the lines for these; return how many changed.

    Repeat this at most `times` times, until nothing changes. Changes are counted by parents of leaves.
    """
    width, inner = stop - start, noisy.shape[0] - tree.leaf_counts[0]
    multipliers = np.empty((inner, width))
    sums, counts = np.empty(width, dtype=np.int64), np.empty(width, dtype=np.int64)
    least = np.empty(width, dtype=np.int64)
    above = np.empty(width)
    changed = 0
    for _ in range(times):
        changed = 0
        for region in range(inner):
            first, last = tree.child_starts[region], tree.child_starts[region + 1]
            if region == 0:
                above[:] = multiplier
            else:
                above[:] = multipliers[tree.parents[region]]
            bases, slopes = lines.bases[region, start:stop], lines.slopes[region, start:stop]
            doubled, mine, here = 2.0 * tree.weights[region], noisy[region, start:stop], multipliers[region]
            _below(above, bases, slopes, mine, doubled, here)
            if first < inner:
                bases[:] = 0.0
                slopes[:] = 0.0
                continue
            slope = 0.5 / tree.weights[first]
            for again in range(PARENT_STEPS):
                _positive(noisy[first:last], start, here, slope, least, sums, counts)
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
def _below(above: Floats, bases: Floats, slopes: Floats, noisy: Integers, doubled: float, below: Floats) -> None:
    """Write the multiplier v below a region with the multiplier λ: λ = v + 2w(base + slope · v − y)."""
    for place in range(len(below)):
        below[place] = (above[place] + doubled * (noisy[place] - bases[place])) / (1.0 + doubled * slopes[place])


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
    leaves: Integers,
    start: int,
    multipliers: Floats,
    slope: float,
    least: Integers,
    sums: Integers,
    counts: Integers,
) -> None:
    """Count the leaves of a parent that are positive at its multipliers, and add up their noisy counts.

    `least` is the least noisy count of a positive leaf.
    """
    for place in range(len(multipliers)):
        shift = min(max(-slope * multipliers[place], -4e18), 4e18)
        least[place] = int(np.floor(shift + CLOSE * (1.0 + abs(shift)))) + 1
    sums[:] = 0
    counts[:] = 0
    for leaf in range(len(leaves)):
        row = leaves[leaf, start : start + len(multipliers)]
        for place in range(len(row)):
            is_positive = row[place] >= least[place]
            sums[place] += row[place] if is_positive else 0
            counts[place] += is_positive


# -------------------------------------------------------------------- integers


# Fractions are compared to this precision, so that rounding errors do not decide between equal ones.
FRACTION_STEPS = 1 << 20


def integer_root(amounts: Floats, total: int | None) -> Integers:
    """Return what each size's root holds: the amounts rounded, halves up, or parts of the total."""
    if total is None:
        return np.floor(amounts + 0.5).astype(np.int64)
    values = np.empty(len(amounts), dtype=np.int64)
    integer_parts(amounts, total, total % len(amounts), values)
    return values


@kernel
def integer_parts(reals: Floats, total: int, start: int, parts: Integers) -> None:
    """Write non-negative integers near `reals` that add up to `total`; among equal fractions, `start` comes first."""
    count = len(reals)
    left = total
    for index in range(count):
        parts[index] = np.int64(np.floor(min(max(reals[index], 0.0), np.float64(total))))
        left -= parts[index]
    for _ in range(count):  # each turn removes the whole surplus or empties a part
        if left >= 0:
            break
        most = (count - 1 - left) // count
        for index in range(count):
            taken = min(parts[index], most, -left)
            parts[index] -= taken
            left += taken
    if left >= count:
        parts += left // count
        left %= count
    if left > 0:
        keys = np.empty(count, dtype=np.int64)
        for offset in range(count):
            real = reals[(start + offset) % count]
            fraction = np.int64((real - np.floor(real)) * FRACTION_STEPS + 0.5)
            keys[offset] = ((FRACTION_STEPS - fraction) << 32) + offset
        keys.sort()
        for place in range(left):
            parts[(start + (keys[place] & 0xFFFFFFFF)) % count] += 1


class Problem(NamedTuple):
    """Noisy counts on a tree, and the integers to find."""

    noisy: Integers
    values: Integers
    tree: Tree


@part_of_kernels
def put_integers(problem: Problem, lines: Lines, root: Integers, start: int, stop: int) -> None:
    """Fill the sizes `start … stop - 1` with integers near the real optimum; `root` holds the roots' values."""
    noisy, values, tree = problem
    inner, width = noisy.shape[0] - tree.leaf_counts[0], stop - start
    values[0, start:stop] = root[start:stop]
    multipliers = np.empty(width)
    for region in range(inner):
        units = values[region, start:stop]
        bases, slopes = lines.bases[region, start:stop], lines.slopes[region, start:stop]
        for place in range(width):
            multipliers[place] = (units[place] - bases[place]) / slopes[place] if slopes[place] > 0 else 0.0
        if tree.child_starts[region] < inner:
            _share_inner(problem, lines, region, multipliers, start)
        else:
            _share_leaves(problem, region, multipliers, start)


@part_of_kernels
def _share_inner(problem: Problem, lines: Lines, region: int, multipliers: Floats, start: int) -> None:
    """Divide a region's units among children above the leaves: the integer parts of their S at the multiplier."""
    noisy, values, tree = problem
    first, last = tree.child_starts[region], tree.child_starts[region + 1]
    count = last - first
    doubled = 2.0 * tree.weights[first]
    reals, parts = np.empty(count), np.empty(count, dtype=np.int64)
    for place in range(len(multipliers)):
        size = start + place
        units = values[region, size]
        if units == 0:
            for child in range(first, last):
                values[child, size] = 0
            continue
        for child in range(first, last):
            base, slope = lines.bases[child, size], lines.slopes[child, size]
            slope /= 1.0 + doubled * slope
            base -= doubled * slope * (base - noisy[child, size])
            reals[child - first] = base + slope * multipliers[place]
        integer_parts(reals, units, (region + size) % count, parts)
        for child in range(first, last):
            values[child, size] = parts[child - first]


@part_of_kernels
def _share_leaves(problem: Problem, region: int, multipliers: Floats, start: int) -> None:
    """Divide a region's units among its leaves, all of equal weight, optimally, in several sizes at once.

    The optimum is max(0, y + t) with the largest t for which these add up to the units or less, and one unit more for
    enough of the leaves with y + t ≥ 0. The last unit of each leaf costs at most w(2t + 1), and the next at least that.
    For zero units, t = −max y − 1.
    """
    tree, width = problem.tree, len(multipliers)
    first, last = tree.child_starts[region], tree.child_starts[region + 1]
    noisy, units = problem.noisy[first:last], problem.values[region, start : start + width]
    guesses = np.floor(0.5 * multipliers / tree.weights[first])
    highest, shifts = noisy[0, start : start + width].copy(), np.empty(width, dtype=np.int64)
    held, reached = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int64)
    left = np.empty(width, dtype=np.int64)
    for leaf in range(1, len(noisy)):
        row = noisy[leaf, start : start + width]
        for place in range(width):
            highest[place] = max(highest[place], row[place])
    for place in range(width):
        # Floats may have rounded the limits, so these count twice.
        low, high = -highest[place], units[place] - highest[place]
        shift = np.int64(min(max(guesses[place], np.float64(low)), np.float64(high)))
        shifts[place] = min(max(shift, low), high)
    for leaf in range(len(noisy)):
        row = noisy[leaf, start : start + width]
        for place in range(width):
            value = row[place] + shifts[place]
            held[place] += max(0, value)
            reached[place] += value >= 0
    for place in range(width):
        if units[place] == 0:
            shifts[place], left[place] = -highest[place] - 1, 0
            continue
        if held[place] > units[place] or held[place] + reached[place] <= units[place]:
            shifts[place], held[place] = _level_for(noisy[:, start + place], units[place], shifts[place])
        left[place] = units[place] - held[place]
    _put_shifted(noisy, problem.values[first:last], shifts, left, region, start)


@part_of_kernels
def _put_shifted(noisy: Integers, values: Integers, shifts: Integers, left: Integers, region: int, start: int) -> None:
    """Write max(0, y + t), and one unit more for as many leaves with y + t ≥ 0 as units remain, size by size."""
    count, width = len(noisy), len(shifts)
    turns = np.empty(width, dtype=np.int64)
    for place in range(width):
        turns[place] = (region + start + place) % count
    for leaf in range(count):
        row, put = noisy[leaf, start : start + width], values[leaf, start : start + width]
        for place in range(width):
            value = row[place] + shifts[place]
            more = np.int64((value >= 0) & (leaf >= turns[place]) & (left[place] > 0))
            put[place] = max(0, value) + more
            left[place] -= more
    for place in range(width):
        for leaf in range(count):
            if left[place] <= 0:
                break
            if noisy[leaf, start + place] + shifts[place] >= 0:
                values[leaf, start + place] += 1
                left[place] -= 1


@part_of_kernels
def _level_for(noisy: Integers, units: int, shift: int) -> tuple[int, int]:
    """Return the largest t for which the sum of max(0, y + t) is at most `units`, and that sum, from any t ≥ −max y.

    The sum is convex in t, so a step along its tangent from the left reaches that t or goes beyond it, and a step from
    the right does not pass it.
    """
    held, positive, reached = _level(noisy, shift)
    if held + reached <= units:
        shift += (units - held) // reached
        held, positive, reached = _level(noisy, shift)
    while held > units:
        shift -= (held - units + positive - 1) // positive
        held, positive, reached = _level(noisy, shift)
    return shift, held


@part_of_kernels
def _level(noisy: Integers, shift: int) -> tuple[int, int, int]:
    """Return the sum of max(0, y + shift), and for how many leaves y + shift is above zero, and zero or above."""
    held, positive, reached = 0, 0, 0
    for leaf in range(len(noisy)):
        value = noisy[leaf] + shift
        held += max(0, value)
        positive += value > 0
        reached += value >= 0
    return held, positive, reached
