"""Private households with the regions of all levels as attributes, which follow from their leaf region.

Then a table by the regions of any level is a table of the schema, is measured like any other, and its sensitivity is
the one that is proved in `HouseholdNeighbours.sensitivity`.

*The added attributes change no promise.* Which region of an upper level a leaf lies in is public and fixed, so the
added values are a function of the household's own region. Adding them works on each household by itself: households
that are replaced, added or removed stay that, and a household whose persons change keeps all it had. So neighbours
without the added attributes are neighbours with them, under every unit, and a bound for all pairs of neighbours holds
for these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tallytree.core.arrays import Integers
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Attribute, Schema
from tallytree.tables.contingency import code_type
from tallytree.tables.guard import from_outside
from tallytree.tables.households import Households
from tallytree.tables.sealed import Sealed, check_unaltered


def longer_schema(schema: Schema, added: Mapping[Attribute, Integers]) -> Schema:
    """The schema with further attributes of households at the end."""
    return replace(schema, household=(*schema.household, *added))


@from_outside("Adding the regions of upper levels")
def with_levels(households: Households, region: str, added: Mapping[Attribute, Integers]) -> Households:
    """Households with further attributes: for each, its code by the code of the household's `region`."""
    check_unaltered(households, Households)
    leaves = households.schema.attribute(region).codes
    for attribute, of_leaf in added.items():
        if of_leaf.shape != (leaves,) or of_leaf.min() < 0 or of_leaf.max() >= attribute.codes:
            raise SpecError(f"{attribute.name!r} needs one of its codes for each of the {leaves:,} leaf regions")
    codes = households.codes.open_at_the_privacy_border()
    columns = {
        attribute.name: of_leaf.astype(code_type(attribute.codes))[codes.household[region]]
        for attribute, of_leaf in added.items()
    }
    schema = longer_schema(households.schema, added)
    longer = replace(codes, schema=schema, household={**codes.household, **columns})
    return replace(households, schema=schema, codes=Sealed(longer))
