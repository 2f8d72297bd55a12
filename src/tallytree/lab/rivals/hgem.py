"""H-GEM: a network that turns noise into components of a mixture of products (HQR, Section 4.2, Algorithms 3 and 4).

A residual network with hidden layers of 256 and 512 has heads for the number of persons, the household attributes and
each person's attributes; every row of a batch of noise gives one component. It is fitted to single measured cells, as
printed, with what is known of its authors' settings: Adam at 1e-4, a stop at half the smoothed error of the newest
cells, and weights averaged over the later rounds. Residual means that a layer passes on its input beside its output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax  # type: ignore[import-untyped]
from numpy.typing import NDArray

from tallytree.core.arrays import Floats
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.noise.keystream import Source
from tallytree.synthesis.mixture import Mixture
from tallytree.synthesis.model import MeasuredCell, SyntheticHouseholds, Wanted, check_number
from tallytree.synthesis.public_stream import PublicStream
from tallytree.synthesis.roles import IMPOSSIBLE, masked
from tallytree.synthesis.workload import Workload

LAYERS = (256, 512)
NOISE = 128  # numbers in a row of noise
LEAST_ROOM = 16  # lists of queries are padded to 16, 32, 64 …
WIDTH = 3  # attributes of each side that a row of indices has room for; more if a cell needs them
NEWEST_COUNTS = 0.5  # of the smoothed error: the newest cell's part
PASS = 100  # steps of further training between two looks at the residual
HALVINGS = 8  # of the rate of further training

Weights = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Generator:
    """The network's weights, Adam's moments, the average of late weights if there is one, and the smoothed error."""

    schema: Schema
    batch: int
    seed_text: str
    empty: bool
    weights: Weights
    moments: tuple[Any, Weights, Weights]  # steps, first, second
    late: Weights | None = None
    smoothed_error: float | None = None
    rounds: int = 0

    __repr__ = briefly

    @classmethod
    def start(cls, schema: Schema, *, batch: int, seed_text: str = "", empty: bool = False) -> Generator:
        """Return a network with random weights, the same for the same public seed text.

        With `empty`, households may have no persons; the paper's have at least one.
        """
        if batch < 1:
            raise SpecError(f"a batch needs at least one row of noise, not {batch}")
        stream = PublicStream(f"network: {seed_text}")
        weights: Weights = {}
        for name, (rows, columns) in _shapes(schema).items():
            weights[name] = np.asarray(stream.normal(rows, columns) * np.sqrt(2 / rows), dtype=np.float32)
            weights[f"{name} shift"] = np.zeros(columns, dtype=np.float32)
        nothing = {name: np.zeros_like(array) for name, array in weights.items()}
        return cls(schema, batch, seed_text, empty, weights, (np.zeros((), np.int32), nothing, nothing))

    def averaged(self) -> Generator:
        """Return the network with the average of its late weights, H-GEM's output; itself if none were averaged."""
        return self if self.late is None else replace(self, weights=self.late, late=None)

    @cached_property
    def mixture(self) -> Mixture:
        """Return the network's mixture for one fixed batch of noise: the model that answers and draws."""
        noise = PublicStream(f"noise of the output: {self.seed_text}").normal(self.batch, NOISE)
        logits = _logits(self.weights, jnp.asarray(noise, dtype=jnp.float32))
        arrays = {name: np.array(part) for name, part in _parts(self.schema, logits).items()}
        arrays["weights"] = np.zeros(self.batch)
        if not self.empty:
            arrays["sizes"][:, 0] = IMPOSSIBLE
        return Mixture.from_arrays(self.schema, masked(self.schema, arrays))

    def answers(self, marginal: Marginal) -> Floats:
        """Return the expected table per household: shares of households, or expected numbers of persons."""
        return self.mixture.answers(marginal)

    def answers_all(self, workload: Workload) -> list[Floats]:
        """Return `answers` for each table."""
        return self.mixture.answers_all(workload)

    def draw_at(self, points: Floats, source: Source) -> SyntheticHouseholds:
        """Return the draws of `Mixture.draw_at`."""
        return self.mixture.draw_at(points, source)

    def draw_given(self, wanted: Wanted, source: Source) -> SyntheticHouseholds:
        """Return the draws of `Mixture.draw_given`."""
        return self.mixture.draw_given(wanted, source)

    def fit(
        self,
        measured: Sequence[MeasuredCell],
        number_of_households: float,
        number_of_persons: float,
        *,
        steps: int = 100,
        rate: float = 1e-4,
        stop_share: float = 0.5,
        averaging: float = 0.9,
        late: bool = False,
    ) -> Generator:
        """Fit by H-GEM-Update (Algorithm 4) to all cells measured so far, the newest last.

        Answers and measurements are shares, of households or of persons; the loss is Σ |measured − answer| over the
        cells whose error reaches the threshold, with fresh noise at every step. There are at most `steps` of Adam at
        `rate`, until no error reaches the threshold: `stop_share` of the smoothed error γ. With `late` (the second half
        of the rounds) the new weights enter the average, in which the earlier ones count `averaging` (β).
        `number_of_persons` must be public, as a noisy measurement is.
        """
        targets = self._targets(measured, number_of_households, number_of_persons)
        stream = PublicStream(f"noise of round {self.rounds}: {self.seed_text}")

        def noise() -> jax.Array:
            return jnp.asarray(stream.normal(self.batch, NOISE), dtype=jnp.float32)

        weights, moments = self.weights, optax.ScaleByAdamState(*self.moments)
        rows = noise()
        errors = _errors(self.schema, self.empty, weights, rows, targets.queries, targets.shares)
        newest = float(np.abs(errors[len(measured) - 1]))
        before = newest if self.smoothed_error is None else self.smoothed_error
        smoothed = NEWEST_COUNTS * newest + (1 - NEWEST_COUNTS) * before
        threshold = stop_share * smoothed
        targets = targets._replace(threshold=threshold)
        for _ in range(steps):
            moved, moved_moments, worst = _step(self.schema, self.empty, weights, moments, rows, targets, rate)
            if float(worst) < threshold:
                break
            weights, moments, rows = moved, moved_moments, noise()
        final = {name: np.asarray(array) for name, array in weights.items()}
        return replace(
            self,
            weights=final,
            moments=_plain(moments),
            late=_average(self.late, final, averaging) if late else self.late,
            smoothed_error=smoothed,
            rounds=self.rounds + 1,
        )

    def converge(
        self,
        measured: Sequence[MeasuredCell],
        number_of_households: float,
        number_of_persons: float,
        *,
        batch: int,
        rate: float = 1e-3,
    ) -> Generator:
        """Return the network after training on all cells, with a batch of another size, until its residual stops
        falling.

        The residual is the mean squared distance of the answers to the measurements, in deviations of noise. If
        `PASS` steps do not lower it by a hundredth, the rate is halved; after `HALVINGS` of these the best weights so
        far are returned. The loss is that of `fit` over all cells.
        """
        model = replace(self, batch=batch, late=None)
        targets = self._targets(measured, number_of_households, number_of_persons)
        stream = PublicStream(f"noise of further training: {self.seed_text}")
        output = jnp.asarray(PublicStream(f"noise of the output: {self.seed_text}").normal(batch, NOISE), jnp.float32)
        weights, moments = model.weights, optax.scale_by_adam().init(model.weights)
        best, least = weights, np.inf
        for _ in range(HALVINGS):
            falling = True
            while falling:
                for _ in range(PASS):
                    rows = jnp.asarray(stream.normal(batch, NOISE), dtype=jnp.float32)
                    weights, moments, _ = _step(self.schema, self.empty, weights, moments, rows, targets, rate)
                errors = _errors(self.schema, self.empty, weights, output, targets.queries, targets.shares)
                found = float((np.where(targets.known, errors / targets.deviations, 0.0) ** 2).sum())
                falling = found < 0.99 * least
                best, least = (weights, found) if found < least else (best, least)
            rate /= 2
        return replace(model, weights={name: np.asarray(array) for name, array in best.items()})

    def _targets(self, measured: Sequence[MeasuredCell], households: float, persons: float) -> Targets:
        """Return the measured cells as shares, all of them to be met."""
        homes, persons = check_number(households, "households"), check_number(persons, "persons")
        if not measured:
            raise SpecError("nothing to fit: no cell was measured")
        for cell in measured:
            cell.check(self.schema)
        room = max(LEAST_ROOM, 1 << (len(measured) - 1).bit_length())
        shares, deviations = np.zeros(room, dtype=np.float32), np.ones(room, dtype=np.float32)
        for place, cell in enumerate(measured):
            whole = persons if cell.marginal.of == "persons" else homes
            shares[place], deviations[place] = cell.value / whole, cell.variance**0.5 / whole
        queries = queries_of(self.schema, [(cell.marginal, cell.cell) for cell in measured], room)
        return Targets(queries, shares, deviations, np.arange(room) < len(measured), 0.0)


