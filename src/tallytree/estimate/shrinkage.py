"""What a crowded region learns from its parent: its noisy row is drawn towards the parent's shape as far as that pays.

*The model.* The `at_least` counts t of a leaf with n groups have the mean n p, where p is its parent's shape, and the
covariance V(n) = n M + n² B. M is that of n groups drawn from the shape, M_st = p_max(s, t) − p_s p_t, less what the
parent's own sum takes away. B is how much more leaves differ from one another than chance would have it. The best
linear estimate from the noisy row y, with noise of variance σ² at each size, is then

    n p + V (V + σ² I)⁻¹ (y − n p),

which looks at all sizes together: noise is independent from size to size and real differences are not.

*What B is* is fitted to the noisy rows alone. With y − n p divided by a root of n M + σ² I, leaves that differ by
chance alone have uncorrelated entries of variance 1; the directions in which the variance of many leaves is larger than
noise can make it (the edge (1 + √(K / leaves))² of Marchenko and Pastur) are real differences. Leaves are put
together with others of like size, for small places differ more than large ones.

*By category* rows of different categories of a region are drawn each to its own category's shape. Where categories have
few regions they are fitted to together, and what all categories of a region have in common is looked for in their sum.

*Where it stops.* A mean absolute error is what counts, and Laplace noise has a sharp peak: its own is 0.886 of that of
normal noise with the same variance. Where the variance that is left is more than 0.78 of the noise's, a size keeps its
own measurement.

*As far apart as they are.* Drawn rows lie closer together than the truth does: each is a mean over what it may be. Rows
that differ as much as true ones do, as far as the fit can tell, which is what a simulation of such data needs, take the
square root A of the gain G = (V + σ² I)⁻¹ V in its place: the rows (y − n p) A have the covariance Aᵀ (V + σ² I) A = V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats
from tallytree.core.progress import Tell, nobody

WORTH_IT = 0.78  # π / 4: with less than this part of the variance left, normal errors are smaller than Laplace ones
CLASSES_PER_E = 4  # regions whose numbers of groups and whose noise differ by less than a factor e^(1/4) are alike
FEWEST_REGIONS, REGIONS_PER_SIZE = 60, 8  # that differences between regions are fitted to together
MOST_SIZES = 64  # beyond, each size by itself would be all there is to look at: nothing is shrunk there
LEAST_LEFT = 1e-3  # of the noise's variance
LEAST_NOISE = 1e-6  # a variance: with less, counts are as good as exact, and covariances need not be sharper
LEAST_RATIO = 1e-12  # of the noise's variance to the signal's: with less, rounding makes covariances indefinite


class Shrinkage(NamedTuple):
    """Rows shrunk towards their parents' shapes, the variances left, and the part of the rows that is the parents'."""

    mean: Floats
    variance: Floats
    part: float


class _Alike(NamedTuple):
    """Regions of one kind with about as many groups, and how far chance and noise move them on average."""

    members: np.ndarray
    chance: Floats  # [sizes, sizes]
    noise: Floats  # [sizes]


class MeasuredRows(NamedTuple):
    """Noisy rows `[regions, sizes]` of numbers of groups, and those of the regions' parents.

    `noise` is the variance of the noise, `[sizes]`, or a row for each region. Of `kinds` (categories) there are equally
    many regions each, one kind after another.
    """

    noisy: Floats
    noise: Floats
    groups: Floats
    above: Floats
    groups_above: Floats
    kinds: int = 1


def shrink_rows(
    rows: MeasuredRows, *, in_common: bool = False, apart_as_true: bool = False, tell: Tell = nobody
) -> Shrinkage:
    """Rows shrunk towards those of their parents.

    With `in_common`, what all kinds of a region have in common is looked for first, and kept: where regions are few it
    may show in the sum over kinds alone. `apart_as_true` leaves rows as different as the fit says that the truth is.
    """
    noisy, noise, groups, above, groups_above, kinds = rows
    regions, sizes = noisy.shape
    noise = _at_least_some(noise, noisy.shape)
    if not can_shrink(sizes):
        return Shrinkage(noisy, noise, 0.0)
    share = groups / np.maximum(groups_above, 1.0)
    lots, common = _put_together(noise, groups, above, share, kinds), None
    if in_common and kinds > 1 and regions // kinds < _enough(sizes):
        common = _in_common(noisy - share[:, None] * above, noise, groups, lots, kinds)

    def apart(some: np.ndarray) -> Floats:
        expected = share[some, None] * above[some]
        found: Floats = noisy[some] - (expected if common is None else expected + common[some])
        return found

    mean, variance = noisy.copy(), noise.copy()
    empty = groups <= 0
    mean[empty], variance[empty] = 0.0, LEAST_LEFT * noise[empty]
    taken, done = 0.0, 0
    for together in lots:
        tell(0.4 + 0.6 * done / max(1, regions))  # putting them together takes as long as that
        done += sum(len(one.members) for one in together)
        own = [apart(one.members) for one in together]
        drawn, beyond = _beyond_chance(together, own)
        signals = drawn + beyond
        gains = np.linalg.solve(signals + _noises_beside(signals, together), signals)
        left = np.clip(np.diagonal(gains, axis1=1, axis2=2), LEAST_LEFT, 1.0)
        left[left >= WORTH_IT] = 1.0
        for one, difference, signal, gain, rest in zip(together, own, signals, gains, left, strict=True):
            pull = _root_of_gain(signal, one.noise) if apart_as_true else gain
            mean[one.members] += np.where(rest < 1.0, difference @ pull - difference, 0.0)
            variance[one.members] *= rest
            taken += len(one.members) * float(np.mean(1.0 - rest))
    return Shrinkage(mean, variance, taken / max(1, regions - int(empty.sum())))


def can_shrink(sizes: int) -> bool:
    """Are there sizes, and few enough to look at all of them together?"""
    return 0 < sizes <= MOST_SIZES


def _at_least_some(noise: Floats, shape: tuple[int, int]) -> Floats:
    """The noise's variance, `[regions, sizes]`, and not below the least; one row for all stays one in memory."""
    if noise.ndim == 2 and noise.strides[0] == 0:
        noise = noise[:1]
    return np.broadcast_to(np.maximum(noise, LEAST_NOISE), shape)


