"""A directory that is written beside its place and renamed into it, so that a half-written one never exists.

Its manifest holds the digests of all other files, and the manifest's own digest is the directory's id.
"""

from __future__ import annotations

import csv
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tallytree.disk import sync
from tallytree.errors import ReleaseError, TallytreeError

MEASUREMENTS, PRIVACY, PACKAGE, MANIFEST = "measurements.parquet", "privacy.json", "datapackage.json", "manifest.json"
MOST_FAULTS = 3  # of one kind that are named
# What bad files lead to:
UNUSABLE = (TallytreeError, OSError, LookupError, ArithmeticError, AttributeError, TypeError, ValueError, csv.Error)

T = TypeVar("T")


def write_whole(target: Path, fill: Callable[[Path], Iterable[str]], *, replace: bool = False) -> str:
    """Let `fill` write files into a new directory and name them, put it in its place, and return its id."""
    target = target.absolute()
    refuse_existing(target, replace=replace)
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".writing", dir=target.parent))
    try:
        names = fill(staging)
        write_json(staging / MANIFEST, {"files": {name: digest(staging / name) for name in names}})
        identity = digest(staging / MANIFEST)
        for path in [*staging.iterdir(), staging]:
            sync(path)
        staging.chmod(0o755)
        _put_in_place(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return identity


def refuse_existing(target: Path, *, replace: bool = False) -> None:
    """A release is never written over something else; over an older release only if asked."""
    if not target.exists():
        return
    if not replace:
        raise ReleaseError(f"{target} is there already; choose another directory or remove it")
    if not (target / MANIFEST).is_file():
        raise ReleaseError(f"{target} is not a release, so it is not replaced; choose another directory")


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Plain values as JSON for people."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or a ReleaseError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReleaseError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise ReleaseError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ReleaseError(f"{path} does not hold a JSON object")
    return value


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Stored:
    """A directory's files, each read once and when first asked for. The two kinds of directory add their own."""

    expected: tuple[str, ...] = ()  # names of files that the manifest must list

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._known: dict[str, Any] = {}

    @property
    def statement(self) -> dict[str, Any]:
        """privacy.json."""
        return self.once(PRIVACY, lambda: read_json(self.directory / PRIVACY))

    def once(self, name: str, read: Callable[[], T]) -> T:
        """What `read` gave when it was first called for this file; where it failed, a ReleaseError every time."""
        if name not in self._known:
            try:
                self._known[name] = read()
            except UNUSABLE as error:
                self._known[name] = error
        found: Any = self._known[name]
        if isinstance(found, Exception):
            raise ReleaseError(f"{name} cannot be used: {reason(found)}")
        return found  # type: ignore[no-any-return]

    def changes(self) -> Iterator[str]:
        """What is not as the manifest says: files that are missing, changed or added, and ones that it leaves out."""
        files = read_json(self.directory / MANIFEST)["files"]
        for name in sorted({*files, *self.expected}):
            path = self.directory / name
            if name not in files:
                yield f"{name} is not in {MANIFEST}"
            elif not path.is_file():
                yield f"{name} is missing"
            elif digest(path) != files[name]:
                yield f"{name} was changed: its digest is not the one in {MANIFEST}"
        for path in sorted(self.directory.iterdir()):
            if path.name not in files and path.name != MANIFEST:
                yield f"{path.name} was added: it is not in {MANIFEST}"


def reason(error: Exception) -> str:
    """Why a file is of no use, in words."""
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _put_in_place(staging: Path, target: Path) -> None:
    """Rename into place; an older release is moved aside first and removed last."""
    old = None
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent)) / target.name
        target.rename(old)
    staging.rename(target)
    sync(target.parent)
    if old is not None:
        shutil.rmtree(old.parent)
