"""How long intervals take, as ratios to drawing the noise and to estimating in the same run, and how much memory.

    python benchmarks/bench_intervals.py            census shape; some minutes
    python benchmarks/bench_intervals.py --quick    a small shape; some seconds

Prints a readable line and a line of JSON for each case. Ratios to drawing the noise are of wall-clock times, best of
several runs, with those of CPU times (all cores added) beside them; what replicates cost beyond their estimates is CPU
time. Drawing the noise is drawing exactly the noise of the measurements.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any

import numpy as np

import tallytree as tt
from bench_joint import CENSUS, QUICK, TAILS, made_up
from common import best_of, even_tree, report, rise_of_peak
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals import tails as noise_tails
from tallytree.estimate.intervals.guaranteed import guaranteed
from tallytree.estimate.intervals.typical import REPLICATES, Simulation, typical
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.noise.samplers import discrete_laplace

BUDGET = tt.Budget(epsilon=1)


def measured(shape: tuple[int, ...], sizes: int, mechanism: str) -> tuple[Measurements, np.ndarray]:
    """Measurements of made-up counts, and the counts themselves in the place of released ones."""
    tree = even_tree(*shape)
    counts, _, _ = made_up(tree, sizes, TAILS["long"])
    truth = Truth("made up", tree, counts[-tree.leaf_count :], public_totals=True)
    plan = MECHANISMS[mechanism].plan(tree, BUDGET, tt.one_entity())
    return seeded_measurements(truth, plan, "bench"), counts


def draw_all(measurements: Measurements) -> None:
    for part in measurements.measured:
        discrete_laplace(part.scale, part.values.size)


def cold(work: Callable[[], Any]) -> Callable[[], Any]:
    """The same with every table of quantiles forgotten first, as in a process that has just begun."""

    def forgetful() -> None:
        for table in vars(noise_tails).values():
            if hasattr(table, "cache_clear"):
                table.cache_clear()
        work()

    return forgetful


def uneven_tree(families: int, leaves: int) -> Hierarchy:
    """Families of very different lengths: in each the leaves' estimates have a law of their own."""
    rng = np.random.default_rng(1)
    weights = rng.lognormal(0, 1.2, families)
    family_of = rng.choice(families, leaves - families, p=weights / weights.sum())
    names = [f"{family:06}" for family in np.sort(np.concatenate([np.arange(families), family_of]))]
    return Hierarchy.from_levels(
        {"family": names, "leaf": [f"{leaf:07}" for leaf in range(leaves)]}, ["family", "leaf"]
    )