def _heads(schema: Schema) -> dict[str, tuple[int, ...]]:
    """Return the heads in their order in the last layer, by the mixture's names for them."""
    return {
        "sizes": (schema.max_persons + 1,),
        **{f"household {attribute.name}": (attribute.codes,) for attribute in schema.household},
        **{f"person {attribute.name}": (schema.max_persons, attribute.codes) for attribute in schema.person},
    }


def _shapes(schema: Schema) -> dict[str, tuple[int, int]]:
    first, second = LAYERS
    outputs = sum(prod(shape) for shape in _heads(schema).values())
    return {"layer 1": (NOISE, first), "layer 2": (NOISE + first, second), "heads": (NOISE + first + second, outputs)}


def _parts(schema: Schema, logits: jax.Array) -> dict[str, jax.Array]:
    """Return the last layer cut into its heads, each [batch, …]."""
    parts, start = {}, 0
    for name, shape in _heads(schema).items():
        stop = start + prod(shape)
        parts[name] = logits[:, start:stop].reshape(len(logits), *shape)
        start = stop
    return parts


@jax.jit
def _logits(weights: Weights, rows: jax.Array) -> jax.Array:
    for name in ("layer 1", "layer 2"):
        made = jax.nn.relu(rows @ weights[name] + weights[f"{name} shift"])
        rows = jnp.concatenate([made, rows], axis=1)
    logits: jax.Array = rows @ weights["heads"] + weights["heads shift"]
    return logits


