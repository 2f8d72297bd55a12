"""Budgets in exact fractions, in one of two currencies; what noise costs; and the one proved bound between currencies.

Discrete Laplace of scale b on integers of L1 sensitivity Δ is (Δ/b)-DP: a change by d multiplies a probability by at
most exp(|d|/b), and the coordinates' factors multiply. Discrete Gaussian of parameter σ² on integers of squared L2
sensitivity Δ₂² is Δ₂²/(2σ²)-zCDP: one coordinate changed by d costs d²/(2σ²) (Canonne, Kamath and Steinke 2020,
Theorem 4), and the Rényi divergences of independent coordinates add up.

A pure ε budget is spent as ε; everything else is spent as ρ (zero-concentrated differential privacy). ρ and (ε, δ) are
exchanged by Canonne, Kamath and Steinke, *The Discrete Gaussian for Differential Privacy* (2020), Section 2.3:
ρ-zCDP implies (ε, δ)-DP for δ = exp((α − 1)(αρ − ε)) / α · (1 − 1/α)^(α − 1), for every α > 1. Since any α is valid it
is chosen in floating point, and the bound at that α is then enclosed rigorously and rounded to the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, Inexact, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

from tallytree.core.arguments import told
from tallytree.core.errors import BudgetError
from tallytree.core.numbers import EXACT, exact_number, short
from tallytree.privacy.neighbours import Sensitivity
from tallytree.privacy.noise import NoiseKind

Currency = Literal["epsilon", "rho"]
Spending = Literal["laplace", "gaussian", "zcdp"]
Number = Fraction | Decimal | int | float | str  # or a number of NumPy

NOISE_FOR: dict[Currency, NoiseKind] = {"epsilon": "discrete_laplace", "rho": "discrete_gaussian"}

PRECISION = 200  # binary digits of the enclosures


def exact(value: Number, what: str) -> Fraction:
    """Return the exact decimal (or fraction) that the user wrote: 0.1 and "0.1" are one tenth.

    >>> exact(0.1, "epsilon"), exact("1/3", "share")
    (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(value, bool) or not isinstance(value, EXACT):
        raise BudgetError(f"{what} must be a number or a decimal text, not {type(value).__name__}")
    try:
        return exact_number(value)
    except ValueError:
        told = short(value)
        raise BudgetError(f"{what} must be a finite number such as 1, 0.1, '0.1' or '1/3', not {told}") from None


@dataclass(frozen=True, init=False)
class Budget:
    """The privacy loss that may be spent: a pure ε, a ρ, or an ε with a δ.

    If a ρ is given, δ only says at which δ its ε is reported. An ε with a δ allows both kinds of noise: Laplace noise
    spends the ε and no δ; Gaussian noise spends the largest ρ that is proved to imply the ε and the δ. A release takes
    the noise with the smaller predicted error, unless `noise` says which.

    Parameters
    ----------
    epsilon : number or str, optional
        ε, exact: 1, 0.1, "0.1" or "1/3".
    rho : number or str, optional
        ρ, instead of ε.
    delta : number or str, optional
        δ, less than 1.
    noise : {"laplace", "gaussian", "zcdp"}, optional
        The noise that an ε with a δ is spent on. "gaussian" counts its loss exactly where that is proved; "zcdp" is
        Gaussian noise with the ρ of the general conversion.

    Raises
    ------
    BudgetError
        If not exactly one of `epsilon` and `rho` is given, a number is not positive, or the noise does not fit.

    Examples
    --------
    >>> Budget(epsilon=1), Budget(rho="0.1", delta="1e-9"), Budget(epsilon=1, delta="1e-9")
    (Budget(epsilon=1), Budget(rho='1/10', delta='1/1000000000'), Budget(epsilon=1, delta='1/1000000000'))
    >>> Budget(epsilon=0.1).amount
    Fraction(1, 10)
    """

    epsilon: Fraction | None
    rho: Fraction | None
    delta: Fraction | None
    noise: Spending | None

    def __init__(
        self,
        epsilon: Number | None = None,
        *,
        rho: Number | None = None,
        delta: Number | None = None,
        noise: Spending | None = None,
    ) -> None:
        if (epsilon is None) == (rho is None):
            raise BudgetError("give a budget as epsilon=…, as epsilon=… with delta=…, or as rho=… (with delta=…)")
        exact_epsilon = None if epsilon is None else _positive(epsilon, "epsilon")
        exact_rho = None if rho is None else _positive(rho, "rho")
        exact_delta = None if delta is None else _positive(delta, "delta")
        if exact_delta is not None and exact_delta >= 1:
            raise BudgetError(f"delta must be less than 1 (and far less than one over the population), not {delta}")
        if noise is not None and (not isinstance(noise, str) or noise not in get_args(Spending)):
            raise BudgetError(f"noise is {told(noise)}; expected {', '.join(get_args(Spending))}")
        if noise in ("gaussian", "zcdp") and exact_rho is None and exact_delta is None:
            raise BudgetError("Gaussian noise needs a delta (or a rho): epsilon alone is spent on Laplace noise")
        if noise == "laplace" and exact_epsilon is None:
            raise BudgetError("Laplace noise needs an epsilon: rho is spent on Gaussian noise")
        if exact_epsilon is not None and exact_delta is not None and noise != "laplace":
            exact_rho = largest_rho(exact_epsilon, exact_delta)
        self._set(exact_epsilon, exact_rho, exact_delta, noise)

    def _set(
        self, epsilon: Fraction | None, rho: Fraction | None, delta: Fraction | None, noise: Spending | None
    ) -> None:
        for name, value in {"epsilon": epsilon, "rho": rho, "delta": delta, "noise": noise}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def of(cls, value: Budget | Mapping[str, Any]) -> Budget:
        """Return a budget, or the one that the words of a spec mean.

        Parameters
        ----------
        value : Budget or mapping
            A budget, or words such as ``{"epsilon": 1}``. A bare number is refused, because it could be an ε or a ρ.

        Returns
        -------
        Budget
            The budget.

        Raises
        ------
        BudgetError
            If the value means no budget.

        Examples
        --------
        >>> Budget.of({"epsilon": 1})
        Budget(epsilon=1)
        """
        if isinstance(value, Budget):
            return value
        words = "a Budget, such as tallytree.Budget(epsilon=1) or tallytree.Budget(rho='0.1')"
        if not isinstance(value, Mapping) or not set(value) <= {"epsilon", "rho", "delta", "noise"}:
            raise BudgetError(f"budget is {told(value)}; expected {words}")
        return cls(**value)

    def accounted(self, rho: Fraction) -> Budget:
        """Return this (ε, δ) budget, spent on Gaussian noise in a ρ that `privacy.exact_accounting` found.

        Parameters
        ----------
        rho : Fraction
            The ρ, not less than that of the conversion.

        Returns
        -------
        Budget
            The budget.

        Raises
        ------
        BudgetError
            If the ρ is less.
        """
        assert self.epsilon is not None
        assert self.delta is not None
        budget = Budget(epsilon=self.epsilon, delta=self.delta, noise="gaussian")
        if rho < budget.amount:
            raise BudgetError("the rho of an (epsilon, delta) budget does not follow from them")
        budget._set(self.epsilon, rho, self.delta, "gaussian")
        return budget

    @property
    def is_open(self) -> bool:
        """Return whether an ε with a δ leaves the noise to be chosen."""
        return self.epsilon is not None and self.delta is not None and self.noise is None

    @property
    def is_accounted(self) -> bool:
        """Return whether ε and δ rest on exact accounting of the noise, and not on ρ alone."""
        if self.noise != "gaussian" or self.epsilon is None or self.delta is None:
            return False
        return self.amount > largest_rho(self.epsilon, self.delta)

    def held_in(self, currency: Currency | None) -> Budget:
        """Return this budget as a ledger kept in `currency` is charged for it: the ledger decides an open noise.

        A ledger in ε cannot pay for Gaussian noise. In a ledger in ρ, Laplace noise costs far more than Gaussian noise
        with the same ε, and exact accounting buys less noise with a larger ρ; so the ρ of the conversion is spent.

        Parameters
        ----------
        currency : {"epsilon", "rho"} or None
            What the account is kept in; None without a ledger.

        Returns
        -------
        Budget
            The budget.

        Examples
        --------
        >>> Budget(epsilon=1, delta="1e-9").held_in("epsilon").amount
        Fraction(1, 1)
        """
        if currency is None or not (self.is_open or (self.noise == "gaussian" and currency == "rho")):
            return self
        noise: Spending = "laplace" if currency == "epsilon" else "zcdp"
        return self if self.epsilon is None else Budget(epsilon=self.epsilon, delta=self.delta, noise=noise)

    @property
    def currency(self) -> Currency:
        """Return what the budget is spent in: "epsilon" if it is pure, otherwise "rho"."""
        return "epsilon" if self.rho is None else "rho"

    @property
    def amount(self) -> Fraction:
        """Return the budget in its currency."""
        amount = self.epsilon if self.rho is None else self.rho
        assert amount is not None
        return amount

    def charge_in(self, currency: Currency) -> Fraction:
        """Return the cost in another currency: ε-DP is ε²/2-zCDP; ρ cannot be paid from a pure ε budget.

        Parameters
        ----------
        currency : {"epsilon", "rho"}
            The currency.

        Returns
        -------
        Fraction
            The cost.

        Raises
        ------
        BudgetError
            If a budget in ρ should be charged in pure ε.

        Examples
        --------
        >>> Budget(epsilon=1).charge_in("rho")
        Fraction(1, 2)
        """
        if currency == self.currency:
            return self.amount
        if currency == "rho":
            return self.amount**2 / 2
        raise BudgetError(
            "a budget in rho cannot be charged to a ledger kept in pure epsilon: zCDP implies no finite pure epsilon"
        )

    def __repr__(self) -> str:
        """As it may be typed: the rho that follows from an epsilon and a delta is left out.

        >>> Budget(epsilon=1, delta="1e-9"), Budget(rho=0.1)
        (Budget(epsilon=1, delta='1/1000000000'), Budget(rho='1/10'))
        """
        given = {"epsilon": self.epsilon, "rho": self.rho if self.epsilon is None else None, "delta": self.delta}
        shown = {name: value for name, value in given.items() if value is not None}
        texts = [f"{name}={value if value.denominator == 1 else repr(str(value))}" for name, value in shown.items()]
        return f"Budget({', '.join(texts + ([f'noise={self.noise!r}'] if self.noise else []))})"

    def __str__(self) -> str:
        parts = []
        if self.epsilon is not None:
            parts.append(f"ε = {as_decimal(self.epsilon)}")
        if self.delta is not None and self.rho is not None:
            parts.append(f"δ = {as_decimal(self.delta)}")
        if self.rho is not None:
            parts.append(f"ρ = {as_decimal(self.rho)}")
        return ", ".join(parts)

    def to_json(self) -> dict[str, str | None]:
        """Return exact texts; `from_json` reads them back."""
        stated = {name: None if value is None else str(value) for name, value in vars(self).items()}
        return {name: value for name, value in stated.items() if name != "noise" or value is not None}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Budget:
        """Read what `to_json` returned; the ρ of an (ε, δ) budget is recomputed.

        It must agree. For "gaussian" it may be larger: then `privacy.exact_accounting.check_accounted` must prove it.

        Parameters
        ----------
        values : dict
            The texts that `to_json` returned.

        Returns
        -------
        Budget
            The budget.

        Raises
        ------
        BudgetError
            If the ρ does not follow from ε and δ.
        """
        if values["epsilon"] is None or values["delta"] is None:
            return cls(**values)
        budget = cls(**{**values, "rho": None})
        if budget.noise == "gaussian":
            budget = budget.accounted(Fraction(values["rho"]))
        if (None if budget.rho is None else str(budget.rho)) != values["rho"]:
            raise BudgetError("the rho of an (epsilon, delta) budget does not follow from them")
        return budget


def cost_of(noise: NoiseKind, sensitivity: Sensitivity, scale: Fraction) -> Fraction:
    """Return the exact privacy loss: ε for Laplace noise of that scale, ρ for Gaussian noise of that σ²."""
    if noise == "discrete_laplace":
        return sensitivity.l1 / scale
    return sensitivity.l2_squared / (2 * scale)


def scale_for(noise: NoiseKind, sensitivity: Sensitivity, cost: Fraction) -> Fraction:
    """Return the scale (Laplace) or σ² (Gaussian) at which a measurement costs exactly `cost`."""
    if sensitivity.l1 == 0:
        raise BudgetError("this view cannot differ between neighbours: it is public and needs no measurement")
    if noise == "discrete_laplace":
        return sensitivity.l1 / cost
    return sensitivity.l2_squared / (2 * cost)


def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """Return an ε, rounded up, such that ρ-zCDP implies (ε, δ)-DP."""
    log_delta, r = math.log(delta), float(rho)

    def bound(log_order: float) -> float:
        a = 1 + math.exp(log_order)
        return a * r - (log_delta + math.log(a)) / (a - 1) + math.log1p(-1 / a)

    from tallytree.privacy.noise.inversion import ball, working_precision

    with working_precision(PRECISION):
        a, log_terms = _enclosed_terms(_best_order(bound), delta)
        return max(Fraction(0), _rounded(a * ball(rho) - log_terms, up=True))


@lru_cache(maxsize=256)
def largest_rho(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a ρ, rounded down, such that ρ-zCDP implies (ε, δ)-DP; as large as the bound allows.

    The bound solved for ρ: ρ = (ε + log(δα)/(α − 1) − log(1 − 1/α)) / α.
    """
    log_delta, e = math.log(delta), float(epsilon)

    def loss(log_order: float) -> float:
        a = 1 + math.exp(log_order)
        return -(e + (log_delta + math.log(a)) / (a - 1) - math.log1p(-1 / a)) / a

    from tallytree.privacy.noise.inversion import ball, working_precision

    with working_precision(PRECISION):
        a, log_terms = _enclosed_terms(_best_order(loss), delta)
        rho = _rounded((ball(epsilon) + log_terms) / a, up=False)
    if rho <= 0:
        raise BudgetError(f"no rho gives epsilon = {epsilon} at delta = {delta}; use a larger epsilon or delta")
    return rho


def as_decimal(value: Fraction, digits: int = 6, *, up: bool = True) -> str:
    """Format a number as a decimal: exact if it is short, otherwise rounded up, or down if `up` is False.

    Costs, and every ε and ρ that is promised, are rounded up: what is shown is never less than what is proved. What is
    left, and what an account may spend in all, is rounded down. Short is up to two more digits than `digits`.

    >>> as_decimal(Fraction(1, 8)), as_decimal(Fraction(1, 3)), as_decimal(Fraction(1, 3), up=False)
    ('0.125', '0.333334', '0.333333')
    >>> as_decimal(Fraction("1.0000004")), as_decimal(Fraction("1.000000004"))
    ('1.0000004', '1.00001')
    """
    shown = Decimal(0)
    for precision in (digits + 2, digits):
        with localcontext(prec=precision, rounding=ROUND_CEILING if up else ROUND_FLOOR) as context:
            context.clear_flags()
            shown = Decimal(value.numerator) / Decimal(value.denominator)  # rounded once, from exact whole numbers
            if not context.flags[Inexact]:
                break
    if shown == 0 or -4 <= shown.adjusted() < 21:
        text = f"{shown:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    front = f"{shown.scaleb(-shown.adjusted()):f}"
    return f"{front.rstrip('0').rstrip('.') if '.' in front else front}e{shown.adjusted():+03d}"


def _positive(value: Number, what: str) -> Fraction:
    number = exact(value, what)
    if number <= 0:
        raise BudgetError(f"{what} must be positive, not {short(value)}")
    if number > 10**6 or number.denominator > 10**60:
        raise BudgetError(f"{what} = {short(value)} is out of any sensible range")
    return number


def _best_order(function: Any) -> float:
    """Return a good α > 1: the bounds have one minimum in log(α − 1), found by golden-section search."""
    low, high, ratio = -20.0, 40.0, (math.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if function(left) <= function(right):
            high = right
        else:
            low = left
    return 1 + math.exp((low + high) / 2)


def _enclosed_terms(order: float, delta: Fraction) -> tuple[Any, Any]:
    """α as an exact ball, and log(δα)/(α − 1) − log(1 − 1/α) enclosed."""
    from tallytree.privacy.noise.inversion import ball

    a = ball(Fraction(order))
    return a, (ball(delta) * a).log() / (a - 1) - (1 - 1 / a).log()


def _rounded(ball: Any, *, up: bool) -> Fraction:
    """Return the ball's safe end on a grid of 10^-12, as an exact fraction.

    The grid is coarse beside what the choice of α in floating point can change, so every machine finds the same value.
    """
    from flint import arb

    scaled = ball * arb(10) ** 12
    edge = scaled.upper().ceil() if up else scaled.lower().floor()
    return Fraction(int(edge.unique_fmpz()), 10**12)
