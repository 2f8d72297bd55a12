"""A directory that is written beside its place and renamed into it, so that a half-written one never exists.

Its manifest holds the digests of all other files, and the manifest's own digest is the directory's id. What has the
directory's name already stays as it is, unless it is to be replaced and is a release that holds nothing else. `claimed`
keeps two runs from working for the same directory.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tallytree.core.disk import exchange, lock, rename_new, sync
from tallytree.core.errors import ReleaseError, TallytreeError
from tallytree.core.numbers import short
from tallytree.publish.untrusted import opened, read_json
from tallytree.version import VERSION

FORM = 1  # of all files of a folder: what `verify` of this version can make again
MEASUREMENTS, PRIVACY, PACKAGE, MANIFEST = "measurements.parquet", "privacy.json", "datapackage.json", "manifest.json"
REPORT = "report.html"  # a page for people: no part of what the manifest lists
PAGE_MARK = b"<!doctype html>\n<!-- a page of tallytree -->"  # how every such page begins
SPEC = "spec.json"  # beside what an interrupted run kept: the spec that it was begun with
NEW = ".new"  # at the end of the name of a file that is not whole yet
WRITING = ".writing"  # how the names of directories end that are not whole yet
PARTITIONED = ("counts", "entities")  # folders of a large release, with folders such as level=county in them
LONGEST_REASON = 500  # characters
MOST_FAULTS = 3  # of one kind that are named
# What bad files lead to:
UNUSABLE = (
    TallytreeError,
    OSError,
    LookupError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    TypeError,
    ValueError,
    RecursionError,
    MemoryError,
    csv.Error,
)


def write_whole(
    target: Path,
    fill: Callable[[Path], Iterable[str]],
    *,
    replace: bool = False,
    named: Callable[[str], None] = lambda _: None,
) -> str:
    """Let `fill` write files into a new directory and name them, put it in its place, and return its id.

    `named` is told the id when all is on disk, before the directory is in its place.
    """
    target = place_of(target)
    refuse_existing(target, replace=replace)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _staging(target) as staging:
        names = fill(staging)
        files = {name: digest(staging / name) for name in names}
        write_json(staging / MANIFEST, {"form": FORM, "tallytree": VERSION, "files": files})
        identity = digest(staging / MANIFEST)
        for path in [*staging.rglob("*"), staging]:
            sync(path)
        for path in (*(path for path in staging.rglob("*") if path.is_dir()), staging):
            path.chmod(0o755)
        named(identity)
        put_in_place(staging, target, replace=replace)
    return identity


def put_in_place(made: Path, target: Path, *, replace: bool = False) -> None:
    """Give what was made its final name. What has that name already is a ReleaseError, and stays as it is.

    With `replace` it is exchanged for what was made if it is a release and holds nothing else; the files that its
    manifest lists are then removed. Otherwise that, too, is refused.
    """
    if replace and os.path.lexists(target):
        _replace(made, target)
    else:
        try:
            rename_new(made, target)
        except FileExistsError:
            raise ReleaseError(_taken(target)) from None
    sync(target.parent)


def refuse_existing(target: Path, *, replace: bool = False) -> None:
    """A release is never written over something else; over an older release only if asked."""
    if not os.path.lexists(target):
        return
    if not replace:
        raise ReleaseError(_taken(target))
    _files_to_replace(target, target)


@contextmanager
def claimed(target: Path) -> Iterator[None]:
    """Have a directory to be written for this process alone, as long as this lasts; another process is refused.

    The claim is a lock on a file beside the directory. It ends with the process, however that ends. What earlier runs
    left half-written is removed.
    """
    target = place_of(target)
    path = target.with_name(f".{target.name}.claim")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try_names(target)
        descriptor = _claim(path)
    except BlockingIOError:
        raise ReleaseError(
            f"another run is writing {target} at this moment: wait until it is done, or choose another directory. "
            "This run did nothing and spent nothing."
        ) from None
    except OSError as error:
        raise ReleaseError(
            f"{target.parent} cannot be written to: {error.strerror}. This run did nothing and spent nothing."
        ) from None
    try:
        clear_unfinished(target)
        yield
    finally:
        with contextlib.suppress(OSError):
            if sys.platform == "win32":  # which removes no file that is open
                os.close(descriptor)
                path.unlink()
            else:  # while it is locked, so that no other process has it
                path.unlink()
                os.close(descriptor)


def try_names(target: Path, below: Iterable[str] = ()) -> None:
    """Make and remove empty files with the names that those of a directory have while it is written.

    OSError if the file system cannot hold these names.
    """
    with _staging(place_of(target)) as staging:
        for name in below:
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).touch()
        _remove(staging)


def clear_unfinished(target: Path) -> None:
    """Remove directories that were being written for this target by processes that are no more.

    Which ones are is told from locks on directories; Windows has none, so that nothing is removed there.
    """
    if sys.platform == "win32":
        return
    target = place_of(target)
    for path in target.parent.glob(f"{glob.escape(_unfinished(target))}*{WRITING}"):
        with contextlib.suppress(OSError), locked(path):
            _remove(path)


def place_of(target: Path) -> Path:
    """A directory's path from the root, without symbolic links on the way; it stays right if the program moves."""
    absolute = Path(os.path.abspath(target))
    return Path(os.path.realpath(absolute.parent)) / absolute.name


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Plain values as JSON for people."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_faults(folder: Path) -> Iterator[str]:
    """What is not as the manifest says. Only files that are in the folder are opened: a name may lead out of it."""
    listed = listed_files(folder)
    there = set(files_in(folder))
    for name in sorted(listed):
        if name not in there:
            yield f"{plain_name(name)} is missing"
        elif digest(folder / name) != listed[name]:
            yield f"{name} was changed: its digest is not the one in {MANIFEST}"
    if read_json(folder / MANIFEST)["tallytree"] != read_json(folder / PRIVACY)["software"]["tallytree"]:
        yield f"{MANIFEST} and {PRIVACY} name different versions of tallytree"
    for name in sorted(there - {*listed, MANIFEST}):
        if not is_report(folder / name, folder):
            yield f"{name} was added: it is not in {MANIFEST}"


