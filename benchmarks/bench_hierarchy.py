"""Summing leaf counts up the tree, as a ratio to a copy of the result. Run: python benchmarks/bench_hierarchy.py"""

from __future__ import annotations

import argparse
import json
from time import perf_counter

import numpy as np

from common import best_of
from tallytree import Hierarchy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth of the cells")
    cells = 10_000_000 if parser.parse_args().quick else 100_000_000
    rng = np.random.default_rng(0)
    for leaves in (100, 3_144, 40_000):
        tree = Hierarchy.from_levels(
            {"state": [str(leaf % 52) for leaf in range(leaves)], "county": [f"c{leaf}" for leaf in range(leaves)]},
            ["state", "county"],
        )
        counts = rng.integers(0, 100, (leaves, cells // leaves))
        sums = tree.aggregate(counts)
        summing = best_of(5, lambda c=counts, t=tree: t.aggregate(c), perf_counter)
        ratio = summing / best_of(5, lambda s=sums: s.copy(), perf_counter)
        print(f"{tree!r} × {counts.shape[1]:,} sizes: {ratio:.1f} × a copy of the result")
        print(
            json.dumps({"benchmark": "aggregate", "leaves": leaves, "cells": counts.size, "over_copy": round(ratio, 2)})
        )
        del counts, sums


if __name__ == "__main__":
    main()
