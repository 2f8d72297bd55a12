"""NOT PRIVATE: an estimate that knows which sizes occur in which region, to measure mechanisms against.

Knowing where the groups are is most of what an estimate needs, and no mechanism may know it. The oracle knows from the
truth which counts of each leaf are not zero. Only those are unknown, and it finds them by unconstrained least squares
from all measurements, each level weighted by its precision. It clips nothing, so it has no bias. It does not know that
counts are non-negative integers, nor what neighbours look like, so a mechanism may be better.

It supports two views. With `counts`, each size is a separate tree in which the empty regions are left out. With
`at_least`, a leaf's row is flat between the sizes that occur in it, so each flat piece is one unknown that is measured
once per size; up to the smallest size that occurs, it is the leaf's total, and known where totals are public.

The normal equations Aᵀ P A x = Aᵀ P y are solved by conjugate gradients, scaled by their diagonal: A repeats an unknown
along its piece and adds leaves up, so neither it nor its transpose is ever written down. Last, the estimates are
rounded cell by cell, because scores need integers: regions need not add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.names import briefly
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.least_squares import LEAST_VARIANCE, add_up_leaves
from tallytree.lab.truth import Truth
from tallytree.mechanisms.mechanism import Estimate, Mechanism
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import View

Marks: TypeAlias = NDArray[np.bool_]  # which counts of the leaves are not zero

REASON = "it is NOT PRIVATE: it knows from the true counts which sizes occur in which region"
CLOSE = 1e-8  # of the first residual
MOST_STEPS = 2_000


@dataclass(frozen=True, eq=False)
class Pieces:
    """The unknown that each cell of the leaves belongs to, `[leaves, sizes]`, or −1 if it is `known`."""

    number: Integers
    known: Floats
    count: int

    __repr__ = briefly


def oracle(truth: Truth, view: View = "at_least") -> Mechanism:
    """NOT PRIVATE, and cannot be released: return one more mechanism for `compare`, for this truth alone."""
    if view not in ("counts", "at_least"):
        raise ValueError(f"an oracle measures counts or at_least, not {view!r}")
    return Mechanism(
        name="oracle" if view == "at_least" else f"oracle-{view}",
        symbol="",
        paper="this project",
        view=view,
        estimate=partial(_estimate, truth.counts > 0, view),
        cost="some tens of passes over all cells",
        use="a benchmark",
        keeps="nothing: it is rounded cell by cell",
        refused=REASON,
        unplanned=REASON,
    )


def _estimate(occurs: Marks, view: View, measured: Measurements) -> Estimate:
    tree, totals = measured.hierarchy, measured.region_totals
    leaf_totals = None if totals is None else totals[tree.level_slice(tree.depth - 1)].astype(np.float64)
    pieces = pieces_of_counts(occurs) if view == "counts" else flat_pieces(occurs, leaf_totals)
    precision = np.array([1 / max(variance, LEAST_VARIANCE) for variance in measured.variances(view)])
    found = least_squares(measured.stacked(view).astype(np.float64), tree, pieces, precision[tree.level_of])
    whole = np.floor(found + 0.5).astype(np.int64)
    if view == "at_least":
        ends = np.zeros((len(tree), 1), dtype=np.int64)
        if totals is not None:
            whole = np.concatenate([totals[:, None], whole], axis=1)
        whole = -np.diff(np.concatenate([whole, ends], axis=1), axis=1)
    return Estimate(whole, REASON)


def pieces_of_counts(occurs: Marks) -> Pieces:
    number = np.where(occurs, np.cumsum(occurs).reshape(occurs.shape) - 1, -1)
    return Pieces(number, np.zeros(occurs.shape), int(occurs.sum()))


def flat_pieces(occurs: Marks, totals: Floats | None) -> Pieces:
    """Return pieces of `at_least` from size 1 on, which falls after each size that occurs and is zero beyond the
    largest.
    """
    sizes = occurs if totals is None else occurs[:, 1:]
    larger = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1]  # how many sizes from this one on occur
    known = np.zeros(sizes.shape)
    unknown = larger > 0
    if totals is not None:
        all_groups = larger == occurs.sum(axis=1)[:, None]  # no smaller size occurs, not even 0
        known = np.where(all_groups & unknown, totals[:, None], 0.0)
        unknown &= ~all_groups
    most = larger.max(initial=0) + 1
    keys = np.where(unknown, np.arange(len(sizes))[:, None] * most + larger, -1)
    _, number = np.unique(keys[unknown], return_inverse=True)
    numbers = np.full(sizes.shape, -1, dtype=np.int64)
    numbers[unknown] = number
    return Pieces(numbers, known, int(number.max(initial=-1)) + 1)


def least_squares(values: Floats, hierarchy: Hierarchy, pieces: Pieces, precision: Floats) -> Floats:
    """Return estimates `[regions, sizes]` that add up, nearest to `values` in squares weighted by each region's
    precision.
    """
    places = pieces.number >= 0
    numbers = pieces.number[places]

    def spread(unknowns: Floats) -> Floats:
        leaves = np.zeros(places.shape)
        leaves[places] = unknowns[numbers]
        return leaves

    def gathered(cells: Floats) -> Floats:
        """Apply Aᵀ P: from all regions down to the leaves, then piece by piece."""
        weighed = cells * precision[:, None]
        for level in range(1, hierarchy.depth):
            rows = hierarchy.level_slice(level)
            weighed[rows] += weighed[hierarchy.parents[rows]]
        leaves = weighed[hierarchy.level_slice(hierarchy.depth - 1)]
        sums: Floats = np.bincount(numbers, weights=leaves[places], minlength=pieces.count).astype(np.float64)
        return sums

    diagonal = gathered(np.ones(values.shape))  # an unknown occurs once in every region that holds its leaf
    known = add_up_leaves(pieces.known, hierarchy)
    unknowns = np.zeros(pieces.count)
    residual = gathered(values - known)
    if pieces.count:
        scaled = residual / diagonal
        direction, size = scaled.copy(), float(residual @ scaled)
        enough = CLOSE**2 * size
        for _ in range(MOST_STEPS):
            if size <= enough:
                break
            image = gathered(add_up_leaves(spread(direction), hierarchy))
            step = size / float(direction @ image)
            unknowns += step * direction
            residual -= step * image
            scaled = residual / diagonal
            size, before = float(residual @ scaled), size
            direction = scaled + size / before * direction
    return known + add_up_leaves(spread(unknowns), hierarchy)
