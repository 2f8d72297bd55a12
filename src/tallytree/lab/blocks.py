"""Make up persons in households, and stream them to a user's files: `blocks` on six levels, `people` on three.

At scale 1 `blocks` has the outline of the United States: 1 nation, 51 states, 3,143 counties, 85,000 tracts, 240,000
block groups and 8,100,000 blocks, 28 % of them empty; 117 million households of 300 million persons.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage, silent
from tallytree.domain.hierarchy import Hierarchy
from tallytree.lab.nation import (
    Geography,
    checked_scale,
    checked_size,
    geography,
    household_shares,
    shares_around,
    size_shares,
    with_size_zero,
)
from tallytree.lab.truth import Truth

LEVELS = ("nation", "state", "county", "tract", "block_group", "block")
NATION = "Tallia"
STATES, COUNTIES, TRACTS, BLOCK_GROUPS, BLOCKS = 51, 3_143, 85_000, 240_000, 8_100_000
DIGITS = (2, 3, 6, 2, 4)  # of each level's number within the one above, from states down
EMPTY = 0.28  # the share of blocks where nobody lives
HOUSEHOLDS = 117_000_000
AT_A_TIME = 400_000  # households, about a million persons
MAX_SIZE = 10


@dataclass(frozen=True, eq=False)
class Blocks:
    """Every block's region on the levels above, numbered from 0, and its expected share of households."""

    above: tuple[Integers, ...]  # for each level below the nation: the region of every block
    weights: Floats
    shares: Floats  # of each size in every county, [counties, sizes]

    __repr__ = briefly

    @property
    def county_of(self) -> Integers:
        """Return every block's county."""
        return self.above[1]

    def codes(self, level: int) -> Any:
        """Return codes of a level's regions, such as 07 and 07013, as an Arrow array; `level` is 1 for states."""
        import pyarrow as pa
        import pyarrow.compute as pc

        firsts = np.flatnonzero(np.diff(self.above[level - 1], prepend=-1))  # one block of each region
        number, width = np.zeros(len(firsts), np.int64), 0
        for upper in range(level):
            region = self.above[upper][firsts]
            within = region - (0 if upper == 0 else _first_child(self.above[upper - 1], self.above[upper])[firsts])
            number = number * 10 ** DIGITS[upper] + 1 + within
            width += DIGITS[upper]
        return pc.utf8_lpad(pc.cast(pa.array(number), pa.string()), width, "0")

    def table(self) -> Any:
        """Return the public table of regions, one row per block: a pyarrow Table with a column for each level."""
        import pyarrow as pa

        nation = pa.DictionaryArray.from_arrays(np.zeros(len(self.weights), np.int8), [NATION])
        columns = [
            pa.DictionaryArray.from_arrays(self.above[at - 1].astype(np.int32), self.codes(at)) for at in range(1, 5)
        ]
        return pa.table([nation, *columns, self.codes(5)], names=list(LEVELS))

    def households(self, total: int, rng: np.random.Generator) -> Iterator[tuple[Integers, Integers]]:
        """Yield about `AT_A_TIME` households at a time, from neighbouring blocks: the block and the size of each."""
        ladder = np.cumsum(self.shares, axis=1)
        homes = rng.multinomial(total, self.weights)
        through = np.cumsum(homes)
        start = 0
        while start < len(homes):
            before = through[start - 1] if start else 0
            stop = max(start + 1, int(np.searchsorted(through, before + AT_A_TIME, side="right")))
            block = np.repeat(np.arange(start, stop), homes[start:stop])
            chance = rng.random(len(block))
            size = np.ones(len(block), np.int64)
            for column in ladder[self.county_of[block], :-1].T:
                size += chance > column
            start = stop
            if len(block):
                yield block, size


def country(scale: float, seed: int, max_size: int = MAX_SIZE) -> tuple[Blocks, int, np.random.Generator]:
    """Return the blocks of a country, its number of households, and the generator for further draws.

    Recipe. Each region has at least one region of the next level; the others are distributed at random: counties
    unevenly over states, tracts and block groups evenly, blocks unevenly over block groups. A random 28 % of all blocks
    are empty. The households of the others are log-normal (0.9), times a log-normal weight of their county (0.6). Sizes
    have the shares of 2010, tilted and bent by state and county as in `census`.
    """
    scale, rng = checked_scale(scale), np.random.default_rng([seed, 2020])
    counts = [max(1, round(each * scale)) for each in (COUNTIES, TRACTS, BLOCK_GROUPS, BLOCKS)]
    states = min(STATES, counts[0])
    county_of_state = _children(rng.dirichlet(np.full(states, 2.0)), max(states, counts[0]), rng)
    tracts = _children(np.full(len(county_of_state), 1 / len(county_of_state)), counts[1], rng)
    groups = _children(np.full(len(tracts), 1 / len(tracts)), counts[2], rng)
    uneven = rng.gamma(3.0, size=len(groups))
    blocks = _children(uneven / uneven.sum(), counts[3], rng)
    county = tracts[groups[blocks]]
    above = county_of_state[county], county, groups[blocks], blocks, np.arange(len(blocks))
    weights = rng.lognormal(0, 0.9, len(blocks)) * rng.lognormal(0, 0.6, len(county_of_state))[county]
    weights[rng.permutation(len(blocks))[: round(EMPTY * len(blocks))]] = 0
    if not weights.any():  # one block alone
        weights[0] = 1
    weights /= weights.sum()
    of_county: Floats = np.bincount(county, weights, minlength=len(county_of_state)).astype(np.float64)
    shares = size_shares(shares_around(county_of_state, of_county, rng), checked_size(max_size, 2))
    return Blocks(above, weights, shares), max(1, round(HOUSEHOLDS * scale)), rng


