"""Compute typical intervals: how far the whole path from measuring to estimating moves counts like the released ones.

This is a parametric bootstrap. The released counts serve as the truth, unless the mechanism supplies better ones. (A
mechanism that shrinks leaves releases leaves that are more alike than true ones, so their errors would look too small.)
The counts that serve as the truth may differ in each replicate, drawn from a posterior. Each replicate adds fresh noise
of the same law to the measurements of these counts, runs the *same* estimator on the result, and adds up the squared
deviations from these counts. The noise follows from the measurements (`ReplicateNoise`), so every call gives the same
intervals. If counts are small, the constraints (non-negative integers that add up) remove most of the noise, so these
intervals are several times narrower there than guaranteed ones.

They guarantee nothing: replicates do not contain what the release smoothed away. Ten groups of one odd size in one
small region, hidden by the noise, are neither in the released counts nor within their typical interval.

The factors 2.25 (95 %) and 1.8 (90 %) on the root mean square deviation were set on real and made-up tables to
compensate for its randomness and for the estimator's bias; percentiles of the replicates would cover far too little.
Mean squares of neighbouring sizes are averaged, and a cell keeps its own if that is larger: size 0 is often by far the
commonest, and its neighbours err less.

*Noise of replicates* has the exact law of a release's noise and is determined by the measurements. Anyone can compute
typical intervals from public values. Their noise is a ChaCha20 stream under keys that are hashes of the measurements,
so every computation gives the same intervals, from memory and from files, on any number of cores. This noise hides
nothing, and no private value is ever added to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.kernels import blocks, in_threads
from tallytree.core.names import briefly
from tallytree.core.progress import Progress, Stage, silent
from tallytree.estimate.intervals.interval import Intervals, checked_counts, checked_level, cover, most_groups
from tallytree.estimate.layout import row_blocks
from tallytree.privacy.measurements import DeriveFacts, FirstStageFacts, Measurement, Measurements
from tallytree.privacy.noise import NoiseKind
from tallytree.privacy.noise.keystream import KeyedWords
from tallytree.privacy.noise.samplers import KEY_BLOCK, THREAD_BLOCK, gaussian_sampler, laplace_sampler
from tallytree.privacy.plan import FIRST
from tallytree.privacy.run import noisy_lists, view_of

CountsFunction = Callable[[Integers], Any]

REPLICATES = 25
STAGE = "typical intervals"
SIZES_EITHER_SIDE = 2  # over which mean squares are averaged …
FEWEST_SIZES_TO_AVERAGE = 21  # … where there are at least this many
FACTOR_AT_LEVEL = ((0.90, 1.8), (0.95, 2.25))


class HasCounts(Protocol):
    """The part of the result of a mechanism's `estimate` that is used here."""

    @property
    def counts(self) -> Integers:
        """`[regions, sizes]`."""


@dataclass(frozen=True, eq=False)
class Typical:
    """The results of the replicates: intervals at any level, and the deviations of every given function."""

    counts: Integers
    mean_squares: Floats  # of the deviations, by cell
    most: Integers  # no count of a region exceeds this
    deviations: tuple[Floats, ...]  # root mean squares of every function's values; not finite if the values are not
    replicates: int
    level: float

    __repr__ = briefly

    @cached_property
    def intervals(self) -> Intervals:
        """Return the intervals at the requested level."""
        return self.intervals_at(self.level)

    def intervals_at(self, level: float) -> Intervals:
        """Return the intervals at any level, from the same replicates."""
        level = checked_level(level)
        lower, upper, factor = np.empty_like(self.counts), np.empty_like(self.counts), factor_for(level)

        def put_ends(start: int, stop: int) -> None:
            rows = slice(start, stop)
            counts, deviations = self.counts[rows], np.sqrt(_with_neighbours(self.mean_squares[rows]))
            half = np.maximum(1.0, np.ceil(factor * deviations - 1e-9)).astype(np.int64)
            lower[rows] = np.minimum(np.maximum(counts - half, 0), counts)
            upper[rows] = np.maximum(np.minimum(counts + half, self.most[rows, np.newaxis]), counts)

        in_threads(put_ends, row_blocks(self.counts))
        return Intervals(lower, upper, level, "typical")

    def around(self, released: Integers, deviations: Floats, most: Integers) -> Intervals:
        """Return intervals of any released numbers that had these root mean square `deviations` in the replicates."""
        half = np.maximum(1.0, np.ceil(self.factor * deviations - 1e-9))
        return Intervals(*cover(released - half, released + half, released, most), self.level, "typical")

    @property
    def factor(self) -> float:
        """Return the factor of a deviation for an interval of the requested level."""
        return factor_for(self.level)


