"""All answers of a mixture of products on an ACS-shaped workload: by whole tables against query by query.

    OPENBLAS_NUM_THREADS=1 python benchmarks/bench_answers.py

Both run on NumPy, on the same 500 components; by whole tables one factor runs in compiled loops on all cores, so the
ratio of processor time is given too. Query by query a slice of the queries is timed, drawn evenly from the
whole workload, and scaled to all of it; `in batches` is the network's way, 256 queries at a time, also on a slice.
The slices' answers are compared with the tables'. Only the ratios are worth comparing between machines. The last line
is JSON.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from tallytree.domain.schema import Attribute, Schema
from tallytree.lab.datasets import DOMAINS
from tallytree.lab.rivals.hgem import expected_counts, queries_of
from tallytree.synthesis.mixture import Mixture
from tallytree.synthesis.workload import Workload, sampled_sets

BATCH = 256


def acs_schema() -> Schema:
    domain = DOMAINS["acs"]

    def attributes(codes):
        return tuple(Attribute(name, tuple(str(code) for code in range(number))) for name, number in codes.items())

    return Schema(attributes(domain.household), attributes(domain.person), domain.max_persons)


def evenly(workload: Workload, number: int) -> list:
    """(table's place, cell) of `number` queries at even distances in the whole workload."""
    starts = np.cumsum([0, *(marginal.cells(workload.schema) for marginal in workload)])
    flat = np.linspace(0, starts[-1] - 1, number).astype(np.int64)
    places = np.searchsorted(starts, flat, side="right") - 1
    shapes = [marginal.shape(workload.schema) for marginal in workload]
    return [
        (place, tuple(int(index) for index in np.unravel_index(cell - starts[place], shapes[place])))
        for place, cell in zip(places.tolist(), flat.tolist(), strict=True)
    ]


def one_query(columns, sizes, there, weights, marginal, cell) -> float:
    """HQR's f_q, as directly as NumPy can say it; columns lie one after the other in memory."""
    homes = weights
    for name, code in zip(marginal.household, cell, strict=False):
        homes = homes * columns[name][code]
    if not marginal.person:
        return float(homes.sum() if marginal.of == "households" else homes @ there.sum(axis=1))
    codes = cell[len(marginal.household) :]
    chances = columns[marginal.person[0]][codes[0]]
    for name, code in zip(marginal.person[1:], codes[1:], strict=True):
        chances = chances * columns[name][code]
    if marginal.of == "persons":
        return float(homes @ (there * chances).sum(axis=1))
    return float(homes @ (sizes * (1 - np.cumprod(1 - chances, axis=1))).sum(axis=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--components", type=int, default=500)
    parser.add_argument("--slice", type=int, default=20_000)
    options = parser.parse_args()
    schema = acs_schema()
    workload = sampled_sets(schema, 3, 128, "benchmark")
    model = Mixture.start(schema, components=options.components)
    chances = model.chances
    cells = evenly(workload, options.slice)

    by_table, by_table_processor = [], []
    for _ in range(4):
        start, start_processor = time.perf_counter(), time.process_time()
        tables = model.answers_all(workload)
        by_table.append(time.perf_counter() - start)
        by_table_processor.append(time.process_time() - start_processor)
    expected = np.array([tables[place][cell] for place, cell in cells])

    columns = {
        name.split(" ", 1)[1]: np.ascontiguousarray(np.moveaxis(array, -1, 0))
        for name, array in chances.items()
        if " " in name
    }
    there = np.ascontiguousarray(chances["sizes"][:, :0:-1].cumsum(axis=1)[:, ::-1])
    sizes = np.ascontiguousarray(chances["sizes"][:, 1:])
    start, start_processor = time.perf_counter(), time.process_time()
    found = [
        one_query(columns, sizes, there, chances["weights"], workload.marginals[place], cell) for place, cell in cells
    ]
    one_by_one = (time.perf_counter() - start) * workload.queries / len(cells)
    one_by_one_processor = (time.process_time() - start_processor) * workload.queries / len(cells)

    ones = np.ones((options.components, 1)), np.ones((options.components, schema.max_persons, 1))
    household = np.concatenate([*(chances[f"household {a.name}"] for a in schema.household), ones[0]], axis=1)
    person = np.concatenate([*(chances[f"person {a.name}"] for a in schema.person), ones[1]], axis=2)
    asked = [
        queries_of(schema, [(workload.marginals[place], cell) for place, cell in cells[first : first + BATCH]])
        for first in range(0, len(cells) // 4, BATCH)
    ]
    start = time.perf_counter()
    batches = [expected_counts(some, chances["weights"], chances["sizes"], household, person) for some in asked]
    in_batches = (time.perf_counter() - start) * workload.queries / sum(len(batch) for batch in batches)

    apart = np.abs(found - expected).max()
    batched = np.concatenate(batches)
    apart = max(apart, np.abs(batched - expected[: len(batched)]).max())
    assert apart < 1e-10, apart
    print(
        json.dumps(
            {
                "tables": len(workload),
                "queries": workload.queries,
                "components": options.components,
                "slice": len(cells),
                "largest_difference": float(apart),
                "by_table_seconds": round(min(by_table), 3),
                "one_by_one_against_by_table": round(one_by_one / min(by_table), 1),
                "processor_time_of_one_by_one_against_by_table": round(
                    one_by_one_processor / min(by_table_processor), 1
                ),
                "in_batches_against_by_table": round(in_batches / min(by_table), 1),
            }
        )
    )


if __name__ == "__main__":
    main()
