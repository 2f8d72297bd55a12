"""Groups of values: a table with more cells than its noise allows is measured over fewer of them.

The groups follow from noisy one-way tables, so they are post-processing and cost no privacy. The same noisy tables give
the same groups: a resumed run repeats them, and `verify` makes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from math import prod

import numpy as np

from tallytree.core.arrays import Floats, Integers
from tallytree.domain.schema import Marginal, Schema
from tallytree.synthesis.roles import key_attributes
from tallytree.synthesis.table_selection import MEAN_SIZE

FEWEST = 3  # groups that an axis must have for two of them to be merged
NOISE_PART = 0.3  # of what a table counts, that its noise may sum to

OneWay = Mapping[Marginal, Floats]  # noisy one-way tables
Merged = tuple[float, int, int, int]  # the joint share of two groups, the axis, and the two groups


def one_way_tables(table: Marginal) -> list[Marginal]:
    """Return the one-way tables of a table's axes: households by a role's attribute, persons by theirs."""
    return [
        *(Marginal("households", (name,)) for name in table.household),
        *(Marginal("households", roles=(pair,)) for pair in table.roles),
        *(Marginal("persons", (), (name,)) for name in table.person),
    ]


def group_values(schema: Schema, table: Marginal, deviation: Callable[[Marginal], float], one_way: OneWay) -> Marginal:
    """Return the table in as many groups as its noise allows: `deviation` is the noise's standard deviation on one
    count.

    While the noise is expected to sum to too large a part of what the table counts, the two groups with the smallest
    joint share are merged, over all axes. Ordered values are merged with their neighbours only, and a value that names
    a role with none. A table with an axis whose one-way table is not known stays as it is.
    """
    if any(one not in one_way for one in one_way_tables(table)):
        return table
    known = [np.maximum(one_way[one], 0.0) for one in one_way_tables(table)]
    shares = [counts / max(float(counts.sum()), 1.0) for counts in known]
    groups: list[Integers] = [np.arange(len(counts)) for counts in known]
    allowed = NOISE_PART * _counted(table, known)
    found = table
    while MEAN_SIZE * deviation(found) * prod(found.shape(schema)) > allowed:
        candidates = [one for axis in range(len(groups)) for one in _mergers(schema, table, axis, groups[axis], shares)]
        if not candidates:
            break
        _, axis, one, other = min(candidates)
        merged = np.where(groups[axis] == other, one, groups[axis])
        groups[axis] = np.unique(merged, return_inverse=True)[1]
        found = replace(table, groups=tuple(_as_groups(each) for each in groups))
    return found


def _as_groups(groups: Integers) -> tuple[int, ...]:
    """Return the groups of an axis; empty where each value is one of its own."""
    return () if len(set(groups.tolist())) == len(groups) else tuple(groups.tolist())


def _counted(table: Marginal, known: list[Floats]) -> float:
    """Return about how much a table counts: what all of its roles have; of persons, those in none of the roles."""
    first, last = len(table.household), len(table.household) + len(table.roles)
    sums = [float(counts.sum()) for counts in known]
    if table.of == "persons" and table.person:
        return max(0.0, sums[last] - sum(sums[first:last]))
    return min(sums[:last])


def _mergers(schema: Schema, table: Marginal, axis: int, groups: Integers, shares: list[Floats]) -> Iterator[Merged]:
    """Yield the pairs of groups of an axis that may be merged, each with its joint share."""
    number, attribute = int(groups.max()) + 1, schema.attribute(table.attributes[axis])
    if number < FEWEST:
        return
    sums = np.bincount(groups, shares[axis], number)
    fixed = {
        int(groups[attribute.values.index(value)])
        for role in (schema.structure.roles if schema.structure is not None else ())
        if role.attribute == attribute.name
        for value in role.values
    }
    if attribute.missing is not None:
        fixed.add(int(groups[attribute.values.index(attribute.missing)]))
    ordered = attribute.cuts is not None or (
        schema.structure is not None and attribute.name in key_attributes(schema, schema.structure)
    )
    for one, other in combinations(range(number), 2):
        if not {one, other} & fixed and (other == one + 1 or not ordered):
            yield float(sums[one] + sums[other]), axis, one, other
