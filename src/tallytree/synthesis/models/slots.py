"""Roles as slots of a mixture: each component knows who is in the household, and what they cannot be has no chance.

Who is there differs from household to household, so components come in variants: with a spouse and without one. In a
component that has a spouse the first person is the head, the second the spouse and the rest others; values that such a
person cannot have, sizes that are too small and household values that a rule excludes are `impossible` there. So a
mixture with slots is a mixture of products like any other. Rules that no product keeps by itself (a child is younger
than the head) are kept by the fit, which sees their cells as zeros, and by drawing again (`keeping`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.edit_rules import Condition, Has, Implies, Role, Structure
from tallytree.domain.feasibility import possible_sizes
from tallytree.domain.schema import Schema

Flags = NDArray[np.bool_]

IMPOSSIBLE = -1e4  # a logit whose chance is zero in single and in double precision
MOST_VARIANTS = 24
NEVER = -1  # the place of somebody who is not there


@dataclass(frozen=True, eq=False)
class Variant:
    """Who is where, and what is possible: sizes, household codes, and the codes of the person at each place."""

    places: Mapping[str, int]
    sizes: Flags
    household: Mapping[str, Flags]
    person: Mapping[str, Flags]

    @property
    def possible(self) -> bool:
        """Can such a household be at all? Persons at places beyond every possible size do not matter."""
        most = int(np.flatnonzero(self.sizes)[-1]) if self.sizes.any() else 0
        there = all(flags[:most].any(axis=1).all() for flags in self.person.values())
        return bool(self.sizes.any()) and there and all(flags.any() for flags in self.household.values())

    def with_household(self, name: str, allowed: Flags) -> Variant:
        """The same with fewer household codes."""
        return replace(self, household={**self.household, name: self.household[name] & allowed})

    def with_person(self, place: int, name: str, allowed: Flags) -> Variant:
        """The same with fewer codes at a place."""
        flags = self.person[name].copy()
        flags[place] &= allowed
        return replace(self, person={**self.person, name: flags})


class Slots(NamedTuple):
    """For each component: the place of the person in each role, and what is possible, by the mixture's names."""

    places: Mapping[str, Integers]
    possible: Mapping[str, Flags]


@lru_cache(maxsize=64)
def slots(schema: Schema, components: int) -> Slots:
    """The variants of a schema with structure, given to the components in turn."""
    every = variants(schema)
    if components < len(every):
        raise SpecError(
            f"the roles make {len(every)} kinds of household, so the model needs at least as many components, not "
            f"{components}"
        )
    turn = np.arange(components) % len(every)
    places = {
        role.name: np.array([variant.places.get(role.name, NEVER) for variant in every])[turn]
        for role in (schema.structure or Structure()).single
    }
    possible = {"sizes": np.array([variant.sizes for variant in every])[turn]}
    for side, attributes in (("household", schema.household), ("person", schema.person)):
        for attribute in attributes:
            flags = [getattr(variant, side)[attribute.name] for variant in every]
            possible[f"{side} {attribute.name}"] = np.array(flags)[turn]
    return Slots(places, possible)


