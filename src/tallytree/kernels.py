"""How Numba kernels are compiled here: cached on disk, without the interpreter lock, so that threads share work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import cpu_count
from typing import Any, TypeVar

import numba

Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    """Compile `function` with Numba; only the first ever run on a machine pays for it."""
    compiled: Function = numba.njit(cache=True, nogil=True)(function)
    return compiled


def blocks(length: int, most: int) -> list[tuple[int, int]]:
    """Cut `range(length)` into consecutive (start, stop) blocks of at most `most`."""
    return [(start, min(start + most, length)) for start in range(0, length, most)]


def in_threads(work: Callable[[int, int], Any], pieces: Sequence[tuple[int, int]]) -> list[Any]:
    """Run `work(start, stop)` for every block on all cores; results in the blocks' order.

    Plain threads, not Numba's own pool: they survive a fork and leave nothing running behind.
    """
    if len(pieces) <= 1:
        return [work(*piece) for piece in pieces]
    with ThreadPoolExecutor(max_workers=min(len(pieces), cpu_count() or 1)) as pool:
        return list(pool.map(lambda piece: work(*piece), pieces))