def plain_name(name: str) -> str:
    """A file's name as a stranger's manifest has it, for messages: short, and without control characters."""
    return short(name).strip("'\"")


def check_form(folder: Path, *, do: str = "verify") -> None:
    """Raise a ReleaseError that names the version which made the folder, if its files have another form."""
    manifest = read_json(folder / MANIFEST)
    form = manifest.get("form")
    if form is True or form != FORM:
        raise ReleaseError(f"made by {_maker(folder, manifest)}: {do} it with that version")


def listed_files(folder: Path) -> dict[str, str]:
    """The digests of files by name, from a manifest of this form."""
    check_form(folder)
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files")
    if set(manifest) != {"form", "tallytree", "files"} or not isinstance(files, dict):
        raise ReleaseError(f"{MANIFEST} holds something else than its form, a version and the digests of files")
    return files


def _maker(folder: Path, manifest: dict[str, Any]) -> str:
    """The version in a manifest; up to 0.3.0 it is in the privacy statement only."""
    version = manifest.get("tallytree")
    if version is None:
        with contextlib.suppress(*UNUSABLE):
            version = read_json(folder / PRIVACY)["software"]["tallytree"]
    return plain_name(version) if isinstance(version, str) else "an unknown version"


def files_in(folder: Path) -> Iterator[str]:
    """The names of all in a release's folder, from there on; of folders, all but partitioned ones that have files."""
    for path in folder.rglob("*"):
        first, *others = path.relative_to(folder).parts
        partitioned = first in PARTITIONED and all("=" in name for name in others)
        if not (partitioned and path.is_dir() and not path.is_symlink() and any(path.iterdir())):
            yield path.relative_to(folder).as_posix()


def is_report(path: Path, directory: Path) -> bool:
    """Is this the page that tallytree wrote into a directory, beside what belongs to it?"""
    if path != directory / REPORT or not _plain(path):
        return False
    with opened(path) as file:
        return bool(file.read(len(PAGE_MARK)) == PAGE_MARK)


