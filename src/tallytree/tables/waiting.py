"""Waiting for DuckDB: it works in a thread, so that whoever waits can be told how far it is, and can interrupt it.

A query that runs in the main thread keeps Python from noticing Ctrl-C until it is over.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

SECONDS = 0.2  # between two looks

Result = TypeVar("Result")


def waited(connection: Any, work: Callable[[], Result], tell: Callable[[float], None]) -> Result:
    """What `work` gives, which runs queries on this connection; meanwhile `tell` gets percentages that are done.

    An interrupt, or whatever `tell` raises, ends the query and is raised once it has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()  # interrupts are for the main thread
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(work)
        try:
            while not wait([future], timeout=SECONDS).done:
                tell(connection.query_progress())  # below 0 where it is not known
        except BaseException:
            while not wait([future], timeout=SECONDS).done:
                connection.interrupt()  # again, if it came between two queries
            raise
        return future.result()
