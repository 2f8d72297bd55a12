"""Warnings before a budget is spent: a weak guarantee, a surprising unit of privacy, or more noise than necessary."""

from __future__ import annotations

import math
import warnings
from fractions import Fraction

from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms import Mechanism
from tallytree.mechanisms.budget_allocation import Shares
from tallytree.mechanisms.noise_choice import error_ratio
from tallytree.privacy.budget import Budget, as_decimal, epsilon_of
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import Plan

LARGEST_EPSILON = 20
LARGEST_DELTA = Fraction(1, 100_000)
LEAST_RATIO = 1.05  # of predicted errors that are worth a warning
USUAL_DELTA = Fraction(1, 1_000_000)  # at which a ρ that comes without a δ is judged


class WeakPromise(UserWarning):
    """The guarantee of a release is so weak that it protects little."""


class PlanWarning(UserWarning):
    """A plan protects or costs something that its user may not expect."""


class UselessCounts(UserWarning):
    """The release will consist of little but noise."""


def weaknesses(budget: Budget, groups: int | None = None) -> list[str]:
    """Return what is weak about a budget; `groups` is their number, if it is public."""
    found = []
    delta = budget.delta or USUAL_DELTA
    epsilon = budget.epsilon if budget.epsilon is not None else epsilon_of(budget.amount, delta)
    if epsilon > LARGEST_EPSILON:
        at = f" (at δ = {as_decimal(delta)}, from ρ = {as_decimal(budget.amount)})" if budget.epsilon is None else ""
        times = f"10^{math.floor(float(epsilon) / math.log(10))}"
        found.append(
            f"ε = {as_decimal(epsilon)}{at} protects little: a result may be more than {times} times as likely with "
            "one unit's data as without them. Usual values lie between 0.1 and 10."
        )
    if budget.delta is not None and budget.noise != "laplace" and budget.delta > LARGEST_DELTA:
        found.append(
            f"δ = {as_decimal(budget.delta)} is large: with that probability the bound ε may not hold. Use "
            f"{as_decimal(LARGEST_DELTA)} or less."
        )
    if budget.delta is not None and groups and budget.delta > Fraction(1, groups):
        found.append(
            f"δ = {as_decimal(budget.delta)} is more than 1 / {groups:,}, where {groups:,} is the public number of "
            "groups: such a δ would allow one group to be published unprotected. Use a far smaller one."
        )
    return found


def warn_of_plan(
    mechanism: Mechanism,
    plan: Plan,
    neighbours: Neighbours,
    hierarchy: Hierarchy,
    *,
    shares: Shares | None = None,
    priority: str | None = None,
) -> list[str]:
    """Warn about what a plan protects or costs that its user may not expect, from public facts alone."""
    found = []
    if neighbours.unit.kind == "one_entity" and neighbours.quantity_bound > 1 and not neighbours.entity_column:
        most = f"{neighbours.quantity_bound:,}"
        found.append(
            f"unit 'one_entity' protects one row of the data with its whole quantity (up to {most}), not one of the "
            f"entities that the row counts. If each row is a whole group, such as a household with its number of "
            f"persons, use unit 'one_group', or give one row per entity. A row may change a size by {most}, so this "
            f"release uses the mechanism {mechanism.name}."
        )
    budget = plan.budget
    if budget.epsilon is not None and budget.noise in ("gaussian", "zcdp"):
        pure = Budget(epsilon=budget.epsilon)
        laplace = mechanism.plan(hierarchy, pure, neighbours.unit, mechanism.divided(hierarchy, shares, priority, pure))
        if (ratio := error_ratio(plan, laplace, neighbours, hierarchy)) > LEAST_RATIO:
            found.append(
                f"the predicted error with Gaussian noise is {ratio:.1f} times that of Laplace noise at epsilon = "
                f"{as_decimal(budget.epsilon)}, which protects at least as well (but costs more in a ledger kept in "
                'rho). Set noise = "laplace", or leave out delta, to use Laplace noise.'
            )
    for text in found:
        warnings.warn(text, PlanWarning, stacklevel=3)
    return found
