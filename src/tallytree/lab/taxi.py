"""`taxi`: pick-ups of each taxi in each zone of a city, as in PGSR Section 11 and CoC Section 6.1: many sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.nation import checked_scale, checked_size, with_size_zero
from tallytree.lab.truth import Truth

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
    """1 → 6 → 263 (PGSR), or with `zones=28` 1 → 2 → 28 (CoC); sizes up to 13,282.

    Recipe. Every taxi has an activity (gamma, shape 8), every zone a pull (log-normal around its area's), every pair
    of both a liking (gamma, with a shape that grows with the zone's pull: quiet zones have regulars). A taxi's
    pick-ups in a zone are Poisson with the product as mean, 24,489,743 in all (130,962,398 with 28 zones). A group is
    a pair of taxi and zone with a pick-up; its size is the number of pick-ups. Busy zones have hundreds of sizes in
    use without a gap (thousands with 28 zones), then ever rarer ones. Nobody's pick-ups in one of 263 zones come near
    13,282: that is the public bound in PGSR, and a hard one for mechanisms.

    The scale is the share of taxis; zones and sizes stay. `cut` removes all groups larger than it and makes it the
    largest size: with 5, 10, … 50 these are PGSR's synthetic data sets for scalability.
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
