"""Draws of exact noise per second, as ratios: to OpenDP, to NumPy's floating-point noise, to the keystream alone.

    python benchmarks/bench_noise.py [--quick]

A readable table goes to the standard error and one line of JSON per case to the standard output. NumPy draws the
difference of two geometrics (Laplace) or a rounded normal (Gaussian): one thread, floating point, not exact.
The keystream alone is one 64-bit word per draw on all cores. Each time is the best of several runs; the column "by CPU"
compares with NumPy by the time of all cores together, so that it does not matter how many there are.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable

import numpy as np

from tallytree.core.kernels import blocks, in_threads
from tallytree.privacy.noise import samplers as noise
from tallytree.privacy.noise.keystream import Keystream

LAPLACE_SCALES = [1, 30, 60, 10_000, 5_000_000]
GAUSSIAN_VARIANCES = [1, 100, 10_000, 1_000_000, 10_000_000_000]
SIZES = [10_000, 1_000_000, 100_000_000]
OPENDP_DRAWS = 100_000
NUMPY_DRAWS = 4_000_000


def best_rates(draw: Callable[[int], object], size: int, seconds: float) -> tuple[float, float]:
    """Draws per second by the clock, and per second of CPU time, each in the best of at least three runs."""
    best, best_cpu, spent, runs = math.inf, math.inf, 0.0, 0
    while runs < 3 or (spent < seconds and runs < 200):
        start, start_cpu = time.perf_counter(), time.process_time()
        draw(size)
        took, took_cpu = time.perf_counter() - start, time.process_time() - start_cpu
        best, best_cpu, spent, runs = min(best, took), min(best_cpu, took_cpu), spent + took, runs + 1
    return size / best, size / best_cpu


def keystream_alone(size: int) -> None:
    """As many words as draws, under as many keys and on as many threads."""

    def fill(first: int, last: int) -> None:
        for start, stop in blocks(last - first, noise.KEY_BLOCK):
            Keystream().words(stop - start)

    in_threads(fill, blocks(size, noise.THREAD_BLOCK))


def numpy_laplace(scale: float, size: int) -> np.ndarray:
    generator, chance = np.random.default_rng(), -math.expm1(-1 / scale)
    return generator.geometric(chance, size) - generator.geometric(chance, size)


def numpy_gaussian(variance: float, size: int) -> np.ndarray:
    return np.rint(np.random.default_rng().normal(0, math.sqrt(variance), size)).astype(np.int64)


def cases() -> list[tuple[str, int, Callable, Callable, Callable]]:
    """Kind, parameter, and the three ways to draw it."""
    return [
        *(("laplace", scale, noise.discrete_laplace, noise.opendp_laplace, numpy_laplace) for scale in LAPLACE_SCALES),
        *(
            ("gaussian", variance, noise.discrete_gaussian, noise.opendp_gaussian, numpy_gaussian)
            for variance in GAUSSIAN_VARIANCES
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Ratios of exact noise to OpenDP, NumPy and the keystream.")
    parser.add_argument("--quick", action="store_true", help="small arrays and short runs only")
    quick = parser.parse_args().quick
    sizes, seconds = ([10_000, 1_000_000], 0.1) if quick else (SIZES, 1.0)
    opendp_draws = OPENDP_DRAWS // 10 if quick else OPENDP_DRAWS

    streams = {size: best_rates(keystream_alone, size, seconds)[0] for size in sizes}
    heading = (
        f"{'noise':<10}{'parameter':>15}{'draws':>13}{'M draws/s':>11}{'÷ OpenDP':>10}{'÷ NumPy':>9}{'by CPU':>8}"
        f"{'÷ keystream':>13}"
    )
    print(heading, file=sys.stderr)
    for kind, parameter, ours, theirs, floating in cases():
        opendp, _ = best_rates(lambda size, draw=theirs, p=parameter: draw(p, size), opendp_draws, seconds)
        numpy, numpy_cpu = best_rates(lambda size, draw=floating, p=parameter: draw(p, size), NUMPY_DRAWS, seconds)
        ours(parameter, 10)  # builds the tables
        for size in sizes:
            rate, cpu = best_rates(lambda size, draw=ours, p=parameter: draw(p, size), size, seconds)
            line = {
                "benchmark": "noise",
                "noise": kind,
                "parameter": parameter,
                "draws": size,
                "ratio_to_opendp": round(rate / opendp),
                "ratio_to_numpy": round(rate / numpy, 2),
                "cpu_ratio_to_numpy": round(cpu / numpy_cpu, 2),
                "ratio_to_keystream": round(rate / streams[size], 3),
            }
            print(json.dumps(line))
            print(
                f"{kind:<10}{parameter:>15,}{size:>13,}{rate / 1e6:>11.1f}{line['ratio_to_opendp']:>10,}"
                f"{line['ratio_to_numpy']:>9.1f}{line['cpu_ratio_to_numpy']:>8.1f}"
                f"{line['ratio_to_keystream']:>13.2f}",
                file=sys.stderr,
            )


if __name__ == "__main__":
    main()
