"""`Errors`: the laws of the errors of linear estimates, and how far each error can reach.

The error of a linear estimate is a weighted sum of independent noise. Its law is described by its exact variance and by
its largest terms: `copies` draws of one kind of noise, each with the variance `term` once it is weighted. That is what
`noise_tails.quantile` needs for a quantile of the sum. One cell, a sum over sizes, categories or regions, a number of
entities and a difference of two are all described in this way, so one function, `reach`, serves all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.notebook import briefly
from tallytree.estimate.intervals.noise_tails import LEAST_EVEN_PART, LEAST_PART, MOST_COPIES, STEPS_OF_PART, quantile
from tallytree.estimate.tree.variances import TreeVariances
from tallytree.privacy.accounting import NoiseKind

ALIKE = 1 - 1e-9  # terms whose variances have at least this ratio count as equal
LOWEST_STEP = 81  # below every half-power of two that a part of the variance is rounded to


class Noise(NamedTuple):
    """The largest terms of one measured number: draws of one noise, and their part of the number's variance."""

    kind: NoiseKind
    scale: Fraction
    copies: int = 1
    part: float = 1.0


@dataclass(frozen=True, eq=False)
class Errors:
    """The laws of several errors; all arrays have one entry for each."""

    noise: tuple[Noise, ...]
    lead: Integers  # which noise the largest terms are of
    copies: Integers  # how many largest terms there are, all of the same weight
    term: Floats  # the variance of one of them
    variance: Floats

    __repr__ = briefly

    @classmethod
    def of_regions(cls, law: TreeVariances, noise: dict[int, Noise]) -> Errors:
        """The errors of least squares for one column, for all regions; `noise` is that of every measured level."""
        levels, parts = law.leading
        measured = sorted(noise)
        lead = np.searchsorted(measured, levels)
        copies, part = (np.array([noise[level][field] for level in measured])[lead] for field in (2, 3))
        return cls(
            tuple(noise[level] for level in measured), lead, copies, parts * part * law.variance / copies, law.variance
        )

    def over_columns(self, weights: Floats | list[float]) -> Errors:
        """The errors of Σ weight · column over columns with independent errors of these laws."""
        squares = np.square(np.asarray(weights, dtype=np.float64))
        largest = squares.max()
        alike = int(np.count_nonzero(squares == largest))
        return replace(
            self, copies=self.copies * alike, term=self.term * largest, variance=self.variance * float(squares.sum())
        )

    def add_up(self, rows: Integers, starts: Integers) -> Errors:
        """The errors of sums of independent errors: of those of `rows` from each start to the next."""
        lead, copies, term = self.lead[rows], self.copies[rows], self.term[rows]
        times = np.diff(starts, append=len(rows))
        largest = np.maximum.reduceat(term, starts)
        alike = term >= ALIKE * np.repeat(largest, times)
        leading = np.maximum.reduceat(np.where(alike, lead, -1), starts)
        alike &= lead == np.repeat(leading, times)
        counted = np.add.reduceat(np.where(alike, copies, 0), starts)
        return Errors(self.noise, leading, counted, largest, np.add.reduceat(self.variance[rows], starts))

    def reach(self, chance: float) -> Floats:
        """How far each estimate can be off: further to either side only with a probability of at most `chance`.

        Errors with the same noise, number of terms and rounded part of the variance share their quantile.
        """
        whole = np.where(self.variance > 0, self.variance, 1.0)
        parts = np.round(np.minimum(self.copies * self.term / whole, 1.0), 9)
        copies = np.minimum(self.copies, MOST_COPIES + 1)  # more are normal
        steps, halves = parts * STEPS_OF_PART, 2 * np.log2(np.maximum(parts, LEAST_PART))
        fine = parts < LEAST_EVEN_PART
        below = np.where(fine, np.floor(halves), np.floor(steps + 1e-9))
        above = np.where(fine, np.ceil(halves), np.ceil(steps - 1e-9))
        cells = (2 * (below + LOWEST_STEP) + (above > below)).astype(np.int64)
        keys = (self.lead * (MOST_COPIES + 2) + copies) * (2 * (STEPS_OF_PART + LOWEST_STEP + 1)) + cells
        first = np.full(int(keys.max(initial=0)) + 1, -1)
        first[keys] = np.arange(len(keys))  # any error of a key will do
        found = np.zeros(len(first))
        for key in np.flatnonzero(first >= 0):
            at = first[key]
            noise = self.noise[self.lead[at]]
            found[key] = quantile(noise.kind, noise.scale, int(copies[at]), float(parts[at]), chance)
        half: Floats = found[keys] * np.sqrt(self.variance)
        return half
