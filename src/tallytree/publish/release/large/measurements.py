"""measurements.parquet of a large release: a row for each region that was measured, with all its noisy numbers.

The regions themselves are in regions.parquet beside it: a tree of millions of regions does not fit into the description
that a Parquet file has of itself, where smaller releases have it. Rows are in the order of the measurements and of the
regions, and in groups of neighbouring regions, so that those of one region are read without the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.views import list_starts
from tallytree.publish.reading import ParquetRows, check_room
from tallytree.publish.release.large.layout import REGIONS
from tallytree.publish.release.large.regions import read_regions

FORMAT = 2
AT_A_TIME = 1 << 17  # regions in a group of rows
VALUES_AT_A_TIME = 1 << 21
TOTALS, PLACES, PUBLIC = (
    "settled.totals",
    "settled.places",
    "region_totals",
)  # arrays of all regions, beside measurements


class Piece(NamedTuple):
    """The rows of a block of regions in one array."""

    name: str  # the measurement's number, or which array of all regions it is
    regions: range
    starts: Integers | None  # of each region's values within the piece; None where all have as many
    values: NDArray[Any]


def write_by_region(measurements: Measurements, facts: dict[str, Any], where: Any, tell: Tell = nobody) -> None:
    """Write the file; `facts` is what small releases describe theirs by."""
    import pyarrow.parquet as pq

    schema = _schema().with_metadata({"tallytree": json.dumps(described(facts, measurements.hierarchy))})
    with pq.ParquetWriter(where, schema, use_dictionary=["measurement", "values.list.element"]) as writer:
        done, every = 0, sum(part.values.size for part in measurements.measured)
        for piece in _pieces(measurements):
            writer.write_table(_rows(measurements.hierarchy, piece), row_group_size=AT_A_TIME)
            done += piece.values.size
            tell(min(1.0, done / max(1, every)))


def described(facts: dict[str, Any], tree: Hierarchy) -> dict[str, Any]:
    """The facts without what is as long as there are regions: it says which of that is in the rows."""
    settled = {name: value for name, value in facts["settled"].items() if name == "max_size"}
    there = [PUBLIC] if facts["region_totals"] is not None else []
    there += [name for name in (TOTALS, PLACES) if facts["settled"].get(name.split(".")[1]) is not None]
    regions = {"file": REGIONS, "levels": list(tree.levels), "regions": len(tree)}
    without = {name: value for name, value in facts.items() if name != "region_totals"}
    return {**without, "format": FORMAT, "hierarchy": regions, "settled": settled, "in_rows": there}


def room_by_region(tree: Hierarchy, asked: list[tuple[int, int]], arrays: int) -> int:
    """How many bytes the file takes at most, for the level and the number of values of each measurement.

    That is 9 for each value, and the id of each measured region; `arrays` of all regions come before.
    """
    ids = [len("".join(tree.ids[tree.level_slice(level)]).encode()) for level in range(tree.depth)]
    rows = np.diff(tree.level_starts)
    measured = sum(9 * values + ids[level] + 5 * int(rows[level]) for level, values in asked)
    return measured + arrays * (sum(ids) + 14 * len(tree)) + (1 << 20)


def read_by_region(
    path: Path, file: ParquetRows, facts: dict[str, Any], empty: Any, tree: Hierarchy | None
) -> Measurements:
    """The measurements; `empty` makes them from facts as a small release has them, with room for their values."""
    if not file.schema.equals(_schema()):
        raise ReleaseError(f"its columns are not {', '.join(_schema().names)}, or of other types")
    if facts["hierarchy"]["file"] != REGIONS:
        raise ReleaseError("it does not say where its regions are")
    if tree is None:
        tree, _ = read_regions(path.with_name(REGIONS))
    check_room(file.rows, file.name)
    if facts["hierarchy"] != {"file": REGIONS, "levels": list(tree.levels), "regions": len(tree)}:
        raise ReleaseError(f"its regions are not those of {REGIONS}")
    groups = iter(file.groups)
    known: dict[str, Integers] = {}
    for name in facts["in_rows"]:
        if name not in (PUBLIC, TOTALS, PLACES) or name in known:
            raise ReleaseError(f"it does not say in a way that is known what is in its rows: {name!r}")
        known[name] = np.empty(len(tree), np.int64)
        for piece in _blocks(name, range(len(tree)), known[name][:, np.newaxis]):
            _fill(file, next(groups, None), tree, piece)
    measurements: Measurements = empty(facts, tree, known)
    for piece in _measured(measurements):
        _fill(file, next(groups, None), tree, piece)
    if next(groups, None) is not None:
        raise ReleaseError("it holds more rows than its own description announces")
    return measurements


def values_of(file: ParquetRows, region: str, groups: list[int]) -> list[tuple[str, list[int]]]:
    """What was measured of one region: the number of each measurement and its values, from these groups of rows."""
    import pyarrow.compute as pc

    found = []
    for group in groups:
        rows = file.group(group)
        rows = rows.filter(pc.equal(rows["region"], region))
        found += list(zip(rows["measurement"].to_pylist(), rows["values"].to_pylist(), strict=True))
    return found


def _fill(file: ParquetRows, group: int | None, tree: Hierarchy, piece: Piece) -> None:
    if group is None:
        raise ReleaseError("it does not hold the rows that its own description announces")
    rows = file.group(group)
    values = rows["values"].combine_chunks()
    flat = values.flatten()
    if values.null_count or flat.null_count or len(flat) != piece.values.size:
        raise ReleaseError("some of its values are missing, or there are more than its own description announces")
    piece.values[...] = flat.to_numpy().reshape(piece.values.shape)
    if not rows.equals(_rows(tree, piece)):
        raise ReleaseError("its rows are not where its own description puts them")


def _pieces(measurements: Measurements) -> Iterator[Piece]:
    settled = measurements.settled
    arrays = {PUBLIC: measurements.region_totals, TOTALS: settled.totals, PLACES: settled.places}
    for name, array in arrays.items():
        if array is not None:
            yield from _blocks(name, range(len(array)), array[:, np.newaxis])
    yield from _measured(measurements)


def _measured(measurements: Measurements) -> Iterator[Piece]:
    for number, part in enumerate(measurements.measured):
        level = measurements.hierarchy.level_slice(part.level)
        regions = range(level.start, level.stop)
        if part.view == "sorted_sizes":
            yield from _list_blocks(str(number), regions, part.values, list_starts(measurements.lengths(part.level)))
        else:
            yield from _blocks(str(number), regions, part.values)


def _blocks(name: str, regions: range, values: NDArray[Any]) -> Iterator[Piece]:
    step = max(1, min(AT_A_TIME, VALUES_AT_A_TIME // max(1, values.shape[1])))
    for start in range(0, len(regions), step):
        yield Piece(name, regions[start : start + step], None, values[start : start + step])


def _list_blocks(name: str, regions: range, values: NDArray[Any], starts: Integers) -> Iterator[Piece]:
    start = 0
    while start < len(regions):
        stop = int(np.searchsorted(starts, starts[start] + VALUES_AT_A_TIME, side="right")) - 1
        stop = min(max(start + 1, stop), start + AT_A_TIME, len(regions))
        within = starts[start : stop + 1]
        yield Piece(name, regions[start:stop], within - within[0], values[within[0] : within[-1]])
        start = stop


def _rows(tree: Hierarchy, piece: Piece) -> Any:
    import pyarrow as pa

    count = len(piece.regions)
    starts = piece.starts if piece.starts is not None else np.arange(count + 1) * piece.values.shape[1]
    flat = np.ascontiguousarray(piece.values, np.int64).ravel()
    values = pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pa.array(flat))
    names = pa.array(tree.ids[piece.regions.start : piece.regions.stop], pa.string())
    return pa.table([pa.repeat(pa.scalar(piece.name), count), names, values], schema=_schema())


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema([("measurement", pa.string()), ("region", pa.string()), ("values", pa.list_(pa.int64()))])
