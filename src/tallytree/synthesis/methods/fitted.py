"""What a method of synthesis gives back. All of it is public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from tallytree.synthesis.models.measured import Measured, MeasuredCell
from tallytree.synthesis.models.model import Model


@dataclass(frozen=True)
class Step:
    """One thing that was asked of the private tables, in public values.

    `kind` is "public" (published exactly, at no cost), "measure" or "select"; `lost` says that it was paid for and its
    result was cut off by a kill. `noise` is the standard deviation of the noise on one count, where there is noise.
    """

    kind: str
    words: str
    rho: Fraction
    lost: bool = False
    noise: float | None = None


@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of the private households, and everything about them that it was made from.

    `number` is the number of households: exact if that is public under the unit, otherwise measured with noise and
    rounded, and never below 1. `others` has further models by name where a method makes more than one.
    """

    model: Model
    number: int
    measured: tuple[Measured | MeasuredCell, ...]
    rounds: tuple[Step, ...]
    others: Mapping[str, Model] = field(default_factory=dict)
