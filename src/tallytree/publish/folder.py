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
from typing import Any, TypeVar

from tallytree.core.disk import exchange, lock, rename_new, sync
from tallytree.core.errors import ReleaseError, TallytreeError
from tallytree.core.numbers import short
from tallytree.publish.reading import opened, read_json
from tallytree.publish.statement import Unchecked

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

T = TypeVar("T")


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
        write_json(staging / MANIFEST, {"files": {name: digest(staging / name) for name in names}})
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


class Stored:
    """A directory's files, each read once and when first asked for. The two kinds of directory add their own."""

    expected: tuple[str, ...] = ()  # names of files that the manifest must list
    optional: tuple[str, ...] = ()  # and of those that it may list

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

    def forget(self, name: str) -> None:
        """Let go of what `once` keeps under this name."""
        self._known.pop(name, None)

    def unchecked(self) -> Iterator[Unchecked]:
        """What is said and cannot be checked from the files."""
        yield from ()

    def changes(self) -> Iterator[str]:
        """What is not as the manifest says, and what a manifest of ours does not say."""
        manifest = read_json(self.directory / MANIFEST)
        files = manifest["files"]
        if set(manifest) != {"files"} or not isinstance(files, dict):
            yield f"{MANIFEST} holds something else than the digests of files"
            return
        known = {*self.expected, *self.optional}
        for name in sorted({*files, *self.expected}):
            path = self.directory / name
            if name not in known:  # so it is not opened: its name may lead out of the folder
                yield f"{MANIFEST} lists {short(name)}, which is no file of a release"
            elif name not in files:
                yield f"{name} is not in {MANIFEST}"
            elif not path.is_file():
                yield f"{name} is missing"
            elif digest(path) != files[name]:
                yield f"{name} was changed: its digest is not the one in {MANIFEST}"
        for name in sorted(files_in(self.directory)):
            if name not in files and name != MANIFEST and not is_report(self.directory / name, self.directory):
                yield f"{name} was added: it is not in {MANIFEST}"


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
