"""Every table that is measured has a reason, and one that was asked for says so."""

from tallytree.domain.edit_rules import Role, Structure
from tallytree.domain.schema import Attribute, Marginal, Schema
from tallytree.synthesis.table_selection import (
    ASKED,
    CHEAPER,
    FIRST,
    HELPING,
    OTHER,
    PART,
    REASONS,
    ROLES,
    TOTAL,
    MeasurementReasons,
)
from tallytree.synthesis.workload import Workload

SCHEMA = Schema(
    (Attribute("tenure", ("owned", "rented")), Attribute("kind", ("a", "b"))),
    (Attribute("age", ("young", "old"), cuts=(40,)), Attribute("sex", ("f", "m"))),
    3,
    Structure((Role("head", position=1), Role("second", position=2))),
)
ASKED_FOR = Marginal("persons", ("tenure",), ("age", "sex"))


def test_each_reason_is_given_where_it_holds_and_the_workload_comes_first():
    reasons = MeasurementReasons(Workload(SCHEMA, (ASKED_FOR, Marginal("households", ("kind",)))))
    tables = {
        ASKED_FOR: ASKED,
        Marginal("households", ("kind",)): ASKED,
        Marginal("households", ("tenure",)): FIRST,
        Marginal("households", size=True): FIRST,
        Marginal("persons", (), ("sex",)): FIRST,
        Marginal("households"): TOTAL,
        Marginal("persons"): TOTAL,
        Marginal("households", roles=(("head", "age"), ("second", "age"))): ROLES,
        Marginal("persons", ("tenure",), ("age",)): PART,
        Marginal("households", ("tenure",), ("age", "sex")): CHEAPER,
        Marginal("households", (), ("age", "sex")): CHEAPER,
        Marginal("households", ("kind",), size=True): HELPING,
        Marginal("persons", ("kind",), ("sex",)): OTHER,
    }
    assert {table: reasons.why(table) for table in tables} == tables
    assert set(tables.values()) == set(REASONS)
