"""tallytree: differentially private counts that add up."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallytree.errors import BudgetError, DataError, ReleaseError, SpecError, TallytreeError
    from tallytree.hierarchy import Hierarchy
    from tallytree.privacy import (
        Budget,
        Ledger,
        Measurements,
        Neighbours,
        Plan,
        PrivacyUnit,
        measure,
        one_entity,
        one_group,
    )
    from tallytree.privacy.household_unit import HouseholdNeighbours, HouseholdUnit
    from tallytree.publish.answers import Answer
    from tallytree.publish.planning import PlanReport, plan
    from tallytree.publish.prior import Prior
    from tallytree.publish.release import Release, release, resume
    from tallytree.publish.synthesis import Synthesis, synthesize
    from tallytree.publish.verification import verify
    from tallytree.schema import Attribute, Marginal, Schema
    from tallytree.synthesis.workload import Workload
    from tallytree.tables import GroupSizes, read
    from tallytree.tables.codebook import schema_from_codebook, schema_from_sample
    from tallytree.tables.households import Households, read_households

__version__ = "0.1.0"

# Names are loaded when first used, so that `tallytree --help` need not wait for engines and compilers.
_HOME = {
    "Hierarchy": "hierarchy",
    "TallytreeError": "errors",
    "SpecError": "errors",
    "DataError": "errors",
    "BudgetError": "errors",
    "ReleaseError": "errors",
    "GroupSizes": "tables",
    "read": "tables",
    "PrivacyUnit": "privacy",
    "one_entity": "privacy",
    "one_group": "privacy",
    "Budget": "privacy",
    "Neighbours": "privacy",
    "Plan": "privacy",
    "Measurements": "privacy",
    "measure": "privacy",
    "Ledger": "privacy",
    "Answer": "publish",
    "plan": "publish",
    "PlanReport": "publish",
    "Prior": "publish",
    "Release": "publish",
    "release": "publish",
    "resume": "publish",
    "verify": "publish",
    "Attribute": "schema",
    "Marginal": "schema",
    "Schema": "schema",
    "HouseholdNeighbours": "privacy.household_unit",
    "HouseholdUnit": "privacy.household_unit",
    "Households": "tables.households",
    "read_households": "tables.households",
    "schema_from_codebook": "tables.codebook",
    "schema_from_sample": "tables.codebook",
    "Workload": "synthesis.workload",
    "Synthesis": "publish.synthesis",
    "synthesize": "publish.synthesis",
}

__all__ = [
    "Answer",
    "Attribute",
    "Budget",
    "BudgetError",
    "DataError",
    "GroupSizes",
    "Hierarchy",
    "HouseholdNeighbours",
    "HouseholdUnit",
    "Households",
    "Ledger",
    "Marginal",
    "Measurements",
    "Neighbours",
    "Plan",
    "PlanReport",
    "Prior",
    "PrivacyUnit",
    "Release",
    "ReleaseError",
    "Schema",
    "SpecError",
    "Synthesis",
    "TallytreeError",
    "Workload",
    "measure",
    "one_entity",
    "one_group",
    "plan",
    "read",
    "read_households",
    "release",
    "resume",
    "schema_from_codebook",
    "schema_from_sample",
    "synthesize",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tallytree' has no attribute {name!r}")
    return getattr(import_module(f"tallytree.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