class Simulation(NamedTuple):
    """How measurements are simulated, and what is estimated from them."""

    estimate: Callable[[Measurements], HasCounts]  # the mechanism's own
    derive_facts: DeriveFacts | None = None  # if given, totals vary too
    truth: Callable[[int], Integers] | None = None  # for each replicate, if the released counts are unlike the truth


def typical(
    measurements: Measurements,
    counts: NDArray[Any],
    simulation: Simulation,
    *,
    level: float = 0.95,
    replicates: int = REPLICATES,
    functions: Sequence[CountsFunction] = (),
    progress: Progress = silent,
) -> Typical:
    """Return intervals for the true counts behind released ones, by `replicates` runs of a simulation.

    `functions` take counts `[regions, sizes]` and return a number or an array each (sums, shares, means; ratios on the
    log scale); their deviations come from the same replicates. The half-width of a cell is max(1, ⌈factor · root mean
    square⌉); ends are clipped to 0 and to public totals. Memory: a few arrays of the counts' size beside what one
    measurement and one estimate need, for any number of replicates. The replicates' noise follows from the
    measurements, so every call gives the same.
    """
    level, counts = checked_level(level), checked_counts(counts, measurements)
    if isinstance(replicates, bool) or not isinstance(replicates, int | np.integer) or replicates < 2:
        raise SpecError(f"the number of replicates is {replicates!r}; expected an integer of at least 2")
    squares = np.zeros(counts.shape)
    truth: Integers | None = None
    function_squares: list[Floats] = []
    seed = digest_of(measurements)
    progress(Stage(STAGE, 0, int(replicates)))
    for replicate in range(int(replicates)):
        now = counts if simulation.truth is None else checked_counts(simulation.truth(replicate), measurements)
        if now is not truth:
            truth = now
            true_values = [np.asarray(function(truth), dtype=np.float64) for function in functions]
            function_squares = function_squares or [np.zeros(value.shape) for value in true_values]
        simulated = simulate_measurements(measurements, truth, ReplicateNoise(seed, replicate), simulation.derive_facts)
        again = simulation.estimate(simulated).counts
        if again.shape != counts.shape:
            raise SpecError(f"the estimator gave counts of shape {again.shape}; expected {counts.shape}, as released")
        in_threads(partial(_add_squares, truth, again, squares), row_blocks(truth))
        for function, value, total in zip(functions, true_values, function_squares, strict=True):
            total += (np.asarray(function(again), dtype=np.float64) - value) ** 2
        progress(Stage(STAGE, replicate + 1, int(replicates)))
    squares /= int(replicates)
    deviations = tuple(np.sqrt(total / int(replicates)) for total in function_squares)
    return Typical(counts, squares, most_groups(measurements), deviations, int(replicates), level)


def factor_for(level: float) -> float:
    """Return 2.25 for 95 % and 1.8 for 90 %; for other levels the normal quantile times a line through their ratios.

    >>> [round(factor_for(level), 2) for level in (0.8, 0.9, 0.95, 0.99)]
    [1.32, 1.8, 2.25, 3.23]
    """
    (quantile, ratio), (next_quantile, next_ratio) = (
        (NormalDist().inv_cdf((1 + known) / 2), factor / NormalDist().inv_cdf((1 + known) / 2))
        for known, factor in FACTOR_AT_LEVEL
    )
    wanted = NormalDist().inv_cdf((1 + level) / 2)
    slope = (next_ratio - ratio) / (next_quantile - quantile)
    return wanted * max(1.0, ratio + slope * (wanted - quantile))


def without_noise(part: Measurement, counts: Integers, measurements: Measurements) -> Integers:
    """Return a measurement without noise if `counts` were the truth; not for lists of sizes."""
    tree = measurements.hierarchy
    rows = tree.on_level(counts, part.level).sum(axis=0) if part.summed else counts[tree.level_slice(part.level)]
    return view_of(part.view, rows, measurements.first_size, part.sizes)


