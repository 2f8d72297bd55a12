"""The mixture of products as a plain table: HQR's H-GEM without its network, and the default model.

Each of some hundred components has its own chances of every number of persons, of every household attribute and of
every attribute of each person of the household; `products` says how they answer. The chances are kept as logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tallytree.arrays import Floats
from tallytree.errors import SpecError
from tallytree.schema import Counted, Marginal, Schema
from tallytree.synthesis.models.model import Arrays, Measured
from tallytree.synthesis.models.products import Tables, answers, by_component, weighted_households
from tallytree.synthesis.models.public_stream import PublicStream
from tallytree.synthesis.workload import Workload

if TYPE_CHECKING:
    from tallytree.synthesis.models.fitting import Fitting
    from tallytree.synthesis.models.sampling import MixtureSampler

COMPONENTS = 500
IMPOSSIBLE = -1e4  # a logit whose chance is zero in single and in double precision
BLOCK = 1 << 17  # chances worked on at a time: they stay in the cache


@dataclass(frozen=True, eq=False)
class Mixture:
    """Logits: `weights` [components], `sizes` [components, 0 … most persons], `household` [components, codes] for each
    attribute, `person` [components, most persons, codes] for each.
    """

    schema: Schema
    weights: NDArray[np.float32]
    sizes: NDArray[np.float32]
    household: tuple[NDArray[np.float32], ...]
    person: tuple[NDArray[np.float32], ...]

    def __post_init__(self) -> None:
        expected = _shapes(self.schema, len(self.weights))
        arrays = self.to_arrays()
        if {name: array.shape for name, array in arrays.items()} != expected:
            raise SpecError("the mixture's arrays do not have the shapes that its schema asks for")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise SpecError("the mixture's logits must be finite numbers")

    @classmethod
    def start(cls, schema: Schema, *, components: int = COMPONENTS, seed_text: str = "", empty: bool = True) -> Mixture:
        """Random components, all different; the same ones for the same public seed text.

        With `empty` false no household is without persons, now or after any fit.
        """
        if components < 1:
            raise SpecError(f"a mixture needs at least one component, not {components}")
        stream = PublicStream(f"mixture of {components}: {seed_text}")
        drawn = {name: stream.normal(*shape) for name, shape in _shapes(schema, components).items()}
        drawn["weights"] = np.zeros(components)
        if not empty:
            drawn["sizes"][:, 0] = IMPOSSIBLE
        return cls.from_arrays(schema, drawn)

    @property
    def components(self) -> int:
        """How many components there are."""
        return len(self.weights)

    @cached_property
    def chances(self) -> dict[str, Floats]:
        """The chances that the logits stand for, by the names that `to_arrays` gives them."""
        return {name: softmax(array) for name, array in self.to_arrays().items()}

    def tables(self, marginal: Marginal) -> Tables:
        """The chances of a table's own attributes."""
        marginal.check(self.schema)
        household = tuple(self.chances[f"household {name}"] for name in marginal.household)
        person = tuple(self.chances[f"person {name}"] for name in marginal.person)
        return Tables(self.chances["weights"], self.chances["sizes"], household, person)

    def answers(self, marginal: Marginal) -> Floats:
        """The expected table per household: shares of households, or expected numbers of persons."""
        tables = self.tables(marginal)
        if marginal.size and marginal.person:
            total = np.zeros(marginal.shape(self.schema))
            for rows in _blocks(self.components, marginal.cells(self.schema)):
                total += answers(marginal.of, marginal.size, _part(tables, rows))
            return total
        if marginal.of == "persons" or not marginal.person:
            plain: Floats = answers(marginal.of, marginal.size, tables)
            return plain
        homes = weighted_households(tables.weights, tables.household)
        joined: Floats = homes.T @ self._people("households", tables)
        return joined.reshape(marginal.shape(self.schema))

    def answers_all(self, workload: Workload) -> list[Floats]:
        """`answers` for each table. What depends on the persons alone is worked out once for all household sets."""
        if workload.schema != self.schema:
            raise SpecError("the workload is for another schema than the model")
        found: dict[Marginal, Floats] = {}
        homes: dict[tuple[str, ...], Floats] = {}
        people: tuple[Any, Floats] = (None, np.empty(0))
        for marginal in sorted(workload, key=lambda marginal: (marginal.person, marginal.of, marginal.household)):
            if marginal.size or not marginal.person or (marginal.of == "persons" and not marginal.household):
                found[marginal] = self.answers(marginal)
                continue
            tables = self.tables(marginal)
            if people[0] != (marginal.person, marginal.of):
                people = (marginal.person, marginal.of), self._people(marginal.of, tables)
            if marginal.household not in homes:
                homes[marginal.household] = weighted_households(tables.weights, tables.household)
            table = homes[marginal.household].T @ people[1]
            found[marginal] = table.reshape(marginal.shape(self.schema))
        return [found[marginal] for marginal in workload]

    def _people(self, of: Counted, tables: Tables) -> Floats:
        if of == "persons":
            numbers: Floats = by_component(of, tables.sizes, tables.person)
            return numbers
        from tallytree.synthesis.models.containing import rates

        return rates(tables.sizes, tables.person)

    def misfit(self, measured: Sequence[Measured], number_of_households: float) -> float:
        """The mean over measured counts of (expected − noisy)² / variance: about 1 if only noise lies between them."""
        cells = sum(table.cells for table in measured)
        squares = 0.0
        for table in measured:
            table.check(self.schema)
            apart = number_of_households * self.answers(table.marginal) - table.values
            squares += float((apart**2 / table.variance).sum())
        return squares / max(1, cells)

    def fit(self, measured: Sequence[Measured], number_of_households: float, options: Fitting | None = None) -> Mixture:
        """The mixture moved, from where it is, to agree with all measured tables; see `fitting.fit`."""
        from tallytree.synthesis.models.fitting import Fitting, fit

        return fit(self, measured, number_of_households, options or Fitting()).model

    def sampler(self) -> MixtureSampler:
        """What `sampling.draw` draws from."""
        from tallytree.synthesis.models.sampling import MixtureSampler

        return MixtureSampler(self.schema, self.chances)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The logits by name; `from_arrays` reads them back."""
        named: dict[str, NDArray[Any]] = {"weights": self.weights, "sizes": self.sizes}
        for attribute, array in zip(self.schema.household, self.household, strict=True):
            named[f"household {attribute.name}"] = array
        for attribute, array in zip(self.schema.person, self.person, strict=True):
            named[f"person {attribute.name}"] = array
        return named

    @classmethod
    def from_arrays(cls, schema: Schema, arrays: Arrays) -> Mixture:
        """What `to_arrays` gave."""
        if "weights" not in arrays or set(arrays) != set(_shapes(schema, 1)):
            raise SpecError("these arrays are not a mixture over this schema")
        frozen = {name: _frozen(array) for name, array in arrays.items()}
        return cls(
            schema,
            frozen["weights"],
            frozen["sizes"],
            tuple(frozen[f"household {attribute.name}"] for attribute in schema.household),
            tuple(frozen[f"person {attribute.name}"] for attribute in schema.person),
        )


def softmax(logits: NDArray[Any]) -> Floats:
    """Chances along the last axis, in double precision."""
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    chances: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return chances


def _shapes(schema: Schema, components: int) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the arrays, in the order in which they are drawn."""
    people = (components, schema.max_persons)
    return {
        "weights": (components,),
        "sizes": (components, schema.max_persons + 1),
        **{f"household {attribute.name}": (components, attribute.codes) for attribute in schema.household},
        **{f"person {attribute.name}": (*people, attribute.codes) for attribute in schema.person},
    }


def _frozen(array: NDArray[Any]) -> NDArray[np.float32]:
    copied = np.array(array, dtype=np.float32)
    copied.flags.writeable = False
    return copied


def _blocks(components: int, chances_of_each: int) -> list[slice]:
    step = max(8, BLOCK // max(1, chances_of_each))
    return [slice(start, start + step) for start in range(0, components, step)]


def _part(tables: Tables, rows: slice) -> Tables:
    household = tuple(table[rows] for table in tables.household)
    return Tables(tables.weights[rows], tables.sizes[rows], household, tuple(table[rows] for table in tables.person))
