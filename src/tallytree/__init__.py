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
    from tallytree.publish.release import Release, release, resume
    from tallytree.publish.verification import verify
    from tallytree.tables import GroupSizes, read

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
    "Release": "publish",
    "release": "publish",
    "resume": "publish",
    "verify": "publish",
}

__all__ = [
    "Budget",
    "BudgetError",
    "DataError",
    "GroupSizes",
    "Hierarchy",
    "Ledger",
    "Measurements",
    "Neighbours",
    "Plan",
    "PrivacyUnit",
    "Release",
    "ReleaseError",
    "SpecError",
    "TallytreeError",
    "measure",
    "one_entity",
    "one_group",
    "read",
    "release",
    "resume",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tallytree' has no attribute {name!r}")
    return getattr(import_module(f"tallytree.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
