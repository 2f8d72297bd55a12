"""How Numba kernels are compiled: cached on disk, without the interpreter lock, so that threads share work.

Compiling is most of the cost of a first run, so functions that only kernels call are compiled into these
(`part_of_kernels`).
"""

from __future__ import annotations

import hashlib
import os
from _thread import start_new_thread
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numba

from tallytree.core.progress import Tell, nobody
from tallytree.version import VERSION

Function = TypeVar("Function", bound=Callable[..., Any])
MOST_WAIT = 0.05  # seconds between two checks of other threads
TRIED = "0.68."  # versions of Numba whose internals `_part_compiler` knows
KERNELS: list[Any] = []


def kernel(function: Function) -> Function:
    """Compile `function` with Numba; only the first run with these sources on a machine pays for it."""
    compiled: Any = numba.njit(cache=True, nogil=True)(function)
    if (file := getattr(compiled._cache, "_cache_file", None)) is not None:  # None if no cache folder is usable
        file._source_stamp = SourceStamp(file._source_stamp)
    KERNELS.append(compiled)
    return compiled  # type: ignore[no-any-return]


def count_compiled() -> int:
    """Return how many kernels have been compiled or loaded in this process, counting each kind of arguments."""
    return sum(len(compiled.overloads) for compiled in KERNELS)


class SourceStamp:
    """The sources that a cached kernel was compiled from: its own file's stamp from Numba, and all kernels' sources.

    Numba checks only the kernel's own file, so a kernel would keep the old code of functions in other files. With
    another stamp Numba compiles again and overwrites the cached kernel. The sources are read when the first kernel is
    loaded or compiled, not on import. Numba pickles the stamp as a text, and compares unpickled texts with it.
    """

    def __init__(self, own: object) -> None:
        self._own = own

    def __str__(self) -> str:
        return f"{self._own} {digest_of_kernels()}"

    def __eq__(self, other: object) -> bool:
        return str(self) == other

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


@cache
def digest_of_kernels() -> str:
    """Return a digest of the version and of all modules that define kernels or parts of them."""
    found = hashlib.sha256(VERSION.encode())
    for folder, folders, files in os.walk(os.path.dirname(os.path.dirname(__file__))):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb", buffering=0) as file:
                    source = file.readall()
                if b"kernels import" in source:
                    found.update(hashlib.sha256(source).digest())
    return found.hexdigest()


def part_of_kernels(function: Function) -> Function:
    """Compile `function` only into the kernels that call it; Python cannot call it.

    A kernel's machine code contains everything that it calls. Numba also generates machine code, entry points for
    Python and C, and a cache entry for every function, all optimised, which nothing would use. Leaving these out
    depends on Numba's internals; so with untested versions the function is an ordinary kernel.
    """
    if not numba.__version__.startswith(TRIED):
        return kernel(function)
    options = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "pipeline_class": _part_compiler()}
    compiled: Function = numba.njit(**options)(function)
    return compiled


@cache
def _part_compiler() -> Any:
    """Return Numba's compiler for functions that are compiled into their callers; None for untested versions."""
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler

    class PartLibrary(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
        """Code that is linked into its callers, which optimise it and generate machine code with their own."""

        def _optimize_final_module(self) -> None:
            pass

        def _finalize_final_module(self) -> None:
            self._finalized = True

    class Part(Compiler):  # type: ignore[misc]
        """Numba's compiler without its last step, machine code, as for Numba's own internal functions."""

        def compile_extra(self, function: Callable[..., Any]) -> Any:
            self.state.flags.no_compile = True
            self.state.library = PartLibrary(self.state.targetctx.codegen(), function.__qualname__)
            made = super().compile_extra(function)
            # Callers find the code by an entry point, which must be a built-in function. A string's method with a name
            # of its own is one, and it refuses the arguments of any call from Python.
            entry = f"{function.__qualname__} {made.signature}".index
            made.target_context.insert_user_function(entry, made.fndesc, [made.library])
            return made._replace(entry_point=entry)

    return Part


@contextmanager
def told_of_compiling(tell: Callable[[bool], None]) -> Iterator[None]:
    """Call `tell` with True when a kernel begins to compile, and with False when it is compiled.

    Kernels that are loaded from Numba's cache are not compiled. Kernels that call each other are compiled within each
    other, and by any thread.
    """
    from numba.core.event import Event, Listener, install_listener

    class Told(Listener):  # type: ignore[misc]  # Numba has no types
        def on_start(self, event: Event) -> None:
            tell(True)

        def on_end(self, event: Event) -> None:
            tell(False)

    with install_listener("numba:compile", Told()):
        yield


def blocks(length: int, most: int) -> list[tuple[int, int]]:
    """Divide `range(length)` into consecutive (start, stop) blocks of at most `most`."""
    return [(start, min(start + most, length)) for start in range(0, length, most)]


def in_threads(work: Callable[[int, int], Any], pieces: Sequence[tuple[int, int]], tell: Tell = nobody) -> list[Any]:
    """Run `work(start, stop)` for every block on all cores; results are in the blocks' order.

    These are plain threads, not Numba's own pool: they survive a fork and leave nothing running. The calling thread
    also works, and waits only for blocks that another thread has taken. So a thread that cannot be started, or dies of
    lack of memory while it starts (Python's own pool would wait for it forever), costs only time. The calling thread
    calls `tell`. The first error ends the work, and is raised once no thread is working on a block.
    """
    found: list[Any] = [None] * len(pieces)
    left, done, errors = list(reversed(range(len(pieces)))), list[int](), list[BaseException]()
    busy = [False] * (min(len(pieces), os.cpu_count() or 1) - 1)  # whether each other thread may be working on a block
    wake: SimpleQueue[None] = SimpleQueue()

    def take_one() -> None:
        try:
            at = left.pop()
        except IndexError:  # another thread was faster
            return
        found[at] = work(*pieces[at])
        done.append(at)

    def help_out(helper: int) -> None:
        while left and not errors:
            busy[helper] = True
            try:
                take_one()
            except BaseException as error:
                errors.append(error)
            finally:
                busy[helper] = False
                wake.put(None)

    try:
        for helper in range(len(busy)):
            with suppress(RuntimeError, MemoryError):
                start_new_thread(help_out, (helper,))
        while left and not errors:
            take_one()
            tell(len(done) / len(pieces))
        while any(busy) and not errors:
            with suppress(Empty):
                wake.get(timeout=MOST_WAIT)
            tell(len(done) / len(pieces))
    except BaseException as error:
        errors.append(error)
    while any(busy):  # a thread may still be writing to its block
        with suppress(Empty):
            wake.get(timeout=MOST_WAIT)
    if errors:
        raise errors[0]
    return found
