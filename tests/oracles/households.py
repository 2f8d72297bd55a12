"""Households straight from the definitions: tables counted cell by cell, and all small data sets with their neighbours.

No formula of `tallytree.privacy` and no kernel of `tallytree.tables` is used. A household is its attributes and the
tuple of its persons' attributes, all as codes; a data set is a tuple of households.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement, product

import numpy as np

from tallytree.domain.schema import Attribute, Marginal, Schema

Person = tuple[int, ...]
Household = tuple[tuple[int, ...], tuple[Person, ...]]


def schema_of(household: dict[str, int], person: dict[str, int], max_persons: int) -> Schema:
    """A schema whose attributes have so many values each, named 0, 1, …"""

    def side(attributes: dict[str, int]) -> tuple[Attribute, ...]:
        return tuple(Attribute(name, tuple(map(str, range(codes)))) for name, codes in attributes.items())

    return Schema(side(household), side(person), max_persons)


def count(data: tuple[Household, ...], marginal: Marginal, schema: Schema) -> np.ndarray:
    """The table, by asking every household and person about every cell."""
    homes = [attribute.name for attribute in schema.household]
    people = [attribute.name for attribute in schema.person]
    sizes = range(schema.max_persons + 1) if marginal.size else [None]
    cells = []
    names = marginal.attributes
    pairs = zip(names, marginal.groups_of_axes, strict=True)
    groups = [own or range(schema.attribute(name).codes) for name, own in pairs]
    first, last = len(marginal.household), len(names) - len(marginal.person)
    values = [range(max(own) + 1) for own in groups]
    home_groups, role_groups, person_groups = groups[:first], groups[first:last], groups[last:]
    for size in sizes:
        for home_values, role_values in product(product(*values[:first]), product(*values[first:last])):
            for person_values in product(*values[last:]):
                total = 0
                for attributes, members in data:
                    if size is not None and len(members) != size:
                        continue
                    if any(
                        own[attributes[homes.index(name)]] != value
                        for name, own, value in zip(marginal.household, home_groups, home_values, strict=True)
                    ):
                        continue
                    who = {role: in_role(role, attributes, members, schema) for role, _ in marginal.roles}
                    if any(place is None for place in who.values()) or any(
                        own[members[who[role]][people.index(name)]] != value
                        for (role, name), own, value in zip(marginal.roles, role_groups, role_values, strict=True)
                    ):
                        continue
                    alike = sum(
                        all(
                            own[member[people.index(name)]] == value
                            for name, own, value in zip(marginal.person, person_groups, person_values, strict=True)
                        )
                        for place, member in enumerate(members)
                        if place not in who.values()
                    )
                    if marginal.of == "persons":
                        total += alike
                    elif marginal.person:
                        total += alike > 0
                    else:
                        total += 1
                cells.append(total)
    return np.array(cells, dtype=np.int64).reshape(marginal.shape(schema))


def in_role(name: str, attributes: tuple[int, ...], members: tuple[Person, ...], schema: Schema) -> int | None:
    """The place of the first person who is in a role, by the role's definition."""
    role = next(role for role in schema.structure.roles if role.name == name)
    homes = [attribute.name for attribute in schema.household]
    people = [attribute.name for attribute in schema.person]
    for place, member in enumerate(members):
        if role.position is None:
            value = schema.attribute(role.attribute).values[member[people.index(role.attribute)]]
            if value in role.values:
                return place
        elif role.position == place + 1:
            told = all(
                schema.attribute(each).values[attributes[homes.index(each)]] in values
                for each, values in role.household
            )
            return place if told else None
    return None


def all_households(schema: Schema, *, ordered: bool = False) -> list[Household]:
    """Every household there can be, the empty ones included; unless `ordered`, the order of persons does not matter."""
    attributes = product(*(range(attribute.codes) for attribute in schema.household))
    kinds = list(product(*(range(attribute.codes) for attribute in schema.person)))
    members = [
        chosen
        for number in range(schema.max_persons + 1)
        for chosen in (product(kinds, repeat=number) if ordered else combinations_with_replacement(kinds, number))
    ]
    return list(product(attributes, members))


def neighbouring_households(schema: Schema, unit: str) -> Iterator[tuple[tuple[Household, ...], tuple[Household, ...]]]:
    """Every pair of neighbours, without the households that both have: tables add up over households."""
    homes = all_households(schema, ordered=schema.structure is not None)
    if unit == "one_group":
        yield from (((one,), (other,)) for one, other in product(homes, repeat=2))
    elif unit == "one_group_added_or_removed":
        yield from (((one,), ()) for one in homes)
    else:
        kinds = list(product(*(range(attribute.codes) for attribute in schema.person)))
        for attributes, members in homes:
            for place, kind in product(range(len(members)), kinds):
                changed = (*members[:place], kind, *members[place + 1 :])
                yield ((attributes, members),), ((attributes, changed),)
