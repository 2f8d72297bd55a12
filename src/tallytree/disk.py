"""Files that survive a kill: `sync` sees a file or a folder to the disk, and `JsonLines` is an append-only file.

Both journals are such files: that of private rounds, and that of experiments.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO


def sync(path: Path) -> None:
    """See a file's content, or a folder's names, to the disk; Windows has no way to do so for a folder."""
    windows = sys.platform == "win32"
    if windows and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDWR if windows else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class JsonLines:
    """A file of JSON lines that belongs to one process at a time.

    A last line without its end was being written when the program was killed, so before anything that depended on it:
    it is dropped. `lines` are those that were there, unparsed. A file that another process has is a `BlockingIOError`,
    anything else that the system refuses an `OSError`.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        try:
            sync(path.parent)
            lock(self._file)
            self.lines = self._whole_lines()
        except BaseException:
            self._file.close()
            raise
        self.usable = True

    def append(self, value: dict[str, Any]) -> None:
        """Write one line. It is on disk when this returns; if it does not return, no other line can follow."""
        content = json.dumps(value, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        if not self.usable:
            raise OSError(errno.EIO, "an earlier line was not written, or the file was closed")
        self.usable = False  # until the whole line is on disk: nothing may follow a torn one
        if self._file.write(content) != len(content):
            raise OSError(errno.EIO, "the line was cut off")
        os.fsync(self._file.fileno())
        self.usable = True

    def close(self) -> None:
        """Let another process have the file."""
        self._file.close()
        self.usable = False

    def _whole_lines(self) -> list[bytes]:
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
            os.fsync(self._file.fileno())
        return content[:whole].splitlines()


def lock(file: BinaryIO) -> None:
    """Have a file for this process alone until it is closed; `BlockingIOError` if another has it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)  # the byte that is locked is the one where the file stands
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise BlockingIOError(errno.EWOULDBLOCK, "in use by another process") from None
