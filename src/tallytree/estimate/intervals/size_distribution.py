"""Statistics of a distribution of group sizes other than quotients of sums: quantiles and the Gini coefficient.

A statistic is a function of the number of groups of each size, with a rule for its interval. All rules start from
bounds of cumulative counts: T[s] is the number of groups of size s or more, N the number of all groups.

*Quantile.* A quantile q of N groups is the size of the m-th smallest group, m = max(1, ⌈q N⌉): the least s with
T[s + 1] ≤ k(N), where k(N) = N − m. One group more raises k by 0 or 1. So

    lower end: the least s with    low T[s + 1]  ≤ k(high N)
    upper end: the least s with no high T[r + 1] > k(low N) for r ≥ s

*Proof.* Let Q be the true quantile. Then T[Q + 1] ≤ k(N), and T[Q] > k(N) unless Q is the first size. Unless the bound
low T[Q + 1] or high N fails, low T[Q + 1] ≤ k(high N), so the lower end is at most Q. Unless high T[Q] or low N fails,
high T[Q] > k(low N), so the upper end is at least Q. For every K these are four fixed bounds, and two if N is public.
∎ (The *first* s that the upper bounds allow would need a bound of every T.)

*Gini coefficient.* For two groups drawn at random, of sizes X and Y, it is E|X − Y| / (2 E X). With p[s] = T[s] / N,
E X = Σ p[s] and E min(X, Y) = Σ p[s]², so it is 1 − Σ p² / Σ p. It does not rise or fall with every p, so all T must be
bounded together. Then each p[s] lies between low T[s] / high N and high T[s] / low N. A coefficient of g or more is
possible if Σ ((1 − g) p − p²) ≥ 0 for some p within these ends. Each term is largest at p = (1 − g) / 2, or the end
next to it. A coefficient of g or less is possible if the sum is ≤ 0 for some p. Each term is concave, so it is least at
an end: the upper one if low + high > 1 − g. Both conditions are monotone in g, so bisection finds the ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallytree.core.arrays import Floats, Integers

Ends = tuple[float, float]
BISECTIONS = 40


@dataclass(frozen=True)
class Quantile:
    """The size that a part `q` of the groups do not exceed."""

    q: Fraction

    def value(self, at_least: Integers, sizes: range) -> int | None:
        """Return the quantile; None without groups. `at_least` has T of each size."""
        return None if at_least[0] == 0 else self._first(self.excess(at_least, sizes), sizes)

    def possible(self, sizes: range) -> Ends:
        """Return the least and the greatest possible value."""
        return sizes[0], sizes[-1]

    def bounds_used(self, sizes: range, *, public: bool) -> int:
        """Return how many bounds may not fail; `public` says whether N is known."""
        del sizes
        return 2 if public else 4

    def ends(self, low: Floats, high: Floats, sizes: range) -> Ends:
        """Return the interval from bounds of T of each size, from N on; everything if N may be 0."""
        if low[0] < 1:
            return self.possible(sizes)
        low_after, high_after = np.append(low[1:], 0), np.append(high[1:], 0)
        return self._first(low_after - self._rank(high[0]), sizes), self._last(high_after - self._rank(low[0]), sizes)

    def excess(self, at_least: Integers, sizes: range) -> Floats:
        """Return T[s + 1] − k(N) for each size s: the quantile is the least size where it is not positive."""
        del sizes
        return np.append(at_least[1:], 0).astype(np.float64) - self._rank(at_least[0])

    def around(self, at_least: Integers, halves: Floats, sizes: range) -> Ends:
        """Return the interval if each `excess` is off by at most these distances, or by one group."""
        found, halves = self.excess(at_least, sizes), np.maximum(1, np.ceil(halves - 1e-9))
        return self._first(found - halves, sizes), self._last(found + halves, sizes)

    def _rank(self, groups: float) -> float:
        """Return how many groups follow the m-th smallest one."""
        number = int(groups)
        return float(number - max(1, -(-self.q.numerator * number // self.q.denominator)))

    def _first(self, excess: Floats, sizes: range) -> int:
        """Return the first size without a positive excess."""
        return sizes[int(np.argmax(excess <= 0))]

    def _last(self, excess: Floats, sizes: range) -> int:
        """Return the size after the last one with a positive excess, at most the last size."""
        positive = np.flatnonzero(excess > 0)
        return sizes[min(int(positive[-1]) + 1, len(sizes) - 1)] if len(positive) else sizes[0]


@dataclass(frozen=True)
class Gini:
    """The Gini coefficient of the sizes: 0 if all groups have the same size."""

    def value(self, at_least: Integers, sizes: range) -> float | None:
        """Return the coefficient; None without entities."""
        shares = at_least[1 - sizes[0] :].astype(np.float64) / max(int(at_least[0]), 1)
        return float(1 - shares @ shares / shares.sum()) if shares.any() else None

    def possible(self, sizes: range) -> Ends:
        """Return the least and the greatest possible value."""
        del sizes
        return 0.0, 1.0

    def bounds_used(self, sizes: range, *, public: bool) -> int:
        """Return how many bounds may not fail: two of each T."""
        del public
        return 2 * sizes[-1]

    def ends(self, low: Floats, high: Floats, sizes: range) -> Ends:
        """Return the interval from bounds of T of each size, from N on; everything if N may be 0."""
        if low[0] < 1:
            return self.possible(sizes)
        some = slice(1 - sizes[0], None)
        least = np.maximum.accumulate(low[some][::-1])[::-1] / high[0]  # T never rises with size
        most = np.minimum(np.minimum.accumulate(high[some]) / low[0], 1.0)
        if sizes[0] == 1:
            least[0] = most[0] = 1.0
        return gini_ends(np.clip(least, 0.0, most), most)

    def excess(self, at_least: Integers, sizes: range) -> Floats:
        """Return the coefficient as an array; NaN without entities."""
        found = self.value(at_least, sizes)
        return np.array([np.nan if found is None else found])

    def around(self, at_least: Integers, halves: Floats, sizes: range) -> Ends:
        """Return the interval if the coefficient is off by at most this distance, or by about one group."""
        found, half = self.value(at_least, sizes) or 0.0, max(float(halves[0]), 1 / max(int(at_least[0]), 1))
        return max(found - half, 0.0), min(found + half, 1.0)


Statistic = Quantile | Gini


def medians(counts: Integers, first_size: int) -> Integers:
    """Return the median of each row of counts `[…, sizes]`; −1 without groups.

    >>> medians(np.array([[2, 1, 1], [1, 0, 2], [0, 0, 0]]), first_size=1)
    array([ 1,  3, -1])
    """
    up_to = counts.cumsum(axis=-1)
    middle = first_size + np.argmax(2 * up_to >= up_to[..., -1:], axis=-1)
    found: Integers = np.where(up_to[..., -1] > 0, middle, -1)
    return found


def gini_ends(least: Floats, most: Floats) -> Ends:
    """Return the least and the greatest 1 − Σ p² / Σ p with each p within its ends, rounded outward.

    >>> [round(end, 3) for end in gini_ends(np.array([1.0, 0.2]), np.array([1.0, 0.5]))]
    [0.133, 0.172]
    """

    def largest(g: float) -> float:
        shares = np.clip((1 - g) / 2, least, most)
        return float(np.sum((1 - g) * shares - shares**2))

    def smallest(g: float) -> float:
        shares = np.where(least + most > 1 - g, most, least)
        return float(np.sum((1 - g) * shares - shares**2))

    lower, upper = [0.0, 1.0], [0.0, 1.0]
    for _ in range(BISECTIONS):
        middle = sum(lower) / 2
        lower[int(smallest(middle) <= 0)] = middle
        middle = sum(upper) / 2
        upper[int(largest(middle) < 0)] = middle
    return (0.0 if smallest(0.0) <= 0 else lower[0]), upper[1]
