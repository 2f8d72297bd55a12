"""Roles and edit rules in models: roles as slots of a mixture, structural zeros, and tables measured for the roles.

*Slots.* Each component knows who is in the household, and what they cannot be has no chance. Who is there differs from
household to household, so components come in variants: with a spouse and without one. In a component that has a spouse
the first person is the head, the second the spouse and the rest others; values that such a person cannot have, sizes
that are too small and household values that a rule excludes are `impossible` there. So a mixture with slots is a
mixture of products like any other. Rules that a product cannot keep (a child is younger than the head) are kept by
the fit, which sees their cells as zeros, and by drawing again (`sampling`).

*Tables.* Measured in any case: head and spouse by each other's attributes, households by size and the
head's age, and the rest by their role and age and the head's age. That is what makes households look like households,
and selections that look at errors of single tables pass it over. Zeros cost nothing: that a cell is empty is public.
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
from tallytree.domain.edit_rules import Below, Condition, Has, Implies, Role, SizeClass, Structure, may_be_below
from tallytree.domain.feasibility import possible_sizes
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.model import Measured

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
        """Return whether such a household can exist. Persons at places beyond every possible size do not matter."""
        most = int(np.flatnonzero(self.sizes)[-1]) if self.sizes.any() else 0
        there = all(flags[:most].any(axis=1).all() for flags in self.person.values())
        return bool(self.sizes.any()) and there and all(flags.any() for flags in self.household.values())

    def with_household(self, name: str, allowed: Flags) -> Variant:
        """Return the same with fewer household codes."""
        return replace(self, household={**self.household, name: self.household[name] & allowed})

    def with_person(self, place: int, name: str, allowed: Flags) -> Variant:
        """Return the same with fewer codes at a place."""
        flags = self.person[name].copy()
        flags[place] &= allowed
        return replace(self, person={**self.person, name: flags})


class Slots(NamedTuple):
    """For each component: the place of the person in each role, and what is possible, by the mixture's names."""

    places: Mapping[str, Integers]
    possible: Mapping[str, Flags]


@lru_cache(maxsize=64)
def slots(schema: Schema, components: int) -> Slots:
    """Return the variants of a schema with structure, given to the components in turn."""
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
    """Return every possible kind of household that the roles distinguish."""
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
    """Yield households that do not have all values of a condition: a variant for each attribute that can differ."""
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
    """Return what a rule says of everybody, or of somebody in a role, without any further condition."""
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
    """Return the view of the roles `names`. In a component where one of them is never there no size counts."""
    most, places = schema.max_persons, slots(schema, components).places
    chosen = np.stack([places[name] for name in names], axis=1)
    there = (chosen != NEVER).all(axis=1, keepdims=True)
    found = np.where(there, chosen, 0)
    others = np.ones((components, most), np.float32)
    np.put_along_axis(others, found, 0, axis=1)
    sizes = there & (np.arange(most + 1) > found.max(axis=1, keepdims=True))
    return View({name: found[:, at] for at, name in enumerate(names)}, others, sizes.astype(np.float32))


# -------------------------------------------------------------------- tables that roles and rules ask for


MOST_CELLS = 1 << 16  # of a table of zeros
NOISE_BELOW = 2.0  # standard deviations: below, noise alone explains a cell
EMPTY_PART = 0.25  # of the noise's standard deviation, that cells taken as empty are expected to be apart from it
MOST_PAIRS = 2  # attributes by which two roles are crossed: age, and sex


class Zeros(NamedTuple):
    """A table, and the cells of it in which a rule leaves nobody."""

    marginal: Marginal
    impossible: NDArray[np.bool_]


def role_tables(schema: Schema) -> list[Marginal]:
    """Return households by each attribute of each role of one person, but for the attribute that tells the roles."""
    structure = schema.structure or Structure()
    return [
        Marginal("households", roles=((role.name, attribute.name),))
        for role in structure.single
        for attribute in schema.person
        if attribute.name != structure.attribute and attribute.codes > 1
    ]


def structural_tables(schema: Schema) -> list[Marginal]:
    """Return the tables that are measured for the roles; none without roles of one person."""
    structure = schema.structure
    if structure is None or not structure.single:
        return []
    head, *others = structure.single
    keys = key_attributes(schema, structure)
    tables = [
        Marginal("households", roles=((head.name, name), (other.name, name)))
        for other in others
        for name in _crossed(schema, structure, keys)
    ]
    tables += [Marginal("households", size=True, roles=((head.name, key),)) for key in keys]
    told = (structure.attribute,) if structure.attribute is not None else ()
    if schema.max_persons > 1:
        tables += [Marginal("persons", (), (*told, key), roles=((head.name, key),)) for key in keys if key not in told]
    return tables


