"""The errors that tallytree raises on purpose; each says what was found, what was expected and what to do.

No message may contain a value of a private column: only counts and column names.
"""

from __future__ import annotations

from typing import Any


class TallytreeError(Exception):
    """The base class of all errors raised on purpose. It can be pickled, for any arguments of its class."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, vars(self))


def _remake(kind: type[TallytreeError], args: tuple[Any, ...], state: dict[str, Any]) -> TallytreeError:
    """Return a pickled error: its constructor, which may take other arguments, is not called again."""
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


class SpecError(TallytreeError):
    """Raised when a public input (spec, option, hierarchy, plan) is wrong."""


class DataError(TallytreeError):
    """Raised when the microdata or the groups table have problems."""


class BudgetError(TallytreeError):
    """Raised when a budget is malformed, or a charge exceeds the remaining budget."""


class ReleaseError(TallytreeError):
    """Raised when a release cannot be written, read or verified."""
