"""NOT PRIVATE: the "omniscient" reference line of the CoC paper (Section 6.2, "Interpreting error"). Not a mechanism.

It knows which sizes exist in which region, which a mechanism may not know, and adds noise to the counts of those sizes
only; the budget is split over the levels. As a formula and as a simulation, to draw beside errors: a private mechanism
that comes near it has found out where the groups are at little cost.

Two remarks on the paper's formula, D · √2 · levels / ε for D sizes in use. It takes the standard deviation of the noise
for its mean size, which is smaller by √2. And noise of scale levels / ε is too little for counts, of which one entity
changes two: as a way to release counts it would spend 2ε even if the sizes in use were public.
"""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.errors import SpecError
from tallytree.lab.truth import Truth, seeded_measurements
from tallytree.mechanisms import Estimate
from tallytree.mechanisms.budget_allocation import Shares, every_level, level_shares
from tallytree.privacy.budget import Budget
from tallytree.privacy.neighbours import one_entity

NOT_PRIVATE = "NOT PRIVATE: noise only where the true counts are not zero; counts may be negative and need not add up"


def omniscient_errors(truth: Truth, budget: Budget, shares: Shares | None = None) -> Floats:
    """NOT PRIVATE: the paper's formula per region, its mean over each level's regions, from the top level down."""
    in_use = (truth.all_levels() > 0).sum(axis=1)
    tree = truth.hierarchy
    epsilons = [float(share * _epsilon(budget)) for share in level_shares(tree, shares)]
    return np.array(
        [in_use[tree.level_slice(level)].mean() * sqrt(2) / epsilon for level, epsilon in enumerate(epsilons)]
    )


def omniscient(truth: Truth, budget: Budget, *seed: object, shares: Shares | None = None) -> Estimate:
    """NOT PRIVATE, and its certificate says so: the true counts with noise on those that are not zero.

    The L1 error of a region is Σ |noise| over its D sizes in use: on average D · 2α / (1 − α²), with
    α = exp(−ε of the level), which for small ε is D / ε: the formula but for √2.
    """
    # One entity changes two counts, so that twice the budget gives noise of the paper's scale, 1 / ε of the level.
    doubled = Budget(epsilon=2 * _epsilon(budget))
    plan = every_level("counts", truth.hierarchy, doubled, one_entity(), shares)
    noisy = seeded_measurements(truth, plan, *seed).stacked("counts")
    return Estimate(np.where(truth.all_levels() > 0, noisy, 0), NOT_PRIVATE)


def _epsilon(budget: Budget) -> Fraction:
    if budget.currency != "epsilon":
        raise SpecError("the omniscient line has Laplace noise: give its budget as epsilon, without delta")
    return budget.amount