def _shares(schema: Schema, empty: bool, weights: Weights, rows: jax.Array, queries: Queries) -> jax.Array:
    """Return f_q of the network: the share of households, or of persons, in each cell."""
    batch, parts = len(rows), _parts(schema, _logits(weights, rows))
    if not empty:
        parts["sizes"] = parts["sizes"].at[:, 0].set(IMPOSSIBLE)
    chances = {name: jax.nn.softmax(part, axis=-1) for name, part in masked(schema, parts).items()}
    sizes = chances["sizes"]
    homes = [chances[f"household {attribute.name}"] for attribute in schema.household]
    people = [chances[f"person {attribute.name}"] for attribute in schema.person]
    household = jnp.concatenate([*homes, jnp.ones((batch, 1))], axis=1)
    person = jnp.concatenate([*people, jnp.ones((batch, schema.max_persons, 1))], axis=2)
    counts: jax.Array = expected_counts(queries, jnp.full(batch, 1 / batch), sizes, household, person)
    expected_persons = (sizes @ jnp.arange(schema.max_persons + 1, dtype=jnp.float32)).mean()
    return jnp.where(queries.of_persons > 0, counts / expected_persons, counts)


@partial(jax.jit, static_argnums=(0, 1))
def _errors(schema: Schema, empty: bool, weights: Weights, rows: jax.Array, queries: Queries, shares: Any) -> jax.Array:
    errors: jax.Array = shares - _shares(schema, empty, weights, rows, queries)
    return errors


class Targets(NamedTuple):
    """The targets of a step: measured cells as shares, with deviations of noise, which rows have one, and the
    threshold.
    """

    queries: Queries
    shares: Any
    deviations: Any
    known: Any
    threshold: float


