"""What a model of households is fitted to (noisy counts and their variance), and what every model can do with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats
from tallytree.errors import SpecError
from tallytree.schema import Marginal, Schema
from tallytree.synthesis.workload import Workload

Arrays = Mapping[str, NDArray[Any]]


class Model(Protocol):
    """A distribution over households. Fitting gives a new one; none is ever changed."""

    @property
    def schema(self) -> Schema:
        """The attributes it is about."""

    def answers(self, marginal: Marginal) -> Floats:
        """The table it expects per household: times the number of households, it is a table of counts."""

    def answers_all(self, workload: Workload) -> list[Floats]:
        """`answers` for each table, in the workload's order, with shared work done once."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """All that it is, but for the schema, as named arrays for a file."""

    def sampler(self) -> Any:
        """What `sampling.draw` draws from."""


@dataclass(frozen=True, eq=False)
class Measured:
    """A table of noisy counts; `variance` is one number, or one per cell (infinite where a cell was not measured)."""

    marginal: Marginal
    values: Floats
    variance: Floats

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
        """How many counts were measured: what noise alone adds to the fit's squared, weighted distance on average."""
        return int(np.isfinite(self.variance).sum())


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

    def as_table(self, schema: Schema) -> Measured:
        """The same as a table in which no other cell was measured."""
        self.check(schema)
        values = np.zeros(self.marginal.shape(schema))
        variance: Any = np.full(values.shape, np.inf)
        values[self.cell], variance[self.cell] = self.value, self.variance
        return Measured(self.marginal, values, variance)


def check_number(number: float, what: str) -> float:
    """A number of households or persons that shares can be taken of."""
    if not np.isfinite(number) or number <= 0:
        raise SpecError(f"the number of {what} must be above zero, not {number!r}")
    return float(number)
