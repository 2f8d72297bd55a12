"""Budgets that promise little, in words: whoever is about to spend one should know."""

from __future__ import annotations

import math
from fractions import Fraction

from tallytree.privacy.budget import Budget, as_decimal, epsilon_of

LARGEST_EPSILON = 20
LARGEST_DELTA = Fraction(1, 100_000)
USUAL_DELTA = Fraction(1, 1_000_000)  # at which a ρ that comes without a δ is judged


class WeakPromise(UserWarning):
    """What is about to be released is protected by little more than a word."""


class UselessCounts(UserWarning):
    """What is about to be released will be little but noise."""


def weaknesses(budget: Budget, groups: int | None = None) -> list[str]:
    """What is weak about a budget; `groups` is their number, where that is public."""
    found = []
    delta = budget.delta or USUAL_DELTA
    epsilon = budget.epsilon if budget.epsilon is not None else epsilon_of(budget.amount, delta)
    if epsilon > LARGEST_EPSILON:
        at = f" (at δ = {as_decimal(delta)}, from ρ = {as_decimal(budget.amount)})" if budget.epsilon is None else ""
        times = f"10^{math.floor(float(epsilon) / math.log(10))}"
        found.append(
            f"ε = {as_decimal(epsilon)}{at} promises little: what is released may be more than {times} times as likely "
            "with one unit's data as without them. Usual values lie between 0.1 and 10."
        )
    if budget.delta is not None and budget.delta > LARGEST_DELTA:
        found.append(
            f"δ = {as_decimal(budget.delta)} is large: up to that probability the promise of ε may not hold. Take "
            f"{as_decimal(LARGEST_DELTA)} or less."
        )
    if budget.delta is not None and groups and budget.delta > Fraction(1, groups):
        found.append(
            f"δ = {as_decimal(budget.delta)} is more than 1 / {groups:,}, where {groups:,} is the public number of "
            "groups: such a δ would allow to publish some group as it is. Take a far smaller one."
        )
    return found
