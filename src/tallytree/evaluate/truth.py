"""`Truth`: counts that are public or made up, so that estimates may be compared with them; and measuring by seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tallytree.arrays import Integers
from tallytree.hierarchy import Hierarchy
from tallytree.privacy.accounting import NOISE_FOR
from tallytree.privacy.measure import _measured
from tallytree.privacy.measurements import Measurements, Settle
from tallytree.privacy.noise.draws import checked_scale, checked_variance
from tallytree.privacy.noise.keystream import KeyedWords
from tallytree.privacy.noise.samplers import gaussian_sampler, laplace_sampler
from tallytree.privacy.plan import Plan
from tallytree.tables.group_sizes import GroupSizes
from tallytree.tables.sealed import Sealed


@dataclass(frozen=True, eq=False)
class Truth:
    """A data set whose counts may be seen: `[leaves, sizes]`, from size 0 if totals are public, otherwise from 1."""

    name: str
    hierarchy: Hierarchy
    counts: Integers
    public_totals: bool
    quantity_bound: int = 1

    @property
    def first_size(self) -> int:
        """0 with public totals, 1 with private ones."""
        return 0 if self.public_totals else 1

    @property
    def max_size(self) -> int:
        """The largest size; it stands for all larger ones too."""
        return int(self.counts.shape[1]) - 1 + self.first_size

    def group_sizes(self) -> GroupSizes:
        """The same counts as a data holder would hand them to `release`."""
        return GroupSizes(
            hierarchy=self.hierarchy,
            max_size=self.max_size,
            counts=Sealed(self.counts),
            leaf_totals=self.counts.sum(axis=1) if self.public_totals else None,
            name=self.name,
            quantity_bound=self.quantity_bound,
        )

    def all_levels(self) -> Integers:
        """The true counts of every region, `[regions, sizes]`."""
        return self.hierarchy.aggregate(self.counts)


class SeededWords(KeyedWords):
    """The words of a `Keystream`, but the same every time for the same seed. Not private: for experiments only."""

    def __init__(self, *seed: object) -> None:
        super().__init__(hashlib.sha256(repr(seed).encode()).digest())


def seeded_measurements(
    truth: Truth, plan: Plan, *seed: object, settle: Settle | None = None, repeat_after: int | None = None
) -> Measurements:
    """NOT PRIVATE: what `measure` would give, with noise of the same distribution that the seed determines.

    With `repeat_after` each question's noise starts anew from the seed and repeats after that many numbers, so that
    regions share theirs: for `experiments.shared_noise`.
    """
    kind = NOISE_FOR[plan.budget.currency]
    laplace = kind == "discrete_laplace"
    words = SeededWords(*seed)

    def draw(scale: Fraction, count: int) -> Integers:
        sampler = laplace_sampler(scale) if laplace else gaussian_sampler(scale)
        if repeat_after is None:
            return sampler.draw(words, count)
        return np.resize(sampler.draw(SeededWords(*seed), repeat_after), count)

    usable = checked_scale if laplace else checked_variance
    source = "seeded: not private" if repeat_after is None else "shared by regions and levels: NOT PRIVATE"
    return _measured(truth.group_sizes(), plan, kind, draw, usable, source=source, ledger=None, settle=settle)
