"""The private directory that an engine spills rows to: for its owner alone, removed afterwards, or by the next run.

A process that is killed removes nothing. Its directory is known by its name and by the lock that its process held: the
next run that can take the lock knows that nobody uses the directory, and removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tallytree.core.disk import lock
from tallytree.core.errors import DataError

PREFIX = "tallytree-spill-"
LOCK = "in-use"


@contextmanager
def spill_directory() -> Iterator[str]:
    """A new directory with permissions for its owner alone, in the system's place for temporary files."""
    with contextlib.ExitStack() as stack:
        try:
            remove_stale()
            directory = Path(tempfile.mkdtemp(prefix=PREFIX))  # mode 700
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
            _keep_files_private(directory)
            # Locked first and named afterwards: what has the name is locked as long as its process lives.
            private = open(directory / "new", "xb", opener=lambda path, flags: os.open(path, flags, 0o600))  # noqa: SIM115
            lock(stack.enter_context(private))
            (directory / "new").rename(directory / LOCK)
        except OSError as error:
            raise DataError(
                f"no private folder for temporary files can be made: {error.strerror}. Nothing was spent. Make room "
                "in the system's folder for them, or name another one in the variable TMPDIR."
            ) from None
        yield str(directory)


def remove_stale() -> None:
    """Remove what processes that were killed left behind.

    A directory is removed if it has our name, belongs to this user, is open to nobody else, and holds a lock file of
    this user that no living process has locked. Anything else is left alone, also a directory without a lock file:
    it may have been made just now, and no engine has written to it.
    """
    if sys.platform == "win32":
        return
    for path in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError):
            if _is_ours(path.lstat(), stat.S_IFDIR, 0o700):
                descriptor = os.open(path / LOCK, os.O_RDWR | os.O_NOFOLLOW)
                with open(descriptor, "r+b") as file:
                    if _is_ours(os.fstat(descriptor), stat.S_IFREG, 0o600):
                        lock(file)
                        shutil.rmtree(path)


def _is_ours(found: os.stat_result, kind: int, mode: int) -> bool:
    return found.st_uid == os.getuid() and found.st_mode == kind | mode


def _keep_files_private(directory: Path) -> None:
    """Have files made here be readable by their owner alone, whatever the engine asks for, where the system can.

    That is a default access list of the directory; a umask would be one for the whole process. Nobody else can reach
    into the directory in any case: this is for copies of its files that keep their permissions.
    """
    if sys.platform != "linux":
        return
    owner, group, others, nobody = 0x01, 0x04, 0x20, 0xFFFFFFFF
    entries = ((owner, 7), (group, 0), (others, 0))
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", who, may, nobody) for who, may in entries)
    with contextlib.suppress(OSError):
        os.setxattr(directory, "system.posix_acl_default", listed)
