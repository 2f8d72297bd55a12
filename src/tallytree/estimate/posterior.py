"""Compute posteriors of leaves and the size distributions (shapes) around them: empirical Bayes from measurements.

A shape is a distribution of sizes, from 0 on. Posteriors of leaves follow from measurements and shapes, and shapes from
posteriors: the expected numbers of groups by size, added up over a region of an upper level, smoothed over neighbouring
sizes, and shrunk towards the shape of the region above it. The two steps alternate for a few rounds; more rounds would
fit the noise.

*A noisy sorted list* (`list_posterior`). A region with n groups has c_s groups of size s. The c_s are independent
geometric numbers with mean n p_s, where p is the shape around the region. Lists are measured where counts are sparse,
and there regions differ from one another about as much as geometric numbers do. Given n, their probability is
proportional to Π q_s^c_s with q_s = n p_s / (1 + n p_s). A sorted list is a path that climbs through the sizes, so the
probability of a list given its noisy measurement is a product over its places of q_s times the noise's density: a
hidden Markov chain. Two passes find its marginals exactly:

    forward(i, s) = L_i(s) q_s Σ over r ≤ s of forward(i − 1, r),
    backward(i, s) = Σ over r ≥ s of L_i+1(r) q_r backward(i + 1, r).

(Plain weights p_s in place of q_s are the prior of a list whose places prefer the commonest size. Rare sizes then
vanish, the more so the longer the list. On real tables such weights made errors up to ten times larger.)

*Counts.* At least j groups have size s or more if and only if the j-th place from the end does, so the marginals of the
places are the exact distribution of every `at_least` count: its mean and variance follow.

*A draw* of the lists comes from the same passes. The last place is drawn from its own distribution, and each earlier
place from forward(i, ·) up to the size drawn for the place after it. Posterior means are more alike than true lists
are; a draw varies as much as the posterior says.

*Noisy `at_least` counts* (`count_posterior`). The model is the same: independent geometric counts c_s with mean n p_s,
so Π q_s^c_s with q_s = n p_s / (1 + n p_s). The counts T_s = c_s + c_s+1 + … climb as the size falls, and each has its
own measurement noise. This is a hidden Markov chain over the sizes, from the largest down. Two passes find its
marginals exactly:

    forward(s, t) = L_s(t) Σ over r ≤ t of forward(s + 1, r) q_s^(t − r),
    backward(s, t) = Σ over r ≥ t of L_s−1(r) q_s−1^(r − t) backward(s − 1, r),

where a sum of geometric weights takes one step for each t. After size 1 comes size 0, which is not measured, and no
region has more than n groups: backward(1, t) = q_0^(n − t). (If totals are private, n is itself an estimate, so nothing
bounds the counts and backward(1, t) = 1.) A *draw* takes T_1 from forward × backward, and then T_s+1, given T_s = t,
from forward(s + 1, r) q_s^(t − r) for r ≤ t.

*Windows.* Noise lies further than `REACH` scales from 0 (or, if it is Gaussian, at a distance that is as unlikely) with
probability e^−REACH. Counts further than that from their own measurement, or from the range that the windows of larger
and smaller sizes leave, are excluded. If measurements contradict one another by more, windows are widened until they
meet. So a size takes at most as many steps as there are groups, and fewer where the noise is small. The gap between the
windows of two sizes takes one step.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.kernels import blocks, in_threads, kernel, part_of_kernels
from tallytree.core.progress import Tell, nobody
from tallytree.domain.hierarchy import Hierarchy

ROUNDS = 3
WIDTH = 0.1  # the smoothing's width, relative to the size
STEPS_PER_WIDTH = 8  # nodes of the smoothing per width
GROUPS_FROM_ABOVE = 20.0  # the shape above a region counts for this many groups


class Posterior(NamedTuple):
    """Means and variances of the `at_least` counts `[regions, sizes from 1]`, and expected counts from size 0 on."""

    mean: Floats
    variance: Floats
    counts: Floats


class Model(NamedTuple):
    """A model of the leaves' measurements: two kernels over blocks of leaves that give their posterior.

    `posteriors` takes the measurements, the index of each leaf's size distribution, the distributions, and the arrays
    to fill. `draws` takes `numbers` uniform numbers, and the array for the draw, in place of the arrays to fill.
    """

    posteriors: Callable[..., None]
    draws: Callable[..., None]
    measured: Any
    numbers: int

    def run(self, of: Integers, shapes: Floats, found: Posterior, tell: Tell = nobody) -> None:
        """Write the posterior of every leaf."""
        _in_blocks(lambda *block: self.posteriors(self.measured, of, shapes, found, *block), len(of), tell)


class LeafPosterior(NamedTuple):
    """The posterior of all leaves, and a function that draws `at_least` counts `[leaves, sizes from 1]` from it.

    The function takes `numbers` uniform numbers from 0 to 1; the same numbers give the same counts.
    """

    marginals: Posterior
    draw: Callable[[Floats], Integers]
    numbers: int


def leaf_posterior(model: Model, hierarchy: Hierarchy, max_size: int, rounds: int) -> LeafPosterior:
    """Return the posterior of the leaves under size distributions that are fitted to it."""
    leaves = hierarchy.level_slice(hierarchy.depth - 1)
    upper = min(1, hierarchy.depth - 1)
    of = hierarchy.above_leaves(upper)
    shapes = np.tile(first_shape(max_size), (len(np.unique(of)), 1))
    count = leaves.stop - leaves.start
    found = Posterior(np.zeros((count, max_size)), np.zeros((count, max_size)), np.zeros((count, max_size + 1)))
    for turn in range(rounds):
        model.run(of, shapes, found)
        if turn < rounds - 1:
            shapes = fit_shapes(found.counts, hierarchy, upper)

    def draw(chances: Floats) -> Integers:
        drawn = np.zeros((count, max_size), dtype=np.int64)
        _in_blocks(lambda *block: model.draws(model.measured, of, shapes, chances, drawn, *block), count)
        return drawn

    return LeafPosterior(found, draw, model.numbers)


def _in_blocks(work: Callable[..., None], count: int, tell: Tell = nobody) -> None:
    in_threads(work, blocks(count, max(1, count // 16)), tell)


def first_shape(max_size: int) -> Floats:
    """Return an initial shape that excludes nothing: half of all groups are empty, and larger sizes are rarer."""
    shape: Floats = np.ones(max_size + 1)
    shape /= 1.0 + np.arange(max_size + 1)
    shape[0] = shape[1:].sum() if max_size > 0 else 1.0
    shape /= shape.sum()
    return shape


def fit_shapes(counts: Floats, hierarchy: Hierarchy, upper: int) -> Floats:
    """Return the shape of every region of level `upper`, shrunk towards that of the region above."""
    first = first_shape(counts.shape[1] - 1)
    shapes = first[None, :]
    for level in range(upper + 1):
        of = hierarchy.above_leaves(level)
        regions = int(np.diff(hierarchy.level_starts)[level])
        sums = np.zeros((regions, counts.shape[1]))
        np.add.at(sums, of, counts)
        smooth = smooth_sizes(sums)
        weight = 1e-3 if level == 0 else GROUPS_FROM_ABOVE
        above = shapes
        if level > 0:
            above = shapes[hierarchy.parents[hierarchy.level_slice(level)] - hierarchy.level_slice(level - 1).start]
        shapes = (smooth + weight * above) / (smooth.sum(axis=1, keepdims=True) + weight)
    return shapes


def smooth_sizes(sums: Floats) -> Floats:
    """Return each size's groups `[regions, sizes from 0]`, spread by a normal curve whose width is a tenth of the size.

    Small sizes do not change. Everything is computed at nodes: every size up to 160, and from there on sizes that are
    an eighth of the normal width h or less apart. Between nodes the result is linear. So the number of steps grows with
    the logarithm of the largest size, and not with its square. The sum of the groups does not change. Linear
    interpolation of exp(−x² / 2h²) over steps of h / 8 is off by at most (1/8)² / 8 of its peak, once at the groups'
    origin and once at their destination: in all less than 0.5 % of the peak of each size's normal curve. The curve is
    cut off three widths away, where it has 1.1 % of its peak; that end may lie a step further out.
    """
    nodes = _nodes(sums.shape[1])
    left = np.searchsorted(nodes, np.arange(sums.shape[1]), side="right") - 1
    smooth = np.zeros_like(sums)
    _smooth(sums, nodes, left.astype(np.int64), smooth)
    return smooth


def _nodes(sizes: int) -> Integers:
    """Return sizes from 0 to the last, each at most an eighth of its own width, or one, from the size before it."""
    found = [0]
    while found[-1] < sizes - 1:
        found.append(min(sizes - 1, found[-1] + max(1, int(found[-1] * WIDTH / STEPS_PER_WIDTH))))
    return np.array(found, dtype=np.int64)


@kernel
def _smooth(sums: Floats, nodes: Integers, left: Integers, smooth: Floats) -> None:
    """Write the smoothed groups of each region; `left` numbers the last node at or below each size.

    A size between two nodes gives its groups to them with the weights of linear interpolation, and takes from them with
    the same weights; `held` is how many sizes a node stands for.
    """
    sizes, count = sums.shape[1], len(nodes)
    part, held = np.zeros(sizes), np.zeros(count)  # the part of the node to the right
    for size in range(sizes):
        node = left[size]
        if nodes[node] < size:
            part[size] = (size - nodes[node]) / (nodes[node + 1] - nodes[node])
            held[node + 1] += part[size]
        held[node] += 1.0 - part[size]
    groups, spread, curve = np.empty(count), np.empty(count), np.empty(count)
    for region in range(sums.shape[0]):
        groups[:], spread[:] = 0.0, 0.0
        for size in range(sizes):
            groups[left[size]] += (1.0 - part[size]) * sums[region, size]
            if part[size] > 0.0:
                groups[left[size] + 1] += part[size] * sums[region, size]
        for node in range(count):
            size, width = nodes[node], WIDTH * nodes[node]
            if groups[node] <= 1e-9:
                continue
            if width < 0.35:
                spread[node] += groups[node] / held[node]
                continue
            low, high = max(1, int(size - 3 * width)), min(sizes - 1, int(size + 3 * width) + 1)
            first, last, total = left[low], left[high], 0.0
            for other in range(first, last + 1):
                curve[other] = np.exp(-0.5 * ((nodes[other] - size) / width) ** 2)
                total += held[other] * curve[other]
            for other in range(first, last + 1):
                spread[other] += groups[node] * curve[other] / total
        for size in range(sizes):
            node = left[size]
            smooth[region, size] = (1.0 - part[size]) * spread[node]
            if part[size] > 0.0:
                smooth[region, size] += part[size] * spread[node + 1]


# -------------------------------------------------------------------- list posterior


NEGLIGIBLE = 35.0  # sizes less likely than e^−35 relative to the likeliest are left out
CELLS_AT_ONCE = 1 << 26  # places × sizes of the longest list


class Lists(NamedTuple):
    """Noisy lists of one level, one after another; several per region if bands of sizes were measured separately."""

    values: Integers  # [bands, places]
    starts: Integers  # where each region's list begins, and the end
    below: Integers  # a band measures the part of a size above this …
    above: Integers  # … up to this
    scales: Floats  # of Laplace noise; the variance of Gaussian noise
    gaussian: bool


def list_posterior(lists: Lists, hierarchy: Hierarchy, max_size: int, *, rounds: int = ROUNDS) -> LeafPosterior:
    """Return the posterior of every leaf's list under fitted size distributions; a draw takes one number per place."""
    return leaf_posterior(
        Model(_list_posteriors, _draw_lists, lists, lists.values.shape[1]), hierarchy, max_size, rounds
    )


