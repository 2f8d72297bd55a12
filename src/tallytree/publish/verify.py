"""`verify`: recompute everything that a directory promises, from its files alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from tallytree.core.arguments import FLAG, PATH, TEXT, expecting, optional
from tallytree.core.errors import ReleaseError, SpecError
from tallytree.core.notebook import page, quoted, table
from tallytree.core.numbers import short
from tallytree.core.progress import Progress, Stage, silent
from tallytree.publish.folder import (
    MANIFEST,
    MOST_FAULTS,
    PARTITIONED,
    REPORT,
    UNUSABLE,
    Stored,
    digest,
    is_report,
    reason,
)
from tallytree.publish.reading import strange_files
from tallytree.publish.release import verification as release
from tallytree.publish.release.interval_checks import typical_follow
from tallytree.publish.release.stored import StoredRelease
from tallytree.publish.statement import Unchecked

FEWEST_DIGITS = 8  # of an id
REGULAR = "all files are regular ones of a sensible size"
PAGE = "what the page shows: it is for people, and no part of the release; `tallytree report` makes it again"
TYPICAL = "typical intervals follow from the measurements"

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
    unchecked: tuple[Unchecked, ...] = ()  # what is said there and cannot be checked from the files

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
        promises = table(("", "promise", "found against it"), rows, rest="checks has all of them")
        beyond = [(one.place, one.what) for one in self.unchecked]
        unchecked = table(("where", "what cannot be told from the files"), beyond, rest="unchecked has all of it")
        return page(verdict, facts, promises + unchecked if beyond else promises)


@expecting(directory=PATH, id=optional(TEXT), typical=FLAG)
def verify(
    directory: str | PathLike[str],
    *,
    id: str | None = None,  # noqa: A002
    typical: bool = True,
    progress: Progress = silent,
) -> Verification:
    """Check the directory of a release or of synthetic households; with `id`, also that it is that very one.

    `id` is the id printed at release or its first 8 or more digits. `typical=False` leaves out typical intervals, which
    take 25 estimates to compute again; they are then listed among what was not checked.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise ReleaseError(f"there is no release directory at {folder}")
    wanted = None if id is None else _checked_id(id)
    if strange := tuple(islice(strange_files(folder, PARTITIONED), MOST_FAULTS)):
        return Verification((Check(REGULAR, strange),), None)
    stored, promises = _stored(folder, progress)
    checks = [Check(REGULAR, ())]
    for number, (promise, check) in enumerate(promises.items()):
        progress(Stage("checking", number, len(promises), about=promise))
        checks.append(Check(promise, tuple(_found(partial(check, stored)))))
    unchecked = list(_listed(stored))
    sound = not any(check.faults for check in checks)
    if sound and isinstance(stored, StoredRelease) and stored.typical_can_follow:
        if typical:
            checks.append(Check(TYPICAL, tuple(_found(partial(typical_follow, stored, progress)))))
        else:
            tables = ["counts", *(["areas.parquet"] if stored.areas else [])]
            columns = "typical_lower, typical_upper"
            unchecked += [Unchecked(f"{table}: {columns}", "typical intervals, as asked") for table in tables]
    manifest = folder / MANIFEST
    release_id = digest(manifest) if manifest.is_file() else None
    if wanted is not None:
        same = release_id is not None and release_id.startswith(wanted)
        fault = f"the release's id is {release_id}, not {wanted}"
        checks.insert(0, Check("the release is the one with the given id", () if same else (fault,)))
    return Verification(tuple(checks), release_id, tuple(unchecked))


def _checked_id(text: str) -> str:
    """The beginning of an id, long enough that no other release is taken for this one by chance."""
    wanted = text.strip().lower()
    if not FEWEST_DIGITS <= len(wanted) <= 64 or set(wanted) - set("0123456789abcdef"):
        raise SpecError(
            f"the id {short(text, 80)} is not enough of one, or none: give the first {FEWEST_DIGITS} or more digits "
            "(0–9, a–f) of the id that was printed at release"
        )
    return wanted


def _stored(folder: Path, progress: Progress) -> tuple[Stored, dict[str, Callable[[Any], Iterator[str]]]]:
    """The directory, and what it promises: that depends on what it holds."""
    from tallytree.publish.microdata import verification as microdata

    if microdata.is_microdata(folder):
        return microdata.StoredMicrodata(folder), microdata.PROMISES
    stored = StoredRelease(folder, progress)
    return stored, release.promises_of(stored)


def _found(check: Callable[[], Iterator[str]]) -> Iterator[str]:
    """What a check finds; a file that cannot even be read is a fault too."""
    try:
        yield from check()
    except UNUSABLE as error:
        yield reason(error)


def _listed(stored: Stored) -> Iterator[Unchecked]:
    """What cannot be checked, as far as the files can be read at all."""
    try:
        if is_report(stored.directory / REPORT, stored.directory):
            yield Unchecked(REPORT, PAGE)
        yield from stored.unchecked()
    except UNUSABLE:
        return
