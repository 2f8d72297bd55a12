"""One region of a large release, read without the others: a release of that region alone, to be asked as any release.

Its own measurements bound it for any truth, as those of the whole tree do, if less closely; cells have the intervals of
the released table. Groups of rows that cannot hold the region are not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.errors import ReleaseError, SpecError
from tallytree.hierarchy import Hierarchy
from tallytree.numbers import short
from tallytree.publish.folder import MEASUREMENTS, PRIVACY, UNUSABLE, reason
from tallytree.publish.reading import ParquetRows, check_regular, read_json
from tallytree.publish.release.contents import ReleaseContents
from tallytree.publish.release.error_bars import COLUMNS, checked_which
from tallytree.publish.release.files import Cells, stated_fallback, stated_mechanism, stored_error_bars
from tallytree.publish.release.large.layout import REGIONS, files_of
from tallytree.publish.release.large.measurements import PLACES, PUBLIC, TOTALS
from tallytree.publish.release.measurements_file import MOST_ROWS, large_without_values, stored_facts
from tallytree.publish.release.truncation import truncation

ALONE = (
    "Only what the release holds of this region was read. Where more than one size is asked for, the guaranteed "
    "interval goes by what was measured of the region itself; with the whole tree it is narrower: Release.load in "
    "Python reads that, and gives typical intervals too."
)
SIZES = ("at_least", "counts")  # what a region alone is asked by


def one_region(folder: Path, text: str | None) -> ReleaseContents | None:
    """A release of one region, by id or name, or of the root; None if its measurements alone do not tell."""
    try:
        return _one_region(folder, text)
    except SpecError:
        raise
    except UNUSABLE as error:
        raise ReleaseError(f"{folder} cannot be used: {reason(error)}") from None


def _one_region(folder: Path, text: str | None) -> ReleaseContents | None:
    statement = read_json(folder / PRIVACY)
    with ParquetRows(folder / MEASUREMENTS, most=MOST_ROWS) as file:
        facts = stored_facts(file.schema)
    levels = facts["hierarchy"]["levels"]
    found = _found(folder / REGIONS, text)
    level = levels.index(found["level"])
    asked = [number for number, part in enumerate(facts["measured"]) if part["level"] == level]
    parts = [facts["measured"][number] for number in asked]
    if len(parts) != 1 or parts[0]["view"] not in SIZES or "sizes" in parts[0]:
        return None
    tree = Hierarchy.from_layout([found["level"]], [found["name"]], [found["region"]], [-1], [False])
    known = {PUBLIC: np.array([found["total"]])} if found["total"] is not None else {}
    if {TOTALS, PLACES} & set(facts["in_rows"]):
        return None
    alone = large_without_values({**facts, "measured": [{**parts[0], "level": 0}]}, tree, known)
    rows = _rows(folder / MEASUREMENTS, region=found["region"], measurement=str(asked[0]))
    if len(rows) != 1:
        raise ReleaseError(f"{MEASUREMENTS} has {len(rows)} rows of {found['region']!r}, and should have one")
    alone.measured[0].values[0] = rows["values"][0].as_py()
    sizes = range(alone.first_size, alone.max_size + 1)
    above = None if level < 2 else _above(folder / REGIONS, found, levels[1])
    name = next(name for name in files_of(levels, level, above) if (folder / name).exists())
    cells = _cells(folder, name, found["level"], found["region"], sizes, statement)
    bars = stored_error_bars(cells, statement.get("intervals"), truncation(alone.neighbours))
    return ReleaseContents(
        counts=cells.counts,
        measurements=alone,
        made_by=stated_mechanism(statement),
        certificate=statement["certificate"],
        title=statement["title"],
        fallback=stated_fallback(statement),
        error_bars=bars,
    )


def _cells(folder: Path, file: str, level: str, region: str, sizes: range, statement: Mapping[str, Any]) -> Cells:
    """The counts and intervals of one region."""
    intervals = statement.get("intervals")
    names = () if intervals is None else COLUMNS[checked_which(intervals["which"])]
    counts = np.zeros((1, len(sizes)), np.int64)
    ends = {name: np.zeros((1, len(sizes)), np.int64) for name in names}
    for name, most in ({} if intervals is None else intervals["left_out_at_most"][level]).items():
        ends[name][...] = most
    for row in _rows(folder / file, region=region).to_pylist():
        place = 0, row["size"] - sizes.start
        counts[place] = row["count"]
        for name in names:
            ends[name][place] = -1 if row[name] is None else row[name]
    return Cells(counts, ends, [], counts)


def _found(path: Path, text: str | None) -> dict[str, Any]:
    """The row of a region in the table of regions."""
    if text is None:
        with ParquetRows(path, most=MOST_ROWS) as file:
            first: dict[str, Any] = file.group(0).slice(0, 1).to_pylist()[0]
        return first
    for column in ("region", "name"):
        rows = [row for row in _rows(path, **{column: text}).to_pylist() if row["copy_of"] is None]
        if len(rows) == 1:
            return dict(rows[0])
        if rows:
            some = ", ".join(row["region"] for row in rows[:6])
            raise SpecError(f"{len(rows)} regions are called {short(text)}; say which by id: {some}")
    raise SpecError(f"there is no region {short(text)}; {REGIONS} lists ids and names")


def _above(path: Path, row: dict[str, Any], level: str) -> str:
    """The id of the region of a level that a region lies in."""
    while row["level"] != level:
        (row,) = _rows(path, region=row["parent"]).to_pylist()
    return str(row["region"])


def _rows(path: Path, **wanted: str) -> Any:
    """The rows of a Parquet file whose columns have these texts: a pyarrow Table."""
    from pyarrow import dataset

    check_regular(path)
    condition = None
    for column, text in wanted.items():
        one = dataset.field(column) == text
        condition = one if condition is None else condition & one
    return dataset.dataset(path, format="parquet").to_table(filter=condition)
