"""Hostile numbers for every estimator: it ends, its counts are non-negative integers that keep all sums, and they are
as near as an independent solver says where the case is small.

Weights and variances differ by up to 16 orders of magnitude, counts reach 10¹², numbers are tied or zero, totals are
forced, and trees have one region, one size or twenty levels. None of that may be refused: an estimator runs after the
budget is spent. The same seed and number make the same case:

    python -m tests.faults.kernels NUMBER SEED
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import TallytreeError
from tallytree.domain.categories import Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.allocation import allocate_rows, keep_sums
from tallytree.estimate.checks import integer_weights
from tallytree.estimate.isotonic import counts_of, nearest_chain, non_decreasing_in_place, non_increasing
from tallytree.estimate.joint_tables import joint_counts, joint_cumulative
from tallytree.estimate.least_squares import (
    add_up_leaves,
    subtree_estimates,
    tree_least_squares,
    tridiagonal_least_squares,
)
from tallytree.estimate.matching import match_groups
from tallytree.estimate.nearest import is_optimal, nearest_consistent
from tallytree.estimate.posterior import Counted, Lists, count_posterior, list_posterior
from tallytree.estimate.shrinkage import MeasuredRows, shrink_rows
from tallytree.estimate.simplex import nearest_with_total
from tallytree.estimate.transport import allocate_counts, allocate_tables
from tallytree.lab.rivals.cost_tables import table_estimate
from tallytree.lab.rivals.topdown import blue_down, chebyshev_down, top_down
from tests.faults.isolated import run_cases
from tests.faults.tally import Tally
from tests.oracles import joint as joint_oracle
from tests.oracles import transport as transport_oracle
from tests.oracles import trees
from tests.oracles.isotonic import rounded_projection

MOST = 10**12
JOINT_ORDERS = 9  # of magnitude: plans whose levels differ by more are refused before anything is spent
MOST_EXAMPLES = 20

Generator = np.random.Generator


class Wrong(Exception):
    """An estimate is not what it should be."""


def need(holds: Any, words: str) -> None:
    """Raise `Wrong` with these words unless the condition holds."""
    if not holds:
        raise Wrong(words)


# -------------------------------------------------------------------- hostile inputs


def any_tree(rng: Generator, small: bool = False) -> Hierarchy:
    """One region, a chain of twenty levels, one wide family, or an uneven tree."""
    kind = rng.integers(6)
    if kind == 0:
        return Hierarchy.from_edges([("root", "")])
    if kind == 1 and not small:
        return chain_of_levels(rng, 20)
    if kind == 2:
        return trees.even_tree(int(rng.integers(1, 4 if small else 60)))
    return trees.random_tree(rng, 3 if small else int(rng.integers(2, 6)), 2 if small else 5)


def chain_of_levels(rng: Generator, levels: int) -> Hierarchy:
    """One child after another; some regions of the chain have a sibling."""
    edges, parent = [("r0", "")], "r0"
    for level in range(1, levels):
        edges += [(f"r{level}{side}", parent) for side in ("ab" if rng.random() < 0.3 else "a")]
        parent = f"r{level}a"
    return Hierarchy.from_edges(edges)


def magnitudes(rng: Generator, shape: Any, low: float = -8, high: float = 8) -> Floats:
    """Positive numbers over so many orders of magnitude; sometimes all are equal, or one of them is far off."""
    kind, found = rng.integers(4), 10 ** rng.uniform(low, high, shape)
    if kind == 0:
        return np.full(shape, 10 ** rng.uniform(low, high))
    if kind == 1:
        found = np.full(shape, 10 ** rng.uniform(low, high))
        found.flat[rng.integers(found.size)] = 10 ** rng.uniform(low, high)
    return found


def numbers(rng: Generator, shape: Any, most: float = MOST) -> Integers:
    """Whole numbers of both signs: zeros, ties, and sizes over all orders of magnitude."""
    kind = rng.integers(6)
    if kind == 0:
        return np.full(shape, rng.integers(-3, 4), dtype=np.int64)
    if kind == 1:
        return rng.integers(-2, 3, shape)
    if kind == 2:
        return rng.choice(np.array([0, 0, 1, -1, int(most), -int(most)]), shape)
    width = 10 ** rng.uniform(0, np.log10(most), shape if kind < 5 else ())
    return np.rint(np.clip(rng.laplace(0, 1, shape) * width, -most, most)).astype(np.int64)


def reals(rng: Generator, shape: Any, most: float = MOST) -> Floats:
    """Whole numbers with or without fractions."""
    return numbers(rng, shape, most) + (0.0 if rng.random() < 0.3 else rng.uniform(-0.5, 0.5, shape))


def level_weights(rng: Generator, depth: int, orders: int = 16) -> list[float] | None:
    """A weight for each level, or none."""
    return None if rng.random() < 0.25 else magnitudes(rng, depth, -orders / 2, orders / 2).tolist()


def any_total(rng: Generator, most: int = MOST) -> int | None:
    """No total, a forced one that nothing comes near to, or any."""
    return [None, 0, 1, int(most), int(10 ** rng.uniform(0, np.log10(most)))][rng.integers(5)]


def leaf_numbers(rng: Generator, tree: Hierarchy, most: int = MOST) -> Integers:
    """Numbers of groups of all regions that add up."""
    each = np.abs(numbers(rng, tree.leaf_count, max(1, most // tree.leaf_count)))
    return tree.aggregate(each)


def sizes_of(rng: Generator) -> int:
    return int(rng.choice([1, 1, 2, 3, 7, 20]))


def need_counts(counts: Integers, tree: Hierarchy, total: int | None = None) -> None:
    """Non-negative integers that add up and keep the root's total."""
    need(counts.dtype == np.int64 and counts.min(initial=0) >= 0, "counts are negative")
    need(trees.adds_up(counts, tree), "children do not add up to their parent")
    need(total is None or int(counts[0].sum()) == total, "the total is not kept")


