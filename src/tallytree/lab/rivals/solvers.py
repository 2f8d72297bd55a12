"""Solve Models 1 and 2 of the PGSR paper (M_H and M_c) with generic solvers, as baselines for comparison.

As integer programs, SCIP proves their optimum, for small cases. As continuous programs, Clarabel solves them, and each
cell is then rounded separately: the result may no longer add up, as the paper's Table 7 shows for its M_H^r and M_c^r.
Different here: only the grand total is fixed (the paper's (H2) cannot hold for all regions); Model 2 is about
`at_least` counts, which do not rise with the size; levels have weights; and a solver's variables are deviations from
the noisy counts, because on raw counts a "solved" can be some percent above the optimum.

SCIP knows linear objectives. The square of an integer d is the largest of the lines (2k + 1)d − k(k + 1) through the
parabola's neighbouring whole points, so some of them give a lower bound, and lines are added until the bound equals the
cost of a solution in hand: then that solution is optimal, even if other lines are missing. The first lie around the
relaxation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.registry import import_extra
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.checks import Weights, integer_table, integer_weights

SOLVERS = "tallytree[solvers]"
MOST_CELLS = 4_000  # of an exact program, regions × sizes: some seconds for SCIP; twice as many take minutes
MOST_SECONDS = 120.0  # that SCIP may take
PROOF_TOLERANCE = 1e-6  # how far, relatively, the proof may fall short where unequal weights make costs large


@dataclass
class _Program:
    """Least Σ weight · (x − noisy)² over `[regions, sizes]`, x ≥ 0, children add up to their parent, and more rows.

    A row is (cells, coefficients, right-hand side): Σ coefficient · x equals it, or is at most it.
    """

    noisy: Integers
    weights: Integers  # of each cell
    equal: list[tuple[list[int], list[int], int]] = field(default_factory=list)
    at_most: list[tuple[list[int], list[int], int]] = field(default_factory=list)

    @classmethod
    def on_tree(cls, noisy: NDArray[Any], hierarchy: Hierarchy, weights: Weights) -> _Program:
        noisy = integer_table(noisy, len(hierarchy))
        sizes = noisy.shape[1]
        of_level = np.array(integer_weights(weights, hierarchy.depth), dtype=np.int64)
        program = cls(noisy, np.repeat(of_level[hierarchy.level_of], sizes))
        for region in range(int(hierarchy.level_starts[-2])):
            family = [*hierarchy.children_of(region), region]
            for size in range(sizes):
                cells = [member * sizes + size for member in family]
                program.equal.append((cells, [1] * (len(cells) - 1) + [-1], 0))
        return program


def hierarchical_exact(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Return the optimum of Model 1, proved by SCIP: the consistent counts nearest to noisy ones."""
    return _proven(_model_1(noisy, hierarchy, total, weights))


def hierarchical_relaxed(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, total: int | None = None, weights: Weights = None
) -> Integers:
    """Return the real optimum of Model 1, rounded cell by cell: nearest, but the counts may not add up."""
    return _rounded(_relaxed(_model_1(noisy, hierarchy, total, weights)))


def cumulative_exact(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, upper: Integers | None = None, weights: Weights = None
) -> Integers:
    """Return the optimum of Model 2, proved by SCIP: the consistent `at_least` counts `[regions, sizes]` nearest to
    noisy ones.

    `upper` bounds each region's first count, by its public number of groups.
    """
    return _proven(_model_2(noisy, hierarchy, upper, weights))


def cumulative_relaxed(
    noisy: NDArray[Any], hierarchy: Hierarchy, *, upper: Integers | None = None, weights: Weights = None
) -> Integers:
    """Return the real optimum of Model 2, rounded cell by cell: monotone, but the counts may not add up."""
    counts = _rounded(_relaxed(_model_2(noisy, hierarchy, upper, weights)))
    # Rounding keeps the order; a solver's last digits may not.
    return np.minimum.accumulate(counts, axis=1)


def too_large(cells: int) -> str:
    """Return why this many cells are refused, and what to do; empty if they are not refused."""
    if cells <= MOST_CELLS:
        return ""
    return (
        f"an exact integer program is for at most {MOST_CELLS:,} cells (regions × sizes), and these are {cells:,}; "
        "use pgsr-hierarchical-dp (the same optimum) or pgsr-cumulative-dp"
    )


def _model_1(noisy: NDArray[Any], hierarchy: Hierarchy, total: int | None, weights: Weights) -> _Program:
    program = _Program.on_tree(noisy, hierarchy, weights)
    if total is not None:
        sizes = program.noisy.shape[1]
        program.equal.append((list(range(sizes)), [1] * sizes, int(total)))
    return program


