"""What every model of households can do, so that any can replace any."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from numpy.typing import NDArray

from tallytree.arrays import Floats
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
