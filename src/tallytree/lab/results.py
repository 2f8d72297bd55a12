"""NOT PRIVATE: keep the results of an experiment as one tidy table, with mean and standard error, and as files.

`scores` returns all metrics as tidy values; the other functions are its parts. All take counts `[regions, sizes]` in
hierarchy order, and an estimate that need not be consistent or even non-negative. Violations are counted as in Table 7
of Fioretto, Van Hentenryck and Zhu, where each size has its own tree: one for every region and size whose children do
not add up to it. (Their figures exceed the number of inner regions, so they cannot mean regions alone.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly, shortened, visible
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import at_least
from tallytree.publish.table import region_blocks

# -------------------------------------------------------------------- how far an estimate is from the truth


ALL_LEVELS = "all levels"
MOST_POINTS = 100  # of an error profile over sizes; more sizes than this are put into classes

METRICS = {
    "l1": "L1 error: Σ |estimate − truth| over all cells",
    "emd": "earth mover's distance: Σ over regions of the entities to add or remove to correct them",
    "emd_per_region": "earth mover's distance, mean over the regions of the level",
    "worst_region_l1": "L1 error of the region where it is largest (named in `region`)",
    "worst_region_emd": "earth mover's distance of the region where it is largest (named in `region`)",
    "exact_cells": "share of the cells that are exactly right",
    "bias_groups": "mean over regions of groups estimated minus true",
    "bias_entities": "mean over regions of entities estimated minus true",
    "bias_empty_cells": "mean of estimate minus truth over the cells that are truly 0",
    "bias_other_cells": "mean of estimate minus truth over the cells that are not truly 0",
    "violations": "regions and sizes whose children do not add up to them",
    "error_at_size": "mean over regions of |groups of at least that size, estimated minus true|",
    "signed_error_at_size": "mean over regions of groups of at least that size, estimated minus true",
    "groups_below_size": "share of the true groups that are smaller than that size",
}


@dataclass(frozen=True)
class Score:
    """One number about one level (`depth` 0 is the root), or about all levels together (`depth` None)."""

    level: str
    depth: int | None
    metric: str
    value: float
    size: int | None = None
    region: str | None = None


@dataclass(frozen=True, eq=False)
class Errors:
    """The errors found in one pass over the cells of a level. The first two are per region, the profiles per size
    class.
    """

    l1: Integers
    emd: Integers
    cells: int
    exact: int
    empty: int
    bias_empty: int  # Σ (estimate − truth) over the cells that are truly 0
    bias_other: int
    bias_entities: int
    profile: Floats  # mean over regions, and over the sizes of a class, of |T estimated − T true|
    signed_profile: Floats
    groups_below: Floats

    __repr__ = briefly


def scores(truth: Integers, estimate: Integers, hierarchy: Hierarchy, first_size: int) -> list[Score]:
    """Return every metric on every level, and those that add up also for all levels together."""
    if truth.shape != estimate.shape or len(truth) != len(hierarchy):
        raise ValueError(f"expected counts of shape {truth.shape}, not {estimate.shape}")
    found: list[Score] = []
    levels = [level_errors(truth, estimate, hierarchy, level, first_size) for level in range(hierarchy.depth)]
    broken = violations(estimate, hierarchy)
    starts = size_classes(truth.shape[1] - 1 + first_size)
    for depth, errors in enumerate(levels):
        found.extend(_level_scores(errors, hierarchy, depth, starts))
        if depth < len(broken):
            found.append(Score(hierarchy.levels[depth], depth, "violations", float(broken[depth])))
    together = {
        "l1": float(sum(int(errors.l1.sum()) for errors in levels)),
        "emd": float(sum(int(errors.emd.sum()) for errors in levels)),
        "exact_cells": sum(errors.exact for errors in levels) / sum(errors.cells for errors in levels),
        "violations": float(sum(broken)),
    }
    found.extend(Score(ALL_LEVELS, None, metric, value) for metric, value in together.items())
    return found


def level_errors(truth: Integers, estimate: Integers, hierarchy: Hierarchy, level: int, first_size: int) -> Errors:
    """Compare one level, some regions at a time, which needs little memory besides the counts themselves."""
    rows = hierarchy.level_slice(level)
    regions = range(rows.start, rows.stop)
    max_size = truth.shape[1] - 1 + first_size
    l1, emd = np.zeros(len(regions), np.int64), np.zeros(len(regions), np.int64)
    exact = empty = bias_empty = bias = 0
    absolute, signed = np.zeros(max_size), np.zeros(max_size)
    for block in region_blocks(regions, truth.shape[1]):
        here = slice(block.start - regions.start, block.stop - regions.start)
        true = truth[block.start : block.stop]
        gap = estimate[block.start : block.stop] - true
        survivors = at_least(gap, first_size)  # linear, so T of the gap is the gap of the T's
        nothing = true == 0
        exact += int(np.count_nonzero(gap == 0))
        empty += int(np.count_nonzero(nothing))
        bias_empty += int(gap[nothing].sum())
        bias += int(gap.sum())
        signed += survivors.sum(axis=0)
        np.abs(survivors, out=survivors)
        absolute += survivors.sum(axis=0)
        emd[here] = survivors.sum(axis=1)
        l1[here] = np.abs(gap).sum(axis=1)
    starts = size_classes(max_size)
    widths = np.diff([*starts, max_size + 1])
    groups = np.cumsum(truth[rows].sum(axis=0))
    smaller = np.concatenate([[0], groups])[starts - first_size]
    return Errors(
        l1=l1,
        emd=emd,
        cells=len(regions) * truth.shape[1],
        exact=exact,
        empty=empty,
        bias_empty=bias_empty,
        bias_other=bias - bias_empty,
        bias_entities=int(signed.sum()),
        profile=np.add.reduceat(absolute, starts - 1) / widths / len(regions),
        signed_profile=np.add.reduceat(signed, starts - 1) / widths / len(regions),
        groups_below=smaller / max(1, int(groups[-1])),
    )


def violations(estimate: Integers, hierarchy: Hierarchy) -> list[int]:
    """Return for every level but the last how many regions and sizes differ from the sum of their children."""
    found = []
    for level in range(hierarchy.depth - 1):
        rows, broken = hierarchy.level_slice(level), 0
        for block in region_blocks(range(rows.start, rows.stop), estimate.shape[1]):
            starts = hierarchy.child_starts[block.start : block.stop + 1]
            children = estimate[starts[0] : starts[-1]]
            sums = np.add.reduceat(children, starts[:-1] - starts[0], axis=0)
            broken += int(np.count_nonzero(sums != estimate[block.start : block.stop]))
        found.append(broken)
    return found


def size_classes(max_size: int, most: int = MOST_POINTS) -> Integers:
    """Return the first sizes of at most `most` classes: every size from 1 on if these suffice, else ever wider classes.

    >>> size_classes(4)
    array([1, 2, 3, 4])
    >>> size_classes(1000, most=6)
    array([  1,   3,  10,  31, 100, 316])
    """
    if max_size <= most:
        return np.arange(1, max_size + 1)
    edges = np.floor(np.geomspace(1, max_size, most, endpoint=False) + 1e-9).astype(np.int64)
    return np.unique(edges)


def _level_scores(errors: Errors, hierarchy: Hierarchy, depth: int, starts: Integers) -> Iterator[Score]:
    level, first, regions = hierarchy.levels[depth], int(hierarchy.level_starts[depth]), len(errors.l1)
    plain = {
        "l1": float(errors.l1.sum()),
        "emd": float(errors.emd.sum()),
        "emd_per_region": float(errors.emd.sum()) / regions,
        "exact_cells": errors.exact / errors.cells,
        "bias_groups": (errors.bias_empty + errors.bias_other) / regions,
        "bias_entities": errors.bias_entities / regions,
    }
    if errors.empty:
        plain["bias_empty_cells"] = errors.bias_empty / errors.empty
    if errors.empty < errors.cells:
        plain["bias_other_cells"] = errors.bias_other / (errors.cells - errors.empty)
    yield from (Score(level, depth, metric, value) for metric, value in plain.items())
    for metric, by_region in (("worst_region_l1", errors.l1), ("worst_region_emd", errors.emd)):
        worst = int(by_region.argmax())
        yield Score(level, depth, metric, float(by_region[worst]), region=hierarchy.ids[first + worst])
    profiles = {
        "error_at_size": errors.profile,
        "signed_error_at_size": errors.signed_profile,
        "groups_below_size": errors.groups_below,
    }
    for metric, profile in profiles.items():
        for start, value in zip(starts, profile, strict=True):
            yield Score(level, depth, metric, float(value), size=int(start))


# -------------------------------------------------------------------- the numbers of all cells


NOT_PRIVATE = "NOT PRIVATE"
WARNING = (
    "NOT PRIVATE: these results compare estimates with the true counts. They are for public or made-up data "
    "and must not become part of a release."
)
ROWS, SUMMARY, NOTE = "results.parquet", "summary.csv", "NOT-PRIVATE.txt"
FACTS = ["dataset", "max_size", "unit", "mechanism", "budget", "epsilon", "rho", "delta"]
SCORE = ["level", "depth", "metric", "size"]


@dataclass(frozen=True, eq=False)
class Results:
    """NOT PRIVATE. `rows` is a pyarrow Table with one number per row; a failed cell has one row with its `status`.

    Columns: privacy ("NOT PRIVATE"), dataset, max_size, unit, mechanism, budget, epsilon, rho, delta, run, level,
    depth, metric, size, region, value, status (done, refused, failed, timeout or died), message.
    """

    rows: Any

    def __repr__(self) -> str:
        import pyarrow.compute as pc

        names = ("dataset", "mechanism", "budget", "run")
        found = {name: pc.unique(self.rows[name]).to_pylist() for name in names}
        sets = ", ".join(map(visible, found["dataset"]))
        parts = (
            f"{len(found[name])} {word}"
            for name, word in zip(names[1:], ("mechanisms", "budgets", "runs"), strict=True)
        )
        return f"Results({NOT_PRIVATE}: {shortened(sets)}, {' × '.join(parts)}, {self.rows.num_rows:,} rows)"

    @classmethod
    def of(cls, dataset: str, max_size: int, unit: str, records: Iterable[dict[str, Any]]) -> Results:
        """Build the table from the records of finished cells."""
        import pyarrow as pa

        columns: dict[str, list[Any]] = {name: [] for name in _schema().names}
        for record in records:
            facts = {
                "privacy": NOT_PRIVATE,
                "dataset": dataset,
                "max_size": max_size,
                "unit": unit,
                "mechanism": record["mechanism"],
                **_budget_columns(record["budget"]),
                "run": record["run"],
                "status": record["status"],
                "message": record["message"],
            }
            costs = [(ALL_LEVELS, None, metric, value, None, None) for metric, value in record["costs"].items()]
            numbers = [*record["scores"], *costs] if record["status"] == "done" else [(None,) * 6]
            for name, value in facts.items():
                columns[name].extend([value] * len(numbers))
            for place, name in enumerate(("level", "depth", "metric", "value", "size", "region")):
                columns[name].extend(number[place] for number in numbers)
        return cls(pa.table(columns, schema=_schema()))

    @classmethod
    def load(cls, directory: str | PathLike[str]) -> Results:
        """Load what `save` wrote."""
        import pyarrow.parquet as pq

        path = Path(directory, ROWS)
        if not path.exists():
            raise SpecError(f"no results at {path}; expected a folder that `save` wrote")
        return cls(pq.read_table(path))

    @classmethod
    def together(cls, several: Sequence[Results]) -> Results:
        """Join several experiments in one table, for plots over data sets."""
        import pyarrow as pa

        return cls(pa.concat_tables([results.rows for results in several]))

    def summary(self) -> Any:
        """Return mean and standard error over runs, for every data set, mechanism, budget, level, metric and size.

        A pyarrow Table; the standard error of a single run is null.
        """
        return self._summary

    @cached_property
    def _summary(self) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        done = self.rows.filter(pc.equal(self.rows["status"], "done"))
        keys = ["privacy", *FACTS, *SCORE]
        spread = pc.VarianceOptions(ddof=1, min_count=2)
        grouped = done.group_by(keys, use_threads=False).aggregate(
            [("value", "mean"), ("value", "stddev", spread), ("value", "count")]
        )
        error = pc.divide(grouped["value_stddev"], pc.sqrt(grouped["value_count"].cast(pa.float64())))
        return (
            grouped.select(keys)
            .append_column("runs", grouped["value_count"])
            .append_column("mean", grouped["value_mean"])
            .append_column("standard_error", error)
        )

    def failures(self) -> list[dict[str, Any]]:
        """Return the cells without numbers: mechanism, budget, run, status, message."""
        import pyarrow.compute as pc

        lost = self.rows.filter(pc.not_equal(self.rows["status"], "done"))
        found: list[dict[str, Any]] = lost.select(["mechanism", "budget", "run", "status", "message"]).to_pylist()
        return found

    def save(self, directory: str | PathLike[str]) -> list[Path]:
        """Write results.parquet, summary.csv and a note that they are not private, and return the paths."""
        import pyarrow.parquet as pq
        from pyarrow import csv

        folder = Path(directory)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(self.rows, folder / ROWS)
            csv.write_csv(self.summary(), folder / SUMMARY)
            (folder / NOTE).write_text(WARNING + "\n", encoding="utf-8")
        except OSError as error:
            raise SpecError(f"cannot write into {folder}: {error.strerror}") from None
        return [folder / name for name in (ROWS, SUMMARY, NOTE)]


def _schema() -> Any:
    import pyarrow as pa

    kinds = {
        "privacy": pa.string(),
        "dataset": pa.string(),
        "max_size": pa.int64(),
        "unit": pa.string(),
        "mechanism": pa.string(),
        "budget": pa.string(),
        "epsilon": pa.float64(),
        "rho": pa.float64(),
        "delta": pa.float64(),
        "run": pa.int64(),
        "level": pa.string(),
        "depth": pa.int64(),
        "metric": pa.string(),
        "size": pa.int64(),
        "region": pa.string(),
        "value": pa.float64(),
        "status": pa.string(),
        "message": pa.string(),
    }
    return pa.schema(list(kinds.items()), metadata={"privacy": WARNING})


def _budget_columns(values: dict[str, str | None]) -> dict[str, Any]:
    from fractions import Fraction

    from tallytree.privacy.budget import Budget

    numbers = {name: None if text is None else float(Fraction(text)) for name, text in values.items()}
    return {"budget": str(Budget.from_json(values)), **numbers}
