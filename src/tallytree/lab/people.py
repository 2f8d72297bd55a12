"""Made-up persons in households in counties, as the files that a user has.

`people` and `write_people` are for reading at any scale, rows streamed to Parquet; `make_country` is for the demo.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.lab.country_map import country_map
from tallytree.lab.nation import (
    SHARES,
    Geography,
    checked_scale,
    checked_size,
    county_codes,
    geography,
    household_shares,
    size_shares,
    with_size_zero,
)
from tallytree.lab.truth import Truth

FULL_SCALE = 300_000_000
HOUSEHOLDS_AT_A_TIME = 400_000  # about a million persons
COUNTRY_MAX_SIZE = 15
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


def people(*, scale: float = 1.0, seed: int = 0, max_size: int = 20, public_totals: bool = False) -> Truth:
    """What `write_people` with `rows = 300 million · scale` would write, counted but not written."""
    rows = max(1, round(FULL_SCALE * checked_scale(scale)))
    where, blocks = _nation(rows, seed, checked_size(max_size, 2))
    counts = np.zeros((len(where.weights), max_size), dtype=np.int64)
    for county, size in blocks:
        _tally(counts, county, size)
    return Truth("people", where.hierarchy, with_size_zero(counts, public_totals), public_totals)


def write_people(
    path: str | PathLike[str],
    *,
    rows: int,
    seed: int = 0,
    max_size: int = 20,
    groups: str | PathLike[str] | None = None,
) -> Truth:
    """Write exactly `rows` persons to a Parquet file (person_id, household_id, state, county); what they add up to.

    Recipe. The nation, and how household sizes differ between its counties, are as in `census`, without outliers and
    with sizes up to `max_size`; it has as many counties as `rows` of 300 million deserve. Households come in blocks of
    400,000, each from all over the nation, and the rows of a block are shuffled, so that a household's persons are
    seldom next to each other. The last household is cut short to make the number of rows exact. Memory stays within
    some hundreds of megabytes at any number of rows.

    With `groups` the public list of households (household_id, county) is written there too, and the truth has public
    totals; otherwise they are private.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise SpecError(f"rows must be a whole number from 1 on, not {rows!r}")
    where, blocks = _nation(rows, seed, checked_size(max_size, 2))
    codes = _Codes(where)
    counts = np.zeros((len(where.weights), max_size), dtype=np.int64)
    rng = np.random.default_rng([seed, 300])
    persons = households = 0
    with _Sheet(path, codes.persons_schema) as sheet, _Sheet(groups, codes.groups_schema) as listed:
        for county, size in blocks:
            _tally(counts, county, size)
            order = rng.permutation(np.repeat(np.arange(len(size), dtype=np.int32), size))
            ids = np.arange(persons, persons + len(order))
            sheet.write(ids, households + order.astype(np.int64), *codes.columns(county[order]))
            listed.write(households + np.arange(len(size)), codes.columns(county)[1])
            persons += len(order)
            households += len(size)
    public = groups is not None
    return Truth(Path(path).stem, where.hierarchy, with_size_zero(counts, public), public)


def _nation(rows: int, seed: int, max_size: int) -> tuple[Geography, Iterator[tuple[Integers, Integers]]]:
    """The regions, and blocks of households (county and size of each) that hold `rows` persons together."""
    rng = np.random.default_rng([seed, 299])
    where = geography(rows / FULL_SCALE, rng)
    shares = size_shares(household_shares(where, rng), max_size) * where.weights[:, None]
    return where, _blocks(rows, shares.ravel() / shares.sum(), max_size, rng)


def _blocks(
    rows: int, chances: np.ndarray[tuple[int], np.dtype[np.float64]], max_size: int, rng: np.random.Generator
) -> Iterator[tuple[Integers, Integers]]:
    while rows > 0:
        households = min(HOUSEHOLDS_AT_A_TIME, rows)
        cells = rng.permutation(np.repeat(np.arange(len(chances)), rng.multinomial(households, chances)))
        county, size = cells // max_size, 1 + cells % max_size
        if size.sum() >= rows:
            last = int(np.searchsorted(np.cumsum(size), rows))
            county, size = county[: last + 1], size[: last + 1]
            size[-1] -= size.sum() - rows
        rows -= int(size.sum())
        yield county, size


def _tally(counts: Integers, county: Integers, size: Integers) -> None:
    cells = county * counts.shape[1] + size - 1
    counts += np.bincount(cells, minlength=counts.size).reshape(counts.shape)


class _Codes:
    """Region codes as Arrow dictionaries, so that no text is made row by row."""

    def __init__(self, where: Geography) -> None:
        import pyarrow as pa

        states, counties = (
            pa.array(where.hierarchy.ids[where.hierarchy.level_slice(level)], pa.string()) for level in (1, 2)
        )
        self._state_of = where.state_of.astype(np.int32)
        self._states, self._counties = states, counties
        text = pa.dictionary(pa.int32(), pa.string())
        self.persons_schema = pa.schema(
            {"person_id": pa.int64(), "household_id": pa.int64(), "state": text, "county": text}
        )
        self.groups_schema = pa.schema({"household_id": pa.int64(), "county": text})

    def columns(self, county: Integers) -> tuple[Any, Any]:
        """The state and the county column for counties given by number."""
        import pyarrow as pa

        return (
            pa.DictionaryArray.from_arrays(self._state_of[county], self._states),
            pa.DictionaryArray.from_arrays(county.astype(np.int32), self._counties),
        )


class _Sheet:
    """A Parquet file that grows block by block; with no path, nothing."""

    def __init__(self, path: str | PathLike[str] | None, schema: Any) -> None:
        from pyarrow import parquet

        self._schema = schema
        text = ["state", "county"]
        self._writer = None if path is None else parquet.ParquetWriter(path, schema, use_dictionary=text)

    def __enter__(self) -> _Sheet:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, *columns: Any) -> None:
        """One more row group."""
        import pyarrow as pa

        if self._writer is not None:
            self._writer.write_table(
                pa.Table.from_arrays([pa.array(column) for column in columns], schema=self._schema)
            )


# -------------------------------------------------------------------- the country of the demo


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
    """Write people.parquet (person, household, county, tenure), regions.csv, counties.geojson and release.toml.

    Recipe. County populations are log-normal; household sizes follow the 2010 U.S. shares, tilted by a state's and a
    county's own taste for large households, with a geometric tail. Households rent where many do (a county's share has
    a logit of −0.1 ± 0.5 among those of one person), and the less the more they are (0.25 less for each more).
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
