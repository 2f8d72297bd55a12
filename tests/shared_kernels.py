"""Test processes that start together compile each Numba kernel once: the others wait, and load it from the cache.

Numba keeps compiled kernels on disk, but two processes that need the same one at the same time both compile it. That is
most of the first minutes of a run in a fresh clone.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from numba.core.caching import NullCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher


def compile_once() -> None:
    """From now on this process compiles a kernel only while no other one does."""
    if sys.platform == "win32" or Dispatcher.compile.__module__ == __name__:
        return
    import fcntl

    compile_alone, held = Dispatcher.compile, set[str]()
    folder = Path(tempfile.gettempdir()) / f"tallytree-compiling-{os.getuid()}"
    folder.mkdir(exist_ok=True)

    def compile_or_load(self: Any, signature: Any) -> Any:
        code = self.py_func.__code__
        name = hashlib.sha256(f"{code.co_filename}:{code.co_firstlineno}".encode()).hexdigest()
        if isinstance(self._cache, NullCache) or name in held:
            return compile_alone(self, signature)
        # Numba's own lock first: a thread that holds it must never wait for one that waits for it.
        with global_compiler_lock, (folder / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held.add(name)
            try:
                return compile_alone(self, signature)
            finally:
                held.remove(name)

    Dispatcher.compile = compile_or_load
