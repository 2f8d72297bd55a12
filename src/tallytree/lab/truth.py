"""`Truth`: public or made-up counts to compare estimates with; and measurements by seed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.names import briefly
from tallytree.domain.categories import Categories
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.measurements import DeriveFacts, FirstStageFacts, Measurements
from tallytree.privacy.noise import Randomness
from tallytree.privacy.noise.keystream import KeyedWords
from tallytree.privacy.noise.samplers import checked_scale, checked_variance, gaussian_sampler, laplace_sampler
from tallytree.privacy.plan import Plan
from tallytree.privacy.run import measure_with
from tallytree.tables.group_sizes import GroupSizes, Sealed


@dataclass(frozen=True, eq=False)
class Truth:
    """A data set whose counts may be seen: `[leaves, sizes]`, from size 0 if totals are public, otherwise from 1."""

    name: str
    hierarchy: Hierarchy
    counts: Integers
    public_totals: bool
    quantity_bound: int = 1

    __repr__ = briefly

    @property
    def first_size(self) -> int:
        """Return 0 with public totals, 1 with private ones."""
        return 0 if self.public_totals else 1

    @property
    def max_size(self) -> int:
        """Return the largest size; it stands for all larger ones too."""
        return int(self.counts.shape[1]) - 1 + self.first_size

    def group_sizes(self) -> GroupSizes:
        """Return the same counts as a data holder would pass them to `release`."""
        return GroupSizes(
            hierarchy=self.hierarchy,
            max_size=self.max_size,
            counts=Sealed(self.counts),
            leaf_totals=self.counts.sum(axis=1) if self.public_totals else None,
            name=self.name,
            quantity_bound=self.quantity_bound,
        )

    def by_category(self, categories: Categories, counts: Integers) -> Truth:
        """Return the same data by categories, with the counts `[cells, leaves, sizes]` of each of their cells."""
        parts = np.ascontiguousarray(counts.reshape(-1, counts.shape[-1]))
        return replace(self, hierarchy=self.hierarchy.by_category(categories), counts=parts)

    def all_levels(self) -> Integers:
        """Return the true counts of every region, `[regions, sizes]`."""
        return self.hierarchy.aggregate(self.counts)


class SeededWords(KeyedWords):
    """The words of a `Keystream`, but the same every time for the same seed. Not private: for experiments only."""

    def __init__(self, *seed: object) -> None:
        super().__init__(hashlib.sha256(repr(seed).encode()).digest())


def seeded(*seed: object) -> Randomness:
    """NOT PRIVATE: return draws of the same distributions as a release's, determined by the seed."""
    words = SeededWords(*seed)
    return Randomness(
        "seeded: not private",
        laplace=lambda scale, count: laplace_sampler(scale).draw(words, count),
        gaussian=lambda variance, count: gaussian_sampler(variance).draw(words, count),
        usable_scale=checked_scale,
        usable_variance=checked_variance,
        words=lambda: words,
    )


def seeded_measurements(
    truth: Truth, plan: Plan, *seed: object, derive_facts: DeriveFacts | None = None
) -> Measurements:
    """NOT PRIVATE: return measurements as `measure` gives them, with noise determined by the seed."""
    return measure_with(seeded(*seed), truth.group_sizes(), plan, derive_facts=derive_facts)


def measured_without_noise(group_sizes: GroupSizes, plan: Plan, facts: FirstStageFacts | None = None) -> Measurements:
    """NOT PRIVATE: return the numbers to which `measure` adds noise, with its scale, from the code that a release runs.

    `facts` stands for an outcome of the first stage.
    """

    def silence(scale: Fraction, count: int) -> Integers:
        return np.zeros(count, dtype=np.int64)

    quiet = replace(seeded(0), name="no noise: NOT PRIVATE", laplace=silence, gaussian=silence)
    return measure_with(quiet, group_sizes, plan, derive_facts=None if facts is None else lambda known: facts)
