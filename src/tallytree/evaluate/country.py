"""A made-up country for the demo: nation → states → counties, households of persons, as the files a user has.

Recipe: county populations are log-normal; household sizes follow the 2010 U.S. shares (26.7, 32.8, 16.1, 13.4, 6.5, 2.6
and 1.9 % for 1 … 7 or more), tilted by a state's and a county's own taste for large households, with a geometric tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

SHARES = np.array([26.7, 32.8, 16.1, 13.4, 6.5, 2.6, 1.9])
MAX_SIZE = 15
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
    """Where the files of a made-up country are."""

    people: Path
    regions: Path
    spec: Path
    households: int
    persons: int


def make_country(
    folder: str | Path, *, households: int = 100_000, states: int = 12, counties: int = 120, seed: int = 2010
) -> Country:
    """Write people.parquet (person, household, county), regions.csv and release.toml into `folder`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = _names(states + counties, rng)
    state_of = np.sort(np.concatenate([np.arange(states), rng.integers(0, states, counties - states)]))
    codes = [f"{state + 1:02d}{number:03d}" for state, number in zip(state_of, _running(state_of), strict=True)]

    population = rng.lognormal(0, 1.1, counties)
    county = np.repeat(np.arange(counties), rng.multinomial(households, population / population.sum()))
    taste = rng.normal(0, 0.12, states)[state_of] + rng.normal(0, 0.06, counties)
    shares = SHARES * np.exp(np.outer(taste, np.arange(len(SHARES)) - 1.5))
    ladder = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    size = 1 + (rng.random(households)[:, None] > ladder[county]).sum(axis=1)
    largest = size == len(SHARES)
    size[largest] = np.minimum(size[largest] + rng.geometric(0.55, largest.sum()) - 1, MAX_SIZE + 5)
    household = np.repeat(np.arange(households), size)

    people = pa.table(
        {
            "person_id": np.arange(len(household)),
            "household_id": household,
            "county": pa.DictionaryArray.from_arrays(county[household].astype(np.int32), codes).cast(pa.string()),
        }
    )
    pq.write_table(people, folder / "people.parquet")
    rows = [f"Tallia,{names[state]},{code}" for state, code in zip(state_of, codes, strict=True)]
    (folder / "regions.csv").write_text("\n".join(["nation,state,county", *rows]) + "\n")
    (folder / "release.toml").write_text(SPEC)
    return Country(
        folder / "people.parquet", folder / "regions.csv", folder / "release.toml", households, len(household)
    )


SPEC = f"""\
[regions]                      # public
table = "regions.csv"
levels = ["nation", "state", "county"]

[data]                         # private
source = "people.parquet"
group = "household_id"
region = "county"
entity = "person_id"
max_size = {MAX_SIZE}

[privacy]
unit = "one_entity"
epsilon = 1

[release]
title = "Households of Tallia by size"
"""


def _names(count: int, rng: np.random.Generator) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < count:
        start, middle = rng.choice(SYLLABLES, 2, replace=False)
        names[(start + middle + rng.choice(ENDINGS)).capitalize()] = None
    return list(names)


def _running(sorted_labels: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[int]:
    """1, 2, 3 … within each run of equal labels."""
    first = np.searchsorted(sorted_labels, sorted_labels)
    return [int(position) for position in 1 + np.arange(len(sorted_labels)) - first]
