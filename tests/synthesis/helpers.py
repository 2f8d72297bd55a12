"""Small schemas, and every table over them."""

from __future__ import annotations

from itertools import combinations

from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.synthesis.workload import Workload


def schema_of(household, person, max_persons):
    """A schema with attributes h0, h1, … and p0, p1, … of so many codes."""

    def attributes(letter, lengths):
        return tuple(
            Attribute(f"{letter}{place}", tuple(str(code) for code in range(length)))
            for place, length in enumerate(lengths)
        )

    return Schema(attributes("h", household), attributes("p", person), max_persons)


def every_table(schema):
    """Tables of households and of persons over all attribute sets, with and without the number of persons."""

    def subsets(attributes):
        names = [attribute.name for attribute in attributes]
        return [chosen for number in range(len(names) + 1) for chosen in combinations(names, number)]

    return Workload(
        schema,
        tuple(
            Marginal(of, homes, people, size)
            for of in ("households", "persons")
            for homes in subsets(schema.household)
            for people in subsets(schema.person)
            for size in (False, True)
        ),
    )