def _model_2(noisy: NDArray[Any], hierarchy: Hierarchy, upper: Integers | None, weights: Weights) -> _Program:
    program = _Program.on_tree(noisy, hierarchy, weights)
    regions, sizes = program.noisy.shape
    for region in range(regions):
        first = region * sizes
        program.at_most += [([cell, cell + 1], [-1, 1], 0) for cell in range(first, first + sizes - 1)]
        if upper is not None:
            program.at_most.append(([first], [1], int(upper[region])))
    return program


def _proven(program: _Program) -> Integers:
    """Return SCIP's optimum, with lines added until its own bound proves it."""
    if reason := too_large(program.noisy.size):
        raise SpecError(reason)
    scip = import_extra("pyscipopt", "the exact program", SOLVERS)
    noisy = program.noisy.ravel().tolist()
    heaviest = int(program.weights.max(initial=1))
    model = scip.Model()
    model.hideOutput()
    deviations = [model.addVar(vtype="I", lb=-seen, ub=None) for seen in noisy]
    squares = [model.addVar(vtype="C", lb=0) for _ in noisy]
    for rows, relation in ((program.equal, "=="), (program.at_most, "<=")):
        for cells, coefficients, right in rows:
            left = scip.quicksum(c * deviations[cell] for cell, c in zip(cells, coefficients, strict=True))
            rest = right - sum(c * noisy[cell] for cell, c in zip(cells, coefficients, strict=True))
            model.addCons(left == rest if relation == "==" else left <= rest)
    model.setObjective(
        scip.quicksum(w / heaviest * square for w, square in zip(program.weights.tolist(), squares, strict=True))
    )
    guesses = np.floor(_relaxed(program) - program.noisy).astype(np.int64).ravel().tolist()
    lines = [(cell, guess + offset) for cell, guess in enumerate(guesses) for offset in (-2, -1, 0, 1, 2)]
    known = set(lines)
    start = monotonic()
    while True:
        for cell, step in lines:
            model.addCons(squares[cell] >= (2 * step + 1) * deviations[cell] - step * (step + 1))
        model.setParam("limits/time", max(0.0, MOST_SECONDS - (monotonic() - start)))
        model.optimize()
        if model.getStatus() != "optimal":
            raise ReleaseError(
                f"SCIP did not prove an optimum within {MOST_SECONDS:g} seconds (it says {model.getStatus()}). "
                "The same measurements can be estimated with pgsr-hierarchical-dp or pgsr-cumulative-dp."
            )
        found = [round(model.getVal(deviation)) for deviation in deviations]
        cost = sum(w * gap**2 for w, gap in zip(program.weights.tolist(), found, strict=True))
        unproven = cost - model.getDualbound() * heaviest
        if unproven < (0.99 if heaviest == 1 else max(0.99, PROOF_TOLERANCE * cost)):
            break
        lines = [(cell, step) for cell, gap in enumerate(found) for step in (gap - 1, gap) if (cell, step) not in known]
        if not lines:
            raise ReleaseError("SCIP's bound falls short of its own solution: please report this bug in tallytree")
        known.update(lines)
        model.freeTransform()
    return program.noisy + np.array(found, dtype=np.int64).reshape(program.noisy.shape)


def _relaxed(program: _Program) -> NDArray[np.float64]:
    """Return Clarabel's real optimum."""
    clarabel, sparse = (import_extra(name, "this", SOLVERS) for name in ("clarabel", "scipy.sparse"))
    noisy, cells = program.noisy.ravel(), program.noisy.size
    rows, columns, values, right = [], [], [], []
    for number, (where, coefficients, bound) in enumerate([*program.equal, *program.at_most]):
        rows += [number] * len(where)
        columns += where
        values += coefficients
        right.append(bound - int(np.dot(coefficients, noisy[where])))
    shape = (len(right), cells)
    matrix = sparse.vstack(
        [sparse.csc_matrix((np.array(values, dtype=float), (rows, columns)), shape=shape), -sparse.identity(cells)],
        format="csc",
    )
    bounds = np.concatenate([np.array(right, dtype=float), noisy.astype(float)])
    cones = [clarabel.ZeroConeT(len(program.equal)), clarabel.NonnegativeConeT(len(program.at_most) + cells)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    quadratic = sparse.diags(2.0 * program.weights / program.weights.max(initial=1), format="csc")
    answer = clarabel.DefaultSolver(quadratic, np.zeros(cells), matrix, bounds, cones, settings).solve()
    if str(answer.status) not in ("Solved", "AlmostSolved"):
        raise ReleaseError(f"Clarabel did not solve the relaxation (it says {answer.status})")
    real: NDArray[np.float64] = (noisy + np.array(answer.x)).reshape(program.noisy.shape)
    return real


def _rounded(real: NDArray[np.float64]) -> Integers:
    return np.maximum(np.floor(real + 0.5), 0).astype(np.int64)
