"""Solve least squares on the tree: the consistent real numbers nearest to given ones, with exact variances.

*Estimates.* Each size is a separate problem: minimise Σ_r w_r (x_r − q_r)² over all x whose children add up. From the
leaves up, a region's subtree has an estimate of the region's value (`a`) and its precision (W). A leaf has (q, w), and
a parent combines its own value with its children's sum,

    1 / S = Σ_c 1 / W_c,   W = w + S,   a = (w q + S Σ_c a_c) / W.

From the root down, the difference between a parent's value and its children's sum is divided among the children in
proportion to 1 / W_c. This is the generalised least squares estimate of Hay et al. (2010) for any tree and any weights.
The coefficients depend on the tree alone and are shared by all sizes.

*Variances* of estimates, and of any sum of them (`TreeVariances`). Sizes have independent noise, so one size at a time.
With a_r the estimate from the subtree of r alone and U_r its variance, the estimate of a child c of p is

    x_c = share_c · x_p + e_c,   e_c = a_c − share_c Σ a_c',   share_c = U_c / Σ U_c'   (sums over the children of p).

Every e_c is uncorrelated with Σ a_c', hence with x_p, which depends on the children only through that sum. For the same
reason it is uncorrelated with everything outside its family. So the estimates are a random walk down the tree: the root
has variance U_root, and the steps of one family have the covariances U_c [c = c'] − U_c U_c' / Σ U. Everything here
follows from that in one pass over the regions (for the variances: Cumings-Menon, Least squares estimation for
hierarchical data).

A level that was not measured has infinite variance; the last level must have been measured.

*Subtrees* (`subtree_estimates`): estimates from the measurements of a region and of all regions below it. This is the
upward pass alone, with noise that may differ from size to size and levels that were not measured.

*Chains* (`tridiagonal_least_squares`): noisy numbers and noisy differences of neighbours, two passes over each row.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import in_threads, kernel, part_of_kernels
from tallytree.core.names import briefly
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy
from tallytree.estimate.layout import tiles


class Pulls(NamedTuple):
    """The coefficients of a tree and its weights that the two passes need."""

    child_starts: Integers
    own: Floats  # the part of a region's estimate that is its own value, the rest being its children's sum
    share: Floats  # the part of its parent's surplus that a region takes

    @classmethod
    def of(cls, hierarchy: Hierarchy, region_weights: Floats) -> Pulls:
        own, share = np.ones(len(hierarchy)), np.ones(len(hierarchy))
        precision = region_weights.astype(np.float64).copy()
        for level in range(hierarchy.depth - 2, -1, -1):
            regions, below = hierarchy.level_slice(level), hierarchy.level_slice(level + 1)
            spread = 1 / precision[below]
            sums = _family_sums(spread, hierarchy, level)
            share[below] = spread / sums[hierarchy.parents[below] - regions.start]
            precision[regions] = region_weights[regions] + 1 / sums
            own[regions] = region_weights[regions] / precision[regions]
        return cls(hierarchy.child_starts, own, share)


def tree_least_squares(
    values: NDArray[Any], hierarchy: Hierarchy, region_weights: NDArray[Any] | None = None, *, tell: Tell = nobody
) -> Floats:
    """Return the real numbers `[regions, sizes]` nearest to `values` for which children add up to their parent.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> tree_least_squares(np.array([[9.0], [2.0], [4.0]]), tree)
    array([[8.],
           [3.],
           [5.]])
    """
    given = np.ascontiguousarray(values, dtype=np.float64)
    if given.ndim != 2 or len(given) != len(hierarchy):
        raise SpecError(f"values have shape {given.shape}; expected ({len(hierarchy)}, sizes), one row per region")
    weights = np.ones(len(hierarchy)) if region_weights is None else np.asarray(region_weights, dtype=np.float64)
    pulls = Pulls.of(hierarchy, weights)
    nearest = np.empty_like(given)

    def fit(start: int, stop: int) -> None:
        nearest[:, start:stop] = fit_tile(given, pulls, start, stop)

    in_threads(fit, tiles(given.shape[1]), tell)
    return nearest


@kernel
def fit_tile(values: Floats, pulls: Pulls, start: int, stop: int) -> Floats:
    """Return the least squares estimate of the sizes `start … stop - 1`."""
    regions, width = values.shape[0], stop - start
    fitted = np.empty((regions, width))
    sums = np.empty(width)
    for region in range(regions - 1, -1, -1):
        first, last = pulls.child_starts[region], pulls.child_starts[region + 1]
        if first == last:
            for size in range(width):
                fitted[region, size] = values[region, start + size]
            continue
        _add_rows(fitted, first, last, sums)
        own = pulls.own[region]
        for size in range(width):
            fitted[region, size] = own * values[region, start + size] + (1.0 - own) * sums[size]
    for region in range(regions):
        first, last = pulls.child_starts[region], pulls.child_starts[region + 1]
        if first == last:
            break  # leaves lie on the last level
        _add_rows(fitted, first, last, sums)
        for child in range(first, last):
            share = pulls.share[child]
            for size in range(width):
                fitted[child, size] += share * (fitted[region, size] - sums[size])
    return fitted


@part_of_kernels
def _add_rows(table: Floats, first: int, last: int, sums: Floats) -> None:
    sums[:] = 0.0
    for row in range(first, last):
        for size in range(len(sums)):
            sums[size] += table[row, size]


# -------------------------------------------------------------------- variances


LEAST_VARIANCE = 1e-300  # floats cannot distinguish smaller variances from zero


@dataclass(frozen=True, eq=False)
class TreeVariances:
    """The law of the least squares estimates of one size, for given noise variances."""

    hierarchy: Hierarchy
    noise: Floats  # the variance of each region's own measurement; infinite where its level was not measured
    own: Floats  # the part of a_r that is the region's own measurement; the rest is its children's sum
    share: Floats  # the part of its parent's estimate that moves with a region's
    spread: Floats  # U, the variance of a_r
    variance: Floats  # of the estimate itself

    __repr__ = briefly

    @classmethod
    def of(cls, hierarchy: Hierarchy, level_variances: Sequence[float]) -> TreeVariances:
        """Build the law from the noise variance of every level, top down; `math.inf` for a level that was not measured.

        >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
        >>> TreeVariances.of(tree, [3.0, 3.0]).variance
        array([2., 2., 2.])
        """
        given = np.array(level_variances, dtype=np.float64)
        if given.shape != (hierarchy.depth,) or not np.all(given >= 0):
            raise SpecError(f"expected {hierarchy.depth} variances, one per level and none negative, not {given}")
        if not np.isfinite(given[-1]):
            raise SpecError("the last level was not measured, so its regions are unknown; give its variance")
        noise = np.maximum(given, LEAST_VARIANCE)[hierarchy.level_of]
        own, share = np.ones(len(hierarchy)), np.ones(len(hierarchy))
        spread, variance = noise.copy(), np.empty(len(hierarchy))
        sums = np.zeros(len(hierarchy))
        for level in range(hierarchy.depth - 2, -1, -1):
            regions, below = hierarchy.level_slice(level), hierarchy.level_slice(level + 1)
            sums[regions] = _family_sums(spread[below], hierarchy, level)
            share[below] = spread[below] / sums[hierarchy.parents[below]]
            own[regions] = 1 / (1 + noise[regions] / sums[regions])
            spread[regions] = 1 / (1 / noise[regions] + 1 / sums[regions])
        variance[0] = spread[0]
        for level in range(1, hierarchy.depth):
            regions = hierarchy.level_slice(level)
            above = variance[hierarchy.parents[regions]]
            variance[regions] = spread[regions] * (1 - share[regions]) + share[regions] ** 2 * above
        return cls(hierarchy, noise, own, share, spread, variance)

    @property
    def region_weights(self) -> Floats:
        """Return the precision of every region's measurement: the weights of `tree_least_squares`."""
        precision: Floats = 1 / self.noise
        weights: Floats = precision / precision.max()
        return weights

    def region_sum(self, regions: Iterable[int]) -> Floats:
        """Return the sum over regions as weights: one entry per region of the tree, how often it is named."""
        named = np.fromiter(regions, dtype=np.int64)
        return np.bincount(named, minlength=len(self.hierarchy)).astype(np.float64)

    def variance_of(self, weights: NDArray[Any]) -> float:
        """Return the exact variance of Σ weight_r x_r. Regions may lie on any levels and within one another.

        >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
        >>> law = TreeVariances.of(tree, [3.0, 3.0])
        >>> law.variance_of(law.region_sum([1, 2])), law.variance_of(np.array([0, 1, -1]))
        (2.0, 6.0)
        """
        return self.covariance_of(weights, weights)

    def covariance_of(self, one: NDArray[Any], other: NDArray[Any]) -> float:
        """Return the exact covariance of two weighted sums of estimates."""
        first, second = self._carried_up(one), self._carried_up(other)
        total = float(first[0] * second[0] * self.spread[0])
        for level in range(self.hierarchy.depth - 1):
            below = self.hierarchy.level_slice(level + 1)
            one_centred = first[below] - np.repeat(self._means(first, level), self._children(level))
            other_centred = second[below] - np.repeat(self._means(second, level), self._children(level))
            total += float(np.sum(one_centred * other_centred * self.spread[below]))
        return total

    def measurement_weights(self, weights: NDArray[Any]) -> Floats:
        """Return k with Σ weight_r x_r = Σ k_r y_r, y the measurements: the weight of each measurement's noise in a
        sum.

        A sum is L_root x_root + Σ L_c e_c with L carried up from the leaves, x_root = a_root, and a_p is own_p y_p
        plus (1 − own_p) times its children's sum; so the weight on a_c is (1 − own_p) times that on a_p plus
        L_c − Σ share L.
        """
        carried = self._carried_up(weights)
        tree = self.hierarchy
        on_subtree = np.empty(len(tree))
        on_subtree[0] = carried[0]
        for level in range(tree.depth - 1):
            regions, below = tree.level_slice(level), tree.level_slice(level + 1)
            inherited = (1 - self.own[regions]) * on_subtree[regions] - self._means(carried, level)
            on_subtree[below] = carried[below] + np.repeat(inherited, self._children(level))
        return self.own * on_subtree

    @cached_property
    def leading(self) -> tuple[Integers, Floats]:
        """Return for every region the level of the measurement that counts most in its estimate, and its part of the
        variance.

        The weight of y_d in x_r is cov(x_r, x_d) / noise_d (least squares), so its part of the variance of x_r is cov²
        / (noise_d · variance_r); and the covariance of a region with a descendant is its variance times the shares on
        the way down. The candidates are the region itself, all regions above it and all below it.
        """
        tree, levels = self.hierarchy, self.hierarchy.level_of.copy()
        below = 1 / self.noise  # (product of shares)² / noise of the best measurement at or below a region
        _best_below(tree.child_starts, self.share, below, levels)
        part = self.variance**2 * below
        above = np.zeros(len(tree))  # cov² / noise of the best measurement above a region
        above_levels = np.zeros_like(levels)
        for level in range(1, tree.depth):
            regions = tree.level_slice(level)
            parents = tree.parents[regions]
            parent_own = self.variance[parents] ** 2 / self.noise[parents]
            nearer = parent_own >= above[parents]
            above[regions] = self.share[regions] ** 2 * np.where(nearer, parent_own, above[parents])
            above_levels[regions] = np.where(nearer, level - 1, above_levels[parents])
        levels = np.where(above > part, above_levels, levels)
        return levels, np.clip(np.maximum(part, above) / self.variance, 0.0, 1.0)

    def _carried_up(self, weights: NDArray[Any]) -> Floats:
        """Return L_r = weight_r + Σ share_c L_c: the weight on x_r once all below is written as shares and steps."""
        carried = np.array(weights, dtype=np.float64)
        if carried.shape != (len(self.hierarchy),):
            raise SpecError(f"weights have shape {carried.shape}; expected one per region, {len(self.hierarchy)}")
        for level in range(self.hierarchy.depth - 2, -1, -1):
            carried[self.hierarchy.level_slice(level)] += self._means(carried, level)
        return carried

    def _means(self, carried: Floats, level: int) -> Floats:
        """Return Σ share_c L_c over the children of every region of a level."""
        below = self.hierarchy.level_slice(level + 1)
        return _family_sums(self.share[below] * carried[below], self.hierarchy, level)

    def _children(self, level: int) -> Integers:
        starts = self.hierarchy.child_starts
        regions = self.hierarchy.level_slice(level)
        return np.diff(starts[regions.start : regions.stop + 1])