@partial(jax.jit, static_argnums=(0, 1))
def _step(
    schema: Schema,
    empty: bool,
    weights: Weights,
    moments: Any,
    rows: jax.Array,
    targets: Targets,
    rate: float,
) -> tuple[Weights, Any, jax.Array]:
    """Make one step of Adam on Equation 1 over the cells whose error reaches the threshold; return the largest error
    too.
    """
    queries, shares, _, known, threshold = targets

    def loss(weights: Weights) -> tuple[jax.Array, jax.Array]:
        errors = jnp.where(known, jnp.abs(shares - _shares(schema, empty, weights, rows, queries)), 0.0)
        return jnp.where(errors >= threshold, errors, 0.0).sum(), errors.max()

    slopes, worst = jax.grad(loss, has_aux=True)(weights)
    moves, moments = optax.scale_by_adam().update(slopes, moments)
    return {name: weights[name] - rate * moves[name] for name in weights}, moments, worst


def _plain(moments: Any) -> tuple[Any, Weights, Weights]:
    first = {name: np.asarray(array) for name, array in moments.mu.items()}
    return np.asarray(moments.count), first, {name: np.asarray(array) for name, array in moments.nu.items()}


def _average(late: Weights | None, newest: Weights, averaging: float) -> Weights:
    if late is None:
        return newest
    return {name: averaging * late[name] + (1 - averaging) * newest[name] for name in newest}


# -------------------------------------------------------------------- single cells (HQR's f_q)

# Each cell is a row of indices into the chances, so that any list of about the same length runs through the same
# compiled code.


class Queries(NamedTuple):
    """Cells as indices.

    `household` and `person` [queries, width] point into all attributes' chances in a row, the place after them being
    1; `sizes` [queries, 0 … most persons] is 1 where the number of persons counts; `of_persons` and `has_person`
    [queries] say what is counted.
    """

    household: NDArray[np.int32]
    person: NDArray[np.int32]
    sizes: NDArray[np.float32]
    of_persons: NDArray[np.float32]
    has_person: NDArray[np.float32]


def queries_of(schema: Schema, cells: Sequence[tuple[Marginal, tuple[int, ...]]], room: int | None = None) -> Queries:
    """Return the cells as indices, followed by empty rows up to `room`."""
    starts = {}
    ends = {}
    for side, attributes in (("household", schema.household), ("person", schema.person)):
        places = [0, *accumulate(attribute.codes for attribute in attributes)]
        starts.update({attribute.name: place for attribute, place in zip(attributes, places, strict=False)})
        ends[side] = places[-1]
    room = len(cells) if room is None else room
    width = max([WIDTH, *(max(len(marginal.household), len(marginal.person)) for marginal, _ in cells)])
    household = np.full((room, width), ends["household"], dtype=np.int32)
    person = np.full((room, width), ends["person"], dtype=np.int32)
    sizes = np.ones((room, schema.max_persons + 1), dtype=np.float32)
    of_persons, has_person = np.zeros(room, dtype=np.float32), np.zeros(room, dtype=np.float32)
    for row, (marginal, cell) in enumerate(cells):
        codes = list(cell)
        if marginal.size:
            sizes[row] = np.arange(schema.max_persons + 1) == codes.pop(0)
        for column, name in enumerate(marginal.household):
            household[row, column] = starts[name] + codes[column]
        for column, name in enumerate(marginal.person):
            person[row, column] = starts[name] + codes[len(marginal.household) + column]
        of_persons[row], has_person[row] = marginal.of == "persons", bool(marginal.person)
    return Queries(household, person, sizes, of_persons, has_person)


def expected_counts(queries: Queries, weights: Any, sizes: Any, household: Any, person: Any) -> Any:
    """Return [queries]: the expected count of each cell per household.

    `household` [components, all codes and a 1] and `person` [components, most persons, all codes and a 1].
    """
    homes, chances = household[:, queries.household[:, 0]], person[:, :, queries.person[:, 0]]
    for column in range(1, queries.household.shape[1]):
        homes = homes * household[:, queries.household[:, column]]
        chances = chances * person[:, :, queries.person[:, column]]
    nobody, number = 1.0, 0.0
    total = sizes[:, 0, None] * queries.sizes[:, 0] * (1 - queries.of_persons) * (1 - queries.has_person)
    for place in range(chances.shape[1]):
        nobody = nobody * (1 - chances[:, place])
        number = number + chances[:, place]
        rate = queries.of_persons * number + (1 - queries.of_persons) * (1 - nobody)
        total = total + sizes[:, place + 1, None] * queries.sizes[:, place + 1] * rate
    return weights @ (homes * total)
