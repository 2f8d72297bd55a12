"""Shrink a region's noisy row towards its parent's shape, as far as that lowers the error.

*The model.* The `at_least` counts t of a leaf with n groups have the mean n p, where p is its parent's shape, and the
covariance V(n) = n M + n² B. M is the covariance of one group drawn from the shape, M_st = p_max(s, t) − p_s p_t, less
the part that the parent's own sum removes. B is the variation between leaves beyond chance. The best linear estimate
from the noisy row y, with noise of variance σ² at each size, is then

    n p + V (V + σ² I)⁻¹ (y − n p),

which uses all sizes together: noise is independent from size to size, and real differences are not.

*Fitting B.* B is fitted to the noisy rows alone. After dividing y − n p by a root of n M + σ² I, leaves that differ by
chance alone have uncorrelated entries of variance 1. Directions in which the variance of many leaves exceeds the
largest that noise explains (the edge (1 + √(K / leaves))² of Marchenko and Pastur) are real differences. Leaves are
fitted together with leaves of similar size, because small places differ more than large ones.

*Counts of single sizes.* A leaf's counts have the mean n p too, and one group has the covariance diag(p) − p pᵀ. Where
the sum of k noisy numbers is known, as that of all counts with public totals, or of all counts less their measured
total, a k-th of the gap is taken off each number. The noise that remains has the covariance σ² (I − 1 1ᵀ / k). Nothing
else differs. (A ridge keeps the covariance of all k numbers invertible.)

*By category*, the rows of a region are shrunk each towards its own category's shape. Categories with few regions are
fitted together, and the common difference of all categories of a region is estimated from their sum.

*Where it stops.* The measure is the mean absolute error, and Laplace noise has a sharp peak: its mean absolute error is
0.886 of that of normal noise with the same variance. If the remaining variance is more than 0.78 of the noise's, a size
keeps its own measurement.

*As different as the truth.* Shrunk rows lie closer together than true rows, because each is a posterior mean. A
simulation needs rows that differ as much as true rows do, as far as the fit shows. Such rows use the square root A of
the gain G = (V + σ² I)⁻¹ V instead: the rows (y − n p) A have the covariance Aᵀ (V + σ² I) A = V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.progress import Tell, nobody

WORTH_IT = 0.78  # π / 4: if less than this part of the variance remains, normal errors are smaller than Laplace ones
CLASSES_PER_E = 4  # regions whose numbers of groups and whose noise differ by less than a factor e^(1/4) are alike
FEWEST_REGIONS, REGIONS_PER_SIZE = 60, 8  # regions that a fit of their differences needs
MOST_SIZES = 64  # with more sizes, only single sizes could be used: nothing is shrunk
LEAST_LEFT = 1e-3  # the least remaining variance, relative to the noise's
LEAST_NOISE = 1e-6  # a variance: with less, counts are nearly exact, and covariances need no more precision
RIDGE = 1e-6  # part of the noise that remains in the direction where nothing is left of it
LEAST_RATIO = 1e-12  # noise variance over signal variance: below it, rounding makes covariances indefinite


class Shrinkage(NamedTuple):
    """Rows shrunk towards their parents' shapes, the remaining variances, and the parents' weight in the rows."""

    mean: Floats
    variance: Floats
    part: float


class _Alike(NamedTuple):
    """Regions of one kind with similar numbers of groups, and the mean covariances of chance and noise."""

    members: np.ndarray
    chance: Floats  # [sizes, sizes]
    noise: Floats  # [sizes]
    tied: float = 0.0  # the noise has the covariance D (I − tied 1 1ᵀ) D, D its deviations


class MeasuredRows(NamedTuple):
    """Noisy rows `[regions, sizes]` of numbers of groups, and those of the regions' parents.

    `noise` is the variance of the noise, `[sizes]`, or a row for each region. Each of the `kinds` (categories) has the
    same number of regions, one kind after another. The rows are `at_least` counts or, if `cells` is given, counts of
    single sizes; then a known sum of so many noisy numbers has been taken into account.
    """

    noisy: Floats
    noise: Floats
    groups: Floats
    above: Floats
    groups_above: Floats
    kinds: int = 1
    cells: int | None = None


def shrink_rows(
    rows: MeasuredRows, *, in_common: bool = False, apart_as_true: bool = False, tell: Tell = nobody
) -> Shrinkage:
    """Return rows shrunk towards those of their parents.

    With `in_common`, the common difference of all kinds of a region is estimated first, and kept: if regions are few,
    it may be visible only in the sum over kinds. With `apart_as_true`, rows stay as different as the fit says the truth
    is.
    """
    noisy, noise, groups, above, groups_above, kinds, cells = rows
    regions, sizes = noisy.shape
    noise = _at_least_some(noise, noisy.shape)
    if not can_shrink(sizes):
        return Shrinkage(noisy, noise, 0.0)
    share = groups / np.maximum(groups_above, 1.0)
    fits, common = _put_together(noise, groups, above, share, kinds, cells), None
    if in_common and kinds > 1 and regions // kinds < _enough(sizes):
        common = _in_common(noisy - share[:, None] * above, noise, groups, fits, kinds)

    def apart(some: np.ndarray) -> Floats:
        expected = share[some, None] * above[some]
        found: Floats = noisy[some] - (expected if common is None else expected + common[some])
        return found

    mean, variance = noisy.copy(), noise.copy()
    empty = groups <= 0
    mean[empty], variance[empty] = 0.0, LEAST_LEFT * noise[empty]
    taken, done = 0.0, 0
    for together in fits:
        tell(0.4 + 0.6 * done / max(1, regions))  # grouping the regions takes the first 40 %
        done += sum(len(one.members) for one in together)
        own = [apart(one.members) for one in together]
        drawn, beyond = _beyond_chance(together, own)
        signals = drawn + beyond
        gains = np.linalg.solve(signals + _noises_beside(signals, together), signals)
        left = np.stack([_variance_left(gain, one) for gain, one in zip(gains, together, strict=True)])
        left[left >= WORTH_IT] = 1.0
        for one, difference, signal, gain, rest in zip(together, own, signals, gains, left, strict=True):
            pull = _root_of_gain(signal, one.noise, one.tied) if apart_as_true else gain
            mean[one.members] += np.where(rest < 1.0, difference @ pull - difference, 0.0)
            variance[one.members] *= rest
            taken += len(one.members) * float(np.mean(1.0 - rest))
    return Shrinkage(mean, variance, taken / max(1, regions - int(empty.sum())))


def can_shrink(sizes: int) -> bool:
    """Return whether there are sizes, and few enough to use all of them together."""
    return 0 < sizes <= MOST_SIZES


def _at_least_some(noise: Floats, shape: tuple[int, int]) -> Floats:
    """Return the noise's variance, `[regions, sizes]`, at least LEAST_NOISE; one row stays one row in memory."""
    if noise.ndim == 2 and noise.strides[0] == 0:
        noise = noise[:1]
    return np.broadcast_to(np.maximum(noise, LEAST_NOISE), shape)


