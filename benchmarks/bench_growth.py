"""How time per cell grows with regions, sizes and depth. Run: python benchmarks/bench_growth.py [--quick]

CPU time per cell, relative to the first case of each row; and the chain over drawing its noise with NumPy.

    python benchmarks/bench_growth.py --release 1e8 --figure docs/figures/growth.png

measures a whole release instead (`tallytree`: measuring, estimating, guaranteed intervals) on up to so many cells, 2 to
8 levels and 5 to 100,000 sizes, each case in a process of its own: CPU nanoseconds and bytes of memory for each cell.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common import best_of, drawn, even_tree, made_up_counts, peak_bytes
from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.domain.histogram import at_least
from tallytree.estimate.isotonic import nearest_chain
from tallytree.estimate.joint_tables import joint_cumulative
from tallytree.estimate.nearest import nearest_consistent

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


# -------------------------------------------------------------------- whole releases

STAGES = ("measuring", "estimating", "guaranteed intervals")


def cases(most: float) -> list[dict[str, Any]]:
    """What is varied, by how much; cells, levels and sizes of each case."""
    wide = [10**power for power in range(4, 9) if 10**power <= most]
    middle = int(min(10**6, most))
    return [
        *({"varied": "cells", "cells": cells, "levels": 6, "sizes": 10} for cells in wide),
        *({"varied": "levels", "cells": middle, "levels": levels, "sizes": 10} for levels in range(2, 9)),
        *(
            {"varied": "sizes", "cells": middle, "levels": 3, "sizes": sizes}
            for sizes in (5, 10, 100, 1000, 10_000, 100_000)
        ),
    ]


def grown_tree(levels: int, leaves: int) -> Hierarchy:
    """A tree whose levels grow by about the same factor."""
    width = [max(1, round(leaves ** (level / (levels - 1)))) for level in range(levels)]
    leaf = np.arange(leaves)
    columns = {
        f"level {level}": pc.binary_join_element_wise(
            str(level), pc.cast(pa.array(leaf * count // leaves), pa.string()), "."
        )
        for level, count in enumerate(width)
    }
    return Hierarchy.from_levels(pa.table(columns), list(columns))


def release_case(cells: int, levels: int, sizes: int) -> dict[str, Any]:
    """One release, in this process: CPU nanoseconds and bytes for each cell, by stage."""
    from tallytree.mechanisms import prepare
    from tallytree.privacy.budget import Budget
    from tallytree.privacy.neighbours import Neighbours, one_entity
    from tallytree.privacy.run import measure
    from tallytree.publish.release.error_bars import Publication
    from tallytree.publish.release.release_run import estimate_release
    from tallytree.tables import GroupSizes, Sealed

    def made(tree: Hierarchy, counts: Integers, tell: Callable[[Any], None] = lambda stage: None) -> None:
        data = GroupSizes(hierarchy=tree, max_size=counts.shape[1], counts=Sealed(counts), name="made up")
        chosen, plan = prepare(
            "tallytree",
            {"leaves": "at_least"},
            neighbours=Neighbours.of(data, one_entity()),
            hierarchy=tree,
            totals=None,
            budget=Budget(epsilon=1),
            shares=None,
            priority=None,
        )
        from tallytree.core.progress import Stage

        tell(Stage("measuring"))
        measurements = measure(data, plan, derive_facts=chosen.derive_facts)
        estimate_release(measurements, chosen, Publication(intervals="guaranteed"), progress=tell)

    def counted(tree: Hierarchy, sizes: int) -> Integers:
        rng = np.random.default_rng(1)
        return rng.poisson(20 * np.exp(-8.0 * np.arange(sizes) / sizes), (tree.leaf_count, sizes))

    small = grown_tree(levels, 50)
    made(small, counted(small, min(sizes, 100)))  # compiles
    tree = grown_tree(levels, max(2, cells // sizes))
    counts = counted(tree, sizes)
    Path("/proc/self/clear_refs").write_text("5")
    before, notes = peak_bytes(), [("", time.process_time())]
    made(tree, counts, lambda stage: notes.append((stage.doing, time.process_time())))
    notes.append(("", time.process_time()))
    number = len(tree) * sizes
    spent = dict.fromkeys(STAGES, 0.0)
    for (name, start), (_, stop) in pairwise(notes):
        if name in spent:
            spent[name] += 1e9 * (stop - start) / number
    return {"real_cells": number, "bytes": (peak_bytes() - before) / number, **spent}


def alone(case: dict[str, Any]) -> dict[str, Any]:
    """A case in a process of its own."""
    words = [str(case[name]) for name in ("cells", "levels", "sizes")]
    command = [sys.executable, __file__, "--case", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def releases(most: float, figure: Path | None, *, apart: bool) -> None:
    """All cases, a line of JSON for each, and a figure."""
    rows = []
    for case in cases(most):
        row = {**case, **(alone(case) if apart else release_case(case["cells"], case["levels"], case["sizes"]))}
        row["nanoseconds"] = sum(row[name] for name in STAGES)
        rows.append(row)
        stages = ", ".join(f"{name} {row[name]:.0f}" for name in STAGES)
        print(
            f"{case['varied']:7} {case['cells']:>11,} cells, {case['levels']} levels, {case['sizes']:>7,} sizes: "
            f"{row['nanoseconds']:7.0f} ns of CPU ({stages}), {row['bytes']:5.0f} bytes a cell",
            flush=True,
        )
    print(json.dumps({"benchmark": "growth of a release", "cases": rows}))
    if figure is not None:
        draw(rows, figure)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Time and memory of each cell against what is varied."""
    from tallytree.core import display

    alt = display.altair()
    kinds = {"CPU nanoseconds for each cell": STAGES, "bytes of memory for each cell": ("bytes",)}
    lines = []
    for title, names in kinds.items():
        across = []
        for varied in ("cells", "levels", "sizes"):
            some = [
                {"at": row[varied], "what": name.replace("bytes", "peak"), "value": max(row[name], 0.1)}
                for row in rows
                if row["varied"] == varied
                for name in names
            ]
            scale, axis = alt.Scale(zero=False), alt.Axis(title=varied, tickMinStep=1)
            if varied != "levels":
                powers = [10**power for power in range(1, 10)]
                ends = [min(row["at"] for row in some), max(row["at"] for row in some)]
                scale = alt.Scale(type="log", domain=ends, nice=False)
                axis = alt.Axis(title=varied, format="~s", values=powers)
            across.append(
                alt.Chart(alt.Data(values=some), width=190, height=170)
                .mark_line(point=True)
                .encode(
                    x=alt.X("at:Q", scale=scale, axis=axis),
                    y=alt.Y("value:Q", scale=alt.Scale(type="log"), title=title if varied == "cells" else None),
                    color=alt.Color(
                        "what:N",
                        title=None,
                        scale=alt.Scale(domain=[*STAGES, "peak"], range=display.COLORS[:4]),
                    ),
                )
            )
        lines.append(alt.hconcat(*across))
    display.save(alt.vconcat(*lines), path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="smaller shapes")
    parser.add_argument("--release", type=float, metavar="CELLS", help="whole releases of up to so many cells")
    parser.add_argument("--figure", type=Path, help="where to draw these")
    parser.add_argument("--together", action="store_true", help="these in one process: quicker, memory less exact")
    parser.add_argument("--case", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case or options.release:
        np.seterr(under="ignore")  # chances far out in tails of noise
    if options.case:
        print(json.dumps(release_case(*options.case)))
        return
    if options.release:
        releases(options.release, options.figure, apart=not options.together)
        return
    quick = options.quick
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