def need_rounded(found: Integers, noisy: Integers, most: float) -> None:
    """A row is SciPy's isotonic regression of `noisy`, from 0 to `most`, rounded."""
    from scipy.optimize import isotonic_regression

    best = np.clip(isotonic_regression(noisy.astype(float), increasing=False).x, 0, most)
    near = np.abs(found - best) <= 0.5 + 1e-9 * (1 + np.abs(noisy).max(initial=0))
    need(near.all(), "a row is not SciPy's isotonic regression, rounded")


# -------------------------------------------------------------------- estimators on trees


def nearest(rng: Generator) -> None:
    """The nearest consistent counts: certified, and on small cases as near as all splits of all values show."""
    if small := rng.random() < 0.4:
        tree, sizes = any_tree(rng, small=True), int(rng.integers(1, 3))
        noisy, total = rng.integers(-4, 6, (len(tree), sizes)), [None, 0, 3, 7][rng.integers(4)]
    else:
        tree, sizes = any_tree(rng), sizes_of(rng)
        noisy, total = numbers(rng, (len(tree), sizes)), any_total(rng)
    weights = level_weights(rng, tree.depth)
    found = nearest_consistent(noisy, tree, total=total, weights=weights)
    need_counts(found, tree, total)
    need(is_optimal(noisy, found, tree, total=total, weights=weights), "there are nearer counts (certificate)")
    if small:
        whole = integer_weights(weights, tree.depth)
        best = trees.least_cost(noisy, tree, total, whole)
        need(trees.cost(noisy, found, tree, whole) == best, "there are nearer counts (all splits)")


def nearest_by_solver(rng: Generator) -> None:
    """The nearest consistent counts cost what CP-SAT proves."""
    tree = any_tree(rng, small=True)
    noisy, total = rng.integers(-3, 5, (len(tree), 2)), [None, 4][rng.integers(2)]
    found = nearest_consistent(noisy, tree, total=total)
    need(trees.cost(noisy, found, tree) == trees.proven_cost(noisy, tree, total), "CP-SAT finds nearer counts")


def chain(rng: Generator) -> None:
    """The nearest chain adds up, and in a single region it is SciPy's isotonic regression, rounded."""
    tree, sizes = any_tree(rng), sizes_of(rng)
    noisy, total = numbers(rng, (len(tree), sizes)), any_total(rng)
    found = nearest_chain(noisy, tree, total=total, weights=level_weights(rng, tree.depth))
    need_counts(found, tree, total)
    if len(tree) == 1 and total is None:
        need_rounded(np.cumsum(found[0, ::-1])[::-1], noisy[0], np.inf)


