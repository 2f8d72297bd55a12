"""Bounds travel with the counts: private data are measured under the bounds that they were read with."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from tallytree import Budget, Hierarchy, one_entity, read
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Attribute, Schema
from tallytree.mechanisms.budget_allocation import every_level
from tallytree.privacy import Neighbours, measure
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables
from tallytree.tables import GroupSizes
from tallytree.tables.households import Households, read_households

TREE = Hierarchy.from_levels({"county": ["1", "2"]}, ["county"])
LOOSE = Schema((), (Attribute("sex", ("f", "m")),), max_persons=5)
TIGHT = Schema((), (Attribute("sex", ("f", "m")),), max_persons=1)


@pytest.fixture
def sizes():
    table = pa.table({"home": ["a", "a", "b"], "county": ["1", "1", "2"], "adults": [9, 3, 1]})
    options = {"group": "home", "region": "county", "hierarchy": TREE, "max_size": 9}
    return read(table, **options, quantity="adults", quantity_bound=9)


@pytest.fixture
def households():
    homes, persons = pa.table({"home": [1, 2]}), pa.table({"home": [1, 1, 1, 2], "sex": ["f", "m", "f", "m"]})
    return read_households(homes, persons, schema=LOOSE, household_id="home")


def facts(value):
    return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}


def set_around(value, **changes):
    for name, new in changes.items():
        object.__setattr__(value, name, new)
    return value


def set_in_dict(value, **changes):
    vars(value).update(changes)
    return value


def subclass(value, **changes):
    class Forged(type(value)):
        def __post_init__(self):
            pass

    return Forged(**(facts(value) | changes))


def made_without_init(value, **changes):
    forged = object.__new__(type(value))
    for name, new in (facts(value) | changes).items():
        object.__setattr__(forged, name, new)
    return forged


FORGERIES = [
    dataclasses.replace,
    lambda value, **changes: getattr(copy, "replace", dataclasses.replace)(value, **changes),
    lambda value, **changes: type(value)(**(facts(value) | changes)),
    lambda value, **changes: [setattr(value, name, new) for name, new in changes.items()],
    lambda value, **changes: value.__init__(**(facts(value) | changes)),
    lambda value, **changes: SimpleNamespace(**(facts(value) | changes), public_totals=False),
    set_around,
    set_in_dict,
    subclass,
    made_without_init,
]
NAMES = ["replace", "copy.replace", "constructor", "assignment", "init again", "look-alike", "object.__setattr__",
         "dict", "subclass", "object.__new__"]  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES, ids=NAMES)
@pytest.mark.parametrize(
    "changes",
    [{"quantity_bound": 1}, {"max_size": 1}, {"rows_were_bounded": True}, {"leaf_totals": np.array([1, 1])},
     {"name": "other"}],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_group_sizes_cannot_be_measured_under_other_bounds(sizes, forge, changes):
    plan = every_level("at_least", TREE, Budget(epsilon=1), one_entity())
    with pytest.raises((TypeError, AttributeError, SpecError)):
        measure(forge(sizes, **changes), plan)


@pytest.mark.parametrize("forge", FORGERIES, ids=NAMES)
@pytest.mark.parametrize("changes", [{"schema": TIGHT}, {"oversize": "drop"}, {"name": "other"}], ids=str)
def test_households_cannot_be_measured_under_other_bounds(households, forge, changes):
    neighbours = HouseholdNeighbours(PrivacyUnit("one_group"), changes.get("schema", LOOSE).max_persons)
    with pytest.raises((TypeError, AttributeError)):
        PrivateTables(forge(households, **changes), neighbours, Budget(rho=1))


def test_what_was_read_can_be_measured(sizes, households):
    assert Neighbours.of(sizes, one_entity()).quantity_bound == 9
    PrivateTables(households, HouseholdNeighbours(PrivacyUnit("one_group"), 5), Budget(rho=1)).close()
    assert (type(sizes), type(households)) == (GroupSizes, Households)
