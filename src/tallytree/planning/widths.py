"""How wide guaranteed intervals will be, before anything is measured: they follow from the plan's noise alone.

The half-width of a level is that of its widest cell: no interval of the level is wider than that to either side of an
unbiased estimate, whatever the data. From the *published* count, which is smoothed, it can reach further, because an
interval always holds its count (`simulation.Reaching`). Where many sizes are counted `guaranteed` may find narrower
upper ends from the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from tallytree.core.names import briefly
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.intervals.guaranteed import FEWEST_SIZES, WINDOW_PART
from tallytree.estimate.intervals.interval import checked_level
from tallytree.estimate.intervals.linear import LINEAR_VIEWS
from tallytree.estimate.intervals.tails import Errors, Noise
from tallytree.estimate.least_squares import TreeVariances
from tallytree.privacy.accounting import NOISE_FOR, NoiseKind, scale_for
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.noise.draws import gaussian_variance, laplace_variance
from tallytree.privacy.plan import FIRST, Band, Plan


@dataclass(frozen=True, eq=False)
class CellErrors:
    """The law of the error of one count, unbiased and linear in what a plan measures, for every region."""

    law: TreeVariances
    kind: NoiseKind
    scales: Mapping[int, Fraction]  # of each measured level's noise
    copies: int  # how many columns a count is the sum or difference of
    many_sizes: bool  # then `guaranteed` keeps a part of the error probability for windows

    __repr__ = briefly

    @classmethod
    def of(
        cls, hierarchy: Hierarchy, neighbours: Neighbours, plan: Plan, band: Band | None = None
    ) -> CellErrors | None:
        """None where the plan measures neither counts nor `at_least` counts of the leaves, of all sizes at once.

        With a band, for its sizes, as if the cells beside it were measured like those within.
        """
        last = hierarchy.depth - 1
        asked = [question for question in plan.questions if question.sizes == band and not question.summed]
        of_leaves = {question.view for question in asked if question.level == last}
        view = next((view for view in LINEAR_VIEWS if view in of_leaves), None)
        if view is None:
            return None
        kind, sensitivity = NOISE_FOR[plan.budget.currency], neighbours.sensitivity(view)
        scales = {
            question.level: scale_for(kind, sensitivity, plan.cost(question))
            for question in asked
            if question.view == view
        }
        variances = [_variance(kind, scales[at]) if at in scales else math.inf for at in range(hierarchy.depth)]
        # A count is a difference of two at_least counts, but the largest size (and size 0) is a single one.
        cumulative = view == "at_least"
        return cls(
            TreeVariances.of(hierarchy, variances),
            kind,
            scales,
            2 if cumulative and neighbours.max_size > 1 else 1,
            cumulative and neighbours.max_size >= FEWEST_SIZES,
        )

    def deviations(self) -> tuple[float, ...]:
        """The largest standard deviation of a count on each level."""
        tree = self.law.hierarchy
        largest = [float(self.law.variance[tree.level_slice(level)].max()) for level in range(tree.depth)]
        return tuple(math.sqrt(self.copies * variance) for variance in largest)

    def half_widths(self, confidence: float) -> tuple[float, ...]:
        """The half-width of the widest guaranteed interval on each level."""
        chance = (1 - checked_level(confidence)) / 2 * (1 - WINDOW_PART if self.many_sizes else 1)
        tree = self.law.hierarchy
        noise = {level: Noise(self.kind, scale) for level, scale in self.scales.items()}
        half = Errors.of_regions(self.law, noise).over_columns([1.0] * self.copies).reach(chance)
        return tuple(float(half[tree.level_slice(level)].max()) for level in range(tree.depth))


def half_widths(
    hierarchy: Hierarchy, neighbours: Neighbours, plan: Plan, *, confidence: float = 0.95
) -> tuple[float, ...] | None:
    """For each level of the hierarchy, from the top down, the half-width of a guaranteed interval for one count.

    None where the plan measures neither counts nor `at_least` counts of the leaves, in some band of sizes: there the
    widths depend on the data. With bands it is the widest of theirs (a count between two bands is the difference of a
    number of each, and lies between). Sums over categories that are measured besides do not count.
    """
    bands = {question.sizes for question in plan.questions if question.view not in FIRST}
    found = [CellErrors.of(hierarchy, neighbours, plan, band) for band in bands]
    widths = [errors.half_widths(confidence) for errors in found if errors is not None]
    if len(widths) < len(found):
        return None
    return tuple(max(of_level) for of_level in zip(*widths, strict=True))


def _variance(kind: NoiseKind, scale: Fraction) -> float:
    return laplace_variance(scale) if kind == "discrete_laplace" else gaussian_variance(scale)
