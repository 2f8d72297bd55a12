"""Tables by role: counted as defined, and no neighbour moves them by more than is said, under any unit."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pyarrow as pa
import pytest

from tallytree import Budget
from tallytree.core.errors import SpecError
from tallytree.domain.edit_rules import Role, Structure
from tallytree.domain.schema import Marginal
from tallytree.privacy import Sensitivity
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.private_tables import PrivateTables
from tallytree.tables.contingency import grouped, marginal_counts
from tallytree.tables.households import read_households
from tests.oracles.households import all_households, count, neighbouring_households, schema_of

UNITS = ["one_group", "one_group_added_or_removed", "one_person_attributes"]
BY_PLACE = Structure((Role("head", position=1), Role("second", position=2, household={"h": "1"})))
BY_VALUE = Structure(
    (
        Role("head", "exactly one", attribute="p", values=("0",)),
        Role("second", "at most one", attribute="p", values=("1",)),
    )
)
TABLES = [
    Marginal(of, home, person, size, roles)
    for of, home, person, size, roles in product(
        ["households", "persons"],
        [(), ("h",)],
        [(), ("p",)],
        [False, True],
        [(("head", "p"),), (("second", "p"),), (("head", "p"), ("second", "p"))],
    )
]
TWO_OF_THREE = (0, 0, 1)  # the first two of three values are one group
GROUPED = [
    Marginal(of, home, person, size, roles, groups=(((),) * len(home)) + (TWO_OF_THREE,) * (len(roles) + len(person)))
    for of, home, person, size, roles in product(
        ["households", "persons"],
        [(), ("h",)],
        [(), ("p",)],
        [False, True],
        [(), (("head", "p"),), (("head", "p"), ("second", "p"))],
    )
    if roles or person
]


def changes(table, schema, unit):
    cache = {}

    def counted(data):
        if data not in cache:
            cache[data] = count(data, table, schema).ravel()
        return cache[data]

    return np.array(
        sorted({tuple(counted(one) - counted(other)) for one, other in neighbouring_households(schema, unit)})
    )


def largest(rows):
    return Sensitivity(int(np.abs(rows).sum(axis=1).max()), int((rows**2).sum(axis=1).max()))


def schema_with(structure, homes, people, most):
    return replace(schema_of({"h": homes}, {"p": people}, most), structure=structure)


CASES = [(BY_PLACE, unit) for unit in UNITS] + [(BY_VALUE, unit) for unit in UNITS[:2]]


@pytest.mark.parametrize(("structure", "unit"), CASES, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.describe())
def test_no_neighbour_moves_a_table_by_more_than_is_said(table, structure, unit):
    reached = []
    for homes, people, most in [(2, 2, 2), (2, 3, 2), (2, 2, 3)]:
        if len(table.role_names) == most and (table.of == "persons" or table.person):
            continue
        schema = schema_with(structure, homes, people, most)
        neighbours = HouseholdNeighbours(PrivacyUnit(unit), most)
        rows = changes(table, schema, unit)
        true, said = largest(rows), neighbours.sensitivity(table, schema)
        assert true.l1 <= said.l1
        assert true.l2_squared <= said.l2_squared
        reached.append(true == said)
        for number in (1, 2):
            part = neighbours.cells_sensitivity(table, number, schema)
            for cells in list(combinations(range(rows.shape[1]), number))[:40]:
                worst = largest(rows[:, list(cells)])
                assert worst.l1 <= part.l1
                assert worst.l2_squared <= part.l2_squared
    if structure is BY_PLACE and not table.person:
        assert any(reached), "the bound is reached where values are many enough"


@pytest.mark.parametrize(("structure", "unit"), CASES, ids=lambda value: value if isinstance(value, str) else "")
@pytest.mark.parametrize("table", GROUPED, ids=lambda table: table.describe())
def test_no_neighbour_moves_a_table_in_groups_by_more_than_is_said(table, structure, unit):
    if len(table.role_names) == 2 and (table.of == "persons" or table.person):
        return
    schema = schema_with(structure, 2, 3, 2)
    neighbours = HouseholdNeighbours(PrivacyUnit(unit), 2)
    rows = changes(table, schema, unit)
    true, said = largest(rows), neighbours.sensitivity(table, schema)
    assert true.l1 <= said.l1
    assert true.l2_squared <= said.l2_squared
    if not table.roles:
        assert true == said
    for cells in combinations(range(rows.shape[1]), 2):
        part, worst = neighbours.cells_sensitivity(table, 2, schema), largest(rows[:, list(cells)])
        assert worst.l1 <= part.l1
        assert worst.l2_squared <= part.l2_squared


@pytest.mark.parametrize("structure", [BY_PLACE, BY_VALUE], ids=["by place", "by value"])
def test_tables_are_counted_as_they_are_defined(structure):
    schema = schema_with(structure, 2, 3, 3)
    generator = np.random.default_rng(5)
    every = all_households(schema, ordered=True)
    data = tuple(every[place] for place in generator.integers(0, len(every), 60))
    home = np.array([number for number, (_, members) in enumerate(data) for _ in members])
    household = {"h": np.array([attributes[0] for attributes, _ in data])}
    person = {"p": np.array([member[0] for _, members in data for member in members])}
    codes = grouped(schema, household, person, home, len(data))
    for table in [*TABLES, *GROUPED]:
        assert np.array_equal(marginal_counts(codes, table), count(data, table, schema)), table.describe()


def test_a_person_who_could_change_the_roles_of_others_is_not_hidden_by_pretending():
    schema = schema_with(BY_VALUE, 2, 3, 2)
    neighbours = HouseholdNeighbours(PrivacyUnit("one_person_attributes"), 2)
    with pytest.raises(SpecError, match="one person who changes it could change the roles of others"):
        neighbours.sensitivity(TABLES[0], schema)
    tables = pa.table({"home": [1], "h": ["0"]}), pa.table({"home": [1], "p": ["0"]})
    PrivateTables(read_households(*tables, schema=schema, household_id="home"), neighbours, Budget(rho=1)).close()
    cut = read_households(*tables, schema=schema, household_id="home", oversize="drop")
    with pytest.raises(SpecError, match="could change who else is kept"):
        PrivateTables(cut, neighbours, Budget(rho=1))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (Marginal("households", roles=(("uncle", "p"),)), "there is no role 'uncle'; there are head, second"),
        (Marginal("households", roles=(("head", "q"),)), "persons have no attribute 'q'"),
        (Marginal("persons", roles=(("head", "p"), ("second", "p"))), "counts nobody"),
    ],
)
def test_tables_of_roles_that_are_not_there_are_refused(table, message):
    with pytest.raises(SpecError, match=message):
        table.check(schema_with(BY_PLACE, 2, 2, 2))
