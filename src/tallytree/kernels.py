"""How Numba kernels are compiled here: cached on disk, without the interpreter lock, so that threads share work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from os import cpu_count
from typing import Any, TypeVar

import numba

from tallytree.progress import Tell, nobody

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile `function` with Numba; only the first ever run on a machine pays for it."""
    compiled: Function = numba.njit(cache=True, nogil=True)(function)
    return compiled


@contextmanager
def told_of_compiling(tell: Callable[[bool], None]) -> Iterator[None]:
    """Have `tell` called with True whenever a kernel begins to be compiled, and with False when it is.

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
    """Cut `range(length)` into consecutive (start, stop) blocks of at most `most`."""
    return [(start, min(start + most, length)) for start in range(0, length, most)]


def in_threads(work: Callable[[int, int], Any], pieces: Sequence[tuple[int, int]], tell: Tell = nobody) -> list[Any]:
    """Run `work(start, stop)` for every block on all cores; results in the blocks' order.

    Plain threads, not Numba's own pool: they survive a fork and leave nothing running behind. `tell` is called by the
    thread that waits for them.
    """
    if len(pieces) <= 1:
        return [work(*piece) for piece in pieces]
    found: list[Any] = []
    with ThreadPoolExecutor(max_workers=min(len(pieces), cpu_count() or 1)) as pool:
        for result in pool.map(lambda piece: work(*piece), pieces):
            found.append(result)
            tell(len(found) / len(pieces))
    return found
