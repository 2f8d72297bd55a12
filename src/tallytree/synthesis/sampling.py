"""Drawing households from a model, a chunk at a time, with less variance than independent draws have; counting them.

Systematic sampling: of n households, number i takes the point (i + u) / n on the line of all chances, with one random
u for all. Each component of a mixture, or cell of a histogram, then comes up as often as expected, rounded up or down.
Within a component the same is done for every attribute on its own, in an order of the households that is random and
fresh for every attribute; so each household has the right chances, attributes are paired at random, and every
attribute's counts are within one of what is expected.

Where households have edit rules, those that break one are drawn again, for as long as it takes and no longer: first the
persons who break a rule, then the whole household in its component, then a household of the same size from the whole
model. If a household still breaks a rule, because the model leaves nearly no chance, the search for contradictions
finds another one. Sizes stay, and so does what was asked for (the region): agreement is not touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import NamedTuple, Protocol

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal, Schema
from tallytree.privacy.noise.keystream import Keystream, Source
from tallytree.synthesis.model import Model, SyntheticHouseholds
from tallytree.synthesis.public_stream import uniform
from tallytree.synthesis.workload import Workload
from tallytree.tables.contingency import Rows, broken, table_counts

CHUNK = 100_000


def draw(
    model: Model, number: int, *, chunk: int = CHUNK, source: Source | None = None
) -> Iterator[SyntheticHouseholds]:
    """Return `number` households in chunks of at most `chunk`, each chunk spread over the whole distribution.

    Random bits come from a fresh cryptographic stream unless a source is given.
    """
    if number < 0 or chunk < 1:
        raise SpecError("number must be at least 0 and chunk at least 1")
    words = Keystream() if source is None else source
    chunks, shift = ceil(number / chunk), uniform(words, 1)[0]
    return (model.draw_at((np.arange(first, number, chunks) + shift) / number, words) for first in range(chunks))


class Block(NamedTuple):
    """Households that are being filled in, and where each drawn one goes: a random place."""

    households: SyntheticHouseholds
    place: Integers

    @classmethod
    def empty(cls, schema: Schema, sizes: Integers, source: Source) -> Block:
        """Return households of these sizes, without values yet."""
        place = np.argsort(source.words(len(sizes)), kind="stable")
        moved = np.empty(len(sizes), np.int32)
        moved[place] = sizes
        return cls(SyntheticHouseholds.of_sizes(schema, moved), place)

    def set_household(self, column: int, codes: Integers) -> None:
        """Set an attribute of all households."""
        self.households.household[self.place, column] = codes

    def set_person(self, rows: Integers, place: int, column: int, codes: Integers) -> None:
        """Set an attribute of the person at `place` in the households of `rows`."""
        self.households.person[self.households.offsets[self.place[rows]] + place, column] = codes


def draw_codes(chances: Floats, component: Integers, source: Source) -> Integers:
    """Return a code for each row of its component's chances [components, codes], systematically within each component.

    `component` does not fall. The rows of a component take the points (rank + u) / rows, ranks in random order.
    """
    rows = np.bincount(component, minlength=len(chances))
    order = np.argsort(component + uniform(source, len(component)), kind="stable")
    rank = np.empty(len(component))
    rank[order] = np.arange(len(component)) - np.repeat(np.cumsum(rows) - rows, rows)
    shift = uniform(source, len(chances))[component]
    point = 4.0 * component + (rank + shift) / rows[component]
    codes: Integers = np.searchsorted(ladders(chances), point, side="right") - component * chances.shape[1]
    return codes


def ladders(chances: Floats) -> Floats:
    """Return all rows' cumulative chances on one line, row r on 4r … 4r + 2.

    A row ends at 2, from its last possible code on, so that no rounding can carry a point past it; codes without any
    chance have steps of no height and are never hit.
    """
    ladder = np.cumsum(chances, axis=1)
    ladder /= ladder[:, -1:]
    ladder[ladder >= 1] = 2
    ladder[:, -1] = 2
    codes = chances.shape[1]
    last = codes - 1 - np.argmax(chances[:, ::-1] > 0, axis=1)
    ladder[np.arange(codes)[None, :] >= last[:, None]] = 2
    flat: Floats = (ladder + 4.0 * np.arange(len(chances))[:, None]).ravel()
    return flat


class Tally:
    """The tables of a workload, counted over the chunks that were added so far. They are public, so are the counts."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.counts: list[Integers] = [np.zeros(marginal.shape(workload.schema), np.int64) for marginal in workload]

    def add(self, chunk: SyntheticHouseholds) -> None:
        """Count some more households."""
        for marginal, counts in zip(self.workload, self.counts, strict=True):
            counts += counted(chunk, marginal, self.workload.schema)


