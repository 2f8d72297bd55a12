"""Every sensitivity of household tables against all small neighbouring data sets."""

from itertools import combinations, product

import numpy as np
import pytest

from tallytree import Budget, BudgetError, Ledger, one_entity
from tallytree.core.errors import SpecError
from tallytree.domain.schema import Marginal
from tallytree.privacy import Neighbours, Sensitivity
from tallytree.privacy.ledger import Expense
from tallytree.privacy.neighbours import HouseholdNeighbours, PrivacyUnit
from tallytree.privacy.relations import describe_relation, households_from_json, relation_to_json
from tests.oracles.households import count, neighbouring_households, schema_of

UNITS = ["one_group", "one_group_added_or_removed", "one_person_attributes"]
# Every kind of table: of households or persons; with or without size, household attributes and person attributes.
TABLES = [
    Marginal(of, home, person, size)
    for of, home, person, size in product(["households", "persons"], [(), ("h",)], [(), ("p",)], [False, True])
]


def changes(table, schema, unit):
    """How each cell changes between neighbours, one row per pair; rows that repeat are left out."""
    cache = {}

    def counted(data):
        if data not in cache:
            cache[data] = count(data, table, schema).ravel()
        return cache[data]

    found = {tuple(counted(one) - counted(other)) for one, other in neighbouring_households(schema, unit)}
    return np.array(sorted(found))


def largest(rows):
    return Sensitivity(int(np.abs(rows).sum(axis=1).max()), int((rows**2).sum(axis=1).max()))


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.describe())
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_sensitivities_are_exact_where_attributes_have_many_values(table, unit, most):
    schema = schema_of({"h": 2}, {"p": 2 * most}, most)
    neighbours = HouseholdNeighbours(PrivacyUnit(unit), most)
    true = largest(changes(table, schema, unit))
    assert neighbours.sensitivity(table, schema) == true
    assert neighbours.sensitivity(table, schema_of({"h": 50}, {"p": 50}, most)) == true


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.describe())
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_sensitivities_are_exact_where_attributes_have_few_values(table, unit, most):
    neighbours = HouseholdNeighbours(PrivacyUnit(unit), most)
    most_values = neighbours.sensitivity(table, schema_of({"h": 2}, {"p": 2 * most}, most))
    for homes, people in product([1, 2, 3], [1, 2, 3, 4]):
        schema = schema_of({"h": homes}, {"p": people}, most)
        true = largest(changes(table, schema, unit))
        assert neighbours.sensitivity(table, schema) == true, (homes, people)
        assert most_values.l1 >= true.l1
        assert most_values.l2_squared >= true.l2_squared


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.describe())
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("most", [1, 2, 3])
def test_any_cells_change_by_no_more_than_is_said_and_the_worst_by_as_much(table, unit, most):
    schema = schema_of({"h": 2}, {"p": 3}, most)
    neighbours = HouseholdNeighbours(PrivacyUnit(unit), most)
    rows = changes(table, schema, unit)
    for number in (1, 2, 3):
        if number > rows.shape[1]:
            continue
        worst = [0, 0]
        for cells in combinations(range(rows.shape[1]), number):
            part = largest(rows[:, list(cells)])
            worst = [max(worst[0], part.l1), max(worst[1], part.l2_squared)]
        said = neighbours.cells_sensitivity(table, number, schema)
        assert worst[0] <= said.l1
        assert worst[1] <= said.l2_squared
        if number == 1 and rows.shape[1] > 1:
            assert [said.l1, said.l2_squared] == worst


@pytest.mark.parametrize("unit", UNITS)
def test_a_selection_on_neighbours_is_as_private_as_it_costs(unit):
    """Scores of all tables and of all cells on all neighbours of a small data set, and the divergence that follows."""
    schema, common = schema_of({"h": 2}, {"p": 2}, 2), (((0,), ((1,),)), ((1,), ()))
    neighbours = HouseholdNeighbours(PrivacyUnit(unit), 2)
    tables = [table for table in TABLES if neighbours.sensitivity(table, schema).l1]
    generator = np.random.default_rng(3)
    guesses = [generator.integers(-1, 4, table.shape(schema)) for table in tables]
    epsilon, worst = 3.0, 0.0
    for one, other in neighbouring_households(schema, unit):
        exponents = {"table": [], "cell": []}
        for data in (one, other):
            gaps = [
                np.abs(count((*common, *data), table, schema) - guess)
                for table, guess in zip(tables, guesses, strict=True)
            ]
            whole = [
                gap.sum() / neighbours.sensitivity(table, schema).l1 for gap, table in zip(gaps, tables, strict=True)
            ]
            cells = [
                gap.ravel() / neighbours.cells_sensitivity(table, 1, schema).l1
                for gap, table in zip(gaps, tables, strict=True)
            ]
            exponents["table"].append(epsilon / 2 * np.array(whole))
            exponents["cell"].append(epsilon / 2 * np.concatenate(cells))
        for pair in exponents.values():
            p, q = (each - np.logaddexp.reduce(each) for each in pair)  # logarithms of the probabilities
            for order in (1.1, 2.0, 8.0, 50.0):
                divergence = np.logaddexp.reduce(order * p + (1 - order) * q) / (order - 1)
                assert divergence <= order * epsilon**2 / 8 + 1e-12
                worst = max(worst, divergence / (order * epsilon**2 / 8))
    assert worst > 0.05


