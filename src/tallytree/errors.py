"""The errors that tallytree raises on purpose; each says what was found, what was expected and what to do.

No message may hold a value of a private column: counts and column names only.
"""

from __future__ import annotations


class TallytreeError(Exception):
    """What every error raised on purpose derives from."""


class SpecError(TallytreeError):
    """A public input (spec, option, hierarchy, plan) is wrong."""


class DataError(TallytreeError):
    """The microdata or the groups table cannot be used as they are."""


class BudgetError(TallytreeError):
    """A budget is malformed, or more would be spent than is left."""


class ReleaseError(TallytreeError):
    """A release cannot be written, read or verified."""
