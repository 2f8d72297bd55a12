"""Slow, obvious twins of the models of households: every possible household is listed and counted by itself."""

from __future__ import annotations

from itertools import product
from math import exp

import numpy as np

from tests.oracles.households import in_role


def every_household(schema, smallest=0):
    """All (household codes, persons), persons being a tuple of tuples of codes in order."""
    homes = list(product(*(range(attribute.codes) for attribute in schema.household)))
    people = list(product(*(range(attribute.codes) for attribute in schema.person)))
    for home in homes:
        for size in range(smallest, schema.max_persons + 1):
            for persons in product(people, repeat=size):
                yield home, persons


def table_of(schema, marginal, household):
    """The table of one household: what it adds to a table of counts."""
    home, persons = household
    table = np.zeros(marginal.shape(schema))
    homes = [attribute.name for attribute in schema.household]
    people = [attribute.name for attribute in schema.person]
    front = (*([len(persons)] if marginal.size else []), *(home[homes.index(name)] for name in marginal.household))
    who = {role: in_role(role, home, persons, schema) for role, _ in marginal.roles}
    if None in who.values():
        return table
    front = (*front, *(persons[who[role]][people.index(name)] for role, name in marginal.roles))
    persons = [person for place, person in enumerate(persons) if place not in who.values()]
    groups = [own or range(10**6) for own in marginal.groups_of_axes]

    def merged(cell):
        codes = cell[1:] if marginal.size else cell
        return (*cell[: len(cell) - len(codes)], *(own[code] for own, code in zip(groups, codes, strict=False)))

    if marginal.of == "households" and not marginal.person:
        table[merged(front)] += 1
        return table
    cells = [merged((*front, *(person[people.index(name)] for name in marginal.person))) for person in persons]
    for cell in set(cells) if marginal.of == "households" else cells:
        table[cell] += 1
    return table


def expected_table(schema, marginal, chances):
    """The table that a dictionary of chances by household expects."""
    table = np.zeros(marginal.shape(schema))
    for household, chance in chances.items():
        table += chance * table_of(schema, marginal, household)
    return table


def mixture_chances(model):
    """The chance of every household under a mixture of products, term by term."""
    schema, chances = model.schema, model.chances
    found = {}
    for home, persons in every_household(schema):
        total = 0.0
        for component in range(model.components):
            term = chances["weights"][component] * chances["sizes"][component, len(persons)]
            for attribute, code in zip(schema.household, home, strict=True):
                term *= chances[f"household {attribute.name}"][component, code]
            for place, person in enumerate(persons):
                for attribute, code in zip(schema.person, person, strict=True):
                    term *= chances[f"person {attribute.name}"][component, place, code]
            total += term
        found[home, persons] = total
    return found


def histogram_chances(model):
    """The chance of every household under an explicit histogram, read cell by cell."""
    schema = model.schema
    homes = list(product(*(range(attribute.codes) for attribute in schema.household)))
    people = list(product(*(range(attribute.codes) for attribute in schema.person)))
    found = {}
    for home, persons in every_household(schema, model.first):
        cell = 0
        for person in persons:
            cell = cell * len(people) + people.index(person)
        found[home, persons] = model.cells[len(persons) - model.first][homes.index(home), cell]
    return found


def mwem_update(schema, chances, measured, shares, order, most_updates):
    """Algorithm 2 of HQR, on a dictionary. `order` puts the chosen queries in the order of their updates."""
    worth = [
        {household: table_of(schema, cell.marginal, household)[cell.cell] for household in chances} for cell in measured
    ]

    def answer(index):
        counted = sum(chance * worth[index][household] for household, chance in chances.items())
        if measured[index].marginal.of == "households":
            return counted
        return counted / sum(chance * len(household[1]) for household, chance in chances.items())

    errors = [abs(share - answer(index)) for index, share in enumerate(shares)]
    top = sorted(range(len(errors)), key=lambda index: (-errors[index], index))[:most_updates]
    chosen = [index for index in top if errors[index] >= max(errors) / 2]
    for place in order(len(chosen)):
        index = chosen[place]
        scale = 1 if measured[index].marginal.of == "households" else 1 / schema.max_persons
        rate = (shares[index] - answer(index)) / 2
        raised = {
            household: chance * exp(scale * worth[index][household] * rate) for household, chance in chances.items()
        }
        total = sum(raised.values())
        chances = {household: chance / total for household, chance in raised.items()}
    return chances
