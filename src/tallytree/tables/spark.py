"""Sessions of Spark that a URL opens: on a standalone cluster (`spark://`), or of Spark Connect (`sc://`).

Spark alone waits for a long time or forever: for a master that does not exist, for workers that do not come, for a
server that has ended. Its log, which may quote rows, goes to the terminal. Sessions opened here give up after
`PATIENCE` seconds with a message of tallytree, and Spark's process is silent and ends with the session.
"""

from __future__ import annotations

import gc
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tallytree.core.errors import DataError, SpecError

PATIENCE = 120.0  # seconds without a worker, or without the server
LOOKS = 1.0  # seconds between two checks for workers
CONNECT_PORT = 15002
SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}

MISSING = "Spark needs PySpark: pip install 'tallytree[engines]'"
LOST = "the connection to Spark was lost, or its server has ended"
NO_WORKERS = (
    "Spark's cluster had no worker for this session in {seconds:.0f} seconds: check on the master's page whether "
    "workers are alive and have the memory and the cores free that it asks for, and whether they can reach this "
    "machine (spark.driver.host)"
)
NO_MASTER = (
    "Spark's master does not accept a session: its version differs from PySpark's here ({version}), it asks for a "
    "secret that this session does not have, or the server at that address is not a master of Spark"
)
NO_SERVER = (
    "the server does not accept a session of Spark Connect: it is another kind of server, or the token is wrong or "
    "missing (it is taken from the variable SPARK_CONNECT_AUTHENTICATE_TOKEN; with a token the connection must be "
    "encrypted, unless the host is localhost)"
)

# Spark's names of error conditions, which contain no value of a row, and their messages here.
CONDITIONS = {
    "INVALID_HANDLE": LOST,
    "RETRIES_EXCEEDED": LOST,
    "TABLE_OR_VIEW_NOT_FOUND": "the table does not exist any more",
    "FAILED_READ_FILE": "a file of the table cannot be read, or does not exist any more",
    "PATH_NOT_FOUND": "a file of the table does not exist any more",
    "INSUFFICIENT_PERMISSIONS": "this user may not read the table",
}
WORDS = {"AccessControlException": CONDITIONS["INSUFFICIENT_PERMISSIONS"], "OutOfMemoryError": "Spark is out of memory"}


_OPEN: list[tuple[str, Callable[[], None]]] = []  # URLs of clusters with an open session, and the function that ends it
_BLOCKS: list[None] = []  # open `keep_sessions` blocks


@dataclass(frozen=True, eq=False, repr=False)
class Session:
    """A session of Spark and the function that ends it; `ask` runs work that queries it."""

    session: Any
    close: Callable[[], None]
    ask: Callable[[Callable[[], Any]], Any]


def opened(url: str) -> Session:
    """Return the session at a URL."""
    _pyspark()
    return _of_connect(url) if url.startswith("sc://") else _on_cluster(url)


@contextmanager
def keep_sessions() -> Iterator[None]:
    """Keep a cluster's session open within the block for the next read from the same URL; it ends with the block.

    Starting one takes seconds on the cluster, and a spec may name several tables there.
    """
    _BLOCKS.append(None)
    try:
        yield
    finally:
        _BLOCKS.pop()
        if not _BLOCKS:
            _end_open()


def _end_open() -> None:
    while _OPEN:
        _OPEN.pop()[1]()


def why(error: Exception) -> str | None:
    """Return the meaning of a known error of Spark, without quoting it."""
    if isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JNetworkError", "RetriesExceeded"):
        return LOST
    code = getattr(error, "code", None)
    if callable(code) and getattr(code(), "name", "") in ("UNAVAILABLE", "CANCELLED"):  # an error of gRPC
        return LOST
    text = str(error)
    if "StatusCode.UNAVAILABLE" in text or "stopped SparkContext" in text or "SparkContext was shut down" in text:
        return LOST
    asked = getattr(error, "getCondition", None)  # missing from some errors of Spark
    condition = (asked() if callable(asked) else None) or ""
    found = (words for name, words in CONDITIONS.items() if condition.startswith(name) or f"[{name}" in text)
    return next(found, next((words for name, words in WORDS.items() if name in text), None))


def _pyspark() -> Any:
    try:
        import pyspark.sql
    except ImportError:
        raise SpecError(MISSING) from None
    return pyspark


