"""`OlderTable`: public counts of an earlier time that a prior is made from; and how an earlier release becomes one."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import from_a_spreadsheet
from tallytree.core.notebook import briefly
from tallytree.domain.hierarchy import Hierarchy

MOST_OLDER_CELLS = 100_000_000  # of an older table, regions × sizes


@runtime_checkable
class ReleasedCounts(Protocol):
    """What a prior takes of an earlier release: `counts` is `[regions, sizes]`, `sizes` what its columns stand for."""

    @property
    def counts(self) -> Integers: ...
    @property
    def hierarchy(self) -> Hierarchy: ...
    @property
    def sizes(self) -> range: ...
    @property
    def title(self) -> str: ...


@dataclass(frozen=True, eq=False)
class OlderTable:
    """A public table of counts by region and size."""

    texts: tuple[str, ...]  # ids or names of its regions; none where it has one shape for all
    region: Integers  # of each row, its place in `texts`; empty where there are none
    size: Integers
    count: Floats

    __repr__ = briefly


def table_of(release: ReleasedCounts) -> OlderTable:
    """The counts of a release, zeros left out."""
    region, cell = np.nonzero(release.counts)
    count = release.counts[region, cell].astype(np.float64)
    return OlderTable(release.hierarchy.ids, region, cell + release.sizes.start, count)


def table_in(folder: Path) -> tuple[str, OlderTable]:
    """The title and the counts of the release in a folder; whether it is sound `verify` says."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = {name: folder / name for name in ("counts.parquet", "regions.csv", "privacy.json")}
    if missing := [name for name, path in files.items() if not path.is_file()]:
        raise SpecError(
            f"the prior {str(folder)!r} is a folder without {' and '.join(missing)}, so it holds no release of counts"
        )
    try:
        title = str(json.loads(files["privacy.json"].read_text(encoding="utf-8"))["title"])
        with files["regions.csv"].open(encoding="utf-8", newline="") as listed:
            ids = [row["region"] for row in csv.DictReader(listed)]
        with pq.ParquetFile(files["counts.parquet"]) as file:
            if file.metadata.num_rows > MOST_OLDER_CELLS:
                raise SpecError(f"the release in {folder} has over {MOST_OLDER_CELLS:,} rows, too many to plan with")
            if "name" in file.schema_arrow.names:  # as versions do that mark formulas in their CSV files
                ids = [from_a_spreadsheet(region) for region in ids]
            rows = file.read(columns=["region", "size", "count"]).filter(pc.field("count") > 0)
        region = pc.index_in(rows["region"], pa.array(ids, pa.string()))
        size, count = (rows[name].cast(pa.int64()) for name in ("size", "count"))
        if region.null_count or size.null_count or pc.min(size).as_py() is None or pc.min(size).as_py() < 0:
            raise SpecError(f"the release in {folder} counts no group, or has rows without a region or a size")
    except (OSError, pa.ArrowException, csv.Error, ValueError, LookupError, TypeError, RecursionError) as error:
        kind = type(error).__name__
        raise SpecError(f"the release in {folder} cannot be read ({kind}); tallytree verify says why") from None
    numbers = (np.asarray(column, dtype=kind) for column, kind in ((region, int), (size, int), (count, float)))
    return title, OlderTable(tuple(ids), *numbers)
