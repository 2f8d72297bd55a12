"""Allocate the budget of `tallytree` to the levels by default, so that no level is far behind.

Spending everything on the leaves gives small errors there; equal shares give small errors above. For each level, the
smaller of the two errors is the reference. The chosen shares minimise the sum of fourth powers of the levels' errors
relative to these references, a mean that weights the worst level most. The search uses public facts alone: the budget
and the number of regions on each level. It finds more than a formula would. A level whose regions have few children
need not be measured, because its sums are good enough. With a large budget, noise falls so fast that everything goes to
the leaves.

*The model.* Each number has noise of variance v(share). From the leaves up, a region's own measurement and the sum of
its children's estimates are weighted by their variances. From the root down, a child then gains from its parent's
smaller error. Integers err by E|X| of the discrete Laplace distribution with that variance, which falls faster than its
root once the noise is below one. All regions of a level are treated alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import exp, expm1, fsum, inf, log, sqrt
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from tallytree.core.arguments import told
from tallytree.core.errors import BudgetError, SpecError
from tallytree.core.names import did_you_mean
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.budget import Budget, Number, exact
from tallytree.privacy.measurements import BESIDE_SIZES
from tallytree.privacy.neighbours import Neighbours, PrivacyUnit, Sensitivity, View
from tallytree.privacy.plan import MeasurementQuery, Plan


class EitherWay(NamedTuple):
    """Shares from the top level down for each branch of an adaptive plan."""

    few: tuple[Fraction, ...]
    many: tuple[Fraction, ...]


Shares = Mapping[str, Number] | Sequence[Number] | EitherWay
Priority = Literal["upper", "balanced", "leaves"]

PARTS = 100  # parts of the budget
MOST_EXCHANGED = 8  # likewise, where exchanges begin from several points
PARTS_EACH = 128  # parts of each level's equal share, where many of them move at a time
LEAVES_WEIGHT = 0.65
POWER = 4  # the power of the ratios that are added up
MOST_LEVELS = 16  # with more levels, the search would take seconds
STEPS = (1, 2, 4, 8)  # parts that move between levels at a time
NEGLIGIBLE = 1e-9  # smaller gains do not count
LEAST_ERROR = 1e-6  # of a group: smaller errors count as zero, and their ratios mean nothing
LEAST_COST, MOST_COST = 1e-12, 300.0  # beyond these, floats underflow or overflow
FEW_ERRORS = 0.25  # a variance: about a quarter of the integers are off by one, or fewer


def every_level(
    view: View, hierarchy: Hierarchy, budget: Budget, unit: PrivacyUnit, shares: Shares | None = None
) -> Plan:
    """Plan to measure `view` on every level; shares by level name or from the top down, equal if not given."""
    parts = level_shares(hierarchy, shares)
    return Plan(budget, unit, tuple(MeasurementQuery(view, level, share) for level, share in enumerate(parts)))


def level_shares(hierarchy: Hierarchy, shares: Shares | None, *, some_without: bool = False) -> tuple[Fraction, ...]:
    """Return exact shares from the top level down. Integers and fractions of any sum are read as proportions.

    With `some_without`, a level may have no share. In a tree by category, the root over all categories may be left out.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> level_shares(tree, {"total": 1, "state": 3})
    (Fraction(1, 4), Fraction(3, 4))
    """
    levels = hierarchy.levels
    optional = [levels[0]] if some_without and hierarchy.by.columns else []
    if isinstance(shares, EitherWay):
        raise SpecError("shares for each branch need an adaptive plan, and this plan has no branches")
    given: Any = [1] * hierarchy.depth if shares is None else shares
    if isinstance(given, Mapping):
        if unknown := [level for level in given if level not in levels]:
            hint = did_you_mean(unknown[0], levels)
            raise SpecError(f"shares name an unknown level {unknown[0]!r}; {hint}")
        if any(level not in given for level in levels if level not in optional):
            raise SpecError(f"shares must name each level once: {', '.join(levels)}")
        given = [given.get(level, 0) for level in levels]
    elif not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise SpecError(f"shares is {told(given)}; expected a number for each level, by name or from the top down")
    elif optional and len(given) == hierarchy.depth - 1:
        given = [0, *given]
    if len(given) != hierarchy.depth:
        raise SpecError(f"expected {hierarchy.depth} shares ({', '.join(levels)}), not {len(given)}")
    parts = [exact(share, f"the share of {level}") for share, level in zip(given, levels, strict=True)]
    if any(part <= 0 for part in parts) and not (some_without and min(parts) >= 0 < sum(parts)):
        raise BudgetError(
            "no level's share may be negative, and one must be positive"
            if some_without
            else "every level's share must be positive: each level is published, so each must be measured"
        )
    return tuple(part / sum(parts) for part in parts)


def priority_shares(hierarchy: Hierarchy, priority: str) -> tuple[Fraction, ...]:
    """Return shares by priority: `upper` gives each level twice the share of the next, `leaves` half of it.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> priority_shares(tree, "upper")
    (Fraction(2, 3), Fraction(1, 3))
    """
    if not isinstance(priority, str) or priority not in get_args(Priority):
        raise SpecError(f"unknown priority {told(priority)}; expected {', '.join(get_args(Priority))}")
    ratio = {"upper": Fraction(1, 2), "balanced": Fraction(1), "leaves": Fraction(2)}[priority]
    return level_shares(hierarchy, [ratio**level for level in range(hierarchy.depth)])


def choose_shares(hierarchy: Hierarchy, shares: Shares | None, priority: str | None) -> Shares | None:
    """Return the given shares, or those of a priority; refuse both together."""
    if priority is None:
        return shares
    if shares is not None:
        raise SpecError("shares and priority both divide the budget over the levels; give one of them")
    return priority_shares(hierarchy, priority)


def balanced_shares(hierarchy: Hierarchy, budget: Budget) -> list[int]:
    """Return shares from the top level down, as proportions. Upper levels may have none; the lowest has one.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "GA", "NY", "NY"], "county": list("abcd")}, ["state", "county"])
    >>> balanced_shares(tree, Budget(epsilon=1))  # two counties a state: their sums are good enough
    [0, 0, 100]
    """
    depth = hierarchy.depth
    if depth == 1:
        return [1]
    if depth > MOST_LEVELS:
        return [1] * (depth - 1) + [depth]
    return list(_balanced(tuple(int(count) for count in np.diff(hierarchy.level_starts)), budget))


@lru_cache(maxsize=256)
def _balanced(regions: tuple[int, ...], budget: Budget) -> tuple[int, ...]:
    """From several starting points, make the single change that gains most until no change gains anything."""
    depth, noise = len(regions), _noise(budget)
    best = [
        min(one, other)
        for one, other in zip(
            level_errors(regions, noise, [1 / depth] * depth),
            level_errors(regions, noise, [0.0] * (depth - 1) + [1.0]),
            strict=True,
        )
    ]

    def cost(shares: Sequence[int]) -> float:
        errors = level_errors(regions, noise, [share / PARTS for share in shares])
        return sum((error / least) ** POWER for error, least in zip(errors, best, strict=True))

    each = round(PARTS / (2 * depth - 1))
    beginnings = ([0] * (depth - 1), [each] * (depth - 1), [2 * each] + [0] * (depth - 2), [0] * (depth - 2) + [each])
    found: tuple[float, tuple[int, ...]] = (inf, ())
    for upper in beginnings:
        shares = (*upper, PARTS - sum(upper))
        least = cost(shares)
        while True:
            value, better = min((cost(one), one) for one in _changed(shares))
            if value >= least * (1 - NEGLIGIBLE):
                break
            least, shares = value, better
        if least < found[0] * (1 - NEGLIGIBLE):
            found = least, shares
    return found[1]


def capped_shares(hierarchy: Hierarchy, budget: Budget, sensitivity: Sensitivity, cap: float) -> list[int]:
    """Return shares from the top level down, as proportions, for rows of counts: see `_capped`.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "GA", "NY", "NY"], "county": list("abcd")}, ["state", "county"])
    >>> capped_shares(tree, Budget(epsilon=1), Sensitivity(2, 2), 1.0)
    [0, 0, 384]
    """
    depth = hierarchy.depth
    if depth == 1 or depth > MOST_EXCHANGED:
        return [1] * depth
    regions = tuple(int(count) for count in np.diff(hierarchy.level_starts))
    return list(_capped(regions, budget, sensitivity, cap))


@lru_cache(maxsize=256)
def _capped(regions: tuple[int, ...], budget: Budget, sensitivity: Sensitivity, cap: float) -> tuple[int, ...]:
    """Return the shares with the least weighted mean of log errors, such that no upper level exceeds the cap.

    An error is relative to that of equal shares. The leaves have the weight `LEAVES_WEIGHT`, the upper levels together
    the rest. An upper level may have at most `cap` times the error of equal shares. From several starting points, parts
    move between two levels as long as that gains: many at first, then fewer.
    """
    depth, noise = len(regions), _noise(budget, sensitivity)
    alike = level_errors(regions, noise, [1 / depth] * depth)

    def cost(shares: Sequence[int]) -> tuple[float, float]:
        errors = level_errors(regions, noise, [share / (depth * PARTS_EACH) for share in shares])
        ratios = [error / usual for error, usual in zip(errors, alike, strict=True)]
        beyond = sum(max(0.0, log(ratio / cap)) for ratio in ratios[:-1])
        upper = fsum(map(log, ratios[:-1])) / (depth - 1)
        return beyond, LEAVES_WEIGHT * log(ratios[-1]) + (1 - LEAVES_WEIGHT) * upper

    even = (PARTS_EACH,) * depth
    pairs = [(one, other) for one in range(depth) for other in range(depth) if one != other]
    best: tuple[tuple[float, float], tuple[int, ...]] = (cost(even), even)
    without = [(one, other) for one in range(depth - 1) for other in {one + 1, depth - 1}]  # a level, for another
    for beginning in [even, *(_moved(even, *pair, PARTS_EACH) for pair in without)]:
        shares, least, step = beginning, cost(beginning), PARTS_EACH // 2
        while step:
            moves = [_moved(shares, *pair, step) for pair in pairs if shares[pair[0]] >= step + (pair[0] == depth - 1)]
            value, better = min(((cost(one), one) for one in moves), default=(least, shares))
            if value[0] < least[0] - NEGLIGIBLE or (value[0] <= least[0] and value[1] < least[1] - NEGLIGIBLE):
                least, shares = value, better
            else:
                step //= 2
        best = min(best, (least, shares))
    return best[1]


def _moved(shares: tuple[int, ...], level: int, to: int, parts: int) -> tuple[int, ...]:
    """Return the shares after parts moved from one level to another."""
    moved = list(shares)
    moved[level], moved[to] = moved[level] - parts, moved[to] + parts
    return tuple(moved)


def _changed(shares: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return shares in which parts move between an upper level and the leaves, or between two upper levels."""
    upper, leaves = shares[:-1], shares[-1]
    found = [shares]
    for level, share in enumerate(upper):
        for other in range(share + leaves):
            found.append((*upper[:level], other, *upper[level + 1 :], leaves + share - other))
        for step in STEPS:
            for to in range(len(upper)):
                if to != level and share >= step:
                    moved = list(shares)
                    moved[level], moved[to] = share - step, moved[to] + step
                    found.append(tuple(moved))
    return found