def from_the_top(rng: Generator) -> None:
    """Top-down estimates keep sums and totals."""
    tree, sizes = any_tree(rng), sizes_of(rng)
    noisy, total = numbers(rng, (len(tree), sizes)), any_total(rng)
    need_counts(top_down(noisy, tree, total=total, weights=level_weights(rng, tree.depth)), tree, total)


def blue(rng: Generator) -> None:
    """BlueDown keeps sums and totals."""
    tree, sizes = any_tree(rng), sizes_of(rng)
    noisy, total = numbers(rng, (len(tree), sizes)), any_total(rng)
    need_counts(blue_down(noisy, tree, weights=magnitudes(rng, tree.depth).tolist(), total=total), tree, total)


def least_move(rng: Generator) -> None:
    """InfTDA keeps sums and totals, and no family moves further than it must."""
    tree, sizes = any_tree(rng), sizes_of(rng)
    noisy, total = numbers(rng, (len(tree), sizes)), any_total(rng)
    found = chebyshev_down(noisy, tree, total=total)
    need_counts(found, tree, total)
    region = int(rng.integers(max(1, tree.level_starts[-2])))
    if children := tree.children_of(region):
        for size in range(sizes):
            seen = [int(value) for value in noisy[children, size]]
            moved = max(abs(int(value) - before) for value, before in zip(found[children, size], seen, strict=True))
            need(moved == _least_move(seen, int(found[region, size])), "a family moves further than it must")


def _least_move(seen: list[int], amount: int) -> int:
    """The least m for which numbers of 0 or more within m of those seen can add up to `amount`, by bisection."""
    low, high = -1, max(map(abs, seen)) + amount
    while high - low > 1:
        middle = (low + high) // 2
        fits = min(seen) + middle >= 0 and (
            sum(max(0, value - middle) for value in seen) <= amount <= sum(value + middle for value in seen)
        )
        low, high = (low, middle) if fits else (middle, high)
    return high


def matching(rng: Generator) -> None:
    """Matched counts keep sums and every region's total."""
    tree, sizes = any_tree(rng), sizes_of(rng)
    totals = leaf_numbers(rng, tree)
    counts = nearest_with_total(numbers(rng, (len(tree), sizes)), totals)
    found = match_groups(counts, tree, spreads=magnitudes(rng, tree.depth).tolist(), weighted=bool(rng.integers(2)))
    need_counts(found, tree)
    need(np.array_equal(found.sum(axis=1), totals), "a region's total is not kept")


def tables(rng: Generator) -> None:
    """The paper's cost tables find what the nearest consistent counts are, where domains leave room for it."""
    tree = any_tree(rng, small=True)
    noisy = rng.integers(0, 6, (len(tree), 2))
    weights = level_weights(rng, tree.depth)
    reaches = [60] * tree.depth
    found = table_estimate(noisy, tree, reaches, weights=weights)
    need_counts(found, tree)
    need(is_optimal(noisy, found, tree, weights=weights), "the cost tables miss the nearest counts")


def real_numbers(rng: Generator) -> None:
    """Least squares on the tree: finite and consistent."""
    tree, sizes = any_tree(rng), sizes_of(rng)
    noisy = reals(rng, (len(tree), sizes))
    weights = magnitudes(rng, tree.depth)[tree.level_of]
    found = tree_least_squares(noisy, tree, weights)
    need(np.isfinite(found).all(), "least squares are not finite")
    sums = add_up_leaves(found[tree.level_slice(tree.depth - 1)], tree)
    need(np.allclose(sums, found, rtol=1e-6, atol=1e-6 * (1 + np.abs(noisy).max())), "least squares do not add up")


