"""Sizes as people write them: ">=6", "3-5", "0", "1,2,7+"; and as sentences say them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from numbers import Integral

from tallytree.errors import SpecError
from tallytree.histogram import size_label

_COMPARED = re.compile(r"(>=|<=|>|<|=)?\s*(\d+)")
_SPANNED = re.compile(r"(\d+)\s*(?:-|–|\.\.|…|to)\s*(\d+)")
_OPEN = re.compile(r"(\d+)\s*(?:\+|or more)")
HOW = 'write ">=6", "<=2", "3-5", "7+", "0", or several of them as in "1,2,7+"'


def sizes_in(text: str | int | Iterable[int] | None, known: range) -> tuple[int, ...]:
    """The sizes that a text or a list of numbers names, ascending; None names all.

    `known` are the sizes that a release counts, the last of which stands for all larger ones too: so sizes beyond it
    cannot be told apart, and a range that reaches beyond it is refused. An empty choice is refused too.

    >>> sizes_in("1,3-4,6+", range(1, 8)), sizes_in("< 3", range(0, 8)), sizes_in(7, range(1, 8))
    ((1, 3, 4, 6, 7), (0, 1, 2), (7,))
    """
    if text is None:
        return tuple(known)
    if isinstance(text, str):
        parts = [part.strip() for part in text.replace("≥", ">=").replace("≤", "<=").split(",")]
        found = {size for part in parts for size in _part(part, text, known)}
    else:
        given = [text] if isinstance(text, Integral) and not isinstance(text, bool) else text
        if not isinstance(given, Iterable):
            raise SpecError(f"{text!r} is no size; {HOW}")
        found = set()
        for size in given:
            if isinstance(size, bool) or not isinstance(size, Integral):
                raise SpecError(f"{size!r} is no size; expected a whole number")
            found.add(int(size))
    if not found:
        raise SpecError(f"the sum is empty: {_quoted(text)} holds none of the sizes {_known(known)}")
    for size in sorted(found):
        _check(size, known)
    return tuple(sorted(found))


def in_words(sizes: Sequence[int], known: range) -> str:
    """Sizes for a sentence; nothing where they are all.

    >>> in_words([1, 2, 3, 6], range(0, 7)), in_words([4], range(1, 7)), in_words(range(1, 7), range(1, 7))
    ('sizes 1 to 3 and 6 or more', 'size 4', '')
    """
    if len(sizes) == len(known):
        return ""
    last = known[-1]
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    texts = []
    for run in runs:
        if run[-1] == last:
            texts.append(f"{run[0]} or more")
        elif len(run) == 1:
            texts.append(size_label(run[0], last))
        else:
            texts.append(f"{run[0]} to {run[-1]}")
    alone = len(runs) == 1 and (len(runs[0]) == 1 or runs[0][-1] == last)
    return f"{'size' if alone else 'sizes'} {listed(texts)}"


def listed(texts: Sequence[str]) -> str:
    """a, b and c.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)


def _part(part: str, text: str, known: range) -> range:
    """One part of a list of sizes."""
    if found := _OPEN.fullmatch(part):
        return _from(int(found[1]), known)
    if found := _SPANNED.fullmatch(part):
        for size in (int(found[1]), int(found[2])):
            _check(size, known)
        return range(int(found[1]), int(found[2]) + 1)
    if not (found := _COMPARED.fullmatch(part)):
        raise SpecError(f"{text!r} names no sizes that can be read; {HOW}")
    sign, size = found[1], int(found[2])
    if sign == ">=":
        return _from(size, known)
    if sign == ">":
        return _from(size + 1, known)
    if sign in ("<", "<="):
        stop = size + (sign == "<=")
        if stop > known.start:
            _check(stop - 1, known)
        return range(known.start, stop)
    _check(size, known)
    return range(size, size + 1)


def _from(size: int, known: range) -> range:
    if size > known[-1]:
        _check(size, known)
    return range(max(size, known.start), known.stop)


def _check(size: int, known: range) -> None:
    if size in known:
        return
    if size == 0:
        raise SpecError("there is no size 0: the list of groups is private, so empty groups are not known of")
    raise SpecError(f"there is no size {size}; this release counts the sizes {_known(known)}")


def _known(known: range) -> str:
    return f"{known[0]} to {known[-1]}, where {known[-1]} stands for {size_label(known[-1], known[-1])}"


def _quoted(text: object) -> str:
    return repr(text) if isinstance(text, str) else "the list of sizes"
