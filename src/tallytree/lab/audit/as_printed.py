"""NOT PRIVATE as it claims: M_c^ch of the PGSR paper with the noise that the paper prints, and what it really spends.

The paper gives each number of a level's chain noise for one change by one entity (Section 9.2.2), but one entity
changes as many numbers as the level has regions. So with a stated ε over L levels the real loss is (ε / L) · Σ |R_ℓ|,
and it is larger still on the paper's own counts from the front, which all shift when a group appears or vanishes. The
same noise is what `pgsr-chain` adds under the honest budget with shares in proportion to |R_ℓ|: that is the plan made
here, so an account of it shows the real ε.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallytree.core.errors import SpecError
from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms import MECHANISMS, Estimate, Mechanism
from tallytree.mechanisms.pgsr import chain
from tallytree.privacy.budget import Budget, as_decimal
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit
from tallytree.privacy.plan import Plan, Shares, every_level


def real_epsilon(stated: Budget, hierarchy: Hierarchy) -> Fraction:
    """The ε that the paper's noise spends where it states `stated`, on survival counts: for either privacy unit."""
    return _stated_epsilon(stated) * len(hierarchy) / hierarchy.depth


def real_epsilon_from_the_front(stated: Budget, hierarchy: Hierarchy, neighbours: Neighbours) -> Fraction:
    """The same on the paper's counts from the front.

    Where groups persist with a size-0 cell, they tell as much as survival counts. Where a group of size 1 can vanish,
    all counts from its cell to the end of the chain change by one: K·|R_ℓ| of them, against noise for the `at_least`
    sensitivity of one region.
    """
    persistent = real_epsilon(stated, hierarchy)
    if neighbours.public_totals:
        return persistent
    all_of_them = neighbours.max_size * neighbours.rows_per_entity
    return persistent * Fraction(all_of_them, neighbours.sensitivity("at_least").l1)


@dataclass(frozen=True)
class AsPrinted(Mechanism):
    """`pgsr-chain` with the paper's noise. Its budget is the stated one; its plan's is the one that is really spent."""

    def plan(self, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None) -> Plan:
        """Noise of scale L / ε (times the quantity bound) on every level, charged with what it really costs."""
        if shares is not None:
            raise SpecError(f"{self.name} divides its stated budget equally over the levels, as the paper does")
        spent = Budget(epsilon=real_epsilon(budget, hierarchy))
        return every_level("chain", hierarchy, spent, unit, np.diff(hierarchy.level_starts).tolist())


def as_printed(measurements: Measurements) -> Estimate:
    """M_c^ch; the certificate gives the ε that was stated and the ε that was spent."""
    hierarchy = measurements.hierarchy
    spent = measurements.budget.amount
    stated = spent * hierarchy.depth / len(hierarchy)
    words = (
        f"NOT PRIVATE as stated: the paper states ε = {as_decimal(stated)}, its noise spends ε = {as_decimal(spent)}"
    )
    return Estimate(chain(measurements).counts, words)


def _stated_epsilon(stated: Budget) -> Fraction:
    if stated.currency != "epsilon":
        raise SpecError("the paper's chain has Laplace noise: give its stated budget as epsilon, without delta")
    return stated.amount


CHAIN_AS_PRINTED = AsPrinted(
    name="pgsr-chain-as-printed",
    symbol="M_c^ch as printed",
    paper=MECHANISMS["pgsr-chain"].paper,
    view="chain",
    estimate=as_printed,
    keeps=MECHANISMS["pgsr-chain"].keeps,
    cost="less than the time of drawing the noise; spends many times the ε that it states",
    use="showing what the paper's figures rest on",
    refused="it spends more privacy than it states",
)
