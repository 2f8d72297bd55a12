"""`Measurements`: what crossed the privacy border. Public noisy integers, with all it takes to use and audit them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import ReleaseError
from tallytree.core.names import briefly
from tallytree.domain.categories import NO_CATEGORIES
from tallytree.domain.hierarchy import Hierarchy
from tallytree.privacy.budget import Budget, cost_of
from tallytree.privacy.ledger import Receipt
from tallytree.privacy.neighbours import Neighbours, Sensitivity, View
from tallytree.privacy.noise import NoiseKind
from tallytree.privacy.plan import Band, BranchRule

MARKED_AT_A_TIME = 1 << 20  # rows
BESIDE_SIZES: tuple[View, ...] = ("totals", "entities", "largest")  # one number for each region, not one for each size


def list_starts(lengths: Integers) -> Integers:
    """Where each region's list begins in the flat array, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class Measurement:
    """One view of one level with noise.

    `values` is `[regions of the level, columns]`; for `sorted_sizes` it is flat, the regions' lists one after another.
    """

    view: View
    level: int
    share: Fraction
    sensitivity: Sensitivity
    noise: NoiseKind
    scale: Fraction  # of Laplace noise, or the parameter σ² of Gaussian noise
    variance: float  # of the noise on one value
    values: NDArray[Any]
    sizes: Band | None = None  # the band of sizes that was asked for; None for all
    summed: bool = False  # over all categories

    __repr__ = briefly

    @property
    def cost(self) -> Fraction:
        """Return the exact privacy loss of this measurement, in the budget's currency."""
        return cost_of(self.noise, self.sensitivity, self.scale)

    def to_json(self) -> dict[str, Any]:
        """Return all fields but the values."""
        return {
            "view": self.view,
            "level": self.level,
            "share": str(self.share),
            "sensitivity": {"l1": self.sensitivity.l1, "l2_squared": self.sensitivity.l2_squared},
            "noise": self.noise,
            "scale": str(self.scale),
            "variance": self.variance,
            **({} if self.sizes is None else {"sizes": list(self.sizes)}),
            **({"summed": True} if self.summed else {}),
        }


@dataclass(frozen=True, eq=False)
class FirstStageFacts:
    """The facts that follow from the first stage, before the other queries are answered.

    A mechanism that fixes the number of groups gives `totals`. A mechanism that leaves it open gives `places`: the
    lengths of the lists of sizes.
    """

    totals: Integers | None = None  # consistent over all regions
    max_size: int | None = None
    places: Integers | None = None  # of every region, an upper one has as many as its leaves

    __repr__ = briefly


class Branch(NamedTuple):
    """The branch of an adaptive plan: `below` if noisy totals of `level` were below `fewer_than` on average."""

    level: int
    fewer_than: Fraction
    below: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"level": self.level, "fewer_than": str(self.fewer_than), "few": self.below}


