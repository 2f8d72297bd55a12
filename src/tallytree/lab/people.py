"""Made-up persons in households in counties at any scale, as a file that a user has: rows are streamed to Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.lab.nation import (
    Geography,
    checked_scale,
    checked_size,
    geography,
    household_shares,
    size_shares,
    with_size_zero,
)
from tallytree.lab.truth import Truth

FULL_SCALE = 300_000_000
HOUSEHOLDS_AT_A_TIME = 400_000  # about a million persons


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
