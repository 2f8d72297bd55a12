"""Sessions of Spark that a URL opens: on a standalone cluster (`spark://`), or of Spark Connect (`sc://`).

Left alone, Spark waits for long or for ever: for a master that is not there, for workers that do not come, for a server
that has ended. And its log, which may quote rows, goes to the terminal. Sessions that are opened here give up after
`PATIENCE` seconds in our words, and Spark's process is silent and ends with the session.
"""

from __future__ import annotations

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
LOOKS = 1.0  # seconds between two looks for workers
CONNECT_PORT = 15002
SETTINGS = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}

MISSING = "Spark needs PySpark: pip install 'tallytree[engines]'"
LOST = "the connection to Spark was lost, or its server has ended"
NO_WORKERS = (
    "Spark's cluster had no worker for this session in {seconds:.0f} seconds: see on the master's page whether workers "
    "are alive and have the memory and the cores free that it asks for, and whether they can reach this machine "
    "(spark.driver.host)"
)
NO_MASTER = (
    "Spark's master does not take a session: it is of another version than PySpark here ({version}), it asks for a "
    "secret that this session does not have, or what listens there is no master of Spark"
)
NO_SERVER = (
    "the server does not take a session of Spark Connect: what listens there is none, or the token is wrong or missing "
    "(it is taken from the variable SPARK_CONNECT_AUTHENTICATE_TOKEN; with a token the connection must be encrypted, "
    "unless the host is localhost)"
)

# Spark's names of conditions, which hold no value of a row, and what they mean here.
CONDITIONS = {
    "INVALID_HANDLE": LOST,
    "RETRIES_EXCEEDED": LOST,
    "TABLE_OR_VIEW_NOT_FOUND": "the table is not there any more",
    "FAILED_READ_FILE": "a file of the table cannot be read, or is not there any more",
    "PATH_NOT_FOUND": "a file of the table is not there any more",
    "INSUFFICIENT_PERMISSIONS": "this user may not read the table",
}
WORDS = {"AccessControlException": CONDITIONS["INSUFFICIENT_PERMISSIONS"], "OutOfMemoryError": "Spark is out of memory"}


_KEPT: list[tuple[str, Callable[[], None]]] = []  # URLs of clusters with a session that is kept, and what ends it
_KEEPERS: list[None] = []  # blocks that want this


@dataclass(frozen=True, eq=False, repr=False)
class Session:
    """A session of Spark, what ends it, and how it is asked: `ask` runs work that queries it."""

    session: Any
    close: Callable[[], None]
    ask: Callable[[Callable[[], Any]], Any]


def opened(url: str) -> Session:
    """The session at a URL."""
    _pyspark()
    return _of_connect(url) if url.startswith("sc://") else _on_cluster(url)


@contextmanager
def sessions_kept() -> Iterator[None]:
    """Within, a cluster's session stays for whoever reads from the same URL next; it ends with the block.

    To start one takes seconds on the cluster, and a spec may name several tables there.
    """
    _KEEPERS.append(None)
    try:
        yield
    finally:
        _KEEPERS.pop()
        if not _KEEPERS:
            _end_kept()


def _end_kept() -> None:
    while _KEPT:
        _KEPT.pop()[1]()


def why(error: Exception) -> str | None:
    """What an error of Spark means, if it is one of those that are known, in words without any of its own."""
    if isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JNetworkError", "RetriesExceeded"):
        return LOST
    code = getattr(error, "code", None)
    if callable(code) and getattr(code(), "name", "") in ("UNAVAILABLE", "CANCELLED"):  # of gRPC
        return LOST
    text = str(error)
    if "StatusCode.UNAVAILABLE" in text or "stopped SparkContext" in text or "SparkContext was shut down" in text:
        return LOST
    asked = getattr(error, "getCondition", None)  # not there in all errors of Spark
    condition = (asked() if callable(asked) else None) or ""
    found = (words for name, words in CONDITIONS.items() if condition.startswith(name) or f"[{name}" in text)
    return next(found, next((words for name, words in WORDS.items() if name in text), None))


def _pyspark() -> Any:
    try:
        import pyspark.sql
    except ImportError:
        raise SpecError(MISSING) from None
    return pyspark