def put_report(directory: Path, content: bytes) -> Path:
    """Put the page into a directory that is there, whole or not at all, over an older page and over nothing else.

    It is written beside the directory first, so a process that is killed leaves nothing in the directory that does not
    belong there. What such a process left beside it is removed.
    """
    target = place_of(directory)
    if os.path.lexists(target / REPORT) and not is_report(target / REPORT, target):
        raise ReleaseError(f"{target / REPORT} is there already, and no page of tallytree; choose another name for it")
    clear_unfinished(target)
    with _staging(target) as staging:
        made = staging / REPORT
        made.write_bytes(content)
        made.chmod(0o644)
        sync(made)
        os.replace(made, target / REPORT)
        staging.rmdir()
    sync(target)
    return directory / REPORT


def reason(error: Exception) -> str:
    """Why a file is of no use, in words; errors may quote what they found, so only the beginning of it."""
    words = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return words if len(words) <= LONGEST_REASON else f"{words[:LONGEST_REASON]} …"


# -------------------------------------------------------------------- names that are taken


def _taken(target: Path) -> str:
    return f"{target} is there already; choose another directory or remove it"


def _files_to_replace(found: Path, target: Path) -> list[Path]:
    """The files of a release that is to be replaced, the manifest last; refused if there is anything else."""
    refusal = "so it is not replaced; choose another directory"
    if not (found / MANIFEST).is_file() or found.is_symlink():
        raise ReleaseError(f"{target} is not a release, {refusal}")
    listed = read_json(found / MANIFEST).get("files")
    names = {*listed, MANIFEST} if isinstance(listed, dict) else {MANIFEST}
    others = sorted(
        name
        for name in files_in(found)
        if not _plain(found / name) or (name not in names and not is_report(found / name, found))
    )
    if others:
        raise ReleaseError(f"{target} holds {others[0]!r}, which is not part of its release, {refusal}")
    return [*(found / name for name in files_in(found) if name != MANIFEST), found / MANIFEST]


def _plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _replace(made: Path, target: Path) -> None:
    """Exchange a release for another; where a system cannot do so in one step, it is moved aside first."""
    _files_to_replace(target, target)
    aside = made
    if not exchange(made, target):
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent)) / target.name
        rename_new(target, aside)
        rename_new(made, target)
    try:
        old = _files_to_replace(aside, target)  # once more: something may have come while it had its name
    except BaseException:
        if not exchange(aside, target):
            rename_new(target, made)
            rename_new(aside, target)
        raise
    sync(target.parent)
    with contextlib.suppress(OSError):  # what stays has a name of ours, and the new release its own
        for path in old:
            path.unlink()
        _remove(aside)
        if aside is not made:
            aside.parent.rmdir()


# -------------------------------------------------------------------- what is being written


def _unfinished(target: Path) -> str:
    """How the names of directories begin that are being written for a target."""
    return f".{target.name}.tallytree-"


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A new directory beside the target, which others leave alone while this process is at it; removed on an error."""
    clear_unfinished(target)
    with contextlib.ExitStack() as stack:
        while True:
            path = Path(tempfile.mkdtemp(prefix=_unfinished(target), suffix=WRITING, dir=target.parent))
            try:
                stack.enter_context(locked(path))
                break
            except (BlockingIOError, FileNotFoundError):  # taken for one that was left behind, before it was locked
                continue
        try:
            yield path
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(path)
            raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have a folder for this process alone, or `BlockingIOError`; on Windows, which locks no folders, just use it."""
    if sys.platform == "win32":
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        lock(descriptor)
        if not os.path.lexists(folder):
            raise FileNotFoundError(str(folder))
        yield
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove a folder with its files, and folders below it as far as they are those of a partitioned data set."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and (path.name in PARTITIONED or "=" in path.name):
            _remove(path)
        else:
            path.unlink()
    folder.rmdir()


def _claim(path: Path) -> int:
    """An open and locked file of this name. One that its owner removed before it was locked here is no claim."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            lock(descriptor)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
