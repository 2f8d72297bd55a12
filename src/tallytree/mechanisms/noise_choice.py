"""Which noise an ε with a δ is spent on: the one with the smaller predicted error.

Laplace noise at ε needs no δ, so it satisfies ε with every δ. Gaussian noise needs the δ, and has less variance where
one unit changes many numbers. The predicted error of a plan is the geometric mean over the levels, by the model of
`budget_allocation`. Everything here follows from public facts. Equal errors go to Laplace noise, whose guarantee is
pure ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, fsum, log

import numpy as np

from tallytree.domain.hierarchy import Hierarchy
from tallytree.mechanisms.budget_allocation import predicted_errors
from tallytree.privacy.budget import Budget, Spending, as_decimal
from tallytree.privacy.exact_accounting import account_exactly
from tallytree.privacy.measurements import Measurements
from tallytree.privacy.neighbours import Neighbours
from tallytree.privacy.plan import MeasurementQuery, Plan


def choose_noise(
    plan_for: Callable[[Budget], Plan], budget: Budget, neighbours: Neighbours, hierarchy: Hierarchy
) -> Plan:
    """Return the plan for a budget, with its noise decided, and with exactly accounted Gaussian noise if that helps."""
    if budget.epsilon is None or budget.delta is None or budget.noise in ("laplace", "zcdp"):
        return plan_for(budget)
    gaussian = _accounted(plan_for(_spent(budget, "gaussian")), neighbours, hierarchy)
    if not budget.is_open:
        return gaussian
    laplace = plan_for(_spent(budget, "laplace"))
    return laplace if error_ratio(laplace, gaussian, neighbours, hierarchy) <= 1 else gaussian


def error_ratio(plan: Plan, other: Plan, neighbours: Neighbours, hierarchy: Hierarchy) -> float:
    """Return the predicted error of a plan divided by that of another: the geometric mean over the levels."""
    errors = (predicted_errors(one, neighbours, hierarchy) for one in (plan, other))
    return exp(fsum(log(here) - log(there) for here, there in zip(*errors, strict=True)) / hierarchy.depth)


def noise_in_words(plan: Plan, neighbours: Neighbours, hierarchy: Hierarchy) -> str | None:
    """Return which noise an (ε, δ) budget is spent on and why, in one sentence; None if there was no choice."""
    budget = plan.budget
    if budget.epsilon is None or budget.delta is None or budget.noise is None:
        return None
    is_laplace = budget.noise == "laplace"
    other = replace(plan, budget=_spent(budget, "gaussian" if is_laplace else "laplace"))
    ratio = error_ratio(_accounted(other, neighbours, hierarchy), plan, neighbours, hierarchy)
    used, instead = ("Laplace", "Gaussian") if is_laplace else ("Gaussian", "Laplace")
    delta = f"δ = {as_decimal(budget.delta)} is {'not ' if is_laplace else ''}used"
    decided = "" if ratio >= 1 else ", but the budget or its ledger asks for this noise"
    return (
        f"The noise is {used} noise, and {delta}: with the same budget allocation, {instead} noise has {ratio:.2f} "
        f"times the predicted error{decided}."
    )


def measured_plan(measurements: Measurements) -> Plan:
    """Return what was measured as a plan without a branch rule."""
    queries = (
        MeasurementQuery(part.view, part.level, part.share, part.sizes, part.summed) for part in measurements.measured
    )
    return Plan(measurements.budget, measurements.neighbours.unit, tuple(queries))


def _spent(budget: Budget, noise: Spending) -> Budget:
    return Budget(epsilon=budget.epsilon, delta=budget.delta, noise=noise)


def _accounted(plan: Plan, neighbours: Neighbours, hierarchy: Hierarchy) -> Plan:
    regions = np.diff(hierarchy.level_starts).tolist()
    return replace(plan, budget=account_exactly(plan.budget, plan, neighbours, regions))