def simulate_measurements(
    measurements: Measurements, counts: Integers, noise: ReplicateNoise, derive_facts: DeriveFacts | None = None
) -> Measurements:
    """Simulate measurements as if `counts` were the truth. No budget is spent.

    The first stage sets the length of lists of sizes, so its totals are simulated first, from their own noise. A
    largest size from the first stage stays fixed, because it decides which sizes exist. So does the branch that an
    adaptive plan took, because it decides what is measured.
    """
    parts = measurements.measured
    again = {}
    for part in parts:
        if part.view != "sorted_sizes":
            view = without_noise(part, counts, measurements)
            values = noise.draw(part.noise, part.scale, view.size).reshape(view.shape)
            values += view
            again[part] = replace(part, values=values)
    facts = measurements.first_stage
    if derive_facts is not None and (facts.totals is not None or facts.places is not None):
        first = tuple(again[part] for part in parts if part.view in FIRST)
        drawn = derive_facts(replace(measurements, measured=first, first_stage=FirstStageFacts()))
        facts = replace(drawn, max_size=facts.max_size)
    known = replace(measurements, first_stage=facts, receipt=None)
    for part in parts:
        if part.view == "sorted_sizes":
            draw, small = partial(noise.draw, part.noise, part.scale), part.values.dtype == np.int32
            rows, lengths = counts[known.hierarchy.level_slice(part.level)], known.lengths(part.level)
            values = noisy_lists(draw, rows, known.first_size, lengths, small=small, band=part.sizes)
            again[part] = replace(part, values=values)
    return replace(known, measured=tuple(again[part] for part in parts))


def _with_neighbours(squares: Floats) -> Floats:
    """Return mean squares of cells or, if larger, the means of those of neighbouring sizes."""
    sizes = squares.shape[1]
    reach = SIZES_EITHER_SIDE if sizes >= FEWEST_SIZES_TO_AVERAGE else 0
    sums, terms = np.zeros_like(squares), np.zeros(sizes)
    for offset in range(-reach, reach + 1):
        here = slice(max(0, -offset), sizes - max(0, offset))
        sums[:, here] += squares[:, max(0, offset) : sizes + min(0, offset)]
        terms[here] += 1
    largest: Floats = np.maximum(squares, sums / terms)
    return largest


def _add_squares(counts: Integers, again: Integers, squares: Floats, start: int, stop: int) -> None:
    squares[start:stop] += (again[start:stop] - counts[start:stop]).astype(np.float64) ** 2


# -------------------------------------------------------------------- replicate noise


HASHED_AT_ONCE = 1 << 20  # values


def digest_of(measurements: Measurements) -> bytes:
    """Return a digest of the measurements: of the values, their queries, and their noise."""
    found = hashlib.sha256(b"tallytree replicates")
    for part in measurements.measured:
        band = (*(() if part.sizes is None else part.sizes), *(("summed",) if part.summed else ()))
        found.update(repr((part.view, part.level, part.noise, str(part.scale), part.values.shape, *band)).encode())
        flat = part.values.reshape(-1)
        for start, stop in blocks(len(flat), HASHED_AT_ONCE):
            found.update(flat[start:stop].astype("<i8").tobytes())  # the same values, stored in 32 or 64 bits
    return found.digest()


def chances(seed: bytes, replicate: int, count: int) -> Floats:
    """Return numbers that are uniform from 0 to 1 (and less than 1), for one replicate; independent of its noise."""
    key = hashlib.sha256(seed + b"chances" + replicate.to_bytes(8, "little")).digest()
    uniform: Floats = (KeyedWords(key).words(count) >> np.uint64(11)).astype(np.float64)
    uniform *= 2.0**-53
    return uniform


class ReplicateNoise:
    """The noise of one replicate; two replicates have independent streams."""

    def __init__(self, seed: bytes, replicate: int) -> None:
        self._seed, self._drawn = seed + replicate.to_bytes(8, "little"), 0

    def draw(self, kind: NoiseKind, scale: Fraction, count: int) -> Integers:
        """Return the next `count` draws; every block has its own key, so the number of threads does not change them."""
        sampler = laplace_sampler(scale) if kind == "discrete_laplace" else gaussian_sampler(scale)
        prefix = self._seed + self._drawn.to_bytes(8, "little")
        self._drawn += 1
        noise = np.empty(count, np.int64)

        def fill(first: int, last: int) -> None:
            for start, stop in blocks(last - first, KEY_BLOCK):
                key = hashlib.sha256(prefix + (first + start).to_bytes(8, "little")).digest()
                noise[first + start : first + stop] = sampler.draw(KeyedWords(key), stop - start)

        in_threads(fill, blocks(count, THREAD_BLOCK))
        return noise
