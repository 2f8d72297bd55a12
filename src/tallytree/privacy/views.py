"""What is measured of private counts: their views, and lists of group sizes, one region after another.

A list is as long as a number that is public before the list is measured, and is read from its large end: where there
are more groups than places the smallest are left out, where there are fewer the first places hold sizes of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.kernels import kernel
from tallytree.domain.histogram import at_least, entities
from tallytree.privacy.neighbours import View
from tallytree.privacy.plan import Band

AT_A_TIME = 1 << 22
SMALL = np.iinfo(np.int32)


def list_starts(lengths: Integers) -> Integers:
    """Where each region's list begins in the flat array, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def noisy_lists(
    draw: Callable[[int], Integers],
    counts: Integers,
    first_size: int,
    lengths: Integers,
    *,
    small: bool,
    band: Band | None = None,
) -> NDArray[Any]:
    """Noise plus the sizes that `counts` describes, a part at a time, as one flat array.

    With a `band`, what each group has of its size within it: min(size, last) − min(size, first − 1). With `small` the
    sums are kept in 32 bits, those beyond held at the ends of the range: a function of the exact sum, so it tells
    nothing more.
    """
    starts = list_starts(lengths)
    below, above = (0, first_size + counts.shape[1]) if band is None else (band.first - 1, band.last)
    values: NDArray[Any] = np.empty(int(starts[-1]), np.int32 if small else np.int64)
    for begin in range(0, len(values), AT_A_TIME):
        sums = draw(min(AT_A_TIME, len(values) - begin))
        add_sizes(sums, begin, starts, counts, first_size, below, above)
        values[begin : begin + len(sums)] = np.clip(sums, SMALL.min, SMALL.max) if small else sums
    return values


@kernel
def add_sizes(
    sums: Integers, begin: int, starts: Integers, counts: Integers, first_size: int, below: int, above: int
) -> None:
    """Add to `sums`, the places from `begin` on of the flat array, what sizes there have above `below`, to `above`."""
    end = begin + len(sums)
    region = np.searchsorted(starts, begin, side="right") - 1
    while region < len(counts) and starts[region] < end:
        # The next group goes here; the largest ends at the end of the list, so this may lie before its start.
        place = starts[region + 1] - counts[region].sum()
        for size in range(counts.shape[1]):
            stop = place + counts[region, size]
            part = min(first_size + size, above) - min(first_size + size, below)
            for index in range(max(place, starts[region], begin), min(stop, end)):
                sums[index - begin] += part
            place = stop
        region += 1


def view_of(view: View, counts: Integers, first_size: int, band: Band | None = None) -> Integers:
    """A view of some regions' counts `[regions, sizes]`, but for lists of sizes, which are never made whole."""
    if view == "at_least":
        every = at_least(counts, first_size)
        return every if band is None else np.ascontiguousarray(every[:, band.first - 1 : band.last])
    if view == "chain":
        return _chain(counts)
    if view == "entities":
        return entities(counts, first_size)[:, np.newaxis]
    if view == "largest":
        sizes = np.arange(first_size, first_size + counts.shape[1])
        largest: Integers = np.where(counts > 0, sizes, 0).max(axis=1, keepdims=True)
        return largest
    return counts.sum(axis=1, keepdims=True) if view == "totals" else counts


def _chain(counts: Integers) -> Integers:
    """For each cell how many groups are in it or in a later one, size by size and region by region within a size."""
    row = np.cumsum(counts.T.ravel()[::-1])[::-1]
    return np.ascontiguousarray(row.reshape(counts.shape[::-1]).T)


def folded(counts: Integers, last: int) -> Integers:
    """The counts with all sizes beyond the column `last` counted there."""
    if last + 1 == counts.shape[1]:
        return counts
    folded = counts[:, : last + 1].copy()
    folded[:, last] = counts[:, last:].sum(axis=1)
    return folded