def upwards(rng: Generator) -> None:
    """Estimates of subtrees are those of exact arithmetic, with variances that can be divided by."""
    tree = any_tree(rng, small=True)
    values, noise = reals(rng, (len(tree), 1)), magnitudes(rng, (tree.depth, 1), -16, 16)
    noise[:-1][rng.random((tree.depth - 1, 1)) < 0.2] = np.inf
    mean, variance = subtree_estimates(values, noise, tree)
    need(np.isfinite(mean).all(), "estimates of subtrees are not finite")
    need((variance > 0).all() and np.isfinite(variance).all(), "a variance rounds to 0, or is not finite")
    exact = [Fraction(float(value)) for value in noise[:, 0] if np.isfinite(value)]
    assert exact
    spread: dict[int, Fraction] = {}
    for region in range(len(tree) - 1, -1, -1):
        own, children = float(noise[tree.level_of[region], 0]), tree.children_of(region)
        precision = Fraction(0) if np.isinf(own) else 1 / Fraction(own)
        below = 1 / sum(spread[child] for child in children) if children else Fraction(0)
        spread[region] = 1 / (precision + below)
        need(abs(float(spread[region]) / variance[region, 0] - 1) < 1e-9, "the variance of a subtree is off")


# -------------------------------------------------------------------- joint estimators


def jointly_counts(rng: Generator) -> None:
    """Joint counts keep every total; on small cases SCIP's optimum lies between the stated bound and their cost."""
    if small := rng.random() < 0.25:
        tree, sizes = any_tree(rng, small=True), 2
        totals = tree.aggregate(rng.integers(0, 4, tree.leaf_count))
        noisy, weights = rng.integers(-3, 6, (len(tree), sizes)), None
    else:
        tree, sizes = any_tree(rng), sizes_of(rng)
        totals = leaf_numbers(rng, tree)
        noisy, weights = numbers(rng, (len(tree), sizes)), level_weights(rng, tree.depth, JOINT_ORDERS)
    found = joint_counts(noisy, tree, totals=totals, weights=weights)
    need_counts(found.values, tree)
    need(np.array_equal(found.values.sum(axis=1), totals), "a region's total is not kept")
    need(found.lower_bound <= found.objective * (1 + 1e-9) + 1e-6, "the lower bound lies above the objective")
    if small:
        best = joint_oracle.proved_counts(noisy, tree, totals)
        need(found.lower_bound <= best + 1e-6 and best <= found.objective + 1e-6, "SCIP's optimum is out of bounds")


def jointly_at_least(rng: Generator) -> None:
    """Joint cumulative counts fall, add up and stay within totals; SCIP's optimum is within the stated bounds."""
    small, bounded = rng.random() < 0.25, rng.random() < 0.6
    if small:
        tree, sizes = any_tree(rng, small=True), 2
        totals = tree.aggregate(rng.integers(0, 4, tree.leaf_count))
        noisy, weights = rng.integers(-3, 6, (len(tree), sizes)), None
    else:
        tree, sizes = any_tree(rng), sizes_of(rng)
        totals = leaf_numbers(rng, tree)
        noisy, weights = numbers(rng, (len(tree), sizes)), level_weights(rng, tree.depth, JOINT_ORDERS)
    given = totals if bounded else None
    found = joint_cumulative(noisy, tree, totals=given, weights=weights)
    need_counts(found.values, tree)
    need((np.diff(found.values, axis=1) <= 0).all(), "cumulative counts rise with the size")
    need(not bounded or (found.values[:, 0] <= totals).all(), "a region has more groups than its total")
    need(found.lower_bound <= found.objective * (1 + 1e-9) + 1e-6, "the lower bound lies above the objective")
    if small and bounded:
        best = joint_oracle.proved_cumulative(noisy, tree, totals)
        need(found.lower_bound <= best + 1e-6 and best <= found.objective + 1e-6, "SCIP's optimum is out of bounds")


# -------------------------------------------------------------------- single regions


def monotone(rng: Generator) -> None:
    """Isotonic rows fall, stay within bounds, and are as near as SciPy's real ones, rounded."""
    rows, sizes = int(rng.integers(1, 5)), int(rng.choice([1, 2, 8, 40]))
    noisy, power = numbers(rng, (rows, sizes)), int(rng.integers(1, 3))
    upper = np.abs(numbers(rng, rows)) if rng.random() < 0.5 else None
    found = non_increasing(noisy, upper, power=power)
    need((np.diff(found, axis=1) <= 0).all() and found.min(initial=0) >= 0, "isotonic rows rise or are negative")
    need(upper is None or (found <= upper[:, None]).all(), "isotonic rows exceed their bound")
    for row in range(rows if power == 2 else 0):
        need_rounded(found[row], noisy[row], np.inf if upper is None else float(upper[row]))


