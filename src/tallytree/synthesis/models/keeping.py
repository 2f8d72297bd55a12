"""Drawn households that keep all rules: what breaks one is drawn again, for as long as it takes and no longer.

First the persons who break a rule, then the whole household in its component, then a household of the same size from
the whole model. What is left after that, in models in which a rule leaves nearly no chance, becomes a household that
the search for contradictions finds. Sizes stay, and so does what was asked for (the region): agreement is not touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Schema
from tallytree.synthesis.models.model import SyntheticHouseholds
from tallytree.tables.rule_checks import Rows, broken

PERSONS, HOUSEHOLDS, ANEW = 6, 6, 12  # times that each is tried


class Redraw(Protocol):
    """Draws again, in place: persons and households by their numbers."""

    def persons(self, persons: Integers) -> None:
        """Some persons."""

    def households(self, homes: Integers) -> None:
        """Some households with all their persons."""

    def anew(self, homes: Integers) -> None:
        """The same, from the whole model."""


def keep_rules(
    drawn: SyntheticHouseholds, schema: Schema, redraw: Redraw, known: Mapping[str, Integers]
) -> SyntheticHouseholds:
    """The households with every rule kept; `redrawn` says how many of them were changed."""
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
        _settle(drawn, schema, home, {name: int(codes[home]) for name, codes in known.items()})
    return drawn._replace(redrawn=first)


def settled(drawn: SyntheticHouseholds, schema: Schema, known: Mapping[str, int]) -> SyntheticHouseholds:
    """The households with each that breaks a rule replaced by one that the search finds; `known` are the columns of
    household attributes that stay.
    """
    left, _ = breaking(drawn, schema, np.arange(len(drawn.sizes)))
    for home in left.tolist():
        _settle(drawn, schema, home, {name: int(drawn.household[home, at]) for name, at in known.items()})
    return drawn._replace(redrawn=len(left))


def breaking(drawn: SyntheticHouseholds, schema: Schema, homes: Integers) -> tuple[Integers, Integers]:
    """Which of some households break a rule, and which of their persons do, as far as rules are about persons."""
    rows, places = part(drawn, schema, homes)
    households, persons = np.zeros(len(homes), bool), np.zeros(len(places), bool)
    for rule in broken(rows):
        households |= rule.households
        if rule.persons is not None:
            persons |= rule.persons
    return homes[households], places[persons]


def part(drawn: SyntheticHouseholds, schema: Schema, homes: Integers) -> tuple[Rows, Integers]:
    """Some households as columns, and the places of their persons among all."""
    sizes = drawn.sizes[homes].astype(np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    places = np.arange(starts[-1]) - np.repeat(starts[:-1] - drawn.offsets[homes], sizes)
    household = {each.name: drawn.household[homes, column] for column, each in enumerate(schema.household)}
    person = {each.name: drawn.person[places, column] for column, each in enumerate(schema.person)}
    return Rows(schema, starts, household, person), places


def _settle(drawn: SyntheticHouseholds, schema: Schema, home: int, known: Mapping[str, int]) -> None:
    """Put a household that the search finds in the place of one that no drawing has settled."""
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
