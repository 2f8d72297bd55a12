"""`census`: households (and a few group quarters) of a nation by size, as in PGSR Section 11 and CoC Section 6.1."""

from __future__ import annotations

import numpy as np

from tallytree.arrays import Floats, Integers
from tallytree.errors import SpecError
from tallytree.evaluate.geography import Geography, checked_scale, checked_size, geography, with_size_zero
from tallytree.evaluate.truth import Truth

# 2010 Census, households of 1, 2, … 6, 7 or more persons, in per cent.
SHARES = np.array([26.7, 32.8, 16.1, 13.4, 6.5, 2.6, 1.9])
PGSR_GROUPS, COC_GROUPS = 117_630_445, 240_908_081
OUTLIERS = 50
# No ratio n7/n6 is so near 1 that a group of 200 or more would come from the tail rather than from the outliers.
TAIL_END = 200


def census(
    *,
    scale: float = 1.0,
    seed: int = 0,
    variant: str = "pgsr",
    max_size: int | None = None,
    public_totals: bool = True,
) -> Truth:
    """Nation → 52 → 3,144, 117,630,445 groups, sizes up to 1,000.

    Recipe. Regions and county weights are those of `geography`; a scale below 1 keeps that share of the counties, at
    their full sizes. A county's household sizes have the national shares of 2010, tilted towards small or large and
    bent size by size, by amounts of its state's and its own, then raked so that the nation's expected shares are the
    published ones. The open class of 7 or more is continued by the ratio r = n7/n6: sizes 7, 8, … hold r, r², … times
    the households of size 6, with the r for which they add up to the county's share of 7 or more. Last come the
    outliers, whose county is drawn by weight.

    `variant="pgsr"`: 50 outliers in the nation, uniform over 10 … 1,000; sizes above `max_size` (1,000) count as it.
    `variant="coc"`: 240,908,081 groups, 50 outliers per state, uniform over 1 … 10,000 (50 in all would not give the
    2,352 distinct sizes that the paper states; 50 per state do); `max_size` 10,000, and counts of 250 MB at scale 1.

    Outliers stay as many at any scale, so that small experiments have a sparse tail as well. With public totals the
    cell of size 0 exists and is empty.
    """
    if variant not in ("pgsr", "coc"):
        raise SpecError(f"variant must be 'pgsr' or 'coc', not {variant!r}")
    coc = variant == "coc"
    largest = 10_000 if coc else 1_000
    max_size = checked_size(largest if max_size is None else max_size, 2)
    scale = checked_scale(scale)
    rng = np.random.default_rng([seed, 2010])
    where = geography(scale, rng)
    outliers = OUTLIERS * int(where.state_of[-1] + 1) if coc else OUTLIERS
    total = max(round((COC_GROUPS if coc else PGSR_GROUPS) * scale), 100 * len(where.weights))

    households = rng.multinomial(total - outliers, where.weights)
    width = min(max_size, TAIL_END)
    counts = np.zeros((len(households), max_size), dtype=np.int64)
    counts[:, :width] = rng.multinomial(households, size_shares(household_shares(where, rng), width))
    _add_outliers(counts, where, range(1 if coc else 10, largest + 1), outliers, rng)
    name = "census" if variant == "pgsr" else "census-coc"
    return Truth(name, where.hierarchy, with_size_zero(counts, public_totals), public_totals)


def household_shares(where: Geography, rng: np.random.Generator) -> Floats:
    """Shares of sizes 1 … 6 and 7 or more in every county, `[counties, 7]`, that average to the nation's."""
    states, counties, sizes = int(where.state_of[-1]) + 1, len(where.weights), len(SHARES)
    tilt = rng.normal(0, 0.10, states)[where.state_of] + rng.normal(0, 0.08, counties)
    bend = rng.normal(0, 0.04, (states, sizes))[where.state_of] + rng.normal(0, 0.06, (counties, sizes))
    shares: Floats = SHARES / SHARES.sum() * np.exp(tilt[:, None] * (np.arange(sizes) - 1.5) + bend)
    for _ in range(20):
        shares *= SHARES / SHARES.sum() / (where.weights @ shares)
        shares /= shares.sum(axis=1, keepdims=True)
    return shares


def size_shares(shares: Floats, width: int) -> Floats:
    """From shares of 1 … 6 and 7 or more to those of every size 1 … width, of which the last is open."""
    six, open_class = shares[:, 5], shares[:, 6]
    ratio = open_class / (six + open_class)
    long = np.empty((len(shares), max(width, len(SHARES)) + 1))
    long[:, :6] = shares[:, :6]
    long[:, 6:] = six[:, None] * ratio[:, None] ** np.arange(1, long.shape[1] - 5)
    short: Floats = long[:, :width]
    short[:, -1] = np.maximum(0, 1 - short[:, :-1].sum(axis=1))
    short /= short.sum(axis=1, keepdims=True)
    return short


def _add_outliers(counts: Integers, where: Geography, sizes: range, number: int, rng: np.random.Generator) -> None:
    county = rng.choice(len(where.weights), number, p=where.weights)
    size = rng.integers(sizes.start, sizes.stop, number)
    np.add.at(counts, (county, np.minimum(size, counts.shape[1]) - 1), 1)