def few_sizes(leaves: int, times: int) -> None:
    """4 sizes only, so that what is done once for each region counts."""
    trees = {"alike": even_tree(leaves // 200, leaves), "uneven": uneven_tree(leaves // 200, leaves)}
    for name, tree in trees.items():
        for mechanism in ("joint-cumulative", "tallytree"):
            counts, _, _ = made_up(tree, 4, TAILS["long"])
            truth = Truth("made up", tree, counts[-tree.leaf_count :], public_totals=True)
            measurements = seeded_measurements(
                truth, MECHANISMS[mechanism].plan(tree, BUDGET, tt.one_entity()), "bench"
            )
            guaranteed(measurements, counts)
            draw_all(measurements)
            spent = best_of(times, cold(lambda m=measurements, c=counts: guaranteed(m, c)))
            ratio = spent / best_of(times, lambda m=measurements: draw_all(m))
            report(
                f"{leaves:,} leaves in families of {name} lengths × 4 sizes, {mechanism}: guaranteed intervals take "
                f"{ratio:.0f} × the CPU time of drawing the noise",
                case="few sizes",
                mechanism=mechanism,
                families=name,
                leaves=leaves,
                cpu_over_drawing=ratio,
            )


def against_drawing(shape: tuple[int, ...], sizes: int, times: int) -> None:
    for mechanism in ("joint-cumulative", "joint-counts"):
        measurements, counts = measured(shape, sizes, mechanism)
        for simultaneous in (False, True):

            def work(m: Measurements = measurements, c: np.ndarray = counts, s: bool = simultaneous) -> None:
                guaranteed(m, c, simultaneous=s)

            work()
            draw_all(measurements)
            ratios = [
                best_of(times, cold(work), clock) / best_of(times, lambda m=measurements: draw_all(m), clock)
                for clock in (perf_counter, process_time)
            ]
            bands = "simultaneous bands" if simultaneous else "intervals"
            report(
                f"1→{'→'.join(map(str, shape))} × {sizes:,}, {mechanism}: guaranteed {bands} take {ratios[0]:.1f} × "
                f"drawing the noise (CPU {ratios[1]:.1f} ×)",
                case="guaranteed",
                mechanism=mechanism,
                simultaneous=simultaneous,
                shape=[1, *shape],
                sizes=sizes,
                over_drawing=ratios[0],
                cpu_over_drawing=ratios[1],
            )


def against_estimating(shape: tuple[int, ...], sizes: int, mechanism: str) -> None:
    """What R replicates cost beyond their own R estimates, in CPU time of one and the same call."""
    measurements, counts = measured(shape, sizes, mechanism)
    inside = 0.0

    def estimate(again: Measurements) -> Any:
        nonlocal inside
        start = process_time()
        found = MECHANISMS[mechanism].estimate(again)
        inside += process_time() - start
        return found

    typical(measurements, counts, Simulation(estimate), replicates=2).intervals  # noqa: B018
    inside = 0.0
    whole = best_of(1, lambda: typical(measurements, counts, Simulation(estimate)).intervals)
    drawing = REPLICATES * best_of(3, lambda: draw_all(measurements))
    beyond, beyond_both = whole / inside - 1, whole / (inside + drawing) - 1
    report(
        f"1→{'→'.join(map(str, shape))} × {sizes:,}, {mechanism}: {REPLICATES} replicates take {beyond:.0%} more than "
        f"their estimates, {beyond_both:.0%} more than drawing their noise and estimating",
        case="typical",
        mechanism=mechanism,
        shape=[1, *shape],
        sizes=sizes,
        beyond_estimates=beyond,
        beyond_drawing_and_estimating=beyond_both,
    )


def memory(shape: tuple[int, ...], sizes: int) -> None:
    """In a process of its own, so that the peak is that of one call."""
    for kind in ("guaranteed", "typical"):
        arguments = [sys.executable, __file__, "--peak", kind, *map(str, [*shape, sizes])]
        share = float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
        report(
            f"1→{'→'.join(map(str, shape))} × {sizes:,}: {kind} needs {share:.1f} × the counts' memory beside them",
            case="memory",
            kind=kind,
            shape=[1, *shape],
            sizes=sizes,
            peak_over_counts=share,
        )


def peak(kind: str, shape: list[int], sizes: int) -> float:
    """The rise of the resident peak during one call, over the size of the counts."""
    measurements, counts = measured(tuple(shape), sizes, "pgsr-cumulative-dp")
    small, few = measured(tuple(shape), 40, "pgsr-cumulative-dp")
    estimate = MECHANISMS["pgsr-cumulative-dp"].estimate

    def work(m: Measurements, c: np.ndarray) -> None:
        if kind == "guaranteed":
            guaranteed(m, c)
        else:
            typical(m, c, Simulation(estimate), replicates=5)

    work(small, few)
    return rise_of_peak(lambda: work(measurements, counts)) / counts.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small shape only")
    parser.add_argument("--peak", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak[0], [int(part) for part in options.peak[1:-1]], int(options.peak[-1])))
        return
    shape, sizes = QUICK if options.quick else CENSUS
    against_drawing(shape, sizes, 3)
    few_sizes(4_000 if options.quick else 40_000, 5)
    for mechanism in ("pgsr-cumulative-dp", "joint-cumulative"):
        against_estimating(shape, sizes, mechanism)
    memory((12, 300), 2000 if options.quick else 20_000)


if __name__ == "__main__":
    main()