def with_total(rng: Generator) -> None:
    """Counts with a total: exactly the cost of the projection in fractions."""
    cells = int(rng.choice([1, 2, 3, 12]))
    noisy, total = numbers(rng, (1, cells)), int(any_total(rng) or 0)
    found = nearest_with_total(noisy, np.array([total]))[0]
    need(found.min() >= 0 and int(found.sum()) == total, "the total is not kept, or counts are negative")
    best = rounded_projection([int(value) for value in noisy[0]], total)
    costs = [sum((int(x) - int(y)) ** 2 for x, y in zip(row, noisy[0], strict=True)) for row in (found, best)]
    need(costs[0] == costs[1], "counts with a total are not the nearest")


def ascending_lists(rng: Generator) -> None:
    """Sorted lists ascend within bounds, and are counted."""
    lengths = rng.choice([0, 1, 2, 30], int(rng.integers(1, 5)))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    top = int(rng.choice([1, 5, 1000]))
    values = numbers(rng, int(starts[-1]), 2**40)
    non_decreasing_in_place(values, starts, lower=0, upper=top, power=int(rng.integers(1, 3)))
    need(values.min(initial=0) >= 0 and values.max(initial=0) <= top, "a list leaves its bounds")
    for first, last in pairwise(starts):
        need((np.diff(values[first:last]) >= 0).all(), "a list does not ascend")
    counts = counts_of(values, starts, first_size=0, max_size=top)
    need(np.array_equal(counts.sum(axis=1), lengths), "groups of a list are lost")


# -------------------------------------------------------------------- the default mechanism's parts


def families(rng: Generator) -> None:
    """Rows that are allocated from the top do not rise, add up, and stay within public totals."""
    tree, sizes = any_tree(rng), sizes_of(rng)
    mean = reals(rng, (len(tree), sizes))
    deviation = magnitudes(rng, (len(tree), sizes))
    totals = leaf_numbers(rng, tree) if rng.random() < 0.6 else None
    found = allocate_rows(mean, deviation, tree, totals)
    need_counts(found, tree)
    need((np.diff(found, axis=1) <= 0).all(), "allocated rows rise with the size")
    need(totals is None or (found[:, 0] <= totals).all(), "a region has more groups than its total")


def whole_table(rng: Generator) -> None:
    """A table keeps both sums; on small cases no other one is nearer."""
    if small := rng.random() < 0.5:
        shape = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        held = rng.integers(0, 3, shape) if rng.random() < 0.8 else np.zeros(shape, np.int64)
        target = rng.uniform(-90, 60, shape) if rng.random() < 0.5 else rng.integers(-3, 4, shape).astype(float)
    else:
        shape = int(rng.integers(1, 30)), int(rng.integers(1, 12))
        held, target = np.abs(numbers(rng, shape, 10**9)), reals(rng, shape)
    weight = magnitudes(rng, shape)
    rows, columns = held.sum(axis=1), held.sum(axis=0)
    found = transport_oracle.nearest_table(target, weight, rows, columns)
    need(found.min() >= 0, "a table has negative counts")
    need(np.array_equal(found.sum(axis=1), rows), "a table's rows do not add up")
    need(np.array_equal(found.sum(axis=0), columns), "a table's columns do not add up")
    if small and rows.max(initial=0) <= 4:
        best = transport_oracle.least_cost(target, weight, rows.tolist(), columns.tolist())
        cost = transport_oracle.cost(found, target, weight)
        scale = float((weight * (np.abs(target) + rows.max() + 1) ** 2).max())
        need(cost <= best + 1e-9 * best + 1e-9 * scale, f"there is a nearer table: {cost!r} against {best!r}")


def by_categories(rng: Generator) -> None:
    """Tables by category keep sums over regions and over categories."""
    regions, sizes, cells = any_tree(rng), int(rng.choice([1, 2, 5])), int(rng.integers(2, 5))
    tree = regions.by_category(Categories.of({"sort": [str(cell) for cell in range(cells)]}, "members"))
    sums = regions.aggregate(np.abs(numbers(rng, (regions.leaf_count, sizes), 10**9)))
    mean, variance = reals(rng, (len(tree), sizes), 10**9), magnitudes(rng, (len(tree), sizes))
    found = allocate_tables(mean, variance, tree, sums)
    need_counts(found, tree)
    need(np.array_equal(tree.over_categories(found), sums), "categories do not add up")