def _check_reachable(url: str, port: int | None = None) -> None:
    """Check that a server is listening: Spark itself would retry again and again."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or port or 0), timeout=10):
            return
    except TimeoutError:
        problem = "the server does not answer"
    except socket.gaierror:
        problem = "the host name is unknown"
    except OSError:
        problem = "no server is listening at that address"
    raise DataError(f"Spark cannot be reached: {problem}")


# -------------------------------------------------------------------- a cluster


def _on_cluster(url: str) -> Session:
    """Open a session on a cluster, in a silent process of its own, or beside an open one on the same cluster."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if _OPEN and _OPEN[0][0] != url:
        _end_open()  # a process has one such session at a time
    running = SparkContext._active_spark_context
    if running is not None and running.master == url:
        session = SparkSession(running).newSession()  # the same cluster and catalog, with its own settings and views
        return Session(session, lambda: None, lambda work: _run_watched(running, work))
    _check_reachable(url)
    if running is not None:
        raise SpecError(
            "this process has another Spark session; give a data frame of it: read(session.table('people'))"
        )
    context, close = _context(url)
    ask: Callable[[Callable[[], Any]], Any] = lambda work: _run_watched(context, work)  # noqa: E731
    session = SparkSession(context)
    try:
        ask(session.range(1).count)  # fails without a worker
    except BaseException:
        close()
        raise
    if _BLOCKS:
        _OPEN.append((url, close))
        return Session(session.newSession(), lambda: None, ask)
    return Session(session, close, ask)


def _context(url: str) -> tuple[Any, Callable[[], None]]:
    """Return Spark's context and a function that ends it with its process and restores this process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    in_main = threading.current_thread() is threading.main_thread()
    interrupts = signal.getsignal(signal.SIGINT)  # PySpark installs its own handler
    given = SparkContext._gateway
    conf = SparkConf().setMaster(url).setAppName("tallytree")
    for name, value in SETTINGS.items():
        conf.set(name, value)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        gateway = given or launch_gateway(conf, popen_kwargs=quiet)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        raise SpecError(
            "Spark needs Java (17 or later), and it did not start: install it, or set JAVA_HOME to its folder"
        ) from None

    def close() -> None:
        with suppress(Exception):  # it may have ended already
            if (context := SparkContext._active_spark_context) is not None:
                context.stop()
        SparkContext._active_spark_context = None
        if gateway is not given:
            _end(gateway)
            SparkContext._gateway = SparkContext._jvm = None
        if in_main:
            signal.signal(signal.SIGINT, interrupts)

    try:
        return SparkContext(conf=conf, gateway=gateway), close
    except Exception:
        close()
        raise DataError(NO_MASTER.format(version=_pyspark().__version__)) from None
    except BaseException:
        close()
        raise


def _end(gateway: Any) -> None:
    """End Spark's process here: it exits when its standard input is closed."""
    process = getattr(gateway, "proc", None)
    with suppress(Exception):
        gateway.shutdown()
    if process is None:
        return
    with suppress(OSError):
        process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _run_watched(context: Any, work: Callable[[], Any]) -> Any:
    """Do work that queries a cluster; give up after `PATIENCE` seconds without a worker."""
    with _watch(context) as gone:
        try:
            return work()
        except Exception:
            if not gone.is_set():
                raise
        raise DataError(NO_WORKERS.format(seconds=PATIENCE))


@contextmanager
def _watch(context: Any) -> Iterator[threading.Event]:
    """Look for workers meanwhile; after `PATIENCE` seconds without one, cancel all work of the context."""
    gone, over = threading.Event(), threading.Event()

    def look() -> None:
        seen = time.monotonic()
        while not over.wait(LOOKS):
            try:
                if context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # one of them is this process
                    seen = time.monotonic()
            except Exception:
                return  # the session has ended, and the work with it
            if time.monotonic() - seen > PATIENCE:
                gone.set()
                with suppress(Exception):
                    context.cancelAllJobs()  # repeatedly: work that is still being planned has no job yet

    watcher = threading.Thread(target=look, name="tallytree looks for workers", daemon=True)
    watcher.start()
    try:
        yield gone
    finally:
        over.set()
        watcher.join()


# -------------------------------------------------------------------- Spark Connect


def _of_connect(url: str) -> Session:
    """Open a session of Spark Connect, which gives up a lost server sooner than after Spark's ten minutes."""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError:  # also PySpark's own ImportError
        raise SpecError("Spark Connect needs gRPC: pip install 'tallytree[engines]'") from None
    _check_reachable(url, CONNECT_PORT)
    # PySpark holds a lock while it starts a thread. If a garbage collection in that thread finds a dead session, the
    # session's finalizer waits for the same lock, forever. So dead sessions are collected first.
    gc.collect()
    session = SparkSession(url)
    waits = 5.0  # seconds between two tries
    session.client.set_retry_policies([DefaultPolicy(max_retries=int(PATIENCE / waits), max_backoff=int(waits * 1000))])

    def close() -> None:
        session.client.set_retry_policies([])  # a lost server keeps no session
        session.stop()

    try:
        session.range(1).collect()
    except Exception:
        close()
        raise DataError(NO_SERVER) from None
    return Session(session, close, lambda work: work())
