"""How long the made-up data sets take against the plainest random draw of as many numbers, and with what memory.

    python benchmarks/bench_datasets.py --rows 100000000

Counts are compared with drawing one Poisson number per cell, written people with drawing, shuffling and writing one
column of numbers with Arrow. Only the ratios are worth comparing between machines. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tallytree.lab.datasets import make, write_people

SAMPLE = 5_000_000


def seconds(work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def plain_rows(path: Path) -> None:
    column = np.random.default_rng(0).permutation(SAMPLE)
    pq.write_table(pa.table({"column": column}), path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    found: dict[str, float] = {"rows": rows}
    for name in ("census", "taxi", "race"):
        cells = make(name).counts.size
        drawing = seconds(lambda cells=cells: np.random.default_rng(0).poisson(30.0, cells))
        found[f"{name}_against_poisson_draws"] = round(seconds(lambda name=name: make(name)) / drawing, 2)
    with tempfile.TemporaryDirectory() as folder:
        taken = seconds(lambda: write_people(Path(folder) / "people.parquet", rows=rows))
        plain = seconds(lambda: plain_rows(Path(folder) / "plain.parquet")) / SAMPLE
        found["bytes_per_row"] = round((Path(folder) / "people.parquet").stat().st_size / rows, 2)
    found["people_against_one_shuffled_column"] = round(taken / rows / plain, 2)
    found["peak_gigabytes"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
