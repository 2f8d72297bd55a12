"""How long the default mechanism's estimate takes, as ratios to other work in the same run, and how much memory.

    python benchmarks/bench_settled.py            census shape, noise, depth, families, lists, memory; some minutes
    python benchmarks/bench_settled.py --quick    small shapes; some seconds

Prints a readable line and a line of JSON for each case. Times are CPU times, all cores added, so that other work on the
machine matters less. Drawing the noise is drawing as many values with NumPy.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import subprocess
import sys
from itertools import product

import tallytree as tt
from bench_joint import TAILS, made_up
from common import best_of, drawn, even_tree, report, rise_of_peak
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import MECHANISMS
from tallytree.mechanisms.mechanism import Mechanism
from tallytree.privacy.measurements import Measurements

CENSUS, QUICK = (51, 3143), (12, 300)
DEPTHS = [(51, 3143), (14, 196, 3143), (7, 49, 343, 3143), (5, 20, 100, 500, 3143)]  # 3 to 6 levels
FAMILIES = [(1571, 3143), (393, 3143), (51, 3143), (3143,)]  # 2, 8, 62 and 3,143 children in each
MOST_GROUPS = 200_000  # in the lists that are timed


def mechanism(leaves: str, borrow: bool) -> Mechanism:
    return MECHANISMS["tallytree"].configured({"leaves": leaves, "borrow": borrow})


def measured(
    shape: tuple[int, ...], sizes: int, *, tail: str = "long", epsilon: float = 1, public: bool = True, by: str
) -> Measurements:
    """Measurements of made-up counts with balanced shares, of `at_least` counts or of lists."""
    tree = even_tree(*shape)
    leaves = made_up(tree, sizes, TAILS[tail])[0][-tree.leaf_count :]
    if by == "lists":
        leaves = leaves * MOST_GROUPS // max(MOST_GROUPS, int(leaves.sum()))
    way = mechanism(by, True)
    budget = tt.Budget(epsilon=epsilon)
    plan = way.plan(tree, budget, tt.one_entity(), way.divided(tree, None, "balanced", budget))
    return seeded_measurements(Truth("made up", tree, leaves, public_totals=public), plan, "bench")


def seconds(measurements: Measurements, by: str, borrow: bool, times: int) -> float:
    estimate = mechanism(by, borrow).estimate
    estimate(measurements)
    return best_of(times, lambda: estimate(measurements))


def drawing(measurements: Measurements) -> float:
    """Seconds to draw the noise of all measurements with NumPy."""
    return best_of(5, lambda: [drawn(part.values.shape, (part.variance / 2) ** 0.5) for part in measurements.measured])


def name_of(shape: tuple[int, ...], sizes: int) -> str:
    return f"1→{'→'.join(f'{count:,}' for count in shape)} × {sizes:,}"


def compare(shape: tuple[int, ...], sizes: int, times: int) -> None:
    """Both kinds of totals, long and short tails, much and little noise."""
    for public, tail, epsilon in product((True, False), TAILS, (1.0, 0.1)):
        measurements = measured(shape, sizes, tail=tail, epsilon=epsilon, public=public, by="at_least")
        noise = drawing(measurements)
        for borrow in (True, False):
            ours = seconds(measurements, "at_least", borrow, times)
            report(
                f"{name_of(shape, sizes)}, {'public' if public else 'private'} totals, {tail} tail, ε = {epsilon:g}, "
                f"{'borrowing' if borrow else 'not borrowing'}: {ours / noise:.1f} × drawing the noise",
                case="estimate",
                shape=[1, *shape],
                sizes=sizes,
                public_totals=public,
                tail=tail,
                epsilon=epsilon,
                borrow=borrow,
                cpu_seconds=ours,
                over_drawing=ours / noise,
            )


def growth(what: str, cases: dict[str, Measurements], times: int, *, borrow: bool = True) -> None:
    """Each case's time over that of the first."""
    found = {name: seconds(measurements, "at_least", borrow, times) for name, measurements in cases.items()}
    first = next(iter(found.values()))
    relative = {name: value / first for name, value in found.items()}
    listed = ", ".join(f"{name} {ratio:.2f}" for name, ratio in relative.items())
    report(
        f"{what}, CPU time relative to the first: {listed}",
        case=what,
        relative_time={name: round(ratio, 3) for name, ratio in relative.items()},
    )


def lists(shape: tuple[int, ...], sizes: int, times: int) -> None:
    """Lists take groups × sizes steps: time per step, in the time of drawing one value."""
    measurements = measured(shape, sizes, by="lists")
    groups = sum(part.values.size for part in measurements.measured if part.view == "sorted_sizes")
    values = sum(part.values.size for part in measurements.measured)
    one = drawing(measurements) / values
    for borrow in (True, False):
        ours = seconds(measurements, "lists", borrow, times)
        report(
            f"{name_of(shape, sizes)}, lists of {groups:,} groups, {'borrowing' if borrow else 'not borrowing'}: "
            f"{ours / (groups * sizes) / one:.2f} × drawing one value for each group and size",
            case="lists",
            shape=[1, *shape],
            sizes=sizes,
            groups=groups,
            borrow=borrow,
            nanoseconds_per_step=1e9 * ours / (groups * sizes),
            over_drawing_one=ours / (groups * sizes) / one,
        )


def memory(shape: tuple[int, ...], sizes: int) -> None:
    """Measured in processes of their own, so that nothing freed before can be used again."""
    arguments = [sys.executable, __file__, "--peak", *map(str, [*shape, sizes])]
    share = float(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)
    report(
        f"{name_of(shape, sizes)}: the estimate needs {share:.1f} × the measurements' memory beside them",
        case="memory",
        shape=[1, *shape],
        sizes=sizes,
        peak_over_input=share,
    )


def peak(shape: tuple[int, ...], sizes: int) -> float:
    """The rise of the resident peak during one call, over the size of all measurements in 64 bits."""
    estimate = mechanism("at_least", True).estimate
    estimate(measured(shape, 8, by="at_least"))
    measurements = measured(shape, sizes, by="at_least")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what making the data up has left behind would hide what the estimate takes
    return rise_of_peak(lambda: estimate(measurements)) / sum(8 * part.values.size for part in measurements.measured)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small shapes only")
    parser.add_argument("--peak", nargs="+", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(tuple(options.peak[:-1]), options.peak[-1]))
        return
    shape, many, few = (QUICK, 100, 20) if options.quick else (CENSUS, 1000, 20)
    times = 2
    compare(shape, many, times)
    compare(shape, few, 2 * times)
    for sizes in (few, many // 4):
        noise = {
            f"ε = {epsilon:g}": measured(shape, sizes, epsilon=epsilon, by="at_least") for epsilon in (1, 0.1, 0.01)
        }
        growth(f"more noise, {name_of(shape, sizes)}", noise, times)
        levels = {f"{len(one) + 1} levels": measured(one, sizes, by="at_least") for one in DEPTHS}
        growth(f"more levels, 3,143 leaves × {sizes:,}", levels, times)
        families = {
            f"{one[-2] if len(one) > 1 else 1:,} families": measured(one, sizes, by="at_least") for one in FAMILIES
        }
        growth(f"fewer families, 3,143 leaves × {sizes:,}", families, times)
    lists(shape, many, 1)
    memory((12, 300), 2000 if options.quick else 10_000)
    memory((120, 3000), 60 if options.quick else 64)


if __name__ == "__main__":
    main()
