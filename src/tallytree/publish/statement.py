"""Wording that the statements and data packages of releases and of synthetic households share."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallytree.core.errors import ReleaseError
from tallytree.core.progress import Progress
from tallytree.privacy.budget import Budget, as_decimal, epsilon_of
from tallytree.publish.folder import PRIVACY
from tallytree.publish.untrusted import read_json
from tallytree.version import VERSION

SOURCES = {
    "tallytree": "tallytree's exact samplers on ChaCha20 keystreams keyed by the operating system",
    "opendp": "OpenDP's exact samplers",
}
LEDGER = "charged to a ledger"
NO_LEDGER = "none: tallytree did not check what else was released about these data; other releases add to the cost"


@dataclass(frozen=True)
class Assumption:
    """A statement in a folder's files that the files alone cannot prove: where it is, and what it says."""

    place: str  # a file, and a path in it
    what: str


class StoredFiles:
    """A folder that `verify` reads, and its privacy statement."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        self.folder, self.progress = folder, progress
        self.statement: dict[str, Any] = read_json(folder / PRIVACY)

    @property
    def same_software(self) -> bool:
        """Return whether the same versions on the same platform wrote the files. Then all bytes must be equal."""
        return bool(self.statement["software"] == software())


def noise_in_words(source: str) -> str:
    """Return where the noise came from; raise a ReleaseError for noise that protects nothing."""
    if source not in SOURCES:
        raise ReleaseError(
            f"the noise of these measurements came from {source!r}, which protects nothing: it is for experiments and "
            f"cannot be saved as a release. Releases have noise from {' or '.join(map(repr, SOURCES))}."
        )
    return SOURCES[source]


def guarantee(budget: Budget) -> str:
    """Return the kind and strength of the guarantee, with amounts rounded up."""
    if budget.currency == "epsilon":
        return f"differentially private with ε = {as_decimal(budget.amount)}"
    text = f"zero-concentrated differentially private with ρ = {as_decimal(budget.amount)}"
    if budget.is_accounted and budget.epsilon is not None and budget.delta is not None:
        return (
            f"(ε, δ)-differentially private with ε = {as_decimal(budget.epsilon)} at δ = {as_decimal(budget.delta)} "
            f"(its Gaussian noise is accounted for exactly), and {text}"
        )
    if budget.delta is not None:
        epsilon = budget.epsilon if budget.epsilon is not None else epsilon_of(budget.amount, budget.delta)
        text += (
            f", hence (ε, δ)-differentially private with ε = {as_decimal(epsilon)} at δ = {as_decimal(budget.delta)}"
        )
    return text


def same_data_in_words(names: Sequence[str]) -> str:
    """Return what a reader must know if the same data were charged to other accounts too; empty otherwise."""
    if not names:
        return ""
    several = "s" if len(names) > 1 else ""
    listed = ", ".join(repr(name) for name in names)
    return (
        f" The same data are charged to the ledger's account{several} {listed} as well: what is released from all of "
        "these accounts adds up."
    )


def resource(path: str, described: dict[str, Any]) -> dict[str, Any]:
    """Return a file's entry in a data package, with its description and optional schema."""
    stem, kind = path.split(".")
    media = {"mediatype": "text/csv"} if kind == "csv" else {}
    return {"name": stem, "path": path, "format": kind, **media, **described}


def software() -> dict[str, str]:
    """Return the software versions and platform for a statement."""
    versions = {name: version(name) for name in ("numpy", "numba", "pyarrow")}
    where = f"{platform.system()} {platform.machine()}"
    return {"tallytree": VERSION, "python": platform.python_version(), **versions, "platform": where}
