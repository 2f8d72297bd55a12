"""NOT PRIVATE: the results of an experiment as one tidy table, with mean and standard error, and as files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

from tallytree.core.errors import SpecError
from tallytree.core.names import shortened, visible
from tallytree.lab.metrics import ALL_LEVELS

NOT_PRIVATE = "NOT PRIVATE"
WARNING = (
    "NOT PRIVATE: these results compare estimates with the true counts. They are for data that are public or made up, "
    "and no part of a release."
)
ROWS, SUMMARY, NOTE = "results.parquet", "summary.csv", "NOT-PRIVATE.txt"
FACTS = ["dataset", "max_size", "unit", "mechanism", "budget", "epsilon", "rho", "delta"]
SCORE = ["level", "depth", "metric", "size"]


@dataclass(frozen=True, eq=False)
class Results:
    """NOT PRIVATE. `rows` is a pyarrow Table with one number per row; a cell that gave none is a row with its `status`.

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
        """From the records of finished cells."""
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
        """What `save` wrote."""
        import pyarrow.parquet as pq

        path = Path(directory, ROWS)
        if not path.exists():
            raise SpecError(f"there are no results at {path}")
        return cls(pq.read_table(path))

    @classmethod
    def together(cls, several: Sequence[Results]) -> Results:
        """Several experiments in one table, for plots over data sets."""
        import pyarrow as pa

        return cls(pa.concat_tables([results.rows for results in several]))

    def summary(self) -> Any:
        """Mean and standard error over runs, for every data set, mechanism, budget, level, metric and size.

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
        """The cells that gave no numbers: mechanism, budget, run, status, message."""
        import pyarrow.compute as pc

        lost = self.rows.filter(pc.not_equal(self.rows["status"], "done"))
        found: list[dict[str, Any]] = lost.select(["mechanism", "budget", "run", "status", "message"]).to_pylist()
        return found

    def save(self, directory: str | PathLike[str]) -> list[Path]:
        """Write results.parquet, summary.csv and a note that they are not private; the paths are returned."""
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