def counted(chunk: SyntheticHouseholds, marginal: Marginal, schema: Schema) -> Integers:
    """Return one table over some households, in its shape; `Marginal` says what it counts."""
    household = {each.name: chunk.household[:, column] for column, each in enumerate(schema.household)}
    person = {each.name: chunk.person[:, column] for column, each in enumerate(schema.person)}
    return table_counts(marginal, Rows(schema, chunk.offsets, household, person))


# -------------------------------------------------------------------- edit rules


PERSONS, HOUSEHOLDS, ANEW = 6, 6, 12  # times that each is tried


class Redraw(Protocol):
    """Draws again, in place: persons and households by their numbers."""

    def persons(self, persons: Integers) -> None:
        """Draw some persons."""

    def households(self, homes: Integers) -> None:
        """Draw some households with all their persons."""

    def anew(self, homes: Integers) -> None:
        """Draw the same households, from the whole model."""


def keep_rules(
    drawn: SyntheticHouseholds, schema: Schema, redraw: Redraw, known: Mapping[str, Integers]
) -> SyntheticHouseholds:
    """Return the households with every rule kept; `redrawn` says how many of them were changed."""
    left, persons = breaking(drawn, schema, np.arange(len(drawn.sizes)))
    first = len(left)
    for attempt in range(PERSONS + HOUSEHOLDS + ANEW):
        if not len(left):
            break
        if attempt < PERSONS:
            redraw.persons(persons)
        elif attempt < PERSONS + HOUSEHOLDS:
            redraw.households(left)
        else:
            redraw.anew(left)
        left, persons = breaking(drawn, schema, left)
    for home in left.tolist():
        _replace_household(drawn, schema, home, {name: int(codes[home]) for name, codes in known.items()})
    return drawn._replace(redrawn=first)


def replace_broken(drawn: SyntheticHouseholds, schema: Schema, known: Mapping[str, int]) -> SyntheticHouseholds:
    """Return the households with each that breaks a rule replaced by one that the search finds; `known` are the columns
    of household attributes that stay.
    """
    left, _ = breaking(drawn, schema, np.arange(len(drawn.sizes)))
    for home in left.tolist():
        _replace_household(drawn, schema, home, {name: int(drawn.household[home, at]) for name, at in known.items()})
    return drawn._replace(redrawn=len(left))


def breaking(drawn: SyntheticHouseholds, schema: Schema, homes: Integers) -> tuple[Integers, Integers]:
    """Return which of some households break a rule, and which of their persons do, as far as rules are about
    persons.
    """
    rows, places = part(drawn, schema, homes)
    households, persons = np.zeros(len(homes), bool), np.zeros(len(places), bool)
    for rule in broken(rows):
        households |= rule.households
        if rule.persons is not None:
            persons |= rule.persons
    return homes[households], places[persons]


def part(drawn: SyntheticHouseholds, schema: Schema, homes: Integers) -> tuple[Rows, Integers]:
    """Return some households as columns, and the places of their persons among all."""
    sizes = drawn.sizes[homes].astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    places = np.arange(starts[-1]) - np.repeat(starts[:-1] - drawn.offsets[homes], sizes)
    household = {each.name: drawn.household[homes, column] for column, each in enumerate(schema.household)}
    person = {each.name: drawn.person[places, column] for column, each in enumerate(schema.person)}
    return Rows(schema, starts, household, person), places


def _replace_household(drawn: SyntheticHouseholds, schema: Schema, home: int, known: Mapping[str, int]) -> None:
    """Put a household that the search finds in the place of one that breaks a rule however often it is drawn."""
    size = int(drawn.sizes[home])
    found = schema.search.household(size, fixed=known)
    if found is None:
        values = ", ".join(f"{name} {schema.attribute(name).values[code]}" for name, code in known.items())
        raise SpecError(
            f"no household of {size} persons{f' with {values}' if values else ''} can keep the rules of the schema, "
            "and one was asked for: a released table has such households, or the rules are too strict"
        )
    drawn.household[home] = [found.household[each.name] for each in schema.household]
    for place, person in enumerate(found.persons):
        drawn.person[drawn.offsets[home] + place] = [person[each.name] for each in schema.person]