@kernel
def _list_posteriors(lists: Lists, of: Integers, shapes: Floats, found: Posterior, start: int, stop: int) -> None:
    sums = np.empty((_longest(lists, start, stop), shapes.shape[1]))
    for region in range(start, stop):
        first, groups = lists.starts[region], lists.starts[region + 1] - lists.starts[region]
        row = Posterior(found.mean[region], found.variance[region], found.counts[region])
        _list_posterior(lists, first, _weights(groups, shapes[of[region]]), sums[:groups], row)


@kernel
def _draw_lists(
    lists: Lists, of: Integers, shapes: Floats, chances: Floats, drawn: Integers, start: int, stop: int
) -> None:
    sizes = shapes.shape[1]
    sums = np.empty((_longest(lists, start, stop), sizes))
    for region in range(start, stop):
        first, groups = lists.starts[region], lists.starts[region + 1] - lists.starts[region]
        _list_forward(lists, first, _weights(groups, shapes[of[region]]), sums[:groups])
        size = sizes - 1
        for place in range(groups - 1, -1, -1):
            row = sums[place, : size + 1]
            size = min(size, np.searchsorted(row, chances[first + place] * row[size], side="right"))
            if size > 0:
                drawn[region, size - 1] += 1
        for size in range(sizes - 2, 0, -1):
            drawn[region, size - 1] += drawn[region, size]