def _enough(sizes: int) -> int:
    """How many regions can tell by themselves how much they differ."""
    return max(FEWEST_REGIONS, REGIONS_PER_SIZE * sizes)


def _put_together(noise: Floats, groups: Floats, above: Floats, share: Floats, kinds: int) -> list[list[_Alike]]:
    """Regions that tell together how much more they differ than chance would have it.

    Kinds differ in shape and in how alike their regions are, so each tells for itself if it has enough regions; where
    none has, all kinds tell together.
    """
    regions, sizes = noise.shape
    enough, each = _enough(sizes), regions // kinds
    free = groups * np.clip(1.0 - share, 0.0, 1.0)
    found: list[list[_Alike]] = []
    for kind in range(kinds):
        own = kind * each + np.flatnonzero(groups[kind * each : (kind + 1) * each] > 0)
        if not len(own):
            continue
        common = np.clip(share[own] @ above[own] / groups[own].sum(), 0.0, 1.0)
        chance = np.minimum.outer(common, common) - np.outer(common, common)
        found += [
            [_Alike(some, free[some].mean() * chance, noise[some].mean(axis=0)) for some in lot]
            for lot in _alike(groups, noise, own, enough)
        ]
    return [[one for lot in found for one in lot]] if found and each < enough else found


def _beyond_chance(together: Sequence[_Alike], own: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Covariances `[classes, sizes, sizes]`: by chance, and of real differences beyond chance and noise."""
    drawn = np.stack([one.chance for one in together])
    roots = np.linalg.cholesky(drawn + _noises_beside(drawn, together))
    inverses = np.linalg.inv(roots)
    real = _real_differences(np.concatenate([rows @ inverse.T for rows, inverse in zip(own, inverses, strict=True)]))
    return drawn, roots @ real @ roots.transpose(0, 2, 1)


def _noises_beside(signals: Floats, together: Sequence[_Alike]) -> Floats:
    return np.stack([_noise_beside(signal, one.noise) for signal, one in zip(signals, together, strict=True)])


def _noise_beside(signal: Floats, noise: Floats) -> Floats:
    """The covariance of noise with these variances, large enough that the sum with the signal's can be inverted."""
    found: Floats = np.diag(np.maximum(noise, LEAST_RATIO * float(np.diagonal(signal).max(initial=0.0))))
    return found


def _in_common(apart: Floats, noise: Floats, groups: Floats, lots: Sequence[list[_Alike]], kinds: int) -> Floats:
    """What the kinds of each region differ by in common, divided by their numbers of groups: a best linear estimate.

    It is read from sums over the kinds: real differences add up there, noise and chance only by their squares.
    """
    sums, noises, counts = (each.reshape(kinds, -1, *each.shape[1:]).sum(axis=0) for each in (apart, noise, groups))
    chances = np.zeros((*sums.shape, sums.shape[1]))
    for one in (one for lot in lots for one in lot):
        chances[one.members % len(sums)] += one.chance
    regions = [_Alike(np.array([at]), chances[at], noises[at]) for at in np.flatnonzero(counts > 0)]
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


def _root_of_gain(signal: Floats, noise: Floats) -> Floats:
    """A with A² = (V + N)⁻¹ V and Aᵀ (V + N) A = V: with V + N = R Rᵀ and R⁻¹ V R⁻ᵀ = Q μ Qᵀ it is R⁻ᵀ Q √μ Qᵀ Rᵀ."""
    root = np.linalg.cholesky(signal + _noise_beside(signal, noise))
    values, directions = np.linalg.eigh(np.linalg.solve(root, np.linalg.solve(root, signal).T))
    inner = (directions * np.sqrt(np.clip(values, 0.0, 1.0))) @ directions.T
    found: Floats = np.linalg.solve(root.T, inner @ root.T)
    return found


def _alike(groups: Floats, noise: Floats, alive: np.ndarray, enough: int) -> list[list[np.ndarray]]:
    """Regions by their number of groups, and their noise: classes of like ones, put together until there are enough."""
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
    """The covariance beyond 1 in the directions where it is more than chance."""
    leaves, sizes = apart.shape
    values, directions = np.linalg.eigh(apart.T @ apart / leaves)
    edge = (1.0 + np.sqrt(sizes / leaves)) ** 2
    beyond = np.where(values > edge, values - 1.0, 0.0)
    real: Floats = (directions * beyond) @ directions.T
    return real
