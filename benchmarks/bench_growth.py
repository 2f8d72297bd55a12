"""How time per cell grows with regions, sizes and depth. Run: python benchmarks/bench_growth.py [--quick]

CPU time per cell, relative to the first case of each row; and the chain over drawing its noise with NumPy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np

from common import best_of, drawn, even_tree, made_up_counts
from tallytree.arrays import Integers
from tallytree.estimate.joint.cumulative import joint_cumulative
from tallytree.estimate.tree.chain import nearest_chain
from tallytree.estimate.tree.nearest import nearest_consistent
from tallytree.hierarchy import Hierarchy
from tallytree.histogram import at_least

SCALE = 30.0


def hierarchical(tree: Hierarchy, counts: Integers) -> Callable[[], object]:
    noisy = counts + drawn(counts.shape, SCALE)
    return lambda: nearest_consistent(noisy, tree, total=int(counts[0].sum()))


def chain(tree: Hierarchy, counts: Integers) -> Callable[[], object]:
    noisy = counts[:, ::-1].cumsum(axis=1)[:, ::-1] + drawn(counts.shape, SCALE)
    return lambda: nearest_chain(noisy, tree, total=int(counts[0].sum()))


def cumulative(tree: Hierarchy, counts: Integers) -> Callable[[], object]:
    noisy = at_least(counts, 1) + drawn(counts.shape, SCALE)
    return lambda: joint_cumulative(noisy, tree)


ESTIMATORS = {"pgsr-hierarchical-dp": hierarchical, "pgsr-chain": chain, "joint-cumulative": cumulative}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="smaller shapes")
    quick = parser.parse_args().quick
    shrink = 5 if quick else 1
    rows: dict[str, list[tuple[tuple[int, ...], int]]] = {
        "300, 3,000, 30,000 leaves × 100 sizes": [((n // 30, n), 100 // shrink) for n in (300, 3000, 30_000)],
        "300 leaves × 100, 1,000, 10,000 sizes": [((10, 300), s) for s in (100, 1000, 10_000 // shrink)],
        "3, 4, 5, 6 levels, about 3,200 regions × 250 sizes": [
            (shape, 250 // shrink)
            for shape in ((52, 3144), (14, 210, 2970), (7, 56, 400, 2730), (5, 25, 125, 625, 2400))
        ],
    }
    for row, cases in rows.items():
        for name, make in ESTIMATORS.items():
            per_cell = []
            for shape, sizes in cases:
                tree = even_tree(*shape)
                counts = made_up_counts(tree, sizes)
                work = make(tree, counts)
                work()
                per_cell.append(best_of(3, work) / counts.size)
            relative = [round(each / per_cell[0], 2) for each in per_cell]
            print(f"{name:22} {row}: {', '.join(map(str, relative))}")
            print(json.dumps({"benchmark": "growth", "estimator": name, "row": row, "per_cell": relative}))
    tree = even_tree(52, 3144)
    counts = made_up_counts(tree, 1000 // shrink)
    drawing = best_of(3, lambda: drawn(counts.shape, SCALE))
    for name in ("pgsr-chain", "pgsr-hierarchical-dp"):
        work = ESTIMATORS[name](tree, counts)
        work()
        ratio = round(best_of(3, work) / drawing, 2)
        print(f"{name:22} 1→52→3,144 × {counts.shape[1]:,}: {ratio} × drawing the noise with NumPy")
        print(json.dumps({"benchmark": "growth", "estimator": name, "over_drawing": ratio}))


if __name__ == "__main__":
    np.seterr(all="raise")
    main()