def predicted_errors(plan: Plan, neighbours: Neighbours, hierarchy: Hierarchy) -> list[float]:
    """Return the expected error of one number on each level: see the model."""
    asked = [query for query in plan.branches[-1].queries if query.view not in BESIDE_SIZES]
    shares = [0.0] * hierarchy.depth
    for query in asked:
        shares[query.level] = max(shares[query.level], float(query.share))
    regions = [int(count) for count in np.diff(hierarchy.level_starts)]
    sensitivity = neighbours.sensitivity(asked[-1].view, regions[-1])
    return level_errors(regions, _noise(plan.budget, sensitivity), shares)


def hardly_noisy(budget: Budget) -> bool:
    """Return whether the noise is so small, if all is spent on one level, that most numbers are exact."""
    return _noise(budget)(1.0) < FEW_ERRORS


def level_errors(regions: Sequence[int], noise: Callable[[float], float], shares: Sequence[float]) -> list[float]:
    """Return the expected error of one number on each level: see the model."""
    last = len(regions) - 1
    known = [noise(share) for share in shares]
    for level in range(last - 1, -1, -1):
        sums = known[level + 1] * regions[level + 1] / regions[level]
        known[level] = sums * (known[level] / (sums + known[level])) if known[level] < inf else sums
    for level in range(1, last + 1):
        children = regions[level] / regions[level - 1]
        known[level] -= max(0.0, children * known[level] - known[level - 1]) / children**2
    return [max(_error(variance), LEAST_ERROR) for variance in known]


def _noise(budget: Budget, sensitivity: Sensitivity | None = None) -> Callable[[float], float]:
    """Return the variance of the noise on a number by the share that measures it.

    Without a sensitivity, one entity changes the numbers of a level by 1 in all.
    """
    l1, l2_squared = (1, 1) if sensitivity is None else (sensitivity.l1, sensitivity.l2_squared)
    amount = float(budget.amount) / float(l2_squared if budget.currency == "rho" else l1)

    def variance(share: float) -> float:
        if share <= 0:
            return inf
        cost = min(max(amount * share, LEAST_COST), MOST_COST)
        if budget.currency == "rho":
            return 1 / (2 * cost)
        return 2 * exp(-cost) / expm1(-cost) ** 2

    return variance


def _error(variance: float) -> float:
    """Return E|X| of the discrete Laplace law with this variance: v = 2 r / (1 − r)², E|X| = 2 r / (1 − r²)."""
    if variance < 1e-6:
        return variance
    ratio = (variance + 1 - sqrt(2 * variance + 1)) / variance
    return 2 * ratio / (1 - ratio * ratio)
