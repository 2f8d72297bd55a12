"""tallytree: differentially private counts that add up."""

from __future__ import annotations

from importlib import import_module
from typing import Any

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
    "Plan": "privacy",
    "Measurements": "privacy",
    "measure": "privacy",
    "Ledger": "privacy",
    "Release": "publish",
    "release": "publish",
    "resume": "publish",
    "verify": "publish",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tallytree' has no attribute {name!r}")
    return getattr(import_module(f"tallytree.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
