"""One region of a large release, read without the others: a release of that region alone, to be asked as any release.

Its own measurements, or those of the regions that make it up on the next level that was measured, bound it for any
truth, as those of the whole tree do, if less closely; cells have the intervals of the released table. Groups of rows
that cannot hold what is wanted are not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.numbers import short
from tallytree.domain.hierarchy import Hierarchy
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
    "interval goes by what was measured of the region itself, or of those that make it up; with the whole tree it is "
    "narrower: Release.load in Python reads that, and gives typical intervals too."
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
    below = next(at for at in range(level, len(levels)) if any(part["level"] == at for part in facts["measured"]))
    asked = [number for number, part in enumerate(facts["measured"]) if part["level"] == below]
    part = facts["measured"][asked[0]]
    if len(asked) != 1 or part["view"] not in SIZES or "sizes" in part or {TOTALS, PLACES} & set(facts["in_rows"]):
        return None
    if level == 0 and below > 1:
        return None  # its measurements are in all files
    members = [found] if below == level else _below(folder / REGIONS, found, levels[below])
    every = [found] if below == level else [found, *members]
    tree = Hierarchy.from_layout(
        list(dict.fromkeys(row["level"] for row in every)),
        [row["name"] for row in every],
        [row["region"] for row in every],
        [-1] + [0] * (len(every) - 1),
        [False] * len(every),
    )
    known = {} if found["total"] is None else {PUBLIC: np.array([row["total"] for row in every])}
    alone = large_without_values({**facts, "measured": [{**part, "level": tree.depth - 1}]}, tree, known)
    ids = [row["region"] for row in members]
    rows = _rows(folder / MEASUREMENTS, ids, measurement=str(asked[0]))
    values = dict(zip(rows["region"].to_pylist(), rows["values"].to_pylist(), strict=True))
    if len(rows) != len(values) or set(values) != set(ids):
        raise ReleaseError(f"{MEASUREMENTS} does not have one row for each region in {found['region']!r}")
    alone.measured[0].values[...] = [values[region] for region in ids]
    sizes = range(alone.first_size, alone.max_size + 1)
    above = None if below < 2 else _above(folder / REGIONS, found, levels[1])
    parts = [_cells(folder, levels, level, above, [found["region"]], sizes, statement)]
    if below > level:
        parts.append(_cells(folder, levels, below, above, ids, sizes, statement))
    counts = np.concatenate([part.counts for part in parts])
    ends = {name: np.concatenate([part.ends[name] for part in parts]) for name in parts[0].ends}
    bars = stored_error_bars(Cells(counts, ends, []), statement.get("intervals"), truncation(alone.neighbours))
    return ReleaseContents(
        counts=counts,
        measurements=alone,
        made_by=stated_mechanism(statement),
        certificate=statement["certificate"],
        title=statement["title"],
        fallback=stated_fallback(statement),
        error_bars=bars,
        partial=True,
    )


def _cells(
    folder: Path,
    levels: Sequence[str],
    level: int,
    above: str | None,
    ids: Sequence[str],
    sizes: range,
    statement: Mapping[str, Any],
) -> Cells:
    """The counts and intervals of some regions of one level, which lie in one of the first."""
    file = next(name for name in files_of(levels, level, None if level < 2 else above) if (folder / name).exists())
    intervals, place = statement.get("intervals"), {region: number for number, region in enumerate(ids)}
    names = () if intervals is None else COLUMNS[checked_which(intervals["which"])]
    counts = np.zeros((len(ids), len(sizes)), np.int64)
    ends = {name: np.zeros(counts.shape, np.int64) for name in names}
    for name, most in ({} if intervals is None else intervals["left_out_at_most"][levels[level]]).items():
        ends[name][...] = most
    for row in _rows(folder / file, ids).to_pylist():
        cell = place[row["region"]], row["size"] - sizes.start
        counts[cell] = row["count"]
        for name in names:
            ends[name][cell] = -1 if row[name] is None else row[name]
    return Cells(counts, ends, [], counts)


def _found(path: Path, text: str | None) -> dict[str, Any]:
    """The row of a region in the table of regions."""
    if text is None:
        with ParquetRows(path, most=MOST_ROWS) as file:
            first: dict[str, Any] = file.group(0).slice(0, 1).to_pylist()[0]
        return first
    for column in ("region", "name"):
        rows = [row for row in _rows(path, [text], column=column).to_pylist() if row["copy_of"] is None]
        if len(rows) == 1:
            return dict(rows[0])
        if rows:
            some = ", ".join(row["region"] for row in rows[:6])
            raise SpecError(f"{len(rows)} regions are called {short(text)}; say which by id: {some}")
    raise SpecError(f"there is no region {short(text)}; {REGIONS} lists ids and names")


def _above(path: Path, row: dict[str, Any], level: str) -> str:
    """The id of the region of a level that a region lies in."""
    while row["level"] != level:
        (row,) = _rows(path, [row["parent"]]).to_pylist()
    return str(row["region"])


def _below(path: Path, row: dict[str, Any], level: str) -> list[dict[str, Any]]:
    """The rows of all regions of a level that lie in a region."""
    rows = [row]
    while rows[0]["level"] != level:
        rows = _rows(path, [row["region"] for row in rows], column="parent").to_pylist()
    return rows


def _rows(path: Path, texts: Sequence[str], *, column: str = "region", **also: str) -> Any:
    """The rows of a Parquet file that have one of these texts in a column: a pyarrow Table."""
    from pyarrow import dataset

    check_regular(path)
    field = dataset.field(column)
    condition = (field >= min(texts)) & (field <= max(texts)) & field.isin(list(texts))  # by ends groups are left out
    for name, text in also.items():
        condition &= dataset.field(name) == text
    return dataset.dataset(path, format="parquet").to_table(filter=condition)
