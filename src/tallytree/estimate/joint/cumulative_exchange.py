"""Exchanges between siblings that bring whole `at_least` counts nearer to their targets and keep every constraint.

Read a row from the largest size down: a region's k-th unit arrives at the size from which on (downwards) the row is at
least k. Where b has an arrival and, later, a has one, the two can be exchanged: between them a holds one unit more and
b one less. Nothing else moves: the sum is the same, and neither row comes to fall where it may not. For every ordered
pair of siblings one pass over the sizes finds the stretches where that pays.
"""

from __future__ import annotations

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.kernels import kernel

PAYS = 1e-6
PARTNERS = 64  # at most so many siblings are tried with each child
PASSES = 64  # and about so many passes are made per child, in at most SWEEPS rounds
SWEEPS = 8


@kernel
def exchange_arrivals(
    values: Integers, noisy: Integers, prices: Floats, upper: Integers, bounded: bool, first: int, last: int
) -> None:
    """Exchange arrivals among the children `first … last - 1` while that pays, for a bounded number of passes.

    The target of a row is noisy + prices: what the relaxation would have this region hold if it were by itself.
    """
    sizes, children = values.shape[1], last - first
    # Twice the distance to the target: a unit more gains pull − 1, a unit less −pull − 1.
    pull = np.empty((children, sizes))
    for child in range(children):
        for size in range(sizes):
            target = noisy[first + child, size] + prices[first + child, size]
            pull[child, size] = 2.0 * (target - values[first + child, size])
    partners = min(children - 1, PARTNERS)
    for _ in range(min(SWEEPS, max(1, PASSES // max(1, partners)))):
        gained = 0.0
        for offset in range(1, partners + 1):
            for gainer in range(children):
                loser = (gainer + offset) % children
                gained += _exchange(values, pull, upper, bounded, first, gainer, loser)
                if partners < children - 1:  # otherwise the pair comes the other way round by itself
                    gained += _exchange(values, pull, upper, bounded, first, loser, gainer)
        if gained == 0.0:
            break


@kernel
def _exchange(
    values: Integers, pull: Floats, upper: Integers, bounded: bool, first: int, gainer: int, loser: int
) -> float:
    """Exchange arrivals of two siblings wherever that pays; returns what it gained."""
    sizes = values.shape[1]
    more, less = values[first + gainer], values[first + loser]
    pull_more, pull_less = pull[gainer], pull[loser]
    gained, run, begin = 0.0, 0.0, -1
    less_before = 0
    for size in range(sizes - 1, -1, -1):
        if less[size] > less_before and run <= 0.0:
            run, begin = 0.0, size
        less_before = less[size]
        if begin < 0:
            continue
        run += pull_more[size] - pull_less[size] - 2.0
        if run > PAYS:
            last = size == 0
            ends = not bounded or more[0] < upper[first + gainer] if last else more[size - 1] > more[size]
            if ends:
                for place in range(size, begin + 1):
                    more[place] += 1
                    less[place] -= 1
                    pull_more[place] -= 2.0
                    pull_less[place] += 2.0
                less_before -= 1
                gained += run
                run, begin = 0.0, -1
    return gained
