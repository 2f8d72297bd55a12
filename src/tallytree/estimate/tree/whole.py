"""From the real optimum to whole numbers that add up and are nearly optimal: the starting point of `exchange`.

At a given price the breakpoints say which leaves are positive. With those fixed, everything is linear: a region's
subtree holds S(λ) = base + slope·λ, its children together C(u) = base' + slope'·u. So one pass up the tree gives the
lines, and one pass down gives whole numbers: a region with v units solves C(u) = v, its children get the whole parts
of their S(u), and the units left over go to the largest fractions.
"""

from __future__ import annotations

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.estimate.layout import Tree
from tallytree.estimate.tree.relaxation import Breakpoints
from tallytree.kernels import kernel

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
    while left < 0:
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


@kernel
def spread(
    noisy: Integers, values: Integers, tree: Tree, points: Breakpoints, size: int, price: float, total: int
) -> None:
    """Fill `values` (one size's regions) with whole numbers near the real optimum; `total` is for the root."""
    regions = len(noisy)
    first_leaf = regions - tree.leaf_counts[0]
    bases, slopes = np.zeros(first_leaf), np.zeros(first_leaf)  # each inner region's S on the piece with the price
    inner_bases, inner_slopes = np.zeros(first_leaf), np.zeros(first_leaf)  # and its C
    for place in range(np.searchsorted(points.prices[size], price)):
        leaf = first_leaf + points.leaves[size, place]
        if leaf > 0:
            inner_bases[tree.parents[leaf]] += noisy[leaf]
            inner_slopes[tree.parents[leaf]] += 0.5 / tree.weights[leaf]
    for region in range(first_leaf - 1, -1, -1):
        base, slope = inner_bases[region], inner_slopes[region]
        doubled = 2.0 * tree.weights[region]
        slopes[region] = slope / (1.0 + doubled * slope)
        bases[region] = base - doubled * slopes[region] * (base - noisy[region])
        if region > 0:
            inner_bases[tree.parents[region]] += bases[region]
            inner_slopes[tree.parents[region]] += slopes[region]
    values[0] = total
    for region in range(first_leaf):
        first, last = tree.child_starts[region], tree.child_starts[region + 1]
        amount = values[region]
        if amount == 0:
            values[first:last] = 0
            continue
        price = 0.0
        if inner_slopes[region] > 0:
            price = (amount - inner_bases[region]) / inner_slopes[region]
        start = (region + size) % (last - first)
        if first >= first_leaf:
            guess = np.floor(0.5 * price / tree.weights[first])
            _share(noisy, first, last, amount, first + start, guess, values)
        else:
            reals = bases[first:last] + slopes[first:last] * price
            whole_parts(reals, amount, start, values[first:last])


@kernel
def _share(noisy: Integers, first: int, last: int, amount: int, start: int, guess: float, values: Integers) -> None:
    """Share a positive amount among the leaves `first … last - 1` of equal weight, optimally.

    The optimum is max(0, y + t) with the largest t for which these add up to `amount` or less, and one unit more for
    enough of the leaves with y + t ≥ 0: the last unit of each costs at most, the next at least, w(2t + 1). The sum is
    convex in t, so a step along its tangent never stops short of that t from the left, nor passes it from the right.
    """
    highest: int = noisy[first]
    for leaf in range(first + 1, last):
        highest = max(highest, noisy[leaf])
    shift = int(min(max(guess, float(-highest)), float(amount - highest)))
    shift = min(max(shift, -highest), amount - highest)  # floats may have rounded the limits
    held, positive, reached = _level(noisy, first, last, shift)
    if held + reached <= amount:
        shift += (amount - held) // reached
        held, positive, reached = _level(noisy, first, last, shift)
    while held > amount:
        shift -= (held - amount + positive - 1) // positive
        held, positive, reached = _level(noisy, first, last, shift)
    left = amount - held
    for leaf in range(first, last):
        values[leaf] = max(0, noisy[leaf] + shift)
    leaf = start
    while left > 0:
        if noisy[leaf] + shift >= 0:
            values[leaf] += 1
            left -= 1
        leaf = leaf + 1 if leaf + 1 < last else first


@kernel
def _level(noisy: Integers, first: int, last: int, shift: int) -> tuple[int, int, int]:
    """The sum of max(0, y + shift), and for how many leaves y + shift is above zero, and zero or above."""
    held, positive, reached = 0, 0, 0
    for leaf in range(first, last):
        value = noisy[leaf] + shift
        held += max(0, value)
        positive += value > 0
        reached += value >= 0
    return held, positive, reached
