"""Print in every encoding: characters that a stream cannot encode become readable ASCII."""

from __future__ import annotations

import codecs
import sys
from itertools import groupby

HANDLER = "tallytree"  # the name of the error handler of Python's encoders
SIGNS = {
    **dict.fromkeys("−–—·─━═╌╸╺", "-"),
    **dict.fromkeys("‘’", "'"),
    **dict.fromkeys("“”", '"'),
    **dict.fromkeys("\xa0▏▎▍", " "),
    **dict.fromkeys("×✗", "x"),
    **dict.fromkeys("█▌▋▊▉", "#"),
    **dict.fromkeys("│┃║", "|"),
    **dict.fromkeys("✓┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝╠╣╦╩╬", "+"),
    "…": "...",
    "•": "*",
    "→": "->",
    "±": "+/-",
    "÷": "/",
    "≤": "<=",
    "≥": ">=",
    "≠": "!=",
    "≈": "~",
    "∞": "infinity",
    "√": "sqrt",
    "½": "1/2",
}
LETTERS = {"ε": "epsilon", "δ": "delta", "ρ": "rho", "σ": "sigma", "Σ": "sum", "α": "alpha", "β": "beta", "λ": "lambda"}
POWERS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+", strict=True))


def make_streams_safe() -> None:
    """Let standard output and standard error accept any text; write characters they cannot encode in ASCII."""
    codecs.register_error(HANDLER, _replace)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=HANDLER)


def fits(text: str) -> bool:
    """Return whether standard output can encode a text."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _replace(error: UnicodeError) -> tuple[str, int]:
    """Handle an encoding error: return ASCII for the characters, and the position after them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return in_ascii(error.object, error.start, error.end), error.end


def in_ascii(text: str, start: int = 0, end: int | None = None) -> str:
    r"""Return a part of a text with signs in ASCII; other characters, such as those of names, are escaped as in
    Python.

    >>> in_ascii("ε = 1 ± 10⁻⁹ …"), in_ascii("Åland"), in_ascii("Κρήτη")
    ('epsilon = 1 +/- 10^-9 ...', '\\xc5land', '\\u039a\\u03c1\\u03ae\\u03c4\\u03b7')
    """
    end = len(text) if end is None else end
    found = []
    for power, places in groupby(range(start, end), lambda place: text[place] in POWERS):
        if power:
            found.append("^" + "".join(POWERS[text[place]] for place in places))
        else:
            found += [_one(text, place) for place in places]
    return "".join(found)


def _one(text: str, place: int) -> str:
    """Return one character in ASCII. A Greek letter between other letters belongs to a name, and is escaped."""
    character = text[place]
    if character.isascii() or character in SIGNS:
        return SIGNS.get(character, character)
    if character in LETTERS and not any(each.isalpha() for each in (text[:place][-1:], text[place + 1 : place + 2])):
        return LETTERS[character]
    return character.encode("ascii", "backslashreplace").decode()
