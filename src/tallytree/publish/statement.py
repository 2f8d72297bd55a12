"""What releases and synthetic households say of themselves in the same words, in their statements and data packages."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tallytree.core.errors import ReleaseError
from tallytree.privacy.budget import Budget, as_decimal, epsilon_of
from tallytree.version import VERSION

FORMAT = 2  # 1: amounts were rounded to the nearest decimal
SOURCES = {
    "tallytree": "tallytree's exact samplers on ChaCha20 keystreams keyed by the operating system",
    "opendp": "OpenDP's exact samplers",
}
LEDGER = "charged to a ledger"
NO_LEDGER = "none: what else was released about these data was not checked, and adds to the cost"


@dataclass(frozen=True)
class Unchecked:
    """Something that a release says and that its files do not tell the truth of: where it is said, and what it is."""

    place: str  # a file, and a path in it
    what: str


def noise_in_words(source: str) -> str:
    """Where the noise came from; a ReleaseError for noise that hides nothing."""
    if source not in SOURCES:
        raise ReleaseError(
            f"the noise of these measurements came from {source!r}, which hides nothing: it is for experiments, and "
            f"cannot be saved as a release. Releases have noise from {' or '.join(map(repr, SOURCES))}."
        )
    return SOURCES[source]


def guarantee(budget: Budget, shown: Callable[[Fraction], str] = as_decimal) -> str:
    """The kind and strength of the promise, with amounts rounded up (or as `shown` does, for older statements)."""
    if budget.currency == "epsilon":
        return f"differentially private with ε = {shown(budget.amount)}"
    text = f"zero-concentrated differentially private with ρ = {shown(budget.amount)}"
    if budget.delta is not None:
        epsilon = budget.epsilon if budget.epsilon is not None else epsilon_of(budget.amount, budget.delta)
        text += f", hence (ε, δ)-differentially private with ε = {shown(epsilon)} at δ = {shown(budget.delta)}"
    return text


def shown_in(statement: dict[str, Any]) -> Callable[[Fraction], str]:
    """How a stored statement writes amounts: up, but for those of format 1, which wrote the nearest six digits."""
    return as_decimal if statement["format"] != 1 else lambda value: f"{float(value):.6g}"


def same_data_in_words(names: Sequence[str]) -> str:
    """What a reader must know where the same data were charged to other accounts as well; nothing for most."""
    if not names:
        return ""
    several = "s" if len(names) > 1 else ""
    listed = ", ".join(repr(name) for name in names)
    return (
        f" The same data are charged to the ledger's account{several} {listed} as well: what is released from all of "
        "these accounts adds up."
    )


def resource(path: str, described: dict[str, Any], *, name: str | None = None) -> dict[str, Any]:
    """A file as a data package lists it, with its description and perhaps its schema."""
    stem, kind = path.split(".")
    media = {"mediatype": "text/csv"} if kind == "csv" else {}
    return {"name": name or stem, "path": path, "format": kind, **media, **described}


def software() -> dict[str, str]:
    """What the statement was made with."""
    return {"tallytree": VERSION, "python": platform.python_version()}