def _family_sums(values: Floats, hierarchy: Hierarchy, level: int) -> Floats:
    """Return sums of the children of every region of a level, from the values of the level below."""
    starts = hierarchy.child_starts[hierarchy.level_slice(level)]
    sums: Floats = np.add.reduceat(values, starts - starts[0])
    return sums


@kernel
def _best_below(child_starts: Integers, share: Floats, best: Floats, levels: Integers) -> None:
    for region in range(len(best) - 1, -1, -1):
        for child in range(child_starts[region], child_starts[region + 1]):
            reached = share[child] ** 2 * best[child]
            if reached > best[region]:
                best[region], levels[region] = reached, levels[child]


# -------------------------------------------------------------------- subtrees


def subtree_estimates(values: Floats, noise: Floats, hierarchy: Hierarchy) -> tuple[Floats, Floats]:
    """Return estimates `[regions, sizes]` and their variances, given the noise variance `noise` `[levels, sizes]`.

    The noise variance is infinite for levels and sizes that were not measured. On the last level every size must have
    been measured.

    >>> tree = Hierarchy.from_levels({"state": ["GA", "NY"]}, ["state"])
    >>> mean, variance = subtree_estimates(np.array([[9.0], [2.0], [4.0]]), np.array([[2.0], [1.0]]), tree)
    >>> mean[:, 0], variance[:, 0]
    (array([7.5, 2. , 4. ]), array([1., 1., 1.]))
    """
    mean, variance = np.array(values, dtype=np.float64), np.empty(values.shape)
    last = hierarchy.level_slice(hierarchy.depth - 1)
    variance[last] = noise[-1]
    for level in range(hierarchy.depth - 2, -1, -1):
        regions, below = hierarchy.level_slice(level), hierarchy.level_slice(level + 1)
        sums, spread = (_family_sums(each[below], hierarchy, level) for each in (mean, variance))
        measured = np.isfinite(noise[level])
        finite = np.where(measured, noise[level], 1.0)
        rest = np.where(measured, finite / (spread + finite), 1.0)  # 1 − own would round to 0 where noise is small
        own = np.where(measured, spread / (spread + finite), 0.0)
        mean[regions] = own * np.where(measured, mean[regions], 0.0) + rest * sums
        variance[regions] = rest * spread
    return mean, variance


