"""Errors without private data: they carry no frames that held such data and no messages that may quote them.

Many tools show a traceback with the variables of its frames. So code that holds private arrays runs behind a guard,
which raises from outside: without inner frames, causes and contexts and, for an error of another package, without its
message.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from tallytree.core.arguments import bind
from tallytree.core.errors import DataError, TallytreeError

Given = ParamSpec("Given")
Result = TypeVar("Result")


class EngineError(DataError):
    """Raised when an engine fails; the engine's own message is withheld."""


def guarded(
    doing: str, call: Callable[[], Result], why: Callable[[Exception], str | None] = lambda error: None
) -> Result:
    """Run a call that may make an engine fail: its message becomes a `DataError` with its class or the text of
    `why`.
    """
    return _outside(call, lambda error: _engine_error(doing, error, why))()


def from_outside(doing: str) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Make a function that holds private data raise from outside of itself.

    An unplanned error becomes a `RuntimeError` with its class and the lines it came through. Errors of tallytree,
    interrupts, and errors of the system (without the names of files) are raised unchanged. Unknown arguments are
    refused by their names before the function begins.
    """
    return lambda function: _outside(function, lambda error: _unplanned(doing, error), binds=True)


def _outside(
    function: Callable[Given, Result], instead: Callable[[Exception], Exception], *, binds: bool = False
) -> Callable[Given, Result]:
    @wraps(function)
    def outside(*given: Given.args, **named: Given.kwargs) -> Result:
        try:
            if binds:
                bind(function, given, named)
            return function(*given, **named)
        except Exception as error:
            raised: BaseException = error if isinstance(error, TallytreeError) else instead(error)
        except BaseException as error:
            raised = error
        # Raised here, after the handlers: inside them the first error would become this one's context.
        del given, named
        raised.__cause__ = raised.__context__ = None
        raise raised.with_traceback(None)

    return outside


def _engine_error(doing: str, error: Exception, why: Callable[[Exception], str | None]) -> Exception:
    if isinstance(error, MemoryError):
        return MemoryError(f"{doing} ran out of memory")
    if words := why(error):
        return EngineError(f"{doing} failed: {words}. The engine's own message is withheld, because it may quote rows")
    return EngineError(
        f"{doing} failed with {type(error).__name__}. The engine's message is withheld, because it may quote private "
        "rows; check that the input is complete and of the kind its name says, or open it with the engine itself"
    )


def _unplanned(doing: str, error: Exception) -> Exception:
    if isinstance(error, MemoryError):
        return MemoryError(f"{doing} ran out of memory")
    if isinstance(error, OSError) and error.errno is not None:  # the system's message quotes nothing
        return OSError(error.errno, os.strerror(error.errno))
    way = ", ".join(
        f"{Path(step.filename).name}:{step.lineno} {step.name}" for step in traceback.extract_tb(error.__traceback__)
    )
    return RuntimeError(
        f"{doing} failed with {type(error).__name__}. Its message is withheld, because it may quote private values. "
        f"It came through {way}"
    )
