"""What goes into a model of households (noisy counts and their variance), what comes out, and what every model can do.

Any model can replace any other: the methods, the report and the drawing of households know no more than `Model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.noise.keystream import Source
from tallytree.synthesis.workload import Workload

Arrays = Mapping[str, NDArray[Any]]
Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Measured:
    """A table of noisy counts; `variance` is one number, or one per cell (infinite where a cell was not measured)."""

    marginal: Marginal
    values: Floats
    variance: Floats

    __repr__ = briefly

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        variance = np.array(np.broadcast_to(np.asarray(self.variance, dtype=np.float64), values.shape))
        if not np.isfinite(values).all():
            raise SpecError(f"the measured table of {self.marginal.describe()} has counts that are not finite")
        if not (variance > 0).all():
            raise SpecError(f"the measured table of {self.marginal.describe()} needs variances above zero")
        values.flags.writeable = variance.flags.writeable = False
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "variance", variance)

    def check(self, schema: Schema) -> None:
        """Refuse a table that does not fit the schema."""
        self.marginal.check(schema)
        if self.values.shape != (shape := self.marginal.shape(schema)):
            raise SpecError(
                f"the measured table of {self.marginal.describe()} is of shape {self.values.shape}, not {shape}"
            )

    @property
    def cells(self) -> int:
        """Return how many counts were measured: what noise alone adds to the fit's squared, weighted distance on
        average.
        """
        return int(np.isfinite(self.variance).sum())

    def counts(self, schema: Schema) -> tuple[Integers, Floats, Floats]:
        """Return the cells that were measured, as places in the flat table; their noisy counts, and their variances."""
        self.check(schema)
        cells = np.flatnonzero(np.isfinite(self.variance))
        return cells, self.values.ravel()[cells], self.variance.ravel()[cells]


@dataclass(frozen=True)
class MeasuredCell:
    """One noisy count: a query of HQR. `cell` has one index for each axis of the table."""

    marginal: Marginal
    cell: tuple[int, ...]
    value: float
    variance: float

    def __post_init__(self) -> None:
        if not np.isfinite(self.value) or not 0 < self.variance < np.inf:
            raise SpecError("a measured cell needs a finite count and a finite variance above zero")

    def check(self, schema: Schema) -> None:
        """Refuse a cell that the table does not have."""
        self.marginal.check(schema)
        shape = self.marginal.shape(schema)
        if len(self.cell) != len(shape) or any(
            not 0 <= index < length for index, length in zip(self.cell, shape, strict=True)
        ):
            raise SpecError(f"the table of {self.marginal.describe()} has no cell {self.cell}; its shape is {shape}")

    def counts(self, schema: Schema) -> tuple[Integers, Floats, Floats]:
        """Return what `Measured.counts` gives, for the one cell."""
        self.check(schema)
        shape = self.marginal.shape(schema)
        place = int(np.ravel_multi_index(self.cell, shape)) if shape else 0
        return np.array([place]), np.array([self.value]), np.array([self.variance])


class SyntheticHouseholds(NamedTuple):
    """Some drawn households as codes: `sizes` [households], `household` [households, attributes], `person` [persons,
    attributes], attributes in the schema's order; household i has the persons offsets[i] … offsets[i + 1] − 1.
    `redrawn` households broke a rule when they were drawn first.
    """

    sizes: Codes
    household: Codes
    person: Codes
    offsets: Integers
    redrawn: int = 0

    @classmethod
    def of_sizes(cls, schema: Schema, sizes: Codes) -> SyntheticHouseholds:
        """Return households of these sizes, without values yet."""
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        household = np.empty((len(sizes), len(schema.household)), np.int32)
        person = np.empty((int(offsets[-1]), len(schema.person)), np.int32)
        return cls(sizes, household, person, offsets)


class Wanted(NamedTuple):
    """Which households to draw: `counts[i]` of them with the code `codes[name][i]` of each household attribute named
    and `sizes[i]` persons. The size `last_size` stands for all larger ones too.
    """

    codes: Mapping[str, Integers]
    sizes: Integers
    last_size: int
    counts: Integers


class Model(Protocol):
    """A distribution over households. Fitting gives a new one and leaves this one as it is."""

    @property
    def schema(self) -> Schema:
        """Return the attributes it is about."""

    def answers(self, marginal: Marginal) -> Floats:
        """Return the table it expects per household: shares of households, or expected numbers of persons."""

    def answers_all(self, workload: Workload) -> list[Floats]:
        """Return `answers` for each table, in the workload's order, with shared work done once."""

    def draw_at(self, points: Floats, source: Source) -> SyntheticHouseholds:
        """Return a household for each point on the line of all chances, in random order; the points rise and lie in [0,
        1).
        """

    def draw_given(self, wanted: Wanted, source: Source) -> SyntheticHouseholds:
        """Return the wanted households, in random order, all else drawn with the model's chances given what is
        wanted.
        """


def refuse_roles(tables: Iterable[Marginal]) -> None:
    """Refuse tables by role, where a model or a method knows none."""
    for table in tables:
        if table.roles or table.groups:
            raise SpecError(
                f"the table of {table.describe()} is by role or in groups. Only the method tallytree-marginals can "
                "ask for it: use that method, or leave the table out"
            )


def check_number(number: float, what: str) -> float:
    """Return a number of households or persons that shares can be taken of."""
    if not np.isfinite(number) or number <= 0:
        raise SpecError(f"the number of {what} must be above zero, not {number!r}")
    return float(number)


def squared_noise_quantile(n: Any, deviations: float) -> Any:
    """Return a quantile of the mean of n squares of standard normal numbers: the one of a normal number at
    `deviations`.

    Wilson and Hilferty: the cube root of the mean is nearly normal, with mean 1 − 2/9n and variance 2/9n.
    """
    part = 2 / (9 * n)
    return (1 - part + deviations * np.sqrt(part)) ** 3