def _reached(url: str, port: int | None = None) -> None:
    """See that somebody listens there: Spark itself would try again and again."""
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or port or 0), timeout=10):
            return
    except TimeoutError:
        problem = "the server does not answer"
    except socket.gaierror:
        problem = "there is no host of that name"
    except OSError:
        problem = "no server listens there"
    raise DataError(f"Spark cannot be reached: {problem}")


# -------------------------------------------------------------------- a cluster


def _on_cluster(url: str) -> Session:
    """A session on a cluster, in a silent process of its own; or beside one that there is on the same cluster."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if _KEPT and _KEPT[0][0] != url:
        _end_kept()  # a process has one such session at a time
    running = SparkContext._active_spark_context
    if running is not None and running.master == url:
        session = SparkSession(running).newSession()  # the same cluster and catalog, with settings and views of its own
        return Session(session, lambda: None, lambda work: _watched(running, work))
    _reached(url)
    if running is not None:
        raise SpecError(
            "this process has another Spark session; give a data frame of it: read(session.table('people'))"
        )
    context, close = _context(url)
    ask: Callable[[Callable[[], Any]], Any] = lambda work: _watched(context, work)  # noqa: E731
    session = SparkSession(context)
    try:
        ask(session.range(1).count)  # is there a worker?
    except BaseException:
        close()
        raise
    if _KEEPERS:
        _KEPT.append((url, close))
        return Session(session.newSession(), lambda: None, ask)
    return Session(session, close, ask)


def _context(url: str) -> tuple[Any, Callable[[], None]]:
    """What Spark calls a context, and what ends it with its process, leaving this one as it was."""
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    in_main = threading.current_thread() is threading.main_thread()
    interrupts = signal.getsignal(signal.SIGINT)  # PySpark has a handler of its own
    given = SparkContext._gateway
    conf = SparkConf().setMaster(url).setAppName("tallytree")
    for name, value in SETTINGS.items():
        conf.set(name, value)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        gateway = given or launch_gateway(conf, popen_kwargs=quiet)  # type: ignore[no-untyped-call]
    except PySparkRuntimeError:
        raise SpecError(
            "Spark needs Java (17 or later), and it did not start: install it, or say in JAVA_HOME where it is"
        ) from None

    def close() -> None:
        with suppress(Exception):  # it may have ended by itself
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
    """End Spark's process here: it ends by itself when what it reads from is closed."""
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


def _watched(context: Any, work: Callable[[], Any]) -> Any:
    """Do work that queries a cluster; give up if no worker was there for so long."""
    with _watch(context) as gone:
        try:
            return work()
        except Exception:
            if not gone.is_set():
                raise
        raise DataError(NO_WORKERS.format(seconds=PATIENCE))


@contextmanager
def _watch(context: Any) -> Iterator[threading.Event]:
    """Meanwhile look for workers; if there was none for so long, all work of the context is cancelled."""
    gone, over = threading.Event(), threading.Event()

    def look() -> None:
        seen = time.monotonic()
        while not over.wait(LOOKS):
            try:
                if context._jsc.sc().getExecutorMemoryStatus().size() > 1:  # one is this process
                    seen = time.monotonic()
            except Exception:
                return  # the session has ended, and the work with it
            if time.monotonic() - seen > PATIENCE:
                gone.set()
                with suppress(Exception):
                    context.cancelAllJobs()  # again and again: work that is still being planned has no job yet

    watcher = threading.Thread(target=look, name="tallytree looks for workers", daemon=True)
    watcher.start()
    try:
        yield gone
    finally:
        over.set()
        watcher.join()


# -------------------------------------------------------------------- Spark Connect


def _of_connect(url: str) -> Session:
    """A session of Spark Connect, which gives up a server that is gone sooner than after Spark's ten minutes."""
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession
    except ImportError:  # PySpark's own, too
        raise SpecError("Spark Connect needs gRPC: pip install 'tallytree[engines]'") from None
    _reached(url, CONNECT_PORT)
    session = SparkSession(url)
    waits = 5.0  # seconds between two tries
    session.client.set_retry_policies([DefaultPolicy(max_retries=int(PATIENCE / waits), max_backoff=int(waits * 1000))])

    def close() -> None:
        session.client.set_retry_policies([])  # a server that is gone keeps no session
        session.stop()

    try:
        session.range(1).collect()
    except Exception:
        close()
        raise DataError(NO_SERVER) from None
    return Session(session, close, lambda work: work())
