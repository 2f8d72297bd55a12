"""Synthetic households: what to ask, models that answer it, and microdata drawn from them. All of it is public."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallytree.synthesis.models.histogram import Histogram
    from tallytree.synthesis.models.mixture import Mixture
    from tallytree.synthesis.models.model import Measured, MeasuredCell
    from tallytree.synthesis.models.network import Generator
    from tallytree.synthesis.models.sampling import draw
    from tallytree.synthesis.workload import Workload

# Loaded when first used: fitting needs an engine that takes a while to load.
_HOME = {
    "Generator": "models.network",
    "Histogram": "models.histogram",
    "Measured": "models.model",
    "MeasuredCell": "models.model",
    "Mixture": "models.mixture",
    "Workload": "workload",
    "draw": "models.sampling",
}

__all__ = ["Generator", "Histogram", "Measured", "MeasuredCell", "Mixture", "Workload", "draw"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'tallytree.synthesis' has no attribute {name!r}")
    return getattr(import_module(f"tallytree.synthesis.{_HOME[name]}"), name)
