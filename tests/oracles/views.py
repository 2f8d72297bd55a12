"""The sorted list of sizes (H_g) of one region, straight from its definition."""

from __future__ import annotations

import numpy as np


def sorted_sizes(counts, first_size: int):
    """H_g from one region's H: each size as often as there are groups of it, ascending."""
    return np.repeat(np.arange(first_size, first_size + counts.shape[-1]), counts)


def counts_from_sorted_sizes(sizes, first_size: int, max_size: int):
    """H from H_g; sizes above `max_size` count as that."""
    return np.bincount(np.minimum(sizes, max_size) - first_size, minlength=max_size - first_size + 1)
