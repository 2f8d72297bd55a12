"""What Gaussian noise loses, summed exactly: a smaller σ² for the same (ε, δ) than the conversion from ρ gives.

*Theorem.* Let neighbours differ in at most k_i integers of the answers with noise of parameter σ_i², each by at most 1.
Then the answers together are (ε, δ)-DP for δ = `bound_delta`.

*Proof.*
1. An integer that does not differ, or that is left out, changes nothing or makes the answers tell less. So it suffices
   to bound the case in which exactly k_i integers differ. Discrete Gaussians are symmetric, so the directions do not
   matter: all differ by +1.
2. The privacy loss of one of them at noise x is (x − 1)²/(2σ²) − x²/(2σ²) = (1 − 2x)/(2σ²). The integers have
   independent noise, so their losses add up, and the smallest δ is E (1 − e^(ε − L))₊ for the sum L of all losses. It
   grows if a loss is made larger, and if a probability is made larger (Sommer, Meiser and Mohammadi 2019, Theorem 5).
3. `bound_delta` rounds each loss up to a grid. A probability is a weight over the sum of all weights; it is divided by
   the sum of finitely many, which is smaller. What is beyond these counts as an infinite loss (`_one_integer`): it has
   at most the mass 2 e^(−t²/(2σ²)) beyond t (Canonne, Kamath and Steinke 2020, Proposition 25).
4. All terms of sums and convolutions are positive. In floating point, a sum of n positive terms is off by less than a
   factor of 1 + n · 2^−53, and each step has at most 2^21 terms: `UP` covers that and the exponentials. Convolutions
   are direct. Small masses at the lower end move up to a larger loss; those at the upper end count as infinite. ∎

The views in `BY_ONE` move by at most 1 in each integer, if their L1 sensitivity equals the square of their L2
sensitivity. *Proof.* One change moves a group from one size to another, or adds or removes a group. At most one count
goes down and one up, each by 1; each `at_least` count moves by at most 1; so does a total, also beside counts.
Neighbours are b such changes apart. For b > 1, changes of the same group add up, and `Neighbours.sensitivity` has b² in
L2² and b in L1, so they differ. ∎ Plans with bands of sizes or with a branch rule keep the conversion from ρ.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.errors import BudgetError
from tallytree.privacy.budget import Budget, largest_rho, scale_for
from tallytree.privacy.measurements import Measurement
from tallytree.privacy.neighbours import Neighbours, Sensitivity, View
from tallytree.privacy.plan import Plan

BY_ONE: tuple[View, ...] = ("counts", "counts_total", "at_least", "totals")

GRID = 2000  # steps of the grid of losses in ε
FACTORS = 10_000  # steps in which σ² can be smaller
MOST_TERMS = 1 << 20  # values of the noise on either side; with more, the conversion from ρ is used
MOST_LOSSES = 1 << 18  # steps of the losses of one integer; likewise
UP = 1 + 1e-9  # covers the rounding of one step in floating point
NEGLIGIBLE = 1e-12  # mass at the lower end that moves up
BEYOND = 30.0  # the tails left out are at most e^−30 of δ

Cells = tuple[tuple[Fraction, int], ...]  # how many integers differ by 1, for each σ²


@dataclass(frozen=True, eq=False)
class _Losses:
    """Upper bounds on probabilities of losses, a step of the grid apart; `infinite` is the mass without a bound."""

    first: int  # the smallest loss, in steps
    masses: Floats
    infinite: float

    def __add__(self, other: _Losses) -> _Losses:
        """Return the law of the sum of independent losses."""
        masses = np.convolve(self.masses, other.masses) * UP
        infinite = (self.infinite + other.infinite) * UP
        below = int(np.searchsorted(np.cumsum(masses), NEGLIGIBLE))
        masses[min(below, len(masses) - 1)] += masses[:below].sum() * UP
        above = int(np.searchsorted(np.cumsum(masses[::-1]), infinite * 1e-3))
        kept = len(masses) - min(above, len(masses) - below - 1)
        infinite += masses[kept:].sum() * UP
        return _Losses(self.first + other.first + below, masses[below:kept], infinite)

    def times(self, count: int) -> _Losses:
        """Return the law of the sum of `count` independent losses with this law."""
        if count == 1:
            return self
        half = self.times(count // 2)
        return half + half + self if count % 2 else half + half


@lru_cache(maxsize=256)
def bound_delta(cells: Cells, epsilon: Fraction, delta: Fraction) -> float:
    """Return an upper bound on δ at ε; laws are cut far below the δ that is wanted. Infinite if a law is too wide."""
    step, total = float(epsilon) / GRID, None
    for variance, count in cells:
        one = _one_integer(float(variance), step, float(delta))
        if one is None:
            return math.inf
        several = one.times(count)
        total = several if total is None else total + several
    if total is None:
        return 0.0
    beyond = (total.first + np.arange(len(total.masses))) * step * UP - float(epsilon)
    return float((total.masses * -np.expm1(-np.maximum(beyond, 0))).sum() * UP + total.infinite) * UP


def _one_integer(variance: float, step: float, delta: float) -> _Losses | None:
    """Return the law of the loss of one integer that differs by 1; None if it is too wide."""
    most = BEYOND - math.log(delta)
    last = math.ceil(math.sqrt(2 * variance * most))
    if last > MOST_TERMS or (1 + 2 * last) / variance / step > MOST_LOSSES:
        return None
    noise = np.arange(-last, last + 1)
    weights = np.exp(-(noise**2) / (2 * variance))
    losses = np.ceil((1 - 2 * noise) / (2 * variance * step) + 1e-6).astype(np.int64)
    masses = np.bincount(losses - losses[-1], weights / weights.sum() * UP).astype(np.float64)
    return _Losses(int(losses[-1]), masses, 2 * math.exp(-(last**2) / (2 * variance)) * UP)


@lru_cache(maxsize=256)
def smallest_factor(cells: Cells, epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return the smallest factor for all σ², on a grid above 1/2, at which `bound_delta` is at most δ; or 1."""
    low, high = FACTORS // 2, FACTORS
    while high - low > 1:
        middle = (low + high) // 2
        factor = Fraction(middle, FACTORS)
        if bound_delta(tuple((variance * factor, count) for variance, count in cells), epsilon, delta) <= delta:
            high = middle
        else:
            low = middle
    return Fraction(high, FACTORS)


