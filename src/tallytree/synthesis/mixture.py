"""The mixture of products as a plain table: HQR's H-GEM without its network, and the default model.

Each of a few hundred components has its own chances of every number of persons, of every household attribute and of
every attribute of each person of the household; `products` says how they answer. The chances are kept as logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.core.names import briefly
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.noise.keystream import Source
from tallytree.synthesis.model import Arrays, SyntheticHouseholds, Wanted
from tallytree.synthesis.products import Tables, answers, expected_persons, rates, weighted_households
from tallytree.synthesis.public_stream import PublicStream
from tallytree.synthesis.roles import IMPOSSIBLE, coupled, key_attributes, masked, variants, view
from tallytree.synthesis.sampling import Block, Redraw, draw_codes, keep_rules, ladders
from tallytree.synthesis.workload import Workload

ALIKE = 3.0  # spread of what persons in roles have in common at the start
GIVEN_AT_A_TIME = 4096  # pairs of code and size, for which chances of all components are held


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

    __repr__ = briefly

    def __post_init__(self) -> None:
        expected = _shapes(self.schema, len(self.weights))
        arrays = self.to_arrays()
        if {name: array.shape for name, array in arrays.items()} != expected:
            raise SpecError("the mixture's arrays do not have the shapes that its schema asks for")
        if not all(np.isfinite(array).all() for array in arrays.values()):
            raise SpecError("the mixture's logits must be finite numbers")

    @classmethod
    def start(
        cls, schema: Schema, *, components: int, spread: float = 1.0, seed_text: str = "", empty: bool = True
    ) -> Mixture:
        """Random components that differ by about `spread`; the same ones for the same public seed text.

        Where nothing is measured, attributes stay nearly independent if components differ little. Only head and
        spouse are alike at the start, in what roles are compared by (age): a fit that ends where noise explains the
        rest leaves what is not known of them as it was. With `empty` false no household is without persons, now or
        after any fit. Nothing that the schema's structure makes impossible has a chance, now or after any fit.
        """
        if components < 1:
            raise SpecError(f"a mixture needs at least one component, not {components}")
        stream = PublicStream(f"mixture of {components}: {seed_text}")
        shapes = _shapes(schema, components)
        drawn = {name: np.float32(spread) * stream.normal(*shape).astype(np.float32) for name, shape in shapes.items()}
        drawn["weights"] = np.zeros(components, np.float32)
        if (structure := schema.structure) is not None and (persons := coupled(schema, components)):
            for name in key_attributes(schema, structure):
                common = np.float32(ALIKE) * stream.normal(components, schema.attribute(name).codes).astype(np.float32)
                for rows, places in persons:
                    drawn[f"person {name}"][rows, places] += common[rows]
        if not empty:
            drawn["sizes"][:, 0] = IMPOSSIBLE
        return cls.from_arrays(schema, masked(schema, drawn))

    @property
    def components(self) -> int:
        """Return how many components there are."""
        return len(self.weights)

    @cached_property
    def chances(self) -> dict[str, Floats]:
        """Return the chances that the logits stand for, by the names that `to_arrays` gives them."""
        return {name: softmax(array) for name, array in self.to_arrays().items()}

    def tables(self, marginal: Marginal) -> Tables:
        """Return the chances of a table's own attributes."""
        marginal.check(self.schema)
        return tables_of(self.schema, marginal, self.chances)

    def answers(self, marginal: Marginal) -> Floats:
        """Return the expected table per household: shares of households, or expected numbers of persons."""
        found: Floats = answers(marginal.of, marginal.size, self.tables(marginal))
        return found.reshape(marginal.shape(self.schema))

    def answers_all(self, workload: Workload) -> list[Floats]:
        """Return `answers` for each table. What depends on the persons alone is worked out once for all
        household sets.
        """
        if workload.schema != self.schema:
            raise SpecError("the workload is for another schema than the model")
        found: dict[Marginal, Floats] = {}
        homes: dict[tuple[str, ...], Floats] = {}
        people: tuple[Any, Floats] = (None, np.empty(0))
        for marginal in sorted(workload, key=lambda marginal: (marginal.person, marginal.of, marginal.household)):
            alone = marginal.of == "persons" and not marginal.household
            if marginal.size or marginal.roles or marginal.groups or not marginal.person or alone:
                found[marginal] = self.answers(marginal)
                continue
            tables = self.tables(marginal)
            if people[0] != (marginal.person, marginal.of):
                count = rates if marginal.of == "households" else expected_persons
                people = (marginal.person, marginal.of), count(tables.sizes, tables.person)
            if marginal.household not in homes:
                homes[marginal.household] = weighted_households(tables.weights, tables.household)
            table = homes[marginal.household].T @ people[1]
            found[marginal] = table.reshape(marginal.shape(self.schema))
        return [found[marginal] for marginal in workload]

    def draw_at(self, points: Floats, source: Source) -> SyntheticHouseholds:
        """Return a household for each point on the line of all chances, in random order."""
        component = np.searchsorted(ladders(self.chances["weights"][None]), points, side="right").astype(np.int64)
        return self._drawn(component, draw_codes(self.chances["sizes"], component, source), {}, source)

    def draw_given(self, wanted: Wanted, source: Source) -> SyntheticHouseholds:
        """Return the wanted households, in random order.

        Within a component attributes and size are independent, so given the wanted ones, component c has the weight
        w_c · P_c(code) … · P_c(size) up to a constant, and all else is drawn from the component as usual.
        """
        components, sizes = [], []
        for start in range(0, len(wanted.counts), GIVEN_AT_A_TIME):
            part = slice(start, start + GIVEN_AT_A_TIME)
            components.append(self._components(wanted, part, source))
            size = np.repeat(wanted.sizes[part], wanted.counts[part])
            sizes.append(self._sizes(size, wanted.last_size, components[-1], source))
        component, size = np.concatenate(components), np.concatenate(sizes)
        order = np.argsort(component, kind="stable")
        known = {name: np.repeat(codes, wanted.counts)[order] for name, codes in wanted.codes.items()}
        return self._drawn(component[order], size[order], known, source)

    def _components(self, wanted: Wanted, part: slice, source: Source) -> Integers:
        """Return a component for each household, systematically among those that are wanted alike."""
        by_size = _logarithms(self.sizes)
        by_size[:, wanted.last_size] = np.logaddexp.reduce(by_size[:, wanted.last_size :], axis=1)
        scores = _logarithms(self.weights) + by_size.T[wanted.sizes[part]]
        for name, codes in wanted.codes.items():
            scores += _logarithms(self.to_arrays()[f"household {name}"]).T[codes[part]]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return draw_codes(chances, np.repeat(np.arange(len(scores)), wanted.counts[part]), source)

    def _sizes(self, sizes: Integers, last_size: int, component: Integers, source: Source) -> Integers:
        """Return the size of each household; the last one stands for the larger ones too, and one of these is drawn."""
        rows = np.flatnonzero(sizes == last_size)
        rest = _logarithms(self.sizes)[:, last_size:]
        if len(rows) and rest.shape[1] > 1:
            rows = rows[np.argsort(component[rows], kind="stable")]
            sizes[rows] += draw_codes(np.exp(rest - rest.max(axis=1, keepdims=True)), component[rows], source)
        return sizes

    def _drawn(
        self, component: Integers, sizes: Integers, known: Mapping[str, Integers], source: Source
    ) -> SyntheticHouseholds:
        """Return households of these components, which do not fall, and sizes; all attributes but the known ones are
        drawn.
        """
        block = Block.empty(self.schema, sizes, source)
        for column, attribute in enumerate(self.schema.household):
            codes = known.get(attribute.name)
            if codes is None:
                codes = draw_codes(self.chances[f"household {attribute.name}"], component, source)
            block.set_household(column, codes)
        for place in range(self.schema.max_persons):
            rows = np.flatnonzero(sizes > place)
            for column, attribute in enumerate(self.schema.person):
                chances = self.chances[f"person {attribute.name}"][:, place]
                block.set_person(rows, place, column, draw_codes(chances, component[rows], source))
        if self.schema.structure is None:
            return block.households
        of = np.empty(len(component), np.int64)
        of[block.place] = component
        fixed = {name: np.empty_like(codes) for name, codes in known.items()}
        for name, codes in known.items():
            fixed[name][block.place] = codes
        return keep_rules(block.households, self.schema, _Redraw(self, block.households, of, fixed, source), fixed)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the logits by name; `from_arrays` reads them back."""
        named: dict[str, NDArray[Any]] = {"weights": self.weights, "sizes": self.sizes}
        for attribute, array in zip(self.schema.household, self.household, strict=True):
            named[f"household {attribute.name}"] = array
        for attribute, array in zip(self.schema.person, self.person, strict=True):
            named[f"person {attribute.name}"] = array
        return named

    @classmethod
    def from_arrays(cls, schema: Schema, arrays: Arrays) -> Mixture:
        """Return what `to_arrays` gave."""
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


class _Redraw(Redraw):
    """Draws again from a mixture what breaks a rule; sizes and known attributes stay."""

    def __init__(
        self,
        model: Mixture,
        drawn: SyntheticHouseholds,
        component: Integers,
        known: Mapping[str, Integers],
        source: Source,
    ) -> None:
        self._model, self._drawn, self._component, self._known, self._source = model, drawn, component, known, source

    def persons(self, persons: Integers) -> None:
        """Draw some persons, as their component has them at their place."""
        homes = np.searchsorted(self._drawn.offsets, persons, side="right") - 1
        places, component = persons - self._drawn.offsets[homes], self._component[homes]
        most = self._model.schema.max_persons
        rows = component * most + places
        order = np.argsort(rows, kind="stable")
        for column, attribute in enumerate(self._model.schema.person):
            chances = self._model.chances[f"person {attribute.name}"].reshape(-1, attribute.codes)
            self._drawn.person[persons[order], column] = draw_codes(chances, rows[order], self._source)

    def households(self, homes: Integers) -> None:
        """Draw some households, each with its size and in its component."""
        order = homes[np.argsort(self._component[homes], kind="stable")]
        for column, attribute in enumerate(self._model.schema.household):
            if attribute.name not in self._known:
                chances = self._model.chances[f"household {attribute.name}"]
                self._drawn.household[order, column] = draw_codes(chances, self._component[order], self._source)
        starts = self._drawn.offsets
        persons = [np.arange(starts[home], starts[home + 1]) for home in homes.tolist()]
        self.persons(np.concatenate([np.empty(0, np.int64), *persons]))

    def anew(self, homes: Integers) -> None:
        """Draw some households, each with its size and from the whole mixture."""
        model = self._model
        by_size = _logarithms(model.sizes).T
        scores = _logarithms(model.weights) + by_size[self._drawn.sizes[homes]]
        for name, codes in self._known.items():
            scores += _logarithms(model.to_arrays()[f"household {name}"]).T[codes[homes]]
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        self._component[homes] = draw_codes(chances, np.arange(len(homes)), self._source)
        self.households(homes)


def joined(one: Mixture, other: Mixture, part: float) -> Mixture:
    """Return the components of both, `one` with the weight `part` and `other` with the rest: answers are their mean.

    Who is where in a component goes by its number, so `one` must have whole turns of the kinds of household.
    """
    if one.schema.structure is not None and one.components % len(variants(one.schema)):
        raise SpecError("a mixture that others are joined to needs as many components of each kind of household")
    weights = [_logarithms(one.weights) + np.log(part), _logarithms(other.weights) + np.log1p(-part)]
    mine, others = one.to_arrays() | {"weights": weights[0]}, other.to_arrays() | {"weights": weights[1]}
    return Mixture.from_arrays(one.schema, {name: np.concatenate([mine[name], others[name]]) for name in mine})


def tables_of(schema: Schema, marginal: Marginal, chances: Mapping[str, Any]) -> Tables:
    """Return the chances of a table's own attributes. For a table by role those in a role lend theirs to the household,
    and are nobody among the persons.
    """
    household = [chances[f"household {name}"] for name in marginal.household]
    person = [chances[f"person {name}"] for name in marginal.person]
    sizes = chances["sizes"]
    if marginal.roles:
        seen, rows = view(schema, marginal.role_names, len(sizes)), np.arange(len(sizes))
        household += [chances[f"person {name}"][rows, seen.places[role]] for role, name in marginal.roles]
    if marginal.groups:
        merged = [_merged(*pair) for pair in zip([*household, *person], marginal.groups, strict=True)]
        household, person = merged[: len(household)], merged[len(household) :]
    if marginal.roles:
        sizes = sizes * seen.sizes
        if person:
            person[0] = person[0] * seen.others[:, :, None]
        elif marginal.of == "persons":
            person = [seen.others[:, :, None]]
    return Tables(chances["weights"], sizes, tuple(household), tuple(person))


def _merged(chances: NDArray[Any], groups: tuple[int, ...]) -> NDArray[Any]:
    """Return the chances of groups of codes."""
    if not groups:
        return chances
    merged: NDArray[Any] = chances @ np.eye(max(groups) + 1, dtype=chances.dtype)[list(groups)]
    return merged


def softmax(logits: NDArray[Any]) -> Floats:
    """Chances along the last axis, in double precision."""
    raised = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    chances: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return chances


def _logarithms(logits: NDArray[Any]) -> Floats:
    """Logarithms of the chances of logits, along the last axis; finite, even where a chance rounds to zero."""
    raised = logits.astype(np.float64)
    logarithms: Floats = raised - np.logaddexp.reduce(raised, axis=-1, keepdims=True)
    return logarithms


def _shapes(schema: Schema, components: int) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the arrays, in the order in which they are drawn."""
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