@part_of_kernels
def _weights(groups: int, shape: Floats) -> Floats:
    """Return the weights q of a region with this many groups."""
    weights = np.empty(len(shape))
    for size in range(len(shape)):
        mean = groups * shape[size]
        weights[size] = mean / (1.0 + mean)
    return weights


@part_of_kernels
def _longest(lists: Lists, start: int, stop: int) -> int:
    longest = 1
    for region in range(start, stop):
        longest = max(longest, lists.starts[region + 1] - lists.starts[region])
    return longest


@part_of_kernels
def _likelihoods(lists: Lists, place: int, prior: Floats, found: Floats) -> None:
    """Write L(s) q_s for every size s, divided by the largest L, and 0 if that is negligible."""
    best = -np.inf
    for size in range(len(prior)):
        value = 0.0
        for band in range(len(lists.scales)):
            part = min(size, lists.above[band]) - min(size, lists.below[band])
            gap = float(abs(lists.values[band, place] - part))
            value -= gap * gap / (2 * lists.scales[band]) if lists.gaussian else gap / lists.scales[band]
        found[size] = value
        best = max(best, value)
    for size in range(len(prior)):
        found[size] = np.exp(found[size] - best) * prior[size] if found[size] - best > -NEGLIGIBLE else 0.0


@part_of_kernels
def _list_forward(lists: Lists, start: int, prior: Floats, sums: Floats) -> None:
    """Run the forward pass for one list: `sums[i, s]` is the weight of all sizes up to s at place i."""
    sizes = len(prior)
    weights = np.empty(sizes)
    for place in range(len(sums)):
        _likelihoods(lists, start + place, prior, weights)
        total = 0.0
        for size in range(sizes):
            total += weights[size] * (1.0 if place == 0 else sums[place - 1, size])
            sums[place, size] = total
        if total <= 0.0:  # contradictions beyond the range of floats: only the order counts
            for size in range(sizes):
                sums[place, size] = 1.0 if place == 0 else sums[place - 1, size]
            total = sums[place, sizes - 1]
        for size in range(sizes):
            sums[place, size] /= total


