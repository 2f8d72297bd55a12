"""Which answers can be trusted: how far they may be from the truth, estimated from the noisy measurements alone.

Let a be the answers of a table of n counts, t the truth and y = t + noise a measurement of it, with a known standard
deviation s. Nobody but the data holder knows t; y is public. By the triangle inequality, in root mean squares,

    | rms(a − y) − rms(noise) | ≤ rms(a − t) ≤ rms(a − y) + rms(noise),

and rms(noise) is less than s·√(q/n) with a chance of 95 %, q being that quantile of a χ² of n degrees. This holds
although the model was fitted to the same y, for the noise alone is what is bounded. The estimate between the two is
√(mean((a − y)²) − s²), which would be right on average if a did not depend on y, but never less than s: a model that
follows the measurement to the last digit has the error s, and one that was fitted to it cannot be distinguished from
that one.

A table that was not measured may be a sum of measured ones, or have sums that were measured. If a count of the sum is
the sum of g counts of the table, then by Cauchy and Schwarz Σ(sum's error)² ≤ g·Σ(table's error)², and the sum has n/g
counts, so the table's root mean square error is at least that of the sum divided by g. Beyond that nothing is known
of a table that was not measured, and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats
from tallytree.core.names import briefly
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.model import Measured, MeasuredCell, squared_noise_quantile
from tallytree.synthesis.workload import Workload, is_sum_of

Exact = Mapping[Marginal, NDArray[Any]]  # tables that the privacy unit lets be published without noise
How = Literal["published exactly", "measured", "sum of measured", "partly measured", "not measured"]

CONFIDENCE = 0.95
TWO_SIDED = 1.96  # of normal noise, in standard deviations
ONE_SIDED = 1.70  # 1.645 and a little more, for the error of the cube-root formula
CONTINUITY = 0.5  # noise is whole, so a bound between two whole numbers does as well as the larger of them


@dataclass(frozen=True, eq=False)
class Known:
    """What measurements say of a table: noisy counts, and the variance of each (infinite where nothing is known)."""

    values: Floats
    variance: Floats
    how: How

    __repr__ = briefly


class Evidence:
    """All that was measured, or published exactly; what it says of any table."""

    def __init__(self, schema: Schema, measured: Sequence[Measured | MeasuredCell], exact: Exact | None = None) -> None:
        self.schema, self.exact = schema, dict(exact or {})
        self.measured = _combined(measured, schema)
        self._known: dict[Marginal, Known | None] = {}

    @property
    def tables(self) -> list[Marginal]:
        """Return the tables that something was measured of."""
        return [*self.exact, *self.measured]

    def known(self, marginal: Marginal) -> Known | None:
        """Return what is known of a table: from itself and from all that it is a sum of, weighted; None if
        nothing is.
        """
        if marginal not in self._known:
            self._known[marginal] = self._found(marginal)
        return self._known[marginal]

    def _found(self, marginal: Marginal) -> Known | None:
        for fine, counts in self.exact.items():
            if is_sum_of(marginal, fine):
                values, variance = summed(counts, np.zeros(counts.shape), fine, marginal)
                return Known(values.astype(np.float64), variance, "published exactly")
        found = [
            summed(table.values, table.variance, fine, marginal)
            for fine, table in self.measured.items()
            if is_sum_of(marginal, fine)
        ]
        if not found:
            return None
        with np.errstate(divide="ignore", invalid="ignore"):
            weights = np.sum([1 / variance for _, variance in found], axis=0)
            weighted = np.sum([values / variance for values, variance in found], axis=0)
            values, variance = np.where(weights > 0, weighted / weights, 0.0), 1 / weights
        if not np.isfinite(variance).any():
            return None
        how: How = "measured" if marginal in self.measured else "sum of measured"
        return Known(values, variance, how if np.isfinite(variance).all() else "partly measured")


@dataclass(frozen=True)
class TableAccuracy:
    """One table of the workload, with the errors of its counts as root mean squares; None where nothing is known.

    `error` is the estimate, `at_most` and `at_least` are bounds that hold with a chance of 95 % each. All are about
    counts of the real population: synthetic counts are scaled to its number of households. `part` is the measured sum
    of the table that `at_least` comes from, where the table itself was not measured, and `part_error` its estimate.
    """

    table: Marginal
    cells: int
    how: How
    noise: float | None = None
    error: float | None = None
    at_most: float | None = None
    at_least: float | None = None
    part: str | None = None
    part_error: float | None = None


def table_accuracies(workload: Workload, answers: Sequence[NDArray[Any]], evidence: Evidence) -> list[TableAccuracy]:
    """Return a row for each table of the workload, in its order; `answers` are counts of the real population."""
    return [
        _accuracy(marginal, np.asarray(answer, dtype=np.float64), evidence)
        for marginal, answer in zip(workload, answers, strict=True)
    ]


def _combined(measured: Sequence[Measured | MeasuredCell], schema: Schema) -> dict[Marginal, Measured]:
    """Return one table for each that was measured, cell by cell weighted by the inverse of its variances."""
    sums: dict[Marginal, tuple[Floats, Floats]] = {}
    for part in measured:
        cells, values, variance = part.counts(schema)
        if part.marginal not in sums:
            number = part.marginal.cells(schema)
            sums[part.marginal] = np.zeros(number), np.zeros(number)
        weighted, weights = sums[part.marginal]
        weighted[cells] += values / variance
        weights[cells] += 1 / variance
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            marginal: Measured(
                marginal,
                np.where(weights > 0, weighted / weights, 0.0).reshape(marginal.shape(schema)),
                (1 / weights).reshape(marginal.shape(schema)),
            )
            for marginal, (weighted, weights) in sums.items()
        }


def summed(values: NDArray[Any], variance: NDArray[Any], fine: Marginal, coarse: Marginal) -> tuple[Floats, Floats]:
    """Return the counts and variances of `coarse`, summed from those of `fine`; variances of independent noise
    add up.
    """
    axes, kept = fine.axes, coarse.axes
    gone = tuple(place for place, axis in enumerate(axes) if axis not in kept)
    left = [axis for axis in axes if axis in kept]
    order = [left.index(axis) for axis in kept]
    return np.transpose(values.sum(axis=gone), order), np.transpose(variance.sum(axis=gone), order)


def noise_reach(variance: NDArray[Any]) -> Floats:
    """Return a bound on the noise of one whole number that holds with a chance of at least 95 %."""
    reach: Floats = np.where(variance > 0, TWO_SIDED * np.sqrt(variance) + CONTINUITY, 0.0)
    return reach


def noise_rms(variance: float, number: int) -> float:
    """Return a bound on the root mean square of `number` independent noises that holds with a chance of at least 95 %.

    It is zero where there is no noise.
    """
    if variance == 0:
        return 0.0
    quantile = squared_noise_quantile(number, ONE_SIDED)
    return float((variance * quantile) ** 0.5 + CONTINUITY / number**0.5)


def _accuracy(marginal: Marginal, answer: Floats, evidence: Evidence) -> TableAccuracy:
    found = evidence.known(marginal)
    if found is not None and found.how != "partly measured":
        return TableAccuracy(marginal, answer.size, found.how, *_errors(answer, found))
    best = TableAccuracy(marginal, answer.size, "not measured" if found is None else found.how)
    if found is not None:
        best = replace(best, noise=float(np.sqrt(found.variance[np.isfinite(found.variance)].mean())))
    for coarse in _shared_with(marginal, evidence.tables):
        about = evidence.known(coarse)
        if about is None or about.how == "partly measured":
            continue
        own, _ = summed(answer, np.zeros(answer.shape), marginal, coarse)
        _, error, _, least = _errors(own, about)
        at_least = least * own.size / answer.size
        if best.at_least is None or at_least > best.at_least:
            best = replace(best, at_least=at_least, part=coarse.describe(), part_error=error)
    return best


def _errors(answer: Floats, about: Known) -> tuple[float, float, float, float]:
    """Noise, the estimated error and its two bounds. Cells whose noise differs are bounded by the largest."""
    apart = float(((answer - about.values) ** 2).mean())
    mean, largest = float(about.variance.mean()), float(about.variance.max())
    noise = noise_rms(largest, answer.size)
    return mean**0.5, max(mean, apart - mean) ** 0.5, apart**0.5 + noise, max(0.0, apart**0.5 - noise)


def _shared_with(marginal: Marginal, tables: Sequence[Marginal]) -> list[Marginal]:
    """Return the sums of a table that are also sums of measured ones, as large as they can be."""
    found: dict[Marginal, None] = {}
    for table in tables:
        shared = marginal.over([axis for axis in marginal.axes if axis in table.axes])
        if shared != marginal and is_sum_of(shared, table) and is_sum_of(shared, marginal):
            found[shared] = None
    return list(found)
