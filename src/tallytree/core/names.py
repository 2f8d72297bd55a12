"""Names that other people chose: displayed visibly, safe in a spreadsheet, and matched despite typing errors.

A region, a level, a title or a path can contain anything: codes that recolour a terminal, line ends, or `=1+1`. Files
for programs keep the exact name; these functions are for display and for spreadsheets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

LONGEST = 60  # limit for the characters of a text within a line
MOST_ITEMS = 3  # limit for a list within a line

# Control characters (escape codes begin with one), line ends that are not a space, characters that reverse the order
# of the text after them, and unpaired surrogates, which cannot be written at all.
UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
# Characters that a spreadsheet may take for the beginning of a formula (OWASP: CSV Injection), with their wide forms.
FORMULA = "=+-@\t\r\n＝＋－＠"
MARK = "'"  # in a spreadsheet it means: the rest is text


def visible(text: object, *, lines: bool = False) -> str:
    r"""Return a text in which nothing acts on a terminal: invisible characters become escapes.

    With `lines` line ends are unchanged, for a message of several lines.

    >>> print(visible("Fulton\x1b[31m\nred"))
    Fulton\x1b[31m\nred
    """
    return UNSEEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _escape(found[0]), str(text))


def _escape(character: str) -> str:
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    code = ord(character)
    return short.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def for_a_spreadsheet(text: str) -> str:
    """Return a cell of a CSV file: a text that would be a formula gets an apostrophe in front, which marks it as text.

    A text that begins with apostrophes and would then be a formula gets one, too, so that `from_a_spreadsheet` is
    exact.

    >>> [for_a_spreadsheet(name) for name in ("=1+1", "Fulton", "'=1+1", "'s-Gravenhage")]
    ["'=1+1", 'Fulton', "''=1+1", "'s-Gravenhage"]
    """
    return MARK + text if _is_formula(text) else text


def from_a_spreadsheet(cell: str) -> str:
    """Return the text of a cell that `for_a_spreadsheet` wrote."""
    return cell[1:] if cell.startswith(MARK) and _is_formula(cell) else cell


def _is_formula(text: str) -> bool:
    return text.lstrip(MARK)[:1] in tuple(FORMULA)


def nearest(word: object, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known word that is most similar to a word, if any is similar; case does not matter."""
    folded = {name.casefold(): name for name in known}
    found = get_close_matches(str(word).casefold(), folded, n=1, cutoff=cutoff)
    return folded[found[0]] if found else None


def did_you_mean(word: object, known: Iterable[str], what: str = "there are") -> str:
    """Return a hint for an unknown word: the nearest known one, or all of them.

    >>> did_you_mean("conty", ["state", "county"]), did_you_mean("x", ["state", "county"])
    ("did you mean 'county'?", 'there are state, county')
    """
    names = list(known)
    if near := nearest(word, names):
        return f"did you mean {near!r}?"
    most = 20
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{what} {', '.join(names[:most])}{rest}" if names else f"{what} none"


SECRET_KEY = re.compile(
    r"(?:(?<![a-z])(?:pass|pwd|secret)|password|passwd|passphrase|passcode|token|credentials?|(?:api|access|account|private)[_-]?key)\W{0,3}[=:]"
    r"|\bbearer\s|\bbasic\s+[\w+/]{8,}=*$",
    re.IGNORECASE,
)


def may_hold_secret(text: object) -> bool:
    """Return whether a text may contain a password or a token. Such a text is not repeated in messages.

    >>> [may_hold_secret(text) for text in ("host=db password='x'", "PGPASSWORD=x", '{"api_key": "x"}', "people.csv")]
    [True, True, True, False]
    """
    return isinstance(text, str) and SECRET_KEY.search(text) is not None


# -------------------------------------------------------------------- values in one line


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return the beginning of a text that is too long for a line."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def quoted(text: str) -> str:
    """Return a text in quotes; of a long one, its beginning."""
    return repr(shortened(text))


def briefly(value: Any) -> str:
    """Return the `repr` of a dataclass with shapes in place of its arrays and long lists."""
    parts = (f"{field.name}={_in_short(getattr(value, field.name))}" for field in fields(value) if field.repr)
    return f"{type(value).__name__}({', '.join(parts)})"


def _in_short(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Fraction):
        return shortened(str(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"[{' × '.join(f'{length:,}' for length in value.shape) or 'one'} {value.dtype}]"
    if hasattr(value, "num_rows"):
        return f"[{value.num_rows:,} rows]"
    if isinstance(value, Mapping):
        return f"{{{len(value):,} …}}" if value else "{}"
    if isinstance(value, tuple | list | frozenset | set):
        if len(value) > MOST_ITEMS:
            return f"({len(value):,} …)"
        return f"({', '.join(_in_short(item) for item in value)})"
    if is_dataclass(value) and len(repr(value)) > LONGEST:
        return f"{type(value).__name__}(…)"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return shortened(repr(value))