def test_the_table_of_sensitivities():
    plain, containing, persons = (
        Marginal("households", ("h",)),
        Marginal("households", ("h",), ("p",)),
        Marginal("persons", ("h",), ("p",)),
    )
    table = {
        "one_group": [(2, 2), (14, 14), (14, 98)],
        "one_group_added_or_removed": [(1, 1), (7, 7), (7, 49)],
        "one_person_attributes": [(0, 0), (2, 2), (2, 2)],
    }
    for unit, expected in table.items():
        neighbours, schema = HouseholdNeighbours(PrivacyUnit(unit), 7), schema_of({"h": 2}, {"p": 14}, 7)
        assert [neighbours.sensitivity(each, schema) for each in (plain, containing, persons)] == [
            Sensitivity(*pair) for pair in expected
        ]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.describe())
@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_household_replaced_covers_a_person_who_comes_goes_or_changes(table, most):
    schema = schema_of({"h": 2}, {"p": 3}, most)
    said = HouseholdNeighbours(PrivacyUnit("one_group"), most).sensitivity(table, schema)
    pairs = set(neighbouring_households(schema, "one_group"))
    for one, other in neighbouring_households(schema, "one_person_attributes"):
        assert (one, tuple((home, tuple(sorted(members))) for home, members in other)) in pairs
    for ((home, members),) in {one for one, _ in pairs}:
        for place in range(len(members)):
            fewer = ((home, (*members[:place], *members[place + 1 :])),)
            assert (((home, members),), fewer) in pairs
            change = np.abs(count(((home, members),), table, schema) - count(fewer, table, schema))
            assert change.sum() <= said.l1
            assert (change**2).sum() <= said.l2_squared


@pytest.mark.parametrize("unit", UNITS)
def test_what_is_public_and_what_is_not_is_said(unit):
    neighbours = HouseholdNeighbours(PrivacyUnit(unit), 4)
    assert neighbours.number_is_public == (
        neighbours.sensitivity(Marginal("households"), schema_of({"h": 2}, {"p": 2}, 4)).l1 == 0
    )
    assert households_from_json(relation_to_json(neighbours)) == neighbours
    words = describe_relation(neighbours)
    assert "at most 4 persons" in words
    assert ("NOT protected" in words) == (unit == "one_person_attributes")
    assert ("number of households is private" in words) == (unit == "one_group_added_or_removed")


def test_nonsense_is_refused():
    with pytest.raises(SpecError, match="unknown privacy unit"):
        PrivacyUnit("one_street")
    with pytest.raises(SpecError, match="integer of at least 1"):
        HouseholdNeighbours(PrivacyUnit("one_group"), 0)
    neighbours = HouseholdNeighbours(PrivacyUnit("one_group"), 2)
    with pytest.raises(SpecError, match="they must agree"):
        neighbours.sensitivity(Marginal("households", ("h",)), schema_of({"h": 2}, {"p": 2}, 3))
    with pytest.raises(SpecError, match="at least one cell"):
        neighbours.cells_sensitivity(Marginal("households", ("h",)), 0, schema_of({"h": 2}, {"p": 2}, 2))


def test_a_ledger_holds_either_kind_of_relation(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    people = Neighbours(one_entity(), max_size=5, public_totals=False)
    homes = HouseholdNeighbours(PrivacyUnit("one_group"), 5)
    ledger.open("people", Budget(rho=1), people)
    ledger.open("homes", Budget(rho=1), homes)
    kept = [account.neighbours for account in ledger.accounts()]
    assert [[one == other for other in (homes, people)] for one in kept] == [[True, False], [False, True]]
    assert [describe_relation(one) for one in kept] == [describe_relation(homes), describe_relation(people)]
    with pytest.raises(BudgetError, match="another neighbour relation"):
        ledger.reserve(Expense("people", Budget(rho="0.1"), homes))
