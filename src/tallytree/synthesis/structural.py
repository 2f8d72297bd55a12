"""Tables that a structure asks for: those that are measured for it, and those whose cells its rules make zero.

Measured, whatever a selection says: head and spouse by each other's attributes, households by size and the head's age,
and the rest by their role and age and the head's age. That is what makes households look like households, and
selections that look at errors of single tables pass it over. Zeros cost nothing: that a cell is empty is public.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tallytree.domain.edit_rules import Below, Condition, Implies, Role, SizeClass, Structure, may_be_below
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.models.model import Measured

MOST_CELLS = 1 << 16  # of a table of zeros
NOISE_BELOW = 2.0  # standard deviations: below, noise alone explains a cell
EMPTY_PART = 0.25  # of the noise's standard deviation, that cells taken as empty are expected to be apart from it
NEARLY_ALL = 0.9  # of a table, that cells above must hold for the others to be taken as empty
MOST_PAIRS = 2  # attributes by which two roles are crossed: age, and sex


class Zeros(NamedTuple):
    """A table, and the cells of it in which a rule leaves nobody."""

    marginal: Marginal
    impossible: NDArray[np.bool_]


def structural_tables(schema: Schema) -> list[Marginal]:
    """The tables that are measured for the roles; none without roles of one person."""
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
    """What roles are compared by: the attributes of rules `below`; without such rules the first number of persons."""
    compared = [rule.attribute for rule in structure.all_rules if isinstance(rule, Below)]
    numbers = [attribute.name for attribute in schema.person if attribute.cuts is not None]
    return list(dict.fromkeys(compared)) or numbers[:1]


def _crossed(schema: Schema, structure: Structure, keys: list[str]) -> list[str]:
    """The key attributes, and those with the fewest values after them."""
    rest = [each for each in schema.person if each.name not in (*keys, structure.attribute) and each.codes > 1]
    return [*keys, *(each.name for each in sorted(rest, key=lambda each: each.codes))][:MOST_PAIRS]


def cleared(schema: Schema, table: Measured) -> Measured:
    """A table of two persons' ages with the cells that noise alone explains taken as empty, if the others hold nearly
    all that it counts; any other table as it is.

    Most pairs of ages do not occur. Chances cannot be negative, so a fit makes up for the noise of such cells with
    couples of any age; what is left after this is nearer to the truth in all cells together, too.
    """
    names = {name for _, name in table.marginal.roles}
    structure = schema.structure
    if structure is None or len(table.marginal.role_names) < 2 or table.marginal.person:
        return table
    if len(names) != 1 or not names <= set(key_attributes(schema, structure)):
        return table
    kept = np.where(table.values < NOISE_BELOW * np.sqrt(table.variance), 0.0, table.values)
    if kept.sum() < NEARLY_ALL * table.values.sum():
        return table
    return Measured(table.marginal, kept, np.where(kept == 0, EMPTY_PART**2, 1.0) * table.variance)


def zero_tables(schema: Schema) -> list[Zeros]:
    """What no household can have: a table for each rule that a product of chances does not keep by itself."""
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
    """The cells that have all of `when` and not all of `then`."""
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