def masked(schema: Schema, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Logits with `IMPOSSIBLE` where the structure leaves no chance; as they are where there is no structure."""
    if schema.structure is None:
        return dict(arrays)
    possible = slots(schema, len(arrays["sizes"])).possible
    found = dict(arrays)
    for name, flags in possible.items():
        space = arrays[name].__array_namespace__()
        found[name] = space.where(flags, arrays[name], np.float32(IMPOSSIBLE))
    return found


def coupled(schema: Schema, components: int) -> list[tuple[Integers, Integers]]:
    """Where head and spouse are: for each role of one person the components that have it and another such role, and
    the place of the person there. Nothing where no household has two of them.
    """
    places = list(slots(schema, components).places.values())
    several = np.sum([at != NEVER for at in places], axis=0) > 1
    rows = [np.flatnonzero(several & (at != NEVER)) for at in places]
    return [(there, at[there]) for there, at in zip(rows, places, strict=True) if len(there)]


def variants(schema: Schema) -> list[Variant]:
    """Every kind of household that the roles tell apart and that can be."""
    structure = schema.structure or Structure()
    found = [_with_values(schema, structure, variant) for variant in _by_roles(schema, structure)]
    for rule in structure.all_rules:
        if isinstance(rule, Has) and structure.role(rule.role).single:
            found = [made for variant in found for made in _with_rule(schema, rule, variant)]
    found = [variant for variant in found if variant.possible]
    if not 1 <= len(found) <= MOST_VARIANTS:
        raise SpecError(
            f"the roles and the rules `has` tell {len(found)} kinds of household apart; at most {MOST_VARIANTS} can be "
            "modelled: name fewer roles of at most one person, or fewer household attributes in these rules"
        )
    return found


def _by_roles(schema: Schema, structure: Structure) -> Iterator[Variant]:
    most = schema.max_persons
    anything = Variant(
        {},
        possible_sizes(schema.search),
        {each.name: np.ones(each.codes, bool) for each in schema.household},
        {each.name: np.ones((most, each.codes), bool) for each in schema.person},
    )
    if structure.attribute is None:
        yield from _by_position(schema, structure.single, anything)
        return
    always = [role for role in structure.single if role.number == "exactly one"]
    maybe = [role for role in structure.single if role.number == "at most one"]
    for number in range(len(maybe) + 1):
        for chosen in combinations(maybe, number):
            there = [*always, *chosen]
            sizes = anything.sizes & (np.arange(most + 1) >= len(there))
            sizes[0] = anything.sizes[0] and not chosen
            variant = replace(anything, sizes=sizes, places={role.name: place for place, role in enumerate(there)})
            name = structure.attribute
            own = _flags(schema, name, tuple(value for role in structure.single for value in role.values))
            for place in range(most):
                allowed = _flags(schema, name, there[place].values) if place < len(there) else ~own
                variant = variant.with_person(place, name, allowed)
            yield variant


def _by_position(schema: Schema, roles: tuple[Role, ...], variant: Variant) -> Iterator[Variant]:
    """Roles by position are there if the household is large enough and has the values that go with the role."""
    if not roles:
        yield variant
        return
    role, *rest = roles
    there = replace(variant, places={**variant.places, role.name: (role.position or 1) - 1})
    for name, values in role.household:
        there = there.with_household(name, _flags(schema, name, values))
    for made in (there, *_without(schema, role.household, variant)):
        yield from _by_position(schema, tuple(rest), made)


def _without(schema: Schema, condition: Condition, variant: Variant) -> Iterator[Variant]:
    """Households that do not have all values of a condition: a variant for each attribute that can differ."""
    so_far = variant
    for name, values in condition:
        yield so_far.with_household(name, ~_flags(schema, name, values))
        so_far = so_far.with_household(name, _flags(schema, name, values))


def _with_rule(schema: Schema, rule: Has, variant: Variant) -> Iterator[Variant]:
    there = rule.role in variant.places
    if not there:
        yield from _without(schema, rule.household, variant)
    elif not rule.only:
        yield variant
    else:
        for name, values in rule.household:
            variant = variant.with_household(name, _flags(schema, name, values))
        yield variant


def _with_values(schema: Schema, structure: Structure, variant: Variant) -> Variant:
    """What a rule says of everybody, or of somebody in a role, without any further condition."""
    people = {attribute.name for attribute in schema.person}
    for rule in structure.all_rules:
        if not isinstance(rule, Implies) or rule.when:
            continue
        for name, values in rule.then:
            allowed = _flags(schema, name, values)
            if name in people and rule.role is None:
                for place in range(schema.max_persons):
                    variant = variant.with_person(place, name, allowed)
            elif name in people and rule.role in variant.places:
                variant = variant.with_person(variant.places[str(rule.role)], name, allowed)
            elif name not in people and rule.role is None and not people & set(rule.names):
                variant = variant.with_household(name, allowed)
    return variant


def _flags(schema: Schema, name: str, values: tuple[str, ...]) -> Flags:
    return np.array([value in values for value in schema.attribute(name).values])


# -------------------------------------------------------------------- tables by role


class View(NamedTuple):
    """How a table by role is a table of products: where those in its roles are, and what counts (1) or does not (0):
    of the places the others', of the sizes those in which all of its roles are there.
    """

    places: Mapping[str, Integers]
    others: NDArray[np.float32]
    sizes: NDArray[np.float32]


@lru_cache(maxsize=1024)
def view(schema: Schema, names: tuple[str, ...], components: int) -> View:
    """The view of the roles `names`. In a component where one of them is never there no size counts."""
    most, places = schema.max_persons, slots(schema, components).places
    chosen = np.stack([places[name] for name in names], axis=1)
    there = (chosen != NEVER).all(axis=1, keepdims=True)
    found = np.where(there, chosen, 0)
    others = np.ones((components, most), np.float32)
    np.put_along_axis(others, found, 0, axis=1)
    sizes = there & (np.arange(most + 1) > found.max(axis=1, keepdims=True))
    return View({name: found[:, at] for at, name in enumerate(names)}, others, sizes.astype(np.float32))
