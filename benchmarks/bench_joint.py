"""How long the joint estimators take, as ratios to other work in the same run, and how near they come to the optimum.

    python benchmarks/bench_joint.py            census shape, growth, depth, memory; some minutes
    python benchmarks/bench_joint.py --quick    small shapes; some seconds

Prints a readable line and a line of JSON for each case. Times are CPU times, all cores added, so that other work on the
machine matters less. The gap is that of the whole numbers that come out to the proved lower bound.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from bench_estimate import DEPTHS
from common import best_of, drawn, even_tree, made_up_counts, report, rise_of_peak
from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.joint_tables import joint_counts, joint_cumulative

CENSUS = ((52, 3144), 1000)
QUICK = ((12, 300), 100)
TAILS = {"long": 8.0, "short": 100.0}  # groups thin out by exp(−tail) over the sizes: everywhere some, or mostly none


def made_up(tree: Hierarchy, sizes: int, tail: float) -> tuple[Integers, Integers, Integers]:
    """Counts (sizes 0 …), `at_least` counts and totals of regions that differ much in population."""
    counts = made_up_counts(tree, sizes + 1, tail)
    survivors = np.ascontiguousarray(np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:])
    return counts, survivors, counts.sum(axis=1)


def compare(shape: tuple[int, ...], sizes: int, times: int) -> None:
    """Both estimators at ε = 1 and 0.1 over three levels: counts have twice the sensitivity of `at_least` counts."""
    tree = even_tree(*shape)
    for tail, decay in TAILS.items():
        counts, survivors, totals = made_up(tree, sizes, decay)
        for epsilon in (1.0, 0.1):
            case = {"tail": tail, "epsilon": epsilon, "shape": [1, *shape], "sizes": sizes}
            scale = tree.depth / epsilon
            noisy = survivors + drawn(survivors.shape, scale)
            against_drawing(
                "joint-cumulative, public totals",
                partial(joint_cumulative, noisy, tree, totals=totals),
                lambda n=noisy, s=scale: drawn(n.shape, s),
                times,
                case,
            )
            against_drawing(
                "joint-cumulative, private totals",
                partial(joint_cumulative, noisy, tree),
                lambda n=noisy, s=scale: drawn(n.shape, s),
                times,
                case,
            )
            noisy = counts + drawn(counts.shape, 2 * scale)
            against_drawing(
                "joint-counts",
                partial(joint_counts, noisy, tree, totals=totals),
                lambda n=noisy, s=scale: drawn(n.shape, 2 * s),
                times,
                case,
            )


def against_drawing(
    estimator: str, work: Callable[[], Any], draw: Callable[[], Any], times: int, case: dict[str, Any]
) -> None:
    found = work()
    ours, drawing = best_of(times, work), best_of(5, draw)
    shape = "→".join(f"{count:,}" for count in case["shape"])
    report(
        f"{shape} × {case['sizes']:,}, {case['tail']} tail, ε = {case['epsilon']:g}: {estimator} takes "
        f"{ours / drawing:.1f} × drawing the noise, {found.iterations} iterations, gap {found.gap:.3%}",
        case="estimate",
        estimator=estimator,
        cpu_seconds=ours,
        over_drawing=ours / drawing,
        iterations=found.iterations,
        gap=found.gap,
        **case,
    )


def growth(what: str, cases: list[tuple[tuple[int, ...], int]], times: int) -> None:
    """Time per cell of each case over that of the first: 1 is linear growth."""
    per_cell: dict[str, list[float]] = {"joint-cumulative": [], "joint-counts": []}
    gaps: dict[str, list[float]] = {"joint-cumulative": [], "joint-counts": []}
    for shape, sizes in cases:
        tree = even_tree(*shape)
        counts, survivors, totals = made_up(tree, sizes, TAILS["long"])
        for name, solve, noisy in (
            ("joint-cumulative", joint_cumulative, survivors + drawn(survivors.shape, 3.0)),
            ("joint-counts", joint_counts, counts + drawn(counts.shape, 6.0)),
        ):
            gaps[name].append(solve(noisy, tree, totals=totals).gap)
            seconds = best_of(times, lambda s=solve, n=noisy, t=tree, g=totals: s(n, t, totals=g))
            per_cell[name].append(seconds / noisy.size)
    for name, found in per_cell.items():
        relative = [value / found[0] for value in found]
        listed = ", ".join(
            f"1→{'→'.join(map(str, shape))} × {sizes} {ratio:.2f}"
            for (shape, sizes), ratio in zip(cases, relative, strict=True)
        )
        report(
            f"{name}, {what}, CPU time per cell relative to the first: {listed}; "
            f"gaps {', '.join(f'{gap:.2%}' for gap in gaps[name])}",
            case=what,
            estimator=name,
            shapes=[[1, *shape, sizes] for shape, sizes in cases],
            relative_time_per_cell=[round(ratio, 3) for ratio in relative],
            gaps=[float(f"{gap:.3g}") for gap in gaps[name]],
        )


def memory(shape: tuple[int, ...], sizes: int) -> None:
    """Measured in processes of their own, so that nothing freed before can be used again."""
    for estimator in ("joint-cumulative", "joint-counts"):
        arguments = [sys.executable, __file__, "--peak", estimator, *map(str, [*shape, sizes])]
        share = float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
        report(
            f"1→{'→'.join(map(str, shape))} × {sizes:,}: {estimator} needs {share:.1f} × the input's memory beside it",
            case="memory",
            estimator=estimator,
            shape=[1, *shape],
            sizes=sizes,
            peak_over_input=share,
        )


def peak(estimator: str, shape: list[int], sizes: int) -> float:
    """The rise of the resident peak during one call, over the size of the input array."""
    solve: Any = joint_cumulative if estimator == "joint-cumulative" else joint_counts
    tree = even_tree(*shape)
    counts, survivors, totals = made_up(tree, sizes, TAILS["long"])
    noisy = survivors if estimator == "joint-cumulative" else counts
    solve(noisy[:, :64] + 1, tree, totals=totals)
    return rise_of_peak(lambda: solve(noisy, tree, totals=totals, tolerance=0.5)) / noisy.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small shapes only")
    parser.add_argument("--peak", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak[0], [int(part) for part in options.peak[1:-1]], int(options.peak[-1])))
        return
    times = 2
    compare(*(QUICK if options.quick else CENSUS), times)
    sizes = 50 if options.quick else 500
    many = 300 if options.quick else 3000
    growth(
        "more regions", [((max(2, leaves // 60), leaves), sizes) for leaves in (many // 100, many // 10, many)], times
    )
    growth("more sizes", [((10, many // 10), count) for count in (sizes // 25, sizes // 5 * 2, sizes * 4)], times)
    growth("more levels", [(shape, sizes // 2) for shape in DEPTHS], times)
    memory((12, 300), 2000 if options.quick else 10_000)


if __name__ == "__main__":
    main()