def differences(rng: Generator) -> None:
    """Least squares over numbers and differences: finite, with positive variances."""
    shape = 3, int(rng.choice([1, 2, 7, 20]))
    variance, spread = magnitudes(rng, shape), magnitudes(rng, shape)
    mean, left = tridiagonal_least_squares(reals(rng, shape), variance, reals(rng, shape), spread)
    need(np.isfinite(mean).all(), "least squares of differences are not finite")
    need((left > 0).all() and np.isfinite(left).all(), "a variance of differences is not positive")
    need((left <= variance * (1 + 1e-6)).all(), "a variance of differences is larger than without them")


def lists_of_sizes(rng: Generator) -> None:
    """Posteriors of lists: finite, monotone, and of as many groups as there are; draws as well."""
    tree = any_tree(rng, small=rng.random() < 0.5)
    lengths = rng.choice([0, 1, 2, 9], tree.leaf_count)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    top = int(rng.choice([1, 2, 40, 700, 20_000]))
    lists = Lists(
        values=numbers(rng, (1, int(starts[-1])), 10**9),
        starts=starts,
        below=np.array([0]),
        above=np.array([top]),
        scales=magnitudes(rng, 1, -16, 9),
        gaussian=bool(rng.integers(2)),
    )
    found = list_posterior(lists, tree, top).marginals
    need(all(np.isfinite(each).all() for each in found), "a posterior of lists is not finite")
    need((np.diff(found.mean, axis=1) <= 1e-9).all() and found.mean.min(initial=0) >= 0, "a posterior mean rises")
    need((found.mean[:, 0] <= lengths + 1e-6).all(), "a posterior mean exceeds the number of groups")
    need(found.variance.min(initial=0) >= 0, "a posterior variance is negative")
    need(np.allclose(found.counts.sum(axis=1), lengths, atol=1e-6), "groups of a list are lost")
    drawn = list_posterior(lists, tree, top).draw(rng.random(int(starts[-1])))
    need((np.diff(drawn, axis=1) <= 0).all() and drawn.min(initial=0) >= 0, "a draw of lists rises or is negative")
    need((drawn[:, 0] <= lengths).all(), "a draw exceeds the number of groups")


def counted_chains(rng: Generator) -> None:
    """Posteriors of cumulative counts: finite, monotone, within the number of groups; draws as well."""
    tree = any_tree(rng, small=rng.random() < 0.5)
    sizes = int(rng.choice([1, 2, 40]))
    groups = rng.choice([0, 1, 2, 30, 3000], tree.leaf_count).astype(np.int64)
    certain, scale, gaussian = bool(rng.integers(2)), float(magnitudes(rng, 1, -16, 9)[0]), bool(rng.integers(2))
    if certain:
        values = numbers(rng, (tree.leaf_count, sizes), 10**9).astype(float)
    else:  # nothing but the noise bounds the counts
        scale = min(scale, 1e3)
        true = -np.sort(-rng.integers(0, groups[:, None] + 1, (tree.leaf_count, sizes)), axis=1)
        values = true + np.rint(rng.laplace(0, np.sqrt(scale) if gaussian else scale, true.shape))
    chains = Counted(values, groups if certain else np.maximum(groups, 1), scale, gaussian, certain)
    found = count_posterior(chains, tree).marginals
    need(all(np.isfinite(each).all() for each in found), "a posterior of counts is not finite")
    need((np.diff(found.mean, axis=1) <= 1e-6).all() and found.mean.min(initial=0) >= 0, "a posterior mean rises")
    need(found.variance.min(initial=0) >= 0, "a posterior variance is negative")
    need(not certain or (found.mean[:, 0] <= groups + 1e-6).all(), "a posterior mean exceeds the number of groups")
    drawn = count_posterior(chains, tree).draw(rng.random(tree.leaf_count * sizes))
    need((np.diff(drawn, axis=1) <= 0).all() and drawn.min(initial=0) >= 0, "a draw of counts rises or is negative")
    need(not certain or (drawn[:, 0] <= groups).all(), "a draw exceeds the number of groups")


