"""What releases and synthetic households say of themselves in the same words, in their statements and data packages."""

from __future__ import annotations

import platform
from typing import Any

from tallytree.privacy.budget import Budget, as_decimal, epsilon_of
from tallytree.version import VERSION

FORMAT = 1
SOURCES = {
    "tallytree": "tallytree's exact samplers on ChaCha20 keystreams keyed by the operating system",
    "opendp": "OpenDP's exact samplers",
}
LEDGER = "charged to a ledger"
NO_LEDGER = "none: what else was released about these data was not checked, and adds to the cost"


def guarantee(budget: Budget) -> str:
    """The kind and strength of the promise."""
    if budget.currency == "epsilon":
        return f"differentially private with ε = {as_decimal(budget.amount)}"
    text = f"zero-concentrated differentially private with ρ = {as_decimal(budget.amount)}"
    if budget.delta is not None:
        epsilon = budget.epsilon if budget.epsilon is not None else epsilon_of(budget.amount, budget.delta)
        text += (
            f", hence (ε, δ)-differentially private with ε = {as_decimal(epsilon)} at δ = {as_decimal(budget.delta)}"
        )
    return text


def resource(path: str, described: dict[str, Any], *, name: str | None = None) -> dict[str, Any]:
    """A file as a data package lists it, with its description and perhaps its schema."""
    stem, kind = path.split(".")
    media = {"mediatype": "text/csv"} if kind == "csv" else {}
    return {"name": name or stem, "path": path, "format": kind, **media, **described}


def software() -> dict[str, str]:
    """What the statement was made with."""
    return {"tallytree": VERSION, "python": platform.python_version()}
