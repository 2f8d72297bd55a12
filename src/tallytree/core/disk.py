"""Files that survive a kill, and names that are taken only once.

`sync` flushes a file or a folder to the disk, `rename_new` renames without replacing, `lock` locks a file for one
process, and `JsonLines` is an append-only file. Both journals are such files: that of private rounds, and that of
experiments.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

_HERE = -100  # AT_FDCWD: a relative path starts at the working directory
_NO_REPLACE, _EXCHANGE = 1, 2  # flags of renameat2
# The errors of a system or file system without such renaming:
_UNKNOWN = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk; Windows cannot flush a folder."""
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_there(path: Path) -> bool:
    """Return whether something has this name. A device that cannot answer is an `OSError`, not a no."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def digest_of_files(files: Sequence[str], kind: str) -> str | None:
    """Return a digest of the content of files of some kind, in their order; None without files."""
    if not files:
        return None
    whole = hashlib.sha256(f"{kind}, {len(files)} files".encode())
    for path in files:
        with open(path, "rb") as file:
            whole.update(hashlib.file_digest(file, "sha256").digest())
    return whole.hexdigest()


def rename_new(made: Path, name: Path) -> None:
    """Rename a file or a folder, and raise `FileExistsError` if the new name is taken.

    On Linux this is one step. If the system or its file system has no such step, a file is first linked under the new
    name, which also fails if it is taken. A folder is then renamed in the ordinary way: this replaces an empty folder,
    and fails if the name is that of a file or of a folder with content.
    """
    if _renamed(made, name, _NO_REPLACE):
        return
    if made.is_dir():
        try:
            made.rename(name)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.ENOTDIR):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(name)) from None
            raise
    else:
        os.link(made, name)
        made.unlink()


def exchange(one: Path, other: Path) -> bool:
    """Exchange the names of two files or folders in one step; return False if the system has no such step."""
    return _renamed(one, other, _EXCHANGE)


def _renamed(made: Path, name: Path, flag: int) -> bool:
    """Call Linux's `renameat2`; return False if the system or the file system lacks it."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    if rename(_HERE, os.fsencode(made), _HERE, os.fsencode(name), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNKNOWN:
        return False
    raise OSError(number, os.strerror(number), str(made), None, str(name))


class JsonLines:
    """A file of JSON lines that belongs to one process at a time.

    A last line without its end was being written when the program was killed, so before anything that depended on it:
    it is dropped. `lines` are the earlier lines, unparsed. If another process has the file, a `BlockingIOError` is
    raised; any other failure of the system is an `OSError`. After `keep_room`, lines of so many bytes fit on the disk,
    as far as its file system keeps its reservation.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
        self._end = 0  # the end of the lines
        try:
            sync(path.parent)
            lock(self._file)
            self._file.seek(0)
            content = self._file.read()
            self.lines, self._end = whole_lines(content)
            if self._end < len(content):
                self._file.truncate(self._end)
                os.fsync(self._file.fileno())
        except BaseException:
            self._file.close()
            raise
        self._room_to = self._end  # the end of the reserved space
        self.usable = True

    def append(self, value: dict[str, Any]) -> None:
        """Write one line. It is on disk when this returns; if it does not return, no other line can follow."""
        content = json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if not self.usable:
            raise OSError(errno.EIO, "an earlier line was not written, or the file was closed")
        self.usable = False  # until the whole line is on disk: nothing may follow a partial line
        self._file.seek(self._end)
        if self._file.write(content) != len(content):
            raise OSError(errno.ENOSPC, "the line was cut off")
        os.fsync(self._file.fileno())
        self._end += len(content)
        self.usable = True

    def keep_room(self, size: int) -> None:
        """Reserve space for so many bytes of lines to come; raise `OSError` if the disk lacks it."""
        if self._end + size > self._room_to:
            _allocate(self._file.fileno(), self._end, size)
            os.fsync(self._file.fileno())
            self._room_to = self._end + size

    def clear(self) -> None:
        """Remove all lines."""
        self._end = self._room_to = 0
        self._file.truncate(0)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Release the file for other processes, and unused space."""
        if self.usable and self._room_to > self._end:
            with contextlib.suppress(OSError):
                self._file.truncate(self._end)
        self._file.close()
        self.usable = False


def whole_lines(content: bytes) -> tuple[list[bytes], int]:
    """Return the complete lines of a file of JSON lines, and where they end."""
    end = content.rfind(b"\n") + 1
    lines = content[:end].splitlines()
    if lines and b"\0" in lines[-1]:  # JSON has no NUL: the power failed when only the line's end was on disk
        end -= len(lines.pop()) + 1
    return lines, end


def _allocate(descriptor: int, start: int, size: int) -> None:
    """Reserve bytes of zero after the end of a file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, start, size)
        return
    os.lseek(descriptor, start, os.SEEK_SET)
    while size > 0:
        size -= os.write(descriptor, bytes(min(size, 1 << 20)))


def lock(file: BinaryIO | int) -> None:
    """Lock a file exclusively until it is closed; raise `BlockingIOError` if another process has it."""
    descriptor = file if isinstance(file, int) else file.fileno()
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(descriptor, 0, os.SEEK_SET)  # the lock is on the byte at the file's position
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES, errno.EDEADLK):
            raise
        raise BlockingIOError(errno.EWOULDBLOCK, "in use by another process") from None
