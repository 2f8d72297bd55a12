"""Make a country: persons in households in counties, a map of the counties, and a spec to release them with.

For the map, a slanted line cuts an oval in two, then each part, and so on, so that every area is about in proportion to
its number of counties. Convex areas stay convex, without gaps between them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats, Integers

COUNTRY_MAX_SIZE = 15
# 2010 Census, households of 1, 2, … 6, 7 or more persons, in per cent.
SHARES = np.array([26.7, 32.8, 16.1, 13.4, 6.5, 2.6, 1.9])
CENTRE, REACH = (8.0, 47.0), (3.0, 1.6)  # in degrees; the place is made up
SLANT = 0.35  # of a cut, in radians
SYLLABLES = (
    "al",
    "bor",
    "cas",
    "dun",
    "el",
    "fen",
    "gar",
    "hol",
    "ist",
    "jor",
    "kel",
    "lum",
    "mar",
    "nor",
    "or",
    "pel",
)
ENDINGS = ("ia", "mark", "stead", "ford", "holm", "vale", "ton", "wick")


@dataclass(frozen=True)
class Country:
    """The paths of the files of a made-up country."""

    people: Path
    regions: Path
    spec: Path
    households: int
    persons: int


def make_country(
    folder: str | Path, *, households: int = 100_000, states: int = 12, counties: int = 120, seed: int = 2010
) -> Country:
    """Write people.parquet (person, household, county, tenure), regions.csv, counties.geojson and release.toml.

    Recipe. County populations are log-normal; household sizes follow the 2010 U.S. shares, tilted by a state's and a
    county's own taste for large households, with a geometric tail. A household of one person rents with a chance whose
    logit is −0.1 ± 0.5 by county; each further person lowers the logit by 0.25.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = _place_names(states + counties, rng)
    state_of = np.sort(np.concatenate([np.arange(states), rng.integers(0, states, counties - states)]))
    codes = county_codes(state_of)

    population = rng.lognormal(0, 1.1, counties)
    county = np.repeat(np.arange(counties), rng.multinomial(households, population / population.sum()))
    taste = rng.normal(0, 0.12, states)[state_of] + rng.normal(0, 0.06, counties)
    shares = SHARES * np.exp(np.outer(taste, np.arange(len(SHARES)) - 1.5))
    ladder = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    size = 1 + (rng.random(households)[:, None] > ladder[county]).sum(axis=1)
    largest = size == len(SHARES)
    size[largest] = np.minimum(size[largest] + rng.geometric(0.55, largest.sum()) - 1, COUNTRY_MAX_SIZE + 5)
    household = np.repeat(np.arange(households), size)
    rents = rng.logistic(0, 1, households) < rng.normal(-0.1, 0.5, counties)[county] - 0.25 * (size - 1)

    persons = pa.table(
        {
            "person_id": np.arange(len(household)),
            "household_id": household,
            "county": pa.DictionaryArray.from_arrays(county[household].astype(np.int32), codes).cast(pa.string()),
            "tenure": pa.DictionaryArray.from_arrays(rents[household].astype(np.int32), TENURES).cast(pa.string()),
        }
    )
    pq.write_table(persons, folder / "people.parquet")
    rows = [f"Tallia,{names[state]},{code}" for state, code in zip(state_of, codes, strict=True)]
    (folder / "regions.csv").write_text("\n".join(["nation,state,county", *rows]) + "\n")
    (folder / "counties.geojson").write_text(json.dumps(country_map(codes, seed=seed)))
    (folder / "release.toml").write_text(COUNTRY_SPEC)
    return Country(
        folder / "people.parquet", folder / "regions.csv", folder / "release.toml", households, len(household)
    )


