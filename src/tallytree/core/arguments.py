"""Checks of the arguments of public functions: a value of the right kind, or an error that names the kind.

A message names a value by its type, and quotes it only if it is a short text or number, because a table might be
private.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from math import isfinite
from os import PathLike, fspath
from typing import Any, ParamSpec, TypeVar

from tallytree.core.errors import SpecError
from tallytree.core.names import did_you_mean
from tallytree.core.numbers import as_plain, short

LONGEST_PATH, LONGEST_NAME = 4096, 255  # characters of a path and bytes of a name: limits of operating systems

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Kind:
    """The allowed values of an argument: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)


def _is_path(value: Any) -> bool:
    if not isinstance(value, str | PathLike):
        return False
    path = fspath(value)
    if not _is_text(path) or path == "" or "\0" in path:
        return False
    return len(path) < LONGEST_PATH and all(len(part.encode()) <= LONGEST_NAME for part in path.split("/"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and isfinite(value)


TEXT = Kind("a text", _is_text)
PATH = Kind("a path", _is_path)
FLAG = Kind("True or False", lambda value: isinstance(value, bool))
WHOLE = Kind("an integer", lambda value: isinstance(value, int) and not isinstance(value, bool))
NUMBER = Kind("a number", _is_number)
MAPPING = Kind("a mapping by name", lambda value: isinstance(value, Mapping) and all(map(_is_text, value)))


def instance(of: type, such_as: str = "") -> Kind:
    """Return the kind of a class's values, with an example of a constructor call."""
    return Kind(f"a {of.__name__}{such_as and f' ({such_as})'}", lambda value: isinstance(value, of))


def optional(kind: Kind) -> Kind:
    """Return the kind of a value or None."""
    return Kind(f"{kind.words} or None", lambda value: value is None or kind.holds(value))


def either(*kinds: Kind) -> Kind:
    """Return the kind of a value of one of several kinds."""
    return Kind(" or ".join(kind.words for kind in kinds), lambda value: any(kind.holds(value) for kind in kinds))


def several(kind: Kind) -> Kind:
    """Return the kind of a list or tuple of a kind."""

    def holds(value: Any) -> bool:
        return isinstance(value, Sequence) and not isinstance(value, str | bytes) and all(map(kind.holds, value))

    return Kind(f"a list, each item {kind.words}", holds)


def expect(value: Any, kind: Kind, what: str) -> None:
    """Refuse a value that is not of a kind."""
    if not kind.holds(value):
        raise SpecError(f"{what} is {told(value)}; expected {kind.words}")


def told(value: Any) -> str:
    """Return a value as a message names it."""
    plain = value is None or isinstance(value, str | int | float)
    return short(value) if plain else f"of type {type(value).__name__}"


class ArgumentError(SpecError, TypeError):
    """Raised when a function does not take the given arguments; the message names arguments and quotes no values."""


def bind(function: Callable[..., Any], given: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call by name; raise ArgumentError if the function does not take them."""
    signature = inspect.signature(function)
    try:
        return signature.bind(*given, **named).arguments
    except TypeError:
        pass
    called = f"{function.__qualname__.removesuffix('.__init__')}()"
    parameters = list(signature.parameters.values())
    known = [one.name for one in parameters if one.name != "self"]
    if unknown := [name for name in named if name not in known]:
        raise ArgumentError(f"{called} has no argument {short(unknown[0])}; {did_you_mean(unknown[0], known)}")
    by_place = [one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD][: len(given)]
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in _ANY]
    if missing := [name for name in needed if name not in named and name not in by_place]:
        raise ArgumentError(f"{called} needs the argument {', '.join(map(repr, missing))}")
    if twice := [name for name in by_place if name in named]:
        raise ArgumentError(f"{called} is given {twice[0]!r} twice, by position and by name")
    raise ArgumentError(f"{called} has too many positional arguments; name them: {', '.join(known)}")


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def expecting(**kinds: Kind) -> Callable[[Callable[Given, Result]], Callable[Given, Result]]:
    """Make a function refuse arguments of the wrong kind; it checks arguments without a kind itself.

    It gets the numbers of NumPy as Python's own, so that they can be compared, hashed and written like these.
    """

    def decorated(function: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(function)
        def checked(*given: Given.args, **named: Given.kwargs) -> Result:
            plain: Any = [as_plain(value) for value in given], {key: as_plain(value) for key, value in named.items()}
            for name, value in bind(function, *plain).items():
                if name in kinds:
                    expect(value, kinds[name], name)
            return function(*plain[0], **plain[1])

        return checked

    return decorated
