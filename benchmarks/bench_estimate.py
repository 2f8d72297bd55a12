"""How long the estimation of M_H^dp and M_c^dp takes, as ratios to other work in the same run, and how much memory.

    python benchmarks/bench_estimate.py            the shapes of the paper's census and taxi data; some minutes
    python benchmarks/bench_estimate.py --quick    small shapes; some seconds

Prints a readable line and a line of JSON for each case. How many times longer does the estimation take than copying
its input or drawing the noise? And how many times longer do the paper's tables and a generic solver take than it?
Times are CPU times, all cores added, so that other work on the machine matters less; `wall` is the clock on the wall.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from time import perf_counter, process_time

import numpy as np

from common import best_of, drawn, even_tree, made_up_counts, report, rise_of_peak
from tallytree.core.arrays import Integers
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate import is_optimal, nearest_consistent, non_increasing
from tallytree.lab.rivals.cost_tables import paper_reach, table_estimate

FULL = [((52, 3144), 1000, 6.0), ((52, 3144), 1000, 60.0), ((6, 263), 13282, 6.0), ((6, 263), 13282, 60.0)]
QUICK = [((12, 300), 200, 6.0)]
DEPTHS = [(52, 3144), (14, 196, 2986), (7, 49, 343, 2797), (5, 20, 100, 500, 2571)]  # 3,197 regions each


def compare(shape: tuple[int, ...], sizes: int, scale: float, quick: bool) -> None:
    tree = even_tree(*shape)
    counts = made_up_counts(tree, sizes)
    total = int(counts[0].sum())
    noisy = counts + drawn(counts.shape, scale)
    survival = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    noisy_survival = survival + drawn(counts.shape, scale / 2)
    everyone = np.full(len(tree), total)

    def cumulative() -> Integers:
        smooth = non_increasing(noisy_survival, everyone)
        smooth[:, :-1] -= smooth[:, 1:]
        return nearest_consistent(smooth, tree, total=total)

    found = nearest_consistent(noisy, tree, total=total)
    if not is_optimal(noisy, found, tree, total=total):
        raise SystemExit("not optimal: there is nothing to measure")
    cumulative()
    copy = np.empty_like(noisy)
    np.copyto(copy, noisy)
    ours = best_of(7, lambda: nearest_consistent(noisy, tree, total=total))
    theirs = best_of(7, cumulative)
    copying = best_of(20, lambda: np.copyto(copy, noisy))
    drawing = best_of(3, lambda: drawn(noisy.shape, scale))
    wall = best_of(7, lambda: nearest_consistent(noisy, tree, total=total), perf_counter)
    name = f"1→{'→'.join(f'{count:,}' for count in shape)} × {sizes:,}, λ = {scale:g}"
    report(
        f"{name}: M_H^dp {ours / drawing:.2f} × drawing the noise, {ours / copying:.0f} × copying; "
        f"M_c^dp {theirs / drawing:.2f} × and {theirs / copying:.0f} ×",
        case="estimate",
        shape=[1, *shape],
        sizes=sizes,
        noise_scale=scale,
        cpu_seconds=ours,
        wall_over_cpu=wall / ours,
        over_copying=ours / copying,
        over_drawing=ours / drawing,
        cumulative_over_copying=theirs / copying,
        cumulative_over_drawing=theirs / drawing,
    )
    against_tables(name, shape, noisy, counts, scale, ours)
    if scale <= 20:  # the noise makes no difference to it
        against_clarabel(name, tree, noisy, counts, 1 if quick else 20)


def against_tables(
    name: str, shape: tuple[int, ...], noisy: Integers, counts: Integers, scale: float, ours: float
) -> None:
    """The paper's tables on the first branches and some sizes only, scaled up by the number of cells."""
    whole = even_tree(*shape)
    branches = 4 if scale > 20 else shape[0]
    rows = [0, *range(1, branches + 1), *range(1 + shape[0], int(whole.child_starts[branches + 1]))]
    part = Hierarchy.from_edges([(str(row), str(whole.parents[row]) if row else "") for row in rows])
    some = slice(0, noisy.shape[1], noisy.shape[1] // 4 if scale <= 20 else noisy.shape[1])
    leaves = counts[rows][-part.leaf_count :, some]
    exact = part.aggregate(leaves)
    inputs = exact + (noisy - counts)[rows][:, some]
    total = int(exact[0].sum())
    reaches = [paper_reach(2 * scale**2)] * part.depth
    tables = table_estimate(inputs, part, reaches, total=total)  # compiles, and is checked
    if ((tables - inputs) ** 2).sum() < ((nearest_consistent(inputs, part, total=total) - inputs) ** 2).sum():
        raise SystemExit("the tables found something nearer")
    seconds = best_of(1, lambda: table_estimate(inputs, part, reaches, total=total)) * noisy.size / inputs.size
    report(
        f"{name}: the paper's tables would take {seconds / ours:,.0f} × as long "
        f"(measured on {inputs.size:,} of {noisy.size:,} cells, scaled up)",
        case="tables",
        shape=[1, *shape],
        noise_scale=scale,
        cells_measured=inputs.size,
        cells=noisy.size,
        tables_over_ours=seconds / ours,
    )


def against_clarabel(name: str, tree: Hierarchy, noisy: Integers, counts: Integers, patience: float) -> None:
    """Clarabel on the real relaxation, with twice as many sizes each time until it takes longer than `patience`."""
    try:
        import clarabel  # noqa: F401
    except ImportError:
        print(f"{name}: Clarabel is not installed (pip install 'tallytree[solvers]')")
        return
    sizes, seconds, inputs, status = 4, 0.0, noisy, ""
    while True:
        some = np.linspace(0, noisy.shape[1] - 1, sizes).astype(int)
        inputs, total = noisy[:, some], int(counts[0, some].sum())
        seconds, status = clarabel_seconds(tree, inputs, total)
        if seconds > patience or 2 * sizes > noisy.shape[1]:
            break
        sizes *= 2
    ours = best_of(5, lambda: nearest_consistent(inputs, tree, total=total))
    report(
        f"{name}: Clarabel takes {seconds / ours:,.0f} × as long on {sizes} sizes ({seconds:.0f} s, {status}), "
        "without whole numbers",
        case="clarabel",
        regions=len(tree),
        sizes=sizes,
        status=status,
        clarabel_seconds=seconds,
        clarabel_over_ours=seconds / ours,
    )


def clarabel_seconds(tree: Hierarchy, noisy: Integers, total: int) -> tuple[float, str]:
    """One solve; the variables are the deviations from the noisy counts, as generic solvers want them."""
    import clarabel
    from scipy import sparse

    regions, sizes = noisy.shape
    inner = int(tree.level_starts[-2])
    parents = sparse.csc_matrix((np.ones(regions - 1), (tree.parents[1:], np.arange(1, regions))), (inner, regions))
    sums = sparse.kron(np.eye(sizes), parents - sparse.eye(inner, regions))
    of_root = sparse.kron(np.ones((1, sizes)), sparse.csc_matrix(([1.0], ([0], [0])), (1, regions)))
    positive = sparse.kron(np.eye(sizes), -sparse.eye(regions - inner, regions, inner))
    seen = noisy.T.reshape(-1).astype(float)
    rows = sparse.vstack([sums, of_root, positive]).tocsc()
    right = -(rows @ seen)
    right[sums.shape[0]] += total
    cones = [clarabel.ZeroConeT(sums.shape[0] + 1), clarabel.NonnegativeConeT(positive.shape[0])]
    options = clarabel.DefaultSettings()
    options.verbose = False
    start = process_time()
    squares = (2 * sparse.eye(regions * sizes)).tocsc()
    solver = clarabel.DefaultSolver(squares, np.zeros(regions * sizes), rows, right, cones, options)
    solution = solver.solve()
    return process_time() - start, str(solution.status)


def depths(sizes: int) -> None:
    trees = [even_tree(*shape) for shape in DEPTHS]
    cases = []
    for tree in trees:
        counts = made_up_counts(tree, sizes)
        cases.append((tree, counts + drawn(counts.shape, 6.0), int(counts[0].sum())))
    seconds = [
        best_of(7, lambda tree=tree, noisy=noisy, total=total: nearest_consistent(noisy, tree, total=total))
        for tree, noisy, total in cases
    ]
    relative = [second / seconds[0] for second in seconds]
    listed = ", ".join(f"{len(shape) + 1} levels {ratio:.2f}" for shape, ratio in zip(DEPTHS, relative, strict=True))
    report(
        f"3,197 regions × {sizes} sizes, time relative to 3 levels: {listed}",
        case="depth",
        levels=[len(shape) + 1 for shape in DEPTHS],
        relative_time=[round(ratio, 3) for ratio in relative],
    )


def memory(shape: tuple[int, ...], sizes: int) -> None:
    """Measured in a process of its own, so that nothing freed before can be used again."""
    arguments = [sys.executable, __file__, "--peak", *map(str, [*shape, sizes])]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    share = float(done.stdout)
    report(
        f"1→{'→'.join(map(str, shape))} × {sizes:,}: the estimation needs {share:.1f} × the input's memory beside it",
        case="memory",
        shape=[1, *shape],
        sizes=sizes,
        peak_over_input=share,
    )


def peak(shape: list[int], sizes: int) -> float:
    """The rise of the resident peak during one call, over the size of the input array."""
    tree, rng = even_tree(*shape), np.random.default_rng(3)
    noisy = np.empty((len(tree), sizes), dtype=np.int64)
    for row in noisy:
        row[:] = rng.integers(-20, 40, sizes)
    nearest_consistent(noisy[:, :16], tree, total=1000)
    return rise_of_peak(lambda: nearest_consistent(noisy, tree, total=10 * sizes * shape[-1])) / noisy.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small shapes only")
    parser.add_argument("--peak", nargs="+", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(peak(options.peak[:-1], options.peak[-1]))
        return
    for shape, sizes, scale in QUICK if options.quick else FULL:
        compare(shape, sizes, scale, options.quick)
    depths(50 if options.quick else 500)
    for shape, sizes in [((12, 300), 2000)] if options.quick else [((52, 3144), 1000), ((6, 263), 13282)]:
        memory(shape, sizes)


if __name__ == "__main__":
    main()