@part_of_kernels
def _list_posterior(lists: Lists, start: int, prior: Floats, sums: Floats, found: Posterior) -> None:
    """Run both passes for one list."""
    groups, sizes = sums.shape
    mean, variance, counts = found
    mean[:], variance[:], counts[:] = 0.0, 0.0, 0.0
    weights, behind, chances = np.empty(sizes), np.ones(sizes), np.empty(sizes)
    _list_forward(lists, start, prior, sums)
    for place in range(groups - 1, -1, -1):
        total = 0.0
        for size in range(sizes):
            forward = sums[place, size] - (sums[place, size - 1] if size > 0 else 0.0)
            chances[size] = forward * behind[size]
            total += chances[size]
        if total <= 0.0:  # contradictions beyond the range of floats: only the places before it count
            for size in range(sizes):
                chances[size] = sums[place, size] - (sums[place, size - 1] if size > 0 else 0.0)
            total = sums[place, sizes - 1]
        at_least, largest = 0.0, 2 * (groups - place) - 1
        for size in range(sizes - 1, 0, -1):
            chance = chances[size] / total
            counts[size] += chance
            at_least += chance
            mean[size - 1] += at_least
            variance[size - 1] += largest * at_least  # Σ (2 j − 1) P(at least j) is the mean of the square
        counts[0] += chances[0] / total
        _likelihoods(lists, start + place, prior, weights)
        total = 0.0
        for size in range(sizes - 1, -1, -1):
            total += weights[size] * behind[size]
            chances[size] = total
        if total > 0.0:
            for size in range(sizes):
                behind[size] = chances[size] / total
    for size in range(sizes - 1):
        variance[size] = max(0.0, variance[size] - mean[size] ** 2)


# -------------------------------------------------------------------- count posterior


REACH, NEAR = 35.0, 12.0  # NEAR is used where one leaf in 10⁵ does not matter for sums of many leaves
UNBOUNDED = 1 << 60


class Counted(NamedTuple):
    """Noisy `at_least` counts of the leaves, and each leaf's number of groups, exact or estimated."""

    values: Floats  # [leaves, sizes from 1]
    groups: Integers
    scale: float  # of Laplace noise; the variance of Gaussian noise
    gaussian: bool
    certain: bool = True
    reach: float = REACH


def widest(counted: Counted) -> int:
    """Return how many counts the window of a size may have if only its measurement bounds it."""
    reach = sqrt(2 * counted.reach * counted.scale) if counted.gaussian else counted.reach * counted.scale
    return 2 * ceil(reach) + 4