def _enough(sizes: int) -> int:
    """Return how many regions a fit of their differences needs."""
    return max(FEWEST_REGIONS, REGIONS_PER_SIZE * sizes)


def _put_together(
    noise: Floats, groups: Floats, above: Floats, share: Floats, kinds: int, cells: int | None
) -> list[list[_Alike]]:
    """Return groups of regions whose variation beyond chance is fitted together.

    Kinds differ in shape and in how similar their regions are, so each kind with enough regions is fitted separately;
    if no kind has enough, all kinds are fitted together.
    """
    regions, sizes = noise.shape
    enough, each = _enough(sizes), regions // kinds
    free = groups * np.clip(1.0 - share, 0.0, 1.0)
    tied = 0.0 if cells is None else (1 - RIDGE) / cells
    found: list[list[_Alike]] = []
    for kind in range(kinds):
        own = kind * each + np.flatnonzero(groups[kind * each : (kind + 1) * each] > 0)
        if not len(own):
            continue
        common = np.clip(share[own] @ above[own] / groups[own].sum(), 0.0, 1.0)
        both = np.minimum.outer(common, common) if cells is None else np.diag(common)  # that a group is in both of two
        chance = both - np.outer(common, common)
        found += [
            [_Alike(some, free[some].mean() * chance, noise[some].mean(axis=0), tied) for some in lot]
            for lot in _alike(groups, noise, own, enough)
        ]
    return [[one for lot in found for one in lot]] if found and each < enough else found


