"""Write a directory beside its final place and rename it into place, so that no half-written directory ever exists.

The manifest holds the digests of all other files. The manifest's own digest is the directory's id. A file or directory
that already has the name stays unchanged. The exception is a release that is to be replaced and that holds no other
files. `claimed` prevents two runs from writing the same directory at the same time.
"""

from __future__ import annotations

import contextlib
import csv
import errno
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

FORM = 1  # format version of all files of a folder; `verify` reproduces folders of this version
MEASUREMENTS, PRIVACY, PACKAGE, MANIFEST = "measurements.parquet", "privacy.json", "datapackage.json", "manifest.json"
REPORT = "report.html"  # for people; the manifest does not list it
PAGE_MARK = b"<!doctype html>\n<!-- a page of tallytree -->"  # the first bytes of every report
SPEC = "spec.json"  # in the folder of an interrupted run: the spec that it started with
NEW = ".new"  # suffix of a file that is not complete yet
WRITING = ".writing"  # suffix of a directory that is not complete yet
PARTITIONED = ("counts", "entities")  # folders of a large release, with folders such as level=county in them
LONGEST_REASON = 500  # characters
MOST_FAULTS = 3  # of one kind that a message names
# Errors that bad files can raise:
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
    """Call `fill` to write and name files in a new directory, move the directory into place, and return its id.

    `named` is called with the id when all files are on disk, before the directory is in its place.
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
    """Give a finished directory its final name. If the name is taken, raise a ReleaseError and change nothing.

    With `replace`, a release that holds no other files is exchanged for the new one, and the files that its manifest
    lists
    are then removed. Anything else with that name is refused.
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
    """Raise a ReleaseError if the target exists, unless it is a release that the user asked to replace."""
    if not os.path.lexists(target):
        return
    if not replace:
        raise ReleaseError(_taken(target))
    _files_to_replace(target, target)


@contextmanager
def claimed(target: Path) -> Iterator[None]:
    """Claim a directory for this process for the duration of the context; refuse a second process.

    The claim is a lock on a file beside the directory. It ends when the process ends, even after a crash. Directories
    that
    earlier runs left half-written are removed.
    """
    target = place_of(target)
    path = target.with_name(f".{target.name}.claim")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try_names(target)
        descriptor = _claim(path)
    except BlockingIOError:
        raise ReleaseError(
            f"another run is writing {target}: wait until it is done, or choose another directory. This run did "
            "nothing and spent nothing."
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
            if sys.platform == "win32":  # Windows cannot remove an open file
                os.close(descriptor)
                path.unlink()
            else:  # while it is locked, so that no other process has it
                path.unlink()
                os.close(descriptor)


def try_names(target: Path, below: Iterable[str] = ()) -> None:
    """Create and remove empty files with the names that the directory's files will have while they are written.

    Raises OSError if the file system cannot hold these names.
    """
    with _staging(place_of(target)) as staging:
        for name in below:
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).touch()
        _remove(staging)


def clear_unfinished(target: Path) -> None:
    """Remove half-written directories for this target whose processes have ended.

    A lock on such a directory shows that its process still runs. Windows cannot lock directories, so nothing is removed
    there.
    """
    if sys.platform == "win32":
        return
    target = place_of(target)
    for path in target.parent.glob(f"{glob.escape(_unfinished(target))}*{WRITING}"):
        with contextlib.suppress(OSError), locked(path):
            _remove(path)


def place_of(target: Path) -> Path:
    """Return a directory's absolute path, with symbolic links in its parents resolved."""
    absolute = Path(os.path.abspath(target))
    return Path(os.path.realpath(absolute.parent)) / absolute.name


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write plain values as indented JSON."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest_faults(folder: Path) -> Iterator[str]:
    """Yield differences between a folder and its manifest. Names that lead out of the folder are not opened."""
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
    """Return a file name from an untrusted manifest for use in messages: short, and without control characters."""
    return short(name).strip("'\"")


def check_form(folder: Path, *, do: str = "verify") -> None:
    """Raise a ReleaseError that names the version which wrote the folder if its files have another format version."""
    manifest = read_json(folder / MANIFEST)
    form = manifest.get("form")
    if form is True or form != FORM:
        raise ReleaseError(f"written by {_maker(folder, manifest)}: {do} it with that version")


def listed_files(folder: Path) -> dict[str, str]:
    """Return the digests of files by name from a manifest of the current format version."""
    check_form(folder)
    manifest = read_json(folder / MANIFEST)
    files = manifest.get("files")
    if set(manifest) != {"form", "tallytree", "files"} or not isinstance(files, dict):
        raise ReleaseError(f"{MANIFEST} has other fields than form, tallytree and files")
    return files


def _maker(folder: Path, manifest: dict[str, Any]) -> str:
    """Return the version that wrote a manifest; up to 0.3.0 only the privacy statement has it."""
    version = manifest.get("tallytree")
    if version is None:
        with contextlib.suppress(*UNUSABLE):
            version = read_json(folder / PRIVACY)["software"]["tallytree"]
    return plain_name(version) if isinstance(version, str) else "an unknown version"


