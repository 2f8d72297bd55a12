"""Write and verify a large release: time as a ratio to a plain copy on disk, and peak memory beside the counts array.

Run: python benchmarks/bench_release.py [--sizes 32000] [--quick]
The release has 1 → 52 → 3,144 regions; with 32,000 sizes that is 102 million cells, most of them zero.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tallytree as tt
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS


def truth(sizes: int) -> Truth:
    states = [str(county % 52) for county in range(3144)]
    tree = tt.Hierarchy.from_levels(
        {"nation": ["US"] * 3144, "state": states, "county": [f"{county:05d}" for county in range(3144)]},
        ["nation", "state", "county"],
    )
    rng = np.random.default_rng(0)
    counts = np.zeros((3144, sizes + 1), dtype=np.int64)
    counts[:, 1:12] = rng.poisson(2000 * 0.6 ** np.arange(11), (3144, 11))
    return Truth("large", tree, counts, public_totals=True)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, default=32_000)
    parser.add_argument("--quick", action="store_true", help="1,000 sizes")
    options = parser.parse_args()
    sizes = 1000 if options.quick else options.sizes
    data = truth(sizes)
    mechanism = MECHANISMS["pgsr-cumulative-dp"]
    plan = mechanism.plan(data.hierarchy, tt.Budget(epsilon=1), tt.one_entity())
    measurements = seeded_measurements(data, plan, 0)
    estimate, estimating = timed(lambda: mechanism.estimate(measurements))
    from dataclasses import replace

    made = tt.Release(
        estimate.counts, replace(measurements, noise_source="tallytree"), mechanism, estimate.certificate, "Large"
    )
    with tempfile.TemporaryDirectory() as folder:
        before = peak()
        _, saving = timed(lambda: made.save(Path(folder) / "release"))
        extra = max(0, peak() - before)
        _, copying = timed(lambda: np.save(Path(folder) / "copy.npy", made.counts))
        outcome, verifying = timed(lambda: tt.verify(Path(folder) / "release"))
        assert outcome.ok, outcome.faults
        written = sum(path.stat().st_size for path in (Path(folder) / "release").iterdir())
    row = {
        "benchmark": "release",
        "cells": int(made.counts.size),
        "non_zero": int(np.count_nonzero(made.counts)),
        "save_over_copy": round(saving / copying, 1),
        "verify_over_copy": round(verifying / copying, 1),
        "save_over_estimate": round(saving / estimating, 1),
        "extra_peak_over_array": round(extra / made.counts.nbytes, 2),
        "megabytes": round(written / 1e6),
    }
    print(f"{row['cells']:,} cells, {row['non_zero']:,} not zero, {row['megabytes']:,} MB on disk")
    print(f"  saving     {row['save_over_copy']} × a plain copy of the array to disk")
    print(f"  verifying  {row['verify_over_copy']} ×")
    print(f"  memory     {row['extra_peak_over_array']} × the array on top of what estimation needed")
    print(json.dumps(row))


if __name__ == "__main__":
    main()
