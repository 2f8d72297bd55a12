"""What a noisy measurement costs, and how much noise a part of the budget asks for: two inverse formulas, exact.

Discrete Laplace of scale b on integers of L1 sensitivity Δ is (Δ/b)-DP: a change by d multiplies a probability by at
most exp(|d|/b), and the coordinates' factors multiply. Discrete Gaussian of parameter σ² on integers of squared L2
sensitivity Δ₂² is Δ₂²/(2σ²)-zCDP: one coordinate changed by d costs d²/(2σ²) (Canonne, Kamath and Steinke 2020,
Theorem 4), and the Rényi divergences of independent coordinates add up.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from tallytree.core.errors import BudgetError
from tallytree.privacy.budget import Currency
from tallytree.privacy.neighbours import Sensitivity

NoiseKind = Literal["discrete_laplace", "discrete_gaussian"]

NOISE_FOR: dict[Currency, NoiseKind] = {"epsilon": "discrete_laplace", "rho": "discrete_gaussian"}


def cost_of(noise: NoiseKind, sensitivity: Sensitivity, scale: Fraction) -> Fraction:
    """The exact privacy loss: ε for Laplace noise of that scale, ρ for Gaussian noise of that σ²."""
    if noise == "discrete_laplace":
        return sensitivity.l1 / scale
    return sensitivity.l2_squared / (2 * scale)


def scale_for(noise: NoiseKind, sensitivity: Sensitivity, cost: Fraction) -> Fraction:
    """The scale (Laplace) or σ² (Gaussian) at which a measurement costs exactly `cost`."""
    if sensitivity.l1 == 0:
        raise BudgetError("this view cannot differ between neighbours: it is public and needs no measurement")
    if noise == "discrete_laplace":
        return sensitivity.l1 / cost
    return sensitivity.l2_squared / (2 * cost)
