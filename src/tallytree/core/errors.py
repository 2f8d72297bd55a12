"""The errors that tallytree raises on purpose; each says what was found, what was expected and what to do.

No message may hold a value of a private column: counts and column names only.
"""

from __future__ import annotations

from typing import Any


class TallytreeError(Exception):
    """What every error raised on purpose derives from. It can be pickled, whatever its class is made from."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, vars(self))


def _remake(kind: type[TallytreeError], args: tuple[Any, ...], state: dict[str, Any]) -> TallytreeError:
    """An error as it was pickled: its constructor, which may take other arguments, is not called again."""
    error = kind.__new__(kind, *args)
    vars(error).update(state)
    return error


class SpecError(TallytreeError):
    """A public input (spec, option, hierarchy, plan) is wrong."""


class DataError(TallytreeError):
    """The microdata or the groups table cannot be used as they are."""


class BudgetError(TallytreeError):
    """A budget is malformed, or more would be spent than is left."""


class ReleaseError(TallytreeError):
    """A release cannot be written, read or verified."""
