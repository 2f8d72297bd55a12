"""A directory that is written beside its place and renamed into it, so that a half-written one never exists.

Its manifest holds the digests of all other files, and the manifest's own digest is the directory's id.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from tallytree.disk import sync
from tallytree.errors import ReleaseError
from tallytree.publish.release.stored import MANIFEST, digest, read_json


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


def changed_files(directory: Path, expected: Iterable[str]) -> Iterator[str]:
    """What is not as the manifest says: files that are missing, changed or added, and expected ones it leaves out."""
    files = read_json(directory / MANIFEST)["files"]
    for name in sorted({*files, *expected}):
        path = directory / name
        if name not in files:
            yield f"{name} is not in {MANIFEST}"
        elif not path.is_file():
            yield f"{name} is missing"
        elif digest(path) != files[name]:
            yield f"{name} was changed: its digest is not the one in {MANIFEST}"
    for path in sorted(directory.iterdir()):
        if path.name not in files and path.name != MANIFEST:
            yield f"{path.name} was added: it is not in {MANIFEST}"


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