def add_up_leaves(leaves: Floats, hierarchy: Hierarchy) -> Floats:
    """Return rows of all regions, `[regions, sizes]`, from those of the leaves."""
    rows = np.empty((len(hierarchy), leaves.shape[1]))
    rows[hierarchy.level_slice(hierarchy.depth - 1)] = leaves
    add_up(rows, hierarchy)
    return rows


def add_up(rows: Floats, hierarchy: Hierarchy) -> None:
    """Fill the rows of all upper regions, in place, from those of the leaves."""
    for level in range(hierarchy.depth - 2, -1, -1):
        rows[hierarchy.level_slice(level)] = _family_sums(rows[hierarchy.level_slice(level + 1)], hierarchy, level)


# -------------------------------------------------------------------- differences


def tridiagonal_least_squares(
    values: Floats, variance: Floats, differences: Floats, spread: Floats
) -> tuple[Floats, Floats]:
    """Return the T with the least Σ (T[s] − values)² / variance + Σ (T[s] − T[s + 1] − differences)² / spread.

    Return its variances too. All arrays are `[rows, sizes]`; T beyond the last size is 0. The system is a chain, so two
    passes solve it. The sizes before s and the differences up to s give an estimate of T[s]: the estimate of T[s − 1]
    minus a difference, with the sum of both variances. The other end gives an estimate in the same way, and there T
    beyond the last size is known. The result is the mean of independent estimates, weighted by their variances. So no
    step subtracts variances: they stay positive for any ratios.

    >>> import numpy as np
    >>> one = np.ones((1, 1))
    >>> tridiagonal_least_squares(4 * one, one, 2 * one, one)
    (array([[3.]]), array([[0.5]]))
    """
    sizes = values.shape[1]
    mean, left = values.astype(np.float64), variance.astype(np.float64)
    for size in range(1, sizes):
        before = mean[:, size - 1] - differences[:, size - 1], left[:, size - 1] + spread[:, size - 1]
        mean[:, size], left[:, size] = _weighed(values[:, size], variance[:, size], *before)
    after, after_variance = np.zeros(len(values)), np.zeros(len(values))
    for size in range(sizes - 1, -1, -1):
        after, after_variance = after + differences[:, size], after_variance + spread[:, size]
        mean[:, size], left[:, size] = _weighed(mean[:, size], left[:, size], after, after_variance)
        after, after_variance = _weighed(values[:, size], variance[:, size], after, after_variance)
    return mean, left


def _weighed(one: Floats, variance: Floats, other: Floats, other_variance: Floats) -> tuple[Floats, Floats]:
    """Return the best mean of two independent estimates, and its variance."""
    part = other_variance / (variance + other_variance)
    return part * one + variance / (variance + other_variance) * other, part * variance