def count_posterior(counted: Counted, hierarchy: Hierarchy, *, rounds: int = ROUNDS) -> LeafPosterior:
    """Return the posterior of every leaf's counts under fitted shapes; a draw takes one number per count."""
    model = Model(_count_posteriors, _draw_counts, counted, counted.values.size)
    return leaf_posterior(model, hierarchy, counted.values.shape[1], rounds)


def posterior_under(
    shape: Floats, counted: Counted, into: tuple[Floats, Floats] | None = None, tell: Tell = nobody
) -> Posterior:
    """Return the posterior of every leaf under one shape for all of them, `[sizes from 0]`, without expected counts.

    Means and variances are written `into` two arrays, if given.
    """
    leaves, sizes = counted.values.shape
    mean, variance = into or (np.empty((leaves, sizes)), np.empty((leaves, sizes)))
    found = Posterior(mean, variance, np.empty((0, sizes + 1)))
    of, shapes = np.zeros(leaves, np.int64), shape[None, :]
    Model(_count_posteriors, _draw_counts, counted, counted.values.size).run(of, shapes, found, tell)
    return found


@kernel
def _count_posteriors(counted: Counted, of: Integers, shapes: Floats, found: Posterior, start: int, stop: int) -> None:
    for region in range(start, stop):
        groups = counted.groups[region]
        prior = _weights(groups, shapes[of[region]])
        windows = _windows(counted, region)
        forward = _forward(counted, region, prior, windows)
        _backward(counted, region, prior, windows, forward, found)
        if not len(found.counts):  # not needed
            continue
        mean, counts = found.mean[region], found.counts[region]
        sizes = len(mean)
        counts[0] = groups - mean[0] if counted.certain else 0.0
        for size in range(1, sizes):
            counts[size] = mean[size - 1] - mean[size]
        counts[sizes] = mean[sizes - 1]


@kernel
def _draw_counts(
    counted: Counted, of: Integers, shapes: Floats, chances: Floats, drawn: Integers, start: int, stop: int
) -> None:
    for region in range(start, stop):
        prior = _weights(counted.groups[region], shapes[of[region]])
        windows = _windows(counted, region)
        forward = _forward(counted, region, prior, windows)
        low, high, starts = windows
        most = high[0]
        for size in range(drawn.shape[1]):
            first, begin = low[size], starts[size]
            last = min(most, high[size])
            total, weight = 0.0, 1.0  # from the largest down, each step further weighs by q
            ratio = prior[size] if size > 0 or counted.certain else 1.0
            for count in range(last, first - 1, -1):
                total += forward[begin + count - first] * weight
                weight *= ratio
            left, weight = chances[region * drawn.shape[1] + size] * total, 1.0
            chosen = min(first, most)
            for count in range(last, first - 1, -1):
                left -= forward[begin + count - first] * weight
                weight *= ratio
                if left < 0.0:
                    chosen = count
                    break
            drawn[region, size] = chosen
            most = chosen


class _Windows(NamedTuple):
    """The least and the greatest count that each size may have, and where its states begin."""

    low: Integers
    high: Integers
    starts: Integers


@part_of_kernels
def _windows(counted: Counted, region: int) -> _Windows:
    values, groups = counted.values[region], counted.groups[region] if counted.certain else UNBOUNDED
    sizes = len(values)
    low, high, starts = np.empty(sizes, np.int64), np.empty(sizes, np.int64), np.empty(sizes + 1, np.int64)
    reach = 1.0 + np.ceil(
        np.sqrt(2 * counted.reach * counted.scale) if counted.gaussian else counted.reach * counted.scale
    )
    for size in range(sizes):
        low[size] = int(min(max(np.floor(values[size] - reach), 0.0), groups))
        high[size] = int(min(max(np.ceil(values[size] + reach), 0.0), groups))
    for size in range(sizes - 2, -1, -1):
        low[size] = max(low[size], low[size + 1])
    for size in range(1, sizes):
        high[size] = min(high[size], high[size - 1])
    for size in range(sizes):
        if low[size] > high[size]:  # a contradiction beyond all noise: both ends stay possible
            low[size], high[size] = high[size], low[size]
    for size in range(sizes - 2, -1, -1):
        high[size] = max(high[size], low[size + 1])
    for size in range(1, sizes):
        low[size] = min(low[size], high[size - 1])
    starts[0] = 0
    for size in range(sizes):
        starts[size + 1] = starts[size] + high[size] - low[size] + 1
    return _Windows(low, high, starts)


