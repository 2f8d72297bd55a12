"""Make up a nation → states → counties, `census` (households by size) and `race` (blocks) on it, and `taxi`.

Recipe of the nation: 52 states share 3,144 counties in uneven numbers; a county's weight is log-normal (1.2 within its
state, 0.6 for the state as a whole, together about the spread of housing units over real counties).

`taxi` has the pick-ups of each taxi in each zone of a city, as in PGSR Section 11 and CoC Section 6.1: many sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.demo.country import SHARES, county_codes
from tallytree.domain.categories import Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.truth import Truth

STATES, COUNTIES = 52, 3144
FEWEST_COUNTIES = 24
PGSR_GROUPS, COC_GROUPS = 117_630_445, 240_908_081
OUTLIERS = 50
# No ratio n7/n6 is so near 1 that a group of 200 or more would come from the tail rather than from the outliers.
TAIL_END = 200
BLOCKS = 11_155_486
SETTLED = 0.0129  # the share of blocks where anybody of the population lives, from the totals of the real data


@dataclass(frozen=True, eq=False)
class Geography:
    """The tree, the state (from 0) of each county, and each county's share of the total."""

    hierarchy: Hierarchy
    state_of: Integers
    weights: Floats

    __repr__ = briefly


def checked_scale(scale: float) -> float:
    """Return a scale: a positive, finite number; 1 is the size of the data set described."""
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise SpecError(f"scale must be a positive number, not {scale!r}; 1 is full size, 0.01 a hundredth")
    return float(scale)


def checked_size(max_size: int, least: int = 1) -> int:
    """Return a largest size: an integer of at least `least`."""
    if isinstance(max_size, bool) or not isinstance(max_size, int | np.integer) or max_size < least:
        raise SpecError(f"max_size must be an integer from {least} on, not {max_size!r}")
    return int(max_size)


def region_counts(scale: float) -> tuple[int, int]:
    """Return how many states and counties a scale has: counties shrink with it, states with its cube root.

    So in a quick experiment counties keep their true sizes, and noise its true relative size. Below 24 counties (scale
    0.0075) the counties themselves become smaller; above scale 1 they become larger.
    """
    counties = min(COUNTIES, max(FEWEST_COUNTIES, round(COUNTIES * scale)))
    return min(STATES, max(10, ceil(STATES * scale ** (1 / 3)))), counties


def geography(scale: float, rng: np.random.Generator) -> Geography:
    """Return a nation of `region_counts(scale)`; region codes are text such as 07 and 07013."""
    states, counties = region_counts(checked_scale(scale))
    extra = rng.multinomial(counties - states, rng.dirichlet(np.full(states, 2.0)))
    state_of = np.repeat(np.arange(states), 1 + extra)
    weights = np.exp(rng.normal(0, 0.6, states)[state_of] + rng.normal(0, 1.2, counties))
    state = [f"{code + 1:02d}" for code in state_of]
    columns = {"nation": ["nation"] * counties, "state": state, "county": county_codes(state_of)}
    hierarchy = Hierarchy.from_levels(columns, ["nation", "state", "county"])
    return Geography(hierarchy, state_of, weights / weights.sum())


def with_size_zero(counts: Integers, public_totals: bool) -> Integers:
    """Return counts of sizes 1 … K, with an empty cell for size 0 in front if totals are public."""
    return np.pad(counts, ((0, 0), (1, 0))) if public_totals else counts


# -------------------------------------------------------------------- census


