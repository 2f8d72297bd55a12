"""`race`: blocks by how many persons of one small population live in them, as CoC's Hawaiian data: mostly nobody."""

from __future__ import annotations

import numpy as np

from tallytree.evaluate.geography import checked_scale, checked_size, geography
from tallytree.evaluate.truth import Truth

BLOCKS = 11_155_486
SETTLED = 0.0129  # the share of blocks where anybody of the population lives, from the totals of the real data


def race(*, scale: float = 1.0, seed: int = 0, max_size: int = 1_000, public_totals: bool = True) -> Truth:
    """Nation → 52 → 3,144 of 11,155,486 blocks; about 1.3 % of them hold anybody.

    Recipe. Blocks lie in counties by weight (a scale below 1 keeps that share of the counties, see `geography`). The
    share of settled blocks differs by state (log-normal, 1.2) and county (0.5) around 1.29 %. A settled block's size s
    has a probability in proportion to s^-1.72 · exp(-s/b), where the reach b is log-normal around 45 by county, larger
    where more blocks are settled: about half of them hold one person, the largest some hundreds.

    Blocks are land, so their totals are public and size 0 is a cell; with private totals only settled blocks count.
    """
    max_size = checked_size(max_size, 2)
    scale = checked_scale(scale)
    rng = np.random.default_rng([seed, 1960])
    where = geography(scale, rng)
    states, counties = int(where.state_of[-1]) + 1, len(where.weights)
    blocks = rng.multinomial(max(round(BLOCKS * scale), 100 * counties), where.weights)

    leaning = rng.normal(0, 1.2, states)[where.state_of] + rng.normal(0, 0.5, counties)
    density = np.exp(leaning)
    share = np.minimum(SETTLED * density / (where.weights @ density), 0.9)
    settled = rng.binomial(blocks, share)

    reach = 45 * np.exp(0.3 * leaning + rng.normal(0, 0.3, counties))
    sizes = np.arange(1, max_size + 1)
    chances = sizes**-1.72 * np.exp(-sizes / reach[:, None])
    counts = np.empty((counties, max_size + 1), dtype=np.int64)
    counts[:, 0] = blocks - settled
    counts[:, 1:] = rng.multinomial(settled, chances / chances.sum(axis=1, keepdims=True))
    return Truth("race", where.hierarchy, counts if public_totals else counts[:, 1:].copy(), public_totals)
