"""Views of how many groups have each size, conversions between them, and distances.

`counts` (H): groups of size s. `at_least` (T): groups of size s or more, s = 1 … K. With public totals G it equals the
papers' cumulative view: H_c[s] = G − T[s + 1]. (`sorted_sizes`, H_g, is in `privacy.run`.) The last axis is always
the size; the last size means "K or more".
"""

from __future__ import annotations

import numpy as np

from tallytree.core.arrays import Integers


def at_least(counts: Integers, first_size: int) -> Integers:
    """Return T from H. Size 0, if it is counted, is in no T[s] and drops out.

    >>> at_least(np.array([2, 0, 1]), first_size=1)
    array([3, 1, 1])
    """
    positive = counts[..., 1:] if first_size == 0 else counts
    return np.ascontiguousarray(np.cumsum(positive[..., ::-1], axis=-1)[..., ::-1])


def counts_from_at_least(survivors: Integers, totals: Integers | None = None) -> Integers:
    """Return H from T: H[s] = T[s] − T[s + 1]. With totals G the size-0 cell G − T[1] comes first.

    >>> counts_from_at_least(np.array([3, 1, 1]), totals=np.array(4))
    array([1, 2, 0, 1])
    """
    front = 0 if totals is None else 1
    counts = np.empty((*survivors.shape[:-1], survivors.shape[-1] + front), dtype=np.int64)
    positive = counts[..., front:]
    positive[...] = survivors
    positive[..., :-1] -= survivors[..., 1:]
    if totals is not None:
        counts[..., 0] = totals - survivors[..., 0]
    return counts


def entities(counts: Integers, first_size: int) -> Integers:
    """Return Σ_s s · H[s], the number of entities in the groups of each row; the last size counts as exactly that.

    >>> entities(np.array([[2, 0, 1], [0, 0, 0]]), first_size=1)
    array([5, 0])
    """
    sizes = np.arange(first_size, first_size + counts.shape[-1], dtype=np.int64)
    found: Integers = counts @ sizes
    return found


def l1_distance(one: Integers, other: Integers) -> Integers:
    """Return Σ_s |H[s] − H'[s]| for every region."""
    distance: Integers = np.abs(one - other).sum(axis=-1)
    return distance


def earth_movers_distance(one: Integers, other: Integers, first_size: int) -> Integers:
    """Return how many entities must be added or removed to turn one histogram into the other, for every region.

    This is Σ_s |T[s] − T'[s]|. With equal totals it is the papers' earth mover's distance. If totals differ, missing
    groups count as groups of size 0.
    """
    return l1_distance(at_least(one, first_size), at_least(other, first_size))


def size_label(size: int, max_size: int) -> str:
    """Return how a size is displayed: the last one also stands for all larger ones.

    >>> size_label(7, max_size=7)
    '7 or more'
    """
    return f"{size} or more" if size == max_size else str(size)