def census(
    *,
    scale: float = 1.0,
    seed: int = 0,
    variant: str = "pgsr",
    max_size: int | None = None,
    public_totals: bool = True,
    tenure: bool = False,
) -> Truth:
    """Make households (and a few group quarters) by size, as in PGSR Section 11 and CoC Section 6.1.

    Nation → 52 → 3,144, 117,630,445 groups, sizes up to 1,000.

    Recipe. Regions and county weights are those of `geography`; a scale below 1 keeps that share of the counties, at
    their full sizes. A county's household sizes have the national shares of 2010, tilted towards small or large and
    bent size by size, by amounts of its state's and its own, then raked so that the nation's expected shares are the
    published ones. The open class of 7 or more is continued by the ratio r = n7/n6: sizes 7, 8, … hold r, r², … times
    the households of size 6, with the r for which they add up to the county's share of 7 or more. Last come the
    outliers, whose county is drawn by weight.

    `variant="pgsr"`: 50 outliers in the nation, uniform over 10 … 1,000; sizes above `max_size` (1,000) count as it.
    `variant="coc"`: 240,908,081 groups, 50 outliers per state, uniform over 1 … 10,000 (50 in all would not give the
    2,352 distinct sizes that the paper states; 50 per state do); `max_size` 10,000, and counts of 250 MB at scale 1.

    The number of outliers is the same at any scale, so that small experiments have a sparse tail as well. With public
    totals the cell of size 0 exists and is empty.

    `tenure=True` divides the same households by tenure, owned or rented, which the group decides. One of size s in a
    county rents with a chance whose logit is the county's (−0.1 ± 0.5) less 0.25 (s − 1).
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
    truth = Truth(name, where.hierarchy, with_size_zero(counts, public_totals), public_totals)
    return _by_tenure(truth, rng) if tenure else truth


def _by_tenure(truth: Truth, rng: np.random.Generator) -> Truth:
    """Return the same households by tenure."""
    sizes = np.arange(truth.first_size, truth.max_size + 1)
    logit = rng.normal(-0.1, 0.5, len(truth.counts))[:, None] - 0.25 * (sizes - 1)
    rented = rng.binomial(truth.counts, 1 / (1 + np.exp(-logit)))
    tenure = Categories.of({"tenure": ["owned", "rented"]}, "group")
    return truth.by_category(tenure, np.stack([truth.counts - rented, rented]))


def household_shares(where: Geography, rng: np.random.Generator) -> Floats:
    """Return shares of sizes 1 … 6 and 7 or more in every county, `[counties, 7]`, that average to the nation's."""
    return shares_around(where.state_of, where.weights, rng)


def shares_around(state_of: Integers, weights: Floats, rng: np.random.Generator) -> Floats:
    """Return the same shares, from the state of each county and its share of the total."""
    states, counties, sizes = int(state_of[-1]) + 1, len(weights), len(SHARES)
    tilt = rng.normal(0, 0.10, states)[state_of] + rng.normal(0, 0.08, counties)
    bend = rng.normal(0, 0.04, (states, sizes))[state_of] + rng.normal(0, 0.06, (counties, sizes))
    shares: Floats = SHARES / SHARES.sum() * np.exp(tilt[:, None] * (np.arange(sizes) - 1.5) + bend)
    for _ in range(20):
        shares *= SHARES / SHARES.sum() / (weights @ shares)
        shares /= shares.sum(axis=1, keepdims=True)
    return shares


def size_shares(shares: Floats, width: int) -> Floats:
    """Return shares of every size 1 … width, the last of them open, from shares of 1 … 6 and 7 or more."""
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


# -------------------------------------------------------------------- race


def race(*, scale: float = 1.0, seed: int = 0, max_size: int = 1_000, public_totals: bool = True) -> Truth:
    """Make blocks by how many persons of one small population live in them, like CoC's Hawaiian data: mostly none.

    Nation → 52 → 3,144 of 11,155,486 blocks; about 1.3 % of them hold anybody.

    Recipe. Blocks lie in counties by weight (a scale below 1 keeps that share of the counties, see `geography`). The
    share of inhabited blocks differs by state (log-normal, 1.2) and county (0.5) around 1.29 %. An inhabited block's
    size s has a probability in proportion to s^-1.72 · exp(-s/b), where the reach b is log-normal around 45 by county,
    larger where more blocks are inhabited: about half of them hold one person, the largest some hundreds.

    Blocks are land, so their totals are public and size 0 is a cell; with private totals only inhabited blocks count.
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
    inhabited = rng.binomial(blocks, share)

    reach = 45 * np.exp(0.3 * leaning + rng.normal(0, 0.3, counties))
    sizes = np.arange(1, max_size + 1)
    chances = sizes**-1.72 * np.exp(-sizes / reach[:, None])
    counts = np.empty((counties, max_size + 1), dtype=np.int64)
    counts[:, 0] = blocks - inhabited
    counts[:, 1:] = rng.multinomial(inhabited, chances / chances.sum(axis=1, keepdims=True))
    return Truth("race", where.hierarchy, counts if public_totals else counts[:, 1:].copy(), public_totals)


# -------------------------------------------------------------------- taxi


MAX_SIZE = 13_282


@dataclass(frozen=True)
class City:
    """Areas with their number of zones and the typical logarithm of a zone's pick-ups; taxis and pick-ups in all."""

    areas: tuple[tuple[str, int, float], ...]
    levels: tuple[str, str, str]
    taxis: int
    pickups: int
    spread: float  # of the logarithm of a zone's pick-ups within its area


