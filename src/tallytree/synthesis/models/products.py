"""Answers of a mixture of product distributions (HQR, Section 4.2, Equation 1): whole tables, and single cells.

A component draws the number of persons, each household attribute and each attribute of each person independently;
person j of a household is drawn from the component's j-th person. So, within a component,

- the household values of a cell have the product of their chances, one row of the `outer` product;
- person j has the person values of a cell with a chance p_j that is a product as well;
- Σ_m P(m persons) · (1 − Π_{j≤m} (1 − p_j)) is the chance that somebody has them (`containing` has it compiled);
- Σ_j P(at least j persons) · p_j is the expected number of persons who have them: `numbering`.

A table is then one matrix product over components. Only operators are used, so that the same code runs on NumPy
arrays (answers in double precision, nothing to compile) and inside JAX (gradients).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from tallytree.domain.schema import Counted

Array = Any  # of NumPy or of JAX


class Tables(NamedTuple):
    """The chances that a table needs: its own attributes only, in its order.

    `weights` [components], `sizes` [components, 0 … most persons], `household` of [components, codes] each, and
    `person` of [components, most persons, codes] each.
    """

    weights: Array
    sizes: Array
    household: tuple[Array, ...]
    person: tuple[Array, ...]


def answers(of: Counted, by_size: bool, tables: Tables) -> Array:
    """The expected counts per household, with the table's axes: size if asked for, household, person."""
    weights, sizes, household, person = tables
    if not person:
        if by_size:
            return _contracted(
                weights, [sizes if of == "households" else by_each_size(of, sizes, ())[:, :, 0], *household]
            )
        return _contracted(weights * by_component(of, sizes, ())[:, 0], household)
    if of == "persons" and not household and not by_size:
        return _contracted_over_persons(tables)
    homes = weighted_households(weights, household)
    shape = (*(table.shape[-1] for table in household), *(table.shape[-1] for table in person))
    if by_size:
        rates = by_each_size(of, sizes, person)
        joined = rates.__array_namespace__().stack([homes.T @ rates[:, size] for size in range(sizes.shape[1])])
        return joined.reshape(sizes.shape[1], *shape)
    return (homes.T @ by_component(of, sizes, person)).reshape(shape)


def weighted_households(weights: Array, household: Sequence[Array]) -> Array:
    """[components, household cells]: the component's weight times its chance of the cell."""
    return outer([weights[:, None], *household])


def by_component(of: Counted, sizes: Array, person: Sequence[Array]) -> Array:
    """[components, person cells]: the chance that somebody has a cell's values, or the number of persons expected to.

    Without person attributes there is one cell, which every person has.
    """
    if of == "persons":
        return numbering(sizes, _persons(sizes, person))
    return by_each_size(of, sizes, person).sum(axis=1) if person else sizes.sum(axis=1, keepdims=True)


def by_each_size(of: Counted, sizes: Array, person: Sequence[Array]) -> Array:
    """[components, sizes, person cells]: `by_component`, jointly with each number of persons."""
    chances = _persons(sizes, person)
    nothing = chances[:, 0] * 0
    rates, nobody = [nothing], nothing + 1
    for place in range(chances.shape[1]):
        if of == "persons":
            rates.append(rates[-1] + chances[:, place])
        else:
            nobody = nobody * (1 - chances[:, place])
            rates.append(1 - nobody)
    return rates[0].__array_namespace__().stack(rates, axis=1) * sizes[:, :, None]


def numbering(sizes: Array, chances: Array) -> Array:
    """Σ_j P(at least j persons) · p_j, from the chances p [components, persons, cells]."""
    there = present(sizes)
    total = there[:, 0, None] * chances[:, 0]
    for place in range(1, chances.shape[1]):
        total = total + there[:, place, None] * chances[:, place]
    return total


def present(sizes: Array) -> Array:
    """[components, persons]: P(at least j persons), j = 1 … most."""
    return sizes[:, :0:-1].cumsum(axis=1)[:, ::-1]


def outer(tables: Sequence[Array]) -> Array:
    """[…, cells]: products over all combinations of codes, the last table's codes running fastest."""
    product = tables[0]
    for table in tables[1:]:
        product = (product[..., :, None] * table[..., None, :]).reshape(*product.shape[:-1], -1)
    return product


def _persons(sizes: Array, person: Sequence[Array]) -> Array:
    if person:
        return outer(person)
    return (sizes[:, 1:] * 0 + 1)[:, :, None]


def _contracted_over_persons(tables: Tables) -> Array:
    """The number of persons by their own attributes: a sum over components and places, a row for each."""
    rows = (tables.weights[:, None] * present(tables.sizes)).reshape(-1)
    return _contracted(rows, [table.reshape(-1, table.shape[-1]) for table in tables.person])


def _contracted(weights: Array, tables: Sequence[Array]) -> Array:
    """Σ_rows weight · Π tables, as one matrix product of two halves: the whole outer product is never built."""
    shape = tuple(table.shape[1] for table in tables)
    cuts = range(len(tables) + 1)
    cut = min(cuts, key=lambda cut: prod(shape[:cut]) + prod(shape[cut:]))
    left = outer([weights[:, None], *tables[:cut]])
    right = outer([weights[:, None] * 0 + 1, *tables[cut:]])
    return (left.T @ right).reshape(shape)
