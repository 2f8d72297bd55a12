"""Predictions on a grid of settings: budgets × splits × largest sizes, for one mechanism. The page of a plan shows it.

Between two budgets of the grid, errors are interpolated: their logarithms are linear in the logarithm of the budget.
Shares of counts are linear in it. `misses` measures what that costs: each budget of the grid is left out in turn, and
its simulated values are compared with those interpolated from its neighbours. These are twice as far apart as the
neighbours of a value that the page interpolates, so the true error of interpolation is smaller. Both sides contain the
chance of the simulation, as a comparison of the page with a new plan does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.errors import SpecError
from tallytree.core.progress import Progress, Tell, in_percent, piece, silent
from tallytree.estimate.intervals.interval import REACH_SHARE
from tallytree.planning.prior import Prior
from tallytree.planning.report import Alternatives, PlanReport, predict_errors, vary_budget
from tallytree.planning.simulation import Effort, PublicFacts
from tallytree.privacy.budget import Budget

TIMES = tuple(map(Fraction, ("1/8", "0.18", "1/4", "0.35", "1/2", "0.7", "1.4", "2", "2.8", "4", "5.6", "8")))
LARGEST_AMOUNT = 20  # of a budget that was not asked for: larger ones hardly protect, and leave hardly any noise
SIZE_TIMES = (Fraction(1, 2), Fraction(3, 2))
EFFORT: Mapping[str, Any] = {"most_cells": 80_000, "in_all": 80_000, "bounds": (4, 20)}
BESIDE_SIZES = 4  # sizes that would take as long as the part of a simulation that does not depend on sizes
MEASURES = ("emd", "within_5_percent", "reach", "half_width")
PREDICTED = MEASURES[:3]  # half-widths follow from the noise, and are not interpolated
LEAST = 0.01  # entities or groups: smaller errors are interpolated as this


@dataclass(frozen=True, eq=False)
class PlanGrid:
    """The predictions of one mechanism for every setting; everything in it is public."""

    asked: Budget
    budgets: tuple[Budget, ...]  # in ascending order
    reports: Mapping[int, PlanReport]  # by largest size, in ascending order
    max_size: int  # the one of the spec

    @property
    def own(self) -> PlanReport:
        """Return the predictions for the spec's largest size."""
        return self.reports[self.max_size]

    def values(self, measure: str) -> Floats:
        """Return a measure of all predictions `[largest sizes, splits, budgets, levels]`; NaN if it is unknown."""
        return np.array(
            [
                [
                    [
                        [np.nan if (value := getattr(one, measure)) is None else value for one in found]
                        for found in (report.of(budget=budget, split=split) for budget in self.budgets)
                    ]
                    for split in report.splits
                ]
                for report in self.reports.values()
            ]
        )

    def misses(self, measure: str) -> dict[str, list[float]]:
        """Return, by split and level, how far most interpolated values are from simulated ones.

        Errors are compared relative to the simulated value, or to 1 if that is larger. A reach is an integer, and
        counts as missed only beyond 1.
        """
        places, values = np.log(amounts(self.budgets)), self.values(measure)
        share = measure == "within_5_percent"
        heights = values if share else np.log(np.maximum(values, LEAST))
        part = (places[1:-1] - places[:-2]) / (places[2:] - places[:-2])
        between = heights[:, :, :-2] + part[:, np.newaxis] * (heights[:, :, 2:] - heights[:, :, :-2])
        known = values[:, :, 1:-1]
        miss = np.abs((between if share else np.exp(between)) - known)
        if not share:
            miss = np.maximum(miss - (measure == "reach"), 0) / np.maximum(known, 1)
        return dict(zip(self.own.splits, np.nanquantile(miss, REACH_SHARE, axis=(0, 2)).tolist(), strict=True))


def amounts(budgets: Sequence[Budget]) -> Floats:
    """Return the numbers that budgets are stated by: ε, or ρ."""
    return np.array([float(one.amount if one.epsilon is None else one.epsilon) for one in budgets])


def predict_grid(
    facts: PublicFacts,
    prior: Prior,
    budgets: Sequence[Budget],
    alternatives: Alternatives,
    *,
    effort: Effort | None = None,
    progress: Progress = silent,
) -> PlanGrid:
    """Simulate a mechanism with the splits, several sizes, and budgets from an eighth to eight times the first.

    Budgets that were not asked for are at most `LARGEST_AMOUNT`. `alternatives` names the mechanism. A largest size
    that it refuses is left out.
    """
    own = facts.neighbours.max_size
    others = [one for one in vary_budget(budgets[0], TIMES) if one.amount <= LARGEST_AMOUNT]
    every = tuple(sorted({*budgets, *others}, key=lambda one: one.amount))
    sizes = sorted({own, *(max(1, int(own * times + Fraction(1, 2))) for times in SIZE_TIMES)})
    tried = [replace(facts, neighbours=replace(facts.neighbours, max_size=size)) for size in sizes]
    efforts = [effort or Effort.usual(one, **EFFORT) for one in tried]
    work = [one.replicates * (size + BESIDE_SIZES) for one, size in zip(efforts, sizes, strict=True)]
    tell, found = in_percent("simulating the page", progress), dict[int, PlanReport]()
    for at, size in enumerate(sizes):
        start, stop = sum(work[:at]) / sum(work), sum(work[: at + 1]) / sum(work)
        how: dict[str, Any] = {"effort": efforts[at], "progress": _in_part(piece(tell, start, stop))}
        try:
            found[size] = predict_errors(tried[at], prior, every, alternatives, **how)
        except SpecError:
            if size == own:
                raise
    return PlanGrid(budgets[0], every, found, own)


def _in_part(tell: Tell) -> Progress:
    """Return a listener that reports the done part of stages of known length."""
    return lambda stage: tell(stage.done / stage.of) if stage.of else None