def key_attributes(schema: Schema, structure: Structure) -> list[str]:
    """Return what roles are compared by: the attributes of rules `below`; without such rules the first number of
    persons.
    """
    compared = [rule.attribute for rule in structure.all_rules if isinstance(rule, Below)]
    numbers = [attribute.name for attribute in schema.person if attribute.cuts is not None]
    return list(dict.fromkeys(compared)) or numbers[:1]


def _crossed(schema: Schema, structure: Structure, keys: list[str]) -> list[str]:
    """Return the key attributes, and those with the fewest values after them."""
    rest = [each for each in schema.person if each.name not in (*keys, structure.attribute) and each.codes > 1]
    return [*keys, *(each.name for each in sorted(rest, key=lambda each: each.codes))][:MOST_PAIRS]


def cleared(schema: Schema, table: Measured) -> Measured:
    """Return a table of two persons' ages with the cells that noise alone explains taken as empty; any other table as
    it is.

    Most pairs of ages do not occur. Chances cannot be negative, so a fit makes up for the noise of such cells with
    couples of any age; the other cells are then nearer to the truth in all cells together, too.
    """
    names = {name for _, name in table.marginal.roles}
    structure = schema.structure
    if structure is None or len(table.marginal.role_names) < 2 or table.marginal.person:
        return table
    if len(names) != 1 or not names <= set(key_attributes(schema, structure)):
        return table
    kept = np.where(table.values < NOISE_BELOW * np.sqrt(table.variance), 0.0, table.values)
    return Measured(table.marginal, kept, np.where(kept == 0, EMPTY_PART**2, 1.0) * table.variance)


def zero_tables(schema: Schema) -> list[Zeros]:
    """Return what no household can have: a table for each rule that a product of chances cannot keep."""
    structure = schema.structure
    if structure is None:
        return []
    found: list[Zeros | None] = []
    for rule in structure.all_rules:
        if isinstance(rule, Implies) and rule.names:
            found.append(_of_implication(schema, structure, rule))
        elif isinstance(rule, Below):
            found.append(_of_comparison(schema, structure, rule))
        elif isinstance(rule, SizeClass):
            allowed = rule.allowed(schema.attribute(rule.attribute), schema.max_persons)
            found.append(Zeros(Marginal("households", (rule.attribute,), size=True), ~allowed))
    return [zeros for zeros in found if zeros is not None and zeros.impossible.any()]


def _of_implication(schema: Schema, structure: Structure, rule: Implies) -> Zeros | None:
    homes = {attribute.name for attribute in schema.household}
    household = tuple(name for name in rule.names if name in homes)
    person = tuple(name for name in rule.names if name not in homes)
    role = None if rule.role is None else structure.role(rule.role)
    if role is None:
        if not rule.when:  # nothing has a chance of it anyhow
            return None
        marginal = Marginal("persons" if person else "households", household, person)
        return _where(schema, marginal, (*household, *person), rule.when, rule.then)
    if role.single:
        if not rule.when or not person:
            return None
        marginal = Marginal("households", household, roles=tuple((role.name, name) for name in person))
        return _where(schema, marginal, (*household, *person), rule.when, rule.then)
    told = str(role.attribute)
    names = tuple(dict.fromkeys((*person, told)))
    marginal = Marginal("persons", household, names)
    return _where(schema, marginal, (*household, *names), (*rule.when, (told, role.values)), rule.then)


def _where(schema: Schema, marginal: Marginal, axes: tuple[str, ...], when: Condition, then: Condition) -> Zeros | None:
    """Return the cells that have all of `when` and not all of `then`."""
    if marginal.cells(schema) > MOST_CELLS:
        return None
    shape = marginal.shape(schema)

    def holds(condition: Condition) -> NDArray[np.bool_]:
        flags = np.ones(shape, bool)
        for name, values in condition:
            axis = axes.index(name)
            allowed = np.array([value in values for value in schema.attribute(name).values])
            flags &= allowed.reshape([-1 if place == axis else 1 for place in range(len(shape))])
        return flags

    return Zeros(marginal, holds(when) & ~holds(then))


def _of_comparison(schema: Schema, structure: Structure, rule: Below) -> Zeros | None:
    role: Role = structure.role(rule.role)
    possible = may_be_below(schema.attribute(rule.attribute), rule.by)  # [role, than]
    if role.single:
        marginal = Marginal("households", roles=((rule.than, rule.attribute), (role.name, rule.attribute)))
        return Zeros(marginal, ~possible.T)
    told = str(role.attribute)
    if told == rule.attribute or schema.max_persons < 2:
        return None
    marginal = Marginal("persons", (), (told, rule.attribute), roles=((rule.than, rule.attribute),))
    in_role = np.array([value in role.values for value in schema.attribute(told).values])
    return Zeros(marginal, in_role[None, :, None] & ~possible.T[:, None, :])