def blocks(*, scale: float = 1.0, seed: int = 0, max_size: int = MAX_SIZE, public_totals: bool = False) -> Truth:
    """Make the counts of the files that `write_country` would write.

    1 → 51 → 3,143 → 85,000 → 240,000 → 8,100,000 regions; a scale below 1 keeps that share of the counties and of all
    regions below them. The recipe is that of `country`.
    """
    places, total, rng = country(scale, seed, max_size)
    counts = np.zeros((len(places.weights), max_size), np.int64)
    for block, size in places.households(total, rng):
        np.add.at(counts, (block, size - 1), 1)
    tree = Hierarchy.from_levels(places.table(), LEVELS)
    return Truth("blocks", tree, with_size_zero(counts, public_totals), public_totals)


@dataclass(frozen=True)
class Written:
    """The paths of the files of a made-up country, and its size."""

    people: Path
    regions: Path
    spec: Path
    households: int
    persons: int


def write_country(folder: str | Path, *, scale: float = 1.0, seed: int = 0, progress: Progress = silent) -> Written:
    """Write people.parquet (person_id, household_id, block), regions.parquet and release.toml into `folder`.

    Persons come in batches of about a million from neighbouring blocks, like census files that come state by state.
    Within a batch they are shuffled, so a household's persons are seldom next to each other. Memory stays at about a
    gigabyte at any scale. The spec has no column of entities: each row is a person.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    places, total, rng = country(scale, seed)
    people, regions, spec = (folder / name for name in ("people.parquet", "regions.parquet", "release.toml"))
    pq.write_table(places.table(), regions)
    spec.write_text(SPEC, encoding="utf-8")
    codes = places.codes(5)
    schema = pa.schema(
        {"person_id": pa.int64(), "household_id": pa.int64(), "block": pa.dictionary(pa.int32(), pa.string())}
    )
    persons = households = 0
    with pq.ParquetWriter(people, schema, use_dictionary=["block"]) as sheet:
        for block, size in places.households(total, rng):
            order = rng.permutation(np.repeat(np.arange(len(size), dtype=np.int32), size))
            first = int(block[0])
            some = pa.DictionaryArray.from_arrays(
                (block[order] - first).astype(np.int32), codes.slice(first, int(block[-1]) + 1 - first)
            )
            ids = np.arange(persons, persons + len(order))
            sheet.write_table(pa.table([ids, households + order.astype(np.int64), some], schema=schema))
            persons, households = persons + len(order), households + len(size)
            progress(Stage("making up a country", households, total))
    return Written(people, regions, spec, households, persons)


SPEC = f"""\
[regions]                      # public
table = "regions.parquet"
levels = {list(LEVELS)!r}

[data]                         # private: each row is a person
source = "people.parquet"
group = "household_id"
region = "block"
max_size = {MAX_SIZE}

[privacy]
unit = "one_entity"
epsilon = 1

[release]
title = "Households of Tallia by block and size"
intervals = "guaranteed"       # typical ones take 25 estimates more
""".replace("'", '"')


def _children(weights: Floats, count: int, rng: np.random.Generator) -> Integers:
    """Return the parent of each of `count` regions, in order: at least one per parent, the others by weight."""
    parents = len(weights)
    extra = rng.multinomial(max(0, count - parents), weights)
    return np.repeat(np.arange(parents), 1 + extra)


def _first_child(parent_of: Integers, region_of: Integers) -> Integers:
    """Return for each block the first region of a level that lies in the same region of the level above."""
    begins = np.flatnonzero(np.diff(parent_of, prepend=-1))
    return np.repeat(region_of[begins], np.diff([*begins, len(parent_of)]))


# -------------------------------------------------------------------- persons in three levels


FULL_SCALE = 300_000_000
HOUSEHOLDS_AT_A_TIME = 400_000  # about a million persons


def people(*, scale: float = 1.0, seed: int = 0, max_size: int = 20, public_totals: bool = False) -> Truth:
    """Make the counts of the files that `write_people` with `rows = 300 million · scale` would write."""
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
    """Write exactly `rows` persons to a Parquet file (person_id, household_id, state, county); return their counts.

    Recipe. The nation, and how household sizes differ between its counties, are as in `census`, without outliers and
    with sizes up to `max_size`; its number of counties is in proportion to `rows` of 300 million. Households come in
    blocks of 400,000, each from all over the nation, and the rows of a block are shuffled, so a household's persons are
    seldom next to each other. The last household is cut short to make the number of rows exact. Memory stays within
    some hundreds of megabytes at any number of rows.

    With `groups`, the public list of households (household_id, county) is written there too, and the truth has public
    totals; otherwise totals are private.
    """
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise SpecError(f"rows must be an integer from 1 on, not {rows!r}")
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
    """Return the regions, and blocks of households (county and size of each) that hold `rows` persons together."""
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
    """Region codes as Arrow dictionaries, which avoids a text for each row."""

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
        """Return the state and the county column for counties given by number."""
        import pyarrow as pa

        return (
            pa.DictionaryArray.from_arrays(self._state_of[county], self._states),
            pa.DictionaryArray.from_arrays(county.astype(np.int32), self._counties),
        )


class _Sheet:
    """A Parquet file that grows block by block; without a path, nothing is written."""

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
        """Write one more row group."""
        import pyarrow as pa

        if self._writer is not None:
            self._writer.write_table(
                pa.Table.from_arrays([pa.array(column) for column in columns], schema=self._schema)
            )