def files_in(folder: Path) -> Iterator[str]:
    """Yield the names of everything in a release's folder, without non-empty folders of partitioned data sets."""
    for path in folder.rglob("*"):
        first, *others = path.relative_to(folder).parts
        partitioned = first in PARTITIONED and all("=" in name for name in others)
        if not (partitioned and path.is_dir() and not path.is_symlink() and any(path.iterdir())):
            yield path.relative_to(folder).as_posix()


def is_report(path: Path, directory: Path) -> bool:
    """Return whether this is the report that tallytree wrote into a directory, beside the files of the release."""
    if path != directory / REPORT or not _plain(path):
        return False
    with opened(path) as file:
        return bool(file.read(len(PAGE_MARK)) == PAGE_MARK)


def put_report(directory: Path, content: bytes) -> Path:
    """Write the report into an existing directory in one step. Only an older report is replaced.

    It is written beside the directory first. So a process that is killed leaves nothing in the directory that does not
    belong there. Leftovers of such a process beside the directory are removed.
    """
    target = place_of(directory)
    if os.path.lexists(target / REPORT) and not is_report(target / REPORT, target):
        raise ReleaseError(f"{target / REPORT} exists and is not a report by tallytree; rename it or remove it")
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


def write_new(path: Path, content: bytes, *, replace: bool = False, mode: int = 0o644) -> None:
    """Write a whole file under a new name, or raise `FileExistsError`; with `replace` an older file goes in one step.

    On Linux the file has no name until it is complete, so a killed process leaves nothing behind.
    """
    made = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor, has_name = _open_unnamed(made, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            if not has_name:  # the folder's number makes Python follow the link; an absolute path ignores it
                os.link(f"/proc/self/fd/{file.fileno()}", made if replace else path, src_dir_fd=file.fileno())
        if replace:
            os.replace(made, path)
        elif has_name:
            rename_new(made, path)
    finally:
        made.unlink(missing_ok=True)
    sync(path.parent)


def _open_unnamed(made: Path, mode: int) -> tuple[int, bool]:
    """Open a file without a name in a folder, or under the given name if the system cannot; and whether it has it."""
    if hasattr(os, "O_TMPFILE"):
        try:
            return os.open(made.parent, os.O_TMPFILE | os.O_WRONLY, mode), False
        except OSError as error:
            if error.errno not in {errno.EISDIR, errno.EINVAL, errno.ENOTSUP}:
                raise
    return os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), True


def reason(error: Exception) -> str:
    """Return why a file cannot be used. An error may quote what it found, so only its beginning is returned."""
    words = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return words if len(words) <= LONGEST_REASON else f"{words[:LONGEST_REASON]} …"


# -------------------------------------------------------------------- existing names


def _taken(target: Path) -> str:
    return f"{target} already exists; choose another directory or remove it"


def _files_to_replace(found: Path, target: Path) -> list[Path]:
    """Return the files of the release to be replaced, the manifest last; refuse if the folder holds any other file."""
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
    """Exchange one release for another; if the system cannot do so in one step, move the old one aside first."""
    _files_to_replace(target, target)
    aside = made
    if not exchange(made, target):
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".old", dir=target.parent)) / target.name
        rename_new(target, aside)
        rename_new(made, target)
    try:
        old = _files_to_replace(aside, target)  # again: a file may have been added since the first check
    except BaseException:
        if not exchange(aside, target):
            rename_new(target, made)
            rename_new(aside, target)
        raise
    sync(target.parent)
    with contextlib.suppress(OSError):  # leftovers have a temporary name, and the new release is in place
        for path in old:
            path.unlink()
        _remove(aside)
        if aside is not made:
            aside.parent.rmdir()


# -------------------------------------------------------------------- half-written directories


def _unfinished(target: Path) -> str:
    """Return the prefix of the names of half-written directories for a target."""
    return f".{target.name}.tallytree-"


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """Create a locked directory beside the target, and remove it on an error. Other processes leave it alone."""
    clear_unfinished(target)
    with contextlib.ExitStack() as stack:
        while True:
            path = Path(tempfile.mkdtemp(prefix=_unfinished(target), suffix=WRITING, dir=target.parent))
            try:
                stack.enter_context(locked(path))
                break
            except (
                BlockingIOError,
                FileNotFoundError,
            ):  # another process removed it as a leftover before it was locked
                continue
        try:
            yield path
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(path)
            raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process or raise `BlockingIOError`; do nothing on Windows, which cannot lock folders."""
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
    """Remove a folder, its files, and those subfolders that belong to a partitioned data set."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink() and (path.name in PARTITIONED or "=" in path.name):
            _remove(path)
        else:
            path.unlink()
    folder.rmdir()


def _claim(path: Path) -> int:
    """Open and lock a file of this name. If its owner removed it before the lock was taken here, try again."""
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