@part_of_kernels
def _likelihood(counted: Counted, region: int, size: int, low: int, high: int, found: Floats) -> None:
    """Write L(t) from `low` to `high`, divided by the largest of them."""
    value = counted.values[region, size]
    best = abs(min(max(np.floor(value + 0.5), float(low)), float(high)) - value)
    if counted.gaussian:
        for state in range(high - low + 1):
            gap = low + state - value
            found[state] = np.exp((best * best - gap * gap) / (2 * counted.scale))
        return
    nearest = min(max(int(np.floor(value + 0.5)), low), high) - low
    found[nearest], fall = 1.0, np.exp(-1 / counted.scale)
    for state in range(nearest - 1, -1, -1):
        found[state] = found[state + 1] * fall
    for state in range(nearest + 1, high - low + 1):
        found[state] = found[state - 1] * fall


@part_of_kernels
def _forward(counted: Counted, region: int, prior: Floats, windows: _Windows) -> Floats:
    """Return forward(s, ·) for all sizes, each divided by its sum."""
    low, high, starts = windows
    sizes = len(low)
    forward, seen = np.empty(starts[sizes]), np.empty(_widest(low, high))
    for size in range(sizes - 1, -1, -1):
        first, last, begin, ratio = low[size], high[size], starts[size], prior[size + 1]
        _likelihood(counted, region, size, first, last, seen)
        before, until = (0, 0) if size == sizes - 1 else (low[size + 1], high[size + 1])  # T is 0 beyond all sizes
        total, carried = 0.0, 0.0
        for count in range(min(before, first), min(until, last) + 1):
            carried *= ratio
            if count >= before:
                carried += 1.0 if size == sizes - 1 else forward[starts[size + 1] + count - before]
            if count >= first:
                forward[begin + count - first] = carried * seen[count - first]
                total += forward[begin + count - first]
        if until < first:
            carried *= ratio ** (first - until - 1)
        for count in range(max(first, until + 1), last + 1):
            carried *= ratio
            forward[begin + count - first] = carried * seen[count - first]
            total += forward[begin + count - first]
        for state in range(last - first + 1):
            forward[begin + state] = forward[begin + state] / total if total > 0.0 else 1.0 / (last - first + 1)
    return forward


@part_of_kernels
def _backward(
    counted: Counted, region: int, prior: Floats, windows: _Windows, forward: Floats, found: Posterior
) -> None:
    """Write means and variances of forward × backward; `behind` is backward(s, ·), divided by its largest value."""
    low, high, starts = windows
    mean, variance = found.mean[region], found.variance[region]
    sizes, widest = len(low), _widest(low, high)
    seen, behind, ahead = np.empty(widest), np.empty(widest), np.empty(widest)
    for count in range(low[0], high[0] + 1):
        behind[count - low[0]] = prior[0] ** (high[0] - count) if counted.certain else 1.0
    for size in range(sizes):
        first, last, begin = low[size], high[size], starts[size]
        total, average, square = 0.0, 0.0, 0.0
        for state in range(last - first + 1):
            chance = forward[begin + state] * behind[state]
            total += chance
            average += chance * state
            square += chance * state * state
        if total > 0.0:
            average, square = average / total, square / total
        mean[size], variance[size] = first + average, max(0.0, square - average * average)
        if size > 0:  # rounding, or a contradiction beyond all noise
            mean[size] = min(mean[size], mean[size - 1])
        if size == sizes - 1:
            return
        _likelihood(counted, region, size, first, last, seen)
        after, until, ratio = low[size + 1], high[size + 1], prior[size + 1]
        carried, largest = 0.0, 0.0
        for count in range(last, max(first, after) - 1, -1):
            carried *= ratio
            carried += seen[count - first] * behind[count - first]
            if count <= until:
                ahead[count - after] = carried
                largest = max(largest, carried)
        if until < first:
            carried *= ratio ** (first - until - 1)
        for count in range(min(until, first - 1), after - 1, -1):
            carried *= ratio
            ahead[count - after] = carried
            largest = max(largest, carried)
        for state in range(until - after + 1):
            behind[state] = ahead[state] / largest if largest > 0.0 else 1.0


@part_of_kernels
def _widest(low: Integers, high: Integers) -> int:
    widest = 1
    for size in range(len(low)):
        widest = max(widest, high[size] - low[size] + 1)
    return widest