def count_by_one(view: View, sensitivity: Sensitivity) -> int | None:
    """Return how many integers of a view differ, each by 1; None if one may differ by more."""
    return int(sensitivity.l1) if view in BY_ONE and sensitivity.l1 == sensitivity.l2_squared else None


def account_exactly(budget: Budget, plan: Plan, neighbours: Neighbours, regions: Sequence[int]) -> Budget:
    """Return an (ε, δ) budget with the largest ρ that `bound_delta` allows the plan; the same one if it allows none."""
    if budget.epsilon is None or budget.delta is None or budget.noise != "gaussian" or plan.branch_rule is not None:
        return budget
    rho, cells = largest_rho(budget.epsilon, budget.delta), []
    for query in plan.queries:
        sensitivity = neighbours.sensitivity(query.view, regions[query.level], summed=query.summed)
        count = None if query.sizes is not None else count_by_one(query.view, sensitivity)
        if count is None:
            return budget
        cells.append((scale_for("discrete_gaussian", sensitivity, query.share * rho), count))
    factor = smallest_factor(tuple(cells), budget.epsilon, budget.delta)
    return budget.accounted(rho / factor)


def check_accounted(budget: Budget, measured: Iterable[Measurement]) -> None:
    """Raise a BudgetError unless a budget with more ρ than the conversion gives is proved for its measurements."""
    if not budget.is_accounted:
        return
    assert budget.epsilon is not None
    assert budget.delta is not None
    cells = []
    for one in measured:
        count = None if one.sizes is not None else count_by_one(one.view, one.sensitivity)
        if count is None or one.noise != "discrete_gaussian":
            raise BudgetError(f"no exact accounting is known for {one.view}: give epsilon and delta alone")
        cells.append((one.scale, count))
    if bound_delta(tuple(cells), budget.epsilon, budget.delta) > budget.delta:
        raise BudgetError(f"the noise does not give epsilon = {budget.epsilon} at delta = {budget.delta}")
