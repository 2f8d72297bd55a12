"""Made-up private households, and a release of their sizes."""

from __future__ import annotations

import numpy as np

from tallytree import Attribute, Budget, Hierarchy, Schema, one_group, release
from tallytree.tables import GroupSizes, Sealed
from tallytree.tables.households import households_from_codes


def made_up(number=60, name="homes", seed=3):
    """Private households over a small schema: tenure, county; age, sex; at most three persons, some none."""
    generator = np.random.default_rng(seed)
    schema = Schema(
        (Attribute("tenure", ("owned", "rented")), Attribute("county", ("01", "02", "03"))),
        (Attribute("age", ("young", "mid", "old")), Attribute("sex", ("f", "m"))),
        3,
    )
    sizes = generator.integers(0, 4, number)
    homes = {"tenure": generator.integers(0, 2, number), "county": generator.integers(0, 3, number)}
    persons = int(sizes.sum())
    people = {"age": generator.integers(0, 3, persons), "sex": generator.integers(0, 2, persons)}
    return households_from_codes(schema, homes, people, np.repeat(np.arange(number), sizes), number, name=name)


def released_sizes(households, *, public, unit=None, budget=None):
    """A release of the sizes of `made_up` households by county, with public or private totals."""
    codes = households.codes.open_at_the_privacy_border()
    first = 0 if public else 1
    counts = np.zeros((3, 4 - first), np.int64)
    for county, size in zip(codes.household["county"], np.diff(codes.starts), strict=True):
        if size >= first:
            counts[county, size - first] += 1
    tree = Hierarchy.from_levels({"state": ["A", "A", "B"], "county": ["01", "02", "03"]}, ["state", "county"])
    sizes = GroupSizes(
        hierarchy=tree,
        max_size=3,
        counts=Sealed(counts),
        leaf_totals=counts.sum(axis=1) if public else None,
        name=households.name,
    )
    return release(sizes, budget=budget or Budget(rho="0.05"), unit=unit or one_group())