@dataclass(frozen=True, eq=False)
class Measurements:
    """All noisy measurements of one release, with their public facts. Post-processing needs nothing else."""

    hierarchy: Hierarchy
    neighbours: Neighbours
    budget: Budget
    measured: tuple[Measurement, ...]
    region_totals: Integers | None  # the public number of groups in every region, where a public list exists
    noise_source: str
    ledgered: bool
    regions_declared_public: bool = False
    row_rules: tuple[str, ...] = ()  # what happened to rows without a known region, or with missing cells
    first_stage: FirstStageFacts = FirstStageFacts()
    branch: Branch | None = None  # of an adaptive plan
    same_data_as: tuple[str, ...] = ()  # other accounts of the ledger that the same data are charged to
    listed_totals: Integers | None = None  # in every region over all categories, where only that is public
    receipt: Receipt | None = None  # stays with the data holder; in no file of a release

    __repr__ = briefly

    @property
    def mark(self) -> str:
        """Return the digest of the noisy values, by which the ledger knows the measurements in any file."""
        found = hashlib.sha256()
        for part in self.measured:
            found.update(f"{part.view} {part.level} {part.values.size}\n".encode())
            for start in range(0, max(1, len(part.values)), MARKED_AT_A_TIME):
                found.update(part.values[start : start + MARKED_AT_A_TIME].astype("<i8").tobytes())
        return found.hexdigest()[:32]

    @property
    def max_size(self) -> int:
        """Return the largest size, which stands for all larger ones too."""
        return self.neighbours.max_size if self.first_stage.max_size is None else self.first_stage.max_size

    @property
    def first_size(self) -> int:
        """Return the smallest size that is counted: 0 with public totals, 1 with private ones."""
        return 0 if self.neighbours.public_totals else 1

    @property
    def known_totals(self) -> Integers | None:
        """Return the number of groups in every region, public or from the first stage; None if neither is known."""
        return self.first_stage.totals if self.region_totals is None else self.region_totals

    def regions_of(self, level: int, summed: bool = False) -> tuple[Hierarchy, slice]:
        """Return the tree that a query of a level is about, and the level's regions there.

        Parameters
        ----------
        level : int
            The level, 0 at the root.
        summed : bool, default False
            Whether the measurement query is about the regions over all categories.

        Returns
        -------
        tuple of Hierarchy and slice
            The tree and the regions.
        """
        if not summed:
            return self.hierarchy, self.hierarchy.level_slice(level)
        return self.hierarchy.regions, self.hierarchy.regions.level_slice(level - self.hierarchy.first_level)

    @property
    def over_categories(self) -> Measurements:
        """Return the measurements of sums over all categories, as measurements without categories."""
        regions, first = self.hierarchy.regions, self.hierarchy.first_level
        parts = tuple(replace(part, level=part.level - first, summed=False) for part in self.measured if part.summed)
        totals = None
        if self.region_totals is not None:
            totals = np.asarray(self.hierarchy.over_categories(self.region_totals))
        return replace(
            self,
            hierarchy=regions,
            neighbours=replace(self.neighbours, categories=NO_CATEGORIES, groups_listed=False),
            measured=parts,
            region_totals=totals,
            first_stage=replace(self.first_stage, totals=self.listed_totals, places=None),
            listed_totals=None,
        )

    def lengths(self, level: int) -> Integers:
        """Return how many places each region of a level has in its list of sizes.

        Parameters
        ----------
        level : int
            The level, 0 at the root.

        Returns
        -------
        array of int
            The number of places for each region.
        """
        found = self.known_totals if self.first_stage.places is None else self.first_stage.places
        if found is None:
            raise ReleaseError("lists of sizes need public totals, or totals that were measured first")
        return found[self.hierarchy.level_slice(level)]

    def choose_branch(self, rule: BranchRule) -> Branch:
        """Return the branch that a plan's rule chooses for these measured totals.

        Parameters
        ----------
        rule : BranchRule
            The rule.

        Returns
        -------
        Branch
            The branch.
        """
        return Branch(rule.level, rule.fewer_than, rule.is_below(self.totals_of(rule.level)[:, 0].tolist()))

    def totals_of(self, level: int) -> Integers:
        """Return the noisy totals of a level, `[regions, 1]`.

        Parameters
        ----------
        level : int
            The level, 0 at the root.

        Returns
        -------
        array of int
            `[regions, 1]`.
        """
        found = [part.values for part in self.measured if part.view == "totals" and part.level == level]
        if len(found) != 1:
            raise ReleaseError(f"the branch rule reads totals of level {level}, and they were not measured")
        return found[0]

    def sizes_of(self, view: View, band: Band | None = None) -> range | None:
        """Return the sizes that a view's columns stand for; None for a view whose values do not stand for sizes.

        Parameters
        ----------
        view : str
            The view of the counts.
        band : Band, optional
            A band of sizes.

        Returns
        -------
        range or None
            The sizes.
        """
        if view in (*BESIDE_SIZES, "sorted_sizes"):
            return None
        if band is not None:
            return range(band.first, band.last + 1)
        return range(1 if view == "at_least" else self.first_size, self.max_size + 1)

    def columns(self, view: View, band: Band | None = None) -> int:
        """Return how many values each region has in a view.

        Parameters
        ----------
        view : str
            The view of the counts.
        band : Band, optional
            A band of sizes.

        Returns
        -------
        int
            The number of values.
        """
        sizes = self.sizes_of(view, band)
        return 1 if sizes is None else len(sizes) + (view == "counts_total")  # the total is the last one

    @property
    def level_shares(self) -> list[Fraction] | None:
        """Return how what was spent on sizes was divided over the levels; None where each band of sizes has its own
        way.
        """
        asked = [part for part in self.measured if part.view not in BESIDE_SIZES]
        if any(part.sizes is not None for part in asked):
            return None
        if any(part.summed for part in asked):
            asked = [part for part in asked if not part.summed]
            whole = sum((part.share for part in asked), Fraction(0))
            asked = [replace(part, share=part.share / whole) for part in asked]
        shares = {part.level: part.share for part in asked}
        return [shares.get(level, Fraction(0)) for level in range(self.hierarchy.depth)]

    def on_level(self, level: int) -> Measurement:
        """Return what was measured of the sizes on a level.

        Parameters
        ----------
        level : int
            The level, 0 at the root.

        Returns
        -------
        Measurement
            The measurement.
        """
        sizes = [part for part in self.measured if part.view not in BESIDE_SIZES and not part.summed]
        found = [part for part in sizes if part.level == level]
        if len(found) != 1:
            raise ReleaseError(f"expected one measurement of sizes on level {level}, found {len(found)}")
        return found[0]

    def stacked(self, view: View) -> Integers:
        """Return a view of all levels as one array `[regions, columns]` in hierarchy order.

        Parameters
        ----------
        view : str
            The view of the counts.

        Returns
        -------
        array of int
            `[regions, columns]`.
        """
        by_level = {part.level: part.values for part in self._of_view(view) if part.sizes is None}
        if sorted(by_level) != list(range(self.hierarchy.depth)):
            raise ReleaseError(f"the view {view!r} was not measured on every level, for all sizes at once")
        return np.concatenate([by_level[level] for level in range(self.hierarchy.depth)])

    def variances(self, view: View) -> list[float]:
        """Return the noise variance of a view on each level, from the top down.

        Parameters
        ----------
        view : str
            The view of the counts.

        Returns
        -------
        list of float
            The variances.
        """
        return [part.variance for part in sorted(self._of_view(view), key=lambda part: part.level)]

    def _of_view(self, view: View) -> list[Measurement]:
        """Return what was measured of a view; counts are also those that were measured with their total."""
        columns = slice(0, self.columns("counts")) if view == "counts" else slice(None)
        parts = [part for part in self.measured if part.view == view and not part.summed]
        beside = [part for part in self.measured if (part.view, view) == ("counts_total", "counts")]
        return [*parts, *(replace(part, view=view, values=part.values[:, columns]) for part in beside)]


DeriveFacts = Callable[[Measurements], FirstStageFacts]
