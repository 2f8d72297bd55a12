"""Results of experiments as CSV files: a row for each number, with runs, seed and time. NOT PRIVATE."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallytree.lab import Results

TIME = "processor_seconds_estimating"
COLUMNS = (
    *("privacy", "dataset", "max_size", "mechanism", "epsilon", "level", "metric"),
    *("runs", "seed", "mean", "standard_error", "seconds", "status"),
)
Row = dict[str, Any]


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = COLUMNS) -> None:
    """Write rows, with numbers of six digits; a column that a row does not have is empty."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _short(row.get(name)) for name in columns})


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def summarised(several: Sequence[Results], metrics: Sequence[str], seed: int = 0) -> list[Row]:
    """Rows of some metrics with each mechanism's time, and one row for each mechanism and budget without a result."""
    found: list[Row] = []
    for results in several:
        summary = results.summary().to_pylist()
        times = {(row["mechanism"], row["budget"]): row["mean"] for row in summary if row["metric"] == TIME}
        for row in summary:
            if row["metric"] in metrics:
                time = times.get((row["mechanism"], row["budget"]))
                found.append({**row, "seed": seed, "seconds": time, "status": "done"})
        places = {"dataset": results.rows["dataset"][0].as_py(), "max_size": results.rows["max_size"][0].as_py()}
        for lost in _first_failures(results.rows.to_pylist()):
            found.append({**lost, **places, "seed": seed, "status": f"{lost['status']}: {lost['message']}"})
    return found


def _first_failures(rows: list[Row]) -> list[Row]:
    lost = [row for row in rows if row["status"] != "done"]
    return list({(row["mechanism"], row["budget"]): row for row in reversed(lost)}.values())


def of_runs(
    data: str, mechanism: str, levels: Sequence[str], errors: Sequence[Sequence[float]], **more: Any
) -> list[Row]:
    """Rows of earth mover's distances per region, one for each level; a single run has no standard error."""
    found = []
    for place, level in enumerate(levels):
        values = np.array([run[place] for run in errors], float)
        spread = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        row = {"dataset": data, "mechanism": mechanism, "level": level, "metric": "emd_per_region", "runs": len(values)}
        row |= {"privacy": "NOT PRIVATE", "mean": float(values.mean()), "standard_error": spread, "status": "done"}
        found.append({**row, "seed": 0, **more})
    return found