TENURES = ["owned", "rented"]
COUNTRY_SPEC = f"""\
[regions]                      # public
table = "regions.csv"
levels = ["nation", "state", "county"]

[data]                         # private
source = "people.parquet"
group = "household_id"
region = "county"
entity = "person_id"
max_size = {COUNTRY_MAX_SIZE}

[by.tenure]                    # a column of the data; its values are public
values = ["owned", "rented"]
decided_by = "group"           # nobody changes it by coming or going

[privacy]
unit = "one_entity"
epsilon = 1
ledger = "demo-ledger.db"      # what all releases of these data may cost together

[release]
title = "Households of Tallia by size and tenure"

[report]                       # for the page: what groups and entities are called, and where counties are
groups = "households"
entities = "persons"
map = "counties.geojson"
"""


def _place_names(count: int, rng: np.random.Generator) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        start, middle = rng.choice(SYLLABLES, 2, replace=False)
        names[(start + middle + rng.choice(ENDINGS)).capitalize()] = None
    return list(names)


def county_codes(state_of: Integers) -> list[str]:
    """Return codes such as 07013, numbered within each state; `state_of` is sorted."""
    number = 1 + np.arange(len(state_of)) - np.searchsorted(state_of, state_of)
    return [f"{state + 1:02d}{place:03d}" for state, place in zip(state_of, number, strict=True)]


def country_map(counties: Sequence[str], *, seed: int = 2010) -> dict[str, Any]:
    """Return GeoJSON of the counties, whose codes are the property `county`; neighbours in the list are neighbours."""
    rng = np.random.default_rng(seed)
    around = np.linspace(0, 2 * math.pi, 40, endpoint=False)
    coast = 1 + 0.06 * np.sin(3 * around + 1) + 0.03 * np.sin(2 * around)  # small enough to keep the coast convex
    oval = np.column_stack(
        [CENTRE[0] + REACH[0] * coast * np.cos(around), CENTRE[1] + REACH[1] * coast * np.sin(around)]
    )
    areas: list[tuple[str, Floats]] = []
    _cut(oval, list(counties), rng, areas)
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"county": code},
                "geometry": {"type": "Polygon", "coordinates": [np.round([*ring, ring[0]], 4).tolist()]},
            }
            for code, ring in areas
        ],
    }


def _cut(ring: Floats, codes: list[str], rng: np.random.Generator, areas: list[tuple[str, Floats]]) -> None:
    """Give each code its part of an area, in their order."""
    if len(codes) == 1:
        areas.append((codes[0], ring))
        return
    first = len(codes) // 2
    spread = (ring - ring.mean(axis=0)) * [math.cos(math.radians(CENTRE[1])), 1]
    axis = np.linalg.svd(spread, full_matrices=False)[2][0]  # the long way
    angle = math.atan2(axis[1], axis[0]) + rng.uniform(-SLANT, SLANT)
    normal = np.array([math.cos(angle), math.sin(angle)])
    normal = normal if normal[0] + 0.3 * normal[1] > 0 else -normal
    reach = ring @ normal
    low, high, whole = float(reach.min()), float(reach.max()), _area(ring)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _area(_half(ring, normal, middle)) < whole * first / len(codes) else (low, middle)
    _cut(_half(ring, normal, low), codes[:first], rng, areas)
    _cut(_half(ring, -normal, -low), codes[first:], rng, areas)


def _half(ring: Floats, normal: Floats, limit: float) -> Floats:
    """Return the part of a convex ring where normal · point ≤ limit."""
    kept: list[Floats] = []
    reach = ring @ normal - limit
    for place, point in enumerate(ring):
        after = (place + 1) % len(ring)
        if reach[place] <= 0:
            kept.append(point)
        if (reach[place] < 0 < reach[after]) or (reach[after] < 0 < reach[place]):
            part = reach[place] / (reach[place] - reach[after])
            kept.append(point + part * (ring[after] - point))
    return np.array(kept) if kept else np.zeros((0, 2))


def _area(ring: Floats) -> float:
    if len(ring) < 3:
        return 0.0
    x, y = ring.T
    return abs(float(x @ np.roll(y, -1) - y @ np.roll(x, -1))) / 2
