"""From the real optimum to whole numbers that add up and are nearly optimal: the starting point of `exchange`.

With the positive leaves fixed everything is linear (`relaxation`): a region's subtree holds S(λ), its children
together C(v) = base + slope · v. So one pass down gives whole numbers: a region with some units solves C(v) = units,
its children get the whole parts of their S(v), and what is left over goes to the largest fractions. Leaves share their
parent's units optimally. All of it goes over rows, several sizes at once.
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import kernel, part_of_kernels
from tallytree.estimate.layout import Tree
from tallytree.estimate.tree.relaxation import Lines

# Fractions are compared to this precision, so that the noise of floats does not decide between equal ones.
FRACTION_STEPS = 1 << 20


def whole_root(amounts: Floats, total: int | None) -> Integers:
    """What each size's root holds: the amounts rounded, halves up, or parts of the total."""
    if total is None:
        return np.floor(amounts + 0.5).astype(np.int64)
    values = np.empty(len(amounts), dtype=np.int64)
    whole_parts(amounts, total, total % len(amounts), values)
    return values


@kernel
def whole_parts(reals: Floats, total: int, start: int, parts: Integers) -> None:
    """Non-negative whole numbers near `reals` that add up to `total`; equal fractions are served from `start` on."""
    count = len(reals)
    left = total
    for index in range(count):
        parts[index] = np.int64(np.floor(min(max(reals[index], 0.0), np.float64(total))))
        left -= parts[index]
    for _ in range(count):  # each turn takes all that is too much, or empties a part
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


@part_of_kernels
def whole_numbers(
    noisy: Integers, values: Integers, tree: Tree, lines: Lines, root: Integers, start: int, stop: int
) -> None:
    """Fill `values` in the sizes `start … stop - 1` with whole numbers near the real optimum; `root` has the roots'."""
    inner, width = noisy.shape[0] - tree.leaf_counts[0], stop - start
    values[0, start:stop] = root[start:stop]
    prices = np.empty(width)
    for region in range(inner):
        first, last = tree.child_starts[region], tree.child_starts[region + 1]
        units = values[region, start:stop]
        bases, slopes = lines.bases[region, start:stop], lines.slopes[region, start:stop]
        for place in range(width):
            prices[place] = (units[place] - bases[place]) / slopes[place] if slopes[place] > 0 else 0.0
        turn = region + start
        if first < inner:
            _share_inner(noisy, values, tree, lines, units, prices, turn, first, last, start)
        else:
            guesses = np.floor(0.5 * prices / tree.weights[first])
            _share_leaves(noisy, values, units, guesses, turn, first, last, start)


@part_of_kernels
def _share_inner(
    noisy: Integers,
    values: Integers,
    tree: Tree,
    lines: Lines,
    units: Integers,
    prices: Floats,
    turn: int,
    first: int,
    last: int,
    start: int,
) -> None:
    """Share a region's units among children that are no leaves: the whole parts of their S at the price."""
    count = last - first
    doubled = 2.0 * tree.weights[first]
    reals, parts = np.empty(count), np.empty(count, dtype=np.int64)
    for place in range(len(units)):
        size = start + place
        if units[place] == 0:
            for child in range(first, last):
                values[child, size] = 0
            continue
        for child in range(first, last):
            base, slope = lines.bases[child, size], lines.slopes[child, size]
            slope /= 1.0 + doubled * slope
            base -= doubled * slope * (base - noisy[child, size])
            reals[child - first] = base + slope * prices[place]
        whole_parts(reals, units[place], (turn + place) % count, parts)
        for child in range(first, last):
            values[child, size] = parts[child - first]


@part_of_kernels
def _share_leaves(
    noisy: Integers,
    values: Integers,
    units: Integers,
    guesses: Floats,
    turn: int,
    first: int,
    last: int,
    start: int,
) -> None:
    """Share units among the leaves `first … last - 1` of equal weight, optimally, in several sizes at once.

    The optimum is max(0, y + t) with the largest t for which these add up to `units` or less, and one unit more for
    enough of the leaves with y + t ≥ 0: the last unit of each costs at most, the next at least, w(2t + 1). No units
    are shared by t = −max y − 1.
    """
    width = len(units)
    highest, shifts = noisy[first, start : start + width].copy(), np.empty(width, dtype=np.int64)
    held, reached = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=np.int64)
    left = np.empty(width, dtype=np.int64)
    for leaf in range(first + 1, last):
        row = noisy[leaf, start : start + width]
        for place in range(width):
            highest[place] = max(highest[place], row[place])
    for place in range(width):
        # Floats may have rounded the limits, so these count twice.
        low, high = -highest[place], units[place] - highest[place]
        shift = np.int64(min(max(guesses[place], np.float64(low)), np.float64(high)))
        shifts[place] = min(max(shift, low), high)
    for leaf in range(first, last):
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
            column = noisy[first:last, start + place]
            shifts[place], held[place] = _level_for(column, units[place], shifts[place])
        left[place] = units[place] - held[place]
    _write(noisy, values, shifts, left, turn, first, last, start)


@part_of_kernels
def _write(
    noisy: Integers, values: Integers, shifts: Integers, left: Integers, turn: int, first: int, last: int, start: int
) -> None:
    """Write max(0, y + t), and one unit more for as many leaves with y + t ≥ 0 as are left, each size in its turn."""
    width, count = len(shifts), last - first
    turns = np.empty(width, dtype=np.int64)
    for place in range(width):
        turns[place] = first + (turn + place) % count
    for leaf in range(first, last):
        row, put = noisy[leaf, start : start + width], values[leaf, start : start + width]
        for place in range(width):
            value = row[place] + shifts[place]
            more = np.int64((value >= 0) & (leaf >= turns[place]) & (left[place] > 0))
            put[place] = max(0, value) + more
            left[place] -= more
    for place in range(width):
        for leaf in range(first, last):
            if left[place] <= 0:
                break
            if noisy[leaf, start + place] + shifts[place] >= 0:
                values[leaf, start + place] += 1
                left[place] -= 1


@part_of_kernels
def _level_for(noisy: Integers, units: int, shift: int) -> tuple[int, int]:
    """The largest t for which the sum of max(0, y + t) is at most `units`, and that sum, from any t ≥ −max y.

    The sum is convex in t, so a step along its tangent never stops short of that t from the left, nor passes it from
    the right.
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
    """The sum of max(0, y + shift), and for how many leaves y + shift is above zero, and zero or above."""
    held, positive, reached = 0, 0, 0
    for leaf in range(len(noisy)):
        value = noisy[leaf] + shift
        held += max(0, value)
        positive += value > 0
        reached += value >= 0
    return held, positive, reached