def shrinkage(rng: Generator) -> None:
    """Rows drawn to their parents' shapes are finite, and so are their variances, which stay positive."""
    regions, sizes, kinds = int(rng.integers(1, 90)), int(rng.choice([1, 3, 10])), int(rng.integers(1, 4))
    rows = regions * kinds
    groups = np.abs(numbers(rng, rows)).astype(float)
    above = -np.sort(-np.abs(numbers(rng, (rows, sizes))), axis=1).astype(float)
    most = np.maximum(above[:, 0], groups)
    cells, noise = None, magnitudes(rng, sizes if rng.random() < 0.5 else (rows, sizes), -16, 16)
    if rng.random() < 0.5:  # counts of single sizes, which add up to the number of groups
        cells, above = sizes + int(rng.integers(2)), rng.permuted(above, axis=1)
        most, noise = np.maximum(above.sum(axis=1), groups), np.broadcast_to(noise[..., :1], noise.shape)
    for apart in (False, True):
        measured = MeasuredRows(reals(rng, (rows, sizes)), noise, groups, above, most, kinds, cells)
        found = shrink_rows(measured, in_common=bool(rng.integers(2)), apart_as_true=apart)
        need(np.isfinite(found.mean).all(), "rows that are drawn to their parents are not finite")
        need(
            (found.variance > 0).all() and np.isfinite(found.variance).all(),
            "a variance of a drawn row is not positive",
        )


def tables_of_counts(rng: Generator) -> None:
    """Counts near any numbers are integers, 0 or more, add up, and keep all totals."""
    tree, sizes = any_tree(rng, small=True), int(rng.choice([1, 2, 9]))
    totals = tree.aggregate(rng.choice([0, 1, 7, 10**6], tree.leaf_count))
    mean = reals(rng, (len(tree), sizes))
    found = allocate_counts(mean, np.sqrt(magnitudes(rng, (len(tree), sizes), -6, 6)), tree, totals)
    need(found.min(initial=0) >= 0, "a count is negative")
    need(np.array_equal(found.sum(axis=1), totals), "counts do not add up to the total")
    need(np.array_equal(tree.aggregate(found[tree.level_slice(tree.depth - 1)]), found), "regions do not add up")


def sums_of_rows(rng: Generator) -> None:
    """Rows moved to keep their sums are finite."""
    rows, sizes = int(rng.integers(1, 6)), sizes_of(rng)
    totals = np.abs(numbers(rng, rows)) if rng.random() < 0.5 else None
    found = keep_sums(reals(rng, (rows, sizes)), magnitudes(rng, rows), magnitudes(rng, rows), totals)
    need(np.isfinite(found).all(), "rows that keep their sums are not finite")


KERNELS: dict[str, Callable[[Generator], None]] = {
    function.__name__: function
    for function in (
        nearest, nearest_by_solver, chain, from_the_top, blue, least_move, matching, tables, real_numbers, upwards,
        jointly_counts, jointly_at_least, monotone, with_total, ascending_lists, families, whole_table, by_categories,
        differences, lists_of_sizes, counted_chains, shrinkage, tables_of_counts, sums_of_rows,
    )
}  # fmt: skip


def one(number: int, seed: int) -> tuple[str, str] | None:
    """Run one case; returns the promise that it broke, and words, or None."""
    name = list(KERNELS)[number % len(KERNELS)]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            KERNELS[name](np.random.default_rng([seed, number]))
    except Wrong as error:
        return "wrong", f"{name}: {error}"
    except TallytreeError as error:
        return "dead_ends", f"{name} refuses: {str(error)[:150]}"
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        return "tracebacks", f"{name}: {type(error).__name__}: {str(error)[:100]} at {at.filename[-30:]}:{at.lineno}"
    return None


def run(count: int, seed: int) -> Tally:
    """So many cases, all estimators in turn."""
    found = run_cases("tests.faults.kernels", 0, count, seed)
    broken = {promise: sum(one.promise == promise for one in found) for promise in {one.promise for one in found}}
    words = [f"kernel case {one.number} of seed {seed}: {one.words}" for one in found]
    return Tally("kernels", count, examples=tuple(words[:MOST_EXAMPLES]), **broken)


if __name__ == "__main__":
    print(one(int(sys.argv[1]), int(sys.argv[2])) or "nothing is wrong")