# Numbers of zones, taxis and pick-ups are facts (New York City's taxi zones; PGSR; CoC). The rest is made up.
CITIES = {
    263: City(
        (
            ("Bronx", 43, -2.0),
            ("Brooklyn", 61, -0.5),
            ("EWR", 1, -3.0),
            ("Manhattan", 69, 2.5),
            ("Queens", 69, -0.5),
            ("Staten Island", 20, -4.0),
        ),
        ("city", "borough", "zone"),
        13_282,
        24_489_743,
        1.6,
    ),
    28: City(
        (("lower", 18, 3.0), ("upper", 10, -1.0)),
        ("Manhattan", "area", "neighbourhood"),
        13_466,
        130_962_398,
        0.8,
    ),
}


def taxi(
    *,
    scale: float = 1.0,
    seed: int = 0,
    zones: int = 263,
    max_size: int = MAX_SIZE,
    cut: int | None = None,
    public_totals: bool = True,
) -> Truth:
    """Make pick-ups by taxi and zone: 1 → 6 → 263 regions (PGSR), or 1 → 2 → 28 with `zones=28` (CoC).

    Sizes go up to 13,282.

    Recipe. Every taxi has an activity (gamma, shape 8), every zone a pull (log-normal around its area's), every pair of
    both a liking (gamma, with a shape that grows with the zone's pull: quiet zones have regulars). A taxi's pick-ups in
    a zone are Poisson with the product as mean, 24,489,743 in all (130,962,398 with 28 zones). A group is a pair of
    taxi and zone with a pick-up; its size is the number of pick-ups. Busy zones have hundreds of sizes in use without a
    gap (thousands with 28 zones), then ever rarer ones. Nobody's pick-ups in one of 263 zones come near 13,282: that is
    the public bound in PGSR, and a hard one for mechanisms.

    The scale is the share of taxis; zones and sizes do not change. `cut` removes all groups larger than it and makes it
    the largest size: with 5, 10, … 50 these are PGSR's synthetic data sets for scalability.
    """
    if zones not in CITIES:
        raise SpecError(f"zones must be one of {', '.join(map(str, CITIES))}, not {zones!r}")
    city = CITIES[zones]
    max_size = checked_size(max_size) if cut is None else checked_size(cut)
    taxis = max(1, round(city.taxis * checked_scale(scale)))
    rng = np.random.default_rng([seed, 2013, zones])

    area_of = np.repeat(np.arange(len(city.areas)), [number for _, number, _ in city.areas])
    level = np.array([typical for _, _, typical in city.areas])
    pull = np.exp(level[area_of] + rng.normal(0, city.spread, zones))
    per_taxi = city.pickups / city.taxis * pull / pull.sum()
    activity = rng.gamma(8.0, 1 / 8.0, taxis)
    counts = np.zeros((zones, max_size), dtype=np.int64)
    for zone in range(zones):
        sizes = _pickups(activity, float(per_taxi[zone]), rng)
        sizes = sizes[sizes > 0]
        sizes = np.minimum(sizes, max_size) if cut is None else sizes[sizes <= cut]
        counts[zone] = np.bincount(sizes, minlength=max_size + 1)[1:]
    name = f"taxi-{zones}" if cut is None else f"taxi-{zones}-cut-{cut}"
    return Truth(name, _hierarchy(city, zones), with_size_zero(counts, public_totals), public_totals)


def _pickups(activity: Floats, mean: float, rng: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    shape = 0.8 + 6 * mean / (mean + 100)
    liking = rng.gamma(shape, 1 / shape, len(activity))
    return rng.poisson(mean * activity * liking)


def _hierarchy(city: City, zones: int) -> Hierarchy:
    area = [name for name, number, _ in city.areas for _ in range(number)]
    number = [place + 1 for _, count, _ in city.areas for place in range(count)]
    zone = [f"{name} {place:02d}" for name, place in zip(area, number, strict=True)]
    top, middle, bottom = city.levels
    return Hierarchy.from_levels({top: ["all"] * zones, middle: area, bottom: zone}, list(city.levels))
