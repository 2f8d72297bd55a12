"""NOT PRIVATE, or for comparison only: made-up data, comparisons with the truth, and rival mechanisms."""

from __future__ import annotations

from importlib import import_module
from typing import Any

# Loaded on first use: the command imports this package only for its options.
_HOME = {"compare": "runner", "Results": "results", "Truth": "truth"}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tallytree.lab' has no attribute {name!r}")
    return getattr(import_module(f"tallytree.lab.{_HOME[name]}"), name)
