"""`verify`: recompute everything that a directory promises, from its files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from tallytree.arguments import PATH, TEXT, expecting, optional
from tallytree.errors import ReleaseError
from tallytree.notebook import page, quoted, table
from tallytree.publish.folder import MANIFEST, UNUSABLE, Stored, digest, reason
from tallytree.publish.release import verification as release

MOST_FAULTS_SHOWN = 3  # of one promise, in a notebook


@dataclass(frozen=True)
class Check:
    """One promise, and what was found against it; nothing if it holds."""

    promise: str
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """The outcome of `verify`."""

    checks: tuple[Check, ...]
    release_id: str | None

    @property
    def ok(self) -> bool:
        """Do all promises hold?"""
        return all(not check.faults for check in self.checks)

    @property
    def faults(self) -> tuple[str, ...]:
        """Everything that was found."""
        return tuple(fault for check in self.checks for fault in check.faults)

    def __repr__(self) -> str:
        broken = sum(bool(check.faults) for check in self.checks)
        told = f"{broken} of {len(self.checks)} promises broken" if broken else f"all {len(self.checks)} promises kept"
        first = "".join(f", first: {quoted(fault)}" for fault in self.faults[:1])
        return f"Verification({told}{first}, {'no id' if self.release_id is None else f'id {self.release_id[:16]}'})"

    def _repr_html_(self) -> str:
        rows = [
            ("✗" if check.faults else "✓", check.promise, "; ".join(check.faults[:MOST_FAULTS_SHOWN]))
            for check in sorted(self.checks, key=lambda check: not check.faults)
        ]
        verdict = (
            "The release keeps all its promises."
            if self.ok
            else f"{len(self.faults)} faults were found: do not use this release."
        )
        facts = {"id": self.release_id or "none"}
        return page(verdict, facts, table(("", "promise", "found against it"), rows, rest="checks has all of them"))


@expecting(directory=PATH, id=optional(TEXT))
def verify(directory: str | PathLike[str], *, id: str | None = None) -> Verification:  # noqa: A002
    """Check the directory of a release or of synthetic households; with `id`, also that it is that very one."""
    folder = Path(directory)
    if not folder.is_dir():
        raise ReleaseError(f"there is no release directory at {folder}")
    stored, promises = _stored(folder)
    checks = tuple(Check(promise, tuple(_found(check, stored))) for promise, check in promises.items())
    manifest = folder / MANIFEST
    release_id = digest(manifest) if manifest.is_file() else None
    if id is not None:
        same = release_id is not None and len(id) >= 8 and release_id.startswith(id.lower())
        fault = f"the release's id is {release_id}, not {id}"
        checks = (Check("the release is the one with the given id", () if same else (fault,)), *checks)
    return Verification(checks, release_id)


def _stored(folder: Path) -> tuple[Stored, dict[str, Callable[[Any], Iterator[str]]]]:
    """The directory, and what it promises: that depends on what it holds."""
    from tallytree.publish.microdata import verification as microdata

    if microdata.is_microdata(folder):
        return microdata.StoredMicrodata(folder), microdata.PROMISES
    return release.StoredRelease(folder), release.PROMISES


def _found(check: Callable[[Any], Iterator[str]], stored: Stored) -> Iterator[str]:
    """What a check finds; a file that cannot even be read is a fault too."""
    try:
        yield from check(stored)
    except UNUSABLE as error:
        yield reason(error)