def _beyond_chance(together: Sequence[_Alike], own: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return covariances `[classes, sizes, sizes]`: by chance, and of real differences beyond chance and noise."""
    drawn = np.stack([one.chance for one in together])
    roots = np.linalg.cholesky(drawn + _noises_beside(drawn, together))
    inverses = np.linalg.inv(roots)
    real = _real_differences(np.concatenate([rows @ inverse.T for rows, inverse in zip(own, inverses, strict=True)]))
    return drawn, roots @ real @ roots.transpose(0, 2, 1)


def _noises_beside(signals: Floats, together: Sequence[_Alike]) -> Floats:
    return np.stack([_noise_beside(signal, one.noise, one.tied) for signal, one in zip(signals, together, strict=True)])


def _noise_beside(signal: Floats, noise: Floats, tied: float = 0.0) -> Floats:
    """Return the covariance of noise with these variances, large enough to invert its sum with the signal's."""
    least = LEAST_RATIO * float(np.diagonal(signal).max(initial=0.0))
    found: Floats = np.diag(np.maximum(noise, least))
    if tied:
        deviation = np.sqrt(np.diagonal(found))
        found += least * np.eye(len(noise)) - tied * np.outer(deviation, deviation)
    return found


def _variance_left(gain: Floats, one: _Alike) -> Floats:
    """Return the diagonal of the remaining covariance N (V + N)⁻¹ V relative to that of the noise's N."""
    left = np.diagonal(gain)
    if one.tied:
        deviation = np.sqrt(one.noise)
        left = (left - one.tied * (deviation @ gain) / deviation) / (1 - one.tied)
    return np.clip(left, LEAST_LEFT, 1.0)


def _in_common(apart: Floats, noise: Floats, groups: Floats, fits: Sequence[list[_Alike]], kinds: int) -> Floats:
    """Return the common difference of the kinds of each region, divided by their numbers of groups: a best linear
    estimate.

    It is estimated from sums over the kinds: real differences add up there, noise and chance only by their squares.
    """
    sums, noises, counts = (each.reshape(kinds, -1, *each.shape[1:]).sum(axis=0) for each in (apart, noise, groups))
    chances = np.zeros((*sums.shape, sums.shape[1]))
    for one in (one for fit in fits for one in fit):
        chances[one.members % len(sums)] += one.chance
    tied = fits[0][0].tied if fits else 0.0
    regions = [_Alike(np.array([at]), chances[at], noises[at], tied) for at in np.flatnonzero(counts > 0)]
    if not regions:
        return np.zeros_like(apart)
    drawn, beyond = _beyond_chance(regions, [sums[one.members] for one in regions])
    common, signals = np.zeros_like(sums), beyond + drawn
    gains = np.linalg.solve(signals + _noises_beside(signals, regions), beyond)
    for one, gain in zip(regions, gains, strict=True):
        common[one.members] = sums[one.members] @ gain
    parts = groups.reshape(kinds, -1) / np.maximum(counts, 1.0)
    found: Floats = (parts[:, :, None] * common).reshape(apart.shape)
    return found


def _root_of_gain(signal: Floats, noise: Floats, tied: float = 0.0) -> Floats:
    """Return A with A² = (V + N)⁻¹ V and Aᵀ (V + N) A = V.

    With V + N = R Rᵀ and R⁻¹ V R⁻ᵀ = Q μ Qᵀ, A is R⁻ᵀ Q √μ Qᵀ Rᵀ.
    """
    root = np.linalg.cholesky(signal + _noise_beside(signal, noise, tied))
    values, directions = np.linalg.eigh(np.linalg.solve(root, np.linalg.solve(root, signal).T))
    inner = (directions * np.sqrt(np.clip(values, 0.0, 1.0))) @ directions.T
    found: Floats = np.linalg.solve(root.T, inner @ root.T)
    return found


def _alike(groups: Floats, noise: Floats, alive: np.ndarray, enough: int) -> list[list[np.ndarray]]:
    """Return classes of regions with similar numbers of groups and noise, merged until each class is large enough."""
    by_groups, by_noise = (
        np.floor(CLASSES_PER_E * np.log(each)).astype(np.int64) for each in (groups[alive], noise[alive].mean(axis=1))
    )
    found: list[list[np.ndarray]] = [[]]
    _, classes = np.unique(np.stack([by_groups, by_noise]), axis=1, return_inverse=True)
    for one in range(classes.max() + 1):
        if sum(map(len, found[-1])) >= enough:
            found.append([])
        found[-1].append(alive[classes.ravel() == one])
    if len(found) > 1 and sum(map(len, found[-1])) < enough:
        last = found.pop()
        found[-1].extend(last)
    return found


def _real_differences(apart: Floats) -> Floats:
    """Return the covariance beyond 1 in the directions where it exceeds chance."""
    leaves, sizes = apart.shape
    values, directions = np.linalg.eigh(apart.T @ apart / leaves)
    edge = (1.0 + np.sqrt(sizes / leaves)) ** 2
    beyond = np.where(values > edge, values - 1.0, 0.0)
    real: Floats = (directions * beyond) @ directions.T
    return real
